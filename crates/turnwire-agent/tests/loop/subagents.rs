//! Sub-agents: in the same log as their parent, each with a message of its own.

use crate::harness::{Harness, REPLY, approve, deny};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelStream};
use turnwire_agent::sub_agent::MAX_DEPTH;
use turnwire_agent::tool::{
    Tool, ToolContext, ToolError, ToolOutput, ToolSpec, function, streaming_function,
};
use turnwire_agent::{Agent, AgentError, AgentTool, Journal, Replier, ReplyRequest};
use turnwire_core::event::SubAgent;
use turnwire_core::{ErrorType, FinishedReason, Msg, ToolCall, ToolResult, ToolResultState};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A tool that the client executes.
struct OpenPage(ToolSpec);

#[async_trait]
impl Tool for OpenPage {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn run(&self, _: ToolCall, _: ToolContext) -> Result<ToolOutput, ToolError> {
        unreachable!("the client executes it")
    }
}

pub fn open_page() -> impl Tool {
    OpenPage(ToolSpec::for_client("open_page", "Opens a page", serde_json::Map::new().into()))
}

fn trade(count: &Arc<AtomicU32>) -> impl Tool {
    let count = count.clone();
    streaming_function("trade", "Buys", move |_: Nothing, _: ToolContext| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, ToolError>("bought") }
    })
    .requires_approval()
}

/// A scripted model whose requests the test can read.
struct Shared(Arc<ScriptedModel>);

#[async_trait]
impl Model for Shared {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        self.0.stream(ask).await
    }
}

fn delegate(id: &str, agent: &str) -> ScriptStep {
    ScriptStep::call(id, agent, r#"{"task":"Look into it."}"#)
}

fn script(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> ScriptedModel {
    ScriptedModel::new(answers).by_history()
}

fn researcher(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> turnwire_agent::AgentBuilder {
    Agent::builder("researcher", script(answers))
}

fn main_agent(tool: impl Tool) -> Agent {
    let answers = [vec![delegate("c", "researcher")], vec![ScriptStep::text("So it is.")]];
    Agent::builder("main", script(answers)).tool(tool).build()
}

fn result(reply: &Msg, id: &str) -> (ToolResultState, String) {
    let (_, result) = reply.tool_calls().find(|(call, _)| call.id == id).unwrap();
    let result = result.unwrap();
    (result.state.clone(), result.output.text(""))
}

/// The result of the only call of a sub-agent. Its id differs from the model's.
fn only_result(reply: &Msg) -> (ToolResultState, String) {
    let [id] = <[_; 1]>::try_from(reply.tool_calls().map(|(call, _)| &call.id).collect::<Vec<_>>())
        .unwrap();
    result(reply, id)
}

/// The agent and text of each message, in the order of the log.
fn event_lines(harness: &Harness) -> Vec<String> {
    let who = |event: &turnwire_core::Event<'_>| {
        let agent = event.agent.as_ref().and_then(|agent| agent.agent_path.clone());
        agent.map(|path| format!("{path} ")).unwrap_or_default()
    };
    harness.events.iter().map(|event| format!("{}{}", who(event), event.kind.type_name())).collect()
}

/// Checks that every reply has exactly one end.
fn assert_all_ended(harness: &Harness) {
    for reply in harness.replies() {
        assert!(reply.msg.finished_at().is_some(), "{} is open", reply.msg.id());
        let is_end = |event: &&turnwire_core::Event<'_>| {
            event.reply_id == reply.msg.id() && event.kind.type_name() == "REPLY_END"
        };
        assert_eq!(harness.events.iter().filter(is_end).count(), 1, "{}", reply.msg.id());
        let count = |kind: &str| {
            let is_it = |event: &&turnwire_core::Event<'_>| {
                event.reply_id == reply.msg.id() && event.kind.type_name() == kind
            };
            harness.events.iter().filter(is_it).count()
        };
        assert_eq!(count("MODEL_CALL_START"), count("MODEL_CALL_END"), "{}", reply.msg.id());
        for (call, result) in reply.msg.tool_calls() {
            assert!(result.is_some_and(|result| result.finished_at.is_some()), "{}", call.id);
        }
    }
}

fn find_reply(harness: &Harness, id: &str) -> Msg {
    let mut replies = harness.replies().into_iter();
    replies.find(|reply| reply.msg.id() == id).unwrap().msg
}

