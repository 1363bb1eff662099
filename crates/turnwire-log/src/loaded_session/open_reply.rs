//! A reply that has not ended, and its pending calls.

use crate::cost::Cost;
use turnwire_core::event::SubAgent;
use turnwire_core::{
    Event, EventIds, EventKind, FoldCursor, ModelCalls, Msg, Seq, ToolCall, ToolCallState,
    event_kinds,
};

/// A reply that has not ended.
#[derive(Debug, Clone)]
pub struct OpenReply {
    pub(crate) msg: Msg,
    pub(crate) ids: EventIds,
    pub(crate) first: Seq,
    pub(crate) agent: Option<Box<SubAgent>>,
    pub(crate) of_sub_agent: bool,
    /// The pending calls, each with the time since when it waits.
    pub(crate) waiting: Vec<(String, String)>,
    pub(crate) calls: ModelCalls,
    /// The cost of its model calls, as far as it is known.
    pub(crate) cost: Option<Cost>,
}

impl OpenReply {
    pub(super) fn new(event: &Event<'_>, first: Seq) -> Self {
        Self {
            msg: Msg::reply(&*event.reply_id, ""),
            ids: EventIds::default(),
            first,
            agent: event.agent.clone(),
            of_sub_agent: event.is_from_sub_agent(),
            waiting: Vec::new(),
            calls: ModelCalls::default(),
            cost: None,
        }
    }

    /// The cost of its model calls so far, if it is known.
    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// The state of its model calls.
    pub fn model_calls(&self) -> &ModelCalls {
        &self.calls
    }

    /// The message as folded so far.
    pub fn msg(&self) -> &Msg {
        &self.msg
    }

    /// The seq of its first event.
    pub fn first_seq(&self) -> Seq {
        self.first
    }

    /// Whether a sub-agent writes it.
    pub fn is_of_sub_agent(&self) -> bool {
        self.of_sub_agent
    }

    /// The agent that writes it, from its first event.
    pub fn agent(&self) -> Option<&SubAgent> {
        self.agent.as_deref()
    }

    /// The pending calls, each with the time since when it waits.
    pub fn waiting_calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.waiting.iter().map(|(call, since)| (call.as_str(), since.as_str()))
    }

    /// Its pending calls; `None` if it does not wait.
    pub fn pending_calls(&self) -> Option<PendingCalls> {
        let since = self.waiting.first()?.1.clone();
        let of_state = |state: &ToolCallState| -> Vec<ToolCall> {
            let calls = self.msg.blocks::<ToolCall>();
            calls.filter(|call| call.state == *state).cloned().collect()
        };
        Some(PendingCalls {
            reply_id: self.msg.id().to_owned(),
            agent_path: self.agent.as_ref().and_then(|agent| agent.agent_path.clone()),
            confirm: of_state(&ToolCallState::Asking),
            external: of_state(&ToolCallState::Submitted),
            since,
        })
    }

    /// Updates pending calls and cost after an event.
    pub(super) fn update_waiting(&mut self, event: &Event<'_>) {
        self.calls.observe(event);
        if let Some(cost) = Cost::from_event(event) {
            self.cost = Some(self.cost.unwrap_or_default().plus(cost));
        }
        let waits = |msg: &Msg, id: &str| {
            msg.blocks::<ToolCall>().any(|call| {
                call.id == id
                    && matches!(call.state, ToolCallState::Asking | ToolCallState::Submitted)
            })
        };
        match &event.kind {
            EventKind::RequireUserConfirm(ask) => {
                self.add_waiting(&ask.tool_calls, &event.created_at);
            }
            EventKind::RequireExternalExecution(ask) => {
                self.add_waiting(&ask.tool_calls, &event.created_at);
            }
            event_kinds!(
                ModelCallEnd ToolResultStart ToolResultEnd UserConfirmResult ExternalExecutionResult
            ) => {
                let msg = &self.msg;
                self.waiting.retain(|(id, _)| waits(msg, id));
            }
            event_kinds!(
                ModelCallStart ToolResultTextDelta ToolResultDataDelta
                reply content tool_call notice session
            ) => {}
        }
    }

    fn add_waiting(&mut self, calls: &[ToolCall], since: &str) {
        for call in self.msg.blocks::<ToolCall>() {
            let waits = matches!(call.state, ToolCallState::Asking | ToolCallState::Submitted);
            let asked = calls.iter().any(|asked| asked.id == call.id);
            if waits && asked && self.waiting.iter().all(|(id, _)| *id != call.id) {
                self.waiting.push((call.id.clone(), since.to_owned()));
            }
        }
    }

    /// What the fold needs to continue with the message.
    pub fn cursor(&self) -> FoldCursor {
        self.msg.cursor()
    }
}

/// The pending calls of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCalls {
    /// The id of the reply.
    pub reply_id: String,
    /// The path of the sub-agent, if a sub-agent writes it.
    pub agent_path: Option<String>,
    /// Calls that wait for an approval.
    pub confirm: Vec<ToolCall>,
    /// Calls that the client or a program outside executes.
    pub external: Vec<ToolCall>,
    /// When the first of them began to wait.
    pub since: String,
}
