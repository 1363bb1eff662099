//! Tool calls over pipes and over HTTP.

use crate::harness::McpHarness;
use async_trait::async_trait;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use turnwire_agent::Agent;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelStream};
use turnwire_agent::tool::Executor;
use turnwire_core::{EventKind, Msg, Part, Payload, ToolResultState};

#[tokio::test]
async fn a_tool_has_the_spec_of_its_server() {
    let harness = McpHarness::child().await;
    let spec = |name: &str| {
        let tool = harness.tools.iter().find(|tool| tool.spec().name == name);
        tool.unwrap().spec().clone()
    };
    let echo = spec("files/echo");
    assert_eq!(echo.description, "Says it again");
    assert_eq!(echo.title.as_deref(), Some("Echo"));
    assert_eq!(echo.executor, Executor::Agent);
    assert!(echo.input.text().contains(r#""text""#), "{}", echo.input.text());
    let may_run_again: Vec<bool> = ["files/echo", "files/again", "files/destroys", "files/fails"]
        .map(|name| spec(name).idempotent)
        .into();
    assert_eq!(may_run_again, [true, true, false, false]);
}

/// A model that records the tool names in its requests.
struct RecordingModel {
    script: ScriptedModel,
    tool_names: Arc<Mutex<Vec<Vec<String>>>>,
}

#[async_trait]
impl Model for RecordingModel {
    fn name(&self) -> &str {
        self.script.name()
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let calls = ask.messages.iter().flat_map(Msg::tool_calls).flat_map(|(call, result)| {
            [Some(call.name.clone()), result.map(|result| result.name.clone())]
        });
        let offered = ask.tools.iter().map(|tool| tool.name.clone());
        let offered = offered.filter(|name| name.contains("echo"));
        self.tool_names.lock().push(offered.chain(calls.flatten()).collect());
        self.script.stream(ask).await
    }
}

#[tokio::test]
async fn the_model_gets_valid_tool_names_and_the_log_keeps_the_original_ones() {
    let harness = McpHarness::child().await;
    let tool_names = Arc::new(Mutex::new(Vec::new()));
    let answers = [vec![ScriptStep::call("c", "files__echo", "{}")], vec![ScriptStep::text("So.")]];
    let model =
        RecordingModel { script: ScriptedModel::new(answers), tool_names: tool_names.clone() };
    let mut agent = Agent::builder("friday", model);
    for tool in &harness.tools {
        agent = agent.tool(tool.clone());
    }
    let reply = agent.build().call([Msg::user("ann", "go")]).await.unwrap();
    let (call, result) = reply.tool_calls().next().unwrap();
    assert_eq!((&*call.name, &*result.unwrap().name), ("files/echo", "files/echo"));
    assert_eq!(*tool_names.lock(), [vec!["files__echo"], vec!["files__echo"; 3]]);
}

/// The same over pipes and over HTTP.
async fn check_tool_results(harness: McpHarness) {
    // The model uses the name from its request.
    let echo = harness.call("files__echo", r#"{"text":"hello"}"#).await;
    assert_eq!((echo.state, echo.output.text("")), (ToolResultState::Success, "hello".to_owned()));
    assert_eq!(echo.name, "files/echo");
    assert_eq!(harness.call("files__echo", "").await.output.text(""), "nothing");
    let structured = harness.call("files__structured", "{}").await;
    assert_eq!(structured.output.text(""), r#"{"answer":42}"#);
    for (tool, why) in [("files__fails", "no such file"), ("files__refuses", "text is missing")] {
        let result = harness.call(tool, "{}").await;
        assert_eq!(
            (result.state, result.output.text("")),
            (ToolResultState::Error, why.to_owned())
        );
    }
    let broken = harness.call("files__broken", "{}").await;
    assert_eq!(broken.output.text(""), "(image/png with invalid base64)");

    let Payload::Parts(parts) = harness.call("files__show", "{}").await.output else { panic!() };
    let shown: Vec<String> = parts
        .iter()
        .map(|part| match part {
            Part::Text(block) => block.text.clone(),
            Part::Data(block) => {
                let bytes = block.decoded().unwrap().unwrap();
                format!("{} {bytes:?}", block.media_type().unwrap())
            }
            other @ Part::Other(_) => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "one\ntwo",
            "image/png [0, 1, 2]",
            "audio/wav [3, 4, 5]",
            "file:///b.txt\ninside",
            "application/octet-stream [6, 7, 8]",
            "a.txt <file:///a.txt>: A file",
        ]
    );
}

#[tokio::test]
async fn tool_results_over_pipes() {
    check_tool_results(McpHarness::child().await).await;
}

#[tokio::test]
async fn tool_results_over_http() {
    check_tool_results(McpHarness::http().await).await;
}

#[tokio::test]
async fn progress_of_a_tool_is_streamed() {
    for harness in [McpHarness::child().await, McpHarness::http().await] {
        let mut events = harness.agent("files__steps", "{}").reply([Msg::user("ann", "go")]);
        let mut output = String::new();
        while let Some(event) = events.next().await {
            if let EventKind::ToolResultTextDelta(delta) = event.unwrap().kind {
                // The tool continues only after this file exists.
                std::fs::write(harness.folder.path().join("delta_received"), "").unwrap();
                output.push_str(&delta.delta);
            }
        }
        assert_eq!(output, "one\ndone");
    }
}

#[tokio::test]
async fn many_calls_share_one_server() {
    for harness in [McpHarness::child().await, McpHarness::http().await] {
        let calls = (0..20).map(|n| {
            let harness = &harness;
            async move {
                let input = format!(r#"{{"text":"{n}"}}"#);
                assert_eq!(
                    harness.call("files__echo", &input).await.output.text(""),
                    n.to_string()
                );
            }
        });
        futures_util::future::join_all(calls).await;
    }
}

#[tokio::test]
async fn a_child_gets_little_of_our_environment() {
    // Cargo gives each test a lot of it.
    assert!(std::env::vars_os().any(|(name, _)| name.to_str().unwrap().starts_with("CARGO")));
    let harness =
        McpHarness::child_with(|server| server.env("EXTRA", "1").inherit("CARGO_PKG_NAME")).await;
    let names = harness.call("files__environment", "{}").await.output.text("");
    let names: Vec<&str> = names.split(' ').collect();
    for expected in ["EXTRA", "PATH", "CARGO_PKG_NAME"] {
        assert!(names.contains(&expected), "{expected}: {names:?}");
    }
    assert!(!names.contains(&"CARGO_PKG_VERSION"), "{names:?}");
}
