//! Frames in any order, with any missing or damaged.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use turnwire_core::{Error, Event, EventKind, Folder};
use turnwire_testkit::{Rng, check_property, one_in, pick, random_reply, values};
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire};

const GEMINI: &[&str] = &[
    r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"responseId":"r","modelVersion":"m"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"b","thought":true}]}}],"responseId":"other"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"S"},{"text":"c"}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"","thought":true,"thoughtSignature":"S"}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"c","name":"f","args":{"a":1}}}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true},"thoughtSignature":"S"}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a[1].b","stringValue":"x"}],"willContinue":true}}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","numberValue":1}]}}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"args":{}}},{"functionCall":{}}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"fileUri":"u"}}]}}]}"#,
    r#"{"candidates":[{"content":{"parts":[{"executableCode":{"code":"1"}},{}]}}]}"#,
    r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1}}"#,
    r#"{"candidates":[{"finishReason":"OTHER"}]}"#,
    r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]}}]}"#,
    r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#,
    r#"{"error":{"code":500,"message":"m"}}"#,
    r#"{"news":1}"#,
];

const DASHSCOPE: &[&str] = &[
    r#"{"output":{"choices":[{"message":{"content":"a"},"finish_reason":"null"}]},"request_id":"r"}"#,
    r#"{"output":{"choices":[{"message":{"content":"ab"}}]},"request_id":"other"}"#,
    r#"{"output":{"choices":[{"message":{"content":"ab<think>é"}}]}}"#,
    r#"{"output":{"choices":[{"message":{"content":"</thi","reasoning_content":"h"}}]}}"#,
    r#"{"output":{"choices":[{"message":{"content":"","reasoning_content":"hm"}}]}}"#,
    r#"{"output":{"choices":[{"message":{"content":[{"text":"a long beginning é"},{"image":"u"},{"box":1}]}}]}}"#,
    r#"{"output":{"choices":[{"message":{"content":"","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}}"#,
    r#"{"output":{"choices":[{"message":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a"}},{"index":1,"id":"c","function":{"name":"g","arguments":"{}"}}]}}]}}"#,
    r#"{"output":{"choices":[{"message":{"tool_calls":[{"id":"d","function":{"name":"g","arguments":"{\"a\":1}"}}]}}]}}"#,
    r#"{"output":{"text":"abc","finish_reason":"stop"}}"#,
    r#"{"output":{"choices":[{"finish_reason":"tool_calls"}]},"usage":{"input_tokens":1}}"#,
    r#"{"code":"Throttling","message":"m"}"#,
    r#"{"code":"DataInspectionFailed","message":"m"}"#,
    r#"{"news":1}"#,
];

const OLLAMA: &[&str] = &[
    r#"{"message":{"content":"a"},"done":false,"model":"m"}"#,
    r#"{"message":{"content":" <thi"},"done":false}"#,
    r#"{"message":{"content":"nk>b","thinking":"h"},"done":false}"#,
    r#"{"message":{"content":"</think>c","images":["AAAA"]}}"#,
    r#"{"message":{"thinking":"hm"}}"#,
    r#"{"message":{"content":"","tool_calls":[{"id":"c","function":{"name":"f","arguments":{}}},{"function":{"name":"g"}}]}}"#,
    r#"{"message":{"content":"d"},"done":true,"done_reason":"length","eval_count":1}"#,
    r#"{"done":true}"#,
    r#"{"error":"m"}"#,
    r#"{"news":1}"#,
];

