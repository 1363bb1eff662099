//! An agent as a tool of another agent.
//!
//! The sub-agent's reply is a message of its own in the same log. Its events carry its name (`agent_path`,
//! such as `main/researcher`) and the call it works for (`parent_tool_call_id`). Its final text is the
//! result of that call. If it needs an approval or a client result, the parent's reply waits too.
//!
//! ```
//! use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
//! use turnwire_agent::{Agent, AgentTool};
//! use turnwire_core::Msg;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnwire_agent::CallError> {
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
//! A sub-agent continues from the log like its parent: the end of its reply and the result of the call are
//! committed together. While the call has no result, the sub-agent's reply is open and is found again.

mod journal;

use crate::agent::Agent;
use crate::hints::HintStore;
use crate::replier::{AgentError, Replier, SubAgentReply};
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, spec_options};
use async_trait::async_trait;
use futures_util::FutureExt;
use journal::SubAgentJournal;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{Event, Json, PermissionRule, ToolCall};

/// The deepest nesting of sub-agents. It ends an agent that calls itself.
pub const MAX_DEPTH: u32 = 5;

/// What a sub-agent gets from its parent.
#[derive(Default)]
pub(crate) struct ParentContext {
    pub session_id: String,
    /// The name of the parent.
    pub name: String,
    /// The number of agents above the parent.
    pub depth: u32,
    pub accepted_rules: Vec<PermissionRule>,
    /// The open replies of the parent's sub-agents.
    pub sub_replies: Vec<SubAgentReply>,
    pub input: Option<Event<'static>>,
    /// The hint store of the session. `None`: each agent uses its own.
    pub hints: Option<Arc<dyn HintStore>>,
}

impl fmt::Debug for ParentContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Above").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An agent as a tool.
#[must_use]
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
    /// Uses an agent as a tool, under its own name. The description is for the parent's model.
    pub fn new(agent: Agent, description: impl Into<String>) -> Self {
        Self::from_replier(agent.name().to_owned(), agent, description)
    }

    /// Uses any replier as a tool.
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

    spec_options!();

    /// The time limit of one run. Waiting for a user does not count.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        // Not the limit of the tool, which would abort the sub-agent without closing its reply.
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
                "Sub-agents can be nested at most {MAX_DEPTH} deep: do this yourself."
            )));
        }
        let Input { task } = serde_json::from_str(&call.input).map_err(|error| {
            ToolError::new(format!("the input does not match the schema: {error}"))
        })?;
        let mut log = SubAgentJournal::new(&self.spec.name, call.id, out);
        let request = log.request(task);
        let reply = AssertUnwindSafe(self.agent.run(request, &mut log)).catch_unwind();
        let reply = async {
            reply.await.unwrap_or_else(|_| Err(AgentError::Failed("it panicked".to_owned())))
        };
        let outcome = match self.time_limit {
            None => reply.await,
            Some(limit) => tokio::time::timeout(limit, reply).await.unwrap_or_else(|_| {
                Err(AgentError::Failed(format!("it exceeded the time limit of {limit:?}")))
            }),
        };
        log.finish(outcome).await
    }
}
