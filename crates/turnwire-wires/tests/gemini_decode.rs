//! Decoding Gemini's stream: one peculiarity per test.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod decode_harness;

use decode_harness::DecodedStream;
use serde_json::json;

fn read(frames: &[&str]) -> DecodedStream {
    let read = decode_harness::read_stream("gemini", frames);
    assert_eq!(read.errors, [""; 0]);
    read
}

/// Frames of one candidate each with these parts, and `STOP` at the end.
fn parts(parts: &[&str]) -> DecodedStream {
    let mut frames: Vec<String> = parts
        .iter()
        .map(|parts| {
            format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}}}}],"responseId":"r"}}"#)
        })
        .collect();
    frames.push(r#"{"candidates":[{"finishReason":"STOP"}]}"#.to_owned());
    read(&frames.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn text_and_thoughts_take_turns_in_the_models_order() {
    let read = parts(&[
        r#"{"text":"a","thought":true}"#,
        r#"{"text":"b","thought":true},{"text":"c"}"#,
        r#"{"text":"d"},{"text":""},{"text":"e","thought":true}"#,
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "ab", "id": "r-0"},
            {"type": "text", "text": "cd", "id": "r-1"},
            {"type": "thinking", "thinking": "e", "id": "r-2"},
        ])
    );
    assert_eq!(read.reason(), "completed");
}

#[test]
fn a_signature_stays_with_the_part_that_it_came_on() {
    let read = parts(&[
        r#"{"text":"t","thought":true,"thoughtSignature":"S1"}"#,
        r#"{"text":"a"}"#,
        r#"{"text":"","thoughtSignature":"S2"}"#,
        r#"{"text":"b"}"#,
        r#"{"functionCall":{"name":"f","args":{"x": 1}},"thoughtSignature":"S3"}"#,
        r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"},"thoughtSignature":"S4","thought":true}"#,
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "thinking", "thinking": "t", "id": "r-0", "thought_signature": "S1"},
            {"type": "text", "text": "a", "id": "r-1", "thought_signature": "S2"},
            {"type": "text", "text": "b", "id": "r-2"},
            {"type": "tool_call", "id": "r-3", "name": "f", "input": "{\"x\": 1}", "thought_signature": "S3"},
            {
                "type": "data", "id": "r-4", "thought_signature": "S4", "thought": true,
                "source": {"type": "base64", "data": "AAAA", "media_type": "image/png"},
            },
        ])
    );
}

#[test]
fn a_signature_without_a_part_to_stay_with_is_an_item() {
    let read =
        parts(&[r#"{"functionCall":{"name":"f"}}"#, r#"{"text":"","thoughtSignature":"S"}"#]);
    assert_eq!(
        read.blocks()[1],
        json!({
            "type": "gemini_part", "part": {"text": "", "thoughtSignature": "S"}, "from_wire": "gemini",
        })
    );
}

#[test]
fn several_calls_in_one_frame_are_kept_apart() {
    let read = parts(&[concat!(
        r#"{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"f"}},"#,
        r#"{"functionCall":{"id":"c","name":"g","args":{"a":[1]}}},"#,
        r#"{"functionCall":{"id":"c","name":"g","args":null}}"#,
    )]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "tool_call", "id": "r-0", "name": "f", "input": "{}"},
            {"type": "tool_call", "id": "r-1", "name": "f", "input": "{}"},
            {"type": "tool_call", "id": "c", "name": "g", "input": r#"{"a":[1]}"#},
            {"type": "tool_call", "id": "c-2", "name": "g", "input": "{}"},
        ])
    );
    assert_eq!(read.reason(), "tool_calls");
}

