//! A fake AI SDK client: as strict as the real one (`processUIMessageStream`,
//! `validateUIMessages`), and it also rejects what that one ignores.

use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// A client's message over one or several responses.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Client {
    pub id: String,
    pub metadata: Value,
    pub parts: Vec<Value>,
    pub finish_reason: String,
    pub error: Option<String>,
}

/// What is open in one response.
#[derive(Default)]
struct Open {
    texts: HashMap<String, usize>,
    reasonings: HashMap<String, usize>,
    inputs: HashSet<String>,
    outputs: HashSet<String>,
    in_step: bool,
}

fn text<'v>(chunk: &'v Value, key: &str) -> &'v str {
    chunk[key].as_str().unwrap_or_else(|| panic!("{chunk} has no text `{key}`"))
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

impl Client {
    /// Applies the chunks of one response.
    pub fn response(&mut self, chunks: &[Value]) {
        self.chunks(chunks);
        self.parts.iter().for_each(assert_valid);
    }

    /// Applies the chunks of one response that may leave invalid parts.
    pub fn chunks(&mut self, chunks: &[Value]) {
        if chunks.is_empty() {
            return;
        }
        let mut open = Open::default();
        assert_eq!(chunks[0]["type"], "start", "the first chunk");
        assert_eq!(chunks[chunks.len() - 1]["type"], "finish", "the last chunk");
        for (at, chunk) in chunks.iter().enumerate() {
            let word = text(chunk, "type");
            assert_eq!(word == "start", at == 0, "one start: {chunk}");
            assert_eq!(word == "finish", at + 1 == chunks.len(), "one finish: {chunk}");
            self.chunk(word, chunk, &mut open);
        }
        assert!(open.is_closed(), "something is open at the end");
        assert!(!open.in_step, "a step is open at the end");
    }

    fn current(&self) -> usize {
        self.parts.iter().rposition(|part| part["type"] == "step-start").map_or(0, |at| at + 1)
    }

    fn tool(&mut self, id: &str) -> &mut Value {
        let found = self.parts.iter_mut().rev().find(|part| part["toolCallId"] == id);
        found.unwrap_or_else(|| panic!("an output for the unknown call {id}"))
    }

    /// The part of a call in the current step, added if missing.
    fn input(&mut self, chunk: &Value, state: &str) -> &mut Value {
        let (id, from) = (text(chunk, "toolCallId"), self.current());
        assert_eq!(chunk["dynamic"], true);
        let is_it = |part: &Value| part["toolCallId"] == id;
        if !self.parts[from..].iter().any(is_it) {
            assert!(!self.parts.iter().any(is_it), "the call {id} is doubled");
            self.parts.push(json!({"type": "dynamic-tool", "toolCallId": id}));
        }
        let part = self.parts[from..].iter_mut().find(|part| is_it(part)).unwrap();
        let fields = part.as_object_mut().unwrap();
        for old in ["output", "errorText", "preliminary", "rawInput"] {
            fields.remove(old);
        }
        fields.insert("toolName".to_owned(), text(chunk, "toolName").into());
        fields.insert("state".to_owned(), state.into());
        fields.insert("input".to_owned(), chunk["input"].clone());
        fields.insert("providerExecuted".to_owned(), chunk["providerExecuted"].clone());
        if !chunk["providerMetadata"].is_null() {
            fields.insert("callProviderMetadata".to_owned(), chunk["providerMetadata"].clone());
        }
        part
    }

    fn chunk(&mut self, word: &str, chunk: &Value, open: &mut Open) {
        match word {
            "start" => {
                let id = text(chunk, "messageId");
                if self.id != id {
                    *self = Self { id: id.to_owned(), ..Self::default() };
                }
                merge(&mut self.metadata, &chunk["messageMetadata"]);
            }
            "finish" => {
                text(chunk, "finishReason").clone_into(&mut self.finish_reason);
                if !chunk["messageMetadata"].is_null() {
                    merge(&mut self.metadata, &chunk["messageMetadata"]);
                }
            }
            "message-metadata" => merge(&mut self.metadata, &chunk["messageMetadata"]),
            "start-step" => {
                assert!(!open.in_step, "a step in a step");
                open.in_step = true;
                self.parts.push(json!({"type": "step-start"}));
            }
            "finish-step" => {
                assert!(open.in_step, "no step to finish");
                assert!(open.is_closed(), "something is open where a step ends");
                open.in_step = false;
            }
            "reset-step" => {
                let from = self.current();
                self.parts.truncate(from);
                *open = Open { in_step: open.in_step, ..Open::default() };
            }
            "text-start" | "reasoning-start" => {
                let ids = if word == "text-start" { &mut open.texts } else { &mut open.reasonings };
                let id = text(chunk, "id");
                assert!(ids.insert(id.to_owned(), self.parts.len()).is_none(), "{id} is open");
                let kind = word.strip_suffix("-start").unwrap();
                self.parts.push(json!({"type": kind, "text": "", "state": "streaming"}));
            }
            "text-delta" | "reasoning-delta" | "text-end" | "reasoning-end" => {
                let ids =
                    if word.starts_with("text") { &mut open.texts } else { &mut open.reasonings };
                let id = text(chunk, "id");
                let at = *ids.get(id).unwrap_or_else(|| panic!("{id} is not open"));
                let part = &mut self.parts[at];
                if word.ends_with("-end") {
                    ids.remove(id);
                    part["state"] = "done".into();
                    if !chunk["providerMetadata"].is_null() {
                        part["providerMetadata"] = chunk["providerMetadata"].clone();
                    }
                } else {
                    part["text"] = format!("{}{}", text(part, "text"), text(chunk, "delta")).into();
                }
            }
            _ if word.starts_with("tool-") => self.tool_chunk(word, chunk, open),
            "error" => self.error = Some(text(chunk, "errorText").to_owned()),
            "abort" => drop(text(chunk, "reason").to_owned()),
            "file" => {
                assert!(!text(chunk, "url").is_empty() || chunk["url"] == "");
                text(chunk, "mediaType");
                self.parts.push(chunk.clone());
            }
            _ if word.starts_with("data-") => self.data(chunk),
            _ => panic!("an unknown chunk: {chunk}"),
        }
    }

