//! Encodes events as Anthropic's stream: the client sees one message of a model for the whole turn.
//!
//! The protocol has only one open block at a time. A block that starts while another is open waits. So does everything
//! after a tool call until it is known who executes it: a call that gets a result in this turn was executed by the agent
//! and is left out; any other is for the client.

mod output;
mod queue;

pub(super) use output::Delta;

use super::NAME;
use super::collect::Message;
use super::frame::KNOWN_FRAMES;
use crate::collect::WholeResponse;
use crate::json::string_field;
use crate::stream::{self, Encode, Frames, StreamFailure, UnsettledCalls};
use output::Output;
use queue::{BlockQueue, QueuedContent};
use turnwire_core::event::{Custom, TokenCounts};
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, FinishedReason, ReplyError, ToolCall, event_kinds,
};

/// The stop reason of an answer in which the provider paused.
const PAUSE_TURN: &str = "pause_turn";

pub(super) struct AnthropicEncoder {
    messages: Messages,
    collects: bool,
    /// The message so far, if it is collected.
    whole: Option<Message>,
}

/// The message of each reply, one after the other.
struct Messages {
    model: Option<String>,
    /// The id of the message; by default the reply's id.
    id: Option<String>,
    open: Option<OpenMessage>,
    /// The reply that has ended; its later events are ignored.
    ended_reply: String,
}

/// The message that is being written.
#[derive(Default)]
struct OpenMessage {
    reply_id: String,
    /// The id of the message.
    message_id: String,
    /// The model, if the request names it.
    model: Option<String>,
    begun: bool,
    queue: BlockQueue,
    usage: TokenCounts,
    /// How the last model call ended.
    reason: FinishedReason,
    /// The stop sequence that ended it, if the provider says so.
    stop_sequence: Option<String>,
    /// The provider paused: it goes on if the client sends the answer back.
    is_paused: bool,
}

impl AnthropicEncoder {
    pub(super) fn new(encoding: &stream::EncoderOptions) -> Self {
        let messages = Messages {
            model: encoding.model.clone(),
            id: encoding.id.clone(),
            open: None,
            ended_reply: String::new(),
        };
        Self { messages, collects: encoding.collects, whole: None }
    }
}

impl Encode for AnthropicEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        let out = &mut Output::new(out, self.collects, &mut self.whole);
        // To the client, a sub-agent is a tool of the agent.
        if event.is_from_sub_agent() {
            return;
        }
        if let EventKind::Custom(custom) = &event.kind {
            return write_custom_frame(custom, out);
        }
        if !event.kind.is_part_of_reply() {
            return;
        }
        // A reply may start while the last one has not ended; other events of another reply are ignored.
        let begins = matches!(event.kind, EventKind::ReplyStart(_));
        let Some(message) = self.messages.open(&event.reply_id, begins, out) else { return };
        if !message.begun {
            message.begin(&event.kind, out);
        }
        if let EventKind::ReplyEnd(end) = &event.kind {
            message.finish(&end.finished_reason, end.error.as_ref(), out);
            self.messages.close(&event.reply_id);
        } else {
            message.push_event(event, out);
        }
    }

    fn end(&mut self, out: &mut Frames) {
        let out = &mut Output::new(out, self.collects, &mut self.whole);
        self.messages.end_unfinished(out);
    }

    fn take_response(&mut self) -> Option<WholeResponse> {
        self.whole.take()?.into_response()
    }

    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        let out = &mut Output::new(out, self.collects, &mut self.whole);
        let Some(message) = self.messages.open(&failure.reply_id, false, out) else { return };
        message.write_message_start("", out);
        message.finish(&FinishedReason::Error, Some(&failure.error()), out);
        self.messages.close(&failure.reply_id);
    }

    fn settle_calls(&mut self, reply_id: &str, calls: &UnsettledCalls, out: &mut Frames) {
        let out = &mut Output::new(out, self.collects, &mut self.whole);
        let Some(message) = self.messages.open(reply_id, false, out) else { return };
        message.write_message_start("", out);
        for id in &calls.awaiting_approval {
            message.queue.mark_served(id, out);
        }
        for call in &calls.of_sub_agents {
            message.push_whole_call(call, out);
        }
    }
}

