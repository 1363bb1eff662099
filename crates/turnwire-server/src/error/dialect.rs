//! Writes errors in the form of the protocol that a route belongs to. The table of routes says which.

use super::ApiError;
use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_LENGTH;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;

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
    /// Rewrites an error response into this dialect. Other responses stay as they are.
    pub(crate) fn translate(self, mut response: Response) -> Response {
        if self == Self::Turnwire {
            return response;
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
        let body = match self {
            Self::Turnwire => return response,
            Self::OpenAi => serde_json::to_string(&OpenAiErrorBody::from(&error)),
            Self::Anthropic => serde_json::to_string(&AnthropicErrorBody::from(&error)),
        };
        response.headers_mut().remove(CONTENT_LENGTH);
        // Structs of strings can always be written as JSON.
        *response.body_mut() = Body::from(body.unwrap_or_default());
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

/// The body of an error of `OpenAI`'s APIs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OpenAiErrorBody {
    error: OpenAiError,
}

#[derive(Serialize, JsonSchema)]
struct OpenAiError {
    /// What happened, and what to do next.
    message: String,
    r#type: Cow<'static, str>,
    /// The field of the request that is wrong.
    param: Option<String>,
    /// What happened, for programs.
    code: Option<Cow<'static, str>>,
}

/// The body of an error of Anthropic's API.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AnthropicErrorBody {
    r#type: Cow<'static, str>,
    error: AnthropicError,
}

#[derive(Serialize, JsonSchema)]
struct AnthropicError {
    r#type: Cow<'static, str>,
    /// What happened, and what to do next.
    message: String,
}

impl From<&ApiError> for OpenAiErrorBody {
    fn from(error: &ApiError) -> Self {
        let kind = match error.status().as_u16() {
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        let code = match error.status().as_u16() {
            401 => "invalid_api_key",
            _ => error.name(),
        };
        let message = message_with_hint(error);
        let param = (code == "previous_response_not_found").then(|| "previous_response_id".into());
        Self { error: OpenAiError { message, r#type: kind.into(), param, code: Some(code.into()) } }
    }
}

impl From<&ApiError> for AnthropicErrorBody {
    fn from(error: &ApiError) -> Self {
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
        let message = message_with_hint(error);
        Self { r#type: "error".into(), error: AnthropicError { r#type: kind.into(), message } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::dialect_for_path;
    use axum::response::IntoResponse;
    use serde_json::Value;

    async fn translated_body(path: &str, error: ApiError) -> Value {
        let response = dialect_for_path(path).translate(error.into_response());
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
        assert_eq!(dialect_for_path("/v1/messages-of-mine"), Dialect::Turnwire);
        assert_eq!(dialect_for_path("/v1/models/demo"), Dialect::OpenAi);
        assert_eq!(dialect_for_path("/v1/responses/r1/cancel"), Dialect::OpenAi);
        assert_eq!(dialect_for_path("/v1/responses/r1/cancel/x"), Dialect::Turnwire);
    }
}
