//! The routes, in the order of `docs/api.md`. To add one: write the handler, add it here, describe it in `docs/api.md`,
//! and add a row to `tests/authorization/rows.rs`.

use super::Access::{Local, NoTicket, Public, Requires, RequiresAtLeast, RequiresOneOf, Socket};
use super::bodies::{
    AgUiRunInput, AiSdkChatRequest, AnthropicRequest, Binary, ChatCompletionRequest, EventsBody,
    MessageBody, OpenApiDocument, ResponseRequest,
};
use super::{ANY, BYTES, HeaderParam, JSON, NDJSON, Route, SSE};
use crate::auth::Action::{
    Administer, CancelResponse, Chat, Confirm, DeleteItem, Fork, ListModels, Publish, Read,
    Regenerate, StartWithHint, StoreBlob,
};
use crate::error::Dialect;
use crate::health::{self, HealthStatus, TicketView};
use crate::ingest::PublishedView;
use crate::protocols::ag_ui::join::ThreadView;
use crate::protocols::anthropic::TokenCount;
use crate::protocols::openai::conversation_items as items;
use crate::protocols::openai::conversations::{self, ConversationView};
use crate::protocols::openai::models::{ModelList, ModelView};
use crate::protocols::openai::responses::{CompactedResponse, DeletedView, InputTokens, ItemList};
use crate::protocols::{ag_ui, ai_sdk, anthropic, blocks, openai};
use crate::routes::{
    self, AgentList, ApprovalList, BlobView, DecisionList, HitList, MeView, MessagePage,
    PipedReply, SessionPage, SessionResponse, SessionView,
};
use crate::turns::send::Accepted;
use turnwire_core::{Fields, Msg};
use turnwire_wires::anthropic::Message;
use turnwire_wires::blocks::History;
use turnwire_wires::openai_chat::ChatCompletion;
use turnwire_wires::openai_responses::Response;

const IDEMPOTENCY_KEY: HeaderParam = HeaderParam {
    name: "Idempotency-Key",
    description: "A repeated request with the same key and body returns the stored response.",
};
const SESSION: HeaderParam = HeaderParam {
    name: "Turnwire-Session",
    description: "The session to use. Without it the request starts a new session.",
};
const PRODUCER: HeaderParam = HeaderParam {
    name: "Turnwire-Producer",
    description: "ID.FENCE of the producer: a higher fence takes over, a lower one gets 409.",
};
const LAST_EVENT_ID: HeaderParam = HeaderParam {
    name: "Last-Event-ID",
    description: "The resume token of the last event received. Wins over `after`.",
};

const LAST_FRAME_ID: HeaderParam = HeaderParam {
    name: "Last-Event-ID",
    description: "The id of the last frame received: the response continues after it, and nothing is stored.",
};

pub(super) fn routes() -> Vec<Route> {
    let mut all = sessions();
    all.extend(messages());
    all.extend(events());
    all.extend(blobs_agents_approvals());
    all.extend(protocols());
    all.extend(models());
    all.extend(responses());
    all.extend(conversations());
    all.extend(operations());
    #[cfg(feature = "console")]
    all.extend(console());
    all
}

fn sessions() -> Vec<Route> {
    vec![
        Route::post("/v1/sessions", Requires(Chat), "createSession", routes::create_session)
            .summary("Create a session")
            .returns::<SessionView>(201, "Created")
            .returns::<SessionResponse>(
                200,
                "It exists; without the scope `read` only `id` and `agent`",
            ),
        Route::get("/v1/sessions", Requires(Read), "listSessions", routes::list_sessions)
            .summary("List and search sessions, last changed first")
            .returns::<SessionPage>(200, "One page"),
        Route::get("/v1/sessions/{s}", Requires(Read), "getSession", routes::get_session)
            .summary("Get a session: its status, pending calls, and the end of its log")
            .returns::<SessionView>(200, "The session"),
        Route::patch("/v1/sessions/{s}", Requires(Chat), "patchSession", routes::patch_session)
            .summary("Change a session's title or metadata")
            .returns::<SessionResponse>(200, "The session"),
        Route::delete("/v1/sessions/{s}", Requires(Chat), "deleteSession", routes::delete_session)
            .summary("Delete a session with all its events and messages")
            .returns_nothing(204, "Deleted, also after a crash"),
        Route::post("/v1/sessions/{s}/fork", Requires(Fork), "forkSession", routes::fork_session)
            .summary("Create a session from the log of another one up to an event")
            .returns::<SessionView>(201, "The new session"),
        Route::get(
            "/v1/sessions/{s}/decisions",
            Requires(Read),
            "listDecisions",
            routes::list_decisions,
        )
        .summary("List the decisions about pending calls, and the rules that were accepted")
        .returns::<DecisionList>(200, "The decisions"),
        Route::post(
            "/v1/sessions/{s}/rules/revoke",
            Requires(Confirm),
            "revokeRule",
            routes::revoke_rule,
        )
        .summary("Revoke a rule that was accepted with an approval")
        .returns_nothing(204, "Revoked"),
    ]
}

