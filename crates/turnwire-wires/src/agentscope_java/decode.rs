//! From Java's events to ours, field by field. What we have no place for is left out here.

use super::block::{self, objects, of_fields, of_list, text};
use super::track::{Open, Track};
use turnwire_core::{Error, ErrorKind, Event, Fields, Json, Result, Role};

/// An event of Java's in our terms, without what we have no place for.
#[expect(clippy::too_many_lines, reason = "an arm for each type")]
pub(super) fn from_java(java: &Fields, track: &Track) -> Result<Event<'static>> {
    let Some(word) = text(java, "type") else {
        let is_message = java.raw("role").is_some() && java.raw("content").is_some();
        let why =
            if is_message { "this is a message, not an event" } else { "an event has a `type`" };
        return Err(Error::new(ErrorKind::NotAnEvent, why));
    };
    let path = text(java, "source");
    let open = track.reply(path.as_deref());
    let mut ours = Reading { java, ours: Fields::default() };
    ours.is(&word);
    ours.text("id", "id");
    ours.text("createdAt", "created_at");
    ours.text("source", "agent_path");
    if let Some(metadata) = block::object(java, "metadata") {
        ours.put("metadata", of_fields(&metadata));
    }
    let own = text(java, "replyId");
    let starts_or_ends =
        matches!(word.as_str(), "AGENT_START" | "REPLY_START" | "AGENT_END" | "REPLY_END");
    let reply_id = match &own {
        Some(own) if starts_or_ends => Some(own.clone()),
        Some(own) => Some(track.outer(path.as_deref(), own).into_owned()),
        None => open.map(|open| open.reply_id.clone()),
    };
    if let Some(reply_id) = reply_id {
        ours.put("reply_id", reply_id);
    }
    let own = own.unwrap_or_default();
    match word.as_str() {
        "AGENT_START" | "REPLY_START" => {
            ours.is("REPLY_START");
            ours.text("sessionId", "session_id");
            ours.text("name", "name");
            let role = text(java, "role").unwrap_or_default().to_lowercase();
            let role = Role::ALL.into_iter().find(|known| known.as_str() == role);
            ours.put("role", role.unwrap_or_default().as_str());
        }
        "AGENT_END" | "REPLY_END" => {
            ours.is("REPLY_END");
            let reply_id = text(&ours.ours, "reply_id").unwrap_or_default();
            ours.put("reply_id", reply_id.as_str());
            if let Some(open) = open.filter(|open| open.reply_id == reply_id) {
                ours.ending(open);
            }
        }
        "MODEL_CALL_END" => ours.tokens(),
        "TEXT_BLOCK_START"
        | "TEXT_BLOCK_END"
        | "TEXT_BLOCK_DELTA"
        | "THINKING_BLOCK_START"
        | "THINKING_BLOCK_END"
        | "THINKING_BLOCK_DELTA" => {
            if let Some(block_id) = text(java, "blockId") {
                let block_id = track.block_id(path.as_deref(), &own, &block_id).into_owned();
                ours.put("block_id", block_id);
            }
            ours.text("delta", "delta");
        }
        "DATA_BLOCK_START" | "DATA_BLOCK_END" => ours.text("blockId", "block_id"),
        "DATA_BLOCK_DELTA" => {
            ours.text("blockId", "block_id");
            ours.put("data", text(java, "delta").unwrap_or_default());
        }
        "HINT_BLOCK" => {
            ours.text("blockId", "block_id");
            ours.text("hintSource", "source");
            ours.put("hint", text(java, "hint").unwrap_or_default());
        }
        "TOOL_CALL_START" | "TOOL_RESULT_START" => {
            ours.text("toolCallId", "tool_call_id");
            ours.text("toolCallName", "tool_call_name");
        }
        "TOOL_CALL_DELTA" | "TOOL_RESULT_TEXT_DELTA" => {
            ours.text("toolCallId", "tool_call_id");
            ours.put("delta", text(java, "delta").unwrap_or_default());
        }
        "TOOL_CALL_END" => ours.text("toolCallId", "tool_call_id"),
        "TOOL_RESULT_DATA_DELTA" => {
            ours.text("toolCallId", "tool_call_id");
            ours.data();
        }
        "TOOL_RESULT_END" => {
            ours.text("toolCallId", "tool_call_id");
            let state = text(java, "state").unwrap_or_default().to_lowercase();
            let state = if state.is_empty() { "running".to_owned() } else { state };
            ours.put("state", state);
        }
        "REQUIRE_USER_CONFIRM" | "REQUIRE_EXTERNAL_EXECUTION" => {
            ours.blocks("toolCalls", "tool_calls")?;
        }
        "ALL_TOOLS_DENIED" => ours.blocks("deniedToolCalls", "denied_tool_calls")?,
        "EXTERNAL_EXECUTION_RESULT" => ours.blocks("toolResults", "execution_results")?,
        "USER_CONFIRM_RESULT" => {
            let answers = objects(java, "confirmResults").into_iter();
            let answers: Vec<Fields> = answers.map(block::confirm_from_java).collect();
            ours.put("confirm_results", of_list(&answers));
        }
        "REQUEST_STOP" => {
            ours.text("reason", "reason");
            ours.text("generateReason", "generate_reason");
        }
        "SUBAGENT_EXPOSED" => {
            ours.text("sessionId", "session_id");
            ours.text("subagentId", "subagent_id");
            ours.text("agentId", "agent_id");
            ours.text("label", "label");
        }
        "CUSTOM" => {
            ours.put("name", text(java, "name").unwrap_or_default());
            if let Some(value) = java.raw("value") {
                ours.put("value", value.clone());
            }
        }
        "MODEL_CALL_START" | "EXCEED_MAX_ITERS" => {}
        // A type that we do not know, or one of ours that Java never sends.
        _ => ours.others(),
    }
    let ours = of_fields(&ours.ours);
    let event = Event::from_json(ours.text())?;
    Ok(event.into_owned())
}

