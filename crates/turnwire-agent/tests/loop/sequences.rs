//! The exact sequence of emitted events.

use crate::harness::{Harness, approve, deny};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::permission::{Pattern, Rule};
use turnwire_agent::tool::{ToolContext, ToolError, function, streaming_function};
use turnwire_agent::{Agent, AgentBuilder, ClientContext, ClientTool};
use turnwire_core::event::ConfirmResult;
use turnwire_core::{
    Behavior, ErrorType, FinishedReason, Msg, ToolCall, ToolResult, ToolResultState,
};

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

fn agent(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> AgentBuilder {
    Agent::builder("friday", ScriptedModel::new(answers))
        .tool(streaming_function(
            "weather",
            "The weather",
            async |City { city }: City, out: ToolContext| {
                out.send_text(format!("{city}: ")).await;
                Ok::<_, ToolError>("sunny")
            },
        ))
        .tool(
            function("trade", "Buys", async |_: City| Ok::<_, ToolError>("bought"))
                .requires_approval(),
        )
        .tool(function("broken", "Panics", async |_: City| -> Result<(), ToolError> {
            panic!("on purpose")
        }))
        .tool(
            function("slow", "Takes long", async |_: City| {
                tokio::time::sleep(Duration::from_hours(1)).await;
                Ok::<_, ToolError>("late")
            })
            .time_limit(Duration::from_millis(10)),
        )
}

fn call(id: &str, tool: &str) -> ScriptStep {
    ScriptStep::call(id, tool, r#"{"city":"Paris"}"#)
}

fn result(reply: &Msg, id: &str) -> (ToolResultState, String) {
    let (_, result) = reply.tool_calls().find(|(call, _)| call.id == id).unwrap();
    let result = result.unwrap();
    (result.state.clone(), result.output.text(""))
}

#[tokio::test]
async fn plain_words() {
    let friday = agent([vec![ScriptStep::thinking("Hm."), ScriptStep::text("Hello.")]]).build();
    let mut harness = Harness::new("hi");
    harness.run(&friday).await.unwrap();
    assert_eq!(
        harness.types(),
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
    assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Completed));
}

#[tokio::test]
async fn a_tool_is_run_and_the_model_reads_its_result() {
    let friday = agent([vec![call("c", "weather")], vec![ScriptStep::text("Sunny.")]]).build();
    let mut harness = Harness::new("weather?");
    harness.run(&friday).await.unwrap();
    assert_eq!(
        harness.types(),
        [
            "REPLY_START",
            "MODEL_CALL_START",
            "TOOL_CALL_START",
            "TOOL_CALL_DELTA",
            "TOOL_CALL_END",
            "MODEL_CALL_END",
            "TOOL_RESULT_START",
            "TOOL_RESULT_TEXT_DELTA",
            "TOOL_RESULT_TEXT_DELTA",
            "TOOL_RESULT_END",
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "REPLY_END",
        ]
    );
    let reply = harness.reply();
    assert_eq!(result(&reply, "c"), (ToolResultState::Success, "Paris: sunny".to_owned()));
    assert_eq!(reply.text("").as_deref(), Some("Sunny."));
}

#[tokio::test]
async fn a_pending_approval_waits_and_each_decision_continues_the_reply() {
    type Decide = fn(ToolCall) -> ConfirmResult;
    let edit: Decide = |mut call| {
        call.input = r#"{"city":"Rome"}"#.to_owned();
        approve(call)
    };
    for (decide, state) in [
        (approve as Decide, ToolResultState::Success),
        (deny, ToolResultState::Denied),
        (edit, ToolResultState::Success),
    ] {
        let friday = agent([vec![call("c", "trade")], vec![ScriptStep::text("Done.")]]).build();
        let mut harness = Harness::new("trade");
        harness.run(&friday).await.unwrap();
        assert_eq!(harness.types().last().unwrap(), "REQUIRE_USER_CONFIRM");
        // Without an answer nothing happens.
        let before = harness.events.len();
        harness.run(&friday).await.unwrap();
        assert_eq!(harness.events.len(), before);
        assert!(harness.confirm_all(decide));
        harness.run(&friday).await.unwrap();
        let reply = harness.reply();
        assert_eq!(result(&reply, "c").0, state);
        assert_eq!(reply.text("").as_deref(), Some("Done."));
    }
}

#[tokio::test]
async fn two_questions_at_once_are_both_kept_and_others_run_beside_them() {
    let calls = vec![call("a", "trade"), call("w", "weather"), call("b", "trade")];
    let friday = agent([calls, vec![ScriptStep::text("Done.")]]).build();
    let mut harness = Harness::new("trade");
    harness.run(&friday).await.unwrap();
    assert_eq!(result(&harness.reply(), "w").0, ToolResultState::Success);
    let mut call_ids = Vec::new();
    harness.confirm_all(|call| {
        call_ids.push(call.id.clone());
        if call.id == "a" { approve(call) } else { deny(call) }
    });
    assert_eq!(call_ids, ["a", "b"]);
    harness.run(&friday).await.unwrap();
    let reply = harness.reply();
    assert_eq!(result(&reply, "a").0, ToolResultState::Success);
    assert_eq!(result(&reply, "b").0, ToolResultState::Denied);
    assert!(reply.finished_at().is_some());
}

#[tokio::test]
async fn always_allow_is_remembered() {
    let friday = agent([
        vec![call("a", "trade")],
        vec![call("b", "trade")],
        vec![ScriptStep::text("Done.")],
    ])
    .build();
    let mut harness = Harness::new("trade");
    harness.run(&friday).await.unwrap();
    harness.confirm_all(|call| ConfirmResult {
        rules: Some(call.suggested_rules.clone()),
        ..approve(call)
    });
    harness.run(&friday).await.unwrap();
    assert_eq!(harness.reply().text("").as_deref(), Some("Done."));
}

#[tokio::test]
async fn a_rule_that_denies_wins_over_an_edit() {
    let friday = agent([vec![call("c", "trade")], vec![ScriptStep::text("Done.")]])
        .permissions([Rule::new("trade", Behavior::Deny).input("city", Pattern::exact("Rome"))])
        .build();
    let mut harness = Harness::new("trade");
    harness.run(&friday).await.unwrap();
    harness.confirm_all(|mut call| {
        call.input = r#"{"city":"Rome"}"#.to_owned();
        approve(call)
    });
    harness.run(&friday).await.unwrap();
    assert_eq!(result(&harness.reply(), "c").0, ToolResultState::Denied);
}

#[tokio::test]
async fn a_tool_of_the_client_waits_for_its_result() {
    let friday = agent([vec![call("c", "open_page")], vec![ScriptStep::text("Seen.")]]).build();
    let mut harness = Harness::new("browse");
    let tool = ClientTool { name: "open_page".to_owned(), ..ClientTool::default() };
    let context = ClientContext { tools: vec![tool], ..ClientContext::default() };
    harness.history = harness.history.into_iter().map(|msg| context.attach_to(msg)).collect();
    harness.run(&friday).await.unwrap();
    let types = harness.types();
    assert_eq!(types[types.len() - 2..], ["MODEL_CALL_END", "REQUIRE_EXTERNAL_EXECUTION"]);
    assert!(harness.execute_client_calls(|call| {
        ToolResult::success(call.id.as_str(), "a page").named("open_page")
    }));
    harness.run(&friday).await.unwrap();
    let reply = harness.reply();
    assert_eq!(result(&reply, "c").1, "a page");
    assert_eq!(reply.text("").as_deref(), Some("Seen."));
}

#[tokio::test]
async fn the_model_gets_the_reason_of_an_invalid_call() {
    let friday = agent([
        vec![
            call("unknown", "nothing"),
            ScriptStep::call("no-json", "weather", "{\"city\":"),
            ScriptStep::call("no-object", "weather", "[]"),
            ScriptStep::call("no-field", "weather", "{}"),
            call("panics", "broken"),
            call("late", "slow"),
        ],
        vec![ScriptStep::text("Sorry.")],
    ])
    .build();
    let mut harness = Harness::new("hi");
    harness.run(&friday).await.unwrap();
    let reply = harness.reply();
    for id in ["unknown", "no-json", "no-object", "no-field", "panics", "late"] {
        let (state, why) = result(&reply, id);
        assert_eq!(state, ToolResultState::Error, "{id}");
        assert!(!why.is_empty(), "{id}");
    }
    assert_eq!(reply.text("").as_deref(), Some("Sorry."));
}

#[tokio::test]
async fn a_failing_model_ends_the_reply_and_keeps_its_text() {
    let error = ModelError::new(ErrorType::Upstream, "overloaded");
    for lines in [
        vec![ScriptStep::Fail(error.clone())],
        vec![ScriptStep::text("Let me"), ScriptStep::Fail(error.clone())],
        vec![call("c", "weather"), ScriptStep::Fail(error.clone())],
    ] {
        let friday = agent([lines.clone()]).build();
        let mut harness = Harness::new("hi");
        harness.run(&friday).await.unwrap();
        let reply = harness.reply();
        assert_eq!(reply.finished_reason(), Some(&FinishedReason::Error), "{lines:?}");
        assert_eq!(reply.error().unwrap().r#type, ErrorType::Upstream);
    }
}

#[tokio::test]
async fn after_the_last_allowed_round_the_model_gets_no_tools() {
    let round = |id: &str| vec![call(id, "weather")];
    let friday = agent([round("a"), round("b"), vec![ScriptStep::text("Enough.")], round("c")])
        .max_iterations(2)
        .build();
    let mut harness = Harness::new("hi");
    harness.run(&friday).await.unwrap();
    let reply = harness.reply();
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::ExceedMaxIters));
    assert_eq!(reply.text("").as_deref(), Some("Enough."));
    assert!(harness.types().contains(&"EXCEED_MAX_ITERS".to_owned()));
}
