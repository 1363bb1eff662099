//! Decoding Ollama's streams, written after its reference: there are no recordings.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod decode_harness;

use decode_harness::DecodedStream;
use serde_json::{Value, json};
use turnwire_core::{Folder, Msg};
use turnwire_wires::{Decoded, DecoderOptions, Wire};

fn read(frames: &[&str]) -> DecodedStream {
    let read = decode_harness::read_stream("ollama", frames);
    assert_eq!(read.errors, [""; 0]);
    read
}

/// Lines with these messages, and a last one.
fn messages(messages: &[Value]) -> DecodedStream {
    let line =
        |message: &Value| json!({"model": "m", "message": message, "done": false}).to_string();
    let mut lines: Vec<String> = messages.iter().map(line).collect();
    lines.push(r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":11,"eval_count":7}"#.to_owned());
    read(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn contents(contents: &[&str]) -> DecodedStream {
    let with = |content: &&str| json!({"role": "assistant", "content": content});
    messages(&contents.iter().map(with).collect::<Vec<_>>())
}

#[test]
fn lines_are_read_however_they_are_cut() {
    let body = concat!(
        r#"{"model":"m","created_at":"2026-05-27T22:54:57.641643Z","message":{"role":"assistant","content":"Hé"},"done":false}"#,
        "\r\n",
        r#"{"model":"m","created_at":"2026-05-27T22:54:57.7Z","message":{"role":"assistant","content":"y"},"done":false}"#,
        "\n",
        r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}"#,
    );
    for cut in [1, 5, body.len()] {
        let mut decoder =
            Wire::named("ollama").unwrap().decoder(&DecoderOptions::default()).unwrap();
        let mut folder = Folder::default();
        let mut each = |decoded: Decoded<'_>| {
            folder.push(&decoded.event.unwrap()).unwrap();
        };
        for piece in body.as_bytes().chunks(cut) {
            decoder.feed(piece, &mut each);
        }
        decoder.end(&mut each);
        let messages: Vec<Msg> = folder.into_messages().collect();
        assert_eq!(messages[0].text("").as_deref(), Some("Héy"));
        assert_eq!(messages[0].created_at(), "2026-05-27T22:54:57Z");
        assert_eq!(messages[0].finished_reason().unwrap().as_str(), "completed");
    }
}

#[test]
fn thinking_has_a_field_of_its_own() {
    let read = messages(&[
        json!({"role": "assistant", "content": "", "thinking": "Let"}),
        json!({"role": "assistant", "content": "", "thinking": " me"}),
        json!({"role": "assistant", "content": "It", "thinking": null}),
        json!({"role": "assistant", "content": " is", "thinking": ""}),
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "Let me", "id": "reply-0"},
            {"type": "text", "text": "It is", "id": "reply-1"},
        ])
    );
    assert_eq!((read.reason(), read.usage()), ("completed", (11, 7, 0)));
}

#[test]
fn think_tags_are_thinking_also_when_cut_and_never_closed() {
    let read = contents(&["<", "think>pl", "an</thi", "nk>", "do"]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "plan", "id": "reply-0"},
            {"type": "text", "text": "do", "id": "reply-1"},
        ])
    );
    let read = contents(&["<think>on", " and on </th"]);
    let expected = json!([{"type": "thinking", "thinking": "on and on </th", "id": "reply-0"}]);
    assert_eq!(read.blocks(), expected);
}

#[test]
fn responses_of_the_generate_endpoint_are_read() {
    let read = read(&[
        r#"{"model":"m","response":"","thinking":"plan","done":false}"#,
        r#"{"model":"m","response":"do","done":false}"#,
        r#"{"model":"m","response":"","done":true,"done_reason":"stop","prompt_eval_count":2,"eval_count":3}"#,
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "plan", "id": "reply-0"},
            {"type": "text", "text": "do", "id": "reply-1"},
        ])
    );
    assert_eq!((read.reason(), read.usage()), ("completed", (2, 3, 0)));
}

