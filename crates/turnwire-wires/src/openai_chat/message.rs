//! Converts chat messages to and from ours.
//!
//! Consecutive assistant and tool messages are one reply of ours.

use super::audio::read_audio;
use super::parts::{
    AssistantMessage, call_part, data_part, item_part, parse_data_url, text_block_part, text_part,
    to_content,
};
use super::stream_blocks::{REASONING_DETAILS, REASONING_FIELD};
use crate::native;
use crate::provider::{PART_TYPE, item_to_block};
use serde_json::{Map, Value, json};
use turnwire_core::{
    ContentBlock, DataBlock, Error, ErrorKind, Fields, Json, Msg, Part, Payload, Result, Role,
    Source, TextBlock, ThinkingBlock, ToolCall, ToolCallState, ToolResult, content_blocks,
};

/// Reads a list of messages, or a single one.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    if text.trim_ascii_start().starts_with('[') {
        let list: Vec<JsonObject> = Json::parse(text)?.parse_as().map_err(not_a_message)?;
        return decode_all(&list);
    }
    decode_all(&[parse_object(text)?])
}

/// Parses a message as JSON.
pub(super) fn parse_object(text: &str) -> Result<JsonObject> {
    // A second time only for the error.
    serde_json::from_str(text).or_else(|_| Json::parse(text)?.parse_as().map_err(not_a_message))
}

/// Reads a single message.
pub(super) fn decode_one(message: &JsonObject) -> Result<Vec<Msg>> {
    decode_all(std::slice::from_ref(message))
}

