//! Reads and writes errors inside a stream.

use crate::lenient::{Object, Raw, Text};
use crate::provider::{error_name, error_type_of_status, error_type_of_words, reply_error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use turnwire_core::{ErrorType, FinishedReason, ReplyError};

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ErrorFields<'a> {
    message: Option<Text<'a>>,
    r#type: Text<'a>,
    /// A word, or an HTTP status.
    code: Raw<'a>,
    status: Raw<'a>,
    native_finish_reason: Text<'a>,
}

/// The error, and the finish reason of the reply.
pub(super) fn read_error(raw: &RawValue) -> (ReplyError, FinishedReason) {
    let Ok(Object(Some(body))) = serde_json::from_str::<Object<ErrorFields<'_>>>(raw.get()) else {
        // Plain text, or an unknown format.
        let message = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
        let error = reply_error(error_type("", "", &message), message);
        return (error, FinishedReason::Error);
    };
    let word =
        |raw: Option<&RawValue>| raw.map_or("", |raw| raw.get().trim_matches('"')).to_owned();
    let (code, status) = (word(body.code), word(body.status));
    let r#type = error_type(&code, &status, &body.r#type.0);
    let message = body.message.map_or_else(|| raw.get().to_owned(), |text| text.0.into_owned());
    let is_truncated =
        FinishedReason::from(&*body.native_finish_reason) == FinishedReason::Truncated;
    let reason = if is_truncated { FinishedReason::Truncated } else { FinishedReason::Error };
    (reply_error(r#type, message), reason)
}

/// The error type, from the code, the status or the type that the provider gives.
fn error_type(code: &str, status: &str, r#type: &str) -> ErrorType {
    let ours = ErrorType::from(code);
    if ours.is_known() {
        return ours;
    }
    let by_status = [code, status].iter().find_map(|word| error_type_of_status(word.parse().ok()?));
    if let Some(by_status) = by_status {
        return by_status;
    }
    // OpenAI's types for exceeded limits.
    if matches!(r#type, "tokens" | "requests") {
        return ErrorType::RateLimit;
    }
    error_type_of_words(&format!("{code} {status} {type}")).unwrap_or(ErrorType::Unknown)
}

/// An error frame as OpenAI's clients expect it.
#[derive(Serialize)]
pub(super) struct ErrorFrame<'a> {
    pub error: ErrorBody<'a>,
}

#[derive(Serialize)]
pub(super) struct ErrorBody<'a> {
    message: &'a str,
    pub r#type: &'static str,
    param: Option<&'a str>,
    /// Our error type.
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_finish_reason: Option<&'a str>,
}

impl<'a> ErrorFrame<'a> {
    pub(super) fn new(error: &'a ReplyError, reason: &'a FinishedReason) -> Self {
        let r#type = error_name(&error.r#type, "server_error");
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
