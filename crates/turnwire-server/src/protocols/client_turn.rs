//! A request of a client that keeps its own history: finds its session, and stores what is new. Called by Chat
//! Completions, Messages and Responses.

use super::claimed_history::{to_log_messages, to_prefill};
use super::conversation::{Conversation, Recognized};
use super::tool_results::{NewResults, submit_results_to, unknown_call};
use super::{SESSION_HEADER, require_agent, require_known_agent, session_in_header, start_session};
use crate::app::App;
use crate::auth::Caller;
use crate::deliveries::Delivery;
use crate::error::{ApiError, ApiResult};
use crate::links;
use crate::routes::{fork_log, new_session_key};
use crate::stream::{ReplyPosition, parse_message};
use crate::turns::client_context;
use crate::turns::idempotency::{IdempotencyKey, derived_id, read_header};
use crate::turns::send::{
    Accepted, CONVERSATION_MOVED, ExpectedHistory, HistoryChange, SendOutcome, SendRequest,
    send_all as send,
};
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_agent::{ClientContext, SentHistory};
use turnwire_core::{Head, Msg, Role};
use turnwire_log::Session;
use turnwire_log::store::{MessageQuery, SessionKey, StoredMessage};
use turnwire_wires::model_request::is_prefill;

/// How often a conversation is searched again, because another request continued the one that was found.
const MAX_ATTEMPTS: usize = 8;
/// How many messages beside the input are read to find a reply.
const LOOK_BACK: usize = 32;

/// A request of a client that keeps its own history.
pub(crate) struct ClientTurn<'r> {
    pub(crate) app: &'r Arc<App>,
    pub(crate) caller: &'r Caller,
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: &'r [u8],
    /// The agent that answers.
    pub(crate) agent: &'r str,
    /// What the client sends along.
    pub(crate) context: ClientContext,
    pub(crate) conversation: Conversation,
}

/// The reply, or the part of it, that answers a request.
pub(crate) struct ReplyPart {
    pub(crate) session: Arc<Session>,
    pub(crate) reply_id: String,
    pub(crate) begin: ReplyPosition,
    /// Whether the request is a repeated one.
    pub(crate) replayed: bool,
    /// Notes whether the client receives all of it.
    pub(crate) delivery: Delivery,
}

