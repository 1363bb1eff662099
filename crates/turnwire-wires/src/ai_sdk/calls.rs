//! Tool calls on their way out: input, approval, output.
//!
//! The client holds every part to the rules of its state (`validateUIMessages`): an output stands
//! only beside an approval that was granted, or beside none; a denial only beside one that was not.
//! So an answer that never came as an event is filled in before the output that follows from it.

use super::chunk::{Chunk, ours};
use super::part::json_of;
use super::tool::{Output, input_json, output};
use crate::stream::Frames;
use std::collections::HashMap;
use turnwire_core::event::ConfirmResult;
use turnwire_core::{Event, EventKind, Fields, Json, Msg, ToolResult, ToolResultState};

/// Previews of an output come at the first delta, from here on, and then at each doubling: what is
/// sent stays within a factor of what there is.
const FIRST_PREVIEWS: usize = 64;
/// What a part of an output costs beyond its bytes.
const PART_COST: usize = 200;
/// The reply inside which the result of one call is put together.
const RESULT: &str = "result";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    None,
    Asked,
    Answered(bool),
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Call {
    id: String,
    name: String,
    /// Who calls, where that is a sub-agent.
    title: Option<String>,
    input: String,
    /// What a provider added to the call.
    extra: Fields,
    /// Whether the input is complete.
    is_closed: bool,
    /// Whether the part shows an error, or a preview, that another state would not go with.
    is_marked: bool,
    approval: Approval,
    /// Whether the client executes it.
    is_external: bool,
    /// The result as far as it has come.
    result: Option<Box<Msg>>,
    size: usize,
    next_preview: usize,
    is_done: bool,
    /// The chunks since the input was complete, as long as the step may be written again.
    sent: Vec<String>,
    ends_in_preview: bool,
}

/// The calls of a reply.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Call>,
    by_id: HashMap<String, usize>,
    /// The first call of the current step. The client finds the input of a call only there.
    step: usize,
    /// Whether the current step may still be written again.
    is_recording: bool,
}

impl Calls {
    pub(super) fn begin_step(&mut self) {
        self.step = self.list.len();
        self.is_recording = true;
    }

