//! Converts Ollama's messages to and from ours.

use crate::json::fields;
use crate::lenient::{List, Object, OptionalText, Raw};
use crate::model_request::{input_to_object, media_type, object_to_input, to_json_list};
use crate::provider::HistoryReader;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::block::DataKind;
use turnwire_core::{
    ContentBlock, DataBlock, Json, Msg, Result, Role, Source, ThinkingBlock, ToolCall, ToolResult,
};

/// A message while it is built.
pub(super) struct MessageDraft {
    pub role: &'static str,
    pub text: Vec<String>,
    pub thinking: String,
    pub images: Vec<String>,
    calls: Vec<Json>,
}

impl MessageDraft {
    pub(super) fn new(role: &'static str) -> Self {
        let (text, images, calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { role, text, thinking: String::new(), images, calls }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
            && self.thinking.is_empty()
            && self.images.is_empty()
            && self.calls.is_empty()
    }

    pub(super) fn push_call(&mut self, call: &ToolCall) {
        let arguments = input_to_object(&call.input);
        let function = fields! { "name": call.name.as_str(), "arguments": arguments };
        self.calls.push(fields! { "id": call.id.as_str(), "function": function }.into());
    }

    /// The message, with its texts joined.
    pub(super) fn into_json(self, separator: &str) -> Json {
        let mut message = fields! { "role": self.role, "content": self.text.join(separator) };
        message.insert_unless_empty("thinking", &self.thinking);
        if !self.images.is_empty() {
            message.insert("images", self.images);
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls", to_json_list(&self.calls));
        }
        message.into()
    }
}

/// The message with a tool result.
pub(super) fn result_message(id: &str, name: &str, text: &str) -> Json {
    fields! { "role": "tool", "content": text, "tool_name": name, "tool_call_id": id }.into()
}

/// The base64 of an image; `None` for other data.
pub(super) fn image_base64(block: &DataBlock) -> Option<&str> {
    match &block.source {
        Source::Base64(source) if media_type(block)?.starts_with("image/") => Some(&source.data),
        Source::Base64(_) | Source::Url(_) | Source::Other(_) => None,
    }
}

/// Writes messages. A reply becomes an assistant message, its tool results, and so on.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut written = Vec::new();
    for msg in messages {
        let role = msg.role().as_str();
        let mut draft = MessageDraft::new(role);
        // A reply begins with an assistant message, even if that is empty.
        let mut is_first = true;
        for block in msg.content() {
            match block {
                ContentBlock::Text(block) if block.text.is_empty() => {}
                ContentBlock::Text(block) => draft.text.push(block.text.clone()),
                ContentBlock::Thinking(block) => draft.thinking.push_str(&block.thinking),
                ContentBlock::Data(block) => {
                    draft.images.extend(image_base64(block).map(str::to_owned));
                }
                ContentBlock::ToolCall(call) => draft.push_call(call),
                ContentBlock::ToolResult(block) => {
                    let done = std::mem::replace(&mut draft, MessageDraft::new(role));
                    if role == "assistant" && (is_first || !done.is_empty()) {
                        written.push(done.into_json(""));
                    }
                    is_first = false;
                    written.push(result_message(&block.id, &block.name, &block.output.text("")));
                }
                ContentBlock::Hint(_) | ContentBlock::Other(_) => {}
            }
        }
        if is_first || !draft.is_empty() {
            written.push(draft.into_json(""));
        }
    }
    written
}

/// A message as it is read.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub role: OptionalText<'a>,
    pub content: OptionalText<'a>,
    pub thinking: OptionalText<'a>,
    pub images: Raw<'a>,
    pub tool_calls: List<CallFields<'a>>,
    pub tool_name: OptionalText<'a>,
    pub tool_call_id: OptionalText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CallFields<'a> {
    pub id: OptionalText<'a>,
    function: Object<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Function<'a> {
    name: OptionalText<'a>,
    arguments: Raw<'a>,
}

impl CallFields<'_> {
    pub(super) fn name(&self) -> &str {
        self.function.0.as_ref().map_or("", |function| function.name.or_empty())
    }

    /// The arguments as JSON text. They are an object, but some models send a string with one.
    pub(super) fn arguments(&self) -> Cow<'_, str> {
        let arguments = self.function.0.as_ref().and_then(|function| function.arguments);
        let arguments = arguments.map_or("{}", RawValue::get);
        match serde_json::from_str::<String>(arguments) {
            Ok(text) => text.into(),
            Err(_) => arguments.into(),
        }
    }
}

impl Message<'_> {
    /// The images as base64.
    pub(super) fn images(&self) -> Vec<String> {
        let images = self.images.map(|images| serde_json::from_str(images.get()));
        images.and_then(serde_json::Result::ok).unwrap_or_default()
    }
}

/// Reads a list of messages, or a single one.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    HistoryReader::read(text, |history, message| read_message(history, &message))
}

fn read_message(history: &mut HistoryReader, message: &Message<'_>) {
    let text = message.content.or_empty();
    let role = message.role.or_empty();
    if role == "tool" {
        if text.is_empty()
            && message.tool_call_id.or_empty().is_empty()
            && message.tool_name.or_empty().is_empty()
        {
            return history.push_result(None);
        }
        let (id, name) = (message.tool_call_id.as_deref(), message.tool_name.as_deref());
        let (name, id) = history.match_result(id, name);
        return history.push_result(Some(ToolResult::success(id, text).named(name)));
    }
    let mut blocks = Vec::new();
    if let Some(thinking) = message.thinking.as_deref().filter(|text| !text.is_empty()) {
        blocks.push(ThinkingBlock::new(thinking).into());
    }
    if !text.is_empty() {
        blocks.push(ContentBlock::from(text));
    }
    blocks.extend(message.images().into_iter().map(|data| {
        let source = Source::base64(data, None);
        // The media type is unknown, so it is the older image block.
        let block = DataBlock { kind: DataKind::Image, ..DataBlock::from_source(source) };
        ContentBlock::from(block)
    }));
    match role {
        "assistant" => {
            for call in &message.tool_calls.0 {
                let id = history.register_call(call.id.as_deref(), call.name());
                blocks.push(
                    ToolCall::new(id, call.name(), object_to_input(&call.arguments())).into(),
                );
            }
            history.push_reply(blocks);
        }
        "system" => history.push_message(Role::System, blocks),
        _ => history.push_message(Role::User, blocks),
    }
}
