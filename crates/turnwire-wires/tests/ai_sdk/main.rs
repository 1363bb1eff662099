//! The `ai-sdk` wire against a fake client that is as strict as the real one.
//! `tests/peers/node/ai-sdk` tests it with the real one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod fake_client;
mod messages;
mod requests;

use fake_client::Client;
use serde_json::{Value, json};
use turnwire_core::event::{
    ReplyStart, SubAgent, ToolCallStart, ToolResultEnd, ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, Msg, Part, Payload, ToolResult, ToolResultState,
    coalesce,
};
use turnwire_testkit::{check_property, one_in, pick, random_reply, stream, values};
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire};

fn encoder() -> Box<dyn Encode> {
    Wire::named("ai-sdk").unwrap().encoder(&EncoderOptions::default()).unwrap()
}

fn texts(frames: &Frames) -> Vec<String> {
    frames.iter().map(|(_, text)| text.to_owned()).collect()
}

fn chunks(frames: &Frames) -> Vec<Value> {
    frames.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect()
}

/// One response with these events, and its end.
fn response(encoder: &mut dyn Encode, events: &[Event<'_>]) -> Frames {
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    encoder.end(&mut frames);
    frames
}

fn client(events: &[Event<'_>]) -> Client {
    let mut client = Client::default();
    client.response(&chunks(&response(encoder().as_mut(), events)));
    client
}

fn events(lines: &[&str]) -> Vec<Event<'static>> {
    let read = |line: &&str| {
        let mut fields: Fields = serde_json::from_str(line).unwrap();
        fields.insert("reply_id", "r");
        let json = serde_json::to_string(&fields).unwrap();
        Event::from_json(&json).unwrap().into_owned()
    };
    lines.iter().map(read).collect()
}

fn assert_chunks(lines: &[&str], expected: &[&str]) {
    assert_eq!(texts(&response(encoder().as_mut(), &events(lines))), expected);
}

const CALL: [&str; 3] = [
    r#"{"type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"f"}"#,
    r#"{"type":"TOOL_CALL_DELTA","tool_call_id":"c","delta":"{\"a\": 1}"}"#,
    r#"{"type":"TOOL_CALL_END","tool_call_id":"c"}"#,
];
const ASK: &str = r#"{"type":"REQUIRE_USER_CONFIRM","tool_calls":[{"id":"c","name":"f"}]}"#;
const END: &str = r#"{"type":"REPLY_END","finished_reason":"completed"}"#;
const BEGUN: [&str; 5] = [
    r#"{"type":"start","messageId":"r"}"#,
    r#"{"type":"start-step"}"#,
    r#"{"type":"tool-input-start","toolCallId":"c","toolName":"f","providerExecuted":true,"dynamic":true}"#,
    r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\": 1}"}"#,
    r#"{"type":"tool-input-available","toolCallId":"c","toolName":"f","input":{"a":1},"providerExecuted":true,"dynamic":true}"#,
];
const FINISHED: [&str; 2] = [
    r#"{"type":"finish-step"}"#,
    r#"{"type":"finish","finishReason":"stop","messageMetadata":{"turnwire":{"finished_reason":"completed"}}}"#,
];

#[test]
fn text_and_thinking_are_parts_of_a_step() {
    assert_chunks(
        &[
            r#"{"type":"REPLY_START","name":"friday","created_at":"1"}"#,
            r#"{"type":"MODEL_CALL_START","model_name":"m"}"#,
            r#"{"type":"THINKING_BLOCK_START","block_id":"t"}"#,
            r#"{"type":"THINKING_BLOCK_DELTA","block_id":"t","delta":"hm"}"#,
            r#"{"type":"THINKING_BLOCK_END","block_id":"t","extra":{"signature":"s"}}"#,
            r#"{"type":"TEXT_BLOCK_START","block_id":"b"}"#,
            r#"{"type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"Hi \"you\"\n"}"#,
            r#"{"type":"TEXT_BLOCK_END","block_id":"b"}"#,
            r#"{"type":"MODEL_CALL_END","input_tokens":3,"output_tokens":2}"#,
            r#"{"type":"REPLY_END","finished_reason":"completed","structured_output":{"x":1},"message_metadata":{"k":"v"},"created_at":"2"}"#,
        ],
        &[
            r#"{"type":"start","messageId":"r","messageMetadata":{"turnwire":{"created_at":"1","name":"friday"}}}"#,
            r#"{"type":"start-step"}"#,
            r#"{"type":"reasoning-start","id":"t"}"#,
            r#"{"type":"reasoning-delta","id":"t","delta":"hm"}"#,
            r#"{"type":"reasoning-end","id":"t","providerMetadata":{"turnwire":{"signature":"s"}}}"#,
            r#"{"type":"text-start","id":"b"}"#,
            r#"{"type":"text-delta","id":"b","delta":"Hi \"you\"\n"}"#,
            r#"{"type":"text-end","id":"b"}"#,
            r#"{"type":"finish-step"}"#,
            r#"{"type":"finish","finishReason":"stop","messageMetadata":{"k":"v","turnwire":{"usage":{"input_tokens":3,"output_tokens":2,"cache_input_tokens":0,"cache_creation_input_tokens":0},"finished_at":"2","finished_reason":"completed","structured_output":{"x":1}}}}"#,
        ],
    );
}

