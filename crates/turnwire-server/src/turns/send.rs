//! Takes messages and starts replies. Called by the HTTP route, the WebSocket and the protocols.

use super::client_context;
use super::end_replies::end_own_replies;
use super::idempotency::IdempotencyKey;
use super::journal::stamp_event;
use super::{EXTERNAL, own_reply};
use crate::app::App;
use crate::auth::is_valid_id;
use crate::blobs;
use crate::cluster::operation::{OwnerOperation, run_at_owner, take_ownership};
use crate::error::{ApiError, ApiResult};
use crate::links;
use crate::stream::parse_message;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_core::event::{Message, ReplyStart, Supersede};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, FinishedReason, Head, Msg, Role, Seq};
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::store::{QueuedMessage, SessionStatus};
use turnwire_log::{HistoryInput, OpenReply, PushOutcome, Session, Transaction};

/// How many messages of one session may be queued.
const MAX_QUEUED: usize = 64;

/// What to do with a message while a reply is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfBusy {
    /// Refuse it.
    #[default]
    Refuse,
    /// Queue it.
    Queue,
}

/// The response to a message that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Accepted {
    /// The message.
    pub message_id: String,
    /// The reply that answers it, if an agent of this process does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<String>,
    /// A client that subscribes from here misses nothing of the reply.
    pub last_event_id: String,
    /// It is queued.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
}

/// The result of a request that starts a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendOutcome {
    /// It was done now.
    New(Accepted),
    /// It was done before; this is the stored response.
    Replayed(Accepted),
}

impl SendOutcome {
    /// The response.
    pub fn accepted(&self) -> &Accepted {
        match self {
            Self::New(accepted) | Self::Replayed(accepted) => accepted,
        }
    }
}

/// Messages for an agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SendRequest {
    /// Messages of the user, oldest first. The last one is answered.
    pub messages: Vec<Msg>,
    /// Events that belong to the turn and come before the reply, such as the state of files.
    pub events: Vec<Event<'static>>,
    /// What to do while a reply is open.
    pub if_busy: IfBusy,
    /// The id of the reply, if a client knows it already.
    pub reply_id: Option<String>,
    /// The idempotency key of the request.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Messages that the client says were part of the conversation before, oldest first. They come before
    /// `messages`, and may be of any role; without `messages` the last one is answered.
    pub claimed: Vec<Msg>,
    /// The beginning of the answer, if the client gives it.
    pub prefill: Option<Msg>,
    /// The conversation as the client knows it, if it keeps its own history.
    pub history: Option<HistoryChange>,
}

/// How a request of a client that keeps its own history changes the conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HistoryChange {
    /// The new input.
    pub input: HistoryInput,
    /// What the session must be at. Otherwise nothing is stored, and the error has the type
    /// `CONVERSATION_MOVED`.
    pub expected: ExpectedHistory,
    /// The ids of messages that the input supersedes.
    pub superseded: Vec<String>,
    /// Whether to mark the input, too: no earlier state of the conversation leads to the session.
    pub is_first: bool,
    /// The open reply that the input stops.
    pub stops: Option<String>,
}

/// What a session must be at.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum ExpectedHistory {
    /// Anything: the session is new, or the client named it.
    Anything,
    /// This answer.
    Answer(HistoryDigest),
    /// An answer to this input.
    Input(HistoryDigest),
}

/// The error type if the conversation has gone on meanwhile.
pub(crate) const CONVERSATION_MOVED: &str = "conversation_moved";

impl HistoryChange {
    /// An error unless the session is at what was expected.
    pub(crate) fn check(&self, tx: &Transaction<'_>) -> ApiResult<()> {
        let history = tx.history();
        let is_there = match self.expected {
            ExpectedHistory::Anything => true,
            ExpectedHistory::Answer(answer) => {
                history.is_some_and(|history| history.answer == Some(answer))
            }
            ExpectedHistory::Input(input) => history.is_some_and(|history| history.input == input),
        };
        if is_there {
            return Ok(());
        }
        Err(ApiError::conflict(
            "another request has continued this conversation; nothing was stored",
        )
        .kind(CONVERSATION_MOVED)
        .hint("send the request again"))
    }

