//! Builds the agents of the settings (`[agents.*]`, `[mcp.*]`, `[external_tools.*]`), for `turnwire serve` and for
//! programs that embed the server.
//!
//! ```
//! use turnwire_server::agents_from_config;
//! use turnwire_server::config::Config;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let settings = r#"
//!     [agents.helper]
//!     model = "demo"
//!     about = "Helps with everything."
//! "#;
//! let config = Config::parse("turnwire.toml", settings)?;
//! let built = agents_from_config(&config).await?;
//! assert_eq!(built.agents["helper"].description(), "Helps with everything.");
//! assert!(built.agents.contains_key("demo"), "the demo agent is always there");
//! # Ok::<(), turnwire_server::config::ConfigError>(())
//! # }).unwrap();
//! ```

use crate::config::{
    AgentConfig, Config, ConfigError, Fallback, McpConfig, ModelRef, Problem, StructuredOutput,
    ToolSource, WebUrl,
};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use turnwire_agent::model::clock::ClockModel;
use turnwire_agent::model::http::{ApiKey, HttpModel};
use turnwire_agent::model::{Model as _, ModelError};
use turnwire_agent::permission::Rule;
use turnwire_agent::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use turnwire_agent::{
    Agent, AgentBuilder, AgentError, AgentTool, ClientContext, DemoAgent, Journal, McpServer,
    Replier, ReplyRequest, Summary,
};
use turnwire_core::{Msg, ToolCall};

/// The agents of the settings.
pub struct ConfiguredAgents {
    /// By name, with the demo agent. [`App::new`](crate::App::new) takes them.
    pub agents: BTreeMap<String, Arc<dyn Replier>>,
    /// Suspicious settings, and settings that will fail later.
    pub warnings: Vec<Problem>,
}

/// The tools of MCP servers, by the server's name.
pub type McpTools = BTreeMap<String, Vec<Arc<dyn Tool>>>;

/// Connects to the MCP servers of the settings, and builds the agents. Calls no model.
pub async fn agents_from_config(config: &Config) -> Result<ConfiguredAgents, ConfigError> {
    let tools = connect_mcp_servers(config).await?;
    build_agents(config, Some(&tools))
}

/// Starts or connects to the MCP servers whose tools agents use, all at once.
pub async fn connect_mcp_servers(config: &Config) -> Result<McpTools, ConfigError> {
    let patterns = || config.agents.values().flat_map(|agent| &agent.tools);
    let is_used = |name: &str| patterns().any(|pattern| pattern.may_match_server(name));
    let used = config.mcp.iter().filter(|(name, _)| is_used(name));
    let connecting = used.map(|(name, settings)| async move {
        let tools = mcp_server(name, settings)?.connect().await;
        tools.map(|tools| (name.clone(), tools)).map_err(|error| (name, error.to_string()))
    });
    let mut found = McpTools::new();
    let mut problems = Vec::new();
    for connected in futures_util::future::join_all(connecting).await {
        match connected {
            Ok((name, tools)) => drop(found.insert(name, tools)),
            Err((name, why)) => problems.push(config.problem(&["mcp", name], why)),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(ConfigError(problems)) }
}

/// The MCP server of a setting, or the problem with it.
fn mcp_server<'c>(
    name: &'c String,
    settings: &McpConfig,
) -> Result<McpServer, (&'c String, String)> {
    let McpConfig { command, env, url, token_env, start_timeout, call_timeout } = settings;
    let server = match (command, url) {
        (Some(command), _) => {
            let program = McpServer::command(command.iter().cloned());
            env.iter().fold(program, McpServer::inherit)
        }
        (None, Some(url)) => McpServer::url(url.0.as_str()),
        (None, None) => return Err((name, "requires either `command` or `url`".to_owned())),
    };
    let server = server.with_name(name).start_limit(start_timeout.0).call_limit(call_timeout.0);
    let Some(variable) = token_env else { return Ok(server) };
    match std::env::var(variable) {
        Ok(token) => Ok(server.header("authorization", format!("Bearer {}", token.trim()))),
        Err(_) => Err((name, format!("its token is missing: {variable} is not set"))),
    }
}

