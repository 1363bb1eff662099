//! Encodes our events as a UI message stream.
//!
//! A response is `start`, steps, `finish`. A step lasts from one model call to the next. A reply
//! that waits for the client ends its response ([`Encode::end`]) and continues in the next one,
//! with the same message id and only the new parts: the client continues its message. A client that
//! reconnects gets everything in one response.

use super::calls::Calls;
use super::chunk::{Chunk, Custom};
use super::part::{self, add_own_metadata, take_own_metadata, to_fields, to_json};
use super::step::{Step, StepItem, TextEnd, TextKind, without_own_fields};
use super::subagents::Subagents;
use crate::provider::block_to_item;
use crate::stream::{Encode, Frames};
use std::collections::HashMap;
use turnwire_core::event::{
    Hint, ModelCallEnd, ReplyEnd, ReplyStart, RequireExternalExecution, RequireUserConfirm,
    TokenCounts,
};
use turnwire_core::{
    ContentBlock, DataBlock, Event, EventKind, Fields, FinishedReason, HintBlock, Json, Msg,
    ToolCall, ToolCallState,
};

/// The id of the reply in which one data block is folded.
const DATA_REPLY_ID: &str = "data";

/// Encodes one stream.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    reply: Option<ReplyWriter>,
    subagents: Subagents,
}

/// Encodes one reply.
#[derive(Debug, Default)]
struct ReplyWriter {
    id: String,
    /// The message metadata at its start.
    start_metadata: Fields,
    is_named: bool,
    is_over: bool,
    /// Whether a response is open.
    is_open: bool,
    step: Step,
    calls: Calls,
    /// Incomplete data blocks with their order.
    data: HashMap<String, (usize, Msg)>,
    data_count: usize,
    /// How many whole texts without an id there were.
    generated_ids: usize,
    usage: Option<TokenCounts>,
}

impl Encode for Encoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        if matches!(event.kind, EventKind::Reset(_)) {
            // Everything follows again, in a response of its own.
            self.end(out);
            *self = Self::default();
            return;
        }
        if event.is_from_sub_agent() || self.subagents.has(&event.reply_id) {
            return self.subagent_event(event, out);
        }
        if !event.kind.is_part_of_reply() {
            if let (EventKind::Custom(custom), Some(turn)) = (&event.kind, &self.reply)
                && turn.is_open
            {
                // Transient: it changes no message.
                let data = Custom { name: &custom.name, value: &custom.value.0 };
                out.push("", &Chunk::DataCustom { data, transient: true });
            }
            return;
        }
        if !event.reply_id.is_empty() && self.is_current(event, out) {
            let Some(turn) = &mut self.reply else { return };
            if let EventKind::ReplyEnd(end) = &event.kind {
                turn.show_subagents(&mut self.subagents, out);
                turn.reply_end(end, event, &self.subagents, out);
                self.subagents.clear();
            } else {
                turn.write_event(event, &self.subagents, out);
            }
        }
    }

    fn end(&mut self, out: &mut Frames) {
        if let Some(turn) = self.reply.as_mut().filter(|turn| turn.is_open) {
            turn.show_subagents(&mut self.subagents, out);
            turn.end_response(&self.subagents, out);
        }
    }
}

impl Encoder {
    /// Whether the event belongs to the current reply. A new reply replaces one that has ended or
    /// that it interrupts; events of other replies are ignored.
    fn is_current(&mut self, event: &Event<'_>, out: &mut Frames) -> bool {
        match &mut self.reply {
            Some(turn) if turn.id == event.reply_id => return !turn.is_over,
            Some(turn) if !turn.is_over => {
                if !matches!(event.kind, EventKind::ReplyStart(_)) {
                    return false;
                }
                if turn.is_open {
                    turn.end_response(&self.subagents, out);
                }
            }
            _ => {}
        }
        let mut about = Fields::default();
        if !event.created_at.is_empty() {
            about.insert("created_at", &*event.created_at);
        }
        self.reply = Some(ReplyWriter {
            id: event.reply_id.to_string(),
            start_metadata: about,
            ..ReplyWriter::default()
        });
        true
    }

