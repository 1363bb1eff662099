//! Requests to Ollama.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod request_harness;

use request_harness::{
    answer_format, body, crashed_round, hinted_reply, messages_body, team, thinking, tool_round,
    weather,
};
use serde_json::{Value, json};
use turnwire_core::{ContentBlock, DataBlock, Fields, Json, Msg, ToolCall, ToolResult};
use turnwire_wires::Request;
use turnwire_wires::model_request::{SpeakerFormat, ToolChoice};

const WIRE: &str = "ollama";

fn messages(messages: &[Msg]) -> Value {
    messages_body(WIRE, messages)["messages"].clone()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"id": id, "function": {"name": name, "arguments": arguments}})
}

fn result(id: &str, name: &str, content: &str) -> Value {
    json!({"role": "tool", "content": content, "tool_name": name, "tool_call_id": id})
}

#[test]
fn a_plain_conversation() {
    let messages = [
        Msg::system("", "Be brief."),
        Msg::user("ann", ["Hi".into(), "there".into()]),
        Msg::assistant("friday", "Hello!"),
    ];
    assert_eq!(
        messages_body(WIRE, &messages),
        json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                user("Hi\nthere"),
                assistant("Hello!"),
            ],
            "stream": false,
        })
    );
}

#[test]
fn only_images_that_are_sent_along_are_taken() {
    let conversation = [Msg::user(
        "ann",
        [
            "Look:".into(),
            DataBlock::bytes(b"abc", "image/png").into(),
            DataBlock::url("https://example.com/a.png", "image/png").into(),
            DataBlock::bytes(b"abc", "audio/wav").into(),
        ],
    )];
    assert_eq!(
        messages(&conversation),
        json!([{
            "role": "user",
            "content": "Look:\n[image/png was left out: the model cannot read URLs]\n[audio/wav was left out: the model accepts only images]",
            "images": ["YWJj"],
        }])
    );
}

#[test]
fn results_are_messages_of_their_own_and_their_images_follow_all_of_them() {
    assert_eq!(
        messages(&tool_round()),
        json!([
            user("Paris or Rome?"),
            {
                "role": "assistant", "content": "Let me look.",
                "tool_calls": [call("c1", "get_weather", &json!({"city": "Paris"})), call("c2", "get_weather", &json!({}))],
            },
            result("c1", "get_weather", "sunny"),
            result("c2", "get_weather", "Error: not allowed"),
            {"role": "user", "content": "What get_weather (c1) gave:", "images": ["iVBORw=="]},
            assistant("Paris."),
        ])
    );
}

#[test]
fn a_call_without_a_result_was_interrupted_and_an_input_that_is_not_json_is_sent_as_text() {
    let interrupted = "Error: The call was interrupted before it gave a result.";
    assert_eq!(
        messages(&crashed_round()),
        json!([
            user("Go."),
            {"role": "assistant", "content": "", "tool_calls": [
                call("c1", "f", &json!({"n": 12_345_678_901_234_567_890_123f64})),
                call("c2", "f", &json!({"unparsed_input": "{\"city\": \"Par"})),
            ]},
            result("c1", "f", interrupted),
            result("c2", "f", interrupted),
            user("Again."),
        ])
    );
}

#[test]
fn a_hint_is_a_users_turn() {
    assert_eq!(
        messages(&hinted_reply()),
        json!([user("Hi"), assistant("One."), user("Time is up."), assistant("Two.")])
    );
}

#[test]
fn thinking_goes_back_and_items_of_others_do_not() {
    let item: Fields = [("type", "gemini_part"), ("from_wire", "gemini")].into_iter().collect();
    let conversation = [Msg::assistant(
        "friday",
        [
            thinking("Hm.", &[("signature", "of another provider")]),
            "Well.".into(),
            ContentBlock::Other(item),
            ToolCall::new("c", "f", "{}").into(),
            ToolResult::success("c", "ok").into(),
        ],
    )];
    assert_eq!(
        messages(&conversation)[0],
        json!({
            "role": "assistant",
            "content": "Well.",
            "thinking": "Hm.",
            "tool_calls": [call("c", "f", &json!({}))],
        })
    );
}

#[test]
fn several_agents_become_a_history_or_named_turns() {
    let team = team();
    let ask = |agents| {
        let request =
            Request { model: "m", messages: &team, speaker_format: agents, ..Request::default() };
        body(WIRE, &request)["messages"].clone()
    };
    let system = json!({"role": "system", "content": "Be brief."});
    let called =
        json!({"role": "assistant", "content": "", "tool_calls": [call("c1", "f", &json!({}))]});
    assert_eq!(
        ask(SpeakerFormat::HistoryTags),
        json!([
            system,
            user(
                "# Conversation History\nThe content between <history></history> tags contains your conversation history\n<history>\nann: Who is right?\nbob: I am.\n</history>"
            ),
            called,
            result("c1", "f", "ok"),
            user("<history>\neve: No, I am.\n</history>"),
        ])
    );
    assert_eq!(
        ask(SpeakerFormat::NamePrefix),
        json!([
            system,
            user("[ann]: Who is right?"),
            user("[bob]: I am."),
            called,
            result("c1", "f", "ok"),
            user("[eve]: No, I am."),
        ])
    );
}

#[test]
fn tools_form_and_limits_have_their_places() {
    let messages = [Msg::user("ann", "Hi")];
    let (tools, output) = ([weather()], answer_format());
    let mut extra = Fields::default();
    extra.insert("think", true);
    extra.insert("options", Json::parse(r#"{"num_ctx":4096,"temperature":1.5}"#).unwrap());
    let request = Request {
        model: "qwen3",
        messages: &messages,
        tools: &tools,
        output: Some(&output),
        max_tokens: Some(9),
        temperature: Some(0.5),
        stream: true,
        extra,
        ..Request::default()
    };
    assert_eq!(
        body(WIRE, &request),
        json!({
            "model": "qwen3",
            "messages": [user("Hi")],
            "stream": true,
            "tools": [{"type": "function", "function": {
                "name": "get_weather",
                "description": "The weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            }}],
            "format": {"type": "object"},
            "options": {"num_predict": 9, "temperature": 1.5, "num_ctx": 4096},
            "think": true,
        })
    );
}

#[test]
fn the_choice_of_tools_decides_what_is_offered() {
    let messages = [Msg::user("ann", "Hi")];
    let tools = [
        weather(),
        turnwire_wires::model_request::ToolDefinition { name: "other".into(), ..weather() },
    ];
    for (choice, offered) in [
        (ToolChoice::Auto, 2),
        (ToolChoice::Required, 2),
        (ToolChoice::None, 0),
        (ToolChoice::Tool("other".into()), 1),
    ] {
        let request = Request {
            model: "m",
            messages: &messages,
            tools: &tools,
            tool_choice: choice,
            ..Request::default()
        };
        let tools = body(WIRE, &request)["tools"].as_array().map_or(0, Vec::len);
        assert_eq!(tools, offered);
    }
}

#[test]
fn metadata_never_reaches_the_provider() {
    request_harness::metadata_never_reaches(WIRE);
}

#[test]
fn every_call_gets_exactly_one_result() {
    request_harness::every_call_gets_one_result(
        WIRE,
        |body| {
            let messages = body["messages"].as_array().unwrap().iter();
            let calls = messages.filter_map(|message| message["tool_calls"].as_array()).flatten();
            calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
        },
        |body| {
            let messages = body["messages"].as_array().unwrap().iter();
            let results = messages.filter_map(|message| message["tool_call_id"].as_str());
            results.map(str::to_owned).collect()
        },
    );
}
