//! Agents: a model with a system prompt, tools and permission rules. Start here.
//!
//! ```
//! use turnwire_agent::Agent;
//! use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
//! use turnwire_core::Msg;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::CallError> {
//! let model = ScriptedModel::new([vec![ScriptStep::text("Hello, Ann.")]]);
//! let friday = Agent::builder("friday", model).system("You are Friday.").build();
//! let reply = friday.call([Msg::user("ann", "Hi!")]).await?;
//! assert_eq!(reply.text("").as_deref(), Some("Hello, Ann."));
//! # Ok(())
//! # }
//! ```

use crate::agent_loop::{AgentLoop, summarize_conversation};
use crate::client_context::ClientContext;
use crate::client_options::ClientOptions;
use crate::config::LoopConfig;
use crate::hints::{HintStore, InMemoryHints};
use crate::middleware::Middleware;
use crate::model::{Model, ModelSettings};
use crate::permission::{Permissions, Rule};
use crate::replier::{AgentError, Journal, Replier, ReplyRequest, Summary};
use crate::structured::AnswerSchema;
use crate::tool::Tool;
use crate::truncate::RESULT_LIMIT;
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, Json, Msg, ToolCallState};
use turnwire_wires::model_request::SpeakerFormat;

/// The default limit of model calls in one reply.
pub const MAX_ITERATIONS: u32 = 10;

/// An agent. It is cheap to clone, and keeps no state between replies.
#[derive(Clone)]
pub struct Agent {
    config: Arc<LoopConfig>,
}

/// Builds an [`Agent`].
#[must_use]
pub struct AgentBuilder {
    config: LoopConfig,
    middleware: Vec<Arc<dyn Middleware>>,
}

/// The events of a reply, as they arrive.
pub type ReplyStream = BoxStream<'static, Result<Event<'static>, AgentError>>;

impl Agent {
    /// Starts to build an agent with this name and model.
    pub fn builder(name: impl Into<String>, model: impl Model) -> AgentBuilder {
        AgentBuilder {
            config: LoopConfig {
                name: name.into(),
                description: String::new(),
                model: Arc::new(model),
                system: String::new(),
                tools: Vec::new(),
                permissions: Permissions::default(),
                max_iterations: MAX_ITERATIONS,
                output_schema: None,
                middleware: Arc::new([]),
                hints: Arc::new(InMemoryHints::default()),
                result_limit: RESULT_LIMIT,
                context_window: None,
                model_settings: ModelSettings::default(),
                client_options: None,
            },
            middleware: Vec::new(),
        }
    }

