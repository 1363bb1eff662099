//! The agent loop: executes the steps of [`plan`](crate::plan), and commits before it acts.
//! [`Agent`](crate::Agent) runs it.

mod call_groups;
mod compact_history;
mod custom_calls;
mod model_call;
mod tool_calls;

pub(crate) use compact_history::summarize_conversation;

use crate::client_context::ClientContext;
use crate::config::LoopConfig;
use crate::hints::{HintSender, HintStore, InMemoryHints};
use crate::middleware::{EventFilter, ReplyContext, WrappedTool};
use crate::plan::{AnswerCheck, ReplyState, Step, next_step};
use crate::replier::{AgentError, Journal, ReplyRequest};
use crate::schema::AnswerError;
use crate::sent_history::SentHistory;
use crate::structured::{self, AnswerSchema};
use crate::tool::{Tool, ToolSpec};
use std::sync::Arc;
use turnwire_core::event::{ExceedMaxIters, Hint, ModelCallEnd, ReplyEnd, ReplyStart, RequestStop};
use turnwire_core::{
    ErrorType, Event, EventKind, FinishedReason, HintBlock, Json, ModelCalls, Msg, Payload,
    ReplyError, ToolCall,
};

/// The reason of a stop by middleware, as the Java package names it.
const STOP_REASON: &str = "MIDDLEWARE_STOP_REQUESTED";

/// One run of an agent: continues a reply until it ends or waits.
pub(crate) struct AgentLoop<'r> {
    config: &'r LoopConfig,
    request: &'r ReplyRequest,
    journal: &'r mut dyn Journal,
    /// The reply, as far as it is committed.
    reply: Msg,
    model_calls: ModelCalls,
    /// What the client sent with its message, or with its last tool results.
    client: ClientContext,
    /// How many blocks of the reply came before it.
    blocks_before_client: usize,
    /// What the client's history has beside what the log keeps of it, and how many blocks of the reply came before it.
    sent: (SentHistory, usize),
    /// The client's tools that the model can call.
    client_tools: Vec<ToolSpec>,
    /// The schema that the answer must match, until it is compiled.
    uncompiled_schema: Option<Json>,
    /// The compiled schema that the answer must match, or why it is invalid.
    answer_schema: Result<Option<Arc<AnswerSchema>>, String>,
    /// The result of checking the answer. Reset by every new event.
    checked_answer: Option<Result<Json, AnswerError>>,
    hints: Arc<dyn HintStore>,
    context: ReplyContext,
    event_filter: EventFilter,
    /// Whether the last model call produced nothing.
    is_model_silent: bool,
    /// Whether there are hints that no model call has seen.
    has_unread_hints: bool,
}

/// Whether the loop continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    /// The reply waits for a user or for the client.
    Wait,
}

impl<'r> AgentLoop<'r> {
    pub(crate) fn new(
        config: &'r LoopConfig,
        request: &'r ReplyRequest,
        journal: &'r mut dyn Journal,
    ) -> Self {
        let reply = request
            .partial
            .clone()
            .unwrap_or_else(|| Msg::reply(&*request.reply_id, &*config.name));
        let (client, blocks_before_client) =
            ClientContext::in_force(&request.history, request.partial.as_ref());
        let schema = config.output_schema(&client);
        let hints = match journal.hints() {
            Some(hints) => hints,
            // Without a session there is no next reply that could read a late hint.
            None if request.session_id.is_empty() => Arc::new(InMemoryHints::default()),
            None => config.hints.clone(),
        };
        let stop = request.stop.clone();
        Self {
            config,
            request,
            journal,
            reply,
            model_calls: request.model_calls.clone(),
            client_tools: config.client_specs(&client),
            client,
            blocks_before_client,
            sent: SentHistory::in_force(&request.history, request.partial.as_ref()),
            uncompiled_schema: schema,
            answer_schema: Ok(None),
            checked_answer: None,
            hints,
            context: ReplyContext::new(&config.name, &request.session_id, &request.reply_id, stop),
            event_filter: EventFilter::default(),
            is_model_silent: false,
            has_unread_hints: false,
        }
    }

    /// Requires an answer that matches this schema, instead of any other schema.
    pub(crate) fn set_answer_schema(&mut self, shape: Arc<AnswerSchema>) {
        self.uncompiled_schema = None;
        self.client.remove_response_format();
        self.answer_schema = Ok(Some(shape));
    }

    /// Runs until the reply ends or waits.
    pub(crate) async fn run(&mut self) -> Result<(), AgentError> {
        match (self.run_steps().await, self.context.stop_reason()) {
            (Err(AgentError::Stopped), Some(why)) => self.stop_reply(why).await,
            (done, _) => done,
        }
    }

