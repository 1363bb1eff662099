//! The journal of a sub-agent: it commits through its parent.

use crate::close_reply::close_reply;
use crate::hints::HintStore;
use crate::replier::{AgentError, Journal, ReplyRequest, SubAgentReply};
use crate::tool::{ToolContext, ToolError, ToolOutput, ToolUpdate, UpdateContent};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::oneshot;
use turnwire_core::event::SubAgent;
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{
    ContentBlock, ErrorType, Event, EventKind, FinishedReason, ModelCalls, Msg, Part, ReplyError,
    TextBlock, ToolCall, ToolCallState, content_blocks,
};

/// The journal of one sub-agent.
pub(super) struct SubAgentJournal {
    context: ToolContext,
    /// The name of the sub-agent.
    name: String,
    /// The identity that its events carry.
    agent: SubAgent,
    /// Its reply so far.
    reply: Msg,
    has_begun: bool,
    model_calls: ModelCalls,
    /// The open replies of its own sub-agents.
    sub_replies: Vec<SubAgentReply>,
    /// The end of its reply, held back until there is a result.
    final_events: Vec<Event<'static>>,
}

impl SubAgentJournal {
    /// Continues from the log.
    pub(super) fn new(name: &str, call_id: String, out: ToolContext) -> Self {
        let above = out.parent.clone();
        let agent = SubAgent {
            agent_path: Some(format!("{}/{name}", above.name)),
            parent_tool_call_id: Some(call_id),
        };
        let id = &out.sub_reply_id;
        let known = above.sub_replies.iter().find(|sub| sub.msg.id() == id);
        // Replies of its own sub-agents have longer ids with the same prefix.
        let is_below = |sub: &&SubAgentReply| {
            sub.msg.id().strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        Self {
            reply: known.map_or_else(|| Msg::reply(&**id, name), |known| known.msg.clone()),
            has_begun: known.is_some(),
            model_calls: known.map(|known| known.model_calls.clone()).unwrap_or_default(),
            sub_replies: above.sub_replies.iter().filter(is_below).cloned().collect(),
            final_events: Vec::new(),
            name: name.to_owned(),
            agent,
            context: out,
        }
    }

    /// The request for the sub-agent. It sees its task, and nothing of the parent's conversation.
    pub(super) fn request(&self, task: String) -> ReplyRequest {
        let above = &self.context.parent;
        let id = self.reply.id();
        let is_for_it = |input: &&Event<'_>| input.reply_id.starts_with(id);
        // Each agent names its sub-agents relative to itself.
        let subs = self.sub_replies.iter().cloned().map(|mut sub| {
            let path = sub.agent.agent_path.take();
            sub.agent.agent_path = path
                .map(|path| path.split_once('/').map_or(path.clone(), |(_, own)| own.to_owned()));
            sub
        });
        let history = vec![Msg::user(above.name.clone(), task)];
        ReplyRequest {
            partial: self.has_begun.then(|| self.reply.clone()),
            model_calls: self.model_calls.clone(),
            sub_replies: subs.collect(),
            accepted_rules: above.accepted_rules.clone(),
            input: above.input.as_ref().filter(is_for_it).cloned(),
            stop: self.context.stop.clone(),
            ..ReplyRequest::new(above.session_id.clone(), id, history)
        }
    }

    /// The output for the parent. Closes what is open and does not wait.
    pub(super) async fn finish(
        mut self,
        outcome: Result<(), AgentError>,
    ) -> Result<ToolOutput, ToolError> {
        if !self.final_events.is_empty() {
            let last = std::mem::take(&mut self.final_events);
            self.context.send(UpdateContent::FinalEvents(last)).await;
            return self.tool_output();
        }
        let why = match outcome {
            Ok(()) if self.is_waiting() => return Ok(ToolOutput::Waiting),
            Ok(()) => "it returned without ending its reply".to_owned(),
            Err(AgentError::Failed(why)) => why,
            // The parent gets the same error.
            Err(error @ (AgentError::Stopped | AgentError::LogLost(_))) => error.to_string(),
        };
        let closing = self.closing_events(&why);
        self.context.send(UpdateContent::FinalEvents(closing)).await;
        Err(ToolError::new(format!("{} could not finish: {why}.", self.name)))
    }

    /// Whether it waits for a user or the client, itself or through its own sub-agents.
    fn is_waiting(&self) -> bool {
        let is_open = |call: &ToolCall| {
            matches!(call.state, ToolCallState::Asking | ToolCallState::Submitted)
        };
        let mut replies = self.sub_replies.iter().map(|sub| &sub.msg).chain([&self.reply]);
        replies.any(|msg| msg.blocks::<ToolCall>().any(is_open))
    }

    /// The events that end this reply and those of its own sub-agents.
    fn closing_events(&self, why: &str) -> Vec<Event<'static>> {
        let mut events = Vec::new();
        for sub in self.sub_replies.iter().rev() {
            let closing =
                close_reply(&sub.msg, &sub.model_calls, FinishedReason::Interrupted, None);
            events.extend(closing.into_iter().map(|event| with_agent(event, &sub.agent)));
        }
        if self.has_begun {
            let error = ReplyError::new(ErrorType::Internal, format!("the agent failed: {why}"));
            let closing =
                close_reply(&self.reply, &self.model_calls, FinishedReason::Error, Some(error));
            events.extend(closing.into_iter().map(|event| with_agent(event, &self.agent)));
        }
        events
    }

