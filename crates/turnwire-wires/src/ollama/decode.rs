//! Ollama's stream into events. The last line says `done`, and has the counts.

use super::NAME;
use super::message::Message;
use crate::provider::text_blocks::{self, push_segment};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, Segment, ThinkTagParser, UniqueCallIds, loose, parse_frame,
};
use crate::stream::{Decode, DecoderOptions, EventSink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{ErrorType, Fields, FinishedReason, Json, ReplyError, Result};

/// What the open call is called.
const CALL_KEY: u64 = text_blocks::THINKING_KEY + 1;

pub(super) struct OllamaDecoder {
    call: ModelCall,
    ids: UniqueCallIds,
    think: ThinkTagParser,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default, borrow, deserialize_with = "loose::object")]
    message: Option<Box<Message<'a>>>,
    /// What `/api/generate` has in place of a message.
    #[serde(default, borrow, deserialize_with = "loose::text")]
    response: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    thinking: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "loose::flag")]
    done: bool,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    done_reason: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    model: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    created_at: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "loose::int")]
    prompt_eval_count: Option<i64>,
    #[serde(default, deserialize_with = "loose::int")]
    eval_count: Option<i64>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

impl OllamaDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            ids: UniqueCallIds::default(),
            think: ThinkTagParser::default(),
        }
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
        for called in &message.tool_calls {
            self.close_text(out);
            let id = match called.id.as_deref().unwrap_or_default() {
                "" => self.call.new_id(),
                id => id.to_owned(),
            };
            let id = self.ids.make_unique(id);
            self.call.start_block(CALL_KEY, BlockKind::ToolCall, &id, called.name(), out);
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
        if let Some(word) = word {
            self.call.metadata.insert("done_reason", word);
        }
        self.call.finished_reason = Some(match word {
            Some("length") => FinishedReason::Length,
            _ if !self.ids.is_empty() => FinishedReason::ToolCalls,
            _ => FinishedReason::Completed,
        });
        self.call.finish(out);
    }

    /// An error is a sentence; what kind it is can only be read from it.
    fn fail(&mut self, error: &str, out: &mut EventSink<'_>) {
        #[derive(Deserialize)]
        struct Failure {
            message: String,
        }
        let message = serde_json::from_str::<String>(error)
            .or_else(|_| serde_json::from_str::<Failure>(error).map(|failure| failure.message))
            .unwrap_or_else(|_| error.to_owned());
        let words = message.to_lowercase();
        let says = |any: &[&str]| any.iter().any(|word| words.contains(word));
        let r#type = if says(&["unauthorized", "api key"]) {
            ErrorType::Authentication
        } else if says(&["forbidden"]) {
            ErrorType::Permission
        } else if says(&["too many requests", "rate limit", "usage limit", "server busy"]) {
            ErrorType::RateLimit
        } else if says(&["not found", "does not support", "invalid", "required"]) {
            ErrorType::InvalidRequest
        } else {
            ErrorType::Upstream
        };
        self.close_text(out);
        self.call.fail(ReplyError { r#type, message, ..ReplyError::default() }, out);
    }
}

impl Decode for OllamaDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        if self.call.has_ended() || text == "[DONE]" {
            return Ok(());
        }
        let line: Line<'_> = parse_frame(text)?;
        if !self.call.has_begun() {
            let created = line.created_at.as_deref().and_then(|at| at.parse().ok());
            let about = ModelCallInfo {
                id: "",
                model: line.model.as_deref().unwrap_or_default(),
                created: created.map_or(0, jiff::Timestamp::as_second),
            };
            self.call.begin(about, out);
        }
        let set = |slot: &mut i64, count: Option<i64>| match count {
            Some(count) if count > 0 => *slot = count,
            _ => {}
        };
        set(&mut self.call.usage.input_tokens, line.prompt_eval_count);
        set(&mut self.call.usage.output_tokens, line.eval_count);
        if let Some(message) = &line.message {
            self.read_message(message, out);
        } else {
            self.push_text(line.thinking.as_deref(), line.response.as_deref(), out);
        }
        if let Some(error) = line.error {
            self.fail(error.get(), out);
        } else if line.done {
            self.finish(line.done_reason.as_deref(), out);
        } else if line.message.is_none() && line.response.is_none() {
            let value = Json::parse(text).map(CustomValue).unwrap_or_default();
            self.call.emit(Custom { name: NAME.to_owned(), value }, out);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        if self.call.has_ended() {
            return Ok(());
        }
        self.close_text(out);
        self.call.end_of_stream(out);
        Ok(())
    }

    fn find_reply_id(&self, _: &str) -> Option<String> {
        let id = self.call.reply_id();
        (!id.is_empty()).then(|| id.to_owned())
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}