#[test]
fn arguments_in_pieces_become_json() {
    let read = parts(&[
        r#"{"functionCall":{"name":"f","willContinue":true},"thoughtSignature":"S"}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a[0].b","stringValue":"x","willContinue":true}],"willContinue":true}}"#,
        r#"{"functionCall":{"willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a[0].b","stringValue":"y\"","willContinue":true},{"jsonPath":"$.a[0].c","numberValue":1.0},{"jsonPath":"$.a[0].c2"}],"willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a[1]","boolValue":true},{"jsonPath":"$.n","nullValue":null}],"willContinue":true}}"#,
        r#"{"functionCall":{}}"#,
        r#"{"functionCall":{}}"#,
        r#"{"functionCall":{"name":"g","willContinue":true}}"#,
        r#"{"functionCall":{"name":"h","partialArgs":[{"jsonPath":"$.z","stringValue":"1"}]}}"#,
        r#"{"functionCall":{"name":"k","willContinue":true}}"#,
        r#"{"functionCall":{"args":{"whole":true}}}"#,
    ]);
    let calls = read.blocks();
    let calls: Vec<(&str, &str)> = calls
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["name"].as_str().unwrap(), call["input"].as_str().unwrap()))
        .collect();
    assert_eq!(
        calls,
        [
            ("f", r#"{"a":[{"b":"xy\"","c":1.0},true],"n":null}"#),
            ("g", "{}"),
            ("h", r#"{"z":"1"}"#),
            ("k", r#"{"whole":true}"#),
        ]
    );
    assert_eq!(read.blocks()[0]["thought_signature"], "S");
}

#[test]
fn arguments_in_pieces_that_were_cut_off_stay_cut_off() {
    let begun = [
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}]}}]}"#,
    ];
    let broken = read(&begun);
    assert_eq!(broken.blocks()[0]["input"], r#"{"a":"x"#);
    assert_eq!(broken.reason(), "truncated");
    let limit = [&begun[..], &[r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#]].concat();
    let limit = read(&limit);
    assert_eq!(limit.blocks()[0]["input"], r#"{"a":"x"#);
    assert_eq!(limit.reason(), "length");
}

#[test]
fn a_stream_that_begins_in_the_middle_of_a_call_is_read() {
    let read =
        parts(&[r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}]}}"#]);
    assert_eq!(
        read.blocks(),
        json!([{"type": "tool_call", "id": "r-0", "name": "", "input": r#"{"a":"x"}"#}])
    );
}

#[test]
fn items_that_only_gemini_knows_are_kept_verbatim_between_the_texts() {
    let read = parts(&[
        r#"{"text":"a"}"#,
        r#"{"executableCode":{"language":"PYTHON","code":"1 + 1"}}"#,
        r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"2"},"thoughtSignature":"S"}"#,
        r#"{"text":"b","partMetadata":{"x":12345678901234567890123}}"#,
        r#"{"text":"c","videoMetadata":null}"#,
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "text", "text": "a", "id": "r-0"},
            {
                "type": "gemini_part", "from_wire": "gemini",
                "part": {"executableCode": {"language": "PYTHON", "code": "1 + 1"}},
            },
            {
                "type": "gemini_part", "from_wire": "gemini",
                "part": {
                    "codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"},
                    "thoughtSignature": "S",
                },
            },
            {
                "type": "text", "text": "b", "id": "r-3",
                "gemini_part": {"partMetadata": {"x": 12_345_678_901_234_567_890_123f64}},
            },
            {"type": "text", "text": "c", "id": "r-4"},
        ])
    );
}

#[test]
fn data_and_files_are_data_blocks() {
    let read = parts(&[
        r#"{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}"#,
        r#"{"fileData":{"mimeType":"text/plain","fileUri":"https://example.com/f"}}"#,
        r#"{"inlineData":{"data":"AA=="}}"#,
    ]);
    assert_eq!(
        read.blocks(),
        json!([
            {"type": "data", "id": "r-0", "source": {"type": "base64", "data": "iVBORw0KGgo=", "media_type": "image/png"}},
            {"type": "data", "id": "r-1", "source": {"type": "url", "url": "https://example.com/f", "media_type": "text/plain"}},
            {"type": "data", "id": "r-2", "source": {"type": "base64", "data": "AA=="}},
        ])
    );
}

