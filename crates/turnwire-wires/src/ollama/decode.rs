//! Decodes Ollama's stream into events. The last line has `done` and the token counts.

use super::NAME;
use super::message::Message;
use crate::lenient::{Flag, Int, Object, OptionalText, Raw};
use crate::provider::text_blocks::{self, push_segment};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, ProviderDecoder, Segment, ThinkTagParser,
    error_type_of_words, model_call_in, parse_frame, reply_error, set_count,
};
use crate::stream::{DecoderOptions, EventSink};
use serde::Deserialize;
use turnwire_core::event::Chunk;
use turnwire_core::{ErrorType, Fields, FinishedReason, Result};

/// The key of the open tool call.
const CALL_KEY: u64 = text_blocks::THINKING_KEY + 1;

pub(super) struct OllamaDecoder {
    call: ModelCall,
    think: ThinkTagParser,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Line<'a> {
    message: Object<Message<'a>>,
    /// The text of `/api/generate`, which has no message.
    response: OptionalText<'a>,
    thinking: OptionalText<'a>,
    done: Flag,
    done_reason: OptionalText<'a>,
    model: OptionalText<'a>,
    created_at: OptionalText<'a>,
    prompt_eval_count: Int,
    eval_count: Int,
    error: Raw<'a>,
}

impl OllamaDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self { call: ModelCall::new(NAME, decoding), think: ThinkTagParser::default() }
    }

    fn push_text(&mut self, thinking: Option<&str>, text: Option<&str>, out: &mut EventSink<'_>) {
        let Self { call, think, .. } = self;
        if let Some(thinking) = thinking.filter(|text| !text.is_empty()) {
            push_segment(call, Segment::Thinking(thinking), out);
        }
        if let Some(text) = text {
            think.feed(text, |segment| push_segment(call, segment, out));
        }
    }

    fn read_message(&mut self, message: &Message<'_>, out: &mut EventSink<'_>) {
        self.push_text(message.thinking.as_deref(), message.content.as_deref(), out);
        if message.images.is_some() {
            for image in message.images() {
                self.close_text(out);
                let (media_type, chunk) = (Some("image/*"), Chunk::Data(image.into()));
                self.call.emit_data_block("", media_type, chunk, Fields::default(), out);
            }
        }
        for called in &message.tool_calls.0 {
            self.close_text(out);
            let (id, name) = (called.id.or_empty(), called.name());
            self.call.start_block(CALL_KEY, BlockKind::ToolCall, id, name, out);
            self.call.push_delta(CALL_KEY, &called.arguments(), out);
            self.call.close_block(CALL_KEY, Fields::default(), out);
        }
    }

    fn close_text(&mut self, out: &mut EventSink<'_>) {
        let Self { call, think, .. } = self;
        think.finish(|segment| push_segment(call, segment, out));
        text_blocks::close_text_blocks(call, out);
    }

    fn finish(&mut self, word: Option<&str>, out: &mut EventSink<'_>) {
        self.close_text(out);
        self.call.metadata.insert_some("done_reason", word);
        self.call.finished_reason = Some(match word {
            Some("length") => FinishedReason::Length,
            _ if self.call.tool_calls() > 0 => FinishedReason::ToolCalls,
            _ => FinishedReason::Completed,
        });
        self.call.finish(out);
    }

    /// Ends the reply with an error. Ollama sends only a sentence, so the error type is guessed from its words.
    fn fail(&mut self, error: &str, out: &mut EventSink<'_>) {
        #[derive(Deserialize)]
        struct Failure {
            message: String,
        }
        let message = serde_json::from_str::<String>(error)
            .or_else(|_| serde_json::from_str::<Failure>(error).map(|failure| failure.message))
            .unwrap_or_else(|_| error.to_owned());
        let r#type = error_type_of_words(&message).unwrap_or(ErrorType::Upstream);
        self.close_text(out);
        self.call.fail(reply_error(r#type, message), out);
    }
}

impl ProviderDecoder for OllamaDecoder {
    model_call_in!(call);

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let line: Line<'_> = parse_frame(text)?;
        if !self.call.has_begun() {
            let created = line.created_at.as_deref().and_then(|at| at.parse().ok());
            let about = ModelCallInfo {
                id: "",
                model: line.model.or_empty(),
                created: created.map_or(0, jiff::Timestamp::as_second),
            };
            self.call.begin(about, out);
        }
        set_count(&mut self.call.usage.input_tokens, line.prompt_eval_count.0);
        set_count(&mut self.call.usage.output_tokens, line.eval_count.0);
        if let Some(message) = &line.message.0 {
            self.read_message(message, out);
        } else {
            self.push_text(line.thinking.as_deref(), line.response.as_deref(), out);
        }
        if let Some(error) = line.error {
            self.fail(error.get(), out);
        } else if line.done.0 {
            self.finish(line.done_reason.as_deref(), out);
        } else if line.message.0.is_none() && line.response.0.is_none() {
            self.call.emit_unknown_frame(text, out);
        }
        Ok(())
    }

    fn close_at_end(&mut self, out: &mut EventSink<'_>) {
        self.close_text(out);
    }
}
