//! `[agents.*]`, `[mcp.*]` and `[external_tools.*]`: agents, their models and tools.

use super::client_options::ClientOptionsSetting;
use super::value::{HumanDuration, WebUrl};
use crate::turns::hints::WhenIdle;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use turnwire_agent::ClientOptions;
use turnwire_agent::permission::{NamePattern, Pattern, PatternError, Rule};
use turnwire_agent::tool::ToolSpec;
use turnwire_core::Json;
use turnwire_core::event::TokenCounts;
use turnwire_wires::ModelOption;

/// `[agents.NAME]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Its model.
    pub model: ModelRef,
    /// The URL of the model's API, if not the provider's own.
    pub base_url: Option<WebUrl>,
    /// The environment variable that has the key.
    pub api_key_env: Option<String>,
    /// The file that has the key.
    pub api_key_file: Option<std::path::PathBuf>,
    /// The system prompt.
    #[serde(default)]
    pub system: String,
    /// A description for people.
    #[serde(default)]
    pub about: String,
    /// Its tools: `mcp:SERVER/TOOL`, `external:TOOL`, `agent:NAME`, each with `*` or `**`.
    #[serde(default)]
    pub tools: Vec<ToolPattern>,
    /// The most model calls of one reply.
    #[serde(default = "max_iterations")]
    pub max_iterations: u32,
    /// How long a call waits for an approval.
    #[serde(default = "approval_timeout")]
    pub approval_timeout: HumanDuration,
    /// How long a call that the client executes waits for its result; then the reply ends.
    #[serde(default = "result_timeout")]
    pub result_timeout: HumanDuration,
    /// What happens to an open reply when the server starts again.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// What happens to a hint while no reply is open.
    #[serde(default)]
    pub on_hint: OnHint,
    /// The model that is called when the first one fails.
    #[serde(default, deserialize_with = "Fallback::read")]
    pub fallback: Option<Fallback>,
    /// The most output tokens of one model call.
    pub max_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Which options of clients reach the model: `"all"`, `"none"`, or a list of names.
    pub client_options: Option<ClientOptionsSetting>,
    /// How the model is made to answer with JSON; by default as its provider can.
    pub structured_output: Option<StructuredOutput>,
    /// Whether long conversations are marked for the provider's cache; by default at the provider's own address.
    pub prompt_caching: Option<bool>,
    /// How often a failed model call is retried.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Timeouts of model calls.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Prices of a million tokens, in any currency.
    pub price_per_million: Option<Prices>,
    /// Permission rules: the first match wins.
    #[serde(default)]
    pub permissions: Vec<Permission>,
}

fn retries() -> u32 {
    2
}

/// `[agents.NAME.timeouts]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Until the connection is open.
    pub connect: HumanDuration,
    /// Until the first token.
    pub first_token: HumanDuration,
    /// Between two tokens.
    pub between_tokens: HumanDuration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |count| HumanDuration(std::time::Duration::from_mins(count));
        Self {
            connect: HumanDuration(std::time::Duration::from_secs(10)),
            first_token: minutes(5),
            between_tokens: minutes(5),
        }
    }
}

/// Prices of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Input tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Input tokens read from the provider's cache; by default as `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_input: Option<f64>,
    /// Input tokens written to the provider's cache; by default as `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_creation_input: Option<f64>,
}

impl AgentConfig {
    /// Which options of clients reach the model. By default an agent with a system prompt or tools keeps its own
    /// temperature.
    pub fn client_options(&self) -> ClientOptions {
        if let Some(ClientOptionsSetting(options)) = &self.client_options {
            return options.clone();
        }
        let has_own_behavior = !self.system.is_empty() || !self.tools.is_empty();
        let options = ClientOptions::default_for(has_own_behavior);
        match self.temperature {
            Some(_) if has_own_behavior => options.without(ModelOption::Temperature),
            _ => options,
        }
    }

    /// The cost of a model call, if prices are set. The model is `WIRE:MODEL`; any model but the fallback counts
    /// as the agent's own.
    pub fn cost(&self, model: Option<&str>, tokens: TokenCounts) -> Option<f64> {
        let other = self.fallback.as_ref().filter(|fallback| {
            model.is_some_and(|model| {
                model == fallback.model.to_string() && model != self.model.to_string()
            })
        });
        let (prices, model) = other.map_or((self.price_per_million, &self.model), |other| {
            (other.price_per_million, &other.model)
        });
        Some(prices?.cost(model, tokens))
    }
}

impl Prices {
    /// The cost of a model's tokens.
    fn cost(&self, model: &ModelRef, tokens: TokenCounts) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 tokens")]
        let millions = |tokens: i64| tokens.max(0) as f64 / 1e6;
        let TokenCounts {
            input_tokens,
            output_tokens,
            cache_input_tokens: cached,
            cache_creation_input_tokens: created,
        } = tokens;
        // Anthropic counts cached tokens in addition to the input, the others as a part of it.
        let fresh = match model {
            ModelRef::Wire { wire: "anthropic", .. } => input_tokens,
            ModelRef::Wire { .. } | ModelRef::Demo | ModelRef::Clock => {
                input_tokens.saturating_sub(cached)
            }
        };
        millions(fresh) * self.input
            + millions(cached) * self.cache_input.unwrap_or(self.input)
            + millions(created) * self.cache_creation_input.unwrap_or(self.input)
            + millions(output_tokens) * self.output
    }
}

