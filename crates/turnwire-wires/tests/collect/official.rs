//! Adds up the frames of a stream as the official clients do.

use serde_json::{Map, Value, json};

/// The chunks of a chat completion.
pub fn add_up_chat(frames: &[Value]) -> Result<Value, Value> {
    if let Some(error) = frames.iter().find(|frame| !frame["error"].is_null()) {
        return Err(error.clone());
    }
    let mut message = json!({"role": "assistant", "content": "", "refusal": null});
    let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": null});
    let mut usage = Value::Null;
    let chunks = frames.iter().filter(|frame| frame["object"] == "chat.completion.chunk");
    for chunk in chunks.clone() {
        if !chunk["usage"].is_null() {
            usage = chunk["usage"].clone();
        }
        let part = &chunk["choices"][0];
        for name in ["finish_reason", "native_finish_reason"] {
            if !part[name].is_null() {
                choice[name] = part[name].clone();
            }
        }
        for name in ["content", "reasoning_content"] {
            append_text(&mut message, name, &part["delta"][name]);
        }
        for name in ["tool_calls", "annotations"] {
            for item in part["delta"][name].as_array().into_iter().flatten() {
                let mut item = item.clone();
                if name == "tool_calls" {
                    item.as_object_mut().unwrap().remove("index");
                }
                append_item(&mut message, name, item);
            }
        }
    }
    if message["content"] == "" && message.get("tool_calls").is_some() {
        message["content"] = Value::Null;
    }
    choice["message"] = message;
    let first = chunks.clone().next().unwrap();
    let mut whole = json!({"id": first["id"], "object": "chat.completion", "created": first["created"],
        "model": first["model"], "choices": [choice]});
    if !usage.is_null() {
        whole["usage"] = usage;
    }
    Ok(whole)
}

/// The events of an Anthropic message.
pub fn add_up_messages(frames: &[Value]) -> Result<Value, Value> {
    let mut message = Value::Null;
    let mut input = String::new();
    for frame in frames {
        match frame["type"].as_str().unwrap() {
            "message_start" => message = frame["message"].clone(),
            "content_block_start" => {
                input.clear();
                append_item(&mut message, "content", frame["content_block"].clone());
            }
            "content_block_delta" => {
                let delta = &frame["delta"];
                let block = message["content"].as_array_mut().unwrap().last_mut().unwrap();
                for name in ["text", "thinking", "signature"] {
                    append_text(block, name, &delta[name]);
                }
                if !delta["citation"].is_null() {
                    append_item(block, "citations", delta["citation"].clone());
                }
                input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" => {
                let block = message["content"].as_array_mut().unwrap().last_mut().unwrap();
                if let Ok(fields) = serde_json::from_str::<Map<String, Value>>(&input) {
                    block["input"] = fields.into();
                } else if !input.trim().is_empty() {
                    // A client fails here. In one piece the input is an object in any case.
                    block["input"] = json!({"raw_input": input});
                }
            }
            "message_delta" => {
                for name in ["stop_reason", "stop_sequence"] {
                    if !frame["delta"][name].is_null() {
                        message[name] = frame["delta"][name].clone();
                    }
                }
                message["usage"] = frame["usage"].clone();
            }
            "error" => return Err(frame.clone()),
            _ => {}
        }
    }
    Ok(message)
}

/// The response in the last frame.
pub fn last_response(frames: &[Value]) -> Option<Value> {
    let with_response = frames.iter().rev().find(|frame| !frame["response"].is_null());
    with_response.map(|frame| frame["response"].clone())
}

fn append_text(to: &mut Value, name: &str, more: &Value) {
    if let Some(more) = more.as_str() {
        let text = to[name].as_str().unwrap_or_default();
        // A field that is missing stays so if there is no text.
        if !(more.is_empty() && to[name].is_null()) {
            to[name] = format!("{text}{more}").into();
        }
    }
}

fn append_item(to: &mut Value, name: &str, item: Value) {
    match &mut to[name] {
        Value::Array(list) => list.push(item),
        other => *other = json!([item]),
    }
}
