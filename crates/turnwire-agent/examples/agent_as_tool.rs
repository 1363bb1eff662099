//! An agent as a tool of another. Its events are in the same stream with its `agent_path`, and its approval
//! requests reach the same user.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use schemars::JsonSchema;
use serde::Deserialize;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::tool::{ToolError, function};
use turnwire_agent::{Agent, AgentTool, Conversation};
use turnwire_core::Event;

#[derive(Deserialize, JsonSchema)]
struct Page {
    page: String,
}

async fn fetch(Page { page }: Page) -> Result<String, ToolError> {
    Ok(format!("{page} says: the tower is 330 m high"))
}

/// The agent, its text, and the parent's call that it works for.
fn show(event: &Event<'static>) {
    let agent = event.agent.as_deref();
    let path = agent.and_then(|agent| agent.agent_path.as_deref()).unwrap_or("main");
    let call = agent.and_then(|agent| agent.parent_tool_call_id.as_deref());
    let call = call.map(|call| format!(" for call {call}")).unwrap_or_default();
    println!("{path}{call}: {}", event.kind.type_name());
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), turnwire_agent::AgentError> {
    let researcher = Agent::builder(
        "researcher",
        ScriptedModel::new([
            vec![ScriptStep::call("r1", "fetch", r#"{"page":"towers.example"}"#)],
            vec![ScriptStep::text("330 m, says towers.example.")],
        ]),
    )
    .tool(function("fetch", "Reads a page", fetch).requires_approval())
    .build();
    let main = Agent::builder(
        "main",
        ScriptedModel::new([
            vec![ScriptStep::call("m1", "researcher", r#"{"task":"How high is the tower?"}"#)],
            vec![ScriptStep::text("The tower is 330 m high.")],
        ]),
    )
    .tool(AgentTool::new(researcher, "Finds things out and says where"))
    .build();

    let mut conversation = Conversation::new(main).with_event_callback(show);
    conversation.send_text("How high is the tower?").await?;
    // The researcher waits for an approval, and its parent with it.
    let questions = conversation.approval_requests().into_iter();
    let reactions = questions.map(|question| {
        println!("May I {} {}?", question.call.name, question.call.input);
        question.approve()
    });
    let reactions: Vec<_> = reactions.collect();
    let reply = conversation.decide(reactions).await?;

    // The researcher's reply is a message of its own; the parent gets its result.
    for (call, result) in reply.tool_calls() {
        let output = result.map(|result| result.output.text("")).unwrap_or_default();
        println!("{} -> {output}", call.name);
    }
    println!("{}", reply.text("").unwrap_or_default());
    Ok(())
}
