//! Tracks which agent owns each pending tool call, for clients that only execute tools.
//!
//! Such a client sees one answer of a model. The encoder cannot know from the events of the reply alone that a call
//! waits for a person's approval, or that a sub-agent's call is the client's to execute.

use turnwire_core::{Event, EventKind, event_kinds};
use turnwire_wires::UnsettledCalls;

/// The pending calls of a reply and its sub-agents. They follow from the events alone, so the same response is encoded
/// in the same way every time.
#[derive(Default)]
pub(super) struct PendingCalls(UnsettledCalls);

impl PendingCalls {
    pub(super) fn observe(&mut self, event: &Event<'_>) {
        let Self(calls) = self;
        match &event.kind {
            EventKind::RequireUserConfirm(request) => {
                calls
                    .awaiting_approval
                    .extend(request.tool_calls.iter().map(|call| call.id.clone()));
            }
            EventKind::UserConfirmResult(answers) => {
                let is_answered =
                    |id: &String| answers.confirm_results.iter().any(|it| it.tool_call.id == *id);
                calls.awaiting_approval.retain(|id| !is_answered(id));
            }
            EventKind::RequireExternalExecution(required) => {
                if event.is_from_sub_agent() {
                    calls.of_sub_agents.extend(required.tool_calls.iter().cloned());
                }
            }
            EventKind::ExternalExecutionResult(results) => {
                let is_done =
                    |id: &str| results.execution_results.iter().any(|result| result.id == id);
                calls.of_sub_agents.retain(|call| !is_done(&call.id));
            }
            event_kinds!(reply model_call content tool notice session) => {}
        }
    }

    pub(super) fn take(&mut self) -> UnsettledCalls {
        std::mem::take(&mut self.0)
    }
}
