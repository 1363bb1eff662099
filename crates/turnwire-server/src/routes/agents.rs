//! `GET /v1/agents`: what can be talked to.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::config::Prices;
use crate::error::ApiResult;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;

/// What can be talked to.
#[derive(Debug, Serialize)]
pub struct Agents {
    agents: Vec<AgentView>,
    default_agent: String,
}

#[derive(Debug, Serialize)]
struct AgentView {
    name: String,
    about: String,
    model: String,
    default: bool,
    /// What a million of its tokens cost, where the settings say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_million: Option<Prices>,
}

/// Lists the agents that run here.
pub async fn list_agents(State(app): State<Arc<App>>, caller: Caller) -> ApiResult<Json<Agents>> {
    caller.need(Scope::Read)?;
    let default_agent = app.config.default_agent.clone();
    let agents = app.agents.iter().map(|(name, agent)| AgentView {
        name: name.clone(),
        about: agent.about().to_owned(),
        model: agent.model().to_owned(),
        default: *name == default_agent,
        price_per_million: app.config.agents.get(name).and_then(|agent| agent.price_per_million),
    });
    Ok(Json(Agents { agents: agents.collect(), default_agent }))
}
