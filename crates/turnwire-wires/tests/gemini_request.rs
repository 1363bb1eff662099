//! Requests to Gemini.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod request_harness;

use request_harness::{
    answer_format, body, crashed_round, hinted_reply, messages_body, team, thinking, tool_round,
    weather,
};
use serde_json::{Value, json};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Msg, Source, TextBlock, ToolCall, ToolResult,
};
use turnwire_wires::model_request::{SpeakerFormat, ToolChoice};
use turnwire_wires::{Request, Wire};

const WIRE: &str = "gemini";

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

fn model(text: &str) -> Value {
    json!({"role": "model", "parts": [{"text": text}]})
}

#[test]
fn a_plain_conversation_has_the_system_prompt_apart() {
    let messages = [
        Msg::system("", "Be brief."),
        Msg::user("ann", "Hi"),
        Msg::assistant("friday", "Hello!"),
        Msg::user("ann", "Bye"),
    ];
    assert_eq!(
        messages_body(WIRE, &messages),
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [user("Hi"), model("Hello!"), user("Bye")],
        })
    );
}

#[test]
fn data_is_sent_inline_or_as_a_url_and_other_data_is_noted_as_left_out() {
    let named =
        DataBlock { name: Some("a.bin".into()), ..DataBlock::url("file:///a", "image/png") };
    let untyped = DataBlock::from_source(match DataBlock::bytes(b"abc", "").source {
        Source::Base64(source) => {
            Source::Base64(turnwire_core::block::Base64Source { media_type: None, ..source })
        }
        other => other,
    });
    let messages = [Msg::user(
        "ann",
        [
            "Look:".into(),
            DataBlock::bytes(b"abc", "image/png").into(),
            DataBlock::url("https://example.com/a.mp3", "audio/mpeg").into(),
            DataBlock::url("gs://bucket/a.pdf", "application/pdf").into(),
            named.into(),
            untyped.into(),
        ],
    )];
    assert_eq!(
        messages_body(WIRE, &messages)["contents"],
        json!([{"role": "user", "parts": [
            {"text": "Look:"},
            {"inlineData": {"mimeType": "image/png", "data": "YWJj"}},
            {"fileData": {"mimeType": "audio/mpeg", "fileUri": "https://example.com/a.mp3"}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf"}},
            {"text": "[image/png \"a.bin\" was left out: the model cannot read this URL]"},
            {"text": "[data was left out: its type is not known]"},
        ]}])
    );
}

#[test]
fn parallel_results_share_one_turn_and_failures_are_marked() {
    assert_eq!(
        messages_body(WIRE, &tool_round())["contents"],
        json!([
            user("Paris or Rome?"),
            {"role": "model", "parts": [
                {"text": "Let me look."},
                {"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}},
                {"functionCall": {"id": "c2", "name": "get_weather", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "get_weather", "response": {"output": "sunny"}}},
                {"functionResponse": {"id": "c2", "name": "get_weather", "response": {"error": "not allowed"}}},
                {"text": "What get_weather (c1) gave:"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
            ]},
            model("Paris."),
            user("(Go on.)"),
        ])
    );
}

#[test]
fn a_call_without_a_result_was_interrupted_and_an_input_that_is_not_json_is_sent_as_text() {
    let interrupted = "The call was interrupted before it gave a result.";
    let body = messages_body(WIRE, &crashed_round());
    assert_eq!(
        body["contents"],
        json!([
            user("Go."),
            {"role": "model", "parts": [
                {"functionCall": {"id": "c1", "name": "f", "args": {"n": 12_345_678_901_234_567_890_123f64}}},
                {"functionCall": {"id": "c2", "name": "f", "args": {"unparsed_input": "{\"city\": \"Par"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "f", "response": {"error": interrupted}}},
                {"functionResponse": {"id": "c2", "name": "f", "response": {"error": interrupted}}},
            ]},
            user("Again."),
        ])
    );
    let request = Request { model: "m", messages: &crashed_round(), ..Request::default() };
    let text = Wire::named(WIRE).unwrap().model_request(&request).unwrap();
    assert!(text.text().contains("12345678901234567890123"), "numbers stay as they are");
}

#[test]
fn a_hint_is_a_users_turn() {
    assert_eq!(
        messages_body(WIRE, &hinted_reply())["contents"],
        json!([user("Hi"), model("One."), user("Time is up."), model("Two."), user("(Go on.)")])
    );
}

#[test]
fn signatures_and_items_go_back_on_the_very_part() {
    let signature: Fields = [("thought_signature", "S2")].into_iter().collect();
    let mut item: Fields = [("type", "gemini_part"), ("from_wire", "gemini")].into_iter().collect();
    item.insert("part", Json::parse(r#"{"executableCode":{"code":"1"}}"#).unwrap());
    let mut foreign = item.clone();
    foreign.insert("from_wire", "anthropic");
    let messages = [
        Msg::user("ann", "Hi"),
        Msg::assistant(
            "friday",
            [
                thinking("Hm.", &[("thought_signature", "S1")]),
                thinking("", &[("signature", "of another provider")]),
                TextBlock { rest: signature.clone(), ..TextBlock::new("Well.") }.into(),
                ContentBlock::Other(item),
                ContentBlock::Other(foreign),
                DataBlock { rest: signature.clone(), ..DataBlock::bytes(b"abc", "image/png") }
                    .into(),
                ToolCall { rest: signature, ..ToolCall::new("c", "f", "{}") }.into(),
                ToolResult::success("c", "ok").into(),
            ],
        ),
    ];
    assert_eq!(
        messages_body(WIRE, &messages)["contents"][1],
        json!({"role": "model", "parts": [
            {"text": "Hm.", "thought": true, "thoughtSignature": "S1"},
            {"text": "Well.", "thoughtSignature": "S2"},
            {"executableCode": {"code": "1"}},
            {"inlineData": {"mimeType": "image/png", "data": "YWJj"}, "thoughtSignature": "S2"},
            {"functionCall": {"id": "c", "name": "f", "args": {}}, "thoughtSignature": "S2"},
        ]})
    );
}

#[test]
fn a_decoded_stream_is_sent_back_unchanged() {
    let parts = [
        r#"{"text":"Hm.","thought":true,"thoughtSignature":"S1"}"#,
        r#"{"text":"a","partMetadata":{"k":1}}"#,
        r#"{"codeExecutionResult":{"output":"2"},"thoughtSignature":"S2"}"#,
        r#"{"functionCall":{"id":"c","name":"f","args":{"x":1}},"thoughtSignature":"S3"}"#,
        r#"{"text":"","thoughtSignature":"S4"}"#,
    ]
    .join(",");
    let body =
        format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"STOP"}}]}}"#);
    let wire = Wire::named(WIRE).unwrap();
    let events = wire
        .decoder(&turnwire_wires::DecoderOptions::default())
        .unwrap()
        .decode_all(body.as_bytes());
    let mut folder = turnwire_core::Folder::default();
    for event in events.unwrap() {
        folder.push(&event).unwrap();
    }
    let messages: Vec<Msg> = folder.into_messages().collect();
    let expected: Value = serde_json::from_str(&format!("[{parts}]")).unwrap();
    assert_eq!(messages_body(WIRE, &messages)["contents"][1]["parts"], expected);
}

#[test]
fn a_call_of_another_model_is_sent_to_gemini_3_with_a_placeholder_signature() {
    let messages = tool_round();
    let request =
        Request { model: "models/gemini-3-pro", messages: &messages, ..Request::default() };
    let parts = &body(WIRE, &request)["contents"][1]["parts"];
    assert_eq!(parts[1]["thoughtSignature"], "skip_thought_signature_validator");
    assert_eq!(parts[2].get("thoughtSignature"), None);
}

#[test]
fn several_agents_become_a_history_or_named_turns() {
    let messages = team();
    let ask = |agents| {
        let request = Request {
            model: "m",
            messages: &messages,
            speaker_format: agents,
            ..Request::default()
        };
        body(WIRE, &request)["contents"].clone()
    };
    let call = json!({"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {}}}]});
    let result = json!({"role": "user", "parts": [
        {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "ok"}}},
    ]});
    assert_eq!(
        ask(SpeakerFormat::HistoryTags),
        json!([
            user(
                "# Conversation History\nThe content between <history></history> tags contains your conversation history\n<history>\nann: Who is right?\nbob: I am.\n</history>"
            ),
            call,
            result,
            user("<history>\neve: No, I am.\n</history>"),
        ])
    );
    assert_eq!(
        ask(SpeakerFormat::NamePrefix),
        json!([
            user("[ann]: Who is right?"),
            user("[bob]: I am."),
            call,
            result,
            user("[eve]: No, I am.")
        ])
    );
}

#[test]
fn tools_choice_form_and_limits_have_their_places() {
    let messages = [Msg::user("ann", "Hi")];
    let (tools, output) = ([weather()], answer_format());
    let mut extra = Fields::default();
    extra.insert("generationConfig", Json::parse(r#"{"topK":3,"temperature":1.5}"#).unwrap());
    extra.insert("cachedContent", "c");
    let request = Request {
        model: "m",
        messages: &messages,
        tools: &tools,
        tool_choice: ToolChoice::Tool("get_weather".into()),
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
            "contents": [user("Hi")],
            "tools": [{"functionDeclarations": [{
                "name": "get_weather",
                "description": "The weather of a city",
                "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
            }]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_weather"]}},
            "generationConfig": {
                "maxOutputTokens": 9,
                "temperature": 1.5,
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object"},
                "topK": 3,
            },
            "cachedContent": "c",
        })
    );
    for (choice, mode) in
        [(ToolChoice::Auto, "AUTO"), (ToolChoice::None, "NONE"), (ToolChoice::Required, "ANY")]
    {
        let request = Request { tool_choice: choice, ..request.clone() };
        let config = json!({"functionCallingConfig": {"mode": mode}});
        assert_eq!(body(WIRE, &request)["toolConfig"], config);
    }
}

#[test]
fn metadata_never_reaches_the_provider() {
    request_harness::metadata_never_reaches(WIRE);
}

#[test]
fn every_call_gets_exactly_one_result() {
    fn ids(body: &Value, kind: &str) -> Vec<String> {
        let contents = body["contents"].as_array().unwrap().iter();
        let parts = contents.flat_map(|content| content["parts"].as_array().unwrap());
        parts.filter_map(|part| Some(part[kind]["id"].as_str()?.to_owned())).collect()
    }
    request_harness::every_call_gets_one_result(
        WIRE,
        |body| ids(body, "functionCall"),
        |body| ids(body, "functionResponse"),
    );
}
