//! Checks a whole store for damaged, missing and orphaned rows. `turnwire doctor` and restore call
//! it.

use super::blobs;
use super::errors::SqliteError;
use super::file::Access;
use super::messages;
use super::segment::Segment;
use super::tail::Tails;
use super::{SqliteStore, schema, with_connection};
use crate::error::Result;
use crate::sql_integers;
use crate::store::{SessionKey, to_hex};
use rusqlite::{Connection, Row};
use std::path::Path;
use turnwire_core::Seq;

/// The progress of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// How much there is; 0 if unknown.
    pub total: u64,
}

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// SQLite itself finds the file damaged.
    File,
    /// Events are damaged.
    Events,
    /// Events are missing, or there twice.
    Gap,
    /// A message is damaged, or belongs to events that never existed.
    Message,
    /// A queued message is damaged.
    Queued,
    /// A stored response to an idempotency key is damaged.
    Key,
    /// A blob is damaged.
    Blob,
    /// Rows of a session that does not exist.
    Orphan,
}

/// Something that is wrong in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFinding {
    /// Its kind.
    pub kind: FindingKind,
    /// The session, if it concerns one.
    pub session: Option<SessionKey>,
    /// The event, if it concerns one.
    pub seq: Option<Seq>,
    /// A sentence for people.
    pub text: String,
}

impl SqliteStore {
    /// Checks the whole store: the file itself, all checksums, events without gaps, no orphaned
    /// rows.
    pub async fn check(
        &self,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Vec<StoreFinding>> {
        let path = self.path().to_owned();
        let checking = tokio::task::spawn_blocking(move || check_file(&path, &mut progress));
        let gone = |error| crate::Error::Store(format!("the check failed: {error}"));
        checking.await.map_err(gone)?
    }
}

/// Checks a file in one read transaction.
pub(super) fn check_file(
    path: &Path,
    progress: &mut impl FnMut(Progress),
) -> Result<Vec<StoreFinding>> {
    with_connection(path, Access::Inspect, |conn| {
        let view = conn.unchecked_transaction()?;
        let mut look =
            Checker { conn: &view, file: path, tails: Tails::default(), found: Vec::new() };
        progress(Progress { stage: "file", done: 0, total: 0 });
        // What cannot be read is a finding too, and the other checks still run.
        for stage in [
            Checker::check_pages,
            Checker::check_events,
            Checker::check_messages,
            Checker::check_blobs,
            Checker::check_orphans,
        ] {
            if let Err(fault) = stage(&mut look, progress) {
                let text = fault.into_error(path).to_string();
                look.add_finding(FindingKind::File, None, None, text);
            }
        }
        Ok(look.found)
    })
}

struct Checker<'a> {
    conn: &'a Connection,
    file: &'a Path,
    tails: Tails,
    found: Vec<StoreFinding>,
}

/// A session as the check needs it.
struct CheckedSession {
    no: i64,
    key: SessionKey,
    first: Seq,
}

