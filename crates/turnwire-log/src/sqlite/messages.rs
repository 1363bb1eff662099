//! Finished messages, the queue and keys: rows that come back as they were given.

use super::fault::Fault;
use super::places;
use super::search;
use crate::error::Error;
use crate::store::{KeyRecord, MessageQuery, Queued, StoredMessage};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::fmt::Write as _;
use std::path::Path;

/// The columns of [`message`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, first, last, event_id, of_sub_agent, superseded, fold_version, crc, json,
                    text, session
             FROM messages ",
            $rest
        )
    };
}

/// The sum that tells whether a row is what was written.
pub(super) fn crc(parts: &[&[u8]]) -> i64 {
    let mut crc = crc32fast::Hasher::new();
    for part in parts {
        crc.update(&(part.len() as u64).to_le_bytes());
        crc.update(part);
    }
    crc.finalize().into()
}

/// The sum of a message. Whether it is superseded is not in it: that changes by itself.
fn message_crc(message: &StoredMessage) -> i64 {
    let (first, last) = (message.first.get().to_le_bytes(), message.last.get().to_le_bytes());
    crc(&[
        message.id.as_bytes(),
        &first,
        &last,
        message.event_id.as_bytes(),
        &[message.of_sub_agent.into()],
        &message.fold_version.to_le_bytes(),
        &message.json,
        message.text.as_bytes(),
    ])
}

fn queued_crc(queued: &Queued) -> i64 {
    crc(&[queued.id.as_bytes(), queued.reply_id.as_bytes(), &queued.json])
}

fn key_crc(key: &KeyRecord) -> i64 {
    let (tenant, name) = (key.tenant.as_bytes(), key.key.as_bytes());
    crc(&[tenant, name, &key.fingerprint, key.answer.as_bytes()])
}

/// What a row holds, and whether it is what was written.
type Checked<T> = (T, bool);

/// A row of the columns of [`select!`].
pub(super) fn message(row: &Row<'_>) -> rusqlite::Result<Checked<StoredMessage>> {
    let message = StoredMessage {
        id: row.get(0)?,
        first: places::seq(row.get(1)?),
        last: places::seq(row.get(2)?),
        event_id: row.get(3)?,
        of_sub_agent: row.get(4)?,
        superseded: row.get(5)?,
        fold_version: row.get(6)?,
        json: Bytes::from(row.get::<_, Vec<u8>>(8)?),
        text: row.get(9)?,
    };
    let sound = row.get::<_, i64>(7)? == message_crc(&message);
    Ok((message, sound))
}

fn sound<T>((value, sound): Checked<T>, file: &Path, what: &str) -> Result<T, Fault> {
    if sound { Ok(value) } else { Err(changed(file, what).into()) }
}

/// What is said of a row that is not what was written.
pub(super) fn changed(file: &Path, what: &str) -> Error {
    Error::Damaged(format!(
        "{} is damaged: {what} is not what was written; look with `turnwire doctor`, and restore \
         the last backup",
        file.display()
    ))
}

/// That a session is there.
pub(super) fn session_is_there(conn: &Connection, session: i64) -> Result<(), Fault> {
    let there = conn.prepare_cached("SELECT 1 FROM sessions WHERE no = ?1")?.exists([session])?;
    if there { Ok(()) } else { Err(Error::NoSession.into()) }
}

pub(super) fn get(
    conn: &Connection,
    file: &Path,
    session: i64,
    id: &str,
) -> Result<Option<StoredMessage>, Fault> {
    session_is_there(conn, session)?;
    let found = conn
        .prepare_cached(select!("WHERE session = ?1 AND id = ?2"))?
        .query_one(params![session, id], message)
        .optional()?;
    found.map(|found| sound(found, file, &format!("message `{id}`"))).transpose()
}

pub(super) fn list(
    conn: &Connection,
    file: &Path,
    session: i64,
    query: &MessageQuery,
) -> Result<Vec<StoredMessage>, Fault> {
    session_is_there(conn, session)?;
    let forwards = query.after.is_some();
    let mut statement = conn.prepare_cached(if forwards {
        select!(
            "WHERE session = ?1 AND first > ?2 AND first < ?3 AND of_sub_agent <= ?4
             ORDER BY first, no LIMIT ?5"
        )
    } else {
        select!(
            "WHERE session = ?1 AND first > ?2 AND first < ?3 AND of_sub_agent <= ?4
             ORDER BY first DESC, no DESC LIMIT ?5"
        )
    })?;
    let mut rows = statement.query(params![
        session,
        query.after.map_or(0, |after| places::to_sql(after.get())),
        query.before.map_or(i64::MAX, |before| places::to_sql(before.get())),
        query.sub_agents,
        places::limit(query.limit),
    ])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let message = message(row)?;
        let what = format!("message `{}`", message.0.id);
        let message = sound(message, file, &what)?;
        bytes += message.size();
        found.push(message);
        if query.max_bytes.is_some_and(|most| bytes >= most) {
            break;
        }
    }
    if !forwards {
        found.reverse();
    }
    Ok(found)
}

