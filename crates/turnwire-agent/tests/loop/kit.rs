//! A model that answers by what it is asked, and a process that dies wherever it is told to.

use crate::house::{House, REPLY, yes};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use turnwire_agent::model::script::{Line, Script};
use turnwire_agent::model::{Answer, Ask, Model, ModelError, Tuning};
use turnwire_agent::{Agent, Halt};
use turnwire_core::{EventKind, ModelCalls, Msg, Role, ToolResult, ToolResultState};
use turnwire_wires::request::{OutputFormat, ToolChoice};

/// What a model was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub messages: Vec<Msg>,
    pub tools: Vec<String>,
    pub tool_choice: ToolChoice,
    pub output: Option<OutputFormat>,
    pub tuning: Tuning,
}

impl Asked {
    /// How many results there are.
    pub fn results(&self) -> usize {
        self.messages.iter().map(|msg| msg.blocks::<ToolResult>().count()).sum()
    }

    /// All that is said in it.
    pub fn text(&self) -> String {
        let said = self.messages.iter().map(Msg::to_json);
        said.collect::<Vec<_>>().join("\n")
    }
}

type Choose = Box<dyn Fn(&Asked) -> Vec<Line> + Send + Sync>;

/// A model that answers by what it is asked: a call that is repeated gets the same answer.
pub struct Told {
    choose: Choose,
    asked: Mutex<Vec<Asked>>,
    has_schema_mode: bool,
}

impl Told {
    pub fn new(choose: impl Fn(&Asked) -> Vec<Line> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { choose: Box::new(choose), asked: Mutex::default(), has_schema_mode: false })
    }

    pub fn in_schema_mode(
        choose: impl Fn(&Asked) -> Vec<Line> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { choose: Box::new(choose), asked: Mutex::default(), has_schema_mode: true })
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Model for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn has_schema_mode(&self) -> bool {
        self.has_schema_mode
    }

    async fn ask(&self, ask: Ask<'_>) -> Result<Answer, ModelError> {
        let asked = Asked {
            messages: ask.messages.to_vec(),
            tools: ask.tools.iter().map(|tool| tool.name.clone()).collect(),
            tool_choice: ask.tool_choice.clone(),
            output: ask.output.cloned(),
            tuning: ask.tuning.clone(),
        };
        let lines = (self.choose)(&asked);
        self.asked.lock().unwrap().push(asked);
        Script::new([lines]).ask(ask).await
    }
}

/// Runs a reply to its end in a new process each time, and dies once after so many commits. Whoever is
/// asked says yes.
pub async fn play(
    mut house: House,
    agent: &impl Fn() -> Agent,
    dies_after: Option<usize>,
) -> House {
    house.dies_after = dies_after;
    let mut runs = 0;
    while house.reply().finished_at().is_none() {
        runs += 1;
        assert!(runs < 20, "{:?}", house.types());
        match house.run(&agent()).await {
            Ok(()) => {
                house.answer(yes);
            }
            Err(Halt::Lost(_)) => house.dies_after = None,
            Err(other) => panic!("{other}"),
        }
    }
    house
}

/// Plays it once without a crash and once for each place where the process can die. How often that is.
pub async fn crash_everywhere(
    house: impl Fn() -> House,
    agent: impl Fn() -> Agent,
    check: impl Fn(&House, &House),
) -> usize {
    let whole = play(house(), &agent, None).await;
    for dies_after in 0.. {
        let crashed = play(house(), &agent, Some(dies_after)).await;
        if crashed.dies_after.is_some() {
            return dies_after;
        }
        check(&crashed, &whole);
    }
    0
}

pub fn result(reply: &Msg, id: &str) -> (ToolResultState, String) {
    let (_, result) = reply.tool_calls().find(|(call, _)| call.id == id).unwrap();
    let result = result.unwrap();
    (result.state.clone(), result.output.text(""))
}

/// What an agent is told whose requests are looked at.
pub const SYSTEM: &str = "You are Friday.";

/// A message without its times: those are given when it is written.
fn timeless(msg: &Msg) -> Value {
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

/// What a model was sent, without what it is told first.
fn sent(asked: &Asked) -> Vec<Value> {
    let (system, said): (Vec<&Msg>, Vec<&Msg>) =
        asked.messages.iter().partition(|msg| msg.role() == Role::System);
    assert!(system.iter().all(|msg| msg.text("").as_deref() == Some(SYSTEM)));
    said.into_iter().map(timeless).collect()
}

/// What has to be sent where the log has so many events.
fn expected(house: &House, events: usize) -> Vec<Value> {
    let mut reply = Msg::reply(REPLY, "");
    for event in house.events.iter().take(events) {
        reply.append_event(event).unwrap();
    }
    let said = Some(reply).filter(|reply| !reply.content().is_empty());
    let all = house.history.iter().chain(&said);
    all.map(timeless).collect()
}

/// Law 10: what the model was asked each time is the fold of what was emitted before. An agent that is
/// told something says what it is told as [`SYSTEM`] has it.
pub fn law_10(house: &House, model: &Told) {
    let starts =
        house.events.iter().enumerate().filter_map(|(at, event)| {
            matches!(event.kind, EventKind::ModelCallStart(_)).then_some(at)
        });
    let starts: Vec<usize> = starts.collect();
    let asked = model.asked();
    assert_eq!(asked.len(), starts.len());
    for (asked, at) in asked.iter().zip(starts) {
        assert_eq!(sent(asked), expected(house, at));
    }
}

/// The same where the process died: wherever no model call is open, and nowhere else, the model may be
/// asked.
pub fn law_10_after_crashes(house: &House, model: &Told) {
    let mut calls = ModelCalls::default();
    let mut folds = Vec::new();
    for (at, event) in house.events.iter().enumerate() {
        if calls.open_blocks.is_none() {
            folds.push(expected(house, at));
        }
        calls.observe(event);
    }
    for asked in model.asked() {
        let sent = sent(&asked);
        assert!(folds.contains(&sent), "{sent:#?}");
    }
}

const WORDS: [&str; 3] = ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"];
const CALL: [&str; 3] = ["TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END"];
const RESULT: [&str; 3] = ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"];

/// The types that a shorter script stands for: `WORDS`, `CALL` and `RESULT` are a start, one delta and an
/// end each.
pub fn sequence(script: &str) -> Vec<&str> {
    let types = script.split_whitespace().flat_map(|word| match word {
        "WORDS" => WORDS.to_vec(),
        "CALL" => CALL.to_vec(),
        "RESULT" => RESULT.to_vec(),
        word => vec![word],
    });
    types.collect()
}
