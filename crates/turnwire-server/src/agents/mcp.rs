//! The MCP servers of the settings. One that cannot be used does not keep the server from starting: its agents reply
//! without its tools, and it is tried again.

use crate::config::{
    AgentConfig, Config, ConfigError, McpConfig, Problem, ToolPattern, ToolSource,
};
use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use turnwire_agent::mcp::McpTools;
use turnwire_agent::tool::Tool;
use turnwire_agent::{
    Agent, AgentError, ClientContext, Journal, McpServer, Replier, ReplyRequest, Summary,
};
use turnwire_core::Msg;

/// How long after a failed attempt an MCP server is tried again, at first; then twice as long each time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest time between two attempts.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// The MCP servers whose tools agents use.
pub struct McpServers {
    servers: BTreeMap<String, McpServer>,
    states: RwLock<BTreeMap<String, Result<McpTools, String>>>,
}

impl McpServers {
    /// Starts or connects to the MCP servers whose tools agents use, all at once, and waits until each is connected or
    /// has failed. Those that failed are tried again in the background, until the last reference is gone.
    pub async fn connect(config: &Config) -> Result<Arc<Self>, ConfigError> {
        let connected = Arc::new(Self::connect_once(config).await?);
        for name in connected.servers.keys() {
            if let Some(why) = connected.failure(name) {
                tracing::warn!(
                    server = name,
                    "{why} Its agents reply without its tools; it is tried again."
                );
                tokio::spawn(retry(Arc::downgrade(&connected), name.clone()));
            }
        }
        Ok(connected)
    }

    /// The same, but failed servers are not tried again.
    pub async fn connect_once(config: &Config) -> Result<Self, ConfigError> {
        let patterns = || config.agents.values().flat_map(|agent| &agent.tools);
        let is_used = |name: &str| patterns().any(|pattern| pattern.may_match_server(name));
        let mut servers = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, settings) in config.mcp.iter().filter(|(name, _)| is_used(name)) {
            match mcp_server(name, settings) {
                Ok(server) => drop(servers.insert(name.clone(), server)),
                Err(why) => problems.push(config.problem(&["mcp", name], why)),
            }
        }
        if !problems.is_empty() {
            return Err(ConfigError(problems));
        }
        let connecting = servers.iter().map(|(name, server)| async move {
            let tools = server.connect().await.map_err(|error| error.to_string());
            (name.clone(), tools)
        });
        let states = RwLock::new(join_all(connecting).await.into_iter().collect());
        Ok(Self { servers, states })
    }

    /// The names of the servers, each with the names of its tools, or with the reason why it cannot be used.
    pub fn states(&self) -> BTreeMap<String, Result<Vec<String>, String>> {
        let states = self.states.read();
        let names = |tools: &McpTools| {
            tools.tools.iter().map(|tool| tool.spec().name.clone()).collect::<Vec<_>>()
        };
        states
            .iter()
            .map(|(name, state)| (name.clone(), state.as_ref().map(names).map_err(Clone::clone)))
            .collect()
    }

    fn failure(&self, server: &str) -> Option<String> {
        self.states.read().get(server)?.as_ref().err().cloned()
    }

    /// The problems of patterns that match no tool, while all servers that they may mean are connected.
    pub(super) fn check_patterns(
        &self,
        config: &Config,
        agent: &str,
        settings: &AgentConfig,
    ) -> Vec<Problem> {
        let states = self.states.read();
        let mut problems = Vec::new();
        for (index, pattern) in settings.tools.iter().enumerate() {
            let meant = || states.iter().filter(|(server, _)| pattern.may_match_server(server));
            let tools =
                || meant().filter_map(|(_, state)| state.as_ref().ok()).flat_map(|of| &of.tools);
            let fits = |tool: &Arc<dyn Tool>| pattern.matches(ToolSource::Mcp, &tool.spec().name);
            if pattern.source != ToolSource::Mcp
                || tools().any(fits)
                || meant().any(|(_, state)| state.is_err())
            {
                continue;
            }
            let names: Vec<&str> = tools().map(|tool| tool.spec().name.as_str()).collect();
            let message = format!("\"{pattern}\" matches no tool; there are {}", names.join(", "));
            let path = ["agents", agent, "tools", &index.to_string()];
            problems.push(config.problem(&path, message));
        }
        problems
    }
}

