//! A tool of an MCP server.

use super::connection::{LiveClient, McpConnection, request_failure};
use super::{McpError, content};
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, RequestId, ServerResult, Tool as Described,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use turnwire_core::{Json, ToolCall};

/// A tool of an MCP server.
pub(super) struct McpTool {
    spec: ToolSpec,
    /// The name at its server.
    name: String,
    connection: Arc<McpConnection>,
    silence_limit: Duration,
}

impl McpTool {
    pub(super) fn new(
        server: &str,
        tool: Described,
        link: Arc<McpConnection>,
        limit: Duration,
    ) -> Self {
        let input = Json::from_value(&*tool.input_schema);
        let input = input.unwrap_or_else(|_| serde_json::Map::new().into());
        let description = tool.description.as_deref().unwrap_or_default();
        let hints = tool.annotations.unwrap_or_default();
        let spec = ToolSpec {
            title: tool.title.or(hints.title),
            idempotent: hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true),
            ..ToolSpec::new(format!("{server}/{}", tool.name), description, input)
        };
        Self { spec, name: tool.name.into_owned(), connection: link, silence_limit: limit }
    }

    async fn send_call(
        &self,
        live: &LiveClient,
        params: CallToolRequestParams,
    ) -> Result<RequestHandle<RoleClient>, ServiceError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        live.send_cancellable_request(request, PeerRequestOptions::no_options()).await
    }

    /// The error for the model.
    #[expect(clippy::wildcard_enum_match_arm, reason = "an enum of rmcp's")]
    fn call_error(&self, error: &ServiceError) -> ToolError {
        let server = self.connection.server();
        match error {
            // The server is alive, and says what is wrong with the call.
            ServiceError::McpError(error) => ToolError::new(error.message.to_string()),
            ServiceError::TransportClosed => {
                let why = "closed the connection; it is unknown whether the call ran";
                McpError::new(server, why).into()
            }
            error => {
                self.connection.mark_suspect();
                McpError::new(server, request_failure(error)).into()
            }
        }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn run(&self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        let input = if call.input.trim_ascii().is_empty() { "{}" } else { call.input.as_str() };
        let arguments = serde_json::from_str(input)
            .map_err(|error| ToolError::new(format!("the input is not a JSON object: {error}")))?;
        let params = CallToolRequestParams::new(self.name.clone()).with_arguments(arguments);
        let mut live = self.connection.client().await?;
        let sent = match self.send_call(&live, params.clone()).await {
            // The connection closed before the call was sent: send it again.
            Err(ServiceError::TransportClosed) => {
                live = self.connection.client().await?;
                self.send_call(&live, params).await
            }
            sent => sent,
        };
        let RequestHandle { mut rx, id, peer, progress_token, .. } =
            sent.map_err(|error| self.call_error(&error))?;
        let mut open = CancelOnDrop(Some((peer, id)));
        let mut progress = live.service().subscribe(progress_token);
        let mut limit = pin!(tokio::time::sleep(self.silence_limit));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut rx => break answer.unwrap_or(Err(ServiceError::TransportClosed)),
                Some(step) = progress.next() => {
                    limit.as_mut().reset(Instant::now() + self.silence_limit);
                    send_progress(&out, step).await;
                }
                () = &mut limit => {
                    self.connection.mark_suspect();
                    let why = format!("sent no progress for {:?}; the call was cancelled", self.silence_limit);
                    return Err(McpError::new(self.connection.server(), why).into());
                }
            }
        };
        open.0 = None;
        while let Some(step) = progress.next_buffered() {
            send_progress(&out, step).await;
        }
        match answer {
            Ok(ServerResult::CallToolResult(result)) => content::tool_output(result),
            Ok(ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_)) => {
                let why = "asks for input before it answers, which is not supported";
                Err(McpError::new(self.connection.server(), why).into())
            }
            // A newer kind of result: the model may understand it.
            Ok(ServerResult::CustomResult(result)) => Ok(ToolOutput::Text(result.0.to_string())),
            Ok(_) => Err(self.call_error(&ServiceError::UnexpectedResponse)),
            Err(error) => Err(self.call_error(&error)),
        }
    }
}

/// Streams a progress message.
async fn send_progress(out: &ToolContext, step: String) {
    if !step.is_empty() {
        out.send_text(step + "\n").await;
    }
}

/// A call without a response. Dropping it, after a stop or a time limit, notifies the server.
struct CancelOnDrop(Option<(Peer<RoleClient>, RequestId)>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some((peer, id)), Ok(runtime)) =
            (self.0.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            let params = CancelledNotificationParam::new(Some(id), Some("stopped".to_owned()));
            let cancelled = CancelledNotification::new(params);
            // A server that is gone has stopped anyway.
            let _ = peer.send_notification(cancelled.into()).await;
        });
    }
}
