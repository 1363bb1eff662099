//! Tool calls, their results, and the rules that allow them.

use super::Payload;
use crate::error::{Error, ErrorKind, Result};
use crate::json::Fields;
use crate::names::{Behavior, ToolCallState, ToolResultState};
use crate::object::object;
use serde::de::DeserializeOwned;

object! {
    /// A call of a tool.
    ToolCall is ToolCall {
        /// The call's id, which its result repeats.
        id: String, needed;
        /// Which tool.
        name: String, default;
        /// The arguments: JSON text, as the model wrote it.
        input: String, default;
        /// How far the call has come.
        state: ToolCallState, default;
        /// Rules that a person may accept along with the call.
        suggested_rules: Vec<PermissionRule>, list;
        /// When it began; empty where that is not known.
        created_at: String, known;
        /// When its input was complete.
        finished_at: Option<String>, nullable;
    }

    /// What came of a tool call.
    ToolResult is ToolResult {
        /// The id of the call.
        id: String, needed;
        /// Which tool.
        name: String, default;
        /// What it gave.
        output: Payload, default;
        /// How it went.
        state: ToolResultState, default;
        /// Arbitrary additions.
        metadata: Fields, default;
        /// When it began; empty where that is not known.
        created_at: String, known;
        /// When it ended.
        finished_at: Option<String>, nullable;
    }

    /// Whether a tool may run, by its name and a pattern of its input.
    PermissionRule {
        /// Which tool.
        tool_name: String, needed;
        /// What its input must match; what that means depends on the tool.
        rule_content: Option<String>, nullable;
        /// What the rule does.
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

    /// The input as `T`, parsed now. No input at all counts as `{}`, as models mean it.
    pub fn input_as<T: DeserializeOwned>(&self) -> Result<T> {
        let text = if self.input.trim().is_empty() { "{}" } else { &self.input };
        serde_json::from_str(text)
            .map_err(|error| Error::from_json(ErrorKind::WrongShape, &error).at("input"))
    }
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
}

impl From<ToolResult> for Vec<ToolResult> {
    fn from(result: ToolResult) -> Self {
        vec![result]
    }
}
