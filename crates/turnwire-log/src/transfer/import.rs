//! Reads sessions from lines of JSON into a store.
//!
//! One thread reads the file and splits it into chunks of lines. Each session is written by its own
//! task, many at a time, so that they share syncs of the disk.

use super::blob_import::{BlobFailure, BlobImport};
use super::{LeftOutLine, QueuedLine, SessionHeader, VERSION, sub_agent_of};
use crate::error::{Error, Result};
use crate::loaded_session::{PushOutcome, Transaction};
use crate::log::{Log, now_ms};
use crate::session::Session;
use crate::store::{NewSession, QueuedMessage, SessionKey, Store};
use bytes::Bytes;
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

/// How many sessions are written at the same time.
const MAX_CONCURRENT_SESSIONS: u32 = 128;
/// The size of a chunk, about.
const CHUNK_BYTES: usize = 256 * 1024;
/// The maximum size of a line.
const MAX_LINE_BYTES: u64 = 256 << 20;
/// How many problems are reported; further ones are only counted.
const MAX_PROBLEMS: usize = 1000;

/// What to do with a session that already exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExistingSession {
    /// Keep it, and report a problem.
    #[default]
    Refuse,
    /// Delete it first.
    Replace,
    /// Keep it.
    Skip,
}

/// The options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// What to do with sessions that already exist.
    pub existing: ExistingSession,
    /// The tenant for all sessions; `None` keeps that of the file.
    pub tenant: Option<Arc<str>>,
}

/// The result of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportReport {
    /// Sessions that were created.
    pub sessions: u64,
    /// Their events.
    pub events: u64,
    /// Blobs that were stored.
    pub blobs: u64,
    /// Parts that the export left out, because they were damaged.
    pub left_out: u64,
    /// Existing sessions that were kept.
    pub skipped: u64,
    /// Sessions that were not created, and lines outside of sessions; the first 1,000.
    pub problems: Vec<ImportProblem>,
    /// How many problems there were.
    pub problem_count: u64,
    /// Why it stopped before the end, if it did.
    pub stopped: Option<Error>,
}

/// Why a session was not created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// The line number, from 1.
    pub line: u64,
    /// The session, if it is known.
    pub session: Option<String>,
    /// Why.
    pub why: String,
}

/// Imports all sessions of a file. A session with a bad line is not created; the others are.
/// `progress` gets the number of bytes read, from time to time.
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
        blob: None,
        line: 0,
    };
    let read = tokio::task::spawn_blocking(move || reader.run(input, &progress)).await;
    // When all slots are free, all sessions are written.
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

    /// Stops the import: the store cannot be written.
    fn stop_import(&self, error: Error) {
        self.stop.store(true, Ordering::Release);
        self.report.lock().stopped.get_or_insert(error);
    }
}

/// Consecutive lines of one session.
struct LineChunk {
    /// The number of the first line.
    line: u64,
    bytes: Vec<u8>,
}

