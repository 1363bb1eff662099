//! Recordings of the Responses API, and of compatible APIs.

use crate::harness::{Expected, Provider, check_all, read_recordings};
use serde_json::Value;
use turnwire_core::{ContentBlock, Event, Folder, Msg, ToolCall};
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire, sse};

#[test]
fn recordings_of_responses_become_the_messages_that_they_hold() {
    let provider = Provider {
        wire: "openai-responses",
        claims,
        expected,
        is_terminal,
        pings: &[r#"{"type":"keepalive","sequence_number":3}"#],
        // The protocol has none, but some servers send it.
        last_word: Some("[DONE]"),
    };
    check_all(&provider, 48);
}

fn claims(name: &str) -> bool {
    let is_chat = name.starts_with("azure.azure-deepseek");
    // Its first and last lines are not valid JSON: the last brace is missing.
    let is_broken = name.contains("parallel-tool-call-wrapper");
    (name.contains(".responses.") || name.starts_with("azure.")) && !is_chat && !is_broken
}

fn is_terminal(payload: &Value) -> bool {
    let types = ["response.completed", "response.incomplete", "response.failed", "error"];
    types.iter().any(|word| payload["type"] == **word)
}

/// Some recordings are several responses: what they say and take adds up, the last end counts.
fn expected(payloads: &[Value]) -> Expected {
    let mut all = Expected::default();
    for payloads in payloads.split_inclusive(is_terminal) {
        let one = expected_from_response(payloads);
        all.text += &one.text;
        all.thinking += &one.thinking;
        all.calls.extend(one.calls);
        all.usage = (all.usage.0 + one.usage.0, all.usage.1 + one.usage.1);
        all.reason = one.reason;
    }
    all
}

/// From the final response's items where it has any, else from those that were streamed whole.
fn expected_from_response(payloads: &[Value]) -> Expected {
    let (last, before) = payloads.split_last().unwrap();
    let mut items: Vec<Value> = last["response"]["output"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        let done = before.iter().filter(|p| p["type"] == "response.output_item.done");
        items = done.map(|payload| payload["item"].clone()).collect();
    }
    let mut expected = Expected::default();
    for item in &items {
        match item["type"].as_str().unwrap() {
            "message" => expected.text += &texts(&item["content"]),
            "reasoning" => {
                expected.thinking += &texts(&item["summary"]);
                expected.thinking += &texts(&item["content"]);
            }
            "function_call" => expected.calls.push((text(&item["name"]), text(&item["arguments"]))),
            "custom_tool_call" => expected.calls.push((text(&item["name"]), text(&item["input"]))),
            kind => expected.calls.extend(call_of_client_tool(kind, item)),
        }
    }
    let usage = &last["response"]["usage"];
    let count = |key: &str| usage[key].as_i64().unwrap_or(0);
    expected.usage = (count("input_tokens"), count("output_tokens"));
    let reason = match last["type"].as_str().unwrap() {
        "response.completed" if expected.calls.is_empty() => "completed",
        "response.completed" => "tool_calls",
        _ => "error",
    };
    Expected { reason: reason.to_owned(), ..expected }
}

/// Calls of tools that the protocol defines and the client executes.
fn call_of_client_tool(kind: &str, item: &Value) -> Option<(String, String)> {
    let is_hosted =
        item["environment"]["type"].as_str().is_some_and(|t| t.starts_with("container"));
    let (name, input) = match kind {
        "local_shell_call" => ("local_shell", item["action"].to_string()),
        "shell_call" if !is_hosted => ("shell", item["action"].to_string()),
        "apply_patch_call" => ("apply_patch", item["operation"].to_string()),
        "computer_call" => ("computer", item["action"].to_string()),
        "tool_search_call" if item["execution"] == "client" => {
            ("tool_search", item["arguments"].to_string())
        }
        "mcp_approval_request" => (kind, text(&item["arguments"])),
        _ => return None,
    };
    Some((name.to_owned(), input))
}

fn texts(parts: &Value) -> String {
    let parts = parts.as_array().into_iter().flatten();
    parts.map(|part| text(&part["text"]) + part["refusal"].as_str().unwrap_or_default()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A recording that is decoded, encoded and decoded again gives the same message, with all extra fields: law 6 for real
/// replies.
#[test]
fn recordings_that_are_encoded_again_give_the_same_messages() {
    let Some(recordings) = read_recordings("openai-responses", claims) else { return };
    for (name, text) in recordings {
        let first = events(text.as_bytes());
        let mut encoder = wire().encoder(&EncoderOptions::default()).unwrap();
        let (mut frames, mut body) = (Frames::default(), String::new());
        for event in &first {
            encoder.encode(event, &mut frames);
        }
        sse::write(&frames, None, &mut body);
        assert_eq!(
            comparable(&fold(&first)),
            comparable(&fold(&events(body.as_bytes()))),
            "{name}"
        );
    }
}

fn wire() -> &'static Wire {
    Wire::named("openai-responses").unwrap()
}

fn events(body: &[u8]) -> Vec<Event<'static>> {
    wire().decoder(&DecoderOptions::default()).unwrap().decode_all(body).unwrap()
}

fn fold(events: &[Event<'_>]) -> Msg {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event).unwrap();
    }
    folder.into_messages().next().unwrap()
}

/// What must not get lost: everything but what the provider says of a call or an image beside it,
/// and how it cut its reasoning.
fn comparable(msg: &Msg) -> (Vec<Value>, Value) {
    let blocks = msg.content().iter().map(|block| {
        let mut value = serde_json::to_value(block).unwrap();
        let fields = value.as_object_mut().unwrap();
        match block {
            ContentBlock::Thinking(_) => {
                for key in ["item_id", "summary", "content", "status"] {
                    fields.shift_remove(key);
                }
                // Nothing, and the word for it, are the same.
                fields.retain(|_, value| !value.is_null());
            }
            ContentBlock::ToolCall(_) => drop(fields.shift_remove("caller")),
            ContentBlock::Data(_) => {
                fields.retain(|key, _| ["type", "id", "source"].contains(&key.as_str()));
            }
            _ => {}
        }
        value
    });
    let mut rest: Value = serde_json::from_str(&msg.to_json()).unwrap();
    rest.as_object_mut().unwrap().shift_remove("content");
    if msg.has::<ToolCall>() && rest["finished_reason"] == "completed" {
        // Several responses of which the first called tools: as one they still wait for these.
        rest["finished_reason"] = "tool_calls".into();
    }
    (blocks.collect(), rest)
}
