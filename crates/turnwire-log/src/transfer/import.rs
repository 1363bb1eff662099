//! Sessions into a store.
//!
//! One reads the file and hands out its lines in pieces; each session is written by a task of its
//! own, several at a time, so that they share the waiting for the disk.

use super::{Header, VERSION, sub_agent};
use crate::error::{Error, Result};
use crate::live::{Pushed, Tx};
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
const AT_A_TIME: u32 = 128;
/// How large a piece is, about.
const PIECE: usize = 256 * 1024;
/// A line cannot be larger than this.
const MAX_LINE: u64 = 256 << 20;
/// How many problems are kept; more are only counted.
const MAX_PROBLEMS: usize = 1000;

/// What to do with a session that is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Existing {
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
pub struct Importing {
    /// What to do with a session that is there already.
    pub existing: Existing,
    /// Whose the sessions become, instead of whose they were.
    pub tenant: Option<Arc<str>>,
}

/// What an import came to.
#[derive(Debug, Clone, Default)]
pub struct Imported {
    /// Sessions that were made.
    pub sessions: u64,
    /// Their events.
    pub events: u64,
    /// Sessions that were there already and left alone.
    pub skipped: u64,
    /// Sessions that were not made, and lines that belong to none; the first 1,000.
    pub problems: Vec<Problem>,
    /// How many problems there were.
    pub problem_count: u64,
    /// Why it went no further, where it did not reach the end.
    pub stopped: Option<Error>,
}

/// Why a session was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
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
    importing: Importing,
    progress: impl Fn(u64) + Send + 'static,
) -> Imported {
    let shared = Arc::new(Shared {
        log: Log::new(store, "import"),
        importing,
        report: Mutex::default(),
        stop: AtomicBool::new(false),
        room: Arc::new(Semaphore::new(AT_A_TIME as usize)),
    });
    let reader = Reader {
        shared: shared.clone(),
        runtime: Handle::current(),
        session: None,
        in_session: false,
        line: 0,
    };
    let read = tokio::task::spawn_blocking(move || reader.run(input, &progress)).await;
    // When all room is there again, all sessions are written.
    let _all = shared.room.acquire_many(AT_A_TIME).await;
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

struct Shared {
    log: Log,
    importing: Importing,
    report: Mutex<Imported>,
    stop: AtomicBool,
    room: Arc<Semaphore>,
}

impl Shared {
    fn problem(&self, line: u64, session: Option<&str>, why: String) {
        let mut report = self.report.lock();
        report.problem_count += 1;
        if report.problems.len() < MAX_PROBLEMS {
            report.problems.push(Problem { line, session: session.map(str::to_owned), why });
        }
    }

    /// Nothing more can be written.
    fn give_up(&self, error: Error) {
        self.stop.store(true, Ordering::Release);
        self.report.lock().stopped.get_or_insert(error);
    }
}

/// Lines of one session that follow each other.
struct Piece {
    /// The number of the first.
    line: u64,
    bytes: Vec<u8>,
}

/// Reads the file.
struct Reader {
    shared: Arc<Shared>,
    runtime: Handle,
    session: Option<(mpsc::Sender<Piece>, Piece)>,
    /// Whether lines belong to a session, also to one that is not made.
    in_session: bool,
    line: u64,
}

impl Reader {
    fn run(mut self, mut input: impl BufRead, progress: &impl Fn(u64)) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut read = 0;
        loop {
            bytes.clear();
            let count = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)?;
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
            if is_object_of(text, b"\"turnwire\"") {
                self.flush();
                self.header(text);
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
                if piece.bytes.len() >= PIECE {
                    self.flush();
                }
            } else if !self.in_session {
                self.in_session = true;
                let why = "this belongs to no session; a session begins with a line \
                           {\"turnwire\":\"session\",…}";
                self.shared.problem(self.line, None, why.to_owned());
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
        let piece = std::mem::replace(piece, Piece { line: 0, bytes: Vec::new() });
        // Whoever would take it has failed, and said so.
        if sender.blocking_send(piece).is_err() {
            self.session = None;
        }
    }

    fn header(&mut self, text: &[u8]) {
        self.session = None;
        self.in_session = true;
        let header = match read_header(text) {
            Ok(header) => header,
            Err(why) => return self.shared.problem(self.line, None, why),
        };
        let room = self.shared.room.clone().acquire_owned();
        let Ok(permit) = self.runtime.block_on(room) else { return };
        let (sender, pieces) = mpsc::channel(1);
        let making =
            Making { shared: self.shared.clone(), line: self.line, header, next: None, events: 0 };
        self.runtime.spawn(async move {
            making.run(pieces).await;
            drop(permit);
        });
        self.session = Some((sender, Piece { line: 0, bytes: Vec::new() }));
    }
}

/// Whether a line is an object whose first key is this one.
fn is_object_of(text: &[u8], key: &[u8]) -> bool {
    text.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(key))
}

