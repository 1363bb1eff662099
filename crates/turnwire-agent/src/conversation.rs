//! A conversation with an agent, in memory: for programs that have no server, and for tests.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use turnwire_agent::model::script::{Line, Script};
//! use turnwire_agent::tool::{ToolError, function};
//! use turnwire_agent::{Agent, Talk};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Order {
//!     shares: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::Halt> {
//! let buy = async |Order { shares }| Ok::<_, ToolError>(format!("bought {shares}"));
//! let friday = Agent::builder("friday")
//!     .model(Script::new([
//!         vec![Line::call("c", "buy", r#"{"shares":1000}"#)],
//!         vec![Line::text("Done.")],
//!     ]))
//!     .tool(function("buy", "Buys shares", buy).asks())
//!     .build();
//!
//! let mut talk = Talk::new(friday);
//! talk.say("Buy some shares.").await?;
//! let less = talk.questions().into_iter().map(|question| question.edited(r#"{"shares":10}"#));
//! let reply = talk.answer(less.collect::<Vec<_>>()).await?;
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
    /// The session that it is, for hints that come late.
    session_id: String,
}

/// Whoever wants to see events as they come.
type EventCallback = Box<dyn FnMut(&Event<'static>) + Send>;

#[derive(Default)]
struct InMemoryLog {
    history: Vec<Msg>,
    /// The reply that has not ended.
    open_reply: Option<(Msg, ModelCalls)>,
    sub_replies: Vec<SubAgentReply>,
    accepted_rules: Vec<PermissionRule>,
    on_event: Option<EventCallback>,
    stop: CancellationToken,
}

/// A call that waits for a person's yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The call, with the rules that the person may accept.
    pub call: ToolCall,
    reply_id: String,
}

/// What a person said to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    reply_id: String,
    result: ConfirmResult,
}

impl ApprovalRequest {
    /// Yes.
    pub fn approve(self) -> ApprovalDecision {
        let result =
            ConfirmResult { confirmed: true, tool_call: self.call, ..ConfirmResult::default() };
        ApprovalDecision { reply_id: self.reply_id, result }
    }

    /// No.
    pub fn deny(self) -> ApprovalDecision {
        let mut reaction = self.approve();
        reaction.result.confirmed = false;
        reaction
    }

    /// Yes, and always from now on in this conversation.
    pub fn always_allow(self) -> ApprovalDecision {
        let rules = self.call.suggested_rules.clone();
        let mut reaction = self.approve();
        reaction.result.rules = Some(rules);
        reaction
    }

    /// Yes, with another input.
    pub fn approve_with_input(mut self, input: impl Into<String>) -> ApprovalDecision {
        self.call.input = input.into();
        self.approve()
    }
}

impl Conversation {
    /// Begins a conversation.
    pub fn new(agent: Agent) -> Self {
        Self { agent, log: InMemoryLog::default(), session_id: SystemStamp.id() }
    }

    /// Goes on with one.
    #[must_use]
    pub fn with_history(mut self, history: impl IntoIterator<Item = Msg>) -> Self {
        self.log.history = history.into_iter().collect();
        self
    }

