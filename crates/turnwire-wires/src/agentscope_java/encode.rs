//! Converts our events to Java's, field by field. What Java has no field for is left out here.

use super::KEPT_FIELD;
use super::block::{self, fields_to_json, list_to_json};
use super::event::is_java_event;
use super::message::{is_generate_reason, usage_to_java};
use super::open_replies::{OpenReplies, path_of};
use crate::json::string_field;
use turnwire_core::event::{Chunk, ToolResultDataDelta};
use turnwire_core::{Event, EventKind, Fields, Json, ToolResultState};

/// Our event as Java's. Events that Java does not have are custom events.
#[expect(clippy::too_many_lines, reason = "an arm for each kind")]
pub(super) fn to_java(event: &Event<'_>, track: &OpenReplies) -> Fields {
    if !is_java_event(event) {
        return as_custom(event);
    }
    let path = path_of(event);
    let mut java = EventWriter::new(event);
    match &event.kind {
        EventKind::ReplyStart(start) => {
            java.set_type("AGENT_START");
            java.insert_known("sessionId", &start.session_id);
            java.insert_reply(event);
            java.insert_known("name", &start.name);
            java.insert("role", start.role.as_str());
        }
        EventKind::ReplyEnd(_) => {
            java.set_type("AGENT_END");
            java.insert_reply(event);
        }
        EventKind::ModelCallEnd(end) => {
            java.insert_reply(event);
            let usage = &end.usage;
            let tokens = (usage.input_tokens, usage.output_tokens, usage.cache_input_tokens);
            java.insert(
                "usage",
                fields_to_json(&usage_to_java(tokens.0, tokens.1, tokens.2, None)),
            );
        }
        EventKind::ModelCallStart(_) | EventKind::ExceedMaxIters(_) => java.insert_reply(event),
        EventKind::TextBlockStart(start) => java.insert_block(event, &start.block_id, None),
        EventKind::TextBlockDelta(delta) => {
            java.insert_block(event, &delta.block_id, Some(&delta.delta));
        }
        EventKind::TextBlockEnd(end) => java.insert_block(event, &end.block_id, None),
        EventKind::ThinkingBlockStart(start) => java.insert_block(event, &start.block_id, None),
        EventKind::ThinkingBlockDelta(delta) => {
            java.insert_block(event, &delta.block_id, Some(&delta.delta));
        }
        EventKind::ThinkingBlockEnd(end) => java.insert_block(event, &end.block_id, None),
        EventKind::DataBlockStart(start) => java.insert_block(event, &start.block_id, None),
        EventKind::DataBlockDelta(delta) => {
            let data = match &delta.chunk {
                Chunk::Data(data) => data,
                Chunk::Url(_) => "",
            };
            java.insert_block(event, &delta.block_id, Some(data));
        }
        EventKind::DataBlockEnd(end) => java.insert_block(event, &end.block_id, None),
        EventKind::Hint(hint) => {
            java.insert_block(event, &hint.block_id, None);
            if let Some(source) = &hint.source {
                java.insert("hintSource", source.as_str());
            }
            java.insert("hint", hint.hint.text("\n"));
        }
        EventKind::ToolCallStart(start) => {
            java.insert_call(event, &start.tool_call_id, Some(&start.tool_call_name));
        }
        EventKind::ToolCallDelta(delta) => {
            java.insert_call(
                event,
                &delta.tool_call_id,
                track.tool_name(path, &delta.tool_call_id),
            );
            java.insert("delta", &*delta.delta);
        }
        EventKind::ToolCallEnd(end) => {
            java.insert_call(event, &end.tool_call_id, track.tool_name(path, &end.tool_call_id));
        }
        EventKind::ToolResultStart(start) => {
            java.insert_call(event, &start.tool_call_id, Some(&start.tool_call_name));
        }
        EventKind::ToolResultTextDelta(delta) => {
            java.insert_call(
                event,
                &delta.tool_call_id,
                track.tool_name(path, &delta.tool_call_id),
            );
            java.insert("delta", &*delta.delta);
        }
        EventKind::ToolResultDataDelta(delta) => {
            java.insert_call(
                event,
                &delta.tool_call_id,
                track.tool_name(path, &delta.tool_call_id),
            );
            java.insert(
                "data",
                fields_to_json(&data_block(delta, string_field(&event.rest, "name"))),
            );
        }
        EventKind::ToolResultEnd(end) => {
            java.insert_call(event, &end.tool_call_id, track.tool_name(path, &end.tool_call_id));
            let running = ToolResultState::default();
            let state = if end.state.is_known() { &end.state } else { &running };
            java.insert("state", state.as_str());
        }
        EventKind::RequireUserConfirm(ask) => {
            java.insert_reply(event);
            let calls: Vec<Fields> = ask.tool_calls.iter().map(block::call_to_java).collect();
            java.insert("toolCalls", list_to_json(&calls));
        }
        EventKind::RequireExternalExecution(ask) => {
            java.insert_reply(event);
            let calls: Vec<Fields> = ask.tool_calls.iter().map(block::call_to_java).collect();
            java.insert("toolCalls", list_to_json(&calls));
        }
        EventKind::UserConfirmResult(answer) => {
            java.insert_reply(event);
            let answers = answer.confirm_results.iter().map(block::confirm_to_java);
            java.insert("confirmResults", list_to_json(&answers.collect::<Vec<_>>()));
        }
        EventKind::ExternalExecutionResult(answer) => {
            java.insert_reply(event);
            let results = answer.execution_results.iter().map(block::result_to_java);
            java.insert("toolResults", list_to_json(&results.collect::<Vec<_>>()));
        }
        EventKind::RequestStop(stop) => {
            if let Some(reason) = &stop.reason {
                java.insert("reason", reason.as_str());
            }
            if let Some(word) =
                stop.generate_reason.as_ref().filter(|word| is_generate_reason(word))
            {
                java.insert("generateReason", word.as_str());
            }
        }
        EventKind::AllToolsDenied(denied) => {
            let calls = denied.denied_tool_calls.iter().map(block::call_to_java);
            java.insert("deniedToolCalls", list_to_json(&calls.collect::<Vec<_>>()));
        }
        EventKind::SubagentExposed(exposed) => {
            java.insert_known("subagentId", &exposed.subagent_id);
            java.insert_known("agentId", &exposed.agent_id);
            java.insert_known("sessionId", &exposed.session_id);
            if let Some(label) = &exposed.label {
                java.insert("label", label.as_str());
            }
        }
        EventKind::Custom(custom) => {
            java.insert("name", custom.name.as_str());
            let value = &custom.value.0;
            let value =
                if value.text().starts_with('{') { value } else { &Json::from(empty_value()) };
            java.insert("value", value.clone());
        }
        EventKind::Block(_)
        | EventKind::Message(_)
        | EventKind::Supersede(_)
        | EventKind::Reset(_)
        | EventKind::UserInterrupt(_)
        | EventKind::Unknown(_) => return native_to_java(event),
    }
    java.finish(event)
}