/// Reads the file.
struct FileReader {
    shared: Arc<ImportState>,
    runtime: Handle,
    session: Option<(mpsc::Sender<LineChunk>, LineChunk)>,
    /// Whether lines belong to a session, even if it is not created.
    in_session: bool,
    /// The blob whose bytes come next.
    blob: Option<BlobImport>,
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
            let kind = line_kind(text);
            if kind == LineKind::Bytes {
                self.add_blob_bytes(text);
                continue;
            }
            self.end_blob();
            if kind == LineKind::Blob {
                self.start_blob(text);
            } else if kind == LineKind::Session {
                self.flush();
                self.start_session(text);
            } else if let Some((_, chunk)) = &mut self.session {
                if chunk.bytes.is_empty() {
                    chunk.line = self.line;
                }
                // Empty lines count too.
                let behind = self.line - chunk.line;
                let lines = memchr::memchr_iter(b'\n', &chunk.bytes).count() as u64;
                for _ in lines..behind {
                    chunk.bytes.push(b'\n');
                }
                chunk.bytes.extend_from_slice(text);
                chunk.bytes.push(b'\n');
                if chunk.bytes.len() >= CHUNK_BYTES {
                    self.flush();
                }
            } else if !self.in_session {
                self.in_session = true;
                let why = "this line is outside of a session; a session begins with a line \
                           {\"turnwire\":\"session\",…}";
                self.shared.add_problem(self.line, None, why.to_owned());
            }
        }
        self.flush();
        self.end_blob();
        progress(read);
        Ok(())
    }

    fn start_blob(&mut self, text: &[u8]) {
        match BlobImport::new(text, self.shared.options.tenant.as_ref()) {
            Ok(blob) => self.blob = Some(blob),
            Err(why) => self.shared.add_problem(self.line, None, why),
        }
    }

    fn add_blob_bytes(&mut self, text: &[u8]) {
        // The problem was at the first line of the blob, or at an earlier piece.
        let Some(mut blob) = self.blob.take() else { return };
        let store = &**self.shared.log.store();
        match self.runtime.block_on(blob.add_bytes(store, text)) {
            Ok(()) => self.blob = Some(blob),
            Err(failure) => {
                blob.abandon(store);
                self.report_blob(failure);
            }
        }
    }

    /// Stores the blob whose bytes were read.
    fn end_blob(&mut self) {
        let Some(blob) = self.blob.take() else { return };
        let store = &**self.shared.log.store();
        if !blob.is_whole() {
            blob.abandon(store);
            let why = "the bytes of a blob are missing; it was not stored".to_owned();
            return self.shared.add_problem(self.line, None, why);
        }
        match self.runtime.block_on(blob.finish(store)) {
            Ok(()) => self.shared.report.lock().blobs += 1,
            Err(failure) => self.report_blob(failure),
        }
    }

    fn report_blob(&self, failure: BlobFailure) {
        match failure {
            BlobFailure::Line(why) => self.shared.add_problem(self.line, None, why),
            BlobFailure::Store(error) => self.shared.stop_import(error),
        }
    }

    /// Sends the current chunk.
    fn flush(&mut self) {
        let Some((sender, chunk)) = &mut self.session else { return };
        if chunk.bytes.is_empty() {
            return;
        }
        let chunk = std::mem::replace(chunk, LineChunk { line: 0, bytes: Vec::new() });
        // The receiver has failed and reported it.
        if sender.blocking_send(chunk).is_err() {
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
        let (sender, chunks) = mpsc::channel(1);
        let making = SessionImport {
            shared: self.shared.clone(),
            line: self.line,
            header,
            next: None,
            events: 0,
            queue: Vec::new(),
            ends_before: None,
        };
        self.runtime.spawn(async move {
            making.run(chunks).await;
            drop(permit);
        });
        self.session = Some((sender, LineChunk { line: 0, bytes: Vec::new() }));
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// The first line of a session, or of something that a later version wrote.
    Session,
    Blob,
    Bytes,
    /// A line of a session.
    Other,
}

fn line_kind(text: &[u8]) -> LineKind {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        turnwire: Cow<'a, str>,
    }
    if !has_first_key(text, b"\"turnwire\"") {
        return LineKind::Other;
    }
    match serde_json::from_slice::<Kind<'_>>(text).as_ref().map(|kind| &*kind.turnwire) {
        Ok("queued" | "left_out") => LineKind::Other,
        Ok("blob") => LineKind::Blob,
        Ok("bytes") => LineKind::Bytes,
        Ok(_) | Err(_) => LineKind::Session,
    }
}

/// Whether a line is an object with this first key.
fn has_first_key(text: &[u8], key: &[u8]) -> bool {
    text.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(key))
}

