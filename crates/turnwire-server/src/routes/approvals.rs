//! `GET /v1/approvals`: what waits for a person or for somebody outside, over all sessions.

use super::view::{self, PendingView};
use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::error::ApiResult;
use crate::extract::Query;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use turnwire_log::store::{SessionQuery, Status};

/// How many are listed at the most.
const MOST: usize = 1000;
/// How many sessions are read at a time.
const PAGE: usize = 100;

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize)]
pub struct ApprovalsQuery {
    limit: Option<usize>,
}

/// What waits.
#[derive(Debug, Serialize)]
pub struct Approvals {
    approvals: Vec<Approval>,
}

#[derive(Debug, Serialize)]
struct Approval {
    session_id: String,
    title: Option<String>,
    #[serde(flatten)]
    pending: PendingView,
}

/// Lists what waits, in the sessions that the caller reaches; those that changed last come first.
pub async fn list_approvals(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<ApprovalsQuery>,
) -> ApiResult<Json<Approvals>> {
    caller.need(Scope::Read)?;
    let limit = query.limit.unwrap_or(MOST).clamp(1, MOST);
    let mut page = SessionQuery {
        tenant: caller.tenant().clone(),
        search: None,
        status: Some(Status::Waiting),
        after: None,
        limit: PAGE,
    };
    let mut approvals = Vec::new();
    loop {
        let records = app.log.list(&page).await?;
        let is_last = records.len() < PAGE;
        for record in records {
            page.after = Some((record.updated_ms, record.no));
            if !caller.0.reaches(&record.key.id) {
                continue;
            }
            let Some(session) = app.log.open(&record.key).await? else { continue };
            let snapshot = match session.snapshot().await {
                Ok(snapshot) => snapshot,
                // It was deleted a moment ago.
                Err(turnwire_log::Error::NoSession) => continue,
                Err(error) => return Err(error.into()),
            };
            for pending in view::pending(&app, session.agent(), &snapshot) {
                approvals.push(Approval {
                    session_id: session.id().to_owned(),
                    title: Some(snapshot.title.clone()).filter(|title| !title.is_empty()),
                    pending,
                });
            }
        }
        if is_last || approvals.len() >= limit {
            approvals.truncate(limit);
            return Ok(Json(Approvals { approvals }));
        }
    }
}
