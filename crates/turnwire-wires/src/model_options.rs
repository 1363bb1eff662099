//! Options of a model call, independent of the protocol: sampling, limits, tool choice, reasoning, the form of the answer.
//!
//! A client sends them by the names of its protocol. They are read once, travel with the message, and are written by the
//! names of the model's protocol. If both are the same protocol, its fields are passed on unchanged, those that Turnwire
//! does not know included. [`ModelOption::support`] is the table of what each wire has; the tests and `docs/agents.md` follow
//! it.
//!
//! ```
//! use turnwire_core::{Fields, Json};
//! use turnwire_wires::model_options::ModelOptions;
//!
//! let body = Json::parse(r#"{"max_tokens": 100, "stop": "END", "seed": 7, "top_a": 1}"#)?;
//! let options = ModelOptions::read("openai-chat", &body.parse_as()?)?;
//! assert_eq!((options.max_tokens, options.stop.as_deref()), (Some(100), Some(&["END".to_owned()][..])));
//! assert_eq!(options.left_out("openai-chat", "gpt-4o"), [""; 0]);
//! assert_eq!(options.left_out("anthropic", "claude"), ["seed", "top_a"]);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

mod paths;
mod read;
mod table;
mod write;

pub use table::{OPTION_WIRES, Support};
pub(crate) use write::{reduce_to_allowed_tools, write_options};

use crate::client_request::invalid_request;
use crate::model_request::{ToolChoice, ToolDefinition, accepts_temperature};
use turnwire_core::{Fields, Json, Result};

macro_rules! options {
    ($($(#[doc = $doc:literal])+ $variant:ident $field:ident: $type:ty,)+) => {
        /// One option, by its canonical name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ModelOption {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl ModelOption {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The canonical name, as in the setting `client_options`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($field),)+
                }
            }

            /// What it does, in a line.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii_start(),)+
                }
            }
        }

        /// The options of a model call. Unset ones are the model's own.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct ModelOptions {
            $($(#[doc = $doc])+ pub $field: Option<$type>,)+
            /// The wire that they were read from; empty if none.
            pub wire: String,
            /// The fields as the client sent them, by the names of that wire. The same wire gets them unchanged.
            pub original: Fields,
            /// Headers of the client's request for the same wire.
            pub headers: Vec<(String, String)>,
        }

        impl ModelOptions {
            /// Whether an option is set.
            pub fn is_set(&self, option: ModelOption) -> bool {
                match option {
                    $(ModelOption::$variant => self.$field.is_some(),)+
                }
            }

            fn unset(&mut self, option: ModelOption) {
                match option {
                    $(ModelOption::$variant => self.$field = None,)+
                }
            }

        }
    };
}

options! {
    /// sampling temperature
    Temperature temperature: f64,
    /// nucleus sampling: the share of probability to choose from
    TopP top_p: f64,
    /// the number of tokens to choose from
    TopK top_k: u64,
    /// the least probability of a token, relative to the most likely one
    MinP min_p: f64,
    /// penalty for tokens by how often they occurred
    FrequencyPenalty frequency_penalty: f64,
    /// penalty for tokens that occurred
    PresencePenalty presence_penalty: f64,
    /// seed of the sampling
    Seed seed: i64,
    /// the most tokens to generate
    MaxTokens max_tokens: u32,
    /// texts that end the answer
    Stop stop: Vec<String>,
    /// whether the model must call a tool, and which
    ToolChoice tool_choice: ToolChoice,
    /// whether the model may call several tools at once
    ParallelToolCalls parallel_tool_calls: bool,
    /// how much the model reasons
    Reasoning reasoning: Reasoning,
    /// the form of the answer: text, JSON, or JSON that matches a schema
    ResponseFormat response_format: ResponseFormat,
    /// how long the answer should be
    Verbosity verbosity: String,
    /// the key by which the provider finds a cached prompt
    PromptCacheKey prompt_cache_key: String,
    /// how the provider caches the prompt
    CacheControl cache_control: Json,
    /// the provider's class of service
    ServiceTier service_tier: String,
    /// the end user, for the provider's abuse detection
    User user: String,
    /// the end user as a hash, for the same purpose
    SafetyIdentifier safety_identifier: String,
    /// labels that the provider stores
    Metadata metadata: Json,
    /// whether the provider stores the response
    Store store: bool,
    /// additional parts of the response
    Include include: Vec<String>,
    /// what the provider does with a conversation that is too long
    Truncation truncation: String,
    /// whether to return the probabilities of tokens
    Logprobs logprobs: bool,
    /// for how many tokens at each position
    TopLogprobs top_logprobs: u32,
    /// the kinds of output: text, audio
    Modalities modalities: Vec<String>,
    /// voice and format of spoken output
    Audio audio: Json,
}

