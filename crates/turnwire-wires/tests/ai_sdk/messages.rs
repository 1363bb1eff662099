//! Reading and writing UI messages.

use serde_json::{Value, json};
use turnwire_core::{ContentBlock, Msg, ToolCall, ToolResult};
use turnwire_testkit::{check_property, random_reply};
use turnwire_wires::Wire;

fn encoded(msg: &Msg) -> Value {
    let wire = Wire::named("ai-sdk").unwrap();
    let written = wire.encode_messages(std::slice::from_ref(msg)).unwrap();
    serde_json::from_str(written[0].text()).unwrap()
}

fn decoded(message: &Value) -> Msg {
    let wire = Wire::named("ai-sdk").unwrap();
    wire.decode_messages(&message.to_string()).unwrap().remove(0)
}

/// Here calls have results, unlike in the messages of the laws.
#[test]
fn any_reply_survives_a_round_trip() {
    check_property("any_reply_survives_a_round_trip", 1000, |rng| {
        let messages = [random_reply(rng, "r").message];
        let wire = Wire::named("ai-sdk").unwrap();
        let written = wire.encode_messages(&messages).unwrap();
        assert_eq!(wire.decode_messages(written[0].text()).unwrap(), messages);
    });
}

#[test]
fn a_result_joins_its_call_and_begins_a_step() {
    let message = Msg::assistant(
        "",
        vec![
            ContentBlock::from("Look:"),
            ToolCall::new("c1", "f", "{}").into(),
            ToolCall::new("c2", "g", "").into(),
            ToolResult::success("c1", "one").named("f").into(),
            ToolResult::error("c2", "two").named("g").into(),
            "Done.".into(),
        ],
    );
    let ours = |more: Value| json!({"turnwire": more});
    let expected = json!({"id": "", "role": "assistant", "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "Look:"},
        {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c1", "state": "output-available",
            "input": {}, "providerExecuted": true, "output": "one",
            "callProviderMetadata": ours(json!({"state": "pending"})),
            "resultProviderMetadata": ours(json!({"at": 3}))},
        {"type": "dynamic-tool", "toolName": "g", "toolCallId": "c2", "state": "output-error",
            "input": {}, "providerExecuted": true, "errorText": "two",
            "callProviderMetadata": ours(json!({"raw_input": "", "state": "pending"})),
            "resultProviderMetadata": ours(json!({"at": 4}))},
        {"type": "step-start"},
        {"type": "text", "text": "Done."},
    ]});
    assert_eq!(encoded(&message), expected);
    assert_eq!(decoded(&expected), message);
}

/// Unknown fields survive in their places.
#[test]
fn a_ui_message_survives_a_round_trip() {
    let message = json!({"id": "m", "role": "assistant", "createdAt": 7, "metadata": {"k": "v"}, "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "a", "citations": [], "providerMetadata": {"openai": {"itemId": "i"}}},
        {"type": "reasoning", "text": "b", "providerMetadata": {"anthropic": {"signature": "s"}}},
        {"type": "source-url", "sourceId": "s", "url": "https://example.com/"},
        {"type": "data-weather", "id": "w", "data": {"t": 1}},
        {"type": "image", "of": "nothing that we know"},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,YQ==", "filename": "a.txt"},
        {"type": "tool-weather", "toolCallId": "c", "state": "output-available", "input": {"a": 1.50},
            "output": {"t": [1]}, "title": "Weather", "providerExecuted": true,
            "approval": {"id": "other", "approved": true}},
    ]});
    assert_eq!(encoded(&decoded(&message)), message);
}

#[test]
fn parts_that_a_user_message_cannot_hold_are_kept() {
    let message = json!({"id": "m", "role": "user", "parts": [
        {"type": "text", "text": "a"},
        {"type": "reasoning", "text": "b"},
        {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c", "state": "input-available", "input": {}},
    ]});
    let msg = decoded(&message);
    assert_eq!(msg.text("").as_deref(), Some("a"));
    assert_eq!(encoded(&msg), message);
}

#[test]
fn an_invalid_message_is_reported() {
    let wire = Wire::named("ai-sdk").unwrap();
    for (text, error) in [
        ("7", "NotAMessage: expected a message object with `role` and `parts`"),
        (
            r#"[{"role":"tool","parts":[]}]"#,
            "NotAMessage: [0]: `role` must be user, assistant or system",
        ),
        (r#"{"role":"user"}"#, "NotAMessage: `parts` is missing"),
        (
            r#"{"role":"assistant","parts":[{"type":"dynamic-tool","toolName":"f","toolCallId":"c","state":"x"}]}"#,
            "NotAMessage: parts[0]: unknown `state` `x` of a tool part",
        ),
    ] {
        let found = wire.decode_messages(text).unwrap_err();
        assert_eq!(found.to_string(), error);
    }
}
