//! How runs and their sub-agents start, end and resume.

use super::ClientVersion;
use super::blocks::write_end;
use super::encode::Encoder;
use super::frame::{
    Frame, Input, Interrupt, Outcome, ResponseSchema, SnapshotMetadata, SubagentOutcome,
    UnusedInput, VERSION,
};
use super::turn_state::{PendingCall, RunState, TurnState};
use super::write_messages::own_metadata;
use crate::json::{fields, to_json};
use crate::stream::Frames;
use turnwire_core::event::ReplyEnd;
use turnwire_core::{Event, EventKind, Fields, FinishedReason, Json, Msg, ReplyError, Role};

impl Encoder {
    /// An event that is not part of a reply: written as `CUSTOM`.
    pub(super) fn outside_reply_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        let whole;
        let lower;
        let (name, value) = if let EventKind::Custom(custom) = &event.kind {
            (custom.name.as_str(), &custom.value.0)
        } else {
            lower = event.kind.type_name().to_ascii_lowercase();
            whole = to_json(event);
            (lower.as_str(), &whole)
        };
        let subagent_run_id = event.is_from_sub_agent().then_some(&*event.reply_id);
        let subagent_run_id = subagent_run_id.filter(|id| !id.is_empty());
        let out = if self.run == RunState::Open { out } else { &mut self.deferred_frames };
        out.push("", &Frame::Custom { name, value, subagent_run_id });
    }

    fn thread_id(&self) -> &str {
        let started = Some(self.turn.thread.as_str()).filter(|thread| !thread.is_empty());
        self.session_id.as_deref().or(started).unwrap_or(&self.turn.reply)
    }

    /// Opens a run if none is open, and the sub-agent of the event.
    pub(super) fn open_run(&mut self, event: &Event<'_>, out: &mut Frames) {
        self.start_run(&event.reply_id, out);
        if event.is_from_sub_agent() {
            self.turn.reply_state(event);
            self.open_subagent(&event.reply_id, out);
        }
    }

    /// Starts a run unless one is open.
    pub(super) fn start_run(&mut self, reply_id: &str, out: &mut Frames) {
        if self.run == RunState::Open {
            return;
        }
        if self.turn.runs == 0 {
            let given = self.run_id.clone().filter(|_| !self.is_run_named);
            self.turn.run_id_base = given.unwrap_or_else(|| reply_id.to_owned());
            self.is_run_named = true;
        }
        self.turn.runs += 1;
        self.turn.run_id = match self.turn.runs {
            1 => self.turn.run_id_base.clone(),
            run => format!("{}-{run}", self.turn.run_id_base),
        };
        self.turn.usage.clear();
        self.turn.closed_subagents.clear();
        self.run = RunState::Open;
        let before = std::mem::take(&mut self.queued_messages);
        if std::mem::take(&mut self.resets_next_run) {
            self.write_run_start(&[], out);
            write_snapshot(before, out);
        } else {
            self.write_run_start(&before, out);
        }
        for (name, text) in self.deferred_frames.iter() {
            out.push_text(name, text);
        }
        self.deferred_frames.clear();
    }

    fn write_run_start(&self, messages: &[Fields], out: &mut Frames) {
        let (thread_id, run_id) = (self.thread_id(), self.turn.run_id.as_str());
        let unused = (self.version == ClientVersion::Before1).then(UnusedInput::default);
        let input = Input { thread_id, run_id, messages, unused };
        let input = Some(input).filter(|input| !input.messages.is_empty());
        out.push("", &Frame::RunStarted { thread_id, run_id, protocol_version: VERSION, input });
    }

    /// Announces a sub-agent, after its parents.
    fn open_subagent(&mut self, id: &str, out: &mut Frames) {
        let mut chain: Vec<String> = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            let known =
                self.turn.subagents.contains(&id) || self.turn.closed_subagents.contains(&id);
            if known || chain.contains(&id) || id == self.turn.reply {
                break;
            }
            next = self.parent_of(&id);
            chain.push(id);
        }
        for id in chain.into_iter().rev() {
            self.write_subagent_start(&id, out);
            self.turn.subagents.push(id);
        }
    }

    /// The parent of a sub-agent; none if it is the turn's own agent.
    fn parent_of(&self, id: &str) -> Option<String> {
        let call = self.turn.replies.get(id)?.parent_call.as_deref()?;
        let reply = &self.turn.calls.get(call)?.reply;
        (*reply != self.turn.reply && self.turn.replies.contains_key(reply)).then(|| reply.clone())
    }

    fn write_subagent_start(&self, id: &str, out: &mut Frames) {
        let Some(reply) = self.turn.replies.get(id) else { return };
        let last = reply.path.as_deref().and_then(|path| path.rsplit('/').next());
        let name = reply.name.as_deref().filter(|name| !name.is_empty()).or(last);
        let parent = self.parent_of(id);
        // Only sub-agents announced in this run may be named.
        let announced = |id: &&str| {
            self.turn.subagents.iter().any(|sub| sub == id)
                || self.turn.closed_subagents.contains(*id)
        };
        let frame = Frame::SubagentStarted {
            subagent_run_id: id,
            name: name.unwrap_or("agent"),
            parent_subagent_run_id: parent.as_deref().filter(announced),
            parent_tool_call_id: reply.parent_call.as_deref(),
        };
        self.push_subagent(&frame, out);
    }

    /// A sub-agent's reply ends.
    pub(super) fn finish_subagent(&mut self, end: &ReplyEnd, event: &Event<'_>, out: &mut Frames) {
        let id = &*event.reply_id;
        for (kind, block, open) in self.turn.take_open_messages(Some(id)) {
            write_end(kind, &block, &open, out);
        }
        while let Some(at) = self.turn.steps.iter().rposition(|step| step.reply == id) {
            self.turn.end_step(at, out);
        }
        self.turn.pending.retain(|pending| pending.reply != id);
        let calls = &self.turn.calls;
        self.turn.running_calls.retain(|call| calls.get(call).is_none_or(|call| call.reply != id));
        let Some(at) = self.turn.subagents.iter().position(|sub| sub == id) else { return };
        self.turn.closed_subagents.insert(self.turn.subagents.remove(at));
        let interrupted = end.finished_reason == FinishedReason::Interrupted;
        let frame = match &end.error {
            Some(error) => Frame::SubagentError {
                subagent_run_id: id,
                message: &error.message,
                code: error.r#type.as_str(),
            },
            None if interrupted || end.finished_reason == FinishedReason::Error => {
                let code = end.finished_reason.as_str();
                let message = if interrupted { "it was stopped" } else { "it failed" };
                Frame::SubagentError { subagent_run_id: id, message, code }
            }
            None => Frame::SubagentFinished {
                subagent_run_id: id,
                result: end.structured_output.as_ref().filter(|output| !output.is_null()),
                outcome: SubagentOutcome::Success,
            },
        };
        self.push_subagent(&frame, out);
    }

    /// Writes a frame about a sub-agent, if the client knows them.
    fn push_subagent(&self, frame: &Frame<'_>, out: &mut Frames) {
        match self.version {
            ClientVersion::V1 => out.push("", frame),
            ClientVersion::Before1 => {}
        }
    }

    /// Closes everything, innermost first.
    fn close_all(&mut self, out: &mut Frames) {
        for (kind, id, open) in self.turn.take_open_messages(None) {
            write_end(kind, &id, &open, out);
        }
        while let Some(last) = self.turn.steps.len().checked_sub(1) {
            self.turn.end_step(last, out);
        }
        while let Some(id) = self.turn.subagents.pop() {
            let own = self.turn.pending.iter().filter(|ask| ask.confirm && ask.reply == id);
            let interrupt_ids = own.map(|pending| pending.call.as_str()).collect();
            let outcome = SubagentOutcome::Suspended { interrupt_ids };
            let frame = Frame::SubagentFinished { subagent_run_id: &id, result: None, outcome };
            self.push_subagent(&frame, out);
        }
    }

    /// Finishes the run because calls are pending: approvals are interrupts; calls that the client
    /// executes are pending in a successful run, and the client answers them with messages.
    pub(super) fn finish_run_waiting(&mut self, out: &mut Frames) {
        // A client that connects now sees the data so far.
        self.write_open_data(out);
        self.close_all(out);
        self.run = RunState::Waiting;
        let pending = &self.turn.pending;
        let interrupts: Vec<_> =
            pending.iter().filter(|pending| pending.confirm).map(to_interrupt).collect();
        if self.version == ClientVersion::Before1 {
            for pending in pending.iter().filter(|pending| !pending.confirm) {
                write_tool_input(pending, out);
            }
        }
        let outcome = if interrupts.is_empty() {
            let calls = pending.iter().map(|pending| pending.call.as_str());
            Outcome::Success { pending_tool_call_ids: calls.collect() }
        } else {
            Outcome::Interrupt { interrupts }
        };
        self.write_run_end(outcome, None, Fields::default(), out);
    }

    fn write_run_end(
        &self,
        outcome: Outcome<'_>,
        result: Option<&Json>,
        metadata: Fields,
        out: &mut Frames,
    ) {
        let outcome = match (self.version, outcome) {
            (ClientVersion::V1, outcome) => Some(outcome),
            // To these clients, a run that has succeeded has no pending calls.
            (ClientVersion::Before1, Outcome::Success { pending_tool_call_ids }) => {
                pending_tool_call_ids.is_empty().then(|| Outcome::Success { pending_tool_call_ids })
            }
            (ClientVersion::Before1, Outcome::Interrupt { interrupts }) => {
                Some(Outcome::Interrupt { interrupts })
            }
            (ClientVersion::Before1, Outcome::Cancelled) => None,
        };
        let frame = Frame::RunFinished {
            thread_id: self.thread_id(),
            run_id: &self.turn.run_id,
            result: result.filter(|result| !result.is_null()),
            outcome,
            usage: &self.turn.usage,
            metadata,
        };
        out.push("", &frame);
        out.end_answer();
    }

    fn write_run_error(&self, message: &str, code: &str, out: &mut Frames) {
        out.push("", &Frame::RunError { message, code, usage: &self.turn.usage });
        out.end_answer();
    }

    /// Finishes the run because the reply has ended.
    pub(super) fn finish_reply(
        &mut self,
        reason: Option<&FinishedReason>,
        error: Option<&ReplyError>,
        output: Option<&Json>,
        out: &mut Frames,
    ) {
        self.close_all(out);
        self.run = RunState::Idle;
        self.turn.ended = true;
        match (reason, error) {
            (_, Some(error)) => self.write_run_error(&error.message, error.r#type.as_str(), out),
            (Some(FinishedReason::Error), None) => {
                self.write_run_error("the reply failed", "unknown", out);
            }
            (Some(FinishedReason::Interrupted), None) => {
                self.write_run_end(Outcome::Cancelled, output, Fields::default(), out);
            }
            (reason, None) => {
                let reason = reason.filter(|reason| **reason != FinishedReason::Completed);
                let metadata = reason
                    .map(|reason| own_metadata(fields! { "finished_reason": reason.as_str() }));
                let outcome = Outcome::Success { pending_tool_call_ids: Vec::new() };
                self.write_run_end(outcome, output, metadata.unwrap_or_default(), out);
            }
        }
    }

    pub(super) fn write_open_data(&self, out: &mut Frames) {
        for id in self.turn.open_data(true, "") {
            self.write_data(&id, out);
        }
    }

    /// Closes the run without an end of the reply. If calls are pending, the reply continues after
    /// the answers.
    pub(super) fn close_run(&mut self, out: &mut Frames) {
        if self.run != RunState::Open {
            return;
        }
        if std::mem::take(&mut self.turn.awaits_reply) {
            return self.finish_reply(None, None, None, out);
        }
        if !self.turn.pending.is_empty() {
            return self.finish_run_waiting(out);
        }
        self.write_open_data(out);
        self.close_all(out);
        self.write_run_error("the events ended before the reply did", "incomplete", out);
        self.run = RunState::Idle;
        self.turn.ended = true;
    }

    /// Everything follows again, and replaces what the client has.
    pub(super) fn reset(&mut self, out: &mut Frames) {
        self.close_run(out);
        self.turn = TurnState::default();
        self.run = RunState::Idle;
        self.queued_messages.clear();
        self.deferred_frames.clear();
        self.resets_next_run = true;
    }

    /// Starts a run for a client that connects now: a snapshot of the messages, then the start of
    /// everything that is open.
    pub(super) fn resume_run(&mut self, messages: &[Msg], out: &mut Frames) {
        // This is the run that the client asked for, whatever came before.
        if let Some(run_id) = &self.run_id {
            self.turn.run_id_base.clone_from(run_id);
        } else if self.turn.runs == 0 {
            let last = messages.last().map_or("", Msg::id);
            let reply = Some(self.turn.reply.as_str()).filter(|reply| !reply.is_empty());
            reply.unwrap_or(last).clone_into(&mut self.turn.run_id_base);
        }
        if self.run_id.is_some() || self.turn.runs == 0 {
            self.turn.run_id.clone_from(&self.turn.run_id_base);
            self.turn.runs = 1;
        }
        self.is_run_named = true;
        self.turn.closed_subagents.clear();
        self.write_run_start(&[], out);
        let turn = &self.turn;
        let messages_now = turn
            .client_messages
            .snapshot(messages, |id| id == turn.reply || turn.replies.contains_key(id));
        if self.resets_client {
            write_snapshot(clearing_snapshot(&messages_now), out);
        }
        write_snapshot(messages_now, out);
        if !self.turn.pending.is_empty() {
            // Nothing of this is open for the new client.
            self.turn.take_open_messages(None);
            self.turn.forget_steps();
            self.turn.subagents.clear();
            return self.finish_run_waiting(out);
        }
        match self.run {
            RunState::Open => self.reopen(out),
            // Answered, but not continued yet: this run continues.
            RunState::Waiting => self.run = RunState::Open,
            // The client waits for a reply that has not started; the end of the stream ends the
            // run.
            RunState::Idle
                if self.run_id.is_some()
                    && messages.last().is_some_and(|last| last.role() == Role::User) =>
            {
                self.run = RunState::Open;
                self.turn.awaits_reply = true;
            }
            RunState::Idle => {
                let last = messages.iter().rev().find(|msg| msg.role() == Role::Assistant);
                let reason = last.and_then(Msg::finished_reason);
                let error = last.and_then(Msg::error);
                let output = last.and_then(Msg::structured_output);
                let ended = self.turn.ended;
                self.finish_reply(reason, error, output, out);
                self.turn.ended = ended;
            }
        }
    }

    fn reopen(&mut self, out: &mut Frames) {
        let subs = std::mem::take(&mut self.turn.subagents);
        for id in subs {
            self.write_subagent_start(&id, out);
            self.turn.subagents.push(id);
        }
        for step in &self.turn.steps {
            step.write_start(out);
        }
        for (kind, id, open) in self.turn.all_open_messages() {
            self.write_start(kind, id, open, out);
        }
    }
}

