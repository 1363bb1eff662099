//! Tool calls, tool results, and permission rules.

use super::Payload;
use crate::error::{Error, ErrorKind, Result};
use crate::json::Fields;
use crate::names::{Behavior, ToolCallState, ToolResultState};
use crate::object::object;
use serde::de::DeserializeOwned;

object! {
    /// A call of a tool.
    ToolCall is ToolCall {
        /// The call's id; its result has the same.
        id: String, needed;
        /// Name of the tool.
        name: String, default;
        /// The arguments as JSON text, as the model wrote it.
        input: String, default;
        /// State of the call.
        state: ToolCallState, default;
        /// Permission rules that a person may accept together with the call.
        suggested_rules: Vec<PermissionRule>, list;
        /// When it started; empty if not known.
        created_at: String, known;
        /// When its input was complete.
        finished_at: Option<String>, nullable;
    }

    /// The result of a tool call.
    ToolResult is ToolResult {
        /// The id of the call.
        id: String, needed;
        /// Name of the tool.
        name: String, default;
        /// Output of the tool.
        output: Payload, default;
        /// State of the result.
        state: ToolResultState, default;
        /// Metadata.
        metadata: Fields, default;
        /// When it started; empty if not known.
        created_at: String, known;
        /// When it ended.
        finished_at: Option<String>, nullable;
    }

    /// A permission rule: whether a tool may run, by its name and a pattern of its input.
    PermissionRule {
        /// Name of the tool.
        tool_name: String, needed;
        /// Pattern for the input; its meaning depends on the tool.
        rule_content: Option<String>, nullable;
        /// Effect of the rule.
        behavior: Behavior, default;
        /// Where the rule comes from.
        source: String, default;
    }
}

impl ToolCall {
    /// A pending call.
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), input: input.into(), ..Self::default() }
    }

    /// Parses the input as `T`. An empty input counts as `{}`, because models send that for no arguments.
    pub fn input_as<T: DeserializeOwned>(&self) -> Result<T> {
        let text = if self.input.trim().is_empty() { "{}" } else { &self.input };
        serde_json::from_str(text)
            .map_err(|error| Error::from_json(ErrorKind::WrongShape, &error).at("input"))
    }
}

impl ToolResult {
    /// A successful result.
    pub fn success(id: impl Into<String>, output: impl Into<Payload>) -> Self {
        Self {
            id: id.into(),
            output: output.into(),
            state: ToolResultState::Success,
            ..Self::default()
        }
    }

    /// A failed result with an error text.
    pub fn error(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { state: ToolResultState::Error, ..Self::success(id, text.into()) }
    }

    /// Sets the tool's name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

impl From<ToolResult> for Vec<ToolResult> {
    fn from(result: ToolResult) -> Self {
        vec![result]
    }
}
