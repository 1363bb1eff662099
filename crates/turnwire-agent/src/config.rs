//! The configuration of an agent, and what a client's message adds to it. The agent loop reads it.

use crate::client_context::ClientContext;
use crate::hints::HintStore;
use crate::middleware::MiddlewareChain;
use crate::model::{Model, ModelSettings};
use crate::permission::Permissions;
use crate::tool::{Tool, ToolSpec};
use std::sync::Arc;
use turnwire_core::{Json, Msg, Role};

/// The configuration of an agent.
pub(crate) struct LoopConfig {
    pub name: String,
    pub description: String,
    pub model: Arc<dyn Model>,
    pub system: String,
    pub tools: Vec<Arc<dyn Tool>>,
    pub permissions: Permissions,
    pub max_iterations: u32,
    /// The JSON Schema that answers must match.
    pub output_schema: Option<Json>,
    pub middleware: MiddlewareChain,
    pub hints: Arc<dyn HintStore>,
    /// The most characters of a tool result that the model gets.
    pub result_limit: usize,
    /// In tokens.
    pub context_window: Option<u32>,
    pub model_settings: ModelSettings,
}

impl LoopConfig {
    /// Finds a tool of the agent.
    pub fn find_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// The tools that the client sent with its last message, except those with a name of the agent's tools.
    pub fn client_tools(&self, history: &[Msg]) -> Vec<ToolSpec> {
        let offer = client_context(history);
        let is_free = |name: &str| self.tools.iter().all(|tool| tool.spec().name != name);
        let tools = offer.tools.into_iter().filter(|tool| is_free(&tool.name));
        tools
            .map(|tool| {
                let input = tool.input.unwrap_or_else(|| serde_json::Map::new().into());
                ToolSpec::for_client(tool.name, tool.description, input)
            })
            .collect()
    }

    /// The schema that the answer must match: the client's, or else the agent's.
    pub fn output_schema(&self, history: &[Msg]) -> Option<Json> {
        client_context(history).output_schema.or_else(|| self.output_schema.clone())
    }

    /// The system prompt, with the instructions of the client.
    pub fn system_prompt(&self, history: &[Msg]) -> Option<String> {
        let told = [self.system.clone(), client_context(history).instructions.unwrap_or_default()];
        let told: Vec<String> = told.into_iter().filter(|text| !text.is_empty()).collect();
        (!told.is_empty()).then(|| told.join("\n\n"))
    }
}

/// The client context of the last user message.
fn client_context(history: &[Msg]) -> ClientContext {
    let last = history.iter().rev().find(|msg| msg.role() == Role::User);
    last.map(ClientContext::from_msg).unwrap_or_default()
}
