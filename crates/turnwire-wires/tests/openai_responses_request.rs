//! Requests to the Responses API, and its items as messages.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use serde_json::{Value, json};
use turnwire_core::block::{Base64Source, Source};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Json, Msg, Part, Payload, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolResult, ToolResultState,
};
use turnwire_testkit::{check_property, values};
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolChoice, ToolDefinition};
use turnwire_wires::{Request, Wire};

fn wire() -> &'static Wire {
    Wire::named("openai-responses").unwrap()
}

fn body(request: &Request<'_>) -> Value {
    wire().model_request(request).unwrap().parse_as().unwrap()
}

fn input(messages: &[Msg]) -> Value {
    body(&Request { model: "m", messages, ..Request::default() })["input"].clone()
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn assistant(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn output(call_id: &str, output: &Value) -> Value {
    json!({"type": "function_call_output", "call_id": call_id, "output": output})
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

fn reply(blocks: Vec<ContentBlock>) -> Msg {
    Msg::assistant("friday", blocks)
}

#[test]
fn a_whole_request() {
    let schema =
        Json::parse(r#"{"type":"object","properties":{"city":{"type":"string"}}}"#).unwrap();
    let tools = [ToolDefinition {
        name: "weather".into(),
        description: "Tells.".into(),
        input_schema: schema.clone(),
        ..ToolDefinition::default()
    }];
    let form = OutputFormat::new("trip", Json::parse(
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#,
        )
        .unwrap());
    let messages = [
        Msg::system("", "Be brief."),
        Msg::system("", "Be kind."),
        Msg::user("ann", "Hi!"),
        Msg::assistant("friday", "Hello."),
        Msg::system("", "It is late."),
        Msg::user("ann", "Bye."),
    ];
    let request = Request {
        model: "gpt-5",
        messages: &messages,
        tools: &tools,
        tool_choice: ToolChoice::Tool("weather".into()),
        output: Some(&form),
        max_tokens: Some(100),
        temperature: Some(0.5),
        stream: true,
        extra: [("reasoning", json!({"summary": "auto"})), ("temperature", json!(1))]
            .into_iter()
            .collect(),
        ..Request::default()
    };
    assert_eq!(
        body(&request),
        json!({
            "model": "gpt-5",
            "instructions": "Be brief.\n\nBe kind.",
            "input": [
                user("Hi!"),
                assistant("Hello."),
                {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "It is late."}]},
                user("Bye."),
            ],
            "tools": [{"type": "function", "name": "weather", "description": "Tells.", "strict": false,
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}],
            "tool_choice": {"type": "function", "name": "weather"},
            "text": {"format": {"type": "json_schema", "name": "trip", "strict": true, "schema":
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}}},
            "max_output_tokens": 100,
            "temperature": 1,
            "include": ["reasoning.encrypted_content"],
            "store": false,
            "stream": true,
            "reasoning": {"summary": "auto"},
        })
    );
    // This schema leaves room, so the model cannot be held to it.
    let loose = OutputFormat::new("x", schema);
    let request = Request { model: "gpt-5", output: Some(&loose), ..Request::default() };
    assert_eq!(body(&request)["text"]["format"]["strict"], false);
}

#[test]
fn only_models_that_may_reason_are_asked_for_encrypted_reasoning() {
    for (model, expected) in [
        ("gpt-5.2", true),
        ("o4-mini", true),
        ("grok-4", true),
        ("gpt-4o", false),
        ("openai/gpt-4.1", false),
        ("gpt-5-chat-latest", false),
        ("ft:gpt-4o:x", false),
    ] {
        let body = body(&Request { model, ..Request::default() });
        assert_eq!(body.get("include").is_some(), expected, "{model}");
        assert_eq!(body["store"], false);
    }
    for (choice, word) in [(ToolChoice::None, "none"), (ToolChoice::Required, "required")] {
        let tool = ToolDefinition {
            name: "f".into(),
            description: String::new(),
            input_schema: Json::parse("{}").unwrap(),
            ..ToolDefinition::default()
        };
        let request = Request { tool_choice: choice, ..Request::default() };
        // Without tools there is nothing to choose from.
        assert_eq!(body(&request)["tool_choice"], Value::Null);
        assert_eq!(body(&Request { tools: &[tool], ..request.clone() })["tool_choice"], word);
        // The provider's own tools are tools too.
        let extra: Fields = [("tools", json!([{"type": "web_search"}]))].into_iter().collect();
        assert_eq!(body(&Request { extra, ..request })["tool_choice"], word);
    }
}

fn data(kind: &str, data: &str, name: Option<&str>) -> DataBlock {
    let source =
        Base64Source { data: data.into(), media_type: Some(kind.into()), rest: Fields::default() };
    DataBlock { name: name.map(str::to_owned), ..DataBlock::from_source(Source::Base64(source)) }
}

#[test]
fn media_are_sent_in_the_providers_form_and_others_are_described_in_text() {
    let blocks: Vec<(DataBlock, Value)> = vec![
        (
            data("image/png", "AAAA", None),
            json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
        ),
        (
            DataBlock::url("https://example.com/a.jpg", "image/jpeg"),
            json!({"type": "input_image", "image_url": "https://example.com/a.jpg"}),
        ),
        (
            data("audio/mpeg", "AAAA", None),
            json!({"type": "input_text", "text": "[audio/mpeg was left out: audio is not accepted]"}),
        ),
        (
            data("application/pdf", "AAAA", Some("a.pdf")),
            json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}),
        ),
        (
            DataBlock::url("https://example.com/a.pdf", "application/pdf"),
            json!({"type": "input_file", "file_url": "https://example.com/a.pdf"}),
        ),
        (
            DataBlock::url("file:///etc/passwd", "image/png"),
            json!({"type": "input_text", "text": "[image/png was left out: only http and https are fetched]"}),
        ),
        (
            data("video/mp4", "AAAA", Some("a.mp4")),
            json!({"type": "input_text", "text": "[video/mp4 \"a.mp4\" was left out: this kind of data is not accepted]"}),
        ),
        (
            data("text/plain", "AAAA", None),
            json!({"type": "input_file", "filename": "file.txt", "file_data": "data:text/plain;base64,AAAA"}),
        ),
        (
            data("application/zip", "AAAA", None),
            json!({"type": "input_text", "text": "[application/zip was left out: this kind of file is not accepted]"}),
        ),
        (
            data("image/svg+xml", "AAAA", None),
            json!({"type": "input_text", "text": "[image/svg+xml was left out: only PNG, JPEG, GIF and WebP are taken]"}),
        ),
        (
            DataBlock::from_source(Source::Other([("type", "x")].into_iter().collect())),
            json!({"type": "input_text", "text": "[data was left out: its source is of an unknown type]"}),
        ),
    ];
    for (block, part) in blocks {
        let msg = Msg::builder(Role::User).text("See:").block(block).build().unwrap();
        let content = json!([{"type": "input_text", "text": "See:"}, part]);
        assert_eq!(input(&[msg])[0]["content"], content);
    }
}

