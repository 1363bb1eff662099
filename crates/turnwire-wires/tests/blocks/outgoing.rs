//! Encoding events, and what clients show.

use crate::fake_clients::{Flutter, React, lines};
use crate::harness::{
    answer, ask, call, encoder, end, events, frames, frames_of, model, model_end, of_subagent,
    result, start, text, thinking,
};
use serde_json::{Value, json};
use turnwire_core::Event;
use turnwire_wires::blocks::DisplayMode;

/// What both clients show at the end; it must be the same.
fn shown_blocks(frames: &[String]) -> Vec<String> {
    let (mut react, mut flutter) = (React::default(), Flutter::default());
    for frame in frames {
        react.apply_frame(frame);
        flutter.apply_frame(frame);
    }
    let seen = lines(&react.blocks);
    assert_eq!(lines(&flutter.blocks()), seen, "{frames:#?}");
    assert!(!react.is_streaming && !flutter.is_streaming);
    seen
}

fn show_values(values: &[Vec<Value>]) -> Vec<String> {
    shown_blocks(&frames(&events(values.concat())))
}

fn parsed(frames: &[String]) -> Vec<Value> {
    frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect()
}

/// The price question of the protocol document, with a tool call between thinking and answer.
fn price_question() -> Vec<Event<'static>> {
    events(
        [
            start(),
            model(),
            thinking("b1", &["Look up ", "the price first."]),
            call("toolu_01", "search_stock", &["{\"symbol\":", " \"VNM\"}"]),
            model_end(),
            result("toolu_01", "search_stock", &["VNM: ", "82,000"], "success"),
            model(),
            text("b2", &["VNM is at ", "**82,000**."]),
            model_end(),
            end("completed"),
        ]
        .concat(),
    )
}

#[test]
fn a_turn_is_written_as_in_the_protocol_document() {
    let frames = parsed(&frames(&price_question()));
    let none = Value::Null;
    let m = "m1";
    let expected = [
        json!({"type": "message_start", "session_id": "abc-123", "timestamp": 1_710_000_000.01,
            "display_mode": "agent", "is_new_session_from_share": false, "message_id": m}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking",
            "id": "b1", "thinking": "", "subagent": none, "parent_tool_use_id": none}, "message_id": m}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta",
            "thinking": "Look up "}, "message_id": m}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta",
            "thinking": "the price first."}, "message_id": m}),
        json!({"type": "content_block_stop", "index": 0, "message_id": m}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use",
            "id": "toolu_01", "name": "search_stock", "tool_use_id": "toolu_01",
            "tool_content_message": "search_stock", "input": {"symbol": "VNM"}, "subagent": none,
            "parent_tool_use_id": none}, "message_id": m}),
        json!({"type": "content_block_stop", "index": 1, "message_id": m}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_result",
            "tool_use_id": "toolu_01", "name": "search_stock", "status": "success",
            "content": "VNM: 82,000", "artifact": none, "subagent": none,
            "parent_tool_use_id": none}, "message_id": m}),
        json!({"type": "content_block_stop", "index": 2, "message_id": m}),
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "text",
            "id": "b2", "text": "", "subagent": none, "parent_tool_use_id": none,
            "is_part": false}, "message_id": m}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta",
            "text": "VNM is at "}, "message_id": m}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta",
            "text": "**82,000**."}, "message_id": m}),
        json!({"type": "content_block_stop", "index": 3, "is_final": true, "message_id": m}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage":
            {"input_tokens": 0, "output_tokens": 0, "cache_input_tokens": 0,
            "cache_creation_input_tokens": 0}, "message_id": m}),
        json!({"type": "message_stop", "duration_ms": 210, "message_id": m}),
    ];
    assert_eq!(frames, expected);
}

#[test]
fn clients_show_thinking_the_call_with_its_result_and_the_answer() {
    assert_eq!(
        shown_blocks(&frames(&price_question())),
        [
            "thinks Look up the price first.",
            "calls search_stock{\"symbol\":\"VNM\"} gives VNM: 82,000",
            "says VNM is at **82,000**.",
        ]
    );
}

