//! Decoding Anthropic's stream: one peculiarity of real servers per test.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use serde_json::{Value, json};
use turnwire_core::{
    ErrorKind, ErrorType, Event, EventKind, FinishedReason, Folder, Msg, TextBlock, ThinkingBlock,
    ToolCall,
};
use turnwire_testkit::{check_property, pick};
use turnwire_wires::{DecoderOptions, StreamScope, Wire};

fn lines(frames: &[Value]) -> String {
    frames.iter().map(|frame| frame.to_string() + "\n").collect()
}

fn events(frames: &[Value]) -> Vec<Event<'static>> {
    let decoder = Wire::named("anthropic").unwrap().decoder(&DecoderOptions::default()).unwrap();
    decoder.decode_all(lines(frames).as_bytes()).unwrap()
}

fn fold(events: &[Event<'_>]) -> Msg {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
        // What was decoded can be written and read again.
        assert_eq!(Event::from_json(&event.to_json()).unwrap(), *event);
    }
    let mut messages = folder.into_messages();
    let msg = messages.next().unwrap();
    assert!(messages.next().is_none());
    msg
}

fn message(frames: &[Value]) -> Msg {
    fold(&events(frames))
}

/// Wraps frames in `message_start` and the end of a message.
fn wrap_in_message(blocks: Vec<Value>, stop_reason: &str) -> Vec<Value> {
    let mut frames = vec![start("msg_1")];
    frames.extend(blocks);
    frames.push(stop(stop_reason));
    frames.push(json!({"type": "message_stop"}));
    frames
}

fn start(id: &str) -> Value {
    json!({"type": "message_start", "message": {
        "id": id, "type": "message", "role": "assistant", "content": [], "model": "claude",
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 17, "output_tokens": 1},
    }})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 9}})
}

fn block(index: u64, block: Value) -> Value {
    let mut frame = json!({"type": "content_block_start", "index": index});
    frame["content_block"] = block;
    frame
}

fn delta(index: u64, delta: Value) -> Value {
    let mut frame = json!({"type": "content_block_delta", "index": index});
    frame["delta"] = delta;
    frame
}

fn text(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn end(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn texts(msg: &Msg) -> Vec<&str> {
    msg.blocks::<TextBlock>().map(|block| block.text.as_str()).collect()
}

fn model_call_end(events: &[Event<'_>]) -> (Value, FinishedReason) {
    let end = events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::ModelCallEnd(end) => Some((event, end)),
            _ => None,
        })
        .unwrap();
    (serde_json::to_value(&end.0.metadata).unwrap(), end.1.finished_reason.clone())
}

#[test]
fn a_plain_answer_is_one_reply_with_one_model_call() {
    let blocks = vec![block(0, json!({"type": "text", "text": ""})), text(0, "Hi"), end(0)];
    let events = events(&wrap_in_message(blocks, "end_turn"));
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.type_name()).collect();
    assert_eq!(
        kinds,
        [
            "REPLY_START",
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "REPLY_END"
        ]
    );
    assert!(events.iter().all(|event| event.reply_id == "msg_1" && event.id.is_empty()));
    let msg = fold(&events);
    assert_eq!(msg.content()[0].id(), "msg_1-0");
    assert_eq!(msg.usage().map(|usage| (usage.input_tokens, usage.output_tokens)), Some((17, 9)));
    let notes = json!({"anthropic": {"id": "msg_1", "stop_reason": "end_turn"}});
    assert_eq!(model_call_end(&events), (notes, FinishedReason::Completed));
}