    /// A builder with the settings of this agent, for a variant of it.
    pub fn to_builder(&self) -> AgentBuilder {
        let middleware = self.config.middleware.to_vec();
        AgentBuilder { config: LoopConfig::clone(&self.config), middleware }
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Replies to these messages, and returns the events as they arrive. Dropping the stream stops the
    /// reply.
    pub fn reply(&self, messages: impl IntoIterator<Item = Msg>) -> ReplyStream {
        self.start_reply("", messages, None)
    }

    /// Replies in a session: a hint that arrives after the end of one reply is read by the next.
    pub fn reply_in_session(
        &self,
        session_id: impl Into<String>,
        messages: impl IntoIterator<Item = Msg>,
    ) -> ReplyStream {
        self.start_reply(session_id, messages, None)
    }

    fn start_reply(
        &self,
        session_id: impl Into<String>,
        messages: impl IntoIterator<Item = Msg>,
        schema: Option<Arc<AnswerSchema>>,
    ) -> ReplyStream {
        let stop = CancellationToken::new();
        let request = ReplyRequest {
            stop: stop.clone(),
            ..ReplyRequest::new(session_id, SystemStamp.id(), messages.into_iter().collect())
        };
        let (sender, receiver) = mpsc::channel(16);
        let agent = self.clone();
        tokio::spawn(async move {
            let mut journal = ChannelJournal(sender.clone());
            if let Err(error) = agent.run_request(request, &mut journal, schema).await {
                // Without a receiver the error is not needed.
                let _ = sender.send(Err(error)).await;
            }
        });
        let state: (mpsc::Receiver<Result<Vec<Event<'static>>, AgentError>>, DropGuard) =
            (receiver, stop.drop_guard());
        stream::unfold(state, |(mut receiver, guard)| async move {
            let events = receiver.recv().await?;
            Some((events, (receiver, guard)))
        })
        .flat_map(|events| match events {
            Ok(events) => stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        })
        .boxed()
    }

    async fn run_request(
        &self,
        mut request: ReplyRequest,
        journal: &mut dyn Journal,
        schema: Option<Arc<AnswerSchema>>,
    ) -> Result<(), AgentError> {
        // Middleware may stop this reply, but not its caller.
        request.stop = request.stop.child_token();
        let mut agent_loop = AgentLoop::new(&self.config, &request, journal);
        if let Some(schema) = schema {
            agent_loop.set_answer_schema(schema);
        }
        agent_loop.run().await
    }

    /// Replies to these messages, and returns the whole reply.
    ///
    /// # Errors
    ///
    /// [`CallError::Failed`] if the reply ended with an error, such as a failed model call, or waits for an
    /// approval or a client's result: use a [`Conversation`](crate::Conversation) for those.
    /// [`CallError::Agent`] if there is no reply.
    pub async fn call(&self, messages: impl IntoIterator<Item = Msg>) -> Result<Msg, CallError> {
        let reply = self.fold_events(self.reply(messages)).await?;
        if reply.error().is_none() && reply.finished_at().is_some() {
            return Ok(reply);
        }
        let why = failure_reason(&reply);
        Err(CallError::Failed { reply: Box::new(reply), why })
    }

    /// Replies to these messages with structured output of the type `T`: returns the reply and the output.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call); also [`CallError::Failed`] if the answer does not match the type, after the
    /// model was asked once to correct it.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use turnwire_agent::Agent;
    /// use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
    /// use turnwire_core::Msg;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct TaskPlan {
    ///     goal: String,
    ///     steps: Vec<String>,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnwire_agent::CallError> {
    /// let answer = r#"{"goal": "tea", "steps": ["boil water", "pour"]}"#;
    /// let friday = Agent::builder("friday", ScriptedModel::new([vec![ScriptStep::text(answer)]])).build();
    /// let (reply, plan) = friday.call_as::<TaskPlan>([Msg::user("ann", "How is tea made?")]).await?;
    /// assert_eq!((plan.goal.as_str(), plan.steps.len()), ("tea", 2));
    /// assert!(reply.has_structured_output());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_as<T: DeserializeOwned + JsonSchema>(
        &self,
        messages: impl IntoIterator<Item = Msg>,
    ) -> Result<(Msg, T), CallError> {
        let failed = |why: String| CallError::Agent(AgentError::Failed(why));
        let schema =
            Json::from_value(&schemars::schema_for!(T)).map_err(|why| failed(why.to_string()))?;
        let parses =
            |json: &Json| json.parse_as::<T>().map(drop).map_err(|error| error.to_string());
        let schema = AnswerSchema::compile(&schema).await.map_err(|why| failed(why.to_string()))?;
        let schema = Arc::new(schema.with_check(Arc::new(parses)));
        let reply = self.fold_events(self.start_reply("", messages, Some(schema))).await?;
        let why = match reply.parse_structured_output::<T>() {
            Ok(Some(data)) => return Ok((reply, data)),
            Ok(None) => failure_reason(&reply),
            Err(error) => error.to_string(),
        };
        Err(CallError::Failed { reply: Box::new(reply), why })
    }

    async fn fold_events(&self, mut events: ReplyStream) -> Result<Msg, AgentError> {
        let mut reply: Option<Msg> = None;
        while let Some(event) = events.next().await {
            let event = event?;
            let reply =
                reply.get_or_insert_with(|| Msg::reply(&*event.reply_id, &*self.config.name));
            if event.reply_id == reply.id() {
                reply.append_event_tolerant(&event);
            }
        }
        reply.ok_or_else(|| AgentError::Failed("the agent emitted no events".to_owned()))
    }
}

/// Why a reply is not what its caller asked for.
fn failure_reason(reply: &Msg) -> String {
    if let Some(error) = reply.error() {
        return error.message.clone();
    }
    let pending = |state: &ToolCallState| match state {
        ToolCallState::Asking => Some("the reply waits for an approval"),
        ToolCallState::Submitted => Some("the reply waits for a result of the client"),
        ToolCallState::Pending
        | ToolCallState::Allowed
        | ToolCallState::Finished
        | ToolCallState::Other(_) => None,
    };
    if let Some(reason) = reply.finished_reason() {
        return format!("the reply has no structured output; it ended as {reason}");
    }
    let pending = reply.tool_calls().find_map(|(call, _)| pending(&call.state));
    pending.unwrap_or("the reply has no end").to_owned()
}

/// Why a call returned no usable reply.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The agent stopped or failed before there was a reply.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The reply ended with an error, waits for somebody, or lacks the structured output.
    #[error("the call failed: {why}")]
    Failed {
        /// The reply so far.
        reply: Box<Msg>,
        /// What happened.
        why: String,
    },
}

