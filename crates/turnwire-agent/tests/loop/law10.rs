//! Law 10: the agent eats its own events.

use crate::house::{House, no, yes};
use crate::kit::{SYSTEM, Told, law_10, law_10_after_crashes};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::Line;
use turnwire_agent::tool::{Given, Out, ToolError, function, streaming};
use turnwire_agent::{Agent, Halt};
use turnwire_core::{DataBlock, ErrorType, FinishedReason, Msg, ToolCall, ToolResult};
use turnwire_testkit::{Rng, check_property, pick};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn agent(model: &Arc<Told>) -> Agent {
    let parts = |_: Nothing, out: Out| async move {
        out.text("a picture: ").await;
        out.part(DataBlock::bytes(b"\x89PNG", "image/png")).await;
        Ok::<_, ToolError>("that was it")
    };
    let background = |_: Nothing, out: Out| async move {
        out.later().hint("found").await;
        Ok::<_, ToolError>(Given::Background("searching".to_owned()))
    };
    Agent::builder("friday")
        .model(model.clone())
        .system(SYSTEM)
        .tool(function("plain", "", async |_: Nothing| Ok::<_, ToolError>("fine")).idempotent())
        .tool(function("fails", "", async |_: Nothing| Err::<(), _>(ToolError::new("no"))))
        .tool(function("asks", "", async |_: Nothing| Ok::<_, ToolError>("yes")).asks().alone())
        .tool(streaming("parts", "", parts))
        .tool(streaming("background", "", background))
        .max_iterations(6)
        .build()
}

fn lines(rng: &mut Rng, round: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for at in 0..rng.usize(..5) {
        lines.push(match rng.usize(..6) {
            0 => Line::thinking("Hm."),
            1 | 2 => Line::Text((0..rng.usize(..4)).map(|word| format!("{word} ")).collect()),
            _ => {
                let tools = ["plain", "fails", "asks", "parts", "background", "unknown"];
                let input = *pick(rng, &["{}", "", "{\"a", "[]"]);
                let tool = *pick(rng, &tools);
                Line::call(&format!("c{round}-{at}"), tool, input)
            }
        });
    }
    match rng.usize(..12) {
        0 => lines.push(Line::Fail(ModelError::new(ErrorType::Upstream, "broke off"))),
        1 => lines.push(Line::End(FinishedReason::Length)),
        2 => lines.push(Line::End(FinishedReason::Refusal)),
        _ => {}
    }
    lines
}

/// A reply with a random script, to its end. It may die once on the way.
fn play(rng: &mut Rng, dies_after: Option<usize>) -> (House, Arc<Told>) {
    let rounds: Vec<Vec<Line>> = (0..8).map(|round| lines(rng, round)).collect();
    // Which round it is follows from what there is, so that a call which is repeated is the same.
    let model = Told::new(move |asked| {
        let calls = asked.messages.last().into_iter().flat_map(Msg::blocks::<ToolCall>);
        let round = calls.filter_map(|call| call.id[1..].split('-').next()?.parse::<usize>().ok());
        rounds.get(round.max().map_or(0, |round| round + 1)).cloned().unwrap_or_default()
    });
    let mut house = House::new("go");
    house.history.insert(0, Msg::assistant("friday", ToolResult::success("lost", "x")));
    house.dies_after = dies_after;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for _ in 0..40 {
            if house.reply().finished_at().is_some() {
                return;
            }
            match house.run(&agent(&model)).await {
                Ok(()) => {
                    let says_yes = rng.bool();
                    house.answer(if says_yes { yes } else { no });
                }
                Err(Halt::Lost(_)) => house.dies_after = None,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("it does not end: {:?}", house.types());
    });
    (house, model)
}

#[test]
fn law_10_what_is_sent_is_the_fold_of_what_was_emitted() {
    check_property("law_10", 150, |rng| {
        let (house, model) = play(rng, None);
        law_10(&house, &model);
    });
}

#[test]
fn law_10_holds_after_a_crash() {
    check_property("law_10_crash", 150, |rng| {
        let dies_after = rng.usize(..15);
        let (house, model) = play(rng, Some(dies_after));
        law_10_after_crashes(&house, &model);
    });
}
