//! Encodes our events as a UI message stream.
//!
//! A response is `start`, steps, `finish`. A step lasts from one model call to the next. A reply
//! that waits for the client ends its response ([`Encode::end`]) and continues in the next one,
//! with the same message id and only the new parts: the client continues its message. A client that
//! reconnects gets everything in one response.

use super::chunk::{Chunk, Custom};
use super::reply_writer::ReplyWriter;
use super::subagents::Subagents;
use crate::stream::{Encode, Frames, StreamFailure};
use turnwire_core::{Event, EventKind, Fields, ToolCall, ToolCallState, event_kinds};

/// Encodes one stream.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    reply: Option<ReplyWriter>,
    subagents: Subagents,
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
        let starts = matches!(event.kind, EventKind::ReplyStart(_));
        if self.is_current(&event.reply_id, &event.created_at, starts, out) {
            let Some(turn) = &mut self.reply else { return };
            if let EventKind::ReplyEnd(end) = &event.kind {
                turn.show_subagents(&mut self.subagents, out);
                turn.reply_end(end, &event.created_at, &self.subagents, out);
                self.subagents.clear();
            } else {
                turn.write_event(event, &self.subagents, out);
            }
        }
    }

    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        if self.is_current(&failure.reply_id, &failure.created_at, false, out)
            && let Some(turn) = &mut self.reply
        {
            turn.show_subagents(&mut self.subagents, out);
            // The reply has not finished, so there is no time at which it did.
            turn.reply_end(&failure.as_reply_end(), "", &self.subagents, out);
            self.subagents.clear();
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
    /// Whether a reply is the current one. A new reply replaces one that has ended or that it
    /// interrupts; events of other replies are ignored.
    fn is_current(
        &mut self,
        reply_id: &str,
        created_at: &str,
        starts: bool,
        out: &mut Frames,
    ) -> bool {
        match &mut self.reply {
            _ if reply_id.is_empty() => return false,
            Some(turn) if turn.id == reply_id => return !turn.is_over,
            Some(turn) if !turn.is_over => {
                if !starts {
                    return false;
                }
                if turn.is_open {
                    turn.end_response(&self.subagents, out);
                }
            }
            Some(_) | None => {}
        }
        let mut about = Fields::default();
        about.insert_unless_empty("created_at", created_at);
        self.reply = Some(ReplyWriter {
            id: reply_id.to_owned(),
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
            // Only in the message of the sub-agent.
            event_kinds!(reply model_call content tool notice session) => {}
        }
    }
}
