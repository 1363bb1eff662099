//! Errors of providers: their type, a message without secrets, and whether a retry may help.

use super::client::SendError;
use super::key::Secret;
use crate::model::ModelError;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use std::error::Error;
use std::time::{Duration, SystemTime};
use turnwire_core::ErrorType;

/// The most bytes of an error body that are read.
pub(super) const MAX_BODY_BYTES: usize = 64 << 10;
/// The most characters of it in a message.
const MAX_MESSAGE_CHARS: usize = 500;

/// The error of a response that is not a success.
pub(super) fn from_status(
    who: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    secret: &Secret,
) -> ModelError {
    let (kind, is_passing) = classify_status(status);
    let reason = status.canonical_reason().unwrap_or("no reason");
    let mut message = format!("{who} answered {} ({reason})", status.as_u16());
    if status.is_redirection() {
        message.push_str("; redirects are not followed: set the base URL to the final address");
        if let Some(place) = headers.get(header::LOCATION).and_then(|it| it.to_str().ok()) {
            let place = place.split(['?', '#']).next().unwrap_or_default();
            message = format!("{message} (perhaps {})", sanitize(place, secret));
        }
    }
    let body = String::from_utf8_lossy(body);
    let reason = error_text(&body);
    if !reason.is_empty() {
        message = format!("{message}: {}", sanitize(&reason, secret));
    }
    let retry_after = retry_after(headers).or_else(|| retry_delay_in_body(&body));
    ModelError {
        kind,
        message,
        is_transient: is_passing,
        retry_after: retry_after.filter(|_| is_passing),
    }
}

fn classify_status(status: StatusCode) -> (ErrorType, bool) {
    match status.as_u16() {
        300..=399 => (ErrorType::Setup, false),
        401 => (ErrorType::Authentication, false),
        // Payment required.
        402 | 403 => (ErrorType::Permission, false),
        429 => (ErrorType::RateLimit, true),
        408 | 409 | 500.. => (ErrorType::Upstream, true),
        _ => (ErrorType::InvalidRequest, false),
    }
}

/// The error of a request without a response.
pub(super) fn from_send_error(who: &str, place: &str, trouble: &SendError) -> ModelError {
    let message = match trouble {
        SendError::ConnectTimeout => {
            format!("{who} could not be reached at {place} within the time limit")
        }
        SendError::Connect(why) => {
            format!("{who} could not be reached at {place}: {}", root_cause(&**why))
        }
        SendError::NoResponse(why) => {
            format!("{who} closed the connection before it responded: {}", root_cause(&**why))
        }
    };
    ModelError::transient(ErrorType::Connection, message)
}

/// The innermost error, which has the most specific message.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut inner = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    truncate_message(&inner.to_string())
}

/// A provider's text on one line, shortened, without the key.
pub(super) fn sanitize(text: &str, secret: &Secret) -> String {
    let plain = |one: char| if one.is_control() { ' ' } else { one };
    truncate_message(secret.redacted(text.chars().map(plain).collect()).trim())
}

