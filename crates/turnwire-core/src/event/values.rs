//! The values that events carry besides text and blocks.

use super::Text;
use crate::block::{PermissionRule, Source, ToolCall};
use crate::json::Json;
use crate::msg::Usage;
use crate::object::object;

/// Content of a data delta: base64, cut anywhere, or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Base64.
    Data(Text<'a>),
    /// A URL.
    Url(Text<'a>),
}

impl Chunk<'_> {
    /// The content as a data block has it.
    pub fn into_source(self, media_type: Option<String>) -> Source {
        match self {
            Self::Data(data) => Source::base64(data, media_type),
            Self::Url(url) => Source::url(url, media_type),
        }
    }
}

impl Default for Chunk<'_> {
    /// No bytes.
    fn default() -> Self {
        Self::Data(Text::default())
    }
}

/// The tokens of one model call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens of the input.
    pub input_tokens: i64,
    /// Tokens of the output.
    pub output_tokens: i64,
    /// Tokens read from the provider's cache.
    pub cache_input_tokens: i64,
    /// Tokens written to the provider's cache.
    pub cache_creation_input_tokens: i64,
}

impl TokenCounts {
    /// Adds the tokens of another model call.
    pub fn add(&mut self, counts: Self) {
        let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
        add(&mut self.input_tokens, counts.input_tokens);
        add(&mut self.output_tokens, counts.output_tokens);
        add(&mut self.cache_input_tokens, counts.cache_input_tokens);
        add(&mut self.cache_creation_input_tokens, counts.cache_creation_input_tokens);
    }
}

impl Usage {
    /// Adds the tokens of a model call.
    pub(crate) fn add(&mut self, counts: TokenCounts) {
        let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
        add(&mut self.input_tokens, counts.input_tokens);
        add(&mut self.output_tokens, counts.output_tokens);
        add(&mut self.cache_input_tokens, counts.cache_input_tokens);
        add(&mut self.cache_creation_input_tokens, counts.cache_creation_input_tokens);
    }
}

object! {
    /// A person's answer to one pending call.
    ConfirmResult {
        /// Whether the call is approved.
        confirmed: bool, needed;
        /// The call, with the edited input. An empty input leaves the input unchanged.
        tool_call: ToolCall, needed;
        /// Permission rules that the person accepted.
        rules: Option<Vec<PermissionRule>>, nullable;
    }
}

/// Payload of a custom event: any JSON. Default: an empty object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomValue(pub Json);

impl Default for CustomValue {
    fn default() -> Self {
        Self(serde_json::Map::new().into())
    }
}