#[test]
fn every_call_has_exactly_one_output() {
    let mut denied = ToolResult::error("c", "");
    denied.state = ToolResultState::Denied;
    let image = Payload::Parts(vec![
        Part::Text(TextBlock::new("a map")),
        Part::Data(data("image/png", "AAAA", None)),
    ]);
    let messages = [
        Msg::user("ann", "Go."),
        reply(vec![
            TextBlock::new("Well.").into(),
            ToolCall::new("a", "f", "{\"n\":1}").into(),
            ToolCall::new("b", "g", "").into(),
            ToolCall::new("c", "h", "{}").into(),
            ToolCall::new("d", "i", "{}").into(),
            // Not in the order of the calls, and one for a call that nobody made.
            ToolResult::error("b", "it broke").into(),
            ToolResult::success("a", image).into(),
            ToolResult::success("nobody", "x").into(),
            denied.into(),
            TextBlock::new("Done.").into(),
        ]),
    ];
    assert_eq!(
        input(&messages),
        json!([
            user("Go."),
            assistant("Well."),
            call("a", "f", "{\"n\":1}"),
            call("b", "g", "{}"),
            call("c", "h", "{}"),
            call("d", "i", "{}"),
            output(
                "a",
                &json!([{"type": "input_text", "text": "a map"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}])
            ),
            output("b", &json!("Error: it broke")),
            output("c", &json!("Error: The call was denied.")),
            output("d", &json!("Error: The call was interrupted before it gave a result.")),
            assistant("Done."),
        ])
    );
}

#[test]
fn a_hint_is_a_users_turn_in_the_middle() {
    let messages = [reply(vec![
        TextBlock::new("One.").into(),
        HintBlock::new("Hurry.").into(),
        TextBlock::new("Two.").into(),
    ])];
    assert_eq!(input(&messages), json!([assistant("One."), user("Hurry."), assistant("Two.")]));
}

fn items(list: &Value) -> Vec<Msg> {
    wire().decode_messages(&list.to_string()).unwrap()
}

