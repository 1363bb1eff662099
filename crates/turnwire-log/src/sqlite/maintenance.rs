//! Background work of the writer, a little at a time: index text, remove rows of deleted sessions
//! and pieces of deleted blobs, count sessions of earlier versions. The tables hold what is left to
//! do, so it continues after a crash.

use super::batch::Batch;
use super::blobs;
use super::errors::SqliteError;
use super::search;
use super::totals;
use crate::error::Error;
use crate::log::now_ms;
use rusqlite::{Connection, OptionalExtension};
use std::time::{Duration, Instant};

/// The writer is idle after so long without a request.
const IDLE: Duration = Duration::from_millis(2);

/// Maintenance runs at least this often, even if the writer is never idle.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// After a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How many rows are removed at a time.
const REMOVE_ROWS: i64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaintenanceTask {
    IndexText,
    RemoveDeleted,
    RemovePieces,
    CountUsage,
}

#[derive(Debug)]
pub(super) struct Maintenance {
    waiting: Vec<MaintenanceTask>,
    last: Instant,
    not_before: Option<Instant>,
}

impl Maintenance {
    /// The work that was left when the store was last closed.
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let mut chores = Self { waiting: Vec::new(), last: Instant::now(), not_before: None };
        if search::has_unindexed(conn)? {
            chores.add(MaintenanceTask::IndexText);
        }
        if conn.prepare_cached("SELECT 1 FROM deleted LIMIT 1")?.exists([])? {
            chores.add(MaintenanceTask::RemoveDeleted);
        }
        if blobs::has_dead_pieces(conn)? {
            chores.add(MaintenanceTask::RemovePieces);
        }
        if totals::has_uncounted(conn)? {
            chores.add(MaintenanceTask::CountUsage);
        }
        Ok(chores)
    }

    pub(super) fn add(&mut self, chore: MaintenanceTask) {
        if !self.waiting.contains(&chore) {
            self.waiting.push(chore);
        }
    }

    /// How long to wait for a request before the next step; forever if there is no work.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let wait = self.not_before.map(|at| at.saturating_duration_since(Instant::now()));
        Some(wait.unwrap_or_default().max(IDLE))
    }

    pub(super) fn is_overdue(&self) -> bool {
        let wait = self.not_before.is_some_and(|at| Instant::now() < at);
        !self.waiting.is_empty() && !wait && self.last.elapsed() > MAX_DELAY
    }

    pub(super) fn next(&mut self) -> Option<MaintenanceTask> {
        self.last = Instant::now();
        self.not_before = None;
        self.waiting.first().copied()
    }

    pub(super) fn finish(&mut self, chore: MaintenanceTask) {
        self.waiting.retain(|waiting| *waiting != chore);
    }

    pub(super) fn postpone(&mut self) {
        self.not_before = Some(Instant::now() + RETRY_DELAY);
    }
}

impl MaintenanceTask {
    /// Does one step, and returns whether there is more.
    pub(super) fn step(self, batch: &mut Batch<'_>) -> Result<bool, SqliteError> {
        let conn = batch.write_connection()?;
        match self {
            Self::IndexText => search::index_some(conn),
            Self::RemoveDeleted => remove_deleted_rows(conn),
            Self::RemovePieces => blobs::remove_pieces(conn),
            Self::CountUsage => totals::count_some(conn),
        }
    }
}

/// Marks a session as deleted. Its rows are removed later, because there may be many.
pub(super) fn delete_session(batch: &mut Batch<'_>, session: i64) -> Result<(), SqliteError> {
    let conn = batch.write_connection()?;
    totals::remove_session(conn, session)?;
    let there = conn.prepare_cached("DELETE FROM sessions WHERE no = ?1")?.execute([session])?;
    if there == 0 {
        return Err(Error::NoSession.into());
    }
    conn.prepare_cached("INSERT INTO deleted VALUES (?1, 1)")?.execute([session])?;
    batch.deleted.push(session);
    batch.changes.push(super::tail::TailChange::DeleteSession(session));
    Ok(())
}

/// Removes some rows of a deleted session.
fn remove_deleted_rows(conn: &Connection) -> Result<bool, SqliteError> {
    // `tail` has no index: one pass for all sessions that were deleted since the last.
    let left =
        conn.prepare_cached("SELECT 1 FROM deleted WHERE left_in_tail LIMIT 1")?.exists([])?;
    if left {
        conn.prepare_cached("DELETE FROM tail WHERE session IN (SELECT session FROM deleted)")?
            .execute([])?;
        conn.prepare_cached("UPDATE deleted SET left_in_tail = 0 WHERE left_in_tail")?
            .execute([])?;
        return Ok(true);
    }
    let session: Option<i64> = conn
        .prepare_cached("SELECT session FROM deleted LIMIT 1")?
        .query_one([], |row| row.get(0))
        .optional()?;
    let Some(session) = session else { return Ok(false) };
    let segments = conn
        .prepare_cached(
            "DELETE FROM segments WHERE no IN
             (SELECT no FROM segments WHERE session = ?1 LIMIT ?2)",
        )?
        .execute([session, REMOVE_ROWS])?;
    let messages: Vec<i64> = conn
        .prepare_cached("SELECT no FROM messages WHERE session = ?1 LIMIT ?2")?
        .query_map([session, REMOVE_ROWS], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for no in messages.iter().chain([&-session]) {
        conn.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([no])?;
        conn.prepare_cached("DELETE FROM unindexed WHERE no = ?1")?.execute([no])?;
        conn.prepare_cached("DELETE FROM messages WHERE no = ?1")?.execute([no])?;
    }
    let references = blobs::remove_references(conn, session, now_ms())?;
    if segments == 0 && messages.is_empty() && !references {
        conn.prepare_cached("DELETE FROM queue WHERE session = ?1")?.execute([session])?;
        conn.prepare_cached("DELETE FROM keys WHERE session = ?1")?.execute([session])?;
        conn.prepare_cached("DELETE FROM history WHERE session = ?1")?.execute([session])?;
        conn.prepare_cached("DELETE FROM deleted WHERE session = ?1")?.execute([session])?;
    }
    Ok(true)
}
