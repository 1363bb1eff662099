//! Finds conversations whose provider paused in the middle of an answer (`pause_turn`): the client sends the answer back as it
//! is, without anything new, and the provider goes on.

use super::{Conversation, Recognized};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::stream::parse_message;
use turnwire_core::{ContentBlock, Fields, Role};
use turnwire_log::store::{HistoryMatch, SessionStatus};

impl Conversation {
    /// The item at the end of the request that only its provider knows, such as a call of a tool that the provider executes.
    pub(super) fn paused_item(&self) -> Option<&Fields> {
        let last = self.messages.last().filter(|msg| msg.role() == Role::Assistant)?;
        match last.content().last()? {
            ContentBlock::Other(item) if self.takes_prefill_after_results => Some(item),
            ContentBlock::Other(_)
            | ContentBlock::Text(_)
            | ContentBlock::Data(_)
            | ContentBlock::Thinking(_)
            | ContentBlock::Hint(_)
            | ContentBlock::ToolCall(_)
            | ContentBlock::ToolResult(_) => None,
        }
    }

    /// Finds the session whose last answer ends with the item at the end of the request. What the client has of this
    /// answer replaces it, and the model continues it.
    pub(super) async fn find_paused_answer(
        &self,
        app: &App,
        caller: &Caller,
    ) -> ApiResult<Option<Recognized>> {
        let Some(item) = self.paused_item().filter(|_| !self.has_key) else { return Ok(None) };
        let complete = self.complete_steps().len();
        let Some(&input) = complete.checked_sub(1).and_then(|at| self.digests.get(at)) else {
            return Ok(None);
        };
        for HistoryMatch { session: key, mark, now, .. } in
            app.log.find_history(caller.tenant(), &[input]).await?
        {
            let is_usable = now.status == SessionStatus::Idle
                && !self.is_other_client(mark.client)
                && caller.session_key(&key.id).is_ok();
            let Some(state) = now.history.filter(|_| is_usable) else { continue };
            let begun = state.prefill.as_ref().map(|prefill| prefill.before);
            if state.results_after.is_some() || (state.input != input && begun != Some(input)) {
                continue;
            }
            let Some(session) = app.log.open_session(&key).await? else { continue };
            let reply = session.find_message(&state.reply_id).await?;
            let reply = reply.and_then(|reply| parse_message(&reply.json));
            let is_it = |block: &ContentBlock| matches!(block, ContentBlock::Other(own) if has_same_id(own, item));
            if !reply.is_some_and(|reply| reply.content().iter().any(is_it)) {
                continue;
            }
            let input_count = self.new_messages().len() + 1;
            let session = key;
            return Ok(Some(Recognized::Retry { session, state, input_count, is_lost: false }));
        }
        Ok(None)
    }
}

fn has_same_id(one: &Fields, other: &Fields) -> bool {
    let id = |item: &Fields| item.raw("id").or_else(|| item.raw("tool_use_id")).cloned();
    id(one).is_some_and(|one| Some(one) == id(other))
}
