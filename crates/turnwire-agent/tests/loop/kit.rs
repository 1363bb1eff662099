//! A model that answers by what it is asked, and a process that dies wherever it is told to.

use crate::house::{House, yes};
use async_trait::async_trait;
use std::sync::{Arc, Mutex};
use turnwire_agent::model::script::{Line, Script};
use turnwire_agent::model::{Answer, Ask, Model, ModelError, Tuning};
use turnwire_agent::{Agent, Halt};
use turnwire_core::{Msg, ToolResult, ToolResultState};
use turnwire_wires::request::{Output, ToolChoice};

/// What a model was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub messages: Vec<Msg>,
    pub tools: Vec<String>,
    pub tool_choice: ToolChoice,
    pub output: Option<Output>,
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
