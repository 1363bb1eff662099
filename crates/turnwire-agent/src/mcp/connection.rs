//! The connection to an MCP server, reopened after a failure.

use super::progress::ProgressListener;
use super::{McpError, McpServer, McpTransport, child, remote};
use crate::schema::{MAX_TOOLS, MAX_TOOLS_BYTES, check_tool};
use rmcp::ServiceExt;
use rmcp::model::{ClientRequest, PaginatedRequestParams, PingRequest, Tool};
use rmcp::service::{
    ClientInitializeError, PeerRequestOptions, RoleClient, RunningService, ServiceError,
};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use turnwire_core::Json;

/// An open connection.
pub(super) type LiveClient = Arc<RunningService<RoleClient, ProgressListener>>;

/// The time limit of a ping.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// The connection to an MCP server.
pub(super) struct McpConnection {
    server: McpServer,
    state: Mutex<ConnectionState>,
    /// Whether a call failed since the last successful ping.
    is_suspect: AtomicBool,
}

#[derive(Default)]
struct ConnectionState {
    client: Option<LiveClient>,
    /// The last failed attempt to connect.
    last_failure: Option<(Instant, McpError)>,
}

impl McpConnection {
    pub(super) fn new(server: McpServer) -> Self {
        Self { server, state: Mutex::default(), is_suspect: AtomicBool::new(false) }
    }

    pub(super) fn server(&self) -> &str {
        &self.server.name
    }

    /// The open connection; connects if necessary.
    pub(super) async fn client(&self) -> Result<LiveClient, McpError> {
        let requested_at = Instant::now();
        let mut state = self.state.lock().await;
        // A caller that waited during a failed attempt does not try again.
        if let Some((at, why)) = &state.last_failure
            && *at >= requested_at
        {
            return Err(why.clone());
        }
        if let Some(live) = &state.client {
            if self.is_alive(live).await {
                return Ok(live.clone());
            }
            tracing::warn!(
                server = self.server(),
                "lost the connection to the MCP server; reconnecting"
            );
            state.client = None;
        }
        let opened = tokio::time::timeout(self.server.start_limit, self.connect()).await;
        let opened = opened.unwrap_or_else(|_| Err(self.start_timeout()));
        match opened {
            Ok(live) => {
                state.client = Some(live.clone());
                Ok(live)
            }
            Err(why) => {
                state.last_failure = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// Marks the connection for a ping before the next call.
    pub(super) fn mark_suspect(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }

    async fn is_alive(&self, live: &LiveClient) -> bool {
        if live.is_transport_closed() {
            self.is_suspect.store(false, Ordering::Relaxed);
            return false;
        }
        if !self.is_suspect.swap(false, Ordering::Relaxed) {
            return true;
        }
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let limit = PING_LIMIT.min(self.server.call_limit);
        let options = PeerRequestOptions::with_timeout(limit);
        let sign =
            async { live.send_request_with_option(ping, options).await?.await_response().await };
        // A server that does not know the ping is alive.
        let sign = tokio::time::timeout(limit, sign).await;
        matches!(sign, Ok(Ok(_) | Err(ServiceError::McpError(_))))
    }

    /// The instructions that the server gave when the connection was opened; may be empty.
    pub(super) async fn instructions(&self) -> String {
        let state = self.state.lock().await;
        let info = state.client.as_ref().and_then(|live| live.peer_info());
        info.and_then(|info| info.instructions.clone()).unwrap_or_default().trim().to_owned()
    }

    /// Lists the tools of the server, within the start limit.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, McpError> {
        let latest = Instant::now() + self.server.start_limit;
        let live = self.client().await?;
        let listed = tokio::time::timeout_at(latest, self.list_tools(&live)).await;
        match listed {
            Ok(Ok(tools)) => Ok(tools),
            // The server has no tools.
            Ok(Err(ServiceError::McpError(error))) if error.code.0 == METHOD_NOT_FOUND => {
                Ok(Vec::new())
            }
            Ok(Err(error)) => Err(McpError::new(self.server(), request_failure(&error))),
            Err(_) => Err(self.start_timeout()),
        }
    }

    /// Lists the tools, except those above the limits.
    async fn list_tools(&self, live: &LiveClient) -> Result<Vec<Tool>, ServiceError> {
        let (mut tools, mut bytes, mut cursor) = (Vec::new(), 0, None);
        // Limits the pages: a server could send empty pages forever.
        for _ in 0..MAX_TOOLS {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = live.list_tools(Some(page)).await?;
            for tool in page.tools {
                let input = Json::from_value(&*tool.input_schema).ok();
                let description = tool.description.as_deref().unwrap_or_default();
                match check_tool(&tool.name, description, input.as_ref()) {
                    Ok(size) if tools.len() < MAX_TOOLS && bytes + size <= MAX_TOOLS_BYTES => {
                        bytes += size;
                        tools.push(tool);
                    }
                    Ok(_) => {
                        let server = self.server();
                        tracing::warn!(
                            server,
                            "MCP server has too many tools: only the first {} are used",
                            tools.len()
                        );
                        return Ok(tools);
                    }
                    Err(why) => {
                        tracing::warn!(server = self.server(), why, "MCP tool ignored");
                    }
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    fn start_timeout(&self) -> McpError {
        let limit = self.server.start_limit;
        McpError::new(self.server(), format!("did not start within {limit:?}"))
    }

    async fn connect(&self) -> Result<LiveClient, McpError> {
        let name = self.server();
        let service = ProgressListener::default();
        let live = match &self.server.transport {
            McpTransport::Child(child) => {
                let process = child::spawn_server(name, child)
                    .map_err(|error| McpError::new(name, format!("cannot be started: {error}")))?;
                service.serve(process).await
            }
            McpTransport::Remote(remote) => {
                let transport =
                    remote::transport(remote).map_err(|why| McpError::new(name, why))?;
                service.serve(transport).await
            }
        };
        live.map(Arc::new).map_err(|error| McpError::new(name, connect_failure(&error)))
    }
}

/// The JSON-RPC error code.
const METHOD_NOT_FOUND: i32 = -32601;

/// Why the connection failed. Messages of libraries may contain the address, which may be secret.
#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of rmcp's")]
fn connect_failure(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::JsonRpcError(error) => format!("refuses: {}", error.message),
        ClientInitializeError::ConnectionClosed(_) => "ended before it was ready".to_owned(),
        ClientInitializeError::TransportError { error, .. } => {
            let error: &(dyn Error + 'static) = &*error.error;
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::BrokenPipe) => "ended before it was ready".to_owned(),
                _ => transport_failure(error),
            }
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "supports none of the protocol versions that we do".to_owned()
        }
        _ => "does not speak MCP".to_owned(),
    }
}

/// Why a request failed.
#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of rmcp's")]
pub(super) fn request_failure(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("says: {}", error.message),
        ServiceError::TransportSend(error) => transport_failure(&*error.error),
        ServiceError::TransportClosed => "is gone".to_owned(),
        ServiceError::Timeout { timeout } => format!("did not respond within {timeout:?}"),
        _ => "sent an invalid response".to_owned(),
    }
}

fn transport_failure(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<reqwest::Error>() {
            return match error.status() {
                Some(status) => format!("answers with status {}", status.as_u16()),
                None if error.is_timeout() => "cannot be reached: it takes too long".to_owned(),
                None if error.is_connect() => "cannot be reached".to_owned(),
                None => "cannot be reached: the connection broke".to_owned(),
            };
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return format!("cannot be reached: {}", error.kind());
        }
        cause = error.source();
    }
    "cannot be reached".to_owned()
}
