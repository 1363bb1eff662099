//! The table of options: by which field each wire has each option.
//!
//! A client's request is read from the column of its protocol, and a request to a model is written to the column of the
//! model's protocol. AG-UI and AI SDK are only read.

use super::{ModelOption, ResponseFormat};

/// Whether a wire has an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It has the option, in this field.
    Field(&'static str),
    /// It has the option in this field, but its values mean nothing on another wire.
    SameWire(&'static str),
    /// It does not have the option.
    LeftOut,
}

use Support::{Field as F, LeftOut, SameWire as S};

/// The columns of the table.
pub const OPTION_WIRES: [&str; 8] = [
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "dashscope",
    "ollama",
    "ag-ui",
    "ai-sdk",
];

type Row = (ModelOption, [Support; OPTION_WIRES.len()]);

const NO: Support = LeftOut;

#[rustfmt::skip]
static TABLE: [Row; ModelOption::ALL.len()] = [
    (ModelOption::Temperature, [F("temperature"), F("temperature"), F("temperature"), F("generationConfig.temperature"), F("parameters.temperature"), F("options.temperature"), F("forwardedProps.temperature"), F("temperature")]),
    (ModelOption::TopP, [F("top_p"), F("top_p"), F("top_p"), F("generationConfig.topP"), F("parameters.top_p"), F("options.top_p"), F("forwardedProps.topP"), F("topP")]),
    (ModelOption::TopK, [S("top_k"), NO, F("top_k"), F("generationConfig.topK"), F("parameters.top_k"), F("options.top_k"), F("forwardedProps.topK"), F("topK")]),
    (ModelOption::MinP, [S("min_p"), NO, NO, NO, NO, F("options.min_p"), NO, NO]),
    (ModelOption::FrequencyPenalty, [F("frequency_penalty"), NO, NO, F("generationConfig.frequencyPenalty"), NO, F("options.frequency_penalty"), F("forwardedProps.frequencyPenalty"), F("frequencyPenalty")]),
    (ModelOption::PresencePenalty, [F("presence_penalty"), NO, NO, F("generationConfig.presencePenalty"), F("parameters.presence_penalty"), F("options.presence_penalty"), F("forwardedProps.presencePenalty"), F("presencePenalty")]),
    (ModelOption::Seed, [F("seed"), NO, NO, F("generationConfig.seed"), F("parameters.seed"), F("options.seed"), F("forwardedProps.seed"), F("seed")]),
    (ModelOption::MaxTokens, [F("max_completion_tokens"), F("max_output_tokens"), F("max_tokens"), F("generationConfig.maxOutputTokens"), F("parameters.max_tokens"), F("options.num_predict"), F("forwardedProps.maxOutputTokens"), F("maxOutputTokens")]),
    (ModelOption::Stop, [F("stop"), NO, F("stop_sequences"), F("generationConfig.stopSequences"), F("parameters.stop"), F("options.stop"), F("forwardedProps.stopSequences"), F("stopSequences")]),
    (ModelOption::ToolChoice, [F("tool_choice"), F("tool_choice"), F("tool_choice"), F("toolConfig"), F("parameters.tool_choice"), F("tools"), F("forwardedProps.toolChoice"), F("toolChoice")]),
    (ModelOption::ParallelToolCalls, [F("parallel_tool_calls"), F("parallel_tool_calls"), F("tool_choice.disable_parallel_tool_use"), NO, F("parameters.parallel_tool_calls"), NO, NO, NO]),
    (ModelOption::Reasoning, [F("reasoning_effort"), F("reasoning"), F("thinking"), F("generationConfig.thinkingConfig"), F("parameters.enable_thinking"), F("think"), F("forwardedProps.reasoning"), F("reasoning")]),
    (ModelOption::ResponseFormat, [F("response_format"), F("text.format"), F("output_config.format"), F("generationConfig.responseJsonSchema"), F("parameters.response_format"), F("format"), NO, NO]),
    (ModelOption::Verbosity, [F("verbosity"), F("text.verbosity"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::PromptCacheKey, [F("prompt_cache_key"), F("prompt_cache_key"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::CacheControl, [NO, NO, F("cache_control"), NO, NO, NO, NO, NO]),
    (ModelOption::ServiceTier, [F("service_tier"), F("service_tier"), S("service_tier"), NO, NO, NO, NO, NO]),
    (ModelOption::User, [F("user"), F("user"), F("metadata.user_id"), NO, NO, NO, NO, NO]),
    (ModelOption::SafetyIdentifier, [F("safety_identifier"), F("safety_identifier"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::Metadata, [F("metadata"), F("metadata"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::Store, [F("store"), F("store"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::Include, [NO, S("include"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::Truncation, [NO, S("truncation"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::Logprobs, [S("logprobs"), NO, NO, NO, NO, NO, NO, NO]),
    (ModelOption::TopLogprobs, [S("top_logprobs"), S("top_logprobs"), NO, NO, NO, NO, NO, NO]),
    (ModelOption::Modalities, [S("modalities"), NO, NO, NO, NO, NO, NO, NO]),
    (ModelOption::Audio, [S("audio"), NO, NO, NO, NO, NO, NO, NO]),
];

/// Other fields that a wire reads an option from, and passes on.
const MORE_FIELDS: [(&str, ModelOption, &str); 9] = [
    ("openai-chat", ModelOption::MaxTokens, "max_tokens"),
    // As OpenRouter has it.
    ("openai-chat", ModelOption::Reasoning, "reasoning"),
    ("anthropic", ModelOption::Reasoning, "output_config.effort"),
    // The older name.
    ("anthropic", ModelOption::ResponseFormat, "output_format"),
    ("ag-ui", ModelOption::MaxTokens, "forwardedProps.maxTokens"),
    ("ag-ui", ModelOption::Stop, "forwardedProps.stop"),
    ("ai-sdk", ModelOption::MaxTokens, "maxTokens"),
    ("ai-sdk", ModelOption::Stop, "stop"),
    ("dashscope", ModelOption::Reasoning, "parameters.thinking_budget"),
];

impl ModelOption {
    /// Whether a wire has the option, and in which field. Without a wire: by its canonical name.
    pub fn support(self, wire: &str) -> Support {
        if wire.is_empty() {
            return F(self.name());
        }
        let column = OPTION_WIRES.iter().position(|name| *name == wire);
        let row = TABLE.iter().find(|(option, _)| *option == self);
        let cell = row.zip(column).and_then(|((_, row), column)| row.get(column));
        cell.copied().unwrap_or(LeftOut)
    }

    /// All fields in which a wire has the option.
    pub(super) fn fields(self, wire: &str) -> impl Iterator<Item = &'static str> + use<> {
        let first = match self.support(wire) {
            F(path) | S(path) => Some(path),
            LeftOut => None,
        };
        let wire = OPTION_WIRES.into_iter().find(|name| *name == wire).unwrap_or_default();
        let is_more = move |(of, option, _): &(&str, Self, &str)| *of == wire && *option == self;
        let more = MORE_FIELDS.into_iter().filter(is_more).map(|(_, _, path)| path);
        first.into_iter().chain(more)
    }

    /// Finds an option by its canonical name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|option| option.name() == name)
    }
}

impl ResponseFormat {
    /// Whether a wire has this format. Anthropic has no JSON without a schema.
    pub fn is_native_to(&self, wire: &str) -> bool {
        let has_field = matches!(ModelOption::ResponseFormat.support(wire), F(_));
        match self {
            Self::Text => true,
            Self::JsonObject => has_field && wire != "anthropic",
            Self::JsonSchema { .. } => has_field,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_one_row_in_order() {
        let rows: Vec<ModelOption> = TABLE.iter().map(|(option, _)| *option).collect();
        assert_eq!(rows, ModelOption::ALL);
    }

    #[test]
    fn every_wire_that_calls_a_model_has_a_column() {
        for wire in crate::Wire::all().filter(|wire| wire.can_request_model()) {
            assert!(OPTION_WIRES.contains(&wire.name), "{}", wire.name);
        }
    }
}