#[tokio::test]
async fn its_reply_is_a_message_of_its_own_and_its_words_are_the_result() {
    let model = Arc::new(script([vec![ScriptStep::text("Found: 42.")]]));
    let sub = Agent::builder("researcher", Shared(model.clone())).build();
    let agent = main_agent(AgentTool::new(sub, "Finds out"));
    let mut harness = Harness::new("why?");
    harness.run(&agent).await.unwrap();
    assert_eq!(
        event_lines(&harness),
        [
            "REPLY_START",
            "MODEL_CALL_START",
            "TOOL_CALL_START",
            "TOOL_CALL_DELTA",
            "TOOL_CALL_END",
            "MODEL_CALL_END",
            "TOOL_RESULT_START",
            "main/researcher REPLY_START",
            "main/researcher MODEL_CALL_START",
            "main/researcher TEXT_BLOCK_START",
            "main/researcher TEXT_BLOCK_DELTA",
            "main/researcher TEXT_BLOCK_END",
            "main/researcher MODEL_CALL_END",
            "main/researcher REPLY_END",
            "TOOL_RESULT_TEXT_DELTA",
            "TOOL_RESULT_END",
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "REPLY_END",
        ]
    );
    assert_all_ended(&harness);
    let [own, sub] = <[_; 2]>::try_from(harness.replies()).ok().unwrap();
    assert_eq!(result(&own.msg, "c"), (ToolResultState::Success, "Found: 42.".to_owned()));
    assert_eq!(own.msg.text("").as_deref(), Some("So it is."));
    assert_eq!(sub.msg.text("").as_deref(), Some("Found: 42."));
    assert_eq!(sub.msg.name(), "researcher");
    let agent = SubAgent {
        agent_path: Some("main/researcher".to_owned()),
        parent_tool_call_id: Some("c".to_owned()),
    };
    assert_eq!(sub.agent, Some(agent));
    // It gets its task, and not the conversation.
    let requests = model.requests();
    let seen: Vec<_> = requests[0].iter().map(|msg| msg.text("").unwrap()).collect();
    assert_eq!(seen, ["Look into it."]);
}

#[tokio::test]
async fn only_the_text_after_the_last_call_is_the_result() {
    let look = function("look", "Looks", async |_: Nothing| Ok::<_, ToolError>("seen"));
    let answers = [
        vec![ScriptStep::text("Let me see."), ScriptStep::call("l", "look", "{}")],
        vec![ScriptStep::text("It is red.")],
    ];
    let agent = main_agent(AgentTool::new(researcher(answers).tool(look).build(), "Finds out"));
    let mut harness = Harness::new("why?");
    harness.run(&agent).await.unwrap();
    assert_eq!(result(&harness.reply(), "c").1, "It is red.");
    assert_all_ended(&harness);
}

#[tokio::test]
async fn approvals_of_a_sub_agent_reach_the_same_user() {
    for (is_yes, state, count) in
        [(true, ToolResultState::Success, 1), (false, ToolResultState::Denied, 0)]
    {
        let bought = Arc::new(AtomicU32::new(0));
        let answers = [vec![ScriptStep::call("t", "trade", "{}")], vec![ScriptStep::text("Done.")]];
        let sub = researcher(answers).tool(trade(&bought)).build();
        let agent = main_agent(AgentTool::new(sub, "Finds out"));
        let mut harness = Harness::new("trade");
        harness.run(&agent).await.unwrap();
        assert_eq!(event_lines(&harness).last().unwrap(), "main/researcher REQUIRE_USER_CONFIRM");
        // Without an answer nothing happens.
        let before = harness.events.len();
        harness.run(&agent).await.unwrap();
        assert_eq!(harness.events.len(), before);
        assert!(harness.confirm_all(if is_yes { approve } else { deny }));
        harness.run(&agent).await.unwrap();
        assert_all_ended(&harness);
        let [own, sub] = <[_; 2]>::try_from(harness.replies()).ok().unwrap();
        assert_eq!(only_result(&sub.msg).0, state);
        assert_eq!(result(&own.msg, "c"), (ToolResultState::Success, "Done.".to_owned()));
        assert_eq!(bought.load(Ordering::Relaxed), count);
    }
}

