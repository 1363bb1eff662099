//! A log in memory, and a caller of the agent.

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnwire_agent::{AgentError, Journal, Replier, ReplyRequest, SubAgentReply, close_reply};
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, SubAgent, UserConfirmResult};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{
    Event, EventKind, FinishedReason, ModelCalls, Msg, PermissionRule, ToolCall, ToolCallState,
    ToolResult,
};

/// A reply in a log, and the history before it.
pub struct Harness {
    pub history: Vec<Msg>,
    pub events: Vec<Event<'static>>,
    pub rules: Vec<PermissionRule>,
    /// The number of commits after which the process crashes.
    pub crash_after_commits: Option<usize>,
    /// The number of events after which the reply is stopped.
    pub stop_after_events: Option<usize>,
    /// Stops the reply.
    pub stop: CancellationToken,
    commits: usize,
}

/// A reply in the log: the agent's, or a sub-agent's.
pub struct LoggedReply {
    pub msg: Msg,
    pub calls: ModelCalls,
    pub agent: Option<SubAgent>,
}

pub const REPLY: &str = "reply";

impl Harness {
    pub fn new(question: &str) -> Self {
        let history = vec![Msg::user("ann", question)];
        Self {
            history,
            events: Vec::new(),
            rules: Vec::new(),
            crash_after_commits: None,
            stop_after_events: None,
            stop: CancellationToken::new(),
            commits: 0,
        }
    }

    /// Closes a stopped reply, as the caller of an agent does.
    pub fn close(&mut self) {
        for event in close_reply(&self.reply(), &self.calls(), FinishedReason::Interrupted, None) {
            self.push(event);
        }
    }

    /// Folds all replies of the log strictly, in the order of their first events. Checks that their events name
    /// their agent.
    pub fn replies(&self) -> Vec<LoggedReply> {
        let mut replies: Vec<LoggedReply> = Vec::new();
        for event in &self.events {
            let at = replies.iter().position(|reply| reply.msg.id() == event.reply_id);
            let at = at.unwrap_or_else(|| {
                replies.push(LoggedReply {
                    msg: Msg::reply(&*event.reply_id, ""),
                    calls: ModelCalls::default(),
                    agent: event.agent.as_deref().cloned(),
                });
                replies.len() - 1
            });
            let reply = replies.get_mut(at).unwrap();
            let outcome = reply.msg.append_event(event);
            assert!(outcome.is_ok(), "{} does not fit: {outcome:?}", event.to_json());
            assert_eq!(event.agent.as_deref(), reply.agent.as_ref(), "{}", event.to_json());
            assert_eq!(event.is_from_sub_agent(), event.reply_id != REPLY, "{}", event.to_json());
            reply.calls.observe(event);
        }
        replies
    }

    /// The reply as the log has it.
    pub fn reply(&self) -> Msg {
        let mut replies = self.replies().into_iter();
        let own = replies.find(|reply| reply.msg.id() == REPLY);
        own.map_or_else(|| Msg::reply(REPLY, ""), |own| own.msg)
    }

    pub fn calls(&self) -> ModelCalls {
        let mut replies = self.replies().into_iter();
        replies.find(|reply| reply.msg.id() == REPLY).map(|own| own.calls).unwrap_or_default()
    }

    /// The replies of sub-agents that are open.
    fn open_sub_replies(&self) -> Vec<SubAgentReply> {
        let open = |reply: &LoggedReply| reply.msg.finished_at().is_none();
        let replies = self.replies().into_iter().filter(open);
        replies
            .filter_map(|LoggedReply { msg, calls, agent }| {
                Some(SubAgentReply { msg, model_calls: calls, agent: agent? })
            })
            .collect()
    }

