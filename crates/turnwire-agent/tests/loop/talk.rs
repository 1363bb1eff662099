//! A conversation in memory.

use crate::kit::{Asked, Told, result};
use crate::subagents::open_page;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use turnwire_agent::model::script::Line;
use turnwire_agent::talk::Question;
use turnwire_agent::tool::{Given, Out, ToolError, function, streaming};
use turnwire_agent::{Agent, AgentTool, ClientTool, Halt, Offer, Talk};
use turnwire_core::{EventKind, FinishedReason, HintBlock, Msg, ToolResult, ToolResultState};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn friday(model: &Arc<Told>) -> Agent {
    let background = |_: Nothing, out: Out| async move {
        let later = out.later().clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            later.hint("Found it.").await;
        });
        Ok::<_, ToolError>(Given::Background("searching".to_owned()))
    };
    let forever = |_: Nothing| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Ok::<_, ToolError>("late")
    };
    Agent::builder("friday")
        .model(model.clone())
        .tool(function("buy", "", async |_: Nothing| Ok::<_, ToolError>("bought")).asks())
        .tool(function("forever", "", forever))
        .tool(streaming("search", "", background))
        .build()
}

/// Calls the tool that the user names, and then says "Done.".
fn obeys(asked: &Asked) -> Vec<Line> {
    let calls = asked.messages.last().map_or(0, |msg| msg.blocks::<ToolResult>().count());
    let user = asked.messages.iter().rev().find_map(|msg| match msg.name() {
        "user" => msg.text(""),
        _ => None,
    });
    match user.unwrap().split_once(' ') {
        Some(("call", tool)) if calls == 0 => {
            vec![Line::call(&format!("c{}", asked.messages.len()), tool, "{}")]
        }
        _ => vec![Line::text("Done.")],
    }
}

#[tokio::test]
async fn an_answer_goes_on_with_the_reply_and_always_is_remembered() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let mut talk = Talk::new(friday(&Told::new(obeys))).watched(move |event| {
        notes.lock().unwrap().push(event.kind.type_name().to_owned());
    });
    let waits = talk.say("call buy").await.unwrap();
    assert!(waits.finished_at().is_none());
    assert_eq!(talk.history().len(), 1);
    let questions = talk.questions();
    let reply = talk.answer(questions.into_iter().map(Question::always)).await.unwrap();
    assert_eq!(result(&reply, "c1"), (ToolResultState::Success, "bought".to_owned()));
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed));
    let again = talk.say("call buy").await.unwrap();
    assert_eq!(result(&again, "c3").0, ToolResultState::Success, "nobody was asked again");
    assert_eq!(talk.history().len(), 4);
    assert_eq!(seen.lock().unwrap().iter().filter(|word| *word == "REPLY_END").count(), 2);
}

#[tokio::test]
async fn who_says_something_else_lets_the_question_go() {
    let model = Told::new(obeys);
    let mut talk = Talk::new(friday(&model));
    talk.say("call buy").await.unwrap();
    let reply = talk.say("never mind").await.unwrap();
    assert_eq!(reply.text("").as_deref(), Some("Done."));
    assert!(talk.questions().is_empty());
    let old = &talk.history()[1];
    assert_eq!(old.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(result(old, "c1").0, ToolResultState::Interrupted);
    assert!(matches!(talk.answer([]).await, Err(Halt::Failed(_))));
}

#[tokio::test]
async fn what_the_client_executes_is_handed_in() {
    let mut talk = Talk::new(friday(&Told::new(obeys)));
    let tool = ClientTool { name: "page".to_owned(), ..ClientTool::default() };
    let offer = Offer { tools: vec![tool], ..Offer::default() };
    talk.send(offer.to_msg(Msg::user("user", "call page"))).await.unwrap();
    let given = ToolResult::success("c1", "a page").named("page");
    let reply = talk.hand_in(vec![given]).await.unwrap();
    assert_eq!(result(&reply, "c1").1, "a page");
    assert_eq!(reply.text("").as_deref(), Some("Done."));
    // Once.
    let given = ToolResult::success("c1", "another").named("page");
    assert!(matches!(talk.hand_in(vec![given]).await, Err(Halt::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn it_can_be_stopped_and_goes_on_with_the_next_message() {
    let mut talk = Talk::new(friday(&Told::new(obeys)));
    let stop = talk.stop();
    let (reply, ()) = tokio::join!(talk.say("call forever"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    });
    assert_eq!(reply.unwrap().finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(talk.say("hi").await.unwrap().text("").as_deref(), Some("Done."));
}

#[tokio::test(start_paused = true)]
async fn what_is_found_between_two_messages_is_read_with_the_next() {
    let mut talk = Talk::new(friday(&Told::new(obeys)));
    assert!(!talk.say("call search").await.unwrap().has::<HintBlock>());
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(talk.say("and?").await.unwrap().has::<HintBlock>());
}

/// An id that a sub-agent keeps: it looks as if no other call has it.
const CALL: &str = "call_0123456789abcdef";

/// An agent whose only tool is another one, which calls the tool of this name.
fn above(tool: &'static str) -> Agent {
    let researcher = Told::new(move |asked| match asked.results() {
        0 => vec![Line::call(CALL, tool, "{}")],
        _ => vec![Line::text("Found.")],
    });
    let main = Told::new(|asked| match asked.results() {
        0 => vec![Line::call("m", "researcher", r#"{"task":"look"}"#)],
        _ => vec![Line::text("Done.")],
    });
    let researcher = Agent::builder("researcher")
        .model(researcher)
        .tool(function("buy", "", async |_: Nothing| Ok::<_, ToolError>("bought")).asks())
        .tool(open_page())
        .build();
    let tool = AgentTool::new(researcher, "Looks things up");
    Agent::builder("main").model(main).tool(tool).build()
}

#[tokio::test]
async fn what_a_sub_agent_is_told_says_whose_it_is() {
    for way in ["yes", "hand in", "give up"] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watched = seen.clone();
        let asks = if way == "hand in" { "open_page" } else { "buy" };
        let talk = Talk::new(above(asks));
        let mut talk = talk.watched(move |event| watched.lock().unwrap().push(event.clone()));
        talk.say("go").await.unwrap();
        match way {
            "yes" => {
                let yes: Vec<_> = talk.questions().into_iter().map(Question::yes).collect();
                assert_eq!(yes.len(), 1);
                assert_eq!(talk.answer(yes).await.unwrap().text("").as_deref(), Some("Done."));
            }
            "hand in" => {
                let page = ToolResult::success(CALL, "a page").named("open_page");
                let reply = talk.hand_in(vec![page]).await.unwrap();
                assert_eq!(reply.text("").as_deref(), Some("Done."));
            }
            _ => talk.give_up(),
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
