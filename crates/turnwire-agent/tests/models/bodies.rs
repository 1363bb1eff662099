//! Response bodies of every provider.

use serde_json::{Value, json};
use std::fmt::Write;

pub const WIRES: [&str; 6] =
    ["openai-chat", "openai-responses", "anthropic", "gemini", "dashscope", "ollama"];

/// A response, independent of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    Text,
    Reasoning,
    Tool,
    Parallel,
}

pub const SCENES: [Scene; 4] = [Scene::Text, Scene::Reasoning, Scene::Tool, Scene::Parallel];

pub const THOUGHT: &str = "Hm, 你好.";
/// In two pieces.
pub const TEXT: [&str; 2] = ["Grüße ", "🌍!"];

impl Scene {
    pub fn thinks(self) -> bool {
        self == Self::Reasoning
    }

    pub fn speaks(self) -> bool {
        matches!(self, Self::Text | Self::Reasoning)
    }

    /// The calls: id, name and input.
    pub fn calls(self) -> Vec<(&'static str, &'static str, Value)> {
        let weather = ("c1", "get_weather", json!({"city": "Paris"}));
        match self {
            Self::Text | Self::Reasoning => vec![],
            Self::Tool => vec![weather],
            Self::Parallel => vec![weather, ("c2", "get_time", json!({"zone": "CET"}))],
        }
    }
}

/// The body of a response.
pub fn body(wire: &str, scene: Scene) -> String {
    match wire {
        "openai-chat" => chat(scene),
        "openai-responses" => responses(scene),
        "anthropic" => anthropic(scene),
        "gemini" => gemini(scene),
        "dashscope" => dashscope(scene),
        "ollama" => ollama(scene),
        wire => panic!("no body for {wire}"),
    }
}

/// A Chat Completions stream, without its end, with one chunk for each text.
pub fn says(pieces: &[&str]) -> String {
    let chunk = |text: &&str| {
        frame(&json!({
            "id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}],
        }))
    };
    pieces.iter().map(chunk).collect()
}

/// The same with its end.
pub fn says_all(pieces: &[&str]) -> String {
    let end =
        frame(&json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
    format!("{}{end}data: [DONE]\n\n", says(pieces))
}

fn frame(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

fn reason(scene: Scene, calls: &str, stop: &str) -> String {
    if scene.calls().is_empty() { stop.to_owned() } else { calls.to_owned() }
}

fn chat(scene: Scene) -> String {
    let mut out = String::from(": hello\n\n");
    let mut delta = |delta: Value, reason: Value| {
        out.push_str(&frame(&json!({
            "id": "chat", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        })));
    };
    delta(json!({"role": "assistant", "content": ""}), Value::Null);
    if scene.thinks() {
        delta(json!({"reasoning_content": THOUGHT}), Value::Null);
    }
    for text in TEXT.iter().filter(|_| scene.speaks()) {
        delta(json!({"content": text}), Value::Null);
    }
    for (index, (id, name, input)) in scene.calls().into_iter().enumerate() {
        let function = json!({"name": name, "arguments": ""});
        delta(
            json!({"tool_calls": [{"index": index, "id": id, "function": function}]}),
            Value::Null,
        );
        for letters in input.to_string().as_bytes().chunks(5) {
            let piece = String::from_utf8(letters.to_vec()).unwrap();
            let call = json!({"index": index, "function": {"arguments": piece}});
            delta(json!({"tool_calls": [call]}), Value::Null);
        }
    }
    delta(json!({}), reason(scene, "tool_calls", "stop").into());
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 5});
    out.push_str(&frame(&json!({"id": "chat", "choices": [], "usage": usage})));
    out + "data: [DONE]\n\n"
}

