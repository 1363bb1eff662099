//! Sub-agents: one session, one log, one client that answers for all of them.

use crate::demo::answer_all;
use crate::harness::*;
use crate::test_store::test_store;
use async_trait::async_trait;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelStream};
use turnwire_agent::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use turnwire_agent::{Agent, AgentTool, Replier};
use turnwire_core::{Behavior, FinishedReason, ToolCall};
use turnwire_log::Session;
use turnwire_log::Store;
use turnwire_log::store::SessionStatus;
use turnwire_testkit::check_property;

/// A model that the test can inspect.
#[derive(Clone)]
struct SharedScript(Arc<ScriptedModel>);

impl SharedScript {
    fn new(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> Self {
        Self(Arc::new(ScriptedModel::new(answers).by_history()))
    }
}

#[async_trait]
impl Model for SharedScript {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        self.0.stream(ask).await
    }
}

/// A tool that returns its own name.
struct NamedTool(ToolSpec);

#[async_trait]
impl Tool for NamedTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn run(&self, _: ToolCall, _: ToolContext) -> Result<ToolOutput, ToolError> {
        Ok(self.0.name.as_str().into())
    }
}

/// Two agents work for `main`: one asks for approval, the other calls a tool of the client.
fn new_team() -> (Arc<dyn Replier>, SharedScript) {
    let hand = |id: &str, agent: &str| ScriptStep::call(id, agent, r#"{"task":"Look into it."}"#);
    let trade = ToolSpec::new("trade", "", serde_json::Map::new().into());
    let trade = ToolSpec { behavior: Behavior::Ask, ..trade };
    let page = ToolSpec::for_client("open_page", "", serde_json::Map::new().into());
    let trader = Agent::builder(
        "trader",
        SharedScript::new([
            vec![ScriptStep::call("t", "trade", "{}")],
            vec![ScriptStep::text("Bought.")],
        ]),
    )
    .tool(NamedTool(trade))
    .build();
    let browser = Agent::builder(
        "browser",
        SharedScript::new([
            vec![ScriptStep::call("p", "open_page", "{}")],
            vec![ScriptStep::text("Seen.")],
        ]),
    )
    .tool(NamedTool(page))
    .build();
    let model = SharedScript::new([
        vec![hand("a", "trader"), hand("b", "browser")],
        vec![],
        vec![ScriptStep::text("All done.")],
    ]);
    let main = Agent::builder("main", model.clone())
        .tool(AgentTool::new(trader, "Trades"))
        .tool(AgentTool::new(browser, "Browses"));
    (Arc::new(main.build()), model)
}

fn harness(store: &Arc<dyn Store>) -> (Harness, SharedScript) {
    let (main, model) = new_team();
    (Harness::with_agents(store.clone(), "", vec![("main", main)]), model)
}

/// Checks that each reply of the first turn has ended as it should.
async fn check_end(session: &Session, reply: &str) {
    let msg = message(session, reply).await;
    assert_eq!(msg.text("").as_deref(), Some("All done."));
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
    let results: Vec<String> =
        msg.tool_calls().map(|(_, result)| result.unwrap().output.text("")).collect();
    assert_eq!(results, ["Bought.", "Seen."]);
    assert_eq!(count(session, "REPLY_END").await, 3);
    check_projection(session).await;
}

#[tokio::test]
async fn their_questions_reach_the_same_person() {
    let (server, model) = harness(&test_store());
    let session = server.session("s", "main").await;
    let answer = server.send_text("go").await;
    let reply = answer.body["reply_id"].as_str().unwrap().to_owned();
    // Both wait: the approval and the external call are pending together.
    let pending = loop {
        until_waiting(&session).await;
        let shown = server.request_json("GET", "/v1/sessions/s", None, &Value::Null).await;
        let pending = shown.body["pending"].as_array().unwrap().clone();
        if pending.len() == 2 {
            break pending;
        }
        tokio::task::yield_now().await;
    };
    let mut paths: Vec<&str> =
        pending.iter().map(|item| item["agent_path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["main/browser", "main/trader"]);
    answer_all(&server, &session).await;
    check_end(&session, &reply).await;

    let list = |query: &'static str| {
        let path = format!("/v1/sessions/s/messages{query}");
        let server = &server;
        async move {
            let shown = server.request_json("GET", &path, None, &Value::Null).await;
            shown.body["messages"].as_array().unwrap().len()
        }
    };
    assert_eq!((list("").await, list("?agents=all").await), (2, 4));

    // Their messages are not part of the conversation.
    server.send_text("again").await;
    until_waiting(&session).await;
    let asked = model.0.requests();
    let seen: Vec<_> = asked.last().unwrap().iter().map(|msg| msg.name().to_owned()).collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(seen[1], "main");
    server.stop(&session).await;
}

#[tokio::test]
async fn a_stop_ends_all_of_them() {
    let (server, _) = harness(&test_store());
    let session = server.session("s", "main").await;
    let answer = server.send_text("go").await;
    until_waiting(&session).await;
    server.stop(&session).await;
    until_idle(&session).await;
    let msg = message(&session, answer.body["reply_id"].as_str().unwrap()).await;
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Interrupted));
    let events = events(&session).await;
    let replies: BTreeSet<&str> =
        events.iter().map(|event| &*event.reply_id).filter(|id| !id.is_empty()).collect();
    assert!(replies.len() > 1, "{replies:?}");
    assert_eq!(count(&session, "REPLY_END").await, replies.len());
    check_projection(&session).await;
    // The next message starts normally.
    assert_eq!(server.send_text("again").await.status, 202);
    until_waiting(&session).await;
    server.stop(&session).await;
}

