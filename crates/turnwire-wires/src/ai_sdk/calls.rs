//! Encodes tool calls: input, approval, output.
//!
//! The client validates every tool part (`validateUIMessages`): an output needs a granted approval
//! or none, a denial needs a refused one. So an answer that has no event is added before the output
//! that follows from it.

use super::chunk::{Chunk, own_metadata};
use super::tool::{Output, input_json, tool_output};
use crate::stream::Frames;
use std::collections::HashMap;
use turnwire_core::event::{ConfirmResult, ToolResultTextDelta};
use turnwire_core::{Event, EventKind, Fields, Json, Msg, ToolResult, ToolResultState};

/// Partial outputs are sent at the first delta, then from this size on at each doubling, so the
/// total stays proportional to the output.
const FIRST_PREVIEW_BYTES: usize = 64;
/// The size of a part of an output, beyond its bytes.
const PART_COST: usize = 200;
/// The id of the reply in which the result of one call is folded.
const RESULT_REPLY_ID: &str = "result";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    None,
    Requested,
    Answered(bool),
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct CallState {
    id: String,
    name: String,
    /// The sub-agent that made the call.
    title: Option<String>,
    input: String,
    /// Provider fields of the call.
    extra: Fields,
    /// Whether the input is complete.
    is_input_complete: bool,
    /// Whether the part shows an error or a preview, which other states cannot keep.
    shows_output: bool,
    approval: Approval,
    /// Whether the client executes it.
    is_external: bool,
    /// The result so far.
    result: Option<Box<Msg>>,
    size: usize,
    next_preview: usize,
    is_done: bool,
    /// The chunks since the input was complete, while the step can still be rewritten.
    recorded: Vec<String>,
    ends_in_preview: bool,
}

/// The calls of a reply.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<CallState>,
    by_id: HashMap<String, usize>,
    /// The first call of the current step. The client finds a call's input only there.
    step: usize,
    /// Whether the current step can still be rewritten.
    is_recording: bool,
}

impl Calls {
    pub(super) fn begin_step(&mut self) {
        self.step = self.list.len();
        self.is_recording = true;
    }

