//! Errors: their words for ours.

use super::read::{Raw, Text};
use serde::Deserialize;
use turnwire_core::{ErrorType, ReplyError};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorFields<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow)]
    code: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

/// Reads an error: an object, one inside another, or a bare sentence.
pub(super) fn read_error(raw: &str) -> ReplyError {
    let outer: ErrorFields<'_> = serde_json::from_str(raw).unwrap_or_default();
    parse_error(outer.error.map_or(raw, |inner| inner.get()))
}

fn parse_error(raw: &str) -> ReplyError {
    if let Ok(message) = serde_json::from_str::<String>(raw) {
        return ReplyError { message, ..ReplyError::default() };
    }
    let words: ErrorFields<'_> = serde_json::from_str(raw).unwrap_or_default();
    let kind = [&words.code, &words.r#type].into_iter().find_map(|word| error_type(word));
    let other = || match &*words.code {
        "" => ErrorType::Unknown,
        code => ErrorType::from(code),
    };
    ReplyError {
        r#type: kind.unwrap_or_else(other),
        message: words.message.0.into_owned(),
        ..ReplyError::default()
    }
}

/// What kind of error a code, a type or a status is.
fn error_type(word: &str) -> Option<ErrorType> {
    let ours = ErrorType::from(word);
    if ours.is_known() {
        return Some(ours);
    }
    let has = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
    Some(match word {
        "401" => ErrorType::Authentication,
        "403" => ErrorType::Permission,
        "429" => ErrorType::RateLimit,
        "400" | "404" | "409" | "413" | "415" | "422" => ErrorType::InvalidRequest,
        "500" | "502" | "503" | "504" | "529" => ErrorType::Upstream,
        _ if has(&["rate_limit", "quota", "too_many"]) => ErrorType::RateLimit,
        _ if has(&["api_key", "authenticat", "unauthorized"]) => ErrorType::Authentication,
        _ if has(&["permission", "forbidden", "access_denied"]) => ErrorType::Permission,
        _ if has(&["server_error", "internal", "overloaded", "timeout", "unavailable"]) => {
            ErrorType::Upstream
        }
        _ if has(&["invalid", "unsupported", "context_length", "not_found", "too_large"]) => {
            ErrorType::InvalidRequest
        }
        _ => return None,
    })
}

/// The code that says it to their clients; [`kind`] reads it back.
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
