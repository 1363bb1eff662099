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

mod mcp;

pub use mcp::McpServers;

use crate::config::{
    AgentConfig, Config, ConfigError, Fallback, ModelRef, Problem, StructuredOutput, ToolSource,
    WebUrl,
};
use async_trait::async_trait;
use mcp::McpAgent;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_agent::model::clock::ClockModel;
use turnwire_agent::model::http::{ApiKey, HttpModel, HttpModelBuilder};
use turnwire_agent::model::{Model as _, ModelError};
use turnwire_agent::permission::Rule;
use turnwire_agent::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use turnwire_agent::{
    Agent, AgentError, AgentTool, ClientContext, DemoAgent, Journal, Replier, ReplyRequest, Summary,
};
use turnwire_core::{Msg, ToolCall};

/// The agents of the settings.
pub struct ConfiguredAgents {
    /// By name, with the demo agent. [`App::new`](crate::App::new) takes them.
    pub agents: BTreeMap<String, Arc<dyn Replier>>,
    /// Suspicious settings, and settings that will fail later.
    pub warnings: Vec<Problem>,
}

/// Connects to the MCP servers of the settings, and builds the agents. Calls no model. An MCP server that cannot be used
/// is no error: see [`Replier::unavailable`].
pub async fn agents_from_config(config: &Config) -> Result<ConfiguredAgents, ConfigError> {
    let servers = McpServers::connect(config).await?;
    build_agents(config, Some(&servers))
}

/// Builds the agents. Calls no model. Without `servers`, agents have no tools of MCP servers, and patterns for them are
/// not checked.
pub fn build_agents(
    config: &Config,
    servers: Option<&Arc<McpServers>>,
) -> Result<ConfiguredAgents, ConfigError> {
    let demo = DemoAgent::from_env()
        .map_err(|error| ConfigError::single(DemoAgent::RATE_VARIABLE, error.to_string()))?;
    let mut builder = AgentsBuilder {
        config,
        servers,
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
    servers: Option<&'c Arc<McpServers>>,
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
            ModelRef::Wire { .. } => self.with_model(name, settings)?,
        };
        self.built.insert(name.to_owned(), agent.clone());
        Some(agent)
    }

    fn with_model(&mut self, name: &str, settings: &AgentConfig) -> Option<Arc<dyn Replier>> {
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
        let agent = Agent::builder(name, model)
            .system(settings.system.clone())
            .description(about)
            .permissions(settings.permissions.iter().map(Rule::from))
            .max_iterations(settings.max_iterations)
            .client_options(settings.client_options())
            .tools(tools)
            .build();
        let uses_mcp = settings.tools.iter().any(|pattern| pattern.source == ToolSource::Mcp);
        Some(match self.servers.filter(|_| uses_mcp) {
            Some(servers) => Arc::new(McpAgent::new(agent, settings, servers.clone())),
            None => Arc::new(agent),
        })
    }

    /// The tools of an agent, each once, without those of MCP servers.
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
        let wrong = self.servers.map(|servers| servers.check_patterns(config, name, settings));
        let wrong = wrong.unwrap_or_default();
        are_there &= wrong.is_empty();
        self.problems.extend(wrong);
        are_there.then_some(tools)
    }
}

/// Sends a short message to the models of an agent: its model and its fallback. Returns for each how long the response
/// took, or why there is none. An agent without a model of a provider has none to try.
pub async fn try_models(
    config: &Config,
    name: &str,
    settings: &AgentConfig,
) -> Result<Vec<(String, Result<Duration, String>)>, ConfigError> {
    let models = ModelBuilders::new(settings);
    let mut tried = Vec::new();
    for (key, reference, builder) in
        [("model", Some(&settings.model), Some(models.main))].into_iter().chain([(
            "fallback",
            settings.fallback.as_ref().map(|fallback| &fallback.model),
            models.fallback,
        )])
    {
        let (Some(reference @ ModelRef::Wire { .. }), Some(builder)) = (reference, builder) else {
            continue;
        };
        let model = builder.retries(0).build();
        let model = model.map_err(|error| {
            ConfigError(vec![config.problem(&["agents", name, key], error.message)])
        })?;
        let agent = Agent::builder(name, model).max_iterations(1).build();
        let started = Instant::now();
        let reply = agent.call([Msg::user("turnwire", "Reply with OK.")]).await;
        tried.push((
            reference.to_string(),
            reply.map(|_| started.elapsed()).map_err(|error| error.to_string()),
        ));
    }
    Ok(tried)
}

/// The model of an agent, with its fallback.
fn model(config: &Config, name: &str, settings: &AgentConfig) -> Result<HttpModel, Problem> {
    let wrong = |key: &'static str| {
        move |error: ModelError| config.problem(&["agents", name, key], error.message)
    };
    let models = ModelBuilders::new(settings);
    let fallback = models.fallback.map(|fallback| fallback.build().map_err(wrong("fallback")));
    let builder = match fallback.transpose()? {
        Some(fallback) => models.main.fallback(fallback),
        None => models.main,
    };
    builder.build().map_err(wrong("model"))
}

/// The models of an agent.
struct ModelBuilders {
    main: HttpModelBuilder,
    fallback: Option<HttpModelBuilder>,
}

impl ModelBuilders {
    fn new(settings: &AgentConfig) -> Self {
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
            access.builder(other, settings)
        });
        Self { main: own.builder(model, settings), fallback }
    }
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
    fn builder(self, model: &ModelRef, settings: &AgentConfig) -> HttpModelBuilder {
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

    fn unavailable(&self) -> Vec<String> {
        self.replier.unavailable()
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