#[tokio::test]
async fn a_rule_that_was_accepted_holds_below_too() {
    let bought = Arc::new(AtomicU32::new(0));
    let answers = [
        vec![ScriptStep::call("t", "trade", "{}")],
        vec![ScriptStep::call("u", "trade", "{}")],
        vec![ScriptStep::text("Done.")],
    ];
    let agent =
        main_agent(AgentTool::new(researcher(answers).tool(trade(&bought)).build(), "Finds out"));
    let mut harness = Harness::new("trade");
    harness.run(&agent).await.unwrap();
    harness.confirm_all(|call| turnwire_core::event::ConfirmResult {
        rules: Some(call.suggested_rules.clone()),
        ..approve(call)
    });
    harness.run(&agent).await.unwrap();
    assert_all_ended(&harness);
    assert_eq!(bought.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn client_side_calls_of_a_sub_agent_reach_the_client() {
    let answers = [vec![ScriptStep::call("p", "open_page", "{}")], vec![ScriptStep::text("Seen.")]];
    let agent =
        main_agent(AgentTool::new(researcher(answers).tool(open_page()).build(), "Finds out"));
    let mut harness = Harness::new("browse");
    harness.run(&agent).await.unwrap();
    assert_eq!(event_lines(&harness).last().unwrap(), "main/researcher REQUIRE_EXTERNAL_EXECUTION");
    assert!(harness.execute_client_calls(|call| {
        ToolResult::success(call.id.as_str(), "a page").named("open_page")
    }));
    harness.run(&agent).await.unwrap();
    assert_all_ended(&harness);
    assert_eq!(result(&harness.reply(), "c").1, "Seen.");
}

#[tokio::test]
async fn calls_of_agents_that_work_at_once_have_ids_of_their_own() {
    let answers =
        [vec![ScriptStep::call("call_0", "open_page", "{}")], vec![ScriptStep::text("Seen.")]];
    let sub = researcher(answers).tool(open_page()).build();
    // The provider gives the same id to every call, also to those of the agent above.
    let main = [
        vec![
            ScriptStep::call("call_0", "open_page", "{}"),
            delegate("a", "researcher"),
            delegate("b", "researcher"),
        ],
        vec![ScriptStep::text("Done.")],
    ];
    let agent = Agent::builder("main", script(main));
    let agent = agent.tool(AgentTool::new(sub, "Finds out")).tool(open_page()).build();
    let mut harness = Harness::new("browse");
    harness.run(&agent).await.unwrap();
    let replies = harness.replies();
    let calls = replies.iter().flat_map(|reply| reply.msg.tool_calls()).map(|(call, _)| &call.id);
    let ids: Vec<&String> = calls.collect();
    let unique: std::collections::HashSet<&String> = ids.iter().copied().collect();
    assert_eq!((ids.len(), unique.len()), (5, 5), "{ids:?}");
}

/// Two concurrent sub-agents, each with a sub-agent: one waits for an approval, one for a client's result.
fn team(bought: &Arc<AtomicU32>, looked: &Arc<AtomicU32>) -> Agent {
    let texts =
        |texts: &[&str]| ScriptStep::Text(texts.iter().map(|&text| text.to_owned()).collect());
    let look = |count: &Arc<AtomicU32>| {
        let count = count.clone();
        streaming_function("look", "Looks", move |_: Nothing, out: ToolContext| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                out.send_text("one ").await;
                Ok::<_, ToolError>("two")
            }
        })
    };
    let helper = || {
        let answers = [vec![ScriptStep::call("x", "look", "{}")], vec![texts(&["Hel", "ped."])]];
        Agent::builder("helper", script(answers)).tool(look(looked)).build()
    };
    let researcher = researcher([
        vec![
            texts(&["Let ", "me."]),
            delegate("h", "helper"),
            ScriptStep::call("t", "trade", "{}"),
        ],
        vec![],
        vec![texts(&["Found."])],
    ])
    .tool(AgentTool::new(helper(), "Helps"))
    .tool(trade(bought));
    let browser = Agent::builder(
        "browser",
        script([
            vec![delegate("h", "helper"), ScriptStep::call("p", "open_page", "{}")],
            vec![],
            vec![texts(&["Seen."])],
        ]),
    )
    .tool(AgentTool::new(helper(), "Helps"))
    .tool(open_page());
    Agent::builder(
        "main",
        script([
            vec![delegate("r", "researcher"), delegate("b", "browser")],
            vec![],
            vec![texts(&["All ", "done."])],
        ]),
    )
    .tool(AgentTool::new(researcher.build(), "Finds out"))
    .tool(AgentTool::new(browser.build(), "Browses"))
    .build()
}