#[test]
fn a_result_is_previewed_and_then_complete() {
    let result = [
        r#"{"type":"TOOL_RESULT_START","tool_call_id":"c","tool_call_name":"f"}"#,
        r#"{"type":"TOOL_RESULT_TEXT_DELTA","tool_call_id":"c","delta":"su"}"#,
        r#"{"type":"TOOL_RESULT_TEXT_DELTA","tool_call_id":"c","delta":"nny"}"#,
        r#"{"type":"TOOL_RESULT_END","tool_call_id":"c","state":"success","metadata":{"took":3}}"#,
        END,
    ];
    let shown = [
        r#"{"type":"tool-output-available","toolCallId":"c","output":"su","dynamic":true,"preliminary":true}"#,
        r#"{"type":"tool-output-available","toolCallId":"c","output":"sunny","dynamic":true,"providerMetadata":{"turnwire":{"metadata":{"took":3}}}}"#,
    ];
    assert_chunks(&[&CALL[..], &result].concat(), &[&BEGUN[..], &shown, &FINISHED].concat());
}

#[test]
fn a_reply_with_an_approval_ends_its_response_and_continues_in_the_next() {
    let mut encoder = encoder();
    let first = response(encoder.as_mut(), &events(&[&CALL[..], &[ASK]].concat()));
    let expected = [
        r#"{"type":"tool-approval-request","approvalId":"c","toolCallId":"c"}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"finish","finishReason":"tool-calls"}"#,
    ];
    assert_eq!(texts(&first), [&BEGUN[..], &expected].concat());
    let answer = r#"{"type":"USER_CONFIRM_RESULT","confirm_results":[{"confirmed":true,"tool_call":{"id":"c","name":"f","input":"{\"a\":2}"}}]}"#;
    let rest = [
        answer,
        r#"{"type":"TOOL_RESULT_START","tool_call_id":"c","tool_call_name":"f"}"#,
        r#"{"type":"TOOL_RESULT_END","tool_call_id":"c","state":"success"}"#,
        r#"{"type":"MODEL_CALL_START"}"#,
        r#"{"type":"TEXT_BLOCK_START","block_id":"b"}"#,
        r#"{"type":"TEXT_BLOCK_END","block_id":"b"}"#,
        END,
    ];
    let second = response(encoder.as_mut(), &events(&rest));
    let expected = [
        r#"{"type":"start","messageId":"r"}"#,
        r#"{"type":"tool-input-available","toolCallId":"c","toolName":"f","input":{"a":2},"providerExecuted":true,"dynamic":true}"#,
        r#"{"type":"tool-approval-response","approvalId":"c","approved":true}"#,
        r#"{"type":"tool-output-available","toolCallId":"c","output":"","dynamic":true}"#,
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"b"}"#,
        r#"{"type":"text-end","id":"b"}"#,
    ];
    assert_eq!(texts(&second), [&expected[..], &FINISHED].concat());
}

