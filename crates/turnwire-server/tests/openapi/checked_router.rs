//! The routes of a server for tests that call them without a connection.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::contract::{Answer, contract, is_json};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use std::sync::Arc;
use turnwire_server::App;

/// The routes of a server. A response that differs from the document is a panic.
pub fn checked_router(app: Arc<App>) -> Router {
    turnwire_server::router(app).layer(middleware::from_fn(check_response))
}

async fn check_response(request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    let (parts, body) = response.into_parts();
    let media_type = parts.headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap());
    let mut answer = Answer {
        method: method.as_str(),
        path: uri.path(),
        status: parts.status.as_u16(),
        media_type,
        body: None,
    };
    let is_stream = media_type.is_some_and(|kind| !is_json(kind)) || answer.status == 101;
    if is_stream {
        contract().await.check(&answer);
        return Response::from_parts(parts, body);
    }
    let body = match body.collect().await {
        Ok(whole) => {
            let bytes = whole.to_bytes();
            answer.body = Some(&bytes);
            contract().await.check(&answer);
            Body::from(bytes)
        }
        // The store failed while the body was written.
        Err(error) => {
            Body::from_stream(futures_util::stream::iter([Err::<bytes::Bytes, _>(error)]))
        }
    };
    Response::from_parts(parts, body)
}
