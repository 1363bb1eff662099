//! Requests for chat completions, and converting messages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Json, Msg, Part, Payload, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolResult, ToolResultState,
};
use turnwire_testkit::{check_property, values};
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolChoice, ToolDefinition};
use turnwire_wires::{DecoderOptions, Request, Wire};

fn wire() -> &'static Wire {
    Wire::named("openai-chat").unwrap()
}

fn body(request: &Request<'_>) -> Value {
    wire().model_request(request).unwrap().parse_as().unwrap()
}

fn messages(messages: &[Msg]) -> Value {
    body(&Request { model: "m", messages, ..Request::default() }).get("messages").unwrap().clone()
}

fn thinking(text: &str, rest: Value) -> ThinkingBlock {
    ThinkingBlock { rest: Json::from(rest).parse_as().unwrap(), ..ThinkingBlock::new(text) }
}

#[test]
fn a_plain_conversation_is_roles_and_texts() {
    let conversation = [
        Msg::system("system", "Be brief."),
        Msg::user("ann", "Hi!"),
        Msg::assistant("friday", "Hello."),
        Msg::user("ann", ["One".into(), "two".into()]),
        Msg::user("ann", ""),
    ];
    assert_eq!(
        messages(&conversation),
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi!"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": [
                {"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        ])
    );
}

#[test]
fn media_are_written_in_the_providers_form_or_noted_as_left_out() {
    let named =
        DataBlock { name: Some("a.pdf".into()), ..DataBlock::bytes([1], "application/pdf") };
    let content: [Part; 9] = [
        DataBlock::bytes([1, 2, 3], "image/png").into(),
        DataBlock::url("https://a.example/x.jpg", "image/jpeg").into(),
        DataBlock::bytes([1], "audio/wav").into(),
        DataBlock::bytes([1], "audio/mpeg").into(),
        named.into(),
        DataBlock::bytes([1], "video/mp4").into(),
        DataBlock::bytes([1], "audio/ogg").into(),
        DataBlock::url("file:///etc/passwd", "image/png").into(),
        DataBlock::url("https://a.example/x.pdf", "application/pdf").into(),
    ];
    let left_out = |what: &str| json!({"type": "text", "text": what});
    assert_eq!(
        messages(&[Msg::user("ann", content)]),
        json!([{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
            {"type": "image_url", "image_url": {"url": "https://a.example/x.jpg"}},
            {"type": "input_audio", "input_audio": {"data": "AQ==", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "AQ==", "format": "mp3"}},
            {"type": "file", "file": {"filename": "a.pdf",
                "file_data": "data:application/pdf;base64,AQ=="}},
            left_out("[video/mp4 was left out: the model does not accept this kind]"),
            left_out("[audio/ogg was left out: only wav and mp3 are accepted]"),
            left_out("[image/png was left out: its URL is neither http nor https]"),
            left_out("[application/pdf was left out: the model accepts only images by URL]"),
        ]}])
    );
}

#[test]
fn every_call_gets_exactly_one_result_and_images_follow_all_of_them() {
    let denied = ToolResult { state: ToolResultState::Denied, ..ToolResult::success("3", "") };
    let picture: Payload =
        vec![TextBlock::new("a map").into(), DataBlock::bytes([1], "image/png").into()]
            .into_iter()
            .collect::<Vec<Part>>()
            .into();
    let film = vec![Part::from(DataBlock::bytes([1], "video/mp4"))];
    let reply = Msg::builder(Role::Assistant)
        .text("Let me see.")
        .block(ToolCall::new("1", "map", "{\"a\":1}"))
        .block(ToolCall::new("2", "fail", ""))
        .block(ToolCall::new("3", "write", "{}"))
        .block(ToolCall::new("4", "film", "{}"))
        .block(ToolCall::new("5", "slow", "{}"))
        .block(ToolResult::error("2", "no such file"))
        .block(ToolResult::success("1", picture))
        .block(denied)
        .block(ToolResult::success("4", film))
        .text("There.")
        .build()
        .unwrap();
    let call = |id: &str, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    };
    let result =
        |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    assert_eq!(
        messages(&[Msg::user("ann", "Go"), reply, Msg::user("ann", "Thanks")]),
        json!([
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [
                call("1", "map", "{\"a\":1}"), call("2", "fail", "{}"), call("3", "write", "{}"),
                call("4", "film", "{}"), call("5", "slow", "{}")]},
            result("1", "a map"),
            result("2", "Error: no such file"),
            result("3", "Error: The call was denied."),
            result("4", "The result follows.\n[video/mp4 was left out: the model does not accept this kind]"),
            result("5", "Error: The call was interrupted before it gave a result."),
            {"role": "user", "content": [
                {"type": "text", "text": "What the call 1 of map gave:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}}]},
            {"role": "assistant", "content": "There."},
            {"role": "user", "content": "Thanks"},
        ])
    );
}

#[test]
fn a_hint_is_a_users_turn_in_the_middle_of_a_reply() {
    let reply = Msg::builder(Role::Assistant)
        .text("Working.")
        .block(HintBlock::new("Hurry up."))
        .text("Done.")
        .build()
        .unwrap();
    assert_eq!(
        messages(&[reply]),
        json!([
            {"role": "assistant", "content": "Working."},
            {"role": "user", "content": "Hurry up."},
            {"role": "assistant", "content": "Done."},
        ])
    );
}

#[test]
fn thinking_goes_back_into_the_field_that_it_came_in() {
    let reply = |rest: Value| {
        let blocks: [ContentBlock; 2] = [thinking("Hm", rest).into(), "Yes".into()];
        messages(&[Msg::assistant("", blocks)]).get(0).unwrap().clone()
    };
    for (rest, expected) in [
        // Another provider's, which this one would refuse.
        (json!({"signature": "s"}), json!({"role": "assistant", "content": "Yes"})),
        (
            json!({"reasoning_field": "reasoning_content"}),
            json!({"role": "assistant", "content": "Yes", "reasoning_content": "Hm"}),
        ),
        (
            json!({"reasoning_field": "reasoning"}),
            json!({"role": "assistant", "content": "Yes", "reasoning": "Hm"}),
        ),
        (
            json!({"reasoning_field": "content"}),
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                {"type": "text", "text": "Yes"}]}),
        ),
        (
            json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]}),
            json!({"role": "assistant", "content": "Yes", "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "signature": "s", "text": "Hm"}]}),
        ),
    ] {
        assert_eq!(reply(rest), expected);
    }
}

