//! Gemini's stream into events.
//!
//! A frame is a piece of a response: `candidates[0].content.parts` goes on from where the last one
//! was. There are no ends of blocks, and no last word: the stream is over when there are no more
//! bytes, and complete if a `finishReason` has come.

use super::NAME;
use super::part::{self, FunctionCall, Part};
use super::partial_args::{ArgsWriter, Piece, parse_path};
use crate::provider::text_blocks::{self, push_segment};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, Segment, UniqueCallIds, loose, parse_frame,
};
use crate::stream::{Decode, DecoderOptions, EventSink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{
    Error, ErrorKind, ErrorType, Fields, FinishedReason, Json, ReplyError, Result,
};

/// What the open call is called.
const CALL_KEY: u64 = text_blocks::THINKING_KEY + 1;

pub(super) struct GeminiDecoder {
    call: ModelCall,
    ids: UniqueCallIds,
    /// The call whose arguments come piece by piece.
    partial: Option<PartialCall>,
    /// Tokens written and thought, as far as they are known.
    written: i64,
    thought: i64,
    stopped: bool,
}

#[derive(Default)]
struct PartialCall {
    args: ArgsWriter,
    /// The fields for its block.
    extra: Fields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(default, borrow, deserialize_with = "loose::first")]
    candidates: Option<Box<Candidate<'a>>>,
    #[serde(default, deserialize_with = "loose::object")]
    usage_metadata: Option<Box<Usage>>,
    #[serde(default, borrow, deserialize_with = "loose::object")]
    prompt_feedback: Option<Box<PromptFeedback<'a>>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    model_version: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    response_id: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    create_time: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default, borrow, deserialize_with = "loose::object")]
    content: Option<Box<Content<'a>>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    finish_message: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "loose::int")]
    index: Option<i64>,
    #[serde(default, borrow)]
    grounding_metadata: Option<&'a RawValue>,
    #[serde(default, borrow)]
    url_context_metadata: Option<&'a RawValue>,
    #[serde(default, borrow)]
    citation_metadata: Option<&'a RawValue>,
}

impl loose::Choice for Candidate<'_> {
    fn index(&self) -> Option<i64> {
        self.index
    }
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(default, borrow, deserialize_with = "loose::list")]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default, rename = "promptTokenCount", deserialize_with = "loose::int")]
    prompt: Option<i64>,
    #[serde(default, rename = "candidatesTokenCount", deserialize_with = "loose::int")]
    written: Option<i64>,
    #[serde(default, rename = "thoughtsTokenCount", deserialize_with = "loose::int")]
    thought: Option<i64>,
    #[serde(default, rename = "cachedContentTokenCount", deserialize_with = "loose::int")]
    cached: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    block_reason: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    block_reason_message: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
struct ErrorFields<'a> {
    #[serde(default, deserialize_with = "loose::int")]
    code: Option<i64>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    message: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    status: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    details: Option<&'a RawValue>,
}

