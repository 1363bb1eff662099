//! `POST /v1/sessions/{s}/fork`: a new session with the log of another up to a seq.

use super::request;
use super::sessions;
use super::view::SessionView;
use crate::Caller;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::extract::{JsonBody, Path, Query};
use crate::turns::end_all_replies;
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use turnwire_core::event::Supersede;
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, EventKind, FinishedReason, Head, Json as RawJson, Seq};
use turnwire_log::log::now_ms;
use turnwire_log::message_pages::MessagePages;
use turnwire_log::store::{EventLines, NewSession, SessionKey};
use turnwire_log::{Error, Session, Store, Transaction, transfer};

/// How many bytes of the log are copied at a time.
const READ_BYTES: usize = 1 << 20;

/// The query parameters.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ForkQuery {
    /// The last event that the new session has: a seq or a resume token.
    at: Option<String>,
}

/// The body.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkBody {
    id: Option<String>,
    title: Option<String>,
}

#[derive(Serialize)]
struct ForkedFrom<'a> {
    session: &'a str,
    seq: Head,
}

/// `POST /v1/sessions/{s}/fork`
pub async fn fork_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(place): Query<ForkQuery>,
    JsonBody(new): JsonBody<ForkBody>,
) -> ApiResult<impl IntoResponse> {
    let source = request::find_session(&app, &caller, &id).await?;
    let key = sessions::new_session_key(&caller, new.id)?;
    let snapshot = source.snapshot().await?;
    let at = match &place.at {
        Some(text) => request::parse_position(&source, snapshot.head, text)?,
        None => snapshot.head,
    };
    let fork = fork_log(&app, source, at, key, new.title).await?;
    let view = SessionView::from_snapshot(&app, &fork, fork.snapshot().await?);
    Ok((StatusCode::CREATED, Json(view)))
}

/// Creates a session with the log of another up to a position. Replies that were open there end.
pub(crate) async fn fork_log(
    app: &Arc<App>,
    source: Arc<Session>,
    at: Head,
    key: SessionKey,
    title: Option<String>,
) -> ApiResult<Arc<Session>> {
    let snapshot = source.snapshot().await?;
    let kept = source.first_seq().await?;
    if at < kept.previous() {
        return Err(Error::Trimmed(kept).into());
    }
    let mut metadata = snapshot.metadata;
    let from = ForkedFrom { session: source.id(), seq: at };
    metadata.insert("forked_from", RawJson::from_value(&from).map_err(ApiError::internal)?);
    let title = title.unwrap_or(snapshot.title);
    sessions::check_title_and_metadata(Some(&title), Some(&metadata))?;
    let agent = source.agent().to_owned();
    let new = NewSession { key, agent, title, metadata, now_ms: now_ms() };
    let (fork, made) = app.log.create_fork(new).await?;
    if !made {
        return Err(ApiError::conflict(format!("a session {} exists already", fork.id()))
            .hint("choose another id, or omit it"));
    }
    // Whether or not the client waits, the fork is completed or deleted again.
    let app = app.clone();
    let work = tokio::spawn(async move {
        let store = app.log.store().clone();
        let mut copy = ForkCopy { store, source, fork: fork.clone(), at, kept, last: Head::EMPTY };
        match copy.run().await {
            Ok(()) => Ok(fork),
            Err(error) => {
                app.log.delete_session(fork.key()).await?;
                Err(error)
            }
        }
    });
    work.await.map_err(ApiError::internal)?
}

struct ForkCopy {
    store: Arc<dyn Store>,
    source: Arc<Session>,
    fork: Arc<Session>,
    at: Head,
    /// The earliest event that the source still has.
    kept: Seq,
    /// The head of the fork. If it differs, somebody else has written to it.
    last: Head,
}

impl ForkCopy {
    async fn run(&mut self) -> ApiResult<()> {
        if self.kept > Seq::FIRST {
            self.copy_messages().await?;
        }
        let mut from = self.kept;
        while self.at.includes(from) {
            let rows = self.source.read_events(from, READ_BYTES).await?;
            let Some(last) = rows.last().map(EventLines::last) else { break };
            self.copy_events(&rows).await?;
            from = last.next();
        }
        self.close_open().await
    }

