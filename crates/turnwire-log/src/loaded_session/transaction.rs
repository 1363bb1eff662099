//! A change of one session. [`Session::transact`](crate::Session::transact) hands it to a function.

use super::open_reply::OpenReply;
use super::{EventClass, FinishedMessage, ListedState, LoadedSession, classify};
use crate::projection::{self, MessageSpan};
use crate::store::{
    Append, EventLines, HistoryMark, IdempotencyRecord, Producer, QueuedMessage, SessionStatus,
    StoredMessage,
};
use bytes::Bytes;
use turnwire_core::{Error, ErrorKind, Event, EventIds, EventKind, Head, Seq};

/// How many replies of a session may be open at the same time.
const MAX_OPEN_REPLIES: usize = 1024;

/// How many answered requests are remembered until the store can find them.
const MAX_ANSWERED: usize = 256;

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
    pub(super) live: &'s mut LoadedSession,
    now_ms: i64,
    first: Seq,
    lines: Vec<u8>,
    count: u32,
    messages: Vec<StoredMessage>,
    superseded: Vec<String>,
    idempotency: Option<IdempotencyRecord>,
    enqueue: Vec<QueuedMessage>,
    dequeue: Vec<String>,
    pub(super) history: Vec<HistoryMark>,
    /// The listed state before the change.
    state_before: ListedState,
    /// Whether other parts of the state changed.
    pub(super) state_changed: bool,
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
            history: Vec::new(),
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

    /// The head of the log, including this change.
    pub fn head(&self) -> Head {
        self.live.last
    }

    /// The messages that this change has added, as the store will have them.
    pub fn new_messages(&self) -> &[StoredMessage] {
        &self.messages
    }

    /// A number that changes when another node may have written the session in between.
    pub fn ownership(&self) -> u64 {
        self.live.ownership
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

    /// Whether the session is a fork whose log is still being copied.
    pub fn is_forking(&self) -> bool {
        self.live.state.is_forking
    }

    /// The log of a fork is complete.
    pub fn complete_fork(&mut self) {
        self.state_changed |= std::mem::take(&mut self.live.state.is_forking);
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
        live.state.note_outcome(event, reply.of_sub_agent);
        let forgets = matches!(event.kind, EventKind::ExternalExecutionResult(_));
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
            self.mark_ended(&reply, seq);
            let live = &mut *self.live;
            let place = MessageSpan {
                first: Some(reply.first),
                last: Some(seq),
                event_id: String::new(),
                of_sub_agent: reply.of_sub_agent,
            };
            self.messages.push(projection::to_stored_message(&reply.msg, place));
            live.remember(reply.msg.id().to_owned(), FinishedMessage::Reply(reply.ids));
        }
        if forgets {
            self.forget_history();
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
        self.forget_history();
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
        self.live.state.revoke_rule(event);
        if let EventKind::Supersede(supersede) = &event.kind {
            self.superseded.extend(supersede.message_ids.iter().cloned());
            self.forget_history();
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
    pub(crate) fn into_append(mut self) -> Append {
        self.live.state.status = self.live.status();
        self.mark_waiting();
        let Self { live, count, .. } = self;
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
            history: self.history,
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
