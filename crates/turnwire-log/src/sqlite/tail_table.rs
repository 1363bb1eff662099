//! Where events are written: small appends to `tail`, and from there to `segments`, many at once.

use super::batch::Batch;
use super::errors::SqliteError;
use super::segment::Segment;
use super::sql_integers;
use super::tail::{TailChange, TailRow, Tails};
use rusqlite::{Connection, params};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// When events move from `tail` to `segments`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct LayoutSizes {
    /// An append that is as large as this goes to `segments` at once.
    pub large_bytes: usize,
    /// When so much of a session has gathered in `tail`, it goes to `segments`.
    pub gathered_bytes: usize,
    /// A row is not made larger than this, so that a read of little stays cheap.
    pub row_bytes: usize,
    /// Events further apart than this share no row, so that retention by age is exact to it.
    pub row_ms: i64,
    /// When `tail` has so many rows or bytes, it is swept. What is there is read when a store is
    /// opened, and held in memory.
    pub sweep_rows: usize,
    /// See `sweep_rows`.
    pub sweep_bytes: usize,
    /// How many rows of `tail` a commit removes at the most, where it removes any.
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

/// How long a sweep waits after it has failed.
const SWEEP_PAUSE: Duration = Duration::from_mins(1);

/// What the writer knows of the table `tail`.
#[derive(Debug, Default)]
pub(super) struct TailTable {
    pub(super) sizes: LayoutSizes,
    last_no: i64,
    rows: usize,
    bytes: usize,
    sweep: Option<Sweep>,
    /// After a sweep that failed: nobody else is to fail because of it.
    paused_until: Option<Instant>,
    /// What the open transaction changes of this.
    open_transaction: OpenTransaction,
}

/// The way of older rows from `tail` to `segments`, a few with each commit.
#[derive(Debug)]
struct Sweep {
    /// Rows up to this one leave.
    up_to: i64,
    /// How many there were, and their bytes.
    rows: usize,
    bytes: usize,
    /// Sessions that may have some of them, the next one last.
    sessions: Vec<i64>,
}

#[derive(Debug, Default)]
struct OpenTransaction {
    rows: usize,
    bytes: usize,
    /// Sessions of the sweep that are done with.
    swept: usize,
    /// Whether all of the sweep's rows are removed.
    finished: bool,
    /// Whether the sweep has begun to write.
    sweeping: bool,
}

impl TailTable {
    /// Of a table that was just opened; rows of a later generation have higher numbers.
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
                // Others remove rows too, so these are not counted but those before the sweep.
                self.rows = self.rows.saturating_sub(sweep.rows);
                self.bytes = self.bytes.saturating_sub(sweep.bytes);
                self.sweep = None;
            }
        }
    }

    /// Says whether a sweep was at work; it pauses then.
    pub(super) fn rolled_back(&mut self) -> bool {
        let open = std::mem::take(&mut self.open_transaction);
        if open.sweeping {
            self.sweep = None;
            self.paused_until = Some(Instant::now() + SWEEP_PAUSE);
        }
        open.sweeping
    }

    /// Begins a sweep when it is time for one.
    fn plan_sweep(&mut self, tails: &Tails) {
        let sizes = self.sizes;
        let small = self.rows < sizes.sweep_rows && self.bytes < sizes.sweep_bytes;
        let paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if self.sweep.is_some() || small || paused {
            return;
        }
        let mut sessions: Vec<i64> = tails.iter().map(|(session, _)| session).collect();
        // In the order of the index, so that neighbours there are written together.
        sessions.sort_unstable_by(|one, other| other.cmp(one));
        let (up_to, rows, bytes) = (self.last_no, self.rows, self.bytes);
        self.sweep = Some(Sweep { up_to, rows, bytes, sessions });
    }
}