    /// Closes all open replies, as a server does when a reply is stopped.
    pub fn close_all(&mut self) {
        let open = |reply: &LoggedReply| reply.msg.finished_at().is_none();
        for LoggedReply { msg, calls, agent } in self.replies().into_iter().filter(open).rev() {
            for event in close_reply(&msg, &calls, FinishedReason::Interrupted, None) {
                self.push(Event { agent: agent.clone().map(Box::new), ..event });
            }
        }
    }

    /// Runs the agent until the reply ends or waits, or the process crashes.
    pub async fn run(&mut self, agent: &dyn Replier) -> Result<(), AgentError> {
        let reply = self.reply();
        let request = ReplyRequest {
            partial: (!self.events.is_empty()).then_some(reply),
            model_calls: self.calls(),
            sub_replies: self.open_sub_replies(),
            accepted_rules: self.rules.clone(),
            stop: self.stop.clone(),
            ..ReplyRequest::new("s", REPLY, self.history.clone())
        };
        agent.run(request, self).await
    }

    pub fn types(&self) -> Vec<String> {
        self.events.iter().map(|event| event.kind.type_name().to_owned()).collect()
    }

    /// The calls of all replies that are in a state.
    fn calls_in_state(&self, state: &ToolCallState) -> Vec<(LoggedReply, Vec<ToolCall>)> {
        let replies = self.replies().into_iter();
        let calls = |reply: &LoggedReply| -> Vec<ToolCall> {
            let calls = reply.msg.blocks::<ToolCall>();
            calls.filter(|call| call.state == *state).cloned().collect()
        };
        let with = replies.map(|reply| {
            let calls = calls(&reply);
            (reply, calls)
        });
        with.filter(|(_, calls)| !calls.is_empty()).collect()
    }

    /// Decides all pending calls. Returns whether there were any.
    pub fn confirm_all(&mut self, mut decide: impl FnMut(ToolCall) -> ConfirmResult) -> bool {
        let asking = self.calls_in_state(&ToolCallState::Asking);
        let any = !asking.is_empty();
        for (reply, calls) in asking {
            let confirm_results: Vec<ConfirmResult> = calls.into_iter().map(&mut decide).collect();
            let rules = confirm_results.iter().flat_map(|result| result.rules.iter().flatten());
            self.rules.extend(rules.cloned());
            self.push_to(&reply, UserConfirmResult { confirm_results });
        }
        any
    }

    /// Returns results for all client-side calls. Returns whether there were any.
    pub fn execute_client_calls(&mut self, give: impl Fn(&ToolCall) -> ToolResult) -> bool {
        let handed = self.calls_in_state(&ToolCallState::Submitted);
        let any = !handed.is_empty();
        for (reply, calls) in handed {
            let execution_results = calls.iter().map(&give).collect();
            self.push_to(&reply, ExternalExecutionResult { execution_results });
        }
        any
    }

    fn push_to(&mut self, reply: &LoggedReply, kind: impl Into<EventKind<'static>>) {
        let mut event = Event::new(reply.msg.id().to_owned(), kind);
        event.agent = reply.agent.clone().map(Box::new);
        self.push(event);
    }

    fn push(&mut self, event: Event<'static>) {
        self.events.push(event.stamped(&SystemStamp));
    }
}

#[async_trait]
impl Journal for Harness {
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        if self.stop.is_cancelled() {
            return Err(AgentError::Stopped);
        }
        if self.crash_after_commits == Some(self.commits) {
            return Err(AgentError::LogLost("the process died".to_owned()));
        }
        self.commits += 1;
        for event in events {
            self.push(event);
        }
        // Every event folds strictly.
        self.replies();
        if self.stop_after_events.is_some_and(|most| self.events.len() >= most) {
            self.stop.cancel();
        }
        Ok(())
    }
}

pub fn approve(tool_call: ToolCall) -> ConfirmResult {
    ConfirmResult { confirmed: true, tool_call, rules: None, ..ConfirmResult::default() }
}

pub fn deny(tool_call: ToolCall) -> ConfirmResult {
    ConfirmResult { confirmed: false, ..approve(tool_call) }
}
