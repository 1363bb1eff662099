//! The HTTP response that a subscriber fills with server-sent events.

use super::subscriber::{Source, Subscriber};
use crate::app::App;
use crate::metrics::Transport;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use turnwire_log::Error;

/// A response with a body of server-sent events.
pub(crate) fn sse_response_with(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// The response that a subscriber fills until it ends or the client disconnects.
pub(crate) fn sse_response<S: Source + 'static>(app: &App, subscriber: Subscriber<S>) -> Response {
    let open = app.metrics.open_stream(subscriber.wire().name, Transport::Sse);
    let greeting = subscriber.greeting();
    let state = (subscriber, greeting, open);
    let body = stream::unfold(state, |(mut subscriber, greeting, open)| async move {
        if let Some(greeting) = greeting {
            return Some((Ok(greeting), (subscriber, None, open)));
        }
        let bytes = subscriber.next().await?;
        if let Err(error) = &bytes
            && !matches!(error, Error::NoSession)
        {
            tracing::warn!(session = subscriber.session().id(), %error, "a stream breaks off");
        }
        Some((bytes, (subscriber, None, open)))
    });
    sse_response_with(Body::from_stream(body))
}