#[test]
fn deepseek_and_moonshot_get_all_thinking_back() {
    let msg = [Msg::assistant("", [thinking("Hm", json!({})).into(), ContentBlock::from("Yes")])];
    for model in ["deepseek-reasoner", "kimi-k2", "moonshotai/kimi-k2"] {
        let request = Request { model, messages: &msg, ..Request::default() };
        assert_eq!(
            body(&request).pointer("/messages/0").unwrap(),
            &json!({"role": "assistant", "content": "Yes", "reasoning_content": "Hm"})
        );
    }
    let msg = [Msg::assistant(
        "",
        [ContentBlock::from(thinking("Hm", json!({"reasoning_field": "reasoning"})))],
    )];
    let request = Request { model: "deepseek-chat", messages: &msg, ..Request::default() };
    assert_eq!(
        body(&request).pointer("/messages/0").unwrap(),
        &json!({"role": "assistant", "content": "", "reasoning": "Hm"})
    );
}

#[test]
fn what_a_provider_sent_is_sent_back_unchanged() {
    let details = json!([
        {"type": "reasoning.text", "text": "Let me", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x9", "index": 1},
    ]);
    let google = json!({"google": {"thought_signature": "t"}});
    let reference = json!({"type": "reference", "reference_ids": [1]});
    let stream = [
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "Let ", "index": 0}]}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "me", "index": 0}]}),
        json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]}),
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x9", "index": 1}]}),
        json!({"content": [{"type": "text", "text": "See"}, reference]}),
        json!({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"},
            "extra_content": google}]}),
        json!({"tool_calls": [{"index": 1, "id": "2", "custom": {"name": "sh", "input": "ls"}}]}),
    ];
    let lines: Vec<String> =
        stream.map(|delta| json!({"choices": [{"delta": delta}]}).to_string()).into();
    let decoder = wire().decoder(&DecoderOptions::default()).unwrap();
    let mut folder = turnwire_core::Folder::default();
    for event in decoder.decode_all(lines.join("\n").as_bytes()).unwrap() {
        folder.push(&event).unwrap();
    }
    let reply: Vec<Msg> = folder.into_messages().collect();
    assert_eq!(
        messages(&reply).get(0).unwrap(),
        &json!({"role": "assistant",
        "content": [{"type": "text", "text": "See"}, reference],
        "reasoning_details": details,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"},
                "extra_content": google},
            {"id": "2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
        ]})
    );
}

#[test]
fn items_of_another_provider_are_left_out() {
    let mut item = Fields::default();
    item.insert("type", "web_search_call");
    item.insert("from_wire", "openai-responses");
    let reply = Msg::assistant("", [ContentBlock::Other(item), "Yes".into()]);
    assert_eq!(messages(&[reply]), json!([{"role": "assistant", "content": "Yes"}]));
}

