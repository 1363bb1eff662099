//! What is known of a session while it is used: the open replies, folded as far as the log goes, and
//! what tells a repeat.
//!
//! Nothing here waits. A change is made here first, then written; what was made and could not be
//! written is thrown away and read from the log again.

mod hints;
mod producers;

use crate::cost::Cost;
use crate::projection::{self, MessageSpan};
use crate::store::{
    Append, EventLines, Fence, IdempotencyRecord, Producer, QueuedMessage, SessionNumber,
    SessionState, SessionStatus, StoredMessage,
};
use crate::tail_cache::TailCache;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use turnwire_core::event::SubAgent;
use turnwire_core::{
    Error, ErrorKind, Event, EventIds, EventKind, ModelCalls, Msg, Seq, ToolCall, ToolCallState,
};

/// A reply that has not ended.
#[derive(Debug, Clone)]
pub struct OpenReply {
    pub(crate) msg: Msg,
    pub(crate) ids: EventIds,
    pub(crate) first: Seq,
    pub(crate) agent: Option<Box<SubAgent>>,
    pub(crate) of_sub_agent: bool,
    /// The calls that wait, and since when.
    pub(crate) waiting: Vec<(String, String)>,
    pub(crate) calls: ModelCalls,
    /// What its model calls cost, as far as that is known.
    pub(crate) cost: Option<Cost>,
}

impl OpenReply {
    fn new(event: &Event<'_>, first: Seq) -> Self {
        Self {
            msg: Msg::reply(&*event.reply_id, ""),
            ids: EventIds::default(),
            first,
            agent: event.agent.clone(),
            of_sub_agent: event.is_from_sub_agent(),
            waiting: Vec::new(),
            calls: ModelCalls::default(),
            cost: None,
        }
    }

    /// What its model calls cost so far, where that is known.
    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// How far its model calls have come.
    pub fn model_calls(&self) -> &ModelCalls {
        &self.calls
    }

    /// The message as far as it goes.
    pub fn msg(&self) -> &Msg {
        &self.msg
    }

    /// The place of its first event.
    pub fn first_seq(&self) -> Seq {
        self.first
    }

    /// Whether a sub-agent writes it.
    pub fn is_of_sub_agent(&self) -> bool {
        self.of_sub_agent
    }

    /// Which agent writes it, as its first event says.
    pub fn agent(&self) -> Option<&SubAgent> {
        self.agent.as_deref()
    }

    /// The calls that wait, and since when each of them.
    pub fn waiting_calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.waiting.iter().map(|(call, since)| (call.as_str(), since.as_str()))
    }

    /// What it waits for; `None` when it does not.
    pub fn pending_calls(&self) -> Option<PendingCalls> {
        let since = self.waiting.first()?.1.clone();
        let of_state = |state: &ToolCallState| -> Vec<ToolCall> {
            let calls = self.msg.blocks::<ToolCall>();
            calls.filter(|call| call.state == *state).cloned().collect()
        };
        Some(PendingCalls {
            reply_id: self.msg.id().to_owned(),
            agent_path: self.agent.as_ref().and_then(|agent| agent.agent_path.clone()),
            confirm: of_state(&ToolCallState::Asking),
            external: of_state(&ToolCallState::Submitted),
            since,
        })
    }

    /// Notes which calls wait, and what the model took, after an event that may have changed it.
    fn update_waiting(&mut self, event: &Event<'_>) {
        self.calls.observe(event);
        if let Some(cost) = Cost::from_event(event) {
            self.cost = Some(self.cost.unwrap_or_default().plus(cost));
        }
        let waits = |msg: &Msg, id: &str| {
            msg.blocks::<ToolCall>().any(|call| {
                call.id == id
                    && matches!(call.state, ToolCallState::Asking | ToolCallState::Submitted)
            })
        };
        match &event.kind {
            EventKind::RequireUserConfirm(ask) => {
                self.add_waiting(&ask.tool_calls, &event.created_at);
            }
            EventKind::RequireExternalExecution(ask) => {
                self.add_waiting(&ask.tool_calls, &event.created_at);
            }
            EventKind::UserConfirmResult(_)
            | EventKind::ExternalExecutionResult(_)
            | EventKind::ToolResultStart(_)
            | EventKind::ToolResultEnd(_)
            | EventKind::ModelCallEnd(_)
                if !self.waiting.is_empty() =>
            {
                let msg = &self.msg;
                self.waiting.retain(|(id, _)| waits(msg, id));
            }
            _ => {}
        }
    }

    fn add_waiting(&mut self, calls: &[ToolCall], since: &str) {
        for call in self.msg.blocks::<ToolCall>() {
            let waits = matches!(call.state, ToolCallState::Asking | ToolCallState::Submitted);
            let asked = calls.iter().any(|asked| asked.id == call.id);
            if waits && asked && self.waiting.iter().all(|(id, _)| *id != call.id) {
                self.waiting.push((call.id.clone(), since.to_owned()));
            }
        }
    }
}