    /// Notes the input in the session.
    pub(crate) fn apply(&self, tx: &mut Transaction<'_>) {
        let mut input = self.input.clone();
        if input.results_after.is_some() && input.prefill.is_some() {
            // The answer begins behind the beginning that the client gave.
            input.results_after = Some(tx.head());
        }
        tx.set_history(input);
        if self.is_first {
            tx.mark_input();
        }
    }
}

/// Takes a user's message. It is durable when this returns, and the reply continues whether or not
/// a client is connected.
pub async fn send(
    app: &Arc<App>,
    session: &Arc<Session>,
    msg: Msg,
    if_busy: IfBusy,
    idempotency_key: Option<&IdempotencyKey>,
) -> ApiResult<SendOutcome> {
    let idempotency_key = idempotency_key.cloned();
    let request =
        SendRequest { messages: vec![msg], if_busy, idempotency_key, ..SendRequest::default() };
    send_all(app, session, request).await
}

/// Takes messages: all, or none.
pub async fn send_all(
    app: &Arc<App>,
    session: &Arc<Session>,
    request: SendRequest,
) -> ApiResult<SendOutcome> {
    run_at_owner(app, session, request).await
}

impl OwnerOperation for SendRequest {
    const NAME: &'static str = "send";
    type Output = SendOutcome;

    async fn run(self, app: &Arc<App>, session: &Arc<Session>) -> ApiResult<SendOutcome> {
        send_here(app, session, self).await
    }

    fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some()
    }
}

async fn send_here(
    app: &Arc<App>,
    session: &Arc<Session>,
    request: SendRequest,
) -> ApiResult<SendOutcome> {
    let SendRequest {
        messages,
        events,
        if_busy,
        reply_id,
        idempotency_key,
        claimed,
        prefill,
        history,
    } = request;
    let idempotency_key = idempotency_key.as_ref();
    if let Some(idempotency_key) = idempotency_key
        && let Some(answer) = idempotency_key.find_response(&app.log).await?
    {
        return Ok(SendOutcome::Replayed(answer));
    }
    let mut checked = claimed;
    for msg in messages {
        checked.push(check_message(msg)?);
    }
    checked.extend(prefill);
    let mut messages = checked;
    client_context::note_ignored_options(app, session.agent(), &mut messages)?;
    client_context::check_last_message(app, &session.key().tenant, &messages).await?;
    let is_one = messages.len() == 1 && events.is_empty();
    let history = history.as_ref();
    let admission = Admission { app, session, idempotency_key, if_busy, is_one, history };
    if messages.iter().any(|msg| has_content_to_store(app, msg)) {
        let ids: Vec<&str> = messages.iter().map(Msg::id).filter(|id| !id.is_empty()).collect();
        if let Decision::Replay(answer) = admission.decide_early(&ids).await? {
            return Ok(SendOutcome::Replayed(answer));
        }
    }
    let messages = links::fetch_links(app, &session.key().tenant, messages).await?;
    let mut prepared = Vec::with_capacity(messages.len());
    for msg in messages {
        prepared.push(PreparedMessage::new(app, session, msg).await?);
    }
    let last =
        prepared.pop().ok_or_else(|| ApiError::unprocessable("there is no message to answer"))?;
    let earlier = prepared;
    let ids = own_ids(earlier.iter().chain([&last]));
    let incoming =
        PendingSend { app, session, earlier: &earlier, last: &last, events, reply_id, history };
    let (sent, _) = session
        .transact(&ids, |tx| {
            let accepted = match admission.decide(tx, &ids)? {
                Decision::Replay(answer) => return Ok(SendOutcome::Replayed(answer)),
                Decision::LogOnly => incoming.log_only(tx)?,
                Decision::StartReply => incoming.start_reply(tx)?,
                Decision::Enqueue => incoming.enqueue(tx),
            };
            if let Some(idempotency_key) = idempotency_key {
                idempotency_key.store_response(tx, &accepted)?;
            }
            Ok::<_, ApiError>(SendOutcome::New(accepted))
        })
        .await?;
    if let (Some(stopped), SendOutcome::New(_)) =
        (history.and_then(|it| it.stops.as_deref()), &sent)
    {
        app.turns.cancel_reply(session, Some(stopped));
    }
    Ok(sent)
}

