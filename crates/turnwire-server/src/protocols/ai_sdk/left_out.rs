//! What a client has left behind: messages that are no longer in its history because the user has edited an earlier one, and
//! a reply that waits for an answer that will not come.
//!
//! Front ends such as assistant-ui edit without a name for it: they drop the old message and everything after it, and send
//! the new one with an id of its own. A client that another one has overtaken looks the same. So messages count as left out
//! only if all of them came over this protocol, whose requests have the whole history; what was said in the console or on
//! another wire stays.

use super::{ChatContext, WIRE, invalid_request, open_reply};
use crate::auth::Action;
use crate::error::ApiResult;
use crate::stream::parse_message;
use crate::turns::client_events;
use crate::turns::hints::is_hint_message;
use turnwire_agent::ClientContext;
use turnwire_core::Role;
use turnwire_log::OpenReply;
use turnwire_wires::ai_sdk::ChatRequest;

impl ChatContext<'_> {
    /// The first user message that the client has left out before its `new_count` new messages.
    pub(super) async fn left_out(
        &self,
        request: &ChatRequest,
        new_count: usize,
    ) -> ApiResult<Option<String>> {
        if !request.has_trigger || !self.caller.can(Action::Regenerate) {
            return Ok(None);
        }
        let mut pages = self.session.message_pages();
        if let Some(id) = request.id_before_last(new_count).map_err(invalid_request)? {
            let known = self.session.find_message(&id).await?;
            let Some(known) = known.filter(|known| !known.superseded) else { return Ok(None) };
            pages = pages.after(known.first);
        }
        let mut first = None;
        loop {
            let messages = pages.next_page().await?;
            if messages.is_empty() {
                return Ok(first);
            }
            for stored in messages.into_iter().filter(|stored| !stored.superseded) {
                let Some(msg) = parse_message(&stored.json) else { return Ok(None) };
                if msg.role() != Role::User || is_hint_message(&msg) {
                    continue;
                }
                if ClientContext::from_msg(&msg).wire != WIRE {
                    return Ok(None);
                }
                first.get_or_insert(stored.id);
            }
        }
    }

    /// Ends a reply that waits, if the client has dropped it, or its history says that none of the pending calls will be
    /// answered: assistant-ui cancels them when the user sends a message instead.
    pub(super) async fn end_abandoned_reply(
        &self,
        request: &ChatRequest,
        is_dropped: bool,
    ) -> ApiResult<()> {
        let snapshot = self.session.snapshot().await?;
        let Some(pending) = open_reply(&snapshot).and_then(OpenReply::pending_calls) else {
            return Ok(());
        };
        let calls = pending.confirm.iter().chain(&pending.external).map(|call| call.id.as_str());
        if is_dropped || request.cancels_calls(calls).map_err(invalid_request)? {
            client_events::stop_reply(self.app, &self.session, self.caller).await?;
        }
        Ok(())
    }
}
