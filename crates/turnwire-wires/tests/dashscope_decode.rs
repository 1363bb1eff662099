//! Decoding DashScope's streams, written after its reference: there are no recordings.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod decode_harness;

use decode_harness::DecodedStream;
use serde_json::{Value, json};
use turnwire_core::{Folder, Msg};
use turnwire_wires::{DecoderOptions, Wire};

fn read(frames: &[&str]) -> DecodedStream {
    let read = decode_harness::read_stream("dashscope", frames);
    assert_eq!(read.errors, [""; 0]);
    read
}

/// Frames with these messages, and `stop` at the end.
fn messages(messages: &[Value]) -> DecodedStream {
    let frame = |message: &Value, reason: &str| {
        json!({
            "output": {"choices": [{"message": message, "finish_reason": reason}]},
            "usage": {"total_tokens": 9, "input_tokens": 5, "output_tokens": 4},
            "request_id": "r",
        })
        .to_string()
    };
    let mut frames: Vec<String> = messages.iter().map(|message| frame(message, "null")).collect();
    frames.push(frame(&json!({"role": "assistant", "content": ""}), "stop"));
    read(&frames.iter().map(String::as_str).collect::<Vec<_>>())
}

fn contents(contents: &[Value]) -> DecodedStream {
    let with = |content: &Value| json!({"role": "assistant", "content": content});
    messages(&contents.iter().map(with).collect::<Vec<_>>())
}

#[test]
fn a_stream_with_all_its_framing_is_read() {
    let body = concat!(
        "id:1\nevent:result\n:HTTP_STATUS/200\n",
        r#"data:{"output":{"choices":[{"message":{"content":"Hel","role":"assistant"},"finish_reason":"null"}]},"usage":{"total_tokens":23,"input_tokens":22,"output_tokens":1},"request_id":"r"}"#,
        "\n\nid:2\nevent:result\n:HTTP_STATUS/200\n",
        r#"data:{"output":{"choices":[{"message":{"content":"lo","role":"assistant"},"finish_reason":"stop"}]},"usage":{"total_tokens":24,"input_tokens":22,"output_tokens":2,"prompt_tokens_details":{"cached_tokens":7}},"request_id":"r"}"#,
        "\n\n",
    );
    for cut in [1, 7, body.len()] {
        let mut decoder =
            Wire::named("dashscope").unwrap().decoder(&DecoderOptions::default()).unwrap();
        let mut folder = Folder::default();
        let mut each = |decoded: turnwire_wires::Decoded<'_>| {
            folder.push(&decoded.event.unwrap()).unwrap();
        };
        for piece in body.as_bytes().chunks(cut) {
            decoder.feed(piece, &mut each);
        }
        decoder.end(&mut each);
        let messages: Vec<Msg> = folder.into_messages().collect();
        assert_eq!(messages[0].text("").as_deref(), Some("Hello"));
        assert_eq!(messages[0].id(), "r");
        let usage = messages[0].usage().unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_input_tokens), (22, 2, 7));
    }
}

#[test]
fn the_string_null_is_not_a_finish_reason() {
    let cut = read(&[
        r#"{"output":{"choices":[{"message":{"content":"a"},"finish_reason":"null"}]},"request_id":"r"}"#,
    ]);
    assert_eq!((cut.reason(), cut.error().0), ("truncated", "connection"));
    for (word, reason) in [
        ("stop", "completed"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("new", "completed"),
    ] {
        let read =
            read(&[&format!(r#"{{"output":{{"choices":[{{"finish_reason":"{word}"}}]}}}}"#)]);
        assert_eq!(read.reason(), reason);
        assert_eq!(read.notes("dashscope")["finish_reason"], word);
    }
}

#[test]
fn cumulative_and_incremental_frames_become_the_same() {
    let expected = json!([{"type": "text", "text": "Hello, wörld", "id": "r-0"}]);
    let cumulative = ["", "He", "Hello,", "Hello, wörld", "Hello, wörld"].map(Value::from);
    assert_eq!(contents(&cumulative).blocks(), expected);
    let incremental = ["", "He", "llo,", "", " wörld"].map(Value::from);
    assert_eq!(contents(&incremental).blocks(), expected);
}

#[test]
fn cumulative_reasoning_is_not_repeated_behind_the_answer() {
    let message = |thinking: &str, text: &str| json!({"role": "assistant", "content": text, "reasoning_content": thinking});
    let read = messages(&[
        message("Let", ""),
        message("Let me think", ""),
        message("Let me think.", ""),
        message("Let me think.", "It"),
        message("Let me think.", "It is"),
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "Let me think.", "id": "r-0"},
            {"type": "text", "text": "It is", "id": "r-1"},
        ])
    );
}

#[test]
fn incremental_reasoning_comes_before_the_answer() {
    let message = |thinking: &str, text: &str| json!({"role": "assistant", "content": text, "reasoning_content": thinking});
    let read = messages(&[message("1", ""), message("10", ""), message("", "a"), message("", "b")]);
    // Two frames do not tell whether the second repeats the first.
    assert_eq!(read.blocks()[1], json!({"type": "text", "text": "ab", "id": "r-1"}));
    let read =
        messages(&[message("Hm", ""), message(", so", ""), message("", "a"), message("", "b")]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "Hm, so", "id": "r-0"},
            {"type": "text", "text": "ab", "id": "r-1"},
        ])
    );
}

