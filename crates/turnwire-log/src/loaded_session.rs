//! The in-memory state of an open session: its open replies, folded up to the head, and the ids
//! that identify repeats. [`Session`](crate::Session) changes it through a [`Transaction`].
//!
//! Nothing here waits. A change is made here first, then written. If the write fails, this state is
//! discarded and loaded from the store again.

mod hints;
mod history;
mod open_reply;
mod producers;
mod state;
mod transaction;

pub use history::HistoryInput;
pub use open_reply::{OpenReply, PendingCalls};
pub use state::{RULE_REVOKED, is_same_rule};
pub use transaction::{PushOutcome, Transaction};

use crate::store::{
    Fence, IdempotencyRecord, QueuedMessage, SessionNumber, SessionRecord, SessionState,
    SessionStatus,
};
use crate::tail_cache::TailCache;
use std::collections::{HashMap, VecDeque};
use turnwire_core::{Event, EventIds, EventKind, Head, Seq};

/// What the log knows of a finished message, to recognise repeats.
#[derive(Debug, Clone)]
pub(crate) enum FinishedMessage {
    /// A reply, and the ids of its events.
    Reply(EventIds),
    /// It came as one `MESSAGE` event with this id.
    Whole(String),
}

/// How many recent events are read after a restart to recognise repeats, besides those of open
/// replies.
const RECENT_EVENTS: u64 = 1000;

/// How many finished messages are kept in memory; others are looked up in the store.
const MAX_FINISHED: usize = 256;
/// How many ids of events outside of replies are remembered at least.
const MAX_OTHER_IDS: usize = 1 << 15;

/// What a process holds of a session in use.
#[derive(Debug)]
pub(crate) struct LoadedSession {
    pub number: SessionNumber,
    pub fence: Fence,
    /// The term of this process's lease under which it was acquired. `None` if it was only loaded to read.
    pub lease_term: Option<u64>,
    /// How often this process acquired the session after another node may have written it.
    pub ownership: u64,
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
            lease_term: None,
            ownership: 0,
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

    /// A session as it is stored, without what is in its events. [`replay`](Self::replay) adds those from
    /// [`replay_from`](Self::replay_from) on.
    pub fn from_record(record: &SessionRecord, fence: Fence, lease_term: Option<u64>) -> Self {
        let SessionRecord { number, first, head, state, .. } = record;
        Self { lease_term, ..Self::new(*number, fence, *first, *head, state.clone()) }
    }

    /// The first event to replay in a session that is new here.
    pub fn replay_from(&self) -> Seq {
        let recent = self.last.minus(RECENT_EVENTS).next();
        let from = self.state.open_from.map_or(recent, |open| recent.min(open));
        from.max(self.first)
    }

    /// Continues to a later record of the session, and returns the first event to replay.
    pub fn continue_to(&mut self, record: &SessionRecord) -> Seq {
        let from = self.last.next().max(record.first);
        (self.first, self.last, self.state) = (record.first, record.head, record.state.clone());
        from
    }

    /// Removes replies that ended before the first one that is open.
    pub fn close_ended_replies(&mut self) {
        let open_from = self.state.open_from;
        let is_open = |reply: &OpenReply| open_from.is_some_and(|open| reply.first >= open);
        let ended: Vec<OpenReply> = self.replies.extract_if(.., |reply| !is_open(reply)).collect();
        for reply in ended {
            self.remember(reply.msg.id().to_owned(), FinishedMessage::Reply(reply.ids));
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
    if matches!(event.kind, EventKind::Message(_)) {
        EventClass::Message
    } else if event.kind.is_part_of_reply() && !event.reply_id.is_empty() {
        EventClass::Reply
    } else {
        EventClass::Other
    }
}
