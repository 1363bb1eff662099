//! Decoding the Responses stream: one peculiarity of real servers per test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::{Event, EventKind, Folder, Msg};
use turnwire_testkit::{check_property, pick};
use turnwire_wires::{Decoded, DecoderOptions, Wire};

fn events(frames: &[Value]) -> Vec<Event<'static>> {
    let lines: Vec<String> = frames.iter().map(Value::to_string).collect();
    let decoder =
        Wire::named("openai-responses").unwrap().decoder(&DecoderOptions::default()).unwrap();
    decoder.decode_all(lines.join("\n").as_bytes()).unwrap()
}

fn fold(events: &[Event<'_>]) -> Msg {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
    }
    let mut messages = folder.into_messages();
    let msg = messages.next().unwrap();
    assert!(messages.next().is_none());
    msg
}

fn message(frames: &[Value]) -> Msg {
    fold(&events(frames))
}

/// The blocks of the message, without times and states of calls.
fn blocks(msg: &Msg) -> Vec<Value> {
    let mut blocks: Vec<Value> =
        serde_json::to_value(msg.content()).unwrap().as_array().unwrap().clone();
    for block in &mut blocks {
        for key in ["created_at", "finished_at", "state", "suggested_rules"] {
            block.as_object_mut().unwrap().shift_remove(key);
        }
    }
    blocks
}

fn reason(msg: &Msg) -> &str {
    msg.finished_reason().unwrap().as_str()
}

fn created() -> Value {
    json!({"type": "response.created", "sequence_number": 0, "response":
        {"id": "resp_1", "created_at": 1_700_000_000, "model": "m", "status": "in_progress", "output": []}})
}

fn completed(output: &Value) -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output,
        "usage": {"input_tokens": 7, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 3}}}})
}

fn added(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn text_delta(index: u64, part: u64, delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": "rotates", "output_index": index,
        "content_index": part, "delta": delta})
}

fn said(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

fn empty(id: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []})
}

#[test]
fn a_text_is_counted_once_however_often_it_is_repeated() {
    let msg = message(&[
        created(),
        added(0, &empty("msg_1")),
        json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0,
            "part": {"type": "output_text", "text": ""}}),
        text_delta(0, 0, "Hé"),
        text_delta(0, 0, "llo"),
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Héllo"}),
        json!({"type": "response.content_part.done", "output_index": 0, "content_index": 0,
            "part": {"type": "output_text", "text": "Héllo"}}),
        done(0, &said("msg_1", "Héllo")),
        completed(&json!([said("msg_1", "Héllo")])),
    ]);
    assert_eq!(blocks(&msg), [json!({"type": "text", "text": "Héllo", "id": "msg_1"})]);
    assert_eq!((msg.id(), reason(&msg)), ("resp_1", "completed"));
    let usage = msg.usage().unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_input_tokens), (7, 5, 3));
    assert_eq!(msg.created_at(), "2023-11-14T22:13:20Z");
}

#[test]
fn a_text_that_only_the_end_event_has_is_written() {
    for ends in [
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hi"}),
        done(0, &said("msg_1", "Hi")),
        completed(&json!([said("msg_1", "Hi")])),
    ] {
        let msg = message(&[created(), added(0, &empty("msg_1")), ends, completed(&json!([]))]);
        assert_eq!(blocks(&msg), [json!({"type": "text", "text": "Hi", "id": "msg_1"})]);
    }
}

