//! Converts Java's events to ours, field by field. What we have no field for is left out here.

use super::block::{self, list_to_json, object_list};
use super::open_replies::{OpenReplies, OpenReply};
use crate::json::string_field;
use turnwire_core::{Error, ErrorKind, Event, Fields, FinishedReason, Json, Result, Role};

/// Java's event as ours, without what we have no field for.
#[expect(clippy::too_many_lines, reason = "an arm for each type")]
pub(super) fn from_java(java: &Fields, track: &OpenReplies) -> Result<Event<'static>> {
    let Some(word) = string_field(java, "type") else {
        let is_message = java.raw("role").is_some() && java.raw("content").is_some();
        let why = if is_message { "expected an event, got a message" } else { "`type` is missing" };
        return Err(Error::new(ErrorKind::NotAnEvent, why));
    };
    let path = string_field(java, "source");
    let open = track.find_reply(path.as_deref());
    let mut ours = EventReader { java, ours: Fields::default() };
    ours.set_type(&word);
    ours.copy_text("id", "id");
    ours.copy_text("createdAt", "created_at");
    ours.copy_text("source", "agent_path");
    ours.ours.insert_some("metadata", block::object_field(java, "metadata"));
    let own = string_field(java, "replyId");
    let starts_or_ends =
        matches!(word.as_str(), "AGENT_START" | "REPLY_START" | "AGENT_END" | "REPLY_END");
    let reply_id = match &own {
        Some(own) if starts_or_ends => Some(own.clone()),
        Some(own) => Some(track.outer_reply_id(path.as_deref(), own).into_owned()),
        None => open.map(|open| open.reply_id.clone()),
    };
    ours.ours.insert_some("reply_id", reply_id);
    let own = own.unwrap_or_default();
    match word.as_str() {
        "AGENT_START" | "REPLY_START" => {
            ours.set_type("REPLY_START");
            ours.copy_text("sessionId", "session_id");
            ours.copy_text("name", "name");
            let role = string_field(java, "role").unwrap_or_default().to_lowercase();
            let role = Role::ALL.into_iter().find(|known| known.as_str() == role);
            ours.insert("role", role.unwrap_or_default().as_str());
        }
        "AGENT_END" | "REPLY_END" => {
            ours.set_type("REPLY_END");
            let reply_id = string_field(&ours.ours, "reply_id").unwrap_or_default();
            ours.insert("reply_id", reply_id.as_str());
            if let Some(open) = open.filter(|open| open.reply_id == reply_id) {
                ours.copy_result(open);
            }
        }
        "MODEL_CALL_END" => ours.copy_tokens(),
        "TEXT_BLOCK_START"
        | "TEXT_BLOCK_END"
        | "TEXT_BLOCK_DELTA"
        | "THINKING_BLOCK_START"
        | "THINKING_BLOCK_END"
        | "THINKING_BLOCK_DELTA" => {
            if let Some(block_id) = string_field(java, "blockId") {
                let block_id = track.block_id(path.as_deref(), &own, &block_id).into_owned();
                ours.insert("block_id", block_id);
            }
            ours.copy_text("delta", "delta");
        }
        "DATA_BLOCK_START" | "DATA_BLOCK_END" => ours.copy_text("blockId", "block_id"),
        "DATA_BLOCK_DELTA" => {
            ours.copy_text("blockId", "block_id");
            ours.insert("data", string_field(java, "delta").unwrap_or_default());
        }
        "HINT_BLOCK" => {
            ours.copy_text("blockId", "block_id");
            ours.copy_text("hintSource", "source");
            ours.insert("hint", string_field(java, "hint").unwrap_or_default());
        }
        "TOOL_CALL_START" | "TOOL_RESULT_START" => {
            ours.copy_text("toolCallId", "tool_call_id");
            ours.copy_text("toolCallName", "tool_call_name");
        }
        "TOOL_CALL_DELTA" | "TOOL_RESULT_TEXT_DELTA" => {
            ours.copy_text("toolCallId", "tool_call_id");
            ours.insert("delta", string_field(java, "delta").unwrap_or_default());
        }
        "TOOL_CALL_END" => ours.copy_text("toolCallId", "tool_call_id"),
        "TOOL_RESULT_DATA_DELTA" => {
            ours.copy_text("toolCallId", "tool_call_id");
            ours.copy_data();
        }
        "TOOL_RESULT_END" => {
            ours.copy_text("toolCallId", "tool_call_id");
            let state = string_field(java, "state").unwrap_or_default().to_lowercase();
            let state = if state.is_empty() { "running".to_owned() } else { state };
            ours.insert("state", state);
        }
        "REQUIRE_USER_CONFIRM" | "REQUIRE_EXTERNAL_EXECUTION" => {
            ours.copy_blocks("toolCalls", "tool_calls")?;
        }
        "ALL_TOOLS_DENIED" => ours.copy_blocks("deniedToolCalls", "denied_tool_calls")?,
        "EXTERNAL_EXECUTION_RESULT" => ours.copy_blocks("toolResults", "execution_results")?,
        "USER_CONFIRM_RESULT" => {
            let answers = object_list(java, "confirmResults").into_iter();
            let answers: Vec<Fields> = answers.map(block::confirm_from_java).collect();
            ours.insert("confirm_results", list_to_json(&answers));
        }
        "REQUEST_STOP" => {
            ours.copy_text("reason", "reason");
            ours.copy_text("generateReason", "generate_reason");
        }
        "SUBAGENT_EXPOSED" => {
            ours.copy_text("sessionId", "session_id");
            ours.copy_text("subagentId", "subagent_id");
            ours.copy_text("agentId", "agent_id");
            ours.copy_text("label", "label");
        }
        "CUSTOM" => {
            ours.insert("name", string_field(java, "name").unwrap_or_default());
            ours.ours.insert_some("value", java.raw("value").cloned());
        }
        "MODEL_CALL_START" | "EXCEED_MAX_ITERS" => {}
        // An unknown type, or one of ours that Java never sends.
        _ => ours.copy_others(),
    }
    let ours = Json::from(ours.ours);
    let event = Event::from_json(ours.text())?;
    Ok(event.into_owned())
}

