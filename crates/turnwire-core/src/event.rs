//! Events: the increments of a reply, and inputs to it.
//!
//! ```
//! use turnwire_core::{Event, EventKind};
//!
//! let line = r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hel","mood":"good"}"#;
//! let event = Event::from_json(line)?;
//! let EventKind::TextBlockDelta(delta) = &event.kind else { panic!() };
//! assert_eq!((&*event.reply_id, &*delta.delta), ("r", "Hel"));
//! // Unknown fields stay with the event.
//! assert!(event.to_json().contains(r#""mood":"good""#));
//! # Ok::<(), turnwire_core::Error>(())
//! ```
//!
//! To build an event, set the fields that matter and leave the others to their defaults:
//!
//! ```
//! use turnwire_core::event::ReplyEnd;
//! use turnwire_core::{Event, FinishedReason};
//!
//! let end = ReplyEnd { finished_reason: FinishedReason::Interrupted, ..ReplyEnd::default() };
//! assert_eq!(Event::new("r", end).kind.type_name(), "REPLY_END");
//! ```
//!
//! An event borrows its text from the JSON that it was read from; [`Event::into_owned`] copies it.

mod field;
mod groups;
mod kinds;
mod read;
mod values;
mod write;

pub use kinds::*;
pub use values::*;

use crate::json::Fields;
use crate::msg::Msg;
use crate::seq::Seq;
use crate::stamp::Stamp;
use std::borrow::Cow;

/// Text, borrowed if possible.
pub type Text<'a> = Cow<'a, str>;

/// One increment of a reply, or an input to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The event's id. Without a seq a repeat is recognised by it. Empty: none.
    pub id: Text<'a>,
    /// When it was created, as text. Empty: not known.
    pub created_at: Text<'a>,
    /// The reply that it belongs to. Empty: none.
    pub reply_id: Text<'a>,
    /// Position in the session's log, once it has one.
    pub seq: Option<Seq>,
    /// In an event that merges several: position of the first.
    pub seq_from: Option<Seq>,
    /// Arbitrary additions.
    pub metadata: Fields,
    /// The sub-agent that it comes from; `None` for the session's own agent.
    pub agent: Option<Box<SubAgent>>,
    /// Unknown fields.
    pub rest: Fields,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// Which sub-agent an event comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubAgent {
    /// The agents from the outermost to this one, such as `main/researcher`.
    pub agent_path: Option<String>,
    /// The tool call, in the reply of the agent above, that this agent works for.
    pub parent_tool_call_id: Option<String>,
}

impl SubAgent {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl<'a> Event<'a> {
    /// An event without id and timestamp; see [`stamped`](Self::stamped).
    pub fn new(reply_id: impl Into<Text<'a>>, kind: impl Into<EventKind<'a>>) -> Self {
        Self {
            id: Text::default(),
            created_at: Text::default(),
            reply_id: reply_id.into(),
            seq: None,
            seq_from: None,
            metadata: Fields::default(),
            agent: None,
            rest: Fields::default(),
            kind: kind.into(),
        }
    }

    /// Sets id and timestamp if they are empty.
    #[must_use]
    pub fn stamped(mut self, stamp: &impl Stamp) -> Self {
        self.stamp(stamp);
        self
    }

    /// Sets id and timestamp if they are empty.
    pub fn stamp(&mut self, stamp: &impl Stamp) {
        if self.id.is_empty() {
            self.id = stamp.id().into();
        }
        if self.created_at.is_empty() {
            self.created_at = stamp.now().into();
        }
    }

    /// Whether it comes from a sub-agent: an agent that works for a call of another agent, or that is below
    /// another one in its path. A path of a single agent is that of the session's own agent.
    pub fn is_from_sub_agent(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| {
            agent.parent_tool_call_id.is_some()
                || agent.agent_path.as_ref().is_some_and(|path| path.contains('/'))
        })
    }

    /// The message of a `MESSAGE` event. One without an id gets that of the event, or `seq-N` with the event's
    /// seq.
    pub fn whole_message(&self) -> Option<Msg> {
        let EventKind::Message(message) = &self.kind else { return None };
        let mut msg = (*message.message).clone();
        if msg.id.is_empty() {
            msg.id = match (&*self.id, self.seq) {
                ("", Some(seq)) => format!("seq-{seq}"),
                (id, _) => id.to_owned(),
            };
        }
        Some(msg)
    }

    /// The same event without borrowed text.
    pub fn into_owned(self) -> Event<'static> {
        Event {
            id: owned(self.id),
            created_at: owned(self.created_at),
            reply_id: owned(self.reply_id),
            seq: self.seq,
            seq_from: self.seq_from,
            metadata: self.metadata,
            agent: self.agent,
            rest: self.rest,
            kind: self.kind.into_owned(),
        }
    }
}

fn owned(text: Text<'_>) -> Text<'static> {
    Cow::Owned(text.into_owned())
}