    /// An event of a sub-agent. Its pending calls are also calls of the main message, because the
    /// client can answer only there.
    fn subagent_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        if event.reply_id.is_empty() || !event.kind.is_part_of_reply() {
            return;
        }
        let is_due = self.subagents.apply_event(event);
        let Some(turn) = self.reply.as_mut().filter(|turn| !turn.is_over) else { return };
        let reply_id = &*event.reply_id;
        if is_due {
            turn.show_subagent(reply_id, &mut self.subagents, out);
        }
        let subagents = &self.subagents;
        let of = |calls: &[ToolCall], state: ToolCallState| -> Vec<String> {
            let is_so = |call: &&ToolCall| {
                subagents.call(reply_id, &call.id).is_some_and(|known| known.state == state)
            };
            calls.iter().filter(is_so).map(|call| call.id.clone()).collect()
        };
        match &event.kind {
            EventKind::RequireUserConfirm(ask) => {
                let ids = of(&ask.tool_calls, ToolCallState::Asking);
                turn.show_subagent_calls(reply_id, &ids, subagents, out);
                turn.calls.request_approvals(ids.iter().map(String::as_str), out);
            }
            EventKind::RequireExternalExecution(ask) => {
                let ids = of(&ask.tool_calls, ToolCallState::Submitted);
                turn.show_subagent_calls(reply_id, &ids, subagents, out);
                for id in &ids {
                    turn.calls.request_execution(id, out);
                }
            }
            EventKind::UserConfirmResult(answer) => {
                turn.begin_response(out);
                for one in &answer.confirm_results {
                    turn.calls.apply_approval(one, out);
                }
            }
            EventKind::ExternalExecutionResult(answer) => {
                turn.begin_response(out);
                for one in &answer.execution_results {
                    turn.calls.execution_result(one, out);
                }
            }
            EventKind::ToolResultEnd(end) if turn.calls.has(&end.tool_call_id) => {
                if let Some(result) = subagents.result(reply_id, &end.tool_call_id) {
                    turn.begin_response(out);
                    turn.calls.finish_call(&end.tool_call_id, result, out);
                }
            }
            _ => {}
        }
    }
}

