//! The frames of the stream to clients.

use super::settings::ResponseSettings;
use crate::stream::Frames;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use turnwire_core::event::TokenCounts;
use turnwire_core::{Fields, Json};

/// Any frame.
#[derive(Serialize)]
pub(super) struct Frame<'a, T: Serialize> {
    pub r#type: &'static str,
    pub sequence_number: u64,
    #[serde(flatten)]
    pub body: &'a T,
}

/// Writes a frame with the next sequence number.
pub(super) fn write_frame<T: Serialize>(
    name: &'static str,
    number: &mut u64,
    body: &T,
    out: &mut Frames,
) {
    out.push(name, &Frame { r#type: name, sequence_number: *number, body });
    *number += 1;
}

/// A frame with the response in it.
#[derive(Serialize)]
pub(super) struct Lifecycle<'a> {
    pub r#type: &'static str,
    pub sequence_number: u64,
    pub response: &'a Response<'a>,
}

/// Writes a JSON string. Most texts need no escaping.
#[inline]
pub(super) fn write_json_string(text: &str, out: &mut String) {
    let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else if let Ok(json) = serde_json::to_string(text) {
        out.push_str(&json);
    }
}

#[derive(Serialize)]
pub(super) struct ItemFrame<'a, T: Serialize> {
    pub output_index: usize,
    pub item: &'a T,
}

#[derive(Serialize)]
pub(super) struct PartFrame<'a> {
    pub item_id: &'a str,
    pub output_index: usize,
    pub content_index: usize,
    pub part: &'a Part<'a>,
}

#[derive(Serialize)]
pub(super) struct SummaryPartFrame<'a> {
    pub item_id: &'a str,
    pub output_index: usize,
    pub summary_index: usize,
    pub part: &'a Part<'a>,
}

#[derive(Serialize)]
pub(super) struct TextDone<'a> {
    pub item_id: &'a str,
    pub output_index: usize,
    pub content_index: usize,
    pub text: &'a str,
    pub logprobs: ListField<'a>,
}

#[derive(Serialize)]
pub(super) struct SummaryDone<'a> {
    pub item_id: &'a str,
    pub output_index: usize,
    pub summary_index: usize,
    pub text: &'a str,
}

#[derive(Serialize)]
pub(super) struct CallDone<'a> {
    pub item_id: &'a str,
    pub output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    #[serde(flatten)]
    pub input: Input<'a>,
}

/// The input of a call, in the field of its type.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input<'a> {
    Arguments(&'a str),
    Input(&'a str),
}

/// A part of a message, or of a summary.
pub(super) enum Part<'a> {
    Text { text: &'a str, annotations: ListField<'a>, logprobs: ListField<'a> },
    Refusal(&'a str),
    Summary(&'a str),
}

/// A list in the extra fields of a block, which is written as an empty one if it is missing.
pub(super) struct ListField<'a>(Option<&'a Json>);

impl<'a> ListField<'a> {
    pub(super) fn read(extra: &'a Fields, key: &str) -> Self {
        Self(extra.raw(key).filter(|value| value.text().starts_with('[')))
    }
}

impl Serialize for ListField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(list) => list.serialize(serializer),
            None => [(); 0].serialize(serializer),
        }
    }
}

impl<'a> Part<'a> {
    pub(super) fn text(text: &'a str, extra: &'a Fields) -> Self {
        if crate::provider::is_refusal(extra) {
            return Self::Refusal(text);
        }
        let list = |key| ListField::read(extra, key);
        Self::Text { text, annotations: list("annotations"), logprobs: list("logprobs") }
    }

    pub(super) fn summary(text: &'a str) -> Self {
        Self::Summary(text)
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Text { text, annotations, logprobs } => {
                map.serialize_entry("type", "output_text")?;
                map.serialize_entry("annotations", annotations)?;
                map.serialize_entry("logprobs", logprobs)?;
                map.serialize_entry("text", text)?;
            }
            Self::Refusal(text) => {
                map.serialize_entry("type", "refusal")?;
                map.serialize_entry("refusal", text)?;
            }
            Self::Summary(text) => {
                map.serialize_entry("type", "summary_text")?;
                map.serialize_entry("text", text)?;
            }
        }
        map.end()
    }
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub id: &'a str,
    pub r#type: &'static str,
    pub status: &'static str,
    pub content: Vec<Part<'a>>,
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'a Json>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub structured_output: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

impl<'a> Message<'a> {
    pub(super) fn new(id: &'a str, status: &'static str) -> Self {
        Self {
            id,
            r#type: "message",
            status,
            content: Vec::new(),
            role: "assistant",
            phase: None,
            structured_output: false,
            replaced: false,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Reasoning<'a> {
    pub id: &'a str,
    pub r#type: &'static str,
    pub summary: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_content: Option<&'a Json>,
}

#[derive(Serialize)]
pub(super) struct ToolCall<'a> {
    pub id: &'a str,
    pub r#type: &'static str,
    pub status: &'static str,
    #[serde(flatten)]
    pub input: Input<'a>,
    pub call_id: &'a str,
    pub name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a Json>,
}

#[derive(Serialize)]
pub(super) struct Image<'a> {
    pub id: &'a str,
    pub r#type: &'static str,
    pub status: &'static str,
    pub output_format: &'a str,
    pub result: &'a str,
}

/// The response.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(transform = crate::json::declare_ignored_options))]
pub struct Response<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created_at: i64,
    pub(super) completed_at: Option<i64>,
    pub(super) status: &'a str,
    pub(super) error: Option<ErrorBody<'a>>,
    pub(super) incomplete_details: Option<Incomplete<'a>>,
    pub(super) model: &'a str,
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Fields>"))]
    pub(super) output: &'a [Json],
    #[serde(flatten)]
    pub(super) settings: &'a ResponseSettings,
    pub(super) usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) structured_output: Option<&'a Json>,
}

impl<'a> Response<'a> {
    pub(super) fn new(settings: &'a ResponseSettings) -> Self {
        Self {
            id: "",
            object: "response",
            created_at: 0,
            completed_at: None,
            status: "",
            error: None,
            incomplete_details: None,
            model: "",
            output: &[],
            settings,
            usage: None,
            structured_output: None,
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ResponseError"))]
pub(super) struct ErrorBody<'a> {
    pub(super) code: &'a str,
    pub(super) message: &'a str,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ResponseIncompleteDetails"))]
pub(super) struct Incomplete<'a> {
    pub(super) reason: &'a str,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ResponseUsage"))]
pub(super) struct Usage {
    input_tokens: i64,
    input_tokens_details: InputDetails,
    output_tokens: i64,
    output_tokens_details: OutputDetails,
    total_tokens: i64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ResponseInputTokens"))]
struct InputDetails {
    cached_tokens: i64,
    cache_write_tokens: i64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ResponseOutputTokens"))]
struct OutputDetails {
    reasoning_tokens: i64,
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Self {
            input_tokens: counts.input_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: counts.cache_input_tokens,
                cache_write_tokens: counts.cache_creation_input_tokens,
            },
            output_tokens: counts.output_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: counts.input_tokens.saturating_add(counts.output_tokens),
        }
    }
}
