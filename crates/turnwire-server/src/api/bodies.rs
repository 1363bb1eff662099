//! Schemas of bodies that are not read or written through serde: those of other protocols, as far as Turnwire knows them,
//! and those for which the code has a faster way. These types exist for `/openapi.json` only.

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

/// The query of `POST …/events`.
#[derive(JsonSchema)]
pub(super) struct PublishQuery {
    /// The wire of the events: `turnwire` (default), `agentscope` or `agentscope-java`.
    wire: Option<String>,
    /// Leave out events that do not fit and report them, instead of refusing the request.
    tolerant: Option<bool>,
    /// Whether a hint starts a reply if none is open.
    reply: Option<bool>,
}

/// The query of `POST …/replies`.
#[derive(JsonSchema)]
pub(super) struct PipeQuery {
    /// The wire of the stream; `turnwire` by default.
    wire: Option<String>,
    /// Leave out events that do not fit and report them, instead of ending the reply.
    tolerant: Option<bool>,
    /// The reply's id; by default the stream's own, or a new one.
    reply_id: Option<String>,
}

/// One event, or a list.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(super) enum EventsBody {
    One(Event<'static>),
    Many(Vec<Event<'static>>),
}

/// What became of published events.
#[derive(JsonSchema)]
pub(super) struct Published {
    /// The resume token of the last stored event.
    last_event_id: String,
    /// How many events were stored.
    stored: u64,
    /// How many were stored before.
    repeated: u64,
    /// With `tolerant=true`: events that do not fit.
    skipped: Option<Vec<Fields>>,
    /// The reply that a hint has started.
    reply_id: Option<String>,
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

/// A chat completion.
#[derive(JsonSchema)]
pub(super) struct ChatCompletion {
    id: String,
    object: String,
    created: i64,
    model: String,
    choices: Vec<Fields>,
    usage: Option<Fields>,
}

/// A Responses request. Other fields are passed to the agent.
#[derive(JsonSchema)]
pub(super) struct ResponseRequest {
    /// The agent's name.
    model: String,
    input: TextOrParts,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    background: bool,
    #[serde(default)]
    tools: Vec<Fields>,
    text: Option<Fields>,
}

/// A response of the Responses API.
#[derive(JsonSchema)]
pub(super) struct Response {
    id: String,
    object: String,
    created_at: f64,
    status: String,
    model: String,
    output: Vec<Fields>,
    usage: Option<Fields>,
    error: Option<Fields>,
    incomplete_details: Option<Fields>,
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

/// A message of the Messages API.
#[derive(JsonSchema)]
pub(super) struct AnthropicMessage {
    id: String,
    r#type: String,
    role: String,
    model: String,
    content: Vec<Fields>,
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
    usage: Fields,
}

/// The history of the content-block protocol.
#[derive(JsonSchema)]
pub(super) struct BlocksHistory {
    session_id: String,
    messages: Vec<Fields>,
    status: String,
    pending_approval: Option<Fields>,
    last_event_id: Option<String>,
}

/// An `OpenAPI` document.
#[derive(JsonSchema)]
pub(super) struct OpenApiDocument {
    openapi: String,
    info: Fields,
    paths: Fields,
}