#[test]
fn a_denial_without_a_request_is_requested_and_answered_automatically() {
    let denied = [
        r#"{"type":"TOOL_RESULT_START","tool_call_id":"c","tool_call_name":"f"}"#,
        r#"{"type":"TOOL_RESULT_TEXT_DELTA","tool_call_id":"c","delta":"a rule"}"#,
        r#"{"type":"TOOL_RESULT_END","tool_call_id":"c","state":"denied"}"#,
        END,
    ];
    let mut client = Client::default();
    let lines = [&CALL[..], &denied].concat();
    client.response(&chunks(&response(encoder().as_mut(), &events(&lines))));
    let part = json!({"type": "dynamic-tool", "toolCallId": "c", "toolName": "f", "input": {"a": 1},
        "state": "output-denied", "providerExecuted": true,
        "approval": {"id": "c", "approved": false, "reason": "a rule"}});
    assert_eq!(client.parts[1], part);
}

/// There may be no event for the answer, for example when a rule changed; the client requires one.
#[test]
fn an_output_of_a_pending_call_implies_its_approval() {
    let result = [
        ASK,
        r#"{"type":"TOOL_RESULT_START","tool_call_id":"c","tool_call_name":"f"}"#,
        r#"{"type":"TOOL_RESULT_TEXT_DELTA","tool_call_id":"c","delta":"done"}"#,
        r#"{"type":"TOOL_RESULT_END","tool_call_id":"c","state":"success"}"#,
        END,
    ];
    let shown = [
        r#"{"type":"tool-approval-request","approvalId":"c","toolCallId":"c"}"#,
        r#"{"type":"tool-approval-response","approvalId":"c","approved":true}"#,
        r#"{"type":"tool-output-available","toolCallId":"c","output":"done","dynamic":true}"#,
    ];
    assert_chunks(&[&CALL[..], &result].concat(), &[&BEGUN[..], &shown, &FINISHED].concat());
}

/// Otherwise the client would not send the answer automatically.
#[test]
fn a_call_beside_a_pending_one_is_shown_as_approved() {
    let other = [
        r#"{"type":"TOOL_CALL_START","tool_call_id":"d","tool_call_name":"g"}"#,
        r#"{"type":"TOOL_CALL_END","tool_call_id":"d"}"#,
        ASK,
    ];
    let client = client(&events(&[&CALL[..], &other].concat()));
    let states: Vec<&Value> = client.parts.iter().map(|part| &part["state"]).collect();
    assert_eq!(states[1..], ["approval-requested", "approval-responded"]);
}

#[test]
fn replaced_text_is_rewritten_and_discarded_blocks_are_gone() {
    let lines = [
        r#"{"type":"MODEL_CALL_START"}"#,
        r#"{"type":"TEXT_BLOCK_START","block_id":"a"}"#,
        r#"{"type":"TEXT_BLOCK_DELTA","block_id":"a","delta":"I was saying"}"#,
        r#"{"type":"TEXT_BLOCK_END","block_id":"a","text":"I was"}"#,
        r#"{"type":"TEXT_BLOCK_START","block_id":"b"}"#,
        r#"{"type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"gone"}"#,
        r#"{"type":"MODEL_CALL_END","discard":["b"]}"#,
    ];
    let frames = response(encoder().as_mut(), &events(&lines));
    let again = [
        r#"{"type":"reset-step"}"#,
        r#"{"type":"text-start","id":"a"}"#,
        r#"{"type":"text-delta","id":"a","delta":"I was"}"#,
        r#"{"type":"text-end","id":"a"}"#,
        r#"{"type":"finish-step"}"#,
    ];
    assert_eq!(texts(&frames)[7..12], again);
}