/// Copies Java's fields to ours.
struct EventReader<'j> {
    java: &'j Fields,
    ours: Fields,
}

impl EventReader<'_> {
    fn insert(&mut self, key: &str, value: impl Into<Json>) {
        self.ours.insert(key, value);
    }

    fn set_type(&mut self, word: &str) {
        self.insert("type", word);
    }

    /// Copies a string.
    fn copy_text(&mut self, from: &str, to: &str) {
        self.ours.insert_some(to, string_field(self.java, from));
    }

    fn copy_blocks(&mut self, from: &str, to: &str) -> Result<()> {
        let blocks = block::list_from_java(object_list(self.java, from))?;
        self.insert(to, blocks);
        Ok(())
    }

    fn copy_tokens(&mut self) {
        let Some(usage) = block::object_field(self.java, "usage") else { return };
        for (from, to) in [
            ("inputTokens", "input_tokens"),
            ("outputTokens", "output_tokens"),
            ("cachedTokens", "cache_input_tokens"),
        ] {
            let count: Option<i64> = usage.get(from).ok().flatten();
            self.insert(to, count.unwrap_or_default());
        }
    }

    /// Copies what `AGENT_RESULT` said to the end of the reply.
    fn copy_result(&mut self, open: &OpenReply) {
        self.insert("session_id", open.session_id.as_str());
        let Some(ending) = &open.agent_result else { return };
        let reason = ending.finished_reason.as_ref().map(FinishedReason::as_str);
        self.ours.insert_some("finished_reason", reason);
        self.ours.insert_some("structured_output", ending.structured_output.clone());
        self.ours.insert_fields("message_metadata", &ending.metadata);
    }

    /// Copies the block of a result's data: whole in Java, a delta with us.
    fn copy_data(&mut self) {
        let java = block::object_field(self.java, "data").unwrap_or_default();
        let block = block::from_java(java);
        self.ours.insert_some("block_id", string_field(&block, "id"));
        self.ours.insert_some("name", string_field(&block, "name"));
        let source = block::object_field(&block, "source").unwrap_or_default();
        self.ours.insert_some("media_type", string_field(&source, "media_type"));
        match string_field(&source, "url") {
            Some(url) => self.insert("url", url),
            None => self.insert("data", string_field(&source, "data").unwrap_or_default()),
        }
    }

    /// Copies every field that is not common to all events.
    fn copy_others(&mut self) {
        for (key, value) in self.java {
            let common =
                matches!(key, "type" | "id" | "createdAt" | "replyId" | "source" | "metadata");
            if !common && self.ours.raw(key).is_none() {
                self.ours.insert(key, value.clone());
            }
        }
    }
}
