//! `GET /ag-ui/{agent}`: how the client of `TanStack` AI returns to a thread after a reload.
//!
//! It asks with the id of the thread whether there is a run to join, and then joins it. Turnwire always offers the
//! thread itself as this run: whoever joins it gets the messages of the thread, and then what follows.

use super::{HistoryOwner, RunRequest, ThreadState, invalid_input};
use crate::app::App;
use crate::auth::{Caller, is_valid_id};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use crate::protocols::resume::last_event_id;
use crate::protocols::{require_agent, require_known_agent};
use crate::stream::ReplyPosition;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use turnwire_core::Fields;
use turnwire_wires::ag_ui::{HistoryDifference, RunInput};

/// What stands behind the `?`. The client also sends `offset`, `limit` and `before`, which have no effect: a run is
/// always sent from its start, with all messages.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinQuery {
    /// The thread.
    thread_id: Option<String>,
    /// The run to join: the id that the first request returned. With `threadId` it may be any id.
    run_id: Option<String>,
}

/// What a client finds in a thread.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadView {
    /// Always empty: the run has the messages.
    messages: Vec<Fields>,
    /// The run to join; null if the thread does not exist.
    active_run: Option<ActiveRun>,
}

/// A run that a client can join.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    run_id: String,
}

/// Says what there is to join in a thread, or joins it.
pub async fn join(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(agent): Path<String>,
    Query(query): Query<JoinQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let thread = query.thread_id.as_ref().or(query.run_id.as_ref()).ok_or_else(|| {
        ApiError::bad_request("`threadId` and `runId` are missing")
            .hint("GET ?threadId=… returns the run to join; GET ?runId=… joins it")
    })?;
    require_known_agent(&app, &agent)?;
    let session = if is_valid_id(thread) {
        app.log.open_session(&caller.session_key(thread)?).await?
    } else {
        None
    };
    let session = session.map(|session| require_agent(session, &agent)).transpose()?;
    let Some(run_id) = &query.run_id else {
        let active_run = session.map(|_| ActiveRun { run_id: thread.clone() });
        return Ok(Json(ThreadView { messages: Vec::new(), active_run }).into_response());
    };
    let session = session.ok_or(turnwire_log::Error::NoSession)?;
    let input = json!({"threadId": thread, "runId": run_id, "messages": []}).to_string();
    let input = RunInput::parse(&input).map_err(|why| invalid_input(&why))?;
    let owner = HistoryOwner::Thread;
    let request = RunRequest { app: &app, caller: &caller, agent: &agent, input: &input, owner };
    if let Some(id) = last_event_id(&headers)? {
        return request.resume_after(&id).await;
    }
    let state = ThreadState::load(&session, &request).await?;
    // The client starts each message anew that it gets the beginning of: it gets an open reply from its start.
    let Some(open) = state.snapshot.open.iter().find(|reply| !reply.is_of_sub_agent()) else {
        return request.resume(&session, &state).await;
    };
    let begin = ReplyPosition::SnapshotAt(open.first_seq().previous());
    let reply = Some(open.msg().id().to_owned());
    request.stream_reply(&session, reply, begin, HistoryDifference::None).await
}
