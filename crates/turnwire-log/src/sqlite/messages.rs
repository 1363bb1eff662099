//! Rows of finished messages, queued messages and idempotency keys.

use super::errors::SqliteError;
use super::search;
use crate::error::Error;
use crate::sql_integers;
use crate::store::{IdempotencyRecord, MessageQuery, QueuedMessage, StoredMessage};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::Path;

/// The columns of [`read_message_row`].
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

/// The checksum of a row.
pub(super) fn checksum(parts: &[&[u8]]) -> i64 {
    let mut crc = crc32fast::Hasher::new();
    for part in parts {
        crc.update(&(part.len() as u64).to_le_bytes());
        crc.update(part);
    }
    crc.finalize().into()
}

/// The checksum of a message. `superseded` is not part of it, because it changes later.
fn message_checksum(message: &StoredMessage) -> i64 {
    let (first, last) = (message.first.get().to_le_bytes(), message.last.get().to_le_bytes());
    checksum(&[
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

fn queued_checksum(queued: &QueuedMessage) -> i64 {
    checksum(&[queued.id.as_bytes(), queued.reply_id.as_bytes(), &queued.json])
}

fn idempotency_checksum(key: &IdempotencyRecord) -> i64 {
    let (tenant, name) = (key.tenant.as_bytes(), key.key.as_bytes());
    checksum(&[tenant, name, &key.fingerprint, key.response.as_bytes()])
}

/// A row, and whether it is intact.
type Checked<T> = (T, bool);

/// Reads a row with the columns of [`select!`].
pub(super) fn read_message_row(row: &Row<'_>) -> rusqlite::Result<Checked<StoredMessage>> {
    let message = StoredMessage {
        id: row.get(0)?,
        first: sql_integers::seq_from_sql(row.get(1)?),
        last: sql_integers::seq_from_sql(row.get(2)?),
        event_id: row.get(3)?,
        of_sub_agent: row.get(4)?,
        superseded: row.get(5)?,
        fold_version: row.get(6)?,
        json: Bytes::from(row.get::<_, Vec<u8>>(8)?),
        text: row.get(9)?,
    };
    let sound = row.get::<_, i64>(7)? == message_checksum(&message);
    Ok((message, sound))
}

fn require_intact<T>(
    (value, sound): Checked<T>,
    file: &Path,
    what: &str,
) -> Result<T, SqliteError> {
    if sound { Ok(value) } else { Err(damaged_row(file, what).into()) }
}

/// The error for a damaged row.
pub(super) fn damaged_row(file: &Path, what: &str) -> Error {
    Error::Damaged(format!(
        "{} is damaged: {what} does not match its checksum; run `turnwire doctor`, and restore \
         the last backup",
        file.display()
    ))
}

/// Fails with `NoSession` if a session does not exist.
pub(super) fn require_session(conn: &Connection, session: i64) -> Result<(), SqliteError> {
    let there = conn.prepare_cached("SELECT 1 FROM sessions WHERE no = ?1")?.exists([session])?;
    if there { Ok(()) } else { Err(Error::NoSession.into()) }
}

pub(super) fn find(
    conn: &Connection,
    file: &Path,
    session: i64,
    id: &str,
) -> Result<Option<StoredMessage>, SqliteError> {
    require_session(conn, session)?;
    let found = conn
        .prepare_cached(select!("WHERE session = ?1 AND id = ?2"))?
        .query_one(params![session, id], read_message_row)
        .optional()?;
    found.map(|found| require_intact(found, file, &format!("message `{id}`"))).transpose()
}

pub(super) fn list(
    conn: &Connection,
    file: &Path,
    session: i64,
    query: &MessageQuery,
) -> Result<Vec<StoredMessage>, SqliteError> {
    require_session(conn, session)?;
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
        query.after.map_or(0, sql_integers::position_to_sql),
        query.before.map_or(i64::MAX, sql_integers::position_to_sql),
        query.sub_agents,
        sql_integers::count_to_sql(query.limit),
    ])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let message = read_message_row(row)?;
        let what = format!("message `{}`", message.0.id);
        let message = require_intact(message, file, &what)?;
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

/// Inserts a message, or replaces the one with its id.
pub(super) fn insert_or_replace(
    conn: &Connection,
    session: i64,
    message: &StoredMessage,
) -> Result<(), SqliteError> {
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
                sql_integers::position_to_sql(message.first),
                sql_integers::position_to_sql(message.last),
                message.event_id,
                message.of_sub_agent,
                message.superseded,
                message.fold_version,
                message_checksum(message),
                &*message.json,
                message.text,
            ],
            |row| row.get(0),
        )?;
    Ok(search::mark_unindexed(conn, no)?)
}

