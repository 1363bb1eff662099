//! Tool calls, their results, and the rules that allow them.

use super::{BlockType, FromFields, Payload, read_from_fields, take_list, take_type};
use crate::error::{Error, ErrorKind, Result};
use crate::json::{Fields, entries_of, entry_known};
use crate::names::{Behavior, ToolCallState, ToolResultState};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id, which its result repeats.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// The arguments: JSON text, as the model wrote it.
    pub input: String,
    /// How far the call has come.
    pub state: ToolCallState,
    /// Rules that a person may accept along with the call.
    pub suggested_rules: Vec<PermissionRule>,
    /// When it began; empty where that is not known.
    pub created_at: String,
    /// When its input was complete.
    pub finished_at: Option<String>,
    /// Fields that this version does not know.
    pub rest: Fields,
}

impl ToolCall {
    /// A pending call.
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), input: input.into(), ..Self::default() }
    }

    /// The input as `T`, parsed now. No input at all counts as `{}`, as models mean it.
    pub fn input_as<T: DeserializeOwned>(&self) -> Result<T> {
        let text = if self.input.trim().is_empty() { "{}" } else { &self.input };
        serde_json::from_str(text)
            .map_err(|error| Error::from_json(ErrorKind::WrongShape, &error).at("input"))
    }

    pub(super) fn from_fields(mut fields: Fields) -> Result<Self> {
        take_type(&mut fields, BlockType::ToolCall)?;
        Ok(Self {
            id: fields.need("id")?,
            name: fields.take("name")?.unwrap_or_default(),
            input: fields.take("input")?.unwrap_or_default(),
            state: fields.take("state")?.unwrap_or_default(),
            suggested_rules: take_list(&mut fields, "suggested_rules")?,
            created_at: fields.take("created_at")?.unwrap_or_default(),
            finished_at: fields.take("finished_at")?,
            rest: fields,
        })
    }
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "tool_call")?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("input", &self.input)?;
        map.serialize_entry("state", &self.state)?;
        map.serialize_entry("suggested_rules", &self.suggested_rules)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        map.serialize_entry("finished_at", &self.finished_at)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

/// What came of a tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// What it gave.
    pub output: Payload,
    /// How it went.
    pub state: ToolResultState,
    /// Arbitrary additions.
    pub metadata: Fields,
    /// When it began; empty where that is not known.
    pub created_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Fields that this version does not know.
    pub rest: Fields,
}

impl ToolResult {
    /// A result that went well.
    pub fn success(id: impl Into<String>, output: impl Into<Payload>) -> Self {
        Self {
            id: id.into(),
            output: output.into(),
            state: ToolResultState::Success,
            ..Self::default()
        }
    }

    /// A result that says what went wrong.
    pub fn error(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { state: ToolResultState::Error, ..Self::success(id, text.into()) }
    }

    /// The same result with the tool's name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    pub(super) fn from_fields(mut fields: Fields) -> Result<Self> {
        take_type(&mut fields, BlockType::ToolResult)?;
        Ok(Self {
            id: fields.need("id")?,
            name: fields.take("name")?.unwrap_or_default(),
            output: fields.take("output")?.unwrap_or_default(),
            state: fields.take("state")?.unwrap_or_default(),
            metadata: fields.take("metadata")?.unwrap_or_default(),
            created_at: fields.take("created_at")?.unwrap_or_default(),
            finished_at: fields.take("finished_at")?,
            rest: fields,
        })
    }
}

impl From<ToolResult> for Vec<ToolResult> {
    fn from(result: ToolResult) -> Self {
        vec![result]
    }
}

impl Serialize for ToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "tool_result")?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("output", &self.output)?;
        map.serialize_entry("state", &self.state)?;
        map.serialize_entry("metadata", &self.metadata)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        map.serialize_entry("finished_at", &self.finished_at)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

/// Whether a tool may run, by its name and a pattern of its input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionRule {
    /// Which tool.
    pub tool_name: String,
    /// What its input must match; what that means depends on the tool.
    pub rule_content: Option<String>,
    /// What the rule does.
    pub behavior: Behavior,
    /// Where the rule comes from.
    pub source: String,
    /// Fields that this version does not know.
    pub rest: Fields,
}

impl PermissionRule {
    fn from_fields(mut fields: Fields) -> Result<Self> {
        Ok(Self {
            tool_name: fields.need("tool_name")?,
            rule_content: fields.take("rule_content")?,
            behavior: fields.take("behavior")?.unwrap_or_default(),
            source: fields.take("source")?.unwrap_or_default(),
            rest: fields,
        })
    }
}

impl Serialize for PermissionRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("tool_name", &self.tool_name)?;
        map.serialize_entry("rule_content", &self.rule_content)?;
        map.serialize_entry("behavior", &self.behavior)?;
        map.serialize_entry("source", &self.source)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

read_from_fields!(PermissionRule);
