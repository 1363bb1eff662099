//! Which options of a client's request reach the model of an agent. The agent loop and the server apply it.
//!
//! ```
//! use turnwire_agent::ClientOptions;
//! use turnwire_core::{Fields, Json};
//! use turnwire_wires::{ModelOption, ModelOptions};
//!
//! let fields: Fields = Json::parse(r#"{"seed": 7, "service_tier": "flex"}"#)?.parse_as()?;
//! let mut options = ModelOptions::read("openai-chat", &fields)?;
//! let policy = ClientOptions::List(vec![ModelOption::Seed]);
//! assert_eq!(policy.apply(&mut options), ["service_tier"]);
//! assert_eq!((options.seed, options.service_tier), (Some(7), None));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use turnwire_wires::{ModelOption, ModelOptions};

/// Which options of a client's request reach the model. Tool choice and response format always do, and a token limit
/// can only lower the agent's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOptions {
    /// All, also fields, headers and hosted tools that only the client's protocol has.
    All,
    /// None.
    None,
    /// These.
    List(Vec<ModelOption>),
}

/// The options that an agent with a system prompt or tools of its own takes by default: those that change how the
/// model answers, and not what the provider stores, charges or executes.
const DEFAULT_OPTIONS: [ModelOption; 15] = [
    ModelOption::Temperature,
    ModelOption::TopP,
    ModelOption::TopK,
    ModelOption::MinP,
    ModelOption::FrequencyPenalty,
    ModelOption::PresencePenalty,
    ModelOption::Seed,
    ModelOption::MaxTokens,
    ModelOption::Stop,
    ModelOption::ParallelToolCalls,
    ModelOption::Reasoning,
    ModelOption::Verbosity,
    ModelOption::PromptCacheKey,
    ModelOption::User,
    ModelOption::SafetyIdentifier,
];

impl ClientOptions {
    /// The options of an agent whose settings do not say it: all without a system prompt and tools of its own.
    pub fn default_for(has_own_behavior: bool) -> Self {
        if has_own_behavior { Self::List(DEFAULT_OPTIONS.to_vec()) } else { Self::All }
    }

    /// Removes an option from those that clients may set.
    #[must_use]
    pub fn without(self, option: ModelOption) -> Self {
        let list = match self {
            Self::All => ModelOption::ALL.to_vec(),
            Self::None => return Self::None,
            Self::List(list) => list,
        };
        Self::List(list.into_iter().filter(|other| *other != option).collect())
    }

    /// Whether the model gets tools that its provider executes.
    pub fn allows_hosted_tools(&self) -> bool {
        *self == Self::All
    }

    /// Removes the options that the model does not get. Returns their names in the client's protocol.
    pub fn apply(&self, options: &mut ModelOptions) -> Vec<String> {
        let is_allowed = |option: ModelOption| match (self, option) {
            (Self::All, _) | (_, ModelOption::ToolChoice | ModelOption::ResponseFormat) => true,
            (Self::None, _) => false,
            (Self::List(list), option) => list.contains(&option),
        };
        let mut removed = Vec::new();
        for option in ModelOption::ALL.iter().copied().filter(|option| !is_allowed(*option)) {
            if options.differs_from_default(option) {
                removed.push(options.client_name(option).to_owned());
            }
            options.remove(option);
        }
        if *self != Self::All {
            removed.extend(options.unknown_fields());
            options.remove_unknown();
        }
        removed
    }
}