fn truncate_message(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The error message in a body; empty if there is none for people.
pub(super) fn error_text(body: &str) -> String {
    let body = body.trim();
    match serde_json::from_str::<Value>(body) {
        Ok(value) => find_message(&value).unwrap_or(body).to_owned(),
        // An HTML page.
        Err(_) if body.starts_with('<') => String::new(),
        Err(_) => body.to_owned(),
    }
}

/// The message in the formats of providers: `{"error":{"message"}}`, `{"error":"…"}`, `{"message"}`,
/// `{"detail"}`, or a list of those.
fn find_message(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(list) => list.iter().find_map(find_message),
        Value::Object(fields) => ["error", "message", "detail", "msg"]
            .into_iter()
            .find_map(|key| fields.get(key).and_then(find_message)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The delay that a provider asks for.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = |text: &str| Duration::try_from_secs_f64(text.trim().parse().ok()?).ok();
    // OpenAI's header, which is more precise.
    let milliseconds = text("retry-after-ms").and_then(seconds).map(|time| time / 1000);
    milliseconds.or_else(|| {
        let value = text("retry-after")?;
        seconds(value).or_else(|| {
            let then = httpdate::parse_http_date(value).ok()?;
            // Relative to the provider's own clock, if it sends the date.
            let now = text("date").and_then(|now| httpdate::parse_http_date(now).ok());
            let now = now.unwrap_or_else(SystemTime::now);
            Some(then.duration_since(now).unwrap_or_default())
        })
    })
}

/// Gemini's delay, in the body.
fn retry_delay_in_body(body: &str) -> Option<Duration> {
    let value: Value = serde_json::from_str(body).ok()?;
    let error = value.get("error").or_else(|| value.get(0)?.get("error"))?;
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|one| one.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::http::key::ApiKey;

    fn failure(status: u16, headers: &[(&'static str, &str)], body: &str) -> ModelError {
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
        let secret = ApiKey::from_text("sk-1").read().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        from_status("x:m", status, &headers.collect(), body.as_bytes(), &secret)
    }

    #[test]
    fn each_status_has_its_kind_and_only_some_may_pass() {
        for (status, kind, is_passing) in [
            (301, ErrorType::Setup, false),
            (400, ErrorType::InvalidRequest, false),
            (401, ErrorType::Authentication, false),
            (402, ErrorType::Permission, false),
            (403, ErrorType::Permission, false),
            (404, ErrorType::InvalidRequest, false),
            (408, ErrorType::Upstream, true),
            (409, ErrorType::Upstream, true),
            (413, ErrorType::InvalidRequest, false),
            (422, ErrorType::InvalidRequest, false),
            (429, ErrorType::RateLimit, true),
            (500, ErrorType::Upstream, true),
            (503, ErrorType::Upstream, true),
            (529, ErrorType::Upstream, true),
        ] {
            let error = failure(status, &[], "");
            assert_eq!((error.kind, error.is_transient), (kind, is_passing), "{status}");
        }
    }

    #[test]
    fn the_sentence_is_found_in_what_each_provider_writes() {
        for (body, expected) in [
            (r#"{"error":{"message":"no","type":"t"}}"#, "no"),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#, "no"),
            (r#"[{"error":{"code":400,"message":"no"}}]"#, "no"),
            (r#"{"error":"no"}"#, "no"),
            (r#"{"code":"InvalidApiKey","message":"no","request_id":"r"}"#, "no"),
            (r#"{"detail":[{"loc":["body"],"msg":"no"}]}"#, "no"),
            ("no\n", "no"),
            ("<html>no</html>", ""),
            ("", ""),
            ("{\"a\":1}", "{\"a\":1}"),
        ] {
            assert_eq!(error_text(body), expected, "{body}");
        }
    }

    #[test]
    fn a_message_is_one_line_not_too_long_and_without_the_key() {
        let error = failure(401, &[], r#"{"error":{"message":"bad key\nsk-1"}}"#);
        assert_eq!(error.message, "x:m answered 401 (Unauthorized): bad key [key]");
        let error = failure(500, &[], &"é".repeat(600));
        assert!(error.message.ends_with("éé…") && error.message.chars().count() < 550);
        let moved = failure(307, &[("location", "https://h/?key=sk-1")], "");
        assert!(moved.message.ends_with("(perhaps https://h/)"), "{moved}");
    }

    #[test]
    fn when_to_ask_again_is_read_in_every_form() {
        let after = |headers: &[(&'static str, &str)], body: &str| {
            failure(429, headers, body).retry_after.map(|time| time.as_millis())
        };
        assert_eq!(after(&[("retry-after", "2")], ""), Some(2000));
        assert_eq!(after(&[("retry-after", "0.5")], ""), Some(500));
        assert_eq!(after(&[("retry-after", "2"), ("retry-after-ms", "150")], ""), Some(150));
        let noon = ("date", "Wed, 21 Oct 2015 12:00:00 GMT");
        let later = ("retry-after", "Wed, 21 Oct 2015 12:00:07 GMT");
        assert_eq!(after(&[noon, later], ""), Some(7000));
        assert_eq!(after(&[later], ""), Some(0), "a time that is over");
        for odd in ["-1", "soon", "nan", "1e300", ""] {
            assert_eq!(after(&[("retry-after", odd)], ""), None, "{odd}");
        }
        let gemini = r#"{"error":{"message":"no","details":[{"@type":"x"},{"retryDelay":"17s"}]}}"#;
        assert_eq!(after(&[], gemini), Some(17_000));
        assert_eq!(failure(400, &[("retry-after", "2")], "").retry_after, None);
    }
}
