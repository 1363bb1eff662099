//! Writes events: small appends to `tail`, and from there, many at once, to `segments`.

use super::batch::Batch;
use super::errors::SqliteError;
use super::segment::Segment;
use super::tail::{TailChange, TailRow, Tails};
use crate::sql_integers;
use rusqlite::{Connection, params};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use turnwire_core::Head;

/// When events move from `tail` to `segments`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct LayoutSizes {
    /// An append of at least this size goes to `segments` directly.
    pub large_bytes: usize,
    /// When a session has this much in `tail`, it moves to `segments`.
    pub gathered_bytes: usize,
    /// The maximum size of a row, so that small reads stay cheap.
    pub row_bytes: usize,
    /// Events further apart than this do not share a row. Retention by age is exact to this.
    pub row_ms: i64,
    /// When `tail` has so many rows or bytes, it is swept. It is read when a store is opened, and
    /// held in memory.
    pub sweep_rows: usize,
    /// See `sweep_rows`.
    pub sweep_bytes: usize,
    /// How many rows of `tail` one commit removes at most.
    pub clear_rows: usize,
}

impl Default for LayoutSizes {
    fn default() -> Self {
        Self {
            large_bytes: 4 << 10,
            gathered_bytes: 16 << 10,
            row_bytes: 64 << 10,
            row_ms: 60 * 60 * 1000,
            sweep_rows: 32 << 10,
            sweep_bytes: 8 << 20,
            clear_rows: 2048,
        }
    }
}

/// How long sweeps pause after a failure.
const SWEEP_PAUSE: Duration = Duration::from_mins(1);

/// What the writer knows of the table `tail`.
#[derive(Debug, Default)]
pub(super) struct TailTable {
    pub(super) sizes: LayoutSizes,
    last_no: i64,
    rows: usize,
    bytes: usize,
    sweep: Option<Sweep>,
    /// After a failed sweep, so that other requests do not fail because of it.
    paused_until: Option<Instant>,
    /// What the open transaction changes.
    open_transaction: OpenTransaction,
}

/// Moves older rows from `tail` to `segments`, a few with each commit.
#[derive(Debug)]
struct Sweep {
    /// Rows up to this number are moved.
    up_to: i64,
    /// How many rows there were, and their bytes.
    rows: usize,
    bytes: usize,
    /// Sessions that may have such rows, the next one last.
    sessions: Vec<i64>,
}

#[derive(Debug, Default)]
struct OpenTransaction {
    rows: usize,
    bytes: usize,
    /// Sessions that the sweep is done with.
    swept: usize,
    /// Whether all rows of the sweep are removed.
    finished: bool,
    /// Whether the sweep has begun to write.
    sweeping: bool,
}

impl TailTable {
    /// For a table that was just opened. Rows of a later generation have higher numbers.
    pub(super) fn new(tails: &Tails, sizes: LayoutSizes, generation: u64) -> Self {
        let last_no = tails.last_row().max(sql_integers::to_sql(generation << 32));
        let (rows, bytes) = tails.loaded();
        Self { sizes, last_no, rows, bytes, ..Self::default() }
    }

    fn next_no(&mut self) -> i64 {
        self.last_no += 1;
        self.last_no
    }

    pub(super) fn committed(&mut self) {
        let open = std::mem::take(&mut self.open_transaction);
        self.rows += open.rows;
        self.bytes += open.bytes;
        if let Some(sweep) = &mut self.sweep {
            sweep.sessions.truncate(sweep.sessions.len().saturating_sub(open.swept));
            if open.finished {
                // Others remove rows too, so the rows from before the sweep are subtracted.
                self.rows = self.rows.saturating_sub(sweep.rows);
                self.bytes = self.bytes.saturating_sub(sweep.bytes);
                self.sweep = None;
            }
        }
    }

    /// Returns whether a sweep was running; sweeps pause then.
    pub(super) fn rolled_back(&mut self) -> bool {
        let open = std::mem::take(&mut self.open_transaction);
        if open.sweeping {
            self.sweep = None;
            self.paused_until = Some(Instant::now() + SWEEP_PAUSE);
        }
        open.sweeping
    }

