//! Why something did not work.

use serde::Deserialize;
use std::fmt;

/// Why a request did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientError {
    /// Nobody knows what happened, or it does not work now: the same may be sent again.
    Transient(String),
    /// The server said no.
    Rejected(Rejection),
    /// What came back cannot be understood.
    Unexpected(String),
}

/// A server's no.
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
    /// What an answer other than success means.
    pub(super) fn from_response(status: u16, body: &[u8]) -> Self {
        let answer = serde_json::from_slice::<ErrorResponse>(body).ok().map(|answer| answer.error);
        let (kind, message, hint) = match answer {
            Some(ErrorBody { r#type, message, hint }) => {
                (r#type, message, hint.unwrap_or_default())
            }
            None => (String::new(), format!("it answered with status {status}"), String::new()),
        };
        // 507 is a full disk: it stays full while one waits.
        if matches!(status, 429 | 500 | 502..=504) {
            return Self::Transient(message);
        }
        Self::Rejected(Rejection { status, kind, message, hint })
    }

    /// Whether the server said no for this reason.
    pub(crate) fn has_type(&self, kind: &str) -> bool {
        matches!(self, Self::Rejected(refused) if refused.kind == kind)
    }

    /// Whether what was asked for is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected(refused) if refused.status == 404)
    }

    /// What to do about it. Empty when nobody knows.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Rejected(refused) if refused.status == 401 => {
                "give the token with --token, or in TURNWIRE_TOKEN; `turnwire token new` makes one"
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
    fn a_no_keeps_what_the_server_says_and_what_passes_may_be_sent_again() {
        let busy = br#"{"error":{"type":"busy","message":"a reply is running","hint":"wait"}}"#;
        let no = ClientError::from_response(409, busy);
        assert!(no.has_type("busy"));
        assert_eq!((no.to_string(), no.hint()), ("a reply is running".into(), "wait".into()));
        assert!(matches!(ClientError::from_response(503, b"<html>"), ClientError::Transient(_)));
        assert!(ClientError::from_response(404, b"").is_not_found());
        assert!(ClientError::from_response(401, b"").hint().contains("--token"));
    }
}
