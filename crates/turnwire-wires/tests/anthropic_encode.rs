//! Encoding replies as Anthropic's stream, and converting messages.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use serde_json::{Value, json};
use turnwire_core::{Event, Folder, Msg, coalesce};
use turnwire_testkit::{check_property, stream, values};
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire, sse};

/// The frames for events in JSON.
fn frames_with(encoding: &EncoderOptions, events: &[Value]) -> Vec<(String, Value)> {
    let mut encoder = Wire::named("anthropic").unwrap().encoder(encoding).unwrap();
    let mut frames = Frames::default();
    for event in events {
        let mut event = event.clone();
        let fields = event.as_object_mut().unwrap();
        fields.entry("reply_id").or_insert("r".into());
        encoder.encode(&Event::from_json(&event.to_string()).unwrap(), &mut frames);
    }
    encoder.end(&mut frames);
    frames
        .iter()
        .map(|(name, text)| (name.to_owned(), serde_json::from_str(text).unwrap()))
        .collect()
}

/// The frames in short notation; checks the rules that every stream must keep.
fn frames(events: &[Value]) -> Vec<String> {
    let frames = frames_with(&EncoderOptions::default(), events);
    let mut open = None;
    let mut next = 0;
    for (name, frame) in &frames {
        assert_eq!(frame["type"], name.as_str());
        match name.as_str() {
            "content_block_start" => {
                assert_eq!((open, &frame["index"]), (None, &json!(next)));
                open = Some(next);
            }
            "content_block_delta" => assert_eq!(frame["index"], json!(open.unwrap())),
            "content_block_stop" => {
                assert_eq!(frame["index"], json!(open.take().unwrap()));
                next += 1;
            }
            "message_start" => next = 0,
            _ => assert_eq!(open, None, "{name}"),
        }
    }
    frames.iter().map(|(_, frame)| short(frame)).collect()
}

fn short(frame: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let delta = &frame["delta"];
    match frame["type"].as_str().unwrap() {
        "message_start" => format!("start {}", word(&frame["message"]["id"])),
        "content_block_start" => {
            let block = &frame["content_block"];
            format!("<{} {}", word(&block["type"]), word(&block["name"])).replace(" -", "")
        }
        "content_block_delta" => {
            let of = ["text", "thinking", "signature", "partial_json"];
            let text = of.iter().find_map(|key| delta[key].as_str());
            text.map_or_else(|| delta.to_string(), str::to_owned)
        }
        "content_block_stop" => ">".to_owned(),
        "message_delta" => {
            let usage = &frame["usage"];
            format!(
                "{} {}/{}",
                word(&delta["stop_reason"]),
                usage["input_tokens"],
                usage["output_tokens"]
            )
        }
        "error" => {
            format!("{}: {}", word(&frame["error"]["type"]), word(&frame["error"]["message"]))
        }
        other => other.to_owned(),
    }
}

fn text(id: &str, text: &str) -> Vec<Value> {
    vec![
        json!({"type": "TEXT_BLOCK_START", "block_id": id}),
        json!({"type": "TEXT_BLOCK_DELTA", "block_id": id, "delta": text}),
        json!({"type": "TEXT_BLOCK_END", "block_id": id}),
    ]
}

fn call(id: &str, input: &str) -> Vec<Value> {
    vec![
        json!({"type": "TOOL_CALL_START", "tool_call_id": id, "tool_call_name": "tool"}),
        json!({"type": "TOOL_CALL_DELTA", "tool_call_id": id, "delta": input}),
        json!({"type": "TOOL_CALL_END", "tool_call_id": id}),
    ]
}

fn result(id: &str) -> Vec<Value> {
    vec![
        json!({"type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": "tool"}),
        json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": id, "delta": "secret"}),
        json!({"type": "TOOL_RESULT_END", "tool_call_id": id, "state": "success"}),
    ]
}

fn model_call(inside: Vec<Value>) -> Vec<Value> {
    let mut events = vec![json!({"type": "MODEL_CALL_START", "model_name": "m"})];
    events.extend(inside);
    events.push(json!({"type": "MODEL_CALL_END", "input_tokens": 10, "output_tokens": 3}));
    events
}

fn begin() -> Vec<Value> {
    vec![json!({"type": "REPLY_START", "name": "friday", "role": "assistant"})]
}

