//! Law 7: unknown frames and blocks survive, and never fail a stream.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use turnwire_core::{Event, Folder};
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire, sse};

/// For each wire: a frame that starts a stream, and one with an item of an unknown type.
fn streams(wire: &str) -> (&'static str, &'static str) {
    match wire {
        "agentscope-java" => (
            r#"{"type":"AGENT_START","id":"1","createdAt":"t","replyId":"r","name":"n","role":"assistant"}"#,
            r#"{"type":"NEVER_HEARD_OF","id":"2","createdAt":"t","replyId":"r","field":"kept as it is"}"#,
        ),
        "blocks" => (
            r#"{"type":"message_start","session_id":"s","timestamp":1.0,"display_mode":"agent","message_id":"m"}"#,
            r#"{"type":"never_heard_of","field":"kept as it is","message_id":"m"}"#,
        ),
        "openai-chat" => (
            r#"{"id":"c","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#,
            r#"{"never":{"heard":"of"},"field":"kept as it is"}"#,
        ),
        "openai-responses" => (
            r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp"}}"#,
            r#"{"type":"response.never_heard_of","sequence_number":1,"field":"kept as it is"}"#,
        ),
        "anthropic" => (
            r#"{"type":"message_start","message":{"id":"m","model":"m","content":[],"usage":{}}}"#,
            r#"{"type":"never_heard_of","field":"kept as it is"}"#,
        ),
        "gemini" => (
            r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"neverHeardOf":{"field":"kept as it is"}}]}}]}"#,
        ),
        "dashscope" => (
            r#"{"output":{"choices":[{"message":{"content":"Hi"}}]},"request_id":"d"}"#,
            r#"{"never":{"heard":"of"},"field":"kept as it is"}"#,
        ),
        "ollama" => (
            r#"{"model":"m","message":{"role":"assistant","content":"Hi"},"done":false}"#,
            r#"{"never":{"heard":"of"},"field":"kept as it is"}"#,
        ),
        "turnwire" | "agentscope" => (
            r#"{"type":"REPLY_START","id":"1","reply_id":"r"}"#,
            r#"{"type":"NEVER_HEARD_OF","id":"2","reply_id":"r","field":"kept as it is"}"#,
        ),
        other => panic!("no frames here for the wire {other}"),
    }
}

const KEPT: &str = r#""field":"kept as it is""#;

fn events(wire: &Wire, body: &str) -> Vec<Event<'static>> {
    let decoder = wire.decoder(&DecoderOptions::default()).unwrap();
    decoder.decode_all(body.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", wire.name))
}

#[test]
fn law_7_unknown_survives_on_every_wire() {
    for wire in Wire::all().filter(|wire| wire.can_decode()) {
        let (start, unknown) = streams(wire.name);
        let events = events(wire, &format!("{start}\n{unknown}\n"));
        let lines: Vec<String> = events.iter().map(Event::to_json).collect();
        assert!(lines.iter().any(|line| line.contains(KEPT)), "{}: {lines:#?}", wire.name);
        let mut folder = Folder::default();
        for event in &events {
            folder.push(event).unwrap_or_else(|error| panic!("{}: {error}", wire.name));
        }
    }
}

#[test]
fn law_7_unknown_is_written_back_on_its_own_wire() {
    for wire in Wire::all().filter(|wire| wire.can_decode() && wire.can_encode()) {
        let (start, unknown) = streams(wire.name);
        let mut encoder = wire.encoder(&EncoderOptions::default()).unwrap();
        let (mut frames, mut body) = (Frames::default(), String::new());
        for event in events(wire, &format!("{start}\n{unknown}\n")) {
            encoder.encode(&event, &mut frames);
        }
        encoder.end(&mut frames);
        sse::write(&frames, None, &mut body);
        assert!(body.contains(KEPT), "{}: {body}", wire.name);
    }
}

/// A part with a type of ours but other fields, or without a type.
#[test]
fn foreign_blocks_that_look_like_ours_survive() {
    for name in ["ag-ui", "blocks", "openai-responses", "anthropic", "openai-chat"] {
        let wire = Wire::named(name).unwrap();
        for part in [r#"{"type":"tool_result","nothing":1}"#, r#"{"nothing":1}"#] {
            let list = format!(r#"[{{"id":"m","role":"user","content":[{part}]}}]"#);
            let Ok(once) = wire.decode_messages(&list) else { continue };
            let written = wire.encode_messages(&once).unwrap();
            let written = serde_json::to_string(&written).unwrap();
            let again = wire.decode_messages(&written);
            assert!(again.is_ok(), "{name}: {again:?}: {written}");
            for msg in once {
                assert!(turnwire_core::Msg::from_json(&msg.to_json()).is_ok(), "{name}: {part}");
            }
        }
    }
}

#[test]
fn a_turn_without_an_id_gets_one() {
    let body = r#"{"type":"message_start","session_id":"s"}"#;
    let events = events(Wire::named("blocks").unwrap(), body);
    assert_eq!(events.first().unwrap().reply_id, "turn-1");
}

#[test]
fn fields_without_name_and_call_are_not_a_sub_agent() {
    let body = r#"{"type":"message_start","message_id":"m"}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","subagent":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#;
    let events = events(Wire::named("blocks").unwrap(), body);
    assert!(events.iter().all(|event| event.reply_id == "m" && event.agent.is_none()));
}
