//! `GET /v1/agents`: the agents of this server.

use crate::app::App;
use crate::auth::Caller;
use crate::config::Prices;
use crate::error::ApiResult;
use crate::extract::Query;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use turnwire_core::Usage;
use turnwire_log::Cost;
use turnwire_log::cost::UsageTotal;

/// The agents.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AgentList {
    agents: Vec<AgentView>,
    default_agent: String,
    /// The currency of prices and costs.
    currency: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AgentView {
    name: String,
    about: String,
    model: String,
    default: bool,
    /// What the agent cannot use at the moment, such as an MCP server that is down. It replies all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unavailable: Vec<String>,
    /// Prices of a million tokens, if the settings have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_million: Option<Prices>,
    /// With `usage=true`: its tokens and costs in all stored sessions.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    spent: Option<SpentView>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct SpentView {
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
}

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct ListAgentsQuery {
    /// Also return the tokens and costs of each agent in all stored sessions.
    #[serde(default)]
    usage: bool,
}

/// Lists the agents of this server.
pub async fn list_agents(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(params): Query<ListAgentsQuery>,
) -> ApiResult<Json<AgentList>> {
    let mut spent = if params.usage { Some(spent_by_agent(&app, &caller).await?) } else { None };
    let default_agent = app.config.default_agent().to_owned();
    let agents = app.agents.iter().map(|(name, agent)| AgentView {
        name: name.clone(),
        about: agent.description().to_owned(),
        model: agent.model_name().to_owned(),
        default: *name == default_agent,
        unavailable: agent.unavailable(),
        price_per_million: app.config.agents.get(name).and_then(|agent| agent.price_per_million),
        spent: spent.as_mut().map(|spent| {
            let UsageTotal { usage, cost } = spent.remove(name).unwrap_or_default();
            SpentView { usage, cost: cost.map(Cost::amount) }
        }),
    });
    let currency = app.config.currency.clone();
    Ok(Json(AgentList { agents: agents.collect(), default_agent, currency }))
}

/// The tokens and costs of each agent in the sessions that the caller may use. A sub-agent that is not an agent of
/// this server counts as the agent that called it.
async fn spent_by_agent(app: &App, caller: &Caller) -> ApiResult<HashMap<String, UsageTotal>> {
    let (reach, tenant) = (caller.0.reach(), caller.tenant());
    // For limited credentials this scans their sessions, like a search.
    let _permit = match reach.patterns() {
        Some(_) => Some(app.searches.acquire(tenant).await?),
        None => None,
    };
    let max_time = Some(app.config.limits.search_timeout.0);
    let totals = app.log.store().agent_totals(tenant, &reach, max_time);
    let totals = app.log.read_fairly(tenant, totals).await?;
    let mut sums: HashMap<String, UsageTotal> = HashMap::new();
    for (agent, totals) in totals {
        let mut own = totals.total();
        for (name, part) in totals.sub_agents() {
            if name != agent && app.agents.contains_key(name) {
                own.subtract(&part);
                sums.entry(name.to_owned()).or_default().add(&part.usage, part.cost);
            }
        }
        sums.entry(agent).or_default().add(&own.usage, own.cost);
    }
    Ok(sums)
}