fn end(reason: &str) -> Vec<Value> {
    vec![json!({"type": "REPLY_END", "finished_reason": reason})]
}

#[test]
fn a_plain_answer_is_what_the_api_sends() {
    let mut events = [begin(), model_call(text("t", "Hi\n\"you\"")), end("completed")].concat();
    events.insert(2, json!({"type": "TEXT_BLOCK_DELTA", "block_id": "unknown", "delta": "x"}));
    let usage = |input: u8, output: u8| {
        json!({"input_tokens": input, "output_tokens": output,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0})
    };
    let expected = [
        json!({"type": "message_start", "message": {
            "id": "r", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage(0, 0)}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "Hi\n\"you\""}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": usage(10, 3)}),
        json!({"type": "message_stop"}),
    ];
    let frames = frames_with(&EncoderOptions::default(), &events);
    assert_eq!(frames.iter().map(|(_, frame)| frame.clone()).collect::<Vec<_>>(), expected);
}

#[test]
fn the_model_that_the_client_asked_for_is_named_at_once() {
    let encoding =
        EncoderOptions { model: Some("friday-1".to_owned()), ..EncoderOptions::default() };
    let frames = frames_with(&encoding, &begin());
    assert_eq!(frames[0].1["message"]["model"], "friday-1");
}

#[test]
fn the_message_has_the_name_that_the_server_gives_it() {
    let encoding = EncoderOptions { id: Some("msg_1".to_owned()), ..EncoderOptions::default() };
    let frames = frames_with(&encoding, &[begin(), text("b", "Hi"), end("completed")].concat());
    assert_eq!(frames[0].1["message"]["id"], "msg_1");
}

#[test]
fn a_turn_that_waited_continues_as_another_message() {
    let mut encoder =
        Wire::named("anthropic").unwrap().encoder(&EncoderOptions::default()).unwrap();
    let mut frames = Frames::default();
    let mut play = |events: Vec<Value>| {
        frames.clear();
        for mut event in events {
            event["reply_id"] = "r".into();
            encoder.encode(&Event::from_json(&event.to_string()).unwrap(), &mut frames);
        }
        encoder.end(&mut frames);
        let read = |(_, text): (_, &str)| short(&serde_json::from_str(text).unwrap());
        frames.iter().map(read).collect::<Vec<_>>()
    };
    let waits = play([begin(), model_call([text("a", "One."), call("c", "{}")].concat())].concat());
    assert_eq!(waits.last().unwrap(), "message_stop");
    let result = json!({"type": "EXTERNAL_EXECUTION_RESULT", "execution_results":
        [{"type": "tool_result", "id": "c", "name": "f", "output": "ok", "state": "success"}]});
    let goes_on = play([vec![result], model_call(text("b", "Two.")), end("completed")].concat());
    assert_eq!(goes_on[..4], ["start r", "<text", "Two.", ">"]);
    assert_eq!(goes_on.last().unwrap(), "message_stop");
}

#[test]
fn calls_that_the_agent_executed_are_left_out_and_tokens_add_up() {
    let events = [
        begin(),
        model_call([text("t1", "Let me look."), call("a", "{}")].concat()),
        result("a"),
        model_call(text("t2", "Sunny.")),
        end("completed"),
    ]
    .concat();
    assert_eq!(
        frames(&events),
        [
            "start r",
            "<text",
            "Let me look.",
            ">",
            "<text",
            "Sunny.",
            ">",
            "end_turn 20/6",
            "message_stop"
        ]
    );
}

#[test]
fn calls_without_a_result_are_the_clients_in_their_order() {
    let external = json!({"type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": [
        {"type": "tool_call", "id": "b", "name": "tool", "input": ""}]});
    let events = [
        begin(),
        model_call(
            [call("a", "{\"x\":1}"), call("s", "{}"), call("b", "{}"), text("t", "Both.")].concat(),
        ),
        vec![external],
        result("s"),
    ]
    .concat();
    // The reply waits for the client, and so it has no end of its own.
    assert_eq!(
        frames(&events),
        [
            "start r",
            "<tool_use tool",
            "{\"x\":1}",
            ">",
            "<tool_use tool",
            "{}",
            ">",
            "<text",
            "Both.",
            ">",
            "tool_use 10/3",
            "message_stop"
        ]
    );
}

#[test]
fn an_external_result_in_the_same_turn_serves_the_call() {
    let events = [
        begin(),
        model_call(call("a", "{}")),
        vec![json!({"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [
            {"type": "tool_result", "id": "a", "output": "1", "state": "success"}]})],
        end("completed"),
    ]
    .concat();
    assert_eq!(frames(&events), ["start r", "end_turn 10/3", "message_stop"]);
}

