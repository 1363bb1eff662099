//! An agent in the place of a model: what chat completions and Messages have in common.
//!
//! A request says something new, or brings the results of calls that a reply waits for. Either way
//! the answer is one reply, or the part of it up to where it waits for the client again. Whoever asks
//! this way cannot be asked back: what needs a person's yes is denied.

mod new_messages;
mod results;

use super::{SESSION_HEADER, follow_reply, sse_response, stopping_error, with_session_header};
use crate::app::App;
use crate::auth::{Caller, expired_error, hex, sha256};
use crate::error::{ApiError, ApiResult, X_SHOULD_RETRY};
use crate::stream::{AnswerEnd, PausePolicy, ReplyPosition, ReplyStreamOptions, ReplySubscriber};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use std::sync::Arc;
use turnwire_core::{Event, EventKind};
use turnwire_log::Session;
use turnwire_wires::client_request::{ClientRequest, ErrorResponse, ResponseCollector};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{EncoderOptions, Wire};

/// The longest key that is taken.
const MAX_KEY_LENGTH: usize = 255;

/// How an agent speaks to clients that take it for a model.
pub(crate) struct ModelApi {
    /// The wire.
    pub(crate) wire: &'static str,
    /// What the ids of its answers begin with.
    pub(crate) id_prefix: &'static str,
    /// Reads what the client asks.
    pub(crate) parse: fn(&str) -> turnwire_core::Result<ClientRequest>,
    /// Puts an answer together that is no stream.
    pub(crate) collector: fn() -> Box<dyn ResponseCollector>,
}

/// A request.
pub(crate) struct ModelRequest {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What is told to the client: a reply, or a part of it.
struct ReplyPart {
    session: Arc<Session>,
    reply_id: String,
    begin: ReplyPosition,
    /// Whether the request was there before, and this is what it got then.
    replayed: bool,
}

/// Answers a request.
pub(crate) async fn handle_request(
    request: ModelRequest,
    manner: &ModelApi,
) -> ApiResult<Response> {
    let text = std::str::from_utf8(&request.body)
        .map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    let asked = (manner.parse)(text).map_err(|error| {
        ApiError::bad_request(error.to_string())
            .kind("not_a_request")
            .hint("`model` is the name of an agent, and `messages` end with what is new")
    })?;
    require_model(&request.app, &asked.model)?;
    let turn = if asked.results.is_empty() {
        new_messages::send_new_messages(&request, &asked).await?
    } else {
        results::submit_results(&request, &asked).await?
    };
    // The answer may take minutes, and little of this is needed for it.
    let (app, caller) = (Arc::clone(&request.app), request.caller.clone());
    drop(request);
    let asked = ClientRequest { user_messages: Vec::new(), results: Vec::new(), ..asked };
    let mut response = respond(&app, &caller, &asked, &turn, manner).await?;
    if turn.replayed {
        let replayed = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(replayed, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// An error unless the model is an agent that runs here.
fn require_model(app: &App, model: &str) -> ApiResult<()> {
    if app.agents.contains_key(model) {
        return Ok(());
    }
    let names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    Err(ApiError::not_found(format!("there is no model \"{model}\""))
        .kind("model_not_found")
        .hint(format!("a model is an agent here; there are: {}", names.join(", "))))
}

async fn respond(
    app: &App,
    caller: &Caller,
    asked: &ClientRequest,
    turn: &ReplyPart,
    manner: &ModelApi,
) -> ApiResult<Response> {
    let (prefix, reply) = (manner.id_prefix, &turn.reply_id);
    let id = match turn.begin {
        ReplyPosition::After(place) => format!("{prefix}{reply}.{place}"),
        ReplyPosition::Start | ReplyPosition::Snapshot => format!("{prefix}{reply}"),
    };
    let wire = Wire::named(manner.wire).ok_or_else(|| ApiError::internal("there is no wire"))?;
    let tell = ReplyStreamOptions {
        wire,
        encoding: EncoderOptions {
            model: Some(asked.model.clone()),
            id: Some(id),
            wants_json: asked.output_schema.is_some(),
            ..EncoderOptions::default()
        }
        .with(StreamOptions { include_usage: asked.include_usage || !asked.stream }),
        reply_id: turn.reply_id.clone(),
        begin: turn.begin,
        pause: PausePolicy::ExternalOnly,
        expires_at: caller.expires_at(),
    };
    // The results of calls begin another answer, also when this one is told again.
    let is_result = |event: &Event<'_>| matches!(event.kind, EventKind::ExternalExecutionResult(_));
    let follow = follow_reply(app, &turn.session, tell).await?.end_before(is_result);
    if asked.stream {
        return Ok(sse_response(app, follow));
    }
    let response = collect_response(follow, (manner.collector)()).await?;
    Ok(with_session_header(turn.session.id(), response))
}

/// The answer when all of it is there.
async fn collect_response(
    follow: ReplySubscriber,
    mut whole: Box<dyn ResponseCollector>,
) -> ApiResult<Response> {
    let session = Arc::clone(follow.session());
    let done = follow.collect(|_, text| whole.push_frame(text)).await;
    let ended = done.map_err(|error| match error {
        turnwire_log::Error::NoSession | turnwire_log::Error::Trimmed(_) => error.into(),
        other => ApiError::unavailable("the answer broke off; the reply itself goes on")
            .hint("ask again with the same Idempotency-Key, or read it in its session")
            .detail(other),
    })?;
    match ended {
        AnswerEnd::Complete => {}
        AnswerEnd::Expired => return Err(expired_error()),
        AnswerEnd::ServerStopped => return Err(stopping_error(session.id())),
    }
    let (status, body) = match whole.finish() {
        Ok(body) => (StatusCode::OK, body),
        Err(ErrorResponse { status, body }) => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        }
    };
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (status, json, Body::from(body.text().to_owned())).into_response();
    if !status.is_success() {
        // The question and what came of it are in the session. These clients ask again by
        // themselves, and that would be a second question.
        response.headers_mut().insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    Ok(response)
}

/// The key that makes a request safe to send again. One that cannot be taken is refused before
/// anything is made in its name.
fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key =
        value.to_str().ok().map(str::trim).filter(|key| (1..=MAX_KEY_LENGTH).contains(&key.len()));
    key.map(Some).ok_or_else(|| {
        ApiError::bad_request("this Idempotency-Key is not 1 to 255 visible characters")
            .hint("use a random UUID for each request, and the same one when sending it again")
    })
}

/// Something that is the same whenever a request of the same holder comes again with its key.
fn derived_id(request: &ModelRequest, key: &str) -> String {
    let what = format!("{}\0{}\0{key}", request.caller.0.holder, request.uri.path());
    hex(&sha256(what.as_bytes()), 16)
}

/// What to do where a client cannot put it right in its own protocol.
fn with_session_hint(error: ApiError) -> ApiError {
    match error.name() {
        "busy" => error.hint(format!(
            "ask again when the reply has ended; or leave out the header {SESSION_HEADER} to begin another \
             session"
        )),
        _ => error,
    }
}