/// Stores messages without a reply, and returns them as they are stored. Nothing is stored while a reply is open.
pub(crate) async fn add_messages(
    app: &Arc<App>,
    session: &Arc<Session>,
    messages: Vec<Msg>,
) -> ApiResult<Vec<Msg>> {
    take_ownership(app, session).await?;
    let messages = links::fetch_links(app, &session.key().tenant, messages).await?;
    let mut prepared = Vec::with_capacity(messages.len());
    for msg in messages {
        prepared.push(PreparedMessage::new(app, session, msg).await?);
    }
    let ids = own_ids(&prepared);
    let change = session.transact(&ids, |tx| {
        check_not_forking(tx)?;
        if !tx.replies().is_empty() || tx.queue().next().is_some() {
            return Err(busy(tx.status()));
        }
        prepared.iter().try_for_each(|prepared| prepared.append_to(tx).map(drop))
    });
    change.await?;
    Ok(prepared.iter().filter_map(|prepared| parse_message(&prepared.json)).collect())
}

/// The ids that the sender chose. No other message has an id that was made here.
fn own_ids<'m>(messages: impl IntoIterator<Item = &'m PreparedMessage>) -> Vec<&'m str> {
    let chosen = messages.into_iter().filter(|message| message.has_own_id);
    chosen.map(|message| message.id.as_str()).collect()
}

/// A message that may be logged: it was checked, and its links were fetched.
pub(super) struct PreparedMessage {
    pub(super) id: String,
    /// Whether the sender chose the id: then a message with it may exist.
    has_own_id: bool,
    json: Bytes,
    event: Event<'static>,
}

impl PreparedMessage {
    pub(super) async fn new(app: &Arc<App>, session: &Session, msg: Msg) -> ApiResult<Self> {
        let has_own_id = !msg.id().is_empty();
        let msg = blobs::offload_data(app, &session.key().tenant, msg).await?.stamped(&SystemStamp);
        let (id, json) = (msg.id().to_owned(), msg.to_json());
        if json.len() > app.config.limits.event.bytes() {
            return Err(ApiError::too_large(
                "the message is larger than the limit of an event (`limits.event`)",
            )
            .hint("store large data with POST /v1/blobs, and use the URL"));
        }
        let event = stamp_event(Event::new("", Message { message: Box::new(msg) }), session);
        Ok(Self { id, has_own_id, json: json.into(), event })
    }

    /// Appends the message, and returns its seq.
    pub(super) fn append_to(&self, tx: &mut Transaction<'_>) -> ApiResult<Seq> {
        match tx.push(&mut self.event.clone(), None) {
            Ok(PushOutcome::Stored(seq)) => Ok(seq),
            Ok(PushOutcome::Repeated) => Err(id_taken(&self.id)),
            Err(why) => Err(refused(why)),
        }
    }
}

/// Whether blobs have to be stored before the message can be logged.
pub(super) fn has_content_to_store(app: &App, msg: &Msg) -> bool {
    links::has_slow_links(&app.config, msg) || blobs::has_large_data(msg)
}

/// What to do with messages.
enum Decision {
    /// Their request was answered before.
    Replay(Accepted),
    /// Log them; a producer answers.
    LogOnly,
    /// Log them, and start a reply.
    StartReply,
    /// Queue them.
    Enqueue,
}

/// Decides what to do with messages, and which to refuse.
struct Admission<'a> {
    app: &'a App,
    session: &'a Arc<Session>,
    idempotency_key: Option<&'a IdempotencyKey>,
    if_busy: IfBusy,
    /// Only a single message can be queued.
    is_one: bool,
    history: Option<&'a HistoryChange>,
}

