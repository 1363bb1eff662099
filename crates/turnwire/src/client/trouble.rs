//! Why something did not work.

use serde::Deserialize;
use std::fmt;

/// Why a request did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nobody knows what happened, or it does not work now: the same may be sent again.
    Lost(String),
    /// The server said no.
    Refused(Refused),
    /// What came back cannot be understood.
    Strange(String),
}

/// A server's no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

#[derive(Deserialize)]
struct Answer {
    error: Body,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    hint: Option<String>,
}

impl Trouble {
    /// What an answer other than success means.
    pub(super) fn of(status: u16, body: &[u8]) -> Self {
        let answer = serde_json::from_slice::<Answer>(body).ok().map(|answer| answer.error);
        let (kind, message, hint) = match answer {
            Some(Body { r#type, message, hint }) => (r#type, message, hint.unwrap_or_default()),
            None => (String::new(), format!("it answered with status {status}"), String::new()),
        };
        // 507 is a full disk: it stays full while one waits.
        if matches!(status, 429 | 500 | 502..=504) {
            return Self::Lost(message);
        }
        Self::Refused(Refused { status, kind, message, hint })
    }

    /// Whether the server said no for this reason.
    pub(crate) fn is(&self, kind: &str) -> bool {
        matches!(self, Self::Refused(refused) if refused.kind == kind)
    }

    /// Whether what was asked for is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.status == 404)
    }

    /// What to do about it. Empty when nobody knows.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Refused(refused) if refused.status == 401 => {
                "give the token with --token, or in TURNWIRE_TOKEN; `turnwire token new` makes one"
                    .to_owned()
            }
            Self::Refused(refused) => refused.hint.clone(),
            Self::Lost(_) => {
                "is the server running there? `turnwire serve` starts one; without --url none is needed"
                    .to_owned()
            }
            Self::Strange(_) => "is this the address of a Turnwire server?".to_owned(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) | Self::Strange(why) => f.write_str(why),
            Self::Refused(refused) => f.write_str(&refused.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_keeps_what_the_server_says_and_what_passes_may_be_sent_again() {
        let busy = br#"{"error":{"type":"busy","message":"a reply is running","hint":"wait"}}"#;
        let no = Trouble::of(409, busy);
        assert!(no.is("busy"));
        assert_eq!((no.to_string(), no.hint()), ("a reply is running".into(), "wait".into()));
        assert!(matches!(Trouble::of(503, b"<html>"), Trouble::Lost(_)));
        assert!(Trouble::of(404, b"").is_not_found());
        assert!(Trouble::of(401, b"").hint().contains("--token"));
    }
}
