//! What a frame has in it, as far as we look.

use super::super::read::{Int, Raw, Text};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Frame<'a> {
    #[serde(borrow)]
    pub r#type: Text<'a>,
    pub output_index: Int,
    pub content_index: Int,
    pub summary_index: Int,
    #[serde(borrow)]
    pub delta: Text<'a>,
    #[serde(borrow)]
    pub text: Text<'a>,
    #[serde(borrow)]
    pub refusal: Text<'a>,
    #[serde(borrow)]
    pub arguments: Text<'a>,
    #[serde(borrow)]
    pub input: Text<'a>,
    #[serde(borrow)]
    pub part: Raw<'a>,
    #[serde(borrow)]
    pub item: Raw<'a>,
    #[serde(borrow)]
    pub response: Raw<'a>,
    #[serde(borrow)]
    pub error: Raw<'a>,
    #[serde(borrow)]
    pub object: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub id: Text<'a>,
    #[serde(borrow)]
    pub model: Text<'a>,
    pub created_at: Int,
    #[serde(borrow)]
    pub status: Text<'a>,
    #[serde(borrow)]
    pub output: Raw<'a>,
    #[serde(borrow)]
    pub usage: Raw<'a>,
    #[serde(borrow)]
    pub error: Raw<'a>,
    #[serde(borrow)]
    pub incomplete_details: Raw<'a>,
    #[serde(borrow)]
    pub structured_output: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage<'a> {
    pub input_tokens: Int,
    pub output_tokens: Int,
    #[serde(borrow)]
    pub input_tokens_details: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InputTokensDetails {
    pub cached_tokens: Int,
    pub cache_write_tokens: Int,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow)]
    pub reason: Text<'a>,
}
