//! A message comes in, and a reply starts.

use super::EXTERNAL;
use super::journal::filled;
use super::offers;
use super::once::Once;
use crate::app::App;
use crate::auth::is_id;
use crate::blobs;
use crate::error::{ApiError, ApiResult};
use crate::links;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_core::event::{Message, ReplyStart};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{ContentBlock, Event, Msg, Role};
use turnwire_log::store::{QueuedMessage, SessionStatus};
use turnwire_log::{PushOutcome, Session, Transaction};

/// How many messages of one session may wait for their turn.
const QUEUE: usize = 64;

/// What becomes of a message while a reply is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfBusy {
    /// It is refused.
    #[default]
    Refuse,
    /// It waits for its turn.
    Queue,
}

/// What a client is told about a message that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The message.
    pub message_id: String,
    /// The reply that answers it, where an agent here does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<String>,
    /// Whoever watches from here misses nothing of the reply.
    pub last_event_id: String,
    /// It waits for its turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
}

/// What came of a request to start something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It was done.
    Now(Accepted),
    /// It was done before, and so was answered.
    Before(Accepted),
}

impl Sent {
    /// What the client is told.
    pub fn accepted(&self) -> &Accepted {
        match self {
            Self::Now(accepted) | Self::Before(accepted) => accepted,
        }
    }
}

/// What somebody says to an agent.
#[derive(Debug, Default)]
pub struct Say<'a> {
    /// Messages of the user's, oldest first. The last of them is answered.
    pub messages: Vec<Msg>,
    /// What belongs to the turn and comes before the reply, such as what became of files.
    pub events: Vec<Event<'static>>,
    /// What becomes of it while a reply is open.
    pub if_busy: IfBusy,
    /// The id of the reply, where somebody was told it already.
    pub reply_id: Option<String>,
    /// What the client calls its request.
    pub once: Option<&'a Once>,
    /// The holder of the credentials, where results without a named session may follow.
    pub asked_by: Option<&'a str>,
}

/// Takes a user's message. It is durable when this returns, and the reply that it starts goes on
/// whether or not anybody is there to see it.
pub async fn send(
    app: &Arc<App>,
    session: &Arc<Session>,
    msg: Msg,
    if_busy: IfBusy,
    once: Option<&Once>,
) -> ApiResult<Sent> {
    say(app, session, Say { messages: vec![msg], if_busy, once, ..Say::default() }).await
}

/// Takes what somebody says: all of it, or nothing.
pub async fn say(app: &Arc<App>, session: &Arc<Session>, say: Say<'_>) -> ApiResult<Sent> {
    let Say { messages, events, if_busy, reply_id, once, asked_by } = say;
    if let Some(once) = once
        && let Some(answer) = once.answered(&app.log).await?
    {
        return Ok(Sent::Before(answer));
    }
    let mut messages = messages.into_iter().map(checked).collect::<ApiResult<Vec<Msg>>>()?;
    offers::set_asked_by(&mut messages, asked_by);
    offers::check_last(app, &session.key().tenant, &messages).await?;
    let is_one = messages.len() == 1 && events.is_empty();
    let door = Door { app, session, once, if_busy, is_one };
    if messages.iter().any(|msg| brings(app, msg)) {
        let ids: Vec<&str> = messages.iter().map(Msg::id).filter(|id| !id.is_empty()).collect();
        if let Way::Before(answer) = door.way_in(&ids).await? {
            return Ok(Sent::Before(answer));
        }
    }
    let messages = links::take_in(app, &session.key().tenant, messages).await?;
    let mut taken = Vec::with_capacity(messages.len());
    for msg in messages {
        taken.push(Taken::new(app, session, msg).await?);
    }
    let last = taken.pop().ok_or_else(|| ApiError::unprocessable("there is nothing to answer"))?;
    let earlier = taken;
    let ids: Vec<&str> = earlier.iter().chain([&last]).map(|taken| taken.id.as_str()).collect();
    let incoming = Incoming { app, session, earlier: &earlier, last: &last, events, reply_id };
    let (sent, _) = session
        .transact(&ids, |tx| {
            let accepted = match door.way(tx, &ids)? {
                Way::Before(answer) => return Ok(Sent::Before(answer)),
                Way::Log => incoming.only_log(tx)?,
                Way::Answer => incoming.answer(tx)?,
                Way::Wait => incoming.wait(tx),
            };
            if let Some(once) = once {
                once.keep(tx, &accepted)?;
            }
            Ok::<_, ApiError>(Sent::Now(accepted))
        })
        .await?;
    Ok(sent)
}