impl Messages {
    /// The message of a reply; a new one if none is open, or if the reply begins.
    fn open(&mut self, id: &str, begins: bool, out: &mut Output<'_>) -> Option<&mut OpenMessage> {
        if self.open.as_ref().is_none_or(|message| begins && message.reply_id != id) {
            if id.is_empty() || self.ended_reply == id {
                return None;
            }
            self.end_unfinished(out);
            self.open = Some(OpenMessage {
                reply_id: id.to_owned(),
                message_id: self.id.as_deref().unwrap_or(id).to_owned(),
                model: self.model.clone(),
                ..OpenMessage::default()
            });
        }
        self.open.as_mut().filter(|message| message.reply_id == id)
    }

    /// The reply has ended.
    fn close(&mut self, id: &str) {
        id.clone_into(&mut self.ended_reply);
        self.open = None;
    }

    /// Ends a message whose reply has not ended.
    fn end_unfinished(&mut self, out: &mut Output<'_>) {
        let Some(mut message) = self.open.take() else { return };
        message.write_message_start("", out);
        message.queue.flush(out);
        if message.queue.has_calls() {
            // The reply waits for the client.
            message.write_stop("tool_use", out);
        } else {
            // The reply was cut off. Without `message_stop` the client sees that.
            message.write_message_delta(None, out);
        }
    }
}

/// Writes an unknown frame of this wire back as it came.
fn write_custom_frame(custom: &Custom, out: &mut Output<'_>) {
    if custom.name != NAME {
        return;
    }
    let word = custom.value.0.parse_as::<Fields>().and_then(|fields| fields.get::<String>("type"));
    if let Ok(Some(word)) = word
        && !KNOWN_FRAMES.contains(&word.as_str())
    {
        out.push_custom(custom.value.0.text());
    }
}

impl OpenMessage {
    /// Writes the start, once the model is known or another frame needs it.
    fn begin(&mut self, kind: &EventKind<'_>, out: &mut Output<'_>) {
        if let EventKind::ModelCallStart(start) = kind {
            self.write_message_start(&start.model_name, out);
        } else if self.model.is_some() || !matches!(kind, EventKind::ReplyStart(_)) {
            self.write_message_start("", out);
        }
    }