    /// The output of a finished reply.
    fn tool_output(&self) -> Result<ToolOutput, ToolError> {
        let name = &self.name;
        match self.reply.finished_reason() {
            Some(FinishedReason::Error) => {
                let why = self.reply.error().map_or("it failed", |error| &error.message);
                Err(ToolError::new(format!("{name} could not finish: {why}.")))
            }
            Some(FinishedReason::Interrupted) => {
                Err(ToolError::new(format!("{name} was interrupted.")))
            }
            _ => Ok(final_output(&self.reply)),
        }
    }

    /// Adds the identity of the sub-agent to an event.
    fn with_agent_path(&self, mut event: Event<'static>) -> Result<Event<'static>, AgentError> {
        let agent = match event.agent.take() {
            None if event.kind.is_part_of_reply() && event.reply_id != self.reply.id() => {
                let (kind, other, own) = (event.kind.type_name(), &event.reply_id, self.reply.id());
                return Err(AgentError::Failed(format!(
                    "{kind} names the reply {other}, and this agent writes {own}"
                )));
            }
            None => self.agent.clone(),
            // Its own sub-agents name themselves relative to this agent.
            Some(below) => {
                let own = self.agent.agent_path.as_deref().unwrap_or_default();
                let path = match below.agent_path.as_deref().and_then(|path| path.split_once('/')) {
                    Some((_, rest)) => format!("{own}/{rest}"),
                    None => own.to_owned(),
                };
                SubAgent { agent_path: Some(path), ..*below }
            }
        };
        Ok(with_agent(event, &agent))
    }

    /// Applies events to the replies.
    fn apply(&mut self, events: &[Event<'static>]) {
        for event in events.iter().filter(|event| event.kind.is_part_of_reply()) {
            if event.reply_id == self.reply.id() {
                self.has_begun = true;
                self.reply.append_event_tolerant(event);
                self.model_calls.observe(event);
                continue;
            }
            let at = self.sub_replies.iter().position(|sub| sub.msg.id() == event.reply_id);
            let at = at.unwrap_or_else(|| {
                self.sub_replies.push(SubAgentReply {
                    msg: Msg::reply(&*event.reply_id, ""),
                    model_calls: ModelCalls::default(),
                    agent: event.agent.as_deref().cloned().unwrap_or_default(),
                });
                self.sub_replies.len() - 1
            });
            let Some(sub) = self.sub_replies.get_mut(at) else { continue };
            sub.msg.append_event_tolerant(event);
            sub.model_calls.observe(event);
            if sub.msg.finished_at().is_some() {
                self.sub_replies.remove(at);
            }
        }
    }
}

#[async_trait]
impl Journal for SubAgentJournal {
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        if events.is_empty() {
            return Ok(());
        }
        if !self.final_events.is_empty() {
            return Err(AgentError::Failed("the reply has ended".to_owned()));
        }
        let events = events.into_iter().map(|event| self.with_agent_path(event));
        let events = events.collect::<Result<Vec<_>, _>>()?;
        let is_end = |event: &Event<'_>| {
            matches!(event.kind, EventKind::ReplyEnd(_)) && event.reply_id == self.reply.id()
        };
        if events.iter().any(is_end) {
            self.apply(&events);
            self.final_events = events;
            return Ok(());
        }
        // From here on they will be committed, even if this future is dropped.
        let place =
            self.context.sender.clone().reserve_owned().await.map_err(|_| AgentError::Stopped)?;
        self.apply(&events);
        let (durable, is_durable) = oneshot::channel();
        let call_id = self.context.call_id.clone();
        place.send(ToolUpdate { call_id, content: UpdateContent::Events(events, durable) });
        is_durable.await.map_err(|_| AgentError::Stopped)
    }

    fn hints(&self) -> Option<Arc<dyn HintStore>> {
        self.context.parent.hints.clone()
    }

    fn sub_agent_depth(&self) -> u32 {
        self.context.parent.depth + 1
    }
}

/// Adds an identity to an event, and stamps it here: what is folded is what is logged.
fn with_agent(event: Event<'static>, agent: &SubAgent) -> Event<'static> {
    Event { agent: Some(Box::new(agent.clone())), ..event }.stamped(&SystemStamp)
}

/// The final output: the content after the last call, or else all content.
fn final_output(reply: &Msg) -> ToolOutput {
    let is_call = |block: &ContentBlock| {
        matches!(block, ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_))
    };
    let content = reply.content();
    let from = content.iter().rposition(is_call).map_or(0, |at| at + 1);
    let output = match ToolOutput::from_parts(result_parts(content.get(from..).unwrap_or_default()))
    {
        ToolOutput::Empty => ToolOutput::from_parts(result_parts(content)),
        output @ (ToolOutput::Text(_)
        | ToolOutput::Parts(_)
        | ToolOutput::Background(_)
        | ToolOutput::Waiting) => output,
    };
    match (output, reply.structured_output()) {
        (ToolOutput::Empty, Some(output)) => ToolOutput::Text(output.text().to_owned()),
        (output, _) => output,
    }
}

fn result_parts(blocks: &[ContentBlock]) -> impl Iterator<Item = Part> {
    blocks.iter().filter_map(|block| match block {
        ContentBlock::Text(block) => Some(Part::Text(TextBlock::new(block.text.clone()))),
        ContentBlock::Data(block) => Some(Part::Data(block.clone())),
        content_blocks!(Thinking Hint ToolCall ToolResult Other) => None,
    })
}
