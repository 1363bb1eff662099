//! The agents of the settings, made real.

use super::ServeError;
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
    Agent, AgentBuilder, AgentError, AgentTool, DemoAgent, Journal, McpServer, Replier,
    ReplyRequest,
};
use turnwire_core::ToolCall;
use turnwire_server::StartError;
use turnwire_server::config::{
    AgentConfig, Config, ConfigError, Fallback, McpConfig, ModelRef, Problem, ToolSource, WebUrl,
};

/// The agents that run here, by their names.
type Agents = BTreeMap<String, Arc<dyn Replier>>;

/// The tools of the MCP servers, by the servers' names.
pub(crate) type FarTools = BTreeMap<String, Vec<Arc<dyn Tool>>>;

/// Starts and reaches the MCP servers that agents have tools of, all at once.
pub(crate) async fn far_tools(config: &Config) -> Result<FarTools, ServeError> {
    let patterns = || config.agents.values().flat_map(|agent| &agent.tools);
    let is_used = |name: &str| patterns().any(|pattern| pattern.may_match_server(name));
    let used = config.mcp.iter().filter(|(name, _)| is_used(name));
    let connecting = used.map(|(name, settings)| async move {
        let tools = far(name, settings)?.connect().await;
        tools.map(|tools| (name.clone(), tools)).map_err(|error| (name, error.to_string()))
    });
    let mut found = FarTools::new();
    let mut problems = Vec::new();
    for connected in futures_util::future::join_all(connecting).await {
        match connected {
            Ok((name, tools)) => drop(found.insert(name, tools)),
            Err((name, why)) => problems.push(config.problem(&["mcp", name], why)),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(ConfigError(problems).into()) }
}

/// How to reach an MCP server, or why nobody can.
fn far<'c>(name: &'c String, settings: &McpConfig) -> Result<McpServer, (&'c String, String)> {
    let McpConfig { command, env, url, token_env, start_timeout, call_timeout } = settings;
    let server = match (command, url) {
        (Some(command), _) => {
            let program = McpServer::command(command.iter().cloned());
            env.iter().fold(program, McpServer::inherit)
        }
        (None, Some(url)) => McpServer::url(url.0.as_str()),
        (None, None) => return Err((name, "there is neither `command` nor `url`".to_owned())),
    };
    let server = server.with_name(name).start_limit(start_timeout.0).call_limit(call_timeout.0);
    let Some(variable) = token_env else { return Ok(server) };
    match std::env::var(variable) {
        Ok(token) => Ok(server.header("authorization", format!("Bearer {}", token.trim()))),
        Err(_) => Err((name, format!("there is no token for it: {variable} is not set"))),
    }
}

/// The agents that run here, and what may go wrong with them. No model is asked. Where nobody has
/// reached the MCP servers, what they can do is not looked at.
pub(crate) fn agents(
    config: &Config,
    far: Option<&FarTools>,
) -> Result<(Agents, Vec<Problem>), ServeError> {
    let demo = DemoAgent::from_env().map_err(|error| StartError::new(error.to_string()))?;
    let mut making = Making {
        config,
        far,
        demo: Arc::new(demo),
        made: Agents::new(),
        problems: Vec::new(),
        warnings: config.warnings(|name| std::env::var(name).ok()),
    };
    for name in config.agents.keys() {
        making.agent(name);
    }
    let Making { demo, mut made, problems, warnings, .. } = making;
    made.entry("demo".to_owned()).or_insert(demo);
    if problems.is_empty() { Ok((made, warnings)) } else { Err(ConfigError(problems).into()) }
}

