//! `POST /v1/sessions/{s}/messages`, and removing a queued message.

use super::request::find_session;
use crate::app::App;
use crate::auth::Caller;
use crate::cluster::operation::{OwnerOperation, run_at_owner};
use crate::error::{ApiError, ApiResult};
use crate::extract::{BodyBytes, Path, Query};
use crate::stream::{
    EndCondition, SessionSubscriber, StartPosition, StreamFormat, sse_response, token_cursor,
};
use crate::turns::idempotency::{IdempotencyKey, mark_replayed};
use crate::turns::send::{Accepted, IfBusy, SendOutcome, send};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_core::{Fields, Msg};
use turnwire_log::Session;
use turnwire_wires::Wire;

/// The query parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct SendQuery {
    /// Queue the message if a reply is running, instead of 409.
    #[serde(default)]
    queue: bool,
}

/// Takes a message; the agent replies.
pub async fn send_message(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<SendQuery>,
    uri: Uri,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Response> {
    let session = find_session(&app, &caller, &id).await?;
    let idempotency_key = IdempotencyKey::from_request(&session, &caller, &headers, &uri, &body)?;
    let if_busy = if query.queue { IfBusy::Queue } else { IfBusy::Refuse };
    let sent =
        send(&app, &session, read_message(&body)?, if_busy, idempotency_key.as_ref()).await?;
    // The stream includes the message, because its id is in there.
    respond(&app, &caller, &session, &headers, &sent, StreamStart::AtMessage).await
}

/// Removes a message from the queue.
pub async fn cancel_message(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, message)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    let session = find_session(&app, &caller, &id).await?;
    run_at_owner(&app, &session, CancelMessage(message)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes the message with this id from the queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CancelMessage(String);

impl OwnerOperation for CancelMessage {
    const NAME: &'static str = "cancel_message";
    type Output = ();

    async fn run(self, _app: &Arc<App>, session: &Arc<Session>) -> ApiResult<()> {
        let Self(message) = self;
        let touched = [message.as_str()];
        let change = session.transact(&touched, |tx| {
            if tx.dequeue(&message).is_some() {
                return Ok(());
            }
            Err(if tx.is_finished(&message) || tx.reply(&message).is_some() {
                ApiError::conflict(format!("{message} is already part of the conversation"))
                    .kind("already_started")
                    .hint("only queued messages can be removed")
            } else {
                ApiError::not_found(format!("no message {message} is queued"))
                    .hint("GET /v1/sessions/{s} lists queued messages under `queued`")
            })
        });
        change.await.map(drop)
    }

    fn is_repeatable(&self) -> bool {
        false
    }
}

/// Reads a message, or `{"content": …}`, which becomes a user's message.
pub(crate) fn read_message(body: &[u8]) -> ApiResult<Msg> {
    let wrong = |why: String| {
        ApiError::unprocessable(format!("the body is not a message: {why}"))
            .kind("not_a_message")
            .hint("for example {\"content\": \"hello\"}")
    };
    let mut fields: Fields = serde_json::from_slice(body).map_err(|why| {
        if why.is_data() {
            wrong(why.to_string())
        } else {
            ApiError::bad_request(format!("the body is not JSON: {why}"))
        }
    })?;
    if fields.raw("role").is_none() {
        fields.insert("role", "user");
    }
    let text = serde_json::to_string(&fields).map_err(ApiError::internal)?;
    Msg::from_json(&text).map_err(|why| wrong(why.to_string()))
}

/// Where the stream of the reply begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamStart {
    /// With the event at the response's `last_event_id`.
    AtMessage,
    /// After it.
    AfterMessage,
}

/// Responds with what was accepted, or with a stream of the reply.
pub(super) async fn respond(
    app: &App,
    caller: &Caller,
    session: &Arc<Session>,
    headers: &HeaderMap,
    sent: &SendOutcome,
    from: StreamStart,
) -> ApiResult<Response> {
    let accepted = sent.accepted();
    let mut response = if wants_stream(headers) && !accepted.queued {
        stream_reply(app, caller, session, accepted, from).await?
    } else {
        (StatusCode::ACCEPTED, Json(accepted)).into_response()
    };
    if matches!(sent, SendOutcome::Replayed(_)) {
        mark_replayed(&mut response);
    }
    Ok(response)
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}

/// Streams the reply until it ends or waits. What follows its end belongs to another reply, such as
/// that of the next queued message. Without a reply yet it is the next one that an external agent publishes.
async fn stream_reply(
    app: &App,
    caller: &Caller,
    session: &Arc<Session>,
    accepted: &Accepted,
    from: StreamStart,
) -> ApiResult<Response> {
    let cursor = token_cursor(&accepted.last_event_id)
        .ok_or_else(|| ApiError::internal("a response without a resume token"))?;
    let start = match from {
        StreamStart::AtMessage => cursor.minus(1),
        StreamStart::AfterMessage => cursor,
    };
    let first = cursor.next();
    let end = match accepted.reply_id.clone() {
        Some(id) => EndCondition::Reply { id, first },
        None => EndCondition::NextReply { first },
    };
    let wire = Wire::named("turnwire").ok_or_else(|| ApiError::internal("no canonical wire"))?;
    let subscriber = SessionSubscriber::new(
        session.clone(),
        StreamFormat::sse(wire),
        StartPosition::After(start),
        end,
        caller.expires_at(),
        app.streams.clone(),
    )
    .await?;
    Ok(sse_response(app, subscriber))
}