    /// Writes the start if it is missing, with this model unless the request names one.
    fn write_message_start(&mut self, model: &str, out: &mut Output<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.start_message(&self.message_id, self.model.as_deref().unwrap_or(model));
        }
    }

    fn push_event(&mut self, event: &Event<'_>, out: &mut Output<'_>) {
        let queue = &mut self.queue;
        match &event.kind {
            EventKind::TextBlockDelta(delta) => queue.push_text(&delta.block_id, &delta.delta, out),
            EventKind::ThinkingBlockDelta(delta) => {
                queue.push_text(&delta.block_id, &delta.delta, out);
            }
            EventKind::ToolCallDelta(delta) => {
                queue.push_text(&delta.tool_call_id, &delta.delta, out);
            }
            EventKind::TextBlockStart(start) => {
                queue.start_block(&start.block_id, QueuedContent::Text, out);
            }
            EventKind::ThinkingBlockStart(start) => {
                queue.start_block(&start.block_id, QueuedContent::Thinking, out);
            }
            EventKind::ToolCallStart(start) => {
                let name = start.tool_call_name.to_string();
                queue.start_block(&start.tool_call_id, QueuedContent::tool_call(name), out);
            }
            EventKind::DataBlockStart(start) => {
                queue.start_block(&start.block_id, QueuedContent::from_data_event(event), out);
            }
            EventKind::DataBlockDelta(delta) => queue.fold_data(&delta.block_id, event),
            EventKind::TextBlockEnd(end) => {
                queue.end_block(&end.block_id, end.text.as_deref(), &end.extra, out);
            }
            EventKind::ThinkingBlockEnd(end) => {
                queue.end_block(&end.block_id, None, &end.extra, out);
            }
            EventKind::ToolCallEnd(end) => {
                queue.end_block(&end.tool_call_id, None, &end.extra, out);
            }
            EventKind::DataBlockEnd(end) => {
                queue.fold_data(&end.block_id, event);
                queue.end_block(&end.block_id, None, &Fields::default(), out);
            }
            EventKind::ToolResultStart(start) => queue.mark_served(&start.tool_call_id, out),
            EventKind::ExternalExecutionResult(results) => {
                for result in &results.execution_results {
                    queue.mark_served(&result.id, out);
                }
            }
            EventKind::RequireUserConfirm(asked) => {
                asked.tool_calls.iter().for_each(|call| queue.mark_asking(&call.id));
            }
            EventKind::UserConfirmResult(answers) => {
                for answer in answers.confirm_results.iter().filter(|answer| answer.confirmed) {
                    queue.apply_edit(&answer.tool_call.id, &answer.tool_call.input);
                }
            }
            EventKind::Block(block) => self.whole_block(event, &block.block, out),
            // The next model call starts only when every call has its result.
            EventKind::ModelCallStart(_) => queue.flush(out),
            EventKind::ModelCallEnd(end) => {
                // A discarded call must not be executed.
                end.discard.iter().for_each(|id| queue.mark_served(id, out));
                queue.close_blocks(out);
                self.usage.add(end.usage);
                self.reason = end.finished_reason.clone();
                let about: Option<Fields> = event.metadata.get(NAME).ok().flatten();
                let stop_reason = about.as_ref().and_then(|it| string_field(it, "stop_reason"));
                self.is_paused = stop_reason.is_some_and(|reason| reason == PAUSE_TURN);
                self.stop_sequence = about.and_then(|it| string_field(&it, "stop_sequence"));
            }
            // Not shown to clients of this wire, or handled by the caller.
            event_kinds!(
                Hint ToolResultTextDelta ToolResultDataDelta ToolResultEnd RequireExternalExecution
                reply notice session
            ) => {}
        }
    }

    fn whole_block(&mut self, event: &Event<'_>, block: &ContentBlock, out: &mut Output<'_>) {
        let none = Fields::default();
        let (content, text, extra) = match block {
            ContentBlock::Text(block) => (QueuedContent::Text, &*block.text, &block.rest),
            ContentBlock::Thinking(block) => {
                (QueuedContent::Thinking, &*block.thinking, &block.rest)
            }
            ContentBlock::Data(_) => (QueuedContent::from_data_event(event), "", &none),
            ContentBlock::ToolCall(call) => return self.push_whole_call(call, out),
            ContentBlock::ToolResult(result) => return self.queue.mark_served(&result.id, out),
            ContentBlock::Other(item) => match crate::provider::block_to_item(NAME, item) {
                Some(item) => (QueuedContent::Item(item), "", &none),
                None => return,
            },
            ContentBlock::Hint(_) => return,
        };
        self.queue.push_whole(block.id(), content, text, extra, out);
    }

    fn push_whole_call(&mut self, call: &ToolCall, out: &mut Output<'_>) {
        let content = QueuedContent::tool_call(call.name.clone());
        self.queue.push_whole(&call.id, content, &call.input, &call.rest, out);
    }

    fn finish(
        &mut self,
        reason: &FinishedReason,
        error: Option<&ReplyError>,
        out: &mut Output<'_>,
    ) {
        self.queue.flush(out);
        if error.is_some() || *reason == FinishedReason::Error {
            self.write_message_delta(None, out);
            return out.push_error(error);
        }
        // The reason of the last model call is more precise.
        let reason = if *reason == FinishedReason::Completed { &self.reason } else { reason };
        let word = match reason {
            FinishedReason::Length => "max_tokens",
            FinishedReason::Refusal | FinishedReason::ContentFilter => "refusal",
            _ if self.queue.has_calls() => "tool_use",
            FinishedReason::Completed if self.stop_sequence.is_some() => "stop_sequence",
            FinishedReason::Completed if self.is_paused => PAUSE_TURN,
            // Anthropic uses it when its own loop reaches its limit.
            FinishedReason::ExceedMaxIters => PAUSE_TURN,
            FinishedReason::Completed
            | FinishedReason::ToolCalls
            | FinishedReason::Interrupted
            | FinishedReason::Error
            | FinishedReason::Truncated
            | FinishedReason::Other(_) => "end_turn",
        };
        self.write_stop(word, out);
    }

    fn write_stop(&self, stop_reason: &'static str, out: &mut Output<'_>) {
        self.write_message_delta(Some(stop_reason), out);
        out.stop_message();
    }

    /// Writes `message_delta`: the stop reason and the tokens.
    fn write_message_delta(&self, stop_reason: Option<&'static str>, out: &mut Output<'_>) {
        let sequence = self.stop_sequence.as_deref();
        let sequence = sequence.filter(|_| stop_reason == Some("stop_sequence"));
        out.push_message_delta(stop_reason, sequence, self.usage);
    }
}
