//! What an AG-UI client has after a stream, however often it was broken off and however the deltas were cut.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Compared with the messages that the server has.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The text of each message, the input and the result of each call.
    texts: BTreeMap<String, String>,
    /// Frames of an event whose last frame has not come: they come again after a reconnect.
    unfinished: Vec<Value>,
    /// What came, in short.
    trail: Vec<String>,
}

impl Transcript {
    /// Takes a frame. The last one of an event has a token.
    pub fn push(&mut self, frame: &Value, has_token: bool) {
        self.unfinished.push(frame.clone());
        if has_token {
            let mut follows_snapshot = false;
            for frame in std::mem::take(&mut self.unfinished) {
                self.apply(&frame, follows_snapshot);
                follows_snapshot |= frame["type"] == "MESSAGES_SNAPSHOT";
            }
        }
    }

    /// Forgets the frames of an event that did not come to its end.
    pub fn reconnect(&mut self) {
        self.unfinished.clear();
        self.trail.push("reconnect".to_owned());
        self.trail.dedup();
    }

    /// What came about a message or call, since the reconnects around it.
    pub fn describe_trail(&self, id: &str) -> String {
        let name = id.split_once(' ').map_or(id, |(_, name)| name);
        let mut trail: Vec<&str> = self.trail.iter().map(String::as_str).collect();
        trail.retain(|note| note.contains(name) || *note == "reconnect");
        trail.dedup();
        trail.join("; ")
    }

    /// What another one has, and this one has not.
    pub fn find_missing<'o>(&self, other: &'o Self) -> Vec<(&'o str, &'o str)> {
        let missing = other.texts.iter().filter(|(id, text)| self.texts.get(*id) != Some(*text));
        missing.map(|(id, text)| (id.as_str(), text.as_str())).collect()
    }

    pub fn text(&self, id: &str) -> &str {
        self.texts.get(id).map(String::as_str).unwrap_or_default()
    }

    fn apply(&mut self, frame: &Value, follows_snapshot: bool) {
        let mut note = frame.clone();
        if frame["type"] == "MESSAGES_SNAPSHOT" {
            // The last message is the one that may be open.
            let messages = frame["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
            note = json!({"snapshot": messages.last(), "messages": messages.iter().map(|message| &message["id"]).collect::<Vec<_>>()});
        }
        self.trail.push(note.to_string());
        let text = |name: &str| frame[name].as_str().unwrap_or_default();
        match text("type") {
            "TEXT_MESSAGE_CONTENT" => self.append("message", text("messageId"), text("delta")),
            // The start of what the snapshot has in part.
            "TOOL_CALL_START" if follows_snapshot => {}
            // A model call that was repeated after a crash may call the same again.
            "TOOL_CALL_START" => self.set("input", text("toolCallId"), ""),
            "TOOL_CALL_ARGS" => self.append("input", text("toolCallId"), text("delta")),
            "TOOL_CALL_RESULT" => self.set("result", text("toolCallId"), text("content")),
            // It replaces what the client has.
            "MESSAGES_SNAPSHOT" => {
                self.texts.clear();
                for message in frame["messages"].as_array().into_iter().flatten() {
                    self.take_message(message);
                }
            }
            _ => {}
        }
    }

    fn take_message(&mut self, message: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // Text, or a list of parts.
        let parts = message["content"].as_array().into_iter().flatten();
        let content =
            text(&message["content"]) + &parts.map(|part| text(&part["text"])).collect::<String>();
        match message["role"].as_str() {
            Some("tool") => self.set("result", &text(&message["toolCallId"]), &content),
            Some("assistant") if !content.is_empty() => {
                self.set("message", &text(&message["id"]), &content);
            }
            _ => {}
        }
        for call in message["toolCalls"].as_array().into_iter().flatten() {
            self.set("input", &text(&call["id"]), &text(&call["function"]["arguments"]));
        }
    }

    fn append(&mut self, what: &str, id: &str, delta: &str) {
        self.texts.entry(format!("{what} {id}")).or_default().push_str(delta);
    }

    fn set(&mut self, what: &str, id: &str, text: &str) {
        self.texts.insert(format!("{what} {id}"), text.to_owned());
    }
}

#[test]
fn an_input_that_a_reconnect_broke_in_two_is_whole() {
    let frame = |kind: &str, delta: &str| json!({"type": kind, "toolCallId": "c", "delta": delta});
    let call = json!({"id": "c", "function": {"arguments": "{\"city\":"}});
    let snapshot = json!({"type": "MESSAGES_SNAPSHOT", "messages": [{"role": "assistant", "toolCalls": [call]}]});
    let mut transcript = Transcript::default();
    transcript.push(&frame("TOOL_CALL_START", ""), true);
    transcript.push(&frame("TOOL_CALL_ARGS", "{\"city\":"), true);
    transcript.reconnect();
    transcript.push(&snapshot, false);
    transcript.push(&frame("TOOL_CALL_START", ""), false);
    transcript.push(&frame("TOOL_CALL_ARGS", "\"Paris\"}"), true);
    assert_eq!(transcript.text("input c"), "{\"city\":\"Paris\"}");
    // The same call again.
    transcript.push(&frame("TOOL_CALL_START", ""), true);
    assert_eq!(transcript.text("input c"), "");
}
