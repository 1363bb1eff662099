//! What the writer knows of sessions without looking: where each log ends, and who owns it.

use super::errors::SqliteError;
use super::shared::SharedState;
use super::sql_integers;
use crate::error::Error;
use crate::store::Fence;
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct SessionIndex {
    sessions: HashMap<i64, IndexEntry>,
    last_fence: u64,
    /// Whose entries rest on the transaction that is open.
    touched: Vec<i64>,
}

#[derive(Debug, Default)]
pub(super) struct IndexEntry {
    /// Where the log ends; `None` where it has to be looked up again.
    last: Option<u64>,
    /// The owner's; 0 when nobody has acquired it since the store was opened.
    fence: u64,
    /// The last append failed, and those behind it may rest on it.
    pub(super) failed: bool,
}

impl IndexEntry {
    pub(super) fn last(&self) -> u64 {
        self.last.unwrap_or(0)
    }

    pub(super) fn check_fence(&self, fence: Fence) -> Result<(), Error> {
        if self.fence == fence.0 && fence.0 > 0 { Ok(()) } else { Err(Error::Fenced) }
    }
}

impl SessionIndex {
    /// Fences of a later generation are above those of all earlier ones, so that nothing has to be
    /// written when a session is acquired.
    pub(super) fn new(generation: u64) -> Self {
        Self { last_fence: generation << 32, ..Self::default() }
    }

    /// What is known of a session that is there.
    pub(super) fn entry(
        &mut self,
        conn: &Connection,
        shared: &SharedState,
        session: i64,
    ) -> Result<&mut IndexEntry, SqliteError> {
        if self.last(session).is_none() {
            let Some(last) = read_log_end(conn, shared, session)? else {
                self.sessions.remove(&session);
                return Err(Error::NoSession.into());
            };
            self.sessions.entry(session).or_default().last = Some(last);
        }
        Ok(self.sessions.entry(session).or_default())
    }

    /// Where a log ends, for those that are known.
    pub(super) fn last(&self, session: i64) -> Option<u64> {
        self.sessions.get(&session)?.last
    }

    /// Says where a log will end.
    pub(super) fn advance(&mut self, session: i64, last: u64) {
        self.sessions.entry(session).or_default().last = Some(last);
        self.touched.push(session);
    }

    pub(super) fn acquire_lease(&mut self, session: i64) -> Fence {
        self.last_fence += 1;
        let known = self.sessions.entry(session).or_default();
        known.fence = self.last_fence;
        known.failed = false;
        Fence(self.last_fence)
    }

    pub(super) fn forget(&mut self, session: i64) {
        self.sessions.remove(&session);
    }

    /// Everything has to be looked up again, but who owns what.
    pub(super) fn invalidate(&mut self) {
        for known in self.sessions.values_mut() {
            known.last = None;
        }
    }

    pub(super) fn committed(&mut self) {
        self.touched.clear();
    }

    /// Nothing of the transaction was written.
    pub(super) fn rolled_back(&mut self) {
        for session in self.touched.drain(..) {
            if let Some(known) = self.sessions.get_mut(&session) {
                known.last = None;
            }
        }
    }

    /// An append to this session was not written.
    pub(super) fn mark_failed(&mut self, session: i64) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.failed = true;
        }
    }
}

fn read_log_end(
    conn: &Connection,
    shared: &SharedState,
    session: i64,
) -> Result<Option<u64>, SqliteError> {
    let stored: Option<i64> = conn
        .prepare_cached(
            "SELECT max(first - 1, ifnull((SELECT max(last) FROM segments WHERE session = ?1), 0))
             FROM sessions WHERE no = ?1",
        )?
        .query_one([session], |row| row.get(0))
        .optional()?;
    let in_memory = shared.tails.lock().last(session).unwrap_or(0);
    Ok(stored.map(|stored| sql_integers::from_sql(stored).max(in_memory)))
}
