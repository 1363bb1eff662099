//! The fields of frames that we read.

use crate::lenient::{IntOrText, Raw, TextOrNumber};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Frame<'a> {
    pub r#type: TextOrNumber<'a>,
    pub output_index: IntOrText,
    pub content_index: IntOrText,
    pub summary_index: IntOrText,
    pub delta: TextOrNumber<'a>,
    pub logprobs: Raw<'a>,
    pub text: TextOrNumber<'a>,
    pub refusal: TextOrNumber<'a>,
    pub arguments: TextOrNumber<'a>,
    pub input: TextOrNumber<'a>,
    pub part: Raw<'a>,
    pub item: Raw<'a>,
    pub response: Raw<'a>,
    pub error: Raw<'a>,
    pub object: TextOrNumber<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Response<'a> {
    pub id: TextOrNumber<'a>,
    pub model: TextOrNumber<'a>,
    pub created_at: IntOrText,
    pub status: TextOrNumber<'a>,
    pub output: Raw<'a>,
    pub usage: Raw<'a>,
    pub error: Raw<'a>,
    pub incomplete_details: Raw<'a>,
    pub structured_output: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Usage<'a> {
    pub input_tokens: IntOrText,
    pub output_tokens: IntOrText,
    pub input_tokens_details: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InputTokensDetails {
    pub cached_tokens: IntOrText,
    pub cache_write_tokens: IntOrText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct IncompleteDetails<'a> {
    pub reason: TextOrNumber<'a>,
}
