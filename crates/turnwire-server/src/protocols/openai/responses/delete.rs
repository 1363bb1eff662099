//! `DELETE /v1/responses/{id}`: a response and its input leave the history.
//!
//! A log cannot lose single events, so they stay until the session is deleted or retention removes them. An empty system
//! message, superseded at once, marks a deleted response: its id is that of the reply, with a prefix.

use super::find_response;
use super::input::input_messages;
use crate::app::App;
use crate::auth::Caller;
use crate::cluster::operation::take_ownership;
use crate::error::{ApiError, ApiResult};
use crate::extract::Path;
use crate::turns::journal::stamp_event;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use turnwire_core::event::{Message, Supersede};
use turnwire_core::{Event, Msg, Role};
use turnwire_log::Session;

/// Something that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeletedView {
    id: String,
    object: &'static str,
    deleted: bool,
}

impl DeletedView {
    pub(in super::super) fn new(id: String, object: &'static str) -> Self {
        Self { id, object, deleted: true }
    }
}

/// The id of the message that marks a reply as deleted.
fn mark_id(reply: &str) -> String {
    format!("deleted.{reply}")
}

/// Whether the responses of a reply were deleted.
pub(super) async fn is_deleted(session: &Session, reply: &str) -> ApiResult<bool> {
    Ok(session.find_message(&mark_id(reply)).await?.is_some())
}

/// Deletes a response.
pub async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Json<DeletedView>> {
    let found = find_response(&app, &caller, &id).await?;
    let reply = &found.id.reply;
    let input = input_messages(&found.session, reply, found.first).await?;
    let mark = mark_id(reply);
    let mut message_ids: Vec<String> = input.into_iter().map(|stored| stored.id).collect();
    message_ids.extend([reply.clone(), mark.clone()]);
    let msg = Msg::builder(Role::System).id(&*mark).build().map_err(ApiError::internal)?;
    let session = &found.session;
    let message = stamp_event(Event::new("", Message { message: Box::new(msg) }), session);
    let supersede = stamp_event(Event::new("", Supersede { message_ids }), session);
    take_ownership(&app, session).await?;
    let touched = [reply.as_str(), mark.as_str()];
    let change = session.transact(&touched, |tx| {
        if tx.reply(reply).is_some() {
            return Err(ApiError::conflict("the response has not ended; nothing was deleted")
                .kind("busy")
                .hint(format!("POST /v1/responses/{id}/cancel stops it")));
        }
        // Another request may have deleted it meanwhile.
        if !tx.is_finished(&mark) {
            for mut event in [message, supersede] {
                tx.push(&mut event, None).map_err(ApiError::internal)?;
            }
        }
        Ok(())
    });
    change.await?;
    Ok(Json(DeletedView::new(id, "response")))
}