    async fn run_steps(&mut self) -> Result<(), AgentError> {
        if self.request.partial.is_none() && self.model_calls == ModelCalls::default() {
            let session_id = self.request.session_id.clone();
            let start =
                ReplyStart { session_id, name: self.config.name.clone(), ..ReplyStart::default() };
            self.commit(vec![self.event(start)]).await?;
        }
        if let Some(schema) = self.uncompiled_schema.take() {
            let shape = AnswerSchema::compile(&schema).await;
            let shape = shape.map_err(|why| format!("invalid output schema: {why}"));
            self.answer_schema = shape.map(|shape| Some(Arc::new(shape)));
        }
        loop {
            if self.context.stop_reason().is_some() {
                return Err(AgentError::Stopped);
            }
            if self.model_calls.open_blocks.is_none() && self.reply.finished_at().is_none() {
                self.load_updates().await?;
                self.add_pending_hints().await?;
            }
            let flow = match self.next_step() {
                Step::DiscardModelCall(blocks) => self.discard_model_call(blocks).await?,
                Step::CallModel(_) | Step::CheckAnswer if self.answer_schema.is_err() => {
                    return self.fail_invalid_schema().await;
                }
                Step::CallModel(tools) => self.call_model(tools).await?,
                Step::HandleCalls(todos) => self.handle_calls(todos).await?,
                Step::CheckAnswer => {
                    self.checked_answer = self.check_answer().await;
                    Flow::Continue
                }
                Step::AnswerTooExpensive(why) => {
                    return self.fail_reply(ErrorType::InvalidRequest, why).await;
                }
                Step::CorrectAnswer(why) => self.request_correction(&why).await?,
                Step::InvalidAnswer(why) => {
                    let why = format!("the model's answer does not match the schema: {why}");
                    return self.fail_reply(ErrorType::Upstream, why).await;
                }
                Step::Wait => Flow::Wait,
                Step::EndReply(reason) => {
                    if self.end_reply(reason).await? {
                        return Ok(());
                    }
                    self.load_updates().await?;
                    Flow::Continue
                }
                Step::Done => return Ok(()),
            };
            if flow == Flow::Wait {
                return Ok(());
            }
        }
    }

    fn next_step(&self) -> Step {
        next_step(&ReplyState {
            reply: &self.reply,
            model_calls: &self.model_calls,
            find_tool: &|name| self.find_spec(name),
            permissions: &self.config.permissions,
            accepted_rules: &self.request.accepted_rules,
            input: self.request.input.as_ref(),
            max_iterations: self.config.max_iterations,
            answer: match (&self.answer_schema, &self.checked_answer) {
                (Ok(None), _) => AnswerCheck::Unconstrained,
                (Ok(Some(_)), Some(checked)) => AnswerCheck::Checked(checked),
                (Ok(Some(_)) | Err(_), _) => AnswerCheck::Unchecked,
            },
            is_model_silent: self.is_model_silent,
            has_unread_hints: self.has_unread_hints,
        })
    }

    fn answer_schema(&self) -> Option<&AnswerSchema> {
        self.answer_schema.as_ref().ok().and_then(Option::as_deref)
    }

    /// Checks the answer, if it must match a schema.
    async fn check_answer(&mut self) -> Option<Result<Json, AnswerError>> {
        Some(self.answer_schema()?.parse_reply_on_worker(&self.reply).await)
    }

    /// Finds a tool by name: of the agent, or of the client.
    fn find_spec(&self, name: &str) -> Option<&ToolSpec> {
        let own = self.config.tools.iter().map(Tool::spec);
        own.chain(&self.client_tools).find(|spec| spec.name == name)
    }

