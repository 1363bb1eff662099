//! The AI SDK: `POST /ai-sdk/{agent}`, resume, and stop.
//!
//! A client posts its whole history; the session has its own. What is new decides what a request does:
//!
//! | the request ends with | effect |
//! |---|---|
//! | user messages that the session does not have | sends them |
//! | one such message, after a message that others follow in the session | replaces these (`left_out`) |
//! | a user message that the session has, named in `messageId` | edits it |
//! | the trigger `regenerate-message` | answers the last message, or the named one, again |
//! | an assistant message that continues | submits answers to pending calls (`continuation`) |
//! | none of these, while a reply runs | streams that reply: the response to an earlier request was lost |
//!
//! A response ends where the reply ends or waits. A client that lost it continues it after the last frame it has:
//! with `Last-Event-ID`, or with the number of frames it has (`startIndex`) and the id of the run, as the AI SDK's workflow
//! transports do. The id of a run, `CHAT~REPLY~BEGIN`, locates the response, so nothing is stored for it.

mod continuation;
mod left_out;

use super::resume::{check_resumable, last_event_id};
use super::{
    add_ignored_header, follow_reply, open_or_create_session, require_agent, sse_response,
};
use crate::app::App;
use crate::auth::{Action, Caller, expired_error, wait_until_expired};
use crate::error::{ApiError, ApiResult};
use crate::extract::{BodyBytes, Path, Query};
use crate::links;
use crate::stream::{
    FrameId, PausePolicy, ReplyPosition, ReplyStreamOptions, ReplySubscriber, ResponseKey,
    SEPARATOR, token_cursor,
};
use crate::turns::client_context;
use crate::turns::client_events;
use crate::turns::idempotency::IdempotencyKey;
use crate::turns::retry::{edit, replaced_id, retry};
use crate::turns::send::{Accepted, SendRequest, check_message, send_all};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::ClientContext;
use turnwire_core::{ContentBlock, Msg, Role, Seq};
use turnwire_log::store::{MessageQuery, StoredMessage};
use turnwire_log::{OpenReply, Session, Snapshot};
use turnwire_wires::ai_sdk::{ChatRequest, Trigger};
use turnwire_wires::{EncoderOptions, Wire};

/// How many messages one request may bring.
const MAX_NEW_MESSAGES: usize = 64;

/// The protocol's name in the list of wires.
const WIRE: &str = "ai-sdk";

/// The header that tells clients the protocol's version.
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");

/// The header with the id of the run, with which a workflow transport reconnects.
const RUN_HEADER: HeaderName = HeaderName::from_static("x-workflow-run-id");

/// The same for assistant-ui's transport with `resumable`.
const RESUMABLE_HEADER: HeaderName = HeaderName::from_static("x-resumable-stream-id");

/// The header with the number of the last frame. Workflow transports need it after a negative `startIndex`.
const TAIL_HEADER: HeaderName = HeaderName::from_static("x-workflow-stream-tail-index");

