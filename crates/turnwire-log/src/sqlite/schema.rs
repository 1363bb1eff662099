//! The tables, and the migrations from each version to the next.

use super::errors::SqliteError;
use crate::error::Error;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::collections::BTreeSet;
use std::path::Path;

/// Marks the file as a Turnwire store in its header: "Twir".
pub(super) const APPLICATION_ID: i32 = 0x5477_6972;

/// Each migration produces the next version. Released migrations never change.
pub(super) const STEPS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3, VERSION_4];

/// Small appends go to `tail` in the order of arrival, because an index over all sessions costs a
/// page write for each. When a session has enough there, its events move to `segments` as one row.
/// So `segments` has the beginning of each session, `tail` the end. Rows of `tail` whose events are
/// also in `segments` no longer count.
const VERSION_1: &str = "
CREATE TABLE store (generation INTEGER NOT NULL) STRICT;
INSERT INTO store VALUES (0);

CREATE TABLE sessions (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    agent TEXT NOT NULL,
    title TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    first INTEGER NOT NULL DEFAULT 1,
    status INTEGER NOT NULL,
    open_from INTEGER,
    state TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_name ON sessions (tenant, id);
CREATE INDEX sessions_updated ON sessions (tenant, updated_ms, no);
CREATE INDEX sessions_busy ON sessions (tenant, status, updated_ms, no) WHERE status <> 0;
CREATE INDEX sessions_open ON sessions (no) WHERE open_from IS NOT NULL;

CREATE TABLE segments (
    no INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX segments_place ON segments (session, last);
CREATE INDEX segments_age ON segments (ms, session, size);

CREATE TABLE tail (
    no INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE messages (
    no INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    of_sub_agent INTEGER NOT NULL,
    superseded INTEGER NOT NULL,
    fold_version INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    json BLOB NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_id ON messages (session, id);
CREATE INDEX messages_place ON messages (session, first, last);

CREATE TABLE queue (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    reply_id TEXT NOT NULL,
    crc INTEGER NOT NULL,
    json BLOB NOT NULL
) STRICT;
CREATE INDEX queue_session ON queue (session, no);

CREATE TABLE keys (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    session INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    answer TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_age ON keys (ms);
CREATE INDEX keys_session ON keys (session);

CREATE TABLE blobs (
    no INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    hash BLOB NOT NULL,
    media_type TEXT NOT NULL,
    crc INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blobs_hash ON blobs (tenant, hash);

-- The words of messages (under their no) and of titles (under minus the session's).
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
-- What has changed since it was last put there.
CREATE TABLE unindexed (no INTEGER PRIMARY KEY) STRICT;

-- Sessions that are gone, of which rows are left.
CREATE TABLE deleted (session INTEGER PRIMARY KEY, left_in_tail INTEGER NOT NULL) STRICT;

-- Written and emptied again to see whether there is room.
CREATE TABLE probe (filler BLOB NOT NULL) STRICT;
";

/// Blobs in pieces, the bytes of each tenant, and which sessions refer to which blob. References of
/// older sessions are unknown, so older blobs are not tracked and stay.
const VERSION_2: &str = "
CREATE TABLE blob_uploads (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    size INTEGER NOT NULL,
    is_dead INTEGER NOT NULL
) STRICT;
CREATE INDEX blob_uploads_dead ON blob_uploads (no) WHERE is_dead;

CREATE TABLE blob_pieces (
    no INTEGER PRIMARY KEY,
    upload INTEGER NOT NULL,
    start INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blob_pieces_place ON blob_pieces (upload, start);

CREATE TABLE blob_info (
    blob INTEGER PRIMARY KEY,
    size INTEGER NOT NULL,
    upload INTEGER,
    is_tracked INTEGER NOT NULL,
    unused_ms INTEGER
) STRICT;
CREATE INDEX blob_info_unused ON blob_info (unused_ms) WHERE unused_ms IS NOT NULL;

CREATE TABLE blob_references (
    tenant TEXT NOT NULL,
    hash BLOB NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_references_session ON blob_references (session);

CREATE TABLE blob_usage (
    tenant TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO blob_info SELECT no, length(bytes), NULL, 0, NULL FROM blobs;
INSERT INTO blob_usage SELECT tenant, sum(length(bytes)) FROM blobs GROUP BY tenant;
";

const VERSION_3: &str = "
-- What the sessions of a tenant spent together, by their agents.
CREATE TABLE totals (
    tenant TEXT NOT NULL,
    agent TEXT NOT NULL,
    sums TEXT NOT NULL,
    PRIMARY KEY (tenant, agent)
) STRICT, WITHOUT ROWID;
-- Sessions that are not in it yet.
CREATE TABLE uncounted (no INTEGER PRIMARY KEY) STRICT;
INSERT INTO uncounted SELECT no FROM sessions;
";

const VERSION_4: &str = "
-- States of conversations, by which clients that send their history find their session.
CREATE TABLE history (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    -- Counts the states with the same seq.
    no INTEGER NOT NULL,
    client INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (session, seq, no)
) STRICT, WITHOUT ROWID;
-- The beginning of a digest is nearly unique, and makes the index a third smaller.
CREATE INDEX history_digest ON history (substr(digest, 1, 6));
ALTER TABLE sessions ADD COLUMN history BLOB;
";

/// Migrates the tables to the latest of the given versions, one transaction per version.
pub(super) fn migrate(conn: &Connection, steps: &[&str]) -> Result<(), SqliteError> {
    let version = user_version(conn)?;
    for (number, step) in (1..).zip(steps).skip_while(|(number, _)| *number <= version) {
        let transaction = conn.unchecked_transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Checks that a file is a Turnwire store of a known version, with exactly the tables, indexes and
/// columns that this version creates. A foreign trigger would run with our statements, and a
/// foreign index or view could change their results.
pub(super) fn check(conn: &Connection, file: &Path) -> Result<(), SqliteError> {
    let id: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if id != APPLICATION_ID {
        return Err(not_ours(file).into());
    }
    let version = user_version(conn)?;
    if let Some(steps) = usize::try_from(version).ok().and_then(|version| STEPS.get(..version)) {
        return compare(conn, file, steps);
    }
    Err(Error::Version(format!(
        "{} has format {version}, but this Turnwire supports formats up to {}; start the newer \
         Turnwire that wrote it. Nothing was changed",
        file.display(),
        STEPS.len()
    ))
    .into())
}

/// One row of `sqlite_schema`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    name: String,
    kind: String,
    table: String,
    sql: String,
}

/// All rows of `sqlite_schema`, including invalid ones.
fn objects(conn: &Connection) -> rusqlite::Result<BTreeSet<Object>> {
    let text = |row: &Row<'_>, column| {
        Ok::<_, rusqlite::Error>(match row.get_ref(column)? {
            ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            ValueRef::Null => String::new(),
            other @ (ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) => {
                format!("{other:?}")
            }
        })
    };
    conn.prepare("SELECT name, type, tbl_name, sql FROM sqlite_schema")?
        .query_map([], |row| {
            Ok(Object {
                name: text(row, 0)?,
                kind: text(row, 1)?,
                table: text(row, 2)?,
                sql: text(row, 3)?,
            })
        })?
        .collect()
}

/// Compares the objects in a file with those that the migrations create.
fn compare(conn: &Connection, file: &Path, steps: &[&str]) -> Result<(), SqliteError> {
    let encoding: String = conn.pragma_query_value(None, "encoding", |row| row.get(0))?;
    if encoding != "UTF-8" {
        return Err(planted(file, &format!("its texts are {encoding}")).into());
    }
    let ours = Connection::open_in_memory()?;
    migrate(&ours, steps)?;
    let (ours, found) = (objects(&ours)?, objects(conn)?);
    let differs = found.difference(&ours).next().or_else(|| ours.difference(&found).next());
    let Some(Object { name, kind, .. }) = differs else { return Ok(()) };
    let is = |objects: &BTreeSet<Object>| objects.iter().any(|object| object.name == *name);
    let what = match (is(&found), is(&ours)) {
        (true, false) => format!("it has the {kind} `{name}`, which Turnwire never creates"),
        (true, true) => format!("the {kind} `{name}` differs from what Turnwire creates"),
        (false, _) => format!("the {kind} `{name}` is missing"),
    };
    Err(planted(file, &what).into())
}

fn planted(file: &Path, what: &str) -> Error {
    Error::Damaged(format!(
        "{} was changed by another program: {what}. Turnwire changed nothing; restore a backup that \
         you trust",
        file.display()
    ))
}

pub(super) fn not_ours(file: &Path) -> Error {
    Error::Store(format!(
        "{} is not a Turnwire store, so nothing in it was changed; choose another file",
        file.display()
    ))
}

pub(super) fn user_version(conn: &Connection) -> rusqlite::Result<i32> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::{STEPS, migrate, user_version};
    use rusqlite::Connection;

    const FIRST: &str = "CREATE TABLE a (x); INSERT INTO a VALUES (1)";

    #[test]
    fn each_step_is_done_once() {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, &[FIRST]).unwrap();
        migrate(&conn, &[FIRST, "UPDATE a SET x = x + 10"]).unwrap();
        migrate(&conn, &[FIRST, "UPDATE a SET x = x + 10"]).unwrap();
        assert_eq!(user_version(&conn).unwrap(), 2);
        assert_eq!(conn.query_one("SELECT x FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 11);
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before() {
        let conn = Connection::open_in_memory().unwrap();
        assert!(migrate(&conn, &[FIRST, "UPDATE a SET x = 2; CREATE TABLE a (x)"]).is_err());
        assert_eq!(user_version(&conn).unwrap(), 1);
        assert_eq!(conn.query_one("SELECT x FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }

    #[test]
    fn the_steps_lead_to_tables() {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, STEPS).unwrap();
        assert_eq!(usize::try_from(user_version(&conn).unwrap()).unwrap(), STEPS.len());
    }
}
