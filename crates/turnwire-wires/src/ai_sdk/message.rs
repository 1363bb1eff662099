//! Reads and writes UI messages.
//!
//! A message of the role `tool` becomes one of the assistant. `metadata.turnwire` holds what UI
//! messages have no field for, by our names.

use super::part::{self, KEPT_FIELD, METADATA_KEY, take_object, without_null};
use super::tool;
use crate::json::{to_fields, to_json};
use crate::turnwire::read_messages;
use std::collections::HashMap;
use turnwire_core::block::BlockType;
use turnwire_core::{ContentBlock, Error, ErrorKind, Fields, Json, Msg, Result, Role, ToolResult};

/// Writes messages, one for one.
pub(super) fn encode_messages(messages: &[Msg]) -> Vec<Json> {
    messages.iter().map(|msg| to_json(&write_message(msg))).collect()
}

/// Reads a list of messages, or a single one.
pub(super) fn decode_messages(text: &str) -> Result<Vec<Msg>> {
    read_messages(text, |text| read_message(&Json::parse(text)?))
}

/// Writes one message.
pub(super) fn write_message(msg: &Msg) -> Fields {
    let mut ours =
        without_null(to_fields(msg), &["usage", "finished_at", "finished_reason", "error"]);
    for known in ["id", "role", "content", "metadata"] {
        ours.remove(known);
    }
    if msg.name().is_empty() {
        ours.remove("name");
    }
    if msg.structured_output().is_none() {
        ours.remove("structured_output");
    }
    if msg.role() == Role::Tool {
        ours.insert("role", Role::Tool.as_str());
    }
    let kept = take_object(&mut ours, KEPT_FIELD).unwrap_or_default();
    let mut parts = write_parts(msg);
    // The AI SDK rejects user and system messages without parts.
    if parts.is_empty() && matches!(msg.role(), Role::User | Role::System) {
        parts.push(part::write_block(&"".into()));
        ours.insert("no_content", true);
    }
    let mut metadata = msg.metadata().clone();
    if let Some(clash) = metadata.remove(METADATA_KEY) {
        let clash: Fields = [(METADATA_KEY, clash)].into_iter().collect();
        ours.insert("metadata", to_json(&clash));
    }
    metadata.insert_fields(METADATA_KEY, &ours);
    let mut message = Fields::default();
    message.insert("id", msg.id());
    let role = if msg.role() == Role::Tool { Role::Assistant } else { msg.role() };
    message.insert("role", role.as_str());
    message.insert_fields("metadata", &metadata);
    message.insert("parts", to_json(&parts));
    message.extend(&kept);
    message
}

/// The parts: a result joins its call, and a step starts after results, as in a stream.
fn write_parts(msg: &Msg) -> Vec<Fields> {
    let pairs = pair_results(msg.content());
    let mut parts = Vec::new();
    let mut begins_step = msg.role() == Role::Assistant;
    for (at, block) in msg.content().iter().enumerate() {
        if let ContentBlock::ToolResult(result) = block {
            if !pairs.contains_key(&at) {
                parts.push(tool::write_tool_part(None, Some((result, None))));
            }
            begins_step = msg.role() == Role::Assistant;
            continue;
        }
        if std::mem::take(&mut begins_step) {
            parts.push([("type", "step-start")].into_iter().collect());
        }
        parts.push(if let ContentBlock::ToolCall(call) = block {
            let result = pairs.get(&at).and_then(|&index| {
                let ContentBlock::ToolResult(result) = msg.content().get(index)? else {
                    return None;
                };
                Some((result, (index != at + 1).then_some(index)))
            });
            tool::write_tool_part(Some(call), result)
        } else {
            part::write_block(block)
        });
    }
    parts
}

