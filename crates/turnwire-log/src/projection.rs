//! Converts messages to stored rows, and events to messages.

use crate::error::Result;
use crate::store::{EventLines, StoredMessage};
use bytes::Bytes;
use turnwire_core::{Event, Msg, Seq};

/// The version of the fold. Stored messages of another version are folded again if their events
/// remain.
pub const FOLD_VERSION: u32 = 1;

/// The position of a message in the log, and its origin.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageSpan {
    pub first: Option<Seq>,
    pub last: Option<Seq>,
    pub event_id: String,
    pub of_sub_agent: bool,
}

/// The row of a finished message.
pub(crate) fn to_stored_message(msg: &Msg, place: MessageSpan) -> StoredMessage {
    let first = place.first.unwrap_or(Seq::FIRST);
    StoredMessage {
        id: msg.id().to_owned(),
        first,
        last: place.last.unwrap_or(first),
        event_id: place.event_id,
        of_sub_agent: place.of_sub_agent,
        superseded: false,
        fold_version: FOLD_VERSION,
        json: Bytes::from(msg.to_json()),
        text: msg.text("\n").unwrap_or_default(),
    }
}

/// Parses a stored event. If that fails, the row is damaged in a way that its checksum could not
/// show.
pub(crate) fn parse_event(seq: Seq, line: &[u8]) -> Result<Event<'_>> {
    let damaged =
        |why: String| crate::Error::Damaged(format!("event {seq} cannot be parsed: {why}"));
    let text = std::str::from_utf8(line).map_err(|error| damaged(error.to_string()))?;
    let mut event = Event::from_json(text).map_err(|error| damaged(error.to_string()))?;
    event.seq = Some(seq);
    Ok(event)
}

/// Calls a function with every event, and returns the last seq.
pub(crate) fn for_each_event(
    lines: &[EventLines],
    mut each: impl FnMut(Seq, &[u8], &Event<'_>),
) -> Result<Option<Seq>> {
    let mut last = None;
    for lines in lines {
        for (seq, line) in lines.iter() {
            each(seq, line, &parse_event(seq, line)?);
            last = Some(seq);
        }
    }
    Ok(last)
}
