//! `POST /v1/messages`: an agent as a model of Anthropic's.

use super::model_api::{ModelApi, ModelRequest, handle_request};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::BodyBytes;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_wires::anthropic::read_request;

const MESSAGES_API: ModelApi =
    ModelApi { wire: "anthropic", id_prefix: "msg_", parse: read_request };

/// Answers a user message, or continues with tool results.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Response> {
    handle_request(ModelRequest { app, caller, uri, headers, body }, &MESSAGES_API).await
}
