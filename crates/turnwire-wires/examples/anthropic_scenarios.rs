//! Prints replies of an agent as the `anthropic` wire serves them, one JSON line each
//! (`{"name", "body", "expected"}`), for the test that has the real package read them.

use serde_json::{Value, json};
use std::io::{self, Write};
use turnwire_core::Event;
use turnwire_wires::{EncoderOptions, Frames, Wire, sse};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (name, events, expected) in scenarios() {
        let body = served(&events)?;
        writeln!(out, "{}", json!({"name": name, "body": body, "expected": expected}))?;
    }
    out.flush()
}

/// The body of the response to a client that asked for the model `friday-1`.
fn served(events: &[Value]) -> io::Result<String> {
    let wire = Wire::named("anthropic").ok_or_else(|| io::Error::other("no such wire"))?;
    let encoding =
        EncoderOptions { model: Some("friday-1".to_owned()), ..EncoderOptions::default() };
    let mut encoder = wire.encoder(&encoding).map_err(io::Error::other)?;
    let (mut frames, mut body) = (Frames::default(), String::new());
    sse::write_comment("ok", &mut body);
    for event in events {
        let text = event.to_string();
        encoder.encode(&Event::from_json(&text).map_err(io::Error::other)?, &mut frames);
        sse::write(&frames, None, &mut body);
        frames.clear();
    }
    encoder.end(&mut frames);
    sse::write(&frames, None, &mut body);
    Ok(body)
}

