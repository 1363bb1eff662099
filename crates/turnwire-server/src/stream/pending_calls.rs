//! Whose the calls are that a reply waits for, to a client that cannot be asked.

use turnwire_core::event::{Block, ToolResultStart};
use turnwire_core::{Event, EventKind, ToolCall};
use turnwire_wires::{Encode, Frames};

/// The calls that an encoder would take for somebody else's than they are. They follow from the events
/// alone: whoever gets the same answer again gets the same.
#[derive(Default)]
pub(super) struct PendingCalls {
    /// A person is asked about them.
    awaiting_approval: Vec<String>,
    /// Sub-agents wait for them.
    of_sub_agents: Vec<ToolCall>,
}

impl PendingCalls {
    pub(super) fn observe(&mut self, event: &Event<'_>) {
        match &event.kind {
            EventKind::RequireUserConfirm(asked) => {
                self.awaiting_approval.extend(asked.tool_calls.iter().map(|call| call.id.clone()));
            }
            EventKind::UserConfirmResult(answers) => {
                let is_answered =
                    |id: &String| answers.confirm_results.iter().any(|it| it.tool_call.id == *id);
                self.awaiting_approval.retain(|id| !is_answered(id));
            }
            EventKind::RequireExternalExecution(calls) if event.is_from_sub_agent() => {
                self.of_sub_agents.extend(calls.tool_calls.iter().cloned());
            }
            EventKind::ExternalExecutionResult(results) => {
                let is_done =
                    |id: &str| results.execution_results.iter().any(|result| result.id == id);
                self.of_sub_agents.retain(|call| !is_done(&call.id));
            }
            _ => {}
        }
    }

    /// Puts it right before an answer ends: a call that is asked about is as good as served, and one
    /// that a sub-agent waits for is the agent's own.
    pub(super) fn encode_end(&mut self, reply_id: &str, encode: &mut dyn Encode, out: &mut Frames) {
        for id in self.awaiting_approval.drain(..) {
            let served =
                ToolResultStart { tool_call_id: id.into(), tool_call_name: String::new().into() };
            encode.encode(&Event::new(reply_id, served), out);
        }
        for call in self.of_sub_agents.drain(..) {
            let own = Block { block: Box::new(call.into()) };
            encode.encode(&Event::new(reply_id, own), out);
        }
    }
}