#[test]
fn text_that_the_deltas_lack_is_completed_at_the_end() {
    let frames = [
        created(),
        added(0, &empty("m")),
        text_delta(0, 0, "He"),
        done(0, &said("m", "Hello")),
        completed(&json!([])),
    ];
    let deltas: Vec<String> = events(&frames)
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextBlockDelta(delta) => Some(delta.delta.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(deltas, ["He", "llo"]);
}

#[test]
fn a_hole_in_the_deltas_is_set_right_by_the_end() {
    let msg = message(&[
        created(),
        added(0, &empty("m")),
        text_delta(0, 0, "Got"),
        text_delta(0, 0, "done."),
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Got it, done."}),
        completed(&json!([])),
    ]);
    assert_eq!(msg.text("").unwrap(), "Got it, done.");
}

#[test]
fn items_are_distinguished_by_their_index_when_ids_rotate() {
    let msg = message(&[
        created(),
        added(0, &empty("a")),
        text_delta(0, 0, "one"),
        done(0, &said("b", "one")),
        added(1, &empty("c")),
        text_delta(1, 0, "two"),
        done(1, &said("d", "two")),
        completed(&json!([said("e", "one"), said("f", "two")])),
    ]);
    assert_eq!(
        blocks(&msg),
        [
            json!({"type": "text", "text": "one", "id": "a"}),
            json!({"type": "text", "text": "two", "id": "c"})
        ]
    );
}

#[test]
fn items_that_all_have_the_index_0_are_distinguished_by_their_names() {
    let call = |arguments: &str, id: &str| {
        json!({"type": "function_call", "id": id, "call_id": format!("call_{id}"), "name": "f",
            "arguments": arguments})
    };
    let arguments = |delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": delta});
    let output = json!([said("a", "one"), said("b", "two"), call("{}", "c"), call("[]", "d")]);
    let frames = [
        created(),
        added(0, &empty("a")),
        text_delta(0, 0, "one"),
        done(0, &said("a", "one")),
        added(0, &empty("b")),
        text_delta(0, 0, "two"),
        done(0, &said("b", "two")),
        added(0, &call("", "c")),
        arguments("{}"),
        // This one begins before the other is done.
        added(0, &call("", "d")),
        arguments("["),
        done(0, &call("{}", "c")),
        arguments("]"),
        done(0, &call("[]", "d")),
    ];
    for output in [output, json!([])] {
        let msg = message(&[&frames[..], &[completed(&output)]].concat());
        assert_eq!(
            blocks(&msg),
            [
                json!({"type": "text", "text": "one", "id": "a"}),
                json!({"type": "text", "text": "two", "id": "b"}),
                json!({"type": "tool_call", "id": "call_c", "name": "f", "input": "{}", "item_id": "c"}),
                json!({"type": "tool_call", "id": "call_d", "name": "f", "input": "[]", "item_id": "d"}),
            ]
        );
        assert_eq!(reason(&msg), "tool_calls");
    }
}

#[test]
fn items_that_only_their_ends_tell_and_that_have_one_place_all_count() {
    let msg = message(&[
        created(),
        done(0, &said("a", "one")),
        done(0, &said("b", "two")),
        completed(&json!([])),
    ]);
    assert_eq!(msg.text("").unwrap(), "onetwo");
}

/// Perplexity does this with its searches.
#[test]
fn a_call_that_ends_as_another_item_was_the_providers_own() {
    let call = json!({"type": "function_call", "id": "fc", "call_id": "call_1", "name": "search",
        "arguments": "{\"q\":1}", "status": "completed"});
    let results = json!({"type": "search_results", "queries": ["q"], "results": []});
    let msg = message(&[
        created(),
        added(0, &call),
        done(0, &results),
        added(1, &empty("a")),
        text_delta(1, 0, "Paris"),
        done(1, &said("a", "Paris")),
        completed(&json!([results, said("a", "Paris")])),
    ]);
    let mut kept = results;
    kept["from_wire"] = json!("openai-responses");
    assert_eq!(blocks(&msg), [kept, json!({"type": "text", "text": "Paris", "id": "a"})]);
    assert_eq!(reason(&msg), "completed");
}

#[test]
fn items_of_the_final_response_that_were_never_streamed_are_added_once() {
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"});
    let msg = message(&[
        created(),
        added(0, &empty("a")),
        text_delta(0, 0, "one"),
        done(0, &said("a", "one")),
        // The final response leaves this one out, so the places there are others.
        done(1, &json!({"type": "web_search_call", "id": "ws_1"})),
        added(2, &empty("b")),
        text_delta(2, 0, "two"),
        done(2, &said("b", "two")),
        completed(&json!([said("a", "one"), said("b", "two"), call])),
    ]);
    assert_eq!(
        blocks(&msg),
        [
            json!({"type": "text", "text": "one", "id": "a"}),
            json!({"type": "web_search_call", "id": "ws_1", "from_wire": "openai-responses"}),
            json!({"type": "text", "text": "two", "id": "b"}),
            json!({"type": "tool_call", "id": "call_1", "name": "f", "input": "{}", "item_id": "fc_1"}),
        ]
    );
    assert_eq!(reason(&msg), "tool_calls");
}

#[test]
fn a_response_that_was_not_streamed_reads_the_same() {
    let msg = message(&[json!({"object": "response", "id": "resp_1", "status": "completed",
        "output": [said("a", "one")], "usage": {"input_tokens": 1, "output_tokens": 2}})]);
    assert_eq!(blocks(&msg), [json!({"type": "text", "text": "one", "id": "a"})]);
    assert_eq!((msg.id(), reason(&msg)), ("resp_1", "completed"));
}

#[test]
fn a_stream_that_begins_after_its_first_event_is_read_from_there() {
    let msg = message(&[
        text_delta(0, 0, "lo"),
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hello"}),
        done(0, &said("m", "Hello")),
        // In the middle of a call there is no name: it comes with the item.
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "1}"}),
        done(
            1,
            &json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"}),
        ),
        // In the middle of reasoning nothing could put right what is missing.
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 2, "summary_index": 0, "delta": "k"}),
        done(
            2,
            &json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "ok"}]}),
        ),
        completed(&json!([])),
    ]);
    assert_eq!(msg.text("").unwrap(), "Hello");
    let kinds: Vec<Value> = blocks(&msg);
    assert_eq!(
        kinds.iter().map(|block| block["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["text", "tool_call", "thinking"]
    );
    let [_, call, thinking] = &kinds[..] else { panic!() };
    assert_eq!((&call["input"], &thinking["thinking"]), (&json!("{\"a\":1}"), &json!("ok")));
}

#[test]
fn parallel_calls_keep_their_own_input() {
    let delta = |index: u64, delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": delta});
    let call = |id: &str, input: &str| json!({"type": "function_call", "id": "fc", "call_id": id, "name": "f", "arguments": input});
    let msg = message(&[
        created(),
        added(0, &call("a", "")),
        added(1, &call("b", "")),
        delta(0, "{\"x\""),
        delta(1, "{\"y\""),
        delta(0, ":1}"),
        delta(1, ":2}"),
        done(1, &call("b", "{\"y\":2}")),
        done(0, &call("a", "{\"x\":1}")),
        completed(&json!([])),
    ]);
    assert_eq!(
        blocks(&msg),
        [
            json!({"type": "tool_call", "id": "a", "name": "f", "input": "{\"x\":1}", "item_id": "fc"}),
            json!({"type": "tool_call", "id": "b", "name": "f", "input": "{\"y\":2}", "item_id": "fc"})
        ]
    );
}

#[test]
fn calls_without_arguments_without_ids_and_with_the_same_id_all_survive() {
    let call = |id: &Value| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": null});
    let msg = message(&[
        created(),
        done(0, &call(&json!("c"))),
        done(1, &call(&json!("c"))),
        done(2, &call(&Value::Null)),
        completed(&json!([])),
    ]);
    let ids: Vec<Value> = blocks(&msg).iter().map(|block| block["id"].clone()).collect();
    assert_eq!(ids, ["c", "c-2", "resp_1-2"]);
}

#[test]
fn arguments_that_the_limit_cut_off_stay_as_they_are() {
    let msg = message(&[
        created(),
        added(0, &json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""})),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"a\": \"b"}),
        json!({"type": "response.incomplete", "response": {"status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"}, "output": []}}),
    ]);
    assert_eq!(
        blocks(&msg),
        [json!({"type": "tool_call", "id": "c", "name": "f", "input": "{\"a\": \"b"})]
    );
    assert_eq!(reason(&msg), "length");
}

