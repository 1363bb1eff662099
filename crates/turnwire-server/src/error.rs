//! What a client is told when something does not work: one shape everywhere, with the right status.
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

pub(crate) use dialect::Dialect;

use crate::App;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The clients of `OpenAI` and Anthropic retry by the status, unless this header says otherwise.
pub(crate) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A result with this crate's error for clients.
pub type ApiResult<T> = Result<T, ApiError>;

/// An answer that is an error. It is small, because most results that could hold one do not.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    status: StatusCode,
    kind: &'static str,
    message: Cow<'static, str>,
    hint: Cow<'static, str>,
    /// A header that belongs to the status.
    header: Option<(HeaderName, HeaderValue)>,
    /// What the client is not told and the log is.
    detail: Option<String>,
}

/// What an error did not tell the client. It travels with the response to where requests are logged.
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
    /// 400: the request cannot be understood.
    bad_request BAD_REQUEST "bad_request";
    /// 401: credentials are missing or not good.
    unauthorized UNAUTHORIZED "unauthorized";
    /// 403: the credentials are good and do not reach so far.
    forbidden FORBIDDEN "forbidden";
    /// 404: it is not there, or not for this caller.
    not_found NOT_FOUND "not_found";
    /// 405: it is there, and cannot do that.
    method_not_allowed METHOD_NOT_ALLOWED "method_not_allowed";
    /// 406: it cannot be given in the form that was asked for.
    not_acceptable NOT_ACCEPTABLE "not_acceptable";
    /// 408: the client was too slow.
    timeout REQUEST_TIMEOUT "timeout";
    /// 409: it does not go together with what is there now.
    conflict CONFLICT "conflict";
    /// 410: it was there once.
    gone GONE "gone";
    /// 413: more than the limit.
    too_large PAYLOAD_TOO_LARGE "too_large";
    /// 415: a form that is not read here.
    unsupported UNSUPPORTED_MEDIA_TYPE "unsupported_media_type";
    /// 421: meant for another host.
    misdirected MISDIRECTED_REQUEST "unknown_host";
    /// 422: understood, and it does not fit.
    unprocessable UNPROCESSABLE_ENTITY "unprocessable";
    /// 429: too many requests, or too many connections.
    too_many TOO_MANY_REQUESTS "too_many_requests";
    /// 501: it is planned, and not there yet.
    not_implemented NOT_IMPLEMENTED "not_implemented";
    /// 503: not now.
    unavailable SERVICE_UNAVAILABLE "unavailable";
    /// 507: no room left to store it.
    full INSUFFICIENT_STORAGE "storage_full";
}

impl ApiError {
    /// An error of any status. `kind` is what a program looks at.
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

    /// 500. What happened goes to the log, not to the client.
    pub fn internal(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something went wrong here")
            .hint("try again; the server's log has the cause under this response's x-request-id")
            .detail(detail)
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// Puts a more telling word in place of the status's own.
    #[must_use]
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.0.kind = kind;
        self
    }

