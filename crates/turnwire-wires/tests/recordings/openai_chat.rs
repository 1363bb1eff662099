//! Recordings of OpenAI's chat and of its look-alikes.

use crate::harness::{Expected, Provider, check_all};
use serde_json::Value;
use std::collections::BTreeMap;

const PROVIDER: Provider = Provider {
    wire: "openai-chat",
    claims,
    expected,
    is_terminal: |payload| choice(payload).is_some_and(|it| it["finish_reason"].is_string()),
    pings: &[r#"{"object":"ping"}"#],
    last_word: Some("[DONE]"),
};

fn claims(name: &str) -> bool {
    let chat = [
        "alibaba.",
        "azure.azure-deepseek",
        "cerebras.",
        "deepinfra.",
        "deepseek.",
        "fireworks.",
        "groq.",
        "mistral.",
        "moonshotai.",
        "openai-compatible.",
        "openai.chat.",
        "openrouter.",
        "perplexity.",
        "togetherai.",
        "xai.xai-",
    ];
    chat.iter().any(|start| name.starts_with(start)) && !name.contains(".responses.")
}

fn choice(payload: &Value) -> Option<&Value> {
    let choices = payload["choices"].as_array()?;
    choices.iter().find(|choice| choice["index"].as_i64().unwrap_or(0) == 0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// With the whole stream at hand: everything is put together by field, then read.
fn expected(payloads: &[Value]) -> Expected {
    let mut found = Expected::default();
    let mut calls: BTreeMap<usize, (String, String)> = BTreeMap::new();
    let deltas = payloads.iter().filter_map(choice).map(|choice| &choice["delta"]);
    for delta in deltas {
        let reasoning = text(&delta["reasoning_content"]);
        let same = text(&delta["reasoning"]);
        found.thinking.push_str(if reasoning.is_empty() { same } else { reasoning });
        found.text.push_str(text(&delta["content"]));
        for part in delta["content"].as_array().into_iter().flatten() {
            found.text.push_str(text(&part["text"]));
            for part in part["thinking"].as_array().into_iter().flatten() {
                found.thinking.push_str(text(&part["text"]));
            }
        }
        for (at, piece) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let at = piece["index"].as_u64().map_or(at, |index| usize::try_from(index).unwrap());
            let call = calls.entry(at).or_default();
            call.0.push_str(text(&piece["function"]["name"]));
            call.1.push_str(text(&piece["function"]["arguments"]));
        }
    }
    found.calls = calls.into_values().collect();
    let tags = |text: &str| text.contains("<think>");
    assert!(!tags(&found.text), "the recordings have no tags; if they do now, expect them");

    let mut usages = payloads.iter().map(|payload| &payload["usage"]);
    if let Some(usage) = usages.rfind(|usage| usage.is_object()) {
        let count = |key: &str| usage[key].as_i64().unwrap_or(0);
        found.usage = (count("prompt_tokens"), count("completion_tokens"));
    }
    let mut reasons = payloads.iter().filter_map(choice).map(|it| text(&it["finish_reason"]));
    let reason = match reasons.rfind(|word| !word.is_empty()) {
        Some("stop") => "completed",
        Some("length") => "length",
        Some("tool_calls") => "tool_calls",
        Some("content_filter") => "content_filter",
        Some(other) => panic!("a reason that nobody has seen: {other}"),
        None => "truncated",
    };
    Expected { reason: reason.to_owned(), ..found }
}

#[test]
fn recordings_of_chat_completions_become_the_messages_that_they_hold() {
    check_all(&PROVIDER, 23);
}