/// `POST /ai-sdk/{agent}`
pub async fn chat(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(agent): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Response> {
    let text = std::str::from_utf8(&body)
        .map_err(|why| ApiError::bad_request(format!("the body is not UTF-8: {why}")))?;
    let request = ChatRequest::parse(text).map_err(invalid_request)?;
    let ignored = ignored_names(&app, &agent, &request);
    let mut response = answer(&app, &caller, &agent, (&uri, &headers, &body), &request).await?;
    add_ignored_header(&mut response, &ignored);
    Ok(response)
}

/// The options, tools and kinds of content of a request that have no effect.
fn ignored_names(app: &App, agent: &str, request: &ChatRequest) -> Vec<String> {
    let messages = request.new_messages(|_| false).unwrap_or_default();
    let context = match messages.last() {
        Some(last) => ClientContext::from_msg(&with_context(request, last.clone())),
        None => ClientContext { wire: WIRE.to_owned(), ..sent_context(request) },
    };
    client_context::check_options(app, agent, &context, &messages).unwrap_or_default()
}

/// Does what a request is for.
async fn answer(
    app: &Arc<App>,
    caller: &Caller,
    agent: &str,
    (uri, headers, body): (&Uri, &HeaderMap, &[u8]),
    request: &ChatRequest,
) -> ApiResult<Response> {
    if let Some(id) = last_event_id(headers)? {
        caller.require(Action::Read)?;
        let session = find_session(app, caller, &request.chat_id, agent).await?;
        let session = session.ok_or(turnwire_log::Error::NoSession)?;
        return ChatContext { app, caller, session, idempotency_key: None }.resume_after(&id).await;
    }
    let Some(known) = find_session(app, caller, &request.chat_id, agent).await? else {
        // A request without a message creates no session.
        let messages = NewMessages::from_request(request, |_| false)?.validate()?;
        client_context::check_last_message(app, caller.tenant(), &messages).await?;
        let new = open_or_create_session(app, caller, Some(&request.chat_id), agent).await?;
        let idempotency_key = IdempotencyKey::from_request(&new, caller, headers, uri, body)?;
        return ChatContext { app, caller, session: new, idempotency_key }
            .send_messages(messages)
            .await;
    };
    let idempotency_key = IdempotencyKey::from_request(&known, caller, headers, uri, body)?;
    let chat = ChatContext { app, caller, session: known, idempotency_key };
    if let Some(idempotency_key) = &chat.idempotency_key
        && let Some(before) = idempotency_key.find_response::<Accepted>(&app.log).await?
    {
        return chat.stream_accepted(&before).await;
    }
    chat.handle(request).await
}

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct ResumeQuery {
    /// How many frames of the response the client has. Negative: only this many of the last frames.
    #[serde(rename = "startIndex")]
    start_index: Option<i64>,
}

/// `GET /ai-sdk/{agent}/{chat}/stream`, where the chat is its id, or the id of a run.
pub async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((agent, chat)): Path<(String, String)>,
    Query(query): Query<ResumeQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let last_id = last_event_id(&headers)?;
    let (chat, run) = match chat.split_once(SEPARATOR) {
        Some((chat, run)) => (chat, Some(ResponseKey::parse(run).ok_or_else(no_such_run)?)),
        None => (chat.as_str(), None),
    };
    let Some(session) = find_session(&app, &caller, chat, &agent).await? else {
        // In a chat without a session nothing runs.
        return if run.is_none() { Ok(no_content()) } else { Err(no_such_run()) };
    };
    let chat = ChatContext { app: &app, caller: &caller, session, idempotency_key: None };
    if let Some(id) = last_id {
        return chat.resume_after(&id).await;
    }
    let start_index = query.start_index.unwrap_or_default();
    let response = match run {
        Some(run) => {
            check_resumable(&chat.session, &run, None).await?;
            run
        }
        None => match chat.current_reply(start_index > 0).await? {
            Some(reply) => ResponseKey::new(reply, ReplyPosition::Start),
            None => return Ok(no_content()),
        },
    };
    chat.stream_from(&response, start_index).await
}

fn no_such_run() -> ApiError {
    ApiError::not_found("no such run")
        .hint("the id of a run is in the header x-workflow-run-id of its first response")
}