fn responses(scene: Scene) -> String {
    let mut out = String::new();
    let mut items = Vec::new();
    let mut send = |value: Value| out.push_str(&named(&value));
    let response = json!({"id": "resp", "model": "m", "status": "in_progress", "output": []});
    send(json!({"type": "response.created", "response": response}));
    if scene.thinks() {
        let item = json!({"type": "reasoning", "id": "rs", "summary": []});
        send(json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
        let at = json!({"item_id": "rs", "output_index": 0, "summary_index": 0});
        let with = |kind: &str, key: &str, value: Value| {
            let mut frame = at.clone();
            frame["type"] = kind.into();
            frame[key] = value;
            frame
        };
        let part = json!({"type": "summary_text", "text": ""});
        send(with("response.reasoning_summary_part.added", "part", part));
        send(with("response.reasoning_summary_text.delta", "delta", THOUGHT.into()));
        send(with("response.reasoning_summary_text.done", "text", THOUGHT.into()));
        let part = json!({"type": "summary_text", "text": THOUGHT});
        let item = json!({"type": "reasoning", "id": "rs", "summary": [part]});
        send(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
        items.push(item);
    }
    if scene.speaks() {
        let index = items.len();
        let item = json!({"type": "message", "id": "msg", "role": "assistant", "content": []});
        send(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        for text in TEXT {
            send(json!({
                "type": "response.output_text.delta", "item_id": "msg", "output_index": index,
                "content_index": 0, "delta": text,
            }));
        }
        let content = json!([{"type": "output_text", "text": TEXT.concat(), "annotations": []}]);
        let item = json!({"type": "message", "id": "msg", "role": "assistant", "content": content});
        send(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        items.push(item);
    }
    for (id, name, input) in scene.calls() {
        let (index, item_id) = (items.len(), format!("fc_{id}"));
        let mut item = json!({
            "type": "function_call", "id": item_id, "call_id": id, "name": name, "arguments": "",
        });
        send(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        send(json!({
            "type": "response.function_call_arguments.delta", "item_id": item_id,
            "output_index": index, "delta": input.to_string(),
        }));
        item["arguments"] = input.to_string().into();
        send(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        items.push(item);
    }
    let usage = json!({"input_tokens": 3, "output_tokens": 5});
    let response =
        json!({"id": "resp", "model": "m", "status": "completed", "output": items, "usage": usage});
    send(json!({"type": "response.completed", "response": response}));
    out
}

fn anthropic(scene: Scene) -> String {
    let mut out = String::new();
    let mut index = 0;
    let mut send = |value: Value| out.push_str(&named(&value));
    let usage = json!({"input_tokens": 3, "output_tokens": 1});
    send(json!({"type": "message_start", "message": {"id": "msg", "model": "m", "usage": usage}}));
    send(json!({"type": "ping"}));
    let mut block = |start: Value, deltas: Vec<Value>| {
        send(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            send(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        send(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if scene.thinks() {
        let thought = json!({"type": "thinking_delta", "thinking": THOUGHT});
        let signed = json!({"type": "signature_delta", "signature": "sig"});
        block(json!({"type": "thinking", "thinking": ""}), vec![thought, signed]);
    }
    if scene.speaks() {
        let text = |text: &str| json!({"type": "text_delta", "text": text});
        block(json!({"type": "text", "text": ""}), TEXT.iter().map(|it| text(it)).collect());
    }
    for (id, name, input) in scene.calls() {
        let piece = json!({"type": "input_json_delta", "partial_json": input.to_string()});
        block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), vec![piece]);
    }
    let stop = json!({"stop_reason": reason(scene, "tool_use", "end_turn")});
    send(json!({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}));
    send(json!({"type": "message_stop"}));
    out
}

fn gemini(scene: Scene) -> String {
    let mut parts = Vec::new();
    if scene.thinks() {
        parts.push(json!({"text": THOUGHT, "thought": true}));
    }
    if scene.speaks() {
        parts.extend(TEXT.iter().map(|text| json!({"text": text})));
    }
    for (id, name, input) in scene.calls() {
        parts.push(json!({"functionCall": {"id": id, "name": name, "args": input}}));
    }
    let mut out = String::new();
    let last = parts.len() - 1;
    for (at, part) in parts.into_iter().enumerate() {
        let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
        if at == last {
            candidate["finishReason"] = "STOP".into();
        }
        let usage = json!({"promptTokenCount": 3, "candidatesTokenCount": 5});
        out.push_str(&frame(&json!({
            "candidates": [candidate], "usageMetadata": usage, "modelVersion": "m",
        })));
    }
    out
}

fn dashscope(scene: Scene) -> String {
    let mut messages = Vec::new();
    if scene.thinks() {
        messages.push(json!({"role": "assistant", "content": "", "reasoning_content": THOUGHT}));
    }
    if scene.speaks() {
        messages.extend(TEXT.iter().map(|text| json!({"role": "assistant", "content": text})));
    }
    for (index, (id, name, input)) in scene.calls().into_iter().enumerate() {
        let function = json!({"name": name, "arguments": input.to_string()});
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
    }
    let last = messages.len() - 1;
    let mut out = String::new();
    for (at, message) in messages.into_iter().enumerate() {
        let finish = if at == last { reason(scene, "tool_calls", "stop") } else { "null".into() };
        let value = json!({
            "output": {"choices": [{"message": message, "finish_reason": finish}]},
            "usage": {"input_tokens": 3, "output_tokens": 5}, "request_id": "r",
        });
        write!(out, "id:{at}\nevent:result\n:HTTP_STATUS/200\ndata:{value}\n\n").unwrap();
    }
    out
}

fn ollama(scene: Scene) -> String {
    let mut messages = Vec::new();
    if scene.thinks() {
        messages.push(json!({"role": "assistant", "content": "", "thinking": THOUGHT}));
    }
    if scene.speaks() {
        messages.extend(TEXT.iter().map(|text| json!({"role": "assistant", "content": text})));
    }
    for (_, name, input) in scene.calls() {
        let call = json!({"function": {"name": name, "arguments": input}});
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
    }
    let mut out = String::new();
    for message in messages {
        writeln!(out, "{}", json!({"model": "m", "message": message, "done": false})).unwrap();
    }
    let message = json!({"role": "assistant", "content": ""});
    let end = json!({
        "model": "m", "message": message, "done": true, "done_reason": "stop",
        "prompt_eval_count": 3, "eval_count": 5,
    });
    out + &format!("{end}\n")
}