#[test]
fn items_of_the_provider_are_sent_back_unchanged() {
    let made = json!([
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a"},
            {"type": "summary_text", "text": "b"}], "content": [], "encrypted_content": "opaque", "status": null},
        {"type": "message", "role": "assistant", "phase": "commentary", "content":
            [{"type": "output_text", "text": "Hm.", "annotations": [{"type": "url_citation", "url": "u"}]}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "n": 1.5}},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "output_format": "png", "result": "AAAA"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "sql", "input": "SELECT 1"},
        {"type": "function_call", "id": "fc_1", "call_id": "d", "name": "f", "arguments": "{}", "namespace": "n",
            "caller": {"type": "program", "caller_id": "p"}},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
        {"type": "function_call_output", "call_id": "d", "output": "2"},
    ]);
    let messages = items(&made);
    assert_eq!(messages.len(), 1);
    assert_eq!(input(&messages), made);
    let written: Vec<Value> = wire()
        .encode_messages(&messages)
        .unwrap()
        .iter()
        .map(|item| item.parse_as().unwrap())
        .collect();
    assert_eq!(Value::from(written), made);
}

#[test]
fn items_of_another_provider_are_not_sent() {
    let mut signed = ThinkingBlock::new("hm");
    signed.rest.insert("signature", "s");
    let other: Fields =
        [("type", "server_tool_use"), ("from_wire", "anthropic")].into_iter().collect();
    let messages = [reply(vec![
        signed.into(),
        ContentBlock::Other(other),
        data("image/png", "AAAA", None).into(),
        TextBlock::new("Hi.").into(),
    ])];
    assert_eq!(
        input(&messages),
        json!([
            assistant("[image/png was left out: a model cannot be shown what it made]"),
            assistant("Hi.")
        ])
    );
}

