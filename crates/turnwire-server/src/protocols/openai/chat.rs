//! `POST /v1/chat/completions`: an agent as an `OpenAI` chat model.

use crate::error::ApiResult;
use crate::protocols::model_api::{ModelApi, ModelRequest, handle_request};
use axum::response::Response;
use turnwire_wires::openai_chat::read_request;

const CHAT_API: ModelApi =
    ModelApi { wire: "openai-chat", id_prefix: "chatcmpl-", parse: read_request };

/// Answers a user message, or continues with tool results.
pub(crate) async fn complete(request: ModelRequest) -> ApiResult<Response> {
    handle_request(request, &CHAT_API).await
}