/// Puts a message in place of the one that has its id, or adds it.
pub(super) fn put(conn: &Connection, session: i64, message: &StoredMessage) -> Result<(), Fault> {
    let no: i64 = conn
        .prepare_cached(
            "INSERT INTO messages (session, id, first, last, event_id, of_sub_agent, superseded,
                                   fold_version, crc, json, text)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (session, id) DO UPDATE SET
                 first = excluded.first, last = excluded.last, event_id = excluded.event_id,
                 of_sub_agent = excluded.of_sub_agent, superseded = excluded.superseded,
                 fold_version = excluded.fold_version, crc = excluded.crc, json = excluded.json,
                 text = excluded.text
             RETURNING no",
        )?
        .query_one(
            params![
                session,
                message.id,
                places::to_sql(message.first.get()),
                places::to_sql(message.last.get()),
                message.event_id,
                message.of_sub_agent,
                message.superseded,
                message.fold_version,
                message_crc(message),
                &*message.json,
                message.text,
            ],
            |row| row.get(0),
        )?;
    Ok(search::mark(conn, no)?)
}

pub(super) fn supersede(conn: &Connection, session: i64, id: &str) -> Result<(), Fault> {
    conn.prepare_cached("UPDATE messages SET superseded = 1 WHERE session = ?1 AND id = ?2")?
        .execute(params![session, id])?;
    Ok(())
}

pub(super) fn queued(conn: &Connection, file: &Path, session: i64) -> Result<Vec<Queued>, Fault> {
    session_is_there(conn, session)?;
    conn.prepare_cached("SELECT id, reply_id, crc, json FROM queue WHERE session = ?1 ORDER BY no")?
        .query_and_then([session], |row| {
            let found = waiting(row)?;
            let what = format!("the waiting message `{}`", found.0.id);
            sound(found, file, &what)
        })?
        .collect()
}

/// A row of `id, reply_id, crc, json`.
pub(super) fn waiting(row: &Row<'_>) -> rusqlite::Result<Checked<Queued>> {
    let json = Bytes::from(row.get::<_, Vec<u8>>(3)?);
    let queued = Queued { id: row.get(0)?, reply_id: row.get(1)?, json };
    let is_sound = row.get::<_, i64>(2)? == queued_crc(&queued);
    Ok((queued, is_sound))
}

pub(super) fn enqueue(conn: &Connection, session: i64, queued: &Queued) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT INTO queue (session, id, reply_id, crc, json) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        session,
        queued.id,
        queued.reply_id,
        queued_crc(queued),
        &*queued.json
    ])?;
    Ok(())
}

pub(super) fn dequeue(conn: &Connection, session: i64, id: &str) -> Result<(), Fault> {
    conn.prepare_cached("DELETE FROM queue WHERE session = ?1 AND id = ?2")?
        .execute(params![session, id])?;
    Ok(())
}

/// A key goes with its session, so one of a session that is gone is not found.
pub(super) fn key(
    conn: &Connection,
    file: &Path,
    tenant: &str,
    key: &str,
) -> Result<Option<KeyRecord>, Fault> {
    let found = conn
        .prepare_cached(
            "SELECT tenant, key, fingerprint, answer, crc FROM keys WHERE tenant = ?1 AND key = ?2
             AND EXISTS (SELECT 1 FROM sessions WHERE no = keys.session)",
        )?
        .query_one(params![tenant, key], answered)
        .optional()?;
    found.map(|found| sound(found, file, &format!("the answer to `{key}`"))).transpose()
}

/// A row of `tenant, key, fingerprint, answer, crc`.
pub(super) fn answered(row: &Row<'_>) -> rusqlite::Result<Checked<KeyRecord>> {
    let key = KeyRecord {
        tenant: row.get::<_, String>(0)?.into(),
        key: row.get(1)?,
        fingerprint: row.get(2)?,
        answer: row.get(3)?,
    };
    let is_sound = row.get::<_, i64>(4)? == key_crc(&key);
    Ok((key, is_sound))
}

pub(super) fn put_key(
    conn: &Connection,
    session: i64,
    ms: i64,
    key: &KeyRecord,
) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO keys (tenant, key, session, ms, fingerprint, answer, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        &*key.tenant,
        key.key,
        session,
        ms,
        key.fingerprint,
        key.answer,
        key_crc(key)
    ])?;
    Ok(())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
