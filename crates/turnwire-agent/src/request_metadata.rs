//! Values that a client's request brings: they are in the metadata of its message, or of its last tool result. The client
//! context and the sent history are stored so.

use serde::Serialize;
use serde::de::DeserializeOwned;
use turnwire_core::{BlockKind, ContentBlock, Json, Msg, Role, ToolResult};

/// The value for a reply: that of its last tool result that has one, or of the message that is answered. Also returns how
/// many blocks of the reply came before it.
pub(crate) fn value_for_reply<T: DeserializeOwned>(
    key: &str,
    history: &[Msg],
    reply: Option<&Msg>,
) -> (Option<T>, usize) {
    let blocks = reply.map(Msg::content).unwrap_or_default();
    let of_result = |(at, block): (usize, &ContentBlock)| {
        let result = ToolResult::from_block(block)?;
        Some((Some(result.metadata.get(key).ok().flatten()?), at + 1))
    };
    let of_message = || {
        let last = history.iter().rev().find(|msg| msg.role() == Role::User);
        (last.and_then(|msg| value_of_message(key, msg)), 0)
    };
    blocks.iter().enumerate().rev().find_map(of_result).unwrap_or_else(of_message)
}

/// The value of a message; `None` if it has none or an invalid one.
pub(crate) fn value_of_message<T: DeserializeOwned>(key: &str, msg: &Msg) -> Option<T> {
    msg.metadata().get(key).ok().flatten()
}

/// Sets the value of a message.
pub(crate) fn set_on_message<T: Serialize>(key: &str, value: &T, msg: Msg) -> Msg {
    let Ok(json) = Json::from_value(value) else { return msg };
    msg.to_builder().metadata(key, json).build().unwrap_or(msg)
}

/// Sets the value of a tool result.
pub(crate) fn set_on_result<T: Serialize>(key: &str, value: &T, result: &mut ToolResult) {
    if let Ok(json) = Json::from_value(value) {
        result.metadata.insert(key, json);
    }
}
