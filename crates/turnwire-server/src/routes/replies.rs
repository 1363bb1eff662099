//! `POST /v1/sessions/{s}/replies`: stores a stream as one reply.

use super::request::find_session;
use crate::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use crate::ingest::{Pipe, PipeQuery, Publisher, SkippedEvent, find_wire};
use axum::Json;
use axum::extract::{Request, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use turnwire_core::FinishedReason;
use turnwire_wires::Wire;

/// A reply that was piped in.
#[derive(Serialize, JsonSchema)]
pub struct PipedReply {
    reply_id: String,
    /// The resume token of its last event.
    last_event_id: String,
    finished_reason: FinishedReason,
    /// With `tolerant=true`: events that were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Vec<SkippedEvent>>,
}

/// Stores a stream as it comes. When this responds the reply has ended; it ends whether or not the
/// client waits for the response.
pub async fn pipe_reply(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<PipeQuery>,
    request: Request,
) -> ApiResult<Json<PipedReply>> {
    let header = Publisher::read_header(request.headers())?;
    let publisher = Publisher::from_header(header.as_ref(), &caller)?;
    let wire = find_wire(query.wire.as_deref())?;
    if !wire.can_decode() {
        return Err(undecodable_wire(wire));
    }
    let session = find_session(&app, &caller, &id).await?;
    let pipe = Pipe::new(app.clone(), session.clone(), &caller, wire, publisher, query).await?;
    let piped =
        app.tasks.spawn(pipe.run(request.into_body())).await.map_err(ApiError::internal)??;
    Ok(Json(PipedReply {
        reply_id: piped.reply_id,
        last_event_id: session.resume_token(piped.last),
        finished_reason: piped.finished_reason,
        skipped: piped.skipped,
    }))
}

fn undecodable_wire(wire: &Wire) -> ApiError {
    let able: Vec<&str> =
        Wire::all().filter(|wire| wire.can_decode()).map(|wire| wire.name).collect();
    ApiError::bad_request(format!("the wire {} has no decoder", wire.name))
        .kind("wrong_wire")
        .hint(format!("wires with a decoder are {}", able.join(", ")))
}