/// The model that is called when the first one fails: its name, or a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// The model.
    pub model: ModelRef,
    /// The URL of its API, if not the provider's own.
    pub base_url: Option<WebUrl>,
    /// The environment variable that has its key.
    pub api_key_env: Option<String>,
    /// The file that has its key.
    pub api_key_file: Option<std::path::PathBuf>,
    /// Prices of a million of its tokens.
    pub price_per_million: Option<Prices>,
}

impl Fallback {
    /// Reads a table, or only the name of the model.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Self>, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Fallback;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a model such as \"openai:gpt-mini\", or { model, base_url, api_key_env }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Fallback, E> {
                Ok(Fallback {
                    model: text.parse().map_err(E::custom)?,
                    base_url: None,
                    api_key_env: None,
                    api_key_file: None,
                    price_per_million: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fallback, A::Error> {
                Fallback::deserialize(MapAccessDeserializer::new(map))
            }
        }
        from.deserialize_any(Either).map(Some)
    }
}

fn max_iterations() -> u32 {
    10
}

fn approval_timeout() -> HumanDuration {
    HumanDuration(std::time::Duration::from_mins(5))
}

fn result_timeout() -> HumanDuration {
    HumanDuration(std::time::Duration::from_hours(24))
}

/// A model: `demo`, `clock`, or `WIRE:MODEL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// The demo agent, without key and network.
    Demo,
    /// Tells the time, for load tests.
    Clock,
    /// A model behind the protocol of a wire.
    Wire {
        /// The wire's name.
        wire: &'static str,
        /// The model's name.
        model: String,
    },
}

/// An alias of a wire, by its provider's name.
const OPENAI_ALIAS: &str = "openai";

impl ModelRef {
    /// Whether it is built in.
    pub fn is_built_in(&self) -> bool {
        matches!(self, Self::Demo | Self::Clock)
    }
}

impl FromStr for ModelRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "demo" {
            return Ok(Self::Demo);
        }
        if text == "clock" {
            return Ok(Self::Clock);
        }
        let wires = turnwire_wires::Wire::all().filter(|wire| wire.can_request_model());
        let names: Vec<&'static str> =
            [OPENAI_ALIAS].into_iter().chain(wires.map(|wire| wire.name)).collect();
        let found = text.split_once(':').and_then(|(name, model)| {
            let wire = *names.iter().find(|wire| **wire == name)?;
            (!model.is_empty()).then(|| Self::Wire { wire, model: model.to_owned() })
        });
        found.ok_or_else(|| {
            format!(
                "invalid model \"{text}\": expected \"demo\" or WIRE:MODEL, where WIRE is one of {}",
                names.join(", ")
            )
        })
    }
}

impl<'de> Deserialize<'de> for ModelRef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => f.write_str("demo"),
            Self::Clock => f.write_str("clock"),
            Self::Wire { wire, model } => write!(f, "{wire}:{model}"),
        }
    }
}

/// A pattern for tools of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern {
    /// Where the tool comes from.
    pub source: ToolSource,
    /// Its name there: `*` within a segment, `**` across segments.
    pub pattern: String,
}

impl ToolPattern {
    /// Whether it matches a tool of that source; a tool of an MCP server is `SERVER/TOOL`.
    pub fn matches(&self, source: ToolSource, name: &str) -> bool {
        self.source == source && NamePattern::new(&self.pattern).matches(name)
    }

    /// Whether it can match tools of an MCP server.
    pub fn may_match_server(&self, server: &str) -> bool {
        self.source == ToolSource::Mcp && NamePattern::new(&self.pattern).may_match_below(server)
    }

    /// Whether it has a wildcard.
    pub fn has_wildcard(&self) -> bool {
        self.pattern.contains('*')
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            ToolSource::Mcp => "mcp",
            ToolSource::External => "external",
            ToolSource::Agent => "agent",
        };
        write!(f, "{source}:{}", self.pattern)
    }
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSource {
    /// An MCP server: `SERVER/TOOL`.
    Mcp,
    /// The client executes it.
    External,
    /// Another agent.
    Agent,
}

impl<'de> Deserialize<'de> for ToolPattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let found = text.split_once(':').and_then(|(source, pattern)| {
            let source = match source {
                "mcp" if pattern.contains('/') => ToolSource::Mcp,
                "external" => ToolSource::External,
                "agent" => ToolSource::Agent,
                _ => return None,
            };
            NamePattern::check(pattern).ok()?;
            Some(Self { source, pattern: pattern.to_owned() })
        });
        found.ok_or_else(|| {
            D::Error::custom(format!(
                "invalid tool \"{text}\": expected \"mcp:SERVER/TOOL\", \"external:TOOL\" or \"agent:NAME\", \
                 where * matches within a segment, and ** across segments"
            ))
        })
    }
}