/// Agents in the making: those that others have as tools come first.
struct Making<'c> {
    config: &'c Config,
    far: Option<&'c FarTools>,
    demo: Arc<dyn Replier>,
    made: Agents,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Making<'_> {
    /// An agent by its name, if it can be made. Settings in which one would wait for itself were
    /// refused when they were read.
    fn agent(&mut self, name: &str) -> Option<Arc<dyn Replier>> {
        if let Some(agent) = self.made.get(name) {
            return Some(agent.clone());
        }
        let config = self.config;
        let settings = config.agents.get(name)?;
        let agent: Arc<dyn Replier> = match &settings.model {
            ModelRef::Demo => {
                let (about, replier) = (settings.about.clone(), self.demo.clone());
                Arc::new(Named { about, replier })
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
        self.made.insert(name.to_owned(), agent.clone());
        Some(agent)
    }

    fn with_model(&mut self, name: &str, settings: &AgentConfig) -> Option<Agent> {
        let model = model(self.config, name, settings).map_err(|found| self.problems.push(found));
        let tools = self.tools(name, settings);
        let (model, tools) = (model.ok()?, tools?);
        // Where the settings say where the key is, they have been looked at.
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
            .max_iterations(settings.max_iterations);
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
                tools.push(Arc::new(ByClient(external.spec(tool))));
            }
        }
        for (other, about) in &config.agents {
            if other != name && is_wanted(ToolSource::Agent, other) {
                match self.agent(other) {
                    Some(replier) => {
                        let agent = Named { about: String::new(), replier };
                        tools.push(Arc::new(AgentTool::from_replier(
                            other,
                            agent,
                            about.about.clone(),
                        )));
                    }
                    // Why is among the problems already.
                    None => are_there = false,
                }
            }
        }
        let Some(far) = self.far else { return are_there.then_some(tools) };
        let all = || far.values().flatten();
        tools.extend(all().filter(|tool| is_wanted(ToolSource::Mcp, &tool.spec().name)).cloned());
        for (index, pattern) in settings.tools.iter().enumerate() {
            let fits = |tool: &Arc<dyn Tool>| pattern.matches(ToolSource::Mcp, &tool.spec().name);
            if pattern.source != ToolSource::Mcp || all().any(fits) {
                continue;
            }
            let names: Vec<&str> = far
                .iter()
                .filter(|(server, _)| pattern.may_match_server(server))
                .flat_map(|(_, tools)| tools.iter().map(|tool| tool.spec().name.as_str()))
                .collect();
            let message = format!("\"{pattern}\" fits no tool; there are {}", names.join(", "));
            let path = ["agents", name, "tools", &index.to_string()];
            self.problems.push(config.problem(&path, message));
            are_there = false;
        }
        are_there.then_some(tools)
    }
}

/// The model of an agent, and the one that stands in for it.
fn model(config: &Config, name: &str, settings: &AgentConfig) -> Result<HttpModel, Problem> {
    let wrong = |key: &'static str| {
        move |error: ModelError| config.problem(&["agents", name, key], error.message)
    };
    let AgentConfig { model, base_url, api_key_env, api_key_file, .. } = settings;
    let own = Place {
        base_url: base_url.as_ref(),
        key: key(api_key_env.as_deref(), api_key_file.as_deref()),
    };
    let fallback = settings.fallback.as_ref().map(|fallback| {
        let Fallback { model: other, base_url, api_key_env, api_key_file, .. } = fallback;
        let mut place = Place {
            base_url: base_url.as_ref(),
            key: key(api_key_env.as_deref(), api_key_file.as_deref()),
        };
        if place.base_url.is_none() && place.key.is_none() && is_same_wire(model, other) {
            // Another model of the same provider is where the first one is.
            place = own.clone();
        }
        place.builder(other, settings).build().map_err(wrong("fallback"))
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

/// Where a model is, and where its key is.
#[derive(Clone)]
struct Place<'c> {
    base_url: Option<&'c WebUrl>,
    key: Option<ApiKey>,
}

impl Place<'_> {
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
        builder
    }
}

fn key(variable: Option<&str>, file: Option<&Path>) -> Option<ApiKey> {
    variable.map(ApiKey::from_env).or_else(|| file.map(ApiKey::from_file))
}

/// A tool that the client executes.
struct ByClient(ToolSpec);

#[async_trait]
impl Tool for ByClient {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    /// The loop hands such a call over; it is never run here.
    async fn run(&self, _: ToolCall, _: ToolContext) -> Result<ToolOutput, ToolError> {
        Err(ToolError::new("The client executes this tool."))
    }
}

/// Somebody who replies, with a line of the settings' own.
struct Named {
    about: String,
    replier: Arc<dyn Replier>,
}

#[async_trait]
impl Replier for Named {
    fn description(&self) -> &str {
        if self.about.is_empty() { self.replier.description() } else { &self.about }
    }

    fn model_name(&self) -> &str {
        self.replier.model_name()
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        self.replier.run(turn, journal).await
    }
}