    /// Starts a sweep if it is due.
    fn plan_sweep(&mut self, tails: &Tails) {
        let sizes = self.sizes;
        let small = self.rows < sizes.sweep_rows && self.bytes < sizes.sweep_bytes;
        let paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if self.sweep.is_some() || small || paused {
            return;
        }
        let mut sessions: Vec<i64> = tails.iter().map(|(session, _)| session).collect();
        // In the order of the index, so that neighbours are written together.
        sessions.sort_unstable_by(|one, other| other.cmp(one));
        let (up_to, rows, bytes) = (self.last_no, self.rows, self.bytes);
        self.sweep = Some(Sweep { up_to, rows, bytes, sessions });
    }
}

/// Writes the events of a transaction, and returns the new heads.
pub(super) fn write_segments(batch: &mut Batch<'_>) -> Result<(), SqliteError> {
    let segments = batch.take_segments();
    if segments.is_empty() {
        return Ok(());
    }
    let conn = batch.write_connection()?;
    let sizes = batch.tail_table.sizes;
    // The tail rows of sessions that must move, all read under one lock.
    let gathered: Vec<Option<Vec<TailRow>>> = {
        let tails = batch.shared.tails.lock();
        batch.tail_table.plan_sweep(&tails);
        let gathered = segments.iter().map(|(session, segments)| {
            let tail_rows = tails.rows_of(*session);
            let new: usize = segments.iter().map(Segment::len).sum();
            let old: usize = tail_rows.iter().map(|tail_row| tail_row.segment.len()).sum();
            let moves = new >= sizes.large_bytes || old + new >= sizes.gathered_bytes;
            moves.then(|| tail_rows.to_vec())
        });
        gathered.collect()
    };
    let mut moved = HashSet::new();
    let mut insert = conn.prepare_cached(
        "INSERT INTO tail (no, session, last, count, ms, crc, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for ((session, segments), gathered) in segments.into_iter().zip(gathered) {
        if let Some(tail_rows) = gathered {
            let end = segments.last().map_or(Head::EMPTY, Segment::head);
            move_to_segments(conn, sizes, session, &tail_rows, segments)?;
            moved.insert(session);
            batch.changes.push(TailChange::Drop(session, end));
        } else if let Some(segment) = Segment::join(&segments) {
            let tail_row = TailRow::new(batch.tail_table.next_no(), session, segment);
            insert.execute(params![
                tail_row.no,
                session,
                sql_integers::position_to_sql(tail_row.segment.last()),
                tail_row.segment.count,
                tail_row.segment.ms,
                tail_row.crc,
                &*tail_row.segment.bytes
            ])?;
            batch.tail_table.open_transaction.rows += 1;
            batch.tail_table.open_transaction.bytes += tail_row.segment.len();
            batch.changes.push(TailChange::Push(session, tail_row));
        }
    }
    sweep(batch, conn, &moved)?;
    Ok(())
}

/// Writes tail rows, and segments that follow them, as few rows of `segments`.
fn move_to_segments(
    conn: &Connection,
    sizes: LayoutSizes,
    session: i64,
    tail_rows: &[TailRow],
    segments: Vec<Segment>,
) -> rusqlite::Result<()> {
    let mut rows = SegmentWriter { conn, sizes, session, parts: Vec::new(), bytes: 0 };
    for tail_row in tail_rows {
        if tail_row.is_intact {
            rows.add(tail_row.segment.clone())?;
        } else {
            // It moves as it is, with a checksum that shows the damage.
            rows.flush()?;
            insert_segment(
                conn,
                session,
                &tail_row.segment,
                i64::from(!tail_row.segment.checksum(session)),
            )?;
        }
    }
    for segment in segments {
        let mut rest = Some(segment);
        while let Some(segment) = rest.take() {
            let (segment, more) = segment.split(sizes.row_bytes);
            rows.add(segment)?;
            rest = more;
        }
    }
    rows.flush()
}

