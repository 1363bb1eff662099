//! Stores events in the log.

use super::batch::{Batch, BatchEvent};
use super::params::Tolerance;
use super::producer::Publisher;
use crate::App;
use crate::auth::Caller;
use crate::cluster::operation::{OwnerOperation, run_at_owner};
use crate::error::{ApiError, ApiResult};
use crate::turns::client_events::{self, EventsAccepted};
use crate::turns::event_origin::EventOrigin;
use crate::turns::hints::WhenIdle;
use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use turnwire_core::{Error, ErrorKind, Event, EventKind, Head};
use turnwire_log::{PushOutcome, Session};

/// What became of a request.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Published {
    pub last: Head,
    pub stored: u64,
    pub repeated: u64,
    pub skipped: Vec<SkippedEvent>,
    /// The reply that a hint has started.
    started_reply: Option<String>,
    /// Whether skipped events are reported, even if there are none.
    tolerance: Tolerance,
}

/// The response to published events.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Published")]
pub struct PublishedView<'a> {
    /// The resume token of the last stored event.
    last_event_id: String,
    /// How many events were stored.
    stored: u64,
    /// How many were stored before.
    repeated: u64,
    /// With `tolerant=true`: events that do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<&'a Vec<SkippedEvent>>,
    /// The reply that a hint has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_id: Option<&'a str>,
}

/// An event that was left out.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SkippedEvent {
    pub at: usize,
    pub r#type: String,
    pub message: String,
}

/// Stores the events of a producer that a request brings: all, or none.
pub(crate) async fn publish_body(
    app: &Arc<App>,
    session: &Arc<Session>,
    publisher: Publisher<'_>,
    wire: &str,
    body: &[u8],
    tolerance: Tolerance,
) -> ApiResult<Published> {
    if app.cluster.is_none() || session.is_owned() {
        let batch = super::read_batch(app, session, wire, body).await?;
        let result = publish(app, session, publisher, batch, tolerance).await;
        if !result.as_ref().is_err_and(ApiError::is_owned_elsewhere) {
            return result;
        }
    }
    let operation = PublishOperation {
        id: publisher.id.to_owned(),
        fence: publisher.fence,
        holder: publisher.holder.to_owned(),
        is_admin: publisher.is_admin,
        wire: wire.to_owned(),
        body: super::batch::read_text(body)?.to_owned(),
        tolerance,
    };
    run_at_owner(app, session, operation).await
}

/// Events of a producer, on their way to the owner of the session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PublishOperation {
    id: String,
    fence: u64,
    holder: String,
    is_admin: bool,
    wire: String,
    body: String,
    tolerance: Tolerance,
}

impl OwnerOperation for PublishOperation {
    const NAME: &'static str = "publish";
    type Output = Published;

    async fn run(self, app: &Arc<App>, session: &Arc<Session>) -> ApiResult<Published> {
        let Self { id, fence, holder, is_admin, wire, body, tolerance } = &self;
        let publisher = Publisher { id, fence: *fence, holder, is_admin: *is_admin };
        let batch = super::read_batch(app, session, wire, body.as_bytes()).await?;
        publish(app, session, publisher, batch, *tolerance).await
    }

    /// Events are known by their ids.
    fn is_repeatable(&self) -> bool {
        true
    }
}

/// Stores the events of a producer: all, or none.
async fn publish(
    app: &App,
    session: &Arc<Session>,
    publisher: Publisher<'_>,
    mut batch: Batch<'_>,
    tolerance: Tolerance,
) -> ApiResult<Published> {
    let touched = batch.touched_ids();
    let touched: Vec<&str> = touched.iter().map(AsRef::as_ref).collect();
    let count = batch.items.len();
    let done = session
        .transact(&touched, |tx| {
            publisher.check_may_write(tx)?;
            let mut result = Published { tolerance, ..Published::default() };
            for at in 0..batch.items.len() {
                let Some(BatchEvent { event, text, .. }) = batch.items.get_mut(at) else { break };
                let pushed = match refuse_producer_event(event) {
                    None => tx.push(event, *text).map_err(EventRefusal::DoesNotFit),
                    Some(refusal) => Err(refusal),
                };
                match (pushed, tolerance) {
                    (Ok(PushOutcome::Stored(_)), _) => result.stored += 1,
                    (Ok(PushOutcome::Repeated), _) => result.repeated += 1,
                    (Err(refusal), Tolerance::Strict) => return Err(refusal.to_error(&batch, at)),
                    (Err(refusal), Tolerance::Tolerant) => {
                        result.skipped.push(refusal.to_skipped(event, at));
                    }
                }
            }
            publisher.record(tx);
            Ok(result)
        })
        .await;
    match done {
        Ok((mut result, receipt)) => {
            result.last = receipt.head;
            app.ingest.counts.count_published(&result);
            Ok(result)
        }
        Err(error) => {
            app.ingest.counts.count_refused(count);
            Err(error)
        }
    }
}

