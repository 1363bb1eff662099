//! Approval: a tool that needs a decision. The reply waits; the user approves, denies, or edits the input.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use schemars::JsonSchema;
use serde::Deserialize;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::permission::{Pattern, Rule};
use turnwire_agent::tool::{ToolError, function};
use turnwire_agent::{Agent, Conversation};
use turnwire_core::Behavior;

#[derive(Deserialize, JsonSchema)]
struct Order {
    stock: String,
    shares: u32,
}

async fn buy(Order { stock, shares }: Order) -> Result<String, ToolError> {
    Ok(format!("bought {shares} of {stock}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), turnwire_agent::AgentError> {
    let model = ScriptedModel::new([
        vec![
            ScriptStep::call("1", "buy", r#"{"stock":"ACME","shares":1000}"#),
            ScriptStep::call("2", "buy", r#"{"stock":"HOOLI","shares":5}"#),
            ScriptStep::call("3", "buy", r#"{"stock":"JUNK","shares":1}"#),
        ],
        vec![ScriptStep::text("That is settled.")],
    ]);
    let broker = Agent::builder("broker", model)
        .tool(function("buy", "Buys shares", buy).requires_approval())
        // The first matching rule counts; without one, the tool needs an approval.
        .permissions([Rule::new("buy", Behavior::Deny).input("stock", Pattern::exact("JUNK"))])
        .build();

    let mut conversation = Conversation::new(broker);
    conversation.send_text("Invest my money.").await?;
    let reactions = conversation.approval_requests().into_iter().map(|question| {
        println!("May I {} {}?", question.call.name, question.call.input);
        if question.call.input.contains("ACME") {
            question.approve_with_input(r#"{"stock":"ACME","shares":10}"#)
        } else {
            question.deny()
        }
    });
    let reactions: Vec<_> = reactions.collect();
    let reply = conversation.decide(reactions).await?;

    for (call, result) in reply.tool_calls() {
        let output = result.map(|result| result.output.text("")).unwrap_or_default();
        println!("{} -> {output}", call.input);
    }
    println!("{}", reply.text("").unwrap_or_default());
    Ok(())
}