    /// The current step can no longer be rewritten.
    pub(super) fn settle_step(&mut self) {
        self.is_recording = false;
        for call in self.list.iter_mut().skip(self.step) {
            call.recorded = Vec::new();
            call.drop_input();
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Removes a call of the current step.
    pub(super) fn discard(&mut self, id: &str) {
        let at = self.by_id.remove(id);
        if let Some(call) = at.and_then(|at| self.list.get_mut(at)) {
            (call.is_input_complete, call.is_done) = (true, true);
        }
    }

    pub(super) fn id(&self, at: usize) -> Option<&str> {
        self.list.get(at).map(|call| call.id.as_str())
    }

    /// Whether a call waits for the client.
    pub(super) fn is_waiting(&self) -> bool {
        self.by_id
            .values()
            .filter_map(|&at| self.list.get(at))
            .any(|call| !call.is_done && (call.approval == Approval::Requested || call.is_external))
    }

    /// Whether a call has no output.
    pub(super) fn is_any_open(&self) -> bool {
        self.list.iter().any(|call| !call.is_done)
    }

    fn add(&mut self, id: &str, name: &str) -> usize {
        let at = self.list.len();
        self.by_id.insert(id.to_owned(), at);
        self.list.push(CallState {
            id: id.to_owned(),
            name: name.to_owned(),
            title: None,
            input: String::new(),
            extra: Fields::default(),
            is_input_complete: false,
            shows_output: false,
            approval: Approval::None,
            is_external: false,
            result: None,
            size: 0,
            next_preview: 1,
            is_done: false,
            recorded: Vec::new(),
            ends_in_preview: false,
        });
        at
    }

    /// The call, if it has no output yet, and whether its step is current and can be rewritten.
    fn open_call(&mut self, id: &str) -> Option<(&mut CallState, StepPosition)> {
        let at = *self.by_id.get(id)?;
        let position = self.position(at);
        self.list.get_mut(at).filter(|call| !call.is_done).map(|call| (call, position))
    }

    fn position(&self, at: usize) -> StepPosition {
        let in_step = at >= self.step;
        StepPosition { in_step, is_recording: in_step && self.is_recording }
    }

    /// Starts a call. Returns its index, unless it already exists.
    pub(super) fn start_call(&mut self, id: &str, name: &str, out: &mut Frames) -> Option<usize> {
        if self.has(id) {
            return None;
        }
        let at = self.add(id, name);
        if let Some(call) = self.list.get(at) {
            call.write_start(out);
        }
        Some(at)
    }

    /// Adds a complete call. Returns its index, unless it already exists.
    pub(super) fn add_whole_call(
        &mut self,
        id: &str,
        name: &str,
        input: &str,
        title: Option<&str>,
        out: &mut Frames,
    ) -> Option<usize> {
        if self.has(id) {
            return None;
        }
        let at = self.add(id, name);
        let position = self.position(at);
        let call = self.list.get_mut(at)?;
        input.clone_into(&mut call.input);
        call.title = title.map(str::to_owned);
        call.close_input(position, out);
        Some(at)
    }

    pub(super) fn input_delta(&mut self, id: &str, delta: &str, out: &mut Frames) {
        let Some((call, position)) = self.open_call(id) else { return };
        if call.is_input_complete || !position.in_step || delta.is_empty() {
            return;
        }
        call.input.push_str(delta);
        out.push("", &Chunk::ToolInputDelta { tool_call_id: id, input_text_delta: delta });
    }

    pub(super) fn end_input(&mut self, id: &str, extra: &Fields, out: &mut Frames) {
        let Some((call, position)) = self.open_call(id) else { return };
        if !call.is_input_complete {
            call.extra = extra.clone();
            call.close_input(position, out);
        }
    }

    /// Completes the open inputs, because their step or the response ends.
    pub(super) fn close_inputs(&mut self, out: &mut Frames) {
        for at in self.step..self.list.len() {
            let position = self.position(at);
            if let Some(call) = self.list.get_mut(at).filter(|call| !call.is_input_complete) {
                call.close_input(position, out);
            }
        }
    }

    /// Requests approvals. Other calls of the step without an output are shown as approved: the
    /// client sends its answers automatically only when no call of the step lacks one, and these
    /// calls may wait for that.
    pub(super) fn request_approvals<'i>(
        &mut self,
        ids: impl Iterator<Item = &'i str>,
        out: &mut Frames,
    ) {
        let mut is_asked = false;
        for id in ids {
            let Some((call, position)) = self.open_call(id) else { continue };
            call.close_input(position, out);
            call.write_approval_request(false, position, out);
            is_asked = true;
        }
        if !is_asked {
            return;
        }
        for at in self.step..self.list.len() {
            let position = self.position(at);
            let Some(call) = self.list.get_mut(at) else { continue };
            let is_beside = call.is_input_complete && !call.is_done && !call.is_external;
            if is_beside && call.approval == Approval::None {
                call.write_approval_request(true, position, out);
                call.write_approval_response(true, None, position, out);
            }
        }
    }

    /// Applies the user's decision.
    pub(super) fn apply_approval(&mut self, answer: &ConfirmResult, out: &mut Frames) {
        let Some((call, position)) = self.open_call(&answer.tool_call.id) else { return };
        if call.approval != Approval::Requested {
            return;
        }
        let input = &answer.tool_call.input;
        if answer.confirmed && !input.is_empty() && *input != call.input {
            call.input.clone_from(input);
            if position.in_step {
                call.write_input(position, out);
            }
        }
        let reason: Option<String> = answer.rest.get("reason").ok().flatten();
        call.write_approval_response(answer.confirmed, reason.as_deref(), position, out);
    }

    /// Asks the client to execute a call.
    pub(super) fn request_execution(&mut self, id: &str, out: &mut Frames) {
        let Some((call, position)) = self.open_call(id) else { return };
        call.close_input(position, out);
        call.is_external = true;
        match call.approval {
            Approval::None if position.in_step => call.write_input(position, out),
            // An approved call cannot go back to a state without approval.
            Approval::Answered(true) => call.write_approval_response(true, None, position, out),
            Approval::None | Approval::Requested | Approval::Answered(false) => {}
        }
    }

    /// Starts a result. A result without a call gets a call without input. Returns the index of
    /// that call.
    pub(super) fn result_start(
        &mut self,
        id: &str,
        name: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) -> Option<usize> {
        let added = self.add_whole_call(id, name, "", None, out);
        let (call, position) = self.open_call(id)?;
        call.close_input(position, out);
        if call.result.is_none() {
            let mut result = Box::new(Msg::reply(RESULT_REPLY_ID, ""));
            apply_event(&mut result, event);
            call.result = Some(result);
        }
        added
    }

    /// Handles a delta of a result.
    pub(super) fn result_delta(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        let Some((call, position)) = self.open_call(id) else { return };
        let Some(result) = &mut call.result else { return };
        apply_event(result, event);
        if let EventKind::ToolResultTextDelta(delta) = &event.kind {
            call.size += delta.delta.len();
        } else if let EventKind::ToolResultDataDelta(delta) = &event.kind {
            use turnwire_core::event::Chunk::{Data, Url};
            let (Data(text) | Url(text)) = &delta.chunk;
            call.size += text.len() + PART_COST;
        }
        let may_show = matches!(call.approval, Approval::None | Approval::Answered(true));
        if may_show && call.size >= call.next_preview {
            call.next_preview = (2 * call.size).max(FIRST_PREVIEW_BYTES);
            call.write_preview(position, out);
        }
    }

    /// Completes a result.
    pub(super) fn result_end(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        let Some((call, _)) = self.open_call(id) else { return };
        let Some(mut msg) = call.result.take() else { return };
        apply_event(&mut msg, event);
        if let Some(result) = msg.first::<ToolResult>() {
            self.finish_call(id, result, out);
        }
    }

    /// Applies the result of a call that was executed elsewhere. A running one is completed by its
    /// deltas.
    pub(super) fn execution_result(&mut self, result: &ToolResult, out: &mut Frames) {
        let Some((call, _)) = self.open_call(&result.id) else { return };
        if call.result.is_none() {
            self.finish_call(&result.id, result, out);
        }
    }

    pub(super) fn finish_call(&mut self, id: &str, result: &ToolResult, out: &mut Frames) {
        let Some((call, position)) = self.open_call(id) else { return };
        call.close_input(position, out);
        call.write_output(result, position, out);
    }

    /// The reply ends. If it was interrupted, every call without output gets an error; otherwise
    /// only calls for which the client would wait.
    pub(super) fn close_calls(&mut self, is_cut: bool, out: &mut Frames) {
        self.close_inputs(out);
        for at in 0..self.list.len() {
            let position = self.position(at);
            let Some(call) = self.list.get_mut(at).filter(|call| !call.is_done) else { continue };
            let msg = call.result.take();
            let mut result = match msg.as_deref().and_then(Msg::first::<ToolResult>) {
                Some(result) => result.clone(),
                None if is_cut => ToolResult::error(call.id.as_str(), "It was stopped."),
                None if matches!(call.approval, Approval::Answered(_)) => {
                    ToolResult::error(call.id.as_str(), "There is no result.")
                }
                None => continue,
            };
            if is_cut {
                result.state = ToolResultState::Interrupted;
            }
            call.write_output(&result, position, out);
        }
    }

    /// Writes a call of the current step again.
    pub(super) fn rewrite_call(&self, at: usize, out: &mut Frames) {
        let Some(call) = self.list.get(at) else { return };
        if !call.is_input_complete {
            call.write_start(out);
            if !call.input.is_empty() {
                let (id, input) = (call.id.as_str(), call.input.as_str());
                out.push("", &Chunk::ToolInputDelta { tool_call_id: id, input_text_delta: input });
            }
        }
        for chunk in &call.recorded {
            out.push_text("", chunk);
        }
    }
}

/// Applies an event to the result of one call, whatever its reply.
fn apply_event(result: &mut Msg, event: &Event<'_>) {
    // Borrows where possible: a delta is copied once, into the result.
    let kind = if let EventKind::ToolResultTextDelta(delta) = &event.kind {
        let tool_call_id = (&*delta.tool_call_id).into();
        ToolResultTextDelta { tool_call_id, delta: (&*delta.delta).into() }.into()
    } else {
        event.kind.clone()
    };
    let mut own = Event::new(RESULT_REPLY_ID, kind);
    own.created_at = (&*event.created_at).into();
    own.metadata = event.metadata.clone();
    // Invalid events are ignored, as in the message.
    let _ = result.append_event_tolerant(&own);
}

#[derive(Debug, Clone, Copy)]
struct StepPosition {
    in_step: bool,
    is_recording: bool,
}

impl CallState {
    fn push_chunk(&mut self, chunk: String, position: StepPosition, out: &mut Frames) {
        out.push_text("", &chunk);
        if std::mem::take(&mut self.ends_in_preview) {
            self.recorded.pop();
        }
        if position.is_recording {
            self.recorded.push(chunk);
        }
    }

