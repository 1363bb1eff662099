//! From our events to Java's, field by field. What Java has no place for is left out here.

use super::KEPT;
use super::block::{self, of_fields, of_list, text};
use super::event::is_javas;
use super::message::{is_generate_reason, usage_to_java};
use super::track::{Track, path_of};
use turnwire_core::event::{Chunk, ToolResultDataDelta};
use turnwire_core::{Event, EventKind, Fields, Json, ToolResultState};

/// An event of ours as Java's. Ours that Java does not have are custom events.
#[expect(clippy::too_many_lines, reason = "an arm for each kind")]
pub(super) fn to_java(event: &Event<'_>, track: &Track) -> Fields {
    if !is_javas(event) {
        return as_custom(event);
    }
    let path = path_of(event);
    let mut java = Writing::new(event);
    match &event.kind {
        EventKind::ReplyStart(start) => {
            java.is("AGENT_START");
            java.known("sessionId", &start.session_id);
            java.reply(event);
            java.known("name", &start.name);
            java.put("role", start.role.as_str());
        }
        EventKind::ReplyEnd(_) => {
            java.is("AGENT_END");
            java.reply(event);
        }
        EventKind::ModelCallEnd(end) => {
            java.reply(event);
            let usage = &end.usage;
            let tokens = (usage.input_tokens, usage.output_tokens, usage.cache_input_tokens);
            java.put("usage", of_fields(&usage_to_java(tokens.0, tokens.1, tokens.2, None)));
        }
        EventKind::ModelCallStart(_) | EventKind::ExceedMaxIters(_) => java.reply(event),
        EventKind::TextBlockStart(start) => java.block(event, &start.block_id, None),
        EventKind::TextBlockDelta(delta) => java.block(event, &delta.block_id, Some(&delta.delta)),
        EventKind::TextBlockEnd(end) => java.block(event, &end.block_id, None),
        EventKind::ThinkingBlockStart(start) => java.block(event, &start.block_id, None),
        EventKind::ThinkingBlockDelta(delta) => {
            java.block(event, &delta.block_id, Some(&delta.delta));
        }
        EventKind::ThinkingBlockEnd(end) => java.block(event, &end.block_id, None),
        EventKind::DataBlockStart(start) => java.block(event, &start.block_id, None),
        EventKind::DataBlockDelta(delta) => {
            let data = match &delta.chunk {
                Chunk::Data(data) => data,
                Chunk::Url(_) => "",
            };
            java.block(event, &delta.block_id, Some(data));
        }
        EventKind::DataBlockEnd(end) => java.block(event, &end.block_id, None),
        EventKind::Hint(hint) => {
            java.block(event, &hint.block_id, None);
            if let Some(source) = &hint.source {
                java.put("hintSource", source.as_str());
            }
            java.put("hint", hint.hint.text("\n"));
        }
        EventKind::ToolCallStart(start) => {
            java.call(event, &start.tool_call_id, Some(&start.tool_call_name));
        }
        EventKind::ToolCallDelta(delta) => {
            java.call(event, &delta.tool_call_id, track.tool_name(path, &delta.tool_call_id));
            java.put("delta", &*delta.delta);
        }
        EventKind::ToolCallEnd(end) => {
            java.call(event, &end.tool_call_id, track.tool_name(path, &end.tool_call_id));
        }
        EventKind::ToolResultStart(start) => {
            java.call(event, &start.tool_call_id, Some(&start.tool_call_name));
        }
        EventKind::ToolResultTextDelta(delta) => {
            java.call(event, &delta.tool_call_id, track.tool_name(path, &delta.tool_call_id));
            java.put("delta", &*delta.delta);
        }
        EventKind::ToolResultDataDelta(delta) => {
            java.call(event, &delta.tool_call_id, track.tool_name(path, &delta.tool_call_id));
            java.put("data", of_fields(&data_block(delta, text(&event.rest, "name"))));
        }
        EventKind::ToolResultEnd(end) => {
            java.call(event, &end.tool_call_id, track.tool_name(path, &end.tool_call_id));
            let running = ToolResultState::default();
            let state = if end.state.is_known() { &end.state } else { &running };
            java.put("state", state.as_str());
        }
        EventKind::RequireUserConfirm(ask) => {
            java.reply(event);
            let calls: Vec<Fields> = ask.tool_calls.iter().map(block::call_to_java).collect();
            java.put("toolCalls", of_list(&calls));
        }
        EventKind::RequireExternalExecution(ask) => {
            java.reply(event);
            let calls: Vec<Fields> = ask.tool_calls.iter().map(block::call_to_java).collect();
            java.put("toolCalls", of_list(&calls));
        }
        EventKind::UserConfirmResult(answer) => {
            java.reply(event);
            let answers = answer.confirm_results.iter().map(block::confirm_to_java);
            java.put("confirmResults", of_list(&answers.collect::<Vec<_>>()));
        }
        EventKind::ExternalExecutionResult(answer) => {
            java.reply(event);
            let results = answer.execution_results.iter().map(block::result_to_java);
            java.put("toolResults", of_list(&results.collect::<Vec<_>>()));
        }
        EventKind::RequestStop(stop) => {
            if let Some(reason) = &stop.reason {
                java.put("reason", reason.as_str());
            }
            if let Some(word) =
                stop.generate_reason.as_ref().filter(|word| is_generate_reason(word))
            {
                java.put("generateReason", word.as_str());
            }
        }
        EventKind::AllToolsDenied(denied) => {
            let calls = denied.denied_tool_calls.iter().map(block::call_to_java);
            java.put("deniedToolCalls", of_list(&calls.collect::<Vec<_>>()));
        }
        EventKind::SubagentExposed(exposed) => {
            java.known("subagentId", &exposed.subagent_id);
            java.known("agentId", &exposed.agent_id);
            java.known("sessionId", &exposed.session_id);
            if let Some(label) = &exposed.label {
                java.put("label", label.as_str());
            }
        }
        EventKind::Custom(custom) => {
            java.put("name", custom.name.as_str());
            let value = &custom.value.0;
            let value = if value.text().starts_with('{') { value } else { &Json::from(no_value()) };
            java.put("value", value.clone());
        }
        _ => return native_to_java(event),
    }
    java.finish(event)
}

