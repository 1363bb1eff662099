//! Schemas of request bodies that no type holds. These types exist for `/openapi.json` only.
//!
//! The requests of other protocols are read field by field out of an object: fields that Turnwire does not know go to the
//! agent as they are, and an error names the field. Messages and events have several forms. So there is nothing to derive
//! these schemas from. Everything that a route responds with is derived from the type that it is written from.

#![expect(dead_code, reason = "only their schemas are used")]

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use turnwire_core::{ContentBlock, Event, Fields, Json, Role};

/// Any bytes.
pub(super) struct Binary;

impl JsonSchema for Binary {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Binary".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "binary" })
    }
}

/// A message to send: a user's, unless it has another `role`.
#[derive(JsonSchema)]
pub(super) struct MessageBody {
    content: TextOrBlocks,
    /// The message's id; one is assigned if it is missing.
    id: Option<String>,
    /// Who sends it.
    name: Option<String>,
    role: Option<Role>,
    #[serde(default)]
    metadata: Fields,
}

/// Text, or a list of blocks.
#[derive(JsonSchema)]
#[serde(untagged)]
enum TextOrBlocks {
    Text(String),
    Blocks(Vec<ContentBlock>),
}

/// One event, or a list.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(super) enum EventsBody {
    One(Event<'static>),
    Many(Vec<Event<'static>>),
}

/// Text, or a list of the protocol's content parts.
#[derive(JsonSchema)]
#[serde(untagged)]
enum TextOrParts {
    Text(String),
    Parts(Vec<Fields>),
}

/// AG-UI's `RunAgentInput`. Turnwire stores the user messages that are new.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgUiRunInput {
    /// The session's id.
    thread_id: String,
    run_id: String,
    messages: Vec<Fields>,
    #[serde(default)]
    tools: Vec<Fields>,
    #[serde(default)]
    context: Vec<Fields>,
    state: Option<Json>,
    forwarded_props: Option<Json>,
    /// Answers to interrupts.
    resume: Option<Json>,
}

/// What `DefaultChatTransport` of the AI SDK posts.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AiSdkChatRequest {
    /// The session's id.
    id: String,
    /// UI messages.
    messages: Vec<Fields>,
    /// `submit-message` or `regenerate-message`.
    trigger: Option<String>,
    message_id: Option<String>,
}

/// A Chat Completions request. Other fields are passed to the agent.
#[derive(JsonSchema)]
pub(super) struct ChatCompletionRequest {
    /// The agent's name.
    model: String,
    messages: Vec<Fields>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<Fields>,
    #[serde(default)]
    tools: Vec<Fields>,
    response_format: Option<Fields>,
}

/// A Responses request. Other fields are passed to the agent.
#[derive(JsonSchema)]
pub(super) struct ResponseRequest {
    /// The agent's name.
    model: String,
    input: TextOrParts,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    /// A conversation's id, or an object with it. Excludes `previous_response_id`.
    conversation: Option<Json>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    background: bool,
    #[serde(default)]
    tools: Vec<Fields>,
    text: Option<Fields>,
}

/// A Messages request. Other fields are passed to the agent.
#[derive(JsonSchema)]
pub(super) struct AnthropicRequest {
    /// The agent's name.
    model: String,
    messages: Vec<Fields>,
    system: Option<TextOrParts>,
    max_tokens: Option<u64>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    tools: Vec<Fields>,
}

/// An `OpenAPI` document.
#[derive(JsonSchema)]
pub(super) struct OpenApiDocument {
    openapi: String,
    info: Fields,
    servers: Vec<Fields>,
    paths: Fields,
    components: Fields,
}