fn messages() -> Vec<Route> {
    let path = "/v1/sessions/{s}/messages";
    let one = "/v1/sessions/{s}/messages/{id}";
    let retry = "/v1/sessions/{s}/messages/{id}/retry";
    let search = "/v1/sessions/{s}/search";
    vec![
        Route::get(search, Requires(Read), "searchMessages", routes::search_messages)
            .summary("Find the messages of a session that have some words")
            .returns::<HitList>(200, "The messages, with excerpts"),
        Route::get(path, Requires(Read), "listMessages", routes::list_messages)
            .summary("List messages, with the token to watch from without a gap")
            .returns::<MessagePage>(200, "One page, oldest message first"),
        Route::post(path, Requires(Chat), "sendMessage", routes::send_message)
            .summary("Send a message; the agent replies")
            .header(IDEMPOTENCY_KEY)
            .body::<MessageBody>(JSON, "A message; the shortest is `{\"content\": \"hello\"}`")
            .returns::<Accepted>(202, "The message is durable")
            .returns_as::<String>(200, SSE, "The reply, with `Accept: text/event-stream`"),
        Route::get(one, Requires(Read), "getMessage", routes::get_message)
            .summary("Get a message, or its state at an earlier event")
            .returns::<Msg>(200, "The message"),
        Route::delete(one, Requires(Chat), "cancelMessage", routes::cancel_message)
            .summary("Remove a message from the queue")
            .returns_nothing(204, "Removed"),
        Route::post(retry, Requires(Regenerate), "retryMessage", routes::retry_message)
            .summary("Answer a message again; the old reply leaves the history")
            .header(IDEMPOTENCY_KEY)
            .body::<MessageBody>(JSON, "The message that replaces it")
            .optional()
            .returns::<Accepted>(202, "The new reply has started")
            .returns_as::<String>(200, SSE, "The reply, with `Accept: text/event-stream`"),
    ]
}

fn events() -> Vec<Route> {
    let path = "/v1/sessions/{s}/events";
    let publish = RequiresOneOf(&[Publish, StartWithHint, Confirm, Chat]);
    vec![
        Route::get(path, Requires(Read), "watchEvents", routes::watch_events)
            .summary("Stream events after a cursor, then live ones")
            .header(LAST_EVENT_ID)
            .returns_as::<String>(200, SSE, "The events")
            .returns_as::<String>(200, NDJSON, "")
            .returns_nothing(204, "With `until=idle`: no events to send"),
        Route::post(path, publish, "publishEvents", routes::publish_events)
            .summary("Store events: all of them or none, durable when answered")
            .header(PRODUCER)
            .body::<EventsBody>(JSON, "One event, a list, or one event per line")
            .body::<String>(NDJSON, "")
            .returns::<PublishedView<'_>>(200, "Stored"),
        Route::post("/v1/sessions/{s}/replies", Requires(Publish), "pipeReply", routes::pipe_reply)
            .summary("Store a streamed body as one reply, for example a provider's response")
            .header(PRODUCER)
            .body::<Binary>(BYTES, "The stream of a wire, of any content type")
            .returns::<PipedReply>(200, "The reply has ended"),
        Route::get("/v1/ws", Socket, "openSocket", routes::open_socket)
            .summary("Open a WebSocket for several sessions")
            .returns_nothing(101, "The socket"),
    ]
}

