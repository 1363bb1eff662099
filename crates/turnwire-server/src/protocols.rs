//! The handlers of other protocols, over the same sessions.
//!
//! | module | protocol | its session |
//! |---|---|---|
//! | `ag_ui` | AG-UI 1.0 | the `threadId` |
//! | `ai_sdk` | the AI SDK's UI messages | the chat's `id` |
//! | `blocks` | content blocks: the history; the socket is in `socket` | `session_id` |
//! | `openai` | Chat Completions, Responses, models | a new one, or [`SESSION_HEADER`], or `previous_response_id` |
//! | `anthropic` | Messages | a new one, or [`SESSION_HEADER`] |
//! | `model_api` | the common part of Chat Completions and Messages | |
//! | `client_turn` | finds the session of a request, and stores what is new | |
//! | `token_count` | estimates the tokens of a request | |
//! | `tool_results` | submits the results of pending calls | |
//! | `conversation` | finds the session that a client's history belongs to | |
//! | `claimed_history` | converts that history to messages of the log | |
//! | `resume` | resumes a response after a frame (`Last-Event-ID`) | |
//!
//! All of them store only new user messages and answers to pending calls, through [`crate::turns`], whatever
//! history a client sends along. The response is a [`ReplySubscriber`] of one reply.

pub(crate) mod ag_ui;
pub(crate) mod ai_sdk;
pub(crate) mod anthropic;
pub(crate) mod blocks;
mod claimed_history;
mod client_turn;
mod conversation;
pub(crate) mod model_api;
pub(crate) mod openai;
mod resume;
mod token_count;
mod tool_results;

use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::routes::new_session_key;
use crate::stream::{self, ReplyStreamOptions, ReplySubscriber, SERVER_STOPPING};
use crate::turns::EXTERNAL;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use turnwire_agent::model::http::PASSED_HEADERS;
use turnwire_core::{Fields, Json};
use turnwire_log::Session;
use turnwire_log::log::now_ms;
use turnwire_log::store::{NewSession, SessionKey};

/// The header that names a session, in requests and responses, where the protocol has no field for it.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("turnwire-session");

/// The header of a response that names options and tools without effect.
pub(crate) const IGNORED_HEADER: HeaderName = HeaderName::from_static("turnwire-ignored-options");
/// The field of a response that names them.
const IGNORED_FIELD: &str = "ignored_options";

/// Names the options and tools without effect in a response.
pub(crate) fn add_ignored_header(response: &mut Response, ignored: &[String]) {
    let names = ignored.join(", ");
    if let Ok(value) = HeaderValue::from_str(&names)
        && !names.is_empty()
    {
        response.headers_mut().insert(IGNORED_HEADER, value);
    }
}

/// Adds the options that had no effect to a response.
pub(crate) fn with_ignored_options(body: Json, ignored: &[String]) -> Json {
    if ignored.is_empty() {
        return body;
    }
    let Ok(mut fields) = body.parse_as::<Fields>() else { return body };
    fields.insert(IGNORED_FIELD, ignored.to_vec());
    fields.into()
}

/// The headers of a request that a model of the same protocol gets.
pub(crate) fn passed_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let header = |name: &&str| {
        let values: Vec<&str> =
            headers.get_all(*name).iter().filter_map(|value| value.to_str().ok()).collect();
        (!values.is_empty()).then(|| ((*name).to_owned(), values.join(",")))
    };
    PASSED_HEADERS.iter().filter_map(header).collect()
}

/// The session of a client, created if it does not exist. Without an id it is a new one.
pub(crate) async fn open_or_create_session(
    app: &App,
    caller: &Caller,
    id: Option<&str>,
    agent: &str,
) -> ApiResult<Arc<Session>> {
    let key = new_session_key(caller, id.map(str::to_owned))?;
    if let Some(session) = app.log.open_session(&key).await? {
        return require_agent(session, agent);
    }
    // Another request may create it at the same time.
    require_agent(create_session(app, key, agent).await?, agent)
}

/// Creates a session, or returns the existing one.
pub(crate) async fn create_session(
    app: &App,
    key: SessionKey,
    agent: &str,
) -> ApiResult<Arc<Session>> {
    start_session(app, key, agent, String::new()).await
}

/// Creates a session with a title, or returns the existing one.
async fn start_session(
    app: &App,
    key: SessionKey,
    agent: &str,
    title: String,
) -> ApiResult<Arc<Session>> {
    require_known_agent(app, agent)?;
    let new = NewSession {
        key,
        agent: agent.to_owned(),
        title,
        metadata: Fields::default(),
        now_ms: now_ms(),
    };
    let (session, _) = app.log.create_session(new).await?;
    Ok(session)
}

/// An error unless the session belongs to this agent.
pub(crate) fn require_agent(session: Arc<Session>, agent: &str) -> ApiResult<Arc<Session>> {
    if session.agent() == agent {
        return Ok(session);
    }
    Err(ApiError::conflict(format!(
        "the session {} belongs to the agent {}, not to {agent}; nothing was stored",
        session.id(),
        session.agent()
    ))
    .kind("wrong_agent")
    .hint("use that agent, or start another session"))
}

/// An error unless the agent exists.
pub(crate) fn require_known_agent(app: &App, agent: &str) -> ApiResult<()> {
    if app.agents.contains_key(agent) || agent == EXTERNAL {
        return Ok(());
    }
    let names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    Err(ApiError::not_found(format!("no such agent: \"{agent}\""))
        .kind("no_such_agent")
        .hint(format!("the agents are {}", names.join(", "))))
}

/// The id in the session header.
pub(crate) fn session_in_header(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let Some(value) = headers.get(SESSION_HEADER) else { return Ok(None) };
    let id =
        value.to_str().map_err(|_| ApiError::bad_request("invalid `Turnwire-Session` header"))?;
    Ok(Some(id).filter(|id| !id.is_empty()))
}

/// The stream of a reply, as the response to a request.
pub(crate) async fn follow_reply(
    app: &App,
    session: &Arc<Session>,
    tell: ReplyStreamOptions,
) -> ApiResult<ReplySubscriber> {
    Ok(ReplySubscriber::new(session.clone(), tell, app.streams.clone()).await?)
}

/// The response that a reply fills, until it ends or the client disconnects. The reply continues in
/// any case.
pub(crate) fn sse_response(app: &App, reply: ReplySubscriber) -> Response {
    let id = reply.session().id().to_owned();
    with_session_header(&id, stream::sse_response(app, reply))
}

/// The error of a response that is not complete when the server stops. The message is stored and the reply
/// continues after a restart, so a client that retries would send it twice.
pub(crate) fn stopping_error(session: &str) -> ApiError {
    ApiError::unavailable("the server is restarting before the reply has ended")
        .kind(SERVER_STOPPING)
        .hint(format!("do not send it again: the reply is in the session {session}"))
        .no_retry()
}

/// Adds the session header to a response.
pub(crate) fn with_session_header(id: &str, mut response: Response) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(SESSION_HEADER, id);
    }
    response
}
