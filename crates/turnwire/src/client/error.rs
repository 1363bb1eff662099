//! Errors of the client.

use serde::Deserialize;
use std::fmt;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientError {
    /// The outcome is unknown, or the failure is temporary: retry.
    Transient(String),
    /// The server rejected the request.
    Rejected(Rejection),
    /// The response is not valid.
    Unexpected(String),
}

/// The error of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

#[derive(Deserialize)]
struct ErrorResponse {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    hint: Option<String>,
}

impl ClientError {
    /// The error of an unsuccessful response.
    pub(super) fn from_response(status: u16, body: &[u8]) -> Self {
        let answer = serde_json::from_slice::<ErrorResponse>(body).ok().map(|answer| answer.error);
        let (kind, message, hint) = match answer {
            Some(ErrorBody { r#type, message, hint }) => {
                (r#type, message, hint.unwrap_or_default())
            }
            None => {
                (String::new(), format!("the server answered with status {status}"), String::new())
            }
        };
        // Not 507: a full disk stays full.
        if matches!(status, 429 | 500 | 502..=504) {
            return Self::Transient(message);
        }
        Self::Rejected(Rejection { status, kind, message, hint })
    }

    /// Whether the server's error has this type.
    pub(crate) fn has_type(&self, kind: &str) -> bool {
        matches!(self, Self::Rejected(refused) if refused.kind == kind)
    }

    /// Whether the server answered 404.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected(refused) if refused.status == 404)
    }

    /// What to do about it; may be empty.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Rejected(refused) if refused.status == 401 => {
                "pass the token with --token or in TURNWIRE_TOKEN; `turnwire token new` creates one"
                    .to_owned()
            }
            Self::Rejected(refused) => refused.hint.clone(),
            Self::Transient(_) => {
                "is the server running there? `turnwire serve` starts one; without --url none is needed"
                    .to_owned()
            }
            Self::Unexpected(_) => "is this the address of a Turnwire server?".to_owned(),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transient(why) | Self::Unexpected(why) => f.write_str(why),
            Self::Rejected(refused) => f.write_str(&refused.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_keeps_the_servers_message_and_temporary_failures_are_retried() {
        let busy = br#"{"error":{"type":"busy","message":"a reply is running","hint":"wait"}}"#;
        let no = ClientError::from_response(409, busy);
        assert!(no.has_type("busy"));
        assert_eq!((no.to_string(), no.hint()), ("a reply is running".into(), "wait".into()));
        assert!(matches!(ClientError::from_response(503, b"<html>"), ClientError::Transient(_)));
        assert!(ClientError::from_response(404, b"").is_not_found());
        assert!(ClientError::from_response(401, b"").hint().contains("--token"));
    }
}
