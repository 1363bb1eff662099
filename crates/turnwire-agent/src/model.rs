//! What a model is to an agent: a question in, events out.
//!
//! A provider is a wire and an HTTP call ([`http`]); for tests there is one that says what it was told
//! to say ([`script`]), for load tests one that tells the time ([`clock`]).

pub mod clock;
#[cfg(feature = "http")]
pub mod http;
pub mod script;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{ErrorType, Event, Fields, Msg, ReplyError};
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolChoice, ToolDefinition};

/// What the metadata of a `MODEL_CALL_END` call the model that was asked, as `WIRE:MODEL`.
pub const MODEL_METADATA_KEY: &str = "model";

/// The events of one model call: `MODEL_CALL_START`, blocks, `MODEL_CALL_END`. An error is the last
/// item. Whoever drops it cancels the call.
pub type ModelStream = BoxStream<'static, Result<Event<'static>, ModelError>>;

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The reply that its events belong to.
    pub reply_id: &'a str,
    /// What stands in front of the ids of its blocks: no two calls of a reply have the same.
    pub block_prefix: &'a str,
    /// The conversation, the reply so far included.
    pub messages: &'a [Msg],
    /// The tools that it may call.
    pub tools: &'a [ToolDefinition],
    /// Whether it has to.
    pub tool_choice: &'a ToolChoice,
    /// The form that the answer must have.
    pub output: Option<&'a OutputFormat>,
    /// What wins over the model's own settings in this call.
    pub settings: &'a ModelSettings,
}

/// How a model is to answer. What is not said here is as the model is set up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// How much chance there is in the answer.
    pub temperature: Option<f64>,
    /// The most tokens that it may write.
    pub max_tokens: Option<u32>,
    /// Whether several agents speak in the conversation, and how they are told apart.
    pub agents: SpeakerFormat,
    /// Whatever else the provider takes, by its own names.
    pub extra: Fields,
}

/// Something that answers.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Its name, as `WIRE:MODEL`.
    fn name(&self) -> &str;

    /// Whether it can be held to a JSON Schema by itself.
    fn has_schema_mode(&self) -> bool {
        false
    }

    /// Asks it. Returns when the answer begins; what can be tried again was tried again by then.
    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError>;
}

#[async_trait]
impl<M: Model + ?Sized> Model for Arc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn has_schema_mode(&self) -> bool {
        (**self).has_schema_mode()
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        (**self).stream(ask).await
    }
}

/// Why a model gave no answer, or only a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    /// What kind of failure it is.
    pub kind: ErrorType,
    /// What happened, for people. No secret is in it.
    pub message: String,
    /// Whether it may succeed when it is tried again.
    pub is_transient: bool,
    /// When to try again, where the provider says so.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// A failure that stays.
    pub fn new(kind: ErrorType, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), is_transient: false, retry_after: None }
    }

    /// One that may pass.
    pub fn transient(kind: ErrorType, message: impl Into<String>) -> Self {
        Self { is_transient: true, ..Self::new(kind, message) }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.message)
    }
}

impl std::error::Error for ModelError {}

impl From<ModelError> for ReplyError {
    fn from(error: ModelError) -> Self {
        Self { r#type: error.kind, message: error.message, ..Self::default() }
    }
}
