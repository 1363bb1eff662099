//! Models over HTTP: [`HttpModel`] calls providers and compatible servers.
//!
//! ```
//! use std::time::Duration;
//! use turnwire_agent::Agent;
//! use turnwire_agent::model::http::{HttpModel, ApiKey};
//!
//! # fn main() -> Result<(), turnwire_agent::model::ModelError> {
//! // Any server that speaks one of the protocols. Without a base URL: the provider itself.
//! let spare = HttpModel::builder("ollama:qwen3").build()?;
//! let model = HttpModel::builder("anthropic:claude-sonnet-4-5")
//!     .base_url("http://127.0.0.1:4010")
//!     .key(ApiKey::from_env("ANTHROPIC_API_KEY"))
//!     .max_tokens(2048)
//!     .retries(3)
//!     .fallback(spare)
//!     .build()?;
//! let friday = Agent::builder("friday", model).build();
//! # Ok(())
//! # }
//! ```
//!
//! | name | path | header of the key |
//! |---|---|---|
//! | `openai:`, `openai-chat:` | `/v1/chat/completions` | `Authorization: Bearer` |
//! | `openai-responses:` | `/v1/responses` | `Authorization: Bearer` |
//! | `anthropic:` | `/v1/messages` | `x-api-key` |
//! | `gemini:` | `/v1beta/models/MODEL:streamGenerateContent` | `x-goog-api-key` |
//! | `dashscope:` | `/api/v1/services/aigc/…/generation` | `Authorization: Bearer` |
//! | `ollama:` | `/api/chat` | `Authorization: Bearer` |
//!
//! A call that fails before the model produced anything is retried: after a connection error, the statuses
//! 408, 409, 429 and 5xx, and an answer that breaks off at once. `Retry-After` is obeyed, unless it is
//! longer than the longest backoff; then, and after the last retry, the fallback model is called. After the
//! first output nothing is retried.
//!
//! Redirects are not followed, because they could leak the key. https requests use the proxies of the
//! environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`); plain http requests go directly. The trusted
//! certificates are those of the system.

mod backoff;
mod builder;
mod client;
mod connection;
mod error;
mod key;
mod provider;
mod response_stream;

pub use backoff::Backoff;
pub use builder::{DEFAULT_RETRIES, HttpModelBuilder};
pub use key::ApiKey;

use super::{Model, ModelError, ModelRequest, ModelStream};
use async_trait::async_trait;
use builder::RequestSettings;
use bytes::Bytes;
use client::{HttpClient, Response};
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue, header};
use key::Secret;
use provider::Provider;
use response_stream::ResponseStream;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use turnwire_core::ErrorType;
use turnwire_wires::model_request::Request;
use turnwire_wires::stream::{DecoderOptions, StreamScope};
use turnwire_wires::{ModelOption, Wire};
use url::Url;

/// The time limit to read the body of an error response.
const ERROR_BODY_TIME: Duration = Duration::from_secs(5);

/// Headers of a client's request that a model of the same wire gets.
pub const PASSED_HEADERS: [&str; 2] = ["anthropic-beta", "openai-beta"];

/// A model over HTTP.
pub struct HttpModel {
    name: String,
    provider: &'static Provider,
    wire: &'static Wire,
    model: String,
    url: Url,
    client: HttpClient,
    settings: RequestSettings,
    has_schema_mode: bool,
    takes_response_format: bool,
    key: ApiKey,
}

impl HttpModel {
    /// Starts to build a model: `WIRE:MODEL`.
    pub fn builder(name: impl Into<String>) -> HttpModelBuilder {
        HttpModelBuilder::new(name.into())
    }

    /// Why its API key cannot be read, if it needs one. Sends nothing.
    pub fn missing_key(&self) -> Option<String> {
        self.key.read().err().map(|error| error.message)
    }

    /// Builds the body of a request.
    fn request_body(&self, ask: &ModelRequest<'_>) -> Result<String, ModelError> {
        let (set, tuning) = (&self.settings, ask.settings);
        let mut extra = set.extra.clone();
        for (key, value) in &tuning.extra {
            extra.insert(key, value.clone());
        }
        let mut options = ask.options.clone();
        let temperature = tuning.temperature.or(set.temperature);
        if options.temperature != temperature {
            options.forget_original(ModelOption::Temperature);
            options.temperature = temperature;
        }
        // A client can lower the limit, and not raise it.
        let own_limit = tuning.max_tokens.or(set.max_tokens);
        let max_tokens = [options.max_tokens, own_limit].into_iter().flatten().min();
        if options.max_tokens != max_tokens {
            options.forget_original(ModelOption::MaxTokens);
            options.max_tokens = max_tokens;
        }
        let request = Request {
            model: &self.model,
            messages: ask.messages,
            tools: ask.tools,
            tool_choice: ask.tool_choice.clone(),
            output: ask.output,
            max_tokens,
            temperature,
            speaker_format: tuning.agents,
            prompt_caching: set.prompt_caching,
            stream: true,
            options,
            extra,
        };
        let body = self.wire.model_request(&request).map_err(|error| {
            let message = format!("{} cannot represent this request: {error}", self.name);
            ModelError::new(ErrorType::InvalidRequest, message)
        })?;
        Ok(body.text().to_owned())
    }