    /// The current step stays as it is.
    pub(super) fn settle(&mut self) {
        self.is_recording = false;
        for call in self.list.iter_mut().skip(self.step) {
            call.sent = Vec::new();
            call.forget();
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Takes a call out, where the current step has it.
    pub(super) fn discard(&mut self, id: &str) {
        let at = self.by_id.remove(id);
        if let Some(call) = at.and_then(|at| self.list.get_mut(at)) {
            (call.is_closed, call.is_done) = (true, true);
        }
    }

    pub(super) fn id(&self, at: usize) -> Option<&str> {
        self.list.get(at).map(|call| call.id.as_str())
    }

    /// Whether something waits for the client.
    pub(super) fn is_waiting(&self) -> bool {
        self.by_id
            .values()
            .filter_map(|&at| self.list.get(at))
            .any(|call| !call.is_done && (call.approval == Approval::Asked || call.is_external))
    }

    /// Whether there are calls without an output.
    pub(super) fn is_any_open(&self) -> bool {
        self.list.iter().any(|call| !call.is_done)
    }

    fn add(&mut self, id: &str, name: &str) -> usize {
        let at = self.list.len();
        self.by_id.insert(id.to_owned(), at);
        self.list.push(Call {
            id: id.to_owned(),
            name: name.to_owned(),
            title: None,
            input: String::new(),
            extra: Fields::default(),
            is_closed: false,
            is_marked: false,
            approval: Approval::None,
            is_external: false,
            result: None,
            size: 0,
            next_preview: 1,
            is_done: false,
            sent: Vec::new(),
            ends_in_preview: false,
        });
        at
    }

    /// The call, if it has no output yet; whether it is in the current step, and whether that may be
    /// written again.
    fn open(&mut self, id: &str) -> Option<(&mut Call, Place)> {
        let at = *self.by_id.get(id)?;
        let place = self.place(at);
        self.list.get_mut(at).filter(|call| !call.is_done).map(|call| (call, place))
    }

    fn place(&self, at: usize) -> Place {
        let in_step = at >= self.step;
        Place { in_step, is_recording: in_step && self.is_recording }
    }

    /// A call begins. Returns its number, unless it is there already.
    pub(super) fn start(&mut self, id: &str, name: &str, out: &mut Frames) -> Option<usize> {
        if self.has(id) {
            return None;
        }
        let at = self.add(id, name);
        if let Some(call) = self.list.get(at) {
            call.write_start(out);
        }
        Some(at)
    }

    /// A call that is whole from the beginning. Returns its number, unless it is there already.
    pub(super) fn whole(
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
        let place = self.place(at);
        let call = self.list.get_mut(at)?;
        input.clone_into(&mut call.input);
        call.title = title.map(str::to_owned);
        call.close_input(place, out);
        Some(at)
    }

    pub(super) fn delta(&mut self, id: &str, delta: &str, out: &mut Frames) {
        let Some((call, place)) = self.open(id) else { return };
        if call.is_closed || !place.in_step || delta.is_empty() {
            return;
        }
        call.input.push_str(delta);
        out.push("", &Chunk::ToolInputDelta { tool_call_id: id, input_text_delta: delta });
    }

    pub(super) fn end(&mut self, id: &str, extra: &Fields, out: &mut Frames) {
        let Some((call, place)) = self.open(id) else { return };
        if !call.is_closed {
            call.extra = extra.clone();
            call.close_input(place, out);
        }
    }

    /// Completes the inputs that are open: their step, or the response, ends.
    pub(super) fn close_inputs(&mut self, out: &mut Frames) {
        for at in self.step..self.list.len() {
            let place = self.place(at);
            if let Some(call) = self.list.get_mut(at).filter(|call| !call.is_closed) {
                call.close_input(place, out);
            }
        }
    }

    /// Calls wait for a person. Those beside them that have no output yet are shown as approved: the
    /// client sends an answer by itself only when no call of the step is left without one, and these
    /// may have to wait for it.
    pub(super) fn ask<'i>(&mut self, ids: impl Iterator<Item = &'i str>, out: &mut Frames) {
        let mut is_asked = false;
        for id in ids {
            let Some((call, place)) = self.open(id) else { continue };
            call.close_input(place, out);
            call.request(false, place, out);
            is_asked = true;
        }
        if !is_asked {
            return;
        }
        for at in self.step..self.list.len() {
            let place = self.place(at);
            let Some(call) = self.list.get_mut(at) else { continue };
            let is_beside = call.is_closed && !call.is_done && !call.is_external;
            if is_beside && call.approval == Approval::None {
                call.request(true, place, out);
                call.respond(true, None, place, out);
            }
        }
    }

    /// A person has answered.
    pub(super) fn answer(&mut self, answer: &ConfirmResult, out: &mut Frames) {
        let Some((call, place)) = self.open(&answer.tool_call.id) else { return };
        if call.approval != Approval::Asked {
            return;
        }
        let input = &answer.tool_call.input;
        if answer.confirmed && !input.is_empty() && *input != call.input {
            call.input.clone_from(input);
            if place.in_step {
                call.write_input(place, out);
            }
        }
        let reason: Option<String> = answer.rest.get("reason").ok().flatten();
        call.respond(answer.confirmed, reason.as_deref(), place, out);
    }

    /// The client is to execute a call.
    pub(super) fn hand_out(&mut self, id: &str, out: &mut Frames) {
        let Some((call, place)) = self.open(id) else { return };
        call.close_input(place, out);
        call.is_external = true;
        match call.approval {
            Approval::None if place.in_step => call.write_input(place, out),
            // An approved call cannot go back to a state without approval.
            Approval::Answered(true) => call.respond(true, None, place, out),
            Approval::None | Approval::Asked | Approval::Answered(false) => {}
        }
    }

    /// A result begins. One for a call that nobody announced gets a call without input. Returns the
    /// number of such a call.
    pub(super) fn result_start(
        &mut self,
        id: &str,
        name: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) -> Option<usize> {
        let added = self.whole(id, name, "", None, out);
        let (call, place) = self.open(id)?;
        call.close_input(place, out);
        if call.result.is_none() {
            let mut result = Box::new(Msg::reply(RESULT, ""));
            apply(&mut result, event);
            call.result = Some(result);
        }
        added
    }

    /// A result goes on.
    pub(super) fn result_delta(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        let Some((call, place)) = self.open(id) else { return };
        let Some(result) = &mut call.result else { return };
        apply(result, event);
        call.size += match &event.kind {
            EventKind::ToolResultTextDelta(delta) => delta.delta.len(),
            EventKind::ToolResultDataDelta(delta) => {
                use turnwire_core::event::Chunk::{Data, Url};
                let (Data(text) | Url(text)) = &delta.chunk;
                text.len() + PART_COST
            }
            _ => 0,
        };
        let may_show = matches!(call.approval, Approval::None | Approval::Answered(true));
        if may_show && call.size >= call.next_preview {
            call.next_preview = (2 * call.size).max(FIRST_PREVIEWS);
            call.preview(place, out);
        }
    }

    /// A result is complete.
    pub(super) fn result_end(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        let Some((call, _)) = self.open(id) else { return };
        let Some(mut msg) = call.result.take() else { return };
        apply(&mut msg, event);
        if let Some(result) = msg.first::<ToolResult>() {
            self.finish(id, result, out);
        }
    }

    /// What came of a call that was executed elsewhere; a result that runs is left to its deltas.
    pub(super) fn external(&mut self, result: &ToolResult, out: &mut Frames) {
        let Some((call, _)) = self.open(&result.id) else { return };
        if call.result.is_none() {
            self.finish(&result.id, result, out);
        }
    }

    pub(super) fn finish(&mut self, id: &str, result: &ToolResult, out: &mut Frames) {
        let Some((call, place)) = self.open(id) else { return };
        call.close_input(place, out);
        call.write_output(result, place, out);
    }

    /// The reply ends. Where it was cut short, whatever has no output gets an error; otherwise only
    /// what would keep the client waiting.
    pub(super) fn close(&mut self, is_cut: bool, out: &mut Frames) {
        self.close_inputs(out);
        for at in 0..self.list.len() {
            let place = self.place(at);
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
            call.write_output(&result, place, out);
        }
    }

    /// Writes a call of the current step once more.
    pub(super) fn rewrite(&self, at: usize, out: &mut Frames) {
        let Some(call) = self.list.get(at) else { return };
        if !call.is_closed {
            call.write_start(out);
            if !call.input.is_empty() {
                let (id, input) = (call.id.as_str(), call.input.as_str());
                out.push("", &Chunk::ToolInputDelta { tool_call_id: id, input_text_delta: input });
            }
        }
        for chunk in &call.sent {
            out.push_text("", chunk);
        }
    }
}

/// Applies an event to the result of one call, whatever reply it is of.
fn apply(result: &mut Msg, event: &Event<'_>) {
    // Borrowed where that can be: a delta is copied only once, into the result.
    let kind = match &event.kind {
        EventKind::ToolResultTextDelta(delta) => turnwire_core::event::ToolResultTextDelta {
            tool_call_id: (&*delta.tool_call_id).into(),
            delta: (&*delta.delta).into(),
        }
        .into(),
        kind => kind.clone(),
    };
    let mut own = Event::new(RESULT, kind);
    own.created_at = (&*event.created_at).into();
    own.metadata = event.metadata.clone();
    // What does not fit is left out, as in the message.
    let _ = result.append_event_tolerant(&own);
}

#[derive(Debug, Clone, Copy)]
struct Place {
    in_step: bool,
    is_recording: bool,
}

impl Call {
    fn send(&mut self, chunk: String, place: Place, out: &mut Frames) {
        out.push_text("", &chunk);
        if std::mem::take(&mut self.ends_in_preview) {
            self.sent.pop();
        }
        if place.is_recording {
            self.sent.push(chunk);
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
    fn close_input(&mut self, place: Place, out: &mut Frames) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        if input_json(&self.input).is_some() {
            return self.write_input(place, out);
        }
        self.is_marked = true;
        let chunk = Chunk::ToolInputError {
            tool_call_id: &self.id,
            tool_name: &self.name,
            input: &Json::from(self.input.as_str()),
            provider_executed: !self.is_external,
            dynamic: true,
            error_text: "The input is not JSON.",
            provider_metadata: ours(&self.extra),
        };
        self.send(chunk.text(), place, out);
    }

    fn write_input(&mut self, place: Place, out: &mut Frames) {
        self.is_marked = false;
        let json = input_json(&self.input).unwrap_or_else(|| Json::from(self.input.as_str()));
        let chunk = Chunk::ToolInputAvailable {
            tool_call_id: &self.id,
            tool_name: &self.name,
            input: &json,
            provider_executed: !self.is_external,
            dynamic: true,
            title: self.title.as_deref(),
            provider_metadata: ours(&self.extra),
        };
        self.send(chunk.text(), place, out);
    }

    fn request(&mut self, is_automatic: bool, place: Place, out: &mut Frames) {
        if self.is_marked && place.in_step {
            self.write_input(place, out);
        }
        self.approval = Approval::Asked;
        // The id of the call is as good as any, and stable.
        let chunk = Chunk::ToolApprovalRequest {
            approval_id: &self.id,
            tool_call_id: &self.id,
            is_automatic,
        };
        self.send(chunk.text(), place, out);
    }

    fn respond(&mut self, approved: bool, reason: Option<&str>, place: Place, out: &mut Frames) {
        self.approval = Approval::Answered(approved);
        let chunk = Chunk::ToolApprovalResponse {
            approval_id: &self.id,
            approved,
            reason,
            provider_executed: self.is_external.then_some(false),
        };
        self.send(chunk.text(), place, out);
    }

    fn preview(&mut self, place: Place, out: &mut Frames) {
        let result = self.result.as_deref().and_then(Msg::first::<ToolResult>);
        let Some(result) = result else { return };
        let chunk = Chunk::ToolOutputAvailable {
            tool_call_id: &self.id,
            output: output(result),
            dynamic: true,
            preliminary: true,
            provider_metadata: None,
        }
        .text();
        self.is_marked = true;
        self.send(chunk, place, out);
        self.ends_in_preview = place.is_recording;
    }

    fn write_output(&mut self, result: &ToolResult, place: Place, out: &mut Frames) {
        let failed = matches!(result.state, ToolResultState::Error | ToolResultState::Interrupted);
        let is_denied = result.state == ToolResultState::Denied;
        let was_not_allowed =
            matches!(self.approval, Approval::Asked | Approval::Answered(false)) && failed;
        // A preview stands in the way of a denial, and goes only inside its step.
        let can_deny = !self.is_marked || place.in_step;
        if can_deny && (is_denied || was_not_allowed) {
            self.deny(&result.output.text("\n"), place, out);
        } else {
            if matches!(self.approval, Approval::Asked | Approval::Answered(false)) {
                self.respond(true, None, place, out);
            }
            let chunk = self.output_chunk(result, failed || is_denied);
            self.send(chunk, place, out);
        }
        self.is_done = true;
        self.result = None;
        if !place.is_recording {
            self.forget();
        }
    }

    fn deny(&mut self, reason: &str, place: Place, out: &mut Frames) {
        if self.is_marked && place.in_step {
            self.write_input(place, out);
        }
        if self.approval != Approval::Answered(false) {
            if self.approval == Approval::None {
                self.request(true, place, out);
            }
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            self.respond(false, reason, place, out);
        }
        self.send(Chunk::ToolOutputDenied { tool_call_id: &self.id }.text(), place, out);
    }

    fn output_chunk(&self, result: &ToolResult, failed: bool) -> String {
        let mut rest = Fields::default();
        let plain = if failed { ToolResultState::Error } else { ToolResultState::Success };
        if result.state != plain {
            rest.insert("state", result.state.as_str());
        }
        if !result.metadata.is_empty() {
            rest.insert("metadata", json_of(&result.metadata));
        }
        if failed {
            let text = result.output.text("\n");
            let text = if text.is_empty() { result.state.as_str() } else { &text };
            return Chunk::ToolOutputError {
                tool_call_id: &self.id,
                error_text: text,
                dynamic: true,
                provider_metadata: ours(&rest),
            }
            .text();
        }
        let output = output(result);
        if matches!(output, Output::Parts(_)) {
            rest.insert("parts", true);
        }
        Chunk::ToolOutputAvailable {
            tool_call_id: &self.id,
            output,
            dynamic: true,
            preliminary: false,
            provider_metadata: ours(&rest),
        }
        .text()
    }

    /// A call with an output needs its input no more.
    fn forget(&mut self) {
        if self.is_done {
            self.input = String::new();
            self.extra = Fields::default();
        }
    }
}