#[test]
fn a_blocked_prompt_has_ended() {
    let read = read(&[
        r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":7,"totalTokenCount":7},"modelVersion":"m","responseId":"r"}"#,
    ]);
    assert_eq!(read.reason(), "content_filter");
    assert_eq!(read.message.error(), None);
    assert_eq!(read.usage(), (7, 0, 0));
    assert_eq!(read.notes("gemini"), json!({"id": "r", "block_reason": "PROHIBITED_CONTENT"}));
    assert_eq!(read.types(), ["REPLY_START", "MODEL_CALL_START", "MODEL_CALL_END", "REPLY_END"]);
}

#[test]
fn every_finish_reason_has_a_word_of_ours() {
    for (word, reason) in [
        ("STOP", "completed"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("UNEXPECTED_TOOL_CALL", "error"),
        ("OTHER", "error"),
        ("LANGUAGE", "error"),
        ("SOMETHING_NEW", "completed"),
        ("FINISH_REASON_UNSPECIFIED", "truncated"),
        ("", "truncated"),
    ] {
        let frame =
            format!(r#"{{"candidates":[{{"finishReason":"{word}","finishMessage":"why"}}]}}"#);
        let read = read(&[&frame]);
        assert_eq!(read.reason(), reason, "{word}");
        if reason == "error" {
            assert_eq!(read.error(), ("upstream", "why"));
        }
        if reason != "truncated" {
            assert_eq!(read.notes("gemini")["finish_reason"], word);
        }
    }
}

#[test]
fn content_behind_a_finish_reason_counts_and_so_does_the_last_reason() {
    let read = read(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"OTHER"}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"b"},{"functionCall":{"name":"f"}}]},"finishReason":"STOP"}]}"#,
        r#"{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#,
        "[DONE]",
    ]);
    assert_eq!(read.message.text("").as_deref(), Some("ab"));
    assert_eq!(read.reason(), "tool_calls");
    assert_eq!(read.message.error(), None);
}

#[test]
fn the_last_word_on_tokens_counts_and_nothing_erases_it() {
    let read = read(&[
        r#"{"usageMetadata":{"promptTokenCount":5,"thoughtsTokenCount":3}}"#,
        r#"{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"thoughtsTokenCount":6,"cachedContentTokenCount":2}}"#,
        r#"{"usageMetadata":{"trafficType":"ON_DEMAND","promptTokenCount":0}}"#,
        r#"{"usageMetadata":null,"candidates":[{"finishReason":"STOP"}]}"#,
    ]);
    assert_eq!(read.usage(), (9, 10, 2));
}

#[test]
fn only_the_first_candidate_is_the_reply() {
    let read = read(&[
        r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]},"finishReason":"SAFETY"},{"index":0,"content":{"parts":[{"text":"yes"}]},"finishReason":"STOP"}]}"#,
    ]);
    assert_eq!(read.message.text("").as_deref(), Some("yes"));
    assert_eq!(read.reason(), "completed");
}

#[test]
fn an_error_is_the_last_event_also_behind_content_and_a_finish_reason() {
    for (error, kind) in [
        (r#"{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}"#, "rate_limit"),
        (r#"{"code":503,"message":"m","status":"UNAVAILABLE"}"#, "upstream"),
        (r#"{"code":401,"message":"m","status":"UNAUTHENTICATED"}"#, "authentication"),
        (r#"{"code":403,"message":"m","status":"PERMISSION_DENIED"}"#, "permission"),
        (r#"{"code":400,"message":"m","status":"INVALID_ARGUMENT"}"#, "invalid_request"),
        (
            r#"{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}"#,
            "authentication",
        ),
        (r#"{"message":"m"}"#, "unknown"),
    ] {
        let error = format!(r#"{{"error":{error}}}"#);
        let read = read(&[
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#,
            &error,
            r#"{"candidates":[{"content":{"parts":[{"text":"b"}]}}]}"#,
        ]);
        assert_eq!((read.reason(), read.error()), ("error", (kind, "m")));
        assert_eq!(read.message.text("").as_deref(), Some("a"));
        assert_eq!(read.types().last(), Some(&"REPLY_END"));
    }
}

#[test]
fn an_error_may_be_a_bare_string_and_leaves_a_call_as_far_as_it_came() {
    let read = read(&[
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true},"thoughtSignature":"S"}]}}],"responseId":"r"}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","numberValue":1}],"willContinue":true}}]}}]}"#,
        r#"{"error":"gone"}"#,
    ]);
    assert_eq!((read.reason(), read.error()), ("error", ("unknown", "\"gone\"")));
    assert_eq!(
        read.blocks(),
        json!([{"type": "tool_call", "id": "r-0", "name": "f", "input": "{\"a\":1", "thought_signature": "S"}])
    );
}