impl Admission<'_> {
    /// Decides before anything is stored for the messages: nothing may be left of a refused
    /// request. The final decision is made in the change that logs them.
    async fn decide_early(&self, ids: &[&str]) -> ApiResult<Decision> {
        let (decision, _) = self.session.transact(ids, |tx| self.decide(tx, ids)).await?;
        Ok(decision)
    }

    fn decide(&self, tx: &Transaction<'_>, ids: &[&str]) -> ApiResult<Decision> {
        if let Some(idempotency_key) = self.idempotency_key
            && let Some(answer) = idempotency_key.find_response_in(tx)?
        {
            return Ok(Decision::Replay(answer));
        }
        let is_queued = |id: &str| tx.queue().any(|queued| queued.id == id);
        let is_known = |id: &str| is_queued(id) || tx.is_finished(id) || tx.reply(id).is_some();
        if let Some(id) = ids.iter().find(|id| is_known(id)) {
            return Err(id_taken(id));
        }
        check_not_forking(tx)?;
        if self.session.agent() == EXTERNAL {
            return Ok(Decision::LogOnly);
        }
        check_agent_runs(self.app, self.session)?;
        if let Some(history) = self.history {
            history.check(tx)?;
        }
        let stops =
            self.history.is_some_and(|history| stopped_reply(self.session, tx, history).is_some());
        if (tx.replies().is_empty() || stops) && tx.queue().next().is_none() {
            return Ok(Decision::StartReply);
        }
        if self.if_busy == IfBusy::Refuse || !self.is_one {
            return Err(busy(tx.status()));
        }
        if tx.queue().count() >= MAX_QUEUED {
            return Err(ApiError::too_many(format!("{MAX_QUEUED} messages are queued already"))
                .hint("wait until some are answered, or remove some with DELETE"));
        }
        Ok(Decision::Enqueue)
    }
}

/// An error if a message would be refused, before anything is stored for it.
pub(crate) async fn check_not_busy(app: &App, session: &Arc<Session>, msg: &Msg) -> ApiResult<()> {
    let admission = Admission {
        app,
        session,
        idempotency_key: None,
        if_busy: IfBusy::Refuse,
        is_one: true,
        history: None,
    };
    let id = Some(msg.id()).filter(|id| !id.is_empty());
    admission.decide_early(id.as_slice()).await.map(drop)
}

/// Messages that are about to be stored.
struct PendingSend<'m> {
    app: &'m App,
    session: &'m Arc<Session>,
    earlier: &'m [PreparedMessage],
    last: &'m PreparedMessage,
    events: Vec<Event<'static>>,
    reply_id: Option<String>,
    history: Option<&'m HistoryChange>,
}

impl PendingSend<'_> {
    fn log_only(&self, tx: &mut Transaction<'_>) -> ApiResult<Accepted> {
        let seq = self.append_all(tx)?;
        Ok(self.to_accepted(None, seq.into()))
    }

    fn start_reply(&self, tx: &mut Transaction<'_>) -> ApiResult<Accepted> {
        let before = tx.head();
        if self.history.is_some_and(|history| stopped_reply(self.session, tx, history).is_some()) {
            end_own_replies(tx, self.session, &FinishedReason::Interrupted, None)
                .map_err(ApiError::internal)?;
            self.app.turns.count_stopped(self.session, 1);
        }
        let superseded = self.history.map(|history| &history.superseded);
        if let Some(superseded) = superseded.filter(|superseded| !superseded.is_empty()) {
            let supersede = Supersede { message_ids: superseded.clone() };
            let mut event = Event::new("", supersede).stamped(&SystemStamp);
            tx.push(&mut event, None).map_err(refused)?;
        }
        let only_adds = tx.head() == before;
        let seq = self.append_all(tx)?;
        let reply_id = self.reply_id();
        start_reply(tx, self.session, &reply_id).map_err(refused)?;
        if let Some(history) = self.history {
            history.apply(tx);
        }
        if only_adds {
            self.app.turns.store_input(self.session, tx, &reply_id, before);
        }
        self.app.turns.wake(self.session);
        Ok(self.to_accepted(Some(reply_id), seq.into()))
    }

    fn enqueue(&self, tx: &mut Transaction<'_>) -> Accepted {
        let (id, json, reply_id) = (self.last.id.clone(), self.last.json.clone(), self.reply_id());
        tx.enqueue(QueuedMessage { id, reply_id: reply_id.clone(), json });
        self.app.turns.wake(self.session);
        Accepted { queued: true, ..self.to_accepted(Some(reply_id), tx.head()) }
    }

    fn reply_id(&self) -> String {
        self.reply_id.clone().unwrap_or_else(|| SystemStamp.id())
    }

    /// Appends everything, and returns the seq of the last message.
    fn append_all(&self, tx: &mut Transaction<'_>) -> ApiResult<Seq> {
        for earlier in self.earlier {
            earlier.append_to(tx)?;
        }
        let seq = self.last.append_to(tx)?;
        for event in &self.events {
            tx.push(&mut stamp_event(event.clone(), self.session), None).map_err(refused)?;
        }
        Ok(seq)
    }

    fn to_accepted(&self, reply_id: Option<String>, cursor: Head) -> Accepted {
        Accepted {
            message_id: self.last.id.clone(),
            reply_id,
            last_event_id: self.session.resume_token(cursor),
            queued: false,
        }
    }
}