/// Replaces the client's messages.
fn write_snapshot(messages: Vec<Fields>, out: &mut Frames) {
    out.push("", &Frame::MessagesSnapshot { messages, metadata: SnapshotMetadata::AUTHORITATIVE });
}

/// The shortest snapshot that clears a client's messages: the client keeps the position of messages
/// it already has, and keeps reasoning unless the snapshot has some.
fn clearing_snapshot(messages: &[Fields]) -> Vec<Fields> {
    let is_reasoning = |fields: &Fields| {
        fields.get::<String>("role").ok().flatten().is_some_and(|role| role == "reasoning")
    };
    let first = messages.iter().position(is_reasoning).map_or(0, |at| at + 1);
    messages.iter().take(first).cloned().collect()
}

fn to_interrupt(pending: &PendingCall) -> Interrupt<'_> {
    let rules = || own_metadata(fields! { "suggested_rules": to_json(&pending.rules) });
    Interrupt {
        id: &pending.call,
        reason: "tool_call",
        message: format!("May {} run?", pending.name),
        tool_call_id: &pending.call,
        response_schema: ResponseSchema::APPROVAL,
        expires_at: pending.expires_at.as_deref(),
        subagent_run_id: pending.is_subagent.then_some(&*pending.reply),
        metadata: (!pending.rules.is_empty()).then(rules).unwrap_or_default(),
    }
}

/// The event by which `TanStack` AI knows that the page has to execute a call.
fn write_tool_input(pending: &PendingCall, out: &mut Frames) {
    let PendingCall { call, name, input, .. } = pending;
    let value =
        fields! { "toolCallId": call.as_str(), "toolName": name.as_str(), "input": input.clone() };
    let value = to_json(&value);
    let frame =
        Frame::Custom { name: "tool-input-available", value: &value, subagent_run_id: None };
    out.push("", &frame);
}
