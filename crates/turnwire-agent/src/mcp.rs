//! Tools of MCP servers: child processes that speak over their pipes, and servers over HTTP.
//!
//! ```no_run
//! use turnwire_agent::model::Model;
//! use turnwire_agent::{Agent, McpServer};
//!
//! # async fn friday(model: impl Model) -> Result<(), turnwire_agent::mcp::McpError> {
//! let files = McpServer::command(["files-server", "--root", "."]).with_name("files");
//! let mut friday = Agent::builder("friday", model);
//! for tool in files.connect().await? {
//!     friday = friday.tool(tool);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A tool is called `SERVER/TOOL` in events, rules and settings; the model is told `SERVER__TOOL`,
//! because providers take no `/`. It runs again after a crash where its server says that it only reads,
//! or that it may (`readOnlyHint`, `idempotentHint`); whether it destroys something
//! (`destructiveHint`) decides nothing: rules do.
//!
//! A connection that ended is made again at the next call, and the child is started again with it. Which
//! tools there are is asked once, when it is made for the first time.
//!
//! # What a child inherits
//!
//! Of the environment only what a program needs to be found and to find its way: `PATH`, `HOME`, `USER`,
//! `LOGNAME`, `SHELL`, `TERM`, `LANG`, `LC_ALL`, `TZ`, `TMPDIR`, and on Windows what is needed there.
//! Keys of models are not among them. What else it needs is [given](McpServer::env) or
//! [named](McpServer::inherit). Its working directory is ours, unless [another](McpServer::working_dir) is
//! given. What it writes to its standard error is traced at the level debug.
//!
//! # How a child ends
//!
//! It ends, with every process that it has started, when its last tool is dropped. On Linux that includes
//! processes that have left its process group (`setsid`), or whose parent has ended; those that also have
//! cleared their environment are found where the program [adopts orphans](adopt_orphans). On other systems it
//! is the process group (Unix) or the job (Windows). If this process is killed (SIGKILL), nobody is left to
//! end them: the input of a child ends, and what the child does not end itself goes on.

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

/// How long a server may take to start and to say what it can do.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long a call may give no sign.
const CALL_LIMIT: Duration = Duration::from_mins(2);

/// No limit is longer: it is added to the time of day.
const MAX_LIMIT: Duration = Duration::from_hours(24 * 365);

/// An MCP server, and how to reach it.
#[derive(Clone)]
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
    /// A program that speaks MCP over its pipes, and its arguments. It is called like the program.
    pub fn command<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        let program = command.first().map(String::as_str).unwrap_or_default();
        let name = std::path::Path::new(program).file_stem().and_then(|stem| stem.to_str());
        let name = name.unwrap_or("mcp").to_owned();
        Self::new(name, McpTransport::Child(ChildConfig { command, ..ChildConfig::default() }))
    }

    /// A server over streamable HTTP. It is called like its host.
    pub fn url(url: impl Into<String>) -> Self {
        let url = url.into();
        let host = url::Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let name = host.unwrap_or_else(|| "mcp".to_owned());
        Self::new(name, McpTransport::Remote(RemoteConfig { url, headers: Vec::new() }))
    }

    fn new(name: String, way: McpTransport) -> Self {
        Self { name, transport: way, start_limit: START_LIMIT, call_limit: CALL_LIMIT }
    }

    /// What it is called: what stands before the `/` in the names of its tools.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// A variable of a child's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let McpTransport::Child(child) = &mut self.transport {
            child.env.push((name.into(), value.into()));
        }
        self
    }

    /// A variable that a child gets from our own environment, if it is there.
    #[must_use]
    pub fn inherit(mut self, name: impl Into<String>) -> Self {
        if let McpTransport::Child(child) = &mut self.transport {
            child.inherited_variables.push(name.into());
        }
        self
    }

    /// Where a child works.
    #[must_use]
    pub fn working_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        if let McpTransport::Child(child) = &mut self.transport {
            child.working_dir = Some(folder.into());
        }
        self
    }

    /// A header of each request, such as `Authorization`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let McpTransport::Remote(remote) = &mut self.transport {
            remote.headers.push((name.into(), value.into()));
        }
        self
    }

    /// How long it may take to start and to say what it can do: 20 seconds where nobody says so.
    #[must_use]
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit.min(MAX_LIMIT);
        self
    }

    /// How long a call may give no sign: two minutes where nobody says so. Progress is a sign.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit.min(MAX_LIMIT);
        self
    }

    /// Starts or reaches it, and asks what it can do. The connection lives as long as its tools.
    pub async fn connect(&self) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        let link = Arc::new(McpConnection::new(self.clone()));
        let tools = link.tools().await?;
        let tools = tools.into_iter().map(|tool| -> Arc<dyn Tool> {
            Arc::new(McpTool::new(&self.name, tool, link.clone(), self.call_limit))
        });
        Ok(tools.collect())
    }
}

/// What it is given may be secret, and so may its address.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match &self.transport {
            McpTransport::Child(_) => "child",
            McpTransport::Remote(_) => "remote",
        };
        f.debug_struct("McpServer")
            .field("name", &self.name)
            .field("way", &way)
            .finish_non_exhaustive()
    }
}

/// Why an MCP server cannot be used. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpError(String);

impl McpError {
    fn new(server: &str, why: impl fmt::Display) -> Self {
        Self(format!("The MCP server {server} {why}."))
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for McpError {}

impl From<McpError> for ToolError {
    fn from(error: McpError) -> Self {
        Self::new(error.0)
    }
}