/// Connects to a server that failed, after growing pauses.
async fn retry(servers: Weak<McpServers>, name: String) {
    let mut pause = FIRST_RETRY;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
        let Some(server) = servers.upgrade().and_then(|all| all.servers.get(&name).cloned()) else {
            return;
        };
        let state = server.connect().await.map_err(|error| error.to_string());
        let Some(servers) = servers.upgrade() else { return };
        if let Err(why) = &state {
            tracing::debug!(server = name, "{why}");
        } else {
            tracing::info!(server = name, "the MCP server is connected; its agents have its tools");
        }
        let is_connected = state.is_ok();
        servers.states.write().insert(name.clone(), state);
        if is_connected {
            return;
        }
    }
}

/// The MCP server of a setting, or what is wrong with the setting.
fn mcp_server(name: &str, settings: &McpConfig) -> Result<McpServer, String> {
    let McpConfig { command, env, url, token_env, start_timeout, call_timeout } = settings;
    let server = match (command, url) {
        (Some(command), _) => {
            let program = McpServer::command(command.iter().cloned());
            env.iter().fold(program, McpServer::inherit)
        }
        (None, Some(url)) => McpServer::url(url.0.as_str()),
        (None, None) => return Err("requires either `command` or `url`".to_owned()),
    };
    let server = server.with_name(name).start_limit(start_timeout.0).call_limit(call_timeout.0);
    let Some(variable) = token_env else { return Ok(server) };
    match std::env::var(variable) {
        Ok(token) => Ok(server.header("authorization", format!("Bearer {}", token.trim()))),
        Err(_) => Err(format!("its token is missing: {variable} is not set")),
    }
}

/// An agent with tools of MCP servers. Each reply has the tools of the servers that are connected when it begins.
pub(super) struct McpAgent {
    /// The agent without these tools.
    agent: Agent,
    /// Its system prompt.
    system: String,
    patterns: Vec<ToolPattern>,
    servers: Arc<McpServers>,
}

impl McpAgent {
    pub(super) fn new(agent: Agent, settings: &AgentConfig, servers: Arc<McpServers>) -> Self {
        let of_mcp = |pattern: &&ToolPattern| pattern.source == ToolSource::Mcp;
        let patterns = settings.tools.iter().filter(of_mcp).cloned().collect();
        Self { agent, system: settings.system.clone(), patterns, servers }
    }

    /// The agent with the tools and instructions of the servers that are connected. Its prompt names the others, so
    /// that it can tell its user.
    fn current(&self) -> Agent {
        let mut prompt = vec![self.system.clone()];
        let mut wanted = Vec::new();
        for (name, state) in self.servers.states.read().iter() {
            if !self.uses_server(name) {
                continue;
            }
            let Ok(McpTools { tools, instructions }) = state else {
                prompt.push(format!(
                    "The tools of the server \"{name}\" are unavailable at the moment. Say so if they are needed."
                ));
                continue;
            };
            if !instructions.is_empty() {
                prompt.push(format!(
                    "Instructions for the tools of the server \"{name}\":\n{instructions}"
                ));
            }
            let is_wanted = |tool: &&Arc<dyn Tool>| {
                let name = &tool.spec().name;
                self.patterns.iter().any(|pattern| pattern.matches(ToolSource::Mcp, name))
            };
            wanted.extend(tools.iter().filter(is_wanted).cloned());
        }
        prompt.retain(|part| !part.is_empty());
        self.agent.to_builder().system(prompt.join("\n\n")).tools(wanted).build()
    }

    fn uses_server(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.may_match_server(name))
    }
}

#[async_trait]
impl Replier for McpAgent {
    fn description(&self) -> &str {
        self.agent.description()
    }

    fn model_name(&self) -> &str {
        self.agent.model_name()
    }

    fn unavailable(&self) -> Vec<String> {
        let states = self.servers.states.read();
        let of_agent = states.iter().filter(|(name, _)| self.uses_server(name));
        of_agent.filter_map(|(_, state)| state.as_ref().err().cloned()).collect()
    }

    fn check_client(&self, client: &ClientContext) -> Result<Vec<String>, String> {
        self.current().check_client(client)
    }

    fn check_content(&self, messages: &[Msg]) -> Result<Vec<String>, String> {
        self.agent.check_content(messages)
    }

    async fn summarize(&self, conversation: &[Msg]) -> Result<Option<Summary>, AgentError> {
        self.current().summarize(conversation).await
    }

    async fn run(
        &self,
        request: ReplyRequest,
        journal: &mut dyn Journal,
    ) -> Result<(), AgentError> {
        self.current().run(request, journal).await
    }
}
