//! An append: what has to hold before it, and the rows beside its events.

use super::batch::Batch;
use super::blobs;
use super::fault::Fault;
use super::messages;
use super::places;
use super::run::Run;
use super::sessions;
use super::totals;
use crate::error::Error;
use crate::store::{Append, SessionState};
use rusqlite::{Connection, params};

/// Checks an append and adds it to a transaction. When it is refused, nothing of it was written.
pub(super) fn add(batch: &mut Batch<'_>, append: &Append) -> Result<(), Fault> {
    let session = append.session.0;
    let known = batch.known(session)?;
    known.check(append.fence)?;
    let run = append.lines.clone().map(|lines| Run::new(lines, append.now_ms));
    match &run {
        Some(run) if run.first != known.last() + 1 => {
            known.failed = true;
            return Err(Error::OutOfOrder.into());
        }
        None if known.failed => return Err(Error::OutOfOrder.into()),
        Some(run) if !run.is_whole() => {
            known.failed = true;
            return Err(Error::Store(format!(
                "{} events were announced, and it is another number of lines",
                run.count
            ))
            .into());
        }
        Some(_) | None => known.failed = false,
    }
    let began_or_ended = append.state.is_some() || !append.messages.is_empty();
    if began_or_ended {
        let conn = batch.write()?;
        set_state(conn, session, append.now_ms, append.state.as_ref())?;
    }
    for message in &append.messages {
        messages::put(batch.write()?, session, message)?;
        batch.has_words = true;
    }
    for id in &append.superseded {
        messages::supersede(batch.write()?, session, id)?;
    }
    if let Some(key) = &append.key {
        messages::put_key(batch.write()?, session, append.now_ms, key)?;
    }
    for queued in &append.enqueue {
        messages::enqueue(batch.write()?, session, queued)?;
    }
    for id in &append.dequeue {
        messages::dequeue(batch.write()?, session, id)?;
    }
    blobs::refer(batch, session, &append.references())?;
    if let Some(run) = run.filter(|run| run.count > 0) {
        batch.push(session, run);
    }
    Ok(())
}

fn set_state(
    conn: &Connection,
    session: i64,
    now_ms: i64,
    state: Option<&SessionState>,
) -> Result<(), Fault> {
    let Some(state) = state else {
        conn.prepare_cached("UPDATE sessions SET updated_ms = ?2 WHERE no = ?1")?
            .execute([session, now_ms])?;
        return Ok(());
    };
    totals::change(conn, session, state)?;
    conn.prepare_cached(
        "UPDATE sessions SET updated_ms = ?2, status = ?3, open_from = ?4, state = ?5
         WHERE no = ?1",
    )?
    .execute(params![
        session,
        now_ms,
        sessions::number(state.status),
        state.open_from.map(|place| places::to_sql(place.get())),
        sessions::to_json(state)?,
    ])?;
    Ok(())
}