/// A long text is not recorded, so memory does not grow with it.
#[test]
fn a_long_text_can_be_discarded_and_keeps_blocks_beside_it() {
    let delta = format!(
        r#"{{"type":"TEXT_BLOCK_DELTA","block_id":"long","delta":"{}"}}"#,
        "on and on ".repeat(10_000)
    );
    let long = [
        r#"{"type":"MODEL_CALL_START"}"#,
        r#"{"type":"TEXT_BLOCK_START","block_id":"a"}"#,
        r#"{"type":"TEXT_BLOCK_DELTA","block_id":"a","delta":"short"}"#,
        r#"{"type":"TEXT_BLOCK_END","block_id":"a"}"#,
        r#"{"type":"TEXT_BLOCK_START","block_id":"long"}"#,
        &delta,
        &delta,
        &delta,
    ];
    let texts_and_lengths = |end: &str| -> Vec<(String, usize)> {
        let client = client(&events(&[&long[..], &[end]].concat()));
        let texts = client.parts.iter().filter(|part| part["type"] == "text");
        let seen = texts.map(|part| part["text"].as_str().unwrap_or_default());
        seen.map(|text| (text.chars().take(5).collect(), text.len())).collect()
    };
    let (short, whole) = (("short".to_owned(), 5), ("on an".to_owned(), 300_000));
    let gone = texts_and_lengths(r#"{"type":"MODEL_CALL_END","discard":["long"]}"#);
    assert_eq!(gone, std::slice::from_ref(&short));
    let kept = texts_and_lengths(r#"{"type":"MODEL_CALL_END","discard":["a"]}"#);
    assert_eq!(kept, [short, whole]);
}

#[test]
fn an_error_comes_after_everything_the_client_must_read() {
    assert_chunks(
        &[
            r#"{"type":"REPLY_END","finished_reason":"error","error":{"type":"upstream","message":"gone"}}"#,
        ],
        &[
            r#"{"type":"start","messageId":"r"}"#,
            r#"{"type":"message-metadata","messageMetadata":{"turnwire":{"finished_reason":"error","error":{"type":"upstream","message":"gone"}}}}"#,
            r#"{"type":"error","errorText":"gone"}"#,
            r#"{"type":"finish","finishReason":"error"}"#,
        ],
    );
}

#[test]
fn an_interruption_closes_what_is_open() {
    let stop = [r#"{"type":"REPLY_END","finished_reason":"interrupted"}"#];
    let closed = [
        r#"{"type":"tool-output-error","toolCallId":"c","errorText":"It was stopped.","dynamic":true,"providerMetadata":{"turnwire":{"state":"interrupted"}}}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"abort","reason":"The reply was interrupted."}"#,
        r#"{"type":"finish","finishReason":"interrupted","messageMetadata":{"turnwire":{"finished_reason":"interrupted"}}}"#,
    ];
    assert_chunks(&[&CALL[..], &stop].concat(), &[&BEGUN[..], &closed].concat());
}

#[test]
fn input_that_is_not_json_is_reported() {
    let mut lines = CALL;
    lines[1] = r#"{"type":"TOOL_CALL_DELTA","tool_call_id":"c","delta":"{\"a"}"#;
    let frames = response(encoder().as_mut(), &events(&lines));
    assert_eq!(
        texts(&frames)[4],
        r#"{"type":"tool-input-error","toolCallId":"c","toolName":"f","input":"{\"a","providerExecuted":true,"dynamic":true,"errorText":"The input is not JSON."}"#
    );
}

#[test]
fn data_is_a_file_once_it_is_complete() {
    let lines = [
        r#"{"type":"DATA_BLOCK_START","block_id":"d","media_type":"image/png","name":"a.png"}"#,
        r#"{"type":"DATA_BLOCK_DELTA","block_id":"d","media_type":"image/png","data":"AAE"}"#,
        r#"{"type":"DATA_BLOCK_DELTA","block_id":"d","media_type":"image/png","data":"C"}"#,
        r#"{"type":"DATA_BLOCK_END","block_id":"d"}"#,
        r#"{"type":"CUSTOM","name":"n","value":7}"#,
        END,
    ];
    let file = [
        r#"{"type":"start","messageId":"r"}"#,
        r#"{"type":"start-step"}"#,
        r#"{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AAEC","providerMetadata":{"turnwire":{"id":"d","finished_at":"","name":"a.png"}}}"#,
        r#"{"type":"data-custom","data":{"name":"n","value":7},"transient":true}"#,
    ];
    assert_chunks(&lines, &[&file[..], &FINISHED].concat());
}

#[test]
fn events_outside_replies_open_no_response() {
    let lines = [r#"{"type":"CUSTOM","name":"n","value":7}"#, r#"{"type":"USER_INTERRUPT"}"#];
    assert_chunks(&lines, &[]);
    let message = Msg::user("ann", "hi");
    let event = Event::new("", turnwire_core::event::Message { message: Box::new(message) });
    assert!(response(encoder().as_mut(), &[event]).is_empty());
}

#[test]
fn several_turns_are_several_responses() {
    let mut encoder = encoder();
    let mut frames = Frames::default();
    for id in ["r1", "r2"] {
        let mut event = events(&[END]).remove(0);
        event.reply_id = id.into();
        encoder.encode(&event, &mut frames);
        // Nothing follows the end of a reply.
        encoder.encode(&Event::new(id, ReplyStart::default()), &mut frames);
    }
    let ids: Vec<Value> = chunks(&frames).iter().map(|chunk| chunk["messageId"].clone()).collect();
    assert_eq!(ids, [json!("r1"), Value::Null, json!("r2"), Value::Null]);
}

/// The texts and calls that the client must have.
fn expected_parts(message: &Msg) -> Vec<Value> {
    let parts = message.content().iter().filter_map(|block| match block {
        ContentBlock::Text(block) => Some(json!(["text", block.text])),
        ContentBlock::Thinking(block) => Some(json!(["reasoning", block.thinking])),
        ContentBlock::ToolCall(call) => {
            let text = if call.input.trim().is_empty() { "{}" } else { &call.input };
            let input = serde_json::from_str(text).unwrap_or_else(|_| json!(call.input));
            Some(json!([call.id, call.name, input, outcome(message, &call.id)]))
        }
        // Without its call, a result has a call of its own.
        ContentBlock::ToolResult(result)
            if message.tool_calls().all(|(call, _)| call.id != result.id) =>
        {
            Some(json!([result.id, result.name, {}, outcome(message, &result.id)]))
        }
        _ => None,
    });
    parts.collect()
}

/// The outcome of a call, if the message has one.
fn outcome(message: &Msg, id: &str) -> Value {
    let results = message.blocks::<ToolResult>();
    let Some(result) = results.into_iter().find(|result| result.id == id) else {
        return Value::Null;
    };
    match (&result.state, &result.output) {
        _ if result.finished_at.is_none() => Value::Null,
        (ToolResultState::Denied, _) => json!("output-denied"),
        (ToolResultState::Error | ToolResultState::Interrupted, _) => json!("output-error"),
        (_, Payload::Text(text)) => json!(text),
        (_, Payload::Parts(parts)) => match parts.as_slice() {
            [] => json!(""),
            [Part::Text(block)] => json!(block.text),
            parts => json!(parts),
        },
    }
}

fn client_parts(client: &Client, message: &Msg) -> Vec<Value> {
    let parts = client.parts.iter().filter_map(|part| match part["type"].as_str()? {
        word @ ("text" | "reasoning") => Some(json!([word, part["text"]])),
        "dynamic-tool" => {
            let id = part["toolCallId"].as_str()?;
            let shown = match outcome(message, id) {
                Value::Null => Value::Null,
                _ => part.get("output").unwrap_or(&part["state"]).clone(),
            };
            Some(json!([id, part["toolName"], part["input"], shown]))
        }
        _ => None,
    });
    parts.collect()
}

#[test]
fn a_client_has_the_texts_and_calls_of_the_message() {
    check_property("a_client_has_the_texts_and_calls_of_the_message", 1000, |rng| {
        let made = random_reply(rng, "r");
        if made.events.iter().any(|event| event.kind.is_part_of_reply()) {
            assert_eq!(
                client_parts(&client(&made.events), &made.message),
                expected_parts(&made.message)
            );
        }
    });
}

#[test]
fn ending_anywhere_leaves_a_valid_stream() {
    check_property("ending_anywhere_leaves_a_valid_stream", 60, |rng| {
        let made = random_reply(rng, "r");
        for at in 0..made.events.len() {
            let mut encoder = encoder();
            let mut client = Client::default();
            // What follows starts another response for the same message.
            client.response(&chunks(&response(encoder.as_mut(), &made.events[..at])));
            client.response(&chunks(&response(encoder.as_mut(), &made.events[at..])));
        }
    });
}

#[test]
fn a_late_client_ends_with_the_message_of_an_early_one() {
    check_property("a_late_client_ends_with_the_message_of_an_early_one", 500, |rng| {
        let events = stream::with_seqs(random_reply(rng, "r").events);
        let early = client(&events);
        let at = rng.usize(..=events.len());
        let (seen, rest) = events.split_at(at);
        let late: Vec<Event<'_>> =
            coalesce(seen.iter().cloned()).chain(rest.iter().cloned()).collect();
        assert_eq!(client(&late), early);
    });
}

/// Lost, repeated, reordered and random events: the client must still be able to read the stream.
#[test]
fn no_sequence_of_events_makes_an_invalid_stream() {
    check_property("no_sequence_of_events_makes_an_invalid_stream", 1500, |rng| {
        let mut events: Vec<Event<'static>> = Vec::new();
        for event in random_reply(rng, "r").events {
            if !one_in(rng, 6) {
                events.push(event);
            }
            if one_in(rng, 6) && !events.is_empty() {
                events.push(pick(rng, &events).clone());
            }
            if one_in(rng, 12) {
                let mut any = values::event(rng);
                any.reply_id = "r".into();
                events.push(any);
            }
            if let Some(last) = events.len().checked_sub(2).filter(|_| one_in(rng, 6)) {
                events.swap(last, last + 1);
            }
        }
        // A reset starts another response.
        events.retain(|event| !matches!(event.kind, EventKind::Reset(_)));
        for event in &mut events {
            if one_in(rng, 8) {
                event.reply_id = "sub".into();
                event.agent = Some(Box::new(SubAgent {
                    agent_path: Some("main/sub".to_owned()),
                    parent_tool_call_id: None,
                }));
            }
        }
        let mut encoder = encoder();
        let mut client = Client::default();
        let (first, second) = events.split_at(rng.usize(..=events.len()));
        client.chunks(&chunks(&response(encoder.as_mut(), first)));
        client.chunks(&chunks(&response(encoder.as_mut(), second)));
    });
}

/// The bytes for a result of this many deltas, relative to its size.
fn bytes_for(deltas: usize) -> usize {
    let id = || "c".into();
    let mut encoder = encoder();
    let mut frames = Frames::default();
    let mut bytes = 0;
    let mut send = |event: Event<'_>| {
        encoder.encode(&event, &mut frames);
        bytes += frames.iter().map(|(_, text)| text.len()).sum::<usize>();
        frames.clear();
    };
    send(Event::new("r", ToolCallStart { tool_call_id: id(), tool_call_name: "f".into() }));
    send(Event::new("r", ToolResultStart { tool_call_id: id(), tool_call_name: "f".into() }));
    for _ in 0..deltas {
        send(Event::new(
            "r",
            ToolResultTextDelta { tool_call_id: id(), delta: "0123456789".into() },
        ));
    }
    let state = ToolResultState::Success;
    send(Event::new("r", ToolResultEnd { tool_call_id: id(), state }));
    bytes
}

#[test]
fn the_bytes_of_a_long_result_are_linear() {
    for deltas in [1_000, 100_000] {
        let (bytes, size) = (bytes_for(deltas), deltas * 10);
        assert!(bytes <= 3 * size + 4_000, "{bytes} bytes for a result of {size}");
    }
}

#[test]
fn after_a_reset_the_message_comes_again_in_a_response_of_its_own() {
    let half = [
        r#"{"type":"REPLY_START"}"#,
        r#"{"type":"TEXT_BLOCK_START","block_id":"b"}"#,
        r#"{"type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"Hi"}"#,
    ];
    let lines = [&half[..], &[r#"{"type":"RESET"}"#], &half, &[END]].concat();
    let frames = response(encoder().as_mut(), &events(&lines));
    let all = chunks(&frames);
    let second = all.iter().rposition(|chunk| chunk["type"] == "start").unwrap();
    assert!(second > 0);
    for chunks in [&all[..second], &all[second..]] {
        let mut client = Client::default();
        client.response(chunks);
        assert_eq!(client.parts.last().unwrap()["text"], "Hi");
        assert_eq!(client.parts.len(), 2);
    }
}

#[test]
fn whole_texts_without_ids_are_all_shown() {
    let one = r#"{"type":"BLOCK","block":{"type":"text","text":"one"}}"#;
    let two = r#"{"type":"BLOCK","block":{"type":"text","text":"two"}}"#;
    let client = client(&events(&[one, two, END]));
    let texts: Vec<&Value> = client
        .parts
        .iter()
        .filter(|part| part["type"] == "text")
        .map(|part| &part["text"])
        .collect();
    assert_eq!(texts, ["one", "two"]);
}
