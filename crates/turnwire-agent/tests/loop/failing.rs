//! Models that fail, endless rounds, and crashes: the exact sequence of events.

use crate::fake_model::{
    FakeModel, assert_history_is_fold, assert_history_is_fold_after_crashes, expand_sequence,
    find_result,
};
use crate::harness::Harness;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::tool::{ToolContext, ToolError, function, streaming_function};
use turnwire_agent::{Agent, AgentError, CallError};
use turnwire_core::{ErrorType, EventKind, FinishedReason, Msg, ToolResultState};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn agent(model: &Arc<FakeModel>) -> Agent {
    let tool = |name: &str| {
        streaming_function(name, "", |_: Nothing, out: ToolContext| async move {
            out.send_text("half").await;
            Ok::<_, ToolError>("")
        })
    };
    Agent::builder("friday", model.clone())
        .tool(tool("once"))
        .tool(tool("again").idempotent())
        .max_iterations(2)
        .build()
}

fn call(id: &str, tool: &str) -> ScriptStep {
    ScriptStep::call(id, tool, "{}")
}

#[tokio::test]
async fn a_model_that_fails() {
    let fails = || ScriptStep::Fail(ModelError::new(ErrorType::RateLimit, "too many"));
    for (lines, script) in [
        (vec![fails()], "REPLY_START MODEL_CALL_START MODEL_CALL_END REPLY_END"),
        (
            vec![ScriptStep::text("Let me"), fails()],
            "REPLY_START MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END",
        ),
        // A call of a failed model call may be incomplete.
        (
            vec![call("c", "once"), fails()],
            "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END RESULT REPLY_END",
        ),
    ] {
        let model = FakeModel::new(move |_| lines.clone());
        let mut harness = Harness::new("go");
        harness.run(&agent(&model)).await.unwrap();
        assert_eq!(harness.types(), expand_sequence(script));
        assert_history_is_fold(&harness, &model);
        let reply = harness.reply();
        assert_eq!(reply.finished_reason(), Some(&FinishedReason::Error));
        let error = reply.error().unwrap();
        assert_eq!((&error.r#type, error.message.as_str()), (&ErrorType::RateLimit, "too many"));
        let interrupted = |state: &ToolResultState| *state == ToolResultState::Interrupted;
        assert!(reply.tool_calls().all(|(_, result)| interrupted(&result.unwrap().state)));
    }
}

#[tokio::test]
async fn a_model_that_goes_round_and_round() {
    let round = "MODEL_CALL_START CALL MODEL_CALL_END TOOL_RESULT_START TOOL_RESULT_TEXT_DELTA \
         TOOL_RESULT_END";
    // The last model call gets no tools, and the reply ends whatever the model returns.
    for (listens, last) in [(true, "MODEL_CALL_START WORDS MODEL_CALL_END"), (false, round)] {
        let model = FakeModel::new(move |request| match request.result_count() {
            2 if listens => vec![ScriptStep::text("Enough.")],
            rounds => vec![call(&format!("c{rounds}"), "once")],
        });
        let mut harness = Harness::new("go");
        harness.run(&agent(&model)).await.unwrap();
        let script = format!("REPLY_START {round} {round} {last} EXCEED_MAX_ITERS REPLY_END");
        assert_eq!(harness.types(), expand_sequence(&script));
        assert_history_is_fold(&harness, &model);
        assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::ExceedMaxIters));
        assert!(model.requests()[2].tools.is_empty());
    }
}

/// Crashes after this many commits, and continues in a new process.
async fn crashed(lines: Vec<ScriptStep>, dies_after: usize) -> Harness {
    let model = FakeModel::new(move |request| match request.result_count() {
        0 => lines.clone(),
        _ => vec![ScriptStep::text("Well.")],
    });
    let mut harness = Harness::new("go");
    harness.crash_after_commits = Some(dies_after);
    assert!(matches!(harness.run(&agent(&model)).await, Err(AgentError::LogLost(_))));
    harness.crash_after_commits = None;
    harness.run(&agent(&model)).await.unwrap();
    assert_history_is_fold_after_crashes(&harness, &model);
    assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Completed));
    harness
}

#[tokio::test]
async fn a_process_that_dies_while_the_model_speaks() {
    // Committed: the starts of the reply, of the model call and of the text, and one delta.
    let harness = crashed(vec![ScriptStep::text("Hello.")], 4).await;
    let script = "REPLY_START MODEL_CALL_START WORDS MODEL_CALL_END \
         MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END";
    assert_eq!(harness.types(), expand_sequence(script));
    // The text of the interrupted call is discarded, and appears once.
    let end = harness.events.iter().find_map(|event| match &event.kind {
        EventKind::ModelCallEnd(end) => Some(end.clone()),
        _ => None,
    });
    let end = end.unwrap();
    assert_eq!(end.finished_reason, FinishedReason::Interrupted);
    assert_eq!(end.discard.len(), 1);
    assert_eq!(harness.reply().text("|").as_deref(), Some("Hello."));
}

#[tokio::test]
async fn a_process_that_dies_in_a_tool() {
    // After the start of the reply, five events of the model, and the start of the result.
    for (tool, state, output) in [
        ("once", ToolResultState::Interrupted, "interrupted"),
        ("again", ToolResultState::Success, "half"),
    ] {
        let harness = crashed(vec![call("c", tool)], 7).await;
        let script = "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END RESULT \
             MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END";
        assert_eq!(harness.types(), expand_sequence(script), "{tool}");
        assert_eq!(find_result(&harness.reply(), "c"), (state, output.to_owned()));
    }
}

#[tokio::test]
async fn a_call_whose_reply_fails_or_waits_is_an_error_with_the_reply() {
    let broken = ModelError::new(ErrorType::Upstream, "broke off");
    let model = ScriptedModel::new([vec![ScriptStep::text("So far."), ScriptStep::Fail(broken)]]);
    let failing = Agent::builder("friday", model).build();
    let asks = function("asks", "", async |_: Nothing| Ok::<_, ToolError>("")).requires_approval();
    let model = ScriptedModel::new([vec![call("c", "asks")]]);
    let waiting = Agent::builder("friday", model).tool(asks).build();
    for (agent, expected) in [(failing, "broke off"), (waiting, "waits for an approval")] {
        let error = agent.call([Msg::user("ann", "go")]).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let CallError::Failed { reply, .. } = error else { panic!("{error}") };
        assert!(!reply.content().is_empty());
    }
}
