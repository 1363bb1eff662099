//! A fake model whose output depends only on the request, and replies that crash after a chosen commit.

use crate::harness::{Harness, REPLY, approve};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelSettings, ModelStream};
use turnwire_agent::{Agent, AgentError};
use turnwire_core::{EventKind, ModelCalls, Msg, Role, ToolResult, ToolResultState};
use turnwire_wires::model_request::{OutputFormat, ToolChoice};

/// A request that the model received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub messages: Vec<Msg>,
    pub tools: Vec<String>,
    pub tool_choice: ToolChoice,
    pub output: Option<OutputFormat>,
    pub tuning: ModelSettings,
}

impl RecordedRequest {
    /// The number of tool results.
    pub fn result_count(&self) -> usize {
        self.messages.iter().map(|msg| msg.blocks::<ToolResult>().count()).sum()
    }

    /// All messages as JSON lines.
    pub fn text(&self) -> String {
        let messages = self.messages.iter().map(Msg::to_json);
        messages.collect::<Vec<_>>().join("\n")
    }
}

type Choose = Box<dyn Fn(&RecordedRequest) -> Vec<ScriptStep> + Send + Sync>;

/// A model whose output depends only on the request, so a repeated call has the same output.
pub struct FakeModel {
    choose: Choose,
    requests: Mutex<Vec<RecordedRequest>>,
    has_schema_mode: bool,
}

impl FakeModel {
    pub fn new(
        choose: impl Fn(&RecordedRequest) -> Vec<ScriptStep> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            choose: Box::new(choose),
            requests: Mutex::default(),
            has_schema_mode: false,
        })
    }

    pub fn in_schema_mode(
        choose: impl Fn(&RecordedRequest) -> Vec<ScriptStep> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            choose: Box::new(choose),
            requests: Mutex::default(),
            has_schema_mode: true,
        })
    }

    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

#[async_trait]
impl Model for FakeModel {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn has_schema_mode(&self) -> bool {
        self.has_schema_mode
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let request = RecordedRequest {
            messages: ask.messages.to_vec(),
            tools: ask.tools.iter().map(|tool| tool.name.clone()).collect(),
            tool_choice: ask.tool_choice.clone(),
            output: ask.output.cloned(),
            tuning: ask.settings.clone(),
        };
        let lines = (self.choose)(&request);
        self.requests.lock().unwrap().push(request);
        ScriptedModel::new([lines]).stream(ask).await
    }
}

/// Runs a reply to its end, with one crash after `dies_after` commits. Approves every pending call.
pub async fn run_to_end(
    mut harness: Harness,
    agent: &impl Fn() -> Agent,
    dies_after: Option<usize>,
) -> Harness {
    harness.crash_after_commits = dies_after;
    let mut runs = 0;
    while harness.reply().finished_at().is_none() {
        runs += 1;
        assert!(runs < 20, "{:?}", harness.types());
        match harness.run(&agent()).await {
            Ok(()) => {
                harness.confirm_all(approve);
            }
            Err(AgentError::LogLost(_)) => harness.crash_after_commits = None,
            Err(other) => panic!("{other}"),
        }
    }
    harness
}

/// Runs it without a crash, and once for each commit after which the process can crash. Returns the number of
/// crashes.
pub async fn crash_everywhere(
    harness: impl Fn() -> Harness,
    agent: impl Fn() -> Agent,
    check: impl Fn(&Harness, &Harness),
) -> usize {
    let whole = run_to_end(harness(), &agent, None).await;
    for dies_after in 0.. {
        let crashed = run_to_end(harness(), &agent, Some(dies_after)).await;
        if crashed.crash_after_commits.is_some() {
            return dies_after;
        }
        check(&crashed, &whole);
    }
    0
}

pub fn find_result(reply: &Msg, id: &str) -> (ToolResultState, String) {
    let (_, result) = reply.tool_calls().find(|(call, _)| call.id == id).unwrap();
    let result = result.unwrap();
    (result.state.clone(), result.output.text(""))
}

/// The system prompt of agents whose requests are checked.
pub const SYSTEM: &str = "You are Friday.";

/// A message without its timestamps, which are set when it is written.
fn without_times(msg: &Msg) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("created_at");
                fields.remove("finished_at");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_str(&msg.to_json()).unwrap();
    strip(&mut value);
    value
}

/// The messages of a request, without the system prompt.
fn sent_messages(request: &RecordedRequest) -> Vec<Value> {
    let (system, others): (Vec<&Msg>, Vec<&Msg>) =
        request.messages.iter().partition(|msg| msg.role() == Role::System);
    assert!(system.iter().all(|msg| msg.text("").as_deref() == Some(SYSTEM)));
    others.into_iter().map(without_times).collect()
}

/// The messages that a request must have when the log has `events` events.
fn expected_messages(harness: &Harness, events: usize) -> Vec<Value> {
    let mut reply = Msg::reply(REPLY, "");
    for event in harness.events.iter().take(events) {
        reply.append_event(event).unwrap();
    }
    let reply = Some(reply).filter(|reply| !reply.content().is_empty());
    let all = harness.history.iter().chain(&reply);
    all.map(without_times).collect()
}

/// Law 10: each request to the model has the fold of the events that were emitted before it. An agent with a
/// system prompt uses [`SYSTEM`].
pub fn assert_history_is_fold(harness: &Harness, model: &FakeModel) {
    let starts =
        harness.events.iter().enumerate().filter_map(|(at, event)| {
            matches!(event.kind, EventKind::ModelCallStart(_)).then_some(at)
        });
    let starts: Vec<usize> = starts.collect();
    let requests = model.requests();
    assert_eq!(requests.len(), starts.len());
    for (request, at) in requests.iter().zip(starts) {
        assert_eq!(sent_messages(request), expected_messages(harness, at));
    }
}

/// The same after a crash: requests may start only at positions of the log where no model call is open.
pub fn assert_history_is_fold_after_crashes(harness: &Harness, model: &FakeModel) {
    let mut calls = ModelCalls::default();
    let mut folds = Vec::new();
    for (at, event) in harness.events.iter().enumerate() {
        if calls.open_blocks.is_none() {
            folds.push(expected_messages(harness, at));
        }
        calls.observe(event);
    }
    for request in model.requests() {
        let sent = sent_messages(&request);
        assert!(folds.contains(&sent), "{sent:#?}");
    }
}

const WORDS: [&str; 3] = ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"];
const CALL: [&str; 3] = ["TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END"];
const RESULT: [&str; 3] = ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"];

/// Expands a short script to event types: `WORDS`, `CALL` and `RESULT` are a start, one delta and an end
/// each.
pub fn expand_sequence(script: &str) -> Vec<&str> {
    let types = script.split_whitespace().flat_map(|word| match word {
        "WORDS" => WORDS.to_vec(),
        "CALL" => CALL.to_vec(),
        "RESULT" => RESULT.to_vec(),
        word => vec![word],
    });
    types.collect()
}
