//! An agent as a model: the common part of Chat Completions and Anthropic Messages.
//!
//! A request has a new user message, or the results of pending calls. The response is a reply, or the part of
//! it up to where it waits for the client again. These protocols cannot ask the user: a call that needs an
//! approval is denied.

use super::client_turn::{ClientTurn, ReplyPart};
use super::conversation::Conversation;
use super::token_count::{ToolText, estimate_request};
use super::{
    add_ignored_header, follow_reply, passed_headers, sse_response, stopping_error,
    with_ignored_options, with_session_header,
};
use crate::app::App;
use crate::auth::{Caller, expired_error};
use crate::error::{ApiError, ApiResult, X_SHOULD_RETRY};
use crate::extract::BodyBytes;
use crate::stream::{
    CollectedAnswer, PausePolicy, ReplyPosition, ReplyStreamOptions, ReplySubscriber,
};
use crate::turns::client_context::check_options;
use crate::turns::idempotency::mark_replayed;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use std::sync::Arc;
use turnwire_agent::{ClientContext, ClientTool, SystemMessage};
use turnwire_core::{Event, EventKind};
use turnwire_wires::client_request::ClientRequest;
use turnwire_wires::collect::ErrorResponse;
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{EncoderOptions, Wire};

/// One protocol in which an agent is served as a model.
pub(crate) struct ModelApi {
    /// The wire.
    pub(crate) wire: &'static str,
    /// The prefix of its response ids.
    pub(crate) id_prefix: &'static str,
    /// Parses a request.
    pub(crate) parse: fn(&str) -> turnwire_core::Result<ClientRequest>,
}

/// A request of a client of a model API. Handlers take it as their argument.
pub(crate) struct ModelRequest {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl FromRequest<Arc<App>> for ModelRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, app).await?;
        let (uri, headers) = (parts.uri.clone(), parts.headers.clone());
        let request = Request::from_parts(parts, body);
        let BodyBytes(body) = BodyBytes::from_request(request, app).await?;
        Ok(Self { app: Arc::clone(app), caller, uri, headers, body })
    }
}

/// Handles a request.
pub(crate) async fn handle_request(request: ModelRequest, api: &ModelApi) -> ApiResult<Response> {
    let mut parsed = parse_request(&request.body, api)?;
    require_model(&request.app, &parsed.model)?;
    let mut context = client_context(&request, &parsed, api.wire);
    let ModelRequest { app, caller, uri, headers, body } = &request;
    let ignored = check_options(app, &parsed.model, &context, &parsed.messages)?;
    context.ignored_options.clone_from(&ignored);
    let messages = std::mem::take(&mut parsed.messages);
    let agent = parsed.model.as_str();
    let conversation =
        Conversation::new(app, caller, agent, messages, headers, &parsed.extra, body);
    let conversation =
        conversation.with_prefill_after_results().with_joined_calls(app, caller).await?;
    let turn = ClientTurn { app, caller, uri, headers, body, agent, context, conversation };
    let turn = turn.submit().await?;
    // The response may take minutes and needs little of this: free the memory.
    let (app, caller) = (Arc::clone(&request.app), request.caller.clone());
    drop(request);
    let replayed = turn.replayed;
    let mut response = respond(&app, &caller, &parsed, turn, (api, &ignored)).await?;
    add_ignored_header(&mut response, &ignored);
    if replayed {
        mark_replayed(&mut response);
    }
    Ok(response)
}

/// Parses a request.
fn parse_request(body: &[u8], api: &ModelApi) -> ApiResult<ClientRequest> {
    let text =
        std::str::from_utf8(body).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    (api.parse)(text).map_err(|error| {
        ApiError::bad_request(error.to_string())
            .kind("not_a_request")
            .hint("`model` is the name of an agent, and `messages` ends with what is new")
    })
}

/// Estimates the tokens of a request. Nothing is stored.
pub(crate) fn estimate_tokens(app: &App, body: &[u8], api: &ModelApi) -> ApiResult<usize> {
    let parsed = parse_request(body, api)?;
    require_model(app, &parsed.model)?;
    let tools = parsed.tools.iter().map(|tool| ToolText {
        name: &tool.name,
        description: &tool.description,
        schema: tool.input_schema.as_ref(),
    });
    Ok(estimate_request(&parsed.messages, None, parsed.output_schema.as_ref(), tools))
}

