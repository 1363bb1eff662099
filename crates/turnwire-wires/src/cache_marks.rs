//! Caching marks (`cache_control`) of clients: they say up to where a provider caches the conversation. Clients move them
//! with each request, so they belong to a request and not to the messages that it has.
//!
//! ```
//! use turnwire_wires::{anthropic, cache_marks};
//!
//! let request = anthropic::read_request(r#"{"model": "m", "messages": [{"role": "user", "content": [
//!     {"type": "text", "text": "Hi!", "cache_control": {"type": "ephemeral"}}]}]}"#)?;
//! let mut block = request.messages[0].content()[0].clone();
//! let marks = cache_marks::take(&mut block);
//! assert_eq!((marks.len(), cache_marks::has_any(&block)), (1, false));
//! cache_marks::set(&mut block, marks[0].part, &marks[0].by_wire);
//! assert_eq!(block, request.messages[0].content()[0]);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::native;
use turnwire_core::{ContentBlock, Fields, Part, Payload};

/// The field of a caching mark.
pub(crate) const CACHE_MARK: &str = "cache_control";

/// A caching mark of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheMark {
    /// The index of the part that has it, in the content of a tool result or a hint.
    pub part: Option<usize>,
    /// The mark, by the name of its wire; by an empty name if the block is an item of the wire.
    pub by_wire: Fields,
}

/// Whether a block may have marks. Cheap, for blocks that have none.
pub fn has_any(block: &ContentBlock) -> bool {
    let in_fields = |rest: &Fields| native::mentions(rest, CACHE_MARK);
    let in_item = |item: &Fields| item.raw(CACHE_MARK).is_some();
    let in_parts = |payload: &Payload| match payload {
        Payload::Text(_) => false,
        Payload::Parts(parts) => parts.iter().any(|part| match part {
            Part::Text(block) => in_fields(&block.rest),
            Part::Data(block) => in_fields(&block.rest),
            Part::Other(item) => in_item(item),
        }),
    };
    match block {
        ContentBlock::Text(block) => in_fields(&block.rest),
        ContentBlock::Data(block) => in_fields(&block.rest),
        ContentBlock::ToolCall(call) => in_fields(&call.rest),
        ContentBlock::ToolResult(result) => in_fields(&result.rest) || in_parts(&result.output),
        ContentBlock::Hint(hint) => in_parts(&hint.hint),
        ContentBlock::Other(item) => in_item(item),
        ContentBlock::Thinking(_) => false,
    }
}

/// Takes the marks off a block.
pub fn take(block: &mut ContentBlock) -> Vec<CacheMark> {
    let mut marks = Vec::new();
    if !has_any(block) {
        return marks;
    }
    for (part, holder) in holders(block) {
        let by_wire = match holder {
            Holder::Fields(rest) => native::take_from_all(rest, CACHE_MARK),
            Holder::Item(item) => item.remove(CACHE_MARK).map(|mark| {
                let mut by_wire = Fields::default();
                by_wire.insert("", mark);
                by_wire
            }),
        };
        marks.extend(by_wire.map(|by_wire| CacheMark { part, by_wire }));
    }
    marks
}

/// Sets a mark that [`take`] returned. A part that the block does not have is its last one.
pub fn set(block: &mut ContentBlock, part: Option<usize>, by_wire: &Fields) {
    let mut holders = holders(block);
    let at = holders.iter().position(|(at, _)| *at == part).or(holders.len().checked_sub(1));
    let Some((_, holder)) = at.and_then(|at| holders.get_mut(at)) else { return };
    for (wire, mark) in by_wire {
        match holder {
            Holder::Fields(rest) if !wire.is_empty() => {
                let mut fields = native::get(rest, wire).unwrap_or_default();
                fields.insert(CACHE_MARK, mark.clone());
                native::set(rest, wire, &fields);
            }
            Holder::Item(item) if wire.is_empty() => item.insert(CACHE_MARK, mark.clone()),
            Holder::Fields(_) | Holder::Item(_) => {}
        }
    }
}

/// What a mark may be in.
enum Holder<'b> {
    /// The other fields of a block.
    Fields(&'b mut Fields),
    /// An item of a wire.
    Item(&'b mut Fields),
}

/// What can have a mark in a block: the block itself and its parts.
fn holders(block: &mut ContentBlock) -> Vec<(Option<usize>, Holder<'_>)> {
    let (own, payload) = match block {
        ContentBlock::Text(block) => (Some(Holder::Fields(&mut block.rest)), None),
        ContentBlock::Data(block) => (Some(Holder::Fields(&mut block.rest)), None),
        ContentBlock::ToolCall(call) => (Some(Holder::Fields(&mut call.rest)), None),
        ContentBlock::ToolResult(result) => {
            (Some(Holder::Fields(&mut result.rest)), Some(&mut result.output))
        }
        ContentBlock::Hint(hint) => (None, Some(&mut hint.hint)),
        ContentBlock::Other(item) => (Some(Holder::Item(item)), None),
        ContentBlock::Thinking(_) => (None, None),
    };
    let mut all: Vec<_> = own.into_iter().map(|own| (None, own)).collect();
    if let Some(Payload::Parts(parts)) = payload {
        let parts = parts.iter_mut().map(|part| match part {
            Part::Text(block) => Holder::Fields(&mut block.rest),
            Part::Data(block) => Holder::Fields(&mut block.rest),
            Part::Other(item) => Holder::Item(item),
        });
        all.extend(parts.enumerate().map(|(at, part)| (Some(at), part)));
    }
    all
}
