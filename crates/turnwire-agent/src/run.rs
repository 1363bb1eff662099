//! The loop: does what the [plan](crate::plan) says, and commits before it acts.

mod calls;
mod compact;
mod model;

use crate::core::Core;
use crate::hints::{Hints, Later, Mailbox};
use crate::middleware::{Context, Sieve, Wrapped};
use crate::plan::{Answer, Plan, State, plan};
use crate::replier::{Halt, Journal, Turn};
use crate::schema::Problem;
use crate::structured::{self, Shape};
use crate::tool::{Tool, ToolSpec};
use std::sync::Arc;
use turnwire_core::event::{ExceedMaxIters, Hint, ModelCallEnd, ReplyEnd, ReplyStart, RequestStop};
use turnwire_core::{
    ErrorType, Event, EventKind, FinishedReason, HintBlock, Json, ModelCalls, Msg, Payload,
    ReplyError, ToolCall,
};

/// Why a middleware's stop is one, as Java names it.
const STOP_REASON: &str = "MIDDLEWARE_STOP_REQUESTED";

/// One call of an agent: a reply from where it stands to where it ends or waits.
pub(crate) struct Run<'r> {
    core: &'r Core,
    turn: &'r Turn,
    journal: &'r mut dyn Journal,
    /// The reply as far as it was committed.
    reply: Msg,
    calls: ModelCalls,
    /// Tools that the client offers with its message.
    offered: Vec<ToolSpec>,
    /// The schema that the answer must match, until it is compiled.
    schema: Option<Json>,
    /// The form that the answer must have, or why there is no such form.
    shape: Result<Option<Arc<Shape>>, String>,
    /// What was found when the answer was checked, until something is added to the reply.
    checked: Option<Result<Json, Problem>>,
    hints: Arc<dyn Hints>,
    context: Context,
    sieve: Sieve,
    /// Whether the model had nothing to say when it was asked last.
    is_silent: bool,
    /// Whether there are hints that it was not asked with.
    has_news: bool,
}

/// Whether a reply goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    /// Somebody is to answer first.
    Wait,
}

impl<'r> Run<'r> {
    pub(crate) fn new(core: &'r Core, turn: &'r Turn, journal: &'r mut dyn Journal) -> Self {
        let reply =
            turn.partial.clone().unwrap_or_else(|| Msg::reply(&*turn.reply_id, &*core.name));
        let schema = core.output_schema(&turn.history);
        let hints = match journal.hints() {
            Some(hints) => hints,
            // What is of no session cannot wait for the next reply: nobody could tell which that is.
            None if turn.session_id.is_empty() => Arc::new(Mailbox::default()),
            None => core.hints.clone(),
        };
        let stop = turn.stop.clone();
        Self {
            core,
            turn,
            journal,
            reply,
            calls: turn.calls.clone(),
            offered: core.offered(&turn.history),
            schema,
            shape: Ok(None),
            checked: None,
            hints,
            context: Context::new(&core.name, &turn.session_id, &turn.reply_id, stop),
            sieve: Sieve::default(),
            is_silent: false,
            has_news: false,
        }
    }

    /// The answer must have this form, whatever else was said about it.
    pub(crate) fn shaped(&mut self, shape: Arc<Shape>) {
        self.schema = None;
        self.shape = Ok(Some(shape));
    }

    /// Goes on until the reply ends, or waits for somebody.
    pub(crate) async fn go(&mut self) -> Result<(), Halt> {
        match (self.steps().await, self.context.why()) {
            (Err(Halt::Stopped), Some(why)) => self.stop(why).await,
            (done, _) => done,
        }
    }

