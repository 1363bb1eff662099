//! Errors as clients get them: one JSON form everywhere, with the right status.
//!
//! ```
//! use turnwire_server::ApiError;
//!
//! let error = ApiError::not_found("there is no session s1").hint("GET /v1/sessions lists them");
//! assert_eq!(error.status().as_u16(), 404);
//! assert_eq!(
//!     error.json(),
//!     r#"{"error":{"type":"not_found","message":"there is no session s1","hint":"GET /v1/sessions lists them"}}"#
//! );
//! ```

mod dialect;

pub(crate) use dialect::{AnthropicErrorBody, Dialect, OpenAiErrorBody};

use crate::App;
use crate::api;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The official clients of `OpenAI` and Anthropic retry depending on the status, unless this header is `false`.
pub(crate) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A result whose error can be sent to the client.
pub type ApiResult<T> = Result<T, ApiError>;

/// An error response. Boxed, so that results stay small.
#[derive(Debug, Clone)]
#[must_use]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    status: StatusCode,
    kind: &'static str,
    message: Cow<'static, str>,
    hint: Cow<'static, str>,
    /// A header that belongs to the status.
    header: Option<(HeaderName, HeaderValue)>,
    /// For the server's log only.
    detail: Option<String>,
}

/// The error type if another node owns the session.
const OWNED_ELSEWHERE: &str = "owned_elsewhere";

/// An error as one node sends it to another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorParts {
    status: u16,
    kind: String,
    message: String,
    hint: String,
    header: Option<(String, String)>,
    detail: Option<String>,
}

impl From<ApiError> for ErrorParts {
    fn from(error: ApiError) -> Self {
        let Inner { status, kind, message, hint, header, detail } = *error.0;
        let to_text = |(name, value): (HeaderName, HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        Self {
            status: status.as_u16(),
            kind: kind.to_owned(),
            message: message.into_owned(),
            hint: hint.into_owned(),
            header: header.and_then(to_text),
            detail,
        }
    }
}

impl From<ErrorParts> for ApiError {
    fn from(parts: ErrorParts) -> Self {
        let from_text = |(name, value): (String, String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        Self(Box::new(Inner {
            status: StatusCode::from_u16(parts.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            kind: intern(parts.kind),
            message: parts.message.into(),
            hint: parts.hint.into(),
            header: parts.header.and_then(from_text),
            detail: parts.detail,
        }))
    }
}

/// The error type of another node. There are as many as the code has, so each is kept once for good.
fn intern(kind: String) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock();
    match known.get(kind.as_str()) {
        Some(kind) => kind,
        None if known.len() < MAX_KINDS => {
            let kind: &'static str = kind.leak();
            known.insert(kind);
            kind
        }
        None => "internal",
    }
}

/// More error types than the code has.
const MAX_KINDS: usize = 1000;

/// The body of an error.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize, JsonSchema)]
struct ErrorFields<'a> {
    /// What happened, for programs.
    r#type: &'a str,
    /// What happened, for people.
    message: &'a str,
    /// What to do next.
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
}

/// The part of an error for the server's log. It is attached to the response until the request is logged.
#[derive(Debug, Clone)]
pub(crate) struct LogDetail(pub(crate) String);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $status:ident $kind:literal;)*) => {
        impl ApiError {
            $($(#[$doc])*
            pub fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self::new(StatusCode::$status, $kind, message)
            })*
        }
    };
}

kinds! {
    /// 400: malformed request.
    bad_request BAD_REQUEST "bad_request";
    /// 401: credentials are missing or invalid.
    unauthorized UNAUTHORIZED "unauthorized";
    /// 403: the credentials are valid but not sufficient.
    forbidden FORBIDDEN "forbidden";
    /// 404: does not exist, or not for this caller.
    not_found NOT_FOUND "not_found";
    /// 405: the path has no such method.
    method_not_allowed METHOD_NOT_ALLOWED "method_not_allowed";
    /// 406: not available in the requested form.
    not_acceptable NOT_ACCEPTABLE "not_acceptable";
    /// 408: the client was too slow.
    timeout REQUEST_TIMEOUT "timeout";
    /// 409: conflicts with the current state.
    conflict CONFLICT "conflict";
    /// 410: no longer exists.
    gone GONE "gone";
    /// 413: larger than the limit.
    too_large PAYLOAD_TOO_LARGE "too_large";
    /// 415: unsupported media type.
    unsupported UNSUPPORTED_MEDIA_TYPE "unsupported_media_type";
    /// 421: the `Host` header names another server.
    misdirected MISDIRECTED_REQUEST "unknown_host";
    /// 422: well-formed but invalid.
    unprocessable UNPROCESSABLE_ENTITY "unprocessable";
    /// 429: too many requests, or too many connections.
    too_many TOO_MANY_REQUESTS "too_many_requests";
    /// 501: not implemented yet.
    not_implemented NOT_IMPLEMENTED "not_implemented";
    /// 503: temporarily unavailable.
    unavailable SERVICE_UNAVAILABLE "unavailable";
    /// 507: no space left to store it.
    storage_full INSUFFICIENT_STORAGE "storage_full";
}

