//! One transaction of the writer, as it comes together.

use super::book::{Book, Known};
use super::fault::Fault;
use super::run::Run;
use super::sessions::Ends;
use super::shared::Shared;
use super::tail::Change;
use super::tail_rows::TailRows;
use rusqlite::Connection;
use std::collections::HashMap;

pub(super) struct Batch<'a> {
    conn: &'a Connection,
    pub(super) shared: &'a Shared,
    pub(super) book: &'a mut Book,
    pub(super) rows: &'a mut TailRows,
    begun: bool,
    /// The events of each session, in the order in which the sessions came.
    runs: Vec<(i64, Vec<Run>)>,
    places: HashMap<i64, usize>,
    /// What the tails have to know once it is committed.
    pub(super) changes: Vec<Change>,
    /// Sessions that will be gone.
    pub(super) gone: Vec<i64>,
    /// Whether there are new words to index.
    pub(super) has_words: bool,
    /// Whether there are pieces of blobs to remove.
    pub(super) has_dead_pieces: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        conn: &'a Connection,
        shared: &'a Shared,
        book: &'a mut Book,
        rows: &'a mut TailRows,
    ) -> Self {
        Self {
            conn,
            shared,
            book,
            rows,
            begun: false,
            runs: Vec::new(),
            places: HashMap::new(),
            changes: Vec::new(),
            gone: Vec::new(),
            has_words: false,
            has_dead_pieces: false,
        }
    }

    /// To look, without a transaction for it.
    pub(super) fn look(&self) -> &'a Connection {
        self.conn
    }

    /// To write: the transaction begins with the first one who does.
    pub(super) fn write(&mut self) -> Result<&'a Connection, Fault> {
        if !self.begun {
            self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            self.begun = true;
        }
        Ok(self.conn)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn known(&mut self, session: i64) -> Result<&mut Known, Fault> {
        self.book.get(self.conn, self.shared, session)
    }

    /// Adds events, which go on from where the session's log ends.
    pub(super) fn push(&mut self, session: i64, run: Run) {
        self.book.advance(session, run.last());
        let at = *self.places.entry(session).or_insert_with(|| {
            self.runs.push((session, Vec::new()));
            self.runs.len() - 1
        });
        if let Some((_, runs)) = self.runs.get_mut(at) {
            runs.push(run);
        }
    }

    /// The events that came together, and where the logs will end.
    pub(super) fn take_runs(&mut self) -> Vec<(i64, Vec<Run>)> {
        self.places.clear();
        std::mem::take(&mut self.runs)
    }
}

impl Ends for Batch<'_> {
    fn end(&self, session: i64) -> u64 {
        self.book.last(session).unwrap_or_else(|| self.shared.tails.lock().end(session))
    }
}
