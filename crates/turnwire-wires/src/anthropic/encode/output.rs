//! Where the encoder writes: the frames of the stream and, if the client does not stream, the whole message.

use super::super::collect::{Message, Usage};
use crate::collect::ErrorResponse;
use crate::provider::error_name;
use crate::stream::Frames;
use serde::Serialize;
use turnwire_core::event::TokenCounts;
use turnwire_core::{Fields, Json, ReplyError};

pub(super) struct Output<'o> {
    frames: &'o mut Frames,
    /// The message, from its start on.
    whole: &'o mut Option<Message>,
    collects: bool,
}

impl<'o> Output<'o> {
    pub(super) fn new(
        frames: &'o mut Frames,
        collects: bool,
        whole: &'o mut Option<Message>,
    ) -> Self {
        Self { frames, whole, collects }
    }

    pub(super) fn start_message(&mut self, id: &str, model: &str) {
        let message = StartMessage {
            id,
            r#type: "message",
            role: "assistant",
            model,
            content: [],
            stop_reason: None,
            stop_sequence: None,
            usage: TokenCounts::default().into(),
        };
        self.frames.push("message_start", &Frame::MessageStart { message });
        *self.whole = self.collects.then(|| Message::new(id, model));
    }

    pub(super) fn start_block(&mut self, fields: &Fields, index: u64) {
        let content_block = Json::from(fields);
        self.frames.push("content_block_start", &Frame::ContentBlockStart { index, content_block });
        if let Some(whole) = self.whole {
            whole.start_block(fields.clone());
        }
    }

    #[inline]
    pub(super) fn push_delta(&mut self, delta: Delta<'_>, index: u64) {
        let name = "content_block_delta";
        self.frames.push(name, &BlockDelta { r#type: name, index, delta });
        if let Some(whole) = self.whole {
            whole.push_delta(delta);
        }
    }

    pub(super) fn stop_block(&mut self, index: u64) {
        self.frames.push("content_block_stop", &Frame::ContentBlockStop { index });
        if let Some(whole) = self.whole {
            whole.stop_block();
        }
    }

    /// Writes `message_delta`: the stop reason and the tokens.
    pub(super) fn push_message_delta(
        &mut self,
        stop_reason: Option<&'static str>,
        stop_sequence: Option<&str>,
        usage: TokenCounts,
    ) {
        let delta = StopDelta { stop_reason, stop_sequence };
        self.frames.push("message_delta", &Frame::MessageDelta { delta, usage: usage.into() });
        if let Some(whole) = self.whole {
            whole.set_end(stop_reason, stop_sequence, usage.into());
        }
    }

    pub(super) fn stop_message(&mut self) {
        self.frames.push("message_stop", &Frame::MessageStop {});
    }

    pub(super) fn push_error(&mut self, error: Option<&ReplyError>) {
        let error = ErrorBody::from_reply_error(error);
        let frame = Frame::Error { error };
        self.frames.push("error", &frame);
        if let Some(whole) = self.whole {
            whole.fail(ErrorResponse::new(error.r#type, &frame));
        }
    }

    /// Writes an unknown frame of this wire.
    pub(super) fn push_custom(&mut self, text: &str) {
        self.frames.push_text("", text);
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Frame<'a> {
    MessageStart { message: StartMessage<'a> },
    ContentBlockStart { index: u64, content_block: Json },
    ContentBlockStop { index: u64 },
    MessageDelta { delta: StopDelta<'a>, usage: Usage },
    MessageStop {},
    Error { error: ErrorBody<'a> },
}

/// The frame of a delta.
#[derive(Serialize)]
struct BlockDelta<'a> {
    r#type: &'static str,
    index: u64,
    delta: Delta<'a>,
}

/// What a block grows by.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type")]
pub(in crate::anthropic) enum Delta<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "citations_delta")]
    Citation { citation: &'a Json },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: &'a str },
}

#[derive(Serialize)]
struct StartMessage<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: [(); 0],
    stop_reason: Option<()>,
    stop_sequence: Option<()>,
    usage: Usage,
}

#[derive(Serialize)]
struct StopDelta<'a> {
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
}

#[derive(Clone, Copy, Serialize)]
struct ErrorBody<'a> {
    r#type: &'static str,
    message: &'a str,
}

impl<'a> ErrorBody<'a> {
    fn from_reply_error(error: Option<&'a ReplyError>) -> Self {
        let Some(error) = error else {
            return Self { r#type: "api_error", message: "The reply failed." };
        };
        Self { r#type: error_name(&error.r#type, "api_error"), message: &error.message }
    }
}
