//! One open text block and one open thinking block, for providers whose streams have no block boundaries.

use super::{BlockKind, ModelCall, Segment};
use crate::stream::EventSink;
use turnwire_core::Fields;

/// The keys of the open text block and of the open thinking block.
pub(crate) const TEXT_KEY: u64 = 0;
pub(crate) const THINKING_KEY: u64 = 1;

/// Appends to the text or to the thinking, and closes the other one.
pub(crate) fn push_segment(call: &mut ModelCall, segment: Segment<'_>, out: &mut EventSink<'_>) {
    let (key, other, kind, text) = match segment {
        Segment::Text(text) => (TEXT_KEY, THINKING_KEY, BlockKind::Text, text),
        Segment::Thinking(text) => (THINKING_KEY, TEXT_KEY, BlockKind::Thinking, text),
    };
    if !call.is_open(key) {
        call.close_block(other, Fields::default(), out);
        call.start_block(key, kind, "", "", out);
    }
    call.push_delta(key, text, out);
}

/// Closes both.
pub(crate) fn close_text_blocks(call: &mut ModelCall, out: &mut EventSink<'_>) {
    call.close_block(TEXT_KEY, Fields::default(), out);
    call.close_block(THINKING_KEY, Fields::default(), out);
}