#[test]
fn chat_mode_leaves_thinking_out_of_the_indexes() {
    let frames = frames_of(&mut *encoder(DisplayMode::Chat), &price_question()).concat();
    assert!(frames[0].contains(r#""display_mode":"chat""#));
    let lines = shown_blocks(&frames);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("calls search_stock") && lines[1].starts_with("says VNM"));
    let started =
        parsed(&frames).into_iter().filter(|frame| frame["type"] == "content_block_start");
    let indexes: Vec<u64> = started.map(|frame| frame["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 1, 2]);
}

#[test]
fn the_user_message_sets_the_display_mode() {
    let user = |mode: Value| {
        let message =
            json!({"role": "user", "id": "u", "name": "", "content": "hi", "metadata": mode});
        vec![json!({"type": "MESSAGE", "message": message})]
    };
    let mut events = events(
        [
            user(json!({"display_mode": "chat"})),
            start(),
            thinking("b1", &["hm"]),
            end("completed"),
            user(json!({})),
        ]
        .concat(),
    );
    let mut next = price_question();
    for event in &mut next {
        event.reply_id = "m2".into();
    }
    events.extend(next);
    let frames = frames(&events);
    let modes: Vec<Value> = parsed(&frames)
        .into_iter()
        .filter(|frame| frame["type"] == "message_start")
        .map(|frame| frame["display_mode"].clone())
        .collect();
    assert_eq!(modes, ["chat", "agent"]);
    assert!(!frames.iter().any(|frame| frame.contains("hm")), "{frames:#?}");
}

#[test]
fn parallel_tools_each_get_their_own_result() {
    let seen = show_values(&[
        start(),
        model(),
        call("a", "one", &["{}"]),
        call("b", "two", &[]),
        model_end(),
        vec![
            json!({"type": "TOOL_RESULT_START", "tool_call_id": "a", "tool_call_name": "one"}),
            json!({"type": "TOOL_RESULT_START", "tool_call_id": "b", "tool_call_name": "two"}),
            json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "b", "delta": "B"}),
            json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "a", "delta": "A"}),
            json!({"type": "TOOL_RESULT_END", "tool_call_id": "b", "state": "denied"}),
            json!({"type": "TOOL_RESULT_END", "tool_call_id": "a", "state": "success"}),
        ],
        end("completed"),
    ]);
    assert_eq!(seen, ["calls one{} gives A", "calls two{} fails B"]);
}

#[test]
fn exactly_500_characters_of_a_result_are_written() {
    let long = "đ🙂".repeat(400);
    let (left, right) = long.split_at("đ🙂".len() * 150);
    for pieces in [vec![long.as_str()], vec![left, right], vec![left, "", right]] {
        let events = events(
            [
                start(),
                call("a", "one", &[]),
                result("a", "one", &pieces, "success"),
                end("completed"),
            ]
            .concat(),
        );
        let frames = parsed(&frames(&events));
        let content = frames.iter().find_map(|frame| frame["content_block"]["content"].as_str());
        assert_eq!(content.unwrap(), "đ🙂".repeat(250));
    }
}

#[test]
fn artifact_and_title_come_from_metadata() {
    let mut called = call("a", "one", &["not json"]);
    called[2]["extra"] = json!({"title": "Number One"});
    let mut given = result("a", "one", &["x"], "success");
    given[2]["metadata"] = json!({"artifact": {"kind": "chart"}, "took": 3});
    let frames = parsed(&frames(&events([start(), called, given, end("completed")].concat())));
    let blocks: Vec<&Value> = frames
        .iter()
        .map(|frame| &frame["content_block"])
        .filter(|block| block.is_object())
        .collect();
    assert_eq!(blocks[0]["tool_content_message"], "Number One");
    assert_eq!(blocks[0]["input"], json!({"raw_input": "not json"}));
    assert_eq!(blocks[1]["artifact"], json!({"kind": "chart"}));
}

#[test]
fn only_texts_after_the_last_tool_call_are_final() {
    let events = events(
        [
            start(),
            model(),
            text("b1", &["I will look."]),
            call("a", "one", &[]),
            model_end(),
            result("a", "one", &["x"], "success"),
            model(),
            text("b2", &["First."]),
            thinking("b3", &["and"]),
            text("b4", &["Second."]),
            model_end(),
            end("completed"),
        ]
        .concat(),
    );
    let frames = frames(&events);
    let stops: Vec<(u64, Value)> = parsed(&frames)
        .into_iter()
        .filter(|frame| frame["type"] == "content_block_stop")
        .map(|frame| (frame["index"].as_u64().unwrap(), frame["is_final"].clone()))
        .collect();
    let (yes, no, none) = (json!(true), json!(false), Value::Null);
    assert_eq!(
        stops,
        [(0, no), (1, none.clone()), (2, none.clone()), (3, yes.clone()), (4, none), (5, yes)]
    );
    assert_eq!(
        shown_blocks(&frames),
        ["says I will look.", "calls one{} gives x", "says First.", "thinks and", "says Second."]
    );
}