#[test]
fn a_discarded_call_is_not_written() {
    let events = [
        begin(),
        model_call(call("a", "{}")),
        vec![json!({"type": "MODEL_CALL_END", "discard": ["a"]})],
        end("completed"),
    ]
    .concat();
    assert_eq!(frames(&events), ["start r", "end_turn 10/3", "message_stop"]);
}

#[test]
fn an_input_that_the_user_edited_is_written() {
    let call_of =
        |input: &str| json!({"type": "tool_call", "id": "a", "name": "tool", "input": input});
    let answer = |input: &str| {
        json!({"type": "USER_CONFIRM_RESULT", "confirm_results": [
        {"confirmed": true, "tool_call": call_of(input)}]})
    };
    let events = [
        begin(),
        model_call(call("a", "{}")),
        vec![
            answer("{\"nobody\":\"asked\"}"),
            json!({"type": "REQUIRE_USER_CONFIRM", "tool_calls": [call_of("")]}),
            answer("{\"edited\":1}"),
            answer("{\"late\":1}"),
        ],
    ]
    .concat();
    assert_eq!(
        frames(&events),
        ["start r", "<tool_use tool", "{\"edited\":1}", ">", "tool_use 10/3", "message_stop"]
    );
}

#[test]
fn thinking_has_its_signature_and_redacted_thinking_is_a_block_of_its_own() {
    let thinking = |id: &str, text: &str, extra: Value| {
        vec![
            json!({"type": "THINKING_BLOCK_START", "block_id": id}),
            json!({"type": "THINKING_BLOCK_DELTA", "block_id": id, "delta": text}),
            json!({"type": "THINKING_BLOCK_END", "block_id": id, "extra": extra}),
        ]
    };
    let events = [
        thinking("a", "Hm.", json!({"signature": "s1"})),
        thinking("b", "", json!({"signature": "s2"})),
        thinking("c", "", json!({"redacted_thinking_data": "AAEC"})),
        thinking("d", "unsigned", json!({})),
    ]
    .concat();
    let frames = frames(&events);
    assert_eq!(
        frames,
        [
            "start r",
            "<thinking",
            "Hm.",
            "s1",
            ">",
            "<thinking",
            "s2",
            ">",
            "<redacted_thinking",
            ">",
            "<thinking",
            "unsigned",
            ">",
            "- 0/0"
        ]
    );
}

#[test]
fn blocks_that_grow_at_the_same_time_are_written_one_after_the_other() {
    let mut events = begin();
    for (kind, block, delta) in [
        ("START", "a", ""),
        ("DELTA", "a", "a1 "),
        ("START", "b", ""),
        ("DELTA", "b", "b1 "),
        ("DELTA", "a", "a2"),
        ("END", "b", ""),
        ("START", "c", ""),
        ("END", "a", ""),
        ("DELTA", "c", "c1"),
    ] {
        events
            .push(json!({"type": format!("TEXT_BLOCK_{kind}"), "block_id": block, "delta": delta}));
    }
    events.extend(end("completed"));
    assert_eq!(
        frames(&events),
        [
            "start r",
            "<text",
            "a1 ",
            "a2",
            ">",
            "<text",
            "b1 ",
            ">",
            "<text",
            "c1",
            ">",
            "end_turn 0/0",
            "message_stop"
        ]
    );
}

#[test]
fn every_finish_reason_has_a_stop_reason() {
    for (ours, theirs) in [
        ("completed", "end_turn"),
        ("interrupted", "end_turn"),
        ("exceed_max_iters", "pause_turn"),
        ("length", "max_tokens"),
        ("refusal", "refusal"),
        ("content_filter", "refusal"),
        ("tool_calls", "end_turn"),
        ("of a later version", "end_turn"),
    ] {
        let events = [begin(), end(ours)].concat();
        assert_eq!(
            frames(&events),
            ["start r", &format!("{theirs} 0/0"), "message_stop"],
            "{ours}"
        );
    }
    // A reply that is done says why its model stopped.
    let cut = json!({"type": "MODEL_CALL_END", "finished_reason": "length"});
    let events = [begin(), vec![cut], end("completed")].concat();
    assert_eq!(frames(&events), ["start r", "max_tokens 0/0", "message_stop"]);
}