/// The events fold strictly, with one start and one end.
#[test]
fn any_frames_in_any_order_fold() {
    for (name, frames) in [("gemini", GEMINI), ("dashscope", DASHSCOPE), ("ollama", OLLAMA)] {
        let wire = Wire::named(name).unwrap();
        check_property(name, 4000, |rng| {
            let mut body = String::new();
            for _ in 0..rng.usize(..12) {
                let frame = *pick(rng, frames);
                // Ends and errors are rare.
                if frame.contains("message\":\"m") && !one_in(rng, 4) {
                    continue;
                }
                body.push_str("data:");
                body.push_str(frame);
                body.push_str("\n\n");
            }
            let events = wire
                .decoder(&DecoderOptions::default())
                .unwrap()
                .decode_all(body.as_bytes())
                .unwrap();
            let mut folder = Folder::default();
            for event in &events {
                folder
                    .push(event)
                    .unwrap_or_else(|error| panic!("{error}: {}\n{body}", event.to_json()));
            }
            assert_eq!(folder.into_messages().count(), 1, "{body}");
            let count = |wanted: fn(&EventKind<'_>) -> bool| {
                events.iter().filter(|event| wanted(&event.kind)).count()
            };
            assert_eq!(count(|kind| matches!(kind, EventKind::ReplyStart(_))), 1, "{body}");
            assert_eq!(count(|kind| matches!(kind, EventKind::ModelCallStart(_))), 1, "{body}");
            assert_eq!(count(|kind| matches!(kind, EventKind::ModelCallEnd(_))), 1, "{body}");
            let last = events.last().map(|event| &event.kind);
            assert!(matches!(last, Some(EventKind::ReplyEnd(_))), "{body}");
        });
    }
}

/// After a frame that cannot be read, a decoder goes on as if that frame had not been there.
#[test]
fn an_invalid_frame_changes_nothing() {
    check_property("an_invalid_frame_changes_nothing", 400, |rng| {
        for wire in Wire::all().filter(|wire| wire.can_decode()) {
            let valid = valid_frames(rng, wire);
            if valid.is_empty() {
                continue;
            }
            let expected = decode(wire, &valid);
            assert_eq!(expected.1, [], "{}: {valid:#?}", wire.name);
            let at = rng.usize(..=valid.len());
            let frame = pick(rng, &valid);
            let bad = damage_frame(rng, frame);
            let mut frames = valid.clone();
            frames.insert(at, bad.clone());
            let (events, errors) = decode(wire, &frames);
            // Not all damage is an error.
            if !errors.is_empty() {
                assert_eq!(events, expected.0, "{}: {bad} at {at} of {valid:#?}", wire.name);
            }
        }
    });
}

fn valid_frames(rng: &mut Rng, wire: &Wire) -> Vec<String> {
    let texts = match wire.name {
        "gemini" => GEMINI,
        "dashscope" => DASHSCOPE,
        "ollama" => OLLAMA,
        _ => {
            let mut encoder = wire.encoder(&EncoderOptions::default()).unwrap();
            let mut frames = Frames::default();
            for event in random_reply(rng, "r").events {
                encoder.encode(&event, &mut frames);
            }
            encoder.end(&mut frames);
            return frames.iter().map(|(_, text)| text.to_owned()).collect();
        }
    };
    (0..rng.usize(1..12)).map(|_| (*pick(rng, texts)).to_owned()).collect()
}

fn decode(wire: &Wire, frames: &[String]) -> (Vec<Event<'static>>, Vec<Error>) {
    let mut decoder = (wire.decode.unwrap())(&DecoderOptions::default());
    let (mut events, mut errors) = (Vec::new(), Vec::new());
    let mut sink = |event: Event<'_>| events.push(event.into_owned());
    for frame in frames {
        errors.extend(decoder.decode(frame, &mut sink).err());
    }
    errors.extend(decoder.end(&mut sink).err());
    (events, errors)
}

/// The frame, cut off, or with another value somewhere.
fn damage_frame(rng: &mut Rng, frame: &str) -> String {
    if one_in(rng, 4) {
        let ends: Vec<usize> = frame.char_indices().map(|(at, _)| at).collect();
        return frame.split_at(*pick(rng, &ends)).0.to_owned();
    }
    let mut frame: Value = serde_json::from_str(frame).unwrap();
    replace_value(rng, &mut frame);
    frame.to_string()
}

/// Replaces the value, or one inside of it.
fn replace_value(rng: &mut Rng, value: &mut Value) {
    let mut inner: Vec<&mut Value> = match value {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    if inner.is_empty() || one_in(rng, 5) {
        *value = values::json(rng).parse_as().unwrap();
    } else {
        let at = rng.usize(..inner.len());
        replace_value(rng, inner.swap_remove(at));
    }
}
