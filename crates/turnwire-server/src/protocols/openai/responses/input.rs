//! `GET /v1/responses/{id}/input_items`: what a response answers.

use super::find_response;
use super::items::{ItemList, ItemQuery, message_items};
use super::response_id::{FoundResponse, read_results};
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use crate::stream::parse_message;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use turnwire_core::{Msg, Role, Seq};
use turnwire_log::Session;
use turnwire_log::store::{MessageQuery, StoredMessage};

/// Lists the items that a response answers.
pub async fn list_input_items(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<ItemQuery>,
) -> ApiResult<Json<ItemList>> {
    let found = find_response(&app, &caller, &id).await?;
    let mut items = Vec::new();
    for msg in read_input(&found).await? {
        items.extend(message_items(&msg)?);
    }
    query.page(items).map(Json)
}

/// What a response answers: the tool results that it continues from, or the messages between the reply before and its
/// own, with the history that a client claimed.
async fn read_input(found: &FoundResponse) -> ApiResult<Vec<Msg>> {
    if let Some(seq) = found.id.results {
        let results = read_results(&found.session, seq).await?.unwrap_or_default();
        let msg = Msg::builder(Role::Tool).id(format!("{}.{seq}", found.id.reply));
        let msg = msg.content(results.into_iter().map(Into::into).collect::<Vec<_>>()).build();
        return Ok(vec![msg.map_err(ApiError::internal)?]);
    }
    let stored = input_messages(&found.session, &found.id.reply, found.first).await?;
    Ok(stored.iter().filter_map(|stored| parse_message(&stored.json)).collect())
}

/// The messages that a reply answers, oldest first. `first` is the seq of the reply's first event.
pub(super) async fn input_messages(
    session: &Session,
    reply: &str,
    first: Seq,
) -> ApiResult<Vec<StoredMessage>> {
    let reply = session.find_message(reply).await?;
    let is_superseded = reply.is_some_and(|reply| reply.superseded);
    let mut input: Vec<StoredMessage> = Vec::new();
    let mut before = first;
    'pages: loop {
        let page = session.list_messages(&MessageQuery::page_before(before)).await?;
        let Some(oldest) = page.first() else { break };
        before = oldest.first;
        for stored in page.into_iter().rev() {
            let is_reply = stored.event_id.is_empty();
            // A reply that was retried answers the same message.
            if is_reply && (!input.is_empty() || !stored.superseded) {
                break 'pages;
            }
            if !is_reply && (is_superseded || !stored.superseded) {
                input.push(stored);
            }
        }
    }
    input.reverse();
    Ok(input)
}
