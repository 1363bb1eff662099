//! What the decoders of all model providers share: events of a model call, ids, text with `<think>` tags, and items that
//! only one provider knows.

mod call_ids;
mod decoder;
mod error;
mod history;
mod model_call;
pub(crate) mod text_blocks;
mod think_tags;

pub(crate) use decoder::{ProviderDecoder, ProviderStream, model_call_in};
pub(crate) use error::{error_name, error_type_of_status, error_type_of_words, reply_error};
pub(crate) use history::HistoryReader;
pub(crate) use model_call::{BlockKind, ModelCall, ModelCallInfo, set_count, unix_seconds};
pub(crate) use think_tags::{Segment, ThinkTagParser};

use serde::Deserialize;
use turnwire_core::{
    BlockType, ContentBlock, Error, ErrorKind, Fields, Json, Result, ToolResultState,
};

/// The field of a provider's own item that names the wire it came on.
const FROM_WIRE_FIELD: &str = "from_wire";

/// The field of a text block with the type of the part that it was, if that is not text: `refusal`.
pub(crate) const PART_TYPE: &str = "part_type";

/// The field of a text block with the log probabilities of its tokens. A delta has those of its own tokens in its metadata.
pub(crate) const LOGPROBS: &str = "logprobs";

/// Whether a text is a refusal, by its other fields.
pub(crate) fn is_refusal(rest: &Fields) -> bool {
    rest.raw(PART_TYPE).is_some_and(|word| *word == Json::from("refusal"))
}

/// The type of a block that wraps an item that cannot be a block itself; also the field that holds the item.
const WRAPPER_TYPE: &str = "provider_item";

/// A provider's own item as a block: verbatim, with the name of its wire, so that it is sent back there and nowhere else.
pub(crate) fn item_to_block(wire: &str, mut item: Fields) -> ContentBlock {
    if looks_like_our_block(&item) {
        return item_to_wrapped_block(wire, &item);
    }
    item.insert(FROM_WIRE_FIELD, wire);
    ContentBlock::Other(item)
}

/// The same, wrapped in a block without an id: for an item whose id another block has.
pub(crate) fn item_to_wrapped_block(wire: &str, item: &Fields) -> ContentBlock {
    let mut block = wrap_item(item);
    block.insert(FROM_WIRE_FIELD, wire);
    ContentBlock::Other(block)
}

/// A block of an unknown type. It is wrapped if it has no type, or claims one of ours: otherwise it could not be read
/// again.
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

/// Whether our reader would mistake the item for a block of ours, or not accept it as a block.
fn looks_like_our_block(item: &Fields) -> bool {
    match item.get::<String>("type") {
        Ok(Some(word)) => {
            word == WRAPPER_TYPE || BlockType::KNOWN.iter().any(|ours| ours.as_str() == word)
        }
        _ => true,
    }
}

/// The wire of a block that [`item_to_block`] made.
pub(crate) fn wire_of_item(block: &Fields) -> Option<String> {
    block.get(FROM_WIRE_FIELD).ok()?
}

/// The item inside a block that [`item_to_block`] made, if it came on this wire.
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

/// Whether a result is an error for the model. One of a running background task is not.
pub(crate) fn has_failed(state: &ToolResultState) -> bool {
    !matches!(state, ToolResultState::Success | ToolResultState::Running)
}

/// Parses a frame, which must be a JSON object.
pub(crate) fn parse_frame<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    let frame = serde_json::from_str(text).map_err(|error| {
        let kind = if error.is_data() { ErrorKind::NotAnEvent } else { ErrorKind::NotJson };
        Error::new(kind, error.to_string())
    })?;
    // Serde also reads a list as a struct: its items are the fields in order.
    if text.trim_ascii_start().starts_with('[') {
        return Err(Error::new(ErrorKind::NotAnEvent, "expected an object, found a list"));
    }
    Ok(frame)
}
