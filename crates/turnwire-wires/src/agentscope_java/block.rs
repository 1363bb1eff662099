//! Converts blocks between Java's JSON and ours. What the other side has no field for is left out
//! here; the patches of messages and events keep it.

use crate::json::{fields, string_field, to_json};
use turnwire_core::block::Source;
use turnwire_core::event::ConfirmResult;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Part, Payload, PermissionRule, Result, ToolCall,
    ToolCallState, ToolResult, ToolResultState,
};

/// The media type of bytes for which we know none; Java requires one.
pub(super) const UNKNOWN_BYTES: &str = "application/octet-stream";

fn opens_with(json: &Json, byte: u8) -> bool {
    json.text().bytes().next() == Some(byte)
}

/// An object field that is not empty.
pub(super) fn object_field(fields: &Fields, key: &str) -> Option<Fields> {
    let json = fields.raw(key).filter(|json| opens_with(json, b'{'))?;
    json.parse_as().ok().filter(|fields: &Fields| !fields.is_empty())
}

/// The objects of a list; other items are skipped.
pub(super) fn object_list(fields: &Fields, key: &str) -> Vec<Fields> {
    let items: Vec<Json> = fields.get(key).ok().flatten().unwrap_or_default();
    items.iter().filter_map(|item| item.parse_as().ok()).collect()
}

/// Java's block with our field names.
pub(super) fn from_java(block: Fields) -> Fields {
    let mut block = as_version_2(block);
    match string_field(&block, "type").as_deref() {
        Some("text") => require_text(&mut block, "text"),
        Some("thinking") => {
            require_text(&mut block, "thinking");
            remove_empty(&mut block, "metadata");
        }
        Some("hint") => require_text(&mut block, "hint"),
        Some("tool_use") => tool_use(&mut block),
        Some("tool_result") => tool_result(&mut block),
        Some("data" | "image" | "audio" | "video") => data(&mut block),
        _ => {}
    }
    block
}

/// Java's blocks as a JSON list of ours.
pub(super) fn list_from_java(blocks: Vec<Fields>) -> Result<Json> {
    Json::from_value(&blocks.into_iter().map(from_java).collect::<Vec<_>>())
}

fn require_text(block: &mut Fields, key: &str) {
    if block.raw(key).is_none_or(Json::is_null) {
        block.insert(key, "");
    }
}

fn remove_empty(block: &mut Fields, key: &str) {
    if object_field(block, key).is_none() {
        block.remove(key);
    }
}

/// A block of version 1 with the names of version 2: `arguments` is `input`, `toolUseId` is `id`,
/// and `result` (one block or several) is `output`.
pub(super) fn as_version_2(mut block: Fields) -> Fields {
    match string_field(&block, "type").as_deref() {
        Some("tool_use") => rename(&mut block, "arguments", "input"),
        Some("tool_result") => {
            rename(&mut block, "toolUseId", "id");
            rename(&mut block, "result", "output");
            let output = match block.raw("output") {
                Some(output) if opens_with(output, b'{') => Json::from_value(&[output]),
                Some(output) if opens_with(output, b'"') => Json::from_value(&[text_to_java(
                    &string_field(&block, "output").unwrap_or_default(),
                )]),
                _ => return block,
            };
            if let Ok(output) = output {
                block.insert("output", output);
            }
        }
        _ => {}
    }
    block
}

fn rename(block: &mut Fields, from: &str, to: &str) {
    if block.raw(to).is_none_or(Json::is_null)
        && let Some(value) = block.remove(from)
    {
        block.remove(to);
        block.insert(to, value);
    }
}

/// The text that the model wrote is in `content`.
fn tool_use(block: &mut Fields) {
    block.insert("type", "tool_call");
    require_text(block, "id");
    let input = block.remove("input").filter(|json| opens_with(json, b'{'));
    let input = input.unwrap_or_else(empty_object);
    let content = string_field(block, "content");
    block.remove("content");
    let written = content.filter(|content| parse_input(content) == input);
    block.insert("input", written.unwrap_or_else(|| input.text().to_owned()));
    remove_empty(block, "metadata");
}

fn empty_object() -> Json {
    serde_json::Map::new().into()
}

/// The input of a call as an object. Java requires one, whatever the model wrote.
fn parse_input(written: &str) -> Json {
    Json::parse(written).ok().filter(|json| opens_with(json, b'{')).unwrap_or_else(empty_object)
}

fn tool_result(block: &mut Fields) {
    require_text(block, "id");
    if block.raw("output").is_some_and(|output| opens_with(output, b'['))
        && let Ok(parts) = list_from_java(object_list(block, "output"))
    {
        block.insert("output", parts);
    }
}

fn data(block: &mut Fields) {
    let Some(mut source) = object_field(block, "source") else { return };
    if string_field(&source, "type").as_deref() == Some("url")
        && source.raw("media_type").is_none()
        && let Some(media_type) = source.remove("mime_type")
    {
        source.insert("media_type", media_type);
    }
    block.insert("source", source);
}