#[test]
fn they_go_on_after_crashes_anywhere() {
    check_property("crashes of a team", 10, crash);
}

fn crash(rng: &mut Rng) {
    let store = test_store();
    let mut reply = String::new();
    for life in 0..=4 {
        // Only this thread runs, so the run ends exactly where it is cut.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (server, _) = harness(&store);
            let session = server.session("s", "main").await;
            server.app.turns.recover().await.unwrap();
            if life == 0 {
                let answer = server.send_text("go").await;
                answer.body["reply_id"].as_str().unwrap().clone_into(&mut reply);
            }
            if life < 4 {
                let enough = session.head_state().head.next().plus(rng.u64(..7));
                until(&session, |head| {
                    head.head.includes(enough) || head.status != SessionStatus::Running
                })
                .await;
                return;
            }
            answer_all(&server, &session).await;
            check_end(&session, &reply).await;
        });
        runtime.shutdown_timeout(Duration::from_secs(20));
    }
}

#[tokio::test]
async fn one_may_be_answered_while_another_still_works() {
    let (server, _) = harness(&test_store());
    let session = server.session("s", "main").await;
    let answer = server.send_text("go").await;
    let mut n = 0;
    // Pending calls are answered at once, wherever the others are.
    while session.head_state().status != SessionStatus::Idle {
        until(&session, |head| head.status != SessionStatus::Running).await;
        let shown = server.request_json("GET", "/v1/sessions/s", None, &Value::Null).await;
        for item in shown.body["pending"].as_array().unwrap() {
            n += 1;
            let about = json!({"id": format!("x{n}"), "reply_id": item["reply_id"]});
            let mut event = about.as_object().unwrap().clone();
            if let Some(call) = item["confirm"].get(0) {
                event.insert("type".to_owned(), json!("USER_CONFIRM_RESULT"));
                let result = json!([{"confirmed": true, "tool_call": {"id": call["id"]}}]);
                event.insert("confirm_results".to_owned(), result);
            } else if let Some(call) = item["external"].get(0) {
                event.insert("type".to_owned(), json!("EXTERNAL_EXECUTION_RESULT"));
                let result = json!([{"type": "tool_result", "id": call["id"], "name": "x",
                    "output": "done", "state": "success"}]);
                event.insert("execution_results".to_owned(), result);
            }
            assert_eq!(server.post_event(event.into()).await.status, 200);
        }
    }
    check_end(&session, answer.body["reply_id"].as_str().unwrap()).await;
}
