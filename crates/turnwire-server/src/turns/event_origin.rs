//! Who sends which events: the one place that lists all event types for this question. The client
//! events and the ingest routes decide by it what a caller may store.

use turnwire_core::{EventKind, event_kinds};

/// Who sends an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventOrigin {
    /// The agent of a reply.
    Agent,
    /// A user who approves or denies calls.
    Approver,
    /// The client of a reply: tool results and stops.
    Client,
    /// Any program that may publish: hints and custom events.
    Publisher,
    /// Whoever writes the conversation itself: whole messages, and what is superseded.
    Conversation,
}

impl EventOrigin {
    pub(crate) fn from_kind(kind: &EventKind<'_>) -> Self {
        match kind {
            EventKind::UserConfirmResult(_) => Self::Approver,
            event_kinds!(ExternalExecutionResult UserInterrupt) => Self::Client,
            event_kinds!(Hint Custom) => Self::Publisher,
            event_kinds!(Message Supersede Reset) => Self::Conversation,
            event_kinds!(
                Block RequireUserConfirm RequireExternalExecution Unknown ExceedMaxIters
                java reply model_call text thinking data tool
            ) => Self::Agent,
        }
    }
}