/// Our block as Java's; `None` if Java has no such block.
pub(super) fn to_java(block: &ContentBlock) -> Option<Fields> {
    Some(match block {
        ContentBlock::Text(block) => text_to_java(&block.text),
        ContentBlock::Thinking(block) => {
            let mut java = new_block("thinking");
            java.insert("thinking", block.thinking.as_str());
            java.insert("metadata", to_json(&object_field(&block.rest, "metadata")));
            java
        }
        ContentBlock::Data(block) => return data_to_java(block),
        ContentBlock::Hint(block) => {
            let mut java = new_block("hint");
            java.insert("id", block.id.as_str());
            java.insert("hint", block.hint.text("\n"));
            java.insert("source", block.source.clone());
            java
        }
        ContentBlock::ToolCall(call) => call_to_java(call),
        ContentBlock::ToolResult(result) => result_to_java(result),
        ContentBlock::Other(_) => return None,
    })
}

fn new_block(word: &str) -> Fields {
    fields! { "type": word }
}

fn text_to_java(text: &str) -> Fields {
    fields! { "type": "text", "text": text }
}

pub(super) fn data_to_java(block: &DataBlock) -> Option<Fields> {
    let mut java = new_block(ContentBlock::Data(block.clone()).block_type().as_str());
    java.insert("source", source_to_java(&block.source)?);
    java.insert_unless_empty("id", &block.id);
    java.insert_some("name", block.name.as_deref());
    // The older media blocks have no such fields.
    if string_field(&java, "type").as_deref() != Some("data") {
        java.remove("id");
        java.remove("name");
    }
    Some(java)
}

fn source_to_java(source: &Source) -> Option<Fields> {
    match source {
        Source::Base64(source) => {
            let media_type = source.media_type.as_deref().unwrap_or(UNKNOWN_BYTES);
            let data = source.data.as_str();
            Some(fields! { "type": "base64", "media_type": media_type, "data": data })
        }
        Source::Url(source) => {
            let mut java = fields! { "type": "url", "url": source.url.as_str() };
            java.insert_some("mime_type", source.media_type.as_deref());
            Some(java)
        }
        Source::Other(_) => None,
    }
}

pub(super) fn call_to_java(call: &ToolCall) -> Fields {
    let mut java = new_block("tool_use");
    java.insert("id", call.id.as_str());
    java.insert("name", call.name.as_str());
    java.insert("input", parse_input(&call.input));
    java.insert("content", call.input.as_str());
    java.insert("metadata", object_field(&call.rest, "metadata").unwrap_or_default());
    let state = if call.state.is_known() { call.state.clone() } else { ToolCallState::default() };
    java.insert("state", state.as_str());
    java
}

pub(super) fn result_to_java(result: &ToolResult) -> Fields {
    let mut java = new_block("tool_result");
    java.insert("id", result.id.as_str());
    java.insert("name", result.name.as_str());
    let output = match &result.output {
        Payload::Text(text) => vec![text_to_java(text)],
        Payload::Parts(parts) => parts.iter().filter_map(part_to_java).collect(),
    };
    java.insert("output", list_to_json(&output));
    // Java copies this into a map that rejects null.
    let metadata: Fields = result
        .metadata
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key, value.clone()))
        .collect();
    java.insert("metadata", metadata);
    let state =
        if result.state.is_known() { result.state.clone() } else { ToolResultState::default() };
    java.insert("state", state.as_str());
    java
}

fn part_to_java(part: &Part) -> Option<Fields> {
    match part {
        Part::Text(block) => Some(text_to_java(&block.text)),
        Part::Data(block) => data_to_java(block),
        Part::Other(_) => None,
    }
}

pub(super) fn list_to_json(list: &[Fields]) -> Json {
    Json::from_value(list).unwrap_or_else(|_| Vec::<String>::new().into())
}

/// Java's answer with our field names. The rules are the same on both sides.
pub(super) fn confirm_from_java(mut answer: Fields) -> Fields {
    let call = object_field(&answer, "toolCall").map(from_java).unwrap_or_default();
    answer.remove("toolCall");
    answer.insert("tool_call", call);
    answer
}

pub(super) fn confirm_to_java(answer: &ConfirmResult) -> Fields {
    let call = call_to_java(&answer.tool_call);
    let mut java = fields! { "confirmed": answer.confirmed, "toolCall": call };
    if let Some(rules) = &answer.rules {
        let rules: Vec<Fields> = rules.iter().map(rule_to_java).collect();
        java.insert("rules", list_to_json(&rules));
    }
    java
}

fn rule_to_java(rule: &PermissionRule) -> Fields {
    fields! {
        "tool_name": rule.tool_name.as_str(),
        "rule_content": rule.rule_content.clone(),
        "behavior": if rule.behavior.is_known() { rule.behavior.as_str() } else { "ask" },
        "source": rule.source.as_str(),
    }
}