/// Writes the events of a transaction, and returns where the logs end then.
pub(super) fn write_segments(batch: &mut Batch<'_>) -> Result<Vec<(i64, u64)>, SqliteError> {
    let runs = batch.take_segments();
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let conn = batch.write_connection()?;
    let sizes = batch.tail_table.sizes;
    let ends = runs.iter().filter_map(|(session, runs)| Some((*session, runs.last()?.last())));
    let ends: Vec<(i64, u64)> = ends.collect();
    // What has gathered for those that are to move, all looked up under one lock.
    let gathered: Vec<Option<Vec<TailRow>>> = {
        let tails = batch.shared.tails.lock();
        batch.tail_table.plan_sweep(&tails);
        let gathered = runs.iter().map(|(session, runs)| {
            let pieces = tails.rows_of(*session);
            let new: usize = runs.iter().map(Segment::len).sum();
            let old: usize = pieces.iter().map(|piece| piece.segment.len()).sum();
            let moves = new >= sizes.large_bytes || old + new >= sizes.gathered_bytes;
            moves.then(|| pieces.to_vec())
        });
        gathered.collect()
    };
    let mut moved = HashSet::new();
    let mut insert = conn.prepare_cached(
        "INSERT INTO tail (no, session, last, count, ms, crc, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for ((session, runs), gathered) in runs.into_iter().zip(gathered) {
        if let Some(pieces) = gathered {
            let end = runs.last().map_or(0, Segment::last);
            move_to_segments(conn, sizes, session, &pieces, runs)?;
            moved.insert(session);
            batch.changes.push(TailChange::Drop(session, end));
        } else if let Some(run) = Segment::join(&runs) {
            let piece = TailRow::new(batch.tail_table.next_no(), session, run);
            insert.execute(params![
                piece.no,
                session,
                sql_integers::to_sql(piece.segment.last()),
                piece.segment.count,
                piece.segment.ms,
                piece.crc,
                &*piece.segment.bytes
            ])?;
            batch.tail_table.open_transaction.rows += 1;
            batch.tail_table.open_transaction.bytes += piece.segment.len();
            batch.changes.push(TailChange::Push(session, piece));
        }
    }
    sweep(batch, conn, &moved)?;
    Ok(ends)
}

/// Writes pieces, and runs that follow them, as few rows of `segments`.
fn move_to_segments(
    conn: &Connection,
    sizes: LayoutSizes,
    session: i64,
    pieces: &[TailRow],
    runs: Vec<Segment>,
) -> rusqlite::Result<()> {
    let mut rows = SegmentWriter { conn, sizes, session, parts: Vec::new(), bytes: 0 };
    for piece in pieces {
        if piece.is_intact {
            rows.add(piece.segment.clone())?;
        } else {
            // It moves as it is, with a sum that gives it away.
            rows.flush()?;
            insert_segment(
                conn,
                session,
                &piece.segment,
                i64::from(!piece.segment.checksum(session)),
            )?;
        }
    }
    for run in runs {
        let mut rest = Some(run);
        while let Some(run) = rest.take() {
            let (run, more) = run.split(sizes.row_bytes);
            rows.add(run)?;
            rest = more;
        }
    }
    rows.flush()
}

/// Rows of `segments` as they come together.
struct SegmentWriter<'a> {
    conn: &'a Connection,
    sizes: LayoutSizes,
    session: i64,
    parts: Vec<Segment>,
    bytes: usize,
}

impl SegmentWriter<'_> {
    /// Adds to a row; where there is no room in it, the next one begins.
    fn add(&mut self, run: Segment) -> rusqlite::Result<()> {
        let far =
            |first: &Segment| run.ms.saturating_sub(first.ms).saturating_abs() > self.sizes.row_ms;
        if self.parts.first().is_some_and(far) || self.bytes + run.len() > self.sizes.row_bytes {
            self.flush()?;
        }
        self.bytes += run.len();
        self.parts.push(run);
        Ok(())
    }

    fn flush(&mut self) -> rusqlite::Result<()> {
        let run = Segment::join(&self.parts);
        self.parts.clear();
        self.bytes = 0;
        let Some(run) = run else { return Ok(()) };
        insert_segment(self.conn, self.session, &run, run.checksum(self.session).into())
    }
}

fn insert_segment(
    conn: &Connection,
    session: i64,
    run: &Segment,
    crc: i64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO segments (session, last, count, size, ms, crc, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        session,
        sql_integers::to_sql(run.last()),
        run.count,
        sql_integers::count_to_sql(run.len()),
        run.ms,
        crc,
        &*run.bytes
    ])?;
    Ok(())
}

/// Goes on with a sweep: twice as much leaves as came, so that it ends.
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
            let pieces = tails.rows_of(*session);
            let old = pieces.first().is_some_and(|piece| piece.no <= sweep.up_to);
            if old && !moved.contains(session) {
                budget = budget.saturating_sub(pieces.len());
                picked.push((*session, pieces.to_vec()));
            }
        }
    }
    let done = swept == sweep.sessions.len();
    let (up_to, sizes) = (sweep.up_to, batch.tail_table.sizes);
    batch.tail_table.open_transaction.swept = swept;
    batch.tail_table.open_transaction.sweeping = true;
    for (session, pieces) in picked {
        move_to_segments(conn, sizes, session, &pieces, Vec::new())?;
        let end = pieces.last().map_or(0, |piece| piece.segment.last());
        batch.changes.push(TailChange::Drop(session, end));
    }
    if done {
        remove_swept_rows(batch, conn, up_to)?;
    }
    batch.tail_table.open_transaction.sweeping = false;
    Ok(())
}

/// Removes rows of which the events are in `segments`.
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
