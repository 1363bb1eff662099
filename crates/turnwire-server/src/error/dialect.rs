//! Writes errors in the form of the protocol that a path belongs to.

use super::ApiError;
use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_LENGTH;
use serde_json::{Value, json};

/// The form of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `{"error": {"type", "message", "hint"}}`
    Turnwire,
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
}

impl Dialect {
    /// The dialect of a path, or of a route's pattern.
    pub(crate) fn from_path(path: &str) -> Self {
        let is_under = |root: &str| {
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_under("/v1/messages") {
            Self::Anthropic
        } else if is_under("/v1/chat") || is_under("/v1/responses") || is_under("/v1/models") {
            Self::OpenAi
        } else {
            Self::Turnwire
        }
    }

    /// Rewrites an error response into this dialect. Other responses stay as they are.
    pub(crate) fn translate(self, mut response: Response) -> Response {
        if self == Self::Turnwire {
            return response;
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
        let body = match self {
            Self::Turnwire => return response,
            Self::OpenAi => openai_error(&error),
            Self::Anthropic => anthropic_error(&error),
        };
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(body.to_string());
        response
    }
}

/// The message and the hint: these protocols have one field for both.
fn message_with_hint(error: &ApiError) -> String {
    match error.hint_text() {
        "" => error.message().to_owned(),
        hint => format!("{} ({hint})", error.message()),
    }
}

fn openai_error(error: &ApiError) -> Value {
    let kind = match error.status().as_u16() {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let code = match error.status().as_u16() {
        401 => "invalid_api_key",
        _ => error.name(),
    };
    json!({"error": {"message": message_with_hint(error), "type": kind, "param": null, "code": code}})
}

fn anthropic_error(error: &ApiError) -> Value {
    let kind = match error.status().as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message_with_hint(error)}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    async fn translated_body(path: &str, error: ApiError) -> Value {
        let response = Dialect::from_path(path).translate(error.into_response());
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn a_path_is_answered_in_its_own_words() {
        let error = || ApiError::not_found("no such model: x").kind("no_model").hint("use demo");
        let ours = translated_body("/v1/sessions/s/messages", error()).await;
        assert_eq!(ours["error"]["hint"], "use demo");
        let open_ai = translated_body("/v1/chat/completions", error()).await;
        assert_eq!(open_ai["error"]["code"], "no_model");
        assert_eq!(open_ai["error"]["message"], "no such model: x (use demo)");
        assert_eq!(open_ai["error"]["param"], Value::Null);
        let anthropic = translated_body("/v1/messages", error()).await;
        assert_eq!(anthropic["error"]["type"], "not_found_error");
        assert_eq!(anthropic["type"], "error");
        assert_eq!(Dialect::from_path("/v1/messages-of-mine"), Dialect::Turnwire);
        assert_eq!(Dialect::from_path("/v1/responses/{id}/cancel"), Dialect::OpenAi);
    }
}