#[test]
fn think_tags_in_the_text_are_thinking_also_when_cut_and_never_closed() {
    let expected = json!([
        {"type": "thinking", "thinking": "plan", "id": "r-0"},
        {"type": "text", "text": "do", "id": "r-1"},
    ]);
    let incremental = ["<th", "ink>pl", "an</", "think>do"].map(Value::from);
    assert_eq!(contents(&incremental).blocks(), expected);
    let cumulative =
        ["<th", "<think>pl", "<think>plan</th", "<think>plan</think>do"].map(Value::from);
    assert_eq!(contents(&cumulative).blocks(), expected);
    let open = contents(&["<think>on".into(), " and on".into()]);
    assert_eq!(open.blocks(), json!([{"type": "thinking", "thinking": "on and on", "id": "r-0"}]));
}

fn call(index: i64, id: &str, name: &str, arguments: &str) -> Value {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

#[test]
fn calls_come_in_fragments_or_again_and_again() {
    let expected = json!([
        {"type": "text", "text": "Well.", "id": "r-0"},
        {"type": "tool_call", "id": "c1", "name": "f", "input": r#"{"city": "Paris"}"#},
        {"type": "tool_call", "id": "r-2", "name": "g", "input": ""},
    ]);
    let message = |text: &str, calls: &[Value]| json!({"role": "assistant", "content": text, "tool_calls": calls});
    let incremental = messages(&[
        message("Well.", &[]),
        message("", &[call(0, "c1", "f", "")]),
        message("", &[call(0, "", "", r#"{"city": "#)]),
        message("", &[call(0, "", "", r#""Paris"}"#)]),
        message("", &[call(1, "", "g", "")]),
    ]);
    assert_eq!(incremental.blocks(), expected);
    assert_eq!(incremental.reason(), "tool_calls");
    let cumulative = messages(&[
        message("Well.", &[]),
        message("Well.", &[call(0, "c1", "f", "")]),
        message("Well.", &[call(0, "c1", "f", r#"{"ci"#)]),
        message("Well.", &[call(0, "c1", "f", r#"{"city": "Paris"}"#)]),
        message("Well.", &[call(0, "c1", "f", r#"{"city": "Paris"}"#), call(1, "", "g", "")]),
    ]);
    assert_eq!(cumulative.blocks(), expected);
}

#[test]
fn calls_without_an_index_are_distinguished_by_their_ids() {
    let without = |id: &str, arguments: &str| {
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": id, "function": {"name": "f", "arguments": arguments}},
        ]})
    };
    let read = messages(&[without("c1", "{}"), without("c2", r#"{"a":1}"#)]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "tool_call", "id": "c1", "name": "f", "input": "{}"},
            {"type": "tool_call", "id": "c2", "name": "f", "input": r#"{"a":1}"#},
        ])
    );
}

#[test]
fn arguments_that_the_limit_cut_off_stay_as_they_are() {
    let read = read(&[
        r#"{"output":{"choices":[{"message":{"content":"","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\": \"b"}}]},"finish_reason":"length"}]},"request_id":"r"}"#,
    ]);
    assert_eq!((read.reason(), &read.blocks()[0]["input"]), ("length", &json!("{\"a\": \"b")));
}

#[test]
fn multimodal_content_is_a_list() {
    let read = contents(&[
        json!([{"text": "A "}]),
        json!([{"text": "cat"}]),
        json!([]),
        json!([{"text": ":"}, {"image": "https://example.com/cat.png"}]),
        json!([{"audio": "data:audio/wav;base64,AAAA"}]),
        json!([{"box": [1, 2]}]),
        json!(["!"]),
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "text", "text": "A cat:", "id": "r-0"},
            {"type": "data", "id": "r-1", "source": {"type": "url", "url": "https://example.com/cat.png", "media_type": "image/*"}},
            {"type": "data", "id": "r-2", "source": {"type": "base64", "data": "AAAA", "media_type": "audio/wav"}},
            {"type": "dashscope_part", "part": {"box": [1, 2]}, "from_wire": "dashscope"},
            {"type": "text", "text": "!", "id": "r-4"},
        ])
    );
}

#[test]
fn cumulative_media_are_not_repeated() {
    let image = json!({"image": "https://example.com/cat.png"});
    let read = contents(&[
        json!([{"text": "A cat:"}, image]),
        json!([{"text": "A cat: so"}, image]),
        json!([{"text": "A cat: so fluffy"}, image]),
    ]);
    assert_eq!(read.blocks().as_array().unwrap().len(), 3);
    assert_eq!(read.message.text("").as_deref(), Some("A cat: so fluffy"));
}

#[test]
fn the_older_form_has_its_text_in_the_output() {
    let read = read(&[
        r#"{"output":{"text":"Hello","finish_reason":"null","choices":null},"usage":{"output_tokens":1,"input_tokens":3},"request_id":"r"}"#,
        r#"{"output":{"text":"Hello, world","finish_reason":"null"},"request_id":"r"}"#,
        r#"{"output":{"text":"Hello, world!","finish_reason":"stop"},"usage":{"output_tokens":5,"input_tokens":3},"request_id":"r"}"#,
    ]);
    assert_eq!(read.message.text("").as_deref(), Some("Hello, world!"));
    assert_eq!((read.reason(), read.usage()), ("completed", (3, 5, 0)));
}

#[test]
fn an_error_is_the_last_event() {
    for (code, kind, reason) in [
        ("Throttling.RateQuota", "rate_limit", "error"),
        ("InvalidApiKey", "authentication", "error"),
        ("AccessDenied.Unpurchased", "permission", "error"),
        ("Arrearage", "permission", "error"),
        ("InvalidParameter", "invalid_request", "error"),
        ("BadRequest.EmptyInput", "invalid_request", "error"),
        ("InternalError.Algo", "upstream", "error"),
        ("RequestTimeOut", "upstream", "error"),
        ("SomethingNew", "unknown", "error"),
        ("DataInspectionFailed", "invalid_request", "content_filter"),
    ] {
        let read = read(&[
            r#"{"output":{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]},"request_id":"r"}"#,
            &format!(r#"{{"code":"{code}","message":"why","request_id":"r"}}"#),
            r#"{"output":{"choices":[{"message":{"content":"b"}}]},"request_id":"r"}"#,
        ]);
        assert_eq!((read.reason(), read.error()), (reason, (kind, "why")), "{code}");
        assert_eq!(read.message.text("").as_deref(), Some("a"));
        assert_eq!(read.types().last(), Some(&"REPLY_END"));
    }
}

#[test]
fn an_empty_code_is_not_an_error_and_missing_usage_keeps_the_tokens() {
    let read = read(&[
        r#"{"status_code":200,"code":"","message":"","output":{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]},"usage":{"input_tokens":2,"output_tokens":1}}"#,
        r#"{"output":null,"usage":{"input_tokens":0,"output_tokens":null},"request_id":null}"#,
        "[DONE]",
    ]);
    assert_eq!((read.reason(), read.usage()), ("completed", (2, 1, 0)));
}

#[test]
fn only_the_first_choice_is_the_reply_and_wrong_types_are_not_there() {
    let read = read(&[
        r#"{"output":{"choices":[{"index":1,"message":{"content":"no"}},{"index":0,"message":{"content":"yes","reasoning_content":7,"tool_calls":{},"role":null},"finish_reason":null}]},"usage":"x","request_id":4}"#,
        r#"{"output":{"choices":[{"message":{"content":{"a":1}},"finish_reason":"stop"}],"text":[]}}"#,
    ]);
    assert_eq!(read.blocks(), json!([{"type": "text", "text": "yes", "id": "reply-0"}]));
    assert_eq!(read.reason(), "completed");
}

#[test]
fn an_unknown_frame_is_custom_and_a_broken_one_changes_nothing() {
    let read = decode_harness::read_stream(
        "dashscope",
        &[
            r#"{"output":{"choices":[{"message":{"content":"a"}}]},"request_id":"r"}"#,
            r#"{"output":{"choices":[{"message":{"content":"#,
            "[]",
            r#"{"news":1}"#,
            r#"{"output":{"choices":[{"message":{"content":"b"},"finish_reason":"stop"}],"search_info":{"n":1}}}"#,
        ],
    );
    assert_eq!(read.message.text("").as_deref(), Some("ab"));
    assert_eq!(read.errors.len(), 2);
    assert!(read.types().contains(&"CUSTOM"));
    assert_eq!(
        read.notes("dashscope"),
        json!({"id": "r", "search_info": {"n": 1}, "finish_reason": "stop"})
    );
}
