//! Answers that a client received only in part, and goes on from.
//!
//! When its connection breaks in the middle of an answer, a program such as Claude Code keeps the text that arrived as an
//! answer, and asks the model to go on. So the conversation continues from the beginning of an answer that the session has.
//! The rest of that answer is superseded: the client does not know it, and the model does not get it.

use crate::error::{ApiError, ApiResult};
use crate::stream::parse_message;
use std::sync::Arc;
use turnwire_core::{
    ContentBlock, Event, EventKind, FinishedReason, Head, Msg, Role, Seq, ToolResult,
};
use turnwire_log::Session;
use turnwire_log::store::{EventLines, HistoryState};

/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

/// The reply that answers an input, and the seq of its first event.
async fn find_reply(session: &Arc<Session>, id: &str) -> ApiResult<Option<(Msg, Seq)>> {
    let snapshot = session.snapshot().await?;
    if let Some(open) = snapshot.open.iter().find(|reply| reply.msg().id() == id) {
        return Ok(Some((open.msg().clone(), open.first_seq())));
    }
    let Some(stored) = session.find_message(id).await? else { return Ok(None) };
    Ok(parse_message(&stored.json).map(|msg| (msg, stored.first)))
}

/// What a session keeps of the answer to its last input if the client got only this beginning of it, without white space.
/// `None` if the answer does not begin so.
pub(super) async fn cut_answer(
    session: &Arc<Session>,
    state: &HistoryState,
    begun: &str,
    sent: &[Msg],
) -> ApiResult<Option<Msg>> {
    let Some((reply, first)) = find_reply(session, &state.reply_id).await? else { return Ok(None) };
    let skip = usize::try_from(state.blocks).unwrap_or(usize::MAX);
    let mut text = TextPrefix::new(begun);
    // Calls of the agent's own tools, which the client does not see, and their results.
    let mut unseen = Vec::new();
    for block in reply.content().iter().skip(skip) {
        match block {
            ContentBlock::Text(block) => text.read(&block.text),
            ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => unseen.push(block.clone()),
            ContentBlock::Thinking(_)
            | ContentBlock::Hint(_)
            | ContentBlock::Data(_)
            | ContentBlock::Other(_) => {}
        }
        if text.is_decided() {
            break;
        }
    }
    if !text.is_whole() {
        // The client may have the text of a model call that a crash broke off. The log still has it.
        let from = state.results_after.map_or(first, Head::next);
        if !was_sent(session, &state.reply_id, from, begun).await? {
            return Ok(None);
        }
        unseen.clear();
    }
    unseen.retain(|block| is_answered(&reply, block));
    let kept = reply.content().iter().take(skip).cloned();
    let sent = sent.iter().flat_map(Msg::content).cloned();
    let content: Vec<ContentBlock> = kept.chain(unseen).chain(sent).collect();
    let cut = Msg::builder(Role::Assistant).name(reply.name()).content(content);
    let cut = cut.finished_reason(FinishedReason::Interrupted).build();
    cut.map(Some).map_err(|error| ApiError::bad_request(format!("invalid answer: {error}")))
}

/// Whether a block is no call without a result.
fn is_answered(reply: &Msg, block: &ContentBlock) -> bool {
    let ContentBlock::ToolCall(call) = block else { return true };
    reply.blocks::<ToolResult>().any(|result| result.id == call.id)
}

/// Whether the text of a reply began so when it was written, from a position on.
async fn was_sent(session: &Session, reply: &str, mut from: Seq, begun: &str) -> ApiResult<bool> {
    let mut text = TextPrefix::new(begun);
    loop {
        let rows = session.read_events(from, CHUNK).await?;
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            let event: Event<'_> = Session::parse_event(seq, line)?;
            if let EventKind::TextBlockDelta(delta) = &event.kind
                && event.reply_id == reply
            {
                text.read(&delta.delta);
            }
            if text.is_decided() {
                return Ok(text.is_whole());
            }
        }
        let Some(last) = rows.last().map(EventLines::last) else { return Ok(false) };
        from = last.next();
    }
}

/// Compares a text with its beginning, piece by piece and without white space.
struct TextPrefix<'t> {
    left: &'t str,
    is_other: bool,
}

impl<'t> TextPrefix<'t> {
    fn new(begun: &'t str) -> Self {
        Self { left: begun, is_other: false }
    }

    fn read(&mut self, piece: &str) {
        for word in piece.split_whitespace() {
            let length = self.left.len().min(word.len());
            match (self.left.split_at_checked(length), word.get(..length)) {
                (Some((same, left)), Some(begin)) if same == begin => self.left = left,
                _ => self.is_other = true,
            }
            if self.is_decided() {
                return;
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.left.is_empty() && !self.is_other
    }

    fn is_decided(&self) -> bool {
        self.left.is_empty() || self.is_other
    }
}