/// What happens to an open reply when the server starts again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// It continues.
    #[default]
    Resume,
    /// It ends as interrupted.
    Stop,
}

/// How a model is made to answer with JSON that matches a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StructuredOutput {
    /// The server of the model enforces the schema.
    Native,
    /// The model calls a tool whose input has the schema.
    Tool,
}

/// What happens to a hint while no reply is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnHint {
    /// The next reply reads it.
    #[default]
    Wait,
    /// It starts a reply.
    Reply,
}

impl From<OnHint> for WhenIdle {
    fn from(on_hint: OnHint) -> Self {
        match on_hint {
            OnHint::Wait => Self::Wait,
            OnHint::Reply => Self::Reply,
        }
    }
}

/// `[[agents.NAME.permissions]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// The tools: `*` within a segment, `**` across segments; a lone `*` is every tool.
    pub tool: ToolNamePattern,
    /// Only if these fields of the input match.
    #[serde(default)]
    pub input: BTreeMap<String, InputPattern>,
    /// What to do.
    pub behavior: Behavior,
}

/// What to do with a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Behavior {
    /// Run it.
    Allow,
    /// Refuse it.
    Deny,
    /// Ask a person.
    Ask,
}

impl From<&Permission> for Rule {
    fn from(permission: &Permission) -> Self {
        let behavior = match permission.behavior {
            Behavior::Allow => turnwire_core::Behavior::Allow,
            Behavior::Deny => turnwire_core::Behavior::Deny,
            Behavior::Ask => turnwire_core::Behavior::Ask,
        };
        let rule = Self::new(&permission.tool.0, behavior);
        let each = permission.input.iter();
        each.fold(rule, |rule, (field, pattern)| rule.input(field.clone(), pattern.0.clone()))
    }
}

/// A pattern for names of tools, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNamePattern(pub String);

impl<'de> Deserialize<'de> for ToolNamePattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        NamePattern::check(&text).map_err(|why| D::Error::custom(format!("\"{text}\": {why}")))?;
        Ok(Self(text))
    }
}

/// A pattern for a field of the input: a text, whose form decides its kind, or `{ exact = … }`,
/// `{ text = … }`, `{ path = … }` or `{ url = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPattern(pub Pattern);

impl<'de> Deserialize<'de> for InputPattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Explicit {
            Exact(String),
            Text(String),
            Path(String),
            Url(String),
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = InputPattern;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a pattern such as \"/tmp/**\", or { path = \"…\" }, { url = \"…\" }, \
                     { text = \"…\" } or { exact = \"…\" }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<InputPattern, E> {
                read(text, Pattern::infer(text)).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<InputPattern, A::Error> {
                let explicit = Explicit::deserialize(MapAccessDeserializer::new(map))?;
                let (text, pattern) = match &explicit {
                    Explicit::Exact(text) => (text, Ok(Pattern::exact(text.clone()))),
                    Explicit::Text(text) => (text, Pattern::text(text)),
                    Explicit::Path(text) => (text, Pattern::path(text)),
                    Explicit::Url(text) => (text, Pattern::url(text)),
                };
                read(text, pattern).map_err(A::Error::custom)
            }
        }

        fn read(
            text: &str,
            pattern: Result<Pattern, PatternError>,
        ) -> Result<InputPattern, String> {
            pattern.map(InputPattern).map_err(|why| {
                format!("invalid pattern \"{text}\": {why}; docs/agents.md has the grammar")
            })
        }

        from.deserialize_any(Either)
    }
}

/// `[mcp.NAME]`: with either `command` or `url`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpConfig {
    /// A program and its arguments.
    pub command: Option<Vec<String>>,
    /// Environment variables to pass on to the program.
    #[serde(default)]
    pub env: Vec<String>,
    /// The URL of a remote server.
    pub url: Option<WebUrl>,
    /// The environment variable with the token for it.
    pub token_env: Option<String>,
    /// How long starting and listing its tools may take.
    #[serde(default = "start_timeout")]
    pub start_timeout: HumanDuration,
    /// How long a call may take without progress.
    #[serde(default = "call_timeout")]
    pub call_timeout: HumanDuration,
}

fn start_timeout() -> HumanDuration {
    HumanDuration(std::time::Duration::from_secs(20))
}

fn call_timeout() -> HumanDuration {
    HumanDuration(std::time::Duration::from_mins(2))
}

/// `[external_tools.NAME]`: executed by the client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalTool {
    /// For the model.
    pub description: String,
    /// The JSON schema of its input.
    pub input: BTreeMap<String, toml::Value>,
}

impl ExternalTool {
    /// The tool as an agent sees it.
    pub fn spec(&self, name: &str) -> ToolSpec {
        let input = serde_json::to_value(&self.input).ok();
        let input = input.and_then(|input| Json::from_value(&input).ok());
        let input = input.unwrap_or_else(|| serde_json::Map::new().into());
        ToolSpec::for_client(name, self.description.clone(), input)
    }
}
