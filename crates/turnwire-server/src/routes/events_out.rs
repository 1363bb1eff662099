//! `GET /v1/sessions/{s}/events`: streams the log from a cursor on, then new events.

use crate::app::App;
use crate::auth::{Caller, expired_error, is_expired};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use crate::metrics::Transport;
use crate::stream::{
    EndCondition, Framing, Merge, StartPosition, StreamFormat, Subscriber, resolve_token,
};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use std::sync::Arc;
use tokio::time::Instant;
use turnwire_core::Seq;
use turnwire_log::Session;
use turnwire_log::store::EventLines;
use turnwire_wires::Wire;
use turnwire_wires::stream::DisplayMode;

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    after: Option<String>,
    wire: Option<String>,
    until: Option<String>,
    raw: Option<bool>,
    display_mode: Option<String>,
    /// Was read by the guard.
    #[serde(rename = "ticket")]
    _ticket: Option<String>,
}

/// Streams the events of a session.
pub async fn watch_events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(ask): Query<WatchQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let key = caller.session_key(&id)?;
    let session = app.log.open_session(&key).await?.ok_or(turnwire_log::Error::NoSession)?;
    let shape = stream_format(&ask)?;
    let until = match ask.until.as_deref() {
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
    let after = if ask.after.as_deref() == Some("now") {
        StartPosition::Now
    } else {
        StartPosition::Beginning
    };
    let token = last_event_id.filter(|id| !id.is_empty());
    let token = token.or(ask.after.as_deref().filter(|after| !["", "now"].contains(after)));
    let start = token.map_or(after, |token| resolve_token(&session, first, token).into());
    if wants_lines {
        return ndjson_response(&session, &caller, &shape, start, first);
    }
    let (expires_at, streams) = (caller.expires_at(), app.streams.clone());
    let watcher = Subscriber::new(session, shape, start, until, expires_at, streams).await?;
    if until == EndCondition::Idle && watcher.ends_immediately() {
        // An EventSource that comes back after the end is told to stay away.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(sse_response(&app, watcher))
}

fn stream_format(ask: &WatchQuery) -> ApiResult<StreamFormat> {
    let name = ask.wire.as_deref().unwrap_or("turnwire");
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
    let merge = if ask.raw == Some(true) { Merge::Nothing } else { Merge::Deltas };
    let display = match ask.display_mode.as_deref() {
        None | Some("agent") => DisplayMode::Agent,
        Some("chat") => DisplayMode::Chat,
        Some(other) => {
            return Err(ApiError::bad_request(format!("invalid display_mode={other}"))
                .hint("display_mode is agent or chat"));
        }
    };
    Ok(StreamFormat { wire, framing: Framing::Sse, merge, display })
}

/// The response that a watcher fills, for as long as its client takes it.
pub fn sse_response(app: &App, watcher: Subscriber) -> Response {
    sse_up_to(app, watcher, |_| None)
}

/// The same, with an end of its own: where in some frames the last one of the response ends.
pub(super) fn sse_up_to(
    app: &App,
    watcher: Subscriber,
    end: impl Fn(&[u8]) -> Option<usize> + Send + 'static,
) -> Response {
    let open = app.metrics.open_stream(watcher.wire().name, Transport::Sse);
    // What comes at once tells proxies and clients that there is a stream; those who lose it all at
    // the same time are not to come back all at the same time.
    let jitter =
        watcher.session().head_state().head.wrapping_mul(0x9e37_79b9) % 1000 + random_jitter();
    let hello = Bytes::from(format!(": turnwire\nretry: {}\n\n", 1000 + jitter));
    let watching = (Some(watcher), Some(hello), open, end);
    let body = stream::unfold(watching, |(watcher, hello, open, end)| async move {
        let mut watcher = watcher?;
        if let Some(hello) = hello {
            return Some((Ok(hello), (Some(watcher), None, open, end)));
        }
        match watcher.next().await? {
            Ok(mut bytes) => {
                let last = end(&bytes);
                bytes.truncate(last.unwrap_or(bytes.len()));
                let watcher = Some(watcher).filter(|_| last.is_none());
                Some((Ok(bytes), (watcher, None, open, end)))
            }
            Err(error) => {
                tracing::warn!(session = watcher.session().id(), %error, "a stream ends early");
                Some((Err(error), (Some(watcher), None, open, end)))
            }
        }
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(body)).into_response()
}

fn random_jitter() -> u64 {
    let mut byte = [0; 2];
    // Without randomness there is no jitter, and nothing worse.
    let _ = getrandom::fill(&mut byte);
    u64::from(u16::from_le_bytes(byte)) % 1000
}

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// The log so far. If the client reads so slowly that its credentials expire, the last line is the
/// error.
fn ndjson_response(
    session: &Arc<Session>,
    caller: &Caller,
    shape: &StreamFormat,
    start: StartPosition,
    first: Seq,
) -> ApiResult<Response> {
    if shape.wire.name != "turnwire" {
        return Err(ApiError::not_acceptable("NDJSON is only available for the wire turnwire")
            .hint("omit the Accept header for a stream of this wire"));
    }
    let gone = |why: String| {
        ApiError::gone(why).kind("trimmed").hint(format!(
            "the earliest event is {first}; GET /v1/sessions/{{s}}/messages has the messages"
        ))
    };
    let cursor = match start {
        StartPosition::Beginning if first > Seq::FIRST => {
            return Err(gone(format!("events before {first} were deleted by retention")));
        }
        StartPosition::Beginning => 0,
        StartPosition::After(seq) => seq,
        StartPosition::Now => session.head_state().head,
        StartPosition::Reset(why) => return Err(gone(why.to_owned())),
    };
    let (to, expires_at) = (session.head_state().head, caller.expires_at());
    let body = stream::unfold((session.clone(), cursor), move |(session, cursor)| async move {
        let from = Seq::new(cursor.saturating_add(1)).filter(|from| from.get() <= to)?;
        if is_expired(expires_at, Instant::now()) {
            return Some((Ok(Bytes::from(expired_error().json() + "\n")), (session, to)));
        }
        match session.read_events(from, READ_BYTES).await {
            Ok(rows) => {
                let last = rows.last().map_or(to, EventLines::last);
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

fn lines_with_seqs(rows: &[EventLines], to: u64) -> Bytes {
    let mut out = Vec::new();
    for (seq, line) in rows.iter().flat_map(EventLines::iter).filter(|(seq, _)| seq.get() <= to) {
        out.extend_from_slice(line.strip_suffix(b"}").unwrap_or(line));
        out.extend_from_slice(format!(",\"seq\":{seq}}}\n").as_bytes());
    }
    Bytes::from(out)
}