    async fn steps(&mut self) -> Result<(), Halt> {
        if self.turn.partial.is_none() && self.calls == ModelCalls::default() {
            let session_id = self.turn.session_id.clone();
            let start =
                ReplyStart { session_id, name: self.core.name.clone(), ..ReplyStart::default() };
            self.commit(vec![self.event(start)]).await?;
        }
        if let Some(schema) = self.schema.take() {
            let shape = Shape::compile(&schema).await;
            let shape = shape.map_err(|why| format!("the output schema cannot be used: {why}"));
            self.shape = shape.map(|shape| Some(Arc::new(shape)));
        }
        loop {
            if self.context.why().is_some() {
                return Err(Halt::Stopped);
            }
            if self.calls.open_blocks.is_none() && self.reply.finished_at().is_none() {
                self.catch_up().await?;
                self.take_hints().await?;
            }
            let flow = match self.plan() {
                Plan::TakeBack(blocks) => self.take_back(blocks).await?,
                Plan::Ask(_) | Plan::Check if self.shape.is_err() => return self.no_shape().await,
                Plan::Ask(tools) => self.ask(tools).await?,
                Plan::Calls(todos) => self.work_on(todos).await?,
                Plan::Check => {
                    self.checked = self.check_answer().await;
                    Flow::GoOn
                }
                Plan::Uncheckable(why) => return self.fail(ErrorType::InvalidRequest, why).await,
                Plan::Mend(why) => self.mend(&why).await?,
                Plan::Misshapen(why) => {
                    let why = format!("the model's answer does not have its form: {why}");
                    return self.fail(ErrorType::Upstream, why).await;
                }
                Plan::Wait => Flow::Wait,
                Plan::End(reason) => {
                    if self.end(reason).await? {
                        return Ok(());
                    }
                    self.catch_up().await?;
                    Flow::GoOn
                }
                Plan::Done => return Ok(()),
            };
            if flow == Flow::Wait {
                return Ok(());
            }
        }
    }

    fn plan(&self) -> Plan {
        plan(&State {
            reply: &self.reply,
            calls: &self.calls,
            tool: &|name| self.spec(name),
            permissions: &self.core.permissions,
            accepted: &self.turn.rules,
            limit: self.core.max_iterations,
            answer: match (&self.shape, &self.checked) {
                (Ok(None), _) => Answer::Free,
                (Ok(Some(_)), Some(checked)) => Answer::Checked(checked),
                (Ok(Some(_)) | Err(_), _) => Answer::Unchecked,
            },
            is_silent: self.is_silent,
            has_news: self.has_news,
        })
    }

    fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref().ok().and_then(Option::as_deref)
    }

    /// Checks what was answered, where it must match a schema.
    async fn check_answer(&mut self) -> Option<Result<Json, Problem>> {
        Some(self.shape()?.read_on_worker(&self.reply).await)
    }

    /// A tool, by its name: the agent's own, or one that the client offers.
    fn spec(&self, name: &str) -> Option<&ToolSpec> {
        let own = self.core.tools.iter().map(Tool::spec);
        own.chain(&self.offered).find(|spec| spec.name == name)
    }

    /// A tool of the agent's own, with the middleware around it.
    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let tool = self.core.tool(name)?;
        if self.core.middleware.is_empty() {
            return Some(tool);
        }
        let (chain, context) = (self.core.middleware.clone(), self.context.clone());
        Some(Arc::new(Wrapped { tool, chain, context }))
    }

    /// Where a call says what it finds after it has gone to the background.
    fn later(&self, call: &ToolCall) -> Later {
        Later {
            hints: self.hints.clone(),
            session_id: self.turn.session_id.clone(),
            call_id: call.id.clone(),
            tool: call.name.clone(),
        }
    }

    /// Takes over what others have put into the reply.
    async fn catch_up(&mut self) -> Result<(), Halt> {
        if let Some((reply, calls)) = self.journal.news().await? {
            (self.reply, self.calls) = (reply, calls);
            self.checked = None;
            self.is_silent = false;
            self.has_news = true;
        }
        Ok(())
    }

    /// Takes the hints that wait into the reply.
    async fn take_hints(&mut self) -> Result<(), Halt> {
        let waiting = self.hints.waiting(&self.turn.session_id).await;
        if waiting.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = waiting.iter().map(|hint| hint.id.clone()).collect();
        self.add_hints(waiting).await?;
        self.hints.taken(&self.turn.session_id, &ids).await;
        Ok(())
    }

    /// Adds hints to the reply; those that it has already are not added again.
    async fn add_hints(&mut self, hints: Vec<HintBlock>) -> Result<(), Halt> {
        let has = |id: &str| self.reply.blocks::<HintBlock>().any(|hint| hint.id == id);
        let new = hints.into_iter().filter(|hint| !has(&hint.id));
        let events: Vec<_> = new.map(|hint| self.event(Hint::from(hint))).collect();
        if events.is_empty() {
            return Ok(());
        }
        self.is_silent = false;
        self.commit(events).await
    }

    /// Tells the model that its answer does not have its form.
    async fn mend(&mut self, why: &str) -> Result<Flow, Halt> {
        let hint = HintBlock {
            id: format!("{}-mend", self.turn.reply_id),
            source: Some(structured::SOURCE.to_owned()),
            hint: Payload::Text(structured::told(why)),
            ..HintBlock::default()
        };
        self.add_hints(vec![hint]).await?;
        Ok(Flow::GoOn)
    }

    /// An event of this reply.
    fn event(&self, kind: impl Into<EventKind<'static>>) -> Event<'static> {
        Event::new(self.turn.reply_id.clone(), kind)
    }

    /// Commits events. From here on nobody can take them back.
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), Halt> {
        let events = self.pass(events);
        self.journal.commit(events).await
    }

    /// Events on their way into the log: as the middleware leaves them, and taken note of.
    fn pass(&mut self, events: Vec<Event<'static>>) -> Vec<Event<'static>> {
        let events = self.sieve.pass(&self.core.middleware, &self.context, events);
        self.see(&events);
        events
    }

    /// Takes note of events on their way into the log.
    fn see(&mut self, events: &[Event<'static>]) {
        for event in events.iter().filter(|event| event.reply_id == self.turn.reply_id) {
            self.checked = None;
            self.calls.observe(event);
            self.reply.append_event_tolerant(event);
        }
    }

    /// Ends the reply, unless there is something that the model has not read. Whether it has ended.
    async fn end(&mut self, finished_reason: FinishedReason) -> Result<bool, Halt> {
        let mut events = Vec::new();
        if finished_reason == FinishedReason::ExceedMaxIters {
            events.push(self.event(ExceedMaxIters { name: self.core.name.clone() }));
        }
        let error = self.calls.last_error.clone();
        let checked = match self.checked.take() {
            None if error.is_none() => self.check_answer().await,
            checked => checked,
        };
        let structured_output = checked.and_then(Result::ok).filter(|_| error.is_none());
        let end = ReplyEnd { finished_reason, error, structured_output, ..ReplyEnd::default() };
        events.push(self.event(end));
        let events = self.pass(events);
        self.journal.conclude(events).await
    }

    /// Ends the reply with an error.
    async fn fail(&mut self, kind: ErrorType, message: String) -> Result<(), Halt> {
        let error = ReplyError { r#type: kind, message, ..ReplyError::default() };
        let end = ReplyEnd {
            finished_reason: FinishedReason::Error,
            error: Some(error),
            ..ReplyEnd::default()
        };
        self.commit(vec![self.event(end)]).await
    }

    /// What was asked for is no form.
    async fn no_shape(&mut self) -> Result<(), Halt> {
        let why = self.shape.as_ref().err().cloned().unwrap_or_default();
        self.fail(ErrorType::InvalidRequest, why).await
    }

    /// A middleware wants the reply to end here: everything that is open is closed.
    async fn stop(&mut self, why: String) -> Result<(), Halt> {
        if self.reply.finished_at().is_some() {
            return Ok(());
        }
        let mut events = Vec::new();
        if self.calls.open_blocks.is_some() {
            events.extend(crate::closing::end_blocks(&self.reply));
            let finished_reason = FinishedReason::Interrupted;
            events.push(self.event(ModelCallEnd { finished_reason, ..ModelCallEnd::default() }));
        }
        let generate_reason = Some(STOP_REASON.to_owned());
        events.push(self.event(RequestStop { reason: Some(why), generate_reason }));
        // All at once: nobody finds a reply that was stopped and has not ended.
        let (mut reply, mut calls) = (self.reply.clone(), self.calls.clone());
        for event in &events {
            reply.append_event_tolerant(event);
            calls.observe(event);
        }
        events.extend(crate::closing::close(&reply, &calls, FinishedReason::Interrupted, None));
        self.commit(events).await
    }
}