fn parse_header(text: &[u8]) -> Result<SessionHeader, String> {
    let header: SessionHeader =
        serde_json::from_slice(text).map_err(|error| format!("invalid session header: {error}"))?;
    if header.turnwire != "session" {
        return Err(format!("cannot import \"{}\", only \"session\"", header.turnwire));
    }
    if header.version != VERSION {
        return Err(format!(
            "unsupported version {}, expected {VERSION}; use the turnwire that wrote the file",
            header.version
        ));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if !(1..=128).contains(&header.id.len()) || !header.id.bytes().all(fits) {
        return Err(
            "invalid session id: expected 1 to 128 characters of A-Z a-z 0-9 . _ : -".to_owned()
        );
    }
    Ok(header)
}

/// A bad line, or a failure of the store.
enum ImportFailure {
    Line(u64, String),
    Store(Error),
}

impl From<Error> for ImportFailure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Imports one session.
struct SessionImport {
    shared: Arc<ImportState>,
    line: u64,
    header: SessionHeader,
    /// The seq of the next event in the file.
    next: Option<Seq>,
    events: u64,
    queue: Vec<QueuedMessage>,
    /// The export has no events from here on.
    ends_before: Option<Seq>,
}

/// The line number, the event, and its text if it is stored as it is.
type NumberedEvent<'t> = (u64, Event<'t>, Option<Cow<'t, str>>);

/// A message whose events were trimmed.
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
    async fn run(mut self, chunks: mpsc::Receiver<LineChunk>) {
        let session = match self.create_session().await {
            Ok(Some(session)) => session,
            Ok(None) => return,
            Err(error) => return self.shared.stop_import(error),
        };
        let made = self.import_chunks(&session, chunks).await;
        match made {
            Ok(()) => {
                let imported = {
                    let mut report = self.shared.report.lock();
                    report.sessions += 1;
                    report.events += self.events;
                    report.sessions
                };
                // Imported sessions need not stay in memory.
                if imported.is_multiple_of(u64::from(MAX_CONCURRENT_SESSIONS)) {
                    drop(session);
                    if let Err(error) = self.shared.log.evict_idle().await {
                        self.shared.stop_import(error);
                    }
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
                    let why =
                        format!("a part of session {id} could not be removed, delete it: {error}");
                    self.shared.add_problem(self.line, Some(id), why);
                }
            }
        }
    }

    /// The empty session. `None` if one exists already.
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
                    let why = "a session with this id already exists".to_owned();
                    self.shared.add_problem(self.line, Some(&header.id), why);
                    return Ok(None);
                }
            }
        }
    }

    async fn import_chunks(
        &mut self,
        session: &Arc<Session>,
        mut chunks: mpsc::Receiver<LineChunk>,
    ) -> Result<(), ImportFailure> {
        let mut superseded = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            self.import_chunk(session, &chunk, &mut superseded).await?;
        }
        if self.shared.stop.load(Ordering::Acquire) {
            return Err(ImportFailure::Line(
                self.line,
                "the import stopped before the end of this session".to_owned(),
            ));
        }
        self.supersede_messages(session, &mut superseded).await?;
        self.restore_queue(session).await?;
        let (Some(first), Some(last)) = (self.header.first, self.header.last) else {
            return Ok(());
        };
        let next = self.next.unwrap_or(first);
        if last.includes(next) && self.ends_before != Some(next) {
            let why =
                format!("event {next} of this session is missing; it should have {last} events");
            return Err(ImportFailure::Line(self.line, why));
        }
        Ok(())
    }

    async fn import_chunk(
        &mut self,
        session: &Arc<Session>,
        chunk: &LineChunk,
        superseded: &mut Vec<String>,
    ) -> Result<(), ImportFailure> {
        let text = str::from_utf8(&chunk.bytes).map_err(|error| {
            let before = chunk.bytes.get(..error.valid_up_to()).unwrap_or_default();
            let at = chunk.line + memchr::memchr_iter(b'\n', before).count() as u64;
            ImportFailure::Line(at, "invalid UTF-8".to_owned())
        })?;
        let mut events: Vec<NumberedEvent<'_>> = Vec::new();
        for (line, text) in (chunk.line..).zip(text.split_terminator('\n')) {
            if text.is_empty() {
                continue;
            }
            let bad = |why: String| ImportFailure::Line(line, why);
            if has_first_key(text.as_bytes(), b"\"turnwire\"") {
                self.read_note(text).map_err(|error| bad(error.to_string()))?;
                continue;
            }
            if has_first_key(text.as_bytes(), b"\"message\"") && self.next.is_none() {
                let trimmed: TrimmedMessage = serde_json::from_str(text)
                    .map_err(|error| bad(format!("invalid message: {error}")))?;
                if trimmed.superseded {
                    superseded.push(trimmed.message.id().to_owned());
                }
                events.push((line, self.to_event(trimmed), None));
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

    /// Reads a queued message, or what the export left out.
    fn read_note(&mut self, text: &str) -> serde_json::Result<()> {
        if let Ok(LeftOutLine { first, .. }) = serde_json::from_str(text) {
            self.ends_before = self.ends_before.or(first);
            self.shared.report.lock().left_out += 1;
            return Ok(());
        }
        let QueuedLine { id, reply_id, message, .. } = serde_json::from_str(text)?;
        let json = Bytes::copy_from_slice(message.get().as_bytes());
        let (id, reply_id) = (id.into_owned(), reply_id.into_owned());
        self.queue.push(QueuedMessage { id, reply_id, json });
        Ok(())
    }

    async fn restore_queue(&mut self, session: &Arc<Session>) -> Result<(), ImportFailure> {
        let queue = std::mem::take(&mut self.queue);
        if queue.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = queue.iter().map(|queued| queued.id.clone()).collect();
        let touched: Vec<&str> = ids.iter().map(String::as_str).collect();
        let change = |tx: &mut Transaction<'_>| {
            for queued in queue {
                tx.enqueue(queued);
            }
            Ok::<_, ImportFailure>(())
        };
        session.transact(&touched, change).await?;
        Ok(())
    }

    /// Checks that the seq of an event follows the one before, if it has one.
    fn check_seq(&mut self, event: &Event<'_>) -> Result<(), String> {
        let expected = self.next.or(self.header.first);
        let seq = event.seq.or(expected).unwrap_or(Seq::FIRST);
        if let Some(expected) = expected.filter(|expected| *expected != seq) {
            return Err(format!("expected event {expected}, found event {seq}"));
        }
        self.next = Some(seq.next());
        Ok(())
    }

    fn to_event(&self, trimmed: TrimmedMessage) -> Event<'static> {
        let agent = &self.header.agent;
        let sub_agent = trimmed.sub_agent.then(|| Box::new(sub_agent_of(agent, &trimmed.message)));
        let mut event = Event::new("", Message { message: Box::new(trimmed.message) });
        event.id = trimmed.event_id.into();
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
    let mut ids = Vec::new();
    for (_, event, _) in events {
        if let EventKind::Message(message) = &event.kind {
            ids.push(message.message.id().to_owned());
        } else if matches!(event.kind, EventKind::ReplyStart(_)) {
            ids.push(event.reply_id.to_string());
        }
    }
    ids.retain(|id| !id.is_empty());
    ids
}

/// The text without the `seq` that the export added at its end.
fn without_seq<'t>(text: &'t str, event: &Event<'_>) -> Cow<'t, str> {
    let behind = event.seq.map(|seq| format!(",\"seq\":{seq}}}"));
    match behind.and_then(|behind| text.strip_suffix(&behind)) {
        Some(own) => Cow::Owned(format!("{own}}}")),
        None => Cow::Borrowed(text),
    }
}
