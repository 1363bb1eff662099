//! The scene of each command word.

use crate::session::{Answer, REPLY, Session, history, play_scene};
use async_trait::async_trait;
use turnwire_agent::{AgentError, DemoAgent, Journal, Replier, ReplyRequest, close_reply};
use turnwire_core::{
    DataBlock, ErrorType, Event, EventKind, FinishedReason, ModelCalls, Msg, TextBlock,
    ThinkingBlock, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

fn types(session: &Session) -> Vec<&str> {
    let mut types: Vec<&str> = session.log.iter().map(|event| event.kind.type_name()).collect();
    types.dedup();
    types
}

fn result<'m>(msg: &'m Msg, tool: &str) -> &'m ToolResult {
    msg.blocks::<ToolResult>().find(|result| result.name == tool).unwrap()
}

#[tokio::test(start_paused = true)]
async fn anything_else_gets_thinking_and_an_answer_that_quotes_it() {
    let session = play_scene("Hello there,\nold friend", Answer::Yes).await;
    let msg = session.message();
    assert!(msg.has::<ThinkingBlock>());
    assert!(msg.text("").unwrap().contains("> Hello there,\n> old friend\n"));
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
    assert!(msg.usage().unwrap().output_tokens > 10);
    assert_eq!((msg.name(), msg.id()), ("demo", REPLY));
    assert_eq!(
        types(&session),
        [
            "REPLY_START",
            "MODEL_CALL_START",
            "THINKING_BLOCK_START",
            "THINKING_BLOCK_DELTA",
            "THINKING_BLOCK_END",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "REPLY_END",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn weather_calls_a_tool_that_streams() {
    let session = play_scene("How is the WEATHER?", Answer::Yes).await;
    let msg = session.message();
    let (call, result) = msg.tool_calls().next().unwrap();
    assert_eq!((call.name.as_str(), call.input.as_str()), ("get_weather", r#"{"city":"Paris"}"#));
    assert_eq!(call.rest.get::<String>("title").unwrap().unwrap(), "Look up the weather");
    assert_eq!(result.unwrap().state, ToolResultState::Success);
    let deltas = |kind: &&EventKind<'_>| matches!(kind, EventKind::ToolResultTextDelta(_));
    assert!(session.story().iter().filter(deltas).count() > 5);
    assert!(msg.text("").unwrap().contains("18 °C"));
    let after_the_call = ["TOOL_CALL_END", "MODEL_CALL_END", "TOOL_RESULT_START"];
    assert!(types(&session).windows(3).any(|three| three == after_the_call));
}

#[tokio::test(start_paused = true)]
async fn approve_waits_for_a_decision() {
    let mut session = Session::default();
    session.call(&DemoAgent::with_rate(0.0), "approve").await.unwrap();
    let EventKind::RequireUserConfirm(ask) = &session.log.last().unwrap().kind else { panic!() };
    let call = &ask.tool_calls[0];
    assert_eq!(call.name, "execute_trade");
    assert_eq!(call.input, r#"{"symbol":"ACME","quantity":100}"#);
    assert_eq!(call.suggested_rules[0].tool_name, "execute_trade");
    assert_eq!(session.message().first::<ToolCall>().unwrap().state, ToolCallState::Asking);
    assert!(!session.message().has::<ToolResult>());
}

#[tokio::test(start_paused = true)]
async fn approve_continues_after_yes_after_an_edit_and_after_no() {
    for (answer, state, text) in [
        (Answer::Yes, ToolResultState::Success, "Bought 100 ACME at 12.50 each, 1250.00 in all"),
        (
            Answer::Edit(r#"{"symbol":"INITECH","quantity":3}"#),
            ToolResultState::Success,
            "Bought 3 INITECH at 12.50 each, 37.50 in all",
        ),
        (Answer::Edit(r#"{"symbol":"ACME"}"#), ToolResultState::Error, "missing field `quantity`"),
        (Answer::No, ToolResultState::Denied, "You said no"),
    ] {
        let session = play_scene("approve", answer).await;
        let msg = session.message();
        assert_eq!(result(msg, "execute_trade").state, state);
        assert!(msg.text("").unwrap().contains(text), "{answer:?}: {:?}", msg.text(""));
        assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
        let calls = msg.blocks::<ToolCall>();
        assert!(calls.into_iter().all(|call| call.state == ToolCallState::Finished));
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_runs_the_one_while_the_other_asks() {
    let mut session = Session::default();
    session.call(&DemoAgent::with_rate(0.0), "parallel").await.unwrap();
    let msg = session.message();
    assert_eq!(result(msg, "get_weather").state, ToolResultState::Success);
    let states: Vec<_> = msg.blocks::<ToolCall>().map(|call| call.state.clone()).collect();
    assert_eq!(states, [ToolCallState::Finished, ToolCallState::Asking]);
    let session = play_scene("parallel", Answer::Yes).await;
    let text = session.message().text("").unwrap();
    assert!(text.contains("18 °C") && text.contains("Bought 100 ACME"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn browser_leaves_the_tool_to_the_client() {
    let mut session = Session::default();
    session.call(&DemoAgent::with_rate(0.0), "browser").await.unwrap();
    let EventKind::RequireExternalExecution(ask) = &session.log.last().unwrap().kind else {
        panic!()
    };
    assert_eq!(ask.tool_calls[0].name, "open_page");
    assert_eq!(ask.tool_calls[0].input, r#"{"url":"https://example.com/"}"#);
    let session = play_scene("browser", Answer::Yes).await;
    assert!(session.message().text("").unwrap().contains("> A quiet page."));
    let session = play_scene("browser", Answer::No).await;
    assert!(session.message().text("").unwrap().contains("could not be opened:\n\n> no network"));
}

#[tokio::test(start_paused = true)]
async fn image_is_a_png_in_several_deltas() {
    let session = play_scene("an image, please", Answer::Yes).await;
    let block = session.message().first::<DataBlock>().unwrap();
    assert_eq!(
        (block.media_type(), block.name.as_deref()),
        (Some("image/png"), Some("sunset.png"))
    );
    let deltas = |kind: &&EventKind<'_>| matches!(kind, EventKind::DataBlockDelta(_));
    assert!(session.story().iter().filter(deltas).count() > 3);
    let png = block.decoded().unwrap().unwrap();
    let (signature, mut rest) = png.split_at(8);
    assert_eq!(signature, b"\x89PNG\r\n\x1a\n");
    let mut names = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let (chunk, behind) = rest[4..].split_at(4 + length);
        assert_eq!(behind[..4], crc32fast::hash(chunk).to_be_bytes());
        names.push(chunk[..4].to_vec());
        rest = &behind[4..];
    }
    assert_eq!(names, [b"IHDR", b"IDAT", b"IEND"]);
}

#[tokio::test(start_paused = true)]
async fn team_has_a_sub_agent_with_a_message_of_its_own() {
    let session = play_scene("team", Answer::Yes).await;
    let messages = session.messages();
    assert_eq!(messages.len(), 2);
    let (parent, sub) = (&messages[0], &messages[1]);
    assert_eq!((sub.id(), sub.name()), ("reply-researcher", "researcher"));
    assert_eq!(sub.finished_reason(), Some(&FinishedReason::Completed));
    let (call, result) = parent.tool_calls().next().unwrap();
    assert_eq!(result.unwrap().output.text(""), sub.text("").unwrap());
    assert!(parent.text("").unwrap().contains(&sub.text("").unwrap()));
    for event in &session.log {
        let is_sub = event.reply_id == "reply-researcher";
        assert_eq!(event.is_from_sub_agent(), is_sub);
        if let Some(agent) = &event.agent {
            assert_eq!(agent.agent_path.as_deref(), Some("demo/researcher"));
            assert_eq!(agent.parent_tool_call_id.as_deref(), Some(&*call.id));
        }
    }
    // The sub-agent runs during the call, and ends before the call's result.
    let order = ["TOOL_RESULT_START", "REPLY_START", "MODEL_CALL_START"];
    assert!(types(&session).windows(3).any(|three| three == order));
    let end = ["REPLY_END", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"];
    assert!(types(&session).windows(3).any(|three| three == end));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_sub_agent_and_its_result_are_one_commit() {
    for demo in [DemoAgent::with_rate(0.0), DemoAgent::default()] {
        let mut session = Session::default();
        session.play(&demo, "team", Answer::Yes).await;
        let ends = |event: &Event<'_>| {
            event.is_from_sub_agent() && matches!(event.kind, EventKind::ReplyEnd(_))
        };
        let at = session.log.iter().position(ends).unwrap();
        let mut until = 0;
        let starts: Vec<usize> = session
            .commits
            .iter()
            .map(|commit| {
                until += commit;
                until
            })
            .collect();
        assert!(!starts.contains(&(at + 1)), "a commit ends right behind the sub-agent's end");
    }
}

#[tokio::test(start_paused = true)]
async fn json_has_structured_output() {
    #[derive(serde::Deserialize)]
    struct Known {
        message: String,
        words: usize,
    }
    let session = play_scene("Some JSON, please", Answer::Yes).await;
    let known: Known = session.message().parse_structured_output().unwrap().unwrap();
    assert_eq!((known.message.as_str(), known.words), ("Some JSON, please", 3));
    assert!(session.message().has::<TextBlock>());
}

#[tokio::test(start_paused = true)]
async fn fail_breaks_off_with_a_typed_error() {
    let session = play_scene("fail", Answer::Yes).await;
    let msg = session.message();
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Error));
    assert_eq!(msg.error().unwrap().r#type, ErrorType::Upstream);
    let text = msg.first::<TextBlock>().unwrap();
    assert!(text.finished_at.is_some() && text.text.ends_with("but the"));
    let ends = session.story();
    let EventKind::ModelCallEnd(end) = &ends[ends.len() - 2] else { panic!() };
    assert_eq!((&end.finished_reason, &end.error), (&FinishedReason::Error, &msg.error().cloned()));
}

#[tokio::test(start_paused = true)]
async fn long_has_the_requested_number_of_deltas() {
    for n in [0, 1, 300, 5000] {
        let session = play_scene(&format!("long {n}"), Answer::Yes).await;
        let deltas = |kind: &&EventKind<'_>| matches!(kind, EventKind::TextBlockDelta(_));
        assert_eq!(session.story().iter().filter(deltas).count(), n);
        assert_eq!(session.message().first::<TextBlock>().unwrap().text.len(), 8 * n);
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_a_million_deltas_are_a_million() {
    /// Counts events and keeps none, as the demo does.
    #[derive(Default)]
    struct Counter {
        deltas: usize,
        thinking: String,
    }

    #[async_trait]
    impl Journal for Counter {
        async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
            for event in events {
                match event.kind {
                    EventKind::TextBlockDelta(_) => self.deltas += 1,
                    EventKind::ThinkingBlockDelta(delta) => self.thinking.push_str(&delta.delta),
                    _ => {}
                }
            }
            Ok(())
        }
    }

    let mut counter = Counter::default();
    let request = ReplyRequest::new("session", REPLY, history("long 4000000"));
    DemoAgent::with_rate(0.0).run(request, &mut counter).await.unwrap();
    assert_eq!(counter.deltas, 1_000_000);
    assert!(counter.thinking.contains("1000000 deltas"), "{}", counter.thinking);
}

#[tokio::test(start_paused = true)]
async fn the_same_message_gives_the_same_events() {
    for question in ["hello", "weather", "approve", "parallel", "browser", "image", "team", "json"]
    {
        let (first, second) =
            (play_scene(question, Answer::Yes).await, play_scene(question, Answer::Yes).await);
        assert_eq!(first.log, second.log, "{question}");
        // Another pace changes only the commits.
        let mut slow = Session::default();
        slow.play(&DemoAgent::default(), question, Answer::Yes).await;
        assert_eq!(slow.log, first.log, "{question}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_two_blocks_of_a_session_share_an_id() {
    for question in ["weather", "parallel", "image", "team"] {
        let session = play_scene(question, Answer::Yes).await;
        let messages = session.messages();
        let blocks = messages.iter().flat_map(Msg::content);
        let mut ids: Vec<_> =
            blocks.map(|block| (block.block_type().as_str(), block.id())).collect();
        assert!(ids.iter().all(|(_, id)| id.starts_with(REPLY)));
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_question_gets_an_answer_too() {
    let mut session = Session::default();
    let request = ReplyRequest::new("session", REPLY, Vec::new());
    DemoAgent::with_rate(0.0).run(request, &mut session).await.unwrap();
    assert!(session.message().text("").unwrap().contains("> (nothing)"));
}

#[tokio::test(start_paused = true)]
async fn stopped_anywhere_it_can_be_closed() {
    for question in ["weather", "parallel", "browser", "image", "team"] {
        let whole = play_scene(question, Answer::Yes).await;
        for cut in 1..whole.log.len() {
            let mut session = Session::with_log(&whole.log[..cut]);
            for msg in session.messages() {
                let mut calls = ModelCalls::default();
                let own = session.log.iter().filter(|event| event.reply_id == msg.id());
                own.for_each(|event| calls.observe(event));
                for event in close_reply(&msg, &calls, FinishedReason::Interrupted, None) {
                    session.push(event);
                }
            }
            assert!(session.messages().iter().all(|msg| msg.finished_at().is_some()));
        }
    }
}
