//! Writes the responses of one reply: their start, steps, sub-agents and end.

use super::calls::Calls;
use super::chunk::Chunk;
use super::part;
use super::step::{Step, StepItem, TextEnd, TextKind, without_own_fields};
use super::subagents::Subagents;
use crate::json::{to_fields, to_json};
use crate::stream::Frames;
use std::collections::HashMap;
use turnwire_core::event::{
    ModelCallEnd, ReplyEnd, ReplyStart, RequireExternalExecution, RequireUserConfirm, TokenCounts,
};
use turnwire_core::{Event, EventKind, Fields, FinishedReason, Msg, event_kinds};

/// Encodes one reply.
#[derive(Debug, Default)]
pub(super) struct ReplyWriter {
    pub(super) id: String,
    /// The message metadata at its start.
    pub(super) start_metadata: Fields,
    pub(super) is_named: bool,
    pub(super) is_over: bool,
    /// Whether a response is open.
    pub(super) is_open: bool,
    pub(super) step: Step,
    pub(super) calls: Calls,
    /// Incomplete data blocks with their order.
    pub(super) data: HashMap<String, (usize, Msg)>,
    pub(super) data_count: usize,
    /// How many whole texts without an id there were.
    pub(super) generated_ids: usize,
    pub(super) usage: Option<TokenCounts>,
}

impl ReplyWriter {
    pub(super) fn write_event(
        &mut self,
        event: &Event<'_>,
        subagents: &Subagents,
        out: &mut Frames,
    ) {
        match &event.kind {
            EventKind::TextBlockDelta(delta) => {
                self.text_delta(TextKind::Text, &delta.block_id, &delta.delta, out);
            }
            EventKind::ThinkingBlockDelta(delta) => {
                self.text_delta(TextKind::Reasoning, &delta.block_id, &delta.delta, out);
            }
            EventKind::ToolCallDelta(delta) => {
                if self.calls.has(&delta.tool_call_id) {
                    self.begin_response(out);
                    self.calls.input_delta(&delta.tool_call_id, &delta.delta, out);
                }
            }
            EventKind::ToolResultTextDelta(delta) => {
                self.result_delta(&delta.tool_call_id, event, out);
            }
            EventKind::ToolResultDataDelta(delta) => {
                self.result_delta(&delta.tool_call_id, event, out);
            }
            EventKind::TextBlockStart(start) => {
                self.text_start(TextKind::Text, &start.block_id, out);
            }
            EventKind::ThinkingBlockStart(start) => {
                self.text_start(TextKind::Reasoning, &start.block_id, out);
            }
            EventKind::TextBlockEnd(end) => {
                let end_of = TextEnd { replaced: end.text.as_deref(), extra: &end.extra };
                self.text_end(TextKind::Text, &end.block_id, end_of, out);
            }
            EventKind::ThinkingBlockEnd(end) => {
                let end_of = TextEnd { replaced: None, extra: &end.extra };
                self.text_end(TextKind::Reasoning, &end.block_id, end_of, out);
            }
            EventKind::ReplyStart(start) => self.reply_start(start, out),
            EventKind::ModelCallStart(_) => {
                self.begin_response(out);
                if self.step.is_empty() {
                    // An empty step counts as a new one.
                    self.step.resume_recording();
                    self.calls.begin_step();
                } else {
                    self.close_step(subagents, out);
                }
            }
            EventKind::ModelCallEnd(end) => self.model_call_end(end, subagents, out),
            EventKind::DataBlockStart(start) => self.data_event(&start.block_id, event, out),
            EventKind::DataBlockDelta(delta) => self.data_event(&delta.block_id, event, out),
            EventKind::DataBlockEnd(end) => self.data_event(&end.block_id, event, out),
            EventKind::Hint(hint) => self.write_hint(hint, event, out),
            EventKind::Block(whole) => self.whole_block(&whole.block, out),
            EventKind::ToolCallStart(start) => {
                self.begin_step(out);
                let at = self.calls.start_call(&start.tool_call_id, &start.tool_call_name, out);
                self.step.add_call(at);
            }
            EventKind::ToolCallEnd(end) if self.calls.has(&end.tool_call_id) => {
                self.begin_response(out);
                self.calls.end_input(&end.tool_call_id, &without_own_fields(&end.extra), out);
            }
            EventKind::ToolResultStart(start) => {
                self.begin_step(out);
                let (id, name) = (&start.tool_call_id, &start.tool_call_name);
                let at = self.calls.result_start(id, name, event, out);
                self.step.add_call(at);
            }
            EventKind::ToolResultEnd(end) if self.calls.has(&end.tool_call_id) => {
                self.begin_response(out);
                self.calls.result_end(&end.tool_call_id, event, out);
            }
            EventKind::RequireUserConfirm(RequireUserConfirm { tool_calls }) => {
                self.begin_response(out);
                self.calls.request_approvals(tool_calls.iter().map(|call| call.id.as_str()), out);
            }
            EventKind::RequireExternalExecution(RequireExternalExecution { tool_calls }) => {
                self.begin_response(out);
                for call in tool_calls {
                    self.calls.request_execution(&call.id, out);
                }
            }
            EventKind::UserConfirmResult(answer) => {
                self.begin_response(out);
                for one in &answer.confirm_results {
                    self.calls.apply_approval(one, out);
                }
            }
            EventKind::ExternalExecutionResult(answer) => {
                self.begin_response(out);
                for one in &answer.execution_results {
                    self.calls.execution_result(one, out);
                }
            }
            // Ends of unknown calls; the others are handled by the encoder, or not in the message.
            event_kinds!(ReplyEnd ToolCallEnd ToolResultEnd notice session) => {}
        }
    }

