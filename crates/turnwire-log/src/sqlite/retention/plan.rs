//! Plans retention: goes through the rows of all sessions from the oldest on. Of each session,
//! whole replies are deleted.

use crate::sql_integers;
use crate::sqlite::errors::SqliteError;
use crate::sqlite::segment::Segment;
use crate::sqlite::tail::{TailRow, Tails};
use crate::store::Retention;
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeSet, HashMap, VecDeque};
use turnwire_core::{Head, Seq};

/// Delete the events of this session up to this seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrimPoint {
    pub(super) session: i64,
    pub(super) trim_to: Head,
}

/// A copy of the rows in `tail`.
#[derive(Debug, Default)]
pub(super) struct TailCopy {
    sessions: HashMap<i64, Vec<TailRow>>,
    /// The time and session of each row, in order.
    ages: VecDeque<(i64, i64)>,
    bytes: u64,
}

impl TailCopy {
    pub(super) fn from_tails(tails: &Tails) -> Self {
        let sessions: HashMap<i64, Vec<TailRow>> =
            tails.iter().map(|(session, tail_rows)| (session, tail_rows.to_vec())).collect();
        let tail_rows =
            || sessions.iter().flat_map(|(session, all)| all.iter().map(|one| (*session, one)));
        let mut ages: Vec<(i64, i64)> =
            tail_rows().map(|(session, one)| (one.segment.ms, session)).collect();
        ages.sort_unstable();
        let bytes = tail_rows().map(|(_, one)| one.segment.len() as u64).sum();
        Self { ages: ages.into(), sessions, bytes }
    }
}

/// A row of events: its range and size.
#[derive(Debug, Clone, Copy)]
struct ScannedRow {
    first: Seq,
    last: Seq,
    bytes: u64,
}

/// The state of the scan of one session.
#[derive(Debug, Default)]
struct SessionScan {
    /// Events up to this seq are deleted.
    trim_to: Head,
    /// Whether anything that is still stored is deleted.
    trims: bool,
    /// The last seq that is old enough so far, and the rows between `trim_to` and it.
    reached: Head,
    rows: VecDeque<ScannedRow>,
    /// Events from this seq on must stay.
    keep_from: Option<Seq>,
}

struct RetentionPlan<'a> {
    conn: &'a Connection,
    tail: TailCopy,
    scans: HashMap<i64, SessionScan>,
    retention: Retention,
    /// The bytes of all events that are left.
    bytes_left: u64,
}

/// Whether the scan must continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanFlow {
    Continue,
    Stop,
}

pub(super) fn plan_retention(
    conn: &Connection,
    waiting: TailCopy,
    retention: Retention,
) -> Result<Vec<TrimPoint>, SqliteError> {
    let left = match retention.max_bytes {
        Some(_) => {
            let stored: i64 =
                conn.query_one("SELECT ifnull(sum(size), 0) FROM segments", [], |row| row.get(0))?;
            sql_integers::from_sql(stored) + waiting.bytes
        }
        None => 0,
    };
    let mut plan =
        RetentionPlan { conn, tail: waiting, scans: HashMap::new(), retention, bytes_left: left };
    plan.scan_rows()?;
    let cut = plan.scans.into_iter().filter(|(_, scan)| scan.trims);
    Ok(cut.map(|(session, scan)| TrimPoint { session, trim_to: scan.trim_to }).collect())
}

