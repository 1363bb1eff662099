//! Encodes our events as AG-UI runs.
//!
//! A reply is one run. When the reply waits for the client, the run is finished, and the rest of
//! the reply is another run. Everything that is opened within a run is closed before its end.

use super::client_messages::MessageKind;
use super::frame::{DISCARDED, Frame, MessageMetadata};
use super::turn_state::{
    OpenMessage, PendingCall, RunState, Step, StreamedKind, TurnState, hash_text,
};
use super::write_messages::{
    Detail, MessageHeader, block_activity, has_own_id, reply_metadata, result_id, result_metadata,
    streamed_block, streamed_messages, write_content,
};
use crate::stream::{Encode, EncoderOptions, Frames};
use std::collections::{HashMap, HashSet};
use turnwire_core::event::{
    ConfirmResult, DataBlockStart, ModelCallEnd, ReplyEnd, TextBlockEnd, ThinkingBlockEnd,
};
use turnwire_core::{ContentBlock, Event, EventKind, Fields, Json, Msg, ToolCall, ToolResult};

/// Encodes one stream.
pub(super) struct Encoder {
    /// The thread and the run as the request names them.
    pub(super) session_id: Option<String>,
    pub(super) run_id: Option<String>,
    /// Whether a run has that name already.
    pub(super) is_run_named: bool,
    pub(super) run: RunState,
    pub(super) turn: TurnState,
    /// Messages that the client may not have, sent with the next `RUN_STARTED`.
    pub(super) queued_messages: Vec<Fields>,
    /// Frames that came between two runs, sent in the next one.
    pub(super) deferred_frames: Frames,
    /// Whether the next run starts with a snapshot that replaces the client's messages.
    pub(super) resets_next_run: bool,
    /// Whether a client that reconnects must first drop its messages to get them in order.
    pub(super) resets_client: bool,
}

impl Encoder {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        Self {
            session_id: encoding.session_id.clone(),
            run_id: encoding.run_id.clone(),
            is_run_named: false,
            run: RunState::Idle,
            turn: TurnState::default(),
            queued_messages: Vec::new(),
            deferred_frames: Frames::default(),
            resets_next_run: false,
            resets_client: encoding.resets_client,
        }
    }
}

impl Encode for Encoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        use EventKind as K;
        match &event.kind {
            K::Message(message) => {
                if !event.is_from_sub_agent() {
                    self.queued_messages.extend(streamed_messages(&message.message));
                }
            }
            K::Reset(_) => {
                self.reset(out);
                self.outside_reply_event(event, out);
            }
            K::Custom(_)
            | K::Supersede(_)
            | K::UserInterrupt(_)
            | K::ExceedMaxIters(_)
            | K::RequestStop(_)
            | K::AllToolsDenied(_)
            | K::SubagentExposed(_)
            | K::Unknown(_) => self.outside_reply_event(event, out),
            _ => {
                if self.enter_turn(event, out) {
                    self.reply_event(event, out);
                    if self.run == RunState::Open && self.turn.is_waiting() {
                        self.finish_run_waiting(out);
                    }
                }
            }
        }
    }

    fn end(&mut self, out: &mut Frames) {
        self.close_run(out);
        // What follows answers another request, which names its own run.
        if self.run_id.is_some() {
            self.is_run_named = false;
            self.turn.runs = 0;
        }
    }

    fn resume(&mut self, messages: &[Msg], out: &mut Frames) {
        self.resume_run(messages, out);
    }
}

impl Encoder {
    /// Starts another turn if the event belongs to another reply. Returns false if its turn has
    /// ended.
    fn enter_turn(&mut self, event: &Event<'_>, out: &mut Frames) -> bool {
        let is_other = !event.is_from_sub_agent()
            && event.reply_id != self.turn.reply
            && !event.reply_id.is_empty();
        if is_other {
            if !self.turn.reply.is_empty() {
                self.close_run(out);
                // The client keeps the messages of earlier turns, so their ids stay used.
                self.turn = TurnState {
                    client_messages: self.turn.client_messages.next_turn(),
                    ..TurnState::default()
                };
                self.run = RunState::Idle;
            }
            self.turn.reply = event.reply_id.to_string();
        }
        !self.turn.ended
    }