/// What a reply waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCalls {
    /// Which reply.
    pub reply_id: String,
    /// Whose, where it is a sub-agent's.
    pub agent_path: Option<String>,
    /// Calls that a person has to allow.
    pub confirm: Vec<ToolCall>,
    /// Calls that somebody outside executes.
    pub external: Vec<ToolCall>,
    /// When the first of them was asked.
    pub since: String,
}

/// What is known of a message that is finished.
#[derive(Debug, Clone)]
pub(crate) enum FinishedMessage {
    /// A reply, and the ids of its events.
    Reply(EventIds),
    /// It came whole, with this event.
    Whole(String),
}

/// How many finished messages are remembered here; the others are looked up.
const MAX_FINISHED: usize = 256;
/// How many ids of events that belong to no reply are remembered, at least.
const MAX_OTHER_IDS: usize = 1 << 15;
/// How many replies of one session may be open at the same time.
const OPEN: usize = 1024;
/// How many answered requests are remembered until they can be found in the store.
const MAX_ANSWERED: usize = 256;

#[derive(Debug)]
pub(crate) struct LoadedSession {
    pub number: SessionNumber,
    pub fence: Fence,
    pub first: Seq,
    /// The last place that was given away, durable or not.
    pub last: u64,
    pub state: SessionState,
    pub replies: Vec<OpenReply>,
    pub finished: HashMap<String, FinishedMessage>,
    finished_order: VecDeque<String>,
    /// Every finished message is in `finished`.
    pub knows_all_finished: bool,
    /// Ids of events that belong to no reply: those of now, and those of before.
    other_ids: [EventIds; 2],
    answered: VecDeque<IdempotencyRecord>,
    pub queue: VecDeque<QueuedMessage>,
    pub tail: TailCache,
}

impl LoadedSession {
    pub fn new(
        no: SessionNumber,
        fence: Fence,
        first: Seq,
        last: u64,
        state: SessionState,
    ) -> Self {
        Self {
            number: no,
            fence,
            first,
            last,
            state,
            replies: Vec::new(),
            finished: HashMap::new(),
            finished_order: VecDeque::new(),
            knows_all_finished: last == 0,
            other_ids: Default::default(),
            answered: VecDeque::new(),
            queue: VecDeque::new(),
            tail: TailCache::default(),
        }
    }

    /// Whether nothing has to be looked up to tell what this message or reply is.
    pub fn is_known(&self, id: &str) -> bool {
        self.knows_all_finished || self.reply(id).is_some() || self.finished.contains_key(id)
    }

    pub fn reply(&self, id: &str) -> Option<&OpenReply> {
        self.replies.iter().find(|reply| reply.msg.id() == id)
    }

    pub fn remember(&mut self, id: String, known: FinishedMessage) {
        if self.finished.insert(id.clone(), known).is_none() {
            self.finished_order.push_back(id);
        }
        while self.finished_order.len() > MAX_FINISHED {
            if let Some(oldest) = self.finished_order.pop_front() {
                self.finished.remove(&oldest);
                self.knows_all_finished = false;
            }
        }
    }

    /// Applies an event that is in the log already.
    pub fn replay(&mut self, event: &Event<'_>, seq: Seq) {
        self.remember_hint_id(event);
        match classify(event) {
            EventClass::Message => {
                if let Some(msg) = projection::whole_message(event) {
                    self.remember(
                        msg.id().to_owned(),
                        FinishedMessage::Whole(event.id.to_string()),
                    );
                }
            }
            EventClass::Other => {
                self.insert_other_id(&event.id);
            }
            EventClass::Reply => self.replay_reply(event, seq),
        }
    }

