//! The in-memory state of an open session: its open replies, folded up to the head, and the ids
//! that identify repeats. [`Session`](crate::Session) changes it through a [`Transaction`].
//!
//! Nothing here waits. A change is made here first, then written. If the write fails, this state is
//! discarded and loaded from the store again.

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
    Error, ErrorKind, Event, EventIds, EventKind, Head, ModelCalls, Msg, Seq, ToolCall,
    ToolCallState,
};

/// A reply that has not ended.
#[derive(Debug, Clone)]
pub struct OpenReply {
    pub(crate) msg: Msg,
    pub(crate) ids: EventIds,
    pub(crate) first: Seq,
    pub(crate) agent: Option<Box<SubAgent>>,
    pub(crate) of_sub_agent: bool,
    /// The pending calls, each with the time since when it waits.
    pub(crate) waiting: Vec<(String, String)>,
    pub(crate) calls: ModelCalls,
    /// The cost of its model calls, as far as it is known.
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

    /// The cost of its model calls so far, if it is known.
    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// The state of its model calls.
    pub fn model_calls(&self) -> &ModelCalls {
        &self.calls
    }

    /// The message as folded so far.
    pub fn msg(&self) -> &Msg {
        &self.msg
    }

    /// The seq of its first event.
    pub fn first_seq(&self) -> Seq {
        self.first
    }

    /// Whether a sub-agent writes it.
    pub fn is_of_sub_agent(&self) -> bool {
        self.of_sub_agent
    }

    /// The agent that writes it, from its first event.
    pub fn agent(&self) -> Option<&SubAgent> {
        self.agent.as_deref()
    }

    /// The pending calls, each with the time since when it waits.
    pub fn waiting_calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.waiting.iter().map(|(call, since)| (call.as_str(), since.as_str()))
    }

    /// Its pending calls; `None` if it does not wait.
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

    /// Updates pending calls and cost after an event.
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

/// The pending calls of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCalls {
    /// The id of the reply.
    pub reply_id: String,
    /// The path of the sub-agent, if a sub-agent writes it.
    pub agent_path: Option<String>,
    /// Calls that wait for an approval.
    pub confirm: Vec<ToolCall>,
    /// Calls that the client or a program outside executes.
    pub external: Vec<ToolCall>,
    /// When the first of them began to wait.
    pub since: String,
}

/// What the log knows of a finished message, to recognise repeats.
#[derive(Debug, Clone)]
pub(crate) enum FinishedMessage {
    /// A reply, and the ids of its events.
    Reply(EventIds),
    /// It came as one `MESSAGE` event with this id.
    Whole(String),
}

/// How many finished messages are kept in memory; others are looked up in the store.
const MAX_FINISHED: usize = 256;
/// How many ids of events outside of replies are remembered at least.
const MAX_OTHER_IDS: usize = 1 << 15;
/// How many replies of a session may be open at the same time.
const MAX_OPEN_REPLIES: usize = 1024;
/// How many answered requests are remembered until the store can find them.
const MAX_ANSWERED: usize = 256;