/// A message that may be logged: one that was checked, and whose links were taken in.
pub(super) struct Taken {
    pub(super) id: String,
    json: Bytes,
    event: Event<'static>,
}

impl Taken {
    pub(super) async fn new(app: &Arc<App>, session: &Session, msg: Msg) -> ApiResult<Self> {
        let msg = blobs::offload(app, &session.key().tenant, msg).await?.stamped(&SystemStamp);
        let (id, json) = (msg.id().to_owned(), msg.to_json());
        if json.len() > app.config.limits.event.bytes() {
            return Err(ApiError::too_large("this message is larger than an event may be")
                .hint("store large parts with POST /v1/blobs, and refer to their URL"));
        }
        let event = filled(Event::new("", Message { message: Box::new(msg) }), session);
        Ok(Self { id, json: json.into(), event })
    }

    /// Appends the message, and says where it stands.
    pub(super) fn log(&self, tx: &mut Transaction<'_>) -> ApiResult<u64> {
        match tx.push(&mut self.event.clone(), None) {
            Ok(PushOutcome::Stored(seq)) => Ok(seq.get()),
            Ok(PushOutcome::Repeated) => Err(taken(&self.id)),
            Err(why) => Err(refused(why)),
        }
    }
}

/// Whether something is stored for a message before it is logged.
pub(super) fn brings(app: &App, msg: &Msg) -> bool {
    links::are_in(&app.config, msg) || blobs::are_large(msg)
}

/// What becomes of messages that come now.
enum Way {
    /// Their request was answered before.
    Before(Accepted),
    /// They are logged; somebody elsewhere answers.
    Log,
    /// They are logged, and a reply starts.
    Answer,
    /// They wait for their turn.
    Wait,
}

/// Decides what becomes of messages, and which are refused.
struct Door<'a> {
    app: &'a App,
    session: &'a Arc<Session>,
    once: Option<&'a Once>,
    if_busy: IfBusy,
    /// One message is one turn: more than one cannot wait together.
    is_one: bool,
}

impl Door<'_> {
    /// What would become of messages, before anything is brought in for them: of what is refused
    /// nothing is to stay behind. Whether they are taken is decided in the change that logs them.
    async fn way_in(&self, ids: &[&str]) -> ApiResult<Way> {
        let (way, _) = self.session.transact(ids, |tx| self.way(tx, ids)).await?;
        Ok(way)
    }

    fn way(&self, tx: &Transaction<'_>, ids: &[&str]) -> ApiResult<Way> {
        if let Some(once) = self.once
            && let Some(answer) = once.just_answered(tx)?
        {
            return Ok(Way::Before(answer));
        }
        let is_queued = |id: &str| tx.queue().any(|queued| queued.id == id);
        let is_known = |id: &str| is_queued(id) || tx.is_finished(id) || tx.reply(id).is_some();
        if let Some(id) = ids.iter().find(|id| is_known(id)) {
            return Err(taken(id));
        }
        if self.session.agent() == EXTERNAL {
            return Ok(Way::Log);
        }
        agent_of(self.app, self.session)?;
        if tx.replies().is_empty() && tx.queue().next().is_none() {
            return Ok(Way::Answer);
        }
        if self.if_busy == IfBusy::Refuse || !self.is_one {
            return Err(busy(tx.status()));
        }
        if tx.queue().count() >= QUEUE {
            return Err(ApiError::too_many(format!(
                "{QUEUE} messages wait for their turn already"
            ))
            .hint("wait until some of them were answered, or cancel some"));
        }
        Ok(Way::Wait)
    }
}

/// An error where a message would be refused anyway, before anything is brought in for it.
pub(crate) async fn is_free(app: &App, session: &Arc<Session>, msg: &Msg) -> ApiResult<()> {
    let door = Door { app, session, once: None, if_busy: IfBusy::Refuse, is_one: true };
    let id = Some(msg.id()).filter(|id| !id.is_empty());
    door.way_in(id.as_slice()).await.map(drop)
}

/// What is on its way in.
struct Incoming<'m> {
    app: &'m App,
    session: &'m Arc<Session>,
    earlier: &'m [Taken],
    last: &'m Taken,
    events: Vec<Event<'static>>,
    reply_id: Option<String>,
}