    /// Messages whose events were deleted are copied whole.
    async fn copy_messages(&mut self) -> ApiResult<()> {
        let (store, source) = (self.store.clone(), self.source.clone());
        let mut messages = MessagePages::new(&*store, source.number()).before(self.kept);
        let mut superseded = Vec::new();
        loop {
            let some = messages.next_page().await?;
            if some.is_empty() {
                break;
            }
            let mut events = Vec::new();
            for stored in some {
                if stored.superseded {
                    superseded.push(stored.id.clone());
                }
                events.push(
                    transfer::to_message_event(&stored, source.agent())?.stamped(&SystemStamp),
                );
            }
            self.push(events).await?;
        }
        if !superseded.is_empty() {
            let later = self.superseded_later().await?;
            superseded.retain(|id| !later.contains(id));
        }
        if !superseded.is_empty() {
            let event = Event::new("", Supersede { message_ids: superseded }).stamped(&SystemStamp);
            self.push(vec![event]).await?;
        }
        Ok(())
    }

    /// The messages that were superseded after the fork's seq.
    async fn superseded_later(&self) -> ApiResult<BTreeSet<String>> {
        let mut later = BTreeSet::new();
        let mut from = self.at.next();
        loop {
            let rows = self.source.read_events(from, READ_BYTES).await?;
            let Some(last) = rows.last().map(EventLines::last) else { return Ok(later) };
            for (seq, line) in rows.iter().flat_map(EventLines::iter) {
                if let EventKind::Supersede(event) = Session::parse_event(seq, line)?.kind {
                    later.extend(event.message_ids);
                }
            }
            from = last.next();
        }
    }

    async fn copy_events(&mut self, rows: &[EventLines]) -> ApiResult<()> {
        let lines =
            rows.iter().flat_map(EventLines::iter).take_while(|(seq, _)| self.at.includes(*seq));
        let last = self.last;
        let change = |tx: &mut Transaction<'_>| {
            check_untouched(tx, last)?;
            for (seq, line) in lines {
                let mut event = Session::parse_event(seq, line)?;
                tx.push(&mut event, std::str::from_utf8(line).ok())
                    .map_err(|why| refused(seq, &why))?;
            }
            Ok::<_, ApiError>(())
        };
        self.last = self.fork.transact(&[], change).await?.1.head;
        Ok(())
    }

    /// Replies that were open at that seq cannot continue twice: here they end.
    async fn close_open(&self) -> ApiResult<()> {
        let last = self.last;
        let change = |tx: &mut Transaction<'_>| {
            check_untouched(tx, last)?;
            tx.complete_fork();
            end_all_replies(tx, &self.fork, &FinishedReason::Interrupted, None)
                .map_err(ApiError::internal)?;
            Ok::<_, ApiError>(())
        };
        self.fork.transact(&[], change).await?;
        Ok(())
    }

    async fn push(&mut self, events: Vec<Event<'static>>) -> ApiResult<()> {
        let last = self.last;
        let change = |tx: &mut Transaction<'_>| {
            check_untouched(tx, last)?;
            for mut event in events {
                tx.push(&mut event, None).map_err(ApiError::internal)?;
            }
            Ok::<_, ApiError>(())
        };
        self.last = self.fork.transact(&[], change).await?.1.head;
        Ok(())
    }
}

fn check_untouched(tx: &Transaction<'_>, last: Head) -> ApiResult<()> {
    if tx.head() == last {
        return Ok(());
    }
    Err(ApiError::conflict("another request wrote to the new session before the fork was complete")
        .hint("fork again, and do not use the new session before the response 201"))
}

fn refused(seq: Seq, why: &turnwire_core::Error) -> ApiError {
    Error::Damaged(format!("event {seq} does not fit the events before it: {why}")).into()
}
