//! Writes the items of a response in order, as soon as it is known what becomes of them, and the final response.

use super::super::{error, item};
use super::block::{BlockState, OutputBlock, OutputKind, PartState};
use super::frame::{self, ErrorBody, Incomplete, Part, Response};
use super::{Delivery, OpenReasoning, OpenResponse, ResponseEnd, write_lifecycle};
use crate::stream::Frames;
use serde::Serialize;
use turnwire_core::event::ReplyEnd;
use turnwire_core::{Fields, FinishedReason, Json, ReplyError};

impl OpenResponse {
    /// Writes the next blocks, up to the first one that must wait. At the end none waits.
    pub(super) fn release_blocks(&mut self, at_end: bool, out: &mut Frames) {
        while let Some(block) = self.blocks.get(self.released) {
            let waits = matches!(block.state, BlockState::Held)
                && match &block.kind {
                    OutputKind::ToolCall { .. } => !at_end,
                    OutputKind::Data { .. } => !at_end && !block.ended,
                    OutputKind::Text => self.wants_json && !at_end && !block.looks_like_json(),
                    OutputKind::Thinking | OutputKind::Item(_) => false,
                };
            if waits {
                return;
            }
            let position = self.released;
            self.released += 1;
            self.write_block(position, out);
        }
    }

    /// Writes what there is of a block.
    pub(super) fn write_block(&mut self, position: usize, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(position) else { return };
        if !matches!(block.state, BlockState::Held) {
            return;
        }
        if block.normalize_data().is_none() {
            block.state = BlockState::Dropped;
            return;
        }
        let is_thinking = matches!(block.kind, OutputKind::Thinking);
        self.open_waiting_part(out);
        if !is_thinking {
            self.close_reasoning(&Fields::default(), out);
        }
        let joined = self.reasoning.as_ref().map(|open| (open.index, open.parts.len(), &open.id));
        let Some(block) = self.blocks.get_mut(position) else { return };
        let index = if let Some((index, part, id)) = joined {
            block.part = part;
            block.part_state = PartState::Next;
            block.item_id.clone_from(id);
            index
        } else {
            block.assign_item_id(self.output.len(), self.session.as_deref(), &self.reply_id);
            self.output.push(None);
            self.output.len() - 1
        };
        block.state = BlockState::Live(index);
        self.has_client_calls |= block.kind.is_call();
        let ended = block.ended;
        block.write_start(&mut self.number, index, out);
        self.waiting_part = is_thinking.then_some(position);
        if ended || !matches!(block.kind, OutputKind::Text | OutputKind::Thinking) {
            // The input of a call that has not ended is incomplete.
            self.close_block(position, self.open_status, out);
        }
    }

    /// Writes the start of a part that has no text yet, because another block begins: blocks are read in the order of their
    /// starts.
    fn open_waiting_part(&mut self, out: &mut Frames) {
        let waiting = self.waiting_part.take().and_then(|position| self.blocks.get_mut(position));
        if let Some(block) = waiting
            && let BlockState::Live(index) = block.state
        {
            block.open_part(&mut self.number, index, out);
        }
    }

    /// Closes a block that is being written.
    pub(super) fn close_block(&mut self, position: usize, status: &'static str, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(position) else { return };
        let BlockState::Live(index) = block.state else { return };
        let status = if block.ended { "completed" } else { status };
        block.state = BlockState::Done(index);
        block.write_end(&mut self.number, index, out);
        let text = std::mem::take(&mut block.text);
        let has_part = block.part_state.is_open();
        if matches!(block.kind, OutputKind::Thinking) {
            let (extra, id) = (std::mem::take(&mut block.extra), block.item_id.clone());
            let parts = match self.reasoning.take() {
                Some(open) if open.index == index => open.parts,
                other => {
                    self.reasoning = other;
                    Vec::new()
                }
            };
            let mut open = OpenReasoning { index, id, parts };
            open.parts.extend(has_part.then_some(text));
            if item::continues_reasoning(&extra) {
                self.reasoning = Some(open);
            } else {
                self.reasoning_done(&open, &extra, out);
            }
            return;
        }
        let item = block.item(&text, status);
        if matches!(block.kind, OutputKind::Text) {
            self.last_text = text;
        }
        self.item_done(index, item, out);
    }

    pub(super) fn write_item_done<T: Serialize>(
        &mut self,
        index: usize,
        item: &T,
        out: &mut Frames,
    ) {
        let done = frame::ItemFrame { output_index: index, item };
        frame::write_frame("response.output_item.done", &mut self.number, &done, out);
    }

    pub(super) fn item_done(&mut self, index: usize, item: Option<Json>, out: &mut Frames) {
        let Some(item) = item else { return };
        self.write_item_done(index, &item, out);
        if let Some(slot) = self.output.get_mut(index) {
            *slot = Some(item);
        }
    }

    pub(super) fn close_reasoning(&mut self, extra: &Fields, out: &mut Frames) {
        if let Some(open) = self.reasoning.take() {
            self.reasoning_done(&open, extra, out);
        }
    }

