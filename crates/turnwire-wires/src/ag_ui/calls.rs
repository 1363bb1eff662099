//! Encodes tool results, approvals and executions by the client.

use super::client_messages::MessageKind;
use super::encode::Encoder;
use super::frame::Frame;
use super::turn_state::{PendingCall, RunState, StreamedKind, hash_text};
use super::write_messages::{
    Detail, MessageHeader, has_own_id, reply_metadata, result_id, result_metadata, streamed_block,
    write_content,
};
use crate::stream::Frames;
use serde_json::Map;
use std::collections::{HashMap, HashSet};
use turnwire_core::event::ConfirmResult;
use turnwire_core::{ContentBlock, Event, Json, Msg, ToolCall, ToolResult};

impl Encoder {
    pub(super) fn result_start(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
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

    pub(super) fn result_delta(&mut self, call: &str, event: &Event<'_>) {
        if let Some(result) = self.turn.results.get_mut(call) {
            result.append_event_tolerant(event);
        }
    }

    /// A complete tool result.
    pub(super) fn whole_result(
        &mut self,
        result: &ToolResult,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
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
    pub(super) fn add_pending_calls(
        &mut self,
        calls: &[ToolCall],
        confirm: bool,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let mut is_new = false;
        let waits = self.turn.pending.iter().map(|pending| (pending.call.clone(), pending.confirm));
        let mut waits: HashMap<String, bool> = waits.collect();
        for call in calls {
            let before = waits.get(&call.id).copied();
            if self.turn.finished_calls.contains(&call.id) || before == Some(confirm) {
                continue;
            }
            is_new = true;
            waits.insert(call.id.clone(), confirm);
            if before.is_some() {
                self.turn.pending.retain(|pending| pending.call != call.id);
            }
            let known = self.turn.calls.get(&call.id).map(|call| call.name.clone());
            self.turn.pending.push(PendingCall {
                call: call.id.clone(),
                name: known.unwrap_or_else(|| call.name.clone()),
                confirm,
                input: Json::parse(&call.input).unwrap_or_else(|_| Json::from(Map::new())),
                rules: call.suggested_rules.clone(),
                reply: event.reply_id.to_string(),
                is_subagent: event.is_from_sub_agent(),
                expires_at: event.metadata.get("expires_at").ok().flatten(),
            });
        }
        if is_new {
            self.open_run(event, out);
            self.finish_run_waiting(out);
        }
    }

    /// Applies the user's decisions.
    pub(super) fn apply_confirmations(
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
            let was_pending = asks.remove(id);
            let unknown =
                !self.turn.calls.contains_key(id) && !self.turn.finished_calls.contains(id);
            if !was_pending && !unknown {
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
    pub(super) fn write_edited_call(
        &mut self,
        call: &ToolCall,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
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
    pub(super) fn apply_execution_results(
        &mut self,
        results: &[ToolResult],
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let sub = event.is_from_sub_agent();
        let mut new_results = Vec::new();
        for result in results {
            self.turn.pending.retain(|pending| pending.call != result.id);
            let is_streaming = self.turn.results.contains_key(&result.id);
            if self.turn.finished_calls.contains(&result.id)
                || (is_streaming && !has_own_id(result))
            {
                continue;
            }
            if !has_own_id(result) {
                new_results.push(result);
                continue;
            }
            // The client that executed the call has the message already and must not get it twice.
            // Only `RUN_STARTED` merges messages by id.
            let id = result_id(result);
            if self.run == RunState::Open {
                new_results.push(result);
                continue;
            }
            let subagent = sub.then_some(&*event.reply_id);
            let header = MessageHeader { id: &id, reply: &event.reply_id, name: "", subagent };
            let block = ContentBlock::from(result.clone());
            self.queued_messages.push(streamed_block(&block, header));
            self.turn.client_messages.append_result(&result.id, &id, &event.reply_id, sub);
            self.turn.finish_call(&result.id);
            self.turn.finished_calls.insert(result.id.clone());
        }
        self.open_run(event, out);
        for result in new_results {
            self.whole_result(result, event, out);
        }
    }
}
