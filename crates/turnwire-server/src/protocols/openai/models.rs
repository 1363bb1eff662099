//! `GET /v1/models`: the agents as models.
//!
//! The list has the fields of both `OpenAI` and Anthropic.

use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::extract::Path;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// The creation time of an agent is unknown.
const CREATED: i64 = 0;
const CREATED_AT: &str = "1970-01-01T00:00:00Z";

/// The agents.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelList {
    object: &'static str,
    data: Vec<ModelView>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

/// An agent, as a model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelView {
    id: String,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    r#type: &'static str,
    display_name: String,
    created_at: &'static str,
}

impl ModelView {
    fn new(name: &str) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created: CREATED,
            owned_by: "turnwire",
            r#type: "model",
            display_name: name.to_owned(),
            created_at: CREATED_AT,
        }
    }
}

/// Lists the agents of this server.
pub async fn list_models(State(app): State<Arc<App>>) -> ApiResult<Json<ModelList>> {
    let data: Vec<ModelView> = app.agents.keys().map(|name| ModelView::new(name)).collect();
    let id = |model: Option<&ModelView>| model.map(|model| model.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Ok(Json(ModelList { object: "list", data, has_more: false, first_id, last_id }))
}

/// One agent.
pub async fn get_model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> ApiResult<Json<ModelView>> {
    require_model(&app, &name)?;
    Ok(Json(ModelView::new(&name)))
}

/// An error unless the model is an agent of this server. External agents are not: nobody knows when they
/// answer.
pub(super) fn require_model(app: &App, name: &str) -> ApiResult<()> {
    if app.agents.contains_key(name) {
        return Ok(());
    }
    let names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    Err(ApiError::not_found(format!("The model `{name}` does not exist"))
        .kind("model_not_found")
        .hint(format!("a model is an agent; the agents are {}", names.join(", "))))
}
