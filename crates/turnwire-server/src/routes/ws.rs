//! `GET /v1/ws`: opens a WebSocket for many sessions.

use crate::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::Query;
use crate::listen::ClientConnection;
use crate::socket::{self, SocketOptions};
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_wires::Wire;

/// The query parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct SocketQuery {
    /// `blocks` (default), `turnwire` or `agentscope`.
    wire: Option<String>,
}

/// Opens a WebSocket. A client without credentials sends them as its first command.
pub async fn open_socket(
    State(app): State<Arc<App>>,
    caller: Option<Caller>,
    conn: Option<Extension<Arc<ClientConnection>>>,
    Query(query): Query<SocketQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let wire = socket_wire(query.wire.as_deref())?;
    let max_message = app.config.limits.websocket_frame.bytes();
    let options = SocketOptions { wire, max_message, responses: None };
    socket::accept(upgrade, app, caller, options, conn)
}

fn socket_wire(name: Option<&str>) -> ApiResult<&'static Wire> {
    let name = name.filter(|name| !name.is_empty()).unwrap_or("blocks");
    Wire::named(name).filter(|wire| socket::WIRES.contains(&wire.name)).ok_or_else(|| {
        ApiError::bad_request("this wire has no WebSocket")
            .hint(format!("wire is one of {}", socket::WIRES.join(", ")))
    })
}