#[test]
fn generated_audio_is_named_and_other_data_is_noted_as_left_out() {
    let mut sound = DataBlock::bytes([1], "audio/*");
    sound.rest.insert("audio_id", "au1");
    let image = DataBlock::bytes([1], "image/png");
    let reply = Msg::assistant("", [ContentBlock::from(sound), image.into(), "Hi".into()]);
    assert_eq!(
        messages(&[reply]),
        json!([{"role": "assistant", "audio": {"id": "au1"}, "content":
            "[image/png was left out: the model cannot be shown what it made]\nHi"}])
    );
}

#[test]
fn several_agents_are_distinguished() {
    let conversation = [
        Msg::system("", "You are B."),
        Msg::assistant("A", "View A"),
        Msg::assistant("B", "View B"),
    ];
    let ask = |agents: SpeakerFormat| {
        let request = Request {
            model: "m",
            messages: &conversation,
            speaker_format: agents,
            ..Request::default()
        };
        body(&request).get("messages").unwrap().clone()
    };
    let system = json!({"role": "system", "content": "You are B."});
    assert_eq!(
        ask(SpeakerFormat::NamePrefix),
        json!([system, {"role": "user", "content": "[A]: View A"},
            {"role": "user", "content": "[B]: View B"}])
    );
    assert_eq!(
        ask(SpeakerFormat::HistoryTags),
        json!([system, {"role": "user", "content": "# Conversation History\n\
            The content between <history></history> tags contains your conversation history\n\
            <history>\nA: View A\nB: View B\n</history>"}])
    );
}

#[test]
fn tools_choice_output_and_the_rest_have_their_fields() {
    let input =
        Json::parse(r#"{"type":"object","properties":{"city":{"type":"string"}}}"#).unwrap();
    let tools = [ToolDefinition {
        name: "f".into(),
        description: "Does f".into(),
        input_schema: input.clone(),
        ..ToolDefinition::default()
    }];
    let closed = Json::parse(
        r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#,
    );
    let output = OutputFormat::new("out", closed.unwrap());
    let mut extra = Fields::default();
    extra.insert("seed", 7);
    extra.insert("temperature", 1);
    let asked = [Msg::user("ann", "Hi")];
    let request = Request {
        model: "gpt-5",
        messages: &asked,
        tools: &tools,
        tool_choice: ToolChoice::Tool("f".into()),
        output: Some(&output),
        max_tokens: Some(9),
        temperature: Some(0.5),
        speaker_format: SpeakerFormat::SingleAgent,
        prompt_caching: false,
        stream: true,
        options: turnwire_wires::ModelOptions::default(),
        extra,
    };
    let schema: Value = output.schema.parse_as().unwrap();
    assert_eq!(
        body(&request),
        json!({
            "model": "gpt-5",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_completion_tokens": 9,
            "temperature": 1,
            "tools": [{"type": "function", "function": {"name": "f", "description": "Does f",
                "parameters": input.parse_as::<Value>().unwrap()}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {"type": "json_schema", "json_schema":
                {"name": "out", "strict": true, "schema": schema}},
            "seed": 7,
        })
    );
    for (choice, word) in
        [(ToolChoice::None, json!("none")), (ToolChoice::Required, json!("required"))]
    {
        let request = Request { tool_choice: choice, ..request.clone() };
        assert_eq!(body(&request).get("tool_choice"), Some(&word));
    }
    let open = OutputFormat::new("out", input);
    let request = Request {
        model: "qwen3",
        output: Some(&open),
        tools: &[],
        tool_choice: ToolChoice::Auto,
        ..request
    };
    let body = body(&request);
    assert_eq!(body.pointer("/response_format/json_schema/strict"), Some(&json!(false)));
    assert_eq!(body.get("max_tokens"), Some(&json!(9)));
    assert_eq!(body.get("tools").or(body.get("tool_choice")), None);
}

const SECRET: &str = "x_secret_marker";

#[test]
fn metadata_never_reaches_the_provider() {
    check_property("metadata_never_reaches_the_provider", 500, |rng| {
        let mark = |fields: &mut Fields| fields.insert(SECRET, SECRET);
        let conversation: Vec<Msg> = (0..rng.usize(1..5))
            .map(|_| {
                let msg = values::message(rng);
                let mut metadata = msg.metadata().clone();
                let mut rest = msg.rest().clone();
                mark(&mut metadata);
                mark(&mut rest);
                let mut content = msg.content().to_vec();
                for block in &mut content {
                    match block {
                        ContentBlock::Text(block) => mark(&mut block.rest),
                        ContentBlock::Thinking(block) => mark(&mut block.rest),
                        ContentBlock::Data(block) => mark(&mut block.rest),
                        ContentBlock::Hint(block) => mark(&mut block.rest),
                        ContentBlock::ToolCall(block) => mark(&mut block.rest),
                        ContentBlock::ToolResult(block) => {
                            mark(&mut block.metadata);
                            mark(&mut block.rest);
                        }
                        ContentBlock::Other(_) => {}
                    }
                }
                let marked = msg.to_builder().content(content).all_metadata(metadata).rest(rest);
                marked.structured_output(json!({SECRET: 1})).build().unwrap()
            })
            .collect();
        for agents in
            [SpeakerFormat::SingleAgent, SpeakerFormat::HistoryTags, SpeakerFormat::NamePrefix]
        {
            for model in ["m", "deepseek-chat"] {
                let request = Request {
                    model,
                    messages: &conversation,
                    speaker_format: agents,
                    ..Request::default()
                };
                let body = wire().model_request(&request).unwrap();
                assert!(!body.text().contains(SECRET), "{}", body.text());
            }
        }
    });
}

#[test]
fn assistant_and_tool_messages_between_users_are_one_reply() {
    let text = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "Look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}},
            {"type": "image_url", "image_url": {"url": "https://a.example/x"}},
            {"type": "input_audio", "input_audio": {"data": "AQ==", "format": "mp3"}},
            {"type": "file", "file": {"file_id": "file-1"}}]},
        {"role": "assistant", "content": "", "reasoning_content": "Hm", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        {"role": "assistant", "content": null, "refusal": "No."},
    ]);
    let decoded = wire().decode_messages(&text.to_string()).unwrap();
    let (system, user, reply) = match decoded.as_slice() {
        [system, user, reply] => (system, user, reply),
        other => unreachable!("{other:?}"),
    };
    assert_eq!(*system, Msg::system("", "Be brief."));
    let kinds: Vec<_> = user.content().iter().map(|block| block.block_type().as_str()).collect();
    assert_eq!(kinds, ["text", "data", "data", "data", "other"]);
    let media: Vec<_> = user.blocks::<DataBlock>().map(DataBlock::media_type).collect();
    assert_eq!(media, [Some("image/png"), Some("image/*"), Some("audio/mpeg")]);
    let kinds: Vec<_> = reply.content().iter().map(|block| block.block_type().as_str()).collect();
    assert_eq!(kinds, ["thinking", "tool_call", "tool_result", "text"]);
    assert_eq!(*reply.first::<ToolResult>().unwrap(), ToolResult::success("1", "sunny").named("f"));
    // What came in this form goes back in it.
    let again = messages(&decoded);
    assert_eq!(again.pointer("/1/content").unwrap(), text.pointer("/1/content").unwrap());
    assert_eq!(again.pointer("/2/reasoning_content").unwrap(), "Hm");
}

