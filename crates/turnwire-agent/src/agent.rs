//! An agent of your own: a model, what it is told, and tools.
//!
//! ```
//! use turnwire_agent::Agent;
//! use turnwire_agent::model::script::{Line, Script};
//! use turnwire_core::Msg;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::Halt> {
//! let friday = Agent::builder("friday")
//!     .model(Script::new([vec![Line::text("Hello, Ann.")]]))
//!     .system("You are Friday.")
//!     .build();
//! let reply = friday.call([Msg::user("ann", "Hi!")]).await?;
//! assert_eq!(reply.text("").as_deref(), Some("Hello, Ann."));
//! # Ok(())
//! # }
//! ```

use crate::agent_loop::AgentLoop;
use crate::config::LoopConfig;
use crate::hints::{HintStore, InMemoryHints};
use crate::middleware::Middleware;
use crate::model::{Model, ModelSettings};
use crate::permission::{Permissions, Rule};
use crate::replier::{AgentError, Journal, Replier, ReplyRequest};
use crate::structured::{AnswerSchema, StructuredCallError};
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
use turnwire_core::{Event, Json, ModelCalls, Msg, ToolCallState};
use turnwire_wires::model_request::SpeakerFormat;

/// How many model calls one reply may take, where nobody says so.
pub const MAX_ITERATIONS: u32 = 10;

/// An agent. It is cheap to clone, and keeps nothing between two replies.
#[derive(Clone)]
pub struct Agent {
    config: Arc<LoopConfig>,
}

/// An agent in the making.
pub struct AgentBuilder {
    config: LoopConfig,
    middleware: Vec<Arc<dyn Middleware>>,
}

/// The events of a reply, as they come.
pub type ReplyStream = BoxStream<'static, Result<Event<'static>, AgentError>>;

impl Agent {
    /// Begins an agent of this name.
    pub fn builder(name: impl Into<String>) -> AgentBuilder {
        AgentBuilder {
            config: LoopConfig {
                name: name.into(),
                description: String::new(),
                model: Arc::new(crate::model::script::ScriptedModel::default()),
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
            },
            middleware: Vec::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The events of a reply to these messages, as they come. Whoever drops the stream stops the reply.
    pub fn reply(&self, messages: impl IntoIterator<Item = Msg>) -> ReplyStream {
        self.start_reply("", messages, None)
    }

    /// The same in a session: hints that come after the end of one reply are read by the next.
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
        shape: Option<Arc<AnswerSchema>>,
    ) -> ReplyStream {
        let stop = CancellationToken::new();
        let turn = ReplyRequest {
            session_id: session_id.into(),
            reply_id: SystemStamp.id(),
            history: messages.into_iter().collect(),
            partial: None,
            model_calls: ModelCalls::default(),
            sub_replies: Vec::new(),
            accepted_rules: Vec::new(),
            input: None,
            stop: stop.clone(),
        };
        let (sender, receiver) = mpsc::channel(16);
        let agent = self.clone();
        tokio::spawn(async move {
            let mut journal = ChannelJournal(sender.clone());
            if let Err(halt) = agent.run_request(turn, &mut journal, shape).await {
                // Where nobody listens, nobody needs to know.
                let _ = sender.send(Err(halt)).await;
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
            Err(halt) => stream::iter(vec![Err(halt)]),
        })
        .boxed()
    }

    async fn run_request(
        &self,
        mut turn: ReplyRequest,
        journal: &mut dyn Journal,
        shape: Option<Arc<AnswerSchema>>,
    ) -> Result<(), AgentError> {
        // What the middleware stops is this call, and nothing of whoever made it.
        turn.stop = turn.stop.child_token();
        let mut run = AgentLoop::new(&self.config, &turn, journal);
        if let Some(shape) = shape {
            run.set_answer_schema(shape);
        }
        run.run().await
    }

    /// The whole reply to these messages. One that waits for a person comes as far as it goes.
    pub async fn call(&self, messages: impl IntoIterator<Item = Msg>) -> Result<Msg, AgentError> {
        self.fold_events(self.reply(messages)).await
    }

    /// The whole reply, and the data in it.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use turnwire_agent::Agent;
    /// use turnwire_agent::model::script::{Line, Script};
    /// use turnwire_core::Msg;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct TaskPlan {
    ///     goal: String,
    ///     steps: Vec<String>,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnwire_agent::structured::CallError> {
    /// let said = r#"{"goal": "tea", "steps": ["boil water", "pour"]}"#;
    /// let friday = Agent::builder("friday").model(Script::new([vec![Line::text(said)]])).build();
    /// let (reply, plan) = friday.call_as::<TaskPlan>([Msg::user("ann", "How is tea made?")]).await?;
    /// assert_eq!((plan.goal.as_str(), plan.steps.len()), ("tea", 2));
    /// assert!(reply.has_structured());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_as<T: DeserializeOwned + JsonSchema>(
        &self,
        messages: impl IntoIterator<Item = Msg>,
    ) -> Result<(Msg, T), StructuredCallError> {
        let failed = |why: String| StructuredCallError::Agent(AgentError::Failed(why));
        let schema =
            Json::from_value(&schemars::schema_for!(T)).map_err(|why| failed(why.to_string()))?;
        let reads = |json: &Json| json.parse_as::<T>().map(drop).map_err(|error| error.to_string());
        let shape = AnswerSchema::compile(&schema).await.map_err(|why| failed(why.to_string()))?;
        let shape = shape.with_check(Arc::new(reads));
        let reply = self.fold_events(self.start_reply("", messages, Some(Arc::new(shape)))).await?;
        let why = match reply.parse_structured_output::<T>() {
            Ok(Some(data)) => return Ok((reply, data)),
            Ok(None) => missing_output_reason(&reply),
            Err(error) => error.to_string(),
        };
        Err(StructuredCallError::NoOutput { reply: Box::new(reply), why })
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
        reply.ok_or_else(|| AgentError::Failed("the agent said nothing".to_owned()))
    }
}

/// Why a reply has no data.
fn missing_output_reason(reply: &Msg) -> String {
    if let Some(error) = reply.error() {
        return error.message.clone();
    }
    let waits =
        |state: &ToolCallState| matches!(state, ToolCallState::Asking | ToolCallState::Submitted);
    match reply.finished_reason() {
        Some(reason) => format!("the reply ended: {reason}"),
        None if reply.tool_calls().any(|(call, _)| waits(&call.state)) => {
            "the reply waits for somebody".to_owned()
        }
        None => "the reply has no end".to_owned(),
    }
}

/// Passes on what is committed.
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

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        self.run_request(turn, journal, None).await
    }
}

