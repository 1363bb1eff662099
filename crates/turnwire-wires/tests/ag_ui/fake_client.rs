//! A fake AG-UI client: it checks the protocol's rules, also those that the real client does not
//! check, and builds the messages.

use serde_json::{Value, json};
use std::collections::HashSet;

#[derive(Default)]
pub struct Client {
    pub messages: Vec<Value>,
    /// The last event of each run.
    pub ends: Vec<Value>,
    running: bool,
    begun: bool,
    run_id: String,
    texts: HashSet<String>,
    spans: HashSet<String>,
    thoughts: HashSet<String>,
    calls: HashSet<String>,
    /// Owner and name.
    steps: HashSet<(String, String)>,
    subs: HashSet<String>,
    closed: HashSet<String>,
}

fn text<'v>(frame: &'v Value, key: &str) -> &'v str {
    frame[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {frame}"))
}

/// The sub-agent of a frame.
fn owner(frame: &Value) -> String {
    frame["subagentRunId"].as_str().unwrap_or_default().to_owned()
}

impl Client {
    pub fn with(messages: Vec<Value>) -> Self {
        Self { messages, ..Self::default() }
    }

    pub fn is_running(&self) -> bool {
        self.running
    }

    pub fn apply_frame(&mut self, frame: &str) {
        let frame: Value = serde_json::from_str(frame).unwrap();
        let fields = frame.as_object().unwrap();
        assert!(!fields.values().any(Value::is_null), "null is no absence: {frame}");
        let word = text(&frame, "type");
        assert_eq!(self.running, word != "RUN_STARTED", "{frame}");
        match word {
            "RUN_STARTED" => self.run_started(&frame),
            "RUN_FINISHED" | "RUN_ERROR" => self.run_ended(&frame),
            "STEP_STARTED" => {
                let name = (owner(&frame), text(&frame, "stepName").to_owned());
                assert!(self.steps.insert(name), "{frame}");
            }
            "STEP_FINISHED" => {
                let name = (owner(&frame), text(&frame, "stepName").to_owned());
                assert!(self.steps.remove(&name), "{frame}");
            }
            "SUBAGENT_STARTED" => {
                let id = text(&frame, "subagentRunId").to_owned();
                assert!(!self.closed.contains(&id), "{frame}");
                let parent = frame["parentSubagentRunId"].as_str();
                assert!(parent.is_none_or(|id| self.subs.contains(id) || self.closed.contains(id)));
                text(&frame, "name");
                assert!(self.subs.insert(id), "{frame}");
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                let id = text(&frame, "subagentRunId").to_owned();
                assert!(self.subs.remove(&id), "{frame}");
                self.closed.insert(id);
            }
            "CUSTOM" => {
                text(&frame, "name");
                assert!(fields.contains_key("value"), "{frame}");
            }
            word => self.message(word, &frame),
        }
    }

    fn run_started(&mut self, frame: &Value) {
        (self.running, self.begun) = (true, true);
        text(frame, "threadId").clone_into(&mut self.run_id);
        text(frame, "runId").clone_into(&mut self.run_id);
        self.closed.clear();
        let Some(messages) = frame["input"]["messages"].as_array() else { return };
        for message in messages {
            if self.find_message(text(message, "id")).is_none() {
                self.messages.push(message.clone());
            }
        }
    }

    fn run_ended(&mut self, frame: &Value) {
        for open in [&self.texts, &self.spans, &self.thoughts, &self.calls, &self.subs] {
            assert!(open.is_empty(), "{open:?} is open: {frame}");
        }
        assert!(self.steps.is_empty(), "{:?} go on: {frame}", self.steps);
        if text(frame, "type") == "RUN_ERROR" {
            text(frame, "message");
            text(frame, "code");
        } else {
            assert_eq!(text(frame, "runId"), self.run_id);
            let outcome = &frame["outcome"];
            let kind = text(outcome, "type");
            assert!(["success", "interrupt", "cancelled"].contains(&kind), "{frame}");
            let interrupts = outcome["interrupts"].as_array().cloned().unwrap_or_default();
            assert_eq!(!interrupts.is_empty(), kind == "interrupt", "{frame}");
            let ids: HashSet<&str> = interrupts.iter().map(|ask| text(ask, "id")).collect();
            assert_eq!(ids.len(), interrupts.len(), "{frame}");
            for ask in &interrupts {
                text(ask, "reason");
            }
        }
        for tokens in frame["usage"].as_array().into_iter().flatten() {
            let count = |key: &str| tokens[key].as_u64().unwrap_or_default();
            assert!(
                count("cachedInputTokens") + count("cacheWriteInputTokens") <= count("inputTokens")
            );
        }
        self.ends.push(frame.clone());
        self.running = false;
    }

    fn find_message(&self, id: &str) -> Option<usize> {
        self.messages.iter().position(|message| message["id"] == id)
    }

    /// The index of the message with a call.
    fn find_call(&self, call: &str) -> Option<usize> {
        self.messages.iter().position(|message| {
            let calls = message["toolCalls"].as_array();
            calls.is_some_and(|calls| calls.iter().any(|made| made["id"] == call))
        })
    }

    /// The index of the message with this id, added if missing.
    fn find_or_add(&mut self, frame: &Value, message: Value) -> usize {
        let at = self.find_message(text(frame, "messageId")).unwrap_or_else(|| {
            self.messages.push(message);
            self.messages.len() - 1
        });
        if let Some(sub) = frame.get("subagentRunId") {
            self.messages[at]["subagentRunId"] = sub.clone();
        }
        merge(&mut self.messages[at], frame);
        at
    }

