//! Events that came before, in a stream that is handed on without being folded.

use super::memory::{Seen, SeenEvents};
use crate::error::Result;
use crate::event::{Event, EventKind};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Knows the events of a stream again, as the fold does: by their seq where they have one, else by
/// their id.
///
/// ```
/// use turnwire_core::{Event, Repeats};
///
/// let mut repeats = Repeats::default();
/// let event = Event::from_json(r#"{"type":"REPLY_START","id":"e1","reply_id":"r","seq":7}"#)?;
/// assert!(!repeats.is_repeat(&event)?);
/// assert!(repeats.is_repeat(&event)?);
/// # Ok::<(), turnwire_core::Error>(())
/// ```
///
/// With seqs the memory grows with the replies, not with their events. An event that has neither seq
/// nor id is always new. After a `RESET` everything is.
#[derive(Default)]
pub struct RepeatDetector {
    replies: SeenById,
    /// Whole messages, by their ids.
    messages: SeenById,
    /// What belongs to no reply. Its seqs say nothing: two sessions may follow each other.
    others: SeenEvents,
    /// The last reset that had an id.
    last_reset: String,
}

type SeenById = HashMap<String, SeenEvents, RandomState>;

impl RepeatDetector {
    /// Whether an event came before; otherwise it is remembered. A merged event of which a part came
    /// before is an error, and is not remembered.
    pub fn is_repeat(&mut self, event: &Event<'_>) -> Result<bool> {
        let seen = match &event.kind {
            EventKind::Reset(_) => return Ok(self.is_repeated_reset(event)),
            EventKind::Message(message) => seen_entry(&mut self.messages, message.message.id()),
            _ if event.reply_id.is_empty() && !event.id.is_empty() => {
                return Ok(matches!(self.others.remember_id(event), Seen::Before));
            }
            _ => seen_entry(&mut self.replies, &event.reply_id),
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
