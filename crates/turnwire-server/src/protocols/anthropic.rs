//! `POST /v1/messages`: an agent as a model of Anthropic's. `POST /v1/messages/count_tokens`: the tokens of a request.

use super::model_api::{ModelApi, ModelRequest, estimate_tokens, handle_request};
use crate::app::App;
use crate::error::ApiResult;
use crate::extract::BodyBytes;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use turnwire_wires::anthropic::read_request;

const MESSAGES_API: ModelApi =
    ModelApi { wire: "anthropic", id_prefix: "msg_", parse: read_request };

/// Answers a user message, or continues with tool results.
pub(crate) async fn messages(request: ModelRequest) -> ApiResult<Response> {
    handle_request(request, &MESSAGES_API).await
}

/// How many tokens a request has.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TokenCount {
    input_tokens: usize,
}

/// Estimates the tokens of a request. Nothing is stored.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Json<TokenCount>> {
    let input_tokens = estimate_tokens(&app, &body, &MESSAGES_API)?;
    Ok(Json(TokenCount { input_tokens }))
}
