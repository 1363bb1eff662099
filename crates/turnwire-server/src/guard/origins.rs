//! The web pages that may use this server: its own, and configured ones.

use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, x-api-key, content-type, accept, last-event-id, idempotency-key, turnwire-producer, \
     turnwire-session, x-request-id, x-run-id",
);
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, retry-after, location, turnwire-ignored-options, x-workflow-run-id, \
     x-workflow-stream-tail-index, x-resumable-stream-id",
);

pub(crate) struct Origins {
    /// Configured origins of other pages.
    foreign: Vec<String>,
    /// The origin of our own pages behind a proxy.
    own: Option<String>,
}

impl Origins {
    pub(crate) fn new(config: &Config) -> Self {
        let foreign = config.origins.iter().map(|origin| origin.0.clone()).collect();
        let own = config.public_url.as_ref().map(|url| url.0.origin().ascii_serialization());
        Self { foreign, own }
    }

    /// `host` was checked before.
    pub(crate) fn check(&self, origin: &HeaderValue, host: &str) -> ApiResult<()> {
        let same = || {
            let origin = origin.to_str().ok()?;
            let (scheme, rest) = origin.split_once("://")?;
            let ours = matches!(scheme, "http" | "https") && rest.eq_ignore_ascii_case(host);
            (ours || self.own.as_deref() == Some(origin)).then_some(())
        };
        if self.is_foreign(origin) || same().is_some() {
            return Ok(());
        }
        Err(ApiError::forbidden("this origin is not allowed")
            .kind("foreign_origin")
            .hint("add the origin to `origins` in turnwire.toml, or start with --origin URL"))
    }

    fn is_foreign(&self, origin: &HeaderValue) -> bool {
        self.foreign.iter().any(|known| known.as_bytes() == origin.as_bytes())
    }

    /// Lets a configured page of another origin read the response.
    pub(crate) fn allow_origin(&self, origin: &HeaderValue, headers: &mut HeaderMap) {
        if self.is_foreign(origin) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
    }

    /// Answers the preflight request of a browser.
    pub(crate) fn preflight(request: &HeaderMap) -> Option<Response<Body>> {
        request.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_configured_pages_pass() {
        let config = "origins = [\"https://app.example\"]\npublic_url = \"https://pub.example\"";
        let origins = Origins::new(&Config::parse("test", config).unwrap());
        let check = |origin: &str, host| {
            origins.check(&HeaderValue::from_str(origin).unwrap(), host).is_ok()
        };
        assert!(check("https://app.example", "127.0.0.1:4747"));
        assert!(check("http://127.0.0.1:4747", "127.0.0.1:4747"));
        assert!(check("https://pub.example", "127.0.0.1:4747"));
        for bad in [
            "https://evil.example",
            "http://app.example",
            "null",
            "http://127.0.0.1:3000",
            "",
            "file://",
        ] {
            assert!(!check(bad, "127.0.0.1:4747"), "{bad}");
        }
    }
}
