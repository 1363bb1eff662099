//! Folds the events of tool calls, tool results, approvals and external execution.

use super::block_index::Family;
use super::blocks::{append_chunk, append_late, check_open, find, set_extra, unknown_block_error};
use super::{Fold, close_parts};
use crate::block::{
    BlockType, ContentBlock, DataBlock, Part, Payload, Source, TextBlock, ToolCall, ToolResult,
};
use crate::error::Result;
use crate::event::{
    Event, ExternalExecutionResult, RequireExternalExecution, RequireUserConfirm, ToolCallEnd,
    ToolCallStart, ToolResultDataDelta, ToolResultEnd, ToolResultStart, UserConfirmResult,
};
use crate::msg::check_role;
use crate::names::{ToolCallState, ToolResultState};

impl Fold<'_> {
    pub(super) fn tool_call_start(
        &mut self,
        start: &ToolCallStart<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        self.start_block(ContentBlock::ToolCall(ToolCall {
            id: start.tool_call_id.to_string(),
            name: start.tool_call_name.to_string(),
            created_at: event.created_at.to_string(),
            ..ToolCall::default()
        }))
    }

    #[inline]
    pub(super) fn tool_call_delta(&mut self, id: &str, delta: &str) -> Result<()> {
        let call = find!(self, ToolCall, id)?;
        self.tolerance.check(check_open(call.finished_at.as_ref(), Family::ToolCall, id))?;
        call.input.push_str(delta);
        Ok(())
    }

    pub(super) fn tool_call_end(&mut self, end: &ToolCallEnd<'_>, event: &Event<'_>) -> Result<()> {
        let call = find!(self, ToolCall, &end.tool_call_id)?;
        check_open(call.finished_at.as_ref(), Family::ToolCall, &end.tool_call_id)?;
        set_extra(&mut call.rest, &end.extra, &["name", "input", "state", "suggested_rules"]);
        call.finished_at = Some(event.created_at.to_string());
        Ok(())
    }

    pub(super) fn tool_result_start(
        &mut self,
        start: &ToolResultStart<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        self.start_block(ContentBlock::ToolResult(ToolResult {
            id: start.tool_call_id.to_string(),
            name: start.tool_call_name.to_string(),
            created_at: event.created_at.to_string(),
            ..ToolResult::default()
        }))
    }

    #[inline]
    pub(super) fn tool_result_text(
        &mut self,
        id: &str,
        delta: &str,
        event: &Event<'_>,
    ) -> Result<()> {
        let result = find!(self, ToolResult, id)?;
        self.tolerance.check(check_open(result.finished_at.as_ref(), Family::ToolResult, id))?;
        let parts = parts_mut(result);
        if let Some(Part::Text(block)) = parts.last_mut() {
            block.text.push_str(delta);
            return Ok(());
        }
        parts.push(Part::Text(TextBlock {
            text: delta.to_owned(),
            id: part_id(id, parts.len()),
            created_at: event.created_at.to_string(),
            ..TextBlock::default()
        }));
        self.note_pushed_part(id);
        Ok(())
    }

    pub(super) fn tool_result_data(
        &mut self,
        delta: &ToolResultDataDelta<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        let (id, block_id) = (&*delta.tool_call_id, &*delta.block_id);
        let result = find!(self, ToolResult, id)?;
        let is_open = check_open(result.finished_at.as_ref(), Family::ToolResult, id);
        let append = if is_open.is_err() { append_late } else { append_chunk };
        self.tolerance.check(is_open)?;
        if let Some(block) = self.data_part(id, block_id) {
            return append(&mut block.source, &delta.chunk, delta.media_type.as_ref());
        }
        let mut source = Source::base64("", delta.media_type.clone());
        append(&mut source, &delta.chunk, delta.media_type.as_ref())?;
        let result = find!(self, ToolResult, id)?;
        let parts = parts_mut(result);
        let block_id =
            if block_id.is_empty() { part_id(id, parts.len()) } else { block_id.to_owned() };
        parts.push(Part::Data(DataBlock {
            id: block_id,
            created_at: event.created_at.to_string(),
            ..DataBlock::from_source(source)
        }));
        self.note_pushed_part(id);
        Ok(())
    }

    /// The data part with this id, if the output contains it.
    fn data_part(&mut self, id: &str, block_id: &str) -> Option<&mut DataBlock> {
        if block_id.is_empty() {
            return None;
        }
        let at = self.index.find(&self.msg.content, Family::ToolResult, id)?;
        let part = self.index.find_part(&self.msg.content, at, block_id)?;
        let ContentBlock::ToolResult(result) = self.msg.content.get_mut(at)? else { return None };
        match parts_mut(result).get_mut(part)? {
            Part::Data(block) => Some(block),
            Part::Text(_) | Part::Other(_) => None,
        }
    }

    fn note_pushed_part(&mut self, id: &str) {
        if let Some(at) = self.index.find(&self.msg.content, Family::ToolResult, id) {
            self.index.note_pushed_part(&self.msg.content, at);
        }
    }

    pub(super) fn tool_result_end(
        &mut self,
        end: &ToolResultEnd<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        let id = &*end.tool_call_id;
        let result = find!(self, ToolResult, id)?;
        check_open(result.finished_at.as_ref(), Family::ToolResult, id)?;
        if let Some(at) = self.index.find(&self.msg.content, Family::ToolResult, id) {
            let open_data = self.check_open_data(at..at + 1);
            self.tolerance.check(open_data)?;
        }
        let result = find!(self, ToolResult, id)?;
        close_parts(&mut result.output);
        result.state = end.state.clone();
        result.metadata = event.metadata.clone();
        result.finished_at = Some(event.created_at.to_string());
        if let Ok(call) = find!(self, ToolCall, id) {
            call.state = ToolCallState::Finished;
        }
        Ok(())
    }

    /// Calls wait for an approval. A finished call stays finished: the request came late.
    pub(super) fn require_user_confirm(&mut self, ask: &RequireUserConfirm) -> Result<()> {
        self.change_known_calls(
            &ask.tool_calls,
            |call| &call.id,
            |call, requested| {
                if call.state != ToolCallState::Finished {
                    call.state = ToolCallState::Asking;
                    call.suggested_rules.clone_from(&requested.suggested_rules);
                }
            },
        )
    }

    pub(super) fn require_external_execution(
        &mut self,
        ask: &RequireExternalExecution,
    ) -> Result<()> {
        self.change_known_calls(
            &ask.tool_calls,
            |call| &call.id,
            |call, _| {
                if call.state != ToolCallState::Finished {
                    call.state = ToolCallState::Submitted;
                }
            },
        )
    }

    /// An answer counts only while the call is asking, and an edited input only in an approval.
    pub(super) fn user_confirm_result(&mut self, answer: &UserConfirmResult) -> Result<()> {
        self.change_known_calls(
            &answer.confirm_results,
            |result| &result.tool_call.id,
            |call, result| {
                if call.state != ToolCallState::Asking {
                    return;
                }
                if !result.confirmed {
                    call.state = ToolCallState::Finished;
                    return;
                }
                call.state = ToolCallState::Allowed;
                if !result.tool_call.input.is_empty() {
                    call.input.clone_from(&result.tool_call.input);
                }
            },
        )
    }

    /// Changes every listed call that exists. If none exists, the event is refused.
    fn change_known_calls<T>(
        &mut self,
        listed: &[T],
        id_of: impl Fn(&T) -> &str,
        change: impl Fn(&mut ToolCall, &T),
    ) -> Result<()> {
        let mut known = listed.is_empty();
        for item in listed {
            if let Ok(call) = find!(self, ToolCall, id_of(item)) {
                known = true;
                change(call, item);
            }
        }
        match listed.first() {
            Some(first) if !known => {
                Err(unknown_block_error(Family::ToolCall, id_of(first), &self.msg.id))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn external_execution_result(
        &mut self,
        answer: &ExternalExecutionResult,
        event: &Event<'_>,
    ) -> Result<()> {
        // Before anything changes: all results have the same type.
        check_role(self.msg.role, BlockType::ToolResult, "")?;
        for result in &answer.execution_results {
            match find!(self, ToolResult, &result.id) {
                // The agent's deltas fill its output.
                Ok(known) if known.state == ToolResultState::Running => {}
                // Too late: the call was closed without it.
                Ok(_) => continue,
                Err(_) => {
                    let mut result = result.clone();
                    let at = || event.created_at.to_string();
                    result.finished_at.get_or_insert_with(at);
                    if result.created_at.is_empty() {
                        result.created_at = at();
                    }
                    self.start_block(ContentBlock::ToolResult(result))?;
                }
            }
            if let Ok(call) = find!(self, ToolCall, &result.id) {
                call.state = ToolCallState::Finished;
            }
        }
        Ok(())
    }
}

/// The output as a list; a string becomes its first text block.
fn parts_mut(result: &mut ToolResult) -> &mut Vec<Part> {
    if let Payload::Text(text) = &mut result.output {
        let block = TextBlock {
            text: std::mem::take(text),
            id: part_id(&result.id, 0),
            created_at: result.created_at.clone(),
            ..TextBlock::default()
        };
        result.output = Payload::Parts(vec![Part::Text(block)]);
    }
    match &mut result.output {
        Payload::Parts(parts) => parts,
        Payload::Text(_) => unreachable!("the text was just made a part"),
    }
}

/// The id of a part without one: the same on every machine.
fn part_id(tool_call_id: &str, position: usize) -> String {
    format!("{tool_call_id}-{position}")
}
