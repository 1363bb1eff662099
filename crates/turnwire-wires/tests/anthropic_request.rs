//! Requests to Anthropic.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use serde_json::{Value, json};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Json, Msg, Part, Payload, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolResult, ToolResultState,
};
use turnwire_testkit::{check_property, values};
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolChoice, ToolDefinition};
use turnwire_wires::{ModelOptions, Request, Wire};

fn body(request: &Request<'_>) -> Value {
    let body = Wire::named("anthropic").unwrap().model_request(request).unwrap();
    body.parse_as().unwrap()
}

/// The messages of a request for this conversation.
fn messages(messages: &[Msg]) -> Value {
    body(&Request { model: "m", messages, ..Request::default() })["messages"].take()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn json_of(value: &Value) -> Json {
    Json::parse(&value.to_string()).unwrap()
}

#[test]
fn a_plain_question() {
    let history = [Msg::system("", "Be brief."), Msg::user("ann", "Hi!"), Msg::system("", "Now.")];
    let request = Request { model: "claude", messages: &history, ..Request::default() };
    assert_eq!(
        body(&request),
        json!({
            "model": "claude",
            "max_tokens": 4096,
            "system": [text("Be brief."), text("Now.")],
            "messages": [{"role": "user", "content": [text("Hi!")]}],
        })
    );
}

#[test]
fn everything_that_can_be_asked_for() {
    let history = [Msg::user("", "Hi!")];
    let tools = [
        ToolDefinition {
            name: "get_weather".to_owned(),
            description: "The weather.".to_owned(),
            input_schema: json_of(&json!({"type": "object", "properties": {}})),
            ..ToolDefinition::default()
        },
        ToolDefinition {
            name: "b".to_owned(),
            description: String::new(),
            input_schema: json_of(&json!({})),
            ..ToolDefinition::default()
        },
    ];
    let output = OutputFormat::new("plan", json_of(&json!({"type": "object"})));
    let mut extra = Fields::default();
    extra.insert("thinking", json!({"type": "adaptive"}));
    extra.insert("max_tokens", 7);
    let request = Request {
        model: "claude",
        messages: &history,
        tools: &tools,
        output: Some(&output),
        max_tokens: Some(100),
        temperature: Some(0.5),
        stream: true,
        extra,
        ..Request::default()
    };
    assert_eq!(
        body(&request),
        json!({
            "model": "claude",
            "max_tokens": 7,
            "messages": [{"role": "user", "content": [text("Hi!")]}],
            "tools": [
                {"name": "get_weather", "description": "The weather.",
                    "input_schema": {"type": "object", "properties": {}}},
                {"name": "b", "input_schema": {"type": "object", "properties": {}}},
            ],
            "tool_choice": {"type": "auto"},
            "output_config": {"format": {"type": "json_schema", "schema":
                {"type": "object", "additionalProperties": false}}},
            "temperature": 0.5,
            "stream": true,
            "thinking": {"type": "adaptive"},
        })
    );
    for (choice, expected) in [
        (ToolChoice::None, json!({"type": "none"})),
        (ToolChoice::Required, json!({"type": "any"})),
        (ToolChoice::Tool("b".to_owned()), json!({"type": "tool", "name": "b"})),
    ] {
        let request = Request { tool_choice: choice, ..request.clone() };
        assert_eq!(body(&request)["tool_choice"], expected);
        // Without tools there is nothing to choose from.
        assert_eq!(body(&Request { tools: &[], ..request })["tool_choice"], Value::Null);
    }
}

#[test]
fn images_documents_and_what_is_neither() {
    let named = |name: &str, block: DataBlock| DataBlock { name: Some(name.to_owned()), ..block };
    let user = Msg::user(
        "",
        [
            Part::from("Look:"),
            DataBlock::bytes([1], "image/png").into(),
            DataBlock::bytes([1], "image/jpg").into(),
            DataBlock::url("https://example.com/a.png", "image/png").into(),
            named("a.pdf", DataBlock::bytes([1], "application/pdf")).into(),
            DataBlock::url("https://example.com/a.pdf", "application/pdf").into(),
            named("a.md", DataBlock::bytes("# Hi", "text/markdown")).into(),
            DataBlock::bytes([0xff], "text/plain").into(),
            named("a.mp3", DataBlock::bytes([1], "audio/mpeg")).into(),
            DataBlock::url("file:///etc/passwd", "image/png").into(),
            DataBlock::bytes([1], "image/tiff").into(),
        ],
    );
    let bytes = |media: &str| json!({"type": "base64", "media_type": media, "data": "AQ=="});
    let url = |url: &str| json!({"type": "url", "url": url});
    let left_out = |what: &str| text(&format!("[{what} was left out: the model cannot read it]"));
    assert_eq!(
        messages(&[user]),
        json!([{"role": "user", "content": [
            text("Look:"),
            {"type": "image", "source": bytes("image/png")},
            {"type": "image", "source": bytes("image/jpeg")},
            {"type": "image", "source": url("https://example.com/a.png")},
            {"type": "document", "source": bytes("application/pdf"), "title": "a.pdf"},
            {"type": "document", "source": url("https://example.com/a.pdf")},
            {"type": "document", "title": "a.md",
                "source": {"type": "text", "media_type": "text/plain", "data": "# Hi"}},
            left_out("text/plain"),
            left_out("audio/mpeg \"a.mp3\""),
            left_out("image/png"),
            left_out("image/tiff"),
        ]}])
    );
}

#[test]
fn the_type_of_an_older_image_block_is_detected_from_its_bytes() {
    let image = r#"{"role":"user","name":"","content":[{"type":"image","source":{"type":"base64","data":"iVBORw0KGgoAAAA="}}]}"#;
    assert_eq!(
        messages(&[Msg::from_json(image).unwrap()])[0]["content"][0]["source"]["media_type"],
        "image/png"
    );
}

#[test]
fn parallel_results_share_a_turn_with_the_next_user_message() {
    let reply = Msg::assistant(
        "",
        [
            "Let me look.".into(),
            ToolCall::new("a", "one", r#"{"n": 1.10}"#).into(),
            ToolCall::new("b", "two", "").into(),
            ToolCall::new("c", "three", r#"{"cut": "#).into(),
            ToolCall::new("d", "four", "[1]").into(),
            ToolCall::new("functions.e:0", "five", "{}").into(),
            ToolResult::success("b", "two!").into(),
            ToolResult::error("a", "no such city").into(),
            ToolResult { state: ToolResultState::Denied, ..ToolResult::success("c", "") }.into(),
            ToolResult::success(
                "d",
                Payload::Parts(vec![
                    TextBlock::new("").into(),
                    TextBlock::new("See:").into(),
                    DataBlock::bytes([1], "image/png").into(),
                    DataBlock::bytes([1], "video/mp4").into(),
                ]),
            )
            .into(),
            "Done.".into(),
        ] as [ContentBlock; 11],
    );
    let result = |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let failed = |id: &str, content: &str| json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": true});
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let messages =
        messages(&[Msg::user("", "Go."), reply, Msg::user("", "And?"), Msg::user("", "So?")]);
    assert_eq!(
        messages,
        json!([
            {"role": "user", "content": [text("Go.")]},
            {"role": "assistant", "content": [
                text("Let me look."),
                call("a", "one", json!({"n": 1.10})),
                call("b", "two", json!({})),
                call("c", "three", json!({"raw_input": "{\"cut\": "})),
                call("d", "four", json!({"raw_input": "[1]"})),
                call("functions_e_0", "five", json!({})),
            ]},
            {"role": "user", "content": [
                failed("a", "no such city"),
                result("b", json!("two!")),
                failed("c", "The call was denied."),
                result("d", json!([
                    text("See:"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQ=="}},
                    text("[video/mp4 was left out: the model cannot read it]"),
                ])),
                failed("functions_e_0", "The call was interrupted before it gave a result."),
            ]},
            {"role": "assistant", "content": [text("Done.")]},
            {"role": "user", "content": [text("And?"), text("So?")]},
        ])
    );
}

#[test]
fn a_hint_is_a_users_turn_behind_the_results() {
    let reply = Msg::assistant(
        "",
        [
            ToolCall::new("a", "one", "{}").into(),
            ToolResult::success("a", "1").into(),
            HintBlock::new("Hurry up.").into(),
            "Done.".into(),
        ] as [ContentBlock; 4],
    );
    assert_eq!(
        messages(&[Msg::user("", "Go."), reply])[2],
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            text("Hurry up."),
        ]})
    );
}

#[test]
fn thinking_goes_back_with_its_signature_or_redacted_and_never_without() {
    let with = |name: &str, value: &str, thinking: &str| {
        let mut block = ThinkingBlock::new(thinking);
        block.rest.insert(name, value);
        ContentBlock::from(block)
    };
    let reply = Msg::assistant(
        "",
        [
            with("signature", "s1", "Hm."),
            with("signature", "s2", ""),
            with("redacted_thinking_data", "AAEC", ""),
            ThinkingBlock::new("unsigned").into(),
            with("thought_signature", "another's", "x"),
            "Hi.".into(),
        ],
    );
    assert_eq!(
        messages(&[Msg::user("", "Go."), reply])[1]["content"],
        json!([
            {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
            {"type": "thinking", "thinking": "", "signature": "s2"},
            {"type": "redacted_thinking", "data": "AAEC"},
            text("Hi."),
        ])
    );
}

#[test]
fn anthropics_own_items_and_fields_go_back_in_their_place_and_no_others() {
    let item = |item: Value| ContentBlock::Other(serde_json::from_value(item).unwrap());
    let mut cited = TextBlock::new("So it is.");
    cited.rest.insert("citations", json!([{"type": "char_location"}]));
    cited.rest.insert("annotations", json!([1]));
    let mut call = ToolCall::new("a", "t", "{}");
    call.rest.insert("caller", json!({"type": "direct"}));
    call.rest.insert("thought_signature", "another's");
    let reply = Msg::assistant(
        "",
        [
            item(
                json!({"type": "server_tool_use", "id": "s", "input": {"q": 1.10}, "from_wire": "anthropic"}),
            ),
            cited.into(),
            item(json!({"type": "reasoning", "id": "r", "from_wire": "openai-responses"})),
            item(json!({"type": "x"})),
            item(
                json!({"type": "provider_item", "provider_item": {"type": "hint", "x": 1}, "from_wire": "anthropic"}),
            ),
            call.into(),
        ],
    );
    assert_eq!(
        messages(&[Msg::user("", "Go."), reply])[1]["content"],
        json!([
            {"type": "server_tool_use", "id": "s", "input": {"q": 1.10}},
            {"type": "text", "text": "So it is.", "citations": [{"type": "char_location"}]},
            {"type": "hint", "x": 1},
            {"type": "tool_use", "id": "a", "name": "t", "input": {}, "caller": {"type": "direct"}},
        ])
    );
}

#[test]
fn no_turn_is_empty_and_the_first_is_a_users() {
    let unsigned = Msg::assistant("", ThinkingBlock::new("unsigned"));
    let history = [
        Msg::assistant("", "Hello, I am Friday."),
        Msg::user("", "Hi."),
        unsigned,
        Msg::user("", ""),
        Msg::user("", "Are you there?"),
    ];
    assert_eq!(
        messages(&history),
        json!([
            {"role": "user", "content": [text("(The conversation begins with your words.)")]},
            {"role": "assistant", "content": [text("Hello, I am Friday.")]},
            {"role": "user", "content": [text("Hi."), text("Are you there?")]},
        ])
    );
}

#[test]
fn a_generated_image_is_described_in_text_and_not_sent() {
    let reply = Msg::assistant("", DataBlock::bytes([1], "image/png"));
    assert_eq!(
        messages(&[Msg::user("", "Go."), reply])[1]["content"],
        json!([text("[image/png was left out: it was made by the assistant]")])
    );
}

#[test]
fn several_agents_become_a_history_or_have_their_names_in_front() {
    let history = [
        Msg::system("", "You are C."),
        Msg::assistant("A", "View A"),
        Msg::assistant("B", "View B"),
        Msg::user("ann", "And you?"),
    ];
    let asked = |agents| {
        let request = Request {
            model: "m",
            messages: &history,
            speaker_format: agents,
            ..Request::default()
        };
        body(&request)["messages"].take()
    };
    assert_eq!(
        asked(SpeakerFormat::HistoryTags),
        json!([{"role": "user", "content": [text(
            "# Conversation History\n\
             The content between <history></history> tags contains your conversation history\n\
             <history>\nA: View A\nB: View B\nann: And you?\n</history>"
        )]}])
    );
    assert_eq!(
        asked(SpeakerFormat::NamePrefix),
        json!([{"role": "user", "content": [
            text("[A]: View A"), text("[B]: View B"), text("[ann]: And you?"),
        ]}])
    );
}

const MARK: &str = "never-for-a-provider";

#[test]
fn metadata_never_reaches_a_provider() {
    check_property("metadata_never_reaches_a_provider", 500, |rng| {
        let history: Vec<Msg> = (0..4).map(|_| marked(&values::message(rng))).collect();
        for agents in
            [SpeakerFormat::SingleAgent, SpeakerFormat::HistoryTags, SpeakerFormat::NamePrefix]
        {
            let request = Request {
                model: "m",
                messages: &history,
                speaker_format: agents,
                ..Request::default()
            };
            let body = body(&request).to_string();
            assert!(!body.contains(MARK), "{body}");
        }
    });
}

/// The same message with a mark in all metadata and unknown fields.
fn marked(msg: &Msg) -> Msg {
    let marks = || [(MARK, MARK)].into_iter().collect::<Fields>();
    let content: Vec<ContentBlock> = msg
        .content()
        .iter()
        .map(|block| match block.clone() {
            ContentBlock::ToolResult(block) => {
                ToolResult { metadata: marks(), rest: marks(), ..block }.into()
            }
            ContentBlock::ToolCall(block) => ToolCall { rest: marks(), ..block }.into(),
            ContentBlock::Text(block) => TextBlock { rest: marks(), ..block }.into(),
            ContentBlock::Hint(block) => {
                HintBlock { source: Some(MARK.to_owned()), rest: marks(), ..block }.into()
            }
            block => block,
        })
        .collect();
    let built = msg.to_builder().content(content).all_metadata(marks()).rest(marks());
    let built = built.structured_output(MARK).build().unwrap();
    assert!(built.role() == Role::User || built.to_json().contains(MARK));
    built
}

#[test]
fn a_search_that_it_paused_at_goes_back_until_somebody_speaks() {
    let item = |item: Value| ContentBlock::Other(serde_json::from_value(item).unwrap());
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let mut kept = search.clone();
    kept["from_wire"] = "anthropic".into();
    let mut history = vec![Msg::user("", "Go."), Msg::assistant("", ["Hm.".into(), item(kept)])];
    let paused = json!([
        {"role": "user", "content": [text("Go.")]},
        {"role": "assistant", "content": [text("Hm."), search]},
    ]);
    assert_eq!(messages(&history), paused);
    history.push(Msg::user("", "Stop."));
    let stopped = json!([
        {"role": "user", "content": [text("Go.")]},
        {"role": "assistant", "content": [text("Hm.")]},
        {"role": "user", "content": [text("Stop.")]},
    ]);
    assert_eq!(messages(&history), stopped);
}

#[test]
fn an_images_bytes_count_and_only_https_is_fetched() {
    let jpeg = DataBlock::bytes([0xff, 0xd8, 0xff, 0xe0], "image/png");
    let plain = DataBlock::url("http://example.com/a.png", "image/png");
    let content = messages(&[Msg::user("", [Part::from(jpeg), plain.into()])])[0]["content"].take();
    let source = json!({"type": "base64", "media_type": "image/jpeg", "data": "/9j/4A=="});
    let left_out = text("[image/png was left out: the model cannot read it]");
    assert_eq!(content, json!([{"type": "image", "source": source}, left_out]));
}

#[test]
fn one_more_option_does_not_take_the_others_away() {
    let history = [Msg::user("", "Hi!")];
    let output = OutputFormat::new("x", json_of(&json!({"type": "string"})));
    let extra = [("output_config", json!({"effort": "low"}))].into_iter().collect();
    let request =
        Request { messages: &history, output: Some(&output), extra, ..Request::default() };
    assert_eq!(
        body(&request)["output_config"],
        json!({"format": {"type": "json_schema", "schema": {"type": "string"}}, "effort": "low"})
    );
}

#[test]
fn a_model_that_refuses_a_temperature_gets_none() {
    let history = [Msg::user("", "Hi!")];
    let asked = |model| {
        let temperature = Some(0.5);
        body(&Request { model, messages: &history, temperature, ..Request::default() })
    };
    assert_eq!(asked("claude-sonnet-4-5")["temperature"], 0.5);
    assert_eq!(asked("claude-opus-4-7").get("temperature"), None);
}

#[test]
fn an_incomplete_image_in_an_output_is_marked() {
    let seen = vec![Part::from(DataBlock::bytes([1], "image/png"))];
    let result = ToolResult::success("a", seen);
    let running = ToolResult { state: ToolResultState::Running, ..result };
    let reply =
        Msg::assistant("", [ContentBlock::from(ToolCall::new("a", "f", "{}")), running.into()]);
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AQ=="});
    assert_eq!(
        messages(&[Msg::user("", "Go."), reply])[2]["content"][0]["content"],
        json!([{"type": "image", "source": source}, text("[The call is still running.]")])
    );
}

#[test]
fn a_long_conversation_is_marked_for_the_cache_unless_the_client_decides() {
    let long = "word ".repeat(4000);
    let history = [
        Msg::system("", "Be brief."),
        Msg::user("ann", long.as_str()),
        Msg::assistant("a", "Yes."),
        Msg::user("ann", "And?"),
    ];
    let mark = json!({"type": "ephemeral"});
    let request = Request { messages: &history, prompt_caching: true, ..Request::default() };
    let marked = body(&request);
    assert_eq!(
        marked["system"],
        json!([{"type": "text", "text": "Be brief.", "cache_control": mark}])
    );
    assert_eq!(marked["messages"][2]["content"][0]["cache_control"], mark);
    assert_eq!(marked.to_string().matches("cache_control").count(), 2);

    let count = |request: &Request<'_>| body(request).to_string().matches("cache_control").count();
    let mut own = ModelOptions { wire: "anthropic".to_owned(), ..ModelOptions::default() };
    assert_eq!(count(&Request { options: own.clone(), ..request.clone() }), 0);
    // The client's own mark is for the whole request.
    (own.wire, own.cache_control) = (String::new(), Some(mark.into()));
    assert_eq!(count(&Request { options: own, ..request.clone() }), 1);
    assert_eq!(count(&Request { prompt_caching: false, ..request.clone() }), 0);
    assert_eq!(count(&Request { messages: &history[..2], ..request.clone() }), 0);
    let short = [Msg::user("ann", "Hi!"), Msg::assistant("a", "Yes."), Msg::user("ann", "And?")];
    assert_eq!(count(&Request { messages: &short, ..request.clone() }), 0);
}