    fn append(&mut self, frame: &Value) {
        let at = self.find_message(text(frame, "messageId")).unwrap();
        let whole = format!("{}{}", text(&self.messages[at], "content"), text(frame, "delta"));
        self.messages[at]["content"] = whole.into();
    }

    fn message(&mut self, word: &str, frame: &Value) {
        let id = || text(frame, "messageId").to_owned();
        let call = || text(frame, "toolCallId").to_owned();
        match word {
            "TEXT_MESSAGE_START" => {
                assert!(self.texts.insert(id()), "{frame}");
                let mut message = json!({"id": id(), "role": frame["role"], "content": ""});
                if let Some(name) = frame.get("name") {
                    message["name"] = name.clone();
                }
                let at = self.find_or_add(frame, message);
                assert_eq!(self.messages[at]["role"], "assistant", "{frame}");
            }
            "TEXT_MESSAGE_CONTENT" => {
                assert!(self.texts.contains(&id()), "{frame}");
                self.append(frame);
            }
            "TEXT_MESSAGE_END" => assert!(self.texts.remove(&id()), "{frame}"),
            "REASONING_START" => assert!(self.spans.insert(id()), "{frame}"),
            "REASONING_MESSAGE_START" => {
                assert!(self.spans.contains(&id()) && self.thoughts.insert(id()), "{frame}");
                assert_eq!(frame["role"], "reasoning");
                self.find_or_add(frame, json!({"id": id(), "role": "reasoning", "content": ""}));
            }
            "REASONING_MESSAGE_CONTENT" => {
                assert!(self.thoughts.contains(&id()), "{frame}");
                self.append(frame);
            }
            "REASONING_MESSAGE_END" => assert!(self.thoughts.remove(&id()), "{frame}"),
            "REASONING_END" => {
                assert!(!self.thoughts.contains(&id()) && self.spans.remove(&id()), "{frame}");
            }
            "REASONING_ENCRYPTED_VALUE" => {
                assert_eq!(frame["subtype"], "message");
                let at = self.find_message(text(frame, "entityId")).unwrap();
                self.messages[at]["encryptedValue"] = frame["encryptedValue"].clone();
            }
            "TOOL_CALL_START" => {
                assert!(self.calls.insert(call()), "{frame}");
                self.call_start(&call(), frame);
            }
            "TOOL_CALL_ARGS" => {
                assert!(self.calls.contains(&call()), "{frame}");
                let at = self.find_call(&call()).unwrap();
                let made = &mut self.messages[at]["toolCalls"][0]["function"];
                made["arguments"] =
                    format!("{}{}", text(made, "arguments"), text(frame, "delta")).into();
            }
            "TOOL_CALL_END" => assert!(self.calls.remove(&call()), "{frame}"),
            "TOOL_CALL_RESULT" => self.result(frame),
            "ACTIVITY_SNAPSHOT" => {
                assert_eq!(frame["replace"], true);
                assert!(frame["content"].is_object(), "{frame}");
                let mut message = json!({"id": id(), "role": "activity",
                    "activityType": frame["activityType"], "content": frame["content"]});
                if let Some(sub) = frame.get("subagentRunId") {
                    message["subagentRunId"] = sub.clone();
                }
                merge(&mut message, frame);
                match self.find_message(&id()) {
                    Some(at) => self.messages[at] = message,
                    None => self.messages.push(message),
                }
            }
            "MESSAGES_SNAPSHOT" => self.messages.clone_from(frame["messages"].as_array().unwrap()),
            _ => panic!("{frame}"),
        }
    }

    fn call_start(&mut self, call: &str, frame: &Value) {
        if let Some(at) = self.find_call(call) {
            let made = &self.messages[at]["toolCalls"][0];
            assert_eq!(made["function"]["name"], frame["toolCallName"], "{frame}");
            return;
        }
        let id = frame["parentMessageId"].as_str().unwrap_or(call);
        assert!(self.find_message(id).is_none(), "{frame}");
        let mut made = json!({"id": call, "type": "function",
            "function": {"name": frame["toolCallName"], "arguments": ""}});
        merge(&mut made, frame);
        let mut message = json!({"id": id, "role": "assistant", "toolCalls": [made]});
        if let Some(sub) = frame.get("subagentRunId") {
            message["subagentRunId"] = sub.clone();
        }
        self.messages.push(message);
    }

    fn result(&mut self, frame: &Value) {
        let (id, call) = (text(frame, "messageId"), text(frame, "toolCallId"));
        assert!(self.find_message(id).is_none(), "twice: {frame}");
        assert!(frame["content"].is_string() || frame["content"].is_array(), "{frame}");
        let mut message =
            json!({"id": id, "toolCallId": call, "role": "tool", "content": frame["content"]});
        if let Some(sub) = frame.get("subagentRunId") {
            message["subagentRunId"] = sub.clone();
        }
        merge(&mut message, frame);
        let Some(holder) = self.find_call(call) else { return self.messages.push(message) };
        let mut at = holder + 1;
        while self.messages.get(at).is_some_and(|message| message["role"] == "tool") {
            at += 1;
        }
        self.messages.insert(at, message);
    }
}

/// Merges a frame's metadata into what it builds.
fn merge(target: &mut Value, frame: &Value) {
    for (key, value) in frame["metadata"].as_object().into_iter().flatten() {
        target["metadata"][key] = value.clone();
    }
}