fn blobs_agents_approvals() -> Vec<Route> {
    let blob = "/v1/blobs/{hash}";
    vec![
        Route::post("/v1/blobs", Requires(StoreBlob), "putBlob", routes::put_blob)
            .summary("Store bytes, once per tenant")
            .body::<Binary>(BYTES, "The bytes, of any content type")
            .returns::<BlobView>(201, "Stored")
            .returns::<BlobView>(200, "They exist already")
            .returns::<crate::error::ErrorBody<'_>>(507, "The tenant's quota of blobs is used up"),
        Route::get(blob, Requires(Read), "getBlob", routes::get_blob)
            .summary("Get a blob by its SHA-256")
            .returns_as::<Binary>(200, BYTES, "The bytes, with their media type")
            .returns_as::<Binary>(200, ANY, "")
            .returns_as::<Binary>(206, BYTES, "The part of them that the header `Range` asks for")
            .returns_as::<Binary>(206, ANY, "")
            .returns_nothing(304, "The bytes are those that the client has"),
        Route::delete(blob, Requires(Chat), "deleteBlob", routes::delete_blob)
            .summary("Delete a blob, also if sessions refer to it")
            .returns_nothing(204, "Deleted, also after a crash"),
        Route::get("/v1/agents", Requires(Read), "listAgents", routes::list_agents)
            .summary("List the agents")
            .returns::<AgentList>(200, "The agents"),
        Route::get("/v1/approvals", Requires(Read), "listApprovals", routes::list_approvals)
            .summary("List the pending calls of all sessions")
            .returns::<ApprovalList>(200, "The pending calls"),
        Route::get("/v1/me", Requires(Read), "getMe", routes::get_me)
            .summary("Get the holder of the credentials, and their scopes")
            .returns::<MeView>(200, "The holder"),
        Route::post("/v1/tickets", NoTicket, "createTicket", health::create_ticket)
            .summary("Create a ticket for EventSource and WebSocket: one use, 60 seconds")
            .returns::<TicketView>(201, "The ticket"),
    ]
}

fn protocols() -> Vec<Route> {
    let history = "/v2/sessions/{s}/history";
    let run = RequiresAtLeast(Chat, &[Confirm, Read]);
    let chat = RequiresAtLeast(Chat, &[Confirm, Regenerate, Read]);
    vec![
        Route::get(history, Requires(Read), "blocksHistory", blocks::history)
            .summary("Content blocks: the history")
            .returns::<History>(200, "The history"),
        Route::post("/ag-ui/{agent}", run, "agUiRun", ag_ui::run)
            .summary("AG-UI: start a run, or resume one")
            .header(LAST_FRAME_ID)
            .body::<AgUiRunInput>(JSON, "RunAgentInput")
            .returns_as::<String>(200, SSE, "The run"),
        Route::get("/ag-ui/{agent}", Requires(Read), "agUiJoin", ag_ui::join::join)
            .summary("AG-UI: find the run of a thread, as TanStack AI does, and join it")
            .header(LAST_FRAME_ID)
            .any_query()
            .returns::<ThreadView>(200, "The run to join, or with `runId` its events")
            .returns_as::<String>(200, SSE, ""),
        Route::post("/ag-ui/{agent}/{thread}/stop", Requires(Chat), "agUiStop", ag_ui::stop)
            .summary("AG-UI: stop the reply that runs in a thread")
            .returns_nothing(204, "Stopped"),
        Route::post("/ai-sdk/{agent}", chat, "aiSdkChat", ai_sdk::chat)
            .summary("AI SDK: send, regenerate, approve, submit tool results")
            .header(IDEMPOTENCY_KEY)
            .header(LAST_FRAME_ID)
            .body::<AiSdkChatRequest>(JSON, "The request of a chat transport")
            .returns_as::<String>(200, SSE, "UI message stream v1"),
        Route::get("/ai-sdk/{agent}/{chat}/stream", Requires(Read), "aiSdkResume", ai_sdk::resume)
            .summary("AI SDK: stream the running reply, from its start or after a frame")
            .header(LAST_FRAME_ID)
            .returns_as::<String>(200, SSE, "UI message stream v1")
            .returns_nothing(204, "No reply runs"),
        Route::post("/ai-sdk/{agent}/{chat}/stop", Requires(Chat), "aiSdkStop", ai_sdk::stop)
            .summary("AI SDK: stop the reply that runs in a chat")
            .returns_nothing(204, "Stopped"),
    ]
}

