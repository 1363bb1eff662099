//! The fields of the stream's frames.

use crate::lenient::{Int, ObjectOrDefault, Raw, Text};
use serde::Deserialize;

/// The known types of frames.
pub(super) const KNOWN_FRAMES: [&str; 9] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "message",
    "ping",
    "error",
];

/// A frame: the fields of `content_block_delta`, the most frequent type. Other frames are read again as [`OtherFields`].
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Frame<'a> {
    pub r#type: Text<'a>,
    pub index: Int,
    pub delta: ObjectOrDefault<Delta<'a>>,
}

/// The delta of a block.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    pub r#type: Text<'a>,
    pub text: Text<'a>,
    pub thinking: Text<'a>,
    pub partial_json: Text<'a>,
}

/// The fields of the other frames.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct OtherFields<'a> {
    pub content_block: Raw<'a>,
    pub message: Raw<'a>,
    pub delta: ObjectOrDefault<RareDelta<'a>>,
    pub usage: Raw<'a>,
    pub error: Raw<'a>,
    pub context_management: Raw<'a>,
    pub request_id: Text<'a>,
}

/// The rare fields of a delta, and those of `message_delta`.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct RareDelta<'a> {
    pub signature: Text<'a>,
    pub citation: Raw<'a>,
    pub stop_reason: Text<'a>,
    pub stop_sequence: Text<'a>,
    pub stop_details: Raw<'a>,
    pub container: Raw<'a>,
}

/// The message in `message_start`.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub id: Text<'a>,
    pub model: Text<'a>,
    pub usage: Raw<'a>,
    pub content: Raw<'a>,
    pub stop_reason: Text<'a>,
    pub stop_sequence: Text<'a>,
    pub stop_details: Raw<'a>,
    pub container: Raw<'a>,
}

/// Token counts.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(rename = "input_tokens")]
    pub input: Int,
    #[serde(rename = "output_tokens")]
    pub output: Int,
    #[serde(rename = "cache_read_input_tokens")]
    pub cache_read: Int,
    #[serde(rename = "cache_creation_input_tokens")]
    pub cache_creation: Int,
}

/// An error.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ErrorFields<'a> {
    pub r#type: Text<'a>,
    pub message: Text<'a>,
}
