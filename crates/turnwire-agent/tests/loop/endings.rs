//! All endings of replies and calls: the exact sequence of events.

use crate::fake_model::{FakeModel, assert_history_is_fold, expand_sequence, find_result};
use crate::harness::Harness;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, function, streaming_function};
use turnwire_agent::{Agent, AgentError};
use turnwire_core::{
    DataBlock, EventKind, FinishedReason, Part, Payload, ToolResult, ToolResultState,
};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn agent(model: &Arc<FakeModel>) -> Agent {
    let limited = |_: Nothing| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Ok::<_, ToolError>("late")
    };
    let slow = |_: Nothing, out: ToolContext| async move {
        for word in ["one ", "two ", "three"] {
            tokio::time::sleep(Duration::from_secs(1)).await;
            out.send_text(word).await;
        }
        Ok::<_, ToolError>(())
    };
    let picture = |_: Nothing| async {
        Ok::<_, ToolError>(vec![Part::from("Look:"), DataBlock::bytes(PNG, "image/png").into()])
    };
    let huge = |_: Nothing| async { Ok::<_, ToolError>(format!("head{}tail", "x".repeat(60_000))) };
    Agent::builder("friday", model.clone())
        .tool(function("limited", "", limited).time_limit(Duration::from_secs(1)))
        .tool(function("forever", "", limited))
        .tool(function("asks", "", async |_: Nothing| Ok::<_, ToolError>("")).requires_approval())
        .tool(streaming_function("slow", "", slow))
        .tool(function("picture", "", picture))
        .tool(function("huge", "", huge))
        .build()
}

/// A model that plays these steps, and then says "Well.".
fn model_saying(lines: Vec<ScriptStep>) -> Arc<FakeModel> {
    FakeModel::new(move |request| match request.result_count() {
        0 => lines.clone(),
        _ => vec![ScriptStep::text("Well.")],
    })
}

/// Runs such a reply, and returns it with the types of its events.
async fn event_types(lines: Vec<ScriptStep>) -> (Harness, Vec<String>) {
    let mut harness = Harness::new("go");
    let model = model_saying(lines);
    harness.run(&agent(&model)).await.unwrap();
    assert_history_is_fold(&harness, &model);
    let types = harness.types();
    (harness, types)
}

/// A reply with one call and this result.
fn a_call(results: &str) -> String {
    format!(
        "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END TOOL_RESULT_START {results} \
         TOOL_RESULT_END MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END"
    )
}

#[tokio::test]
async fn a_model_that_stops_early_ends_the_reply_with_the_reason() {
    for reason in [
        FinishedReason::Refusal,
        FinishedReason::Length,
        FinishedReason::ContentFilter,
        FinishedReason::Truncated,
    ] {
        let (harness, types) =
            event_types(vec![ScriptStep::text("I "), ScriptStep::End(reason.clone())]).await;
        assert_eq!(
            types,
            expand_sequence("REPLY_START MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END")
        );
        assert_eq!(harness.reply().finished_reason(), Some(&reason));
    }
}

#[tokio::test]
async fn a_call_of_a_model_that_declined_is_not_made() {
    let lines = vec![ScriptStep::call("c", "huge", "{}"), ScriptStep::End(FinishedReason::Refusal)];
    let (harness, types) = event_types(lines).await;
    let expected =
        expand_sequence("REPLY_START MODEL_CALL_START CALL MODEL_CALL_END RESULT REPLY_END");
    assert_eq!(types, expected);
    assert_eq!(find_result(&harness.reply(), "c").0, ToolResultState::Interrupted);
}

/// Runs a reply that is stopped after a while.
async fn stopped(lines: Vec<ScriptStep>) -> Harness {
    let mut harness = Harness::new("go");
    let stop = harness.stop.clone();
    let model = model_saying(lines);
    let friday = agent(&model);
    let (ended, ()) = tokio::join!(harness.run(&friday), async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        stop.cancel();
    });
    assert_eq!(ended, Err(AgentError::Stopped));
    harness.close();
    assert_history_is_fold(&harness, &model);
    let reply = harness.reply();
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
    harness
}

