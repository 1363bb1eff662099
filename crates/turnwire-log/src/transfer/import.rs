//! Sessions into a store.
//!
//! One reads the file and hands out its lines in pieces; each session is written by a task of its
//! own, several at a time, so that they share the waiting for the disk.

use super::{SessionHeader, VERSION, sub_agent_of};
use crate::error::{Error, Result};
use crate::loaded_session::{PushOutcome, Transaction};
use crate::log::{Log, now_ms};
use crate::session::Session;
use crate::store::{NewSession, SessionKey, Store};
use parking_lot::Mutex;
use serde::Deserialize;
use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use turnwire_core::event::{Message, Supersede};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, EventKind, Msg, Seq};

/// How many sessions are written at a time.
const MAX_CONCURRENT_SESSIONS: u32 = 128;
/// How large a piece is, about.
const CHUNK_BYTES: usize = 256 * 1024;
/// A line cannot be larger than this.
const MAX_LINE_BYTES: u64 = 256 << 20;
/// How many problems are kept; more are only counted.
const MAX_PROBLEMS: usize = 1000;

/// What to do with a session that is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExistingSession {
    /// Leave it alone, and name it as a problem.
    #[default]
    Refuse,
    /// Delete it first.
    Replace,
    /// Leave it alone.
    Skip,
}

/// How to import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// What to do with a session that is there already.
    pub existing: ExistingSession,
    /// Whose the sessions become, instead of whose they were.
    pub tenant: Option<Arc<str>>,
}

/// What an import came to.
#[derive(Debug, Clone, Default)]
pub struct ImportReport {
    /// Sessions that were made.
    pub sessions: u64,
    /// Their events.
    pub events: u64,
    /// Sessions that were there already and left alone.
    pub skipped: u64,
    /// Sessions that were not made, and lines that belong to none; the first 1,000.
    pub problems: Vec<ImportProblem>,
    /// How many problems there were.
    pub problem_count: u64,
    /// Why it went no further, where it did not reach the end.
    pub stopped: Option<Error>,
}

/// Why a session was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// The line, counted from 1.
    pub line: u64,
    /// Which session, where that is known.
    pub session: Option<String>,
    /// Why.
    pub why: String,
}

/// Imports all sessions of a file. Of a session with a bad line nothing stays; the others are made.
/// `progress` is told how many bytes were read, from time to time.
pub async fn import(
    store: Arc<dyn Store>,
    input: impl BufRead + Send + 'static,
    importing: ImportOptions,
    progress: impl Fn(u64) + Send + 'static,
) -> ImportReport {
    let shared = Arc::new(ImportState {
        log: Log::new(store, "import"),
        options: importing,
        report: Mutex::default(),
        stop: AtomicBool::new(false),
        slots: Arc::new(Semaphore::new(MAX_CONCURRENT_SESSIONS as usize)),
    });
    let reader = FileReader {
        shared: shared.clone(),
        runtime: Handle::current(),
        session: None,
        in_session: false,
        line: 0,
    };
    let read = tokio::task::spawn_blocking(move || reader.run(input, &progress)).await;
    // When all room is there again, all sessions are written.
    let _all = shared.slots.acquire_many(MAX_CONCURRENT_SESSIONS).await;
    let mut report = shared.report.lock();
    match read {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let why = Error::Store(format!("cannot read: {error}"));
            report.stopped.get_or_insert(why);
        }
        Err(error) => {
            report.stopped.get_or_insert(Error::Store(error.to_string()));
        }
    }
    std::mem::take(&mut *report)
}

struct ImportState {
    log: Log,
    options: ImportOptions,
    report: Mutex<ImportReport>,
    stop: AtomicBool,
    slots: Arc<Semaphore>,
}

impl ImportState {
    fn add_problem(&self, line: u64, session: Option<&str>, why: String) {
        let mut report = self.report.lock();
        report.problem_count += 1;
        if report.problems.len() < MAX_PROBLEMS {
            report.problems.push(ImportProblem { line, session: session.map(str::to_owned), why });
        }
    }

    /// Nothing more can be written.
    fn stop_import(&self, error: Error) {
        self.stop.store(true, Ordering::Release);
        self.report.lock().stopped.get_or_insert(error);
    }
}