#[derive(Debug)]
pub(crate) struct LoadedSession {
    pub number: SessionNumber,
    pub fence: Fence,
    pub first: Seq,
    /// The last seq that was assigned, durable or not.
    pub last: Head,
    pub state: SessionState,
    pub replies: Vec<OpenReply>,
    pub finished: HashMap<String, FinishedMessage>,
    finished_order: VecDeque<String>,
    /// Whether `finished` has every finished message of the session.
    pub knows_all_finished: bool,
    /// Ids of events outside of replies: the current set, and the one before it.
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
        last: Head,
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
            knows_all_finished: last.is_empty(),
            other_ids: Default::default(),
            answered: VecDeque::new(),
            queue: VecDeque::new(),
            tail: TailCache::default(),
        }
    }

    /// Whether this message or reply is known without a look into the store.
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

    /// Applies an event that the log already has.
    pub fn replay(&mut self, event: &Event<'_>, seq: Seq) {
        self.remember_hint_id(event);
        match classify(event) {
            EventClass::Message => {
                if let Some(msg) = event.whole_message() {
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
        // Before the first open reply only the ids matter.
        if self.state.open_from.is_none_or(|open| seq < open) {
            match self.finished.get_mut(&*event.reply_id) {
                Some(FinishedMessage::Reply(ids)) => {
                    ids.insert(&event.id);
                }
                Some(FinishedMessage::Whole(_)) => {}
                None => {
                    // Only a reply whose start is here is known completely.
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

    /// The part of the state that changes most often. The rest changes with the end of a message,
    /// or sets `state_changed`.
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

/// What an event belongs to.
pub(crate) enum EventClass {
    /// A reply.
    Reply,
    /// It is a message of its own.
    Message,
    /// Neither.
    Other,
}

pub(crate) fn classify(event: &Event<'_>) -> EventClass {
    match &event.kind {
        EventKind::Message(_) => EventClass::Message,
        kind if kind.is_part_of_reply() && !event.reply_id.is_empty() => EventClass::Reply,
        _ => EventClass::Other,
    }
}

/// What happened to a pushed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// It was stored with this seq.
    Stored(Seq),
    /// The log already has it.
    Repeated,
}

/// A change of one session, under its lock. All of it becomes durable, or nothing.
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
    /// The listed state before the change.
    state_before: ListedState,
    /// Whether other parts of the state changed.
    state_changed: bool,
    message_began: bool,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(live: &'s mut LoadedSession, now_ms: i64) -> Self {
        let first = live.last.next();
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

    /// Whether a message is finished. Only certain for ids in `touched` of
    /// [`transact`](crate::Session::transact).
    pub fn is_finished(&self, id: &str) -> bool {
        self.live.finished.contains_key(id)
    }

    /// Whether a reply has an event. For finished replies only certain for ids in `touched` of
    /// [`transact`](crate::Session::transact).
    pub fn has_event(&self, reply: &str, event: &str) -> bool {
        match (self.live.reply(reply), self.live.finished.get(reply)) {
            (Some(open), _) => open.ids.contains(event),
            (None, Some(FinishedMessage::Reply(ids))) => ids.contains(event),
            (None, Some(FinishedMessage::Whole(_)) | None) => false,
        }
    }

    /// The queued messages.
    pub fn queue(&self) -> impl Iterator<Item = &QueuedMessage> {
        self.live.queue.iter()
    }

    /// The current producer.
    pub fn producer(&self) -> Option<&Producer> {
        self.live.state.producer.as_ref()
    }

    /// The seq of the last event, including this change.
    pub fn last_seq(&self) -> u64 {
        self.live.last.get()
    }

    /// Whether the open replies belong to the producer and not to the session's own agent.
    pub fn is_produced(&self) -> bool {
        self.live.state.is_produced
    }

    /// The response to a request that was answered recently.
    pub fn find_answered(&self, key: &str) -> Option<&IdempotencyRecord> {
        self.live.answered.iter().find(|known| known.key == key)
    }

    /// Stores the response to a request with an idempotency key.
    pub fn set_idempotency_record(&mut self, record: IdempotencyRecord) {
        self.live.answered.push_back(record.clone());
        if self.live.answered.len() > MAX_ANSWERED {
            self.live.answered.pop_front();
        }
        self.idempotency = Some(record);
    }

    /// Adds a message to the queue.
    pub fn enqueue(&mut self, queued: QueuedMessage) {
        self.live.queue.push_back(queued.clone());
        self.enqueue.push(queued);
    }

    /// Removes a message from the queue.
    pub fn dequeue(&mut self, id: &str) -> Option<QueuedMessage> {
        let at = self.live.queue.iter().position(|queued| queued.id == id)?;
        self.dequeue.push(id.to_owned());
        self.live.queue.remove(at)
    }

    /// Appends an event. A repeated event is not stored again. An event that does not fit is
    /// refused and changes nothing.
    ///
    /// `text` is the JSON from which the event was read; it is then stored as it is.
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
        let seq = self.live.last.next();
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
        self.live.last = seq.into();
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
                None if live.replies.len() >= MAX_OPEN_REPLIES => {
                    return Err(too_many_open_replies());
                }
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
                // Few sessions have more than one open reply, and each is large.
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
        let Some(msg) = event_with_seq.whole_message() else {
            let message = "no id can be assigned to the message";
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

    /// Whether nothing was changed.
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

    /// What the engine must write.
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

/// Bytes without spare capacity, because they stay in memory for a while.
fn into_exact_bytes(bytes: Vec<u8>) -> Bytes {
    bytes.into_boxed_slice().into()
}

/// Whether the text can be stored as it is: on one line, and without a seq.
fn can_store_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr2(b'\n', b'\r', text.trim_ascii().as_bytes()).is_none()
        && memchr::memmem::find(bytes, b"\"seq").is_none()
}

/// An event of a finished reply is either a repeat or too late.
fn check_repeat(ids: &EventIds, event: &Event<'_>) -> Result<bool, Error> {
    if !ids.contains(&event.id) {
        let message = format!(
            "{} comes after the end of reply {}; an ended reply accepts no more events",
            event.kind.type_name(),
            event.reply_id
        );
        return Err(Error::new(ErrorKind::AlreadyEnded, message));
    }
    Ok(false)
}

fn duplicate_message(id: &str) -> Error {
    let message = format!("a message with the id {id} already exists");
    Error::new(ErrorKind::DuplicateMessage, message)
}

#[cold]
fn too_many_open_replies() -> Error {
    let message =
        format!("{MAX_OPEN_REPLIES} replies of this session are open; end some of them first");
    Error::new(ErrorKind::WrongReply, message)
}