struct Outcome {
    harness: Harness,
    bought: u32,
    looked: u32,
}

/// Runs to the end, with a crash after a chosen commit.
async fn play(dies_after: Option<usize>) -> Outcome {
    let (bought, looked) = (Arc::default(), Arc::default());
    let mut harness = Harness::new("go");
    harness.crash_after_commits = dies_after;
    let mut runs = 0;
    while harness.reply().finished_at().is_none() {
        runs += 1;
        assert!(runs < 20, "{:?}", event_lines(&harness));
        // A new process has only the log.
        match harness.run(&team(&bought, &looked)).await {
            Ok(()) => {
                let confirmed = harness.confirm_all(approve);
                let handed = harness.execute_client_calls(|call| {
                    ToolResult::success(call.id.as_str(), "page").named("open_page")
                });
                assert!(confirmed || handed || harness.reply().finished_at().is_some());
            }
            Err(AgentError::LogLost(_)) => harness.crash_after_commits = None,
            Err(other) => panic!("{other}"),
        }
    }
    assert_all_ended(&harness);
    let [bought, looked] = [bought, looked].map(|count| count.load(Ordering::Relaxed));
    Outcome { harness, bought, looked }
}

/// The text of each reply.
fn texts_by_reply(harness: &Harness) -> Vec<(String, String)> {
    let mut words: Vec<_> = harness
        .replies()
        .into_iter()
        .map(|reply| {
            let path = reply.agent.and_then(|agent| agent.agent_path).unwrap_or_default();
            (path, reply.msg.text("|").unwrap_or_default())
        })
        .collect();
    words.sort();
    words
}