impl ReplyWriter {
    fn write_event(&mut self, event: &Event<'_>, subagents: &Subagents, out: &mut Frames) {
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
            _ => self.write_tool_event(event, out),
        }
    }

    fn write_tool_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        match &event.kind {
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
            _ => {}
        }
    }

    /// Begins a response, if none is open.
    fn begin_response(&mut self, out: &mut Frames) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        let mut metadata = Fields::default();
        if !self.start_metadata.is_empty() {
            metadata.insert(part::METADATA_KEY, to_json(&self.start_metadata));
        }
        out.push("", &Chunk::Start { message_id: &self.id, message_metadata: &metadata });
    }

    /// Begins a step, if none is open. One that continues after a pause is not announced again.
    fn begin_step(&mut self, out: &mut Frames) {
        self.begin_response(out);
        if self.step.begin() {
            self.calls.begin_step();
            out.push("", &Chunk::StartStep);
        }
    }

    fn close_step(&mut self, subagents: &Subagents, out: &mut Frames) {
        self.step.close_texts(out);
        self.calls.close_inputs(out);
        self.settle_step(subagents, out);
        self.step.finish(out);
        self.step.clear();
    }

    fn reply_start(&mut self, start: &ReplyStart, out: &mut Frames) {
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

    fn model_call_end(&mut self, end: &ModelCallEnd, subagents: &Subagents, out: &mut Frames) {
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
    fn settle_step(&mut self, subagents: &Subagents, out: &mut Frames) {
        if self.step.needs_rewrite() {
            self.begin_response(out);
        }
        self.step.settle(&mut self.calls, subagents, out);
    }

    fn text_start(&mut self, kind: TextKind, id: &str, out: &mut Frames) {
        self.begin_step(out);
        self.step.text_start(kind, id, out);
    }

    fn text_delta(&mut self, kind: TextKind, id: &str, delta: &str, out: &mut Frames) {
        if !delta.is_empty() && self.ensure_text(kind, id, out) {
            self.step.text_delta(kind, id, delta, out);
        }
    }

    fn text_end(&mut self, kind: TextKind, id: &str, end: TextEnd<'_>, out: &mut Frames) {
        if self.ensure_text(kind, id, out) {
            self.step.text_end(kind, id, end, out);
        }
    }

    /// Whether the current step has this text. One that was carried over starts there again.
    fn ensure_text(&mut self, kind: TextKind, id: &str, out: &mut Frames) -> bool {
        if self.step.has_text(kind, id) {
            return true;
        }
        let goes_on = self.step.take_carried(kind, id);
        if goes_on {
            self.text_start(kind, id, out);
        }
        goes_on
    }

    fn result_delta(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if self.calls.has(id) {
            self.begin_response(out);
            self.calls.result_delta(id, event, out);
        }
    }

    /// Handles an event of a data block: a client takes a file only as a whole.
    fn data_event(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if matches!(event.kind, EventKind::DataBlockStart(_)) {
            let count = self.data_count;
            self.data_count += 1;
            self.data
                .entry(id.to_owned())
                .or_insert_with(|| (count, Msg::reply(DATA_REPLY_ID, "")));
        }
        let Some((_, msg)) = self.data.get_mut(id) else { return };
        let mut own = Event::new(DATA_REPLY_ID, event.kind.clone());
        own.created_at = (&*event.created_at).into();
        // Invalid events are ignored, as in the message.
        let _ = msg.append_event_tolerant(&own);
        if matches!(event.kind, EventKind::DataBlockEnd(_))
            && let Some((_, msg)) = self.data.remove(id)
        {
            self.write_file(&msg, out);
        }
    }

    fn write_file(&mut self, msg: &Msg, out: &mut Frames) {
        if let Some(block) = msg.first::<DataBlock>() {
            self.write_part(&block.id, &file_chunk(block), out);
        }
    }

    /// Writes the data blocks that have no end.
    fn flush_data(&mut self, out: &mut Frames) {
        let mut open: Vec<(usize, Msg)> = self.data.drain().map(|(_, block)| block).collect();
        open.sort_by_key(|(count, _)| *count);
        for (_, mut msg) in open {
            // The end of a reply ends its data.
            let _ = msg.append_event_tolerant(&Event::new(DATA_REPLY_ID, ReplyEnd::default()));
            self.write_file(&msg, out);
        }
    }

    fn write_hint(&mut self, hint: &Hint, event: &Event<'_>, out: &mut Frames) {
        let block = HintBlock {
            id: hint.block_id.clone(),
            hint: hint.hint.clone(),
            source: hint.source.clone(),
            created_at: event.created_at.to_string(),
            finished_at: Some(event.created_at.to_string()),
            rest: Fields::default(),
        };
        let part = part::write_block(&block.into());
        self.write_part(&hint.block_id, &part, out);
    }

    fn write_part(&mut self, id: &str, part: &Fields, out: &mut Frames) {
        self.begin_step(out);
        let chunk = to_json(part);
        out.push_text("", chunk.text());
        self.step.add(StepItem::Part(id.to_owned(), chunk.text().to_owned()));
    }

    /// Writes a block that arrives as a whole.
    fn whole_block(&mut self, block: &ContentBlock, out: &mut Frames) {
        match block {
            ContentBlock::Text(text) => {
                self.whole_text(TextKind::Text, &text.id, &text.text, &text.rest, out);
            }
            ContentBlock::Thinking(text) => {
                self.whole_text(TextKind::Reasoning, &text.id, &text.thinking, &text.rest, out);
            }
            ContentBlock::Data(data) => self.write_part(&data.id, &file_chunk(data), out),
            ContentBlock::ToolCall(call) => {
                self.begin_step(out);
                let at = self.calls.add_whole_call(&call.id, &call.name, &call.input, None, out);
                self.step.add_call(at);
                match call.state {
                    ToolCallState::Asking => {
                        self.calls.request_approvals([call.id.as_str()].into_iter(), out);
                    }
                    ToolCallState::Submitted => self.calls.request_execution(&call.id, out),
                    _ => {}
                }
            }
            ContentBlock::ToolResult(result) => {
                self.begin_step(out);
                let at = self.calls.add_whole_call(&result.id, &result.name, "", None, out);
                self.step.add_call(at);
                self.calls.execution_result(result, out);
            }
            ContentBlock::Other(fields) => {
                let part = match block_to_item(super::NAME, fields) {
                    Some(part) if is_chunk(&part) => part,
                    _ => part::block_part(fields),
                };
                self.write_part(block.id(), &part, out);
            }
            block => self.write_part(block.id(), &part::write_block(block), out),
        }
    }

    fn whole_text(
        &mut self,
        kind: TextKind,
        id: &str,
        text: &str,
        extra: &Fields,
        out: &mut Frames,
    ) {
        // Blocks may have no id, but a part needs one.
        let own;
        let id = if id.is_empty() {
            self.generated_ids += 1;
            own = format!("{}-{}", self.id, self.generated_ids);
            &*own
        } else {
            id
        };
        self.text_start(kind, id, out);
        self.text_delta(kind, id, text, out);
        self.text_end(kind, id, TextEnd { replaced: None, extra }, out);
    }

    /// Adds calls of a sub-agent to the main message.
    fn show_subagent_calls(
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

    fn show_subagent(&mut self, reply_id: &str, subagents: &mut Subagents, out: &mut Frames) {
        self.begin_step(out);
        if subagents.show_message(reply_id, out) {
            self.step.add(StepItem::Subagent(reply_id.to_owned()));
        }
    }

    fn show_subagents(&mut self, subagents: &mut Subagents, out: &mut Frames) {
        for reply_id in subagents.changed() {
            self.show_subagent(&reply_id, subagents, out);
        }
    }

    fn reply_end(
        &mut self,
        end: &ReplyEnd,
        event: &Event<'_>,
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
        if !event.created_at.is_empty() {
            ours.insert("finished_at", &*event.created_at);
        }
        ours.insert("finished_reason", end.finished_reason.as_str());
        if let Some(error) = &end.error {
            ours.insert("error", to_json(error));
        }
        if let Some(output) = &end.structured_output {
            ours.insert("structured_output", output.clone());
        }
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
            _ => "other",
        };
        out.push("", &Chunk::Finish { finish_reason, message_metadata: &metadata });
        *self = Self { id: std::mem::take(&mut self.id), is_over: true, ..Self::default() };
    }

    /// Ends the response but not the reply: it waits for the client, or was interrupted.
    fn end_response(&mut self, subagents: &Subagents, out: &mut Frames) {
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
        if !ours.is_empty() {
            metadata.insert(part::METADATA_KEY, to_json(&ours));
        }
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
    fn usage_metadata(&self) -> Fields {
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

/// A file. The chunk has no field for its name, so the metadata has it.
fn file_chunk(block: &DataBlock) -> Fields {
    let mut part = part::write_block(&block.clone().into());
    if let Some(name) = part.remove("filename") {
        let mut ours = take_own_metadata(&mut part, "providerMetadata");
        ours.insert("name", name);
        add_own_metadata(&mut part, "providerMetadata", &ours);
    }
    part
}

/// Whether a part that we keep can be sent as a chunk: both have the same fields, and a chunk
/// without a required field would end the client's stream.
fn is_chunk(part: &Fields) -> bool {
    let word: String = part.get("type").ok().flatten().unwrap_or_default();
    let is_text = |key: &str| part.raw(key).is_some_and(|json: &Json| json.text().starts_with('"'));
    let has = |needed: &[&str], optional: &[&str]| {
        needed.iter().all(|key| is_text(key))
            && optional.iter().all(|key| part.raw(key).is_none() || is_text(key))
            && part.raw("providerMetadata").is_none()
    };
    match word.as_str() {
        "source-url" => has(&["sourceId", "url"], &["title"]),
        "source-document" => has(&["sourceId", "mediaType", "title"], &["filename"]),
        word => word.starts_with("data-") && part.raw("data").is_some() && has(&[], &["id"]),
    }
}