fn no_value() -> serde_json::Map<String, serde_json::Value> {
    serde_json::Map::new()
}

/// An event of Java's that we do not know, as it came.
pub(super) fn native_to_java(event: &Event<'_>) -> Fields {
    let mut java = Writing::new(event);
    java.known("replyId", &event.reply_id);
    for (key, value) in &event.rest {
        if key != KEPT {
            java.put(key, value.clone());
        }
    }
    java.finish(event)
}

/// An event that Java does not have, as a custom one: the type in lower case is its name, the whole
/// event its value.
pub(super) fn as_custom(event: &Event<'_>) -> Fields {
    let mut java = Writing::new(event);
    java.is("CUSTOM");
    java.put("name", event.kind.type_name().to_lowercase());
    java.put("value", Json::from_value(event).unwrap_or_else(|_| no_value().into()));
    java.0
}

struct Writing(Fields);

impl Writing {
    fn new(event: &Event<'_>) -> Self {
        let mut java = Self(Fields::default());
        java.is(event.kind.type_name());
        java.known("id", &event.id);
        java.known("createdAt", &event.created_at);
        java
    }

    fn put(&mut self, key: &str, value: impl Into<Json>) {
        self.0.insert(key, value);
    }

    fn is(&mut self, word: &str) {
        self.put("type", word);
    }

    /// What is empty is not known, and Java leaves that out.
    fn known(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.put(key, text);
        }
    }

    fn reply(&mut self, event: &Event<'_>) {
        self.known("replyId", &event.reply_id);
    }

    fn block(&mut self, event: &Event<'_>, block_id: &str, delta: Option<&str>) {
        self.reply(event);
        self.put("blockId", block_id);
        if let Some(delta) = delta {
            self.put("delta", delta);
        }
    }

    fn call(&mut self, event: &Event<'_>, call: &str, name: Option<&str>) {
        self.reply(event);
        self.put("toolCallId", call);
        if let Some(name) = name {
            self.put("toolCallName", name);
        }
    }

    fn finish(mut self, event: &Event<'_>) -> Fields {
        if let Some(path) = path_of(event) {
            self.put("source", path);
        }
        if !event.metadata.is_empty() {
            self.put("metadata", of_fields(&event.metadata));
        }
        self.0
    }
}

/// What Java has to be told of bytes where we know nothing.
pub(super) const UNKNOWN_BYTES: &str = "application/octet-stream";

fn data_block(delta: &ToolResultDataDelta<'_>, name: Option<String>) -> Fields {
    let mut source = Fields::default();
    match &delta.chunk {
        Chunk::Data(data) => {
            source.insert("type", "base64");
            let media_type = delta.media_type.as_deref();
            source.insert("media_type", media_type.unwrap_or(UNKNOWN_BYTES));
            source.insert("data", &**data);
        }
        Chunk::Url(url) => {
            source.insert("type", "url");
            source.insert("url", &**url);
            if let Some(media_type) = &delta.media_type {
                source.insert("mime_type", media_type.as_str());
            }
        }
    }
    let mut java = Fields::default();
    java.insert("type", "data");
    java.insert("source", of_fields(&source));
    if !delta.block_id.is_empty() {
        java.insert("id", &*delta.block_id);
    }
    if let Some(name) = name {
        java.insert("name", name);
    }
    java
}
