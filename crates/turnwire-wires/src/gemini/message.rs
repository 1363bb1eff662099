//! Gemini's `Content` objects and our messages.

use super::part::{self, FunctionResponse, Part};
use crate::provider::{History, item_block, loose};
use crate::request::input;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::block::{Base64Source, UrlSource};
use turnwire_core::event::Chunk;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Msg, Part as Piece, Payload, Result, Role, Source,
    TextBlock, ThinkingBlock, ToolCall, ToolResult, ToolResultState,
};

/// Writes messages. A reply becomes a `Content` of the role `model`, one of its results, and so on.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut contents = Vec::new();
    for msg in messages {
        let blocks = msg.content();
        match msg.role() {
            Role::System => contents.push(part::content("system", &parts(blocks))),
            Role::User => contents.push(part::content("user", &parts(blocks))),
            Role::Tool => {
                // Only an older role tells an empty one from a user's.
                let role = if blocks.is_empty() { "function" } else { "user" };
                contents.push(part::content(role, &parts(blocks)));
            }
            Role::Assistant => reply(blocks, &mut contents),
        }
    }
    contents
}

/// A reply begins with what the model said, even if that is nothing.
fn reply(blocks: &[ContentBlock], contents: &mut Vec<Json>) {
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    let mut runs = blocks.chunk_by(|left, right| is_result(left) == is_result(right)).peekable();
    if runs.peek().is_none_or(|run| run.first().is_some_and(is_result)) {
        contents.push(part::content("model", &[]));
    }
    for run in runs {
        let role = if run.first().is_some_and(is_result) { "user" } else { "model" };
        contents.push(part::content(role, &parts(run)));
    }
}

fn parts(blocks: &[ContentBlock]) -> Vec<Json> {
    blocks.iter().filter_map(one).collect()
}

fn one(block: &ContentBlock) -> Option<Json> {
    match block {
        ContentBlock::Text(block) => Some(part::text(&block.text, &block.rest)),
        ContentBlock::Thinking(block) => Some(part::thinking(block)),
        ContentBlock::Data(block) => part::data(block, block.media_type()),
        ContentBlock::ToolCall(call) => Some(part::call(call, &call.name)),
        ContentBlock::ToolResult(result) => Some(response(result)),
        ContentBlock::Other(item) => part::of_item(item),
        _ => None,
    }
}

fn response(result: &ToolResult) -> Json {
    let key = match result.state {
        ToolResultState::Success | ToolResultState::Running => "output",
        _ => "error",
    };
    let data: Vec<Json> = match &result.output {
        Payload::Text(_) => Vec::new(),
        Payload::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Piece::Data(block) => part::data(block, block.media_type()),
                _ => None,
            })
            .collect(),
    };
    part::response(&result.id, &result.name, key, &result.output.text(""), &data)
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    role: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::list")]
    parts: Vec<Part<'a>>,
}

/// Reads a list of `Content` objects, or a single one.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    History::read(text, read)
}

fn read(history: &mut History, content: Content<'_>) {
    let is_empty = content.parts.is_empty();
    let blocks = content.parts.into_iter().filter_map(|part| block(history, &part));
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    match content.role.as_deref() {
        Some("model" | "assistant") => {
            let blocks = blocks.collect();
            history.reply(blocks);
        }
        Some("system") => {
            let blocks = blocks.collect();
            history.push(Role::System, blocks);
        }
        Some("function" | "tool") => {
            let results = blocks.filter(is_result).collect();
            history.results(results);
        }
        _ => {
            let (results, blocks): (Vec<_>, Vec<_>) = blocks.partition(is_result);
            if !results.is_empty() {
                history.results(results);
            }
            if is_empty || !blocks.is_empty() {
                history.push(Role::User, blocks);
            }
        }
    }
}

fn block(history: &mut History, part: &Part<'_>) -> Option<ContentBlock> {
    let rest = part.extra();
    if let Some(call) = &part.function_call {
        let name = call.name.as_deref().unwrap_or_default();
        let id = history.call(call.id.as_deref(), name);
        let input = input(call.args.map_or("{}", RawValue::get));
        return Some(ToolCall { rest, ..ToolCall::new(id, name, input) }.into());
    }
    if let Some(response) = &part.function_response {
        return Some(result(history, response).into());
    }
    if let Some(text) = &part.text {
        let text = text.clone().into_owned();
        return Some(if part.thought {
            ThinkingBlock { thinking: text, rest, ..ThinkingBlock::default() }.into()
        } else {
            TextBlock { text, rest, ..TextBlock::default() }.into()
        });
    }
    match data(part) {
        Some(block) => Some(block.into()),
        None if part.is_empty() => None,
        None => Some(item_block(super::NAME, part::item(part))),
    }
}

fn result(history: &mut History, response: &FunctionResponse<'_>) -> ToolResult {
    let (name, id) = history.result(response.id.as_deref(), response.name.as_deref());
    let (text, state) = outcome(response.response.map_or("{}", RawValue::get));
    let data: Vec<Piece> = response.parts.iter().filter_map(data).map(Piece::Data).collect();
    let output = if data.is_empty() {
        Payload::Text(text)
    } else {
        let text = (!text.is_empty()).then(|| Piece::from(text));
        Payload::Parts(text.into_iter().chain(data).collect())
    };
    ToolResult { state, ..ToolResult::success(id, output).named(name) }
}

/// What a response says: `output` and `error` are Gemini's own words, anything else is the output.
fn outcome(response: &str) -> (String, ToolResultState) {
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

fn data(part: &Part<'_>) -> Option<DataBlock> {
    let (media_type, chunk) = part.data()?;
    let (media_type, rest) = (media_type.map(str::to_owned), Fields::default());
    let source = match chunk {
        Chunk::Data(data) => {
            Source::Base64(Base64Source { data: data.clone().into_owned(), media_type, rest })
        }
        Chunk::Url(url) => {
            Source::Url(UrlSource { url: url.clone().into_owned(), media_type, rest })
        }
    };
    let mut block = DataBlock { rest: part.extra(), ..DataBlock::from_source(source) };
    if part.thought {
        block.rest.insert("thought", true);
    }
    Some(block)
}
