//! Encodes our events as AG-UI runs.
//!
//! A reply is one run. When the reply waits for the client, the run is finished, and the rest of
//! the reply is another run. Everything that is opened within a run is closed before its end.

use super::client_messages::MessageKind;
use super::turn_state::{RunState, Step, StreamedKind, TurnState};
use super::write_messages::streamed_messages;
use super::{ClientVersion, RunOptions};
use crate::stream::{Encode, EncoderOptions, Frames, StreamFailure};
use turnwire_core::event::{ModelCallEnd, ReplyEnd};
use turnwire_core::{Event, EventKind, Fields, FinishedReason, Msg, ToolResult, event_kinds};

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
    /// What the client understands.
    pub(super) version: ClientVersion,
}

impl Encoder {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        let RunOptions { run_id, resets_client, version } =
            encoding.wire.get::<RunOptions>().cloned().unwrap_or_default();
        Self {
            session_id: encoding.session_id.clone(),
            run_id,
            is_run_named: false,
            run: RunState::Idle,
            turn: TurnState::default(),
            queued_messages: Vec::new(),
            deferred_frames: Frames::default(),
            resets_next_run: false,
            resets_client,
            version,
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
            event_kinds!(Custom Supersede Unknown notice) => self.outside_reply_event(event, out),
            event_kinds!(reply model_call content tool pending_call) => {
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

    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        self.enter_reply(&failure.reply_id, out);
        if !self.turn.ended {
            self.start_run(&failure.reply_id, out);
            self.write_open_data(out);
            self.turn.pending.clear();
            self.finish_reply(Some(&FinishedReason::Error), Some(&failure.error()), None, out);
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
        if !event.is_from_sub_agent() {
            self.enter_reply(&event.reply_id, out);
        }
        !self.turn.ended
    }

    /// Starts another turn unless it is this reply's.
    fn enter_reply(&mut self, reply_id: &str, out: &mut Frames) {
        if reply_id == self.turn.reply || reply_id.is_empty() {
            return;
        }
        if !self.turn.reply.is_empty() {
            self.close_run(out);
            // The client keeps the messages of earlier turns, so their ids stay used.
            self.turn = TurnState {
                client_messages: self.turn.client_messages.next_turn(),
                ..TurnState::default()
            };
            self.run = RunState::Idle;
        }
        reply_id.clone_into(&mut self.turn.reply);
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
            event_kinds!(
                ModelCallStart ModelCallEnd TextBlockStart TextBlockEnd ThinkingBlockStart
                ThinkingBlockEnd ToolCallStart ToolCallEnd DataBlockStart DataBlockEnd Hint Block
                ToolResultEnd
            ) => {
                self.open_run(event, out);
                self.run_event(event, out);
            }
            event_kinds!(notice session) => {}
        }
    }

    /// An event that needs an open run.
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
                let (id, name) = (&start.tool_call_id, &start.tool_call_name);
                self.block_start(StreamedKind::Call, id, name, event, out);
            }
            K::ToolCallEnd(end) => self.close_message(StreamedKind::Call, &end.tool_call_id, out),
            K::DataBlockStart(start) => self.data_start(start, event, out),
            K::DataBlockEnd(end) => self.data_end(&end.block_id, event, out),
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
            event_kinds!(
                TextBlockDelta ThinkingBlockDelta ToolCallDelta DataBlockDelta ToolResultStart
                ToolResultTextDelta ToolResultDataDelta reply pending_call notice session
            ) => {}
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
            for kind in MessageKind::ALL {
                if let Some(known) = self.turn.client_messages.id_of(kind, id).map(str::to_owned) {
                    self.discard_message(kind, id, &known, event, out);
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
