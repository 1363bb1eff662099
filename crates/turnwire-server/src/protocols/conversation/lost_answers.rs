//! Finds conversations whose last answer did not arrive, although the client does not send the same request again: programs
//! have their own ways to go on after a broken connection.

use super::cut_answer::cut_answer;
use super::{Conversation, Recognized};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use turnwire_core::Role;
use turnwire_log::client_history::{HistoryDigest, history_steps};
use turnwire_log::log::now_ms;
use turnwire_log::store::{HistoryMatch, HistoryState, SessionKey};

/// How long after its reply a request may be sent again, if this process does not know whether the answer arrived.
const RESEND_WINDOW_MS: i64 = 10 * 60 * 1000;

impl Conversation {
    /// Finds the lost answer that the request has the beginning of. Programs such as Codex keep what arrived of an answer
    /// when their connection breaks, and send it with the request that they repeat.
    pub(super) async fn find_begun_answer(
        &self,
        app: &App,
        caller: &Caller,
    ) -> ApiResult<Option<Recognized>> {
        let is_begun = self.prefill_step().is_some() && !self.has_key;
        if !is_begun {
            return Ok(None);
        }
        let known = self.last_digests(self.digests.len() - 1);
        let is_same = |state: &HistoryState| state.request == self.request;
        let found = self.find_lost_answer(app, caller, &known, is_same).await?;
        Ok(found.map(|(session, state)| Recognized::Resend { session, state }))
    }

    /// Finds the session whose last answer did not arrive whole, if the request goes on from a part of it.
    pub(super) async fn find_cut_answer(
        &self,
        app: &App,
        caller: &Caller,
    ) -> ApiResult<Option<Recognized>> {
        let is_next = self.new_results().next().is_none() && self.prefill_step().is_none();
        let [.., input, answer, _] = self.complete_steps() else { return Ok(None) };
        let Some(begun) = answer.prefill_text().filter(|_| is_next && !self.has_key) else {
            return Ok(None);
        };
        let known = self.last_digests(self.complete_steps().len() - 2);
        let Some((key, state)) = self.find_lost_answer(app, caller, &known, |_| true).await? else {
            return Ok(None);
        };
        let Some(session) = app.log.open_session(&key).await? else { return Ok(None) };
        let (from, to) = (input.message_count, answer.message_count);
        let sent = self.messages.get(from..to).unwrap_or_default();
        let kept = cut_answer(&session, &state, begun, sent).await?.map(Box::new);
        Ok(kept.map(|kept| Recognized::Cut { session: key, state, from, kept }))
    }

    /// Finds the session whose last answer did not arrive, if the request is the same with one more block at its end.
    pub(super) async fn find_extended_input(
        &self,
        app: &App,
        caller: &Caller,
    ) -> ApiResult<Option<Recognized>> {
        let is_next = self.new_results().next().is_none() && self.prefill_step().is_none();
        let from = self.new_from();
        let [earlier @ .., last] = self.messages_from(from) else { return Ok(None) };
        if !is_next || self.has_key || last.role() != Role::User {
            return Ok(None);
        }
        let shortened = match last.content() {
            [content @ .., _] if !content.is_empty() => {
                last.to_builder().content(content.to_vec()).build().ok()
            }
            _ => None,
        };
        let steps = history_steps(earlier.iter().chain(&shortened));
        let [step] = &*steps else { return Ok(None) };
        let before = self.digests.len().checked_sub(2).and_then(|at| self.digests.get(at));
        let known: Vec<_> = [before.unwrap_or(&self.root).with_step(step)]
            .into_iter()
            .chain(before.copied())
            .collect();
        let input_count = earlier.len() + usize::from(shortened.is_some());
        let found = self.find_lost_answer(app, caller, &known, |_| true).await?;
        let is_lost = true;
        Ok(found.map(|(session, state)| Recognized::Retry { session, state, input_count, is_lost }))
    }

    /// The digest after so many steps, and the one before.
    fn last_digests(&self, steps: usize) -> Vec<HistoryDigest> {
        self.digests.iter().take(steps).rev().take(2).copied().collect()
    }

    /// Finds the session whose answer to its last input did not arrive. `known` is the conversation up to this input, and
    /// up to the answer before it.
    async fn find_lost_answer(
        &self,
        app: &App,
        caller: &Caller,
        known: &[HistoryDigest],
        is_wanted: impl Fn(&HistoryState) -> bool,
    ) -> ApiResult<Option<(SessionKey, HistoryState)>> {
        let Some(&input) = known.first() else { return Ok(None) };
        let matches = app.log.find_history(caller.tenant(), known).await?;
        Ok(matches.into_iter().find_map(|found| {
            let HistoryMatch { session, mark, now, updated_ms } = found;
            let state = now.history.filter(|state| {
                state.input == input
                    && is_wanted(state)
                    && !self.is_other_client(mark.client)
                    && caller.session_key(&session.id).is_ok()
                    && is_lost(app, &session, state, updated_ms)
            })?;
            Some((session, state))
        }))
    }
}

/// Whether the answer to an input did not arrive.
pub(super) fn is_lost(
    app: &App,
    session: &SessionKey,
    state: &HistoryState,
    updated_ms: i64,
) -> bool {
    let is_recent = || now_ms().saturating_sub(updated_ms) < RESEND_WINDOW_MS;
    app.deliveries.is_lost(session, state).unwrap_or_else(is_recent)
}
