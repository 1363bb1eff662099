//! A conversation with an agent, in memory: for programs without a server, and for tests.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
//! use turnwire_agent::tool::{ToolError, function};
//! use turnwire_agent::{Agent, Conversation};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Order {
//!     shares: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::AgentError> {
//! let buy = async |Order { shares }| Ok::<_, ToolError>(format!("bought {shares}"));
//! let model = ScriptedModel::new([
//!     vec![ScriptStep::call("c", "buy", r#"{"shares":1000}"#)],
//!     vec![ScriptStep::text("Done.")],
//! ]);
//! let broker = Agent::builder("broker", model)
//!     .tool(function("buy", "Buys shares", buy).requires_approval())
//!     .build();
//!
//! let mut conversation = Conversation::new(broker);
//! conversation.send_text("Buy some shares.").await?;
//! let requests = conversation.approval_requests();
//! let fewer = requests.into_iter().map(|request| request.approve_with_input(r#"{"shares":10}"#));
//! let reply = conversation.decide(fewer).await?;
//! assert_eq!(reply.text("").as_deref(), Some("Done."));
//! # Ok(())
//! # }
//! ```

use crate::agent::Agent;
use crate::replier::{AgentError, Journal, Replier, ReplyRequest, SubAgentReply};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, UserConfirmResult};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{
    ErrorType, Event, FinishedReason, ModelCalls, Msg, PermissionRule, ReplyError, ToolCall,
    ToolCallState, ToolResult,
};

/// A conversation with an agent.
pub struct Conversation {
    agent: Agent,
    log: InMemoryLog,
    /// Hints that arrive between two replies are stored under this id.
    session_id: String,
}

/// Called with each event.
type EventCallback = Box<dyn FnMut(&Event<'static>) + Send>;

#[derive(Default)]
struct InMemoryLog {
    history: Vec<Msg>,
    /// The reply that has not ended, with the progress of its model calls.
    open_reply: Option<(Msg, ModelCalls)>,
    sub_replies: Vec<SubAgentReply>,
    accepted_rules: Vec<PermissionRule>,
    on_event: Option<EventCallback>,
    stop: CancellationToken,
}

/// A tool call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The call, with the rules that the user may accept.
    pub call: ToolCall,
    reply_id: String,
}

/// A decision on an [`ApprovalRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    reply_id: String,
    result: ConfirmResult,
}

impl ApprovalRequest {
    /// Runs the call.
    pub fn approve(self) -> ApprovalDecision {
        let result =
            ConfirmResult { confirmed: true, tool_call: self.call, ..ConfirmResult::default() };
        ApprovalDecision { reply_id: self.reply_id, result }
    }

    /// Refuses the call.
    pub fn deny(self) -> ApprovalDecision {
        let mut decision = self.approve();
        decision.result.confirmed = false;
        decision
    }

    /// Runs the call, and accepts its suggested rules for the rest of this conversation.
    pub fn always_allow(self) -> ApprovalDecision {
        let rules = self.call.suggested_rules.clone();
        let mut decision = self.approve();
        decision.result.rules = Some(rules);
        decision
    }

    /// Runs the call with another input.
    pub fn approve_with_input(mut self, input: impl Into<String>) -> ApprovalDecision {
        self.call.input = input.into();
        self.approve()
    }
}

impl Conversation {
    /// Starts a conversation.
    pub fn new(agent: Agent) -> Self {
        Self { agent, log: InMemoryLog::default(), session_id: SystemStamp.id() }
    }

    /// Continues from these messages.
    #[must_use]
    pub fn with_history(mut self, history: impl IntoIterator<Item = Msg>) -> Self {
        self.log.history = history.into_iter().collect();
        self
    }

