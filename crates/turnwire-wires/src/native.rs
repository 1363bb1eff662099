//! Fields that only one protocol has: a client's message or block keeps them, and a model of the same protocol gets them
//! back. The decoders of messages set them, and the writers of requests read them.
//!
//! ```
//! use turnwire_core::{Fields, Json};
//! use turnwire_wires::native;
//!
//! let mut block = Fields::default();
//! let fields: Fields = Json::parse(r#"{"detail": "low"}"#)?.parse_as()?;
//! native::set(&mut block, "openai-chat", &fields);
//! assert_eq!(native::get(&block, "openai-chat"), Some(fields));
//! assert_eq!(native::get(&block, "anthropic"), None);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use turnwire_core::{ContentBlock, Fields, Msg, Payload};

/// The field of a block and the key in the metadata of a message. Its value is an object: the fields by the name of their wire.
const KEY: &str = "native";

/// Sets the fields of a wire, in the other fields of a block or in the metadata of a message.
pub fn set(holder: &mut Fields, wire: &str, fields: &Fields) {
    let mut by_wire = Fields::default();
    by_wire.insert(wire, fields);
    holder.insert(KEY, by_wire);
}

/// The fields of this wire, if they came on it.
pub fn get(holder: &Fields, wire: &str) -> Option<Fields> {
    holder.get::<Fields>(KEY).ok()??.get(wire).ok()?
}

/// Adds the fields of this wire to what is written on it. Those that it has already stay.
pub(crate) fn add(to: &mut Fields, holder: &Fields, wire: &str) {
    for (key, value) in &get(holder, wire).unwrap_or_default() {
        if to.raw(key).is_none() {
            to.insert(key, value.clone());
        }
    }
}

/// The role of a system message in `OpenAI`'s protocols.
pub(crate) fn system_role(native: &Fields) -> &'static str {
    let is_developer = native.raw("role").is_some_and(|role| *role == "developer".into());
    if is_developer { "developer" } else { "system" }
}

/// A message with the fields of a wire in its metadata.
pub fn set_on_message(msg: Msg, wire: &str, fields: &Fields) -> Msg {
    let mut metadata = msg.metadata().clone();
    set(&mut metadata, wire, fields);
    msg.to_builder().all_metadata(metadata).build().unwrap_or(msg)
}

/// Notes on tool results in several parts that they came on this wire: a model of it gets them in the same parts. Many
/// providers accept only text.
pub fn keep_result_parts(msg: Msg, wire: &str) -> Msg {
    let mut content = msg.content().to_vec();
    let mut is_changed = false;
    for block in &mut content {
        if let ContentBlock::ToolResult(result) = block
            && matches!(result.output, Payload::Parts(_))
            && get(&result.rest, wire).is_none()
        {
            set(&mut result.rest, wire, &Fields::default());
            is_changed = true;
        }
    }
    if !is_changed {
        return msg;
    }
    msg.to_builder().content(content).build().unwrap_or(msg)
}