/// `POST /ai-sdk/{agent}/{chat}/stop`
pub async fn stop(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((agent, chat)): Path<(String, String)>,
) -> ApiResult<Response> {
    if let Some(session) = find_session(&app, &caller, &chat, &agent).await? {
        client_events::stop_reply(&app, &session, &caller).await?;
    }
    Ok(no_content())
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// The chat's session, if there is one.
async fn find_session(
    app: &App,
    caller: &Caller,
    chat: &str,
    agent: &str,
) -> ApiResult<Option<Arc<Session>>> {
    let session = app.log.open_session(&caller.session_key(chat)?).await?;
    session.map(|session| require_agent(session, agent)).transpose()
}

/// The reply that the chat is about.
fn open_reply(snapshot: &Snapshot) -> Option<&OpenReply> {
    snapshot.open.iter().find(|reply| !reply.is_of_sub_agent())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what an error becomes")]
fn invalid_request(why: turnwire_core::Error) -> ApiError {
    ApiError::unprocessable(format!("invalid chat request: {why}; nothing was stored"))
        .kind("not_a_request")
        .hint("send what DefaultChatTransport posts: {id, messages, trigger, messageId?}")
}

/// The messages of a request that the session does not have.
struct NewMessages<'r> {
    request: &'r ChatRequest,
    messages: Vec<Msg>,
}

impl<'r> NewMessages<'r> {
    fn from_request(request: &'r ChatRequest, is_known: impl Fn(&str) -> bool) -> ApiResult<Self> {
        let messages = request.new_messages(is_known).map_err(invalid_request)?;
        Ok(Self { request, messages })
    }

    /// Checks the messages, and adds what the application sends along.
    fn validate(self) -> ApiResult<Vec<Msg>> {
        if self.messages.len() > MAX_NEW_MESSAGES {
            return Err(ApiError::unprocessable(format!(
                "{} new messages in one request; the limit is {MAX_NEW_MESSAGES}; nothing was stored",
                self.messages.len()
            ))
            .kind("too_many_messages")
            .hint("send them one by one"));
        }
        let mut ready = Vec::with_capacity(self.messages.len());
        for msg in self.messages {
            ready.push(check_message(msg)?);
        }
        let Some(last) = ready.pop() else { return Err(nothing_new()) };
        ready.push(with_context(self.request, last));
        Ok(ready)
    }
}

/// A message with what the application sends along. What the message itself has counts if that is nothing.
fn with_context(request: &ChatRequest, msg: Msg) -> Msg {
    let sent = sent_context(request);
    if sent == ClientContext::default() && ClientContext::from_msg(&msg) != sent {
        return msg;
    }
    ClientContext { wire: WIRE.to_owned(), ..sent }.attach_to(msg)
}

/// What the application sends along.
fn sent_context(request: &ChatRequest) -> ClientContext {
    ClientContext {
        tools: request.tools.iter().cloned().map(Into::into).collect(),
        instructions: request.system.clone(),
        extra: request.rest.clone(),
        ..ClientContext::default()
    }
}

fn nothing_new() -> ApiError {
    ApiError::unprocessable("the request has nothing new, and no reply is running")
        .kind("nothing_new")
        .hint(
            "end with a user message whose id is new to the session, or use the trigger \
             regenerate-message; GET /v1/sessions/{s}/messages?wire=ai-sdk has the stored messages",
        )
}

/// Replaces the hint of an error by one for this protocol.
fn with_protocol_hint(error: ApiError) -> ApiError {
    if error.name() == "busy" {
        return error.hint(
            "GET /ai-sdk/{agent}/{chat}/stream (resumeStream) streams the reply; answer its pending calls, \
             or stop it with POST /ai-sdk/{agent}/{chat}/stop, and send this again",
        );
    }
    error
}

fn busy_error() -> ApiError {
    with_protocol_hint(
        ApiError::conflict("another reply is running; nothing was stored").kind("busy"),
    )
}

fn parse_stored(message: &StoredMessage) -> Option<Msg> {
    Msg::from_json(std::str::from_utf8(&message.json).ok()?).ok()
}

/// Whether a client may know a message by this id.
fn has_id(msg: &Msg, name: Option<&str>) -> bool {
    name == Some(msg.id()) || (name.is_some() && name == replaced_id(msg).as_deref())
}

/// Whether a stored message has the content that a client sends.
fn has_same_content(a: &Msg, b: &Msg) -> bool {
    let is_same = |(a, b): (&ContentBlock, &ContentBlock)| match (a, b) {
        (ContentBlock::Text(a), ContentBlock::Text(b)) => a.text == b.text,
        (ContentBlock::Data(stored), ContentBlock::Data(sent)) => links::is_same_data(stored, sent),
        (ContentBlock::Other(a), ContentBlock::Other(b)) => a == b,
        _ => false,
    };
    a.content().len() == b.content().len() && a.content().iter().zip(b.content()).all(is_same)
}

/// One request to a chat.
struct ChatContext<'a> {
    app: &'a Arc<App>,
    caller: &'a Caller,
    session: Arc<Session>,
    idempotency_key: Option<IdempotencyKey>,
}

