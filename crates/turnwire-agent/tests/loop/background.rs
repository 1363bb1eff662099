//! Tools that continue in the background, and their later results.

use crate::fake_model::{FakeModel, RecordedRequest, find_result};
use crate::harness::Harness;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use turnwire_agent::hints::{HintStore, InMemoryHints};
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, ToolOutput, streaming_function};
use turnwire_agent::{Agent, AgentBuilder};
use turnwire_core::{FinishedReason, HintBlock, Msg, ToolResultState};

#[derive(Deserialize, JsonSchema)]
struct After {
    millis: u64,
}

/// Continues in the background at once, and has its result after this time.
fn agent(model: &Arc<FakeModel>) -> AgentBuilder {
    let search = |After { millis }: After, out: ToolContext| async move {
        let later = out.hint_sender().clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            // The call has ended: this output is dropped.
            out.send_text("too late").await;
            later.send("Found it.").await;
        });
        Ok::<_, ToolError>(ToolOutput::Background("Searching.".to_owned()))
    };
    let slow = |After { millis }: After, _: ToolContext| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok::<_, ToolError>("done")
    };
    Agent::builder("friday", model.clone())
        .tool(streaming_function("search", "Searches", search))
        .tool(streaming_function("slow", "Takes its time", slow))
}

fn call(id: &str, tool: &str, millis: u64) -> ScriptStep {
    ScriptStep::call(id, tool, &format!(r#"{{"millis":{millis}}}"#))
}

fn has_hint(request: &RecordedRequest) -> bool {
    request.messages.iter().any(Msg::has::<HintBlock>)
}

#[tokio::test(start_paused = true)]
async fn a_background_result_during_the_reply_is_part_of_it() {
    let model = FakeModel::new(|request| match request.result_count() {
        0 => vec![call("c", "search", 5)],
        _ if has_hint(request) => vec![ScriptStep::text("There it is.")],
        _ => vec![
            ScriptStep::text("It "),
            ScriptStep::Wait(Duration::from_millis(10)),
            ScriptStep::text("takes."),
        ],
    });
    let mut harness = Harness::new("search");
    harness.run(&agent(&model).build()).await.unwrap();
    let types = harness.types();
    let from_the_result = &types[6..];
    assert_eq!(
        from_the_result,
        [
            "TOOL_RESULT_START",
            "TOOL_RESULT_TEXT_DELTA",
            "TOOL_RESULT_END",
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "HINT_BLOCK",
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "REPLY_END",
        ]
    );
    let reply = harness.reply();
    assert_eq!(find_result(&reply, "c"), (ToolResultState::Running, "Searching.".to_owned()));
    assert_eq!(reply.text("").as_deref(), Some("It takes.There it is."));
    let hint = reply.first::<HintBlock>().unwrap();
    assert!(hint.source.as_deref().unwrap().contains("background_tool"));
}

#[tokio::test(start_paused = true)]
async fn a_late_background_result_waits_for_the_next_reply_of_its_session() {
    let model = FakeModel::new(|request| match request.result_count() {
        0 if request.text().contains("search") => vec![call("c", "search", 60_000)],
        _ if has_hint(request) => vec![ScriptStep::text("Found.")],
        _ => vec![ScriptStep::text("I go on searching.")],
    });
    let friday = agent(&model).build();
    let mut harness = Harness::new("search");
    harness.run(&friday).await.unwrap();
    let first = harness.reply();
    assert_eq!(first.finished_reason(), Some(&FinishedReason::Completed));
    tokio::time::sleep(Duration::from_mins(2)).await;
    // Other sessions, and requests without a session, do not get the result.
    let mut other = friday.reply_in_session("other", [Msg::user("bob", "hi")]);
    while let Some(event) = futures_util::StreamExt::next(&mut other).await {
        assert_ne!(event.unwrap().kind.type_name(), "HINT_BLOCK");
    }
    assert!(!friday.call([Msg::user("bob", "hi")]).await.unwrap().has::<HintBlock>());
    let mut next = Harness::new("and?");
    next.run(&friday).await.unwrap();
    assert_eq!(next.types()[..3], ["REPLY_START", "HINT_BLOCK", "MODEL_CALL_START"]);
    assert_eq!(next.reply().text("").as_deref(), Some("Found."));
    // The result is delivered once.
    let mut last = Harness::new("and now?");
    last.run(&friday).await.unwrap();
    assert!(!last.reply().has::<HintBlock>());
}

#[tokio::test(start_paused = true)]
async fn a_background_result_without_a_session_is_dropped() {
    let model = FakeModel::new(|request| match request.result_count() {
        0 if request.text().contains("search") => vec![call("c", "search", 60_000)],
        _ => vec![ScriptStep::text("Hello.")],
    });
    let friday = agent(&model).build();
    friday.call([Msg::user("ann", "search")]).await.unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    // Without a session id, the next request may belong to another conversation.
    let reply = friday.call([Msg::user("bob", "hi")]).await.unwrap();
    assert!(!reply.has::<HintBlock>());
}

#[tokio::test(start_paused = true)]
async fn a_background_call_emits_nothing_more_while_another_tool_runs() {
    let model = FakeModel::new(|request| match request.result_count() {
        0 => vec![call("a", "search", 5), call("b", "slow", 50)],
        _ => vec![ScriptStep::text("Done.")],
    });
    let mut harness = Harness::new("both");
    harness.run(&agent(&model).build()).await.unwrap();
    let reply = harness.reply();
    assert_eq!(find_result(&reply, "a"), (ToolResultState::Running, "Searching.".to_owned()));
    assert_eq!(find_result(&reply, "b"), (ToolResultState::Success, "done".to_owned()));
    assert!(reply.has::<HintBlock>());
}

#[tokio::test]
async fn a_hint_taken_before_a_crash_is_delivered_once() {
    for dies_after in 0..6 {
        let mailbox = Arc::new(InMemoryHints::default());
        mailbox.post("s", HintBlock::new("Mind the gap.")).await;
        let choose = |request: &RecordedRequest| {
            vec![ScriptStep::text(if has_hint(request) { "I do." } else { "?" })]
        };
        let harness = crate::fake_model::run_to_end(
            Harness::new("go"),
            &|| Agent::builder("friday", FakeModel::new(choose)).hints(mailbox.clone()).build(),
            Some(dies_after),
        )
        .await;
        let reply = harness.reply();
        assert_eq!(reply.blocks::<HintBlock>().count(), 1, "{:?}", harness.types());
        assert_eq!(reply.text("").as_deref(), Some("I do."));
        assert!(mailbox.pending("s").await.is_empty());
    }
}

#[tokio::test]
async fn an_empty_answer_to_a_hint_ends_the_reply() {
    let mailbox = Arc::new(InMemoryHints::default());
    mailbox.post("s", HintBlock::new("Mind the gap.")).await;
    let model = FakeModel::new(|_| Vec::new());
    let friday = Agent::builder("friday", model.clone()).hints(mailbox).build();
    let mut harness = Harness::new("go");
    harness.run(&friday).await.unwrap();
    assert_eq!(model.requests().len(), 1);
    assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Completed));
}
