//! What handlers take out of a request: as axum's, but errors are ours and limits are the settings'.

use crate::App;
use crate::error::{ApiError, ApiResult};
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A whole body, up to `limits.body`.
pub struct Payload(pub Bytes);

impl FromRequest<Arc<App>> for Payload {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        let limits = &app.config.limits;
        read_body(request, limits.body.bytes(), limits.body_timeout.0).await.map(Self)
    }
}

/// Reads a whole body, up to a limit; a client that sends nothing for too long is an error.
pub async fn read_body<B>(
    request: http::Request<B>,
    limit: usize,
    stall: Duration,
) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let mut body = request.into_body();
    // Nearly always there is one frame, and then nothing is copied.
    let Some(first) = next(&mut body, stall).await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    let Some(second) = next(&mut body, stall).await? else { return Ok(first) };
    let room = announced.and_then(|length| usize::try_from(length).ok());
    let mut whole = BytesMut::with_capacity(room.unwrap_or(first.len() * 2).min(limit));
    whole.extend_from_slice(&first);
    let mut part = Some(second);
    while let Some(bytes) = part {
        if whole.len() + bytes.len() > limit {
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&bytes);
        part = next(&mut body, stall).await?;
    }
    Ok(whole.freeze())
}

/// The next bytes of a body.
pub async fn next<B>(body: &mut B, stall: Duration) -> ApiResult<Option<Bytes>>
where
    B: HttpBody<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    loop {
        if body.is_end_stream() {
            return Ok(None);
        }
        // Most bodies come together with their head: those need no timer.
        let frame = match poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => tokio::time::timeout(stall, body.frame()).await.map_err(|_| {
                ApiError::timeout("the rest of the body did not come").hint("send it again")
            })?,
        };
        match frame.transpose() {
            Ok(None) => return Ok(None),
            Ok(Some(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Err(error) => {
                return Err(ApiError::bad_request("the body broke off").detail(error));
            }
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::too_large(format!("the body has more than {limit} bytes"))
        .hint("send less at once; the operator can raise the limit in turnwire.toml, [limits]")
}

/// A body of JSON, whatever its content type says.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        let Payload(bytes) = Payload::from_request(request, app).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            ApiError::bad_request(format!("the body is not the JSON that is expected: {error}"))
                .hint("GET /openapi.json says what each route takes")
        })
    }
}

macro_rules! of_the_head {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(pub T);

        impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for $name<T> {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
                axum::extract::$name::<T>::from_request_parts(parts, state)
                    .await
                    .map(|found| Self(found.0))
                    .map_err(|error| {
                        ApiError::bad_request(error.body_text())
                            .hint("GET /openapi.json says what each route takes")
                    })
            }
        }
    )*};
}

of_the_head! {
    /// The query of a URL.
    Query
    /// The parts of a path.
    Path
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use futures_util::{StreamExt, stream};
    use std::convert::Infallible;

    const STALL: Duration = Duration::from_millis(20);

    fn in_parts(parts: &[&'static str]) -> Request {
        let parts: Vec<Result<Bytes, Infallible>> =
            parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect();
        Request::new(Body::from_stream(stream::iter(parts)))
    }

    #[tokio::test]
    async fn a_body_is_read_whole_up_to_the_limit() {
        let read = async |parts: &[&'static str]| read_body(in_parts(parts), 6, STALL).await;
        assert_eq!(read(&[]).await.unwrap(), "");
        assert_eq!(read(&["abcdef"]).await.unwrap(), "abcdef");
        assert_eq!(read(&["ab", "", "cd", "ef"]).await.unwrap(), "abcdef");
        for parts in [&["abcdefg"][..], &["abc", "defg"], &["a", "b", "cdefg"]] {
            assert_eq!(read(parts).await.unwrap_err().status(), 413, "{parts:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_announces_too_much_is_not_read() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let request = Request::builder().header(CONTENT_LENGTH, "7").body(body).unwrap();
        assert_eq!(read_body(request, 6, STALL).await.unwrap_err().status(), 413);
    }

    #[tokio::test]
    async fn a_body_that_does_not_go_on_is_given_up() {
        let parts = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"a"))]);
        let body = Body::from_stream(parts.chain(stream::pending()));
        assert_eq!(read_body(Request::new(body), 6, STALL).await.unwrap_err().status(), 408);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        let parts = [Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("gone"))];
        let body = Body::from_stream(stream::iter(parts));
        assert_eq!(read_body(Request::new(body), 6, STALL).await.unwrap_err().status(), 400);
    }
}