#[test]
fn calls_come_whole_and_get_ids_where_they_have_none() {
    let read = messages(&[
        json!({"role": "assistant", "content": "a <"}),
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"city": "Paris"}}},
            {"id": "c", "function": {"index": 1, "name": "g", "arguments": {}}},
            {"id": "c", "function": {"name": "g"}},
        ]}),
        json!({"role": "assistant", "content": "b", "tool_calls": [
            {"function": {"name": "h", "arguments": "{\"as\":\"text\"}"}},
        ]}),
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "text", "text": "a <", "id": "reply-0"},
            {"type": "tool_call", "id": "reply-1", "name": "f", "input": r#"{"city":"Paris"}"#},
            {"type": "tool_call", "id": "c", "name": "g", "input": "{}"},
            {"type": "tool_call", "id": "c-2", "name": "g", "input": "{}"},
            {"type": "text", "text": "b", "id": "reply-4"},
            {"type": "tool_call", "id": "reply-5", "name": "h", "input": r#"{"as":"text"}"#},
        ])
    );
    assert_eq!(read.reason(), "tool_calls");
}

#[test]
fn every_done_reason_has_a_word_of_ours() {
    for (word, reason) in [
        (json!("stop"), "completed"),
        (json!("length"), "length"),
        (json!("load"), "completed"),
        (json!(null), "completed"),
    ] {
        let line = json!({"message": {"content": "a"}, "done": true, "done_reason": word});
        let read = read(&[&line.to_string()]);
        assert_eq!(read.reason(), reason);
        assert_eq!(read.notes("ollama")["done_reason"], word);
    }
    let cut = read(&[r#"{"message":{"content":"a"},"done":false}"#]);
    assert_eq!((cut.reason(), cut.error().0), ("truncated", "connection"));
}

#[test]
fn nothing_comes_behind_the_last_line() {
    let read = read(&[
        r#"{"message":{"content":"a"},"done":true,"done_reason":"stop"}"#,
        r#"{"message":{"content":"b"},"done":true}"#,
        r#"{"error":"late"}"#,
        "[DONE]",
    ]);
    assert_eq!(read.message.text("").as_deref(), Some("a"));
    assert_eq!(read.reason(), "completed");
}

#[test]
fn an_error_is_the_last_event() {
    for (error, kind, message) in [
        (json!("model 'm' not found"), "invalid_request", "model 'm' not found"),
        (json!("unauthorized"), "authentication", "unauthorized"),
        (json!("too many requests"), "rate_limit", "too many requests"),
        (
            json!("llama runner process has terminated"),
            "upstream",
            "llama runner process has terminated",
        ),
        (json!({"message": "forbidden"}), "permission", "forbidden"),
        (json!(7), "upstream", "7"),
    ] {
        let read = read(&[
            r#"{"message":{"content":"a <thi"},"done":false}"#,
            &json!({"error": error}).to_string(),
            r#"{"message":{"content":"b"},"done":true}"#,
        ]);
        assert_eq!((read.reason(), read.error()), ("error", (kind, message)));
        assert_eq!(read.message.text("").as_deref(), Some("a <thi"));
    }
}

#[test]
fn images_are_data_blocks() {
    let read = messages(&[json!({"role": "assistant", "content": "Look", "images": ["AAAA"]})]);
    assert_eq!(
        read.blocks()[1],
        json!({"type": "data", "id": "reply-1", "source": {"type": "base64", "data": "AAAA", "media_type": "image/*"}})
    );
}

#[test]
fn wrong_types_are_not_there_and_unknown_lines_are_custom() {
    let read = decode_harness::read_stream(
        "ollama",
        &[
            r#"{"model":1,"created_at":{},"message":{"content":["x"],"thinking":3,"images":"x","tool_calls":{"a":1}},"done":"no"}"#,
            r#"{"news":1}"#,
            r#"{"message":"#,
            "[]",
            r#"{"message":{"content":"a"},"done":true,"eval_count":"7","prompt_eval_count":2.0}"#,
        ],
    );
    assert_eq!(read.blocks(), json!([{"type": "text", "text": "a", "id": "reply-0"}]));
    assert_eq!((read.usage(), read.errors.len()), ((2, 0, 0), 2));
    assert!(read.types().contains(&"CUSTOM"));
}