#[tokio::test(start_paused = true)]
async fn stopped_in_the_model() {
    let wait = ScriptStep::Wait(Duration::from_hours(1));
    let harness = stopped(vec![ScriptStep::text("Let me"), wait, ScriptStep::text("see")]).await;
    let expected = expand_sequence("REPLY_START MODEL_CALL_START WORDS MODEL_CALL_END REPLY_END");
    assert_eq!(harness.types(), expected);
    assert_eq!(harness.calls().open_blocks, None);
    assert_eq!(harness.reply().text("").as_deref(), Some("Let me"));
}

#[tokio::test(start_paused = true)]
async fn stopped_in_a_tool() {
    let harness = stopped(vec![ScriptStep::call("c", "forever", "{}")]).await;
    let expected =
        expand_sequence("REPLY_START MODEL_CALL_START CALL MODEL_CALL_END RESULT REPLY_END");
    assert_eq!(harness.types(), expected);
    assert_eq!(find_result(&harness.reply(), "c").0, ToolResultState::Interrupted);
}

#[tokio::test]
async fn stopped_while_it_waits() {
    let (mut harness, _) = event_types(vec![ScriptStep::call("c", "asks", "{}")]).await;
    harness.close();
    let expected = expand_sequence(
        "REPLY_START MODEL_CALL_START CALL MODEL_CALL_END REQUIRE_USER_CONFIRM RESULT REPLY_END",
    );
    assert_eq!(harness.types(), expected);
    assert_eq!(find_result(&harness.reply(), "c").0, ToolResultState::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long() {
    let (harness, types) = event_types(vec![ScriptStep::call("c", "limited", "{}")]).await;
    assert_eq!(types, expand_sequence(&a_call("TOOL_RESULT_TEXT_DELTA")));
    let (state, why) = find_result(&harness.reply(), "c");
    assert_eq!(state, ToolResultState::Error);
    assert!(why.contains("1s"), "{why}");
}

#[tokio::test]
async fn an_unknown_tool_and_an_input_that_is_not_json_are_errors() {
    for (tool, input, why) in [("nothing", "{}", "no tool"), ("huge", "{\"a\":", "not JSON")] {
        let (harness, types) = event_types(vec![ScriptStep::call("c", tool, input)]).await;
        assert_eq!(types, expand_sequence(&a_call("TOOL_RESULT_TEXT_DELTA")));
        let (state, output) = find_result(&harness.reply(), "c");
        assert_eq!(state, ToolResultState::Error);
        assert!(output.contains(why), "{output}");
    }
}

#[tokio::test]
async fn a_huge_result_is_whole_in_the_log_and_cut_for_the_model() {
    let model = model_saying(vec![ScriptStep::call("c", "huge", "{}")]);
    let mut harness = Harness::new("go");
    harness.run(&agent(&model)).await.unwrap();
    assert_eq!(harness.types(), expand_sequence(&a_call("TOOL_RESULT_TEXT_DELTA")));
    assert_eq!(find_result(&harness.reply(), "c").1.len(), 60_008);
    let sent = find_result(model.requests()[1].messages.last().unwrap(), "c").1;
    assert!(sent.starts_with("head") && sent.ends_with("tail"));
    assert!(sent.contains("[10008 characters were left out here]"));
    assert!(sent.len() < 50_100);
}

#[tokio::test]
async fn a_binary_result_passes_through() {
    let model = model_saying(vec![ScriptStep::call("c", "picture", "{}")]);
    let mut harness = Harness::new("go");
    harness.run(&agent(&model)).await.unwrap();
    assert_eq!(
        harness.types(),
        expand_sequence(&a_call("TOOL_RESULT_TEXT_DELTA TOOL_RESULT_DATA_DELTA"))
    );
    assert_history_is_fold(&harness, &model);
    for msg in [&harness.reply(), model.requests()[1].messages.last().unwrap()] {
        let Payload::Parts(parts) = &msg.first::<ToolResult>().unwrap().output else {
            panic!("parts")
        };
        let Part::Data(block) = &parts[1] else { panic!("data") };
        assert_eq!(block.decoded().unwrap().unwrap(), PNG);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_result_comes_piece_by_piece() {
    let (harness, types) = event_types(vec![ScriptStep::call("c", "slow", "{}")]).await;
    assert_eq!(types, expand_sequence(&a_call(&"TOOL_RESULT_TEXT_DELTA ".repeat(3))));
    let pieces = harness.events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResultTextDelta(delta) => Some(delta.delta.as_ref()),
        _ => None,
    });
    assert_eq!(pieces.collect::<Vec<_>>(), ["one ", "two ", "three"]);
}
