//! A model that says and thinks one thing at a time.

use super::{Call, Kind, Segment};
use crate::stream::EventSink;
use turnwire_core::Fields;

/// What the open text, and the open thinking, are called.
pub(crate) const TEXT: u64 = 0;
pub(crate) const THINKING: u64 = 1;

/// Goes on with the text, or with the thinking; the other one has ended.
pub(crate) fn say(call: &mut Call, segment: Segment<'_>, out: &mut EventSink<'_>) {
    let (key, other, kind, text) = match segment {
        Segment::Text(text) => (TEXT, THINKING, Kind::Text, text),
        Segment::Thinking(text) => (THINKING, TEXT, Kind::Thinking, text),
    };
    if !call.is_open(key) {
        call.close(other, Fields::default(), out);
        call.start(key, kind, "", "", out);
    }
    call.delta(key, text, out);
}

/// Something else comes: both have ended.
pub(crate) fn close(call: &mut Call, out: &mut EventSink<'_>) {
    call.close(TEXT, Fields::default(), out);
    call.close(THINKING, Fields::default(), out);
}
