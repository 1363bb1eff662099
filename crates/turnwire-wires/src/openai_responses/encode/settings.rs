//! What a response repeats of its request.

use super::super::super::json::{fields, string_field};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use turnwire_core::{Fields, Json};

/// The part of a request that its response repeats, with the protocol's defaults for everything that the request leaves
/// out. The server passes it with [`EncoderOptions::with`](crate::EncoderOptions::with).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ResponseSettings {
    background: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<Fields>,
    frequency_penalty: f64,
    instructions: Option<String>,
    max_output_tokens: Option<u64>,
    max_tool_calls: Option<u64>,
    metadata: Fields,
    parallel_tool_calls: bool,
    presence_penalty: f64,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<String>,
    reasoning: Fields,
    safety_identifier: Option<String>,
    service_tier: String,
    store: bool,
    temperature: f64,
    text: Fields,
    tool_choice: Json,
    tools: Vec<Fields>,
    top_logprobs: u64,
    top_p: f64,
    truncation: String,
    user: Option<String>,
}

impl Default for ResponseSettings {
    fn default() -> Self {
        Self::from_request(&Fields::default())
    }
}

impl ResponseSettings {
    /// Reads the body of a request. A field of the wrong type counts as missing.
    pub fn from_request(body: &Fields) -> Self {
        fn read<T: DeserializeOwned>(body: &Fields, key: &str) -> Option<T> {
            body.get(key).ok().flatten()
        }
        let mut reasoning: Fields = read(body, "reasoning").unwrap_or_default();
        for key in ["effort", "summary"] {
            if reasoning.raw(key).is_none() {
                reasoning.insert(key, Json::from(serde_json::Value::Null));
            }
        }
        let mut text: Fields = read(body, "text").unwrap_or_default();
        if text.raw("format").is_none_or(Json::is_null) {
            text.insert("format", fields! { "type": "text" });
        }
        let tools: Vec<Fields> = read(body, "tools").unwrap_or_default();
        let tool_choice = body.raw("tool_choice").filter(|choice| !choice.is_null()).cloned();
        Self {
            background: read(body, "background").unwrap_or_default(),
            conversation: string_field(body, "conversation").map(|id| fields! { "id": id }),
            frequency_penalty: read(body, "frequency_penalty").unwrap_or_default(),
            instructions: string_field(body, "instructions"),
            max_output_tokens: read(body, "max_output_tokens"),
            max_tool_calls: read(body, "max_tool_calls"),
            metadata: read(body, "metadata").unwrap_or_default(),
            parallel_tool_calls: read(body, "parallel_tool_calls").unwrap_or(true),
            presence_penalty: read(body, "presence_penalty").unwrap_or_default(),
            previous_response_id: string_field(body, "previous_response_id"),
            prompt_cache_key: string_field(body, "prompt_cache_key"),
            reasoning,
            safety_identifier: string_field(body, "safety_identifier"),
            service_tier: string_field(body, "service_tier")
                .unwrap_or_else(|| "default".to_owned()),
            store: read(body, "store").unwrap_or(true),
            temperature: read(body, "temperature").unwrap_or(1.0),
            text,
            tool_choice: tool_choice.unwrap_or_else(|| Json::from("auto")),
            tools: tools.into_iter().map(complete_tool).collect(),
            top_logprobs: read(body, "top_logprobs").unwrap_or_default(),
            top_p: read(body, "top_p").unwrap_or(1.0),
            truncation: string_field(body, "truncation").unwrap_or_else(|| "disabled".to_owned()),
            user: string_field(body, "user"),
        }
    }
}

/// A tool with all fields that a function has in a response.
fn complete_tool(mut tool: Fields) -> Fields {
    if string_field(&tool, "type").as_deref() == Some("function") {
        for key in ["description", "parameters", "strict"] {
            if tool.raw(key).is_none() {
                tool.insert(key, Json::from(serde_json::Value::Null));
            }
        }
    }
    tool
}
