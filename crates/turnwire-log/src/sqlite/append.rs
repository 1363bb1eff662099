//! Adds one append to a transaction: checks it, and writes everything but its events.

use super::batch::Batch;
use super::blobs;
use super::errors::SqliteError;
use super::history;
use super::messages;
use super::segment::Segment;
use super::sessions;
use super::totals;
use crate::error::Error;
use crate::sql_integers;
use crate::store::{Append, HistoryState, SessionState};
use rusqlite::{Connection, params};

/// Checks an append and adds it to a transaction. If it is refused, nothing of it was written.
pub(super) fn add_append(batch: &mut Batch<'_>, append: &Append) -> Result<(), SqliteError> {
    let session = append.session.0;
    let entry = batch.index_entry(session)?;
    entry.check_fence(append.fence)?;
    let segment = append.lines.clone().map(|lines| Segment::new(lines, append.now_ms));
    match &segment {
        Some(segment) if segment.first != entry.last().next() => {
            entry.failed = true;
            return Err(Error::OutOfOrder.into());
        }
        None if entry.failed => return Err(Error::OutOfOrder.into()),
        Some(segment) if !segment.has_all_lines() => {
            entry.failed = true;
            return Err(Error::Store(format!(
                "the append should have {} events, but has another number of lines",
                segment.count
            ))
            .into());
        }
        Some(_) | None => entry.failed = false,
    }
    let began_or_ended = append.state.is_some() || !append.messages.is_empty();
    if began_or_ended {
        let conn = batch.write_connection()?;
        set_state(conn, session, append.now_ms, append.state.as_ref())?;
    }
    for message in &append.messages {
        messages::insert_or_replace(batch.write_connection()?, session, message)?;
        batch.has_unindexed = true;
    }
    for id in &append.superseded {
        messages::supersede(batch.write_connection()?, session, id)?;
    }
    if let Some(key) = &append.idempotency {
        messages::insert_idempotency_record(
            batch.write_connection()?,
            session,
            append.now_ms,
            key,
        )?;
    }
    for queued in &append.enqueue {
        messages::enqueue(batch.write_connection()?, session, queued)?;
    }
    for id in &append.dequeue {
        messages::dequeue(batch.write_connection()?, session, id)?;
    }
    for mark in &append.history {
        history::insert(batch.write_connection()?, session, mark)?;
    }
    blobs::add_references(batch, session, &append.blob_references())?;
    if let Some(segment) = segment.filter(|segment| segment.count > 0) {
        batch.push_segment(session, segment);
    }
    Ok(())
}

/// Sets the state, if there is one, and when a message last began or ended.
pub(super) fn set_state(
    conn: &Connection,
    session: i64,
    now_ms: i64,
    state: Option<&SessionState>,
) -> Result<(), SqliteError> {
    let Some(state) = state else {
        conn.prepare_cached("UPDATE sessions SET updated_ms = ?2 WHERE no = ?1")?
            .execute([session, now_ms])?;
        return Ok(());
    };
    totals::update_session(conn, session, state)?;
    conn.prepare_cached(
        "UPDATE sessions SET updated_ms = ?2, status = ?3, open_from = ?4, state = ?5, history = ?6
         WHERE no = ?1",
    )?
    .execute(params![
        session,
        now_ms,
        sessions::status_to_sql(state.status),
        state.keep_from().map(sql_integers::position_to_sql),
        sessions::to_json(state)?,
        state.history.as_ref().map(HistoryState::to_bytes),
    ])?;
    Ok(())
}