impl ApiError {
    /// An error of any status. `kind` is the error type for programs.
    pub fn new(
        status: StatusCode,
        kind: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let header = (status == StatusCode::UNAUTHORIZED)
            .then(|| (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        let message = message.into();
        let hint = Cow::Borrowed("");
        Self(Box::new(Inner { status, kind, message, hint, header, detail: None }))
    }

    /// 500. The cause goes to the server's log, not to the client.
    pub fn internal(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error")
            .hint("try again; the server's log has the cause under this response's x-request-id")
            .detail(detail)
    }

    /// Sets the hint: what to do next.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// Sets a more specific error type.
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.0.kind = kind;
        self
    }

    /// Sets the detail for the server's log.
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string());
        self
    }

    /// Sets `Retry-After`.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.header = Some((RETRY_AFTER, HeaderValue::from(seconds)));
        self
    }

    /// Tells the official clients of OpenAI and Anthropic not to retry.
    pub fn no_retry(mut self) -> Self {
        self.0.header = Some((X_SHOULD_RETRY, HeaderValue::from_static("false")));
        self
    }

    /// Sets `Allow`.
    pub fn allow(mut self, methods: &'static str) -> Self {
        self.0.header = Some((ALLOW, HeaderValue::from_static(methods)));
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The error type for programs.
    pub fn name(&self) -> &'static str {
        self.0.kind
    }

    /// Whether the session belongs to another node, so that nothing was done here.
    pub(crate) fn is_owned_elsewhere(&self) -> bool {
        self.0.kind == OWNED_ELSEWHERE
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do next; may be empty.
    pub(crate) fn hint_text(&self) -> &str {
        &self.0.hint
    }

    /// The detail for the server's log.
    pub(crate) fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The body of the error, also used on a WebSocket, which has no status.
    pub fn json(&self) -> String {
        let error =
            ErrorFields { r#type: self.0.kind, message: &self.0.message, hint: &self.0.hint };
        // Three strings can always be written as JSON.
        serde_json::to_string(&ErrorBody { error }).unwrap_or_default()
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.status.as_u16(), self.0.kind, self.0.message)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut response = (self.0.status, headers, self.json()).into_response();
        if let Some((name, value)) = self.0.header.clone() {
            response.headers_mut().insert(name, value);
        }
        if let Some(detail) = &self.0.detail {
            response.extensions_mut().insert(LogDetail(detail.clone()));
        }
        // For `Dialect`, which writes it in another protocol's form.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<turnwire_log::Error> for ApiError {
    fn from(error: turnwire_log::Error) -> Self {
        use turnwire_log::Error;
        match error {
            Error::NoSession => Self::not_found("no such session").hint(
                "create it with POST /v1/sessions; GET /v1/sessions lists the existing ones",
            ),
            Error::Fenced => Self::conflict(
                "another producer owns this session now; nothing was stored",
            )
            .kind("fenced")
            .hint("a producer with a higher fence has taken over; use a higher fence to take it back"),
            Error::Owned(node) => Self::conflict("another node works on this session; nothing was stored")
                .kind(OWNED_ELSEWHERE)
                .hint("try again when the reply has ended")
                .detail(format!("node {}", node.id)),
            Error::OutOfOrder => {
                Self::conflict("the log has changed in the meantime; nothing was stored")
                    .kind("out_of_order")
                    .hint("read the session's last_event_id and try again")
            }
            Error::Trimmed(first) => {
                Self::gone(format!("retention has removed the events before {first}"))
                    .kind("trimmed")
                    .hint(format!("the earliest event is {first}; the messages still exist"))
            }
            Error::Refused { at, why } => Self::unprocessable(format!(
                "event {at} (counted from 0) is invalid: {why}"
            ))
            .kind("refused")
            .hint(
                "nothing was stored; `tolerant=true` leaves out invalid events",
            ),
            Error::TooSlow => Self::unavailable("this query took too long")
                .kind("query_timeout")
                .hint("search for longer or fewer words, or list fewer sessions; the operator can raise `limits.search_timeout`")
                .retry_after(5),
            Error::OverQuota(max) => Self::storage_full(format!(
                "the blobs of this tenant may have {max} bytes in total; nothing was stored"
            ))
            .kind("quota_exceeded")
            .hint(
                "delete unused blobs (DELETE /v1/blobs/{hash}) or sessions; the operator can raise \
                 `limits.blobs`",
            ),
            Error::Full(detail) => {
                Self::storage_full("the disk of the store is full; nothing was stored")
                    .hint("acknowledged requests are safe; try again when there is space")
                    .detail(detail)
            }
            Error::Locked(detail)
            | Error::Version(detail)
            | Error::Denied(detail)
            | Error::Store(detail) => Self::store_unavailable(detail),
            Error::Damaged(detail) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store_damaged",
                "the store is damaged at data that this request needs",
            )
            .hint("the operator can run `turnwire doctor`, or restore a backup")
            .detail(detail),
            other => Self::internal(other),
        }
    }
}

