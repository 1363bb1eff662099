//! Retention: the oldest events go, never a part of a reply, and a little at a time.

mod plan;

use super::SqliteStore;
use super::batch::Batch;
use super::blobs;
use super::fault::Fault;
use super::places;
use super::run::Run;
use super::tail::{Change, Piece};
use super::writer::Company;
use crate::error::Result;
use crate::log::now_ms;
use crate::store::{Removed, Retention};
use plan::{Cut, Waiting};
use rusqlite::{Connection, OptionalExtension, params};

/// About how many rows are removed in one transaction.
const ROWS: usize = 512;

/// Finds out what is to go, and removes it.
pub(super) async fn run(store: &SqliteStore, retention: Retention) -> Result<Removed> {
    let cuts = if retention.before_ms.is_some() || retention.max_bytes.is_some() {
        let memory = |_: &Connection, tails: &mut super::Tails| Ok(Waiting::of(tails));
        let plan = move |conn: &Connection, waiting| plan::make(conn, waiting, retention);
        store.readers.read(memory, plan).await?
    } else {
        Vec::new()
    };
    let mut removed = Removed::default();
    let mut left = cuts;
    while !left.is_empty() {
        let (gone, rest) = store.write(Company::None, move |batch| trim(batch, &left)).await?;
        add(&mut removed, gone);
        left = rest;
    }
    if let Some(before_ms) = retention.keys_before_ms {
        loop {
            let keys = store.write(Company::Any, move |batch| keys(batch, before_ms)).await?;
            removed.keys += keys as u64;
            if keys < ROWS {
                break;
            }
        }
    }
    if let Some(before_ms) = retention.blobs_before_ms {
        removed.blobs = unused_blobs(store, before_ms).await?;
    }
    Ok(removed)
}

/// Removes the blobs that nobody has referred to since a time.
async fn unused_blobs(store: &SqliteStore, before_ms: i64) -> Result<u64> {
    let forget = |batch: &mut Batch<'_>| match blobs::deleted_with_references(batch.look())? {
        Some(session) => blobs::forget(batch.write()?, session, now_ms()),
        None => Ok(false),
    };
    while store.write(Company::Any, forget).await? {}
    let mut removed = 0;
    loop {
        let some = move |batch: &mut Batch<'_>| blobs::remove_unused(batch, before_ms);
        let some = store.write(Company::Any, some).await?;
        removed += some;
        if blobs::was_last(some) {
            return Ok(removed);
        }
    }
}

fn add(sum: &mut Removed, more: Removed) {
    sum.events += more.events;
    sum.bytes += more.bytes;
    sum.sessions += more.sessions;
    sum.keys += more.keys;
    sum.blobs += more.blobs;
}

fn keys(batch: &mut Batch<'_>, before_ms: i64) -> Result<usize, Fault> {
    let removed = batch
        .write()?
        .prepare_cached(
            "DELETE FROM keys WHERE (tenant, key) IN
             (SELECT tenant, key FROM keys WHERE ms < ?1 LIMIT ?2)",
        )?
        .execute([before_ms, places::limit(ROWS)])?;
    Ok(removed)
}

/// Removes events up to the cuts, until it was enough for one transaction; and says what is left.
fn trim(batch: &mut Batch<'_>, cuts: &[Cut]) -> Result<(Removed, Vec<Cut>), Fault> {
    let mut removed = Removed::default();
    let mut rows = 0;
    let mut left = cuts;
    while let Some((cut, rest)) = left.split_first().filter(|_| rows < ROWS) {
        let gone = trim_session(batch, cut, ROWS - rows, &mut removed)?;
        if gone == ROWS - rows {
            break;
        }
        rows += gone + 1;
        left = rest;
    }
    Ok((removed, left.to_vec()))
}

/// Removes at most so many rows of one session, and says how many.
fn trim_session(
    batch: &mut Batch<'_>,
    cut: &Cut,
    most: usize,
    removed: &mut Removed,
) -> Result<usize, Fault> {
    let (session, last) = (cut.session, cut.last);
    let conn = batch.write()?;
    let first: Option<i64> = conn
        .prepare_cached("SELECT first FROM sessions WHERE no = ?1")?
        .query_one([session], |row| row.get(0))
        .optional()?;
    // It may have been deleted in the meantime.
    let Some(first) = first.map(places::from_sql) else { return Ok(0) };
    if first <= last {
        // All at once, so that nobody reads half a reply; what is before it no longer counts.
        conn.prepare_cached("UPDATE sessions SET first = ?2 WHERE no = ?1")?
            .execute([session, places::to_sql(last + 1)])?;
        removed.events += last + 1 - first;
        removed.sessions += 1;
        removed.bytes += cut_segment(conn, session, last)?;
        removed.bytes += trim_tail(batch, conn, session, last)?;
    }
    let rows: Vec<(i64, i64)> = conn
        .prepare_cached("SELECT no, size FROM segments WHERE session = ?1 AND last <= ?2 LIMIT ?3")?
        .query_map([session, places::to_sql(last), places::limit(most)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    for (no, size) in &rows {
        conn.prepare_cached("DELETE FROM segments WHERE no = ?1")?.execute([no])?;
        removed.bytes += places::from_sql(*size);
    }
    Ok(rows.len())
}

/// Takes events up to a place out of the row that goes on behind it.
fn cut_segment(conn: &Connection, session: i64, last: u64) -> Result<u64, Fault> {
    let found = conn
        .prepare_cached(
            "SELECT last, count, ms, bytes, no, crc FROM segments
             WHERE session = ?1 AND last > ?2 ORDER BY last LIMIT 1",
        )?
        .query_one([session, places::to_sql(last)], |row| {
            let run = Run::of_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let sound = run.is_sound(session, row.get(5)?);
            Ok((run, row.get::<_, i64>(4)?, sound))
        })
        .optional()?;
    let Some((run, no, true)) = found else { return Ok(0) };
    if run.first > last {
        return Ok(0);
    }
    let size = run.len();
    let Some(run) = run.from(last + 1) else { return Ok(0) };
    conn.prepare_cached(
        "UPDATE segments SET count = ?2, size = ?3, crc = ?4, bytes = ?5 WHERE no = ?1",
    )?
    .execute(params![
        no,
        run.count,
        places::limit(run.len()),
        run.crc(session),
        &*run.bytes
    ])?;
    Ok((size - run.len()) as u64)
}

/// The same for what has not moved to `segments` yet.
fn trim_tail(
    batch: &mut Batch<'_>,
    conn: &Connection,
    session: i64,
    last: u64,
) -> Result<u64, Fault> {
    let pieces = batch.shared.tails.lock().of(session).to_vec();
    let mut bytes = 0;
    for piece in pieces.into_iter().filter(|piece| piece.run.first <= last) {
        let size = piece.run.len();
        let Some(run) = piece.run.from(last + 1).filter(|_| piece.sound) else {
            conn.prepare_cached("DELETE FROM tail WHERE no = ?1")?.execute([piece.no])?;
            bytes += size;
            continue;
        };
        bytes += size - run.len();
        let piece = Piece::new(piece.no, session, run);
        conn.prepare_cached("UPDATE tail SET count = ?2, crc = ?3, bytes = ?4 WHERE no = ?1")?
            .execute(params![piece.no, piece.run.count, piece.crc, &*piece.run.bytes])?;
        batch.changes.push(Change::Cut(session, piece));
    }
    batch.changes.push(Change::Drop(session, last));
    Ok(bytes as u64)
}