    fn replay_reply(&mut self, event: &Event<'_>, seq: Seq) {
        // Before the first open reply only ids matter.
        if self.state.open_from.is_none_or(|open| seq < open) {
            match self.finished.get_mut(&*event.reply_id) {
                Some(FinishedMessage::Reply(ids)) => {
                    ids.insert(&event.id);
                }
                Some(FinishedMessage::Whole(_)) => {}
                None => {
                    // Only a reply that is here from its start is known.
                    if matches!(event.kind, EventKind::ReplyStart(_)) {
                        let mut ids = EventIds::default();
                        ids.insert(&event.id);
                        self.remember(event.reply_id.to_string(), FinishedMessage::Reply(ids));
                    }
                }
            }
            return;
        }
        let at = self.replies.iter().position(|reply| reply.msg.id() == event.reply_id);
        let at = at.unwrap_or_else(|| {
            self.replies.push(OpenReply::new(event, seq));
            self.replies.len() - 1
        });
        let Some(reply) = self.replies.get_mut(at) else { return };
        reply.ids.insert(&event.id);
        reply.msg.append_event_tolerant(event);
        reply.update_waiting(event);
        if reply.msg.finished_at().is_some() {
            let reply = self.replies.remove(at);
            self.remember(reply.msg.id().to_owned(), FinishedMessage::Reply(reply.ids));
        }
    }

    fn insert_other_id(&mut self, id: &str) -> bool {
        let [now, before] = &mut self.other_ids;
        if before.contains(id) {
            return false;
        }
        let new = now.insert(id);
        if now.len() >= MAX_OTHER_IDS {
            *before = std::mem::take(now);
        }
        new
    }

    /// What changes most often of the state. The rest changes with a message that ends, or is noted.
    fn listed_state(&self) -> ListedState {
        let SessionState { status, open_from, is_produced, rules, .. } = &self.state;
        (*status, *open_from, *is_produced, rules.len())
    }

    /// What the session is doing.
    fn status(&self) -> SessionStatus {
        if self.replies.is_empty() {
            SessionStatus::Idle
        } else if self.replies.iter().any(|reply| !reply.waiting.is_empty()) {
            SessionStatus::Waiting
        } else {
            SessionStatus::Running
        }
    }
}

type ListedState = (SessionStatus, Option<Seq>, bool, usize);

/// Where an event belongs.
pub(crate) enum EventClass {
    /// To a reply.
    Reply,
    /// It is a whole message.
    Message,
    /// To none.
    Other,
}

pub(crate) fn classify(event: &Event<'_>) -> EventClass {
    match &event.kind {
        EventKind::Message(_) => EventClass::Message,
        kind if kind.is_part_of_reply() && !event.reply_id.is_empty() => EventClass::Reply,
        _ => EventClass::Other,
    }
}

/// What became of an event that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// It has this place now.
    Stored(Seq),
    /// It was there already.
    Repeated,
}

