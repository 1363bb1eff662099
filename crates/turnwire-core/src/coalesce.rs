//! Merges consecutive deltas, for a client that reads a backlog.
//!
//! ```
//! use turnwire_core::{Event, coalesce};
//!
//! let events = [
//!     r#"{"id":"a","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hel","seq":5}"#,
//!     r#"{"id":"b","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"lo","seq":6}"#,
//! ];
//! let events = events.map(|line| Event::from_json(line).unwrap());
//! let merged: Vec<Event> = coalesce(events).collect();
//! assert_eq!(merged.len(), 1);
//! assert_eq!(merged[0].to_json(), concat!(
//!     r#"{"id":"b","metadata":{},"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","#,
//!     r#""delta":"Hello","seq":6,"seq_from":5}"#
//! ));
//! ```

use crate::event::{Chunk, Event, EventKind, Text};
use crate::event_kinds;

/// Size limit of a merged delta, so that it stays an event of ordinary size.
const MAX_MERGED_BYTES: usize = 64 * 1024;

/// Merges consecutive deltas of one block. The folded message stays the same.
///
/// A merged event has the id and the seq of its last part, the timestamp of its first, and in `seq_from` the
/// seq of its first. Only events with consecutive seqs are merged, and only if nothing is lost: they have no
/// metadata and no unknown fields.
pub fn coalesce<'a>(
    events: impl IntoIterator<Item = Event<'a>>,
) -> impl Iterator<Item = Event<'a>> {
    let mut events = events.into_iter();
    let mut open: Option<Event<'a>> = None;
    std::iter::from_fn(move || {
        for mut event in events.by_ref() {
            if let Some(first) = &mut open
                && merge(first, &mut event)
            {
                continue;
            }
            if let Some(done) = open.replace(event) {
                return Some(done);
            }
        }
        open.take()
    })
}

/// Merges the next event into the first, if that loses nothing.
fn merge<'a>(first: &mut Event<'a>, next: &mut Event<'a>) -> bool {
    let plain = |event: &Event<'_>| event.metadata.is_empty() && event.rest.is_empty();
    let (Some(last), Some(seq)) = (first.seq, next.seq) else { return false };
    let are_neighbours = next.seq_from.unwrap_or(seq) == last.next()
        && first.reply_id == next.reply_id
        // A message's `created_at` is the first known timestamp of its events.
        && first.created_at.is_empty() == next.created_at.is_empty()
        && first.agent == next.agent
        && plain(first)
        && plain(next);
    if !are_neighbours {
        return false;
    }
    let (Some((target, text)), Some((next_target, more))) =
        (delta(&mut first.kind), delta(&mut next.kind))
    else {
        return false;
    };
    if target != next_target || text.len() + more.len() > MAX_MERGED_BYTES {
        return false;
    }
    text.to_mut().push_str(more);
    first.seq_from = first.seq_from.or(first.seq);
    first.seq = next.seq;
    first.id = std::mem::take(&mut next.id);
    true
}

/// What a delta appends to.
#[derive(PartialEq)]
enum Target<'e> {
    Text(&'e str),
    Thinking(&'e str),
    ToolCall(&'e str),
    ResultText(&'e str),
    Data(&'e str, &'e Option<String>),
    ResultData(&'e str, &'e str, &'e Option<String>),
}

/// Where a delta appends, and the text that it appends; `None` for other events.
fn delta<'e, 'a>(kind: &'e mut EventKind<'a>) -> Option<(Target<'e>, &'e mut Text<'a>)> {
    match kind {
        EventKind::TextBlockDelta(event) => Some((Target::Text(&event.block_id), &mut event.delta)),
        EventKind::ThinkingBlockDelta(event) => {
            Some((Target::Thinking(&event.block_id), &mut event.delta))
        }
        EventKind::ToolCallDelta(event) => {
            Some((Target::ToolCall(&event.tool_call_id), &mut event.delta))
        }
        EventKind::ToolResultTextDelta(event) => {
            Some((Target::ResultText(&event.tool_call_id), &mut event.delta))
        }
        EventKind::DataBlockDelta(event) => {
            let event = &mut **event;
            let Chunk::Data(data) = &mut event.chunk else { return None };
            Some((Target::Data(&event.block_id, &event.media_type), data))
        }
        EventKind::ToolResultDataDelta(event) => {
            let event = &mut **event;
            // Without an id each delta is a block of its own.
            let Chunk::Data(data) = &mut event.chunk else { return None };
            let target =
                Target::ResultData(&event.tool_call_id, &event.block_id, &event.media_type);
            (!event.block_id.is_empty()).then_some((target, data))
        }
        event_kinds!(
            TextBlockStart TextBlockEnd ThinkingBlockStart ThinkingBlockEnd DataBlockStart
            DataBlockEnd Hint Block ToolCallStart ToolCallEnd ToolResultStart ToolResultEnd
            reply model_call pending_call notice session
        ) => None,
    }
}
