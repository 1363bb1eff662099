//! A conversation in memory.

use crate::fake_model::{FakeModel, RecordedRequest, find_result};
use crate::subagents::open_page;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use turnwire_agent::conversation::ApprovalRequest;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, ToolOutput, function, streaming_function};
use turnwire_agent::{Agent, AgentError, AgentTool, ClientContext, ClientTool, Conversation};
use turnwire_core::{EventKind, FinishedReason, HintBlock, Msg, ToolResult, ToolResultState};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn friday(model: &Arc<FakeModel>) -> Agent {
    let background = |_: Nothing, out: ToolContext| async move {
        let later = out.hint_sender().clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            later.send("Found it.").await;
        });
        Ok::<_, ToolError>(ToolOutput::Background("searching".to_owned()))
    };
    let forever = |_: Nothing| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Ok::<_, ToolError>("late")
    };
    Agent::builder("friday", model.clone())
        .tool(
            function("buy", "", async |_: Nothing| Ok::<_, ToolError>("bought"))
                .requires_approval(),
        )
        .tool(function("forever", "", forever))
        .tool(streaming_function("search", "", background))
        .build()
}

/// Calls the tool that the user names, and then says "Done.".
fn obey(request: &RecordedRequest) -> Vec<ScriptStep> {
    let calls = request.messages.last().map_or(0, |msg| msg.blocks::<ToolResult>().count());
    let user = request.messages.iter().rev().find_map(|msg| match msg.name() {
        "user" => msg.text(""),
        _ => None,
    });
    match user.unwrap().split_once(' ') {
        Some(("call", tool)) if calls == 0 => {
            vec![ScriptStep::call(&format!("c{}", request.messages.len()), tool, "{}")]
        }
        _ => vec![ScriptStep::text("Done.")],
    }
}

#[tokio::test]
async fn a_decision_continues_the_reply_and_always_allow_is_remembered() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let mut conversation =
        Conversation::new(friday(&FakeModel::new(obey))).with_event_callback(move |event| {
            notes.lock().unwrap().push(event.kind.type_name().to_owned());
        });
    let waits = conversation.send_text("call buy").await.unwrap();
    assert!(waits.finished_at().is_none());
    assert_eq!(conversation.history().len(), 1);
    let questions = conversation.approval_requests();
    let reply = conversation
        .decide(questions.into_iter().map(ApprovalRequest::always_allow))
        .await
        .unwrap();
    assert_eq!(find_result(&reply, "c1"), (ToolResultState::Success, "bought".to_owned()));
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed));
    let again = conversation.send_text("call buy").await.unwrap();
    assert_eq!(find_result(&again, "c3").0, ToolResultState::Success, "no second question");
    assert_eq!(conversation.history().len(), 4);
    assert_eq!(seen.lock().unwrap().iter().filter(|word| *word == "REPLY_END").count(), 2);
}

#[tokio::test]
async fn a_new_message_drops_the_pending_approval() {
    let model = FakeModel::new(obey);
    let mut conversation = Conversation::new(friday(&model));
    conversation.send_text("call buy").await.unwrap();
    let reply = conversation.send_text("never mind").await.unwrap();
    assert_eq!(reply.text("").as_deref(), Some("Done."));
    assert!(conversation.approval_requests().is_empty());
    let old = &conversation.history()[1];
    assert_eq!(old.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(find_result(old, "c1").0, ToolResultState::Interrupted);
    assert!(matches!(conversation.decide([]).await, Err(AgentError::Failed(_))));
}

#[tokio::test]
async fn client_side_results_are_submitted() {
    let mut conversation = Conversation::new(friday(&FakeModel::new(obey)));
    let tool = ClientTool { name: "page".to_owned(), ..ClientTool::default() };
    let context = ClientContext { tools: vec![tool], ..ClientContext::default() };
    conversation.send(context.attach_to(Msg::user("user", "call page"))).await.unwrap();
    let given = ToolResult::success("c1", "a page").named("page");
    let reply = conversation.submit_results(vec![given]).await.unwrap();
    assert_eq!(find_result(&reply, "c1").1, "a page");
    assert_eq!(reply.text("").as_deref(), Some("Done."));
    // A second result for the same call is refused.
    let given = ToolResult::success("c1", "another").named("page");
    assert!(matches!(conversation.submit_results(vec![given]).await, Err(AgentError::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_conversation_continues_with_the_next_message() {
    let mut conversation = Conversation::new(friday(&FakeModel::new(obey)));
    let stop = conversation.stop_token();
    let (reply, ()) = tokio::join!(conversation.send_text("call forever"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    });
    assert_eq!(reply.unwrap().finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(conversation.send_text("hi").await.unwrap().text("").as_deref(), Some("Done."));
}

#[tokio::test(start_paused = true)]
async fn a_background_result_between_two_messages_is_delivered_with_the_next() {
    let mut conversation = Conversation::new(friday(&FakeModel::new(obey)));
    assert!(!conversation.send_text("call search").await.unwrap().has::<HintBlock>());
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(conversation.send_text("and?").await.unwrap().has::<HintBlock>());
}

/// A call id that looks random, so a sub-agent keeps it.
const CALL: &str = "call_0123456789abcdef";

/// An agent whose only tool is a sub-agent, which calls the tool of this name.
fn parent_agent(tool: &'static str) -> Agent {
    let researcher = FakeModel::new(move |request| match request.result_count() {
        0 => vec![ScriptStep::call(CALL, tool, "{}")],
        _ => vec![ScriptStep::text("Found.")],
    });
    let main = FakeModel::new(|request| match request.result_count() {
        0 => vec![ScriptStep::call("m", "researcher", r#"{"task":"look"}"#)],
        _ => vec![ScriptStep::text("Done.")],
    });
    let researcher = Agent::builder("researcher", researcher)
        .tool(
            function("buy", "", async |_: Nothing| Ok::<_, ToolError>("bought"))
                .requires_approval(),
        )
        .tool(open_page())
        .build();
    let tool = AgentTool::new(researcher, "Looks things up");
    Agent::builder("main", main).tool(tool).build()
}

#[tokio::test]
async fn answers_to_a_sub_agent_name_it() {
    for way in ["yes", "hand in", "give up"] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watched = seen.clone();
        let asks = if way == "hand in" { "open_page" } else { "buy" };
        let conversation = Conversation::new(parent_agent(asks));
        let mut conversation = conversation
            .with_event_callback(move |event| watched.lock().unwrap().push(event.clone()));
        conversation.send_text("go").await.unwrap();
        match way {
            "yes" => {
                let yes: Vec<_> = conversation
                    .approval_requests()
                    .into_iter()
                    .map(ApprovalRequest::approve)
                    .collect();
                assert_eq!(yes.len(), 1);
                assert_eq!(
                    conversation.decide(yes).await.unwrap().text("").as_deref(),
                    Some("Done.")
                );
            }
            "hand in" => {
                let page = ToolResult::success(CALL, "a page").named("open_page");
                let reply = conversation.submit_results(vec![page]).await.unwrap();
                assert_eq!(reply.text("").as_deref(), Some("Done."));
            }
            _ => conversation.interrupt(),
        }
        let seen = seen.lock().unwrap();
        let main = seen.first().unwrap().reply_id.clone();
        for event in seen.iter() {
            assert_eq!(event.is_from_sub_agent(), event.reply_id != main, "{way}: {event:?}");
        }
        let ended = seen.iter().filter(|event| matches!(event.kind, EventKind::ReplyEnd(_)));
        assert_eq!(ended.count(), 2, "{way}");
    }
}
