//! Errors of a measurement, with advice.

use std::fmt;
use std::io;

/// The result of a measurement's step.
pub(super) type Result<T> = std::result::Result<T, BenchError>;

/// An error message: what happened, why, and what to do.
#[derive(Debug)]
pub(super) struct BenchError(String);

impl BenchError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Nothing listens at the address.
    pub(super) fn unreachable(url: &str, error: &io::Error) -> Self {
        Self(format!("cannot reach {url}: {error}. {}", advice(error)))
    }

    /// The connection broke during a request.
    pub(super) fn connection_lost(url: &str, error: &io::Error) -> Self {
        Self(format!(
            "the connection to {url} broke: {error}. The server's own log says why, if it still runs"
        ))
    }

    /// The server answered with an unexpected status.
    pub(super) fn unexpected_status(what: &str, status: u16, body: &[u8]) -> Self {
        let details = error_text(body);
        let advice = match status {
            401 | 403 => ". Pass a token with --token, or in the variable TURNWIRE_TOKEN",
            404 => ". Is it a Turnwire server, and does the session still exist?",
            429 => {
                ". The server's limits are lower than this load: raise them, or use fewer connections"
            }
            _ => "",
        };
        Self(format!("{what} was answered with {status}{details}{advice}"))
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn advice(error: &io::Error) -> &'static str {
    // The same numbers on Linux and the BSDs.
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match error.raw_os_error() {
        Some(EMFILE | ENFILE) => {
            "No more files can be open at once: raise the hard limit (ulimit -Hn), or use fewer watchers"
        }
        _ => "Is the server running? `turnwire serve` starts one; --url is its address",
    }
}

/// The message of an error body: Turnwire's JSON, or plain text.
fn error_text(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let field = |name: &str| json.as_ref()?.get("error")?.get(name)?.as_str();
    match (field("message"), field("hint")) {
        (Some(message), Some(hint)) => format!(": {message}. {hint}"),
        (Some(message), None) => format!(": {message}"),
        (None, _) => {
            let text = String::from_utf8_lossy(body);
            let line = text.trim().lines().next().unwrap_or_default();
            let line: String = line.chars().take(200).collect();
            if line.is_empty() { line } else { format!(": {line}") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_error_is_reported_with_its_hint() {
        let body = br#"{"error":{"type":"fold","message":"no such block","hint":"Start it."}}"#;
        let failed = BenchError::unexpected_status("POST /x", 422, body).to_string();
        assert_eq!(failed, "POST /x was answered with 422: no such block. Start it.");
    }

    #[test]
    fn a_missing_token_is_reported_with_how_to_pass_one() {
        let failed = BenchError::unexpected_status("POST /x", 401, b"").to_string();
        assert!(failed.contains("401") && failed.contains("--token"), "{failed}");
    }

    #[test]
    fn an_error_body_that_is_not_json_is_shown_by_its_first_line() {
        let failed =
            BenchError::unexpected_status("PUT /x", 500, b"it broke\nat line 3").to_string();
        assert_eq!(failed, "PUT /x was answered with 500: it broke");
    }
}