/// Stores the events of a caller that is not a producer: all, or none.
pub(crate) async fn accept_client_events(
    app: &Arc<App>,
    caller: &Caller,
    session: &Arc<Session>,
    batch: Batch<'_>,
    when_idle: Option<WhenIdle>,
) -> ApiResult<Published> {
    let events: Vec<Event<'_>> = batch.items.into_iter().map(|item| item.event).collect();
    let options = client_events::AcceptOptions { when_idle, ..Default::default() };
    match client_events::accept_events_with(app, session, caller, &events, options).await {
        Ok(EventsAccepted { last, stored, repeated, started }) => {
            let (stored, repeated) = (u64::from(stored), u64::from(repeated));
            let published = Published {
                last,
                stored,
                repeated,
                started_reply: started,
                ..Published::default()
            };
            app.ingest.counts.count_published(&published);
            Ok(published)
        }
        Err(error) => {
            app.ingest.counts.count_refused(events.len());
            Err(error)
        }
    }
}

/// Why an event is refused.
pub(super) enum EventRefusal {
    /// Only a user may confirm.
    Confirms,
    /// It has no reply or block id.
    NoReply,
    /// Without an id a repeated event could not be recognised.
    NoId,
    DoesNotFit(Error),
}

/// What a producer may never send.
#[inline]
fn refuse_producer_event(event: &Event<'_>) -> Option<EventRefusal> {
    if EventOrigin::from_kind(&event.kind) == EventOrigin::Approver {
        return Some(EventRefusal::Confirms);
    }
    if let EventKind::Hint(hint) = &event.kind
        && (event.reply_id.is_empty() || hint.block_id.is_empty())
    {
        return Some(EventRefusal::NoReply);
    }
    event.id.is_empty().then_some(EventRefusal::NoId)
}

impl EventRefusal {
    fn reason(&self) -> Cow<'static, str> {
        match self {
            Self::Confirms => "only a user can confirm, not a producer".into(),
            Self::NoReply => "a producer's hint requires `reply_id` and `block_id`".into(),
            Self::NoId => "it has no `id`, so a repeated request would store it twice".into(),
            Self::DoesNotFit(error) => error.to_string().into(),
        }
    }

    #[cold]
    fn to_error(&self, batch: &Batch<'_>, at: usize) -> ApiError {
        let message = format!("{} does not fit: {}", batch.describe(at), self.reason());
        let nothing = "nothing of this request was stored";
        match self {
            Self::Confirms => ApiError::forbidden(message)
                .hint("send it without Turnwire-Producer, with the scope \"approve\""),
            Self::NoId => ApiError::unprocessable(message).kind("no_id").hint(
                "give every event its own id, or pipe the stream into POST /v1/sessions/{s}/replies",
            ),
            Self::DoesNotFit(error) if error.kind() == ErrorKind::TooLong => {
                ApiError::too_large(message).hint(nothing)
            }
            Self::DoesNotFit(_) | Self::NoReply => ApiError::unprocessable(message)
                .kind("refused")
                .hint(format!("{nothing}; `tolerant=true` leaves out events that do not fit")),
        }
    }

    #[cold]
    fn to_skipped(&self, event: &Event<'_>, at: usize) -> SkippedEvent {
        let message = self.reason().into_owned();
        SkippedEvent { at, r#type: event.kind.type_name().to_owned(), message }
    }
}

impl Published {
    fn to_json(&self, session: &Session) -> String {
        let view = PublishedView {
            last_event_id: session.resume_token(self.last),
            stored: self.stored,
            repeated: self.repeated,
            skipped: (self.tolerance == Tolerance::Tolerant).then_some(&self.skipped),
            reply_id: self.started_reply.as_deref(),
        };
        // Structs of strings and numbers can always be written as JSON.
        serde_json::to_string(&view).unwrap_or_default()
    }

    pub fn to_response(&self, session: &Session) -> Response {
        let mut response = Response::new(Body::from(self.to_json(session)));
        // With room for the headers that the guard adds.
        response.headers_mut().reserve(4);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}
