//! The body of a request. Whoever answers a request may leave its body unread: the guard reads the rest.
//!
//! hyper closes a connection if a body has not arrived when the response is sent, and does not announce it. A client that
//! sends the head and the body apart would find its next request on a broken connection.

use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How much of a body is read after its response, and for how long.
const MAX_REST: usize = 64 * 1024;
const MAX_REST_TIME: Duration = Duration::from_secs(1);

/// The body, as its handler sees it.
pub(crate) struct SharedBody(Arc<Mutex<Incoming>>);

/// The same body, as the guard sees it.
pub(super) struct RestOfBody {
    body: Arc<Mutex<Incoming>>,
    /// The client sends the body only when it is asked to.
    waits: bool,
}

impl SharedBody {
    pub(super) fn share(request: Request<Incoming>) -> (Request<Self>, RestOfBody) {
        let waits = request.headers().contains_key(EXPECT);
        let (parts, body) = request.into_parts();
        let body = Arc::new(Mutex::new(body));
        let request = Request::from_parts(parts, Self(Arc::clone(&body)));
        (request, RestOfBody { body, waits })
    }
}

impl Body for SharedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

impl RestOfBody {
    /// Reads what the handler left. Returns whether the connection can have another request.
    pub(super) async fn read(self) -> bool {
        // The handler may still read it.
        let Some(body) = Arc::into_inner(self.body) else { return true };
        let mut body = body.into_inner();
        if self.waits || body.is_end_stream() {
            return body.is_end_stream();
        }
        let read = async {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame.ok()?.data_ref().map_or(0, Bytes::len);
                if bytes > MAX_REST {
                    return None;
                }
            }
            Some(())
        };
        tokio::time::timeout(MAX_REST_TIME, read).await.is_ok_and(|done| done.is_some())
    }
}