/// Agents as models: OpenAI's and Anthropic's.
fn models() -> Vec<Route> {
    let model = RequiresAtLeast(Chat, &[Publish]);
    let all = vec![
        Route::get("/v1/models", Requires(ListModels), "listModels", openai::models::list_models)
            .summary("List the agents as models of OpenAI and Anthropic")
            .errors_of(Dialect::OpenAi)
            .returns::<ModelList>(200, "The models"),
        Route::get(
            "/v1/models/{model}",
            Requires(ListModels),
            "getModel",
            openai::models::get_model,
        )
        .summary("Get an agent as a model")
        .errors_of(Dialect::OpenAi)
        .returns::<ModelView>(200, "The model"),
        Route::post("/v1/chat/completions", model, "createChatCompletion", openai::chat::complete)
            .summary("OpenAI Chat Completions: an agent as a model")
            .errors_of(Dialect::OpenAi)
            .header(SESSION)
            .header(IDEMPOTENCY_KEY)
            .body::<ChatCompletionRequest>(JSON, "A Chat Completions request")
            .returns::<ChatCompletion>(200, "The completion, or its chunks with `stream: true`")
            .returns_as::<String>(200, SSE, ""),
        Route::post(
            "/v1/messages/count_tokens",
            Requires(Chat),
            "countTokens",
            anthropic::count_tokens,
        )
        .summary("Anthropic Messages: estimate the tokens of a request")
        .errors_of(Dialect::Anthropic)
        .body::<AnthropicRequest>(JSON, "A Messages request")
        .returns::<TokenCount>(200, "The estimate"),
        Route::post("/v1/messages", model, "createMessage", anthropic::messages)
            .summary("Anthropic Messages: an agent as a model")
            .errors_of(Dialect::Anthropic)
            .header(SESSION)
            .header(IDEMPOTENCY_KEY)
            .body::<AnthropicRequest>(JSON, "A Messages request")
            .returns::<Message>(200, "The message, or its events with `stream: true`")
            .returns_as::<String>(200, SSE, ""),
    ];
    all.into_iter().map(Route::any_query).collect()
}

fn responses() -> Vec<Route> {
    let all = vec![
        Route::post("/v1/responses", Requires(Chat), "createResponse", openai::responses::create)
            .summary("OpenAI Responses: an agent as a model")
            .header(SESSION)
            .header(IDEMPOTENCY_KEY)
            .body::<ResponseRequest>(JSON, "A Responses request")
            .returns::<Response<'_>>(200, "The response, or its events with `stream: true`")
            .returns_as::<String>(200, SSE, ""),
        Route::get(
            "/v1/responses",
            Requires(Chat),
            "openResponseSocket",
            openai::responses::socket::open_response_socket,
        )
        .summary("OpenAI Responses: open a WebSocket that creates one response after the other")
        .errors_of(Dialect::OpenAi)
        .header(SESSION)
        .any_query()
        .returns_nothing(101, "The socket"),
        Route::get(
            "/v1/responses/{id}",
            Requires(Read),
            "getResponse",
            openai::responses::retrieve,
        )
        .summary("Get a response, or stream its events again")
        .returns::<Response<'_>>(200, "The response, or its events with `stream=true`")
        .returns_as::<String>(200, SSE, ""),
        Route::post(
            "/v1/responses/{id}/cancel",
            Requires(CancelResponse),
            "cancelResponse",
            openai::responses::cancel,
        )
        .summary("Stop a response")
        .returns::<Response<'_>>(200, "The response"),
        Route::delete(
            "/v1/responses/{id}",
            Requires(Chat),
            "deleteResponse",
            openai::responses::delete,
        )
        .summary("Remove a response and its input from the history")
        .returns::<DeletedView>(200, "Deleted"),
        Route::get(
            "/v1/responses/{id}/input_items",
            Requires(Read),
            "listInputItems",
            openai::responses::list_input_items,
        )
        .summary("List the items that a response answers")
        .returns::<ItemList>(200, "One page"),
        Route::post(
            "/v1/responses/compact",
            RequiresAtLeast(Chat, &[Read]),
            "compactResponse",
            openai::responses::compact,
        )
        .summary("OpenAI Responses: replace a conversation by its user messages and a summary")
        .errors_of(Dialect::OpenAi)
        .header(SESSION)
        .any_query()
        .body::<ResponseRequest>(JSON, "A Responses request; `input` may be missing")
        .returns::<CompactedResponse>(200, "The compacted conversation"),
        Route::post(
            "/v1/responses/input_tokens",
            Requires(Chat),
            "countInputTokens",
            openai::responses::count_input_tokens,
        )
        .summary("OpenAI Responses: estimate the tokens of a request")
        .header(SESSION)
        .body::<ResponseRequest>(JSON, "A Responses request")
        .returns::<InputTokens>(200, "The estimate"),
    ];
    all.into_iter().map(|route| route.errors_of(Dialect::OpenAi).any_query()).collect()
}