#[test]
fn a_custom_call_has_its_bare_input() {
    let msg = message(&[
        created(),
        added(
            0,
            &json!({"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sql", "input": ""}),
        ),
        json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "SELECT"}),
        json!({"type": "response.custom_tool_call_input.done", "output_index": 0, "input": "SELECT 1"}),
        done(
            0,
            &json!({"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sql", "input": "SELECT 1"}),
        ),
        completed(&json!([])),
    ]);
    assert_eq!(
        blocks(&msg),
        [
            json!({"type": "tool_call", "id": "c", "name": "sql", "input": "SELECT 1", "item_id": "ct",
            "item_type": "custom_tool_call"})
        ]
    );
}

#[test]
fn reasoning_has_a_block_for_each_part_and_the_last_one_has_the_item() {
    let part = |word: &str, at: u64, text: &str| {
        json!({"type": format!("response.reasoning_summary_part.{word}"), "output_index": 0, "summary_index": at,
            "part": {"type": "summary_text", "text": text}})
    };
    let delta = |at: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": at, "delta": text});
    let summary =
        json!([{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]);
    let msg = message(&[
        created(),
        added(
            0,
            &json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "early"}),
        ),
        part("added", 0, ""),
        delta(0, "o"),
        delta(0, "ne"),
        part("done", 0, "one"),
        part("added", 1, ""),
        delta(1, "two"),
        part("done", 1, "two"),
        done(
            0,
            &json!({"type": "reasoning", "id": "rs", "summary": summary, "encrypted_content": "late", "content": []}),
        ),
        completed(&json!([])),
    ]);
    assert_eq!(
        blocks(&msg),
        [
            json!({"type": "thinking", "thinking": "one", "id": "rs", "item_id": "rs"}),
            json!({"type": "thinking", "thinking": "two", "id": "rs-1", "item_id": "rs", "summary": summary,
                "encrypted_content": "late", "content": []})
        ]
    );
}

