//! An agent as a tool of another.
//!
//! Its reply is a message of its own, in the same log: its events say whose they are (`agent_path`, such
//! as `main/researcher`) and for which call it works (`parent_tool_call_id`). What it says at its end is
//! the result of that call. What it asks a person, or hands to the client, the reply above waits for too.
//!
//! ```
//! use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
//! use turnwire_agent::{Agent, AgentTool};
//! use turnwire_core::Msg;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::AgentError> {
//! let researcher = Agent::builder("researcher", ScriptedModel::new([vec![ScriptStep::text("Paris.")]]))
//!     .build();
//! let main = Agent::builder("main", ScriptedModel::new([
//!         vec![ScriptStep::call("c", "researcher", r#"{"task":"The capital of France?"}"#)],
//!         vec![ScriptStep::text("It is Paris.")],
//!     ]))
//!     .tool(AgentTool::new(researcher, "Finds things out"))
//!     .build();
//! let reply = main.call([Msg::user("ann", "What is the capital of France?")]).await?;
//! let (_, result) = reply.tool_calls().next().unwrap();
//! assert_eq!(result.unwrap().output.text(""), "Paris.");
//! # Ok(())
//! # }
//! ```
//!
//! It goes on from the log as the agent above does: the end of its reply and the result of the call
//! become durable together, so as long as the call has no result, its reply is open and is found again.

mod journal;

use crate::agent::Agent;
use crate::hints::HintStore;
use crate::replier::{AgentError, Replier, SubAgentReply};
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use async_trait::async_trait;
use futures_util::FutureExt;
use journal::SubAgentJournal;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{Behavior, Event, Json, PermissionRule, ToolCall};

/// How deep agents may stand below each other: an agent that calls itself comes to an end.
pub const MAX_DEPTH: u32 = 5;

/// What an agent is told by the one that it works for.
#[derive(Default)]
pub(crate) struct ParentContext {
    pub session_id: String,
    /// The name of that agent.
    pub name: String,
    /// How many stand above that one.
    pub depth: u32,
    pub accepted_rules: Vec<PermissionRule>,
    /// The replies below that one which the log has open.
    pub sub_replies: Vec<SubAgentReply>,
    pub input: Option<Event<'static>>,
    /// Where hints go that come late, if that is not each agent's own affair.
    pub hints: Option<Arc<dyn HintStore>>,
}

impl fmt::Debug for ParentContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Above").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An agent as a tool of another.
pub struct AgentTool {
    spec: ToolSpec,
    agent: Box<dyn Replier>,
    time_limit: Option<Duration>,
}

/// What it takes.
#[derive(Deserialize, JsonSchema)]
struct Input {
    /// What is to be done, with everything that has to be known for it: nothing else of the
    /// conversation is seen.
    task: String,
}

impl AgentTool {
    /// An agent, by its own name, and what the model above is told of it.
    pub fn new(agent: Agent, description: impl Into<String>) -> Self {
        Self::from_replier(agent.name().to_owned(), agent, description)
    }

    /// Anything that replies, by a name.
    pub fn from_replier(
        name: impl Into<String>,
        agent: impl Replier,
        description: impl Into<String>,
    ) -> Self {
        let input = Json::from_value(&schemars::schema_for!(Input));
        let input = input.unwrap_or_else(|_| serde_json::Map::new().into());
        let spec = ToolSpec { resumes: true, ..ToolSpec::new(name, description, input) };
        Self { spec, agent: Box::new(agent), time_limit: None }
    }

    /// What it is called for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.spec.title = Some(title.into());
        self
    }

    /// It runs by itself, not beside others.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.spec.concurrent = false;
        self
    }

    /// A person is asked first, unless a rule says otherwise.
    #[must_use]
    pub fn requires_approval(mut self) -> Self {
        self.spec.behavior = Behavior::Ask;
        self
    }

    /// It may work so long at a time. While it waits for somebody it does not work.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        // Not the limit of the tool: who is cut off from outside closes nothing.
        self.time_limit = Some(limit);
        self
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn run(&self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        if out.parent.depth >= MAX_DEPTH {
            return Err(ToolError::new(format!(
                "Agents may not stand more than {MAX_DEPTH} deep below each other: do this yourself."
            )));
        }
        let Input { task } = serde_json::from_str(&call.input).map_err(|error| {
            ToolError::new(format!("the input does not fit the schema: {error}"))
        })?;
        let mut log = SubAgentJournal::new(&self.spec.name, call.id, out);
        let turn = log.request(task);
        let reply = AssertUnwindSafe(self.agent.run(turn, &mut log)).catch_unwind();
        let reply = async {
            reply.await.unwrap_or_else(|_| Err(AgentError::Failed("it broke down".to_owned())))
        };
        let outcome = match self.time_limit {
            None => reply.await,
            Some(limit) => tokio::time::timeout(limit, reply).await.unwrap_or_else(|_| {
                Err(AgentError::Failed(format!("it took longer than {limit:?} and was given up")))
            }),
        };
        log.finish(outcome).await
    }
}
