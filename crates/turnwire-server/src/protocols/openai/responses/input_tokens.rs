//! `POST /v1/responses/input_tokens`: estimates the tokens of a request.

use super::request::CreateRequest;
use super::submission::find_previous;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::BodyBytes;
use crate::protocols::openai::conversations::find_conversation;
use crate::protocols::openai::models;
use crate::protocols::session_in_header;
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
    let asked = CreateRequest::parse(&body)?;
    models::require_model(&app, &asked.model)?;
    let context = &asked.context;
    let tools = context.tools.iter().map(|tool| ToolText {
        name: &tool.name,
        description: &tool.description,
        schema: tool.input.as_ref(),
    });
    let instructions = context.instructions.as_deref();
    let schema = context.output_schema.as_ref();
    let mut input_tokens = estimate_request(&asked.messages, instructions, schema, tools);
    if let Some(previous) = find_previous(&app, &caller, &asked).await? {
        input_tokens += estimate_history(&previous.session, previous.first.into()).await?;
    } else if let Some(id) = &asked.conversation {
        let session = find_conversation(&app, &caller, id).await?;
        input_tokens += estimate_history(&session, session.head_state().head).await?;
    } else if let Some(name) = session_in_header(&headers)?
        && let Some(session) = app.log.open_session(&caller.session_key(name)?).await?
    {
        input_tokens += estimate_history(&session, session.head_state().head).await?;
    }
    Ok(Json(InputTokens { object: "response.input_tokens", input_tokens }))
}
