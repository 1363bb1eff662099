//! Resumes a response after a frame that the client has: `Last-Event-ID` in AG-UI and the AI SDK.

use crate::error::{ApiError, ApiResult};
use crate::stream::{FrameId, ReplyPosition, ResponseKey};
use http::HeaderMap;
use std::sync::Arc;
use turnwire_core::{Head, Seq};
use turnwire_log::Session;

/// The frame after which a client resumes a response, if it does.
pub(super) fn last_event_id(headers: &HeaderMap) -> ApiResult<Option<FrameId>> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(FrameId::parse);
    id.map(Some).ok_or_else(|| {
        ApiError::bad_request(
            "invalid `Last-Event-ID` header: expected the id of a frame of an earlier response, for \
             example `REPLY~start~12`; nothing was stored",
        )
        .kind("invalid_last_event_id")
        .hint("without the header the response begins at its start")
    })
}

/// An error unless the log still has everything that the response consists of.
pub(super) async fn check_resumable(
    session: &Arc<Session>,
    response: &ResponseKey,
    paused_at: Option<Head>,
) -> ApiResult<()> {
    let snapshot = session.snapshot().await?;
    let cursor = match response.begin {
        ReplyPosition::Start | ReplyPosition::Snapshot => None,
        ReplyPosition::After(cursor) | ReplyPosition::SnapshotAt(cursor) => Some(cursor),
    };
    let mut cursors = cursor.into_iter().chain(paused_at);
    if cursors.any(|cursor| cursor > snapshot.head) {
        return Err(no_response(session, response));
    }
    let id = response.reply_id.as_str();
    let first = if id.is_empty() {
        cursor.map(Head::next)
    } else {
        let open = snapshot.open.iter().find(|reply| reply.msg().id() == id);
        match open {
            Some(reply) => Some(reply.first_seq()),
            None => find_reply(session, id).await?,
        }
    };
    let first = first.ok_or_else(|| no_response(session, response))?;
    let needed = cursor.map_or(first, |cursor| first.min(cursor.next()));
    if needed < snapshot.first {
        return Err(ApiError::gone("retention has removed the events of the response")
            .kind("trimmed")
            .hint(format!("GET /v1/sessions/{}/messages still has the messages", session.id())));
    }
    Ok(())
}

/// The seq of the first event of a reply that has ended. A message that was stored whole is not a reply.
async fn find_reply(session: &Session, id: &str) -> ApiResult<Option<Seq>> {
    let stored = session.find_message(id).await?;
    Ok(stored.filter(|stored| stored.event_id.is_empty()).map(|stored| stored.first))
}

fn no_response(session: &Session, response: &ResponseKey) -> ApiError {
    ApiError::not_found(format!("the session {} has no response {response}", session.id()))
        .hint("send the `id:` of the last frame received, unchanged, to the session it came from")
}
