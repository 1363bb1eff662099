//! The message of a response without streaming. The encoder builds it while it writes the frames.

use super::content;
use super::encode::Delta;
use crate::collect::{ErrorResponse, WholeResponse};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use turnwire_core::event::TokenCounts;
use turnwire_core::{Fields, Json};

/// A message of the Messages API.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "AnthropicMessage", transform = crate::json::declare_ignored_options))]
pub struct Message {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: String,
    content: Vec<Fields>,
    /// `end_turn`, `stop_sequence`, `max_tokens`, `tool_use`, `pause_turn` or `refusal`.
    stop_reason: Option<&'static str>,
    stop_sequence: Option<String>,
    usage: Usage,
    #[serde(skip)]
    open: OpenBlock,
    #[serde(skip)]
    error: Option<ErrorResponse>,
}

#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "AnthropicUsage"))]
pub(super) struct Usage {
    #[serde(rename = "input_tokens")]
    input: i64,
    #[serde(rename = "output_tokens")]
    output: i64,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_creation: i64,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: i64,
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Self {
            input: counts.input_tokens,
            output: counts.output_tokens,
            cache_creation: counts.cache_creation_input_tokens,
            cache_read: counts.cache_input_tokens,
        }
    }
}

/// What the last block has grown by.
#[derive(Debug, Default)]
struct OpenBlock {
    text: String,
    thinking: String,
    signature: String,
    citations: Vec<Json>,
    input: String,
}

impl Message {
    pub(super) fn new(id: &str, model: &str) -> Self {
        Self {
            id: id.to_owned(),
            r#type: "message",
            role: "assistant",
            model: model.to_owned(),
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: Usage::default(),
            open: OpenBlock::default(),
            error: None,
        }
    }

    pub(super) fn start_block(&mut self, fields: Fields) {
        self.content.push(fields);
        self.open = OpenBlock::default();
    }

    pub(super) fn push_delta(&mut self, delta: Delta<'_>) {
        let open = &mut self.open;
        match delta {
            Delta::Text { text } => open.text.push_str(text),
            Delta::Thinking { thinking } => open.thinking.push_str(thinking),
            Delta::Signature { signature } => open.signature.push_str(signature),
            Delta::Citation { citation } => open.citations.push(citation.clone()),
            Delta::Input { partial_json } => open.input.push_str(partial_json),
        }
    }

    pub(super) fn stop_block(&mut self) {
        let OpenBlock { text, thinking, signature, citations, input } =
            std::mem::take(&mut self.open);
        let Some(block) = self.content.last_mut() else { return };
        for (name, text) in [("text", text), ("thinking", thinking), ("signature", signature)] {
            if !text.is_empty() {
                block.insert(name, text);
            }
        }
        if !citations.is_empty()
            && let Ok(list) = Json::from_value(&citations)
        {
            block.insert("citations", list);
        }
        if !input.is_empty() {
            block.insert("input", content::input_to_json(&input));
        }
    }

    pub(super) fn set_end(
        &mut self,
        stop_reason: Option<&'static str>,
        stop_sequence: Option<&str>,
        usage: Usage,
    ) {
        self.stop_reason = stop_reason.or(self.stop_reason);
        self.stop_sequence = stop_sequence.map(str::to_owned);
        self.usage = usage;
    }

    pub(super) fn fail(&mut self, error: ErrorResponse) {
        self.error = Some(error);
    }

    pub(super) fn into_response(self) -> Option<WholeResponse> {
        match self.error {
            Some(error) => Some(Err(error)),
            None => Json::from_value(&self).ok().map(Ok),
        }
    }
}
