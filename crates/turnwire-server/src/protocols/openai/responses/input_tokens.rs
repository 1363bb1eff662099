//! `POST /v1/responses/input_tokens`: estimates the tokens of a request.

use super::item_reference::resolve_references;
use super::request::CreateRequest;
use super::submission::NamedSession;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::BodyBytes;
use crate::protocols::openai::models;
use crate::protocols::token_count::{ToolText, estimate_history, estimate_request};
use axum::Json;
use axum::extract::State;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// How many tokens a request has.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InputTokens {
    object: &'static str,
    input_tokens: usize,
}

/// Estimates the tokens of a request, with the history of the session that it names. Nothing is stored.
pub async fn count_input_tokens(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Json<InputTokens>> {
    let request = CreateRequest::parse(&body)?;
    models::require_model(&app, &request.model)?;
    let named = NamedSession::find(&app, &caller, &headers, &request).await?;
    let CreateRequest { model, context, input, .. } = request;
    let messages = resolve_references(&app, &caller, &model, named.session(), input).await?;
    let tools = context.tools.iter().map(|tool| ToolText {
        name: &tool.name,
        description: &tool.description,
        schema: tool.input.as_ref(),
    });
    let instructions = context.instructions.as_deref();
    let schema = context.output_schema.as_ref();
    let mut input_tokens = estimate_request(&messages, instructions, schema, tools);
    if let Some(session) = named.session() {
        let at = match &named {
            NamedSession::OfResponse(previous) => previous.first.into(),
            NamedSession::OfConversation(_) | NamedSession::InHeader(_) | NamedSession::None => {
                session.head_state().head
            }
        };
        input_tokens += estimate_history(session, at).await?;
    }
    Ok(Json(InputTokens { object: "response.input_tokens", input_tokens }))
}