#[test]
fn every_stop_reason_has_a_finish_reason() {
    for (theirs, ours) in [
        ("end_turn", FinishedReason::Completed),
        ("stop_sequence", FinishedReason::Completed),
        ("pause_turn", FinishedReason::Completed),
        ("of a later version", FinishedReason::Completed),
        ("max_tokens", FinishedReason::Length),
        ("model_context_window_exceeded", FinishedReason::Length),
        ("tool_use", FinishedReason::ToolCalls),
        ("refusal", FinishedReason::Refusal),
    ] {
        let events = events(&wrap_in_message(Vec::new(), theirs));
        let (notes, reason) = model_call_end(&events);
        assert_eq!(reason, ours, "{theirs}");
        assert_eq!(notes["anthropic"]["stop_reason"], theirs);
        assert_eq!(fold(&events).finished_reason(), Some(&ours), "{theirs}");
    }
}

#[test]
fn other_fields_of_the_end_are_metadata() {
    let end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": "refusal", "stop_sequence": "STOP",
            "stop_details": {"type": "refusal", "category": "cyber"},
            "container": {"id": "c_1"}},
        "usage": {"input_tokens": 4, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1}},
        "context_management": {"applied_edits": []},
    });
    let events = events(&[start("m"), end, json!({"type": "message_stop"})]);
    assert_eq!(
        model_call_end(&events).0["anthropic"],
        json!({
            "id": "m",
            "usage": {"server_tool_use": {"web_search_requests": 1}},
            "stop_reason": "refusal",
            "stop_sequence": "STOP",
            "stop_details": {"type": "refusal", "category": "cyber"},
            "container": {"id": "c_1"},
            "context_management": {"applied_edits": []},
        })
    );
}

#[test]
fn thinking_keeps_its_signature_and_may_be_nothing_but_one() {
    let thinking = |text: &str| json!({"type": "thinking_delta", "thinking": text});
    let signature = |text: &str| json!({"type": "signature_delta", "signature": text});
    let msg = message(&wrap_in_message(
        vec![
            block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, thinking("Hm")),
            delta(0, thinking("…")),
            delta(0, signature("s1")),
            end(0),
            block(1, json!({"type": "thinking", "thinking": ""})),
            delta(1, signature("s2")),
            end(1),
            block(2, json!({"type": "redacted_thinking", "data": "AAEC"})),
            end(2),
        ],
        "end_turn",
    ));
    let blocks: Vec<(&str, Value)> = msg
        .blocks::<ThinkingBlock>()
        .map(|block| (block.thinking.as_str(), serde_json::to_value(&block.rest).unwrap()))
        .collect();
    assert_eq!(
        blocks,
        [
            ("Hm…", json!({"signature": "s1"})),
            ("", json!({"signature": "s2"})),
            ("", json!({"redacted_thinking_data": "AAEC"})),
        ]
    );
}

#[test]
fn citations_become_a_field_of_their_text() {
    let citation = json!({"type": "char_location", "cited_text": "x", "document_index": 0});
    let msg = message(&wrap_in_message(
        vec![
            block(0, json!({"citations": [], "type": "text", "text": "", "later": 1})),
            text(0, "So it is."),
            delta(0, json!({"type": "citations_delta", "citation": citation})),
            delta(0, json!({"type": "citations_delta", "citation": citation})),
            end(0),
        ],
        "end_turn",
    ));
    let rest = serde_json::to_value(&msg.first::<TextBlock>().unwrap().rest).unwrap();
    assert_eq!(rest, json!({"later": 1, "citations": [citation, citation]}));
}

fn calls(msg: &Msg) -> Vec<(&str, &str, &str)> {
    msg.blocks::<ToolCall>().map(|call| (&*call.id, &*call.name, &*call.input)).collect()
}

fn partial_json(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": text}))
}

#[test]
fn a_tool_without_arguments_gets_an_empty_object() {
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "list", "input": {}});
    let msg = message(&wrap_in_message(
        vec![
            block(0, tool("a")),
            partial_json(0, ""),
            end(0),
            block(1, tool("b")),
            end(1),
            block(2, json!({"type": "tool_use", "id": "c", "name": "list", "input": null})),
            end(2),
        ],
        "tool_use",
    ));
    assert_eq!(calls(&msg), [("a", "list", "{}"), ("b", "list", "{}"), ("c", "list", "{}")]);
}

