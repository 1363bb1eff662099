//! `POST /v1/sessions/{s}/messages/{id}/retry`: answers a message again, as it is or with new content.

use super::messages::{StreamStart, read_message, respond};
use super::request::find_session;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::{BodyBytes, Path};
use crate::turns::idempotency::IdempotencyKey;
use crate::turns::retry::{edit, retry};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Uri};
use std::sync::Arc;

/// Answers a message again. The old reply, and everything after it, leave the history. A body replaces the message.
pub async fn retry_message(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, message)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Response> {
    let session = find_session(&app, &caller, &id).await?;
    let idempotency_key = IdempotencyKey::from_request(&session, &caller, &headers, &uri, &body)?;
    let key = idempotency_key.as_ref();
    if body.is_empty() {
        let sent = retry(&app, &session, &message, key).await?;
        return respond(&app, &caller, &session, &headers, &sent, StreamStart::AfterMessage).await;
    }
    let sent = edit(&app, &session, &message, read_message(&body)?, key).await?;
    respond(&app, &caller, &session, &headers, &sent, StreamStart::AtMessage).await
}
