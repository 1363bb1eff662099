//! The extractors that handlers use: like axum's, with our errors and the limits of the settings.

mod body;

pub use body::{BodyReader, Pace, next_chunk};

use crate::App;
use crate::error::{ApiError, ApiResult};
use crate::guard::RequestContext;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::header::IF_NONE_MATCH;
use http::request::Parts;
use http::{HeaderMap, Uri};
use http_body::Body as HttpBody;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::sync::Arc;

/// A whole body, up to `limits.body`.
pub struct BodyBytes(pub Bytes);

impl FromRequest<Arc<App>> for BodyBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        let limit = app.config.limits.body.bytes();
        // Requests without credentials share one budget.
        let caller = RequestContext::from_extensions(request.extensions()).caller();
        let tenant = caller.as_ref().map_or("", |caller| caller.tenant());
        read_body(app, tenant, request, limit).await.map(Self)
    }
}

/// Reads a whole body, up to a limit. It counts in `limits.buffered` until it is dropped, unless it is
/// small and came at once.
pub async fn read_body<B>(
    app: &App,
    tenant: &str,
    request: http::Request<B>,
    limit: usize,
) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let pace = Pace::new(&app.config.limits);
    body::read_whole(request, pace, limit, || app.buffered.reserve(tenant, 0)).await
}

/// A body that is one JSON object, whatever its content type says. An empty body is an empty object.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        let BodyBytes(bytes) = BodyBytes::from_request(request, app).await?;
        let text = if bytes.trim_ascii().is_empty() { b"{}" } else { &*bytes };
        serde_json::from_slice(text).map(Self).map_err(|error| {
            ApiError::bad_request(format!("invalid JSON body: {error}"))
                .hint("GET /openapi.json describes the body of each route")
        })
    }
}

macro_rules! request_part_extractors {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(pub T);

        impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for $name<T> {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
                axum::extract::$name::<T>::from_request_parts(parts, state)
                    .await
                    .map(|found| Self(found.0))
                    .map_err(|error| invalid_parameters(error.body_text()))
            }
        }
    )*};
}

request_part_extractors! {
    /// The query parameters. The table of routes refuses unknown ones.
    Query
    /// The parameters in the path.
    Path
}

impl<T: DeserializeOwned> Query<T> {
    /// The query parameters of a request that bypasses the router.
    pub(crate) fn from_uri(uri: &Uri) -> ApiResult<Self> {
        axum::extract::Query::try_from_uri(uri)
            .map(|found| Self(found.0))
            .map_err(|error| invalid_parameters(error.body_text()))
    }
}

fn invalid_parameters(message: String) -> ApiError {
    ApiError::bad_request(message).hint("GET /openapi.json describes the parameters of each route")
}

/// Whether the `If-None-Match` header of a request names an `ETag`. Proxies that compress make tags weak.
pub(crate) fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}
