//! Tools: functions that a model can call.
//!
//! Turn an async function with a typed argument into a tool:
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use turnwire_agent::tool::{Tool, ToolError, function};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct City {
//!     /// Its name, in English.
//!     city: String,
//! }
//!
//! let weather = function("get_weather", "The weather of a city", async |City { city }| {
//!     if city.is_empty() {
//!         return Err(ToolError::new("which city?"));
//!     }
//!     Ok(format!("{city}: sunny, 18 °C"))
//! })
//! .idempotent();
//! assert_eq!(weather.spec().name, "get_weather");
//! ```

mod function;

pub use function::{FunctionTool, function, streaming_function};

use crate::hints::HintSender;
use crate::sub_agent::ParentContext;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use turnwire_core::{Behavior, Event, Json, Part, ToolCall};

/// The description of a tool, for the model and for the agent loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the input.
    pub input: Json,
    /// The title for people.
    pub title: Option<String>,
    /// Whether it may run again after a crash.
    pub idempotent: bool,
    /// Whether it continues from the log after a crash, as sub-agents do.
    pub resumes: bool,
    /// Whether it may run concurrently with other tools.
    pub concurrent: bool,
    /// The time limit of a call.
    pub time_limit: Option<Duration>,
    /// The behavior if no permission rule matches.
    pub behavior: Behavior,
    /// Who executes it.
    pub executor: Executor,
    /// What its input is.
    pub input_kind: InputKind,
}

/// What the input of a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// A JSON object.
    Json,
    /// Free text.
    Text,
}

/// Who executes a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// The agent.
    Agent,
    /// The client: the reply waits for its result.
    Client,
}

impl ToolSpec {
    /// A tool that the agent executes, concurrently with others, without approval.
    pub fn new(name: impl Into<String>, description: impl Into<String>, input: Json) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input,
            title: None,
            idempotent: false,
            resumes: false,
            concurrent: true,
            time_limit: None,
            behavior: Behavior::Allow,
            executor: Executor::Agent,
            input_kind: InputKind::Json,
        }
    }

    /// A tool that the client executes.
    pub fn for_client(
        name: impl Into<String>,
        description: impl Into<String>,
        input: Json,
    ) -> Self {
        Self { executor: Executor::Client, ..Self::new(name, description, input) }
    }
}

/// The options that every tool with a `spec` of its own has.
macro_rules! spec_options {
    () => {
        /// Its title for people.
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.spec.title = Some(title.into());
            self
        }

        /// Runs it alone, not concurrently with other tools.
        pub fn exclusive(mut self) -> Self {
            self.spec.concurrent = false;
            self
        }

        /// Requires approval, unless a rule allows the call.
        pub fn requires_approval(mut self) -> Self {
            self.spec.behavior = turnwire_core::Behavior::Ask;
            self
        }
    };
}
pub(crate) use spec_options;

/// A tool that a model can call.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Its description.
    fn spec(&self) -> &ToolSpec;

    /// Executes a call. The start of the call is already in the log. Subscribers see what the tool sends
    /// through `context` at once.
    async fn run(&self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError>;
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    async fn run(&self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        (**self).run(call, out).await
    }
}

/// The output of a tool, after what it streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutput {
    /// Nothing more.
    Empty,
    /// Text.
    Text(String),
    /// Text and binary parts.
    Parts(Vec<Part>),
    /// The tool continues in the background: the model gets this note now, and the findings later as a
    /// hint.
    Background(String),
    /// The tool waits for a user or the client, and runs again after that: a sub-agent.
    Waiting,
}

impl ToolOutput {
    /// Joins parts, with a newline between adjacent texts.
    pub(crate) fn from_parts(parts: impl IntoIterator<Item = Part>) -> Self {
        let mut joined: Vec<Part> = Vec::new();
        for part in parts {
            match (part, joined.last_mut()) {
                (Part::Text(block), _) if block.text.is_empty() => {}
                (Part::Text(block), Some(Part::Text(before))) => {
                    before.text.push('\n');
                    before.text.push_str(&block.text);
                }
                (part, _) => joined.push(part),
            }
        }
        match joined.as_mut_slice() {
            [] => Self::Empty,
            [Part::Text(block)] => Self::Text(std::mem::take(&mut block.text)),
            _ => Self::Parts(joined),
        }
    }
}

impl From<()> for ToolOutput {
    fn from((): ()) -> Self {
        Self::Empty
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Json> for ToolOutput {
    fn from(json: Json) -> Self {
        Self::Text(json.text().to_owned())
    }
}

impl From<Vec<Part>> for ToolOutput {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

/// Why a tool call failed. The model gets the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(String);

impl ToolError {
    /// An error with a message that the model can act on.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0
    }
}

/// The context of a running call: streams output, and tells when to stop.
#[derive(Debug, Clone)]
pub struct ToolContext {
    pub(crate) call_id: String,
    pub(crate) sender: mpsc::Sender<ToolUpdate>,
    pub(crate) stop: CancellationToken,
    /// What a sub-agent gets from its parent.
    pub(crate) parent: Arc<ParentContext>,
    /// The reply id of a sub-agent that runs for this call.
    pub(crate) sub_reply_id: String,
    pub(crate) hint_sender: HintSender,
}

/// An update of a running call.
#[derive(Debug)]
pub(crate) struct ToolUpdate {
    pub call_id: String,
    pub content: UpdateContent,
}

#[derive(Debug)]
pub(crate) enum UpdateContent {
    Text(String),
    Part(Box<Part>),
    /// Events of a sub-agent. The sender is notified when they are durable.
    Events(Vec<Event<'static>>, oneshot::Sender<()>),
    /// The last events of a sub-agent: committed with the end of the call's result.
    FinalEvents(Vec<Event<'static>>),
}

impl ToolContext {
    /// Streams text.
    pub async fn send_text(&self, text: impl Into<String>) {
        self.send(UpdateContent::Text(text.into())).await;
    }

    /// Streams a part: text or binary data.
    pub async fn send_part(&self, part: impl Into<Part>) {
        self.send(UpdateContent::Part(Box::new(part.into()))).await;
    }

    pub(crate) async fn send(&self, content: UpdateContent) {
        // If the receiver is gone, the reply was stopped.
        let _ = self.sender.send(ToolUpdate { call_id: self.call_id.clone(), content }).await;
    }

    /// Sends findings after the tool went to the [background](ToolOutput::Background).
    pub fn hint_sender(&self) -> &HintSender {
        &self.hint_sender
    }

    /// Cancelled when the reply stops.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }
}
