//! Converts Gemini's `Content` objects to and from our messages.

use super::part::{self, FunctionResponse, Part};
use crate::lenient::{List, OptionalText};
use crate::model_request::object_to_input;
use crate::provider::{HistoryReader, has_failed, item_to_block};
use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Msg, Part as Piece, Payload, Result, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolResult, ToolResultState,
};

/// Writes messages. A reply becomes `Content` objects: one of the role `model`, one with its tool results, and so on.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut contents = Vec::new();
    for msg in messages {
        let blocks = msg.content();
        match msg.role() {
            Role::System => contents.push(part::content_json("system", &parts(blocks))),
            Role::User => contents.push(part::content_json("user", &parts(blocks))),
            Role::Tool => {
                // Only the older role distinguishes an empty tool message from a user message.
                let role = if blocks.is_empty() { "function" } else { "user" };
                contents.push(part::content_json(role, &parts(blocks)));
            }
            Role::Assistant => push_reply(blocks, &mut contents),
        }
    }
    contents
}

/// Writes a reply. It begins with a `Content` of the model, even if that is empty.
fn push_reply(blocks: &[ContentBlock], contents: &mut Vec<Json>) {
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    let mut runs = blocks.chunk_by(|left, right| is_result(left) == is_result(right)).peekable();
    if runs.peek().is_none_or(|run| run.first().is_some_and(is_result)) {
        contents.push(part::content_json("model", &[]));
    }
    for run in runs {
        let role = if run.first().is_some_and(is_result) { "user" } else { "model" };
        contents.push(part::content_json(role, &parts(run)));
    }
}

fn parts(blocks: &[ContentBlock]) -> Vec<Json> {
    blocks.iter().filter_map(block_to_part).collect()
}

fn block_to_part(block: &ContentBlock) -> Option<Json> {
    match block {
        ContentBlock::Text(block) => Some(part::text_part(&block.text, &block.rest)),
        ContentBlock::Thinking(block) => Some(part::thinking_part(block)),
        ContentBlock::Data(block) => part::data_part(block, block.media_type()),
        ContentBlock::ToolCall(call) => Some(part::call_part(call, &call.name)),
        ContentBlock::ToolResult(result) => Some(result_to_part(result)),
        ContentBlock::Other(item) => part::item_to_part(item),
        ContentBlock::Hint(_) => None,
    }
}

fn result_to_part(result: &ToolResult) -> Json {
    let key = if has_failed(&result.state) { "error" } else { "output" };
    let data: Vec<Json> = match &result.output {
        Payload::Text(_) => Vec::new(),
        Payload::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Piece::Data(block) => part::data_part(block, block.media_type()),
                Piece::Text(_) | Piece::Other(_) => None,
            })
            .collect(),
    };
    part::response_part(&result.id, &result.name, key, &result.output.text(""), &data)
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Content<'a> {
    role: OptionalText<'a>,
    parts: List<Part<'a>>,
}

/// Reads a list of `Content` objects, or a single one.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    HistoryReader::read(text, read_content)
}

fn read_content(history: &mut HistoryReader, content: Content<'_>) {
    let is_empty = content.parts.0.is_empty();
    let blocks = content.parts.0.into_iter().filter_map(|part| part_to_block(history, &part));
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    match content.role.as_deref() {
        Some("model" | "assistant") => {
            let blocks = blocks.collect();
            history.push_reply(blocks);
        }
        Some("system") => {
            let blocks = blocks.collect();
            history.push_message(Role::System, blocks);
        }
        Some("function" | "tool") => {
            let results = blocks.filter(is_result).collect();
            history.push_results(results);
        }
        _ => {
            let (results, blocks): (Vec<_>, Vec<_>) = blocks.partition(is_result);
            if !results.is_empty() {
                history.push_results(results);
            }
            if is_empty || !blocks.is_empty() {
                history.push_message(Role::User, blocks);
            }
        }
    }
}

fn part_to_block(history: &mut HistoryReader, part: &Part<'_>) -> Option<ContentBlock> {
    let rest = part.extra();
    if let Some(call) = &part.function_call {
        let name = call.name.or_empty();
        let id = history.register_call(call.id.as_deref(), name);
        let input = object_to_input(call.args.map_or("{}", RawValue::get));
        return Some(ToolCall { rest, ..ToolCall::new(id, name, input) }.into());
    }
    if let Some(response) = &part.function_response {
        return Some(read_result(history, response).into());
    }
    if let Some(text) = &part.text {
        let text = text.clone().into_owned();
        return Some(if part.thought {
            ThinkingBlock { thinking: text, rest, ..ThinkingBlock::default() }.into()
        } else {
            TextBlock { text, rest, ..TextBlock::default() }.into()
        });
    }
    match part_to_data(part) {
        Some(block) => Some(block.into()),
        None if part.is_empty() => None,
        None => Some(item_to_block(super::NAME, part::part_to_item(part))),
    }
}

fn read_result(history: &mut HistoryReader, response: &FunctionResponse<'_>) -> ToolResult {
    let (name, id) = history.match_result(response.id.as_deref(), response.name.as_deref());
    let (text, state) = read_outcome(response.response.map_or("{}", RawValue::get));
    let data: Vec<Piece> =
        response.parts.0.iter().filter_map(part_to_data).map(Piece::Data).collect();
    let output = if data.is_empty() {
        Payload::Text(text)
    } else {
        let text = (!text.is_empty()).then(|| Piece::from(text));
        Payload::Parts(text.into_iter().chain(data).collect())
    };
    ToolResult { state, ..ToolResult::success(id, output).named(name) }
}

/// The text and state of a function response. `output` and `error` are Gemini's keys; anything else is output.
fn read_outcome(response: &str) -> (String, ToolResultState) {
    let fields: Fields = serde_json::from_str(response).unwrap_or_default();
    let only = (fields.len() == 1).then(|| fields.iter().next()).flatten();
    let (json, state) = match only {
        Some(("output", json)) => (json.clone(), ToolResultState::Success),
        Some(("error", json)) => (json.clone(), ToolResultState::Error),
        _ if fields.raw("error").is_some() => (Json::from(response), ToolResultState::Error),
        _ if fields.is_empty() => (Json::from(""), ToolResultState::Success),
        _ => (Json::from(response), ToolResultState::Success),
    };
    (json.parse_as().unwrap_or_else(|_| json.text().to_owned()), state)
}

fn part_to_data(part: &Part<'_>) -> Option<DataBlock> {
    let (media_type, chunk) = part.data()?;
    let source = chunk.clone().into_source(media_type.map(str::to_owned));
    let mut block = DataBlock { rest: part.extra(), ..DataBlock::from_source(source) };
    if part.thought {
        block.rest.insert("thought", true);
    }
    Some(block)
}
