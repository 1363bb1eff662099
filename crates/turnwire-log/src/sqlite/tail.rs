//! The events of each session that have not moved to `segments` yet. They are in memory too, so
//! that subscribers near the head read no file.

use super::segment::Segment;
use crate::sql_integers;
use rusqlite::Connection;
use std::collections::HashMap;
use turnwire_core::{Head, Seq};

/// A row of `tail`.
#[derive(Debug, Clone)]
pub(super) struct TailRow {
    pub(super) no: i64,
    pub(super) segment: Segment,
    /// The checksum that was written with it.
    pub(super) crc: i64,
    /// Whether it matches its checksum.
    pub(super) is_intact: bool,
}

impl TailRow {
    /// A row that is about to be written.
    pub(super) fn new(no: i64, session: i64, segment: Segment) -> Self {
        Self { no, crc: segment.checksum(session).into(), segment, is_intact: true }
    }
}

/// A change of the tails, applied after the commit.
#[derive(Debug)]
pub(super) enum TailChange {
    /// A new row at the end.
    Push(i64, TailRow),
    /// Rows up to a seq have moved or were deleted.
    Drop(i64, Head),
    /// A row became shorter.
    Shorten(i64, TailRow),
    /// The session was deleted.
    DeleteSession(i64),
}

/// The rows of all sessions.
#[derive(Debug, Default)]
pub(super) struct Tails {
    sessions: HashMap<i64, Vec<TailRow>>,
    /// The last row that was loaded, and the first that is left.
    seen: i64,
    low: i64,
    loaded: (usize, usize),
}

/// The part of a session's tail that one read needs.
#[derive(Debug, Default)]
pub(super) struct TailView {
    /// The first event in the tail; all events before it are in `segments`.
    pub(super) first: Option<Seq>,
    /// The rows from the requested seq on, as many as the read may need.
    pub(super) rows: Vec<TailRow>,
}

impl Tails {
    pub(super) fn rows_of(&self, session: i64) -> &[TailRow] {
        self.sessions.get(&session).map(Vec::as_slice).unwrap_or_default()
    }

    /// The last event of a session, if it has rows here.
    pub(super) fn last(&self, session: i64) -> Option<Head> {
        self.rows_of(session).last().map(|tail_row| tail_row.segment.head())
    }

    pub(super) fn view(&self, session: i64, from: Seq, max_bytes: usize) -> TailView {
        let tail_rows = self.rows_of(session);
        let begin = tail_rows.partition_point(|tail_row| tail_row.segment.last() < from);
        let mut bytes = 0_usize;
        let wanted = tail_rows.iter().skip(begin).take_while(|tail_row| {
            let room = bytes < max_bytes.max(1);
            // The first row may begin before the seq, so its size says little.
            bytes += if tail_row.segment.first > from { tail_row.segment.len() } else { 0 };
            room
        });
        TailView {
            rows: wanted.cloned().collect(),
            first: tail_rows.first().map(|tail_row| tail_row.segment.first),
        }
    }

    /// Every session with rows here.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &[TailRow])> {
        self.sessions.iter().map(|(session, tail_rows)| (*session, tail_rows.as_slice()))
    }

    /// The head of each of them.
    pub(super) fn ends(&self) -> HashMap<i64, Head> {
        let ends = |(session, tail_rows): (i64, &[TailRow])| {
            Some((session, tail_rows.last()?.segment.head()))
        };
        self.iter().filter_map(ends).collect()
    }

    pub(super) fn apply(&mut self, changes: impl IntoIterator<Item = TailChange>) {
        for change in changes {
            match change {
                TailChange::Push(session, tail_row) => {
                    let tail_rows = self.sessions.entry(session).or_default();
                    // `Vec` would double its capacity, and most sessions that grow at the same time
                    // would hold twice what they need.
                    if tail_rows.len() == tail_rows.capacity() {
                        tail_rows.reserve_exact(tail_rows.len().clamp(4, 16));
                    }
                    tail_rows.push(tail_row);
                }
                TailChange::Drop(session, end) => self.drop_up_to(session, end),
                TailChange::Shorten(session, tail_row) => {
                    let tail_rows = self.sessions.entry(session).or_default();
                    if let Some(old) = tail_rows.iter_mut().find(|old| old.no == tail_row.no) {
                        *old = tail_row;
                    }
                }
                TailChange::DeleteSession(session) => {
                    self.sessions.remove(&session);
                }
            }
        }
    }

    fn drop_up_to(&mut self, session: i64, end: Head) {
        if let Some(tail_rows) = self.sessions.get_mut(&session) {
            tail_rows.retain(|tail_row| !end.includes(tail_row.segment.last()));
            if tail_rows.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }

    /// Loads the rows that were added since the last call, and drops those that were removed.
    pub(super) fn load(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let mut rows = conn.prepare_cached(
            "SELECT no, session, last, count, ms, crc, bytes FROM tail WHERE no > ?1 ORDER BY no",
        )?;
        let mut rows = rows.query([self.seen])?;
        while let Some(row) = rows.next()? {
            let tail_row = read_row(row)?;
            self.seen = tail_row.no;
            self.loaded = (self.loaded.0 + 1, self.loaded.1 + tail_row.segment.len());
            self.sessions.entry(row.get(1)?).or_default().push(tail_row);
        }
        let mut low = conn.prepare_cached("SELECT ifnull(min(no), ?1 + 1) FROM tail")?;
        let low: i64 = low.query_one([self.seen], |row| row.get(0))?;
        if low > self.low {
            self.low = low;
            self.sessions.retain(|_, tail_rows| {
                tail_rows.retain(|tail_row| tail_row.no >= low);
                !tail_rows.is_empty()
            });
        }
        Ok(())
    }

    /// Drops rows that are in `segments` too, or were trimmed.
    pub(super) fn drop_moved(&mut self, conn: &Connection, session: i64) -> rusqlite::Result<()> {
        let mut end = conn.prepare_cached(
            "SELECT max(first - 1, ifnull((SELECT max(last) FROM segments WHERE session = ?1), 0))
             FROM sessions WHERE no = ?1",
        )?;
        let mut found = end.query([session])?;
        match found.next()? {
            Some(row) => {
                let end = sql_integers::head_from_sql(row.get(0)?);
                repair_positions(self.sessions.entry(session).or_default(), end);
                self.drop_up_to(session, end);
            }
            None => drop(self.sessions.remove(&session)),
        }
        Ok(())
    }

    /// All valid rows of the table.
    pub(super) fn load_all(conn: &Connection) -> rusqlite::Result<Self> {
        let mut tails = Self::default();
        tails.load(conn)?;
        let sessions: Vec<i64> = tails.sessions.keys().copied().collect();
        sessions.into_iter().try_for_each(|session| tails.drop_moved(conn, session))?;
        Ok(tails)
    }

    /// The number of the last row that was loaded.
    pub(super) fn last_row(&self) -> i64 {
        self.seen
    }

    /// How many rows were loaded and their bytes, valid or not.
    pub(super) fn loaded(&self) -> (usize, usize) {
        self.loaded
    }
}