#[test]
fn an_unknown_role_is_an_error_with_its_position() {
    let error = wire().decode_messages(r#"[{"role":"user","content":"a"},{"role":"x"}]"#);
    assert_eq!(
        error.unwrap_err().to_string(),
        "NotAMessage: [1]: unknown role `x`: expected system, developer, user, assistant or tool"
    );
}

#[test]
fn thinking_of_other_providers_is_not_sent_to_openai() {
    let mut call = ToolCall::new("1", "f", "{}");
    call.rest.insert("extra_content", json!({"google": {"thought_signature": "t"}}));
    let thought = thinking("Hm", json!({"reasoning_field": "reasoning_content"}));
    let history = [Msg::assistant("", [thought.into(), ContentBlock::from(call)])];
    let message = |model| {
        let request = Request { model, messages: &history, ..Request::default() };
        body(&request)["messages"][0].take()
    };
    let function = json!({"name": "f", "arguments": "{}"});
    assert_eq!(
        message("gpt-4o"),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": function}]})
    );
    assert_eq!(
        message("gemini-3"),
        json!({"role": "assistant", "content": null, "reasoning_content": "Hm", "tool_calls": [
            {"id": "1", "type": "function", "function": function,
                "extra_content": {"google": {"thought_signature": "t"}}}]})
    );
}

#[test]
fn audio_of_an_earlier_answer_is_sent_back_as_its_id() {
    let sent = r#"[{"role": "user", "content": "Hi!"},
        {"role": "assistant", "audio": {"id": "au1", "transcript": "Hello."}},
        {"role": "user", "content": "And?"}]"#;
    let read = wire().decode_messages(sent).unwrap();
    assert_eq!(read.get(1).and_then(|msg| msg.text("")).as_deref(), Some("Hello."));
    let expected = json!([
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": null, "audio": {"id": "au1"}},
        {"role": "user", "content": "And?"},
    ]);
    assert_eq!(messages(&read), expected);
}