/// The indexes of calls and their results, in both directions.
fn pair_results(content: &[ContentBlock]) -> HashMap<usize, usize> {
    let mut indexes: HashMap<&str, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (at, block) in content.iter().enumerate() {
        if let ContentBlock::ToolCall(call) = block {
            indexes.entry(&call.id).or_default().0.push(at);
        } else if let ContentBlock::ToolResult(result) = block {
            indexes.entry(&result.id).or_default().1.push(at);
        }
    }
    let both = indexes.values().filter_map(|(calls, results)| match (&calls[..], &results[..]) {
        (&[call], &[result]) => Some([(call, result), (result, call)]),
        _ => None,
    });
    both.flatten().collect()
}

/// Reads one message.
pub(super) fn read_message(json: &Json) -> Result<Msg> {
    let not_a_message = |message: &str| Error::new(ErrorKind::NotAMessage, message);
    let mut message: Fields = json
        .parse_as()
        .map_err(|_| not_a_message("expected a message object with `role` and `parts`"))?;
    let role: Option<String> = message.take("role")?;
    let role = match role.as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err(not_a_message("`role` must be user, assistant or system")),
    };
    let id: String = message.take("id")?.unwrap_or_default();
    let parts: Vec<Fields> = match message.remove("parts") {
        Some(parts) => {
            parts.parse_as().map_err(|_| not_a_message("`parts` is not a list of objects"))?
        }
        None => return Err(not_a_message("`parts` is missing")),
    };
    let mut metadata = take_object(&mut message, "metadata").unwrap_or_default();
    let mut ours = take_object(&mut metadata, METADATA_KEY).unwrap_or_default();
    if let Some(clash) = take_object(&mut ours, "metadata") {
        metadata.extend(&clash);
    }
    let mut content = read_blocks(role, parts)?;
    if ours.remove("no_content").is_some() && content == ["".into()] {
        content.clear();
    }
    let is_tool = ours.take::<String>("role")?.as_deref() == Some("tool");
    let fits = |block: &ContentBlock| {
        matches!(block.block_type(), BlockType::ToolResult | BlockType::Other)
    };
    let role = if is_tool && content.iter().all(fits) { Role::Tool } else { role };
    ours.insert("id", id);
    ours.insert("role", role.as_str());
    ours.insert("metadata", to_json(&metadata));
    ours.insert("content", to_json(&content));
    let kept = without_null(message, &["metadata"]);
    ours.insert_fields(KEPT_FIELD, &kept);
    Msg::from_json(to_json(&ours).text())
}

fn read_blocks(role: Role, parts: Vec<Fields>) -> Result<Vec<ContentBlock>> {
    let mut content = Vec::new();
    let mut placed: Vec<(usize, ToolResult)> = Vec::new();
    for (at, fields) in parts.into_iter().enumerate() {
        let word: Option<String> = fields.get("type")?;
        if word.as_deref() == Some("step-start") {
            continue;
        }
        // A part that this role cannot hold here is kept as it is.
        if tool::is_tool_part(&fields) && role == Role::Assistant {
            let read =
                tool::read_tool_part(fields).map_err(|error| error.at(format!("parts[{at}]")))?;
            tool::push_blocks(read, &mut content, &mut placed);
        } else if tool::is_tool_part(&fields) {
            content.push(part::keep_part(fields));
        } else {
            let block = part::read_part(fields.clone())
                .map_err(|error| error.at(format!("parts[{at}]")))?;
            content.push(if may_hold(role, &block) { block } else { part::keep_part(fields) });
        }
    }
    placed.sort_by_key(|(at, _)| *at);
    for (at, result) in placed {
        content.insert(at.min(content.len()), result.into());
    }
    Ok(content)
}

fn may_hold(role: Role, block: &ContentBlock) -> bool {
    matches!(
        (role, block),
        (Role::Assistant, _)
            | (Role::User, ContentBlock::Text(_) | ContentBlock::Data(_))
            | (Role::System, ContentBlock::Text(_))
            | (_, ContentBlock::Other(_))
    )
}
