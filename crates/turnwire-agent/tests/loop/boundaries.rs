//! The process crashes after each commit, and continues from the log.

use crate::harness::{Harness, approve};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::tool::{ToolContext, ToolError, streaming_function};
use turnwire_agent::{Agent, AgentError};
use turnwire_core::{FinishedReason, Msg};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Counts the side effects of tools.
#[derive(Default)]
struct Effects {
    once: AtomicU32,
    again: AtomicU32,
    approved: AtomicU32,
}

fn agent(effects: &Arc<Effects>) -> Agent {
    let lines =
        |texts: &[&str]| ScriptStep::Text(texts.iter().map(|&text| text.to_owned()).collect());
    let model = ScriptedModel::new([
        vec![
            lines(&["Let ", "me ", "see."]),
            ScriptStep::call("a", "once", "{}"),
            ScriptStep::call("b", "again", "{}"),
        ],
        vec![],
        vec![lines(&["And "]), ScriptStep::call("c", "approved", "{}")],
        vec![lines(&["All ", "done."])],
    ])
    .by_history();
    let tool = |name: &str, count: fn(&Effects) -> &AtomicU32| {
        let effects = effects.clone();
        streaming_function(name, "", move |_: Nothing, out: ToolContext| {
            let effects = effects.clone();
            async move {
                count(&effects).fetch_add(1, Ordering::Relaxed);
                out.send_text("one ").await;
                out.send_text("two").await;
                Ok::<_, ToolError>(())
            }
        })
    };
    Agent::builder("friday", model)
        .tool(tool("once", |effects| &effects.once))
        .tool(tool("again", |effects| &effects.again).idempotent())
        .tool(tool("approved", |effects| &effects.approved).requires_approval())
        .build()
}

/// Runs to the end, with crashes after the chosen commits.
async fn play(dies_after: Option<usize>) -> (Harness, Arc<Effects>, usize) {
    let effects = Arc::new(Effects::default());
    let mut harness = Harness::new("go");
    harness.crash_after_commits = dies_after;
    let mut runs = 0;
    while harness.reply().finished_at().is_none() {
        runs += 1;
        assert!(runs < 20, "{:?}", harness.types());
        // A new process has only the log.
        match harness.run(&agent(&effects)).await {
            Ok(()) => {
                harness.confirm_all(approve);
            }
            Err(AgentError::LogLost(_)) => harness.crash_after_commits = None,
            Err(other) => panic!("{other}"),
        }
    }
    (harness, effects, runs)
}

/// The text of the reply.
fn words(reply: &Msg) -> String {
    reply.text("|").unwrap_or_default()
}

#[tokio::test]
async fn a_reply_continues_after_any_crash() {
    let (whole, effects, _) = play(None).await;
    assert_eq!(words(&whole.reply()), "Let me see.|And |All done.");
    assert_eq!(effects.once.load(Ordering::Relaxed), 1);
    let mut crashes = 0;
    for dies_after in 0.. {
        let (harness, effects, _) = play(Some(dies_after)).await;
        if harness.crash_after_commits.is_some() {
            break;
        }
        crashes += 1;
        let reply = harness.reply();
        assert_eq!(
            words(&reply),
            words(&whole.reply()),
            "after {dies_after}: {:?}",
            harness.types()
        );
        assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed));
        assert!(effects.once.load(Ordering::Relaxed) <= 1, "after {dies_after}");
        assert!(effects.approved.load(Ordering::Relaxed) <= 1, "after {dies_after}");
        for (call, result) in reply.tool_calls() {
            let text = result.unwrap().output.text("");
            assert!(
                ["one two", "one ", "interrupted"].contains(&text.as_str()),
                "{}: {text}",
                call.id
            );
        }
    }
    assert!(crashes > 15, "{crashes}");
}
