//! Tools of MCP servers: child processes with stdio, and servers over HTTP.
//!
//! ```no_run
//! use turnwire_agent::model::Model;
//! use turnwire_agent::{Agent, McpServer};
//!
//! # async fn friday(model: impl Model) -> Result<(), turnwire_agent::mcp::McpError> {
//! let files = McpServer::command(["files-server", "--root", "."]).with_name("files");
//! let files = files.connect().await?;
//! let friday = Agent::builder("friday", model).system(files.instructions).tools(files.tools).build();
//! # Ok(())
//! # }
//! ```
//!
//! A tool is called `SERVER/TOOL` in events, rules and settings; the model gets `SERVER__TOOL`, because
//! providers accept no `/`. It runs again after a crash if its server marks it as read-only or idempotent
//! (`readOnlyHint`, `idempotentHint`). `destructiveHint` has no effect: use permission rules.
//!
//! A broken connection is opened again at the next call, and a child process is restarted. The tools are
//! listed once, at the first connection.
//!
//! # What a child inherits
//!
//! Of our environment only basic variables: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `LANG`,
//! `LC_ALL`, `TZ`, `TMPDIR`, and on Windows what programs need there. API keys of models are not among
//! them. Add variables with [`env`](McpServer::env) or [`inherit`](McpServer::inherit). The working
//! directory is ours, unless [`working_dir`](McpServer::working_dir) sets another. Its standard error is
//! logged at the level debug.
//!
//! # How a child ends
//!
//! It ends, with every process that it started, when its last tool is dropped. On Linux that includes
//! processes that left its process group (`setsid`) or whose parent has ended; processes that also cleared
//! their environment are found if the program [adopts orphans](adopt_orphans). On other systems it is the
//! process group (Unix) or the job (Windows). If this process is killed (SIGKILL), nothing ends them: a
//! child notices that its input ends, and detached processes continue.

mod child;
mod connection;
mod content;
#[cfg(target_os = "linux")]
mod descendants;
mod progress;
mod remote;
mod tool;

#[cfg(target_os = "linux")]
pub use descendants::{adopt_orphans, end_descendants};

use crate::tool::{Tool, ToolError};
use connection::McpConnection;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tool::McpTool;

/// The default time limit to start and list the tools.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The default time limit of a call without progress.
const CALL_LIMIT: Duration = Duration::from_mins(2);

/// The longest time limit; it can be added to any time.
const MAX_LIMIT: Duration = Duration::from_hours(24 * 365);

/// The most bytes of a server's instructions that are used.
const MAX_INSTRUCTIONS: usize = 32 * 1024;

/// What an MCP server has for an agent.
#[derive(Clone, Default)]
pub struct McpTools {
    /// Its tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// How to use them, for the system prompt of the agent; may be empty.
    pub instructions: String,
}

/// An MCP server and how to connect to it.
#[derive(Clone)]
#[must_use]
pub struct McpServer {
    name: String,
    transport: McpTransport,
    start_limit: Duration,
    call_limit: Duration,
}

#[derive(Clone)]
enum McpTransport {
    Child(ChildConfig),
    Remote(RemoteConfig),
}

#[derive(Clone, Default)]
struct ChildConfig {
    command: Vec<String>,
    working_dir: Option<PathBuf>,
    env: Vec<(String, String)>,
    inherited_variables: Vec<String>,
}

#[derive(Clone, Default)]
struct RemoteConfig {
    url: String,
    headers: Vec<(String, String)>,
}

impl McpServer {
    /// A program that speaks MCP over stdio, and its arguments. Its name is that of the program.
    pub fn command<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        let program = command.first().map(String::as_str).unwrap_or_default();
        let name = std::path::Path::new(program).file_stem().and_then(|stem| stem.to_str());
        let name = name.unwrap_or("mcp").to_owned();
        Self::new(name, McpTransport::Child(ChildConfig { command, ..ChildConfig::default() }))
    }

    /// A server over streamable HTTP. Its name is the host.
    pub fn url(url: impl Into<String>) -> Self {
        let url = url.into();
        let host = url::Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let name = host.unwrap_or_else(|| "mcp".to_owned());
        Self::new(name, McpTransport::Remote(RemoteConfig { url, headers: Vec::new() }))
    }

    fn new(name: String, transport: McpTransport) -> Self {
        Self { name, transport, start_limit: START_LIMIT, call_limit: CALL_LIMIT }
    }

    /// The name: the part before the `/` in the names of its tools.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets an environment variable of the child.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let McpTransport::Child(child) = &mut self.transport {
            child.env.push((name.into(), value.into()));
        }
        self
    }

    /// Passes a variable of our environment to the child.
    pub fn inherit(mut self, name: impl Into<String>) -> Self {
        if let McpTransport::Child(child) = &mut self.transport {
            child.inherited_variables.push(name.into());
        }
        self
    }

    /// The working directory of the child.
    pub fn working_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        if let McpTransport::Child(child) = &mut self.transport {
            child.working_dir = Some(folder.into());
        }
        self
    }

    /// A header of each request, such as `Authorization`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let McpTransport::Remote(remote) = &mut self.transport {
            remote.headers.push((name.into(), value.into()));
        }
        self
    }

    /// The time limit to start and list the tools (20 seconds).
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit.min(MAX_LIMIT);
        self
    }

    /// The time limit of a call without progress (2 minutes).
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit.min(MAX_LIMIT);
        self
    }

    /// Connects and lists the tools. The connection lives as long as the tools.
    pub async fn connect(&self) -> Result<McpTools, McpError> {
        let link = Arc::new(McpConnection::new(self.clone()));
        let tools = link.tools().await?;
        let tools = tools.into_iter().map(|tool| -> Arc<dyn Tool> {
            Arc::new(McpTool::new(&self.name, tool, link.clone(), self.call_limit))
        });
        let (tools, mut instructions) = (tools.collect(), link.instructions().await);
        if instructions.len() > MAX_INSTRUCTIONS {
            tracing::warn!(
                server = self.name,
                "instructions of the MCP server are too long: only a part is used"
            );
            instructions.truncate(instructions.floor_char_boundary(MAX_INSTRUCTIONS));
        }
        Ok(McpTools { tools, instructions })
    }
}

/// Hides settings and the address, which may be secret.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match &self.transport {
            McpTransport::Child(_) => "child",
            McpTransport::Remote(_) => "remote",
        };
        f.debug_struct("McpServer")
            .field("name", &self.name)
            .field("transport", &transport)
            .finish_non_exhaustive()
    }
}

/// Why an MCP server cannot be used. The message contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct McpError(String);

impl McpError {
    fn new(server: &str, why: impl fmt::Display) -> Self {
        Self(format!("The MCP server {server} {why}."))
    }
}

impl From<McpError> for ToolError {
    fn from(error: McpError) -> Self {
        Self::new(error.0)
    }
}
