//! `GET /v1/sessions/{s}/events`: streams the log from a cursor on, then new events.

use super::request::find_session;
use crate::app::App;
use crate::auth::{Caller, expired_error, is_expired};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use crate::stream::{
    EndCondition, Framing, Merge, SessionSubscriber, StartPosition, StreamFormat, resolve_token,
    sse_response,
};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use tokio::time::Instant;
use turnwire_core::{Head, Seq};
use turnwire_log::Session;
use turnwire_log::store::EventLines;
use turnwire_wires::Wire;
use turnwire_wires::blocks::DisplayMode;

/// The query parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct WatchQuery {
    /// Start after this event: a resume token `EPOCH.SEQ`, a seq, or `now`. By default all events.
    after: Option<String>,
    /// The wire of the events; `turnwire` by default.
    wire: Option<String>,
    /// `idle`: end the stream when no reply is open.
    until: Option<String>,
    /// Send every event as it was written, instead of merging neighbouring deltas.
    raw: Option<bool>,
    /// For wires with display modes: `agent` (default) or `chat`.
    display_mode: Option<String>,
}

/// Streams the events of a session.
pub async fn watch_events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<WatchQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let session = find_session(&app, &caller, &id).await?;
    let format = stream_format(&query)?;
    let until = match query.until.as_deref() {
        None => EndCondition::Never,
        Some("idle") => EndCondition::Idle,
        Some(other) => {
            return Err(ApiError::bad_request(format!("invalid until={other}"))
                .hint("until=idle ends the stream when no reply is open"));
        }
    };
    let last_event_id = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let wants_lines = headers
        .get_all(ACCEPT)
        .iter()
        .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("application/x-ndjson")));
    let first = session.first_seq().await?;
    let after = if query.after.as_deref() == Some("now") {
        StartPosition::Now
    } else {
        StartPosition::Beginning
    };
    let token = last_event_id.filter(|id| !id.is_empty());
    let token = token.or(query.after.as_deref().filter(|after| !["", "now"].contains(after)));
    let start = token.map_or(after, |token| resolve_token(&session, first, token).into());
    if wants_lines {
        return ndjson_response(&session, &caller, &format, start, first);
    }
    let (expires_at, streams) = (caller.expires_at(), app.streams.clone());
    let is_until_idle = until == EndCondition::Idle;
    let subscriber =
        SessionSubscriber::new(session, format, start, until, expires_at, streams).await?;
    if is_until_idle && subscriber.ends_immediately() {
        // Tells an EventSource that reconnects after the end to stop.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(sse_response(&app, subscriber))
}

fn stream_format(query: &WatchQuery) -> ApiResult<StreamFormat> {
    let name = query.wire.as_deref().unwrap_or("turnwire");
    let wire = Wire::named(name).filter(|wire| wire.can_encode()).ok_or_else(|| {
        let names: Vec<&str> =
            Wire::all().filter(|wire| wire.can_encode()).map(|wire| wire.name).collect();
        let why = match Wire::named(name) {
            Some(_) => "has no encoder",
            None => "is not known",
        };
        ApiError::bad_request(format!("the wire {name} {why}"))
            .hint(format!("wire is one of {}", names.join(", ")))
    })?;
    let merge = if query.raw == Some(true) { Merge::Nothing } else { Merge::Deltas };
    let display = match query.display_mode.as_deref() {
        None | Some("agent") => DisplayMode::Agent,
        Some("chat") => DisplayMode::Chat,
        Some(other) => {
            return Err(ApiError::bad_request(format!("invalid display_mode={other}"))
                .hint("display_mode is agent or chat"));
        }
    };
    Ok(StreamFormat { wire, framing: Framing::Sse, merge, display })
}

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// The log so far. If the client reads so slowly that its credentials expire, the last line is the
/// error.
fn ndjson_response(
    session: &Arc<Session>,
    caller: &Caller,
    format: &StreamFormat,
    start: StartPosition,
    first: Seq,
) -> ApiResult<Response> {
    if format.wire.name != "turnwire" {
        return Err(ApiError::not_acceptable("NDJSON is only available for the wire turnwire")
            .hint("omit the Accept header for a stream of this wire"));
    }
    let trimmed_error = |why: String| {
        ApiError::gone(why).kind("trimmed").hint(format!(
            "the earliest event is {first}; GET /v1/sessions/{{s}}/messages has the messages"
        ))
    };
    let cursor = match start {
        StartPosition::Beginning if first > Seq::FIRST => {
            return Err(trimmed_error(format!("events before {first} were deleted by retention")));
        }
        StartPosition::Beginning => Head::EMPTY,
        StartPosition::After(cursor) => cursor,
        StartPosition::Now => session.head_state().head,
        StartPosition::Reset(why) => return Err(trimmed_error(why.to_owned())),
    };
    let (to, expires_at) = (session.head_state().head, caller.expires_at());
    let body = stream::unfold((session.clone(), cursor), move |(session, cursor)| async move {
        let from = Some(cursor.next()).filter(|from| to.includes(*from))?;
        if is_expired(expires_at, Instant::now()) {
            return Some((Ok(Bytes::from(expired_error().json() + "\n")), (session, to)));
        }
        match session.read_events(from, READ_BYTES).await {
            Ok(rows) => {
                let last = rows.last().map_or(to, |rows| rows.last().into());
                Some((Ok(lines_with_seqs(&rows, to)), (session, last)))
            }
            Err(error) => Some((Err(error), (session, to))),
        }
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

fn lines_with_seqs(rows: &[EventLines], to: Head) -> Bytes {
    let mut out = Vec::new();
    for (seq, line) in rows.iter().flat_map(EventLines::iter).filter(|(seq, _)| to.includes(*seq)) {
        out.extend_from_slice(line.strip_suffix(b"}").unwrap_or(line));
        out.extend_from_slice(format!(",\"seq\":{seq}}}\n").as_bytes());
    }
    Bytes::from(out)
}