#[test]
fn grounding_is_kept_with_the_model_call() {
    let read = read(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"groundingMetadata":{"webSearchQueries":["q"]}}],"responseId":"r"}"#,
        r#"{"candidates":[{"finishReason":"STOP","groundingMetadata":null}]}"#,
    ]);
    assert_eq!(
        read.notes("gemini"),
        json!({"id": "r", "grounding_metadata": {"webSearchQueries": ["q"]}, "finish_reason": "STOP"})
    );
}

#[test]
fn a_frame_of_an_unknown_kind_becomes_a_custom_event() {
    let read = read(&[r#"{"news": [1, 2]}"#, r#"{"candidates":[{"finishReason":"STOP"}]}"#]);
    let custom = serde_json::to_value(&read.events[2]).unwrap();
    assert_eq!(custom["type"], "CUSTOM");
    assert_eq!(custom["name"], "gemini");
    assert_eq!(custom["value"], json!({"news": [1, 2]}));
}

#[test]
fn fields_of_a_wrong_type_are_not_there() {
    let read = read(&[
        r#"{"candidates":{"a":1},"usageMetadata":[],"responseId":3,"modelVersion":null,"promptFeedback":"x"}"#,
        r#"{"candidates":[null,7,{"index":"zero","content":{"parts":[3,{"text":5},{"text":"a","thought":"yes","thoughtSignature":false},{"functionCall":[]},{"inlineData":"x"}]},"finishReason":["STOP"]}]}"#,
        r#"{"candidates":[{"content":null,"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":"9","candidatesTokenCount":2.0}}"#,
    ]);
    assert_eq!(read.blocks(), json!([{"type": "text", "text": "a", "id": "reply-0"}]));
    assert_eq!((read.reason(), read.usage()), ("completed", (0, 2, 0)));
}

#[test]
fn a_frame_that_cannot_be_read_leaves_the_stream_as_it_was() {
    let read = decode_harness::read_stream(
        "gemini",
        &[
            r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"x"}"#,
            "3",
            r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}"#,
        ],
    );
    assert_eq!(read.message.text("").as_deref(), Some("ab"));
    assert_eq!(read.reason(), "completed");
    assert!(read.errors[0].starts_with("NotJson") && read.errors[1].starts_with("NotAnEvent"));
}

#[test]
fn a_list_of_frames_is_read_as_frames() {
    let read = read(&[
        r#"[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}]"#,
    ]);
    assert_eq!(read.message.text("").as_deref(), Some("ab"));
}

#[test]
fn a_stream_without_a_finish_reason_was_truncated() {
    let read = parts(&[]);
    assert_eq!(read.reason(), "completed");
    let read = decode_harness::read_stream(
        "gemini",
        &[r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#],
    );
    assert_eq!((read.reason(), read.error().0), ("truncated", "connection"));
    let read = decode_harness::read_stream("gemini", &[]);
    assert_eq!((read.reason(), read.error().0), ("truncated", "connection"));
}

#[test]
fn the_start_has_the_models_id_name_and_time() {
    let read = read(&[
        r#"{"candidates":[{"finishReason":"STOP"}],"modelVersion":"gemini-3","responseId":"r","createTime":"2026-05-04T20:01:02.264968Z"}"#,
    ]);
    let start = serde_json::to_value(&read.events[1]).unwrap();
    assert_eq!(start["model_name"], "gemini-3");
    assert_eq!(start["reply_id"], "r");
    assert_eq!(start["created_at"], "2026-05-04T20:01:02Z");
}
