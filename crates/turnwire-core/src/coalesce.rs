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
        for event in events.by_ref() {
            match &mut open {
                Some(first) if can_merge(first, &event) => merge_into(first, event),
                open => {
                    if let Some(done) = open.replace(event) {
                        return Some(done);
                    }
                }
            }
        }
        open.take()
    })
}

fn can_merge(first: &Event<'_>, next: &Event<'_>) -> bool {
    let plain = |event: &Event<'_>| event.metadata.is_empty() && event.rest.is_empty();
    let (Some(last), Some(seq)) = (first.seq, next.seq) else { return false };
    next.seq_from.unwrap_or(seq) == last.next()
        && first.reply_id == next.reply_id
        // A message's `created_at` is the first known timestamp of its events.
        && first.created_at.is_empty() == next.created_at.is_empty()
        && first.agent == next.agent
        && plain(first)
        && plain(next)
        && same_block(&first.kind, &next.kind)
}

fn same_block(first: &EventKind<'_>, next: &EventKind<'_>) -> bool {
    let fits = |a: &str, b: &str| a.len() + b.len() <= MAX_MERGED_BYTES;
    match (first, next) {
        (EventKind::TextBlockDelta(a), EventKind::TextBlockDelta(b)) => {
            a.block_id == b.block_id && fits(&a.delta, &b.delta)
        }
        (EventKind::ThinkingBlockDelta(a), EventKind::ThinkingBlockDelta(b)) => {
            a.block_id == b.block_id && fits(&a.delta, &b.delta)
        }
        (EventKind::ToolCallDelta(a), EventKind::ToolCallDelta(b)) => {
            a.tool_call_id == b.tool_call_id && fits(&a.delta, &b.delta)
        }
        (EventKind::ToolResultTextDelta(a), EventKind::ToolResultTextDelta(b)) => {
            a.tool_call_id == b.tool_call_id && fits(&a.delta, &b.delta)
        }
        (EventKind::DataBlockDelta(a), EventKind::DataBlockDelta(b)) => {
            a.block_id == b.block_id
                && a.media_type == b.media_type
                && chunk_data(&a.chunk).zip(chunk_data(&b.chunk)).is_some_and(|(a, b)| fits(a, b))
        }
        (EventKind::ToolResultDataDelta(a), EventKind::ToolResultDataDelta(b)) => {
            // Without an id each delta is a block of its own.
            !a.block_id.is_empty()
                && a.tool_call_id == b.tool_call_id
                && a.block_id == b.block_id
                && a.media_type == b.media_type
                && chunk_data(&a.chunk).zip(chunk_data(&b.chunk)).is_some_and(|(a, b)| fits(a, b))
        }
        _ => false,
    }
}

fn chunk_data<'c>(chunk: &'c Chunk<'_>) -> Option<&'c str> {
    match chunk {
        Chunk::Data(data) => Some(data),
        Chunk::Url(_) => None,
    }
}

fn merge_into<'a>(first: &mut Event<'a>, next: Event<'a>) {
    let (Some(text), Some(more)) = (delta_mut(&mut first.kind), delta(&next.kind)) else { return };
    text.to_mut().push_str(more);
    first.seq_from = first.seq_from.or(first.seq);
    first.seq = next.seq;
    first.id = next.id;
}

/// The text that a delta appends.
fn delta<'e>(kind: &'e EventKind<'_>) -> Option<&'e str> {
    match kind {
        EventKind::TextBlockDelta(event) => Some(&event.delta),
        EventKind::ThinkingBlockDelta(event) => Some(&event.delta),
        EventKind::ToolCallDelta(event) => Some(&event.delta),
        EventKind::ToolResultTextDelta(event) => Some(&event.delta),
        EventKind::DataBlockDelta(event) => chunk_data(&event.chunk),
        EventKind::ToolResultDataDelta(event) => chunk_data(&event.chunk),
        _ => None,
    }
}

fn delta_mut<'e, 'a>(kind: &'e mut EventKind<'a>) -> Option<&'e mut Text<'a>> {
    let of_chunk = |chunk: &'e mut Chunk<'a>| match chunk {
        Chunk::Data(data) => Some(data),
        Chunk::Url(_) => None,
    };
    match kind {
        EventKind::TextBlockDelta(event) => Some(&mut event.delta),
        EventKind::ThinkingBlockDelta(event) => Some(&mut event.delta),
        EventKind::ToolCallDelta(event) => Some(&mut event.delta),
        EventKind::ToolResultTextDelta(event) => Some(&mut event.delta),
        EventKind::DataBlockDelta(event) => of_chunk(&mut event.chunk),
        EventKind::ToolResultDataDelta(event) => of_chunk(&mut event.chunk),
        _ => None,
    }
}
