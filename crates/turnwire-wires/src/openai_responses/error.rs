//! Converts errors to and from the Responses format.

use crate::lenient::{Raw, TextOrNumber};
use crate::provider::{error_type_of_status, error_type_of_words, reply_error};
use serde::Deserialize;
use turnwire_core::{ErrorType, ReplyError};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ErrorFields<'a> {
    r#type: TextOrNumber<'a>,
    code: TextOrNumber<'a>,
    message: TextOrNumber<'a>,
    error: Raw<'a>,
}

/// Reads an error: an object, a nested object, or a plain string.
pub(super) fn read_error(raw: &str) -> ReplyError {
    let outer: ErrorFields<'_> = serde_json::from_str(raw).unwrap_or_default();
    parse_error(outer.error.map_or(raw, |inner| inner.get()))
}

fn parse_error(raw: &str) -> ReplyError {
    if let Ok(message) = serde_json::from_str::<String>(raw) {
        return reply_error(ErrorType::default(), message);
    }
    let words: ErrorFields<'_> = serde_json::from_str(raw).unwrap_or_default();
    let kind = [&words.code, &words.r#type].into_iter().find_map(|word| error_type(word));
    let other = || match &*words.code {
        "" => ErrorType::Unknown,
        code => ErrorType::from(code),
    };
    reply_error(kind.unwrap_or_else(other), words.message.0)
}

/// The error type of a code, a type or a status.
fn error_type(word: &str) -> Option<ErrorType> {
    let ours = ErrorType::from(word);
    if ours.is_known() {
        return Some(ours);
    }
    word.parse().ok().and_then(error_type_of_status).or_else(|| error_type_of_words(word))
}

/// The code for clients; [`error_type`] reads it back.
pub(super) fn error_code(kind: &ErrorType) -> &str {
    match kind {
        ErrorType::RateLimit => "rate_limit_exceeded",
        ErrorType::InvalidRequest => "invalid_prompt",
        ErrorType::Upstream => "server_error",
        ErrorType::Authentication
        | ErrorType::Permission
        | ErrorType::Connection
        | ErrorType::Internal
        | ErrorType::Setup
        | ErrorType::Unknown
        | ErrorType::Other(_) => kind.as_str(),
    }
}
