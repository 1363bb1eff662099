//! Two fake clients, written after the examples in the protocol document: one in React, one in
//! Flutter, whose delta handler is corrected (the document's drops ended blocks).

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// A block as it is displayed.
pub type ShownBlock = Map<String, Value>;

/// A client that hides open blocks, and shows a block once it has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct React {
    pub blocks: Vec<ShownBlock>,
    pub is_streaming: bool,
    open: HashMap<u64, (ShownBlock, String)>,
    tools: HashMap<String, usize>,
}

impl React {
    pub fn apply_frame(&mut self, frame: &str) {
        let frame: Value = serde_json::from_str(frame).unwrap();
        let index = frame["index"].as_u64().unwrap_or(u64::MAX);
        match frame["type"].as_str().unwrap() {
            "message_start" => *self = Self { is_streaming: true, ..Self::default() },
            "content_block_start" => {
                let mut block = frame["content_block"].as_object().unwrap().clone();
                block.insert("index".to_owned(), index.into());
                self.open.insert(index, (block, String::new()));
            }
            "content_block_delta" => self.delta(index, &frame["delta"]),
            "content_block_stop" => self.stop(index),
            "message_stop" => self.is_streaming = false,
            _ => {}
        }
    }

    fn delta(&mut self, index: u64, delta: &Value) {
        let Some((block, parts)) = self.open.get_mut(&index) else { return };
        let mut set = |key: &str, value: &Value| drop(block.insert(key.to_owned(), value.clone()));
        match delta["type"].as_str() {
            Some("text_delta") => {
                parts.push_str(delta["text"].as_str().unwrap_or_default());
                set("text", &json!(parts));
                match delta["extras"]["block_subtype"].as_str() {
                    Some("user_stopped") => set("type", &json!("terminal_user_stopped")),
                    Some("error") => {
                        set("type", &json!("terminal_error"));
                        set("extras", &delta["extras"]);
                    }
                    _ => {}
                }
            }
            Some("thinking_delta") => {
                parts.push_str(delta["thinking"].as_str().unwrap_or_default());
                set("thinking", &json!(parts));
            }
            _ => {}
        }
        if !delta["action_requests"].is_null() {
            set("actionRequests", &delta["action_requests"]);
            set("reviewConfigs", &delta["review_configs"]);
            set("timeoutSeconds", &delta["timeout_seconds"]);
        }
        if !delta["status"].is_null() {
            set("processingStatus", &delta["status"]);
        }
        if !delta["message"].is_null() {
            set("processingMessage", &delta["message"]);
        }
    }

    fn stop(&mut self, index: u64) {
        let Some((block, _)) = self.open.remove(&index) else { return };
        if block["type"] == "tool_result" {
            let call = self.tools.get(block["tool_use_id"].as_str().unwrap());
            if let Some(call) = call.and_then(|at| self.blocks.get_mut(*at)) {
                call.insert("toolResult".to_owned(), block["content"].clone());
                call.insert("toolResultError".to_owned(), json!(block["status"] == "error"));
                call.insert("artifact".to_owned(), block["artifact"].clone());
                return;
            }
        }
        if block["type"] == "tool_use" {
            self.tools.insert(block["id"].as_str().unwrap().to_owned(), self.blocks.len());
        }
        self.blocks.push(block);
    }
}

/// A client that also shows open blocks, after the ended ones, ordered by index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flutter {
    pub is_streaming: bool,
    ended: Vec<ShownBlock>,
    open: BTreeMap<u64, ShownBlock>,
    tools: HashMap<String, usize>,
}

impl Flutter {
    pub fn blocks(&self) -> Vec<ShownBlock> {
        self.ended.iter().chain(self.open.values()).cloned().collect()
    }

    pub fn apply_frame(&mut self, frame: &str) {
        let frame: Value = serde_json::from_str(frame).unwrap();
        let index = frame["index"].as_u64().unwrap_or(u64::MAX);
        match frame["type"].as_str().unwrap() {
            "message_start" => *self = Self { is_streaming: true, ..Self::default() },
            "content_block_start" => {
                let mut block = frame["content_block"].as_object().unwrap().clone();
                block.insert("index".to_owned(), index.into());
                self.open.insert(index, block);
            }
            "content_block_delta" => {
                if let Some(block) = self.open.get_mut(&index) {
                    apply_delta(block, &frame["delta"]);
                }
            }
            "content_block_stop" => self.stop(index),
            "message_stop" => {
                self.is_streaming = false;
                // Blocks that never ended were discarded.
                self.open.clear();
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u64) {
        let Some(block) = self.open.remove(&index) else { return };
        if block["type"] == "tool_result" {
            let call = self.tools.get(block["tool_use_id"].as_str().unwrap());
            if let Some(call) = call.and_then(|at| self.ended.get_mut(*at)) {
                call.insert("toolResult".to_owned(), block["content"].clone());
                call.insert("toolResultError".to_owned(), json!(block["status"] == "error"));
                return;
            }
        }
        if block["type"] == "tool_use" {
            self.tools.insert(block["id"].as_str().unwrap().to_owned(), self.ended.len());
        }
        self.ended.push(block);
    }
}

fn apply_delta(block: &mut ShownBlock, delta: &Value) {
    let append = |block: &mut ShownBlock, key: &str| {
        let old = block.get(key).and_then(Value::as_str).unwrap_or_default();
        let text = old.to_owned() + delta[key].as_str().unwrap_or_default();
        block.insert(key.to_owned(), text.into());
    };
    match delta["type"].as_str() {
        Some("text_delta") => append(block, "text"),
        Some("thinking_delta") => append(block, "thinking"),
        _ => {}
    }
    match delta["extras"]["block_subtype"].as_str() {
        Some("user_stopped") => {
            block.insert("type".to_owned(), "terminal_user_stopped".into());
        }
        Some("error") => {
            block.insert("type".to_owned(), "terminal_error".into());
            block.insert("extras".to_owned(), delta["extras"].clone());
        }
        _ => {}
    }
    if !delta["action_requests"].is_null() {
        block.insert("actionRequests".to_owned(), delta["action_requests"].clone());
    }
}

/// What the user sees, one line per block.
pub fn lines(blocks: &[ShownBlock]) -> Vec<String> {
    blocks.iter().map(line).collect()
}

fn line(block: &ShownBlock) -> String {
    let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
    let by = match text("subagent") {
        "" => String::new(),
        name => format!("{name} for {}: ", text("parent_tool_use_id")),
    };
    let what = match text("type") {
        "thinking" => format!("thinks {}", text("thinking")),
        "text" => format!("says {}", text("text")),
        "tool_use" => {
            let result = match block.get("toolResultError") {
                None => String::new(),
                Some(Value::Bool(true)) => format!(" fails {}", text("toolResult")),
                Some(_) => format!(" gives {}", text("toolResult")),
            };
            format!("calls {}{}{result}", text("name"), block["input"])
        }
        "approval_request" => format!("asks {}", block["actionRequests"]),
        "approval_result" => format!("hears {}", block["decisions"]),
        "terminal_error" => {
            format!("{} {} {}", text("text"), block["extras"]["code"], block["extras"]["can_retry"])
        }
        "terminal_user_stopped" => text("text").to_owned(),
        "attachment" => format!("shows {}", text("url")),
        other => other.to_owned(),
    };
    by + &what
}
