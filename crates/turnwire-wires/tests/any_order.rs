//! Frames of Gemini, DashScope and Ollama in any order, with any missing: the events fold strictly,
//! with one start and one end.

use turnwire_core::{EventKind, Folder};
use turnwire_testkit::{check_property, one_in, pick};
use turnwire_wires::{DecoderOptions, Wire};

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