#[test]
fn arguments_are_kept_as_they_were_written_also_when_they_were_cut_off() {
    let tool = json!({"type": "tool_use", "id": "a", "name": "t", "input": {}});
    let frames =
        vec![block(0, tool), partial_json(0, "{\"a\": "), partial_json(0, "1e400, \"b"), end(0)];
    let msg = message(&wrap_in_message(frames, "max_tokens"));
    assert_eq!(calls(&msg), [("a", "t", "{\"a\": 1e400, \"b")]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Length));
}

#[test]
fn arguments_in_the_start_count_unless_others_follow() {
    let tool = |id: &str| {
        json!({"type": "tool_use", "id": id, "name": "roll", "input": {"player": 1},
            "caller": {"type": "direct"}})
    };
    let msg = message(&wrap_in_message(
        vec![
            block(0, tool("a")),
            end(0),
            block(1, tool("b")),
            partial_json(1, "{\"x\":1}"),
            end(1),
        ],
        "tool_use",
    ));
    assert_eq!(calls(&msg), [("a", "roll", "{\"player\":1}"), ("b", "roll", "{\"x\":1}")]);
    let rest = serde_json::to_value(&msg.first::<ToolCall>().unwrap().rest).unwrap();
    assert_eq!(rest, json!({"caller": {"type": "direct"}}));
}

#[test]
fn a_call_without_an_id_or_with_a_used_one_gets_a_unique_id() {
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    let frames =
        vec![block(0, tool("a")), end(0), block(1, tool("a")), end(1), block(2, tool("")), end(2)];
    let msg = message(&wrap_in_message(frames, "tool_use"));
    let ids: Vec<&str> = calls(&msg).into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(ids, ["a", "a-2", "msg_1-2"]);
}

/// The provider's items in a message, without the fields that we added.
fn items(msg: &Msg) -> Vec<Value> {
    let all = serde_json::to_value(msg.content()).unwrap();
    let own = |item: &Value| item["from_wire"] == "anthropic";
    let mut items: Vec<Value> =
        all.as_array().unwrap().iter().filter(|item| own(item)).cloned().collect();
    for item in &mut items {
        item.as_object_mut().unwrap().remove("from_wire");
    }
    items
}

#[test]
fn server_tools_and_unknown_blocks_stay_as_they_are_in_their_place() {
    let result =
        json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"n": 1.10}]});
    let fallback = json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}});
    let server = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let msg = message(&wrap_in_message(
        vec![
            block(0, server),
            partial_json(0, "{\"query\":"),
            partial_json(0, "\"x\"}"),
            end(0),
            block(1, json!({"type": "text", "text": "between"})),
            end(1),
            block(2, result.clone()),
            end(2),
            block(3, fallback.clone()),
            end(3),
            block(4, json!({"type": "compaction", "content": null})),
            delta(4, json!({"type": "compaction_delta", "content": "Sum", "encrypted": null})),
            delta(4, json!({"type": "compaction_delta", "content": "mary", "n": [1]})),
            end(4),
        ],
        "end_turn",
    ));
    assert_eq!(
        items(&msg),
        [
            json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}),
            result,
            fallback,
            json!({"type": "compaction", "content": "Summary", "n": [1]}),
        ]
    );
    assert_eq!(texts(&msg), ["between"]);
    assert_eq!(msg.content()[1].block_type().as_str(), "text");
}

#[test]
fn an_item_that_looks_like_a_block_of_ours_or_comes_twice_is_wrapped() {
    let hint = json!({"type": "hint", "x": 1});
    let server = json!({"type": "server_tool_use", "id": "s", "name": "n", "input": {}});
    let frames = vec![
        block(0, hint.clone()),
        end(0),
        block(1, server.clone()),
        end(1),
        block(2, server.clone()),
        end(2),
        block(3, json!({"x": 1})),
        end(3),
    ];
    let msg = message(&wrap_in_message(frames, "end_turn"));
    let wrapped = |item: Value| json!({"type": "provider_item", "provider_item": item});
    assert_eq!(
        items(&msg),
        [wrapped(hint), server.clone(), wrapped(server), wrapped(json!({"x": 1}))]
    );
}

