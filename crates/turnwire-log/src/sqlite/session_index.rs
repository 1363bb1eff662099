//! What the writer knows of sessions without a query: the head and the owner of each.

use super::errors::SqliteError;
use super::shared::SharedState;
use crate::error::Error;
use crate::sql_integers;
use crate::store::Fence;
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashMap;
use turnwire_core::Head;

#[derive(Debug, Default)]
pub(super) struct SessionIndex {
    sessions: HashMap<i64, IndexEntry>,
    last_fence: u64,
    /// Sessions whose entries depend on the open transaction.
    touched: Vec<i64>,
}

#[derive(Debug, Default)]
pub(super) struct IndexEntry {
    /// The head; `None` if it must be read again.
    last: Option<Head>,
    /// The fence of the owner; 0 if nobody has acquired the session since the store was opened.
    fence: u64,
    /// The last append failed, and the appends after it may depend on it.
    pub(super) failed: bool,
}

impl IndexEntry {
    pub(super) fn last(&self) -> Head {
        self.last.unwrap_or_default()
    }

    pub(super) fn check_fence(&self, fence: Fence) -> Result<(), Error> {
        if self.fence == fence.0 && fence.0 > 0 { Ok(()) } else { Err(Error::Fenced) }
    }
}

impl SessionIndex {
    /// Fences of a later generation are higher than those of all earlier ones, so acquiring a lease
    /// writes nothing.
    pub(super) fn new(generation: u64) -> Self {
        Self { last_fence: generation << 32, ..Self::default() }
    }

    /// The entry of an existing session.
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

    /// The head of a session, if it is in the index.
    pub(super) fn last(&self, session: i64) -> Option<Head> {
        self.sessions.get(&session)?.last
    }

    /// Sets the head that the session will have after the commit.
    pub(super) fn advance(&mut self, session: i64, last: Head) {
        self.sessions.entry(session).or_default().last = Some(last);
        self.touched.push(session);
    }

    pub(super) fn acquire_lease(&mut self, session: i64) -> Fence {
        self.last_fence += 1;
        let entry = self.sessions.entry(session).or_default();
        entry.fence = self.last_fence;
        entry.failed = false;
        Fence(self.last_fence)
    }

    pub(super) fn forget(&mut self, session: i64) {
        self.sessions.remove(&session);
    }

    /// All heads must be read again. Owners stay.
    pub(super) fn invalidate(&mut self) {
        for entry in self.sessions.values_mut() {
            entry.last = None;
        }
    }

    pub(super) fn committed(&mut self) {
        self.touched.clear();
    }

    /// Nothing of the transaction was written.
    pub(super) fn rolled_back(&mut self) {
        for session in self.touched.drain(..) {
            if let Some(entry) = self.sessions.get_mut(&session) {
                entry.last = None;
            }
        }
    }

    /// An append to this session was not written.
    pub(super) fn mark_failed(&mut self, session: i64) {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.failed = true;
        }
    }
}

fn read_log_end(
    conn: &Connection,
    shared: &SharedState,
    session: i64,
) -> Result<Option<Head>, SqliteError> {
    let stored: Option<i64> = conn
        .prepare_cached(
            "SELECT max(first - 1, ifnull((SELECT max(last) FROM segments WHERE session = ?1), 0))
             FROM sessions WHERE no = ?1",
        )?
        .query_one([session], |row| row.get(0))
        .optional()?;
    let in_memory = shared.tails.lock().last(session).unwrap_or_default();
    Ok(stored.map(|stored| sql_integers::head_from_sql(stored).max(in_memory)))
}