    /// An event of a reply of this turn.
    fn reply_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        use EventKind as K;
        self.turn.awaits_reply = false;
        match &event.kind {
            K::TextBlockDelta(delta) => {
                self.block_delta(StreamedKind::Text, &delta.block_id, &delta.delta, event, out);
            }
            K::ThinkingBlockDelta(delta) => {
                self.block_delta(StreamedKind::Thinking, &delta.block_id, &delta.delta, event, out);
            }
            K::ToolCallDelta(delta) => {
                self.block_delta(StreamedKind::Call, &delta.tool_call_id, &delta.delta, event, out);
            }
            K::ReplyStart(start) => {
                let reply = self.turn.reply_state(event);
                reply.name.get_or_insert_with(|| start.name.clone());
                if !event.is_from_sub_agent() && self.turn.thread.is_empty() {
                    self.turn.thread.clone_from(&start.session_id);
                }
                // While calls are pending, no run is opened.
                if self.run == RunState::Idle || self.turn.pending.is_empty() {
                    self.open_run(event, out);
                }
            }
            K::RequireUserConfirm(ask) => self.add_pending_calls(&ask.tool_calls, true, event, out),
            K::RequireExternalExecution(ask) => {
                self.add_pending_calls(&ask.tool_calls, false, event, out);
            }
            K::UserConfirmResult(answer) => {
                self.apply_confirmations(&answer.confirm_results, event, out);
            }
            K::ExternalExecutionResult(answer) => {
                self.apply_execution_results(&answer.execution_results, event, out);
            }
            K::ReplyEnd(end) => self.reply_end(end, event, out),
            K::ToolResultTextDelta(delta) => self.result_delta(&delta.tool_call_id, event),
            K::ToolResultDataDelta(delta) => self.result_delta(&delta.tool_call_id, event),
            K::DataBlockDelta(delta) => {
                if let Some((_, block)) = self.turn.data.get_mut(&*delta.block_id) {
                    block.append_event_tolerant(event);
                }
            }
            K::ToolResultStart(start) => self.result_start(&start.tool_call_id, event, out),
            // Already closed with its run.
            K::TextBlockEnd(end) if self.run != RunState::Open && end.text.is_none() => {}
            K::ToolCallEnd(_) if self.run != RunState::Open => {}
            _ => {
                self.open_run(event, out);
                self.run_event(event, out);
            }
        }
    }

    /// An event that is written inside a run.
    fn run_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        use EventKind as K;
        match &event.kind {
            K::ModelCallStart(start) => self.step_start(&start.model_name, event, out),
            K::ModelCallEnd(end) => self.step_end(end, event, out),
            K::TextBlockStart(start) => {
                self.block_start(StreamedKind::Text, &start.block_id, "", event, out);
            }
            K::TextBlockEnd(end) => self.text_end(end, event, out),
            K::ThinkingBlockStart(start) => {
                self.block_start(StreamedKind::Thinking, &start.block_id, "", event, out);
            }
            K::ThinkingBlockEnd(end) => self.thinking_end(end, out),
            K::ToolCallStart(start) => {
                self.block_start(
                    StreamedKind::Call,
                    &start.tool_call_id,
                    &start.tool_call_name,
                    event,
                    out,
                );
            }
            K::ToolCallEnd(end) => self.close_message(StreamedKind::Call, &end.tool_call_id, out),
            K::DataBlockStart(start) => self.data_start(start, event, out),
            K::DataBlockEnd(end) => {
                self.data_end(&end.block_id, event, out);
            }
            K::Hint(_) => {
                let mut folded = Msg::reply(event.reply_id.to_string(), "");
                folded.append_event_tolerant(event);
                for block in folded.content() {
                    self.whole_block(block, event, out);
                }
            }
            K::Block(whole) => self.whole_block(&whole.block, event, out),
            K::ToolResultEnd(end) => {
                if let Some(mut result) = self.turn.results.remove(&*end.tool_call_id) {
                    result.append_event_tolerant(event);
                    if let Some(result) = result.first::<ToolResult>() {
                        self.whole_result(result, event, out);
                    }
                }
            }
            _ => {}
        }
    }

    fn result_start(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if self.turn.finished_calls.contains(id) || self.turn.results.contains_key(id) {
            return;
        }
        let mut result = Msg::reply(event.reply_id.to_string(), "");
        result.append_event_tolerant(event);
        self.turn.results.insert(id.to_owned(), result);
        self.turn.running_calls.insert(id.to_owned());
        // The call runs, so it was approved.
        self.turn.pending.retain(|pending| !(pending.confirm && pending.call == id));
        if self.run == RunState::Idle || self.turn.pending.is_empty() {
            self.open_run(event, out);
        }
    }

    fn result_delta(&mut self, call: &str, event: &Event<'_>) {
        if let Some(result) = self.turn.results.get_mut(call) {
            result.append_event_tolerant(event);
        }
    }

    /// A text, thinking or tool call block starts.
    fn block_start(
        &mut self,
        kind: StreamedKind,
        id: &str,
        name: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let family = kind.message_kind();
        if self.turn.client_messages.has(family, id) {
            return;
        }
        self.turn.client_messages.add_block(
            family,
            id,
            id,
            &event.reply_id,
            event.is_from_sub_agent(),
        );
        if kind == StreamedKind::Call {
            self.turn.remember_call(id, name, &event.reply_id);
        }
        self.open_message(kind, id, event, out);
    }

    /// Opens the message of a block, with the id that the client knows.
    fn open_message(&mut self, kind: StreamedKind, id: &str, event: &Event<'_>, out: &mut Frames) {
        let known = self.turn.client_messages.id_of(kind.message_kind(), id).unwrap_or(id);
        let open = OpenMessage {
            order: self.turn.opened,
            id: (known != id).then(|| known.to_owned()),
            reply: event.reply_id.to_string(),
            is_subagent: event.is_from_sub_agent(),
            sent: false,
        };
        self.turn.opened += 1;
        self.write_start(kind, id, &open, out);
        self.turn.open_messages(kind).insert(id.to_owned(), open);
    }

    pub(super) fn write_start(
        &self,
        kind: StreamedKind,
        id: &str,
        open: &OpenMessage,
        out: &mut Frames,
    ) {
        let message_id = open.id.as_deref().unwrap_or(id);
        let subagent_run_id = open.is_subagent.then_some(&*open.reply);
        let metadata = MessageMetadata::new(&open.reply);
        match kind {
            StreamedKind::Text => {
                let name = self.turn.name_of(&open.reply);
                let role = "assistant";
                let frame =
                    Frame::TextMessageStart { message_id, role, name, subagent_run_id, metadata };
                out.push("", &frame);
            }
            StreamedKind::Thinking => {
                out.push("", &Frame::ReasoningStart { message_id, subagent_run_id });
                let role = "reasoning";
                let frame =
                    Frame::ReasoningMessageStart { message_id, role, subagent_run_id, metadata };
                out.push("", &frame);
            }
            StreamedKind::Call => {
                let tool_call_name = self.turn.calls.get(id).map_or("", |call| &call.name);
                let frame = Frame::ToolCallStart {
                    tool_call_id: id,
                    tool_call_name,
                    parent_message_id: open.id.as_deref(),
                    subagent_run_id,
                    metadata,
                };
                out.push("", &frame);
            }
        }
    }

    fn block_delta(
        &mut self,
        kind: StreamedKind,
        id: &str,
        delta: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        if delta.is_empty() {
            return;
        }
        if self.run != RunState::Open || !self.turn.open_messages(kind).contains_key(id) {
            // It was closed with the previous run, or its start is missing.
            let family = kind.message_kind();
            if self.turn.client_messages.is_discarded(family, id) {
                return;
            }
            self.open_run(event, out);
            if !self.turn.client_messages.has(family, id) {
                self.turn.client_messages.add_block(
                    family,
                    id,
                    id,
                    &event.reply_id,
                    event.is_from_sub_agent(),
                );
            }
            if kind == StreamedKind::Call {
                self.turn.remember_call(id, "", &event.reply_id);
            }
            self.open_message(kind, id, event, out);
        }
        if kind == StreamedKind::Call
            && let Some(call) = self.turn.calls.get_mut(id)
        {
            call.input_hash = hash_text(call.input_hash, delta);
        }
        let Some(open) = self.turn.open_messages(kind).get_mut(id) else { return };
        if !open.sent {
            open.sent = true;
            self.turn.client_messages.mark_filled(kind.message_kind(), id);
        }
        let Some(open) = self.turn.open_messages(kind).get(id) else { return };
        let message_id = open.id.as_deref().unwrap_or(id);
        match kind {
            StreamedKind::Text => out.push("", &Frame::TextMessageContent { message_id, delta }),
            StreamedKind::Thinking => {
                out.push("", &Frame::ReasoningMessageContent { message_id, delta });
            }
            StreamedKind::Call => out.push("", &Frame::ToolCallArgs { tool_call_id: id, delta }),
        }
    }

    /// Closes a block's message, if it is open.
    fn close_message(&mut self, kind: StreamedKind, id: &str, out: &mut Frames) {
        if let Some(open) = self.turn.open_messages(kind).remove(id) {
            write_end(kind, id, &open, out);
        }
    }

    fn text_end(&mut self, end: &TextBlockEnd<'_>, event: &Event<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let Some(text) = end.text.as_deref() else {
            return self.close_message(StreamedKind::Text, id, out);
        };
        let sent = self.turn.client_messages.is_filled(MessageKind::Text, id);
        self.close_message(StreamedKind::Text, id, out);
        if self.turn.client_messages.id_of(MessageKind::Text, id).is_none() {
            return;
        }
        // A client cannot remove a message, only replace it.
        if sent {
            self.replace_message(MessageKind::Text, id, event, out);
        }
        self.open_message(StreamedKind::Text, id, event, out);
        if !text.is_empty() {
            self.block_delta(StreamedKind::Text, id, text, event, out);
        }
        self.close_message(StreamedKind::Text, id, out);
    }

    /// Discards a block's message, and gives the block a new id for its replacement.
    fn replace_message(
        &mut self,
        family: MessageKind,
        id: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let known = self.turn.client_messages.id_of(family, id).unwrap_or(id).to_owned();
        self.discard_message(family, id, &known, event, out);
        let next = format!("{known}-2");
        self.turn.client_messages.add_block(
            family,
            id,
            &next,
            &event.reply_id,
            event.is_from_sub_agent(),
        );
    }

    /// Discards a block's message.
    fn discard_message(
        &mut self,
        family: MessageKind,
        block: &str,
        id: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        self.turn.client_messages.discard(family, block);
        let frame = Frame::ActivitySnapshot {
            message_id: id,
            activity_type: DISCARDED,
            content: Json::from(serde_json::Map::new()),
            replace: true,
            subagent_run_id: event.is_from_sub_agent().then_some(&*event.reply_id),
            metadata: MessageMetadata::new(&event.reply_id),
        };
        out.push("", &frame);
    }

    fn thinking_end(&mut self, end: &ThinkingBlockEnd<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let known = self.turn.client_messages.id_of(MessageKind::Thinking, id);
        if let (Some(entity_id), Ok(Some(signature))) =
            (known, end.extra.get::<String>("signature"))
        {
            let (subtype, encrypted_value) = ("message", &*signature);
            let frame = Frame::ReasoningEncryptedValue { subtype, entity_id, encrypted_value };
            out.push("", &frame);
        }
        self.close_message(StreamedKind::Thinking, id, out);
    }

    fn data_start(&mut self, start: &DataBlockStart<'_>, event: &Event<'_>, out: &mut Frames) {
        let id = &*start.block_id;
        if self.turn.client_messages.has(MessageKind::Activity, id) {
            return;
        }
        let mut block = Msg::reply(event.reply_id.to_string(), "");
        block.append_event_tolerant(event);
        let sub = event.is_from_sub_agent();
        self.turn.client_messages.add_block(MessageKind::Activity, id, id, &event.reply_id, sub);
        self.turn.data.insert(id.to_owned(), (sub, block));
        // It gets its position in the list now, and its content when it is complete.
        self.write_data(id, out);
    }

    /// A data block ends, complete or not.
    fn data_end(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if let Some((_, block)) = self.turn.data.get_mut(id) {
            block.append_event_tolerant(event);
        }
        self.write_data(id, out);
        self.turn.data.remove(id);
    }

    pub(super) fn write_data(&self, id: &str, out: &mut Frames) {
        if let Some((sub, msg)) = self.turn.data.get(id)
            && let Some(block) = msg.content().first()
        {
            let id = self.turn.client_messages.id_of(MessageKind::Activity, id).unwrap_or(id);
            write_activity(id, block, msg.id(), *sub, out);
        }
    }

    /// A block that arrives as a whole.
    fn whole_block(&mut self, block: &ContentBlock, event: &Event<'_>, out: &mut Frames) {
        let reply = self.turn.reply_state(event);
        let id = match block {
            ContentBlock::ToolResult(result) => {
                return self.whole_result(result, event, out);
            }
            block => reply.block_ids.id_for(block, &event.reply_id),
        };
        if self.turn.client_messages.has(MessageKind::from_block(block), &id) {
            return;
        }
        let (kind, name, text) = match block {
            ContentBlock::Text(block) => (StreamedKind::Text, "", &block.text),
            ContentBlock::Thinking(block) => (StreamedKind::Thinking, "", &block.thinking),
            ContentBlock::ToolCall(call) => (StreamedKind::Call, &*call.name, &call.input),
            other => {
                let sub = event.is_from_sub_agent();
                self.turn.client_messages.add_block(
                    MessageKind::Activity,
                    &id,
                    &id,
                    &event.reply_id,
                    sub,
                );
                let known =
                    self.turn.client_messages.id_of(MessageKind::Activity, &id).unwrap_or(&id);
                return write_activity(known, other, &event.reply_id, sub, out);
            }
        };
        self.block_start(kind, &id, name, event, out);
        self.block_delta(kind, &id, text, event, out);
        if let ContentBlock::Thinking(block) = block {
            let (block_id, extra) = (id.as_str().into(), block.rest.clone());
            return self.thinking_end(&ThinkingBlockEnd { block_id, extra }, out);
        }
        self.close_message(kind, &id, out);
    }

    /// A complete tool result.
    fn whole_result(&mut self, result: &ToolResult, event: &Event<'_>, out: &mut Frames) {
        self.turn.finish_call(&result.id);
        if !self.turn.finished_calls.insert(result.id.clone()) {
            return;
        }
        let mut message_id = result_id(result);
        if !has_own_id(result) {
            message_id = self.turn.client_messages.free_id(message_id, &event.reply_id);
        }
        let message_id = &*message_id;
        let sub = event.is_from_sub_agent();
        self.turn.client_messages.add_result(&result.id, message_id, &event.reply_id, sub);
        let metadata = &result_metadata(result, reply_metadata(&event.reply_id));
        let frame = Frame::ToolCallResult {
            message_id,
            tool_call_id: &result.id,
            content: write_content(&result.output, Detail::Streamed),
            role: "tool",
            subagent_run_id: sub.then_some(&*event.reply_id),
            metadata,
        };
        out.push("", &frame);
    }

    /// Adds calls that wait for the client, and finishes the run.
    fn add_pending_calls(
        &mut self,
        calls: &[ToolCall],
        confirm: bool,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let mut asked = false;
        let waits = self.turn.pending.iter().map(|pending| (pending.call.clone(), pending.confirm));
        let mut waits: HashMap<String, bool> = waits.collect();
        for call in calls {
            let before = waits.get(&call.id).copied();
            if self.turn.finished_calls.contains(&call.id) || before == Some(confirm) {
                continue;
            }
            asked = true;
            waits.insert(call.id.clone(), confirm);
            if before.is_some() {
                self.turn.pending.retain(|pending| pending.call != call.id);
            }
            let known = self.turn.calls.get(&call.id).map(|call| call.name.clone());
            self.turn.pending.push(PendingCall {
                call: call.id.clone(),
                name: known.unwrap_or_else(|| call.name.clone()),
                confirm,
                rules: call.suggested_rules.clone(),
                reply: event.reply_id.to_string(),
                is_subagent: event.is_from_sub_agent(),
                expires_at: event.metadata.get("expires_at").ok().flatten(),
            });
        }
        if asked {
            self.open_run(event, out);
            self.finish_run_waiting(out);
        }
    }

    /// Applies the user's decisions.
    fn apply_confirmations(
        &mut self,
        answers: &[ConfirmResult],
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let asks = self.turn.pending.iter().filter(|pending| pending.confirm);
        let mut asks: HashSet<String> = asks.map(|pending| pending.call.clone()).collect();
        let answered: HashSet<&str> =
            answers.iter().map(|answer| answer.tool_call.id.as_str()).collect();
        self.turn.pending.retain(|ask| !ask.confirm || !answered.contains(ask.call.as_str()));
        for answer in answers {
            let id = answer.tool_call.id.as_str();
            let asked = asks.remove(id);
            let unknown =
                !self.turn.calls.contains_key(id) && !self.turn.finished_calls.contains(id);
            if !asked && !unknown {
                continue;
            }
            self.turn.running_calls.insert(id.to_owned());
            self.open_run(event, out);
            if answer.confirmed {
                self.write_edited_call(&answer.tool_call, event, out);
            }
        }
    }

    /// Writes a call again whose input the user edited.
    fn write_edited_call(&mut self, call: &ToolCall, event: &Event<'_>, out: &mut Frames) {
        let known = self.turn.calls.get(&call.id);
        let same = known.is_some_and(|known| known.input_hash == hash_text(0, &call.input));
        if call.input.is_empty() || same {
            return;
        }
        self.turn.remember_call(&call.id, &call.name, &event.reply_id);
        self.replace_message(MessageKind::Call, &call.id, event, out);
        if let Some(known) = self.turn.calls.get_mut(&call.id) {
            known.input_hash = 0;
        }
        self.open_message(StreamedKind::Call, &call.id, event, out);
        self.block_delta(StreamedKind::Call, &call.id, &call.input, event, out);
        self.close_message(StreamedKind::Call, &call.id, out);
    }

    /// Applies the results of calls that the client executed.
    fn apply_execution_results(
        &mut self,
        results: &[ToolResult],
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let sub = event.is_from_sub_agent();
        let mut told = Vec::new();
        for result in results {
            self.turn.pending.retain(|pending| pending.call != result.id);
            let goes_on = self.turn.results.contains_key(&result.id);
            if self.turn.finished_calls.contains(&result.id) || (goes_on && !has_own_id(result)) {
                continue;
            }
            if !has_own_id(result) {
                told.push(result);
                continue;
            }
            // The client that executed the call has the message already and must not get it twice.
            // Only `RUN_STARTED` merges messages by id.
            let id = result_id(result);
            if self.run == RunState::Open {
                told.push(result);
                continue;
            }
            let place = MessageHeader { id: &id, reply: &event.reply_id, name: "", subagent: None };
            let place = MessageHeader { subagent: sub.then_some(&*event.reply_id), ..place };
            let block = ContentBlock::from(result.clone());
            self.queued_messages.push(streamed_block(&block, place));
            self.turn.client_messages.append_result(&result.id, &id, &event.reply_id, sub);
            self.turn.finish_call(&result.id);
            self.turn.finished_calls.insert(result.id.clone());
        }
        self.open_run(event, out);
        for result in told {
            self.whole_result(result, event, out);
        }
    }

    fn step_start(&mut self, model: &str, event: &Event<'_>, out: &mut Frames) {
        let reply = self.turn.reply_state(event);
        model.clone_into(&mut reply.model);
        let base = if model.is_empty() { "model" } else { model };
        let mut name = base.to_owned();
        let mut count = reply.steps.len().max(1);
        while !reply.steps.insert(name.clone()) {
            count += 1;
            name = format!("{base} {count}");
        }
        let step = Step {
            reply: event.reply_id.to_string(),
            name,
            is_subagent: event.is_from_sub_agent(),
        };
        step.write_start(out);
        self.turn.steps.push(step);
    }

    fn step_end(&mut self, end: &ModelCallEnd, event: &Event<'_>, out: &mut Frames) {
        for id in &end.discard {
            for kind in StreamedKind::ALL {
                self.close_message(kind, id, out);
            }
            self.turn.data.remove(id);
            for family in MessageKind::ALL {
                if let Some(known) = self.turn.client_messages.id_of(family, id).map(str::to_owned)
                {
                    self.discard_message(family, id, &known, event, out);
                }
            }
        }
        let last = self.turn.steps.iter().rposition(|step| step.reply == event.reply_id);
        if let Some(at) = last {
            self.turn.end_step(at, out);
        }
        let model = self.turn.reply_state(event).model.clone();
        self.turn.count_tokens(model, end.usage);
    }

    fn reply_end(&mut self, end: &ReplyEnd, event: &Event<'_>, out: &mut Frames) {
        self.open_run(event, out);
        let ids: Vec<String> = self.turn.open_data(!event.is_from_sub_agent(), &event.reply_id);
        for id in ids {
            self.data_end(&id, event, out);
        }
        if event.is_from_sub_agent() {
            self.finish_subagent(end, event, out);
        } else {
            self.turn.pending.clear();
            self.finish_reply(
                Some(&end.finished_reason),
                end.error.as_ref(),
                end.structured_output.as_ref(),
                out,
            );
        }
    }
}

/// Closes the message of a block.
pub(super) fn write_end(kind: StreamedKind, id: &str, open: &OpenMessage, out: &mut Frames) {
    let message_id = open.id.as_deref().unwrap_or(id);
    match kind {
        StreamedKind::Text => out.push("", &Frame::TextMessageEnd { message_id }),
        StreamedKind::Thinking => {
            out.push("", &Frame::ReasoningMessageEnd { message_id });
            out.push("", &Frame::ReasoningEnd { message_id });
        }
        StreamedKind::Call => out.push("", &Frame::ToolCallEnd { tool_call_id: id }),
    }
}

fn write_activity(id: &str, block: &ContentBlock, reply: &str, sub: bool, out: &mut Frames) {
    let (word, content) = block_activity(block);
    let frame = Frame::ActivitySnapshot {
        message_id: id,
        activity_type: &word,
        content,
        replace: true,
        subagent_run_id: sub.then_some(reply),
        metadata: MessageMetadata::new(reply),
    };
    out.push("", &frame);
}
