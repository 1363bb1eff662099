//! `POST /v1/sessions/{s}/events`: events in.

use crate::App;
use crate::auth::{Caller, Scope};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, read_body};
use crate::ingest::{self, Params, Publisher};
use axum::extract::{Request, State};
use axum::response::Response;
use std::sync::Arc;
use turnwire_wires::Wire;

/// Takes events in: a producer's, or answers. All become durable, or none.
pub async fn publish_events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let params = Params::parse(request.uri().query())?;
    let header = Publisher::header(request.headers())?;
    let publisher = Publisher::of(header.as_ref())?;
    if publisher.is_some() {
        caller.need(Scope::Publish)?;
    }
    let wire = params.wire.map_or("turnwire", |wire| wire.name);
    if !ingest::WIRES.contains(&wire) {
        return Err(cannot_be_retried(wire));
    }
    let key = caller.session(&id)?;
    let session = app.log.open(&key).await?.ok_or(turnwire_log::Error::NoSession)?;
    let limits = &app.config.limits;
    let bytes = read_body(request, limits.body.bytes(), limits.body_timeout.0).await?;
    let batch = ingest::read(&app, &session, wire, &bytes).await?;
    let result = match publisher {
        Some(publisher) => {
            ingest::publish(&app, &session, publisher, batch, params.tolerance).await?
        }
        None => ingest::answer(&app, &caller, &session, batch).await?,
    };
    Ok(result.response(&session))
}

fn cannot_be_retried(wire: &str) -> ApiError {
    let why = if Wire::named(wire).is_some_and(Wire::can_decode) {
        "its events have no ids, so that a request could not be sent again without doubling them"
    } else {
        "it has no stream that could be read"
    };
    ApiError::bad_request(format!("the wire {wire} cannot be taken in here: {why}"))
        .kind("wrong_wire")
        .hint(format!(
            "send {}; a stream of another wire can be piped into POST /v1/sessions/{{s}}/replies",
            ingest::WIRES.join(", ")
        ))
}
