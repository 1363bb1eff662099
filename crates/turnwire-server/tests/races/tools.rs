use crate::gated_store::{GatedStore, Operation};
use crate::harness::*;
use crate::running::within;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use turnwire_agent::{AgentError, Journal, Replier, ReplyRequest};
use turnwire_core::event::{
    ReplyEnd, ToolCallEnd, ToolCallStart, ToolResultEnd, ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{Event, EventKind, Fields, ToolResult, ToolResultState};

/// An agent with one tool that must not run twice. It logs its intent first.
#[derive(Default)]
struct ToolAgent {
    runs: Arc<AtomicUsize>,
    has_run: Arc<Notify>,
}

#[async_trait]
impl Replier for ToolAgent {
    fn description(&self) -> &'static str {
        "runs a tool once"
    }

    fn model_name(&self) -> &'static str {
        "careful"
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        let of = |kind: EventKind<'static>| Event::new(turn.reply_id.clone(), kind);
        let id = || "call".into();
        let begun = turn.partial.as_ref().and_then(|msg| msg.first::<ToolResult>()).is_some();
        if turn.partial.is_none() {
            let start = ToolCallStart { tool_call_id: id(), tool_call_name: "pay".into() };
            let end = ToolCallEnd { tool_call_id: id(), extra: Fields::default() };
            journal.commit(vec![of(start.into()), of(end.into())]).await?;
        }
        let state = if begun {
            // It may have run, so it does not run again.
            ToolResultState::Interrupted
        } else {
            let intent = ToolResultStart { tool_call_id: id(), tool_call_name: "pay".into() };
            journal.commit(vec![of(intent.into())]).await?;
            self.runs.fetch_add(1, Ordering::SeqCst);
            self.has_run.notify_one();
            let paid = ToolResultTextDelta { tool_call_id: id(), delta: "paid".into() };
            journal.commit(vec![of(paid.into())]).await?;
            ToolResultState::Success
        };
        let end = ToolResultEnd { tool_call_id: id(), state };
        journal.commit(vec![of(end.into()), of(ReplyEnd::default().into())]).await
    }
}

fn harness(gate: Arc<GatedStore>, agent: &Arc<ToolAgent>) -> Harness {
    Harness::with_agent(gate, "", "careful", agent.clone())
}

async fn until_idle(server: &Harness) {
    let mut head = server.open_session("s").await.watch_head();
    let idle = head.wait_for(|head| head.status == turnwire_log::store::SessionStatus::Idle);
    within(idle).await.unwrap();
}

async fn result(server: &Harness) -> (String, String) {
    let page = server.get(MESSAGES).await.json();
    let content = page["messages"][1]["content"].as_array().unwrap();
    let result = content.iter().find(|block| block["type"] == "tool_result").unwrap();
    (result["state"].as_str().unwrap().to_owned(), result["output"].to_string())
}

#[tokio::test]
async fn row_14_a_tool_does_not_run_before_its_intent_is_durable() {
    let (gate, agent) = (GatedStore::new(), Arc::new(ToolAgent::default()));
    let server = harness(gate.clone(), &agent);
    server.session("careful").await;
    gate.close(Operation::Appends);
    let sending = server.begin("POST", MESSAGES, &[], r#"{"content":"pay"}"#);
    gate.wait_for_waiting(Operation::Appends, 1).await;
    gate.open(Operation::Appends);
    gate.close(Operation::Appends);
    sending.await.unwrap();
    // The call or the intent is held back; a crash now leaves no trace of the tool.
    gate.wait_for_waiting(Operation::Appends, 1).await;
    while server.log().await.iter().all(|event| event["type"] != "TOOL_CALL_END") {
        assert_eq!(agent.runs.load(Ordering::SeqCst), 0);
        gate.open(Operation::Appends);
        gate.close(Operation::Appends);
        gate.wait_for_waiting(Operation::Appends, 1).await;
    }
    assert_eq!(agent.runs.load(Ordering::SeqCst), 0, "the intent is not durable");
    let after = GatedStore::with_store(gate.durable());
    let again = harness(after, &agent);
    until_idle(&again).await;
    assert_eq!(agent.runs.load(Ordering::SeqCst), 1);
    assert_eq!(result(&again).await.0, "success");
    // The paused process wakes up, and has lost its lease.
    gate.open(Operation::Appends);
    server.stop().await;
    assert_eq!(agent.runs.load(Ordering::SeqCst), 1, "nor did the other one run it");
    again.stop().await;
}

#[tokio::test]
async fn row_14_the_tool_ran_and_then_came_the_crash() {
    let (gate, agent) = (GatedStore::new(), Arc::new(ToolAgent::default()));
    let server = harness(gate.clone(), &agent);
    server.session("careful").await;
    server.send("POST", MESSAGES, &[], r#"{"content":"hold"}"#).await;
    until_idle(&server).await;
    assert_eq!(
        (agent.runs.load(Ordering::SeqCst), result(&server).await.0.as_str()),
        (1, "success")
    );
    // The intent of the next process becomes durable, its result does not.
    server.send("DELETE", "/v1/sessions/s", &[], "").await;
    server.session("careful").await;
    within(agent.has_run.notified()).await;
    let sending = server.begin("POST", MESSAGES, &[], r#"{"content":"pay"}"#);
    let watcher = gate.clone();
    let closing = tokio::spawn(async move {
        // Lets one append through at a time, until the tool has run.
        loop {
            watcher.close(Operation::Appends);
            watcher.wait_for_waiting(Operation::Appends, 1).await;
            watcher.open(Operation::Appends);
        }
    });
    within(agent.has_run.notified()).await;
    closing.abort();
    let _ = closing.await;
    gate.close(Operation::Appends);
    sending.await.unwrap();
    let runs = agent.runs.load(Ordering::SeqCst);
    assert_eq!(runs, 2);
    let again = harness(GatedStore::with_store(gate.durable()), &agent);
    until_idle(&again).await;
    assert_eq!(agent.runs.load(Ordering::SeqCst), 2, "it never runs twice");
    assert!(matches!(result(&again).await.0.as_str(), "interrupted" | "success"));
    gate.open(Operation::Appends);
    server.stop().await;
    again.stop().await;
}