fn read_header(text: &[u8]) -> Result<Header, String> {
    let header: Header = serde_json::from_slice(text)
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
enum Failed {
    Line(u64, String),
    Store(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Makes one session.
struct Making {
    shared: Arc<Shared>,
    line: u64,
    header: Header,
    /// The place that the next event has in the file.
    next: Option<u64>,
    events: u64,
}

/// An event, the line where it stands, and its text where it is to be stored as it is.
type Numbered<'t> = (u64, Event<'t>, Option<Cow<'t, str>>);

/// A message whose events are gone.
#[derive(Deserialize)]
struct Gone {
    message: Msg,
    #[serde(default)]
    event_id: String,
    #[serde(default)]
    sub_agent: bool,
    #[serde(default)]
    superseded: bool,
}

impl Making {
    async fn run(mut self, pieces: mpsc::Receiver<Piece>) {
        let session = match self.begin().await {
            Ok(Some(session)) => session,
            Ok(None) => return,
            Err(error) => return self.shared.give_up(error),
        };
        let made = self.fill(&session, pieces).await;
        match made {
            Ok(()) => {
                let mut report = self.shared.report.lock();
                report.sessions += 1;
                report.events += self.events;
                // What is written need not stay in memory.
                if report.sessions.is_multiple_of(u64::from(AT_A_TIME)) {
                    drop(report);
                    drop(session);
                    self.shared.log.sweep();
                }
            }
            Err(failed) => {
                if let Failed::Line(line, why) = failed {
                    self.shared.problem(line, Some(&self.header.id), why);
                } else if let Failed::Store(error) = failed {
                    self.shared.give_up(error);
                }
                if let Err(error) = self.shared.log.delete(session.key()).await {
                    let id = &self.header.id;
                    let why = format!("a part of session {id} stays, delete it: {error}");
                    self.shared.problem(self.line, Some(id), why);
                }
            }
        }
    }

    /// The session, still empty. `None`: there is one already.
    async fn begin(&self) -> Result<Option<Arc<Session>>> {
        let header = &self.header;
        let tenant = self.shared.importing.tenant.clone();
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
            let (session, made) = self.shared.log.create(new.clone()).await?;
            if made {
                return Ok(Some(session));
            }
            match self.shared.importing.existing {
                Existing::Replace => {
                    self.shared.log.delete(session.key()).await?;
                }
                Existing::Skip => {
                    self.shared.report.lock().skipped += 1;
                    return Ok(None);
                }
                Existing::Refuse => {
                    let why = "there is a session of this id already".to_owned();
                    self.shared.problem(self.line, Some(&header.id), why);
                    return Ok(None);
                }
            }
        }
    }

    async fn fill(
        &mut self,
        session: &Arc<Session>,
        mut pieces: mpsc::Receiver<Piece>,
    ) -> Result<(), Failed> {
        let mut superseded = Vec::new();
        while let Some(piece) = pieces.recv().await {
            self.piece(session, &piece, &mut superseded).await?;
        }
        if self.shared.stop.load(Ordering::Acquire) {
            return Err(Failed::Line(self.line, "the import stopped before its end".to_owned()));
        }
        self.supersede(session, &mut superseded).await?;
        let (Some(first), Some(last)) = (self.header.first, self.header.last) else {
            return Ok(());
        };
        let next = self.next.unwrap_or(first.get());
        if next <= last {
            let why = format!("the file ends at event {next} of this session; it goes to {last}");
            return Err(Failed::Line(self.line, why));
        }
        Ok(())
    }

    async fn piece(
        &mut self,
        session: &Arc<Session>,
        piece: &Piece,
        superseded: &mut Vec<String>,
    ) -> Result<(), Failed> {
        let text = str::from_utf8(&piece.bytes).map_err(|error| {
            let before = piece.bytes.get(..error.valid_up_to()).unwrap_or_default();
            let at = piece.line + memchr::memchr_iter(b'\n', before).count() as u64;
            Failed::Line(at, "this is no UTF-8".to_owned())
        })?;
        let mut events: Vec<Numbered<'_>> = Vec::new();
        for (line, text) in (piece.line..).zip(text.split_terminator('\n')) {
            if text.is_empty() {
                continue;
            }
            let bad = |why: String| Failed::Line(line, why);
            if is_object_of(text.as_bytes(), b"\"message\"") && self.next.is_none() {
                let gone: Gone = serde_json::from_str(text)
                    .map_err(|error| bad(format!("this is no message: {error}")))?;
                if gone.superseded {
                    superseded.push(gone.message.id().to_owned());
                }
                events.push((line, self.whole(gone), None));
            } else {
                let first = self.next.is_none();
                let event = Event::from_json(text).map_err(|error| bad(error.to_string()))?;
                self.place(&event).map_err(bad)?;
                if first && !superseded.is_empty() {
                    let message_ids = std::mem::take(superseded);
                    let event = Event::new("", Supersede { message_ids }).stamped(&SystemStamp);
                    events.push((line, event, None));
                }
                let text = without_seq(text, &event);
                events.push((line, event, Some(text)));
            }
        }
        self.push(session, events).await
    }

    /// Where an event says its place, that has to follow the one before.
    fn place(&mut self, event: &Event<'_>) -> Result<(), String> {
        let expected = self.next.or(self.header.first.map(Seq::get));
        let seq = event.seq.map(Seq::get).or(expected).unwrap_or(1);
        if let Some(expected) = expected.filter(|expected| *expected != seq) {
            return Err(format!("this is event {seq}, and event {expected} is missing before it"));
        }
        self.next = Some(seq.saturating_add(1));
        Ok(())
    }

    fn whole(&self, gone: Gone) -> Event<'static> {
        let agent = &self.header.agent;
        let sub_agent = gone.sub_agent.then(|| Box::new(sub_agent(agent, &gone.message)));
        let mut event = Event::new("", Message { message: Box::new(gone.message) });
        event.id = gone.event_id.into();
        event.agent = sub_agent;
        event.stamped(&SystemStamp)
    }

    async fn supersede(
        &mut self,
        session: &Arc<Session>,
        superseded: &mut Vec<String>,
    ) -> Result<(), Failed> {
        if superseded.is_empty() {
            return Ok(());
        }
        let message_ids = std::mem::take(superseded);
        let event = Event::new("", Supersede { message_ids }).stamped(&SystemStamp);
        self.push(session, vec![(self.line, event, None)]).await
    }

    async fn push(
        &mut self,
        session: &Arc<Session>,
        events: Vec<Numbered<'_>>,
    ) -> Result<(), Failed> {
        let touched = touched(&events);
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        let change = |tx: &mut Tx<'_>| {
            for (line, mut event, text) in events {
                match tx.push(&mut event, text.as_deref()) {
                    Ok(Pushed::Stored(_) | Pushed::Repeated) => {}
                    Err(why) => return Err(Failed::Line(line, why.to_string())),
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
fn touched(events: &[Numbered<'_>]) -> Vec<String> {
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
