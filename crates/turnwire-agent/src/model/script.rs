//! A model that plays a script: for tests, examples and benchmarks.
//!
//! ```
//! use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
//!
//! let model = ScriptedModel::new([
//!     vec![ScriptStep::call("c1", "get_weather", r#"{"city":"Paris"}"#)],
//!     vec![ScriptStep::text("Sunny.")],
//! ]);
//! assert_eq!(model.requests().len(), 0);
//! ```

use super::{Model, ModelError, ModelRequest, ModelStream};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;
use turnwire_core::event::{
    ModelCallEnd, ModelCallStart, TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta,
    ThinkingBlockEnd, ThinkingBlockStart, TokenCounts, ToolCallDelta, ToolCallEnd, ToolCallStart,
};
use turnwire_core::{Event, EventKind, Fields, FinishedReason, Msg};

/// A step of a scripted answer.
#[derive(Debug, Clone)]
pub enum ScriptStep {
    /// A text block, delta by delta.
    Text(Vec<String>),
    /// A thinking block, delta by delta.
    Thinking(Vec<String>),
    /// A tool call.
    Call {
        /// The call id.
        id: String,
        /// The tool name.
        name: String,
        /// The input, delta by delta.
        input: Vec<String>,
    },
    /// Fails.
    Fail(ModelError),
    /// Pauses.
    Wait(Duration),
    /// Ends with this reason.
    End(FinishedReason),
}

impl ScriptStep {
    /// A text block in one delta.
    pub fn text(text: &str) -> Self {
        Self::Text(vec![text.to_owned()])
    }

    /// A thinking block in one delta.
    pub fn thinking(text: &str) -> Self {
        Self::Thinking(vec![text.to_owned()])
    }

    /// A tool call with its input in one delta.
    pub fn call(id: &str, name: &str, input: &str) -> Self {
        Self::Call { id: id.to_owned(), name: name.to_owned(), input: vec![input.to_owned()] }
    }
}

/// A model that plays a script: one answer for each call.
#[derive(Debug, Default)]
#[must_use]
pub struct ScriptedModel {
    answers: Vec<Vec<ScriptStep>>,
    requests: Mutex<Vec<Vec<Msg>>>,
    name: String,
    /// Chooses the answer by the conversation instead of the number of calls, so that a repeated call gets
    /// the same answer.
    by_history: bool,
    has_schema_mode: bool,
}

impl ScriptedModel {
    /// Plays these answers in order. After the last one, answers are empty.
    pub fn new(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            name: "script".to_owned(),
            ..Self::default()
        }
    }

    /// Chooses the answer by the number of results in the last message: a call that is repeated after a
    /// crash gets the same answer.
    pub fn by_history(self) -> Self {
        Self { by_history: true, ..self }
    }

    /// Reports a schema mode.
    pub fn with_schema_mode(self) -> Self {
        Self { has_schema_mode: true, ..self }
    }

    /// The messages of each call so far.
    pub fn requests(&self) -> Vec<Vec<Msg>> {
        self.requests.lock().clone()
    }

    fn next_answer(&self, messages: &[Msg]) -> Vec<ScriptStep> {
        let mut requests = self.requests.lock();
        let nth = if self.by_history {
            let rounds =
                |msg: &Msg| msg.tool_calls().filter(|(_, result)| result.is_some()).count();
            messages.last().map_or(0, rounds)
        } else {
            requests.len()
        };
        requests.push(messages.to_vec());
        self.answers.get(nth).cloned().unwrap_or_default()
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_schema_mode(&self) -> bool {
        self.has_schema_mode
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let lines = self.next_answer(ask.messages);
        if let Some(ScriptStep::Fail(error)) = lines.first() {
            return Err(error.clone());
        }
        let mut steps = stream_steps(lines, ask.reply_id, ask.block_prefix, &self.name).into_iter();
        let mut pause: Option<Pin<Box<Sleep>>> = None;
        Ok(stream::poll_fn(move |context| {
            loop {
                if let Some(pause) = &mut pause {
                    ready!(pause.as_mut().poll(context));
                }
                pause = None;
                return Poll::Ready(Some(match steps.next() {
                    Some(StreamStep::Event(event)) => Ok(event),
                    Some(StreamStep::Fail(error)) => Err(error),
                    Some(StreamStep::Wait(time)) => {
                        pause = Some(Box::pin(tokio::time::sleep(time)));
                        continue;
                    }
                    None => return Poll::Ready(None),
                }));
            }
        })
        .boxed())
    }
}

enum StreamStep {
    Event(Event<'static>),
    Fail(ModelError),
    Wait(Duration),
}

fn stream_steps(lines: Vec<ScriptStep>, reply: &str, prefix: &str, model: &str) -> Vec<StreamStep> {
    let mut steps = Vec::new();
    let event = |kind: EventKind<'static>| StreamStep::Event(Event::new(reply.to_owned(), kind));
    steps.push(event(ModelCallStart { model_name: model.to_owned() }.into()));
    let (mut calls, mut tokens, mut given_reason) = (false, 0, None);
    for (at, line) in lines.into_iter().enumerate() {
        let block = format!("{prefix}{at}");
        let extra = Fields::default();
        match line {
            ScriptStep::Text(deltas) => {
                steps.push(event(TextBlockStart { block_id: block.clone().into() }.into()));
                for delta in deltas {
                    tokens += 1;
                    let (block_id, delta) = (block.clone().into(), delta.into());
                    steps.push(event(TextBlockDelta { block_id, delta }.into()));
                }
                steps
                    .push(event(TextBlockEnd { block_id: block.into(), text: None, extra }.into()));
            }
            ScriptStep::Thinking(deltas) => {
                steps.push(event(ThinkingBlockStart { block_id: block.clone().into() }.into()));
                for delta in deltas {
                    tokens += 1;
                    let (block_id, delta) = (block.clone().into(), delta.into());
                    steps.push(event(ThinkingBlockDelta { block_id, delta }.into()));
                }
                steps.push(event(ThinkingBlockEnd { block_id: block.into(), extra }.into()));
            }
            ScriptStep::Call { id, name, input } => {
                calls = true;
                let tool_call_id = || id.clone().into();
                let start =
                    ToolCallStart { tool_call_id: tool_call_id(), tool_call_name: name.into() };
                steps.push(event(start.into()));
                for delta in input {
                    tokens += 1;
                    let delta = ToolCallDelta { tool_call_id: tool_call_id(), delta: delta.into() };
                    steps.push(event(delta.into()));
                }
                steps.push(event(ToolCallEnd { tool_call_id: tool_call_id(), extra }.into()));
            }
            ScriptStep::Fail(error) => {
                steps.push(StreamStep::Fail(error));
                return steps;
            }
            ScriptStep::Wait(time) => steps.push(StreamStep::Wait(time)),
            ScriptStep::End(reason) => given_reason = Some(reason),
        }
    }
    let usual = if calls { FinishedReason::ToolCalls } else { FinishedReason::Completed };
    let finished_reason = given_reason.unwrap_or(usual);
    let usage = TokenCounts { input_tokens: 1, output_tokens: tokens, ..TokenCounts::default() };
    steps.push(event(ModelCallEnd { usage, finished_reason, ..ModelCallEnd::default() }.into()));
    steps
}
