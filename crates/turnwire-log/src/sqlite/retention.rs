//! Retention: deletes the oldest events, never a part of a reply, a little at a time.

mod plan;

use super::SqliteStore;
use super::batch::Batch;
use super::blobs;
use super::errors::SqliteError;
use super::segment::Segment;
use super::tail::{TailChange, TailRow};
use super::writer::Grouping;
use crate::error::Result;
use crate::log::now_ms;
use crate::sql_integers;
use crate::store::{Retention, RetentionReport};
use plan::{TailCopy, TrimPoint};
use rusqlite::{Connection, OptionalExtension, params};
use turnwire_core::Head;

/// How many rows are removed in one transaction, about.
const TRIM_ROWS: usize = 512;

/// Plans what to delete, and deletes it.
pub(super) async fn apply(store: &SqliteStore, retention: Retention) -> Result<RetentionReport> {
    let cuts = if retention.before_ms.is_some() || retention.max_bytes.is_some() {
        let memory = |_: &Connection, tails: &mut super::Tails| Ok(TailCopy::from_tails(tails));
        let plan = move |conn: &Connection, waiting| plan::plan_retention(conn, waiting, retention);
        store.readers.read(memory, plan).await?
    } else {
        Vec::new()
    };
    let mut removed = RetentionReport::default();
    let mut left = cuts;
    while !left.is_empty() {
        let (gone, rest) =
            store.write(Grouping::Alone, move |batch| trim_sessions(batch, &left)).await?;
        add_report(&mut removed, gone);
        left = rest;
    }
    if let Some(before_ms) = retention.keys_before_ms {
        loop {
            let keys =
                store.write(Grouping::Shared, move |batch| remove_keys(batch, before_ms)).await?;
            removed.keys += keys as u64;
            if keys < TRIM_ROWS {
                break;
            }
        }
    }
    if let Some(before_ms) = retention.blobs_before_ms {
        removed.blobs = remove_unused_blobs(store, before_ms).await?;
    }
    Ok(removed)
}

/// Deletes the blobs that have been unused since a time.
async fn remove_unused_blobs(store: &SqliteStore, before_ms: i64) -> Result<u64> {
    let forget =
        |batch: &mut Batch<'_>| match blobs::deleted_with_references(batch.read_connection())? {
            Some(session) => blobs::remove_references(batch.write_connection()?, session, now_ms()),
            None => Ok(false),
        };
    while store.write(Grouping::Shared, forget).await? {}
    let mut removed = 0;
    loop {
        let some = move |batch: &mut Batch<'_>| blobs::remove_unused(batch, before_ms);
        let some = store.write(Grouping::Shared, some).await?;
        removed += some;
        if blobs::is_last_batch(some) {
            return Ok(removed);
        }
    }
}

fn add_report(sum: &mut RetentionReport, more: RetentionReport) {
    sum.events += more.events;
    sum.bytes += more.bytes;
    sum.sessions += more.sessions;
    sum.keys += more.keys;
    sum.blobs += more.blobs;
}

fn remove_keys(batch: &mut Batch<'_>, before_ms: i64) -> Result<usize, SqliteError> {
    let removed = batch
        .write_connection()?
        .prepare_cached(
            "DELETE FROM keys WHERE (tenant, key) IN
             (SELECT tenant, key FROM keys WHERE ms < ?1 LIMIT ?2)",
        )?
        .execute([before_ms, sql_integers::count_to_sql(TRIM_ROWS)])?;
    Ok(removed)
}

/// Deletes events up to the trim points until one transaction has enough; returns what is left.
fn trim_sessions(
    batch: &mut Batch<'_>,
    cuts: &[TrimPoint],
) -> Result<(RetentionReport, Vec<TrimPoint>), SqliteError> {
    let mut removed = RetentionReport::default();
    let mut rows = 0;
    let mut left = cuts;
    while let Some((cut, rest)) = left.split_first().filter(|_| rows < TRIM_ROWS) {
        let gone = trim_session(batch, cut, TRIM_ROWS - rows, &mut removed)?;
        if gone == TRIM_ROWS - rows {
            break;
        }
        rows += gone + 1;
        left = rest;
    }
    Ok((removed, left.to_vec()))
}