    /// Begins a response, if none is open.
    pub(super) fn begin_response(&mut self, out: &mut Frames) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        let mut metadata = Fields::default();
        metadata.insert_fields(part::METADATA_KEY, &self.start_metadata);
        out.push("", &Chunk::Start { message_id: &self.id, message_metadata: &metadata });
    }

    /// Begins a step, if none is open. One that continues after a pause is not announced again.
    pub(super) fn begin_step(&mut self, out: &mut Frames) {
        self.begin_response(out);
        if self.step.begin() {
            self.calls.begin_step();
            out.push("", &Chunk::StartStep);
        }
    }

    pub(super) fn close_step(&mut self, subagents: &Subagents, out: &mut Frames) {
        self.step.close_texts(out);
        self.calls.close_inputs(out);
        self.settle_step(subagents, out);
        self.step.finish(out);
        self.step.clear();
    }

    pub(super) fn reply_start(&mut self, start: &ReplyStart, out: &mut Frames) {
        let was_open = self.is_open;
        if !std::mem::replace(&mut self.is_named, true) && !start.name.is_empty() {
            self.start_metadata.insert("name", start.name.as_str());
            if was_open {
                let about: Fields = [("name", start.name.as_str())].into_iter().collect();
                let metadata = [(part::METADATA_KEY, to_json(&about))].into_iter().collect();
                out.push("", &Chunk::MessageMetadata { message_metadata: &metadata });
            }
        }
        self.begin_response(out);
    }

    pub(super) fn model_call_end(
        &mut self,
        end: &ModelCallEnd,
        subagents: &Subagents,
        out: &mut Frames,
    ) {
        let sum = self.usage.get_or_insert_default();
        let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
        add(&mut sum.input_tokens, end.usage.input_tokens);
        add(&mut sum.output_tokens, end.usage.output_tokens);
        add(&mut sum.cache_input_tokens, end.usage.cache_input_tokens);
        add(&mut sum.cache_creation_input_tokens, end.usage.cache_creation_input_tokens);
        if !end.discard.is_empty() && self.step.discard(&end.discard, &self.calls) {
            for id in &end.discard {
                self.calls.discard(id);
                self.data.remove(id);
            }
        }
        self.settle_step(subagents, out);
    }

    /// Rewrites the current step if something in it was discarded.
    pub(super) fn settle_step(&mut self, subagents: &Subagents, out: &mut Frames) {
        if self.step.needs_rewrite() {
            self.begin_response(out);
        }
        self.step.settle(&mut self.calls, subagents, out);
    }

    /// Adds calls of a sub-agent to the main message.
    pub(super) fn show_subagent_calls(
        &mut self,
        reply_id: &str,
        ids: &[String],
        subagents: &Subagents,
        out: &mut Frames,
    ) {
        for id in ids {
            let Some(call) = subagents.call(reply_id, id) else { continue };
            self.begin_step(out);
            let title = subagents.path(reply_id);
            let at = self.calls.add_whole_call(&call.id, &call.name, &call.input, title, out);
            self.step.add_call(at);
        }
    }

    pub(super) fn show_subagent(
        &mut self,
        reply_id: &str,
        subagents: &mut Subagents,
        out: &mut Frames,
    ) {
        self.begin_step(out);
        if subagents.show_message(reply_id, out) {
            self.step.add(StepItem::Subagent(reply_id.to_owned()));
        }
    }

    pub(super) fn show_subagents(&mut self, subagents: &mut Subagents, out: &mut Frames) {
        for reply_id in subagents.changed() {
            self.show_subagent(&reply_id, subagents, out);
        }
    }

    pub(super) fn reply_end(
        &mut self,
        end: &ReplyEnd,
        finished_at: &str,
        subagents: &Subagents,
        out: &mut Frames,
    ) {
        self.begin_response(out);
        self.flush_data(out);
        let is_interrupted =
            matches!(end.finished_reason, FinishedReason::Interrupted | FinishedReason::Truncated);
        let failed = end.finished_reason == FinishedReason::Error || end.error.is_some();
        let is_cut = is_interrupted || failed;
        self.calls.close_calls(is_cut, out);
        let has_open_calls = self.calls.is_any_open();
        self.close_step(subagents, out);
        let mut ours = self.usage_metadata();
        ours.insert_unless_empty("finished_at", finished_at);
        ours.insert("finished_reason", end.finished_reason.as_str());
        if let Some(error) = &end.error {
            ours.insert("error", to_json(error));
        }
        ours.insert_some("structured_output", end.structured_output.clone());
        let mut metadata = end.message_metadata.clone();
        if let Some(clash) = metadata.remove(part::METADATA_KEY) {
            let clash: Fields = [(part::METADATA_KEY, clash)].into_iter().collect();
            ours.insert("metadata", to_json(&clash));
        }
        metadata.insert(part::METADATA_KEY, to_json(&ours));
        if failed {
            let text = end.error.as_ref().map_or("", |error| &error.message);
            let text = if text.is_empty() { "The reply failed." } else { text };
            // The client ignores everything after an error.
            out.push("", &Chunk::MessageMetadata { message_metadata: &metadata });
            out.push("", &Chunk::Error { error_text: text });
            metadata = Fields::default();
        } else if is_interrupted {
            out.push("", &Chunk::Abort { reason: "The reply was interrupted." });
        }
        let finish_reason = match &end.finished_reason {
            _ if failed => "error",
            _ if is_interrupted => "interrupted",
            FinishedReason::Completed if has_open_calls => "tool-calls",
            FinishedReason::Completed => "stop",
            FinishedReason::Length => "length",
            FinishedReason::ToolCalls => "tool-calls",
            FinishedReason::Refusal | FinishedReason::ContentFilter => "content-filter",
            FinishedReason::Interrupted
            | FinishedReason::ExceedMaxIters
            | FinishedReason::Error
            | FinishedReason::Truncated
            | FinishedReason::Other(_) => "other",
        };
        out.push("", &Chunk::Finish { finish_reason, message_metadata: &metadata });
        *self = Self { id: std::mem::take(&mut self.id), is_over: true, ..Self::default() };
    }

    /// Ends the response but not the reply: it waits for the client, or was interrupted.
    pub(super) fn end_response(&mut self, subagents: &Subagents, out: &mut Frames) {
        let is_waiting = self.calls.is_waiting();
        self.step.close_texts(out);
        if is_waiting {
            self.calls.close_inputs(out);
        } else {
            self.calls.close_calls(true, out);
        }
        self.settle_step(subagents, out);
        self.step.finish(out);
        let mut metadata = Fields::default();
        let ours = self.usage_metadata();
        metadata.insert_fields(part::METADATA_KEY, &ours);
        let finish_reason = if is_waiting {
            "tool-calls"
        } else {
            out.push("", &Chunk::Abort { reason: "The stream ended before the reply did." });
            "interrupted"
        };
        out.push("", &Chunk::Finish { finish_reason, message_metadata: &metadata });
        self.is_open = false;
    }

    /// The token usage so far, as message metadata.
    pub(super) fn usage_metadata(&self) -> Fields {
        let mut ours = Fields::default();
        if let Some(sum) = self.usage {
            let usage = turnwire_core::Usage {
                input_tokens: sum.input_tokens,
                output_tokens: sum.output_tokens,
                cache_input_tokens: sum.cache_input_tokens,
                cache_creation_input_tokens: sum.cache_creation_input_tokens,
                rest: Fields::default(),
            };
            ours.insert("usage", to_json(&to_fields(&usage)));
        }
        ours
    }
}
