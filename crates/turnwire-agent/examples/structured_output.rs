//! Structured output: an answer as a Rust type.
//!
//! The first answer here does not match the type. The model gets the reason, and corrects its answer.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use schemars::JsonSchema;
use serde::Deserialize;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::{Agent, CallError};
use turnwire_core::{HintBlock, Msg};

#[derive(Debug, Deserialize, JsonSchema)]
struct TaskPlan {
    goal: String,
    steps: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), CallError> {
    let model = ScriptedModel::new([
        vec![ScriptStep::text(r#"{"goal": "a cup of tea", "steps": "boil water, pour"}"#)],
        vec![ScriptStep::text(r#"{"goal": "a cup of tea", "steps": ["boil water", "pour"]}"#)],
    ]);
    let planner = Agent::builder("planner", model).build();

    let (reply, plan) = planner.call_as::<TaskPlan>([Msg::user("ann", "How is tea made?")]).await?;
    for hint in reply.blocks::<HintBlock>() {
        println!("(error: {})", hint.hint.text(""));
    }
    println!("{} in {} steps:", plan.goal, plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        println!("{}. {step}", at + 1);
    }
    Ok(())
}