fn decode_all(list: &[JsonObject]) -> Result<Vec<Msg>> {
    let mut reading = MessageReader::default();
    for (at, message) in list.iter().enumerate() {
        reading.read_message(message).map_err(|error| error.at(format!("[{at}]")))?;
    }
    reading.end_reply()?;
    Ok(reading.messages)
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn not_a_message(error: Error) -> Error {
    Error::new(ErrorKind::NotAMessage, error.message())
}

#[derive(Default)]
struct MessageReader {
    messages: Vec<Msg>,
    /// The name of the replying agent, while a reply is open.
    replying: Option<String>,
    content: Vec<ContentBlock>,
}

pub(super) type JsonObject = Map<String, Value>;

fn get_str<'m>(message: &'m JsonObject, key: &str) -> &'m str {
    message.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl MessageReader {
    fn read_message(&mut self, message: &JsonObject) -> Result<()> {
        let name = get_str(message, "name");
        match get_str(message, "role") {
            "system" | "developer" => {
                let only_text = |block: &ContentBlock| !matches!(block, ContentBlock::Data(_));
                let content = read_blocks(message.get("content")).into_iter().filter(only_text);
                self.push_message(Role::System, name, content.collect())
            }
            "user" => self.push_message(Role::User, name, read_blocks(message.get("content"))),
            "assistant" => {
                self.replying.get_or_insert_with(|| name.to_owned());
                self.read_assistant(message);
                Ok(())
            }
            "tool" | "function" => {
                self.replying.get_or_insert_default();
                self.read_result(message);
                Ok(())
            }
            other => Err(Error::new(
                ErrorKind::NotAMessage,
                format!(
                    "unknown role `{other}`: expected system, developer, user, assistant or tool"
                ),
            )),
        }
    }

    fn push_message(&mut self, role: Role, name: &str, content: Vec<ContentBlock>) -> Result<()> {
        self.end_reply()?;
        self.messages.push(Msg::builder(role).name(name).content(content).build()?);
        Ok(())
    }

    fn end_reply(&mut self) -> Result<()> {
        let content = std::mem::take(&mut self.content);
        if let Some(name) = self.replying.take() {
            self.messages.push(Msg::builder(Role::Assistant).name(name).content(content).build()?);
        }
        Ok(())
    }

    fn read_assistant(&mut self, message: &JsonObject) {
        let details = message.get(REASONING_DETAILS).and_then(Value::as_array);
        if let Some(details) = details.filter(|list| !list.is_empty()) {
            self.content.extend(details.iter().filter_map(reasoning_detail_block));
        } else {
            let fields = ["reasoning_content", "reasoning"];
            let found = fields.iter().find(|field| !get_str(message, field).is_empty());
            self.content.extend(found.map(|field| thinking_block(get_str(message, field), field)));
        }
        let mut blocks = read_blocks(message.get("content"));
        if !get_str(message, "refusal").is_empty() {
            blocks.push(refusal_block(get_str(message, "refusal")));
        }
        if let Some(list) = message.get("annotations").filter(|list| !is_empty(list))
            && let Some(ContentBlock::Text(block)) = blocks.last_mut()
        {
            block.rest.insert("annotations", list.clone());
        }
        self.content.extend(blocks);
        self.content.extend(message.get("audio").into_iter().flat_map(read_audio));
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for piece in calls.into_iter().flatten() {
            self.content.push(read_call(piece).into());
        }
        if let Some(function) = message.get("function_call").and_then(Value::as_object) {
            // It has no id; its result names the function.
            let name = get_str(function, "name");
            let input = input_text(function.get("arguments"));
            self.content.push(ToolCall::new(name, name, input).into());
        }
    }

    fn read_result(&mut self, message: &JsonObject) {
        let name = message.get("name").and_then(Value::as_str);
        let id = match get_str(message, "tool_call_id") {
            "" => name.unwrap_or_default(),
            id => id,
        };
        let is_call = |block: &&mut ContentBlock| matches!(block, ContentBlock::ToolCall(call) if call.id == id);
        let mut called = String::new();
        if let Some(ContentBlock::ToolCall(call)) = self.content.iter_mut().rev().find(is_call) {
            call.state = ToolCallState::Finished;
            called.clone_from(&call.name);
        }
        let output = match message.get("content") {
            Some(Value::Array(list)) => Payload::Parts(
                list.iter().filter_map(read_block).filter_map(Part::from_block).collect(),
            ),
            Some(Value::String(text)) => Payload::Text(text.clone()),
            _ => Payload::Text(String::new()),
        };
        let name = name.map_or(called, str::to_owned);
        self.content.push(ToolResult::success(id, output).named(name).into());
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// The blocks of content, which is text or a list of parts. Empty ones are left out.
fn read_blocks(content: Option<&Value>) -> Vec<ContentBlock> {
    match content {
        Some(Value::String(text)) if !text.is_empty() => vec![TextBlock::new(text).into()],
        Some(Value::Array(parts)) => parts.iter().filter_map(read_block).collect(),
        _ => Vec::new(),
    }
}

fn read_block(part: &Value) -> Option<ContentBlock> {
    if let Some(text) = part.as_str() {
        return (!text.is_empty()).then(|| TextBlock::new(text).into());
    }
    let part = part.as_object()?;
    let inner = |key: &str, field: &str| part.get(key)?.get(field)?.as_str();
    let known: Option<ContentBlock> = match get_str(part, "type") {
        "text" | "input_text" | "output_text" => match get_str(part, "text") {
            "" => return None,
            text => {
                let mut block = TextBlock::new(text);
                keep_other_fields(part, "text", &[], &mut block.rest);
                Some(block.into())
            }
        },
        "refusal" => Some(refusal_block(get_str(part, "refusal"))),
        "thinking" => Some(thinking_block(&thinking_text(part.get("thinking")), "content")),
        "image_url" => {
            let url = inner("image_url", "url").or_else(|| part.get("image_url")?.as_str());
            url.map(|url| data_block(url, "image/*", None))
                .map(|block| with_other_fields(block, part, "image_url", &["url"]))
        }
        "input_audio" => inner("input_audio", "data").map(|bytes| {
            let kind = match inner("input_audio", "format") {
                Some("mp3") => "audio/mpeg".to_owned(),
                format => format!("audio/{}", format.unwrap_or("wav")),
            };
            let block = base64_block(bytes, Some(&kind), None);
            with_other_fields(block, part, "input_audio", &["data", "format"])
        }),
        "file" => inner("file", "file_data").map(|url| {
            let block = data_block(url, "", inner("file", "filename"));
            with_other_fields(block, part, "file", &["file_data", "filename"])
        }),
        _ => None,
    };
    known.or_else(|| Some(item_to_block(super::NAME, fields(part))))
}

fn refusal_block(text: &str) -> ContentBlock {
    let mut block = TextBlock::new(text);
    block.rest.insert(PART_TYPE, "refusal");
    block.into()
}

fn with_other_fields(
    mut block: DataBlock,
    part: &JsonObject,
    content: &str,
    known: &[&str],
) -> ContentBlock {
    keep_other_fields(part, content, known, &mut block.rest);
    block.into()
}

/// Keeps the fields of a part that our block does not have, such as `detail`. `content` names the field with the content,
/// of which the block has the `known` fields.
fn keep_other_fields(part: &JsonObject, content: &str, known: &[&str], rest: &mut Fields) {
    let mut others = Fields::default();
    for (key, value) in part.iter().filter(|(key, value)| *key != "type" && !value.is_null()) {
        if key != content {
            others.insert(key, value.clone());
        } else if let Value::Object(inner) = value {
            let is_other = |(key, value): &(&String, &Value)| {
                !known.contains(&key.as_str()) && !value.is_null()
            };
            let inner =
                inner.iter().filter(is_other).map(|(key, value)| (key.clone(), value.clone()));
            others.insert_fields(key, &inner.collect());
        }
    }
    if !others.is_empty() {
        native::set(rest, super::NAME, &others);
    }
}

fn fields(object: &JsonObject) -> Fields {
    object.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The text of a thinking part: one text, or a list of them.
fn thinking_text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            list.iter().filter_map(|part| part.get("text")?.as_str()).collect()
        }
        _ => String::new(),
    }
}

fn thinking_block(text: &str, field: &str) -> ContentBlock {
    let mut block = ThinkingBlock::new(text);
    block.rest.insert(REASONING_FIELD, field);
    block.into()
}

