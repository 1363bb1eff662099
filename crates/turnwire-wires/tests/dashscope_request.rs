//! Requests to DashScope.

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

const WIRE: &str = "dashscope";

fn messages(messages: &[Msg]) -> Value {
    messages_body(WIRE, messages)["input"]["messages"].clone()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn call(index: usize, id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "index": index, "function": {"name": name, "arguments": arguments}})
}

fn result(id: &str, name: &str, content: &str) -> Value {
    json!({"role": "tool", "content": content, "tool_call_id": id, "name": name})
}

#[test]
fn a_conversation_of_text_has_strings_as_content() {
    let messages = [
        Msg::system("", "Be brief."),
        Msg::user("ann", ["Hi".into(), "there".into()]),
        Msg::assistant("friday", "Hello!"),
    ];
    assert_eq!(
        messages_body(WIRE, &messages),
        json!({
            "model": "m",
            "input": {"messages": [
                {"role": "system", "content": "Be brief."},
                user("Hi\nthere"),
                assistant("Hello!"),
            ]},
            "parameters": {"result_format": "message"},
        })
    );
}

#[test]
fn a_conversation_with_media_has_lists_as_content() {
    let conversation = [
        Msg::system("", "Be brief."),
        Msg::user(
            "ann",
            [
                "Look:".into(),
                DataBlock::bytes(b"abc", "image/png").into(),
                DataBlock::url("https://example.com/a.mp3", "audio/mpeg").into(),
                DataBlock::url("oss://bucket/a.mp4", "video/mp4").into(),
                DataBlock::url("file:///a.png", "image/png").into(),
                DataBlock::bytes(b"abc", "application/pdf").into(),
            ],
        ),
    ];
    assert_eq!(
        messages(&conversation),
        json!([
            {"role": "system", "content": [{"text": "Be brief."}]},
            {"role": "user", "content": [
                {"text": "Look:"},
                {"image": "data:image/png;base64,YWJj"},
                {"audio": "https://example.com/a.mp3"},
                {"video": "oss://bucket/a.mp4"},
                {"text": "[image/png was left out: the model cannot read this URL]"},
                {"text": "[application/pdf was left out: the model accepts only images, audio and video]"},
            ]},
        ])
    );
}

#[test]
fn results_are_messages_of_their_own_and_their_images_follow_all_of_them() {
    let list = |text: &str| json!([{"text": text}]);
    assert_eq!(
        messages(&tool_round()),
        json!([
            {"role": "user", "content": list("Paris or Rome?")},
            {
                "role": "assistant", "content": list("Let me look."),
                "tool_calls": [call(0, "c1", "get_weather", r#"{"city": "Paris"}"#), call(1, "c2", "get_weather", "{}")],
            },
            result("c1", "get_weather", "sunny"),
            result("c2", "get_weather", "Error: not allowed"),
            {"role": "user", "content": [
                {"text": "What get_weather (c1) gave:"},
                {"image": "data:image/png;base64,iVBORw=="},
            ]},
            {"role": "assistant", "content": list("Paris.")},
        ])
    );
}

#[test]
fn a_call_without_a_result_was_interrupted() {
    let interrupted = "Error: The call was interrupted before it gave a result.";
    assert_eq!(
        messages(&crashed_round()),
        json!([
            user("Go."),
            {"role": "assistant", "content": "", "tool_calls": [
                call(0, "c1", "f", r#"{"n":12345678901234567890123}"#),
                call(1, "c2", "f", r#"{"unparsed_input":"{\"city\": \"Par"}"#),
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
fn reasoning_and_items_go_back() {
    let mut item: Fields =
        [("type", "dashscope_part"), ("from_wire", "dashscope")].into_iter().collect();
    item.insert("part", Json::parse(r#"{"box":[1]}"#).unwrap());
    let mut foreign = item.clone();
    foreign.insert("from_wire", "gemini");
    let conversation = [Msg::assistant(
        "friday",
        [
            thinking("Hm.", &[("signature", "of another provider")]),
            "Well.".into(),
            ContentBlock::Other(item),
            ContentBlock::Other(foreign),
            ToolCall::new("c", "f", "{}").into(),
            ToolResult::success("c", "ok").into(),
        ],
    )];
    assert_eq!(
        messages(&conversation)[0],
        json!({
            "role": "assistant",
            "content": [{"text": "Well."}, {"box": [1]}],
            "reasoning_content": "Hm.",
            "tool_calls": [call(0, "c", "f", "{}")],
        })
    );
}

#[test]
fn several_agents_become_a_history_or_named_turns() {
    let team = team();
    let ask = |agents| {
        let request =
            Request { model: "m", messages: &team, speaker_format: agents, ..Request::default() };
        body(WIRE, &request)["input"]["messages"].clone()
    };
    let system = json!({"role": "system", "content": "Be brief."});
    let called =
        json!({"role": "assistant", "content": "", "tool_calls": [call(0, "c1", "f", "{}")]});
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
fn tools_choice_form_and_limits_are_parameters() {
    let messages = [Msg::user("ann", "Hi")];
    let (tools, output) = ([weather()], answer_format());
    let mut extra = Fields::default();
    extra.insert(
        "parameters",
        Json::parse(r#"{"enable_thinking":true,"temperature":1.5}"#).unwrap(),
    );
    let request = Request {
        model: "qwen",
        messages: &messages,
        tools: &tools,
        tool_choice: ToolChoice::Required,
        output: Some(&output),
        max_tokens: Some(9),
        temperature: Some(0.5),
        stream: true,
        extra,
        ..Request::default()
    };
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    assert_eq!(
        body(WIRE, &request),
        json!({
            "model": "qwen",
            "input": {"messages": [user("Hi")]},
            "parameters": {
                "result_format": "message",
                "incremental_output": true,
                "max_tokens": 9,
                "temperature": 1.5,
                "tools": [{"type": "function", "function": {
                    "name": "get_weather",
                    "description": "The weather of a city",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                }}],
                "tool_choice": named,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": false},
                },
                "enable_thinking": true,
            },
        })
    );
    let two = [weather(), weather()];
    for (choice, word) in [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("auto")),
        (ToolChoice::Tool("get_weather".into()), named),
    ] {
        let request = Request { tool_choice: choice, tools: &two, ..request.clone() };
        assert_eq!(body(WIRE, &request)["parameters"]["tool_choice"], word);
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
            let messages = body["input"]["messages"].as_array().unwrap().iter();
            let calls = messages.filter_map(|message| message["tool_calls"].as_array()).flatten();
            calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
        },
        |body| {
            let messages = body["input"]["messages"].as_array().unwrap().iter();
            let results = messages.filter_map(|message| message["tool_call_id"].as_str());
            results.map(str::to_owned).collect()
        },
    );
}