/// Name, events, and what the client must have in the end: the blocks of its message in short, why it
/// stopped, the tokens; or its error.
type Scenario = (&'static str, Vec<Value>, Value);

fn scenarios() -> Vec<Scenario> {
    [answers(), with_tools(), ends(), blocks()].concat()
}

/// What the client must have in the end.
fn message(content: &[Value], stop_reason: &str, calls: u32) -> Value {
    let usage = json!({"input_tokens": 10 * calls, "output_tokens": 5 * calls});
    json!({"content": content, "stop_reason": stop_reason, "usage": usage})
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

const HELLO: &str = "Hello, wörld 🙂\n\"quoted\"";

fn hello() -> Vec<Value> {
    model_call(&[text("t1", &["Hel", "lo, ", "wörld 🙂\n\"quoted\""])], "completed")
}

fn answers() -> Vec<Scenario> {
    let thought = [
        thinking("h1", "Let me think.", &json!({"signature": "c2ln"})),
        thinking("h2", "", &json!({"redacted_thinking_data": "AAEC"})),
        text("t1", &["Hi."]),
    ];
    let thoughts = [
        json!({"type": "thinking", "thinking": "Let me think.", "signature": "c2ln"}),
        json!({"type": "redacted_thinking", "data": "AAEC"}),
        text_block("Hi."),
    ];
    vec![
        (
            "plain text",
            reply(&[hello()], "completed"),
            message(&[text_block(HELLO)], "end_turn", 1),
        ),
        (
            "thinking with a signature",
            reply(&[model_call(&thought, "completed")], "completed"),
            message(&thoughts, "end_turn", 1),
        ),
    ]
}

fn with_tools() -> Vec<Scenario> {
    let input = "{\"url\": \"https://example.com\"}";
    let (open, now) = (call("toolu_a", "open_page", input), call("toolu_b", "now", ""));
    let opened = json!({"type": "tool_use", "id": "toolu_a", "name": "open_page",
        "input": {"url": "https://example.com"}});
    let asked = json!({"type": "tool_use", "id": "toolu_b", "name": "now", "input": {}});
    let external = json!({"type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": [
        {"type": "tool_call", "id": "toolu_a", "name": "open_page", "input": ""},
        {"type": "tool_call", "id": "toolu_b", "name": "now", "input": ""},
    ]});
    let both = model_call(&[open.clone(), now.clone()], "tool_calls");
    vec![
        (
            "a tool of the client's",
            reply(
                &[model_call(&[text("t1", &["Look:"]), open.clone()], "tool_calls")],
                "tool_calls",
            ),
            message(&[text_block("Look:"), opened.clone()], "tool_use", 1),
        ),
        (
            "parallel tools, and the reply waits",
            [start(), both, vec![event(&external)]].concat(),
            message(&[opened, asked], "tool_use", 1),
        ),
        (
            "tools that the agent serves itself",
            reply(
                &[
                    model_call(&[text("t0", &["Let me see."]), open, now], "tool_calls"),
                    result("toolu_b"),
                    result("toolu_a"),
                    hello(),
                ],
                "completed",
            ),
            message(&[text_block("Let me see."), text_block(HELLO)], "end_turn", 2),
        ),
    ]
}

fn ends() -> Vec<Scenario> {
    let half: Vec<Value> = text("t1", &["Hel"]).into_iter().take(2).collect();
    let failed = json!({"type": "REPLY_END", "finished_reason": "error",
        "error": {"type": "rate_limit", "message": "slow down"}});
    vec![
        (
            "an error in mid-stream",
            [start(), half.clone(), vec![event(&failed)]].concat(),
            json!({"error": {"type": "rate_limit_error", "message": "slow down"}}),
        ),
        (
            "an interruption",
            reply(&[half], "interrupted"),
            message(&[text_block("Hel")], "end_turn", 0),
        ),
        (
            "a limit of tokens",
            reply(&[model_call(&[text("t1", &["Hel"])], "length")], "completed"),
            message(&[text_block("Hel")], "max_tokens", 1),
        ),
        (
            "a refusal without any content",
            reply(&[model_call(&[], "refusal")], "refusal"),
            message(&[], "refusal", 1),
        ),
        (
            "an agent that went round too often",
            reply(&[hello()], "exceed_max_iters"),
            message(&[text_block(HELLO)], "pause_turn", 1),
        ),
    ]
}

fn blocks() -> Vec<Scenario> {
    let image = json!({"type": "image", "source":
        {"type": "base64", "media_type": "image/png", "data": "AAEC"}});
    vec![
        (
            "blocks that grow at the same time",
            reply(&[interleaved()], "completed"),
            message(&[text_block("one two"), text_block("three")], "end_turn", 0),
        ),
        (
            "data",
            reply(&[text("t1", &["See:"]), data("d1")], "completed"),
            message(&[text_block("See:"), image], "end_turn", 0),
        ),
    ]
}

fn event(fields: &Value) -> Value {
    let mut event = json!({"reply_id": "reply-1"});
    if let (Some(event), Some(fields)) = (event.as_object_mut(), fields.as_object()) {
        event.extend(fields.clone());
    }
    event
}

fn start() -> Vec<Value> {
    vec![event(&json!({"type": "REPLY_START", "name": "friday", "role": "assistant"}))]
}

fn reply(inside: &[Vec<Value>], reason: &str) -> Vec<Value> {
    let end = vec![event(&json!({"type": "REPLY_END", "finished_reason": reason}))];
    [start(), inside.concat(), end].concat()
}

fn model_call(inside: &[Vec<Value>], reason: &str) -> Vec<Value> {
    let start = vec![event(&json!({"type": "MODEL_CALL_START", "model_name": "m"}))];
    let end = json!({"type": "MODEL_CALL_END", "input_tokens": 10, "output_tokens": 5, "finished_reason": reason});
    [start, inside.concat(), vec![event(&end)]].concat()
}

fn text(id: &str, pieces: &[&str]) -> Vec<Value> {
    let mut events = vec![event(&json!({"type": "TEXT_BLOCK_START", "block_id": id}))];
    for piece in pieces {
        events.push(event(&json!({"type": "TEXT_BLOCK_DELTA", "block_id": id, "delta": piece})));
    }
    events.push(event(&json!({"type": "TEXT_BLOCK_END", "block_id": id})));
    events
}

fn interleaved() -> Vec<Value> {
    let (one, two) = (text("t1", &["one ", "two"]), text("t2", &["three"]));
    let mut events: Vec<Value> = one.iter().take(2).cloned().collect();
    events.extend(two);
    events.extend(one.into_iter().skip(2));
    events
}

fn thinking(id: &str, thinking: &str, extra: &Value) -> Vec<Value> {
    vec![
        event(&json!({"type": "THINKING_BLOCK_START", "block_id": id})),
        event(&json!({"type": "THINKING_BLOCK_DELTA", "block_id": id, "delta": thinking})),
        event(&json!({"type": "THINKING_BLOCK_END", "block_id": id, "extra": extra})),
    ]
}

fn call(id: &str, name: &str, input: &str) -> Vec<Value> {
    vec![
        event(&json!({"type": "TOOL_CALL_START", "tool_call_id": id, "tool_call_name": name})),
        event(&json!({"type": "TOOL_CALL_DELTA", "tool_call_id": id, "delta": input})),
        event(&json!({"type": "TOOL_CALL_END", "tool_call_id": id})),
    ]
}

fn result(id: &str) -> Vec<Value> {
    vec![
        event(&json!({"type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": ""})),
        event(&json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": id, "delta": "secret"})),
        event(&json!({"type": "TOOL_RESULT_END", "tool_call_id": id, "state": "success"})),
    ]
}

fn data(id: &str) -> Vec<Value> {
    let delta = |data: &str| {
        event(
            &json!({"type": "DATA_BLOCK_DELTA", "block_id": id, "media_type": "image/png", "data": data}),
        )
    };
    vec![
        event(&json!({"type": "DATA_BLOCK_START", "block_id": id, "media_type": "image/png"})),
        delta("AA"),
        delta("EC"),
        event(&json!({"type": "DATA_BLOCK_END", "block_id": id})),
    ]
}
