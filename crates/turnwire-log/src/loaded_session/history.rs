//! Marks the states of a conversation that its client may send again as history.

use super::open_reply::OpenReply;
use super::transaction::Transaction;
use crate::client_history::{HistoryDigest, HistoryStep, answer_text};
use crate::store::{HistoryMark, HistoryPrefill, HistoryState, SessionStatus};
use serde::{Deserialize, Serialize};
use turnwire_core::{Head, Json, Msg, Seq, ToolCall};

/// Input of a client that keeps its own history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HistoryInput {
    /// The empty conversation of the same client.
    pub root: HistoryDigest,
    /// The conversation up to the input.
    pub digest: HistoryDigest,
    /// A hash of the id that the client sends for its conversation; 0 if it sends none.
    pub client: i64,
    /// A hash of the request.
    pub request: i64,
    /// The position before the input, if it is the results of calls of an open reply.
    pub results_after: Option<Head>,
    /// The beginning of the answer, if the input ends with it.
    pub prefill: Option<HistoryPrefill>,
}

impl Transaction<'_> {
    /// How far the client knows the conversation, if it keeps its own history.
    pub fn history(&self) -> Option<&HistoryState> {
        self.live.state.history.as_ref()
    }

    /// Sets how far the client knows the conversation, after its input was pushed. Later input that comes
    /// another way ends this.
    pub fn set_history(&mut self, input: HistoryInput) {
        let HistoryInput { root, digest, client, request, results_after, prefill } = input;
        let own = self.live.replies.iter().find(|reply| !reply.of_sub_agent);
        let Some(own) = own else { return };
        self.live.state.history = Some(HistoryState {
            root,
            input: digest,
            answer: None,
            client,
            request,
            reply_id: own.msg.id().to_owned(),
            results_after,
            blocks: i64::try_from(own.msg.content().len()).unwrap_or(i64::MAX),
            prefill,
        });
        self.state_changed = true;
    }

    /// Marks the input that was just set, so that a request without history finds the session.
    pub fn mark_input(&mut self) {
        if let (Some(state), Some(seq)) = (&self.live.state.history, self.live.last.seq()) {
            let mark = HistoryMark { digest: state.input, seq, client: state.client };
            self.history.push(mark);
        }
    }

    /// The conversation changes in a way that the client does not know of. Only whose it was remains.
    pub(super) fn forget_history(&mut self) {
        if let Some(state) = &mut self.live.state.history
            && !state.reply_id.is_empty()
        {
            *state = HistoryState::forgotten(state.root);
            self.state_changed = true;
        }
    }

    /// Marks the answer of a reply that has ended.
    pub(super) fn mark_ended(&mut self, reply: &OpenReply, seq: Seq) {
        if !reply.of_sub_agent {
            self.mark_answer(&reply.msg, &[], seq);
        }
    }

    /// Marks the answer of a reply that waits for results of the client's tools.
    pub(super) fn mark_waiting(&mut self) {
        let live = &*self.live;
        if live.state.history.is_none() || live.state.status != SessionStatus::Waiting {
            return;
        }
        let Some(own) = live.replies.iter().find(|reply| !reply.of_sub_agent) else { return };
        let pending = live.replies.iter().filter_map(OpenReply::pending_calls);
        let calls: Vec<ToolCall> = pending.flat_map(|pending| pending.external).collect();
        let Some(seq) = live.last.seq().filter(|_| !calls.is_empty()) else { return };
        let msg = own.msg.clone();
        self.mark_answer(&msg, &calls, seq);
    }

    fn mark_answer(&mut self, msg: &Msg, calls: &[ToolCall], seq: Seq) {
        let state = self.live.state.history.as_mut();
        let Some(state) = state.filter(|state| state.reply_id == msg.id()) else { return };
        let skip = usize::try_from(state.blocks).unwrap_or(usize::MAX);
        // Clients send the beginning that they gave and the rest of the answer as one, or as two messages.
        let prefill = state.prefill.as_ref();
        let begun = prefill.map(|prefill| prefill.text.as_str());
        let texts = begun.into_iter().chain(answer_texts(msg, skip));
        let step = HistoryStep::answer(texts, calls.iter());
        let digest = prefill.map_or(state.input, |prefill| prefill.before).with_step(&step);
        if state.answer != Some(digest) {
            state.answer = Some(digest);
            let (root, client) = (state.root, state.client);
            let calls = calls.iter().map(|call| root.with_call(&call.id));
            let marks = calls.chain([digest]).map(|digest| HistoryMark { digest, seq, client });
            self.history.extend(marks);
            self.state_changed = true;
        }
    }
}

/// The texts of an answer, as a client of a model API gets them: structured output is written as text, unless
/// the text is JSON already.
fn answer_texts(msg: &Msg, skip: usize) -> Vec<&str> {
    let blocks = msg.content().iter().skip(skip);
    let texts: Vec<&str> = blocks.filter_map(answer_text).collect();
    let is_json = texts.iter().any(|text| text.trim_start().starts_with(['{', '[']));
    match msg.structured_output().map(Json::text) {
        Some(output) if !is_json => vec![output],
        _ => texts,
    }
}
