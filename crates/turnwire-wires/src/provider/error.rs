//! Error types, recognised by what providers send: an HTTP status, or words.

use turnwire_core::{ErrorType, ReplyError};

pub(crate) fn reply_error(r#type: ErrorType, message: impl Into<String>) -> ReplyError {
    ReplyError { r#type, message: message.into(), ..ReplyError::default() }
}

/// The error type of an HTTP status; `None` below 400.
pub(crate) fn error_type_of_status(status: u16) -> Option<ErrorType> {
    Some(match status {
        ..400 => return None,
        401 => ErrorType::Authentication,
        402 | 403 => ErrorType::Permission,
        429 => ErrorType::RateLimit,
        408 | 409 | 500.. => ErrorType::Upstream,
        400..500 => ErrorType::InvalidRequest,
    })
}

/// The error type of an error code, an error type or a sentence, by the words in it.
pub(crate) fn error_type_of_words(words: &str) -> Option<ErrorType> {
    const WORDS: [(ErrorType, &[&str]); 5] = [
        (
            ErrorType::RateLimit,
            &[
                "rate_limit",
                "ratelimit",
                "rate limit",
                "quota",
                "too_many",
                "too many",
                "throttl",
                "usage limit",
                "server busy",
            ],
        ),
        (
            ErrorType::Authentication,
            &["authent", "authoriz", "auth_", "api_key", "apikey", "api key"],
        ),
        (ErrorType::Permission, &["permission", "forbidden", "denied"]),
        (
            ErrorType::InvalidRequest,
            &[
                "invalid",
                "bad_request",
                "badrequest",
                "not_found",
                "not found",
                "context_length",
                "too_large",
                "unsupported",
                "not support",
                "required",
            ],
        ),
        (
            ErrorType::Upstream,
            &["server", "overload", "unavailable", "timeout", "internal", "upstream"],
        ),
    ];
    let words = words.to_ascii_lowercase();
    let has = |known: &[&str]| known.iter().any(|word| words.contains(word));
    WORDS.into_iter().find(|(_, known)| has(known)).map(|(r#type, _)| r#type)
}

/// The name of an error type that Anthropic and `OpenAI` share, or `other`.
pub(crate) fn error_name(r#type: &ErrorType, other: &'static str) -> &'static str {
    match r#type {
        ErrorType::Authentication => "authentication_error",
        ErrorType::Permission => "permission_error",
        ErrorType::RateLimit => "rate_limit_error",
        ErrorType::InvalidRequest => "invalid_request_error",
        ErrorType::Upstream
        | ErrorType::Connection
        | ErrorType::Internal
        | ErrorType::Setup
        | ErrorType::Unknown
        | ErrorType::Other(_) => other,
    }
}