#[test]
fn an_approval_request_follows_the_call_and_its_result_follows() {
    let input = r#"{"quantity":100}"#;
    let approval_request =
        r#"asks [{"name":"execute_trade","args":{"quantity":100},"tool_use_id":"t"}]"#;
    let called = r#"calls execute_trade{"quantity":100}"#;
    for (confirmed, edited, state, call_line, decision) in [
        (true, "", "success", " gives ok", r#"{"tool_use_id":"t","type":"approve"}"#),
        (true, input, "success", " gives ok", r#"{"tool_use_id":"t","type":"approve"}"#),
        (
            true,
            r#"{"quantity":10}"#,
            "success",
            " gives ok",
            r#"{"tool_use_id":"t","type":"edit","args":{"quantity":10}}"#,
        ),
        (false, "", "denied", " fails ok", r#"{"tool_use_id":"t","type":"reject"}"#),
    ] {
        let seen = show_values(&[
            start(),
            model(),
            call("t", "execute_trade", &[input]),
            model_end(),
            ask("t", "execute_trade", input),
            answer("t", confirmed, edited),
            // The reply continues; no client may lose its blocks.
            start(),
            result("t", "execute_trade", &["ok"], state),
            text("b", &["Done."]),
            end("completed"),
        ]);
        let expected = [
            format!("{called}{call_line}"),
            approval_request.to_owned(),
            format!("hears [{decision}]"),
            "says Done.".to_owned(),
        ];
        assert_eq!(seen, expected);
    }
}

#[test]
fn an_approval_request_has_a_key_and_a_timeout() {
    let frames = parsed(&frames(&events(
        [
            start(),
            call("t", "execute_trade", &["{}"]),
            ask("t", "execute_trade", ""),
            answer("t", false, ""),
            result("t", "execute_trade", &[], "denied"),
        ]
        .concat(),
    )));
    let types: Vec<&Value> = frames
        .iter()
        .filter(|frame| frame["type"] == "content_block_start")
        .map(|frame| &frame["content_block"]["type"])
        .collect();
    assert_eq!(types, ["tool_use", "approval_request", "approval_result", "tool_result"]);
    let request = frames.iter().find(|frame| frame["content_block"]["type"] == "approval_request");
    assert_eq!(request.unwrap()["content_block"]["approval_key"], "abc-123_5", "its place");
    assert_eq!(request.unwrap()["content_block"]["reply_id"], "m1");
    let delta = frames.iter().map(|frame| &frame["delta"]).find(|delta| delta.is_object()).unwrap();
    assert_eq!(delta["timeout_seconds"], 300);
    assert_eq!(delta["review_configs"], json!([{"require_approval": true}]));
}

#[test]
fn late_requests_and_second_answers_are_ignored() {
    let late = frames(&events(
        [
            start(),
            call("t", "execute_trade", &["{}"]),
            ask("t", "execute_trade", ""),
            answer("t", false, ""),
            answer("t", true, "{}"),
            result("t", "execute_trade", &[], "denied"),
            ask("t", "execute_trade", ""),
            ask("elsewhere", "x", ""),
        ]
        .concat(),
    ));
    let count = |word: &str| late.iter().filter(|frame| frame.contains(word)).count();
    assert_eq!((count("approval_request"), count("approval_result")), (1, 1));
}

#[test]
fn a_stopped_turn_ends_with_a_user_stopped_block() {
    let seen = show_values(&[
        start(),
        vec![json!({"type": "TEXT_BLOCK_START", "block_id": "b"})],
        vec![json!({"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": "I was ab"})],
        call("t", "one", &["{\"a\":"])[..2].to_vec(),
        vec![json!({"type": "USER_INTERRUPT"})],
        end("interrupted"),
    ]);
    assert_eq!(
        seen,
        [
            "says I was ab",
            "calls one{\"raw_input\":\"{\\\"a\\\":\"}",
            turnwire_wires::blocks::USER_STOPPED
        ]
    );
}

#[test]
fn a_failed_turn_ends_with_an_error_block() {
    for (kind, code, can_retry, words) in [
        ("upstream", "LLM_ERROR", true, turnwire_wires::blocks::FAILED_FOR_NOW),
        ("rate_limit", "RATE_LIMIT", true, turnwire_wires::blocks::FAILED_FOR_NOW),
        ("connection", "CONNECTION", true, turnwire_wires::blocks::FAILED_FOR_NOW),
        ("authentication", "AUTHENTICATION", false, turnwire_wires::blocks::FAILED),
        ("strange", "strange", false, turnwire_wires::blocks::FAILED),
    ] {
        let mut last = end("error");
        last[0]["error"] = json!({"type": kind, "message": "no luck"});
        let frames = frames(&events([start(), text("b", &["I tr"]), last].concat()));
        assert_eq!(
            shown_blocks(&frames),
            ["says I tr".to_owned(), format!("{words} {code:?} {can_retry}")]
        );
        let extras = parsed(&frames).iter().find_map(|frame| frame["delta"].get("extras").cloned());
        let expected = json!({"block_subtype": "error", "code": code, "can_retry": can_retry,
            "error_type": "terminal", "details": {"error": "no luck"}});
        assert_eq!(extras, Some(expected));
    }
}

#[test]
fn an_interrupted_text_is_not_final() {
    for reason in ["interrupted", "error"] {
        let frames = frames(&events([start(), text("b", &["I"]), end(reason)].concat()));
        assert!(frames.iter().any(|frame| frame.contains(r#""is_final":false"#)), "{frames:#?}");
    }
}

#[test]
fn a_sub_agents_blocks_name_the_sub_agent() {
    let seen = show_values(&[
        start(),
        call("t", "research", &["{}"]),
        of_subagent(
            "researcher",
            "t",
            [
                start(),
                model(),
                thinking("b", &["where?"]),
                call("s", "search", &["{}"]),
                result("s", "search", &["found"], "success"),
                text("b", &["Here."]),
                model_end(),
                end("completed"),
            ]
            .concat(),
        ),
        result("t", "research", &["Here."], "success"),
        text("b", &["Thanks."]),
        end("completed"),
        // Too late for this turn.
        of_subagent("researcher", "t", text("c", &["Hello?"])),
    ]);
    assert_eq!(
        seen,
        [
            "calls research{} gives Here.",
            "researcher for t: thinks where?",
            "researcher for t: calls search{} gives found",
            "researcher for t: says Here.",
            "says Thanks.",
        ]
    );
}

#[test]
fn a_sub_agents_text_is_never_the_final_one() {
    let frames = frames(&events(
        [
            start(),
            call("t", "research", &[]),
            of_subagent("r", "t", [text("b", &["Here."]), model_end(), end("completed")].concat()),
        ]
        .concat(),
    ));
    assert!(frames.iter().any(|frame| frame.contains(r#""is_final":false"#)), "{frames:#?}");
    assert!(!frames.iter().any(|frame| frame.contains(r#""is_final":true"#)), "{frames:#?}");
}

#[test]
fn files_are_the_first_block_even_before_the_turn() {
    let file =
        |value: Value| vec![json!({"type": "CUSTOM", "name": "file_processing", "value": value})];
    let begun =
        file(json!({"status": "processing", "files": [{"url": "https://example.com/a.pdf"}]}));
    let done = file(json!({"status": "completed", "message": "Processed 1 file"}));
    for values in [
        [begun.clone(), start(), done.clone()],
        [start(), begun.clone(), done.clone()],
        [begun, done, start()],
    ] {
        let values = [values.concat(), text("b", &["Read."]), end("completed")].concat();
        let frames = frames(&events(values));
        let mut react = React::default();
        for frame in &frames {
            react.apply_frame(frame);
        }
        assert_eq!(lines(&react.blocks), ["file_processing", "says Read."]);
        let block = Value::Object(react.blocks[0].clone());
        let expected = json!({"type": "file_processing", "index": 0, "status": "processing",
            "files": [{"url": "https://example.com/a.pdf"}], "processingStatus": "completed",
            "processingMessage": "Processed 1 file"});
        assert_eq!(block, expected);
    }
}

#[test]
fn a_text_replaced_at_its_end_is_shown_replaced() {
    let mut spoken = text("b", &["I was going to say"]);
    spoken[2]["text"] = json!("I was");
    assert_eq!(show_values(&[start(), spoken, end("completed")]), ["says I was"]);
}

#[test]
fn discarded_blocks_are_not_shown() {
    let seen = show_values(&[
        start(),
        model(),
        text("b1", &["Hel"]),
        vec![json!({"type": "TEXT_BLOCK_START", "block_id": "b2"})],
        vec![json!({"type": "TEXT_BLOCK_DELTA", "block_id": "b2", "delta": "lo"})],
        vec![json!({"type": "MODEL_CALL_END", "discard": ["b1", "b2"]})],
        model(),
        text("b3", &["Hello."]),
        end("completed"),
    ]);
    assert_eq!(seen, ["says Hello."]);
}

#[test]
fn bytes_are_a_data_url() {
    let seen = show_values(&[
        start(),
        text("b", &["Look:"]),
        vec![
            json!({"type": "DATA_BLOCK_START", "block_id": "d", "media_type": "image/png"}),
            json!({"type": "DATA_BLOCK_DELTA", "block_id": "d", "data": "iVBO"}),
            json!({"type": "DATA_BLOCK_DELTA", "block_id": "d", "data": "Rw"}),
            json!({"type": "DATA_BLOCK_END", "block_id": "d"}),
        ],
        end("completed"),
    ]);
    assert_eq!(seen, ["says Look:", "shows data:image/png;base64,iVBORw=="]);
}

#[test]
fn random_events_never_stop_the_encoder() {
    turnwire_testkit::check_property("random_events_never_stop_the_encoder", 300, |rng| {
        let mut encoder = encoder(DisplayMode::Agent);
        let ids = ["r1", "r2"];
        for _ in 0..rng.usize(1..60) {
            let mut event = turnwire_testkit::values::event(rng);
            event.reply_id = (*turnwire_testkit::pick(rng, &ids)).into();
            for frame in frames_of(&mut *encoder, &[event]).concat() {
                let frame: Value = serde_json::from_str(&frame).unwrap();
                assert!(frame["type"].is_string(), "{frame}");
            }
        }
    });
}

#[test]
fn only_a_valid_frame_is_written_verbatim() {
    let custom = |name: &str, value: Value| json!({"type": "CUSTOM", "name": name, "value": value});
    let values = vec![
        custom("blocks:toast", json!({"type": "toast", "text": "hi"})),
        // The Flutter client fails on a frame without a type.
        custom("blocks:toast", json!({"text": "hi"})),
        custom("blocks:toast", json!({"type": "message_stop"})),
    ];
    let types: Vec<Value> =
        parsed(&frames(&events(values))).iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(types, ["toast", "custom", "custom"]);
}

#[test]
fn the_cost_of_discarding_a_block_is_constant() {
    // With a linear search for every block this takes minutes.
    let ids: Vec<String> = (0..40_000).map(|n| format!("b{n}")).collect();
    let texts = ids.iter().flat_map(|id| text(id, &["x"]));
    let discard = json!({"type": "MODEL_CALL_END", "discard": ids});
    let values = start().into_iter().chain(model()).chain(texts).chain([discard]);
    let frames = frames(&events(values));
    let gone = frames.iter().filter(|frame| frame.contains("content_block_discard")).count();
    assert_eq!(gone, ids.len());
}

/// A model call that thinks, is interrupted by a crash while it writes, and is repeated.
fn repeated_model_call() -> Vec<Value> {
    let mut values = start();
    values.extend(model());
    values.extend(call("t1", "look", &["{}"]));
    values.extend(model_end());
    values.extend(result("t1", "look", &["seen"], "success"));
    values.extend(model());
    values.extend(thinking("b1", &["hm", "m"]));
    values.extend(&mut text("b2", &["Hel"]).into_iter().take(2));
    values.extend(start());
    values.push(json!({"type": "MODEL_CALL_END", "discard": ["b1", "b2"]}));
    values.extend(model());
    values.extend(thinking("b3", &["aha"]));
    values.extend(text("b4", &["Hello"]));
    values.extend(model_end());
    values.extend(end("completed"));
    values
}

#[test]
fn discarded_ended_blocks_are_gone_for_clients_that_do_not_know_discard() {
    let written = frames(&events(repeated_model_call()));
    let (mut react, mut flutter) = (React::default(), Flutter::default());
    for frame in &written {
        react.apply_frame(frame);
        flutter.apply_frame(frame);
    }
    let wanted = ["calls look{} gives seen", "thinks aha", "says Hello"];
    assert_eq!(lines(&react.blocks), wanted);
    assert_eq!(lines(&flutter.blocks()), wanted);
    assert!(!react.is_streaming);
    let again = written.iter().filter(|frame| frame.contains(r#""again":true"#));
    let again: Vec<Value> =
        again.map(|frame| serde_json::from_str::<Value>(frame).unwrap()["type"].clone()).collect();
    let block = ["content_block_start", "content_block_stop"];
    assert_eq!(again, [&["message_start"][..], &block, &block].concat());
}

#[test]
fn rewrites_are_limited() {
    let mut values = start();
    for n in 0..100 {
        values.extend(model());
        values.extend(thinking(&format!("b{n}"), &["hm"]));
        values.push(json!({"type": "MODEL_CALL_END", "discard": [format!("b{n}")]}));
    }
    let written = frames(&events(values));
    let starts = written.iter().filter(|frame| frame.contains("message_start")).count();
    assert_eq!(starts, 17);
}
