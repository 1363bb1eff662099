//! Recordings of Gemini, on its own API and on Vertex.

use crate::harness::{Expected, Provider, check_all};
use serde_json::{Map, Value};

#[test]
fn recordings_of_gemini_become_the_messages_that_they_hold() {
    let provider = Provider {
        wire: "gemini",
        claims: |name| {
            name.starts_with("google.google-") || name.starts_with("google-vertex.google-")
        },
        expected,
        is_terminal: |frame| frame["candidates"][0]["finishReason"].is_string(),
        pings: &[],
        last_word: None,
    };
    check_all(&provider, 9);
}

fn expected(frames: &[Value]) -> Expected {
    let mut expected = Expected::default();
    let mut calls: Vec<(String, Value)> = Vec::new();
    for part in frames.iter().flat_map(parts) {
        if let Some(text) = part["text"].as_str() {
            let thinking = part["thought"] == Value::Bool(true);
            let all = if thinking { &mut expected.thinking } else { &mut expected.text };
            all.push_str(text);
        }
        let call = &part["functionCall"];
        if let Some(name) = call["name"].as_str() {
            let args = call.get("args").cloned().unwrap_or_else(|| Map::new().into());
            calls.push((name.to_owned(), args));
        }
        for arg in call["partialArgs"].as_array().into_iter().flatten() {
            let slot = at(&mut calls.last_mut().unwrap().1, arg["jsonPath"].as_str().unwrap());
            match (&arg["stringValue"], &arg["numberValue"], &arg["boolValue"]) {
                (Value::String(more), ..) => {
                    *slot = format!("{}{more}", slot.as_str().unwrap_or("")).into();
                }
                (_, Value::Number(number), _) => *slot = number.clone().into(),
                (_, _, Value::Bool(flag)) => *slot = (*flag).into(),
                _ => {}
            }
        }
    }
    expected.calls = calls.into_iter().map(|(name, args)| (name, args.to_string())).collect();
    let last = |field: &str| {
        let mut counts = frames.iter().filter_map(|frame| frame["usageMetadata"][field].as_i64());
        counts.next_back().unwrap_or(0)
    };
    expected.usage =
        (last("promptTokenCount"), last("candidatesTokenCount") + last("thoughtsTokenCount"));
    let mut words =
        frames.iter().filter_map(|frame| frame["candidates"][0]["finishReason"].as_str());
    let reason = match words.next_back() {
        None => "truncated",
        Some("STOP") if expected.calls.is_empty() => "completed",
        Some("STOP") => "tool_calls",
        Some("MAX_TOKENS") => "length",
        Some(_) => "content_filter",
    };
    Expected { reason: reason.to_owned(), ..expected }
}

fn parts(frame: &Value) -> Vec<&Value> {
    let parts = frame["candidates"][0]["content"]["parts"].as_array();
    parts.into_iter().flatten().collect()
}

/// The place in a tree that a path such as `$.a.b[0]` names; what is missing is made.
fn at<'v>(tree: &'v mut Value, path: &str) -> &'v mut Value {
    let steps = path.trim_start_matches('$').replace('[', ".[");
    let mut place = tree;
    for step in steps.split('.').filter(|step| !step.is_empty()) {
        place = if let Some(index) = step.strip_prefix('[') {
            let index: usize = index.trim_end_matches(']').parse().unwrap();
            if place.is_null() {
                *place = Value::Array(Vec::new());
            }
            let list = place.as_array_mut().unwrap();
            list.resize(list.len().max(index + 1), Value::Null);
            &mut list[index]
        } else {
            if place.is_null() {
                *place = Map::new().into();
            }
            place.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
        };
    }
    place
}