/// Builds the agents. Calls no model. Without `mcp_tools`, agents have no tools of MCP servers, and patterns for them are
/// not checked.
pub fn build_agents(
    config: &Config,
    mcp_tools: Option<&McpTools>,
) -> Result<ConfiguredAgents, ConfigError> {
    let demo = DemoAgent::from_env()
        .map_err(|error| ConfigError::single(DemoAgent::RATE_VARIABLE, error.to_string()))?;
    let mut builder = AgentsBuilder {
        config,
        mcp_tools,
        demo: Arc::new(demo),
        built: BTreeMap::new(),
        problems: Vec::new(),
        warnings: config.warnings(|name| std::env::var(name).ok()),
    };
    for name in config.agents.keys() {
        builder.agent(name);
    }
    let AgentsBuilder { demo, built: mut agents, problems, warnings, .. } = builder;
    agents.entry("demo".to_owned()).or_insert(demo);
    if problems.is_empty() {
        Ok(ConfiguredAgents { agents, warnings })
    } else {
        Err(ConfigError(problems))
    }
}

/// Builds agents, those that others have as tools first.
struct AgentsBuilder<'c> {
    config: &'c Config,
    mcp_tools: Option<&'c McpTools>,
    demo: Arc<dyn Replier>,
    built: BTreeMap<String, Arc<dyn Replier>>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl AgentsBuilder<'_> {
    /// Builds an agent and its sub-agents; `None` if it has a problem. `Config` refuses cycles.
    fn agent(&mut self, name: &str) -> Option<Arc<dyn Replier>> {
        if let Some(agent) = self.built.get(name) {
            return Some(agent.clone());
        }
        let config = self.config;
        let settings = config.agents.get(name)?;
        let agent: Arc<dyn Replier> = match &settings.model {
            ModelRef::Demo => {
                let (about, replier) = (settings.about.clone(), self.demo.clone());
                Arc::new(DescribedAgent { about, replier })
            }
            ModelRef::Clock => {
                let about = match settings.about.as_str() {
                    "" => "Tells the time, for load tests. Try: 500 tokens, 50 a second",
                    about => about,
                };
                Arc::new(Agent::builder(name, ClockModel).description(about).build())
            }
            ModelRef::Wire { .. } => Arc::new(self.with_model(name, settings)?),
        };
        self.built.insert(name.to_owned(), agent.clone());
        Some(agent)
    }

    fn with_model(&mut self, name: &str, settings: &AgentConfig) -> Option<Agent> {
        let model = model(self.config, name, settings).map_err(|found| self.problems.push(found));
        let tools = self.tools(name, settings);
        let (model, tools) = (model.ok()?, tools?);
        // If the settings name the key, `Config::warnings` has checked it.
        if settings.api_key_env.is_none()
            && settings.api_key_file.is_none()
            && let Some(why) = model.missing_key()
        {
            self.warnings.push(self.config.problem(&["agents", name, "model"], why));
        }
        let about = match settings.about.as_str() {
            "" => format!("An agent on {}", model.name()),
            about => about.to_owned(),
        };
        let builder = Agent::builder(name, model)
            .system(settings.system.clone())
            .description(about)
            .permissions(settings.permissions.iter().map(Rule::from))
            .max_iterations(settings.max_iterations)
            .client_options(settings.client_options());
        Some(tools.into_iter().fold(builder, AgentBuilder::tool).build())
    }

    /// The tools of an agent, each once.
    fn tools(&mut self, name: &str, settings: &AgentConfig) -> Option<Vec<Arc<dyn Tool>>> {
        let config = self.config;
        let is_wanted =
            |source, tool: &str| settings.tools.iter().any(|wanted| wanted.matches(source, tool));
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        let mut are_there = true;
        for (tool, external) in &config.external_tools {
            if is_wanted(ToolSource::External, tool) {
                tools.push(Arc::new(ClientTool(external.spec(tool))));
            }
        }
        for (other, about) in &config.agents {
            if other != name && is_wanted(ToolSource::Agent, other) {
                match self.agent(other) {
                    Some(replier) => {
                        let agent = DescribedAgent { about: String::new(), replier };
                        tools.push(Arc::new(AgentTool::from_replier(
                            other,
                            agent,
                            about.about.clone(),
                        )));
                    }
                    // The reason is among the problems already.
                    None => are_there = false,
                }
            }
        }
        let Some(mcp_tools) = self.mcp_tools else { return are_there.then_some(tools) };
        let all = || mcp_tools.values().flatten();
        tools.extend(all().filter(|tool| is_wanted(ToolSource::Mcp, &tool.spec().name)).cloned());
        for (index, pattern) in settings.tools.iter().enumerate() {
            let fits = |tool: &Arc<dyn Tool>| pattern.matches(ToolSource::Mcp, &tool.spec().name);
            if pattern.source != ToolSource::Mcp || all().any(fits) {
                continue;
            }
            let names: Vec<&str> = mcp_tools
                .iter()
                .filter(|(server, _)| pattern.may_match_server(server))
                .flat_map(|(_, tools)| tools.iter().map(|tool| tool.spec().name.as_str()))
                .collect();
            let message = format!("\"{pattern}\" matches no tool; there are {}", names.join(", "));
            let path = ["agents", name, "tools", &index.to_string()];
            self.problems.push(config.problem(&path, message));
            are_there = false;
        }
        are_there.then_some(tools)
    }
}