fn reasoning_detail_block(entry: &Value) -> Option<ContentBlock> {
    let mut entry = entry.as_object()?.clone();
    let field = match get_str(&entry, "type") {
        "reasoning.text" => "text",
        "reasoning.summary" => "summary",
        _ => "",
    };
    let text = entry.shift_remove(field);
    let mut block = ThinkingBlock::new(text.as_ref().and_then(Value::as_str).unwrap_or_default());
    block.rest.insert(REASONING_DETAILS, vec![Value::from(entry)]);
    Some(block.into())
}

fn data_block(url: &str, kind: &str, name: Option<&str>) -> DataBlock {
    if let Some((kind, bytes)) = parse_data_url(url) {
        return base64_block(bytes, kind, name);
    }
    let media_type = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
    with_name(DataBlock::from_source(Source::url(url, media_type)), name)
}

pub(super) fn base64_block(bytes: &str, kind: Option<&str>, name: Option<&str>) -> DataBlock {
    with_name(DataBlock::from_source(Source::base64(bytes, kind.map(str::to_owned))), name)
}

fn with_name(block: DataBlock, name: Option<&str>) -> DataBlock {
    DataBlock { name: name.map(str::to_owned), ..block }
}

fn read_call(piece: &Value) -> ToolCall {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = text(piece.get("id"));
    let mut call = match (piece.get("function"), piece.get("custom")) {
        (_, Some(custom)) => {
            let mut call = ToolCall::new(id, text(custom.get("name")), text(custom.get("input")));
            call.rest.insert("custom", true);
            call
        }
        (Some(function), None) => {
            ToolCall::new(id, text(function.get("name")), input_text(function.get("arguments")))
        }
        (None, None) => ToolCall::new(id, "", ""),
    };
    call.rest.insert_some(
        "extra_content",
        piece.get("extra_content").filter(|extra| !extra.is_null()).cloned(),
    );
    call
}

/// The input as text; some providers send the JSON itself.
fn input_text(arguments: Option<&Value>) -> String {
    match arguments {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    }
}

/// Writes messages. A reply becomes one assistant message per step, and one tool message per result.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut all: Vec<Value> = Vec::new();
    for msg in messages {
        match msg.role() {
            Role::System | Role::User => {
                let parts = msg.content().iter().filter_map(message_part).collect();
                let mut message = json!({"role": msg.role()});
                if let Some(map) = message.as_object_mut() {
                    if !msg.name().is_empty() {
                        map.insert("name".to_owned(), msg.name().into());
                    }
                    map.insert("content".to_owned(), to_content(parts));
                }
                all.push(message);
            }
            Role::Assistant => encode_reply(msg, &mut all),
            Role::Tool => {
                // Results must follow an assistant message.
                if !all.last().is_some_and(is_reply) {
                    all.push(AssistantMessage::default().into_json(msg.name(), Value::Null));
                }
                for block in msg.content() {
                    if let ContentBlock::ToolResult(block) = block {
                        all.push(encode_result(block));
                    }
                }
            }
        }
    }
    all.into_iter().map(Json::from).collect()
}

fn is_reply(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "assistant" || role == "tool")
}

/// A part of a user or system message.
pub(super) fn message_part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text(block) => Some(text_block_part(block)),
        ContentBlock::Data(block) => data_part(block).ok(),
        ContentBlock::Other(fields) => item_part(fields),
        content_blocks!(Thinking Hint ToolCall ToolResult) => None,
    }
}

fn encode_reply(msg: &Msg, all: &mut Vec<Value>) {
    let mut step = AssistantMessage::default();
    let mut first = true;
    let mut flush = |step: &mut AssistantMessage, all: &mut Vec<Value>| {
        let mut step = std::mem::take(step);
        if !first && step.is_empty() {
            return;
        }
        let parts = std::mem::take(&mut step.parts);
        let content = if parts.is_empty() { Value::Null } else { to_content(parts) };
        all.push(step.into_json(if first { msg.name() } else { "" }, content));
        first = false;
    };
    for block in msg.content() {
        match block {
            ContentBlock::Text(block) if block.text.is_empty() => {}
            ContentBlock::Text(block) => step.add_text(block),
            ContentBlock::Thinking(block) => step.add_thinking(block, Some("reasoning_content")),
            ContentBlock::ToolCall(block) => {
                step.calls.push(call_part(block, &block.id, &block.name, &block.input));
            }
            ContentBlock::Other(fields) => step.parts.extend(item_part(fields)),
            ContentBlock::ToolResult(block) => {
                flush(&mut step, all);
                all.push(encode_result(block));
            }
            ContentBlock::Data(block) => drop(step.add_audio(block)),
            ContentBlock::Hint(_) => {}
        }
    }
    flush(&mut step, all);
}

fn encode_result(result: &ToolResult) -> Value {
    let content: Value = match &result.output {
        Payload::Text(text) => text.as_str().into(),
        Payload::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(block) => Some(text_part(&block.text)),
                Part::Data(_) | Part::Other(_) => None,
            })
            .collect(),
    };
    json!({"role": "tool", "tool_call_id": result.id, "name": result.name, "content": content})
}
