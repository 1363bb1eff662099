//! Plays the scenarios of `tests/peers/agentscope/scenarios.json` with our agent, for the tests there to
//! hold beside AgentScope's own. Each line is `{"scenario", "event"}`, the event as the `agentscope` wire
//! writes it: `scope_scenarios FILE`.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::permission::Rule;
use turnwire_agent::tool::{Tool, ToolContext, ToolError, streaming_function};
use turnwire_agent::{Agent, AgentError, ClientContext, ClientTool, Conversation};
use turnwire_core::{
    Behavior, DataBlock, ErrorType, Event, Msg, ToolCall, ToolCallState, ToolResult,
};
use turnwire_wires::agentscope;

#[derive(Deserialize)]
struct Scenarios {
    tools: BTreeMap<String, ToolPlan>,
    scenarios: Vec<Scenario>,
}

/// The behaviour of a tool.
#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct ToolPlan {
    says: Vec<String>,
    /// The bytes of a picture.
    shows: Option<String>,
    fails: Option<String>,
    hangs: bool,
    behavior: Option<Behavior>,
    /// The client executes it.
    external: bool,
}

#[derive(Deserialize)]
struct Scenario {
    name: String,
    /// The output of each model call.
    answers: Vec<Vec<Words>>,
    /// The decision on each approval: yes, no, or yes with another input.
    #[serde(default)]
    decisions: BTreeMap<String, Value>,
    /// The client's result for each call that it executes.
    #[serde(default)]
    results: BTreeMap<String, String>,
    max_iterations: Option<u32>,
    /// The reply is stopped at the first event of this type. A reply that waits without an answer is dropped.
    stop_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Words {
    Text(Vec<String>),
    Thinking(Vec<String>),
    Call(String, String, Vec<String>),
    Fail(String),
    Wait,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct City {
    #[expect(dead_code, reason = "the tools are scripted")]
    city: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: scope_scenarios FILE")?;
    let Scenarios { tools, scenarios } = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let mut out = io::stdout().lock();
    for scenario in scenarios {
        let name = serde_json::to_string(&scenario.name)?;
        for event in play(scenario, &tools).await? {
            let event = agentscope::encode_event(&event);
            writeln!(out, r#"{{"scenario":{name},"event":{event}}}"#)?;
        }
    }
    Ok(())
}

/// The events of a reply, to its end.
async fn play(
    scenario: Scenario,
    tools: &BTreeMap<String, ToolPlan>,
) -> Result<Vec<Event<'static>>, AgentError> {
    let Scenario { answers, decisions, results, max_iterations, stop_at, .. } = scenario;
    let lines = |words: Vec<Words>| words.into_iter().map(line).collect();
    let mut friday = Agent::builder("friday", ScriptedModel::new(answers.into_iter().map(lines)))
        .max_iterations(max_iterations.unwrap_or(10));
    let mut offer = ClientContext::default();
    let mut rules = Vec::new();
    for (name, plan) in tools {
        if plan.external {
            offer.tools.push(ClientTool { name: name.clone(), ..ClientTool::default() });
        } else {
            friday = friday.tool(tool(name, plan.clone()));
        }
        rules.extend(plan.behavior.clone().map(|behavior| Rule::new(name.clone(), behavior)));
    }
    let conversation = Conversation::new(friday.permissions(rules).build());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (stop, watched) = (conversation.stop_token(), seen.clone());
    let mut conversation = conversation.with_event_callback(move |event| {
        if stop_at.as_deref() == Some(event.kind.type_name()) {
            stop.cancel();
        }
        if let Ok(mut watched) = watched.lock() {
            watched.push(event.clone());
        }
    });

    let mut reply = conversation.send(offer.attach_to(Msg::user("ann", "Well?"))).await?;
    while reply.finished_at().is_none() {
        let mut reactions = Vec::new();
        for question in conversation.approval_requests() {
            reactions.extend(match decisions.get(&question.call.id) {
                Some(Value::String(input)) => Some(question.approve_with_input(input.clone())),
                Some(Value::Bool(true)) => Some(question.approve()),
                Some(_) => Some(question.deny()),
                None => None,
            });
        }
        let handed = reply.blocks::<ToolCall>().filter(|it| it.state == ToolCallState::Submitted);
        let done: Vec<ToolResult> = handed
            .filter_map(|call| Some((call, results.get(&call.id)?)))
            .map(|(call, given)| {
                ToolResult::success(call.id.as_str(), given.as_str()).named(&call.name)
            })
            .collect();
        reply = if !reactions.is_empty() {
            conversation.decide(reactions).await?
        } else if !done.is_empty() {
            conversation.submit_results(done).await?
        } else {
            conversation.interrupt();
            break;
        };
    }
    drop(conversation);
    Ok(seen.lock().map(|seen| seen.clone()).unwrap_or_default())
}

fn line(words: Words) -> ScriptStep {
    match words {
        Words::Text(deltas) => ScriptStep::Text(deltas),
        Words::Thinking(deltas) => ScriptStep::Thinking(deltas),
        Words::Call(id, name, input) => ScriptStep::Call { id, name, input },
        Words::Fail(why) => ScriptStep::Fail(ModelError::new(ErrorType::Upstream, why)),
        Words::Wait => ScriptStep::Wait(Duration::from_hours(1)),
    }
}

fn tool(name: &str, plan: ToolPlan) -> impl Tool {
    streaming_function(name, "", move |_: City, out: ToolContext| {
        let plan = plan.clone();
        async move {
            for text in plan.says {
                out.send_text(text).await;
            }
            if let Some(picture) = plan.shows {
                out.send_part(DataBlock::bytes(picture, "image/png")).await;
            }
            if plan.hangs {
                std::future::pending::<()>().await;
            }
            plan.fails.map_or(Ok(()), |why| Err(ToolError::new(why)))
        }
    })
}