/// How much a model reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasoning {
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    pub effort: Option<String>,
    /// The most tokens to reason with.
    pub budget_tokens: Option<u32>,
    /// Whether it reasons at all.
    pub enabled: Option<bool>,
    /// How its reasoning is summarised, in the words of `OpenAI`.
    pub summary: Option<String>,
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseFormat {
    /// Text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that matches a schema.
    JsonSchema {
        /// The schema's name.
        name: Option<String>,
        /// What it is for.
        description: Option<String>,
        /// Whether the provider enforces it.
        strict: Option<bool>,
        /// The schema.
        schema: Json,
    },
}

impl ResponseFormat {
    /// The JSON Schema of the answer, if it is JSON.
    pub fn schema(&self) -> Option<Json> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(Json::from(serde_json::json!({"type": "object"}))),
            Self::JsonSchema { schema, .. } => Some(schema.clone()),
        }
    }
}

impl ModelOptions {
    /// Whether these are the options of a client of this wire.
    pub fn is_from(&self, wire: &str) -> bool {
        !self.wire.is_empty() && self.wire == wire
    }

    /// Removes an option and its original fields.
    pub fn remove(&mut self, option: ModelOption) {
        self.unset(option);
        self.forget_original(option);
    }

    /// Removes the original fields of an option, because its value changes.
    pub fn forget_original(&mut self, option: ModelOption) {
        for path in option.fields(&self.wire) {
            paths::remove(&mut self.original, path);
        }
    }

    /// Whether the original fields have this option.
    pub(crate) fn has_original(&self, wire: &str, option: ModelOption) -> bool {
        self.is_from(wire)
            && option.fields(wire).any(|path| paths::get(&self.original, path).is_some())
    }

    /// The names of original fields that are no options of the table. On wires that call no model, other fields belong to
    /// the application.
    pub fn unknown_fields(&self) -> Vec<String> {
        if matches!(self.wire.as_str(), "ag-ui" | "ai-sdk" | "") {
            return Vec::new();
        }
        let known = |name: &str| {
            let mut fields = ModelOption::ALL.iter().flat_map(|option| option.fields(&self.wire));
            fields.any(|path| path.split('.').next() == Some(name))
        };
        let fields = self.original.iter().filter(|(name, value)| !known(name) && has_value(value));
        fields.map(|(name, _)| name.to_owned()).collect()
    }

    /// Removes original fields that are no options of the table, and the headers.
    pub fn remove_unknown(&mut self) {
        for name in self.unknown_fields() {
            self.original.remove(&name);
        }
        self.headers.clear();
    }

    /// What a model of this wire does not get, by the names that the client used.
    pub fn left_out(&self, wire: &str, model: &str) -> Vec<String> {
        if self.is_from(wire) {
            return Vec::new();
        }
        let options = ModelOption::ALL.iter().copied();
        let missing = options.filter(|option| self.differs_from_default(*option));
        let missing = missing.filter(|option| match option.support(wire) {
            Support::Field(_) => {
                let temperature = self.temperature.filter(|_| *option == ModelOption::Temperature);
                temperature.is_some_and(|it| !accepts_temperature(model, it))
            }
            Support::SameWire(_) | Support::LeftOut => true,
        });
        missing
            .map(|option| self.client_name(option).to_owned())
            .chain(self.unknown_fields())
            .collect()
    }