/// Gives damaged rows the seqs that they must have had, because their own numbers may be damaged
/// too. The log ended at `end` before these rows.
fn repair_positions(tail_rows: &mut Vec<TailRow>, end: Head) {
    let mut repaired: Vec<TailRow> = Vec::with_capacity(tail_rows.len());
    let mut last = end;
    let mut rest = std::mem::take(tail_rows).into_iter();
    while let Some(mut tail_row) = rest.next() {
        if !tail_row.is_intact {
            let next = rest
                .as_slice()
                .iter()
                .find(|tail_row| tail_row.is_intact)
                .map(|tail_row| tail_row.segment.first);
            let expected = last.next();
            let fits = tail_row.segment.count > 0
                && tail_row.segment.first == expected
                && next.is_none_or(|next| next == tail_row.segment.last().next());
            if next.is_some_and(|next| next <= expected) {
                continue;
            }
            if !fits {
                let count = next.map_or(1, |next| next.offset_from(expected));
                tail_row.segment.first = expected;
                tail_row.segment.count = u32::try_from(count).unwrap_or(u32::MAX);
            }
        }
        last = last.max(tail_row.segment.head());
        repaired.push(tail_row);
    }
    *tail_rows = repaired;
}

/// A row with the columns that [`Tails::load`] selects.
fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<TailRow> {
    let (session, crc): (i64, i64) = (row.get(1)?, row.get(5)?);
    let segment = Segment::from_row(row.get(2)?, row.get(3)?, row.get(4)?, row.get(6)?);
    Ok(TailRow { no: row.get(0)?, is_intact: segment.is_intact(session, crc), segment, crc })
}

#[cfg(test)]
mod tests {
    use super::{TailRow, repair_positions};
    use crate::sqlite::segment::Segment;
    use bytes::Bytes;
    use turnwire_core::{Head, Seq};

    fn row(first: u64, count: u32, is_intact: bool) -> TailRow {
        TailRow {
            no: 0,
            segment: Segment { first: Seq::new(first).unwrap(), count, ms: 0, bytes: Bytes::new() },
            crc: 0,
            is_intact,
        }
    }

    fn positions(mut tail_rows: Vec<TailRow>, end: u64) -> Vec<(u64, u64, bool)> {
        repair_positions(&mut tail_rows, Head::new(end));
        let position =
            |row: &TailRow| (row.segment.first.get(), row.segment.last().get(), row.is_intact);
        tail_rows.iter().map(position).collect()
    }

    #[test]
    fn a_damaged_row_gets_the_seqs_between_its_neighbours() {
        let all = vec![row(4, 2, true), row(999, 7, false), row(9, 1, true)];
        assert_eq!(positions(all, 3), [(4, 5, true), (6, 8, false), (9, 9, true)]);
    }

    #[test]
    fn a_damaged_last_row_has_at_least_one_event() {
        assert_eq!(positions(vec![row(4, 2, false)], 3), [(4, 5, false)]);
        assert_eq!(positions(vec![row(1, 0, false)], 3), [(4, 4, false)]);
    }

    #[test]
    fn damaged_rows_before_the_end_of_the_segments_are_dropped() {
        let all = vec![row(1, 2, true), row(77, 1, false), row(4, 1, true)];
        assert_eq!(positions(all, 3), [(1, 2, true), (4, 4, true)]);
    }
}
