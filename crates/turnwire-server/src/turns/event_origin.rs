//! Who sends which events: the one place that lists all event types for this question. The client
//! events and the ingest routes decide by it what a caller may store.

use turnwire_core::EventKind;

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
            EventKind::ExternalExecutionResult(_) | EventKind::UserInterrupt(_) => Self::Client,
            EventKind::Hint(_) | EventKind::Custom(_) => Self::Publisher,
            EventKind::Message(_) | EventKind::Supersede(_) | EventKind::Reset(_) => {
                Self::Conversation
            }
            EventKind::ReplyStart(_)
            | EventKind::ReplyEnd(_)
            | EventKind::ModelCallStart(_)
            | EventKind::ModelCallEnd(_)
            | EventKind::TextBlockStart(_)
            | EventKind::TextBlockDelta(_)
            | EventKind::TextBlockEnd(_)
            | EventKind::ThinkingBlockStart(_)
            | EventKind::ThinkingBlockDelta(_)
            | EventKind::ThinkingBlockEnd(_)
            | EventKind::DataBlockStart(_)
            | EventKind::DataBlockDelta(_)
            | EventKind::DataBlockEnd(_)
            | EventKind::ToolCallStart(_)
            | EventKind::ToolCallDelta(_)
            | EventKind::ToolCallEnd(_)
            | EventKind::ToolResultStart(_)
            | EventKind::ToolResultTextDelta(_)
            | EventKind::ToolResultDataDelta(_)
            | EventKind::ToolResultEnd(_)
            | EventKind::Block(_)
            | EventKind::RequireUserConfirm(_)
            | EventKind::RequireExternalExecution(_)
            | EventKind::ExceedMaxIters(_)
            | EventKind::RequestStop(_)
            | EventKind::AllToolsDenied(_)
            | EventKind::SubagentExposed(_)
            | EventKind::Unknown(_) => Self::Agent,
        }
    }
}
