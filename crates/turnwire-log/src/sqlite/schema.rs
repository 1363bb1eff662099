//! The tables, and the steps that lead from one version of them to the next.

use super::fault::Fault;
use crate::error::Error;
use rusqlite::Connection;
use std::path::Path;

/// Says in the file's header that it is ours: "Twir".
pub(super) const APPLICATION_ID: i32 = 0x5477_6972;

/// Each step makes the next version. Steps that were released are never changed.
pub(super) const STEPS: &[&str] = &[VERSION_1];

/// Small appends go to `tail`, in the order in which they came, because an index over all sessions
/// costs a page of writing for each of them. When enough of a session has gathered there, it moves
/// to `segments` as one row. So of every session `segments` has the beginning, `tail` the end.
/// Rows of `tail` whose events are in `segments` too no longer count.
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

/// Brings the tables to the latest of the given versions, a transaction for each step.
pub(super) fn migrate(conn: &Connection, steps: &[&str]) -> Result<(), Fault> {
    let version = user_version(conn)?;
    for (number, step) in (1..).zip(steps).skip_while(|(number, _)| *number <= version) {
        let transaction = conn.unchecked_transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// That a file is ours, and of a version that is known here.
pub(super) fn check(conn: &Connection, file: &Path) -> Result<(), Fault> {
    let id: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if id != APPLICATION_ID {
        return Err(not_ours(file).into());
    }
    let version = user_version(conn)?;
    if usize::try_from(version).is_ok_and(|version| version <= STEPS.len()) {
        return Ok(());
    }
    Err(Error::Version(format!(
        "{} has format {version}, and this Turnwire knows formats up to {}; start the newer \
         Turnwire that wrote it. Nothing was changed",
        file.display(),
        STEPS.len()
    ))
    .into())
}

pub(super) fn not_ours(file: &Path) -> Error {
    Error::Store(format!(
        "{} is not a Turnwire store, so nothing in it was changed; name another file",
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
