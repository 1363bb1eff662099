//! `/v1/conversations/{id}/items`: the messages of a session as items, one by one.
//!
//! The log only grows. Items that are added become messages, marked as the client's claim. An item that is deleted is
//! superseded: the agent no longer reads it. A log can supersede only whole messages, so an item that is one of several in
//! its message cannot be deleted alone.

use super::conversations::{ConversationView, find_conversation, view};
use super::responses::{ItemList, ItemQuery, invalid_request, message_items, parse_input};
use crate::app::App;
use crate::auth::Caller;
use crate::cluster::operation::take_ownership;
use crate::error::{ApiError, ApiResult};
use crate::extract::{JsonBody, Path, Query};
use crate::protocols::claimed_history::to_conversation;
use crate::stream::finished_messages_as_of;
use crate::turns::journal::stamp_event;
use crate::turns::send::{add_messages, busy};
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_core::event::Supersede;
use turnwire_core::{Event, Fields, Msg};
use turnwire_log::Session;

/// How many items one request may add.
const MAX_ITEMS: usize = 20;

/// The body of `POST /v1/conversations/{id}/items`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct NewItems {
    /// 1 to 20 items.
    #[serde(default)]
    items: Vec<Fields>,
}

/// Adds items to a session, without a reply.
pub async fn create_conversation_items(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    JsonBody(new): JsonBody<NewItems>,
) -> ApiResult<Json<ItemList>> {
    if new.items.is_empty() {
        return Err(invalid_request("`items` is empty"));
    }
    check_count(&new.items)?;
    let session = find_conversation(&app, &caller, &id).await?;
    let items = add_items(&app, &caller, &session, new.items).await?;
    Ok(Json(ItemList::whole(items)))
}

/// An error if a request has too many items.
pub(super) fn check_count(items: &[Fields]) -> ApiResult<()> {
    if items.len() <= MAX_ITEMS {
        return Ok(());
    }
    Err(invalid_request(format!(
        "`items` has {} items; at most {MAX_ITEMS} are allowed",
        items.len()
    ))
    .hint("add them with several requests"))
}

/// Adds items to a session, and returns them as they are stored.
pub(super) async fn add_items(
    app: &Arc<App>,
    caller: &Caller,
    session: &Arc<Session>,
    items: Vec<Fields>,
) -> ApiResult<Vec<Fields>> {
    let messages = parse_input(app, caller, session, items).await?;
    let stored = add_messages(app, session, to_conversation(&messages)?).await?;
    collect_items(&stored)
}

/// The history of a session as items.
pub async fn list_conversation_items(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<ItemQuery>,
) -> ApiResult<Json<ItemList>> {
    let session = find_conversation(&app, &caller, &id).await?;
    query.page(collect_items(&history(&session).await?)?).map(Json)
}

/// One item.
pub async fn get_conversation_item(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> ApiResult<Json<Fields>> {
    let session = find_conversation(&app, &caller, &id).await?;
    for msg in history(&session).await? {
        if let Some(found) = message_items(&msg)?.into_iter().find(|one| has_id(one, &item)) {
            return Ok(Json(found));
        }
    }
    Err(item_not_found(&item))
}

/// Removes an item from the history.
pub async fn delete_conversation_item(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> ApiResult<Json<ConversationView>> {
    let session = find_conversation(&app, &caller, &id).await?;
    let mut found = None;
    for msg in history(&session).await? {
        let items = message_items(&msg)?;
        if items.iter().any(|one| has_id(one, &item)) {
            found = Some((msg, items.len()));
        }
    }
    let (msg, count) = found.ok_or_else(|| item_not_found(&item))?;
    if count > 1 {
        return Err(ApiError::conflict(format!(
            "the item is one of {count} in its message, which can only be deleted as a whole; nothing was deleted"
        ))
        .kind("item_not_deletable")
        .hint("DELETE /v1/responses/{id} deletes a response with its input"));
    }
    let supersede = Supersede { message_ids: vec![msg.id().to_owned()] };
    let mut supersede = stamp_event(Event::new("", supersede), &session);
    take_ownership(&app, &session).await?;
    let touched = [msg.id()];
    let change = session.transact(&touched, |tx| {
        if !tx.replies().is_empty() {
            return Err(busy(tx.status()));
        }
        tx.push(&mut supersede, None).map(drop).map_err(ApiError::internal)
    });
    change.await?;
    view(&session).await.map(Json)
}

async fn history(session: &Arc<Session>) -> ApiResult<Vec<Msg>> {
    let head = session.head_state().head;
    Ok(finished_messages_as_of(session, head, head).await?)
}

fn collect_items(messages: &[Msg]) -> ApiResult<Vec<Fields>> {
    let mut items = Vec::new();
    for msg in messages {
        items.extend(message_items(msg)?);
    }
    Ok(items)
}

fn has_id(item: &Fields, id: &str) -> bool {
    item.get::<String>("id").ok().flatten().is_some_and(|found| found == id)
}

fn item_not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Item with id '{id}' not found."))
        .kind("item_not_found")
        .hint("GET /v1/conversations/{id}/items lists the items")
}
