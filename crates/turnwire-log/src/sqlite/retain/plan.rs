//! What is to go: the rows of all sessions are looked at from the oldest on, and of each session as
//! much goes as ends with a whole reply.

use crate::sqlite::fault::Fault;
use crate::sqlite::places;
use crate::sqlite::run::Run;
use crate::sqlite::tail::{Piece, Tails};
use crate::store::Retention;
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Of this session the events up to this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) session: i64,
    pub(super) last: u64,
}

/// What has not moved to `segments` yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    sessions: HashMap<i64, Vec<Piece>>,
    /// When pieces came, and of which session, in order.
    ages: VecDeque<(i64, i64)>,
    bytes: u64,
}

impl Waiting {
    pub(super) fn of(tails: &Tails) -> Self {
        let sessions: HashMap<i64, Vec<Piece>> =
            tails.iter().map(|(session, pieces)| (session, pieces.to_vec())).collect();
        let pieces =
            || sessions.iter().flat_map(|(session, all)| all.iter().map(|one| (*session, one)));
        let mut ages: Vec<(i64, i64)> =
            pieces().map(|(session, one)| (one.run.ms, session)).collect();
        ages.sort_unstable();
        let bytes = pieces().map(|(_, one)| one.run.len() as u64).sum();
        Self { ages: ages.into(), sessions, bytes }
    }
}

/// A row of events: where it ends, and how large it is.
#[derive(Debug, Clone, Copy)]
struct Row {
    first: u64,
    last: u64,
    bytes: u64,
}

/// How far the look at one session has come.
#[derive(Debug, Default)]
struct Walk {
    /// What goes so far.
    cut: u64,
    /// Whether anything goes that is still kept.
    cuts: bool,
    /// What is old enough so far, and the rows behind the cut until there.
    reached: u64,
    rows: VecDeque<Row>,
    /// What must stay begins here.
    stays: u64,
}

struct Plan<'a> {
    conn: &'a Connection,
    waiting: Waiting,
    walks: HashMap<i64, Walk>,
    retention: Retention,
    /// How many bytes are left of all.
    left: u64,
}

/// Whether the look has to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

pub(super) fn make(
    conn: &Connection,
    waiting: Waiting,
    retention: Retention,
) -> Result<Vec<Cut>, Fault> {
    let left = match retention.max_bytes {
        Some(_) => {
            let stored: i64 =
                conn.query_one("SELECT ifnull(sum(size), 0) FROM segments", [], |row| row.get(0))?;
            places::from_sql(stored) + waiting.bytes
        }
        None => 0,
    };
    let mut plan = Plan { conn, waiting, walks: HashMap::new(), retention, left };
    plan.look()?;
    let cut = plan.walks.into_iter().filter(|(_, walk)| walk.cuts);
    Ok(cut.map(|(session, walk)| Cut { session, last: walk.cut }).collect())
}