    fn write_start(&self, out: &mut Frames) {
        out.push(
            "",
            &Chunk::ToolInputStart {
                tool_call_id: &self.id,
                tool_name: &self.name,
                provider_executed: !self.is_external,
                dynamic: true,
                title: self.title.as_deref(),
            },
        );
    }

    /// The input is complete.
    fn close_input(&mut self, position: StepPosition, out: &mut Frames) {
        if std::mem::replace(&mut self.is_input_complete, true) {
            return;
        }
        if input_json(&self.input).is_some() {
            return self.write_input(position, out);
        }
        self.shows_output = true;
        let chunk = Chunk::ToolInputError {
            tool_call_id: &self.id,
            tool_name: &self.name,
            input: &Json::from(self.input.as_str()),
            provider_executed: !self.is_external,
            dynamic: true,
            error_text: "The input is not JSON.",
            provider_metadata: own_metadata(&self.extra),
        };
        self.push_chunk(chunk.to_json(), position, out);
    }

    fn write_input(&mut self, position: StepPosition, out: &mut Frames) {
        self.shows_output = false;
        let json = input_json(&self.input).unwrap_or_else(|| Json::from(self.input.as_str()));
        let chunk = Chunk::ToolInputAvailable {
            tool_call_id: &self.id,
            tool_name: &self.name,
            input: &json,
            provider_executed: !self.is_external,
            dynamic: true,
            title: self.title.as_deref(),
            provider_metadata: own_metadata(&self.extra),
        };
        self.push_chunk(chunk.to_json(), position, out);
    }