#[test]
fn an_image_and_a_document_become_data() {
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}});
    let file = json!({"type": "document", "source": {"type": "file", "file_id": "f"}});
    let msg = message(&wrap_in_message(
        vec![block(0, image), end(0), block(1, file.clone()), end(1)],
        "end_turn",
    ));
    let data = msg.first::<turnwire_core::DataBlock>().unwrap();
    assert_eq!(data.media_type(), Some("image/png"));
    assert_eq!(data.decoded().unwrap().unwrap(), [0, 1, 2]);
    assert_eq!(items(&msg), [file]);
}

#[test]
fn the_same_start_again_changes_nothing() {
    let mut frames = wrap_in_message(
        vec![block(0, json!({"type": "text", "text": ""})), text(0, "a"), text(0, "b"), end(0)],
        "end_turn",
    );
    let once = events(&frames);
    frames.insert(3, start("msg_1"));
    frames.insert(1, start("msg_1"));
    assert_eq!(events(&frames), once);
}

#[test]
fn a_message_spliced_into_another_takes_its_place() {
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    let events = events(&[
        start("first"),
        block(0, json!({"type": "text", "text": ""})),
        text(0, "one"),
        end(0),
        block(2, tool("a")),
        partial_json(2, "{\"v\":\"Spa"),
        start("second"),
        block(0, json!({"type": "text", "text": ""})),
        text(0, "two"),
        end(0),
        block(1, tool("b")),
        partial_json(1, "{}"),
        end(1),
        stop("tool_use"),
        json!({"type": "message_stop"}),
    ]);
    // What was open ends where the other message begins, although its index does not come again.
    let place =
        |of: &dyn Fn(&EventKind<'_>) -> bool| events.iter().position(|event| of(&event.kind));
    let ended =
        place(&|kind| matches!(kind, EventKind::ToolCallEnd(end) if end.tool_call_id == "a"));
    let began = place(
        &|kind| matches!(kind, EventKind::TextBlockStart(start) if start.block_id == "first-2"),
    );
    assert!(ended.unwrap() < began.unwrap());
    let msg = fold(&events);
    assert_eq!((msg.id(), texts(&msg)), ("first", vec!["two"]));
    assert_eq!(calls(&msg), [("b", "t", "{}")]);
    assert_eq!(msg.usage().map(|usage| (usage.input_tokens, usage.output_tokens)), Some((17, 9)));
}

#[test]
fn messages_one_after_the_other_are_the_model_calls_of_one_reply() {
    let whole = json!({"type": "message_start", "message": {
        "id": "msg_2", "content": [{"type": "tool_use", "id": "b", "name": "t", "input": {"x": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 0, "output_tokens": 0}}});
    let mut frames = wrap_in_message(
        vec![block(0, json!({"type": "text", "text": ""})), text(0, "one"), end(0)],
        "tool_use",
    );
    frames.extend([whole, json!({"type": "message_stop"})]);
    let events = events(&frames);
    let ends = |event: &&Event<'_>| matches!(event.kind, EventKind::ModelCallEnd(_));
    assert_eq!(events.iter().filter(ends).count(), 2);
    let msg = fold(&events);
    assert_eq!((texts(&msg), calls(&msg)), (vec!["one"], vec![("b", "t", "{\"x\":1}")]));
    assert_eq!(msg.usage().map(|usage| (usage.input_tokens, usage.output_tokens)), Some((17, 9)));
}

#[test]
fn after_the_end_of_a_message_only_another_message_counts() {
    let mut frames = wrap_in_message(Vec::new(), "end_turn");
    let once = events(&frames);
    frames.extend([
        text(0, "late"),
        json!({"type": "error", "error": {"type": "api_error", "message": "late"}}),
        json!({"type": "message_stop"}),
    ]);
    assert_eq!(events(&frames), once);
}

#[test]
fn the_last_word_on_tokens_counts_and_a_zero_takes_nothing_back() {
    let usage = |usage: Value| json!({"type": "message_delta", "delta": {}, "usage": usage});
    let msg = message(&[
        start("m"),
        usage(json!({"input_tokens": 61, "output_tokens": 2, "cache_read_input_tokens": 7})),
        usage(json!({"output_tokens": 5, "cache_creation_input_tokens": 3})),
        usage(json!({"input_tokens": 0, "output_tokens": null})),
        usage(json!(null)),
        usage(json!("many")),
        stop("end_turn"),
        json!({"type": "message_stop"}),
    ]);
    let usage = msg.usage().unwrap();
    let counts = (usage.input_tokens, usage.output_tokens);
    let cached = (usage.cache_input_tokens, usage.cache_creation_input_tokens);
    assert_eq!((counts, cached), ((61, 9), (7, 3)));
}

#[test]
fn an_error_ends_the_reply_also_after_a_stop_reason() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "q"});
    let events = events(&[
        start("m"),
        block(0, json!({"type": "text", "text": ""})),
        text(0, "par"),
        stop("end_turn"),
        error,
        text(0, "tial"),
        json!({"type": "message_stop"}),
    ]);
    let msg = fold(&events);
    assert_eq!(texts(&msg), ["par"]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Error));
    let error = msg.error().unwrap();
    assert_eq!((&error.r#type, &*error.message), (&ErrorType::Upstream, "Overloaded"));
    assert_eq!(model_call_end(&events).0["anthropic"]["request_id"], "q");
}

#[test]
fn every_error_has_a_type_of_ours_also_without_a_message_before_it() {
    for (theirs, ours) in [
        ("invalid_request_error", ErrorType::InvalidRequest),
        ("not_found_error", ErrorType::InvalidRequest),
        ("request_too_large", ErrorType::InvalidRequest),
        ("authentication_error", ErrorType::Authentication),
        ("permission_error", ErrorType::Permission),
        ("billing_error", ErrorType::Permission),
        ("rate_limit_error", ErrorType::RateLimit),
        ("api_error", ErrorType::Upstream),
        ("timeout_error", ErrorType::Upstream),
        ("overloaded_error", ErrorType::Upstream),
        ("of a later version", ErrorType::Unknown),
    ] {
        let error = json!({"type": theirs, "message": "no"});
        let msg = message(&[json!({"type": "error", "error": error})]);
        assert_eq!(msg.error().unwrap().r#type, ours, "{theirs}");
        // Without a type of its own, as a proxy sends it.
        assert_eq!(message(&[json!({"error": error})]).error().unwrap().r#type, ours);
    }
    let bare = message(&[json!({"type": "error", "error": "it broke"})]);
    assert_eq!(bare.error().unwrap().message, "it broke");
    assert_eq!(message(&[json!({"type": "error"})]).error().unwrap().message, "");
}

#[test]
fn a_stream_without_its_end_was_cut_off_although_it_had_a_reason() {
    for cut in 0..3 {
        let blocks = vec![block(0, json!({"type": "text", "text": ""})), text(0, "Hi")];
        let mut frames = wrap_in_message(blocks, "end_turn");
        frames.truncate(frames.len() - 1 - cut);
        let msg = message(&frames);
        assert_eq!(msg.finished_reason(), Some(&FinishedReason::Truncated));
        assert_eq!(msg.error().unwrap().r#type, ErrorType::Connection);
    }
    assert_eq!(message(&[]).finished_reason(), Some(&FinishedReason::Truncated));
}

#[test]
fn a_cut_off_stream_keeps_what_it_had_of_a_call_and_of_an_item() {
    let msg = message(&[
        start("m"),
        block(0, json!({"type": "server_tool_use", "id": "s", "name": "n", "input": {}})),
        partial_json(0, "{\"q"),
        block(1, json!({"type": "tool_use", "id": "a", "name": "t", "input": {}})),
        partial_json(1, "{\"q"),
    ]);
    assert_eq!(items(&msg)[0]["input"], "{\"q");
    assert_eq!(calls(&msg), [("a", "t", "{\"q")]);
}

#[test]
fn a_stream_that_begins_after_its_first_event_is_read_all_the_same() {
    let msg = message(&[
        text(3, "mid"),
        text(3, "way"),
        end(3),
        delta(4, json!({"type": "thinking_delta", "thinking": "hm"})),
        partial_json(5, "{}"),
        stop("end_turn"),
        json!({"type": "message_stop"}),
    ]);
    assert_eq!((msg.id(), texts(&msg)), ("reply", vec!["midway"]));
    assert_eq!(msg.first::<ThinkingBlock>().unwrap().thinking, "hm");
    assert_eq!(calls(&msg), [("reply-2", "", "{}")]);
}

#[test]
fn missing_null_and_wrongly_typed_fields_do_not_fail_the_stream() {
    let msg = message(&[
        json!({"type": "message_start", "message": {"id": 7, "model": null, "content": "x", "usage": []}}),
        json!({"type": "content_block_start", "content_block": {"type": "text", "text": null}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        json!({"type": "content_block_delta", "index": null, "delta": {"type": "text_delta", "text": 1}}),
        json!({"type": "content_block_delta", "index": "0", "delta": "b"}),
        json!({"type": "content_block_delta", "index": 0}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}}),
        json!({"type": "content_block_stop"}),
        json!({"type": "content_block_stop", "index": -4}),
        json!({"type": "content_block_start", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": "x"}),
        json!({"type": "message_delta", "delta": {"stop_reason": ["end_turn"]}, "usage": 7}),
        json!({"type": "message_delta", "delta": null}),
        json!({"type": "ping"}),
        json!({"type": "message_stop", "index": {}}),
    ]);
    assert_eq!((msg.id(), texts(&msg), msg.content().len()), ("reply", vec!["a"], 1));
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
}

#[test]
fn unknown_frames_survive_and_pings_and_done_do_not() {
    let later = json!({"type": "of_a_later_version", "n": [1, null]});
    let grows = delta(0, json!({"type": "later_delta", "x": 1}));
    let events = events(&[
        start("m"),
        json!({"type": "ping"}),
        later.clone(),
        grows.clone(),
        block(0, json!({"type": "text", "text": ""})),
        grows.clone(),
        delta(0, json!({"type": "thinking_delta", "thinking": "not in a text"})),
    ]);
    let customs: Vec<Value> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Custom(custom) => Some(
                json!({"name": custom.name, "value": custom.value.0.parse_as::<Value>().unwrap()}),
            ),
            _ => None,
        })
        .collect();
    let custom = |value: Value| json!({"name": "anthropic", "value": value});
    assert_eq!(customs, [custom(later), custom(grows.clone()), custom(grows)]);

    let decoder = Wire::named("anthropic").unwrap().decoder(&DecoderOptions::default()).unwrap();
    let done = decoder.decode_all(b"data: [DONE]\n\n").unwrap();
    assert_eq!(fold(&done).finished_reason(), Some(&FinishedReason::Truncated));
}

#[test]
fn an_unreadable_frame_is_reported_and_the_stream_continues() {
    let body = lines(&[start("m"), block(0, json!({"type": "text", "text": ""}))])
        + "{\"type\":\n[1]\n{}\n"
        + &lines(&[text(0, "on"), end(0), stop("end_turn"), json!({"type": "message_stop"})]);
    let mut decoder =
        Wire::named("anthropic").unwrap().decoder(&DecoderOptions::default()).unwrap();
    let (mut problems, mut folder) = (Vec::new(), Folder::default());
    decoder.feed(body.as_bytes(), &mut |decoded| match decoded.event {
        Ok(event) => {
            folder.push(&event).unwrap();
        }
        Err(error) => problems.push((decoded.line, error.kind(), decoded.reply_id)),
    });
    decoder.end(&mut |decoded| {
        folder.push(&decoded.event.unwrap()).unwrap();
    });
    let reply = || Some("m".to_owned());
    assert_eq!(
        problems,
        [
            (3, ErrorKind::NotJson, reply()),
            (4, ErrorKind::NotAnEvent, reply()),
            (5, ErrorKind::NotAnEvent, reply()),
        ]
    );
    assert_eq!(texts(&folder.into_messages().next().unwrap()), ["on"]);
}

#[test]
fn a_response_without_streaming_is_read_too() {
    let msg = message(&[json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "a", "name": "t", "input": {}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
    })]);
    assert_eq!((msg.id(), texts(&msg), calls(&msg)), ("msg_1", vec!["Hi"], vec![("a", "t", "{}")]));
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::ToolCalls));
}

