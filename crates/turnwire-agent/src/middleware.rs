//! Middleware: hooks around the model, the tools and the events of an agent.
//!
//! Middlewares run in the order in which they were added; around a tool the first is the outermost. What
//! they change or drop never reaches the log. After a crash they run again, so they should decide the same.
//!
//! ```
//! use async_trait::async_trait;
//! use turnwire_agent::Agent;
//! use turnwire_agent::middleware::{ReplyContext, Middleware, EditableRequest};
//! use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
//! use turnwire_core::{FinishedReason, Msg};
//!
//! /// Refuses questions about the weather.
//! struct NoWeather;
//!
//! #[async_trait]
//! impl Middleware for NoWeather {
//!     async fn before_model(&self, request: &mut EditableRequest, context: &ReplyContext) {
//!         let last = request.messages.last().and_then(|msg| msg.text(""));
//!         if last.is_some_and(|text| text.contains("weather")) {
//!             context.stop("not about the weather");
//!         }
//!         request.settings.temperature = Some(0.0);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::CallError> {
//! let friday = Agent::builder("friday", ScriptedModel::new([vec![ScriptStep::text("Sunny.")]]))
//!     .middleware(NoWeather)
//!     .build();
//! let reply = friday.call([Msg::user("ann", "How is the weather?")]).await?;
//! assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
//! # Ok(())
//! # }
//! ```

use crate::model::ModelSettings;
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use turnwire_core::{Event, EventKind, HintBlock, Msg, ToolCall, event_kinds};
use turnwire_wires::ModelOptions;
use turnwire_wires::model_request::{OutputFormat, ToolChoice, ToolDefinition as ModelTool};

/// A model request before it is sent.
#[derive(Debug, Clone)]
pub struct EditableRequest {
    /// The system prompt, the conversation, and the reply so far.
    pub messages: Vec<Msg>,
    /// The tools that the model may call.
    pub tools: Vec<ModelTool>,
    /// Whether the model must call a tool.
    pub tool_choice: ToolChoice,
    /// The schema of the answer, for a model with a schema mode.
    pub output: Option<OutputFormat>,
    /// Settings that override the model's own, and the client's options.
    pub settings: ModelSettings,
    /// The client's options, as far as the agent takes them.
    pub options: ModelOptions,
}

/// What happens to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Commit it as it is now.
    Keep,
    /// Drop it. Dropping the start of a block or call drops all of it. Structural events (start and end of
    /// the reply and of results, approval requests) cannot be dropped.
    Drop,
}

/// Hooks around an agent. The default implementations change nothing.
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Hints for the model before its next call: each becomes a `HINT_BLOCK`.
    async fn hints(&self, reply: &Msg, context: &ReplyContext) -> Vec<HintBlock> {
        let _ = (reply, context);
        Vec::new()
    }

    /// Runs before a model call, and may change the request.
    async fn before_model(&self, request: &mut EditableRequest, context: &ReplyContext) {
        let _ = (request, context);
    }

    /// Runs around a tool call. Call `next` to run the tool.
    async fn around_tool(
        &self,
        call: ToolCall,
        out: ToolContext,
        next: Next<'_>,
        context: &ReplyContext,
    ) -> Result<ToolOutput, ToolError> {
        let _ = context;
        next.run(call, out).await
    }

    /// Runs before an event is committed. May change its content, not its type and ids.
    fn on_event(&self, event: &mut Event<'static>, context: &ReplyContext) -> Verdict {
        let _ = (event, context);
        Verdict::Keep
    }
}

/// The reply that a hook runs for.
#[derive(Clone)]
pub struct ReplyContext {
    data: Arc<ContextData>,
}

struct ContextData {
    agent: String,
    session_id: String,
    reply_id: String,
    stop: CancellationToken,
    /// Why the reply should stop.
    stop_reason: Mutex<Option<String>>,
}

impl ReplyContext {
    pub(crate) fn new(
        agent: &str,
        session_id: &str,
        reply_id: &str,
        stop: CancellationToken,
    ) -> Self {
        let about = ContextData {
            agent: agent.to_owned(),
            session_id: session_id.to_owned(),
            reply_id: reply_id.to_owned(),
            stop,
            stop_reason: Mutex::new(None),
        };
        Self { data: Arc::new(about) }
    }

    /// The agent's name.
    pub fn agent(&self) -> &str {
        &self.data.agent
    }

    /// The session id; empty without a session.
    pub fn session_id(&self) -> &str {
        &self.data.session_id
    }

    /// The reply id.
    pub fn reply_id(&self) -> &str {
        &self.data.reply_id
    }

    /// Stops the reply. It ends with a `REQUEST_STOP` event that has this reason.
    pub fn stop(&self, why: impl Into<String>) {
        self.data.stop_reason.lock().get_or_insert_with(|| why.into());
        self.data.stop.cancel();
    }

    /// Why the reply should stop, if it should.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        self.data.stop_reason.lock().clone()
    }
}

impl fmt::Debug for ReplyContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("reply_id", &self.data.reply_id).finish_non_exhaustive()
    }
}

/// Middlewares in order.
pub(crate) type MiddlewareChain = Arc<[Arc<dyn Middleware>]>;

/// The rest of the chain around a tool: the next middleware, and finally the tool.
pub struct Next<'n> {
    rest: &'n [Arc<dyn Middleware>],
    tool: &'n dyn Tool,
    context: &'n ReplyContext,
}

impl Next<'_> {
    /// The tool's specification.
    pub fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// Runs the rest of the chain.
    pub async fn run(self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        match self.rest.split_first() {
            Some((first, rest)) => {
                first.around_tool(call, out, Next { rest, ..self }, self.context).await
            }
            None => self.tool.run(call, out).await,
        }
    }
}