    /// Shows every event as it comes.
    #[must_use]
    pub fn with_event_callback(
        mut self,
        watcher: impl FnMut(&Event<'static>) + Send + 'static,
    ) -> Self {
        self.log.on_event = Some(Box::new(watcher));
        self
    }

    /// What was said so far, without the reply that has not ended.
    pub fn history(&self) -> &[Msg] {
        &self.log.history
    }

    /// Says something, and returns the reply: to its end, or as far as it goes without somebody's
    /// answer. A reply that still waited for one ends here.
    pub async fn send_text(&mut self, text: impl Into<String>) -> Result<Msg, AgentError> {
        self.send(Msg::user("user", text.into())).await
    }

    /// The same with a whole message.
    pub async fn send(&mut self, msg: Msg) -> Result<Msg, AgentError> {
        self.interrupt();
        self.log.history.push(msg.stamped(&SystemStamp));
        self.log.open_reply =
            Some((Msg::reply(SystemStamp.id(), self.agent.name()), ModelCalls::default()));
        self.run_reply(None).await
    }

    /// What waits for a person's yes.
    pub fn approval_requests(&self) -> Vec<ApprovalRequest> {
        let questions = self.log.open_replies().flat_map(|reply| {
            let asking = |call: &&ToolCall| call.state == ToolCallState::Asking;
            let calls = reply.blocks::<ToolCall>().filter(asking).cloned();
            calls.map(|call| ApprovalRequest { call, reply_id: reply.id().to_owned() })
        });
        questions.collect()
    }

    /// Answers questions, and goes on with the reply. It waits on where some are left.
    pub async fn decide(
        &mut self,
        reactions: impl IntoIterator<Item = ApprovalDecision>,
    ) -> Result<Msg, AgentError> {
        let mut last = None;
        for ApprovalDecision { reply_id, result } in reactions {
            self.log.accepted_rules.extend(result.rules.iter().flatten().cloned());
            let event = Event::new(reply_id, UserConfirmResult { confirm_results: vec![result] });
            last = Some(self.log.append(event)?);
        }
        self.run_reply(last).await
    }

    /// Hands in the results of calls that are executed here, and goes on with the reply.
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

    /// Ends a reply that waits for somebody: what it asked for is interrupted.
    pub fn interrupt(&mut self) {
        self.log.close_open_replies(&FinishedReason::Interrupted, None);
    }

    /// Stops the reply when it is cancelled.
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
        let turn = ReplyRequest {
            session_id: self.session_id.clone(),
            reply_id: reply.id().to_owned(),
            history: self.log.history.clone(),
            partial: (calls != ModelCalls::default()).then_some(reply),
            model_calls: calls,
            sub_replies: self.log.sub_replies.clone(),
            accepted_rules: self.log.accepted_rules.clone(),
            input,
            stop: self.log.stop.clone(),
        };
        let done = Replier::run(&self.agent, turn, &mut self.log).await;
        match done {
            Ok(()) => {}
            Err(AgentError::Stopped) => {
                self.log.close_open_replies(&FinishedReason::Interrupted, None);
            }
            Err(AgentError::Failed(why) | AgentError::LogLost(why)) => {
                let error = ReplyError {
                    r#type: ErrorType::Internal,
                    message: why.clone(),
                    ..ReplyError::default()
                };
                self.log.close_open_replies(&FinishedReason::Error, Some(&error));
                return Err(AgentError::Failed(why));
            }
        }
        let open = self.log.open_reply.as_ref().map(|(reply, _)| reply);
        open.or(self.log.history.last()).cloned().ok_or_else(nothing_pending)
    }
}

fn nothing_pending() -> AgentError {
    AgentError::Failed("there is no reply that waits for this".to_owned())
}

impl InMemoryLog {
    /// The replies that have not ended: the one that was asked for, and those of agents below it.
    fn open_replies(&self) -> impl Iterator<Item = &Msg> {
        let own = self.open_reply.iter().map(|(reply, _)| reply);
        own.chain(self.sub_replies.iter().map(|sub| &sub.msg))
    }

    /// Takes an event in, and says what became of it.
    fn append(&mut self, event: Event<'static>) -> Result<Event<'static>, AgentError> {
        let mut event = event.stamped(&SystemStamp);
        // An answer to a sub-agent, or the end of its reply, says whose it is, as its other events do.
        if let Some(sub) = self.sub_replies.iter().find(|sub| event.reply_id == sub.msg.id()) {
            event.agent = Some(Box::new(sub.agent.clone()));
        }
        let wrong = |error: turnwire_core::Error| AgentError::Failed(error.to_string());
        if let Some(watcher) = &mut self.on_event {
            watcher(&event);
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

    /// Closes what is open.
    fn close_open_replies(&mut self, reason: &FinishedReason, error: Option<&ReplyError>) {
        let subs = std::mem::take(&mut self.sub_replies);
        let own = self.open_reply.iter().map(|(reply, calls)| (reply, calls));
        let replies = subs.iter().map(|sub| (&sub.msg, &sub.model_calls)).chain(own);
        let close =
            |(reply, calls)| crate::close_reply(reply, calls, reason.clone(), error.cloned());
        let events: Vec<_> = replies.flat_map(close).collect();
        self.sub_replies = subs;
        for event in events {
            // What closes a reply fits it.
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
