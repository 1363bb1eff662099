//! Decoding frames.

use crate::harness::{call, end, events, frames, full_turn, model, result, start, text, thinking};
use serde_json::json;
use turnwire_core::{
    ContentBlock, ErrorKind, Event, EventKind, FinishedReason, Folder, Msg, TextBlock, ToolCall,
    ToolResult,
};
use turnwire_wires::{DecoderOptions, Wire};

fn decode(frames: &[impl AsRef<str>]) -> Vec<Event<'static>> {
    let lines: Vec<&str> = frames.iter().map(AsRef::as_ref).collect();
    let decoder = Wire::named("blocks").unwrap().decoder(&DecoderOptions::default()).unwrap();
    decoder.decode_all(lines.join("\n").as_bytes()).unwrap()
}

fn fold(events: &[Event<'_>]) -> Vec<Msg> {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
    }
    folder.into_messages().collect()
}

#[test]
fn the_example_of_the_protocol_document_is_one_reply() {
    // As in the protocol document: most frames without `message_id`.
    let frames = [
        r#"{"type":"connected"}"#,
        r#"{"type":"subscribed","session_id":"abc-123","status":"running"}"#,
        r#"{"type":"message_start","session_id":"abc-123","timestamp":1710000000.0,"display_mode":"agent","message_id":"msg-001"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Look."}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_01","name":"search_stock","tool_use_id":"toolu_01","tool_content_message":"Search","input":{"symbol":"VNM"}}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_result","tool_use_id":"toolu_01","name":"search_stock","status":"success","content":"82,000"}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"At 82,000."}}"#,
        r#"{"type":"content_block_stop","index":3,"is_final":true}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop","duration_ms":2840,"message_id":"msg-001"}"#,
        r#"{"type":"pong"}"#,
    ];
    let messages = fold(&decode(&frames));
    let [msg] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(msg.id(), "msg-001");
    assert_eq!(msg.created_at(), "2024-03-09T16:00:00.000Z");
    assert_eq!(msg.finished_at(), Some("2024-03-09T16:00:02.840Z"));
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
    let call = msg.first::<ToolCall>().unwrap();
    assert_eq!((call.name.as_str(), call.input.as_str()), ("search_stock", r#"{"symbol":"VNM"}"#));
    assert_eq!(call.rest.get::<String>("title").unwrap().as_deref(), Some("Search"));
    assert_eq!(msg.first::<ToolResult>().unwrap().output.text(""), "82,000");
    assert_eq!(msg.text("").as_deref(), Some("At 82,000."));
}

#[test]
fn a_decoded_turn_is_written_again_as_it_was() {
    let written = frames(&full_turn());
    let again = frames(&decode(&written));
    assert_eq!(again, written);
}

#[test]
fn a_full_turn_folds_to_the_same_content() {
    let all = fold(&decode(&frames(&full_turn())));
    let (own, sub) = (&all[0], &all[1]);
    assert_eq!(own.id(), "m1");
    assert_eq!(own.error().unwrap().message, "slow down");
    assert_eq!(own.error().unwrap().r#type.as_str(), "rate_limit");
    assert_eq!(own.finished_reason(), Some(&FinishedReason::Error));
    assert_eq!(own.first::<ToolCall>().unwrap().input, r#"{"quantity":10}"#);
    let words: Vec<&str> = own.blocks::<TextBlock>().map(|block| block.text.as_str()).collect();
    assert_eq!(words, ["One moment.", "Done."]);
    let others = own.content().iter().filter(|block| matches!(block, ContentBlock::Other(_)));
    let others: Vec<String> = others.map(|block| serde_json::to_string(block).unwrap()).collect();
    assert_eq!(
        others,
        [r#"{"type":"x_map","id":"x","at":[1,2]}"#, r#"{"type":"tool_use","id":"y","at":[1,2]}"#]
    );
    assert_eq!(
        (sub.id(), sub.name(), sub.text("").as_deref()),
        ("m1/t", "broker", Some("Selling."))
    );
}

#[test]
fn a_stream_truncated_anywhere_is_never_completed() {
    let events = events(
        [
            start(),
            thinking("b1", &["hm"]),
            call("t", "one", &["{}"]),
            result("t", "one", &["x"], "success"),
            text("b2", &["Done."]),
            end("completed"),
        ]
        .concat(),
    );
    let all = frames(&events);
    for cut in 1..all.len() {
        let messages = fold(&decode(&all[..cut]));
        assert_eq!(messages[0].finished_reason(), Some(&FinishedReason::Truncated), "after {cut}");
    }
    assert_eq!(fold(&decode(&all))[0].finished_reason(), Some(&FinishedReason::Completed));
}

#[test]
fn a_truncated_failed_turn_has_still_failed() {
    let all = frames(&full_turn());
    for cut in 1..all.len() {
        for msg in fold(&decode(&all[..cut])) {
            let reason = msg.finished_reason().unwrap();
            assert!(
                matches!(reason, FinishedReason::Truncated | FinishedReason::Error),
                "{reason}"
            );
        }
    }
}

#[test]
fn a_stopped_turn_is_interrupted_and_has_no_terminal_block() {
    let stopped = frames(&events([start(), text("b", &["I"]), end("interrupted")].concat()));
    let msg = fold(&decode(&stopped)).remove(0);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(msg.content().len(), 1);
}

#[test]
fn an_approval_request_without_ids_goes_by_tool_name() {
    let frames = [
        r#"{"type":"message_start","session_id":"s","message_id":"m"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"trade","input":{"n":1}}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t2","name":"trade","input":{"n":2}}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"approval_request","approval_key":"s_1"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"action_requests":[{"name":"trade","args":{"n":1}},{"name":"trade","args":{"n":2}}],"timeout_seconds":60}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"approval_result","decisions":[{"type":"approve"},{"type":"reject","message":"too much"}]}}"#,
    ];
    let events = decode(&frames);
    let msg = fold(&events).remove(0);
    let states: Vec<&str> = msg.blocks::<ToolCall>().map(|call| call.state.as_str()).collect();
    assert_eq!(states, ["allowed", "finished"]);
    let request =
        events.iter().find(|event| matches!(event.kind, EventKind::RequireUserConfirm(_)));
    let metadata = serde_json::to_value(&request.unwrap().metadata).unwrap();
    assert_eq!(metadata, json!({"approval_key": "s_1", "timeout_seconds": 60}));
}

#[test]
fn unknown_frames_and_invalid_fields_survive() {
    for odd in [
        r#"{"type":"heartbeat","at":1}"#,
        r#"{"type":"error","code":"BUSY","message":"later"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":5}}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"nobody's"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}"#,
        r#"{"type":"content_block_start","index":"0"}"#,
    ] {
        let written = [
            r#"{"type":"message_start","session_id":"s","timestamp":0.0,"display_mode":"agent","is_new_session_from_share":false,"message_id":"m"}"#,
            odd,
        ];
        let events = decode(&written);
        assert_eq!(frames(&events)[..2], written, "{events:#?}");
        assert_eq!(fold(&events).len(), 1);
    }
}

#[test]
fn an_invalid_frame_is_an_error_and_decoding_continues() {
    let mut decoder = Wire::named("blocks").unwrap().decoder(&DecoderOptions::default()).unwrap();
    let mut seen = Vec::new();
    let body = "{\"type\":\"message_start\",\"message_id\":\"m\"}\n{\"type\":\n[1]\n{}\n{\"type\":\"message_stop\",\"message_id\":\"m\"}\n";
    let mut each = |decoded: turnwire_wires::Decoded<'_>| {
        seen.push(match decoded.event {
            Ok(event) => event.kind.type_name().to_owned(),
            Err(error) => error.kind().name().to_owned(),
        });
    };
    decoder.feed(body.as_bytes(), &mut each);
    decoder.end(&mut each);
    let (json, event) = (ErrorKind::NotJson.name(), ErrorKind::NotAnEvent.name());
    assert_eq!(seen, ["REPLY_START", json, event, event, "REPLY_END"]);
}

#[test]
fn two_interleaved_turns_are_separated() {
    let mut one = frames(&events([start(), text("b", &["One."]), end("completed")].concat()));
    let two: Vec<String> =
        one.iter().map(|frame| frame.replace("\"m1\"", "\"m2\"").replace("One.", "Two.")).collect();
    let mut mixed = Vec::new();
    for (a, b) in one.drain(..).zip(two) {
        mixed.extend([a, b]);
    }
    let words: Vec<String> = fold(&decode(&mixed)).iter().filter_map(|msg| msg.text("")).collect();
    assert_eq!(words, ["One.", "Two."]);
}

#[test]
fn custom_events_and_messages_survive() {
    let message = json!({"role": "user", "id": "u", "name": "ann", "content": [{"type": "text", "text": "hi", "id": "b"}]});
    let events = events([
        json!({"type": "MESSAGE", "message": message}),
        json!({"type": "CUSTOM", "name": "mood", "value": {"is": "good"}}),
        json!({"type": "SUPERSEDE", "message_ids": ["x"]}),
        json!({"type": "X_LATER", "x": 1}),
    ]);
    let again = decode(&frames(&events));
    let types: Vec<&str> = again.iter().map(|event| event.kind.type_name()).collect();
    assert_eq!(types, ["MESSAGE", "CUSTOM", "SUPERSEDE", "X_LATER"]);
    let EventKind::Message(first) = &again[0].kind else { panic!() };
    assert_eq!((first.message.name(), first.message.text("").as_deref()), ("ann", Some("hi")));
    assert_eq!(again[1].kind, events[1].kind);
    assert_eq!(again[2..], events[2..]);
}

#[test]
fn an_empty_text_keeps_its_position() {
    let events =
        events([start(), text("b1", &[]), thinking("b2", &["hm"]), end("completed")].concat());
    let msg = fold(&decode(&frames(&events))).remove(0);
    let ids: Vec<&str> = msg.content().iter().map(ContentBlock::id).collect();
    assert_eq!(ids, ["b1", "b2"]);
}

#[test]
fn a_rewritten_turn_is_read_once() {
    let mut values = start();
    values.extend(model());
    values.extend(thinking("b1", &["hm"]));
    values.push(json!({"type": "MODEL_CALL_END", "discard": ["b1"]}));
    values.extend(text("b2", &["Hi"]));
    values.extend(end("completed"));
    let written = frames(&events(values));
    assert!(written.iter().any(|frame| frame.contains(r#""again":true"#)));
    let read = fold(&decode(&written));
    assert_eq!((read.len(), read[0].content().len()), (1, 1));
    assert_eq!(read[0].text("").as_deref(), Some("Hi"));
}