/// Removes at most `most` rows of one session, and returns how many.
fn trim_session(
    batch: &mut Batch<'_>,
    cut: &TrimPoint,
    most: usize,
    removed: &mut RetentionReport,
) -> Result<usize, SqliteError> {
    let (session, trim_to) = (cut.session, cut.trim_to);
    let conn = batch.write_connection()?;
    let first: Option<i64> = conn
        .prepare_cached("SELECT first FROM sessions WHERE no = ?1")?
        .query_one([session], |row| row.get(0))
        .optional()?;
    // It may have been deleted meanwhile.
    let Some(first) = first.map(sql_integers::seq_from_sql) else { return Ok(0) };
    if trim_to.includes(first) {
        // In one statement, so that nobody reads half a reply. Events before `first` no longer
        // count.
        conn.prepare_cached("UPDATE sessions SET first = ?2 WHERE no = ?1")?
            .execute([session, sql_integers::position_to_sql(trim_to.next())])?;
        removed.events += trim_to.next().offset_from(first);
        removed.sessions += 1;
        removed.bytes += shorten_segment(conn, session, trim_to)?;
        removed.bytes += trim_tail(batch, conn, session, trim_to)?;
    }
    let rows: Vec<(i64, i64)> = conn
        .prepare_cached("SELECT no, size FROM segments WHERE session = ?1 AND last <= ?2 LIMIT ?3")?
        .query_map(
            [session, sql_integers::position_to_sql(trim_to), sql_integers::count_to_sql(most)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect::<rusqlite::Result<_>>()?;
    for (no, size) in &rows {
        conn.prepare_cached("DELETE FROM segments WHERE no = ?1")?.execute([no])?;
        removed.bytes += sql_integers::from_sql(*size);
    }
    Ok(rows.len())
}

/// Removes the events up to a seq from the row that continues after it.
fn shorten_segment(conn: &Connection, session: i64, trim_to: Head) -> Result<u64, SqliteError> {
    let found = conn
        .prepare_cached(
            "SELECT last, count, ms, bytes, no, crc FROM segments
             WHERE session = ?1 AND last > ?2 ORDER BY last LIMIT 1",
        )?
        .query_one([session, sql_integers::position_to_sql(trim_to)], |row| {
            let segment = Segment::from_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let is_intact = segment.is_intact(session, row.get(5)?);
            Ok((segment, row.get::<_, i64>(4)?, is_intact))
        })
        .optional()?;
    let Some((segment, no, true)) = found else { return Ok(0) };
    if !trim_to.includes(segment.first) {
        return Ok(0);
    }
    let size = segment.len();
    let Some(segment) = segment.starting_at(trim_to.next()) else { return Ok(0) };
    conn.prepare_cached(
        "UPDATE segments SET count = ?2, size = ?3, crc = ?4, bytes = ?5 WHERE no = ?1",
    )?
    .execute(params![
        no,
        segment.count,
        sql_integers::count_to_sql(segment.len()),
        segment.checksum(session),
        &*segment.bytes
    ])?;
    Ok((size - segment.len()) as u64)
}

/// The same for rows that have not moved to `segments` yet.
fn trim_tail(
    batch: &mut Batch<'_>,
    conn: &Connection,
    session: i64,
    trim_to: Head,
) -> Result<u64, SqliteError> {
    let tail_rows = batch.shared.tails.lock().rows_of(session).to_vec();
    let mut bytes = 0;
    for tail_row in
        tail_rows.into_iter().filter(|tail_row| trim_to.includes(tail_row.segment.first))
    {
        let size = tail_row.segment.len();
        let Some(segment) =
            tail_row.segment.starting_at(trim_to.next()).filter(|_| tail_row.is_intact)
        else {
            conn.prepare_cached("DELETE FROM tail WHERE no = ?1")?.execute([tail_row.no])?;
            bytes += size;
            continue;
        };
        bytes += size - segment.len();
        let tail_row = TailRow::new(tail_row.no, session, segment);
        conn.prepare_cached("UPDATE tail SET count = ?2, crc = ?3, bytes = ?4 WHERE no = ?1")?
            .execute(params![
                tail_row.no,
                tail_row.segment.count,
                tail_row.crc,
                &*tail_row.segment.bytes
            ])?;
        batch.changes.push(TailChange::Shorten(session, tail_row));
    }
    batch.changes.push(TailChange::Drop(session, trim_to));
    Ok(bytes as u64)
}