    /// Calls this with every event.
    #[must_use]
    pub fn with_event_callback(
        mut self,
        callback: impl FnMut(&Event<'static>) + Send + 'static,
    ) -> Self {
        self.log.on_event = Some(Box::new(callback));
        self
    }

    /// The messages so far, without an open reply.
    pub fn history(&self) -> &[Msg] {
        &self.log.history
    }

    /// Sends a text, and returns the reply: complete, or up to where it waits for a decision or a result. A
    /// reply that still waited ends as interrupted.
    pub async fn send_text(&mut self, text: impl Into<String>) -> Result<Msg, AgentError> {
        self.send(Msg::user("user", text.into())).await
    }

    /// Sends a message, as [`send_text`](Self::send_text) does.
    pub async fn send(&mut self, msg: Msg) -> Result<Msg, AgentError> {
        self.interrupt();
        self.log.history.push(msg.stamped(&SystemStamp));
        self.log.open_reply =
            Some((Msg::reply(SystemStamp.id(), self.agent.name()), ModelCalls::default()));
        self.run_reply(None).await
    }

    /// The calls that wait for an approval.
    pub fn approval_requests(&self) -> Vec<ApprovalRequest> {
        let requests = self.log.open_replies().flat_map(|reply| {
            let asking = |call: &&ToolCall| call.state == ToolCallState::Asking;
            let calls = reply.blocks::<ToolCall>().filter(asking).cloned();
            calls.map(|call| ApprovalRequest { call, reply_id: reply.id().to_owned() })
        });
        requests.collect()
    }

    /// Applies decisions, and continues the reply. It keeps waiting if calls are left.
    pub async fn decide(
        &mut self,
        decisions: impl IntoIterator<Item = ApprovalDecision>,
    ) -> Result<Msg, AgentError> {
        let mut last = None;
        for ApprovalDecision { reply_id, result } in decisions {
            self.log.accepted_rules.extend(result.rules.iter().flatten().cloned());
            let event = Event::new(reply_id, UserConfirmResult { confirm_results: vec![result] });
            last = Some(self.log.append(event)?);
        }
        self.run_reply(last).await
    }

    /// Submits results of calls that the client executes, and continues the reply.
    pub async fn submit_results(&mut self, results: Vec<ToolResult>) -> Result<Msg, AgentError> {
        let event = |result: ToolResult| {
            let waits =
                |call: &ToolCall| call.id == result.id && call.state == ToolCallState::Submitted;
            let mut replies = self.log.open_replies();
            let reply = replies.find(|reply| reply.blocks::<ToolCall>().any(waits));
            let reply_id = reply.ok_or_else(nothing_pending)?.id().to_owned();
            let execution_results = vec![result];
            Ok(Event::new(reply_id, ExternalExecutionResult { execution_results }))
        };
        let events: Vec<_> = results.into_iter().map(event).collect::<Result<_, AgentError>>()?;
        let mut last = None;
        for event in events {
            last = Some(self.log.append(event)?);
        }
        self.run_reply(last).await
    }

    /// Ends an open reply as interrupted.
    pub fn interrupt(&mut self) {
        self.log.close_open_replies(&FinishedReason::Interrupted, None);
    }

    /// Cancel this token to stop the running reply.
    pub fn stop_token(&self) -> CancellationToken {
        self.log.stop.clone()
    }

    async fn run_reply(&mut self, input: Option<Event<'static>>) -> Result<Msg, AgentError> {
        let Some((reply, calls)) = self.log.open_reply.clone() else {
            return Err(nothing_pending());
        };
        if self.log.stop.is_cancelled() {
            self.log.stop = CancellationToken::new();
        }
        let (session_id, reply_id) = (self.session_id.clone(), reply.id().to_owned());
        let request = ReplyRequest {
            partial: (calls != ModelCalls::default()).then_some(reply),
            model_calls: calls,
            sub_replies: self.log.sub_replies.clone(),
            accepted_rules: self.log.accepted_rules.clone(),
            input,
            stop: self.log.stop.clone(),
            ..ReplyRequest::new(session_id, reply_id, self.log.history.clone())
        };
        let done = self.agent.run(request, &mut self.log).await;
        match done {
            Ok(()) => {}
            Err(AgentError::Stopped) => {
                self.log.close_open_replies(&FinishedReason::Interrupted, None);
            }
            Err(AgentError::Failed(why) | AgentError::LogLost(why)) => {
                let error = ReplyError::new(ErrorType::Internal, why.clone());
                self.log.close_open_replies(&FinishedReason::Error, Some(&error));
                return Err(AgentError::Failed(why));
            }
        }
        let open = self.log.open_reply.as_ref().map(|(reply, _)| reply);
        open.or(self.log.history.last()).cloned().ok_or_else(nothing_pending)
    }
}

fn nothing_pending() -> AgentError {
    AgentError::Failed("no open reply waits for this".to_owned())
}

impl InMemoryLog {
    /// The open replies: the agent's own, and those of its sub-agents.
    fn open_replies(&self) -> impl Iterator<Item = &Msg> {
        let own = self.open_reply.iter().map(|(reply, _)| reply);
        own.chain(self.sub_replies.iter().map(|sub| &sub.msg))
    }