    /// Finds a tool of the agent, wrapped in the middleware.
    fn find_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let tool = self.config.find_tool(name)?;
        if self.config.middleware.is_empty() {
            return Some(tool);
        }
        let (chain, context) = (self.config.middleware.clone(), self.context.clone());
        Some(Arc::new(WrappedTool { tool, chain, context }))
    }

    /// Where a call sends its findings after it went to the background.
    fn hint_sender(&self, call: &ToolCall) -> HintSender {
        HintSender {
            hints: self.hints.clone(),
            session_id: self.request.session_id.clone(),
            call_id: call.id.clone(),
            tool: call.name.clone(),
        }
    }

    /// Loads hints that others added to the reply.
    async fn load_updates(&mut self) -> Result<(), AgentError> {
        if let Some((reply, calls)) = self.journal.take_updates().await? {
            (self.reply, self.model_calls) = (reply, calls);
            self.checked_answer = None;
            self.is_model_silent = false;
            self.has_unread_hints = true;
        }
        Ok(())
    }

    /// Moves pending hints into the reply.
    async fn add_pending_hints(&mut self) -> Result<(), AgentError> {
        let waiting = self.hints.pending(&self.request.session_id).await;
        if waiting.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = waiting.iter().map(|hint| hint.id.clone()).collect();
        self.add_hints(waiting).await?;
        self.hints.remove(&self.request.session_id, &ids).await;
        Ok(())
    }

    /// Adds hints to the reply, except those that it has.
    async fn add_hints(&mut self, hints: Vec<HintBlock>) -> Result<(), AgentError> {
        let has = |id: &str| self.reply.blocks::<HintBlock>().any(|hint| hint.id == id);
        let new = hints.into_iter().filter(|hint| !has(&hint.id));
        let events: Vec<_> = new.map(|hint| self.event(Hint::from(hint))).collect();
        if events.is_empty() {
            return Ok(());
        }
        self.is_model_silent = false;
        self.commit(events).await
    }

    /// Tells the model that its answer does not match the schema.
    async fn request_correction(&mut self, why: &str) -> Result<Flow, AgentError> {
        let hint = HintBlock {
            id: format!("{}-mend", self.request.reply_id),
            source: Some(structured::CORRECTION_SOURCE.to_owned()),
            hint: Payload::Text(structured::correction_message(why)),
            ..HintBlock::default()
        };
        self.add_hints(vec![hint]).await?;
        Ok(Flow::Continue)
    }

    /// An event of this reply.
    fn event(&self, kind: impl Into<EventKind<'static>>) -> Event<'static> {
        Event::new(self.request.reply_id.clone(), kind)
    }

    /// Commits events.
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        let events = self.filter_and_apply(events);
        self.journal.commit(events).await
    }

    /// Passes events through the middleware, and applies them to the reply.
    fn filter_and_apply(&mut self, events: Vec<Event<'static>>) -> Vec<Event<'static>> {
        let events = self.event_filter.filter(&self.config.middleware, &self.context, events);
        self.apply(&events);
        events
    }

    /// Applies events to the reply.
    fn apply(&mut self, events: &[Event<'static>]) {
        for event in events.iter().filter(|event| event.reply_id == self.request.reply_id) {
            self.checked_answer = None;
            self.model_calls.observe(event);
            self.reply.append_event_tolerant(event);
        }
    }

    /// Ends the reply, unless there are hints that the model has not read. Returns whether it ended.
    async fn end_reply(&mut self, finished_reason: FinishedReason) -> Result<bool, AgentError> {
        let mut events = Vec::new();
        if finished_reason == FinishedReason::ExceedMaxIters {
            events.push(self.event(ExceedMaxIters { name: self.config.name.clone() }));
        }
        let error = self.model_calls.last_error.clone();
        let checked = match self.checked_answer.take() {
            None if error.is_none() => self.check_answer().await,
            checked => checked,
        };
        let structured_output = checked.and_then(Result::ok).filter(|_| error.is_none());
        let end = ReplyEnd { finished_reason, error, structured_output, ..ReplyEnd::default() };
        events.push(self.event(end));
        let events = self.filter_and_apply(events);
        self.journal.commit_end(events).await
    }

    /// Ends the reply with an error.
    async fn fail_reply(&mut self, kind: ErrorType, message: String) -> Result<(), AgentError> {
        let end = ReplyEnd::failed(ReplyError::new(kind, message));
        self.commit(vec![self.event(end)]).await
    }

    /// Ends the reply because its schema is invalid.
    async fn fail_invalid_schema(&mut self) -> Result<(), AgentError> {
        let why = self.answer_schema.as_ref().err().cloned().unwrap_or_default();
        self.fail_reply(ErrorType::InvalidRequest, why).await
    }

    /// Ends the reply because a middleware stopped it: closes everything that is open.
    async fn stop_reply(&mut self, why: String) -> Result<(), AgentError> {
        if self.reply.finished_at().is_some() {
            return Ok(());
        }
        let mut events = Vec::new();
        if self.model_calls.open_blocks.is_some() {
            events.extend(crate::close_reply::end_open_blocks(&self.reply));
            let finished_reason = FinishedReason::Interrupted;
            events.push(self.event(ModelCallEnd { finished_reason, ..ModelCallEnd::default() }));
        }
        let generate_reason = Some(STOP_REASON.to_owned());
        events.push(self.event(RequestStop { reason: Some(why), generate_reason }));
        // One commit: a crash leaves no stopped reply without an end.
        let (mut reply, mut calls) = (self.reply.clone(), self.model_calls.clone());
        for event in &events {
            reply.append_event_tolerant(event);
            calls.observe(event);
        }
        events.extend(crate::close_reply::close_reply(
            &reply,
            &calls,
            FinishedReason::Interrupted,
            None,
        ));
        self.commit(events).await
    }
}
