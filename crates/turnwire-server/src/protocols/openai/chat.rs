//! `POST /v1/chat/completions`: an agent as an `OpenAI` chat model.

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::BodyBytes;
use crate::protocols::model_api::{ModelApi, ModelRequest, handle_request};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_wires::openai_chat::read_request;

const CHAT_API: ModelApi =
    ModelApi { wire: "openai-chat", id_prefix: "chatcmpl-", parse: read_request };

/// Answers a user message, or continues with tool results.
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Response> {
    handle_request(ModelRequest { app, caller, uri, headers, body }, &CHAT_API).await
}
