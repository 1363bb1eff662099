//! The configuration of an agent, and what a client's message adds to it. The agent loop reads it.

use crate::client_context::{ClientContext, ClientTool, SystemMessage};
use crate::client_options::ClientOptions;
use crate::hints::HintStore;
use crate::middleware::MiddlewareChain;
use crate::model::{Model, ModelSettings};
use crate::permission::Permissions;
use crate::tool::{InputKind, Tool, ToolSpec};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use turnwire_core::{Json, Msg};
use turnwire_wires::model_request::{ToolDefinition, ToolKind};
use turnwire_wires::openai_responses::APPROVAL_CALL;
use turnwire_wires::{ModelOptions, Wire, check_file_references};

/// The field of a request that asks for compaction.
const CONTEXT_MANAGEMENT: &str = "context_management";
/// The least number of tokens that a client can have its conversation compacted to.
const MIN_THRESHOLD: u32 = 1000;

/// The configuration of an agent.
#[derive(Clone)]
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
    /// Which options of clients reach the model; `None` is the default.
    pub client_options: Option<ClientOptions>,
}

impl LoopConfig {
    /// Finds a tool of the agent.
    pub fn find_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// The client's tools that the model gets: not those with a name of the agent's tools, and hosted ones only if the
    /// client may choose everything.
    pub fn client_tools<'c>(&self, client: &'c ClientContext) -> Vec<&'c ClientTool> {
        let has_hosted = self.client_options().allows_hosted_tools();
        let is_free = |name: &str| self.tools.iter().all(|tool| tool.spec().name != name);
        let is_taken = |tool: &&ClientTool| match tool.kind {
            ToolKind::Function | ToolKind::Custom => is_free(&tool.name),
            ToolKind::Namespace => true,
            ToolKind::Hosted => has_hosted,
        };
        client.tools.iter().filter(is_taken).collect()
    }

    /// The specifications of the client's tools that the model can call.
    pub fn client_specs(&self, client: &ClientContext) -> Vec<ToolSpec> {
        let (tools, hosted): (Vec<_>, Vec<_>) =
            self.client_tools(client).into_iter().partition(|tool| tool.kind.is_callable());
        // The client answers whether the provider may call such a server.
        let (server, question) = APPROVAL_CALL;
        let asks = hosted.iter().any(|tool| tool.kind == ToolKind::Hosted && tool.name == server)
            && self.find_tool(question).is_none();
        let approvals = asks.then(|| ToolSpec {
            input_kind: InputKind::Text,
            ..ToolSpec::for_client(question, "", serde_json::Map::new().into())
        });
        tools
            .into_iter()
            .map(|tool| {
                let input = tool.input.clone().unwrap_or_else(|| serde_json::Map::new().into());
                let spec = ToolSpec::for_client(&*tool.name, &*tool.description, input);
                let input_kind = match tool.kind {
                    ToolKind::Custom => InputKind::Text,
                    ToolKind::Function | ToolKind::Namespace | ToolKind::Hosted => InputKind::Json,
                };
                ToolSpec { input_kind, ..spec }
            })
            .chain(approvals)
            .collect()
    }

    /// All tools in a request to the model.
    pub fn tool_definitions(&self, client: &ClientContext) -> Vec<ToolDefinition> {
        let own = self.tools.iter().map(Tool::spec).map(|spec| ToolDefinition {
            name: spec.name.clone(),
            description: spec.description.clone(),
            input_schema: spec.input.clone(),
            ..ToolDefinition::default()
        });
        let clients = self.named_client_tools(client).into_iter().map(|(tool, name)| {
            let written = self.tool_as_function(tool, client);
            ToolDefinition { name, ..written.unwrap_or_else(|| tool.definition(&client.wire)) }
        });
        own.chain(clients).collect()
    }

    /// The client's tools with the names that the model gets. A protocol without groups has all functions in one list:
    /// there a name that is taken begins with the group.
    pub fn named_client_tools<'c>(
        &self,
        client: &'c ClientContext,
    ) -> Vec<(&'c ClientTool, String)> {
        let has_groups = self.model.wire().is_none_or(|(wire, _)| wire == client.wire);
        let mut taken: HashSet<String> = HashSet::new();
        let name = |tool: &'c ClientTool| {
            let mut name = tool.name.clone();
            if !has_groups && tool.kind.is_callable() {
                if let Some(group) = tool.namespace.as_ref().filter(|_| taken.contains(&name)) {
                    name = format!("{group}__{name}");
                }
                taken.insert(name.clone());
            }
            (tool, name)
        };
        self.client_tools(client).into_iter().map(name).collect()
    }

    /// The function that the model gets instead of a free-text tool, if its protocol has no such tools.
    pub fn tool_as_function(
        &self,
        tool: &ClientTool,
        client: &ClientContext,
    ) -> Option<ToolDefinition> {
        tool.definition(&client.wire).to_function(self.model.wire()?.0)
    }

    /// The schema that the answer must match: the client's, or else the agent's.
    pub fn output_schema(&self, client: &ClientContext) -> Option<Json> {
        client.answer_schema().or_else(|| self.output_schema.clone())
    }

    /// The system messages before the conversation: those of the client as they came, or one with the agent's own prompt
    /// and their texts, because many models accept only one.
    pub fn system_messages(&self, client: &ClientContext) -> Vec<Msg> {
        let first = client.system.iter().filter(|message| message.following.is_none());
        let instructions = client.instructions.iter().map(|text| Msg::system("system", &**text));
        let of_client = instructions.chain(first.map(SystemMessage::to_msg));
        if self.system.is_empty() {
            return of_client.collect();
        }
        let texts = of_client.filter_map(|msg| msg.text("\n")).filter(|text| !text.is_empty());
        let texts: Vec<String> = std::iter::once(self.system.clone()).chain(texts).collect();
        vec![Msg::system("system", texts.join("\n\n"))]
    }

    /// Which options of clients reach the model.
    fn client_options(&self) -> Cow<'_, ClientOptions> {
        if let Some(options) = &self.client_options {
            return Cow::Borrowed(options);
        }
        let has_own_behavior = !self.system.is_empty() || !self.tools.is_empty();
        Cow::Owned(ClientOptions::default_for(has_own_behavior))
    }

    /// The client's options that the model gets, and the names of the others.
    pub fn model_options(&self, client: &ClientContext) -> (ModelOptions, Vec<String>) {
        let mut options = client.options();
        let removed = self.client_options().apply(&mut options);
        (options, removed)
    }

    /// Above how many tokens a client requests that its conversation is compacted: `context_management` of the Responses
    /// API. `None`: the client does not request it, or the provider of the model does it.
    pub fn compact_threshold(&self, client: &ClientContext) -> Option<u32> {
        #[derive(Deserialize)]
        struct Entry {
            r#type: String,
            compact_threshold: Option<u32>,
        }
        let is_same_wire = self.model.wire().is_some_and(|(wire, _)| wire == client.wire);
        let is_native = is_same_wire && *self.client_options() == ClientOptions::All;
        if is_native || client.wire != "openai-responses" {
            return None;
        }
        let entries: Vec<Entry> = client.extra.get(CONTEXT_MANAGEMENT).ok().flatten()?;
        let compaction = entries.into_iter().filter(|entry| entry.r#type == "compaction");
        compaction
            .filter_map(|entry| entry.compact_threshold)
            .min()
            .map(|tokens| tokens.max(MIN_THRESHOLD))
    }

    /// Checks the content of a client's messages. Returns the kinds of content that the model does not get.
    pub fn check_content(&self, messages: &[Msg]) -> Result<Vec<String>, String> {
        let Some((wire, _)) = self.model.wire() else { return Ok(Vec::new()) };
        check_file_references(wire, messages).map_err(|error| error.message().to_owned())?;
        Ok(Wire::named(wire).map(|wire| wire.left_out_content(messages)).unwrap_or_default())
    }

    /// Checks what a client sends along. Returns the names of options and tools that the model does not get.
    pub fn check_client(&self, client: &ClientContext) -> Result<Vec<String>, String> {
        let (options, mut ignored) = self.model_options(client);
        let wire = self.model.wire().map_or("", |(wire, _)| wire);
        let checked = client.options().check_answer(wire, &options);
        checked.map_err(|error| error.message().to_owned())?;
        let tools = self.tool_definitions(client);
        let mut is_written = Box::new(|_: &ClientTool| true) as Box<dyn Fn(&ClientTool) -> bool>;
        if let Some((wire, model)) = self.model.wire() {
            options.check_tool_choice(wire, &tools).map_err(|error| error.message().to_owned())?;
            ignored.extend(options.left_out(wire, model));
            is_written = Box::new(move |tool| {
                tool.namespace.is_some()
                    || tool.kind == ToolKind::Namespace
                    || self.tool_as_function(tool, client).is_some()
                    || tool.definition(&client.wire).is_written_to(wire)
            });
        }
        let taken = self.client_tools(client);
        let is_taken = |tool: &ClientTool| taken.iter().any(|other| std::ptr::eq(*other, tool));
        let lost = client.tools.iter().filter(|tool| !is_taken(tool) || !is_written(tool));
        ignored.extend(lost.map(|tool| format!("tools.{}", tool.name)));
        if self.compact_threshold(client).is_some() {
            ignored.retain(|name| name != CONTEXT_MANAGEMENT);
        }
        Ok(ignored)
    }
}