/// A change of one session, made while nobody else changes it. All of it becomes durable, or none.
pub struct Transaction<'s> {
    live: &'s mut LoadedSession,
    now_ms: i64,
    first: Seq,
    lines: Vec<u8>,
    count: u32,
    messages: Vec<StoredMessage>,
    superseded: Vec<String>,
    idempotency: Option<IdempotencyRecord>,
    enqueue: Vec<QueuedMessage>,
    dequeue: Vec<String>,
    /// What a list shows of the state, as it was.
    state_before: ListedState,
    /// Whether the rest of the state was changed.
    state_changed: bool,
    message_began: bool,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(live: &'s mut LoadedSession, now_ms: i64) -> Self {
        let first = Seq::new(live.last.saturating_add(1)).unwrap_or(Seq::FIRST);
        let before = live.listed_state();
        Self {
            live,
            now_ms,
            first,
            lines: Vec::new(),
            count: 0,
            messages: Vec::new(),
            superseded: Vec::new(),
            idempotency: None,
            enqueue: Vec::new(),
            dequeue: Vec::new(),
            state_before: before,
            state_changed: false,
            message_began: false,
        }
    }

    /// What the session is doing now.
    pub fn status(&self) -> SessionStatus {
        self.live.status()
    }

    /// The replies that have not ended, in the order of their first events.
    pub fn replies(&self) -> &[OpenReply] {
        &self.live.replies
    }

    /// A reply that has not ended.
    pub fn reply(&self, id: &str) -> Option<&OpenReply> {
        self.live.reply(id)
    }

    /// Whether a message is there and finished. Only ids that the change was announced to touch
    /// are known for certain.
    pub fn is_finished(&self, id: &str) -> bool {
        self.live.finished.contains_key(id)
    }

    /// Whether an event of a reply is there. Of replies that have ended only those are known for
    /// certain that the change was announced to touch.
    pub fn has_event(&self, reply: &str, event: &str) -> bool {
        match (self.live.reply(reply), self.live.finished.get(reply)) {
            (Some(open), _) => open.ids.contains(event),
            (None, Some(FinishedMessage::Reply(ids))) => ids.contains(event),
            (None, Some(FinishedMessage::Whole(_)) | None) => false,
        }
    }

    /// The messages that wait for their turn.
    pub fn queue(&self) -> impl Iterator<Item = &QueuedMessage> {
        self.live.queue.iter()
    }

    /// Who publishes from elsewhere.
    pub fn producer(&self) -> Option<&Producer> {
        self.live.state.producer.as_ref()
    }

    /// The place of the last event, this change's included.
    pub fn last_seq(&self) -> u64 {
        self.live.last
    }

    /// Whether the replies that are open are the producer's, rather than the session's own agent's.
    pub fn is_produced(&self) -> bool {
        self.live.state.is_produced
    }

    /// A request that was answered a moment ago.
    pub fn find_answered(&self, key: &str) -> Option<&IdempotencyRecord> {
        self.live.answered.iter().find(|known| known.key == key)
    }

    /// Stores the answer to a request that is not to be done twice.
    pub fn set_idempotency_record(&mut self, record: IdempotencyRecord) {
        self.live.answered.push_back(record.clone());
        if self.live.answered.len() > MAX_ANSWERED {
            self.live.answered.pop_front();
        }
        self.idempotency = Some(record);
    }

    /// Lets a message wait for its turn.
    pub fn enqueue(&mut self, queued: QueuedMessage) {
        self.live.queue.push_back(queued.clone());
        self.enqueue.push(queued);
    }

    /// Takes a message out of those that wait.
    pub fn dequeue(&mut self, id: &str) -> Option<QueuedMessage> {
        let at = self.live.queue.iter().position(|queued| queued.id == id)?;
        self.dequeue.push(id.to_owned());
        self.live.queue.remove(at)
    }

    /// Appends an event. One that came before is not stored again; one that does not fit is refused,
    /// and changes nothing.
    ///
    /// `text` is the event's JSON, where the event was read from it: then it is stored as it is.
    pub fn push(
        &mut self,
        event: &mut Event<'_>,
        text: Option<&str>,
    ) -> Result<PushOutcome, Error> {
        if matches!(event.kind, EventKind::ReplyEnd(_)) {
            self.release_hints(&event.reply_id);
        }
        event.seq = None;
        event.seq_from = None;
        let seq = Seq::new(self.live.last.saturating_add(1)).unwrap_or(Seq::FIRST);
        let stored = match classify(event) {
            EventClass::Reply => self.push_reply(event, seq)?,
            EventClass::Message => self.push_message(event, seq)?,
            EventClass::Other => self.push_other(event)?,
        };
        event.seq = None;
        if !stored {
            return Ok(PushOutcome::Repeated);
        }
        match text.filter(|text| can_store_text(text)) {
            Some(text) => self.lines.extend_from_slice(text.trim_ascii().as_bytes()),
            None if self.lines.is_empty() => self.lines = event.to_json().into_bytes(),
            None => self.lines.extend_from_slice(event.to_json().as_bytes()),
        }
        self.lines.push(b'\n');
        self.count += 1;
        self.live.last = seq.get();
        event.seq = Some(seq);
        self.live.remember_hint_id(event);
        if matches!(event.kind, EventKind::ModelCallEnd(_)) {
            self.release_hints(&event.reply_id);
        }
        Ok(PushOutcome::Stored(seq))
    }

    fn push_reply(&mut self, event: &mut Event<'_>, seq: Seq) -> Result<bool, Error> {
        let live = &mut *self.live;
        let mut fresh = None;
        let at = live.replies.iter().position(|reply| reply.msg.id() == event.reply_id);
        let reply = match at.and_then(|at| live.replies.get_mut(at)) {
            Some(reply) => reply,
            None => match live.finished.get(&*event.reply_id) {
                Some(FinishedMessage::Reply(ids)) => return check_repeat(ids, event),
                Some(FinishedMessage::Whole(_)) => return Err(duplicate_message(&event.reply_id)),
                None if live.replies.len() >= OPEN => return Err(too_many_open_replies()),
                None => fresh.insert(OpenReply::new(event, seq)),
            },
        };
        if !reply.ids.insert(&event.id) {
            return Ok(false);
        }
        event.seq = Some(seq);
        if let Err(error) = reply.msg.append_event(event) {
            reply.ids.remove(&event.id);
            return Err(error);
        }
        reply.update_waiting(event);
        live.state.accept_rules(event);
        let has_ended = reply.msg.finished_at().is_some();
        let at = match fresh {
            Some(reply) => {
                self.message_began = true;
                // Few sessions have more than one, and each is large.
                live.replies.reserve_exact(1);
                live.replies.push(reply);
                live.replies.len() - 1
            }
            None => at.unwrap_or_default(),
        };
        if has_ended && at < live.replies.len() {
            let reply = live.replies.remove(at);
            live.state.add_reply_usage(&reply);
            let place = MessageSpan {
                first: Some(reply.first),
                last: Some(seq),
                event_id: String::new(),
                of_sub_agent: reply.of_sub_agent,
            };
            self.messages.push(projection::to_stored_message(&reply.msg, place));
            live.remember(reply.msg.id().to_owned(), FinishedMessage::Reply(reply.ids));
        }
        Ok(true)
    }

    fn push_message(&mut self, event: &Event<'_>, seq: Seq) -> Result<bool, Error> {
        let mut event_with_seq = event.clone();
        event_with_seq.seq = Some(seq);
        let Some(msg) = projection::whole_message(&event_with_seq) else {
            let message = "the message cannot be given an id";
            return Err(Error::new(ErrorKind::NotAMessage, message));
        };
        let live = &mut *self.live;
        if live.reply(msg.id()).is_some() {
            return Err(duplicate_message(msg.id()));
        }
        match live.finished.get(msg.id()) {
            Some(FinishedMessage::Whole(id)) if !id.is_empty() && *id == event.id => {
                return Ok(false);
            }
            Some(_) => return Err(duplicate_message(msg.id())),
            None => {}
        }
        let place = MessageSpan {
            first: Some(seq),
            last: Some(seq),
            event_id: event.id.to_string(),
            of_sub_agent: event.is_from_sub_agent(),
        };
        self.messages.push(projection::to_stored_message(&msg, place));
        live.remember(msg.id().to_owned(), FinishedMessage::Whole(event.id.to_string()));
        self.message_began = true;
        Ok(true)
    }

    fn push_other(&mut self, event: &Event<'_>) -> Result<bool, Error> {
        if matches!(event.kind, EventKind::Reset(_)) {
            let message = "RESET tells a client to start over; it is never stored";
            return Err(Error::new(ErrorKind::NotAnEvent, message));
        }
        if !self.live.insert_other_id(&event.id) {
            return Ok(false);
        }
        if let EventKind::Supersede(supersede) = &event.kind {
            self.superseded.extend(supersede.message_ids.iter().cloned());
        }
        Ok(true)
    }

    /// Whether anything was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
            && self.idempotency.is_none()
            && self.enqueue.is_empty()
            && self.dequeue.is_empty()
            && !self.state_changed
            && self.state_before == self.live.listed_state()
    }

    /// How many events were stored.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// What is to be written.
    pub(crate) fn into_append(self) -> Append {
        let Self { live, count, .. } = self;
        live.state.status = live.status();
        live.state.open_from = live.replies.first().map(|reply| reply.first);
        live.state.is_produced &= !live.replies.is_empty();
        let lines = (count > 0).then(|| EventLines {
            first: self.first,
            count,
            bytes: into_exact_bytes(self.lines),
        });
        if let Some(lines) = &lines {
            live.tail.push(lines.clone());
        }
        let changed = self.message_began
            || self.state_changed
            || !self.messages.is_empty()
            || live.listed_state() != self.state_before;
        Append {
            session: live.number,
            fence: live.fence,
            lines,
            now_ms: self.now_ms,
            messages: self.messages,
            superseded: self.superseded,
            state: changed.then(|| live.state.clone()),
            idempotency: self.idempotency,
            enqueue: self.enqueue,
            dequeue: self.dequeue,
        }
    }
}

/// Bytes that are kept for a while take no more room than they need.
fn into_exact_bytes(bytes: Vec<u8>) -> Bytes {
    bytes.into_boxed_slice().into()
}

/// Whether the text can be stored as it is: on one line, and without a place of its own.
fn can_store_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr2(b'\n', b'\r', text.trim_ascii().as_bytes()).is_none()
        && memchr::memmem::find(bytes, b"\"seq").is_none()
}

/// An event of a reply that has ended: a repeat, or too late.
fn check_repeat(ids: &EventIds, event: &Event<'_>) -> Result<bool, Error> {
    if !ids.contains(&event.id) {
        let message = format!(
            "{} comes after the end of reply {}; a reply that has ended takes nothing more",
            event.kind.type_name(),
            event.reply_id
        );
        return Err(Error::new(ErrorKind::AlreadyEnded, message));
    }
    Ok(false)
}

fn duplicate_message(id: &str) -> Error {
    let message = format!("{id} is the id of a message that is there already");
    Error::new(ErrorKind::DuplicateMessage, message)
}

#[cold]
fn too_many_open_replies() -> Error {
    let message = format!("{OPEN} replies of this session are open; end some of them first");
    Error::new(ErrorKind::WrongReply, message)
}