impl Plan<'_> {
    fn is_due(&self, ms: i64) -> bool {
        self.retention.before_ms.is_some_and(|before| ms < before)
            || self.retention.max_bytes.is_some_and(|max| self.left > max)
    }

    /// Goes through all rows from the oldest on.
    fn look(&mut self) -> Result<(), Fault> {
        let mut rows = self.conn.prepare("SELECT ms, session FROM segments ORDER BY ms")?;
        let mut rows = rows.query([])?;
        let mut stored = next(&mut rows)?;
        loop {
            let waiting = self.waiting.ages.front().copied();
            let Some(ms) = stored.into_iter().chain(waiting).map(|(ms, _)| ms).min() else {
                return Ok(());
            };
            if !self.is_due(ms) {
                return Ok(());
            }
            // All sessions that have something of that moment.
            let mut sessions = BTreeSet::new();
            while let Some((_, session)) = stored.filter(|(at, _)| *at == ms) {
                sessions.insert(session);
                stored = next(&mut rows)?;
            }
            while let Some((_, session)) = self.waiting.ages.pop_front_if(|(at, _)| *at == ms) {
                sessions.insert(session);
            }
            for session in sessions {
                if self.visit(session, ms)? == Go::Stop {
                    return Ok(());
                }
            }
        }
    }

    /// Looks what of a session can go now that events of this moment can.
    fn visit(&mut self, session: i64, ms: i64) -> Result<Go, Fault> {
        let mut walk = match self.walks.remove(&session) {
            Some(walk) => walk,
            None => match self.begin(session)? {
                Some(walk) => walk,
                None => return Ok(Go::On),
            },
        };
        let mut go = Go::On;
        if walk.reached + 1 < walk.stays {
            self.reach(session, ms, &mut walk)?;
            go = self.cut(session, ms, &mut walk)?;
        }
        self.walks.insert(session, walk);
        Ok(go)
    }

    fn begin(&self, session: i64) -> Result<Option<Walk>, Fault> {
        let found: Option<(i64, Option<i64>)> = self
            .conn
            .prepare_cached("SELECT first, open_from FROM sessions WHERE no = ?1")?
            .query_one([session], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((first, open_from)) = found else { return Ok(None) };
        let before = places::from_sql(first).saturating_sub(1);
        // Rows that a crash left behind go with the next chance.
        let left: bool = self
            .conn
            .prepare_cached("SELECT 1 FROM segments WHERE session = ?1 AND last <= ?2 LIMIT 1")?
            .exists([session, places::to_sql(before)])?;
        Ok(Some(Walk {
            cut: before,
            cuts: left,
            reached: before,
            rows: VecDeque::new(),
            stays: open_from.map_or(u64::MAX, places::from_sql),
        }))
    }

    /// Takes in the rows that follow, as long as they are old enough.
    fn reach(&self, session: i64, ms: i64, walk: &mut Walk) -> Result<(), Fault> {
        let mut rows = self.conn.prepare_cached(
            "SELECT last, count, size, ms FROM segments WHERE session = ?1 AND last > ?2
             ORDER BY last",
        )?;
        let mut rows = rows.query([session, places::to_sql(walk.reached)])?;
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(3)? > ms {
                return Ok(());
            }
            let (last, count) = (places::from_sql(row.get(0)?), places::from_sql(row.get(1)?));
            let bytes = places::from_sql(row.get(2)?);
            walk.rows.push_back(Row { first: (last + 1).saturating_sub(count), last, bytes });
            walk.reached = last;
        }
        for piece in self.waiting.sessions.get(&session).into_iter().flatten() {
            if piece.run.last() <= walk.reached {
                continue;
            }
            if piece.run.ms > ms {
                break;
            }
            let (first, last) = (piece.run.first, piece.run.last());
            walk.rows.push_back(Row { first, last, bytes: piece.run.len() as u64 });
            walk.reached = last;
        }
        Ok(())
    }

    /// Moves the cut from one end of a whole reply to the next, as far as it has to go.
    fn cut(&mut self, session: i64, ms: i64, walk: &mut Walk) -> Result<Go, Fault> {
        let end = walk.reached.min(walk.stays.saturating_sub(1));
        let messages: Vec<(u64, u64)> = self
            .conn
            .prepare_cached(
                "SELECT first, last FROM messages WHERE session = ?1 AND first > ?2 AND first <= ?3
                 ORDER BY first",
            )?
            .query_map([session, places::to_sql(walk.cut), places::to_sql(end)], |row| {
                Ok((places::from_sql(row.get(0)?), places::from_sql(row.get(1)?)))
            })?
            .collect::<rusqlite::Result<_>>()?;
        let ends = messages.iter().map(|(_, last)| *last);
        let ends: BTreeSet<u64> = ends
            .chain(walk.rows.iter().map(|row| row.last))
            .chain([end])
            .filter(|&place| place > walk.cut && place <= end)
            .collect();
        let mut messages = messages.into_iter().peekable();
        // How far those reach that begin up to the place.
        let mut reach = 0;
        for place in ends {
            while let Some((_, last)) = messages.next_if(|(first, _)| *first <= place) {
                reach = reach.max(last);
            }
            if reach > place {
                continue;
            }
            if !self.is_due(ms) {
                return Ok(Go::Stop);
            }
            let Some(bytes) = self.bytes_until(session, place, walk)? else { continue };
            while walk.rows.front().is_some_and(|row| row.last <= place) {
                walk.rows.pop_front();
            }
            if let Some(row) = walk.rows.front_mut().filter(|row| row.first <= place) {
                let whole: u64 = row.bytes;
                row.bytes =
                    whole - self.bytes_in(session, row.last, row.first, place)?.unwrap_or(0);
                row.first = place + 1;
            }
            self.left = self.left.saturating_sub(bytes);
            walk.cut = place;
            walk.cuts = true;
        }
        Ok(Go::On)
    }

    /// How many bytes the events between the cut and a place have; `None` when that is within a
    /// damaged row.
    fn bytes_until(&self, session: i64, place: u64, walk: &Walk) -> Result<Option<u64>, Fault> {
        let mut bytes = 0;
        for row in &walk.rows {
            if row.last <= place {
                bytes += row.bytes;
            } else if row.first <= place {
                match self.bytes_in(session, row.last, row.first, place)? {
                    Some(some) => bytes += some,
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(bytes))
    }

    /// How many bytes the events of one row have from one place to another.
    fn bytes_in(&self, session: i64, last: u64, from: u64, to: u64) -> Result<Option<u64>, Fault> {
        let pieces = self.waiting.sessions.get(&session).into_iter().flatten();
        let piece = pieces.into_iter().find(|piece| piece.run.last() == last);
        let run = match piece {
            Some(piece) => Some(piece.run.clone()).filter(|_| piece.sound),
            None => self
                .conn
                .prepare_cached(
                    "SELECT last, count, ms, bytes, crc FROM segments
                     WHERE session = ?1 AND last = ?2",
                )?
                .query_one([session, places::to_sql(last)], |row| {
                    let run = Run::of_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                    let sound = run.is_sound(session, row.get(4)?);
                    Ok(Some(run).filter(|_| sound))
                })
                .optional()?
                .flatten(),
        };
        Ok(run.map(|run| (run.offset(to + 1) - run.offset(from)) as u64))
    }
}

/// The age of the next row of `segments`, and whose it is.
fn next(rows: &mut rusqlite::Rows<'_>) -> rusqlite::Result<Option<(i64, i64)>> {
    rows.next()?.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}
