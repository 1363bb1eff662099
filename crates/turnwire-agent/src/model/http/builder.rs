//! The builder of [`HttpModel`].

use super::backoff::Backoff;
use super::client::HttpClient;
use super::{ApiKey, HttpModel, provider};
use crate::model::{Model, ModelError};
use std::time::Duration;
use turnwire_core::Fields;

/// The default number of retries.
pub const DEFAULT_RETRIES: u32 = 2;
/// The default limit of one event: a large image in one piece.
const EVENT_LIMIT: usize = 32 << 20;
/// The longest time limit; it can be added to any time.
const MAX_TIME_LIMIT: Duration = Duration::from_hours(24 * 365);

/// Builds an [`HttpModel`].
#[must_use]
pub struct HttpModelBuilder {
    name: String,
    base_url: Option<String>,
    key: Option<ApiKey>,
    has_schema_mode: Option<bool>,
    prompt_caching: Option<bool>,
    connect_limit: Duration,
    settings: RequestSettings,
}

/// Settings of every request.
pub(super) struct RequestSettings {
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub extra: Fields,
    pub prompt_caching: bool,
    pub first_token_limit: Duration,
    pub token_gap_limit: Duration,
    pub retries: u32,
    pub backoff: Backoff,
    pub fallback: Option<Box<dyn Model>>,
    pub event_limit: usize,
}

impl HttpModelBuilder {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            base_url: None,
            key: None,
            has_schema_mode: None,
            prompt_caching: None,
            connect_limit: Duration::from_secs(10),
            settings: RequestSettings {
                max_tokens: None,
                temperature: None,
                extra: Fields::default(),
                prompt_caching: false,
                first_token_limit: Duration::from_mins(5),
                token_gap_limit: Duration::from_mins(5),
                retries: DEFAULT_RETRIES,
                backoff: Backoff::default(),
                fallback: None,
                event_limit: EVENT_LIMIT,
            },
        }
    }

    /// The address of any server that speaks the same protocol, with or without a path. It gets the
    /// provider's default key only if [`key`](Self::key) says so.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The API key. Default: the environment variable that the provider's own tools read.
    pub fn key(mut self, key: ApiKey) -> Self {
        self.key = Some(key);
        self
    }

    /// The most output tokens.
    pub fn max_tokens(mut self, most: u32) -> Self {
        self.settings.max_tokens = Some(most);
        self
    }

    /// Sampling temperature.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.settings.temperature = Some(temperature);
        self
    }

    /// Other parameters of the provider, by its names. They override everything else.
    pub fn extra(mut self, extra: Fields) -> Self {
        self.settings.extra = extra;
        self
    }

    /// The time limit to connect (10 s).
    pub fn connect_limit(mut self, limit: Duration) -> Self {
        self.connect_limit = limit.min(MAX_TIME_LIMIT);
        self
    }

    /// The time limit until the model produces something (5 min). Keep-alive comments do not count.
    pub fn first_token_limit(mut self, limit: Duration) -> Self {
        self.settings.first_token_limit = limit.min(MAX_TIME_LIMIT);
        self
    }

    /// The time limit without a byte between two tokens (5 min).
    pub fn token_gap_limit(mut self, limit: Duration) -> Self {
        self.settings.token_gap_limit = limit.min(MAX_TIME_LIMIT);
        self
    }

    /// The number of retries ([`DEFAULT_RETRIES`]).
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = retries;
        self
    }

    /// The delays between retries.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        let longest = backoff.longest.min(MAX_TIME_LIMIT);
        self.settings.backoff = Backoff { longest, ..backoff };
        self
    }

    /// The model to call if this one fails.
    pub fn fallback(mut self, model: impl Model) -> Self {
        self.settings.fallback = Some(Box::new(model));
        self
    }

    /// Declares that the server can enforce a JSON Schema. Default: yes for a provider's own address, and
    /// for compatible servers of protocols where most can. Other compatible servers get a schema only if a
    /// client asks for a response format.
    pub fn with_schema_mode(mut self) -> Self {
        self.has_schema_mode = Some(true);
        self
    }

    /// Declares that the server cannot enforce a JSON Schema: the model gets a tool for its answer.
    pub fn without_schema_mode(mut self) -> Self {
        self.has_schema_mode = Some(false);
        self
    }

    /// Whether long conversations are marked for the provider's cache, where the provider requires marks (Anthropic), unless
    /// the client speaks the provider's own protocol. Default: at the provider's own address.
    pub fn prompt_caching(mut self, is_on: bool) -> Self {
        self.prompt_caching = Some(is_on);
        self
    }

    /// The most bytes of one event of the answer (32 MiB).
    pub fn event_limit(mut self, bytes: usize) -> Self {
        self.settings.event_limit = bytes;
        self
    }

    /// Builds the model. Sends nothing, and reads no key.
    pub fn build(self) -> Result<HttpModel, ModelError> {
        let Self { name, base_url, key, has_schema_mode, .. } = self;
        let Self { connect_limit: connect, prompt_caching, mut settings, .. } = self;
        let (provider, wire, model) = provider::find_provider(&name)?;
        let base = base_url.as_deref();
        settings.prompt_caching = prompt_caching.unwrap_or(base.is_none());
        let address = provider.address(base, model)?;
        let key = key.unwrap_or_else(|| provider.default_key(base));
        if !key.is_none() && !provider::is_confidential(&address) {
            tracing::warn!(model = %name, "the API key is sent unencrypted: the base URL is not https");
        }
        Ok(HttpModel {
            provider,
            wire,
            model: model.to_owned(),
            client: HttpClient::new(&address, connect)?,
            url: address,
            settings,
            has_schema_mode: has_schema_mode.unwrap_or_else(|| provider.has_schema_mode(base)),
            takes_response_format: has_schema_mode != Some(false),
            key,
            name,
        })
    }
}
