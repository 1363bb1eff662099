//! Models: the [`Model`] trait, its request and its stream of events.
//!
//! [`http`] calls providers; [`script`] plays a script for tests and examples; [`clock`] streams timestamps
//! for load tests.

pub mod clock;
#[cfg(feature = "http")]
pub mod http;
pub mod script;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{ErrorType, Event, Fields, Msg, ReplyError};
use turnwire_wires::ModelOptions;
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolChoice, ToolDefinition};

/// The metadata key of `MODEL_CALL_END` that names the model, as `WIRE:MODEL`.
pub const MODEL_METADATA_KEY: &str = "model";

/// The events of one model call: `MODEL_CALL_START`, blocks, `MODEL_CALL_END`. An error is the last item.
/// Dropping the stream cancels the call.
pub type ModelStream = BoxStream<'static, Result<Event<'static>, ModelError>>;

/// The request of one model call.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The reply that the events belong to.
    pub reply_id: &'a str,
    /// The prefix of block ids, different for each call of a reply.
    pub block_prefix: &'a str,
    /// The conversation, including the reply so far.
    pub messages: &'a [Msg],
    /// The tools that the model may call.
    pub tools: &'a [ToolDefinition],
    /// Whether the model must call a tool.
    pub tool_choice: &'a ToolChoice,
    /// The schema that the answer must match.
    pub output: Option<&'a OutputFormat>,
    /// Settings that override the model's own.
    pub settings: &'a ModelSettings,
    /// The client's options, besides those in `settings`, `tool_choice` and `output`.
    pub options: &'a ModelOptions,
}

/// Settings of a model call. Unset values are the model's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The most output tokens.
    pub max_tokens: Option<u32>,
    /// How messages name their authors, in a conversation of several agents.
    pub agents: SpeakerFormat,
    /// Other parameters of the provider, by its names.
    pub extra: Fields,
}

/// A language model.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The name: `WIRE:MODEL`.
    fn name(&self) -> &str;

    /// Whether the provider itself can enforce a JSON Schema.
    fn has_schema_mode(&self) -> bool {
        false
    }

    /// Whether the response format of a client is passed on, if the model's protocol has it.
    fn takes_response_format(&self) -> bool {
        self.has_schema_mode() || self.wire().is_some()
    }

    /// The wire that it is called through, and its name there. `None`: it takes every option.
    fn wire(&self) -> Option<(&'static str, &str)> {
        None
    }

    /// Calls the model. Returns when the answer starts, after any retries.
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

    fn takes_response_format(&self) -> bool {
        (**self).takes_response_format()
    }

    fn wire(&self) -> Option<(&'static str, &str)> {
        (**self).wire()
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        (**self).stream(ask).await
    }
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ModelError {
    /// The error type.
    pub kind: ErrorType,
    /// What happened, for people. It contains no secrets.
    pub message: String,
    /// Whether a retry may succeed.
    pub is_transient: bool,
    /// When to retry, if the provider says so.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// A permanent failure.
    pub fn new(kind: ErrorType, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), is_transient: false, retry_after: None }
    }

    /// A failure that a retry may fix.
    pub fn transient(kind: ErrorType, message: impl Into<String>) -> Self {
        Self { is_transient: true, ..Self::new(kind, message) }
    }
}

impl From<ModelError> for ReplyError {
    fn from(error: ModelError) -> Self {
        Self::new(error.kind, error.message)
    }
}