    fn write_approval_request(
        &mut self,
        is_automatic: bool,
        position: StepPosition,
        out: &mut Frames,
    ) {
        if self.shows_output && position.in_step {
            self.write_input(position, out);
        }
        self.approval = Approval::Requested;
        // The call's id is unique and stable.
        let chunk = Chunk::ToolApprovalRequest {
            approval_id: &self.id,
            tool_call_id: &self.id,
            is_automatic,
        };
        self.push_chunk(chunk.to_json(), position, out);
    }

    fn write_approval_response(
        &mut self,
        approved: bool,
        reason: Option<&str>,
        position: StepPosition,
        out: &mut Frames,
    ) {
        self.approval = Approval::Answered(approved);
        let chunk = Chunk::ToolApprovalResponse {
            approval_id: &self.id,
            approved,
            reason,
            provider_executed: self.is_external.then_some(false),
        };
        self.push_chunk(chunk.to_json(), position, out);
    }

    fn write_preview(&mut self, position: StepPosition, out: &mut Frames) {
        let result = self.result.as_deref().and_then(Msg::first::<ToolResult>);
        let Some(result) = result else { return };
        let chunk = Chunk::ToolOutputAvailable {
            tool_call_id: &self.id,
            output: tool_output(result),
            dynamic: true,
            preliminary: true,
            provider_metadata: None,
        }
        .to_json();
        self.shows_output = true;
        self.push_chunk(chunk, position, out);
        self.ends_in_preview = position.is_recording;
    }

    fn write_output(&mut self, result: &ToolResult, position: StepPosition, out: &mut Frames) {
        let failed = matches!(result.state, ToolResultState::Error | ToolResultState::Interrupted);
        let is_denied = result.state == ToolResultState::Denied;
        let was_not_allowed =
            matches!(self.approval, Approval::Requested | Approval::Answered(false)) && failed;
        // A preview prevents a denial, and can be removed only within its step.
        let can_deny = !self.shows_output || position.in_step;
        if can_deny && (is_denied || was_not_allowed) {
            self.write_denial(&result.output.text("\n"), position, out);
        } else {
            if matches!(self.approval, Approval::Requested | Approval::Answered(false)) {
                self.write_approval_response(true, None, position, out);
            }
            let chunk = self.output_chunk(result, failed || is_denied);
            self.push_chunk(chunk, position, out);
        }
        self.is_done = true;
        self.result = None;
        if !position.is_recording {
            self.drop_input();
        }
    }

    fn write_denial(&mut self, reason: &str, position: StepPosition, out: &mut Frames) {
        if self.shows_output && position.in_step {
            self.write_input(position, out);
        }
        if self.approval != Approval::Answered(false) {
            if self.approval == Approval::None {
                self.write_approval_request(true, position, out);
            }
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            self.write_approval_response(false, reason, position, out);
        }
        self.push_chunk(
            Chunk::ToolOutputDenied { tool_call_id: &self.id }.to_json(),
            position,
            out,
        );
    }

    fn output_chunk(&self, result: &ToolResult, failed: bool) -> String {
        let mut rest = Fields::default();
        let plain = if failed { ToolResultState::Error } else { ToolResultState::Success };
        if result.state != plain {
            rest.insert("state", result.state.as_str());
        }
        rest.insert_fields("metadata", &result.metadata);
        if failed {
            let text = result.output.text("\n");
            let text = if text.is_empty() { result.state.as_str() } else { &text };
            return Chunk::ToolOutputError {
                tool_call_id: &self.id,
                error_text: text,
                dynamic: true,
                provider_metadata: own_metadata(&rest),
            }
            .to_json();
        }
        let output = tool_output(result);
        if matches!(output, Output::Parts(_)) {
            rest.insert("parts", true);
        }
        Chunk::ToolOutputAvailable {
            tool_call_id: &self.id,
            output,
            dynamic: true,
            preliminary: false,
            provider_metadata: own_metadata(&rest),
        }
        .to_json()
    }

    /// A call with an output no longer needs its input.
    fn drop_input(&mut self) {
        if self.is_done {
            self.input = String::new();
            self.extra = Fields::default();
        }
    }
}