impl GeminiDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            ids: UniqueCallIds::default(),
            partial: None,
            written: 0,
            thought: 0,
            stopped: false,
        }
    }

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let frame: Frame<'_> = parse_frame(text)?;
        if !self.call.has_begun() {
            let created = frame.create_time.as_deref().and_then(|at| at.parse().ok());
            let about = ModelCallInfo {
                id: frame.response_id.as_deref().unwrap_or_default(),
                model: frame.model_version.as_deref().unwrap_or_default(),
                created: created.map_or(0, jiff::Timestamp::as_second),
            };
            self.call.begin(about, out);
        }
        let is_known = frame.candidates.is_some()
            || frame.usage_metadata.is_some()
            || frame.prompt_feedback.is_some()
            || frame.response_id.is_some();
        if let Some(usage) = &frame.usage_metadata {
            self.update_usage(usage);
        }
        if let Some(feedback) = &frame.prompt_feedback {
            self.read_prompt_feedback(feedback);
        }
        if let Some(mut candidate) = frame.candidates {
            self.read_candidate(&mut candidate, out);
        }
        match frame.error {
            Some(error) => self.fail(error.get(), out),
            None if !is_known => {
                let value = Json::parse(text).map(CustomValue).unwrap_or_default();
                self.call.emit(Custom { name: NAME.to_owned(), value }, out);
            }
            None => {}
        }
        Ok(())
    }

    fn read_candidate(&mut self, candidate: &mut Candidate<'_>, out: &mut EventSink<'_>) {
        for part in candidate.content.iter_mut().flat_map(|content| &mut content.parts) {
            self.read_part(part, out);
        }
        let kept = [
            ("grounding_metadata", candidate.grounding_metadata),
            ("url_context_metadata", candidate.url_context_metadata),
            ("citation_metadata", candidate.citation_metadata),
        ];
        for (name, value) in kept {
            if let Some(value) = value.and_then(|value| Json::parse(value.get()).ok()) {
                self.call.metadata.insert(name, value);
            }
        }
        if let Some(word) = candidate.finish_reason.as_deref() {
            self.set_finish_reason(word, candidate.finish_message.as_deref());
        }
    }

    fn read_part(&mut self, part: &mut Part<'_>, out: &mut EventSink<'_>) {
        if let Some(call) = part.function_call.take() {
            return self.read_function_call(&call, part, out);
        }
        let is_plain = !part.has_extra();
        if let Some(text) = &part.text {
            if text.is_empty() && is_plain {
                return;
            }
            self.end_partial(out);
            let key = if part.thought { text_blocks::THINKING_KEY } else { text_blocks::TEXT_KEY };
            if text.is_empty() && !part.thought && !self.call.is_open(key) {
                // A signature alone is no text. It goes back as the part that it came in.
                text_blocks::close_text_blocks(&mut self.call, out);
                return self.call.emit_item(part::part_to_item(part), out);
            }
            let said = if part.thought { Segment::Thinking(text) } else { Segment::Text(text) };
            push_segment(&mut self.call, said, out);
            if !is_plain {
                self.call.close_block(key, part.extra(), out);
            }
            return;
        }
        self.end_partial(out);
        text_blocks::close_text_blocks(&mut self.call, out);
        match part.data() {
            Some((media_type, chunk)) => {
                let chunk = match chunk {
                    Chunk::Data(data) => Chunk::Data(Cow::Borrowed(&**data)),
                    Chunk::Url(url) => Chunk::Url(Cow::Borrowed(&**url)),
                };
                let mut extra = part.extra();
                if part.thought {
                    extra.insert("thought", true);
                }
                self.call.emit_data_block("", media_type, chunk, extra, out);
            }
            None if part.is_empty() => {}
            None => self.call.emit_item(part::part_to_item(part), out),
        }
    }

    fn read_function_call(
        &mut self,
        call: &FunctionCall<'_>,
        part: &Part<'_>,
        out: &mut EventSink<'_>,
    ) {
        let name = call.name.as_deref().unwrap_or_default();
        let goes_on = self.partial.is_some() && name.is_empty();
        if !goes_on {
            self.end_partial(out);
            if name.is_empty() && call.args.is_none() && call.partial_args.is_empty() {
                // The end of a call that has ended already.
                return;
            }
            text_blocks::close_text_blocks(&mut self.call, out);
            let id = match call.id.as_deref().unwrap_or_default() {
                "" => self.call.new_id(),
                id => id.to_owned(),
            };
            let id = self.ids.make_unique(id);
            self.call.start_block(CALL_KEY, BlockKind::ToolCall, &id, name, out);
            self.partial = Some(PartialCall::default());
        }
        let Some(partial) = &mut self.partial else { return };
        partial.extra.extend(&part.extra());
        let mut delta = String::new();
        for arg in &call.partial_args {
            let piece = match (&arg.string_value, arg.number_value, arg.bool_value) {
                (Some(text), ..) => Piece::Text(text),
                (None, Some(value), _) | (None, None, Some(value)) => Piece::Whole(value.get()),
                (None, None, None) if arg.null_value => Piece::Whole("null"),
                (None, None, None) => continue,
            };
            let steps = parse_path(arg.json_path.as_deref().unwrap_or_default());
            partial.args.write_piece(&steps, piece, &mut delta);
        }
        match call.args {
            Some(args) if partial.args.is_empty() => {
                self.call.push_delta(CALL_KEY, args.get(), out);
                let extra = std::mem::take(&mut partial.extra);
                self.partial = None;
                self.call.close_block(CALL_KEY, extra, out);
            }
            _ => {
                self.call.push_delta(CALL_KEY, &delta, out);
                if !call.will_continue {
                    self.end_partial(out);
                }
            }
        }
    }

    /// Ends the call whose arguments come piece by piece: they are complete.
    fn end_partial(&mut self, out: &mut EventSink<'_>) {
        if let Some(partial) = self.partial.take() {
            let mut rest = String::new();
            partial.args.finish(&mut rest);
            self.call.push_delta(CALL_KEY, &rest, out);
            self.call.close_block(CALL_KEY, partial.extra, out);
        }
    }

    /// Ends it as it is: the rest never came.
    fn close_partial_unfinished(&mut self, out: &mut EventSink<'_>) {
        if let Some(partial) = self.partial.take() {
            self.call.close_block(CALL_KEY, partial.extra, out);
        }
    }

    fn update_usage(&mut self, usage: &Usage) {
        let set = |slot: &mut i64, count: Option<i64>| match count {
            Some(count) if count > 0 => *slot = count,
            _ => {}
        };
        set(&mut self.call.usage.input_tokens, usage.prompt);
        set(&mut self.call.usage.cache_input_tokens, usage.cached);
        set(&mut self.written, usage.written);
        set(&mut self.thought, usage.thought);
        self.call.usage.output_tokens = self.written.saturating_add(self.thought);
    }

    /// A question that was not answered.
    fn read_prompt_feedback(&mut self, feedback: &PromptFeedback<'_>) {
        let Some(word) = feedback.block_reason.as_deref().filter(|word| !word.is_empty()) else {
            return;
        };
        self.call.metadata.insert("block_reason", word);
        if let Some(message) = feedback.block_reason_message.as_deref() {
            self.call.metadata.insert("block_reason_message", message);
        }
        self.call.finished_reason = Some(FinishedReason::ContentFilter);
    }

    fn set_finish_reason(&mut self, word: &str, message: Option<&str>) {
        if matches!(word, "" | "FINISH_REASON_UNSPECIFIED") {
            return;
        }
        self.call.metadata.insert("finish_reason", word);
        if let Some(message) = message {
            self.call.metadata.insert("finish_message", message);
        }
        self.call.error = None;
        self.stopped = false;
        self.call.finished_reason = Some(match word {
            "MAX_TOKENS" | "CONTINUATION" => FinishedReason::Length,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => FinishedReason::ContentFilter,
            "MALFORMED_FUNCTION_CALL"
            | "MALFORMED_RESPONSE"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MISSING_THOUGHT_SIGNATURE"
            | "LANGUAGE"
            | "NO_IMAGE"
            | "IMAGE_OTHER"
            | "OTHER" => {
                let message = message.map_or_else(
                    || format!("the model stopped with the finish reason {word}"),
                    str::to_owned,
                );
                self.call.error = Some(ReplyError {
                    r#type: ErrorType::Upstream,
                    message,
                    ..ReplyError::default()
                });
                FinishedReason::Error
            }
            _ => {
                self.stopped = true;
                FinishedReason::Completed
            }
        });
    }

    fn fail(&mut self, error: &str, out: &mut EventSink<'_>) {
        self.close_partial_unfinished(out);
        let failure: ErrorFields<'_> = serde_json::from_str(error).unwrap_or_default();
        let status = failure.status.as_deref().unwrap_or_default();
        let details = failure.details.map_or("", RawValue::get);
        if !status.is_empty() {
            self.call.metadata.insert("status", status);
        }
        let r#type = match (status, failure.code.unwrap_or_default()) {
            // A wrong key is an invalid argument there.
            _ if details.contains("API_KEY_INVALID") => ErrorType::Authentication,
            ("RESOURCE_EXHAUSTED", _) | (_, 429) => ErrorType::RateLimit,
            ("UNAUTHENTICATED", _) | (_, 401) => ErrorType::Authentication,
            ("PERMISSION_DENIED", _) | (_, 403) => ErrorType::Permission,
            ("UNAVAILABLE" | "INTERNAL" | "DEADLINE_EXCEEDED" | "ABORTED" | "UNKNOWN", _)
            | (_, 500..) => ErrorType::Upstream,
            (
                "INVALID_ARGUMENT"
                | "FAILED_PRECONDITION"
                | "NOT_FOUND"
                | "OUT_OF_RANGE"
                | "UNIMPLEMENTED",
                _,
            )
            | (_, 400..) => ErrorType::InvalidRequest,
            _ => ErrorType::Unknown,
        };
        let message = failure.message.as_deref().unwrap_or(error).to_owned();
        self.call.fail(ReplyError { r#type, message, ..ReplyError::default() }, out);
    }
}

impl Decode for GeminiDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        // Gemini has no last word, but what stands between may add one.
        if self.call.has_ended() || text == "[DONE]" {
            return Ok(());
        }
        // Without `alt=sse` the frames are the items of a list; an error is one in any case.
        if text.trim_ascii_start().starts_with('[') {
            let frames: Vec<&RawValue> = serde_json::from_str(text)
                .map_err(|error| Error::new(ErrorKind::NotJson, error.to_string()))?;
            return frames.into_iter().try_for_each(|frame| self.read_frame(frame.get(), out));
        }
        self.read_frame(text, out)
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        if self.call.has_ended() {
            return Ok(());
        }
        // Arguments that were cut off stay as they are.
        match self.call.finished_reason {
            Some(FinishedReason::Completed) => self.end_partial(out),
            _ => self.close_partial_unfinished(out),
        }
        // Gemini's word for the end is the same whether tools are to be called or not.
        if self.stopped && !self.ids.is_empty() {
            self.call.finished_reason = Some(FinishedReason::ToolCalls);
        }
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