impl AgentBuilder {
    /// The model that it asks.
    #[must_use]
    pub fn model(mut self, model: impl Model) -> Self {
        self.config.model = Arc::new(model);
        self
    }

    /// What the model is told before everything else.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.config.system = text.into();
        self
    }

    /// A line about it, for people.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.config.description = text.into();
        self
    }

    /// Something that it can do.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.config.tools.push(Arc::new(tool));
        self
    }

    /// Who may call what: the first rule that fits wins.
    #[must_use]
    pub fn permissions(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.config.permissions = Permissions::new(rules);
        self
    }

    /// How many model calls one reply may take.
    #[must_use]
    pub fn max_iterations(mut self, limit: u32) -> Self {
        self.config.max_iterations = limit;
        self
    }

    /// The form that every answer must have: a JSON Schema. What a client asks for wins.
    #[must_use]
    pub fn output_schema(mut self, schema: impl Into<Json>) -> Self {
        self.config.output_schema = Some(schema.into());
        self
    }

    /// Something that stands around its model, its tools and its events; behind those added before.
    #[must_use]
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Where hints for its sessions wait. Without it they are kept in memory.
    #[must_use]
    pub fn hints(mut self, hints: Arc<dyn HintStore>) -> Self {
        self.config.hints = hints;
        self
    }

    /// How many characters of a tool's result the model is sent; the log has all of them.
    #[must_use]
    pub fn result_limit(mut self, characters: usize) -> Self {
        self.config.result_limit = characters;
        self
    }

    /// How many tokens the model can read. The oldest part of a longer conversation is summed up.
    #[must_use]
    pub fn context_window(mut self, tokens: u32) -> Self {
        self.config.context_window = Some(tokens);
        self
    }

    /// How the model is to answer, where its own settings are not to count.
    #[must_use]
    pub fn model_settings(mut self, tuning: ModelSettings) -> Self {
        self.config.model_settings = tuning;
        self
    }

    /// Several agents speak in its conversations; the model is told who said what.
    #[must_use]
    pub fn speakers(mut self, agents: SpeakerFormat) -> Self {
        self.config.model_settings.agents = agents;
        self
    }

    /// The agent.
    pub fn build(self) -> Agent {
        let core = LoopConfig { middleware: self.middleware.into(), ..self.config };
        Agent { config: Arc::new(core) }
    }
}
