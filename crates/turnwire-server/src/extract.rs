//! What handlers take out of a request: as axum's, but errors are ours and limits are the settings'.

mod body;

pub use body::{BodyReader, Pace, next_chunk};

use crate::App;
use crate::error::{ApiError, ApiResult};
use crate::guard::RequestContext;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::request::Parts;
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

/// A body of JSON, whatever its content type says.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        let BodyBytes(bytes) = BodyBytes::from_request(request, app).await?;
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
