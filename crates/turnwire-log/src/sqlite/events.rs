//! Reads events: first from `segments`, then from the tail in memory.

use super::errors::SqliteError;
use super::segment::Segment;
use super::tail::{TailRow, TailView};
use crate::error::Error;
use crate::sql_integers;
use crate::store::EventLines;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;
use turnwire_core::Seq;

/// The events of one read, as they are collected.
#[derive(Debug)]
pub(super) struct EventPage {
    next: Seq,
    room: usize,
    lines: Vec<EventLines>,
}

/// Whether a read wants more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WantsMore {
    Yes,
    No,
}

impl EventPage {
    pub(super) fn new(from: Seq, max_bytes: usize) -> Self {
        Self { next: from, room: max_bytes, lines: Vec::new() }
    }

    /// The events that were collected.
    pub(super) fn finish(self) -> Vec<EventLines> {
        self.lines
    }

    /// Adds events that continue the page.
    fn push(&mut self, segment: Segment) -> Result<WantsMore, Damage> {
        if segment.first > self.next {
            return self.stop_at_damage(Damage::Missing(self.next));
        }
        let Some(segment) = segment.starting_at(self.next) else { return Ok(WantsMore::Yes) };
        if !self.lines.is_empty() && self.room == 0 {
            return Ok(WantsMore::No);
        }
        let (segment, rest) = segment.split(self.room);
        // The first event of a page may exceed `max_bytes`; later ones must fit.
        if segment.len() > self.room && !self.lines.is_empty() {
            return Ok(WantsMore::No);
        }
        self.room = self.room.saturating_sub(segment.len());
        self.next = segment.last().next();
        self.lines.push(segment.into_lines());
        Ok(if rest.is_some() || self.room == 0 { WantsMore::No } else { WantsMore::Yes })
    }

    /// Events before the damage are returned; the next read reports the damage.
    fn stop_at_damage(&self, why: Damage) -> Result<WantsMore, Damage> {
        if self.lines.is_empty() { Err(why) } else { Ok(WantsMore::No) }
    }

    /// Adds rows of the tail in memory.
    pub(super) fn push_tail_rows(&mut self, tail_rows: &[TailRow]) -> Result<WantsMore, Damage> {
        for tail_row in tail_rows {
            let more = if tail_row.is_intact {
                self.push(tail_row.segment.clone())?
            } else {
                self.stop_at_damage(Damage::Changed(tail_row.segment.first))?
            };
            if more == WantsMore::No {
                return Ok(WantsMore::No);
            }
        }
        Ok(WantsMore::Yes)
    }

    /// Adds rows of `segments`; with `end`, those that end before it.
    fn push_segments(
        &mut self,
        conn: &Connection,
        file: &Path,
        session: i64,
        end: Option<Seq>,
    ) -> Result<WantsMore, SqliteError> {
        let mut rows = conn.prepare_cached(
            "SELECT last, count, ms, crc, bytes FROM segments
             WHERE session = ?1 AND last >= ?2 AND last < ?3 ORDER BY last",
        )?;
        let end = end.map_or(i64::MAX, sql_integers::position_to_sql);
        let mut rows = rows.query([session, sql_integers::position_to_sql(self.next), end])?;
        while let Some(row) = rows.next()? {
            let segment = Segment::from_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(4)?);
            let more = if segment.is_intact(session, row.get(3)?) {
                self.push(segment)
            } else {
                self.stop_at_damage(Damage::Changed(segment.first.max(self.next)))
            };
            if more.map_err(|damage| damage.into_error(conn, file, session))? == WantsMore::No {
                return Ok(WantsMore::No);
            }
        }
        Ok(WantsMore::Yes)
    }
}

/// Events that cannot be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// From this seq on they are damaged.
    Changed(Seq),
    /// From this seq on they are missing, although later ones exist.
    Missing(Seq),
}

impl Damage {
    /// The error, with the file, the session and the seq.
    pub(super) fn into_error(self, conn: &Connection, file: &Path, session: i64) -> Error {
        let (seq, what) = match self {
            Self::Changed(seq) => (seq, "does not match its checksum"),
            Self::Missing(seq) => (seq, "is missing"),
        };
        Error::Damaged(format!(
            "{} is damaged: event {seq} of session {} {what}; run `turnwire doctor`, and \
             restore the last backup",
            file.display(),
            session_name(conn, session)
        ))
    }
}

/// The name of a session in error messages.
pub(super) fn session_name(conn: &Connection, session: i64) -> String {
    let found = conn.query_row("SELECT tenant, id FROM sessions WHERE no = ?1", [session], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    });
    match found {
        Ok((tenant, id)) if tenant.is_empty() => format!("`{id}`"),
        Ok((tenant, id)) => format!("`{id}` of tenant `{tenant}`"),
        Err(_) => format!("number {session}"),
    }
}

/// The events from a seq on.
pub(super) fn read_events(
    conn: &Connection,
    file: &Path,
    session: i64,
    from: Seq,
    max_bytes: usize,
    memory: &TailView,
) -> Result<Vec<EventLines>, SqliteError> {
    let first: Option<i64> = conn
        .prepare_cached("SELECT first FROM sessions WHERE no = ?1")?
        .query_one([session], |row| row.get(0))
        .optional()?;
    let first = sql_integers::seq_from_sql(first.ok_or(Error::NoSession)?);
    if from < first {
        return Err(Error::Trimmed(first).into());
    }
    let mut page = EventPage::new(from, max_bytes);
    if page.push_segments(conn, file, session, memory.first)? == WantsMore::Yes {
        let pushed = page.push_tail_rows(&memory.rows);
        pushed.map_err(|damage| damage.into_error(conn, file, session))?;
    }
    Ok(page.finish())
}
