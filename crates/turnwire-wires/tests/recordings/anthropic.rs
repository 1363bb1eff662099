//! Recordings of Anthropic's stream.

use crate::harness::{Expected, Provider, check_all};
use serde_json::Value;

/// What the payloads say, read from whole trees.
///
/// Some recordings are several answers in a row, each with its own end: they are the model calls of
/// one reply, so their tokens add up. Within one answer the last word counts.
fn expected(payloads: &[Value]) -> Expected {
    let mut all = Expected { reason: "truncated".to_owned(), ..Expected::default() };
    for answer in payloads.split_inclusive(|payload| payload["type"] == "message_stop") {
        let (mut input, mut output) = (0, 0);
        for payload in answer {
            for usage in [&payload["usage"], &payload["message"]["usage"]] {
                input = usage["input_tokens"].as_i64().filter(|count| *count > 0).unwrap_or(input);
                output =
                    usage["output_tokens"].as_i64().filter(|count| *count > 0).unwrap_or(output);
            }
            for stop in [&payload["delta"], &payload["message"]] {
                if let Some(word) = stop["stop_reason"].as_str() {
                    reason(word).clone_into(&mut all.reason);
                }
            }
        }
        all.usage.0 += input;
        all.usage.1 += output;
        // A start of another message takes the place of what came before it.
        let id = |payload: &Value| payload["message"]["id"].clone();
        let last = answer.iter().rev().find(|payload| payload["type"] == "message_start").map(id);
        let own = answer.iter().position(|payload| Some(id(payload)) == last).unwrap_or(0);
        blocks(&answer[own..], &mut all);
    }
    all
}

fn reason(word: &str) -> &'static str {
    match word {
        "end_turn" | "stop_sequence" | "pause_turn" => "completed",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "refusal",
        word => panic!("a new word: {word}"),
    }
}

/// The blocks of one answer: whole ones in its start, then those that were streamed. The deltas of a
/// block are those of its index up to the next start of that index.
fn blocks(answer: &[Value], all: &mut Expected) {
    for payload in answer {
        for block in payload["message"]["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_use" {
                let name = block["name"].as_str().unwrap().to_owned();
                all.calls.push((name, block["input"].to_string()));
            }
        }
    }
    for (at, start) in answer.iter().enumerate() {
        if start["type"] != "content_block_start" {
            continue;
        }
        let index = &start["index"];
        let is_end = |payload: &Value| {
            payload["type"] == "message_start"
                || (payload["type"] == "content_block_start" && payload["index"] == *index)
        };
        let own = answer[at + 1..].iter().take_while(|payload| !is_end(payload));
        let deltas: Vec<&Value> =
            own.filter(|payload| payload["index"] == *index).map(|own| &own["delta"]).collect();
        let joined = |key: &str| -> String {
            deltas.iter().map(|delta| delta[key].as_str().unwrap_or_default()).collect()
        };
        let block = &start["content_block"];
        match block["type"].as_str().unwrap() {
            "text" => all.text.push_str(&joined("text")),
            "thinking" => all.thinking.push_str(&joined("thinking")),
            "tool_use" => {
                let streamed = joined("partial_json");
                let input = if streamed.is_empty() { block["input"].to_string() } else { streamed };
                all.calls.push((block["name"].as_str().unwrap().to_owned(), input));
            }
            _ => {}
        }
    }
}

#[test]
fn recordings_of_anthropic_become_the_messages_that_they_hold() {
    let provider = Provider {
        wire: "anthropic",
        claims: |name| name.starts_with("anthropic."),
        expected,
        is_terminal: |payload| payload["type"] == "message_stop",
        pings: &[r#"{"type":"ping"}"#],
        last_word: None,
    };
    check_all(&provider, 27);
}
