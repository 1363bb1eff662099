//! Builds events, and the parts that they become.

use crate::Scenario;
use serde_json::{Value, json};
use turnwire_core::{Event, Seq};

/// Events of the reply `r1` from their JSON, with seqs and times.
pub fn events(from: usize, list: &Value) -> Vec<Event<'static>> {
    let list = list.as_array().cloned().unwrap_or_default();
    let read = |(at, mut event): (usize, Value)| {
        if let Some(fields) = event.as_object_mut() {
            fields.entry("reply_id").or_insert_with(|| "r1".into());
        }
        let mut event = Event::from_json(&event.to_string()).ok()?.into_owned();
        event.created_at = format!("2026-11-15T08:22:02.{:06}", from + at).into();
        event.seq = Seq::new(u64::try_from(from + at + 1).ok()?);
        Some(event)
    };
    list.into_iter().enumerate().filter_map(read).collect()
}

pub fn scenario(name: &'static str, responses: &[Value], expected: Value) -> Scenario {
    let mut from = 0;
    let responses = responses
        .iter()
        .map(|list| {
            let made = events(from, list);
            from += made.len();
            made
        })
        .collect();
    Scenario { name, responses, actions: Vec::new(), pending: Vec::new(), expected }
}

pub fn start() -> Value {
    json!({"type": "REPLY_START", "session_id": "s", "name": "friday"})
}

pub fn end() -> Value {
    json!({"type": "REPLY_END", "session_id": "s", "finished_reason": "completed"})
}

pub fn model() -> Value {
    json!({"type": "MODEL_CALL_START", "model_name": "m"})
}

pub fn model_end() -> Value {
    json!({"type": "MODEL_CALL_END", "input_tokens": 3, "output_tokens": 2,
        "cache_input_tokens": 0, "cache_creation_input_tokens": 0, "finished_reason": "completed"})
}

pub fn block(kind: &str, id: &str, deltas: &[&str]) -> Vec<Value> {
    let mut list = vec![json!({"type": format!("{kind}_BLOCK_START"), "block_id": id})];
    for delta in deltas {
        list.push(json!({"type": format!("{kind}_BLOCK_DELTA"), "block_id": id, "delta": delta}));
    }
    list.push(json!({"type": format!("{kind}_BLOCK_END"), "block_id": id}));
    list
}

pub fn text(id: &str, deltas: &[&str]) -> Vec<Value> {
    block("TEXT", id, deltas)
}

pub fn call(id: &str, name: &str, deltas: &[&str]) -> Vec<Value> {
    let mut list =
        vec![json!({"type": "TOOL_CALL_START", "tool_call_id": id, "tool_call_name": name})];
    for delta in deltas {
        list.push(json!({"type": "TOOL_CALL_DELTA", "tool_call_id": id, "delta": delta}));
    }
    list.push(json!({"type": "TOOL_CALL_END", "tool_call_id": id}));
    list
}

pub fn result(id: &str, name: &str, deltas: &[&str], state: &str) -> Vec<Value> {
    let mut list =
        vec![json!({"type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": name})];
    for delta in deltas {
        list.push(json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": id, "delta": delta}));
    }
    list.push(json!({"type": "TOOL_RESULT_END", "tool_call_id": id, "state": state}));
    list
}

pub fn asking_call(id: &str) -> Value {
    let input = if id == "c1" { r#"{"n":1}"# } else { r#"{"n":2}"# };
    json!({"type": "tool_call", "id": id, "name": "trade", "input": input, "state": "asking",
        "suggested_rules": [], "finished_at": null})
}

pub fn confirm(ids: &[&str]) -> Value {
    let calls: Vec<Value> = ids.iter().map(|id| asking_call(id)).collect();
    json!({"type": "REQUIRE_USER_CONFIRM", "tool_calls": calls})
}

pub fn confirmation(id: &str, confirmed: bool, input: Option<&str>, reason: Option<&str>) -> Value {
    let mut call = asking_call(id);
    if let (Some(input), Some(call)) = (input, call.as_object_mut()) {
        call.insert("input".to_owned(), input.into());
    }
    let mut answer = json!({"confirmed": confirmed, "tool_call": call, "rules": null});
    if let (Some(reason), Some(answer)) = (reason, answer.as_object_mut()) {
        answer.insert("reason".to_owned(), reason.into());
    }
    json!({"type": "USER_CONFIRM_RESULT", "confirm_results": [answer]})
}

pub fn list(parts: impl IntoIterator<Item = Vec<Value>>) -> Value {
    Value::Array(parts.into_iter().flatten().collect())
}

/// The resulting message: its metadata without times, and its parts.
pub fn message(rounds: u32, more: &[(&str, Value)], parts: &[Value]) -> Value {
    let mut ours = json!({"name": "friday", "finished_reason": "completed"});
    if let Some(ours) = ours.as_object_mut() {
        if rounds > 0 {
            let usage = json!({"input_tokens": 3 * rounds, "output_tokens": 2 * rounds,
                "cache_input_tokens": 0, "cache_creation_input_tokens": 0});
            ours.insert("usage".to_owned(), usage);
        }
        for (key, value) in more {
            ours.insert((*key).to_owned(), value.clone());
        }
    }
    json!({"id": "r1", "role": "assistant", "metadata": {"turnwire": ours}, "parts": parts})
}

pub fn step() -> Value {
    json!({"type": "step-start"})
}

pub fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text, "state": "done"})
}

pub fn tool(id: &str, name: &str, more: &Value) -> Value {
    let mut part = json!({"type": "dynamic-tool", "toolName": name, "toolCallId": id,
        "providerExecuted": true});
    if let (Some(part), Some(more)) = (part.as_object_mut(), more.as_object()) {
        part.extend(more.clone());
    }
    part
}

pub fn tool_output(input: &Value, output: &Value) -> Value {
    json!({"state": "output-available", "input": input, "output": output})
}
