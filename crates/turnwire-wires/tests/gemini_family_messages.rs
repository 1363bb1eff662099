//! Messages of Gemini, DashScope and Ollama as these write them. Law 6 covers what we write.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::{ErrorKind, Msg};
use turnwire_wires::Wire;

/// Role and blocks of each message, without fields that no provider sends.
fn read(wire: &str, text: &Value) -> Value {
    let messages = Wire::named(wire).unwrap().decode_messages(&text.to_string()).unwrap();
    let one = |msg: &Msg| {
        let mut blocks = serde_json::to_value(msg.content()).unwrap();
        for block in blocks.as_array_mut().unwrap() {
            let block = block.as_object_mut().unwrap();
            for field in ["created_at", "finished_at", "suggested_rules", "metadata"] {
                block.shift_remove(field);
            }
            block.retain(|_, value| !value.is_null() && value != "pending");
        }
        json!([msg.role().as_str(), blocks])
    };
    messages.iter().map(one).collect()
}

fn written(wire: &str, text: &Value) -> Value {
    let wire = Wire::named(wire).unwrap();
    let messages = wire.decode_messages(&text.to_string()).unwrap();
    let list = wire.encode_messages(&messages).unwrap();
    list.iter().map(|json| serde_json::from_str::<Value>(json.text()).unwrap()).collect()
}

#[test]
fn gemini_contents_become_messages_and_the_same_contents_again() {
    let contents = json!([
        {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": true, "thoughtSignature": "S"},
            {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}, "thoughtSignature": "T"},
            {"executableCode": {"code": "1"}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "c", "name": "f", "response": {"error": "no"}, "parts": [
                {"inlineData": {"mimeType": "image/png", "data": "BBBB"}},
            ]}},
        ]},
        {"role": "model", "parts": [{"text": "Done."}]},
    ]);
    assert_eq!(
        read("gemini", &contents),
        json!([
            ["user", [
                {"type": "text", "text": "Hi"},
                {"type": "data", "source": {"type": "base64", "data": "AAAA", "media_type": "image/png"}},
            ]],
            ["assistant", [
                {"type": "thinking", "thinking": "Hm.", "thought_signature": "S"},
                {"type": "tool_call", "id": "c", "name": "f", "input": "{\"a\":1}", "thought_signature": "T"},
                {"type": "gemini_part", "part": {"executableCode": {"code": "1"}}, "from_wire": "gemini"},
                {"type": "tool_result", "id": "c", "name": "f", "state": "error", "output": [
                    {"type": "text", "text": "no", "finished_at": null},
                    {
                        "type": "data", "name": null, "finished_at": null,
                        "source": {"type": "base64", "data": "BBBB", "media_type": "image/png"},
                    },
                ]},
                {"type": "text", "text": "Done."},
            ]],
        ])
    );
    assert_eq!(written("gemini", &contents), contents);
}

#[test]
fn a_gemini_response_without_an_id_belongs_to_the_first_call_of_its_name() {
    let contents = json!([
        {"role": "model", "parts": [
            {"functionCall": {"name": "f", "args": {}}},
            {"functionCall": {"name": "g"}},
            {"functionCall": {"name": "f", "args": {}}},
        ]},
        {"parts": [
            {"functionResponse": {"name": "f", "response": {"output": {"n": 1}}}},
            {"functionResponse": {"name": "f", "response": {"result": "x"}}},
            {"functionResponse": {"name": "g", "response": {}}},
            {"text": "And now?"},
        ]},
    ]);
    let read = read("gemini", &contents);
    let results = json!([
        {"type": "tool_result", "id": "call-1", "name": "f", "output": "{\"n\":1}", "state": "success"},
        {"type": "tool_result", "id": "call-3", "name": "f", "output": "{\"result\":\"x\"}", "state": "success"},
        {"type": "tool_result", "id": "call-2", "name": "g", "output": "", "state": "success"},
    ]);
    assert_eq!(read[0][1].as_array().unwrap().get(3..).unwrap(), results.as_array().unwrap());
    assert_eq!(read[1], json!(["user", [{"type": "text", "text": "And now?"}]]));
}

#[test]
fn dashscope_messages_become_messages_and_the_same_messages_again() {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"image": "https://example.com/a.png"}, {"text": "What is it?"}, {"audio": "data:audio/wav;base64,AAAA"}]},
        {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [
            {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"a\": 1}"}},
        ]},
        {"role": "tool", "content": "ok", "tool_call_id": "c", "name": "f"},
        {"role": "assistant", "content": [{"text": "It is"}, {"box": [1]}]},
    ]);
    assert_eq!(
        read("dashscope", &messages),
        json!([
            ["system", [{"type": "text", "text": "Be brief."}]],
            ["user", [
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                {"type": "text", "text": "What is it?"},
                {"type": "data", "source": {"type": "base64", "data": "AAAA", "media_type": "audio/wav"}},
            ]],
            ["assistant", [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "tool_call", "id": "c", "name": "f", "input": "{\"a\": 1}"},
                {"type": "tool_result", "id": "c", "name": "f", "output": "ok", "state": "success"},
                {"type": "text", "text": "It is"},
                {"type": "dashscope_part", "part": {"box": [1]}, "from_wire": "dashscope"},
            ]],
        ])
    );
    assert_eq!(written("dashscope", &messages), messages);
}

#[test]
fn ollama_messages_become_messages_and_an_older_result_finds_its_call() {
    let messages = json!([
        {"role": "user", "content": "What is it?", "images": ["AAAA"]},
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": 1}}},
            {"function": {"name": "g", "arguments": {}}},
        ]},
        {"role": "tool", "content": "second", "tool_name": "g"},
        {"role": "tool", "content": "first"},
    ]);
    assert_eq!(
        read("ollama", &messages),
        json!([
            ["user", [
                {"type": "text", "text": "What is it?"},
                {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
            ]],
            ["assistant", [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "tool_call", "id": "call-1", "name": "f", "input": "{\"a\":1}"},
                {"type": "tool_call", "id": "call-2", "name": "g", "input": "{}"},
                {"type": "tool_result", "id": "call-2", "name": "g", "output": "second", "state": "success"},
                {"type": "tool_result", "id": "call-1", "name": "f", "output": "first", "state": "success"},
            ]],
        ])
    );
}

#[test]
fn a_single_message_is_read_and_what_is_none_is_named() {
    assert_eq!(
        read("ollama", &json!({"role": "user", "content": "Hi"})),
        json!([["user", [{"type": "text", "text": "Hi"}]]])
    );
    for wire in ["gemini", "dashscope", "ollama"] {
        let wire = Wire::named(wire).unwrap();
        let error = |text| wire.decode_messages(text).unwrap_err().kind();
        assert_eq!(error("[7]"), ErrorKind::NotAMessage);
        assert_eq!(error("[[]]"), ErrorKind::NotAMessage);
        assert_eq!(error("{"), ErrorKind::NotJson);
    }
}
