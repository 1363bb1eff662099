//! Errors inside a stream, both ways.

use super::loose::{Object, Word};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use turnwire_core::{ErrorType, FinishedReason, ReplyError};

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorFields<'a> {
    #[serde(borrow)]
    message: Option<Word<'a>>,
    #[serde(borrow)]
    r#type: Word<'a>,
    /// A word, or a status.
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    native_finish_reason: Word<'a>,
}

/// What went wrong, and how the reply ended by it.
pub(super) fn read_error(raw: &RawValue) -> (ReplyError, FinishedReason) {
    let Ok(Object(Some(body))) = serde_json::from_str::<Object<ErrorFields<'_>>>(raw.get()) else {
        // A bare text, or whatever else it is.
        let message = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
        let error =
            ReplyError { r#type: error_type("", "", &message), message, ..ReplyError::default() };
        return (error, FinishedReason::Error);
    };
    let word =
        |raw: Option<&RawValue>| raw.map_or("", |raw| raw.get().trim_matches('"')).to_owned();
    let (code, status) = (word(body.code), word(body.status));
    let r#type = error_type(&code, &status, &body.r#type.0);
    let message = body.message.map_or_else(|| raw.get().to_owned(), |text| text.0.into_owned());
    let reason = match FinishedReason::from(&*body.native_finish_reason.0) {
        FinishedReason::Truncated => FinishedReason::Truncated,
        _ => FinishedReason::Error,
    };
    (ReplyError { r#type, message, ..ReplyError::default() }, reason)
}

/// What kind of error it is, by whatever the provider says of it.
fn error_type(code: &str, status: &str, r#type: &str) -> ErrorType {
    let ours = ErrorType::from(code);
    if ours.is_known() {
        return ours;
    }
    let number = [code, status].iter().find_map(|word| word.parse::<u16>().ok());
    match number {
        Some(401) => return ErrorType::Authentication,
        Some(402 | 403) => return ErrorType::Permission,
        Some(429) => return ErrorType::RateLimit,
        Some(408 | 409 | 500..) => return ErrorType::Upstream,
        Some(400..) => return ErrorType::InvalidRequest,
        _ => {}
    }
    let said = format!("{code} {status} {type}").to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["rate_limit", "ratelimit", "rate limit", "quota", "too_many", "throttl"])
        || matches!(r#type, "tokens" | "requests")
    {
        ErrorType::RateLimit
    } else if says(&["auth", "api_key", "apikey"]) {
        ErrorType::Authentication
    } else if says(&["permission", "forbidden", "denied"]) {
        ErrorType::Permission
    } else if says(&["invalid", "bad_request", "badrequest", "not_found", "context_length"]) {
        ErrorType::InvalidRequest
    } else if says(&["server", "overload", "unavailable", "timeout", "internal", "upstream"]) {
        ErrorType::Upstream
    } else {
        ErrorType::Unknown
    }
}

/// An error as OpenAI's clients expect it in a stream.
#[derive(Serialize)]
pub(super) struct ErrorFrame<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    /// Our own word for it.
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_finish_reason: Option<&'a str>,
}

impl<'a> ErrorFrame<'a> {
    pub(super) fn new(error: &'a ReplyError, reason: &'a FinishedReason) -> Self {
        let r#type = match error.r#type {
            ErrorType::Authentication => "authentication_error",
            ErrorType::Permission => "permission_error",
            ErrorType::RateLimit => "rate_limit_error",
            ErrorType::InvalidRequest => "invalid_request_error",
            ErrorType::Upstream
            | ErrorType::Connection
            | ErrorType::Internal
            | ErrorType::Setup
            | ErrorType::Unknown
            | ErrorType::Other(_) => "server_error",
        };
        let native = Some(reason.as_str()).filter(|_| *reason != FinishedReason::Error);
        Self {
            error: ErrorBody {
                message: &error.message,
                r#type,
                param: None,
                code: error.r#type.as_str(),
                native_finish_reason: native,
            },
        }
    }
}