#[test]
fn empty_reasoning_is_kept_for_its_encrypted_content() {
    let item = json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"});
    let msg = message(&[created(), added(0, &item), done(0, &item), completed(&json!([]))]);
    assert_eq!(
        blocks(&msg),
        [
            json!({"type": "thinking", "thinking": "", "id": "rs", "item_id": "rs", "summary": [], "encrypted_content": "x"})
        ]
    );
}

#[test]
fn open_reasoning_text_is_thinking_too() {
    let msg = message(&[
        created(),
        added(0, &json!({"type": "reasoning", "id": "rs", "summary": [], "content": []})),
        json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0,
            "part": {"type": "reasoning_text", "text": ""}}),
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"}),
        json!({"type": "response.reasoning_text.done", "output_index": 0, "content_index": 0, "text": "hmm"}),
        completed(&json!([])),
    ]);
    assert_eq!(blocks(&msg), [json!({"type": "thinking", "thinking": "hmm", "id": "rs"})]);
}

#[test]
fn a_refusal_is_text_and_the_reason() {
    let item = json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]});
    let msg = message(&[
        created(),
        added(0, &empty("m")),
        json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "N"}),
        json!({"type": "response.refusal.done", "output_index": 0, "content_index": 0, "refusal": "No."}),
        done(0, &item),
        completed(&json!([item])),
    ]);
    assert_eq!(
        blocks(&msg),
        [json!({"type": "text", "text": "No.", "id": "m", "part_type": "refusal"})]
    );
    assert_eq!(reason(&msg), "refusal");
}