#[test]
fn an_error_ends_the_stream_and_keeps_the_tokens() {
    let events = [
        begin(),
        model_call(text("t", "par")),
        vec![json!({"type": "REPLY_END", "finished_reason": "error",
            "error": {"type": "rate_limit", "message": "slow down"}})],
    ]
    .concat();
    assert_eq!(
        frames(&events),
        ["start r", "<text", "par", ">", "- 10/3", "rate_limit_error: slow down"]
    );
}

#[test]
fn a_turn_that_was_cut_off_has_no_message_stop() {
    let events = [begin(), text("t", "par")[..2].to_vec()].concat();
    assert_eq!(frames(&events), ["start r", "<text", "par", ">", "- 0/0"]);
}

#[test]
fn data_is_an_image_or_a_document_whole() {
    let data = |id: &str, media: &str, pieces: &[&str]| {
        let mut events =
            vec![json!({"type": "DATA_BLOCK_START", "block_id": id, "media_type": media})];
        for piece in pieces {
            events.push(json!({"type": "DATA_BLOCK_DELTA", "block_id": id, "media_type": media, "data": piece}));
        }
        events.push(json!({"type": "DATA_BLOCK_END", "block_id": id}));
        events
    };
    let events = [
        data("a", "image/png", &["A", "A==", "AQI="]),
        data("b", "audio/mpeg", &["AAEC"]),
        end("completed"),
    ]
    .concat();
    let frames = frames_with(&EncoderOptions::default(), &events);
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAEC"});
    assert_eq!(frames[1].1["content_block"], json!({"type": "image", "source": source}));
    assert_eq!(frames.len(), 5);
}

#[test]
fn events_of_other_replies_are_ignored() {
    let mut sub = text("s", "sub-agent");
    for event in &mut sub {
        event["reply_id"] = "other".into();
        event["parent_tool_call_id"] = "a".into();
    }
    let mut stray = text("x", "another reply");
    for event in &mut stray {
        event["reply_id"] = "stray".into();
    }
    let message =
        json!({"type": "MESSAGE", "message": {"role": "user", "name": "", "content": "hi"}});
    let custom = json!({"type": "CUSTOM", "name": "anthropic", "value": {"type": "message_stop"}});
    let events = [
        vec![message.clone()],
        begin(),
        sub,
        stray,
        begin(),
        text("t", "Hi"),
        vec![json!({"type": "HINT_BLOCK", "block_id": "h", "hint": "psst"}), custom, message],
        end("completed"),
        text("late", "late"),
        end("error"),
    ]
    .concat();
    assert_eq!(frames(&events), ["start r", "<text", "Hi", ">", "end_turn 0/0", "message_stop"]);
}

#[test]
fn each_turn_is_a_message_also_one_that_only_ends() {
    let of = |reply: &str, mut events: Vec<Value>| {
        for event in &mut events {
            event["reply_id"] = reply.into();
        }
        events
    };
    let events = [
        of("r1", [begin(), text("t", "cut off")].concat()),
        of("r2", [begin(), text("t", "two"), end("completed")].concat()),
        of("r3", end("completed")),
        of("r4", text("t", "no start")),
    ]
    .concat();
    assert_eq!(
        frames(&events),
        [
            "start r1",
            "<text",
            "cut off",
            ">",
            "- 0/0", //
            "start r2",
            "<text",
            "two",
            ">",
            "end_turn 0/0",
            "message_stop", //
            "start r3",
            "end_turn 0/0",
            "message_stop", //
            "start r4",
            "<text",
            "no start",
            ">",
            "- 0/0"
        ]
    );
}

#[test]
fn a_frame_of_a_later_version_is_written_as_it_came() {
    let custom = |value: Value| json!({"type": "CUSTOM", "name": "anthropic", "value": value});
    let later = json!({"type": "of_a_later_version", "n": 1.10});
    let events = [custom(later.clone()), custom(json!("no frame")), custom(json!({"n": 1}))];
    assert_eq!(frames_with(&EncoderOptions::default(), &events), [(String::new(), later)]);
}

