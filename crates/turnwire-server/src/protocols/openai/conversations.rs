//! `/v1/conversations`: sessions, in the form of OpenAI's conversations. The id of a conversation is `conv_SESSION`.

use super::conversation_items::{add_items, check_count};
use super::models;
use super::responses::{DeletedView, invalid_request};
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{JsonBody, Path};
use crate::routes::{check_title_and_metadata, new_session_key};
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_core::Fields;
use turnwire_log::Session;
use turnwire_log::log::now_ms;
use turnwire_log::store::{NewSession, SessionPatch};

/// The prefix of every id.
const PREFIX: &str = "conv_";

/// A conversation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConversationView {
    id: String,
    object: &'static str,
    created_at: i64,
    metadata: Fields,
}

/// The body of `POST /v1/conversations`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct CreateConversation {
    metadata: Option<Fields>,
    /// The agent; the default agent if missing. OpenAI's protocol does not have this field.
    model: Option<String>,
    /// The first items: at most 20.
    items: Option<Vec<Fields>>,
}

/// Creates a session.
pub async fn create_conversation(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(new): JsonBody<CreateConversation>,
) -> ApiResult<Json<ConversationView>> {
    let items = new.items.unwrap_or_default();
    check_count(&items)?;
    let agent = new.model.unwrap_or_else(|| app.config.default_agent().to_owned());
    models::require_model(&app, &agent)?;
    let metadata = new.metadata.unwrap_or_default();
    check_title_and_metadata(None, Some(&metadata))?;
    let new = NewSession {
        key: new_session_key(&caller, None)?,
        agent,
        title: String::new(),
        metadata,
        now_ms: now_ms(),
    };
    let (session, _) = app.log.create_session(new).await?;
    if !items.is_empty()
        && let Err(error) = add_items(&app, &caller, &session, items).await
    {
        app.log.delete_session(session.key()).await?;
        return Err(error);
    }
    view(&session).await.map(Json)
}

/// One session.
pub async fn get_conversation(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<ConversationView>> {
    let session = find_conversation(&app, &caller, &id).await?;
    view(&session).await.map(Json)
}

/// Deletes a session with all its events and messages.
pub async fn delete_conversation(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<DeletedView>> {
    let session = find_conversation(&app, &caller, &id).await?;
    // Only saves work: events after the deletion are refused anyway.
    app.turns.cancel_reply(&session, None);
    if !app.log.delete_session(session.key()).await? {
        return Err(not_found(&id));
    }
    Ok(Json(DeletedView::new(id, "conversation.deleted")))
}

/// The body of `POST /v1/conversations/{id}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct UpdateConversation {
    /// Replaces the metadata.
    metadata: Option<Fields>,
}

/// Changes the metadata of a session.
pub async fn update_conversation(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    JsonBody(change): JsonBody<UpdateConversation>,
) -> ApiResult<Json<ConversationView>> {
    let metadata = change.metadata.ok_or_else(|| invalid_request("`metadata` is missing"))?;
    check_title_and_metadata(None, Some(&metadata))?;
    let session = find_conversation(&app, &caller, &id).await?;
    session.patch(SessionPatch { title: None, metadata: Some(metadata) }).await?;
    view(&session).await.map(Json)
}

/// The session of a conversation that the caller may use.
pub(super) async fn find_conversation(
    app: &App,
    caller: &Caller,
    id: &str,
) -> ApiResult<Arc<Session>> {
    let key = id.strip_prefix(PREFIX).map(|session| caller.session_key(session));
    let Some(Ok(key)) = key else { return Err(not_found(id)) };
    app.log.open_session(&key).await?.ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Conversation with id '{id}' not found."))
        .kind("conversation_not_found")
        .hint("the id is `conv_` and the session's id; POST /v1/conversations creates one")
}

pub(super) async fn view(session: &Arc<Session>) -> ApiResult<ConversationView> {
    Ok(ConversationView {
        id: format!("{PREFIX}{}", session.id()),
        object: "conversation",
        created_at: session.created_ms().div_euclid(1000),
        metadata: session.snapshot().await?.metadata,
    })
}
