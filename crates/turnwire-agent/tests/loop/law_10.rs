//! Law 10: the agent eats its own events.

use crate::fake_model::{
    FakeModel, SYSTEM, assert_history_is_fold, assert_history_is_fold_after_crashes,
};
use crate::harness::{Harness, approve, deny};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, ToolOutput, function, streaming_function};
use turnwire_agent::{Agent, AgentError};
use turnwire_core::{DataBlock, ErrorType, FinishedReason, Msg, ToolCall, ToolResult};
use turnwire_testkit::{Rng, check_property, pick};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn agent(model: &Arc<FakeModel>) -> Agent {
    let parts = |_: Nothing, out: ToolContext| async move {
        out.send_text("a picture: ").await;
        out.send_part(DataBlock::bytes(b"\x89PNG", "image/png")).await;
        Ok::<_, ToolError>("that was it")
    };
    let background = |_: Nothing, out: ToolContext| async move {
        out.hint_sender().send("found").await;
        Ok::<_, ToolError>(ToolOutput::Background("searching".to_owned()))
    };
    Agent::builder("friday", model.clone())
        .system(SYSTEM)
        .tool(function("plain", "", async |_: Nothing| Ok::<_, ToolError>("fine")).idempotent())
        .tool(function("fails", "", async |_: Nothing| Err::<(), _>(ToolError::new("no"))))
        .tool(
            function("asks", "", async |_: Nothing| Ok::<_, ToolError>("yes"))
                .requires_approval()
                .exclusive(),
        )
        .tool(streaming_function("parts", "", parts))
        .tool(streaming_function("background", "", background))
        .max_iterations(6)
        .build()
}

fn random_answer(rng: &mut Rng, round: usize) -> Vec<ScriptStep> {
    let mut lines = Vec::new();
    for at in 0..rng.usize(..5) {
        lines.push(match rng.usize(..6) {
            0 => ScriptStep::thinking("Hm."),
            1 | 2 => ScriptStep::Text((0..rng.usize(..4)).map(|word| format!("{word} ")).collect()),
            _ => {
                let tools = ["plain", "fails", "asks", "parts", "background", "unknown"];
                let input = *pick(rng, &["{}", "", "{\"a", "[]"]);
                let tool = *pick(rng, &tools);
                ScriptStep::call(&format!("c{round}-{at}"), tool, input)
            }
        });
    }
    match rng.usize(..12) {
        0 => lines.push(ScriptStep::Fail(ModelError::new(ErrorType::Upstream, "broke off"))),
        1 => lines.push(ScriptStep::End(FinishedReason::Length)),
        2 => lines.push(ScriptStep::End(FinishedReason::Refusal)),
        _ => {}
    }
    lines
}

/// Runs a reply with a random script to its end, with at most one crash.
fn play_random_script(rng: &mut Rng, dies_after: Option<usize>) -> (Harness, Arc<FakeModel>) {
    let rounds: Vec<Vec<ScriptStep>> = (0..8).map(|round| random_answer(rng, round)).collect();
    // The round follows from the request, so that a repeated call has the same output.
    let model = FakeModel::new(move |request| {
        let calls = request.messages.last().into_iter().flat_map(Msg::blocks::<ToolCall>);
        let round = calls.filter_map(|call| call.id[1..].split('-').next()?.parse::<usize>().ok());
        rounds.get(round.max().map_or(0, |round| round + 1)).cloned().unwrap_or_default()
    });
    let mut harness = Harness::new("go");
    harness.history.insert(0, Msg::assistant("friday", ToolResult::success("lost", "x")));
    harness.crash_after_commits = dies_after;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for _ in 0..40 {
            if harness.reply().finished_at().is_some() {
                return;
            }
            match harness.run(&agent(&model)).await {
                Ok(()) => {
                    let says_yes = rng.bool();
                    harness.confirm_all(if says_yes { approve } else { deny });
                }
                Err(AgentError::LogLost(_)) => harness.crash_after_commits = None,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("it does not end: {:?}", harness.types());
    });
    (harness, model)
}

#[test]
fn law_10_the_agent_eats_its_own_events() {
    check_property("law_10", 150, |rng| {
        let (harness, model) = play_random_script(rng, None);
        assert_history_is_fold(&harness, &model);
    });
}

#[test]
fn law_10_the_agent_eats_its_own_events_after_a_crash() {
    check_property("law_10_crash", 150, |rng| {
        let dies_after = rng.usize(..15);
        let (harness, model) = play_random_script(rng, Some(dies_after));
        assert_history_is_fold_after_crashes(&harness, &model);
    });
}