fn body(events: &[Event<'_>]) -> String {
    let mut encoder =
        Wire::named("anthropic").unwrap().encoder(&EncoderOptions::default()).unwrap();
    let (mut frames, mut body) = (Frames::default(), String::new());
    for event in events {
        encoder.encode(event, &mut frames);
    }
    encoder.end(&mut frames);
    sse::write(&frames, None, &mut body);
    body
}

fn folded(body: &str) -> Msg {
    let decoder = Wire::named("anthropic").unwrap().decoder(&DecoderOptions::default()).unwrap();
    let mut folder = Folder::default();
    for event in decoder.decode_all(body.as_bytes()).unwrap() {
        folder.push(&event).unwrap();
    }
    folder.into_messages().next().unwrap()
}

#[test]
fn merged_deltas_end_in_the_same_message() {
    check_property("merged_deltas_end_in_the_same_message", 300, |rng| {
        let events = stream::with_seqs(turnwire_testkit::random_reply(rng, "r").events);
        let merged: Vec<Event<'_>> = coalesce(events.clone()).collect();
        assert_eq!(folded(&body(&merged)), folded(&body(&events)));
    });
}

#[test]
fn an_encoder_survives_anything() {
    check_property("an_encoder_survives_anything", 300, |rng| {
        let mut events: Vec<Event<'_>> = (0..40).map(|_| values::event(rng)).collect();
        for event in &mut events {
            if rng.bool() {
                event.reply_id = "r".into();
                event.agent = None;
            }
        }
        let decoder =
            Wire::named("anthropic").unwrap().decoder(&DecoderOptions::default()).unwrap();
        decoder.decode_all(body(&events).as_bytes()).unwrap();
    });
}

/// Everything in Anthropic's own messages survives a round trip.
#[test]
fn anthropics_messages_survive_a_round_trip() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let messages = json!([
        {"role": "system", "content": [text("Be brief.")]},
        {"role": "user", "content": [text("Look:"),
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAEC"}, "title": "a.pdf"},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}},
            {"type": "search_result", "source": "x", "content": [text("y")]}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "AAEC"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1.10}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "text", "text": "So.", "citations": [{"type": "char_location"}]},
            {"type": "tool_use", "id": "a", "name": "t", "input": {"n": 12_345_678_901_234_567_u64}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "b", "name": "t", "input": {"raw_input": "{\"cut"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": [text("no"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}},
                {"type": "tool_reference", "tool_name": "t"}], "is_error": true}]},
        {"role": "assistant", "content": [text("Done.")]},
        {"role": "user", "content": [text("Thanks.")]},
    ]);
    let wire = Wire::named("anthropic").unwrap();
    let ours = wire.decode_messages(&messages.to_string()).unwrap();
    let roles: Vec<&str> = ours.iter().map(|msg| msg.role().as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    let again: Vec<Value> =
        wire.encode_messages(&ours).unwrap().iter().map(|json| json.parse_as().unwrap()).collect();
    assert_eq!(Value::from(again), messages);
}

#[test]
fn an_answer_has_an_id_its_tokens_and_its_end() {
    let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Hi"}], "stop_reason": "max_tokens",
        "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": null}});
    let wire = Wire::named("anthropic").unwrap();
    let messages = wire.decode_messages(&answer.to_string()).unwrap();
    let msg: Value = serde_json::from_str(&messages[0].to_json()).unwrap();
    assert_eq!((&msg["id"], &msg["finished_reason"]), (&json!("msg_1"), &json!("length")));
    assert_eq!(
        msg["usage"],
        json!({"input_tokens": 3, "output_tokens": 4, "cache_input_tokens": 0, "cache_creation_input_tokens": 0})
    );
}

#[test]
fn a_string_is_text_and_an_invalid_message_is_named() {
    let wire = Wire::named("anthropic").unwrap();
    let messages = wire.decode_messages(r#"[{"role":"user","content":"Hi"}]"#).unwrap();
    assert_eq!(messages, [Msg::user("", "Hi")]);
    let error = wire.decode_messages(r#"[{"role":"user","content":"Hi"},{"role":"robot"}]"#);
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "NotAMessage: [1]: unknown role `robot`: expected user, assistant or system");
}
