//! Reads sessions from lines of JSON into a store.
//!
//! One thread reads the file and splits it into chunks of lines. Each session is written by its own
//! task, many at a time, so that they share syncs of the disk.

mod session_import;

use super::blob_import::{BlobFailure, BlobImport};
use super::{SessionHeader, VERSION};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::store::Store;
use parking_lot::Mutex;
use serde::Deserialize;
use session_import::SessionImport;
use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

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