fn conversations() -> Vec<Route> {
    let (path, one) = ("/v1/conversations", "/v1/conversations/{id}");
    let list = "/v1/conversations/{id}/items";
    let item = "/v1/conversations/{id}/items/{item}";
    let all = vec![
        Route::post(path, Requires(Chat), "createConversation", conversations::create_conversation)
            .summary("OpenAI Conversations: create a session")
            .returns::<ConversationView>(200, "The conversation"),
        Route::get(one, Requires(Read), "getConversation", conversations::get_conversation)
            .summary("Get a session as a conversation")
            .returns::<ConversationView>(200, "The conversation"),
        Route::delete(
            one,
            Requires(Chat),
            "deleteConversation",
            conversations::delete_conversation,
        )
        .summary("Delete a session with all its events and messages")
        .returns::<DeletedView>(200, "Deleted, also after a crash"),
        Route::post(one, Requires(Chat), "updateConversation", conversations::update_conversation)
            .summary("Change the metadata of a session")
            .returns::<ConversationView>(200, "The conversation"),
        Route::get(list, Requires(Read), "listConversationItems", items::list_conversation_items)
            .summary("List the history of a session as items")
            .returns::<ItemList>(200, "One page"),
        Route::post(
            list,
            Requires(Chat),
            "createConversationItems",
            items::create_conversation_items,
        )
        .summary("Add items to the history of a session, without a reply")
        .returns::<ItemList>(200, "The items"),
        Route::get(item, Requires(Read), "getConversationItem", items::get_conversation_item)
            .summary("Get an item of a session's history")
            .returns::<Fields>(200, "The item"),
        Route::delete(
            item,
            Requires(DeleteItem),
            "deleteConversationItem",
            items::delete_conversation_item,
        )
        .summary("Remove an item from a session's history")
        .returns::<ConversationView>(200, "The conversation"),
    ];
    all.into_iter().map(|route| route.errors_of(Dialect::OpenAi).any_query()).collect()
}

fn operations() -> Vec<Route> {
    vec![
        Route::get("/healthz", Public, "healthz", health::healthz)
            .summary("Liveness: the process answers")
            .returns::<HealthStatus>(200, "Alive"),
        Route::get("/readyz", Public, "readyz", health::readyz)
            .summary("Readiness: requests may be sent here")
            .returns::<HealthStatus>(200, "Ready"),
        Route::get("/metrics", Local(Administer), "metrics", health::metrics)
            .summary("Metrics for Prometheus")
            .returns_as::<String>(200, "application/openmetrics-text", "The metrics"),
        Route::get("/openapi.json", Public, "openapi", health::openapi)
            .summary("This document")
            .returns::<OpenApiDocument>(200, "OpenAPI 3.1"),
    ]
}

/// Browsers, proxies and links add parameters of their own to the address of a page.
#[cfg(feature = "console")]
fn console() -> Vec<Route> {
    use crate::console;
    const NOT_MODIFIED: &str = "The client has it";
    vec![
        Route::get("/", Public, "console", console::page)
            .summary("The console")
            .any_query()
            .returns_as::<String>(200, "text/html", "The page")
            .returns_nothing(304, NOT_MODIFIED),
        Route::get("/favicon.svg", Public, "consoleIcon", console::icon)
            .summary("The console's icon")
            .any_query()
            .returns_as::<String>(200, "image/svg+xml", "The icon")
            .returns_nothing(304, NOT_MODIFIED),
        Route::get("/assets/{name}", Public, "consoleAsset", console::asset)
            .summary("A file of the console; its name changes with its content")
            .any_query()
            .returns_as::<String>(200, "text/javascript", "The file")
            .returns_as::<String>(200, "text/css", "")
            .returns_nothing(304, NOT_MODIFIED),
    ]
}