impl Incoming<'_> {
    fn only_log(&self, tx: &mut Transaction<'_>) -> ApiResult<Accepted> {
        let place = self.log(tx)?;
        Ok(self.accepted(None, place))
    }

    fn answer(&self, tx: &mut Transaction<'_>) -> ApiResult<Accepted> {
        let place = self.log(tx)?;
        let reply_id = self.reply_id();
        start(tx, self.session, &reply_id).map_err(refused)?;
        self.app.turns.wake(self.session);
        Ok(self.accepted(Some(reply_id), place))
    }

    fn wait(&self, tx: &mut Transaction<'_>) -> Accepted {
        let (id, json, reply_id) = (self.last.id.clone(), self.last.json.clone(), self.reply_id());
        tx.enqueue(QueuedMessage { id, reply_id: reply_id.clone(), json });
        self.app.turns.wake(self.session);
        Accepted { queued: true, ..self.accepted(Some(reply_id), tx.last_seq()) }
    }

    fn reply_id(&self) -> String {
        self.reply_id.clone().unwrap_or_else(|| SystemStamp.id())
    }

    /// Appends everything, and says where the last message stands.
    fn log(&self, tx: &mut Transaction<'_>) -> ApiResult<u64> {
        for earlier in self.earlier {
            earlier.log(tx)?;
        }
        let place = self.last.log(tx)?;
        for event in &self.events {
            tx.push(&mut filled(event.clone(), self.session), None).map_err(refused)?;
        }
        Ok(place)
    }

    fn accepted(&self, reply_id: Option<String>, place: u64) -> Accepted {
        Accepted {
            message_id: self.last.id.clone(),
            reply_id,
            last_event_id: self.session.resume_token(place),
            queued: false,
        }
    }
}

/// Starts a reply of the session's agent. It is open from here on, so nothing else starts, and a
/// crash before the agent's first word is made up for by whoever finds it open.
pub(super) fn start(
    tx: &mut Transaction<'_>,
    session: &Session,
    reply_id: &str,
) -> Result<(), turnwire_core::Error> {
    let start = ReplyStart { name: session.agent().to_owned(), ..ReplyStart::default() };
    let event = Event::new(reply_id.to_owned(), start);
    tx.push(&mut filled(event, session), None).map(drop)
}

/// An error unless the session's agent runs here.
pub(super) fn agent_of(app: &App, session: &Session) -> ApiResult<()> {
    if app.agents.contains_key(session.agent()) {
        return Ok(());
    }
    Err(no_agent(session.agent()))
}

pub(super) fn no_agent(name: &str) -> ApiError {
    ApiError::conflict(format!("the agent {name} is not there any more"))
        .kind("no_agent")
        .hint("GET /v1/agents lists those that are; the operator configures them")
}

/// Whether the message is one that a client may write.
pub(crate) fn checked(msg: Msg) -> ApiResult<Msg> {
    if msg.role() != Role::User {
        return Err(ApiError::unprocessable(format!(
            "a message of the role {} cannot be sent; only a user's",
            msg.role()
        ))
        .kind("wrong_role")
        .hint("an agent elsewhere publishes its replies with POST /v1/sessions/{s}/events"));
    }
    let says_nothing = |block: &ContentBlock| matches!(block, ContentBlock::Text(block) if block.text.trim().is_empty());
    if msg.content().iter().all(says_nothing) {
        return Err(ApiError::unprocessable("the message says nothing: `content` is empty")
            .hint("it is to have text, or a file"));
    }
    if !msg.id().is_empty() && !is_id(msg.id()) {
        return Err(ApiError::unprocessable(
            "this is no id of a message: 1 to 128 of A-Z a-z 0-9 . _ : -",
        )
        .hint("leave it out, and the message gets one"));
    }
    if !msg.name().is_empty() {
        return Ok(msg);
    }
    Ok(msg.with_name("user"))
}

fn taken(id: &str) -> ApiError {
    ApiError::conflict(format!("there is a message {id} already; nothing was stored"))
        .kind("message_exists")
        .hint("leave the id out; an Idempotency-Key makes it safe to send a message again")
}

fn refused(why: turnwire_core::Error) -> ApiError {
    turnwire_log::Error::Refused { at: 0, why }.into()
}

/// Why nothing new starts now.
pub(super) fn busy(status: SessionStatus) -> ApiError {
    let what = match status {
        SessionStatus::Idle => "messages wait for their turn",
        SessionStatus::Running => "a reply runs",
        SessionStatus::Waiting => "a reply waits for an answer",
    };
    ApiError::conflict(format!("{what}; nothing was stored"))
        .kind("busy")
        .hint("send it with ?queue=true to let it wait; or answer or stop the reply first")
}
