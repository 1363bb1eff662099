//! Writes one imported session: called by the reader of the file, as a task of its own.

use super::{ExistingSession, ImportState, LineChunk, MAX_CONCURRENT_SESSIONS, has_first_key};
use crate::error::{Error, Result};
use crate::loaded_session::{PushOutcome, Transaction};
use crate::log::now_ms;
use crate::session::Session;
use crate::store::{NewSession, QueuedMessage, SessionKey};
use crate::transfer::{LeftOutLine, QueuedLine, SessionHeader, sub_agent_of};
use bytes::Bytes;
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use turnwire_core::event::{Message, Supersede};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, EventKind, Msg, Seq};

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
pub(super) struct SessionImport {
    pub(super) shared: Arc<ImportState>,
    pub(super) line: u64,
    pub(super) header: SessionHeader,
    /// The seq of the next event in the file.
    pub(super) next: Option<Seq>,
    pub(super) events: u64,
    pub(super) queue: Vec<QueuedMessage>,
    /// The export has no events from here on.
    pub(super) ends_before: Option<Seq>,
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
    pub(super) async fn run(mut self, chunks: mpsc::Receiver<LineChunk>) {
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