    /// Appends an event to the log. Returns it as it was logged.
    fn append(&mut self, event: Event<'static>) -> Result<Event<'static>, AgentError> {
        let mut event = event.stamped(&SystemStamp);
        // Answers to a sub-agent, and the end of its reply, carry its name as its other events do.
        if let Some(sub) = self.sub_replies.iter().find(|sub| event.reply_id == sub.msg.id()) {
            event.agent = Some(Box::new(sub.agent.clone()));
        }
        let wrong = |error: turnwire_core::Error| AgentError::Failed(error.to_string());
        if let Some(callback) = &mut self.on_event {
            callback(&event);
        }
        match &mut self.open_reply {
            Some((reply, calls)) if event.reply_id == reply.id() => {
                reply.append_event(&event).map_err(wrong)?;
                calls.observe(&event);
                if reply.finished_at().is_some()
                    && let Some((reply, _)) = self.open_reply.take()
                {
                    self.history.push(reply);
                }
            }
            _ => {
                let known =
                    self.sub_replies.iter_mut().position(|sub| event.reply_id == sub.msg.id());
                let at = known.or_else(|| {
                    let agent = event.agent.as_deref().filter(|_| event.is_from_sub_agent())?;
                    let msg = Msg::reply(&*event.reply_id, "");
                    let calls = ModelCalls::default();
                    self.sub_replies.push(SubAgentReply {
                        msg,
                        model_calls: calls,
                        agent: agent.clone(),
                    });
                    Some(self.sub_replies.len() - 1)
                });
                if let Some(sub) = at.and_then(|at| self.sub_replies.get_mut(at)) {
                    sub.msg.append_event(&event).map_err(wrong)?;
                    sub.model_calls.observe(&event);
                }
                self.sub_replies.retain(|sub| sub.msg.finished_at().is_none());
            }
        }
        Ok(event)
    }

    /// Ends all open replies.
    fn close_open_replies(&mut self, reason: &FinishedReason, error: Option<&ReplyError>) {
        let subs = std::mem::take(&mut self.sub_replies);
        let own = self.open_reply.iter().map(|(reply, calls)| (reply, calls));
        let replies = subs.iter().map(|sub| (&sub.msg, &sub.model_calls)).chain(own);
        let close =
            |(reply, calls)| crate::close_reply(reply, calls, reason.clone(), error.cloned());
        let events: Vec<_> = replies.flat_map(close).collect();
        self.sub_replies = subs;
        for event in events {
            // The events that close a reply always fit it.
            let _ = self.append(event);
        }
    }
}

#[async_trait]
impl Journal for InMemoryLog {
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        for event in events {
            self.append(event)?;
        }
        Ok(())
    }
}