/// Lines of one session that follow each other.
struct LineChunk {
    /// The number of the first.
    line: u64,
    bytes: Vec<u8>,
}

/// Reads the file.
struct FileReader {
    shared: Arc<ImportState>,
    runtime: Handle,
    session: Option<(mpsc::Sender<LineChunk>, LineChunk)>,
    /// Whether lines belong to a session, also to one that is not made.
    in_session: bool,
    line: u64,
}

impl FileReader {
    fn run(mut self, mut input: impl BufRead, progress: &impl Fn(u64)) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut read = 0;
        loop {
            bytes.clear();
            let count = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)?;
            if count == 0 || self.shared.stop.load(Ordering::Acquire) {
                break;
            }
            read += count as u64;
            self.line += 1;
            if self.line.is_multiple_of(256) {
                progress(read);
            }
            let text = bytes.trim_ascii();
            if text.is_empty() {
                continue;
            }
            if has_first_key(text, b"\"turnwire\"") {
                self.flush();
                self.start_session(text);
            } else if let Some((_, piece)) = &mut self.session {
                if piece.bytes.is_empty() {
                    piece.line = self.line;
                }
                // Lines that were empty count all the same.
                let behind = self.line - piece.line;
                let lines = memchr::memchr_iter(b'\n', &piece.bytes).count() as u64;
                for _ in lines..behind {
                    piece.bytes.push(b'\n');
                }
                piece.bytes.extend_from_slice(text);
                piece.bytes.push(b'\n');
                if piece.bytes.len() >= CHUNK_BYTES {
                    self.flush();
                }
            } else if !self.in_session {
                self.in_session = true;
                let why = "this belongs to no session; a session begins with a line \
                           {\"turnwire\":\"session\",…}";
                self.shared.add_problem(self.line, None, why.to_owned());
            }
        }
        self.flush();
        progress(read);
        Ok(())
    }

    /// Hands over what is there.
    fn flush(&mut self) {
        let Some((sender, piece)) = &mut self.session else { return };
        if piece.bytes.is_empty() {
            return;
        }
        let piece = std::mem::replace(piece, LineChunk { line: 0, bytes: Vec::new() });
        // Whoever would take it has failed, and said so.
        if sender.blocking_send(piece).is_err() {
            self.session = None;
        }
    }

    fn start_session(&mut self, text: &[u8]) {
        self.session = None;
        self.in_session = true;
        let header = match parse_header(text) {
            Ok(header) => header,
            Err(why) => return self.shared.add_problem(self.line, None, why),
        };
        let room = self.shared.slots.clone().acquire_owned();
        let Ok(permit) = self.runtime.block_on(room) else { return };
        let (sender, pieces) = mpsc::channel(1);
        let making = SessionImport {
            shared: self.shared.clone(),
            line: self.line,
            header,
            next: None,
            events: 0,
        };
        self.runtime.spawn(async move {
            making.run(pieces).await;
            drop(permit);
        });
        self.session = Some((sender, LineChunk { line: 0, bytes: Vec::new() }));
    }
}

/// Whether a line is an object whose first key is this one.
fn has_first_key(text: &[u8], key: &[u8]) -> bool {
    text.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(key))
}

