//! Tools: what an agent can do beside talking.
//!
//! A tool is an async function with a typed argument:
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
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use turnwire_core::{Behavior, Event, Json, Part, ToolCall};

/// What a tool is, for the model and for the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input: Json,
    /// Its name for people.
    pub title: Option<String>,
    /// Whether it may run again after a crash.
    pub idempotent: bool,
    /// Whether it finds in the log how far it has come, and goes on from there: an agent does.
    pub resumes: bool,
    /// Whether it may run beside others.
    pub concurrent: bool,
    /// How long it may take.
    pub time_limit: Option<Duration>,
    /// What to do when no rule fits.
    pub behavior: Behavior,
    /// Who executes it.
    pub executor: Executor,
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
    /// A tool that runs here, beside others, without asking.
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
        }
    }

    /// One that the client executes.
    pub fn for_client(
        name: impl Into<String>,
        description: impl Into<String>,
        input: Json,
    ) -> Self {
        Self { executor: Executor::Client, ..Self::new(name, description, input) }
    }
}

/// Something that an agent can do.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is.
    fn spec(&self) -> &ToolSpec;

    /// Does it. When this is called, it is in the log that it was. What it says through `out` reaches
    /// the watchers at once.
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

/// What a tool gives at its end, behind what it has streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutput {
    /// Nothing more.
    Empty,
    /// Text.
    Text(String),
    /// Texts and bytes.
    Parts(Vec<Part>),
    /// It goes on in the background: the model is told so, and what it finds comes later as a hint.
    Background(String),
    /// It waits for somebody, and is run again when they have answered: an agent that asks.
    Waiting,
}

impl ToolOutput {
    /// Texts and bytes, with a line between texts that follow each other.
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

/// Why a tool gave nothing. The model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError(String);

impl ToolError {
    /// With a reason that the model can act on.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The reason.
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ToolError {}

/// Where a tool says what it finds while it works.
#[derive(Debug, Clone)]
pub struct ToolContext {
    pub(crate) call_id: String,
    pub(crate) sender: mpsc::Sender<ToolUpdate>,
    pub(crate) stop: CancellationToken,
    /// What an agent that works for this call is told by the one that made it.
    pub(crate) parent: Arc<ParentContext>,
    /// The reply of an agent that works for this call.
    pub(crate) sub_reply_id: String,
    pub(crate) hint_sender: HintSender,
}

/// A piece of what a tool says.
#[derive(Debug)]
pub(crate) struct ToolUpdate {
    pub call_id: String,
    pub content: UpdateContent,
}

#[derive(Debug)]
pub(crate) enum UpdateContent {
    Text(String),
    Part(Box<Part>),
    /// Events of an agent that works for the call. Told when they are durable.
    Events(Vec<Event<'static>>, oneshot::Sender<()>),
    /// Its last ones: they become durable with the end of the call's result, or not at all.
    FinalEvents(Vec<Event<'static>>),
}

impl ToolContext {
    /// Says some text.
    pub async fn send_text(&self, text: impl Into<String>) {
        self.send(UpdateContent::Text(text.into())).await;
    }

    /// Shows some text or bytes as a part of its own.
    pub async fn send_part(&self, part: impl Into<Part>) {
        self.send(UpdateContent::Part(Box::new(part.into()))).await;
    }

    pub(crate) async fn send(&self, said: UpdateContent) {
        // Where nobody listens any more, the reply has been stopped.
        let _ = self.sender.send(ToolUpdate { call_id: self.call_id.clone(), content: said }).await;
    }

    /// Where to say what is found after the tool has gone to the [background](ToolOutput::Background).
    pub fn hint_sender(&self) -> &HintSender {
        &self.hint_sender
    }

    /// Cancelled when the reply is to stop.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }
}