/// The model of an agent, with its fallback.
fn model(config: &Config, name: &str, settings: &AgentConfig) -> Result<HttpModel, Problem> {
    let wrong = |key: &'static str| {
        move |error: ModelError| config.problem(&["agents", name, key], error.message)
    };
    let AgentConfig { model, base_url, api_key_env, api_key_file, .. } = settings;
    let own = ApiAccess {
        base_url: base_url.as_ref(),
        key: key(api_key_env.as_deref(), api_key_file.as_deref()),
    };
    let fallback = settings.fallback.as_ref().map(|fallback| {
        let Fallback { model: other, base_url, api_key_env, api_key_file, .. } = fallback;
        let mut access = ApiAccess {
            base_url: base_url.as_ref(),
            key: key(api_key_env.as_deref(), api_key_file.as_deref()),
        };
        if access.base_url.is_none() && access.key.is_none() && is_same_wire(model, other) {
            // Another model of the same provider uses the same URL and key.
            access = own.clone();
        }
        access.builder(other, settings).build().map_err(wrong("fallback"))
    });
    let builder = own.builder(model, settings);
    let builder = match fallback.transpose()? {
        Some(fallback) => builder.fallback(fallback),
        None => builder,
    };
    builder.build().map_err(wrong("model"))
}

fn is_same_wire(one: &ModelRef, other: &ModelRef) -> bool {
    match (one, other) {
        (ModelRef::Wire { wire, .. }, ModelRef::Wire { wire: other, .. }) => wire == other,
        (ModelRef::Demo | ModelRef::Clock, _) | (_, ModelRef::Demo | ModelRef::Clock) => false,
    }
}

/// The URL and the key of a model's API.
#[derive(Clone)]
struct ApiAccess<'c> {
    base_url: Option<&'c WebUrl>,
    key: Option<ApiKey>,
}

impl ApiAccess<'_> {
    fn builder(
        self,
        model: &ModelRef,
        settings: &AgentConfig,
    ) -> turnwire_agent::model::http::HttpModelBuilder {
        let limits = &settings.timeouts;
        let mut builder = HttpModel::builder(model.to_string())
            .retries(settings.retries)
            .connect_limit(limits.connect.0)
            .first_token_limit(limits.first_token.0)
            .token_gap_limit(limits.between_tokens.0);
        if let Some(url) = self.base_url {
            builder = builder.base_url(url.0.as_str());
        }
        if let Some(key) = self.key {
            builder = builder.key(key);
        }
        if let Some(most) = settings.max_tokens {
            builder = builder.max_tokens(most);
        }
        if let Some(temperature) = settings.temperature {
            builder = builder.temperature(temperature);
        }
        if let Some(is_on) = settings.prompt_caching {
            builder = builder.prompt_caching(is_on);
        }
        match settings.structured_output {
            Some(StructuredOutput::Native) => builder.with_schema_mode(),
            Some(StructuredOutput::Tool) => builder.without_schema_mode(),
            None => builder,
        }
    }
}

fn key(variable: Option<&str>, file: Option<&Path>) -> Option<ApiKey> {
    variable.map(ApiKey::from_env).or_else(|| file.map(ApiKey::from_file))
}

/// A tool that the client executes.
struct ClientTool(ToolSpec);

#[async_trait]
impl Tool for ClientTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    /// The agent loop passes such a call to the client; it never runs here.
    async fn run(&self, _: ToolCall, _: ToolContext) -> Result<ToolOutput, ToolError> {
        Err(ToolError::new("The client executes this tool."))
    }
}

/// An agent with the description of the settings.
struct DescribedAgent {
    about: String,
    replier: Arc<dyn Replier>,
}

#[async_trait]
impl Replier for DescribedAgent {
    fn description(&self) -> &str {
        if self.about.is_empty() { self.replier.description() } else { &self.about }
    }

    fn model_name(&self) -> &str {
        self.replier.model_name()
    }

    fn check_client(&self, client: &ClientContext) -> Result<Vec<String>, String> {
        self.replier.check_client(client)
    }

    fn check_content(&self, messages: &[Msg]) -> Result<Vec<String>, String> {
        self.replier.check_content(messages)
    }

    async fn summarize(&self, conversation: &[Msg]) -> Result<Option<Summary>, AgentError> {
        self.replier.summarize(conversation).await
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        self.replier.run(turn, journal).await
    }
}
