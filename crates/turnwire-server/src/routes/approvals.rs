//! `GET /v1/approvals`: the pending calls of all sessions.

use super::view::{self, PendingView};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiResult;
use crate::extract::Query;
use crate::turns::waiting_sessions::for_each_waiting;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The longest list.
const MAX_APPROVALS: usize = 1000;

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct ApprovalsQuery {
    /// The most pending calls to return: at most 1000.
    limit: Option<usize>,
}

/// Pending calls.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalList {
    approvals: Vec<ApprovalView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ApprovalView {
    session_id: String,
    title: Option<String>,
    #[serde(flatten)]
    pending: PendingView,
}

/// Lists the pending calls of the sessions that the caller may use, last changed first.
pub async fn list_approvals(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<ApprovalsQuery>,
) -> ApiResult<Json<ApprovalList>> {
    let limit = query.limit.unwrap_or(MAX_APPROVALS).clamp(1, MAX_APPROVALS);
    let mut approvals = Vec::new();
    for_each_waiting(
        &app,
        &caller,
        |_| true,
        |session, snapshot| {
            for pending in view::pending_views(&app, session.agent(), &snapshot) {
                approvals.push(ApprovalView {
                    session_id: session.id().to_owned(),
                    title: Some(snapshot.title.clone()).filter(|title| !title.is_empty()),
                    pending,
                });
            }
            if approvals.len() >= limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    )
    .await?;
    approvals.truncate(limit);
    Ok(Json(ApprovalList { approvals }))
}