fn empty_value() -> serde_json::Map<String, serde_json::Value> {
    serde_json::Map::new()
}

/// An event of Java's that we do not know, unchanged.
pub(super) fn native_to_java(event: &Event<'_>) -> Fields {
    let mut java = EventWriter::new(event);
    java.insert_known("replyId", &event.reply_id);
    for (key, value) in &event.rest {
        if key != KEPT_FIELD {
            java.insert(key, value.clone());
        }
    }
    java.finish(event)
}

/// An event that Java does not have, as a custom event: its name is the type in lower case, its
/// value the whole event.
pub(super) fn as_custom(event: &Event<'_>) -> Fields {
    let mut java = EventWriter::new(event);
    java.set_type("CUSTOM");
    java.insert("name", event.kind.type_name().to_lowercase());
    java.insert("value", Json::from_value(event).unwrap_or_else(|_| empty_value().into()));
    java.0
}

struct EventWriter(Fields);

impl EventWriter {
    fn new(event: &Event<'_>) -> Self {
        let mut java = Self(Fields::default());
        java.set_type(event.kind.type_name());
        java.insert_known("id", &event.id);
        java.insert_known("createdAt", &event.created_at);
        java
    }

    fn insert(&mut self, key: &str, value: impl Into<Json>) {
        self.0.insert(key, value);
    }

    fn set_type(&mut self, word: &str) {
        self.insert("type", word);
    }

    /// Java leaves empty strings out.
    fn insert_known(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.insert(key, text);
        }
    }

    fn insert_reply(&mut self, event: &Event<'_>) {
        self.insert_known("replyId", &event.reply_id);
    }

    fn insert_block(&mut self, event: &Event<'_>, block_id: &str, delta: Option<&str>) {
        self.insert_reply(event);
        self.insert("blockId", block_id);
        if let Some(delta) = delta {
            self.insert("delta", delta);
        }
    }

    fn insert_call(&mut self, event: &Event<'_>, call: &str, name: Option<&str>) {
        self.insert_reply(event);
        self.insert("toolCallId", call);
        if let Some(name) = name {
            self.insert("toolCallName", name);
        }
    }

    fn finish(mut self, event: &Event<'_>) -> Fields {
        if let Some(path) = path_of(event) {
            self.insert("source", path);
        }
        if !event.metadata.is_empty() {
            self.insert("metadata", fields_to_json(&event.metadata));
        }
        self.0
    }
}

/// The media type of bytes for which we know none; Java requires one.
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
    java.insert("source", fields_to_json(&source));
    if !delta.block_id.is_empty() {
        java.insert("id", &*delta.block_id);
    }
    if let Some(name) = name {
        java.insert("name", name);
    }
    java
}
