//! The completion of a response without streaming. The encoder builds it while it writes the chunks.

use super::audio::{Audio, AudioDelta};
use super::error::ErrorBody;
use crate::collect::{ErrorResponse, WholeResponse};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use turnwire_core::Json;
use turnwire_core::event::TokenCounts;

/// A chat completion.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(transform = crate::json::declare_ignored_options))]
pub struct ChatCompletion {
    id: String,
    object: &'static str,
    created: i64,
    model: String,
    choices: [Choice; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip)]
    error: Option<ErrorResponse>,
}

#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionChoice"))]
struct Choice {
    index: u8,
    logprobs: Option<Logprobs>,
    /// `stop`, `length`, `tool_calls` or `content_filter`.
    finish_reason: Option<&'static str>,
    message: Message,
    /// Why the reply ended, where `finish_reason` cannot say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    native_finish_reason: Option<String>,
}

/// The log probabilities of the tokens of an answer.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionLogprobs"))]
pub(super) struct Logprobs {
    content: Vec<Json>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<Json>>"))]
    refusal: Option<()>,
}

impl Logprobs {
    /// `None` if there are none.
    pub(super) fn new(content: Vec<Json>) -> Option<Self> {
        (!content.is_empty()).then_some(Self { content, refusal: None })
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionMessage"))]
struct Message {
    role: &'static str,
    /// `null` beside tool calls or audio without text.
    content: Option<String>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    refusal: Option<()>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audio: Option<Audio>,
}

impl Default for Message {
    fn default() -> Self {
        Self {
            role: "assistant",
            content: Some(String::new()),
            refusal: None,
            reasoning_content: String::new(),
            tool_calls: Vec::new(),
            annotations: Vec::new(),
            audio: None,
        }
    }
}

/// A call for the client.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionToolCall"))]
pub(super) struct ToolCall {
    id: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<Function>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<Custom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Json>,
}

impl From<turnwire_core::ToolCall> for ToolCall {
    fn from(call: turnwire_core::ToolCall) -> Self {
        let turnwire_core::ToolCall { id, name, input, mut rest, .. } = call;
        let extra_content = rest.remove("extra_content");
        let (r#type, function, custom) = if rest.raw("custom").is_some() {
            ("custom", None, Some(Custom { name, input }))
        } else {
            let arguments = super::input_or_empty_object(&input).to_owned();
            ("function", Some(Function { name, arguments }), None)
        };
        Self { id, r#type, function, custom, extra_content }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionFunction"))]
struct Function {
    name: String,
    /// JSON.
    arguments: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionCustomCall"))]
struct Custom {
    name: String,
    /// Any text.
    input: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionUsage"))]
pub(super) struct Usage {
    prompt_tokens: i64,
    completion_tokens: i64,
    total_tokens: i64,
    prompt_tokens_details: PromptTokens,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionPromptTokens"))]
struct PromptTokens {
    cached_tokens: i64,
    cache_write_tokens: i64,
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Self {
            prompt_tokens: counts.input_tokens,
            completion_tokens: counts.output_tokens,
            total_tokens: counts.input_tokens.saturating_add(counts.output_tokens),
            prompt_tokens_details: PromptTokens {
                cached_tokens: counts.cache_input_tokens,
                cache_write_tokens: counts.cache_creation_input_tokens,
            },
        }
    }
}

/// Which text of the message a delta continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextField {
    Content,
    Reasoning,
}

impl TextField {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Reasoning => "reasoning_content",
        }
    }
}

impl ChatCompletion {
    pub(super) fn new(id: &str, created: i64, model: &str) -> Self {
        Self {
            id: id.to_owned(),
            object: "chat.completion",
            created,
            model: model.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn push_text(&mut self, field: TextField, text: &str) {
        let [Choice { message, .. }] = &mut self.choices;
        match field {
            TextField::Content => message.content.get_or_insert_default().push_str(text),
            TextField::Reasoning => message.reasoning_content.push_str(text),
        }
    }

    pub(super) fn push_call(&mut self, call: ToolCall) {
        let [Choice { message, .. }] = &mut self.choices;
        message.tool_calls.push(call);
    }

    pub(super) fn push_audio(&mut self, delta: AudioDelta<'_>) {
        let [Choice { message, .. }] = &mut self.choices;
        message.audio.get_or_insert_default().push(delta);
    }

    pub(super) fn finish(
        &mut self,
        reason: &'static str,
        native: Option<&str>,
        annotations: &[Json],
        logprobs: Option<&Logprobs>,
    ) {
        let [choice] = &mut self.choices;
        choice.logprobs = logprobs.cloned();
        choice.finish_reason = Some(reason);
        choice.native_finish_reason = native.map(str::to_owned);
        choice.message.annotations.extend_from_slice(annotations);
        let has_more = !choice.message.tool_calls.is_empty() || choice.message.audio.is_some();
        choice.message.content.take_if(|text| has_more && text.is_empty());
    }

    pub(super) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    pub(super) fn fail(&mut self, error: &ErrorBody<'_>) {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a ErrorBody<'a>,
        }
        self.error = Some(ErrorResponse::new(error.r#type, &Body { error }));
    }

    pub(super) fn into_response(self) -> Option<WholeResponse> {
        match self.error {
            Some(error) => Some(Err(error)),
            None => Json::from_value(&self).ok().map(Ok),
        }
    }
}
