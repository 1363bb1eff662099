//! `POST /v1/responses/compact`: replaces a conversation by its user messages and a summary, for clients that keep their own
//! history. The agent writes the summary.
//!
//! The summary is in the item: nothing is stored, and the item names no session. A client that sends it back claims it, as
//! it claims any message of its history, so it can reach nobody else's conversation.

use super::item_reference::resolve_references;
use super::items::message_items;
use super::request::{CreateRequest, invalid_request};
use super::submission::NamedSession;
use crate::app::App;
use crate::auth::{Action, Caller};
use crate::error::{ApiError, ApiResult};
use crate::extract::BodyBytes;
use crate::protocols::openai::models;
use crate::stream::finished_messages_as_of;
use axum::Json as JsonResponse;
use axum::extract::State;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use turnwire_agent::compaction::SUMMARY_PREFIX;
use turnwire_agent::{AgentError, Summary};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{ContentBlock, Fields, Head, Json, Msg, Role};
use turnwire_log::log::now_ms;

/// The beginning of an `encrypted_content` that is ours. The content of a provider goes to the provider.
const CONTENT_PREFIX: &str = "turnwire.1.";
/// In the metadata of a message: it is a summary.
const COMPACTION: &str = "compaction";

/// A compacted conversation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompactedResponse {
    id: String,
    object: &'static str,
    created_at: i64,
    /// The user messages, and a compaction item.
    output: Vec<Fields>,
    usage: CompactionUsage,
}

/// What the summary cost.
#[derive(Debug, Serialize, JsonSchema)]
struct CompactionUsage {
    input_tokens: u64,
    input_tokens_details: CachedTokens,
    output_tokens: u64,
    output_tokens_details: ReasoningTokens,
    total_tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CachedTokens {
    cached_tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReasoningTokens {
    reasoning_tokens: u64,
}

/// Compacts a conversation.
pub async fn compact(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<JsonResponse<CompactedResponse>> {
    let request = parse_request(&body)?;
    drop(body);
    models::require_model(&app, &request.model)?;
    let named = NamedSession::find(&app, &caller, &headers, &request).await?;
    let CreateRequest { model, context, input, .. } = request;
    let new = resolve_references(&app, &caller, &model, named.session(), input).await?;
    let mut messages = Vec::new();
    if named.session().is_some() {
        // The output has what was said in the session.
        caller.require(Action::Read)?;
        messages = read_history(&named).await?;
    }
    messages.extend(new);
    if messages.is_empty() {
        return Err(invalid_request("there is nothing to compact")
            .hint("send `input`, or `previous_response_id`"));
    }
    let instructions = context.instructions.iter().map(|text| Msg::system("system", &**text));
    let conversation: Vec<Msg> = instructions.chain(messages.iter().cloned()).collect();
    let agent = app.agents.get(&model).ok_or_else(|| ApiError::internal("no such agent"))?;
    let summary = agent.summarize(&conversation).await;
    let summary = summary.map_err(|error| model_failed(&error))?;
    let summary = summary.ok_or_else(|| {
        ApiError::unavailable("the model has written no summary; nothing was compacted")
            .kind("no_summary")
            .hint("send the whole conversation, or try again")
    })?;
    compacted(&messages, &summary).map(JsonResponse)
}

/// Reads a request, whose input may be missing.
fn parse_request(body: &[u8]) -> ApiResult<CreateRequest> {
    let mut fields: Fields = serde_json::from_slice(body)
        .map_err(|error| invalid_request(format!("invalid request: {error}")))?;
    if fields.raw("input").is_none_or(Json::is_null) {
        fields.insert("input", Json::from(serde_json::Value::Array(Vec::new())));
    }
    CreateRequest::parse(Json::from(fields).text().as_bytes())
}

/// The history of the session that a request names: up to the response that it names, or all.
async fn read_history(named: &NamedSession) -> ApiResult<Vec<Msg>> {
    let Some(session) = named.session() else { return Ok(Vec::new()) };
    let mut end = session.head_state().head;
    if let NamedSession::OfResponse(previous) = named
        && let Some(stored) = session.find_message(&previous.id.reply).await?
    {
        end = Head::from(stored.last);
    }
    Ok(finished_messages_as_of(session, end, end).await?)
}

fn compacted(messages: &[Msg], summary: &Summary) -> ApiResult<CompactedResponse> {
    let mut output = Vec::new();
    for msg in messages.iter().filter(|msg| is_said(msg)) {
        output.extend(message_items(&msg.clone().stamped(&SystemStamp))?);
    }
    output.push(compaction_item(&summary.text));
    let usage = &summary.usage;
    let [input_tokens, cached_tokens, output_tokens] =
        [usage.input_tokens, usage.cache_input_tokens, usage.output_tokens]
            .map(|count| u64::try_from(count).unwrap_or_default());
    Ok(CompactedResponse {
        id: format!("resp_compaction_{}", SystemStamp.id()),
        object: "response.compaction",
        created_at: now_ms() / 1000,
        output,
        usage: CompactionUsage {
            input_tokens,
            input_tokens_details: CachedTokens { cached_tokens },
            output_tokens,
            output_tokens_details: ReasoningTokens { reasoning_tokens: 0 },
            total_tokens: input_tokens.saturating_add(output_tokens),
        },
    })
}

/// Whether a message is the user's own words. Earlier summaries are part of the new one.
fn is_said(msg: &Msg) -> bool {
    let has_content =
        msg.content().iter().any(|block| !matches!(block, ContentBlock::ToolResult(_)));
    msg.role() == Role::User && has_content && msg.metadata().raw(COMPACTION).is_none()
}

fn compaction_item(summary: &str) -> Fields {
    let content: Fields = [("summary", summary)].into_iter().collect();
    let content = BASE64_URL_SAFE_NO_PAD.encode(Json::from(content).text());
    let id = format!("cmp_{}", SystemStamp.id());
    let content = format!("{CONTENT_PREFIX}{content}");
    [("type", "compaction"), ("id", &*id), ("encrypted_content", &*content)].into_iter().collect()
}

/// The message that an item of ours stands for. `None`: the item is a provider's.
pub(super) fn read_item(item: &str, place: &str) -> ApiResult<Option<Msg>> {
    let item: Fields = serde_json::from_str(item)
        .map_err(|error| invalid_request(format!("{place} is invalid: {error}")))?;
    let content: Option<String> = item.get("encrypted_content").ok().flatten();
    let Some(content) = content.as_deref().and_then(|text| text.strip_prefix(CONTENT_PREFIX))
    else {
        return Ok(None);
    };
    let read = || {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(content).ok()?;
        let fields: Fields = serde_json::from_slice(&bytes).ok()?;
        fields.get::<String>("summary").ok().flatten()
    };
    let summary = read().ok_or_else(|| {
        invalid_request(format!("{place} has an invalid `encrypted_content`"))
            .hint("send the item as POST /v1/responses/compact has returned it")
    })?;
    let msg = Msg::user("user", format!("{SUMMARY_PREFIX}{summary}")).to_builder();
    msg.metadata(COMPACTION, true).build().map(Some).map_err(ApiError::internal)
}

fn model_failed(error: &AgentError) -> ApiError {
    ApiError::unavailable(format!("{error}; nothing was compacted")).kind("model_failed")
}
