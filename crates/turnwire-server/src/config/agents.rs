//! `[agents.*]` and what they can use.

use super::value::{Time, WebUrl};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// `[agents.NAME]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// The model behind it.
    pub model: Model,
    /// Where the model is, if not at its maker's.
    pub base_url: Option<WebUrl>,
    /// The environment variable that has the key.
    pub api_key_env: Option<String>,
    /// The file that has the key.
    pub api_key_file: Option<std::path::PathBuf>,
    /// The system prompt.
    #[serde(default)]
    pub system: String,
    /// A line for people.
    #[serde(default)]
    pub about: String,
    /// What it may call: `mcp:SERVER/TOOL`, `external:TOOL`, `agent:NAME`, each with `*`.
    #[serde(default)]
    pub tools: Vec<ToolPattern>,
    /// How many model calls one reply may take.
    #[serde(default = "max_iterations")]
    pub max_iterations: u32,
    /// How long a question waits for a person.
    #[serde(default = "approval_timeout")]
    pub approval_timeout: Time,
    /// What happens to an open reply when the server starts again.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// The model that is asked when the first one fails.
    pub fallback: Option<Model>,
    /// Who may call what: the first match wins.
    #[serde(default)]
    pub permissions: Vec<Permission>,
}

fn max_iterations() -> u32 {
    10
}

fn approval_timeout() -> Time {
    Time(std::time::Duration::from_mins(5))
}

/// A model: `demo`, or `WIRE:MODEL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// The one that needs no key and no network.
    Demo,
    /// Asked in the protocol of a wire.
    Wire {
        /// The wire's name.
        wire: &'static str,
        /// The model's name.
        model: String,
    },
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "demo" {
            return Ok(Self::Demo);
        }
        let wires = || turnwire_wires::Wire::all().filter(|wire| wire.can_request());
        let found = text.split_once(':').and_then(|(name, model)| {
            let wire = wires().find(|wire| wire.name == name)?;
            (!model.is_empty()).then(|| Self::Wire { wire: wire.name, model: model.to_owned() })
        });
        found.ok_or_else(|| {
            let names: Vec<&str> = wires().map(|wire| wire.name).collect();
            D::Error::custom(format!(
                "\"{text}\" is no model; write \"demo\" or WIRE:MODEL, where WIRE is one of {}",
                names.join(", ")
            ))
        })
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => f.write_str("demo"),
            Self::Wire { wire, model } => write!(f, "{wire}:{model}"),
        }
    }
}

/// What an agent may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern {
    /// Where the tool is.
    pub source: ToolSource,
    /// Which one there; `*` stands for anything.
    pub pattern: String,
}

/// Where a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSource {
    /// At an MCP server: `SERVER/TOOL`.
    Mcp,
    /// At the client.
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
            (!pattern.is_empty()).then(|| Self { source, pattern: pattern.to_owned() })
        });
        found.ok_or_else(|| {
            D::Error::custom(format!(
                "\"{text}\" is no tool; write \"mcp:SERVER/TOOL\", \"external:TOOL\" or \"agent:NAME\", \
                 where * stands for anything"
            ))
        })
    }
}

/// What happens to an open reply when the server starts again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// It goes on.
    #[default]
    Resume,
    /// It ends as interrupted.
    Stop,
}

/// `[[agents.NAME.permissions]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// Which tools; `*` stands for anything.
    pub tool: String,
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

/// `[mcp.NAME]`: one of the two.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpConfig {
    /// A program and its arguments.
    pub command: Option<Vec<String>>,
    /// A server elsewhere.
    pub url: Option<WebUrl>,
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
