//! Handlers for health, metrics, the API description, and tickets.

use crate::App;
use crate::api;
use crate::auth::Caller;
use crate::cluster;
use crate::error::{ApiError, ApiResult};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::{Arc, LazyLock};

/// Whether the server can be used.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HealthStatus {
    /// `ok` or `ready`.
    status: &'static str,
    /// How many agents lack something at the moment, such as an MCP server that is down. `GET /v1/agents` has the reasons.
    #[serde(default, skip_serializing_if = "is_zero")]
    degraded_agents: usize,
}

/// A ticket.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TicketView {
    /// The value for `?ticket=`.
    ticket: String,
    /// In seconds.
    expires_in: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(crate) async fn healthz() -> Json<HealthStatus> {
    Json(HealthStatus { status: "ok", degraded_agents: 0 })
}

/// Not ready while the server stops, or while the store cannot be written.
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> ApiResult<Json<HealthStatus>> {
    if app.shutdown.is_cancelled() {
        return Err(ApiError::unavailable("the server is stopping").kind("stopping"));
    }
    app.healthy().await?;
    let degraded_agents =
        app.agents.values().filter(|agent| !agent.unavailable().is_empty()).count();
    Ok(Json(HealthStatus { status: "ready", degraded_agents }))
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], app.metrics.text()).into_response()
}

pub(crate) async fn openapi() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| api::document().to_string());
    json_response(DOCUMENT.as_str())
}

pub(crate) async fn create_ticket(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> ApiResult<Response> {
    let ticket = cluster::tickets::issue(&app, &caller).await?;
    let body = TicketView { ticket: ticket.text, expires_in: ticket.expires_in.as_secs() };
    let headers = [(CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::CREATED, headers, Json(body)).into_response())
}

fn json_response(text: &'static str) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