    /// The name of an option in the client's protocol.
    pub fn client_name(&self, option: ModelOption) -> &'static str {
        let set = |path: &&str| paths::get(&self.original, path).is_some();
        option.fields(&self.wire).find(set).unwrap_or_else(|| option.name())
    }

    /// Whether an option is set to something else than what is done without it.
    pub fn differs_from_default(&self, option: ModelOption) -> bool {
        match option {
            ModelOption::Store => self.store == Some(true),
            ModelOption::Logprobs => self.logprobs == Some(true),
            ModelOption::TopLogprobs => self.top_logprobs.is_some_and(|count| count > 0),
            ModelOption::ParallelToolCalls => self.parallel_tool_calls == Some(false),
            ModelOption::ToolChoice => !matches!(self.tool_choice, None | Some(ToolChoice::Auto)),
            ModelOption::ResponseFormat => {
                !matches!(self.response_format, None | Some(ResponseFormat::Text))
            }
            ModelOption::Include => self.include.as_ref().is_some_and(|list| !list.is_empty()),
            ModelOption::Metadata => self.metadata.as_ref().is_some_and(has_value),
            ModelOption::Modalities => find_other(self.modalities.as_deref(), "text").is_some(),
            ModelOption::Audio => self.audio.as_ref().is_some_and(has_value),
            ModelOption::Truncation => {
                self.truncation.as_deref().is_some_and(|it| it != "disabled")
            }
            ModelOption::ServiceTier => {
                self.service_tier.as_deref().is_some_and(|it| !matches!(it, "auto" | "default"))
            }
            ModelOption::Temperature
            | ModelOption::TopP
            | ModelOption::TopK
            | ModelOption::MinP
            | ModelOption::FrequencyPenalty
            | ModelOption::PresencePenalty
            | ModelOption::Seed
            | ModelOption::MaxTokens
            | ModelOption::Stop
            | ModelOption::Reasoning
            | ModelOption::Verbosity
            | ModelOption::PromptCacheKey
            | ModelOption::CacheControl
            | ModelOption::User
            | ModelOption::SafetyIdentifier => self.is_set(option),
        }
    }

    /// What these options ask for in the answer that only a model of the client's protocol gives.
    fn protocol_values(&self) -> [(ModelOption, Option<&str>); 3] {
        let logprobs =
            self.differs_from_default(ModelOption::Logprobs).then_some("log probabilities");
        [
            (ModelOption::Modalities, find_other(self.modalities.as_deref(), "text")),
            (ModelOption::Logprobs, logprobs),
            // Every model of ours gives its reasoning.
            (
                ModelOption::Include,
                find_other(self.include.as_deref(), "reasoning.encrypted_content"),
            ),
        ]
    }

    /// Checks that the answer can have what only a model of the client's protocol gives: audio, log probabilities, values of
    /// `include`. `wire` is the protocol of the model, and `passed` are the options that reach it.
    pub fn check_answer(&self, wire: &str, passed: &Self) -> Result<()> {
        let is_same = self.is_from(wire);
        let requested = self.protocol_values().into_iter().zip(passed.protocol_values());
        let mut missing = requested.filter(|(_, (_, passed))| !is_same || passed.is_none());
        let first = missing.find_map(|((option, value), _)| Some((option, value?)));
        let Some((option, value)) = first else { return Ok(()) };
        let why = if is_same {
            "the settings of this agent do not let clients choose it".to_owned()
        } else {
            format!("only a model of the protocol {} does", self.wire)
        };
        Err(invalid_request(format!(
            "`{}` asks for {value}, which the agent's model does not give: {why}",
            self.client_name(option)
        )))
    }

    /// Checks that a model of this wire can be made to call the tool that these options require. The error says why not.
    pub fn check_tool_choice(&self, wire: &str, tools: &[ToolDefinition]) -> Result<()> {
        let Some(choice) = &self.tool_choice else { return Ok(()) };
        let reduced = reduce_to_allowed_tools(tools, choice, wire);
        let offered = reduced.tools.iter().filter(|tool| tool.is_written_to(wire));
        let (offered, field) = (offered.count(), self.client_name(ModelOption::ToolChoice));
        let why = match &*reduced.choice {
            ToolChoice::Tool(name) if !tools.iter().any(|tool| tool.can_call(name)) => {
                format!("names the tool `{name}`, which is not in `tools`")
            }
            ToolChoice::Required | ToolChoice::Tool(_) | ToolChoice::Allowed { .. }
                if offered == 0 =>
            {
                format!(
                    "requires a tool call, but there is no tool that a model of the protocol {wire} can call"
                )
            }
            ToolChoice::Required if wire == "dashscope" && offered > 1 => format!(
                "requires any tool, but the protocol {wire} can only require a named one; name the tool"
            ),
            ToolChoice::Required | ToolChoice::Tool(_) if wire == "ollama" => format!(
                "requires a tool call, but the protocol {wire} cannot require one; use `auto`"
            ),
            ToolChoice::Other(_) if !self.is_from(wire) => format!(
                "requires a tool that only a model of the protocol {} has, not one of {wire}",
                self.wire
            ),
            ToolChoice::Auto
            | ToolChoice::None
            | ToolChoice::Required
            | ToolChoice::Tool(_)
            | ToolChoice::Allowed { .. }
            | ToolChoice::Other(_) => return Ok(()),
        };
        Err(invalid_request(format!("`{field}` {why}")))
    }
}

/// Whether a value is set: it is not null, false, or empty.
fn has_value(value: &Json) -> bool {
    !matches!(value.text(), "null" | "false" | "[]" | "{}" | "\"\"")
}

/// The first value of a list that is not the usual one.
fn find_other<'a>(list: Option<&'a [String]>, usual: &str) -> Option<&'a str> {
    list.unwrap_or_default().iter().map(String::as_str).find(|value| *value != usual)
}