fn parse_header(text: &[u8]) -> Result<SessionHeader, String> {
    let header: SessionHeader = serde_json::from_slice(text)
        .map_err(|error| format!("this line does not begin a session: {error}"))?;
    if header.turnwire != "session" {
        return Err(format!("\"{}\" is nothing that can be imported", header.turnwire));
    }
    if header.version != VERSION {
        return Err(format!(
            "version {} is not known here, only {VERSION}; use the turnwire that wrote it",
            header.version
        ));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if !(1..=128).contains(&header.id.len()) || !header.id.bytes().all(fits) {
        return Err("the id is none: 1 to 128 of A-Z a-z 0-9 . _ : -".to_owned());
    }
    Ok(header)
}

/// A bad line, or a store that fails.
enum ImportFailure {
    Line(u64, String),
    Store(Error),
}

impl From<Error> for ImportFailure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Makes one session.
struct SessionImport {
    shared: Arc<ImportState>,
    line: u64,
    header: SessionHeader,
    /// The place that the next event has in the file.
    next: Option<u64>,
    events: u64,
}

/// An event, the line where it stands, and its text where it is to be stored as it is.
type NumberedEvent<'t> = (u64, Event<'t>, Option<Cow<'t, str>>);

/// A message whose events are gone.
#[derive(Deserialize)]
struct TrimmedMessage {
    message: Msg,
    #[serde(default)]
    event_id: String,
    #[serde(default)]
    sub_agent: bool,
    #[serde(default)]
    superseded: bool,
}

impl SessionImport {
    async fn run(mut self, pieces: mpsc::Receiver<LineChunk>) {
        let session = match self.create_session().await {
            Ok(Some(session)) => session,
            Ok(None) => return,
            Err(error) => return self.shared.stop_import(error),
        };
        let made = self.import_chunks(&session, pieces).await;
        match made {
            Ok(()) => {
                let mut report = self.shared.report.lock();
                report.sessions += 1;
                report.events += self.events;
                // What is written need not stay in memory.
                if report.sessions.is_multiple_of(u64::from(MAX_CONCURRENT_SESSIONS)) {
                    drop(report);
                    drop(session);
                    self.shared.log.evict_idle();
                }
            }
            Err(failed) => {
                if let ImportFailure::Line(line, why) = failed {
                    self.shared.add_problem(line, Some(&self.header.id), why);
                } else if let ImportFailure::Store(error) = failed {
                    self.shared.stop_import(error);
                }
                if let Err(error) = self.shared.log.delete_session(session.key()).await {
                    let id = &self.header.id;
                    let why = format!("a part of session {id} stays, delete it: {error}");
                    self.shared.add_problem(self.line, Some(id), why);
                }
            }
        }
    }

    /// The session, still empty. `None`: there is one already.
    async fn create_session(&self) -> Result<Option<Arc<Session>>> {
        let header = &self.header;
        let tenant = self.shared.options.tenant.clone();
        let tenant = tenant.unwrap_or_else(|| match &*header.tenant {
            "" => "default".into(),
            tenant => tenant.into(),
        });
        let created = header.created_at.parse::<jiff::Timestamp>();
        let new = NewSession {
            key: SessionKey { tenant, id: header.id.as_str().into() },
            agent: header.agent.clone(),
            title: header.title.clone(),
            metadata: header.metadata.clone(),
            now_ms: created.map_or_else(|_| now_ms(), jiff::Timestamp::as_millisecond),
        };
        loop {
            let (session, made) = self.shared.log.create_session(new.clone()).await?;
            if made {
                return Ok(Some(session));
            }
            match self.shared.options.existing {
                ExistingSession::Replace => {
                    self.shared.log.delete_session(session.key()).await?;
                }
                ExistingSession::Skip => {
                    self.shared.report.lock().skipped += 1;
                    return Ok(None);
                }
                ExistingSession::Refuse => {
                    let why = "there is a session of this id already".to_owned();
                    self.shared.add_problem(self.line, Some(&header.id), why);
                    return Ok(None);
                }
            }
        }
    }

    async fn import_chunks(
        &mut self,
        session: &Arc<Session>,
        mut pieces: mpsc::Receiver<LineChunk>,
    ) -> Result<(), ImportFailure> {
        let mut superseded = Vec::new();
        while let Some(piece) = pieces.recv().await {
            self.import_chunk(session, &piece, &mut superseded).await?;
        }
        if self.shared.stop.load(Ordering::Acquire) {
            return Err(ImportFailure::Line(
                self.line,
                "the import stopped before its end".to_owned(),
            ));
        }
        self.supersede_messages(session, &mut superseded).await?;
        let (Some(first), Some(last)) = (self.header.first, self.header.last) else {
            return Ok(());
        };
        let next = self.next.unwrap_or(first.get());
        if next <= last {
            let why = format!("the file ends at event {next} of this session; it goes to {last}");
            return Err(ImportFailure::Line(self.line, why));
        }
        Ok(())
    }

    async fn import_chunk(
        &mut self,
        session: &Arc<Session>,
        piece: &LineChunk,
        superseded: &mut Vec<String>,
    ) -> Result<(), ImportFailure> {
        let text = str::from_utf8(&piece.bytes).map_err(|error| {
            let before = piece.bytes.get(..error.valid_up_to()).unwrap_or_default();
            let at = piece.line + memchr::memchr_iter(b'\n', before).count() as u64;
            ImportFailure::Line(at, "this is no UTF-8".to_owned())
        })?;
        let mut events: Vec<NumberedEvent<'_>> = Vec::new();
        for (line, text) in (piece.line..).zip(text.split_terminator('\n')) {
            if text.is_empty() {
                continue;
            }
            let bad = |why: String| ImportFailure::Line(line, why);
            if has_first_key(text.as_bytes(), b"\"message\"") && self.next.is_none() {
                let gone: TrimmedMessage = serde_json::from_str(text)
                    .map_err(|error| bad(format!("this is no message: {error}")))?;
                if gone.superseded {
                    superseded.push(gone.message.id().to_owned());
                }
                events.push((line, self.to_event(gone), None));
            } else {
                let first = self.next.is_none();
                let event = Event::from_json(text).map_err(|error| bad(error.to_string()))?;
                self.check_seq(&event).map_err(bad)?;
                if first && !superseded.is_empty() {
                    let message_ids = std::mem::take(superseded);
                    let event = Event::new("", Supersede { message_ids }).stamped(&SystemStamp);
                    events.push((line, event, None));
                }
                let text = without_seq(text, &event);
                events.push((line, event, Some(text)));
            }
        }
        self.append_events(session, events).await
    }

    /// Where an event says its place, that has to follow the one before.
    fn check_seq(&mut self, event: &Event<'_>) -> Result<(), String> {
        let expected = self.next.or(self.header.first.map(Seq::get));
        let seq = event.seq.map(Seq::get).or(expected).unwrap_or(1);
        if let Some(expected) = expected.filter(|expected| *expected != seq) {
            return Err(format!("this is event {seq}, and event {expected} is missing before it"));
        }
        self.next = Some(seq.saturating_add(1));
        Ok(())
    }

    fn to_event(&self, gone: TrimmedMessage) -> Event<'static> {
        let agent = &self.header.agent;
        let sub_agent = gone.sub_agent.then(|| Box::new(sub_agent_of(agent, &gone.message)));
        let mut event = Event::new("", Message { message: Box::new(gone.message) });
        event.id = gone.event_id.into();
        event.agent = sub_agent;
        event.stamped(&SystemStamp)
    }

    async fn supersede_messages(
        &mut self,
        session: &Arc<Session>,
        superseded: &mut Vec<String>,
    ) -> Result<(), ImportFailure> {
        if superseded.is_empty() {
            return Ok(());
        }
        let message_ids = std::mem::take(superseded);
        let event = Event::new("", Supersede { message_ids }).stamped(&SystemStamp);
        self.append_events(session, vec![(self.line, event, None)]).await
    }

    async fn append_events(
        &mut self,
        session: &Arc<Session>,
        events: Vec<NumberedEvent<'_>>,
    ) -> Result<(), ImportFailure> {
        let touched = touched_ids(&events);
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        let change = |tx: &mut Transaction<'_>| {
            for (line, mut event, text) in events {
                match tx.push(&mut event, text.as_deref()) {
                    Ok(PushOutcome::Stored(_) | PushOutcome::Repeated) => {}
                    Err(why) => return Err(ImportFailure::Line(line, why.to_string())),
                }
            }
            Ok(())
        };
        let ((), receipt) = session.transact(&touched, change).await?;
        self.events += u64::from(receipt.stored);
        Ok(())
    }
}

/// The messages and replies that begin here.
fn touched_ids(events: &[NumberedEvent<'_>]) -> Vec<String> {
    let id = |event: &Event<'_>| match &event.kind {
        EventKind::Message(message) => Some(message.message.id().to_owned()),
        EventKind::ReplyStart(_) => Some(event.reply_id.to_string()),
        _ => None,
    };
    events.iter().filter_map(|(_, event, _)| id(event)).filter(|id| !id.is_empty()).collect()
}

/// The event's own bytes, where the seq was only put behind them.
fn without_seq<'t>(text: &'t str, event: &Event<'_>) -> Cow<'t, str> {
    let behind = event.seq.map(|seq| format!(",\"seq\":{seq}}}"));
    match behind.and_then(|behind| text.strip_suffix(&behind)) {
        Some(own) => Cow::Owned(format!("{own}}}")),
        None => Cow::Borrowed(text),
    }
}
