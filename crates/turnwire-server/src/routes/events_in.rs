//! `POST /v1/sessions/{s}/events`: events in.

use super::request::find_session_to_write;
use crate::App;
use crate::auth::{Action, Caller, is_valid_id};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query, read_body};
use crate::ingest::{self, PublishQuery, Publisher};
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http_body::Body;
use std::sync::Arc;
use turnwire_wires::Wire;

/// Stores events of a producer, or answers of a client. All become durable, or none.
pub async fn publish_events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<PublishQuery>,
    request: Request,
) -> ApiResult<Response> {
    publish_request(&app, &caller, &id, &query, request).await
}

/// The session id of a path that needs no decoding.
pub(crate) fn session_in_path(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/sessions/")?.strip_suffix("/events").filter(|id| is_valid_id(id))
}

/// The same for the guard, which calls it without the router.
pub(crate) async fn publish_request<B>(
    app: &Arc<App>,
    caller: &Caller,
    id: &str,
    query: &PublishQuery,
    request: http::Request<B>,
) -> ApiResult<Response>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let header = Publisher::read_header(request.headers())?;
    let publisher = Publisher::from_header(header.as_ref(), caller)?;
    if publisher.is_some() {
        caller.require(Action::Publish)?;
    }
    let wire = ingest::find_wire(query.wire.as_deref())?.name;
    if !ingest::WIRES.contains(&wire) {
        return Err(unsupported_wire(wire));
    }
    let session = find_session_to_write(app, caller, id).await?;
    let limit = app.config.limits.body.bytes();
    let bytes = read_body(app, caller.tenant(), request, limit).await?;
    let result = if let Some(publisher) = publisher {
        let tolerance = query.tolerant.into();
        ingest::publish_body(app, &session, publisher, wire, &bytes, tolerance).await?
    } else {
        let batch = ingest::read_batch(app, &session, wire, &bytes).await?;
        ingest::accept_client_events(app, caller, &session, batch, query.when_idle()).await?
    };
    Ok(result.to_response(&session))
}

fn unsupported_wire(wire: &str) -> ApiError {
    let why = if Wire::named(wire).is_some_and(Wire::can_decode) {
        "its events have no ids, so a repeated request would store them twice"
    } else {
        "it has no decoder"
    };
    ApiError::bad_request(format!("the wire {wire} is not supported here: {why}"))
        .kind("wrong_wire")
        .hint(format!(
            "use {}; pipe a stream of another wire into POST /v1/sessions/{{s}}/replies",
            ingest::WIRES.join(", ")
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_is_for_plain_paths_only() {
        assert_eq!(session_in_path("/v1/sessions/a.b:c_d-1/events"), Some("a.b:c_d-1"));
        for path in [
            "/v1/sessions//events",
            "/v1/sessions/a%2Fb/events",
            "/v1/sessions/a/b/events",
            "/v1/sessions/a/events/",
            "/v1/sessions/a/replies",
            "/v2/sessions/a/events",
        ] {
            assert_eq!(session_in_path(path), None, "{path}");
        }
        let is_it = |route: &&crate::api::Route| route.id == crate::guard::PUBLISH_ROUTE_ID;
        let route = crate::api::ROUTES.iter().find(is_it).unwrap();
        assert_eq!((route.method.as_str(), route.path), ("POST", "/v1/sessions/{s}/events"));
    }
}