    fn data(&mut self, chunk: &Value) {
        assert!(chunk.get("data").is_some(), "{chunk}");
        if chunk["transient"] == true {
            return;
        }
        let is_it = |part: &&mut Value| part["type"] == chunk["type"] && part["id"] == chunk["id"];
        match self.parts.iter_mut().find(is_it) {
            Some(part) if !chunk["id"].is_null() => part["data"] = chunk["data"].clone(),
            _ => self.parts.push(chunk.clone()),
        }
    }

    fn tool_chunk(&mut self, word: &str, chunk: &Value, open: &mut Open) {
        let id = chunk["toolCallId"].as_str().or(chunk["approvalId"].as_str()).unwrap();
        match word {
            "tool-input-start" => {
                assert!(open.inputs.insert(id.to_owned()), "{id} has begun");
                self.input(chunk, "input-streaming")["rawInput"] = "".into();
            }
            "tool-input-delta" => {
                assert!(open.inputs.contains(id), "{id} has not begun");
                let part = self.tool(id);
                let raw = format!("{}{}", text(part, "rawInput"), text(chunk, "inputTextDelta"));
                part["rawInput"] = raw.into();
            }
            "tool-input-available" => {
                open.inputs.remove(id);
                self.input(chunk, "input-available");
            }
            "tool-input-error" => {
                open.inputs.remove(id);
                let error = text(chunk, "errorText");
                self.input(chunk, "output-error")["errorText"] = error.into();
            }
            "tool-approval-request" => {
                assert!(!open.outputs.contains(id), "an approval of the finished call {id}");
                let part = self.tool(id);
                part["state"] = "approval-requested".into();
                part["approval"] = json!({"id": text(chunk, "approvalId")});
            }
            "tool-approval-response" => {
                let part = self.tool(id);
                assert!(part["approval"].is_object(), "an answer without a question: {chunk}");
                part["state"] = "approval-responded".into();
                part["approval"]["approved"] = chunk["approved"].clone();
                if !chunk["reason"].is_null() {
                    part["approval"]["reason"] = chunk["reason"].clone();
                }
            }
            "tool-output-available" | "tool-output-error" | "tool-output-denied" => {
                assert!(!open.inputs.contains(id), "an output before the input of {id}");
                assert!(!open.outputs.contains(id), "a second output of {id}");
                if chunk["preliminary"] != true {
                    open.outputs.insert(id.to_owned());
                }
                let part = self.tool(id).as_object_mut().unwrap();
                if word != "tool-output-denied" {
                    for old in ["output", "errorText", "preliminary"] {
                        part.remove(old);
                    }
                }
                part.insert("state".to_owned(), word.strip_prefix("tool-").unwrap().into());
                for key in ["output", "errorText", "preliminary"] {
                    if let Some(value) = chunk.get(key) {
                        part.insert(key.to_owned(), value.clone());
                    }
                }
                if !chunk["providerMetadata"].is_null() {
                    let key = "resultProviderMetadata".to_owned();
                    part.insert(key, chunk["providerMetadata"].clone());
                }
            }
            _ => panic!("an unknown chunk: {chunk}"),
        }
    }
}

impl Open {
    fn is_closed(&self) -> bool {
        self.texts.is_empty() && self.reasonings.is_empty() && self.inputs.is_empty()
    }
}

/// The checks of `validateUIMessages` for one part.
fn assert_valid(part: &Value) {
    let Some(state) = part.get("state").and_then(Value::as_str) else { return };
    if part["type"] != "dynamic-tool" {
        assert_eq!(state, "done", "{part}");
        return;
    }
    let (approval, approved) = (part.get("approval"), &part["approval"]["approved"]);
    let fits = match state {
        "input-available" => approval.is_none(),
        "approval-requested" => approval.is_some() && approved.is_null(),
        "approval-responded" => approved.is_boolean(),
        "output-available" | "output-error" => approval.is_none() || *approved == true,
        "output-denied" => *approved == false,
        _ => false,
    };
    assert!(fits, "the approval does not fit the state: {part}");
    assert_eq!(part.get("output").is_some(), state == "output-available", "{part}");
    assert_eq!(part.get("errorText").is_some(), state == "output-error", "{part}");
}