impl ClientTurn<'_> {
    /// Stores what is new, in the session that the client names, or in the one that its history belongs to.
    pub(crate) async fn submit(&self) -> ApiResult<ReplyPart> {
        let Self { app, caller, headers, agent, .. } = self;
        require_known_agent(app, agent)?;
        client_context::check_client_context(app, caller.tenant(), &self.context).await?;
        let key_session = read_header(headers)?.map(|key| format!("once-{}", self.request_id(key)));
        let name = session_in_header(headers)?;
        if let Some(name) = name.or(key_session.as_deref())
            && let Some(session) = app.log.open_session(&caller.session_key(name)?).await?
        {
            return self.submit_to_named(require_agent(session, agent)?).await;
        }
        if name.is_some() {
            if !self.conversation.has_user_message() {
                return Err(turnwire_log::Error::NoSession.into());
            }
            return self.start(name).await;
        }
        for _ in 0..MAX_ATTEMPTS {
            match self.submit_to_recognized(key_session.as_deref()).await {
                // Another request was faster: search again.
                Err(error) if is_outdated(&error) => {}
                done => return done,
            }
        }
        self.start(key_session.as_deref()).await
    }

    /// An id that is the same for each repetition of a request, by holder, path and key.
    pub(crate) fn request_id(&self, key: &str) -> String {
        derived_id(self.caller, [self.uri.path().as_bytes(), key.as_bytes()])
    }

    /// Submits to the session that the client named.
    pub(crate) async fn submit_to_named(&self, session: Arc<Session>) -> ApiResult<ReplyPart> {
        let snapshot = session.snapshot().await?;
        let is_new = snapshot.head.is_empty();
        let change = self.conversation.continue_from(is_new, snapshot.state.history.as_ref());
        if is_new {
            return self.send_history(session, 0, change).await;
        }
        if self.conversation.new_results().next().is_some() {
            return self.submit_results(session, change).await;
        }
        if self.conversation.is_answered_in(self.app, session.key()).await? {
            return Err(nothing_new());
        }
        let from = self.conversation.new_from();
        self.send_history(session, from, change).await.map_err(with_session_hint)
    }

    /// Submits to the session that the client's history belongs to. `id` is the id of a new session.
    async fn submit_to_recognized(&self, id: Option<&str>) -> ApiResult<ReplyPart> {
        let Self { app, caller, .. } = self;
        match self.conversation.recognize(app, caller).await? {
            Recognized::Unknown => self.start(id).await,
            Recognized::Results { session } => {
                let session = self.open(&session).await?;
                let state = session.snapshot().await?.state.history;
                let change = self.conversation.continue_from(false, state.as_ref());
                // The client's next request has this history again.
                let change = change.or_else(|| self.conversation.change(ExpectedHistory::Anything));
                self.submit_results(session, change).await
            }
            Recognized::Continue { session, answer, new_from } => {
                let session = self.open(&session).await?;
                let change = self.conversation.change(ExpectedHistory::Answer(answer));
                let is_results = self.conversation.new_results().next().is_some();
                if is_results && new_from == self.conversation.new_from() {
                    return self.submit_results(session, change).await;
                }
                self.send_history(session, new_from, change).await
            }
            Recognized::Branch { session, at, new_from } => {
                let source = self.open(&session).await?;
                let key = new_session_key(caller, id.map(str::to_owned))?;
                match fork_log(app, source, at.into(), key, None).await {
                    Ok(fork) => {
                        self.send_history(fork, new_from, self.conversation.first_change()).await
                    }
                    // Retention has removed the events, but the client has the conversation.
                    Err(error) if error.name() == "trimmed" => self.start(id).await,
                    Err(error) => Err(error),
                }
            }
            Recognized::Resend { session, state } => {
                let session = self.open(&session).await?;
                let begin = match state.results_after {
                    Some(head) => ReplyPosition::After(head),
                    None => ReplyPosition::Start,
                };
                let after = state.results_after.unwrap_or_default();
                let delivery = app.deliveries.begin(session.key(), &state.reply_id, after);
                let reply_id = state.reply_id;
                Ok(ReplyPart { session, reply_id, begin, replayed: true, delivery })
            }
            Recognized::Cut { session, state, from, kept } => {
                let session = self.open(&session).await?;
                let new = NewMessages {
                    claimed: vec![*kept],
                    ..self.split_messages(from, self.conversation.sent())?
                };
                let change = self.conversation.change(ExpectedHistory::Input(state.input));
                let change = change.map(|change| HistoryChange {
                    superseded: vec![state.reply_id.clone()],
                    stops: Some(state.reply_id),
                    ..change
                });
                self.send(session, new, change).await
            }
            Recognized::Retry { session, state, input_count, is_lost } => {
                let session = self.open(&session).await?;
                let superseded = input_and_reply(&session, &state.reply_id, input_count).await?;
                let change = self.conversation.change(ExpectedHistory::Input(state.input));
                let stops = is_lost.then_some(state.reply_id);
                let change = change.map(|change| HistoryChange { superseded, stops, ..change });
                self.send_history(session, self.conversation.new_from(), change).await
            }
        }
    }

    async fn open(&self, key: &SessionKey) -> ApiResult<Arc<Session>> {
        let session = self.app.log.open_session(key).await?;
        session.ok_or_else(|| turnwire_log::Error::NoSession.into())
    }

    /// Starts a session that takes the whole history in.
    async fn start(&self, id: Option<&str>) -> ApiResult<ReplyPart> {
        let Self { app, caller, .. } = self;
        let mut new = self.split_messages(0, self.conversation.sent())?;
        // A session with a random id is created only after its messages are known to be valid.
        if id.is_none() {
            new.messages = links::fetch_links(app, caller.tenant(), new.messages).await?;
        }
        let key = new_session_key(caller, id.map(str::to_owned))?;
        let title = self.conversation.title();
        let session = start_session(app, key, self.agent, title).await?;
        self.send(session, new, self.conversation.first_change()).await
    }

    /// Sends the messages of the conversation from an index on.
    async fn send_history(
        &self,
        session: Arc<Session>,
        from: usize,
        change: Option<HistoryChange>,
    ) -> ApiResult<ReplyPart> {
        let mut sent = self.conversation.sent().clone();
        // Without a change the session does not have the client's history, so it may not have this answer.
        let is_last_answer = change.is_some() && from == self.conversation.new_from();
        if let Some(answer) = self.conversation.sent_answer().filter(|_| is_last_answer) {
            sent.answer = match last_reply(&session).await? {
                Some(reply) => answer.without(&reply),
                None => None,
            };
        }
        let new = self.split_messages(from, &sent)?;
        self.send(session, new, change).await
    }

    /// The messages from an index on. The last user message has the client context.
    fn split_messages(&self, from: usize, sent: &SentHistory) -> ApiResult<NewMessages> {
        let has_results = self.conversation.new_results().next().is_some();
        let mut messages = if has_results { Vec::new() } else { self.conversation.new_messages() };
        let prefill = self.conversation.prefill();
        let all = self.conversation.messages_from(from);
        let all = all.strip_suffix(prefill).unwrap_or(all);
        let count = if messages.is_empty() {
            all.len()
        } else {
            self.conversation.new_from().saturating_sub(from)
        };
        let mut claimed = to_log_messages(all.get(..count).unwrap_or_default())?;
        let users = claimed.iter_mut().chain(&mut messages);
        let mut users: Vec<&mut Msg> = users.filter(|msg| msg.role() == Role::User).collect();
        let Some(last) = users.pop() else {
            if let Some(result) = self.conversation.new_results().next() {
                return Err(unknown_call(&result.id));
            }
            return Err(nothing_new());
        };
        *last = sent.attach_to(self.context.attach_to(last.clone()));
        Ok(NewMessages { claimed, messages, prefill: to_prefill(prefill)? })
    }

    async fn send(
        &self,
        session: Arc<Session>,
        new: NewMessages,
        change: Option<HistoryChange>,
    ) -> ApiResult<ReplyPart> {
        let Self { app, caller, uri, headers, body, .. } = self;
        let key = IdempotencyKey::from_request(&session, caller, headers, uri, body)?;
        let NewMessages { claimed, messages, prefill } = new;
        let request = SendRequest {
            messages,
            claimed,
            prefill,
            idempotency_key: key,
            history: change,
            ..SendRequest::default()
        };
        let delivery = app.deliveries.prepare(session.key());
        let sent = send(app, &session, request).await?;
        let replayed = matches!(sent, SendOutcome::Replayed(_));
        let Accepted { reply_id, .. } = sent.accepted().clone();
        let reply_id = reply_id.ok_or_else(|| ApiError::internal("the message has no reply"))?;
        let delivery = delivery.begin(&reply_id, Head::EMPTY);
        Ok(ReplyPart { session, reply_id, begin: ReplyPosition::Start, replayed, delivery })
    }

    async fn submit_results(
        &self,
        session: Arc<Session>,
        change: Option<HistoryChange>,
    ) -> ApiResult<ReplyPart> {
        let results = NewResults {
            results: self.conversation.new_results().cloned().collect(),
            earlier: self.conversation.earlier_results().cloned().collect(),
            messages: self.conversation.new_messages(),
            prefill: self.conversation.prefill_after_results(),
        };
        submit_results_to(self, &results, session, change).await
    }
}

