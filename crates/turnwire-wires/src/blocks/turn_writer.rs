//! Writes the frames of one turn, and keeps the order in which its blocks end.

use super::approval::ApprovalKey;
use super::conversions::{DisplayMode, mode_name, stop_reason, to_seconds, unix_ms, usage_json};
use crate::stream::Frames;
use serde::Serialize;
use std::collections::HashSet;
use turnwire_core::event::{ReplyEnd, TokenCounts};
use turnwire_core::{Fields, Json, Role, Usage};

/// The sub-agent that a block belongs to; empty for the turn's own agent.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct BlockOwner {
    pub subagent: Option<String>,
    pub parent_tool_use_id: Option<String>,
    #[serde(skip)]
    pub is_subagent: bool,
}

/// Writes one turn.
pub(super) struct TurnWriter {
    pub message_id: String,
    pub session_id: String,
    pub mode: DisplayMode,
    /// How many approval requests this turn had.
    pub approvals: u64,
    /// The index of the open `file_processing` block.
    pub file: Option<u64>,
    /// Whether a tool was called since the last model call started.
    pub calls_made: bool,
    started: Option<i64>,
    sender: String,
    role: Role,
    /// The written blocks by index: they may be written again.
    written: Vec<WrittenBlock>,
    /// How often the turn may still be written again.
    rewrites_left: u32,
    /// The blocks that have ended for the client, in that order.
    stopped: Vec<(u64, Option<bool>)>,
    /// Ended blocks for which it is not yet known whether a tool call follows. Later blocks wait
    /// too: clients order blocks by their stops.
    undecided: Vec<(u64, Finality)>,
    usage: Option<Usage>,
}

/// How often one turn may be written again, so that repeated discards cannot fill the connection.
const MAX_REWRITES: u32 = 16;

/// A block as the client has it.
#[derive(Default)]
struct WrittenBlock {
    /// It was discarded or replaced.
    discarded: bool,
    block: Option<Json>,
    text: String,
    thinking: String,
    deltas: Vec<Json>,
}

/// What the stop of a block says about `is_final`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finality {
    /// Nothing: it is not text.
    NotText,
    /// It is not final.
    NotFinal,
    /// Not known yet.
    Undecided,
}

#[derive(Serialize)]
struct MessageStart<'a> {
    r#type: &'static str,
    session_id: &'a str,
    timestamp: f64,
    display_mode: &'static str,
    is_new_session_from_share: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    sender: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    message_id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

#[derive(Serialize)]
struct BlockStart<'a, T> {
    r#type: &'static str,
    index: u64,
    content_block: &'a T,
    message_id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

#[derive(Serialize)]
struct BlockDelta<'a, T> {
    r#type: &'static str,
    index: u64,
    delta: &'a T,
    message_id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

#[derive(Serialize)]
struct BlockStop<'a> {
    r#type: &'static str,
    index: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_final: Option<bool>,
    message_id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

#[derive(Serialize)]
struct TextDelta<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct ThinkingDelta<'a> {
    r#type: &'static str,
    thinking: &'a str,
}

#[derive(Serialize)]
struct MessageDelta<'a> {
    r#type: &'static str,
    delta: Delta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Json>,
    #[serde(skip_serializing_if = "Fields::is_empty")]
    metadata: &'a Fields,
    message_id: &'a str,
}

#[derive(Serialize)]
struct Delta<'a> {
    stop_reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_output: Option<&'a Json>,
}

#[derive(Serialize)]
struct MessageStop<'a> {
    r#type: &'static str,
    duration_ms: i64,
    message_id: &'a str,
}

impl TurnWriter {
    /// A turn that started at this time.
    pub(super) fn new(message_id: &str, session_id: &str, mode: DisplayMode, at: &str) -> Self {
        Self {
            message_id: message_id.to_owned(),
            session_id: session_id.to_owned(),
            mode,
            approvals: 0,
            file: None,
            calls_made: false,
            started: unix_ms(at),
            sender: String::new(),
            role: Role::default(),
            written: Vec::new(),
            rewrites_left: MAX_REWRITES,
            stopped: Vec::new(),
            undecided: Vec::new(),
            usage: None,
        }
    }

