//! The protocols that clients have already, over the same sessions.
//!
//! | module | protocol | its session |
//! |---|---|---|
//! | `ag_ui` | AG-UI 1.0 | the `threadId` |
//! | `ai_sdk` | the AI SDK's UI messages | the chat's `id` |
//! | `blocks` | content blocks: the history; the socket is in `socket` | `session_id` |
//! | `openai` | chat completions, Responses, models | a new one, or [`SESSION_HEADER`], or `previous_response_id` |
//! | `anthropic` | Messages | a new one, or [`SESSION_HEADER`] |
//! | `model` | what chat completions and Messages have in common | |
//! | `recognise` | which session results of calls belong to, where the request names none | |
//!
//! They have in common: only new words of the user and answers to what waits are taken from what a
//! client sends, through the same doors as everybody's ([`crate::turns`]); and what comes back is a
//! [`ReplySubscriber`] of the one reply.

pub(crate) mod ag_ui;
pub(crate) mod ai_sdk;
pub(crate) mod anthropic;
pub(crate) mod blocks;
mod model_api;
pub(crate) mod openai;
mod session_matching;

use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::routes::new_session_key;
use crate::stream::{self, ReplyStreamOptions, ReplySubscriber, SERVER_STOPPING};
use crate::turns::EXTERNAL;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use turnwire_log::Session;
use turnwire_log::store::{NewSession, SessionKey};

/// The header that names a session, both ways, where the protocol has no word for it.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("turnwire-session");

/// The session that a client of an agent talks in. It is made where it is not there yet; without an
/// id it is a new one.
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
    // Somebody else may make it in this very moment.
    require_agent(create_session(app, key, agent).await?, agent)
}

/// Makes a session; who comes second gets the one that is there.
pub(crate) async fn create_session(
    app: &App,
    key: SessionKey,
    agent: &str,
) -> ApiResult<Arc<Session>> {
    require_known_agent(app, agent)?;
    let new = NewSession {
        key,
        agent: agent.to_owned(),
        title: String::new(),
        metadata: turnwire_core::Fields::default(),
        now_ms: jiff::Timestamp::now().as_millisecond(),
    };
    let (session, _) = app.log.create_session(new).await?;
    Ok(session)
}

/// An error unless the session is this agent's.
pub(crate) fn require_agent(session: Arc<Session>, agent: &str) -> ApiResult<Arc<Session>> {
    if session.agent() == agent {
        return Ok(session);
    }
    Err(ApiError::conflict(format!(
        "the session {} is of the agent {}, not of {agent}; nothing was stored",
        session.id(),
        session.agent()
    ))
    .kind("wrong_agent")
    .hint("talk to that agent, or begin another session"))
}

/// An error unless there is such an agent.
pub(crate) fn require_known_agent(app: &App, agent: &str) -> ApiResult<()> {
    if app.agents.contains_key(agent) || agent == EXTERNAL {
        return Ok(());
    }
    let names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    Err(ApiError::not_found(format!("there is no agent \"{agent}\""))
        .kind("no_such_agent")
        .hint(format!("there are: {}", names.join(", "))))
}

/// The session that the header names.
pub(crate) fn session_in_header(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let Some(value) = headers.get(SESSION_HEADER) else { return Ok(None) };
    let id = value.to_str().map_err(|_| ApiError::bad_request("this is no Turnwire-Session"))?;
    Ok(Some(id).filter(|id| !id.is_empty()))
}

/// The reply as it grows, as the answer to a request.
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

/// The error of an answer that did not finish before the server stopped. The question is stored and the
/// reply goes on after a restart, so a client that sends it again would ask twice.
pub(crate) fn stopping_error(session: &str) -> ApiError {
    ApiError::unavailable("the server is restarting before the reply has ended")
        .kind(SERVER_STOPPING)
        .hint(format!("do not ask again: the reply is in the session {session}"))
        .no_retry()
}

/// Says which session an answer is of.
pub(crate) fn with_session_header(id: &str, mut response: Response) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(SESSION_HEADER, id);
    }
    response
}
