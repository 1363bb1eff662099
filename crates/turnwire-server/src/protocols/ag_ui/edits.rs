//! Edits and new answers, of clients whose history counts (`?history=client`).
//!
//! AG-UI has no words for them: a client drops messages and runs again. A client that another one has overtaken looks the
//! same, and so does one that lost a response. So the application says with the URL that its history is the conversation.

use super::{HistoryOwner, RunRequest, ThreadState, client_context};
use crate::auth::Action;
use crate::error::ApiResult;
use crate::stream::ReplyPosition;
use crate::turns::client_events;
use crate::turns::retry::{edit, retry};
use axum::response::Response;
use std::sync::Arc;
use turnwire_core::Msg;
use turnwire_log::Session;
use turnwire_wires::ag_ui::HistoryDifference;

impl RunRequest<'_> {
    /// Does what the client's history says, if it differs from the thread's. A reply that waits ends when the client goes on
    /// without an answer.
    pub(super) async fn apply_client_history(
        &self,
        session: &Arc<Session>,
        thread: &ThreadState,
        new: &[Msg],
    ) -> ApiResult<Option<Response>> {
        let last_user = self.input.last_user_id();
        let (HistoryOwner::Client, Some(last_user)) = (self.owner, last_user) else {
            return Ok(None);
        };
        self.caller.require(Action::Regenerate)?;
        if thread.is_running() {
            // Nothing is new, and the client has nothing of the reply: it was reloaded.
            let is_asked = new.is_empty() && thread.left_out.is_none();
            let Some(reply) = thread.open_reply().filter(|_| is_asked) else { return Ok(None) };
            return self.stream_from_start(session, Some(reply)).await.map(Some);
        }
        if !thread.pending.is_empty() {
            client_events::stop_reply(self.app, session, self.caller).await?;
        }
        let sent = match (new, &thread.left_out) {
            ([], _) => retry(self.app, session, &last_user, None).await?,
            ([msg], Some(left_out)) => {
                let msg = client_context(self.input).attach_to(msg.clone());
                edit(self.app, session, left_out, msg, None).await?
            }
            _ => return self.send_messages(session, thread, new.to_vec()).await.map(Some),
        };
        self.stream_from_start(session, sent.accepted().reply_id.clone()).await.map(Some)
    }

    async fn stream_from_start(
        &self,
        session: &Arc<Session>,
        reply: Option<String>,
    ) -> ApiResult<Response> {
        self.stream_reply(session, reply, ReplyPosition::Start, HistoryDifference::None).await
    }
}