/// The open reply that a client's input stops. A question to a user is never taken back so.
fn stopped_reply<'t>(
    session: &Session,
    tx: &'t Transaction<'_>,
    history: &HistoryChange,
) -> Option<&'t OpenReply> {
    let mut pending = tx.replies().iter().filter_map(OpenReply::pending_calls);
    let asks = pending.any(|pending| !pending.confirm.is_empty());
    let own = own_reply(session, tx).filter(|_| !asks);
    own.filter(|own| Some(own.msg().id()) == history.stops.as_deref())
}

/// Starts a reply of the session's agent. It is open from here on: no other reply starts, and after
/// a crash the worker finds it open and continues it.
pub(super) fn start_reply(
    tx: &mut Transaction<'_>,
    session: &Session,
    reply_id: &str,
) -> Result<(), turnwire_core::Error> {
    let start = ReplyStart { name: session.agent().to_owned(), ..ReplyStart::default() };
    let event = Event::new(reply_id.to_owned(), start);
    tx.push(&mut stamp_event(event, session), None).map(drop)
}

/// An error unless the session's agent runs in this process.
pub(super) fn check_agent_runs(app: &App, session: &Session) -> ApiResult<()> {
    if app.agents.contains_key(session.agent()) {
        return Ok(());
    }
    Err(agent_missing(session.agent()))
}

pub(super) fn agent_missing(name: &str) -> ApiError {
    ApiError::conflict(format!("the agent {name} does not exist any more"))
        .kind("no_agent")
        .hint("GET /v1/agents lists the agents; the operator configures them")
}

/// Whether a message has no content but white space.
pub(crate) fn is_blank(msg: &Msg) -> bool {
    msg.is_blank()
}

/// Checks that a client may send this message.
pub(crate) fn check_message(msg: Msg) -> ApiResult<Msg> {
    if msg.role() != Role::User {
        return Err(ApiError::unprocessable(format!(
            "a message of the role {} cannot be sent; only user messages can",
            msg.role()
        ))
        .kind("wrong_role")
        .hint("an external agent publishes its replies with POST /v1/sessions/{s}/events"));
    }
    if msg.is_blank() {
        return Err(ApiError::unprocessable(
            "the message is empty: `content` has no text and no file",
        )
        .hint("add text or a file"));
    }
    if !msg.id().is_empty() && !is_valid_id(msg.id()) {
        return Err(ApiError::unprocessable(
            "invalid message id: expected 1 to 128 characters of A-Z a-z 0-9 . _ : -",
        )
        .hint("omit the id, and the message gets one"));
    }
    if !msg.name().is_empty() {
        return Ok(msg);
    }
    Ok(msg.with_name("user"))
}

fn id_taken(id: &str) -> ApiError {
    ApiError::conflict(format!("a message {id} exists already; nothing was stored"))
        .kind("message_exists")
        .hint("omit the id; an Idempotency-Key makes it safe to repeat a request")
}

fn refused(why: turnwire_core::Error) -> ApiError {
    turnwire_log::Error::Refused { at: 0, why }.into()
}

/// An error while the log of a fork is being copied.
pub(super) fn check_not_forking(tx: &Transaction<'_>) -> ApiResult<()> {
    if !tx.is_forking() {
        return Ok(());
    }
    Err(ApiError::conflict("the fork is not complete yet; nothing was stored")
        .kind("busy")
        .hint("wait for the response 201 of the fork"))
}

/// Why no reply can start now.
pub(crate) fn busy(status: SessionStatus) -> ApiError {
    let what = match status {
        SessionStatus::Idle => "messages are queued",
        SessionStatus::Running => "a reply is running",
        SessionStatus::Waiting => "a reply waits for an answer",
    };
    ApiError::conflict(format!("{what}; nothing was stored"))
        .kind("busy")
        .hint("send it with ?queue=true to queue it, or answer or stop the reply first")
}