    /// Adds what only the log is told.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.0.detail = Some(detail.to_string());
        self
    }

    /// Says after how many seconds to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.header = Some((RETRY_AFTER, HeaderValue::from(seconds)));
        self
    }

    /// Tells official clients of other protocols not to send the request again.
    #[must_use]
    pub fn no_retry(mut self) -> Self {
        self.0.header = Some((X_SHOULD_RETRY, HeaderValue::from_static("false")));
        self
    }

    /// Says what a path can do.
    #[must_use]
    pub fn allow(mut self, methods: &'static str) -> Self {
        self.0.header = Some((ALLOW, HeaderValue::from_static(methods)));
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The word that a program looks at.
    pub fn name(&self) -> &'static str {
        self.0.kind
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do next; empty where nobody knows.
    pub(crate) fn hint_text(&self) -> &str {
        &self.0.hint
    }

    /// What only the log is told.
    pub(crate) fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What a client gets: also over a WebSocket, where there is no status.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Fields<'a>,
        }
        #[derive(Serialize)]
        struct Fields<'a> {
            r#type: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            hint: &'a str,
        }
        let error = Fields { r#type: self.0.kind, message: &self.0.message, hint: &self.0.hint };
        // Three strings always are JSON.
        serde_json::to_string(&Body { error }).unwrap_or_default()
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
        // For whoever has to say it in another protocol's words.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<turnwire_log::Error> for ApiError {
    fn from(error: turnwire_log::Error) -> Self {
        use turnwire_log::Error;
        match error {
            Error::NoSession => Self::not_found("there is no such session").hint(
                "make it with POST /v1/sessions; GET /v1/sessions lists those that are there",
            ),
            Error::Fenced => Self::conflict(
                "somebody else owns this session now; nothing was stored",
            )
            .kind("fenced")
            .hint("a producer with a higher fence took over; use a higher one to take it back"),
            Error::OutOfOrder => {
                Self::conflict("the log went on in the meantime; nothing was stored")
                    .kind("out_of_order")
                    .hint("read the session's last_event_id and try again")
            }
            Error::Trimmed(first) => {
                Self::gone(format!("events before {first} are no longer kept"))
                    .kind("trimmed")
                    .hint(format!("the earliest that is left is {first}; messages are still there"))
            }
            Error::Refused { at, why } => Self::unprocessable(format!(
                "event {at} (counted from 0) does not fit: {why}"
            ))
            .kind("refused")
            .hint(
                "nothing of this request was stored; `tolerant=true` leaves out what does not fit",
            ),
            Error::TooSlow => Self::unavailable("this query takes longer than it may")
                .kind("query_timeout")
                .hint("search for longer or fewer words, or list fewer sessions; the operator sets `limits.search_timeout`")
                .retry_after(5),
            Error::OverQuota(max) => Self::full(format!(
                "all blobs of this tenant may have {max} bytes together; nothing was stored"
            ))
            .kind("quota_exceeded")
            .hint(
                "delete blobs (DELETE /v1/blobs/{hash}) or sessions that are not needed; the \
                 operator sets `limits.blobs`",
            ),
            Error::Full(detail) => {
                Self::full("the store has no room left; nothing of this request was stored")
                    .hint("what was acknowledged is safe; try again when there is room")
                    .detail(detail)
            }
            Error::Locked(detail)
            | Error::Version(detail)
            | Error::Denied(detail)
            | Error::Store(detail) => Self::store_unavailable(detail),
            Error::Damaged(detail) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store_damaged",
                "the store is damaged where this request reads it",
            )
            .hint("the operator runs `turnwire doctor`, or restores a backup")
            .detail(detail),
            other => Self::internal(other),
        }
    }
}

impl ApiError {
    fn store_unavailable(detail: String) -> Self {
        Self::unavailable("the store cannot be used now; nothing of this request was stored")
            .kind("store_unavailable")
            .hint("try again; the server's log has the cause under this response's x-request-id")
            .detail(detail)
            .retry_after(1)
    }
}

/// Answers a path that is not there.
pub(crate) async fn no_such_path(State(app): State<Arc<App>>, uri: Uri) -> ApiError {
    app.metrics.count_response(None, StatusCode::NOT_FOUND, Duration::ZERO);
    ApiError::not_found(format!("there is nothing at {}", uri.path()))
        .hint("GET /openapi.json lists what is there")
}

/// Answers a method that a path does not have. The router adds `Allow`.
pub(crate) async fn no_such_method(
    State(app): State<Arc<App>>,
    method: Method,
    uri: Uri,
) -> ApiError {
    app.metrics.count_response(None, StatusCode::METHOD_NOT_ALLOWED, Duration::ZERO);
    ApiError::method_not_allowed(format!("{} cannot be done with {method}", uri.path()))
        .hint("the header `allow` lists what can")
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