/// Messages that a session does not have yet.
struct NewMessages {
    /// Those that are only claimed.
    claimed: Vec<Msg>,
    /// Those of the user.
    messages: Vec<Msg>,
    /// The beginning of the answer.
    prefill: Option<Msg>,
}

/// The ids of a reply, of the input that it answers, and of what follows.
async fn input_and_reply(
    session: &Session,
    reply: &str,
    input_count: usize,
) -> ApiResult<Vec<String>> {
    let query = MessageQuery { limit: input_count + LOOK_BACK, ..MessageQuery::default() };
    let stored = session.list_messages(&query).await?;
    let mut current = stored.into_iter().filter(|stored| !stored.superseded).collect::<Vec<_>>();
    let at = current.iter().position(|stored| stored.id == reply).unwrap_or(current.len());
    let is_input = |stored: &StoredMessage| {
        parse_message(&stored.json).is_some_and(|msg| msg.role() == Role::User || is_prefill(&msg))
    };
    let before = current.iter().take(at).rev().take(input_count);
    let count = before.take_while(|stored| is_input(stored)).count();
    let is_open = at == current.len();
    let mut ids: Vec<String> = current.drain(at - count..).map(|stored| stored.id).collect();
    if is_open {
        ids.push(reply.to_owned());
    }
    Ok(ids)
}

/// The last reply of a session.
async fn last_reply(session: &Session) -> ApiResult<Option<Msg>> {
    let query = MessageQuery { limit: LOOK_BACK, ..MessageQuery::default() };
    let stored = session.list_messages(&query).await?;
    let current = stored.iter().rev().filter(|stored| !stored.superseded);
    let mut replies = current.filter_map(|stored| parse_message(&stored.json));
    Ok(replies.find(|msg| msg.role() == Role::Assistant))
}

fn nothing_new() -> ApiError {
    ApiError::bad_request(
        "the request has nothing new: no user message follows the last assistant message; nothing was \
         stored",
    )
    .kind("nothing_new")
    .hint("end `messages` with a user message")
}

/// Whether another request has changed the session that was found.
fn is_outdated(error: &ApiError) -> bool {
    matches!(error.name(), CONVERSATION_MOVED | "already_answered" | "busy")
}

/// Adds a hint for clients whose protocol has no sessions.
fn with_session_hint(error: ApiError) -> ApiError {
    match error.name() {
        "busy" => error.hint(format!(
            "try again when the reply has ended; or leave out the header {SESSION_HEADER} to start another \
             session"
        )),
        _ => error,
    }
}