impl RetentionPlan<'_> {
    fn is_due(&self, ms: i64) -> bool {
        self.retention.before_ms.is_some_and(|before| ms < before)
            || self.retention.max_bytes.is_some_and(|max| self.bytes_left > max)
    }

    /// Goes through all rows from the oldest on.
    fn scan_rows(&mut self) -> Result<(), SqliteError> {
        let mut rows = self.conn.prepare("SELECT ms, session FROM segments ORDER BY ms")?;
        let mut rows = rows.query([])?;
        let mut stored = next_age(&mut rows)?;
        loop {
            let waiting = self.tail.ages.front().copied();
            let Some(ms) = stored.into_iter().chain(waiting).map(|(ms, _)| ms).min() else {
                return Ok(());
            };
            if !self.is_due(ms) {
                return Ok(());
            }
            // All sessions with events of that time.
            let mut sessions = BTreeSet::new();
            while let Some((_, session)) = stored.filter(|(at, _)| *at == ms) {
                sessions.insert(session);
                stored = next_age(&mut rows)?;
            }
            while let Some((_, session)) = self.tail.ages.pop_front_if(|(at, _)| *at == ms) {
                sessions.insert(session);
            }
            for session in sessions {
                if self.scan_session(session, ms)? == ScanFlow::Stop {
                    return Ok(());
                }
            }
        }
    }

    /// Extends what can be deleted of a session, now that events of this time can.
    fn scan_session(&mut self, session: i64, ms: i64) -> Result<ScanFlow, SqliteError> {
        let mut scan = match self.scans.remove(&session) {
            Some(scan) => scan,
            None => match self.start_scan(session)? {
                Some(scan) => scan,
                None => return Ok(ScanFlow::Continue),
            },
        };
        let mut go = ScanFlow::Continue;
        if scan.keep_from.is_none_or(|keep_from| scan.reached.next() < keep_from) {
            self.read_old_rows(session, ms, &mut scan)?;
            go = self.advance_trim(session, ms, &mut scan)?;
        }
        self.scans.insert(session, scan);
        Ok(go)
    }

    fn start_scan(&self, session: i64) -> Result<Option<SessionScan>, SqliteError> {
        let found: Option<(i64, Option<i64>)> = self
            .conn
            .prepare_cached("SELECT first, open_from FROM sessions WHERE no = ?1")?
            .query_one([session], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((first, open_from)) = found else { return Ok(None) };
        let before = sql_integers::seq_from_sql(first).previous();
        // Rows that a crash left behind are removed too.
        let left: bool = self
            .conn
            .prepare_cached("SELECT 1 FROM segments WHERE session = ?1 AND last <= ?2 LIMIT 1")?
            .exists([session, sql_integers::position_to_sql(before)])?;
        Ok(Some(SessionScan {
            trim_to: before,
            trims: left,
            reached: before,
            rows: VecDeque::new(),
            keep_from: open_from.map(sql_integers::seq_from_sql),
        }))
    }

    /// Reads the rows that follow, as long as they are old enough.
    fn read_old_rows(
        &self,
        session: i64,
        ms: i64,
        scan: &mut SessionScan,
    ) -> Result<(), SqliteError> {
        let mut rows = self.conn.prepare_cached(
            "SELECT last, count, size, ms FROM segments WHERE session = ?1 AND last > ?2
             ORDER BY last",
        )?;
        let mut rows = rows.query([session, sql_integers::position_to_sql(scan.reached)])?;
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(3)? > ms {
                return Ok(());
            }
            let last = sql_integers::seq_from_sql(row.get(0)?);
            let (count, bytes) =
                (sql_integers::from_sql(row.get(1)?), sql_integers::from_sql(row.get(2)?));
            scan.reached = last.into();
            let first = scan.reached.minus(count).next();
            scan.rows.push_back(ScannedRow { first, last, bytes });
        }
        for tail_row in self.tail.sessions.get(&session).into_iter().flatten() {
            if scan.reached.includes(tail_row.segment.last()) {
                continue;
            }
            if tail_row.segment.ms > ms {
                break;
            }
            let (first, last) = (tail_row.segment.first, tail_row.segment.last());
            scan.rows.push_back(ScannedRow { first, last, bytes: tail_row.segment.len() as u64 });
            scan.reached = last.into();
        }
        Ok(())
    }

    /// Moves `trim_to` from one end of a whole reply to the next, as far as necessary.
    fn advance_trim(
        &mut self,
        session: i64,
        ms: i64,
        scan: &mut SessionScan,
    ) -> Result<ScanFlow, SqliteError> {
        let end = scan.reached;
        let end = scan.keep_from.map_or(end, |keep_from| end.min(keep_from.previous()));
        let messages: Vec<(Seq, Seq)> = self
            .conn
            .prepare_cached(
                "SELECT first, last FROM messages WHERE session = ?1 AND first > ?2 AND first <= ?3
                 ORDER BY first",
            )?
            .query_map(
                [
                    session,
                    sql_integers::position_to_sql(scan.trim_to),
                    sql_integers::position_to_sql(end),
                ],
                |row| {
                    let (first, last) = (row.get(0)?, row.get(1)?);
                    Ok((sql_integers::seq_from_sql(first), sql_integers::seq_from_sql(last)))
                },
            )?
            .collect::<rusqlite::Result<_>>()?;
        let ends = messages.iter().map(|(_, last)| *last);
        let ends: BTreeSet<Seq> = ends
            .chain(scan.rows.iter().map(|row| row.last))
            .chain(end.seq())
            .filter(|&seq| !scan.trim_to.includes(seq) && end.includes(seq))
            .collect();
        let mut messages = messages.into_iter().peekable();
        // The last event of all messages that begin up to the seq.
        let mut reach = None;
        for seq in ends {
            while let Some((_, last)) = messages.next_if(|(first, _)| *first <= seq) {
                reach = reach.max(Some(last));
            }
            if reach > Some(seq) {
                continue;
            }
            if !self.is_due(ms) {
                return Ok(ScanFlow::Stop);
            }
            let Some(bytes) = self.bytes_until(session, seq, scan)? else { continue };
            while scan.rows.front().is_some_and(|row| row.last <= seq) {
                scan.rows.pop_front();
            }
            if let Some(row) = scan.rows.front_mut().filter(|row| row.first <= seq) {
                row.bytes -= self.bytes_in(session, row.last, row.first, seq)?.unwrap_or(0);
                row.first = seq.next();
            }
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            scan.trim_to = seq.into();
            scan.trims = true;
        }
        Ok(ScanFlow::Continue)
    }

    /// The bytes of the events between `trim_to` and a seq; `None` if a damaged row is in between.
    fn bytes_until(
        &self,
        session: i64,
        seq: Seq,
        scan: &SessionScan,
    ) -> Result<Option<u64>, SqliteError> {
        let mut bytes = 0;
        for row in &scan.rows {
            if row.last <= seq {
                bytes += row.bytes;
            } else if row.first <= seq {
                match self.bytes_in(session, row.last, row.first, seq)? {
                    Some(some) => bytes += some,
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(bytes))
    }

    /// The bytes of the events of one row between two seqs.
    fn bytes_in(
        &self,
        session: i64,
        last: Seq,
        from: Seq,
        to: Seq,
    ) -> Result<Option<u64>, SqliteError> {
        let tail_rows = self.tail.sessions.get(&session).into_iter().flatten();
        let tail_row = tail_rows.into_iter().find(|tail_row| tail_row.segment.last() == last);
        let segment = match tail_row {
            Some(tail_row) => Some(tail_row.segment.clone()).filter(|_| tail_row.is_intact),
            None => self
                .conn
                .prepare_cached(
                    "SELECT last, count, ms, bytes, crc FROM segments
                     WHERE session = ?1 AND last = ?2",
                )?
                .query_one([session, sql_integers::position_to_sql(last)], |row| {
                    let segment =
                        Segment::from_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                    let is_intact = segment.is_intact(session, row.get(4)?);
                    Ok(Some(segment).filter(|_| is_intact))
                })
                .optional()?
                .flatten(),
        };
        Ok(segment
            .map(|segment| (segment.byte_offset(to.next()) - segment.byte_offset(from)) as u64))
    }
}

/// The time of the next row of `segments`, and its session.
fn next_age(rows: &mut rusqlite::Rows<'_>) -> rusqlite::Result<Option<(i64, i64)>> {
    rows.next()?.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}
