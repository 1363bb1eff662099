//! What a client sends in its messages reaches a model of the same protocol as it came, and a model of another one without
//! what only the client's protocol has.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use serde_json::{Value, json};
use turnwire_core::{Msg, Result, TextBlock};
use turnwire_wires::client_request::ClientRequest;
use turnwire_wires::{ModelOptions, Request, Wire, anthropic, native, openai_chat};

const CHAT: &str = "openai-chat";
const ANTHROPIC: &str = "anthropic";

/// The body for a model of a wire, if a client of another wire sends this.
fn pass_on(
    read: fn(&str) -> Result<ClientRequest>,
    from: &str,
    to: &str,
    mut body: Value,
) -> Value {
    body["model"] = "m".into();
    let asked = read(&body.to_string()).unwrap();
    let request = Request {
        model: "m",
        messages: &asked.messages,
        options: ModelOptions::read(from, &asked.extra).unwrap(),
        ..Request::default()
    };
    Wire::named(to).unwrap().model_request(&request).unwrap().parse_as().unwrap()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn marked(text: &str) -> Value {
    json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})
}

#[test]
fn chat_messages_keep_roles_names_parts_and_their_other_fields() {
    let image =
        json!({"type": "image_url", "image_url": {"url": "https://a.b/c.png", "detail": "low"}});
    let messages = json!([
        {"role": "developer", "content": "Be terse."},
        {"role": "system", "content": [text("Be"), text("kind.")], "name": "boss"},
        {"role": "user", "content": [marked("Look."), image], "name": "ada"},
        {"role": "assistant", "content": null, "refusal": "I cannot."},
        {"role": "system", "content": "Be formal."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [text("Sunny"), text(" and warm")]},
    ]);
    let body = pass_on(openai_chat::read_request, CHAT, CHAT, json!({"messages": messages}));
    assert_eq!(body["messages"], messages);
    let body = pass_on(openai_chat::read_request, CHAT, ANTHROPIC, json!({"messages": messages}));
    let system = json!([text("Be terse."), text("Be"), text("kind."), text("Be formal.")]);
    assert_eq!(body["system"], system);
    assert_eq!(body["messages"][0]["content"][0], text("Look."));
    assert_eq!(body["messages"][1]["content"], json!([text("I cannot.")]));
}

#[test]
fn messages_of_anthropic_keep_system_blocks_results_and_their_other_fields() {
    let document = json!({"type": "document", "title": "A", "citations": {"enabled": true},
        "source": {"type": "text", "media_type": "text/plain", "data": "x"}});
    let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": "s"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1",
        "content": [text("a"), text("b")]});
    let system = json!([marked("Be terse."), text("Be kind.")]);
    let messages = json!([
        {"role": "user", "content": [document, text("Read.")]},
        {"role": "user", "content": [text("Please.")]},
        {"role": "system", "content": [text("Be formal.")]},
        {"role": "assistant", "content": [thinking, call]},
        {"role": "user", "content": [result, marked("And?")]},
    ]);
    let asked = json!({"system": system, "messages": messages});
    let body = pass_on(anthropic::read_request, ANTHROPIC, ANTHROPIC, asked.clone());
    assert_eq!((&body["system"], &body["messages"]), (&system, &messages));
    let body = pass_on(anthropic::read_request, ANTHROPIC, CHAT, asked);
    let sent: Vec<_> = body["messages"].as_array().unwrap().iter().take(4).collect();
    let file = json!({"role": "user", "content": [text("A\n\nx"), text("Read.")]});
    assert_eq!(sent[0], &json!({"role": "system", "content": "Be terse.\nBe kind."}));
    assert_eq!(sent[1]["content"][1], file["content"][1]);
    assert_eq!(sent[2], &json!({"role": "user", "content": "Please."}));
    assert_eq!(sent[3], &json!({"role": "system", "content": "Be formal."}));
    assert!(!body.to_string().contains("cache_control"));
}

#[test]
fn caching_marks_stay_where_they_are() {
    let messages = json!([
        {"role": "user", "content": [marked("One.")]},
        {"role": "assistant", "content": [text("Two.")]},
        {"role": "user", "content": [marked("Three.")]},
    ]);
    let asked = json!({"system": [marked("Be terse.")], "messages": messages});
    let body = pass_on(anthropic::read_request, ANTHROPIC, ANTHROPIC, asked);
    assert_eq!(body["system"], json!([marked("Be terse.")]));
    assert_eq!(body["messages"], messages);
    let body = pass_on(openai_chat::read_request, CHAT, CHAT, json!({"messages": messages}));
    for at in [0, 2] {
        assert_eq!(body["messages"][at], messages[at]);
    }
}

#[test]
fn fields_of_a_protocol_replace_neither_role_nor_content() {
    let fields = serde_json::from_value(
        json!({"role": "system", "content": "x", "text": "x", "type": "x", "name": "ada"}),
    );
    let fields = fields.unwrap();
    let mut block = TextBlock::new("Hi!");
    native::set(&mut block.rest, CHAT, &fields);
    let messages = [native::set_on_message(Msg::user("", [block.into()]), CHAT, &fields)];
    let request = Request { model: "m", messages: &messages, ..Request::default() };
    let body: Value =
        Wire::named(CHAT).unwrap().model_request(&request).unwrap().parse_as().unwrap();
    let message = &body["messages"][0];
    assert_eq!((&message["role"], &message["name"]), (&json!("user"), &json!("ada")));
    let part = &message["content"][0];
    assert_eq!((&part["type"], &part["text"]), (&json!("text"), &json!("Hi!")));
}