/// Collects segments into rows of `segments`.
struct SegmentWriter<'a> {
    conn: &'a Connection,
    sizes: LayoutSizes,
    session: i64,
    parts: Vec<Segment>,
    bytes: usize,
}

impl SegmentWriter<'_> {
    /// Adds to the current row; if it does not fit, starts the next.
    fn add(&mut self, segment: Segment) -> rusqlite::Result<()> {
        let far = |first: &Segment| {
            segment.ms.saturating_sub(first.ms).saturating_abs() > self.sizes.row_ms
        };
        if self.parts.first().is_some_and(far) || self.bytes + segment.len() > self.sizes.row_bytes
        {
            self.flush()?;
        }
        self.bytes += segment.len();
        self.parts.push(segment);
        Ok(())
    }

    fn flush(&mut self) -> rusqlite::Result<()> {
        let segment = Segment::join(&self.parts);
        self.parts.clear();
        self.bytes = 0;
        let Some(segment) = segment else { return Ok(()) };
        insert_segment(self.conn, self.session, &segment, segment.checksum(self.session).into())
    }
}

fn insert_segment(
    conn: &Connection,
    session: i64,
    segment: &Segment,
    crc: i64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO segments (session, last, count, size, ms, crc, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        session,
        sql_integers::position_to_sql(segment.last()),
        segment.count,
        sql_integers::count_to_sql(segment.len()),
        segment.ms,
        crc,
        &*segment.bytes
    ])?;
    Ok(())
}

/// Continues a sweep: it moves twice as much as was added, so that it ends.
fn sweep(
    batch: &mut Batch<'_>,
    conn: &Connection,
    moved: &HashSet<i64>,
) -> Result<(), SqliteError> {
    let Some(sweep) = &batch.tail_table.sweep else { return Ok(()) };
    let mut budget = 2 * batch.changes.len() + 32;
    let mut picked = Vec::new();
    let mut swept = 0;
    {
        let tails = batch.shared.tails.lock();
        for session in sweep.sessions.iter().rev() {
            if budget == 0 {
                break;
            }
            swept += 1;
            let tail_rows = tails.rows_of(*session);
            let old = tail_rows.first().is_some_and(|tail_row| tail_row.no <= sweep.up_to);
            if old && !moved.contains(session) {
                budget = budget.saturating_sub(tail_rows.len());
                picked.push((*session, tail_rows.to_vec()));
            }
        }
    }
    let done = swept == sweep.sessions.len();
    let (up_to, sizes) = (sweep.up_to, batch.tail_table.sizes);
    batch.tail_table.open_transaction.swept = swept;
    batch.tail_table.open_transaction.sweeping = true;
    for (session, tail_rows) in picked {
        move_to_segments(conn, sizes, session, &tail_rows, Vec::new())?;
        let end = tail_rows.last().map_or(Head::EMPTY, |tail_row| tail_row.segment.head());
        batch.changes.push(TailChange::Drop(session, end));
    }
    if done {
        remove_swept_rows(batch, conn, up_to)?;
    }
    batch.tail_table.open_transaction.sweeping = false;
    Ok(())
}

/// Removes rows whose events are in `segments`.
fn remove_swept_rows(
    batch: &mut Batch<'_>,
    conn: &Connection,
    up_to: i64,
) -> Result<(), SqliteError> {
    let end: i64 = conn
        .prepare_cached("SELECT ifnull((SELECT no FROM tail ORDER BY no LIMIT 1 OFFSET ?2), ?1)")?
        .query_one(
            [up_to, sql_integers::count_to_sql(batch.tail_table.sizes.clear_rows)],
            |row| row.get(0),
        )?;
    conn.prepare_cached("DELETE FROM tail WHERE no <= ?1")?.execute([end.min(up_to)])?;
    batch.tail_table.open_transaction.finished = end >= up_to;
    Ok(())
}
