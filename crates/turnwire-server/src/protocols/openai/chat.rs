//! `POST /v1/chat/completions`: an agent as a chat model of `OpenAI`'s.

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::Payload;
use crate::protocols::model::{Manner, Request, answer};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_wires::openai_chat::{CompletionCollector, read_request};

const MANNER: Manner = Manner {
    wire: "openai-chat",
    prefix: "chatcmpl-",
    read: read_request,
    whole: || Box::<CompletionCollector>::default(),
};

/// Answers what the user says, or goes on with the results of calls.
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    Payload(body): Payload,
) -> ApiResult<Response> {
    answer(Request { app, caller, uri, headers, body }, &MANNER).await
}