#[test]
fn annotations_and_the_phase_are_fields_of_the_text() {
    let mut item = said("m", "See");
    item["phase"] = json!("commentary");
    item["content"][0]["annotations"] =
        json!([{"type": "url_citation", "url": "https://example.com"}]);
    let msg = message(&[created(), done(0, &item), completed(&json!([]))]);
    assert_eq!(
        blocks(&msg),
        [json!({"type": "text", "text": "See", "id": "m", "phase": "commentary",
            "annotations": [{"type": "url_citation", "url": "https://example.com"}]})]
    );
}

#[test]
fn an_image_is_data_and_one_that_cannot_be_read_is_an_item() {
    let image = |result: &str| {
        json!({"type": "image_generation_call", "id": "ig", "status": "completed",
        "output_format": "webp", "result": result, "revised_prompt": "a cat"})
    };
    let msg = message(&[created(), done(0, &image("UklGRg==")), completed(&json!([]))]);
    assert_eq!(
        blocks(&msg),
        [json!({"type": "data", "id": "ig", "name": null,
            "source": {"type": "base64", "data": "UklGRg==", "media_type": "image/webp"},
            "status": "completed", "output_format": "webp", "revised_prompt": "a cat", "item_id": "ig",
            "item_type": "image_generation_call"})]
    );
    let msg = message(&[created(), done(0, &image("UklG...g==")), completed(&json!([]))]);
    assert_eq!(blocks(&msg)[0]["from_wire"], "openai-responses");
}

#[test]
fn items_and_events_that_only_the_provider_knows_are_kept_verbatim() {
    let item = json!({"type": "mcp_list_tools", "id": "mcpl", "server_label": "f", "tools": [], "n": 1.10});
    let progress =
        json!({"type": "response.mcp_call.in_progress", "output_index": 0, "item_id": "mcp"});
    let frames =
        [created(), progress.clone(), added(0, &item), done(0, &item), completed(&json!([item]))];
    let events = events(&frames);
    let EventKind::Custom(custom) = &events[2].kind else { panic!() };
    assert_eq!(
        (custom.name.as_str(), custom.value.0.parse_as::<Value>().unwrap()),
        ("openai-responses", progress)
    );
    let mut kept = item;
    kept["from_wire"] = json!("openai-responses");
    assert_eq!(blocks(&fold(&events)), [kept]);
}