pub(super) fn supersede(conn: &Connection, session: i64, id: &str) -> Result<(), SqliteError> {
    conn.prepare_cached("UPDATE messages SET superseded = 1 WHERE session = ?1 AND id = ?2")?
        .execute(params![session, id])?;
    Ok(())
}

pub(super) fn list_queued(
    conn: &Connection,
    file: &Path,
    session: i64,
) -> Result<Vec<QueuedMessage>, SqliteError> {
    require_session(conn, session)?;
    conn.prepare_cached("SELECT id, reply_id, crc, json FROM queue WHERE session = ?1 ORDER BY no")?
        .query_and_then([session], |row| {
            let found = read_queued_row(row)?;
            let what = format!("the queued message `{}`", found.0.id);
            require_intact(found, file, &what)
        })?
        .collect()
}

/// Reads a row of `id, reply_id, crc, json`.
pub(super) fn read_queued_row(row: &Row<'_>) -> rusqlite::Result<Checked<QueuedMessage>> {
    let json = Bytes::from(row.get::<_, Vec<u8>>(3)?);
    let queued = QueuedMessage { id: row.get(0)?, reply_id: row.get(1)?, json };
    let is_sound = row.get::<_, i64>(2)? == queued_checksum(&queued);
    Ok((queued, is_sound))
}

pub(super) fn enqueue(
    conn: &Connection,
    session: i64,
    queued: &QueuedMessage,
) -> Result<(), SqliteError> {
    conn.prepare_cached(
        "INSERT INTO queue (session, id, reply_id, crc, json) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        session,
        queued.id,
        queued.reply_id,
        queued_checksum(queued),
        &*queued.json
    ])?;
    Ok(())
}

pub(super) fn dequeue(conn: &Connection, session: i64, id: &str) -> Result<(), SqliteError> {
    conn.prepare_cached("DELETE FROM queue WHERE session = ?1 AND id = ?2")?
        .execute(params![session, id])?;
    Ok(())
}

/// Keys are deleted with their session, so a key of a deleted session is not found.
pub(super) fn find_idempotency_record(
    conn: &Connection,
    file: &Path,
    tenant: &str,
    key: &str,
) -> Result<Option<IdempotencyRecord>, SqliteError> {
    let found = conn
        .prepare_cached(
            "SELECT tenant, key, fingerprint, answer, crc FROM keys WHERE tenant = ?1 AND key = ?2
             AND EXISTS (SELECT 1 FROM sessions WHERE no = keys.session)",
        )?
        .query_one(params![tenant, key], read_idempotency_row)
        .optional()?;
    found
        .map(|found| require_intact(found, file, &format!("the stored response to `{key}`")))
        .transpose()
}

/// Reads a row of `tenant, key, fingerprint, answer, crc`.
pub(super) fn read_idempotency_row(row: &Row<'_>) -> rusqlite::Result<Checked<IdempotencyRecord>> {
    let key = IdempotencyRecord {
        tenant: row.get::<_, String>(0)?.into(),
        key: row.get(1)?,
        fingerprint: row.get(2)?,
        response: row.get(3)?,
    };
    let is_sound = row.get::<_, i64>(4)? == idempotency_checksum(&key);
    Ok((key, is_sound))
}

pub(super) fn insert_idempotency_record(
    conn: &Connection,
    session: i64,
    ms: i64,
    key: &IdempotencyRecord,
) -> Result<(), SqliteError> {
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
        key.response,
        idempotency_checksum(key)
    ])?;
    Ok(())
}