fn expected() -> Vec<(String, String)> {
    [
        ("", "All done."),
        ("main/browser", "Seen."),
        ("main/browser/helper", "Helped."),
        ("main/researcher", "Let me.|Found."),
        ("main/researcher/helper", "Helped."),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into()
}

#[tokio::test]
async fn several_at_once_share_one_log() {
    let Outcome { harness, bought, looked } = play(None).await;
    assert_eq!(texts_by_reply(&harness), expected());
    assert_eq!((bought, looked), (1, 2));
    let reply = harness.reply();
    assert_eq!(result(&reply, "r").1, "Found.");
    assert_eq!(result(&reply, "b").1, "Seen.");
}

#[tokio::test]
async fn they_go_on_after_any_crash() {
    let mut crashes = 0;
    for dies_after in 0.. {
        let Outcome { harness, bought, looked } = play(Some(dies_after)).await;
        if harness.crash_after_commits.is_some() {
            break;
        }
        crashes += 1;
        assert_eq!(
            texts_by_reply(&harness),
            expected(),
            "after {dies_after}: {:?}",
            event_lines(&harness)
        );
        assert!(bought <= 1 && looked <= 2, "after {dies_after}: {bought} {looked}");
        for reply in harness.replies() {
            assert_eq!(reply.msg.finished_reason(), Some(&FinishedReason::Completed));
        }
        assert_eq!(result(&harness.reply(), "r").1, "Found.");
        assert_eq!(result(&harness.reply(), "b").1, "Seen.");
    }
    assert!(crashes > 15, "{crashes}");
}

#[tokio::test]
async fn a_stop_at_any_point_stops_all_of_them() {
    let whole = play(None).await.harness.events.len();
    for stops_after in 1..whole {
        let (bought, looked) = (Arc::default(), Arc::default());
        let mut harness = Harness::new("go");
        harness.stop_after_events = Some(stops_after);
        let outcome = loop {
            let outcome = harness.run(&team(&bought, &looked)).await;
            let is_answered = harness.confirm_all(approve)
                | harness.execute_client_calls(|call| {
                    ToolResult::success(call.id.as_str(), "page").named("x")
                });
            if outcome.is_err() || !is_answered {
                break outcome;
            }
        };
        if outcome.is_ok() {
            // The crash was after the last event.
            assert!(harness.reply().finished_at().is_some(), "after {stops_after}");
            continue;
        }
        assert_eq!(outcome, Err(AgentError::Stopped));
        harness.close_all();
        assert_all_ended(&harness);
        assert_eq!(
            find_reply(&harness, REPLY).finished_reason(),
            Some(&FinishedReason::Interrupted)
        );
    }
}

#[tokio::test]
async fn a_failing_sub_agent_is_a_failed_call() {
    let error = ModelError::new(ErrorType::Upstream, "overloaded");
    let sub = researcher([vec![ScriptStep::text("Let me"), ScriptStep::Fail(error)]]).build();
    let agent = main_agent(AgentTool::new(sub, "Finds out"));
    let mut harness = Harness::new("why?");
    harness.run(&agent).await.unwrap();
    assert_all_ended(&harness);
    let (state, why) = result(&harness.reply(), "c");
    assert_eq!(state, ToolResultState::Error);
    assert!(why.contains("overloaded"), "{why}");
    assert_eq!(harness.reply().text("").as_deref(), Some("So it is."));
}

/// Starts a reply, and does not end it.
struct FaultyAgent(&'static str);

#[async_trait]
impl Replier for FaultyAgent {
    fn description(&self) -> &'static str {
        ""
    }

    fn model_name(&self) -> &'static str {
        ""
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        let event = |reply: &str, rest: &str| {
            let json = format!(r#"{{"reply_id":"{reply}",{rest}}}"#);
            turnwire_core::Event::from_json(&json).unwrap().into_owned()
        };
        let id = &turn.reply_id;
        let begin = [
            event(id, r#""type":"REPLY_START","name":"careless""#),
            event(id, r#""type":"MODEL_CALL_START","model_name":"m""#),
            event(id, r#""type":"TEXT_BLOCK_START","block_id":"b""#),
        ];
        match self.0 {
            "nothing" => return Ok(()),
            "foreign" => {
                let foreign = event("another", r#""type":"REPLY_START","name":"x""#);
                return journal.commit(vec![foreign]).await;
            }
            _ => journal.commit(begin.into()).await?,
        }
        match self.0 {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "fails" => Err(AgentError::Failed("no luck".to_owned())),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn open_blocks_are_closed_at_the_end() {
    for what in ["nothing", "foreign", "forgets", "panics", "hangs", "fails"] {
        let tool = AgentTool::from_replier("researcher", FaultyAgent(what), "")
            .time_limit(Duration::from_millis(if what == "hangs" { 20 } else { 60_000 }));
        let mut harness = Harness::new("why?");
        harness.run(&main_agent(tool)).await.unwrap();
        assert_all_ended(&harness);
        let (state, why) = result(&harness.reply(), "c");
        assert_eq!(state, ToolResultState::Error, "{what}");
        assert!(why.starts_with("researcher could not finish"), "{what}: {why}");
        assert_eq!(harness.reply().text("").as_deref(), Some("So it is."), "{what}");
        let has_begun = !["nothing", "foreign"].contains(&what);
        assert_eq!(harness.replies().len(), if has_begun { 2 } else { 1 }, "{what}");
    }
}

#[tokio::test]
async fn an_invalid_task_is_an_error_result() {
    let agent = Agent::builder(
        "main",
        script([vec![ScriptStep::call("c", "researcher", "{}")], vec![ScriptStep::text("Sorry.")]]),
    )
    .tool(AgentTool::new(researcher([]).build(), "Finds out"))
    .build();
    let mut harness = Harness::new("why?");
    harness.run(&agent).await.unwrap();
    assert_all_ended(&harness);
    assert_eq!(harness.replies().len(), 1);
    assert_eq!(result(&harness.reply(), "c").0, ToolResultState::Error);
}

#[tokio::test]
async fn sub_agents_have_a_depth_limit() {
    let mut agent = Agent::builder("deep", script([vec![ScriptStep::text("The bottom.")]])).build();
    for _ in 0..=MAX_DEPTH {
        agent = Agent::builder(
            "deep",
            script([vec![delegate("c", "deep")], vec![ScriptStep::text("Up.")]]),
        )
        .tool(AgentTool::new(agent, "Goes deeper"))
        .build();
    }
    let mut harness = Harness::new("down");
    harness.run(&agent).await.unwrap();
    assert_all_ended(&harness);
    let replies = harness.replies();
    assert_eq!(replies.len(), 1 + usize::try_from(MAX_DEPTH).unwrap());
    let deepest = replies.last().unwrap();
    let (state, why) = only_result(&deepest.msg);
    assert_eq!(state, ToolResultState::Error);
    assert!(why.contains("nested at most"), "{why}");
    let path = deepest.agent.as_ref().unwrap().agent_path.as_deref().unwrap();
    assert_eq!(path, ["deep"; 6].join("/"));
}
