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

pub use function::{Function, function, streaming};

use crate::hints::Later;
use crate::subagent::Above;
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
    pub place: Place,
}

/// Who executes a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The agent.
    Here,
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
            place: Place::Here,
        }
    }

    /// One that the client executes.
    pub fn of_client(name: impl Into<String>, description: impl Into<String>, input: Json) -> Self {
        Self { place: Place::Client, ..Self::new(name, description, input) }
    }
}

/// Something that an agent can do.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is.
    fn spec(&self) -> &ToolSpec;

    /// Does it. When this is called, it is in the log that it was. What it says through `out` reaches
    /// the watchers at once.
    async fn run(&self, call: ToolCall, out: Out) -> Result<Given, ToolError>;
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    async fn run(&self, call: ToolCall, out: Out) -> Result<Given, ToolError> {
        (**self).run(call, out).await
    }
}

/// What a tool gives at its end, behind what it has streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// Nothing more.
    Nothing,
    /// Text.
    Text(String),
    /// Texts and bytes.
    Parts(Vec<Part>),
    /// It goes on in the background: the model is told so, and what it finds comes later as a hint.
    Background(String),
    /// It waits for somebody, and is run again when they have answered: an agent that asks.
    Waits,
}

impl Given {
    /// Texts and bytes, with a line between texts that follow each other.
    pub(crate) fn of(parts: impl IntoIterator<Item = Part>) -> Self {
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
            [] => Self::Nothing,
            [Part::Text(block)] => Self::Text(std::mem::take(&mut block.text)),
            _ => Self::Parts(joined),
        }
    }
}

impl From<()> for Given {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

impl From<String> for Given {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Given {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Json> for Given {
    fn from(json: Json) -> Self {
        Self::Text(json.text().to_owned())
    }
}

impl From<Vec<Part>> for Given {
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
pub struct Out {
    pub(crate) call_id: String,
    pub(crate) sender: mpsc::Sender<Piece>,
    pub(crate) stop: CancellationToken,
    /// What an agent that works for this call is told by the one that made it.
    pub(crate) above: Arc<Above>,
    /// The reply of an agent that works for this call.
    pub(crate) sub_reply_id: String,
    pub(crate) later: Later,
}

/// A piece of what a tool says.
#[derive(Debug)]
pub(crate) struct Piece {
    pub call_id: String,
    pub said: Said,
}

#[derive(Debug)]
pub(crate) enum Said {
    Text(String),
    Part(Box<Part>),
    /// Events of an agent that works for the call. Told when they are durable.
    Events(Vec<Event<'static>>, oneshot::Sender<()>),
    /// Its last ones: they become durable with the end of the call's result, or not at all.
    Last(Vec<Event<'static>>),
}

impl Out {
    /// Says some text.
    pub async fn text(&self, text: impl Into<String>) {
        self.say(Said::Text(text.into())).await;
    }

    /// Shows some text or bytes as a part of its own.
    pub async fn part(&self, part: impl Into<Part>) {
        self.say(Said::Part(Box::new(part.into()))).await;
    }

    pub(crate) async fn say(&self, said: Said) {
        // Where nobody listens any more, the reply has been stopped.
        let _ = self.sender.send(Piece { call_id: self.call_id.clone(), said }).await;
    }

    /// Where to say what is found after the tool has gone to the [background](Given::Background).
    pub fn later(&self) -> &Later {
        &self.later
    }

    /// Cancelled when the reply is to stop.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
