//! MCP servers, and an agent that calls one tool.

use crate::fake_server::{FOLDER, FakeServer, TEST};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::tool::Tool;
use turnwire_agent::{Agent, McpServer};
use turnwire_core::{Msg, ToolResult};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An MCP server, the folder for its files, and its tools.
pub struct McpHarness {
    pub folder: TempDir,
    pub tools: Vec<Arc<dyn Tool>>,
    pub http: Option<HttpServer>,
}

/// A server over HTTP.
pub struct HttpServer {
    pub address: std::net::SocketAddr,
    _ends: DropGuard,
}

/// A server that is a child process.
pub fn child(folder: &Path) -> McpServer {
    child_command(&[], folder)
}

/// A shell that runs these commands and then replaces itself with the server. `$F` is the folder.
#[cfg(target_os = "linux")]
pub fn child_after_commands(commands: &str, folder: &Path) -> McpServer {
    let script = format!("F=${FOLDER}; {commands} exec \"$@\"");
    child_command(&["sh", "-c", &script, "sh"], folder)
}

fn child_command(before: &[&str], folder: &Path) -> McpServer {
    let own = std::env::current_exe().unwrap();
    let command = [own.to_str().unwrap(), "--exact", TEST, "--ignored", "--nocapture"];
    let command = before.iter().copied().chain(command);
    // With one thread, as on a machine with one processor, the harness would write the test's name in
    // front of the server's first line.
    let command = command.chain(["--test-threads=2"]);
    McpServer::command(command).with_name("files").env(FOLDER, folder.to_str().unwrap())
}

impl McpHarness {
    pub async fn child() -> Self {
        Self::child_with(|server| server).await
    }

    /// A child process with other settings.
    pub async fn child_with(settings: impl FnOnce(McpServer) -> McpServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = settings(child(folder.path()));
        let tools = server.connect().await.unwrap().tools;
        Self { folder, tools, http: None }
    }

    pub async fn http() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = serve(listener, folder.path());
        let server = McpServer::url(format!("http://{}/mcp", http.address)).with_name("files");
        let tools = server.connect().await.unwrap().tools;
        Self { folder, tools, http: Some(http) }
    }

    pub fn agent(&self, tool: &str, input: &str) -> Agent {
        let answers = [vec![ScriptStep::call("c", tool, input)], vec![ScriptStep::text("So.")]];
        Agent::builder("friday", ScriptedModel::new(answers)).tools(self.tools.clone()).build()
    }

    /// Calls a tool, and returns its result.
    pub async fn call(&self, tool: &str, input: &str) -> ToolResult {
        let agent = self.agent(tool, input);
        let reply = agent.call([Msg::user("ann", "go")]);
        let reply = tokio::time::timeout(PATIENCE, reply).await.expect("it hangs").unwrap();
        assert_eq!(reply.text("").as_deref(), Some("So."), "{:?}", reply.error());
        let (call, result) = reply.tool_calls().next().unwrap();
        assert!(call.name.starts_with("files/"), "{}", call.name);
        result.unwrap().clone()
    }

    /// Waits until the server has created a file.
    pub async fn wait_for_trace(&self, name: &str) {
        let path = self.folder.path().join(name);
        eventually(|| path.exists()).await;
    }
}

/// Serves at an address until it is dropped.
pub fn serve(listener: TcpListener, folder: &Path) -> HttpServer {
    let address = listener.local_addr().unwrap();
    let ends = CancellationToken::new();
    let server = FakeServer { folder: folder.to_owned() };
    let config = StreamableHttpServerConfig::default().with_cancellation_token(ends.clone());
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let until = ends.clone().cancelled_owned();
    tokio::spawn(async move {
        tokio::select! {
            ended = async { axum::serve(listener, router).await } => ended.unwrap(),
            () = until => {}
        }
    });
    HttpServer { address, _ends: ends.drop_guard() }
}

/// Polls until the condition holds.
pub async fn eventually(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it takes too long");
}