    pub(super) fn message_start(&mut self, sender: &str, role: Role, out: &mut Frames) {
        sender.clone_into(&mut self.sender);
        self.role = role;
        self.write_message_start(false, out);
    }

    fn write_message_start(&self, again: bool, out: &mut Frames) {
        let frame = MessageStart {
            r#type: "message_start",
            session_id: &self.session_id,
            timestamp: to_seconds(self.started),
            display_mode: mode_name(self.mode),
            is_new_session_from_share: false,
            sender: &self.sender,
            role: Some(self.role).filter(|role| *role != Role::Assistant),
            message_id: &self.message_id,
            again,
        };
        out.push("", &frame);
    }

    /// Starts a block, and returns its index.
    pub(super) fn block_start<T: Serialize>(&mut self, block: &T, out: &mut Frames) -> u64 {
        let index = self.written.len() as u64;
        let block = Json::from_value(block).ok();
        self.write_start(index, block.as_ref(), false, out);
        self.written.push(WrittenBlock { block, ..WrittenBlock::default() });
        index
    }

    fn write_start(&self, index: u64, block: Option<&Json>, again: bool, out: &mut Frames) {
        let message_id = &self.message_id;
        let r#type = "content_block_start";
        out.push("", &BlockStart { r#type, index, content_block: &block, message_id, again });
    }

    /// A delta of a block that is not text.
    pub(super) fn block_delta<T: Serialize>(&mut self, index: u64, delta: &T, out: &mut Frames) {
        self.write_delta(index, delta, false, out);
        if let (Some(written), Ok(delta)) =
            (written_block(&mut self.written, index), Json::from_value(delta))
        {
            written.deltas.push(delta);
        }
    }

    pub(super) fn text_delta(&mut self, index: u64, text: &str, out: &mut Frames) {
        self.write_delta(index, &TextDelta { r#type: "text_delta", text }, false, out);
        if let Some(written) = written_block(&mut self.written, index) {
            written.text.push_str(text);
        }
    }

    pub(super) fn thinking_delta(&mut self, index: u64, thinking: &str, out: &mut Frames) {
        self.write_delta(index, &ThinkingDelta { r#type: "thinking_delta", thinking }, false, out);
        if let Some(written) = written_block(&mut self.written, index) {
            written.thinking.push_str(thinking);
        }
    }

    fn write_delta<T: Serialize>(&self, index: u64, delta: &T, again: bool, out: &mut Frames) {
        let message_id = &self.message_id;
        let r#type = "content_block_delta";
        out.push("", &BlockDelta { r#type, index, delta, message_id, again });
    }

    /// Ends a block, now or once `is_final` is known.
    pub(super) fn block_stop(&mut self, index: u64, last: Finality, out: &mut Frames) {
        if last == Finality::Undecided || !self.undecided.is_empty() {
            self.undecided.push((index, last));
        } else {
            self.write_stop(index, last, false, out);
        }
    }

    /// Writes a block that is complete in its start.
    pub(super) fn whole_block<T: Serialize>(&mut self, block: &T, out: &mut Frames) -> u64 {
        let index = self.block_start(block, out);
        self.block_stop(index, Finality::NotText, out);
        index
    }

    /// Ends the waiting blocks: it is known now whether a tool call follows.
    pub(super) fn decide_final(&mut self, is_final: bool, out: &mut Frames) {
        for (index, last) in std::mem::take(&mut self.undecided) {
            self.write_stop(index, last, is_final, out);
        }
    }

    fn write_stop(&mut self, index: u64, last: Finality, is_final: bool, out: &mut Frames) {
        let is_final = match last {
            Finality::NotText => None,
            Finality::NotFinal => Some(false),
            Finality::Undecided => Some(is_final),
        };
        self.stopped.push((index, is_final));
        self.push_stop("content_block_stop", index, is_final, false, out);
    }

    fn push_stop(
        &self,
        r#type: &'static str,
        index: u64,
        is_final: Option<bool>,
        again: bool,
        out: &mut Frames,
    ) {
        let message_id = &self.message_id;
        out.push("", &BlockStop { r#type, index, is_final, message_id, again });
    }

    /// Marks a block as replaced by another.
    pub(super) fn mark_replaced(&mut self, index: u64) {
        if let Some(written) = written_block(&mut self.written, index) {
            *written = WrittenBlock { discarded: true, ..WrittenBlock::default() };
        }
    }

    /// Discards blocks. A client that knows `content_block_discard` removes them; another client
    /// that has not seen them end never shows them. If one has ended, the turn is written again,
    /// because clients have no other way to remove a block.
    pub(super) fn discard(&mut self, indexes: &[u64], out: &mut Frames) {
        let gone: HashSet<u64> = indexes.iter().copied().collect();
        self.undecided.retain(|(held, _)| !gone.contains(held));
        for &index in indexes {
            self.mark_replaced(index);
            self.push_stop("content_block_discard", index, None, false, out);
        }
        let had_ended = self.stopped.len();
        self.stopped.retain(|(index, _)| !gone.contains(index));
        if self.stopped.len() < had_ended && self.rewrites_left > 0 {
            self.rewrites_left -= 1;
            self.rewrite_turn(out);
        }
    }

    /// Writes all remaining blocks again, in the order in which they ended.
    fn rewrite_turn(&self, out: &mut Frames) {
        self.write_message_start(true, out);
        let ended: HashSet<u64> = self.stopped.iter().map(|(index, _)| *index).collect();
        for (index, is_final) in &self.stopped {
            self.rewrite_block(*index, out);
            self.push_stop("content_block_stop", *index, *is_final, true, out);
        }
        for index in (0..self.written.len() as u64).filter(|index| !ended.contains(index)) {
            self.rewrite_block(index, out);
        }
    }

    fn rewrite_block(&self, index: u64, out: &mut Frames) {
        let position = usize::try_from(index).ok();
        let written = position.and_then(|position| self.written.get(position));
        let Some(written) = written.filter(|written| !written.discarded) else { return };
        self.write_start(index, written.block.as_ref(), true, out);
        let WrittenBlock { text, thinking, deltas, .. } = written;
        if !text.is_empty() {
            self.write_delta(index, &TextDelta { r#type: "text_delta", text }, true, out);
        }
        if !thinking.is_empty() {
            let delta = ThinkingDelta { r#type: "thinking_delta", thinking };
            self.write_delta(index, &delta, true, out);
        }
        for delta in deltas {
            self.write_delta(index, delta, true, out);
        }
    }

    pub(super) fn approval_key(&self, count: u64) -> ApprovalKey {
        ApprovalKey { session_id: self.session_id.clone(), count }
    }

    pub(super) fn add_usage(&mut self, counts: TokenCounts) {
        let usage = self.usage.get_or_insert_default();
        let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
        add(&mut usage.input_tokens, counts.input_tokens);
        add(&mut usage.output_tokens, counts.output_tokens);
        add(&mut usage.cache_input_tokens, counts.cache_input_tokens);
        add(&mut usage.cache_creation_input_tokens, counts.cache_creation_input_tokens);
    }

    pub(super) fn message_end(&self, end: &ReplyEnd, at: &str, out: &mut Frames) {
        let message_id = &self.message_id;
        let frame = MessageDelta {
            r#type: "message_delta",
            delta: Delta {
                stop_reason: stop_reason(&end.finished_reason),
                structured_output: end.structured_output.as_ref(),
            },
            usage: self.usage.as_ref().map(usage_json),
            metadata: &end.message_metadata,
            message_id,
        };
        out.push("", &frame);
        let took = self.started.zip(unix_ms(at)).map(|(start, end)| end.saturating_sub(start));
        let duration_ms = took.unwrap_or_default().max(0);
        out.push("", &MessageStop { r#type: "message_stop", duration_ms, message_id });
    }
}

fn written_block(written: &mut [WrittenBlock], index: u64) -> Option<&mut WrittenBlock> {
    written.get_mut(usize::try_from(index).ok()?)
}
