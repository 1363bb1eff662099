//! One transaction of the writer, while requests are added to it.

use super::errors::SqliteError;
use super::segment::Segment;
use super::session_index::{IndexEntry, SessionIndex};
use super::sessions::LogEnds;
use super::shared::SharedState;
use super::tail::TailChange;
use super::tail_table::TailTable;
use rusqlite::Connection;
use std::collections::HashMap;
use turnwire_core::Head;

pub(super) struct Batch<'a> {
    conn: &'a Connection,
    pub(super) shared: &'a SharedState,
    pub(super) index: &'a mut SessionIndex,
    pub(super) tail_table: &'a mut TailTable,
    begun: bool,
    /// The new events of each session, in the order in which the sessions came.
    segments: Vec<(i64, Vec<Segment>)>,
    positions: HashMap<i64, usize>,
    /// What the in-memory tails must apply after the commit.
    pub(super) changes: Vec<TailChange>,
    /// Sessions that this transaction deletes.
    pub(super) deleted: Vec<i64>,
    /// Whether there is new text to index.
    pub(super) has_unindexed: bool,
    /// Whether there are pieces of blobs to remove.
    pub(super) has_dead_pieces: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        conn: &'a Connection,
        shared: &'a SharedState,
        book: &'a mut SessionIndex,
        rows: &'a mut TailTable,
    ) -> Self {
        Self {
            conn,
            shared,
            index: book,
            tail_table: rows,
            begun: false,
            segments: Vec::new(),
            positions: HashMap::new(),
            changes: Vec::new(),
            deleted: Vec::new(),
            has_unindexed: false,
            has_dead_pieces: false,
        }
    }

    /// A connection to read, without beginning a transaction.
    pub(super) fn read_connection(&self) -> &'a Connection {
        self.conn
    }

    /// A connection to write. The first call begins the transaction.
    pub(super) fn write_connection(&mut self) -> Result<&'a Connection, SqliteError> {
        if !self.begun {
            self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            self.begun = true;
        }
        Ok(self.conn)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn index_entry(&mut self, session: i64) -> Result<&mut IndexEntry, SqliteError> {
        self.index.entry(self.conn, self.shared, session)
    }

    /// Adds events, which continue at the session's log end.
    pub(super) fn push_segment(&mut self, session: i64, segment: Segment) {
        self.index.advance(session, segment.head());
        let at = *self.positions.entry(session).or_insert_with(|| {
            self.segments.push((session, Vec::new()));
            self.segments.len() - 1
        });
        if let Some((_, segments)) = self.segments.get_mut(at) {
            segments.push(segment);
        }
    }

    /// Takes the events of all sessions.
    pub(super) fn take_segments(&mut self) -> Vec<(i64, Vec<Segment>)> {
        self.positions.clear();
        std::mem::take(&mut self.segments)
    }
}

impl LogEnds for Batch<'_> {
    fn end(&self, session: i64) -> Head {
        self.index.last(session).unwrap_or_else(|| self.shared.tails.lock().end(session))
    }
}
