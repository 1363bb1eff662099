//! `POST /v1/messages`: an agent as a model of Anthropic's.

use super::model::{Manner, Request, answer};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::Payload;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_wires::anthropic::{MessageCollector, read_request};

const MANNER: Manner = Manner {
    wire: "anthropic",
    prefix: "msg_",
    read: read_request,
    whole: || Box::<MessageCollector>::default(),
};

/// Answers what the user says, or goes on with the results of calls.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    Payload(body): Payload,
) -> ApiResult<Response> {
    answer(Request { app, caller, uri, headers, body }, &MANNER).await
}