impl ApiError {
    fn store_unavailable(detail: String) -> Self {
        Self::unavailable("the store is unavailable; nothing was stored")
            .kind("store_unavailable")
            .hint("try again; the server's log has the cause under this response's x-request-id")
            .detail(detail)
            .retry_after(1)
    }
}

/// The response to an unknown path.
pub(crate) async fn no_such_path(State(app): State<Arc<App>>, uri: Uri) -> ApiError {
    app.metrics.count_response(None, StatusCode::NOT_FOUND, Duration::ZERO);
    ApiError::not_found(format!("no such path: {}", uri.path()))
        .hint("GET /openapi.json lists all routes")
}

/// The response to a method that a path does not have. The router adds `Allow`.
pub(crate) async fn no_such_method(
    State(app): State<Arc<App>>,
    method: Method,
    uri: Uri,
) -> Response {
    app.metrics.count_response(None, StatusCode::METHOD_NOT_ALLOWED, Duration::ZERO);
    let error = ApiError::method_not_allowed(format!("{} does not support {method}", uri.path()))
        .hint("the header `allow` lists the supported methods");
    api::dialect_for_path(uri.path()).translate(error.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::Seq;

    fn convert(error: turnwire_log::Error) -> (u16, &'static str, String) {
        let error = ApiError::from(error);
        (error.status().as_u16(), error.name(), error.json())
    }

    #[test]
    fn every_error_of_the_log_has_its_status() {
        use turnwire_log::Error;
        let first = Seq::new(7).unwrap();
        for (error, status, kind) in [
            (Error::NoSession, 404, "not_found"),
            (Error::Fenced, 409, "fenced"),
            (Error::OutOfOrder, 409, "out_of_order"),
            (Error::Trimmed(first), 410, "trimmed"),
            (Error::TooSlow, 503, "query_timeout"),
            (Error::Full("disk".into()), 507, "storage_full"),
            (Error::OverQuota(7), 507, "quota_exceeded"),
            (Error::Locked("lock".into()), 503, "store_unavailable"),
            (Error::Damaged("page 3".into()), 500, "store_damaged"),
        ] {
            let (got, name, _) = convert(error);
            assert_eq!((got, name), (status, kind));
        }
    }

    #[test]
    fn what_the_store_says_stays_here() {
        let (_, _, json) = convert(turnwire_log::Error::Store("/secret/path: broken".into()));
        assert!(!json.contains("secret"), "{json}");
    }

    #[test]
    fn a_refused_event_is_named() {
        let why = turnwire_core::Event::from_json("{}").unwrap_err();
        let (status, _, json) = convert(turnwire_log::Error::Refused { at: 3, why });
        assert_eq!(status, 422);
        assert!(json.contains("event 3 (counted from 0)"), "{json}");
    }
}
