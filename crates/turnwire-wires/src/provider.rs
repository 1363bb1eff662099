//! What the streams of all model providers have in common, on their way in.

mod call_ids;
mod history;
pub(crate) mod loose;
mod model_call;
pub(crate) mod text_blocks;
mod think_tags;

pub(crate) use call_ids::UniqueCallIds;
pub(crate) use history::HistoryReader;
pub(crate) use model_call::{BlockKind, ModelCall, ModelCallInfo};
pub(crate) use think_tags::{Segment, ThinkTagParser};

use serde::Deserialize;
use turnwire_core::{BlockType, ContentBlock, Error, ErrorKind, Fields, Json, Result};

/// The field that says which wire an item came on that only its provider knows.
const FROM_WIRE_FIELD: &str = "from_wire";

/// The type of a block that has the item in a field of this name, where the item cannot be a block
/// by itself.
const WRAPPER_TYPE: &str = "provider_item";

/// A provider's own item as a block: verbatim, with the wire that it came on, so that it can be sent
/// back to where it came from and to nobody else.
pub(crate) fn item_to_block(wire: &str, mut item: Fields) -> ContentBlock {
    if looks_like_our_block(&item) {
        return item_to_wrapped_block(wire, &item);
    }
    item.insert(FROM_WIRE_FIELD, wire);
    ContentBlock::Other(item)
}

/// The same inside a block that has no id: for an item whose id is taken.
pub(crate) fn item_to_wrapped_block(wire: &str, item: &Fields) -> ContentBlock {
    let mut block = wrap_item(item);
    block.insert(FROM_WIRE_FIELD, wire);
    ContentBlock::Other(block)
}

/// A block of a type that we do not know. One that says it is of a type of ours, and is not, or that has
/// no type, is inside another: else it could not be read again.
pub(crate) fn unknown_block(block: Fields) -> ContentBlock {
    if !looks_like_our_block(&block) {
        return ContentBlock::Other(block);
    }
    ContentBlock::Other(wrap_item(&block))
}

fn wrap_item(item: &Fields) -> Fields {
    let mut block = Fields::default();
    block.insert("type", WRAPPER_TYPE);
    if let Ok(item) = Json::from_value(item) {
        block.insert(WRAPPER_TYPE, item);
    }
    block
}

/// Whether a reader of ours would take the item for a block of ours, or for none at all.
fn looks_like_our_block(item: &Fields) -> bool {
    const TYPES: [BlockType; 9] = [
        BlockType::Text,
        BlockType::Thinking,
        BlockType::Data,
        BlockType::Image,
        BlockType::Audio,
        BlockType::Video,
        BlockType::Hint,
        BlockType::ToolCall,
        BlockType::ToolResult,
    ];
    match item.get::<String>("type") {
        Ok(Some(word)) => word == WRAPPER_TYPE || TYPES.iter().any(|ours| ours.as_str() == word),
        _ => true,
    }
}

/// The item that [`item_block`] made, if it came on this wire.
pub(crate) fn block_to_item(wire: &str, block: &Fields) -> Option<Fields> {
    let mut item = block.clone();
    let from = item.remove(FROM_WIRE_FIELD)?;
    if from != Json::from(wire) {
        return None;
    }
    match item.raw("type") {
        Some(word) if *word == Json::from(WRAPPER_TYPE) => item.get(WRAPPER_TYPE).ok()?,
        _ => Some(item),
    }
}

/// Reads a frame, which is an object.
pub(crate) fn parse_frame<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    let frame = serde_json::from_str(text).map_err(|error| {
        let kind = if error.is_data() { ErrorKind::NotAnEvent } else { ErrorKind::NotJson };
        Error::new(kind, error.to_string())
    })?;
    // Serde would take a list for the fields in their order.
    if text.trim_ascii_start().starts_with('[') {
        return Err(Error::new(ErrorKind::NotAnEvent, "expected an object, found a list"));
    }
    Ok(frame)
}