#[test]
fn an_error_is_the_last_event_whatever_came_before() {
    for (error, word) in [
        (
            json!({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": null}),
            "rate_limit",
        ),
        (
            json!({"type": "error", "error": {"type": "invalid_request_error", "code": null, "message": "m"}}),
            "invalid_request",
        ),
        (json!({"error": {"code": 503, "message": "m"}}), "upstream"),
        (
            json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}}),
            "upstream",
        ),
        (json!({"type": "error", "code": "invalid_api_key", "message": "m"}), "authentication"),
        (json!({"type": "error", "code": "teapot", "message": "m"}), "teapot"),
        (json!({"type": "error", "message": "m"}), "unknown"),
    ] {
        let frames = [
            created(),
            text_delta(0, 0, "par"),
            error,
            text_delta(0, 0, "tial"),
            completed(&json!([])),
        ];
        let msg = message(&frames);
        assert_eq!(msg.text("").unwrap(), "par");
        assert_eq!(reason(&msg), "error");
        let error = msg.error().unwrap();
        assert_eq!((error.r#type.as_str(), error.message.as_str()), (word, "m"));
    }
}

#[test]
fn a_stream_without_its_end_is_truncated() {
    for frames in [
        vec![created()],
        vec![created(), text_delta(0, 0, "par")],
        vec![created(), text_delta(0, 0, "par"), done(0, &said("m", "par"))],
    ] {
        let msg = message(&frames);
        assert_eq!(reason(&msg), "truncated");
        assert_eq!(msg.error().unwrap().r#type.as_str(), "connection");
    }
}

#[test]
fn an_incomplete_response_is_never_a_success() {
    for (details, expected) in [
        (json!({"reason": "max_output_tokens"}), "length"),
        (json!({"reason": "content_filter"}), "content_filter"),
        (json!({"reason": "interrupted"}), "interrupted"),
        (json!({"reason": "tired"}), "truncated"),
        (Value::Null, "truncated"),
    ] {
        let end =
            json!({"type": "response.incomplete", "response": {"incomplete_details": details}});
        assert_eq!(reason(&message(&[created(), text_delta(0, 0, "x"), end])), expected);
    }
    let end = json!({"type": "response.completed", "response": {"status": "incomplete"}});
    assert_eq!(reason(&message(&[created(), end])), "truncated");
}

#[test]
fn fields_of_the_wrong_type_fail_nothing_that_can_do_without_them() {
    let msg = message(&[
        json!({"type": "response.created", "response": {"id": 7, "created_at": "soon", "model": ["m"], "usage": []}}),
        json!({"type": "response.output_item.added", "output_index": "0", "item": {"type": "message", "id": null, "content": 3}}),
        json!({"type": "response.output_text.delta", "output_index": null, "content_index": {}, "delta": "Hi", "logprobs": 4}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": null}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": []}),
        json!({"type": "response.completed", "response": {"output": {"a": 1}, "usage": {"input_tokens": "9", "output_tokens": null}}}),
    ]);
    assert_eq!((msg.id(), msg.text("").unwrap().as_str(), reason(&msg)), ("7", "Hi", "completed"));
    assert_eq!(msg.usage().unwrap().input_tokens, 9);
}

#[test]
fn an_unreadable_frame_is_reported_and_the_stream_continues() {
    let body = [
        created().to_string(),
        // A real recording has such lines: the last brace is missing.
        r#"{"type":"response.in_progress","response":{"id":"resp_1"}"#.to_owned(),
        "[1]".to_owned(),
        "{}".to_owned(),
        text_delta(0, 0, "Hi").to_string(),
        completed(&json!([])).to_string(),
    ]
    .join("\n");
    let mut decoder =
        Wire::named("openai-responses").unwrap().decoder(&DecoderOptions::default()).unwrap();
    let mut folder = Folder::default();
    let mut errors = Vec::new();
    let mut each = |decoded: Decoded<'_>| match decoded.event {
        Ok(event) => drop(folder.push(&event).unwrap()),
        Err(error) => errors.push((decoded.line, error.kind().name(), decoded.reply_id)),
    };
    decoder.feed(body.as_bytes(), &mut each);
    decoder.end(&mut each);
    let reply = Some("resp_1".to_owned());
    assert_eq!(
        errors,
        [(2, "NotJson", reply.clone()), (3, "NotAnEvent", reply.clone()), (4, "NotAnEvent", reply)]
    );
    let msg = folder.into_messages().next().unwrap();
    assert_eq!((msg.text("").unwrap().as_str(), reason(&msg)), ("Hi", "completed"));
}

#[test]
fn a_model_call_inside_a_running_reply_has_no_start_and_no_end_of_the_reply() {
    let decoding = DecoderOptions {
        reply_id: Some("r".to_owned()),
        block_prefix: Some("r-2".to_owned()),
        scope: turnwire_wires::StreamScope::ModelCall,
        ..DecoderOptions::default()
    };
    let decoder = Wire::named("openai-responses").unwrap().decoder(&decoding).unwrap();
    let mut item = said("", "Hi");
    item["id"] = Value::Null;
    let body = [created(), done(0, &item), completed(&json!([]))]
        .map(|frame| frame.to_string())
        .join("\n");
    let kinds: Vec<String> = decoder
        .decode_all(body.as_bytes())
        .unwrap()
        .iter()
        .map(|event| {
            assert_eq!(event.reply_id, "r");
            match &event.kind {
                EventKind::TextBlockStart(start) => start.block_id.to_string(),
                kind => kind.type_name().to_owned(),
            }
        })
        .collect();
    assert_eq!(
        kinds,
        ["MODEL_CALL_START", "r-2-0", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "MODEL_CALL_END"]
    );
}