/// An error unless the model is an agent of this server.
fn require_model(app: &App, model: &str) -> ApiResult<()> {
    if app.agents.contains_key(model) {
        return Ok(());
    }
    let names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    Err(ApiError::not_found(format!("no such model: \"{model}\""))
        .kind("model_not_found")
        .hint(format!("a model is an agent; the agents are {}", names.join(", "))))
}

async fn respond(
    app: &App,
    caller: &Caller,
    parsed: &ClientRequest,
    turn: ReplyPart,
    (api, ignored): (&ModelApi, &[String]),
) -> ApiResult<Response> {
    let (prefix, reply) = (api.id_prefix, &turn.reply_id);
    let id = match turn.begin {
        ReplyPosition::After(cursor) => format!("{prefix}{reply}.{cursor}"),
        ReplyPosition::Start | ReplyPosition::Snapshot | ReplyPosition::SnapshotAt(_) => {
            format!("{prefix}{reply}")
        }
    };
    let wire = Wire::named(api.wire).ok_or_else(|| ApiError::internal("the wire is missing"))?;
    let options = ReplyStreamOptions {
        wire,
        encoding: EncoderOptions {
            model: Some(parsed.model.clone()),
            id: Some(id),
            wants_json: parsed.output_schema.is_some(),
            collects: !parsed.stream,
            ..EncoderOptions::default()
        }
        .with(StreamOptions { include_usage: parsed.include_usage || !parsed.stream }),
        reply_id: turn.reply_id.clone(),
        begin: turn.begin,
        pause: PausePolicy::ExternalOnly,
        expires_at: caller.expires_at(),
    };
    // Tool results begin another response, also when this one is repeated.
    let is_result = |event: &Event<'_>| matches!(event.kind, EventKind::ExternalExecutionResult(_));
    let follow = follow_reply(app, &turn.session, options).await?;
    let follow = follow.end_before(is_result).with_delivery(turn.delivery);
    let collects = !parsed.stream;
    let follow =
        if collects || turn.replayed { follow.without_discarded(collects) } else { follow };
    if parsed.stream {
        return Ok(sse_response(app, follow));
    }
    let response = collect_response(follow, ignored).await?;
    Ok(with_session_header(turn.session.id(), response))
}

/// The whole response, after the reply has ended or waits.
async fn collect_response(follow: ReplySubscriber, ignored: &[String]) -> ApiResult<Response> {
    let session = Arc::clone(follow.session());
    let ended = follow.collect().await.map_err(|error| {
        if matches!(error, turnwire_log::Error::NoSession | turnwire_log::Error::Trimmed(_)) {
            return error.into();
        }
        ApiError::unavailable("the response ended early; the reply continues")
            .hint("send it again with the same Idempotency-Key, or read the reply in its session")
            .detail(error)
    })?;
    let whole = match ended {
        CollectedAnswer::Complete(whole) => whole,
        CollectedAnswer::Expired => return Err(expired_error()),
        CollectedAnswer::ServerStopped => return Err(stopping_error(session.id())),
    };
    let whole = whole.ok_or_else(|| ApiError::internal("the response is empty"))?;
    let (status, body) = match whole {
        Ok(body) => (StatusCode::OK, with_ignored_options(body, ignored)),
        Err(ErrorResponse { status, body }) => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
        }
    };
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (status, json, Body::from(body.text().to_owned())).into_response();
    if !status.is_success() {
        // The message and the failed reply are in the session. These clients retry by themselves, and
        // that would send the message twice.
        response.headers_mut().insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    Ok(response)
}

/// What the client sends along with its message.
fn client_context(
    request: &ModelRequest,
    parsed: &ClientRequest,
    wire: &'static str,
) -> ClientContext {
    ClientContext {
        tools: parsed.tools.iter().cloned().map(ClientTool::from).collect(),
        output_schema: parsed.output_schema.clone(),
        system: SystemMessage::collect(&parsed.messages),
        unattended: true,
        extra: parsed.extra.clone(),
        wire: wire.to_owned(),
        headers: passed_headers(&request.headers),
        ..ClientContext::default()
    }
}
