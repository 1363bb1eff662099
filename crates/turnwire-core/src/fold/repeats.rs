//! Detects repeated events in a stream that is passed on without being folded.

use super::memory::{Seen, SeenEvents};
use crate::error::Result;
use crate::event::{Event, EventKind};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Detects repeated events, as the fold does: by seq if they have one, otherwise by id.
///
/// ```
/// use turnwire_core::{Event, RepeatDetector};
///
/// let mut repeats = RepeatDetector::default();
/// let event = Event::from_json(r#"{"type":"REPLY_START","id":"e1","reply_id":"r","seq":7}"#)?;
/// assert!(!repeats.is_repeat(&event)?);
/// assert!(repeats.is_repeat(&event)?);
/// # Ok::<(), turnwire_core::Error>(())
/// ```
///
/// With seqs the memory grows with the number of replies, not of events. An event with neither seq nor id is
/// always new. After a `RESET` every event is new.
#[derive(Default)]
pub struct RepeatDetector {
    replies: SeenById,
    /// Complete messages, by their ids.
    messages: SeenById,
    /// Events of no reply. Their seqs do not count: the stream may continue with another session.
    others: SeenEvents,
    /// The last reset that had an id.
    last_reset: String,
}

type SeenById = HashMap<String, SeenEvents, RandomState>;

impl RepeatDetector {
    /// Whether an event is a repeat; a new event is remembered. A merged event, a part of which came before, is
    /// an error and is not remembered.
    pub fn is_repeat(&mut self, event: &Event<'_>) -> Result<bool> {
        if matches!(event.kind, EventKind::Reset(_)) {
            return Ok(self.is_repeated_reset(event));
        }
        let seen = if let EventKind::Message(message) = &event.kind {
            seen_entry(&mut self.messages, message.message.id())
        } else if event.reply_id.is_empty() && !event.id.is_empty() {
            return Ok(matches!(self.others.remember_id(event), Seen::Before));
        } else {
            seen_entry(&mut self.replies, &event.reply_id)
        };
        Ok(matches!(seen.remember(event)?, Seen::Before))
    }

    fn is_repeated_reset(&mut self, event: &Event<'_>) -> bool {
        let repeated = !event.id.is_empty() && self.last_reset == event.id;
        if !repeated {
            *self = Self { last_reset: event.id.to_string(), ..Self::default() };
        }
        repeated
    }
}

fn seen_entry<'s>(map: &'s mut SeenById, id: &str) -> &'s mut SeenEvents {
    map.entry_ref(id).or_default()
}