#[test]
fn another_response_is_the_next_model_call_and_all_else_behind_the_end_is_passed_over() {
    let msg = message(&[
        created(),
        text_delta(0, 0, "Hi"),
        completed(&json!([])),
        text_delta(0, 0, "late"),
        json!({"type": "response.created", "response": {"id": "resp_2"}}),
        text_delta(0, 0, "again"),
        completed(&json!([])),
    ]);
    assert_eq!((msg.id(), msg.text("|").unwrap().as_str()), ("resp_1", "Hi|again"));
}

/// With frames lost, repeated and out of order, the events still fold without errors, and the reply ends once.
#[test]
fn frames_in_any_order_become_events_that_fold() {
    let call =
        json!({"type": "function_call", "id": "x", "call_id": "x", "name": "f", "arguments": "{}"});
    let custom =
        json!({"type": "custom_tool_call", "id": "y", "call_id": "x", "name": "g", "input": "in"});
    let reasoning = json!({"type": "reasoning", "id": "x", "encrypted_content": "e", "summary":
        [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
        "content": [{"type": "reasoning_text", "text": "three"}]});
    let image = json!({"type": "image_generation_call", "id": "x", "result": "AAAA"});
    let search = json!({"type": "web_search_call", "id": "ws"});
    let odd = json!({"type": "message", "id": "x", "content": [{"type": "output_audio"}, {"type": "refusal", "refusal": "no"}]});
    let discarded = json!({"type": "message", "id": "x", "discarded": true, "content": []});
    let items = [
        said("x", "Hello"),
        call,
        custom,
        reasoning,
        image,
        search,
        odd,
        discarded,
        json!({}),
        Value::Null,
    ];
    let words = [
        "output_text",
        "reasoning_summary_text",
        "reasoning_text",
        "function_call_arguments",
        "custom_tool_call_input",
        "refusal",
        "code_interpreter_call_code",
    ];
    let parts = ["output_text", "refusal", "summary_text", "reasoning_text", "other"];
    check_property("frames_in_any_order_become_events_that_fold", 2000, |rng| {
        let mut frames = if rng.bool() { vec![created()] } else { Vec::new() };
        for _ in 0..rng.usize(..25) {
            let (index, at) = (rng.u64(..3), rng.u64(..2));
            let piece = *pick(rng, &["He", "llo", "Hello", "two", "{}", ""]);
            frames.push(match rng.u8(..5) {
                0 => added(index, pick(rng, &items)),
                1 => done(index, pick(rng, &items)),
                2 => json!({"type": format!("response.{}.delta", pick(rng, &words)), "output_index": index,
                    "content_index": at, "summary_index": at, "delta": piece}),
                3 => json!({"type": format!("response.{}.done", pick(rng, &words)), "output_index": index,
                    "content_index": at, "summary_index": at, "text": piece, "arguments": piece, "input": piece}),
                _ => json!({"type": pick(rng, &["response.content_part.added", "response.reasoning_summary_part.done"]),
                    "output_index": index, "content_index": at, "summary_index": at,
                    "part": {"type": pick(rng, &parts), "text": piece, "refusal": piece}}),
            });
        }
        if rng.bool() {
            let last: Vec<Value> = (0..rng.usize(..4)).map(|_| pick(rng, &items).clone()).collect();
            frames.push(completed(&Value::from(last)));
        }
        let events = events(&frames);
        let msg = fold(&events);
        assert!(msg.finished_reason().is_some());
        // What is stored can be read again.
        assert_eq!(Msg::from_json(&msg.to_json()).unwrap(), msg);
        let ends =
            events.iter().filter(|event| matches!(event.kind, EventKind::ReplyEnd(_))).count();
        assert_eq!(ends, 1);
        let open = events.iter().filter(|event| matches!(event.kind, EventKind::TextBlockStart(_)));
        let closed = events.iter().filter(|event| matches!(event.kind, EventKind::TextBlockEnd(_)));
        assert_eq!(open.count(), closed.count());
    });
}