    /// Sends a request once, and waits for the first event.
    async fn send_once(
        &self,
        ask: &ModelRequest<'_>,
        url: &Url,
        body: &Bytes,
    ) -> Result<ResponseStream, ModelError> {
        let secret = self.key.read()?;
        let until = Instant::now() + self.settings.first_token_limit;
        let mut headers = self.provider.headers(&secret);
        if ask.options.is_from(self.wire.name) {
            let parse = |(name, value): &(String, String)| {
                if !PASSED_HEADERS.contains(&name.as_str()) {
                    return None;
                }
                Some((HeaderName::from_str(name).ok()?, HeaderValue::from_str(value).ok()?))
            };
            headers.extend(ask.options.headers.iter().filter_map(parse));
        }
        let response = match timeout_at(until, self.client.post(url, &headers, body)).await {
            Err(_) => return Err(self.first_token_timeout()),
            Ok(Err(error)) => {
                return Err(error::from_send_error(&self.name, &self.origin(), &error));
            }
            Ok(Ok(response)) => response,
        };
        if !response.status.is_success() {
            return Err(self.status_error(response, &secret).await);
        }
        let media_type = response.headers.get(header::CONTENT_TYPE);
        if media_type.is_some_and(|it| it.as_bytes().starts_with(b"text/html")) {
            let message = format!(
                "{} answered with an HTML page: check the base URL {}",
                self.name,
                self.origin(),
            );
            return Err(ModelError::new(ErrorType::Upstream, message));
        }
        let decoding = DecoderOptions {
            reply_id: Some(ask.reply_id.to_owned()),
            block_prefix: Some(ask.block_prefix.to_owned()),
            scope: StreamScope::ModelCall,
            max_frame_bytes: self.settings.event_limit,
        };
        let decoder = self.wire.decoder(&decoding).map_err(|error| {
            ModelError::new(ErrorType::Internal, format!("{} cannot be read: {error}", self.name))
        })?;
        let (who, model) = (self.name.clone(), self.model.clone());
        let mut answer = ResponseStream::new(who, model, secret, decoder, response.body);
        match timeout_at(until, answer.wait_for_first_event()).await {
            Err(_) => return Err(self.first_token_timeout()),
            Ok(begun) => begun?,
        }
        answer.set_idle_limit(self.settings.token_gap_limit);
        Ok(answer)
    }

    fn first_token_timeout(&self) -> ModelError {
        let limit = self.settings.first_token_limit;
        let message = format!("{} produced no output within {limit:?}", self.name);
        ModelError::transient(ErrorType::Upstream, message)
    }

    /// The error of a response that is not a success.
    async fn status_error(&self, response: Response, secret: &Secret) -> ModelError {
        let Response { status, headers, body: mut content } = response;
        let mut body = Vec::new();
        let read = async {
            while body.len() < error::MAX_BODY_BYTES {
                let more = content.read(|bytes| body.extend_from_slice(bytes)).await;
                if more != Ok(true) {
                    return;
                }
            }
        };
        // The part that arrived in time is enough: the status matters most.
        let _ = tokio::time::timeout(ERROR_BODY_TIME, read).await;
        body.truncate(error::MAX_BODY_BYTES);
        let mut error = error::from_status(&self.name, status, &headers, &body, secret);
        let hint = match status.as_u16() {
            401 => Some(self.key.hint()),
            404 => Some(format!("check the model and the base URL, {}", self.origin())),
            _ => None,
        };
        if let Some(hint) = hint {
            error.message = format!("{} ({hint})", error.message);
        }
        error
    }

    /// The address for messages to people, without parts that may be secret.
    fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Sends a request, and retries until there is an answer or a permanent error.
    async fn send_with_retries(
        &self,
        ask: &ModelRequest<'_>,
    ) -> Result<ResponseStream, ModelError> {
        let body = self.request_body(ask)?;
        let url = self.provider.request_url_for_body(&self.url, &self.model, &body);
        let body = Bytes::from(body);
        let mut again = 0;
        loop {
            let error = match self.send_once(ask, &url, &body).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let RequestSettings { retries, backoff: pauses, .. } = &self.settings;
            let pause = pauses.delay(again, error.retry_after, backoff::jitter());
            match pause.filter(|_| error.is_transient && again < *retries) {
                None => return Err(error),
                Some(pause) => {
                    tracing::warn!(model = %self.name, %error, ?pause, "model call failed; retrying");
                    tokio::time::sleep(pause).await;
                    again += 1;
                }
            }
        }
    }
}

#[async_trait]
impl Model for HttpModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_schema_mode(&self) -> bool {
        let fallback = self.settings.fallback.as_ref();
        self.has_schema_mode && fallback.is_none_or(|fallback| fallback.has_schema_mode())
    }

    fn takes_response_format(&self) -> bool {
        let fallback = self.settings.fallback.as_ref();
        self.takes_response_format
            && fallback.is_none_or(|fallback| fallback.takes_response_format())
    }

    fn wire(&self) -> Option<(&'static str, &str)> {
        Some((self.wire.name, &self.model))
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let error = match self.send_with_retries(&ask).await {
            Ok(answer) => return Ok(answer.boxed()),
            Err(error) => error,
        };
        let Some(fallback) = &self.settings.fallback else { return Err(error) };
        tracing::warn!(model = %self.name, %error, fallback = fallback.name(), "model call failed; calling the fallback model");
        fallback.stream(ask).await.map_err(|second| ModelError {
            message: format!("{}; the first model failed with: {}", second.message, error.message),
            ..second
        })
    }
}

impl fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpModel")
            .field("name", &self.name)
            .field("place", &self.origin())
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