impl Checker<'_> {
    fn add_finding(
        &mut self,
        kind: FindingKind,
        session: Option<&SessionKey>,
        seq: Option<Seq>,
        text: String,
    ) {
        let session = session.cloned();
        self.found.push(StoreFinding { kind, session, seq, text });
    }

    fn check_pages(&mut self, _: &mut dyn FnMut(Progress)) -> Result<(), SqliteError> {
        let mut rows = self.conn.prepare("PRAGMA integrity_check")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            if text != "ok" {
                self.add_finding(
                    FindingKind::File,
                    None,
                    None,
                    format!("{}: {text}", self.file.display()),
                );
            }
        }
        Ok(())
    }

    fn check_events(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), SqliteError> {
        self.tails = Tails::load_all(self.conn)?;
        let total = self.count("SELECT count(*) FROM sessions")?;
        let mut done = 0;
        let mut after = 0;
        loop {
            let some: Vec<CheckedSession> = self
                .conn
                .prepare_cached(
                    "SELECT no, tenant, id, first FROM sessions WHERE no > ?1 ORDER BY no LIMIT 100",
                )?
                .query_map([after], read_session)?
                .collect::<rusqlite::Result<_>>()?;
            let Some(last) = some.last() else { return Ok(()) };
            after = last.no;
            for session in &some {
                let end = self.segments(session)?;
                self.check_tail(session, end);
            }
            done += some.len() as u64;
            progress(Progress { stage: "events", done, total });
        }
    }

    /// Checks the rows of a session, and returns the seq that must come next.
    fn segments(&mut self, session: &CheckedSession) -> Result<Seq, SqliteError> {
        let mut next = session.first;
        let mut rows = self.conn.prepare_cached(
            "SELECT last, count, ms, bytes, crc FROM segments
             WHERE session = ?1 AND last >= ?2 ORDER BY last",
        )?;
        let mut rows = rows.query([session.no, sql_integers::position_to_sql(session.first)])?;
        while let Some(row) = rows.next()? {
            let segment = Segment::from_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let is_intact = segment.is_intact(session.no, row.get(4)?);
            next = self.check_segment(session, next, &segment, is_intact);
        }
        Ok(next)
    }

    fn check_tail(&mut self, session: &CheckedSession, mut next: Seq) {
        for tail_row in self.tails.rows_of(session.no).to_vec() {
            next = self.check_segment(session, next, &tail_row.segment, tail_row.is_intact);
        }
    }

    /// Checks one row of events, and returns the seq that must come next.
    fn check_segment(
        &mut self,
        session: &CheckedSession,
        next: Seq,
        segment: &Segment,
        is_intact: bool,
    ) -> Seq {
        let (key, name) = (Some(&session.key), session_name(&session.key));
        if !is_intact {
            let text = format!(
                "events {} to {} of {name} do not match their checksum",
                segment.first,
                segment.last()
            );
            self.add_finding(FindingKind::Events, key, Some(segment.first), text);
        } else if segment.first > next {
            let text =
                format!("events {next} to {} of {name} are missing", segment.first.previous());
            self.add_finding(FindingKind::Gap, key, Some(next), text);
        } else if segment.first < next && segment.first >= session.first {
            let text = format!("events of {name} from {} on are there twice", segment.first);
            self.add_finding(FindingKind::Gap, key, Some(segment.first), text);
        }
        next.max(segment.last().next())
    }

    fn check_messages(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), SqliteError> {
        let total = self.count("SELECT count(*) FROM messages")?;
        let mut rows = self.conn.prepare(
            "SELECT m.id, m.first, m.last, m.event_id, m.of_sub_agent, m.superseded,
                    m.fold_version, m.crc, m.json, m.text, s.tenant, s.id,
                    max(s.first - 1,
                        ifnull((SELECT max(last) FROM segments WHERE session = s.no), 0)),
                    s.no
             FROM messages m JOIN sessions s ON s.no = m.session",
        )?;
        let mut rows = rows.query([])?;
        let mut done = 0;
        while let Some(row) = rows.next()? {
            let (message, is_intact) = messages::read_message_row(row)?;
            let key = SessionKey::new(row.get::<_, String>(10)?, row.get::<_, String>(11)?);
            let (first, last): (i64, i64) = (row.get(1)?, row.get(2)?);
            let in_tail = self.tails.last(row.get(13)?).unwrap_or_default();
            let end = sql_integers::head_from_sql(row.get(12)?).max(in_tail);
            let what = if !is_intact {
                "does not match its checksum"
            } else if first < 1 || first > last || sql_integers::head_from_sql(last) > end {
                "belongs to events that do not exist"
            } else {
                ""
            };
            if !what.is_empty() {
                let text = format!("message `{}` of {} {what}", message.id, session_name(&key));
                self.add_finding(
                    FindingKind::Message,
                    Some(&key),
                    Seq::new(sql_integers::from_sql(first)),
                    text,
                );
            }
            done += 1;
            if done % 1000 == 0 || done == total {
                progress(Progress { stage: "messages", done, total });
            }
        }
        self.check_queue()
    }

    fn check_queue(&mut self) -> Result<(), SqliteError> {
        let mut rows = self.conn.prepare(
            "SELECT q.id, q.reply_id, q.crc, q.json, s.tenant, s.id
             FROM queue q JOIN sessions s ON s.no = q.session",
        )?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (queued, is_intact) = messages::read_queued_row(row)?;
            if !is_intact {
                let key = SessionKey::new(row.get::<_, String>(4)?, row.get::<_, String>(5)?);
                let text = format!(
                    "the queued message `{}` of {} does not match its checksum",
                    queued.id,
                    session_name(&key)
                );
                self.add_finding(FindingKind::Queued, Some(&key), None, text);
            }
        }
        self.check_keys()
    }

    fn check_keys(&mut self) -> Result<(), SqliteError> {
        let mut rows =
            self.conn.prepare("SELECT tenant, key, fingerprint, answer, crc FROM keys")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (key, is_intact) = messages::read_idempotency_row(row)?;
            if !is_intact {
                let text =
                    format!("the stored response to `{}` does not match its checksum", key.key);
                self.add_finding(FindingKind::Key, None, None, text);
            }
        }
        Ok(())
    }

    fn check_blobs(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), SqliteError> {
        if schema::user_version(self.conn)? < 2 {
            return self.check_version_1_blobs(progress);
        }
        let total = self.count("SELECT count(*) FROM blobs")?;
        let conn = self.conn;
        let (mut done, mut wrong) = (0, Vec::new());
        blobs::for_each_blob(conn, |hash, header| {
            if !blobs::is_intact(conn, header)? {
                wrong.push(format!("blob {hash} does not match its checksum"));
            }
            done += 1;
            progress(Progress { stage: "blobs", done, total });
            Ok(())
        })?;
        for text in wrong {
            self.add_finding(FindingKind::Blob, None, None, text);
        }
        let lost = self.count(
            "SELECT count(*) FROM blob_pieces
             WHERE upload NOT IN (SELECT no FROM blob_uploads)
               AND upload NOT IN (SELECT upload FROM blob_info WHERE upload IS NOT NULL)",
        )?;
        if lost > 0 {
            let text = format!("{lost} pieces belong to blobs that do not exist");
            self.add_finding(FindingKind::Orphan, None, None, text);
        }
        Ok(())
    }

    /// The same for a file of version 1, in which each blob is one row.
    fn check_version_1_blobs(
        &mut self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SqliteError> {
        let total = self.count("SELECT count(*) FROM blobs")?;
        let mut rows = self.conn.prepare("SELECT hash, media_type, crc, bytes FROM blobs")?;
        let mut rows = rows.query([])?;
        let mut done = 0;
        while let Some(row) = rows.next()? {
            let media_type: String = row.get(1)?;
            if row.get::<_, i64>(2)?
                != blobs::blob_checksum(&media_type, row.get_ref(3)?.as_blob()?)
            {
                let hash = to_hex(row.get_ref(0)?.as_blob()?);
                self.add_finding(
                    FindingKind::Blob,
                    None,
                    None,
                    format!("blob {hash} does not match its checksum"),
                );
            }
            done += 1;
            progress(Progress { stage: "blobs", done, total });
        }
        Ok(())
    }

    fn check_orphans(&mut self, _: &mut dyn FnMut(Progress)) -> Result<(), SqliteError> {
        for table in ["segments", "tail", "messages", "queue"] {
            let mut rows = self.conn.prepare(&format!(
                "SELECT session, count(*) FROM {table}
                 WHERE session NOT IN (SELECT no FROM sessions)
                   AND session NOT IN (SELECT session FROM deleted)
                 GROUP BY session"
            ))?;
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let (session, count): (i64, i64) = (row.get(0)?, row.get(1)?);
                let text = format!(
                    "{count} rows of {table} belong to session number {session}, which does not exist"
                );
                self.add_finding(FindingKind::Orphan, None, None, text);
            }
        }
        Ok(())
    }

    fn count(&self, sql: &str) -> Result<u64, SqliteError> {
        Ok(sql_integers::from_sql(self.conn.query_one(sql, [], |row| row.get(0))?))
    }
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<CheckedSession> {
    Ok(CheckedSession {
        no: row.get(0)?,
        key: SessionKey::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?),
        first: sql_integers::seq_from_sql(row.get(3)?),
    })
}

fn session_name(key: &SessionKey) -> String {
    format!("session `{}` of tenant `{}`", key.id, key.tenant)
}