#[test]
fn a_model_call_of_another_reply_has_no_start_and_no_end_of_a_reply() {
    let decoding = DecoderOptions {
        reply_id: Some("r".to_owned()),
        block_prefix: Some("r-3".to_owned()),
        scope: StreamScope::ModelCall,
        ..DecoderOptions::default()
    };
    let frames = wrap_in_message(
        vec![block(0, json!({"type": "text", "text": ""})), text(0, "Hi"), end(0)],
        "end_turn",
    );
    let decoder = Wire::named("anthropic").unwrap().decoder(&decoding).unwrap();
    let events = decoder.decode_all(lines(&frames).as_bytes()).unwrap();
    assert_eq!(events.first().unwrap().kind.type_name(), "MODEL_CALL_START");
    assert_eq!(events.last().unwrap().kind.type_name(), "MODEL_CALL_END");
    assert_eq!(events.len(), 5);
    let EventKind::TextBlockStart(start) = &events[1].kind else { panic!() };
    assert_eq!((&*events[1].reply_id, &*start.block_id), ("r", "r-3-0"));
}

/// Any frames in any order give the events of one reply, and these fold without errors.
#[test]
fn any_frames_in_any_order_fold_without_a_problem() {
    let blocks = [
        json!({"type": "text", "text": "t"}),
        json!({"type": "thinking", "thinking": "", "signature": "s"}),
        json!({"type": "redacted_thinking", "data": "AAEC"}),
        json!({"type": "tool_use", "id": "a", "name": "n", "input": {}}),
        json!({"type": "server_tool_use", "id": "a", "name": "n", "input": {}}),
        json!({"type": "hint", "id": "a"}),
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}),
        json!({"type": "document", "source": {"type": "url", "url": "https://example.com/"}}),
        json!({}),
        json!(null),
    ];
    let deltas = [
        json!({"type": "text_delta", "text": "x"}),
        json!({"type": "thinking_delta", "thinking": "x"}),
        json!({"type": "signature_delta", "signature": "x"}),
        json!({"type": "input_json_delta", "partial_json": "{"}),
        json!({"type": "citations_delta", "citation": {}}),
        json!({"type": "later_delta", "text": "x", "id": "a", "type2": 1}),
        json!(7),
    ];
    check_property("any_frames_in_any_order_fold_without_a_problem", 2000, |rng| {
        let frames: Vec<Value> = (0..rng.usize(..20))
            .map(|_| {
                let index = rng.u64(..3);
                match rng.u8(..16) {
                    0 => start("m"),
                    1 => start("n"),
                    2 => json!({"type": "message_start"}),
                    3 => json!({"type": "message_stop"}),
                    4 => stop("tool_use"),
                    5 => json!({"type": "error", "error": {"type": "api_error"}}),
                    6 => json!({"type": "later"}),
                    7..=9 => block(index, pick(rng, &blocks).clone()),
                    10 | 11 => end(index),
                    _ => delta(index, pick(rng, &deltas).clone()),
                }
            })
            .collect();
        let msg = message(&frames);
        assert!(msg.finished_reason().is_some());
    });
}
