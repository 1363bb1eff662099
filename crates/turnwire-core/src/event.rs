//! Events: the increments of a reply, and the inputs to it.
//!
//! ```
//! use turnwire_core::{Event, EventKind};
//!
//! let line = r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hel","mood":"good"}"#;
//! let event = Event::from_json(line)?;
//! let EventKind::TextBlockDelta(delta) = &event.kind else { panic!() };
//! assert_eq!((&*event.reply_id, &*delta.delta), ("r", "Hel"));
//! // What we do not know stays with the event.
//! assert!(event.to_json().contains(r#""mood":"good""#));
//! # Ok::<(), turnwire_core::Error>(())
//! ```
//!
//! An event borrows its text from the JSON that it was read from; [`Event::into_owned`] lets go of
//! it.

mod field;
mod kinds;
mod read;
mod write;

pub use kinds::*;

use crate::json::Fields;
use crate::seq::Seq;
use crate::stamp::Stamp;
use std::borrow::Cow;

/// Text that is borrowed where it can be.
pub type Text<'a> = Cow<'a, str>;

/// One increment of a reply, or an input to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The event's own id, by which a repeat is known where there is no seq. Empty: it has none.
    pub id: Text<'a>,
    /// When it was made, as it was written. Empty: not known.
    pub created_at: Text<'a>,
    /// Which reply it is about. Empty: none.
    pub reply_id: Text<'a>,
    /// Its place in the session's log, once it has one.
    pub seq: Option<Seq>,
    /// The first of the places that it covers, where several events were merged into this one.
    pub seq_from: Option<Seq>,
    /// Arbitrary additions.
    pub metadata: Fields,
    /// Which agent, where it is not the session's own.
    pub agent: Option<Box<SubAgent>>,
    /// Fields that this version does not know.
    pub rest: Fields,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// Where the event of a sub-agent belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubAgent {
    /// The agents from the outermost to this one, such as `main/researcher`.
    pub agent_path: Option<String>,
    /// The call, in the reply of the agent above, that this one works for.
    pub parent_tool_call_id: Option<String>,
}

impl SubAgent {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl<'a> Event<'a> {
    /// An event without id and time; see [`stamped`](Self::stamped).
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

    /// Gives the event an id and a time where it has none.
    #[must_use]
    pub fn stamped(mut self, stamp: &impl Stamp) -> Self {
        self.stamp(stamp);
        self
    }

    /// Gives the event an id and a time where it has none.
    pub fn stamp(&mut self, stamp: &impl Stamp) {
        if self.id.is_empty() {
            self.id = stamp.id().into();
        }
        if self.created_at.is_empty() {
            self.created_at = stamp.now().into();
        }
    }

    /// Whether it is a sub-agent's: one that works for a call of another, or stands below another in
    /// its path. A path of a single agent is that of the session's own.
    pub fn is_from_sub_agent(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| {
            agent.parent_tool_call_id.is_some()
                || agent.agent_path.as_ref().is_some_and(|path| path.contains('/'))
        })
    }

    /// The same event, borrowing nothing.
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
