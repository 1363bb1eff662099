//! Tests of building and reading messages.

use turnwire_core::{
    BlockType, ContentBlock, DataBlock, ErrorKind, FixedStamp, HintBlock, Msg, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

#[test]
fn a_string_becomes_a_text_block() {
    for msg in [Msg::user("a", "hi"), Msg::assistant("a", "hi"), Msg::system("a", "hi")] {
        assert_eq!(msg.content(), [TextBlock::new("hi").into()]);
    }
    let tool = Msg::tool("system", ToolResult::error("call_1", "timed out").named("get_weather"));
    let result = tool.first::<ToolResult>().unwrap();
    assert_eq!(result.state, ToolResultState::Error);
    assert_eq!((result.output.text(""), result.name.as_str()), ("timed out".into(), "get_weather"));
}

#[test]
fn role_rules_hold_for_every_pair() {
    let blocks: Vec<(BlockType, ContentBlock)> = vec![
        (BlockType::Text, TextBlock::new("x").into()),
        (BlockType::Thinking, ThinkingBlock::new("x").into()),
        (BlockType::Data, DataBlock::url("https://example.com", "image/png").into()),
        (BlockType::Hint, HintBlock::new("x").into()),
        (BlockType::ToolCall, ToolCall::new("c", "f", "{}").into()),
        (BlockType::ToolResult, ToolResult::success("c", "x").into()),
    ];
    for block_type in BlockType::KNOWN {
        let is_older_media =
            matches!(block_type, BlockType::Image | BlockType::Audio | BlockType::Video);
        let is_listed = blocks.iter().any(|(listed, _)| listed == block_type);
        assert!(is_listed || is_older_media, "{block_type:?} is missing here");
    }
    for role in Role::ALL {
        for (block_type, block) in &blocks {
            let allowed = match role {
                Role::Assistant => true,
                Role::User => matches!(block_type, BlockType::Text | BlockType::Data),
                Role::System => *block_type == BlockType::Text,
                Role::Tool => *block_type == BlockType::ToolResult,
            };
            let built = Msg::builder(role).block(block.clone()).build();
            assert_eq!(built.is_ok(), allowed, "{role} {block_type:?}");
            // The same rule when the message is read.
            let json = Msg::assistant("a", [block.clone()]).to_json();
            let json = json.replace(r#""role":"assistant""#, &format!(r#""role":"{role}""#));
            let read = Msg::from_json(&json);
            assert_eq!(read.is_ok(), allowed, "{role} {block_type:?}");
            if let Err(error) = read {
                assert_eq!(error.kind(), ErrorKind::WrongRole);
                assert!(error.to_string().contains(block_type.as_str()), "{error}");
            }
        }
    }
}

#[test]
fn every_block_type_reads_back_as_itself() {
    for block_type in BlockType::KNOWN {
        let required = match block_type {
            BlockType::Text => r#","text":"x""#,
            BlockType::Thinking => r#","thinking":"x""#,
            BlockType::Data | BlockType::Image | BlockType::Audio | BlockType::Video => {
                r#","source":{"type":"url","url":"x"}"#
            }
            BlockType::Hint => r#","hint":"x""#,
            BlockType::ToolCall | BlockType::ToolResult | BlockType::Other => "",
        };
        let json = format!(r#"{{"type":"{}","id":"b"{required}}}"#, block_type.as_str());
        let block: ContentBlock = serde_json::from_str(&json).unwrap();
        assert_eq!(block.block_type(), *block_type);
        let written = serde_json::to_string(&block).unwrap();
        assert_eq!(serde_json::from_str::<ContentBlock>(&written).unwrap(), block);
    }
}

#[test]
fn the_older_media_are_data_for_a_user_and_keep_their_type() {
    let json = r#"{"role":"user","name":"u","content":[{"type":"image","source":{"type":"url","url":"file:///a.png"},"minPixels":1},{"type":"audio","source":{"type":"base64","media_type":"audio/wav","data":"AA=="}}]}"#;
    let msg = Msg::from_json(json).unwrap();
    assert!(msg.has_block_type(BlockType::Image) && !msg.has_block_type(BlockType::Video));
    assert_eq!(msg.blocks::<DataBlock>().count(), 2);
    let written: serde_json::Value = serde_json::from_str(&msg.to_json()).unwrap();
    let read: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(written["content"], read["content"]);
}

#[test]
fn a_changed_copy_is_one_call_and_leaves_the_original() {
    let msg = Msg::assistant("AgentA", "View A");
    let renamed = msg.with_name("Bob");
    assert_eq!((msg.name(), renamed.name()), ("AgentA", "Bob"));
    assert_eq!(msg.content(), renamed.content());
    let longer = msg.to_builder().text("more").metadata("task_id", "12345").build().unwrap();
    assert_eq!(longer.text(" ").as_deref(), Some("View A more"));
    assert_eq!(longer.metadata().get::<String>("task_id").unwrap().as_deref(), Some("12345"));
}

#[test]
fn every_block_makes_a_message_and_every_part_a_result() {
    for msg in [
        Msg::assistant("a", ToolCall::new("c", "f", "{}")),
        Msg::assistant("a", ThinkingBlock::new("hm")),
        Msg::assistant("a", HintBlock::new("x")),
        Msg::assistant("a", ToolResult::success("c", [TextBlock::new("x")])),
        Msg::assistant("a", ToolResult::success("c", vec![DataBlock::bytes(b"x", "text/plain")])),
    ] {
        assert_eq!(msg.content().len(), 1);
    }
}

#[test]
fn texts_are_joined_and_missing_text_is_none() {
    let msg = Msg::assistant("a", ["one".into(), ThinkingBlock::new("hm").into(), "two".into()]);
    assert_eq!(msg.text("\n").as_deref(), Some("one\ntwo"));
    assert_eq!(msg.text("").as_deref(), Some("onetwo"));
    assert_eq!(Msg::assistant("a", [ThinkingBlock::new("hm").into()]).text("\n"), None);
    assert_eq!(Msg::assistant("a", "").text("\n").as_deref(), Some(""));
}

#[test]
fn calls_come_with_their_results() {
    let msg = Msg::assistant(
        "a",
        [
            ToolCall::new("c1", "f", r#"{"city":"Paris"}"#).into(),
            ToolCall::new("c2", "g", "").into(),
            ToolResult::success("c1", "sunny").into(),
        ],
    );
    let pairs: Vec<(&str, Option<String>)> = msg
        .tool_calls()
        .map(|(call, result)| (call.id.as_str(), result.map(|result| result.output.text(""))))
        .collect();
    assert_eq!(pairs, [("c1", Some("sunny".to_owned())), ("c2", None)]);
    assert!(msg.has::<ToolResult>() && !msg.has::<DataBlock>());
}

#[test]
fn input_and_data_are_parsed_on_request() {
    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct Input {
        city: String,
    }
    let call = ToolCall::new("c", "f", r#"{"city":"Paris"}"#);
    assert_eq!(call.input_as::<Input>().unwrap(), Input { city: "Paris".into() });
    assert_eq!(
        ToolCall::new("c", "f", " ").input_as::<serde_json::Value>().unwrap(),
        serde_json::json!({})
    );
    let error = ToolCall::new("c", "f", "{\"city\":").input_as::<Input>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongShape);
    let block = DataBlock::bytes(b"hello", "text/plain");
    assert_eq!(block.decoded().unwrap().unwrap(), b"hello");
    assert!(DataBlock::url("https://example.com", "").decoded().is_none());
}

#[test]
fn structured_output_parses_as_any_type() {
    #[derive(serde::Deserialize)]
    struct TaskPlan {
        goal: String,
        #[serde(rename = "estimatedHours")]
        estimated_hours: u32,
    }
    let json = serde_json::json!({"goal": "tea", "steps": ["boil"], "estimatedHours": 2});
    let msg = Msg::builder(Role::Assistant).structured_output(json.clone()).build().unwrap();
    assert!(msg.has_structured_output());
    let plan: TaskPlan = msg.parse_structured_output().unwrap().unwrap();
    assert_eq!((plan.goal.as_str(), plan.estimated_hours), ("tea", 2));
    assert_eq!(msg.parse_structured_output::<Vec<u8>>().unwrap_err().kind(), ErrorKind::WrongShape);
    assert!(Msg::assistant("a", "x").parse_structured_output::<TaskPlan>().unwrap().is_none());
    // Version 1 of AgentScope for Java stored it in the metadata.
    let old = Msg::builder(Role::Assistant).metadata("goal", "tea").metadata("estimatedHours", 2);
    assert_eq!(old.build().unwrap().metadata().parse_as::<TaskPlan>().unwrap().estimated_hours, 2);
}

#[test]
fn a_stamp_fills_what_is_missing_and_nothing_else() {
    let stamp = FixedStamp::default();
    let mut call = ToolCall::new("c", "f", "{}");
    call.state = ToolCallState::Finished;
    let msg = Msg::assistant("a", ["hi".into(), call.into()]).stamped(&stamp);
    assert_eq!(msg.id(), format!("{:032x}", 1));
    assert_eq!(msg.content()[0].id(), format!("{:032x}", 2));
    assert_eq!(msg.content()[1].id(), "c");
    assert_eq!(msg.finished_at(), None, "a reply is finished when its end says so");
    let user = Msg::user("u", "hi").stamped(&stamp);
    assert_eq!(user.finished_at(), Some(user.created_at()));
    assert_eq!(user.clone().stamped(&stamp), user);
}
