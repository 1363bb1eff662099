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

/// In the fields of a wire on the last block of an answer: the fields of the message that has the answer.
pub(crate) const MESSAGE: &str = "message";

/// Keeps fields of a message in a block of it.
pub(crate) fn set_message_fields(rest: &mut Fields, wire: &str, fields: &Fields) {
    let mut own = get(rest, wire).unwrap_or_default();
    own.insert(MESSAGE, fields);
    set(rest, wire, &own);
}

/// The fields of a message in a block of it, by wire.
pub fn message_fields(rest: &Fields) -> Fields {
    let mut found = Fields::default();
    if !mentions(rest, MESSAGE) {
        return found;
    }
    for (wire, fields) in &rest.get::<Fields>(KEY).ok().flatten().unwrap_or_default() {
        let fields = fields.parse_as::<Fields>().unwrap_or_default();
        found.insert_some(wire, fields.raw(MESSAGE).cloned());
    }
    found
}

/// Adds fields of a message to a block of it, by wire.
pub fn add_message_fields(rest: &mut Fields, by_wire: &Fields) {
    for (wire, fields) in by_wire {
        if let Ok(fields) = fields.parse_as() {
            set_message_fields(rest, wire, &fields);
        }
    }
}

/// Copies the fields of all wires from one block to another.
pub fn copy(from: &Fields, to: &mut Fields) {
    to.insert_some(KEY, from.raw(KEY).cloned());
}

/// Whether some fields may have this one. Cheap, for those that have none.
pub(crate) fn mentions(holder: &Fields, field: &str) -> bool {
    holder.raw(KEY).is_some_and(|by_wire| by_wire.text().contains(field))
}

/// Takes a field off the fields of all wires, and returns it by the names of the wires. Wires without other fields stay: on a
/// tool result they say that its parts came so.
pub(crate) fn take_from_all(holder: &mut Fields, field: &str) -> Option<Fields> {
    let by_wire: Fields = holder.get(KEY).ok()??;
    let (mut left, mut taken) = (Fields::default(), Fields::default());
    for (wire, fields) in &by_wire {
        let Ok(mut fields) = fields.parse_as::<Fields>() else { continue };
        taken.insert_some(wire, fields.remove(field));
        left.insert(wire, fields);
    }
    holder.remove(KEY);
    holder.insert_fields(KEY, &left);
    Some(taken).filter(|taken| !taken.is_empty())
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