#[test]
fn reasoning_that_the_provider_could_not_find_or_that_nothing_follows_is_not_sent() {
    let text = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]});
    let unknown = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let open = json!({"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]});
    let last = json!({"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "y"});
    let messages = items(&json!([unknown, open, text, last]));
    assert_eq!(input(&messages), json!([open, text]));
    let stored = Request {
        messages: &messages,
        extra: [("store", true)].into_iter().collect(),
        ..Request::default()
    };
    assert_eq!(body(&stored)["input"], json!([unknown, open, text]));
}

#[test]
fn several_agents_speak_in_the_form_that_was_chosen() {
    let messages = [
        Msg::system("", "Be brief."),
        Msg::user("ann", "Hi!"),
        Msg::assistant("bob", "Hello."),
        Msg::assistant("friday", vec![ContentBlock::from(ToolCall::new("a", "f", "{}"))]),
    ];
    let input = |agents| {
        body(&Request { messages: &messages, speaker_format: agents, ..Request::default() })["input"].clone()
    };
    let calls = [
        call("a", "f", "{}"),
        output("a", &json!("Error: The call was interrupted before it gave a result.")),
    ];
    let [first, second] = calls;
    let history = "# Conversation History\nThe content between <history></history> tags contains your conversation \
        history\n<history>\nann: Hi!\nbob: Hello.\n</history>";
    assert_eq!(input(SpeakerFormat::HistoryTags), json!([user(history), first, second]));
    assert_eq!(
        input(SpeakerFormat::NamePrefix),
        json!([user("[ann]: Hi!"), user("[bob]: Hello."), first, second])
    );
}

#[test]
fn metadata_never_reaches_the_provider() {
    const MARK: &str = "SECRET-MARK";
    check_property("metadata_never_reaches_the_provider", 300, |rng| {
        let messages: Vec<Msg> = (0..rng.usize(1..5))
            .map(|_| {
                let msg = values::message(rng);
                let content: Vec<ContentBlock> = msg
                    .content()
                    .iter()
                    .cloned()
                    .map(|mut block| {
                        if let ContentBlock::ToolResult(result) = &mut block {
                            result.metadata.insert("m", MARK);
                        }
                        block
                    })
                    .collect();
                let marked = msg.to_builder().content(content).metadata("m", MARK);
                let mut rest = Fields::default();
                rest.insert("x_m", MARK);
                marked.id(MARK).rest(rest).structured_output(json!({"m": MARK})).build().unwrap()
            })
            .collect();
        for agents in
            [SpeakerFormat::SingleAgent, SpeakerFormat::HistoryTags, SpeakerFormat::NamePrefix]
        {
            let body = body(&Request {
                messages: &messages,
                speaker_format: agents,
                ..Request::default()
            })
            .to_string();
            assert!(!body.contains(MARK), "{body}");
        }
    });
}

#[test]
fn input_in_its_short_forms_is_read() {
    let texts = |list: Vec<Msg>| -> Vec<(Role, String)> {
        list.iter().map(|msg| (msg.role(), msg.text("").unwrap())).collect()
    };
    assert_eq!(texts(items(&json!("Hi!"))), [(Role::User, "Hi!".to_owned())]);
    let list = json!([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello."}]);
    assert_eq!(
        texts(items(&list)),
        [
            (Role::System, "Be brief.".to_owned()),
            (Role::User, "Hi!".to_owned()),
            (Role::Assistant, "Hello.".to_owned())
        ]
    );
    let response = json!({"object": "response", "output": [{"type": "message", "role": "assistant", "id": "m",
        "content": [{"type": "output_text", "text": "Hello."}]}]});
    assert_eq!(texts(items(&response)), [(Role::Assistant, "Hello.".to_owned())]);
    for wrong in ["3", "[3]", "{"] {
        assert!(wire().decode_messages(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_message_of_an_unknown_role_is_kept_as_an_item() {
    for text in [r#"[{"role":"critic","content":"No."}]"#, r#"[{"role":"user","role":"critic"}]"#] {
        let once = wire().decode_messages(text).unwrap();
        let written = serde_json::to_string(&wire().encode_messages(&once).unwrap()).unwrap();
        assert!(written.contains(r#""role":"critic""#), "{written}");
        assert_eq!(wire().decode_messages(&written).unwrap(), once);
    }
}

/// Law 6 does not check these, because the loss table covers only images.
#[test]
fn sound_files_and_urls_come_back_from_their_parts() {
    for (block, kind) in [
        (data("audio/mpeg", "AAAA", None), Some("audio/mpeg")),
        (data("audio/wav", "AAAA", None), Some("audio/wav")),
        (data("application/pdf", "AAAA", Some("a.pdf")), Some("application/pdf")),
        // A URL's kind is not said, or only as far as the part says it.
        (DataBlock::url("https://example.com/a.pdf", "application/pdf"), None),
        (DataBlock::url("https://example.com/a.jpg", "image/jpeg"), Some("image/*")),
    ] {
        let msg = Msg::builder(Role::User).block(block.clone()).build().unwrap();
        let written = wire().encode_messages(&[msg]).unwrap();
        let again = wire().decode_messages(&format!("[{}]", written[0].text())).unwrap();
        let mut expected = block;
        match &mut expected.source {
            Source::Base64(source) => source.media_type = kind.map(str::to_owned),
            Source::Url(source) => source.media_type = kind.map(str::to_owned),
            Source::Other(_) => {}
        }
        assert_eq!(again[0].content(), [ContentBlock::Data(expected)]);
    }
}

#[test]
fn an_item_without_a_type_is_read_again_as_it_was_written() {
    let wire = Wire::named("openai-responses").unwrap();
    let text = r#"[{"role":"assistant","content":[{"nobody":"knows","this":1}]}]"#;
    let once = wire.decode_messages(text).unwrap();
    let written = serde_json::to_string(&wire.encode_messages(&once).unwrap()).unwrap();
    assert_eq!(written, r#"[{"nobody":"knows","this":1}]"#);
    assert_eq!(wire.decode_messages(&written).unwrap(), once);
}

#[test]
fn one_more_option_does_not_take_the_others_away() {
    let output = OutputFormat::new("x", Json::parse("{}").unwrap());
    let extra = [("text", json!({"verbosity": "low"}))].into_iter().collect();
    let request = Request { output: Some(&output), extra, ..Request::default() };
    assert_eq!(
        body(&request)["text"],
        json!({"format": {"type": "json_schema", "name": "x", "schema": {}, "strict": true},
            "verbosity": "low"})
    );
}

#[test]
fn an_item_id_that_is_not_openais_is_left_out() {
    let made = json!([
        {"type": "function_call", "id": "a1", "call_id": "d", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "d", "output": "2"},
    ]);
    let expected = json!([call("d", "f", "{}"), output("d", &json!("2"))]);
    assert_eq!(input(&items(&made)), expected);
}

#[test]
fn reasoning_that_only_anothers_item_follows_is_not_sent() {
    let mut messages = items(&json!([
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "y"},
    ]));
    let mut content = messages.remove(0).content().to_vec();
    let other: Fields = [("type", "x"), ("from_wire", "anthropic")].into_iter().collect();
    content.push(ContentBlock::Other(other));
    assert_eq!(input(&[Msg::user("ann", "Hi!"), reply(content)]), json!([user("Hi!")]));
}