/// Java's fields on their way to ours.
struct Reading<'j> {
    java: &'j Fields,
    ours: Fields,
}

impl Reading<'_> {
    fn put(&mut self, key: &str, value: impl Into<Json>) {
        self.ours.insert(key, value);
    }

    fn is(&mut self, word: &str) {
        self.put("type", word);
    }

    /// A string by its two names.
    fn text(&mut self, from: &str, to: &str) {
        if let Some(text) = text(self.java, from) {
            self.put(to, text);
        }
    }

    fn blocks(&mut self, from: &str, to: &str) -> Result<()> {
        let blocks = block::list_from_java(objects(self.java, from))?;
        self.put(to, blocks);
        Ok(())
    }

    fn tokens(&mut self) {
        let Some(usage) = block::object(self.java, "usage") else { return };
        for (from, to) in [
            ("inputTokens", "input_tokens"),
            ("outputTokens", "output_tokens"),
            ("cachedTokens", "cache_input_tokens"),
        ] {
            let count: Option<i64> = usage.get(from).ok().flatten();
            self.put(to, count.unwrap_or_default());
        }
    }

    /// What the end of a reply says that was said before it.
    fn ending(&mut self, open: &Open) {
        self.put("session_id", open.session_id.as_str());
        let Some(ending) = &open.ending else { return };
        if let Some(reason) = &ending.finished_reason {
            self.put("finished_reason", reason.as_str());
        }
        if let Some(output) = &ending.structured_output {
            self.put("structured_output", output.clone());
        }
        if !ending.metadata.is_empty() {
            self.put("message_metadata", of_fields(&ending.metadata));
        }
    }

    /// The block of a result's data: whole in Java, with us a piece of one.
    fn data(&mut self) {
        let java = block::object(self.java, "data").unwrap_or_default();
        let block = block::from_java(java);
        if let Some(id) = text(&block, "id") {
            self.put("block_id", id);
        }
        if let Some(name) = text(&block, "name") {
            self.put("name", name);
        }
        let source = block::object(&block, "source").unwrap_or_default();
        if let Some(media_type) = text(&source, "media_type") {
            self.put("media_type", media_type);
        }
        match text(&source, "url") {
            Some(url) => self.put("url", url),
            None => self.put("data", text(&source, "data").unwrap_or_default()),
        }
    }

    /// Every field that is not one of those that all events have.
    fn others(&mut self) {
        for (key, value) in self.java {
            let common =
                matches!(key, "type" | "id" | "createdAt" | "replyId" | "source" | "metadata");
            if !common && self.ours.raw(key).is_none() {
                self.ours.insert(key, value.clone());
            }
        }
    }
}