/// Sends committed events through a channel.
struct ChannelJournal(mpsc::Sender<Result<Vec<Event<'static>>, AgentError>>);

#[async_trait]
impl Journal for ChannelJournal {
    async fn commit(&mut self, mut events: Vec<Event<'static>>) -> Result<(), AgentError> {
        for event in &mut events {
            event.stamp(&SystemStamp);
        }
        self.0.send(Ok(events)).await.map_err(|_| AgentError::Stopped)
    }
}

#[async_trait]
impl Replier for Agent {
    fn description(&self) -> &str {
        &self.config.description
    }

    fn model_name(&self) -> &str {
        self.config.model.name()
    }

    fn check_client(&self, client: &ClientContext) -> Result<Vec<String>, String> {
        self.config.check_client(client)
    }

    fn check_content(&self, messages: &[Msg]) -> Result<Vec<String>, String> {
        self.config.check_content(messages)
    }

    async fn summarize(&self, conversation: &[Msg]) -> Result<Option<Summary>, AgentError> {
        summarize_conversation(&self.config, conversation).await
    }

    async fn run(
        &self,
        request: ReplyRequest,
        journal: &mut dyn Journal,
    ) -> Result<(), AgentError> {
        self.run_request(request, journal, None).await
    }
}

impl AgentBuilder {
    /// The system prompt.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.config.system = text.into();
        self
    }

    /// A one-line description for people.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.config.description = text.into();
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.config.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools.
    pub fn tools<T: Tool>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        for tool in tools {
            self = self.tool(tool);
        }
        self
    }

    /// The permission rules: the first rule that matches a call decides.
    pub fn permissions(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.config.permissions = Permissions::new(rules);
        self
    }

    /// The limit of model calls in one reply ([`MAX_ITERATIONS`]).
    pub fn max_iterations(mut self, limit: u32) -> Self {
        self.config.max_iterations = limit;
        self
    }

    /// A JSON Schema that every answer must match, unless the client sends one.
    pub fn output_schema(mut self, schema: impl Into<Json>) -> Self {
        self.config.output_schema = Some(schema.into());
        self
    }

    /// Adds a middleware, after those that were added before.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// The store for hints of its sessions. The default keeps them in memory.
    pub fn hints(mut self, hints: Arc<dyn HintStore>) -> Self {
        self.config.hints = hints;
        self
    }

    /// The limit of characters of a tool result that the model gets ([`RESULT_LIMIT`]). The log has the
    /// whole result.
    pub fn result_limit(mut self, characters: usize) -> Self {
        self.config.result_limit = characters;
        self
    }

    /// The model's context window in tokens. The oldest part of a longer conversation is replaced by a
    /// summary.
    pub fn context_window(mut self, tokens: u32) -> Self {
        self.config.context_window = Some(tokens);
        self
    }

    /// Settings that override those of the model.
    pub fn model_settings(mut self, tuning: ModelSettings) -> Self {
        self.config.model_settings = tuning;
        self
    }

    /// Which options of clients reach the model. Default: all for an agent without system prompt and tools of its own,
    /// else those that only change how the model answers.
    pub fn client_options(mut self, options: ClientOptions) -> Self {
        self.config.client_options = Some(options);
        self
    }

    /// How messages name their authors, in a conversation of several agents.
    pub fn speakers(mut self, agents: SpeakerFormat) -> Self {
        self.config.model_settings.agents = agents;
        self
    }

    /// Builds the agent.
    pub fn build(self) -> Agent {
        let core = LoopConfig { middleware: self.middleware.into(), ..self.config };
        Agent { config: Arc::new(core) }
    }
}
