//! `GET /v1/me`: who the credentials of a request belong to, and what they allow.

use crate::auth::{Caller, Scope};
use axum::Json;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// The holder of the credentials.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MeView {
    tenant: Arc<str>,
    /// The user or program that the credentials name.
    subject: Option<Arc<str>>,
    /// What they allow: `read`, `chat`, `publish`, `approve`, `admin`.
    scopes: Vec<&'static str>,
    /// Whether they are limited to some sessions.
    limited: bool,
}

/// `GET /v1/me`
pub async fn get_me(caller: Caller) -> Json<MeView> {
    let scopes = Scope::ALL.into_iter().filter(|scope| caller.has_scope(*scope));
    Json(MeView {
        tenant: Arc::clone(caller.tenant()),
        subject: caller.subject().cloned(),
        scopes: scopes.map(Scope::name).collect(),
        limited: caller.0.sessions.is_some(),
    })
}
