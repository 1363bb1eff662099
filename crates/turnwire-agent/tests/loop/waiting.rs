//! Approvals and client-side calls: the exact sequence of events.

use crate::fake_model::{FakeModel, assert_history_is_fold, expand_sequence, find_result};
use crate::harness::{Harness, approve, deny};
use crate::subagents::open_page;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::permission::Rule;
use turnwire_agent::tool::{ToolError, function};
use turnwire_agent::{Agent, AgentError};
use turnwire_core::event::{ConfirmResult, UserConfirmResult};
use turnwire_core::{
    Behavior, Event, EventKind, FinishedReason, ToolCall, ToolCallState, ToolResult,
    ToolResultState,
};

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

fn agent(model: &Arc<FakeModel>) -> Agent {
    let weather = async |City { city }: City| Ok::<_, ToolError>(format!("{city}: sunny"));
    let trade = async |City { city }: City| Ok::<_, ToolError>(format!("bought in {city}"));
    Agent::builder("friday", model.clone())
        .tool(function("weather", "", weather))
        .tool(function("trade", "", trade).requires_approval())
        .tool(function("forbidden", "", trade))
        .tool(open_page())
        .permissions([Rule::new("forbidden", Behavior::Deny)])
        .build()
}

fn call(id: &str, tool: &str) -> ScriptStep {
    ScriptStep::call(id, tool, r#"{"city":"Paris"}"#)
}

/// Runs a reply in which the model makes these calls, and then says "Well.", until it waits or ends.
async fn run_until_pending(calls: &[(&str, &str)]) -> (Harness, Arc<FakeModel>, Agent) {
    let lines: Vec<ScriptStep> = calls.iter().map(|(id, tool)| call(id, tool)).collect();
    let model = FakeModel::new(move |request| match request.result_count() {
        0 => lines.clone(),
        _ => vec![ScriptStep::text("Well.")],
    });
    let friday = agent(&model);
    let mut harness = Harness::new("go");
    harness.run(&friday).await.unwrap();
    (harness, model, friday)
}

/// Continues, and compares all events.
async fn assert_continues(harness: &mut Harness, model: &FakeModel, friday: &Agent, script: &str) {
    harness.run(friday).await.unwrap();
    assert_eq!(harness.types(), expand_sequence(script));
    assert_history_is_fold(harness, model);
}

#[tokio::test]
async fn a_yes_a_no_and_another_input() {
    type Decide = fn(ToolCall) -> ConfirmResult;
    let edit: Decide = |mut call| {
        call.input = r#"{"city":"Rome"}"#.to_owned();
        approve(call)
    };
    for (decide, state, output) in [
        (approve as Decide, ToolResultState::Success, "bought in Paris"),
        (edit, ToolResultState::Success, "bought in Rome"),
        (deny, ToolResultState::Denied, "This call was not allowed."),
    ] {
        let (mut harness, model, friday) = run_until_pending(&[("c", "trade")]).await;
        assert_eq!(
            harness.types(),
            expand_sequence(
                "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END REQUIRE_USER_CONFIRM"
            )
        );
        harness.confirm_all(decide);
        let script = "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END REQUIRE_USER_CONFIRM \
             USER_CONFIRM_RESULT RESULT MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END";
        assert_continues(&mut harness, &model, &friday, script).await;
        assert_eq!(find_result(&harness.reply(), "c"), (state, output.to_owned()));
    }
}

#[tokio::test]
async fn the_model_gets_the_reason_of_a_denied_call() {
    let (harness, model, _) = run_until_pending(&[("c", "forbidden")]).await;
    assert_history_is_fold(&harness, &model);
    let script = "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END RESULT \
         MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END";
    assert_eq!(harness.types(), expand_sequence(script));
    assert_eq!(find_result(&harness.reply(), "c").0, ToolResultState::Denied);
}

/// Decides one pending call, and leaves the others.
fn answer_one(harness: &mut Harness, id: &str) {
    let reply = harness.reply();
    let call = reply.blocks::<ToolCall>().find(|call| call.id == id).unwrap();
    let confirm_results = vec![approve(call.clone())];
    let event = Event::new(crate::harness::REPLY, UserConfirmResult { confirm_results });
    harness.events.push(event.stamped(&turnwire_core::stamp::SystemStamp));
}

#[tokio::test]
async fn parallel_approvals_are_requested_at_once_and_decided_once() {
    let (mut harness, model, friday) =
        run_until_pending(&[("a", "trade"), ("w", "weather"), ("b", "trade")]).await;
    let before = "REPLY_START MODEL_CALL_START CALL CALL CALL MODEL_CALL_END TOOL_RESULT_START \
         REQUIRE_USER_CONFIRM TOOL_RESULT_TEXT_DELTA TOOL_RESULT_END";
    assert_eq!(harness.types(), expand_sequence(before));
    answer_one(&mut harness, "b");
    harness.run(&friday).await.unwrap();
    // The other call still waits, and the model is not called.
    let one = format!("{before} USER_CONFIRM_RESULT RESULT");
    assert_eq!(harness.types(), expand_sequence(&one));
    assert_eq!(model.requests().len(), 1);
    // A second decision on the first call changes nothing.
    answer_one(&mut harness, "b");
    harness.run(&friday).await.unwrap();
    let twice = format!("{one} USER_CONFIRM_RESULT");
    assert_eq!(harness.types(), expand_sequence(&twice));
    harness.confirm_all(deny);
    let all = format!(
        "{twice} USER_CONFIRM_RESULT RESULT MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END"
    );
    assert_continues(&mut harness, &model, &friday, &all).await;
    let states: Vec<_> =
        ["a", "w", "b"].map(|id| find_result(&harness.reply(), id).0).into_iter().collect();
    let (denied, success) = (ToolResultState::Denied, ToolResultState::Success);
    assert_eq!(states, [denied, success.clone(), success]);
}

#[tokio::test]
async fn a_client_side_result_continues_the_call() {
    let (mut harness, model, friday) =
        run_until_pending(&[("p", "open_page"), ("w", "weather")]).await;
    let before = "REPLY_START MODEL_CALL_START CALL CALL MODEL_CALL_END TOOL_RESULT_START \
         REQUIRE_EXTERNAL_EXECUTION TOOL_RESULT_TEXT_DELTA TOOL_RESULT_END";
    assert_eq!(harness.types(), expand_sequence(before));
    harness.execute_client_calls(|call| {
        ToolResult::success(call.id.as_str(), "a page").named("open_page")
    });
    let after = format!(
        "{before} EXTERNAL_EXECUTION_RESULT MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END"
    );
    assert_continues(&mut harness, &model, &friday, &after).await;
    assert_eq!(find_result(&harness.reply(), "p").1, "a page");
}

#[tokio::test]
async fn stopped_while_it_waits_for_both() {
    let (mut harness, model, friday) =
        run_until_pending(&[("c", "trade"), ("p", "open_page")]).await;
    harness.stop.cancel();
    // A waiting reply can be stopped without its agent. A later stop does nothing.
    harness.close();
    harness.run(&friday).await.unwrap();
    let script = "REPLY_START MODEL_CALL_START CALL CALL MODEL_CALL_END \
         REQUIRE_EXTERNAL_EXECUTION REQUIRE_USER_CONFIRM RESULT RESULT REPLY_END";
    assert_eq!(harness.types(), expand_sequence(script));
    assert_history_is_fold(&harness, &model);
    let reply = harness.reply();
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
    for (call, result) in reply.tool_calls() {
        assert_eq!(call.state, ToolCallState::Finished);
        assert_eq!(result.unwrap().state, ToolResultState::Interrupted);
    }
}

#[tokio::test]
async fn a_question_is_not_forgotten_by_a_process_that_dies() {
    let (mut harness, model, _) = run_until_pending(&[("c", "trade")]).await;
    // A new process finds the pending call in the log, and does not ask again.
    let asks = harness.events.len();
    harness.run(&agent(&model)).await.unwrap();
    assert_eq!(harness.events.len(), asks);
    harness.confirm_all(approve);
    harness.crash_after_commits = Some(3);
    assert!(matches!(harness.run(&agent(&model)).await, Err(AgentError::LogLost(_)) | Ok(())));
    harness.crash_after_commits = None;
    harness.run(&agent(&model)).await.unwrap();
    let answers =
        harness.events.iter().filter(|it| matches!(it.kind, EventKind::UserConfirmResult(_)));
    assert_eq!(answers.count(), 1);
    assert!(harness.reply().finished_at().is_some());
}

#[tokio::test]
async fn nobody_is_asked_about_an_input_that_does_not_match_the_schema() {
    let model = FakeModel::new(|request| match request.result_count() {
        0 => vec![ScriptStep::call("t1", "trade", r#"{"town":"Paris"}"#)],
        1 => vec![call("t2", "trade")],
        _ => vec![ScriptStep::text("Well.")],
    });
    let friday = agent(&model);
    let mut harness = Harness::new("go");
    harness.run(&friday).await.unwrap();
    let (state, text) = find_result(&harness.reply(), "t1");
    assert_eq!(state, ToolResultState::Error);
    assert!(text.contains("does not match the schema") && text.contains("city"), "{text}");
    // The model has corrected it, and only that call is asked about.
    let mut asked = Vec::new();
    harness.confirm_all(|call| {
        asked.push(call.id.clone());
        approve(call)
    });
    assert_eq!(asked, ["t2"]);
    harness.run(&friday).await.unwrap();
    assert_eq!(find_result(&harness.reply(), "t2").1, "bought in Paris");
    assert_history_is_fold(&harness, &model);
}