    pub(super) fn reasoning_done(
        &mut self,
        open: &OpenReasoning,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let summary = open.parts.iter().map(|text| Part::summary(text)).collect();
        let item = frame::Reasoning {
            id: &open.id,
            r#type: "reasoning",
            summary,
            encrypted_content: extra.raw("encrypted_content").filter(|value| !value.is_null()),
        };
        self.item_done(open.index, Json::from_value(&item).ok(), out);
    }

    /// Whether there are tool calls for the client.
    pub(super) fn has_pending_calls(&self) -> bool {
        self.blocks
            .iter()
            .any(|block| block.kind.is_call() && matches!(block.state, BlockState::Held))
    }

    pub(super) fn finish(&mut self, end: &ResponseEnd<'_>, out: &mut Frames) {
        self.announce(out);
        let (name, status) = match end {
            ResponseEnd::Ended(end) => final_status(&end.finished_reason),
            ResponseEnd::Running => ("response.in_progress", "in_progress"),
        };
        let open = match status {
            "completed" | "in_progress" => status,
            _ => "incomplete",
        };
        match end {
            ResponseEnd::Ended(end) => {
                let is_tool_calls = matches!(end.finished_reason, FinishedReason::ToolCalls);
                if self.wants_json && (end.structured_output.is_some() || is_tool_calls) {
                    self.drop_held(|block| {
                        matches!(block.kind, OutputKind::Text) && !block.looks_like_json()
                    });
                }
            }
            ResponseEnd::Running => {
                self.open_status = "in_progress";
                self.drop_held(|block| block.kind.is_call());
            }
        }
        self.release_blocks(true, out);
        for position in 0..self.blocks.len() {
            self.close_block(position, open, out);
        }
        self.close_reasoning(&Fields::default(), out);
        let end = match end {
            ResponseEnd::Ended(end) => Some(*end),
            ResponseEnd::Running => None,
        };
        if let Some(output) = end.and_then(|end| end.structured_output.as_ref()) {
            self.write_structured_output(output, out);
        }
        self.write_final_response(name, status, end, out);
    }

    fn drop_held(&mut self, which: impl Fn(&OutputBlock) -> bool) {
        let blocks = self.blocks.iter_mut().filter(|block| which(block));
        blocks.for_each(OutputBlock::drop_held);
    }

    /// Writes the structured output as a message, unless the last text is the same.
    pub(super) fn write_structured_output(&mut self, output: &Json, out: &mut Frames) {
        let last_value: Option<serde_json::Value> = serde_json::from_str(&self.last_text).ok();
        if last_value.is_some() && last_value == output.parse_as().ok() {
            return;
        }
        let mut block = OutputBlock::new(OutputKind::Text, "");
        let index = self.output.len();
        self.output.push(None);
        block.is_structured = true;
        block.assign_item_id(index, self.session.as_deref(), &self.reply_id);
        output.text().clone_into(&mut block.text);
        block.write_start(&mut self.number, index, out);
        block.write_end(&mut self.number, index, out);
        let item = block.item(output.text(), "completed");
        self.item_done(index, item, out);
    }

    pub(super) fn write_final_response(
        &mut self,
        name: &'static str,
        status: &str,
        end: Option<&ReplyEnd>,
        out: &mut Frames,
    ) {
        let unknown = ReplyError::default();
        let failure = (status == "failed").then(|| {
            let error = end.and_then(|end| end.error.as_ref()).unwrap_or(&unknown);
            ErrorBody { code: error::error_code(&error.r#type), message: &error.message }
        });
        let incomplete = end.filter(|_| status == "incomplete").map(|end| Incomplete {
            reason: if end.finished_reason == FinishedReason::Length {
                "max_output_tokens"
            } else {
                end.finished_reason.as_str()
            },
        });
        let output: Vec<Json> = std::mem::take(&mut self.output).into_iter().flatten().collect();
        let response = Response {
            id: &self.response_id,
            created_at: self.created,
            model: &self.model,
            status,
            error: failure,
            incomplete_details: incomplete,
            output: &output,
            usage: end.and(self.usage).map(frame::Usage::from),
            structured_output: end.and_then(|end| end.structured_output.as_ref()),
            completed_at: (status == "completed").then(|| self.completed.max(self.created)),
            ..Response::new(&self.settings)
        };
        if self.delivery == Delivery::Whole {
            self.whole = Json::from_value(&response).ok();
        }
        write_lifecycle(name, &mut self.number, &response, out);
    }
}

/// The last frame of a response, and its status.
fn final_status(reason: &FinishedReason) -> (&'static str, &'static str) {
    match reason {
        FinishedReason::Completed | FinishedReason::ToolCalls => {
            ("response.completed", "completed")
        }
        FinishedReason::Error => ("response.failed", "failed"),
        // The protocol has this status, but no event for it.
        FinishedReason::Interrupted => ("response.incomplete", "cancelled"),
        FinishedReason::Length
        | FinishedReason::Refusal
        | FinishedReason::ContentFilter
        | FinishedReason::Truncated
        | FinishedReason::ExceedMaxIters
        | FinishedReason::Other(_) => ("response.incomplete", "incomplete"),
    }
}
