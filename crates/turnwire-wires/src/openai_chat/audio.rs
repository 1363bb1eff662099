//! Audio that a model speaks: the field `audio` of answers and of assistant messages.
//!
//! It is a data block with the provider's id. Its transcript is a text block that starts while the data block is open. In later
//! requests the provider gets only the id.

use super::encode::ChatEncoder;
use super::message::base64_block;
use crate::stream::Frames;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use turnwire_core::event::{Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart};
use turnwire_core::{ContentBlock, TextBlock};

/// The media type of spoken output: the client has chosen the format, and no answer names it.
pub(super) const MEDIA_TYPE: &str = "audio/*";
/// The field of audio and of its transcript with the provider's id of the audio.
pub(super) const AUDIO_ID: &str = "audio_id";
/// The field of audio that says until when the provider keeps it.
pub(super) const EXPIRES_AT: &str = "audio_expires_at";

/// The audio of an answer without streaming.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ChatCompletionAudio"))]
pub(super) struct Audio {
    id: String,
    /// Base64.
    data: String,
    transcript: String,
    expires_at: i64,
}

/// A piece of audio.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct AudioDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transcript: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
}

impl Audio {
    pub(super) fn push(&mut self, delta: AudioDelta<'_>) {
        self.id.push_str(delta.id.unwrap_or_default());
        self.data.push_str(delta.data.unwrap_or_default());
        self.transcript.push_str(delta.transcript.unwrap_or_default());
        self.expires_at = delta.expires_at.unwrap_or(self.expires_at);
    }
}

impl ChatEncoder {
    pub(super) fn audio_start(&mut self, start: &DataBlockStart<'_>, out: &mut Frames) {
        if start.media_type.as_deref() == Some(MEDIA_TYPE) {
            self.completion.audio = Some(start.block_id.to_string());
            self.write_audio(
                AudioDelta { id: Some(&start.block_id), ..AudioDelta::default() },
                out,
            );
        }
    }

    pub(super) fn audio_delta(&mut self, delta: &DataBlockDelta<'_>, out: &mut Frames) {
        if let Chunk::Data(data) = &delta.chunk
            && self.completion.audio.as_deref() == Some(&*delta.block_id)
        {
            self.write_audio(AudioDelta { data: Some(data), ..AudioDelta::default() }, out);
        }
    }

    pub(super) fn audio_end(&mut self, end: &DataBlockEnd<'_>, out: &mut Frames) {
        if self.completion.audio.take_if(|open| **open == *end.block_id).is_some()
            && let Ok(expires_at @ Some(_)) = end.extra.get(EXPIRES_AT)
        {
            self.write_audio(AudioDelta { expires_at, ..AudioDelta::default() }, out);
        }
    }

    pub(super) fn write_transcript(&mut self, text: &str, out: &mut Frames) {
        if !text.is_empty() {
            self.write_audio(AudioDelta { transcript: Some(text), ..AudioDelta::default() }, out);
        }
    }
}

/// The blocks of an assistant message's `audio`.
pub(super) fn read_audio(audio: &Value) -> Vec<ContentBlock> {
    let field = |name: &str| audio.get(name).and_then(Value::as_str).filter(|it| !it.is_empty());
    let Some(id) = field("id") else { return Vec::new() };
    let mut block = base64_block("", Some(MEDIA_TYPE), None);
    block.rest.insert(AUDIO_ID, id);
    let transcript = field("transcript").map(|text| {
        let mut block = TextBlock::new(text);
        block.rest.insert(AUDIO_ID, id);
        block.into()
    });
    [ContentBlock::from(block)].into_iter().chain(transcript).collect()
}