/// A tool with middleware around it.
pub(crate) struct WrappedTool {
    pub tool: Arc<dyn Tool>,
    pub chain: MiddlewareChain,
    pub context: ReplyContext,
}

#[async_trait]
impl Tool for WrappedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    async fn run(&self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        let next = Next { rest: &self.chain, tool: &*self.tool, context: &self.context };
        next.run(call, out).await
    }
}

/// Passes events through the middleware.
#[derive(Default)]
pub(crate) struct EventFilter {
    /// Blocks whose start was dropped.
    dropped: HashSet<String>,
}

impl EventFilter {
    /// Filters events.
    pub(crate) fn filter(
        &mut self,
        chain: &[Arc<dyn Middleware>],
        context: &ReplyContext,
        events: Vec<Event<'static>>,
    ) -> Vec<Event<'static>> {
        if chain.is_empty() {
            return events;
        }
        // Events of sub-agents passed through their own middleware.
        let one = |event: Event<'static>| match &event.agent {
            Some(_) => Some(event),
            None => self.filter_one(chain, context, event),
        };
        events.into_iter().filter_map(one).collect()
    }

    fn filter_one(
        &mut self,
        chain: &[Arc<dyn Middleware>],
        context: &ReplyContext,
        mut event: Event<'static>,
    ) -> Option<Event<'static>> {
        let part = event_role(&event.kind);
        if let EventRole::Start(id) | EventRole::Delta(id) | EventRole::End(id) = part
            && self.dropped.contains(id)
        {
            return None;
        }
        for middleware in chain {
            let mut changed = event.clone();
            let verdict = middleware.on_event(&mut changed, context);
            if verdict == Verdict::Drop {
                match event_role(&event.kind) {
                    EventRole::Start(id) => {
                        self.dropped.insert(id.to_owned());
                        return None;
                    }
                    EventRole::Delta(_) | EventRole::Standalone => return None,
                    EventRole::End(_) | EventRole::Structural => {}
                }
            }
            if is_same_event(&event, &changed) {
                event = changed;
            }
        }
        Some(event)
    }
}

/// The role of an event in its block.
enum EventRole<'e> {
    Start(&'e str),
    Delta(&'e str),
    End(&'e str),
    /// An event of its own.
    Standalone,
    /// An event that holds the reply together.
    Structural,
}

fn event_role<'e>(kind: &'e EventKind<'_>) -> EventRole<'e> {
    match kind {
        EventKind::TextBlockStart(start) => EventRole::Start(&start.block_id),
        EventKind::ThinkingBlockStart(start) => EventRole::Start(&start.block_id),
        EventKind::DataBlockStart(start) => EventRole::Start(&start.block_id),
        EventKind::ToolCallStart(start) => EventRole::Start(&start.tool_call_id),
        EventKind::TextBlockDelta(delta) => EventRole::Delta(&delta.block_id),
        EventKind::ThinkingBlockDelta(delta) => EventRole::Delta(&delta.block_id),
        EventKind::DataBlockDelta(delta) => EventRole::Delta(&delta.block_id),
        EventKind::ToolCallDelta(delta) => EventRole::Delta(&delta.tool_call_id),
        EventKind::TextBlockEnd(end) => EventRole::End(&end.block_id),
        EventKind::ThinkingBlockEnd(end) => EventRole::End(&end.block_id),
        EventKind::DataBlockEnd(end) => EventRole::End(&end.block_id),
        EventKind::ToolCallEnd(end) => EventRole::End(&end.tool_call_id),
        event_kinds!(ToolResultTextDelta ToolResultDataDelta Hint Block Custom) => {
            EventRole::Standalone
        }
        event_kinds!(
            ToolResultStart ToolResultEnd Message Supersede Reset Unknown
            reply model_call pending_call notice
        ) => EventRole::Structural,
    }
}

/// Whether it is still the same event, with any content.
fn is_same_event(before: &Event<'_>, after: &Event<'_>) -> bool {
    before.id == after.id
        && before.reply_id == after.reply_id
        && before.agent == after.agent
        && discriminant(&before.kind) == discriminant(&after.kind)
        && event_ids(&before.kind) == event_ids(&after.kind)
}

/// The ids in an event.
fn event_ids<'e>(kind: &'e EventKind<'_>) -> Vec<&'e str> {
    if let EventRole::Start(id) | EventRole::Delta(id) | EventRole::End(id) = event_role(kind) {
        return vec![id];
    }
    let call_ids = |calls: &'e [ToolCall]| calls.iter().map(|call| call.id.as_str()).collect();
    match kind {
        EventKind::ToolResultStart(start) => vec![&start.tool_call_id],
        EventKind::ToolResultTextDelta(delta) => vec![&delta.tool_call_id],
        EventKind::ToolResultDataDelta(delta) => vec![&delta.tool_call_id, &delta.block_id],
        EventKind::ToolResultEnd(end) => vec![&end.tool_call_id],
        EventKind::Hint(hint) => vec![&hint.block_id],
        EventKind::Block(block) => vec![block.block.id()],
        EventKind::ModelCallEnd(end) => end.discard.iter().map(String::as_str).collect(),
        EventKind::RequireUserConfirm(require) => call_ids(&require.tool_calls),
        EventKind::RequireExternalExecution(require) => call_ids(&require.tool_calls),
        event_kinds!(
            UserConfirmResult ExternalExecutionResult ModelCallStart
            reply text thinking data tool_call notice session
        ) => Vec::new(),
    }
}