impl ChatContext<'_> {
    /// Does what the request is for.
    async fn handle(&self, request: &ChatRequest) -> ApiResult<Response> {
        let user_ids = request.trailing_user_ids().map_err(invalid_request)?;
        let known = self.last_known(&user_ids).await?;
        let is_known = |id: &str| known.as_deref() == Some(id);
        let continued = request.continued_message().map_err(invalid_request)?;
        let messages = NewMessages::from_request(request, is_known)?;
        if let Some(continued) = continued {
            return self.continue_reply(request, &continued).await;
        }
        // Also with `regenerate-message`: then an earlier request did not arrive.
        if !messages.messages.is_empty() {
            let mut messages = messages.validate()?;
            let left_out = self.left_out(request, messages.len()).await?;
            self.end_abandoned_reply(request, left_out.is_some()).await?;
            return match (left_out, messages.pop()) {
                (Some(id), Some(msg)) if messages.is_empty() => self.replace(&id, msg).await,
                (_, last) => {
                    messages.extend(last);
                    self.send_messages(messages).await
                }
            };
        }
        if request.trigger == Trigger::Regenerate {
            self.caller.require(Action::Regenerate)?;
            self.end_abandoned_reply(request, true).await?;
            let id = match request.message_id.clone().or(known) {
                Some(id) => id,
                None => self.last_message_id().await?.ok_or_else(nothing_new)?,
            };
            let sent = retry(self.app, &self.session, &id, self.idempotency_key.as_ref()).await;
            return self.stream_accepted(sent.map_err(with_protocol_hint)?.accepted()).await;
        }
        if let Some(msg) = request.edited_message(is_known).map_err(invalid_request)? {
            return self.edit(request, with_context(request, check_message(msg)?)).await;
        }
        self.resume_running(|question| has_id(question, known.as_deref())).await
    }

    /// Edits a message. If its content is the same, it is answered again.
    async fn edit(&self, request: &ChatRequest, msg: Msg) -> ApiResult<Response> {
        self.caller.require(Action::Regenerate)?;
        let is_same = |known: &Msg| has_id(known, Some(msg.id())) && has_same_content(known, &msg);
        if open_reply(&self.session.snapshot().await?).is_some() {
            match self.resume_running(is_same).await {
                Err(error) if error.name() == "busy" => {
                    self.end_abandoned_reply(request, true).await?;
                }
                done => return done,
            }
        }
        if !self.find_message(msg.id()).await?.is_some_and(|known| is_same(&known)) {
            let id = msg.id().to_owned();
            return self.replace(&id, msg).await;
        }
        let sent = retry(self.app, &self.session, msg.id(), self.idempotency_key.as_ref()).await;
        self.stream_accepted(sent.map_err(with_protocol_hint)?.accepted()).await
    }

    /// Replaces a message and everything after it.
    async fn replace(&self, id: &str, msg: Msg) -> ApiResult<Response> {
        let sent = edit(self.app, &self.session, id, msg, self.idempotency_key.as_ref()).await;
        self.stream_accepted(sent.map_err(with_protocol_hint)?.accepted()).await
    }

    /// A message of the conversation.
    async fn find_message(&self, id: &str) -> ApiResult<Option<Msg>> {
        let stored = self.session.find_message(id).await?;
        Ok(stored.filter(|stored| !stored.superseded).as_ref().and_then(parse_stored))
    }

    /// The last of these messages that the session has.
    async fn last_known(&self, ids: &[String]) -> ApiResult<Option<String>> {
        let snapshot = self.session.snapshot().await?;
        // A request with more new messages is refused.
        for id in ids.iter().take(MAX_NEW_MESSAGES + 1).filter(|id| !id.is_empty()) {
            let is_queued = snapshot.queue.iter().any(|queued| queued.id == *id);
            if is_queued || self.session.find_message(id).await?.is_some() {
                return Ok(Some(id.clone()));
            }
        }
        Ok(None)
    }

    /// The last message of the conversation.
    async fn last_message_id(&self) -> ApiResult<Option<String>> {
        Ok(self.messages_before(None).await?.next().map(|msg| msg.id().to_owned()))
    }

    /// The messages before a position that are not superseded, the last one first.
    async fn messages_before(&self, place: Option<Seq>) -> ApiResult<impl Iterator<Item = Msg>> {
        let query =
            MessageQuery { before: place, limit: MAX_NEW_MESSAGES, ..MessageQuery::default() };
        let stored = self.session.list_messages(&query).await?;
        let counted = stored.into_iter().rev().filter(|message| !message.superseded);
        Ok(counted.filter_map(|message| parse_stored(&message)))
    }

    async fn send_messages(&self, messages: Vec<Msg>) -> ApiResult<Response> {
        let what = SendRequest {
            messages,
            idempotency_key: self.idempotency_key.clone(),
            ..SendRequest::default()
        };
        let sent = send_all(self.app, &self.session, what).await.map_err(with_protocol_hint)?;
        self.stream_accepted(sent.accepted()).await
    }

    /// The request has nothing new. If the reply to its last message runs, streams it.
    async fn resume_running(&self, is_asked: impl Fn(&Msg) -> bool) -> ApiResult<Response> {
        self.caller.require(Action::Read)?;
        let snapshot = self.session.snapshot().await?;
        let reply = open_reply(&snapshot).ok_or_else(nothing_new)?;
        let mut before = self.messages_before(Some(reply.first_seq())).await?;
        let question = before.find(|msg| msg.role() == Role::User);
        if !question.is_some_and(|question| is_asked(&question)) {
            return Err(busy_error());
        }
        self.stream_reply(reply.msg().id().to_owned(), ReplyPosition::Start).await
    }

    /// Streams the reply that was started, or that an external agent will start.
    async fn stream_accepted(&self, accepted: &Accepted) -> ApiResult<Response> {
        let reply = match &accepted.reply_id {
            Some(reply) => reply.clone(),
            None => self.wait_for_external_reply(&accepted.last_event_id).await?,
        };
        self.stream_reply(reply, ReplyPosition::Start).await
    }

    /// Waits for the next reply of an external agent.
    async fn wait_for_external_reply(&self, token: &str) -> ApiResult<String> {
        let cursor = token_cursor(token).unwrap_or_default();
        let mut head = self.session.watch_head();
        loop {
            let is_gone = head.borrow_and_update().is_deleted;
            if is_gone {
                return Err(turnwire_log::Error::NoSession.into());
            }
            let snapshot = self.session.snapshot().await?;
            if let Some(reply) =
                open_reply(&snapshot).filter(|reply| !cursor.includes(reply.first_seq()))
            {
                return Ok(reply.msg().id().to_owned());
            }
            let query = MessageQuery {
                after: cursor.seq(),
                limit: MAX_NEW_MESSAGES,
                ..MessageQuery::default()
            };
            let later = self.session.list_messages(&query).await?;
            let mut later = later.iter().filter_map(parse_stored);
            if let Some(reply) = later.find(|msg| msg.role() == Role::Assistant) {
                return Ok(reply.id().to_owned());
            }
            tokio::select! {
                _ = head.changed() => {}
                () = self.app.force_stop.cancelled() => {
                    return Err(super::stopping_error(self.session.id()));
                }
                () = wait_until_expired(self.caller.expires_at()) => return Err(expired_error()),
            }
        }
    }

    /// The reply that runs, or else the last one, if that counts, too.
    async fn current_reply(&self, counts_ended: bool) -> ApiResult<Option<String>> {
        if let Some(reply) = open_reply(&self.session.snapshot().await?) {
            return Ok(Some(reply.msg().id().to_owned()));
        }
        if !counts_ended {
            return Ok(None);
        }
        let mut messages = self.messages_before(None).await?;
        Ok(messages.find(|msg| msg.role() == Role::Assistant).map(|msg| msg.id().to_owned()))
    }

    /// Continues a response after a frame that the client has.
    async fn resume_after(&self, id: &FrameId) -> ApiResult<Response> {
        check_resumable(&self.session, &id.response, id.paused_at).await?;
        let follow = self.follow(&id.response).await?.resume_after(id);
        Ok(self.respond(&id.response, follow))
    }

    /// A response from a frame on; with a negative index that many of the last frames, and those that follow.
    async fn stream_from(&self, response: &ResponseKey, start_index: i64) -> ApiResult<Response> {
        let follow = self.follow(response).await?.numbered(response);
        if start_index >= 0 {
            return Ok(self.respond(response, follow.skip_frames(start_index.unsigned_abs())));
        }
        let count = self.follow(response).await?.numbered(response).count_frames().await?;
        let skipped = count.saturating_sub(start_index.unsigned_abs());
        let mut response = self.respond(response, follow.skip_frames(skipped));
        // -1 if there are none.
        let tail = i64::try_from(count).unwrap_or(i64::MAX) - 1;
        response.headers_mut().insert(TAIL_HEADER, HeaderValue::from(tail));
        Ok(response)
    }

    /// The response that streams a reply.
    async fn stream_reply(&self, reply_id: String, begin: ReplyPosition) -> ApiResult<Response> {
        self.stream_from(&ResponseKey::new(reply_id, begin), 0).await
    }

    async fn follow(&self, response: &ResponseKey) -> ApiResult<ReplySubscriber> {
        let wire =
            Wire::named(WIRE).ok_or_else(|| ApiError::internal("the wire ai-sdk is missing"))?;
        let options = ReplyStreamOptions {
            wire,
            encoding: EncoderOptions::default(),
            reply_id: response.reply_id.clone(),
            begin: response.begin,
            pause: PausePolicy::Any,
            expires_at: self.caller.expires_at(),
        };
        follow_reply(self.app, &self.session, options).await
    }

    fn respond(&self, key: &ResponseKey, follow: ReplySubscriber) -> Response {
        let run = format!("{}{SEPARATOR}{key}", self.session.id());
        let mut response = sse_response(self.app, follow);
        response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static("v1"));
        if let Ok(run) = HeaderValue::try_from(run) {
            response.headers_mut().insert(RUN_HEADER, run.clone());
            response.headers_mut().insert(RESUMABLE_HEADER, run);
        }
        response
    }
}
