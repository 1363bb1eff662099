//! `POST /v1/sessions/{s}/messages/{id}/retry`: answers a message again.

use super::messages::{StreamStart, find_session, respond};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::Path;
use crate::turns::idempotency::IdempotencyKey;
use crate::turns::retry::retry;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use std::sync::Arc;

/// Answers a message again. The old reply, and everything after it, leave the history.
pub async fn retry_message(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, message)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let session = find_session(&app, &caller, &id).await?;
    let idempotency_key = IdempotencyKey::from_request(&session, &caller, &headers, &uri, b"")?;
    let sent = retry(&app, &session, &message, idempotency_key.as_ref()).await?;
    respond(&app, &caller, &session, &headers, &sent, StreamStart::AfterMessage).await
}
