//! Decodes Gemini's stream into events.
//!
//! Each frame continues `candidates[0].content.parts`. There are no ends of blocks and no last frame: the stream ends with
//! the body, and is complete if a `finishReason` has come.

use super::NAME;
use super::part::{self, FunctionCall, Part};
use super::partial_args::{ArgsWriter, Piece, parse_path};
use crate::lenient::{Alternative, First, Int, List, Object, OptionalText, Raw};
use crate::provider::text_blocks::{self, push_segment};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, ProviderDecoder, Segment, model_call_in, parse_frame,
    reply_error, set_count,
};
use crate::stream::{DecoderOptions, EventSink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::event::Chunk;
use turnwire_core::{Error, ErrorKind, ErrorType, Fields, FinishedReason, Json, Result};

/// The key of the open tool call.
const CALL_KEY: u64 = text_blocks::THINKING_KEY + 1;

pub(super) struct GeminiDecoder {
    call: ModelCall,
    /// The call whose arguments come in pieces.
    partial: Option<PartialCall>,
    /// Output tokens and thinking tokens so far.
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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Frame<'a> {
    candidates: First<Candidate<'a>>,
    usage_metadata: Object<Usage>,
    prompt_feedback: Object<PromptFeedback<'a>>,
    model_version: OptionalText<'a>,
    response_id: OptionalText<'a>,
    create_time: OptionalText<'a>,
    error: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Candidate<'a> {
    content: Object<Content<'a>>,
    finish_reason: OptionalText<'a>,
    finish_message: OptionalText<'a>,
    index: Int,
    grounding_metadata: Raw<'a>,
    url_context_metadata: Raw<'a>,
    citation_metadata: Raw<'a>,
}

impl Alternative for Candidate<'_> {
    fn index(&self) -> Option<i64> {
        self.index.0
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Content<'a> {
    parts: List<Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(rename = "promptTokenCount")]
    prompt: Int,
    #[serde(rename = "candidatesTokenCount")]
    written: Int,
    #[serde(rename = "thoughtsTokenCount")]
    thought: Int,
    #[serde(rename = "cachedContentTokenCount")]
    cached: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PromptFeedback<'a> {
    block_reason: OptionalText<'a>,
    block_reason_message: OptionalText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ErrorFields<'a> {
    code: Int,
    message: OptionalText<'a>,
    status: OptionalText<'a>,
    details: Raw<'a>,
}

impl GeminiDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
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
                id: frame.response_id.or_empty(),
                model: frame.model_version.or_empty(),
                created: created.map_or(0, jiff::Timestamp::as_second),
            };
            self.call.begin(about, out);
        }
        let is_known = frame.candidates.0.is_some()
            || frame.usage_metadata.0.is_some()
            || frame.prompt_feedback.0.is_some()
            || frame.response_id.0.is_some();
        if let Some(usage) = &frame.usage_metadata.0 {
            self.update_usage(usage);
        }
        if let Some(feedback) = &frame.prompt_feedback.0 {
            self.read_prompt_feedback(feedback);
        }
        if let Some(mut candidate) = frame.candidates.0 {
            self.read_candidate(&mut candidate, out);
        }
        match frame.error {
            Some(error) => self.fail(error.get(), out),
            None if !is_known => self.call.emit_unknown_frame(text, out),
            None => {}
        }
        Ok(())
    }

    fn read_candidate(&mut self, candidate: &mut Candidate<'_>, out: &mut EventSink<'_>) {
        for part in candidate.content.0.iter_mut().flat_map(|content| &mut content.parts.0) {
            self.read_part(part, out);
        }
        let kept = [
            ("grounding_metadata", candidate.grounding_metadata),
            ("url_context_metadata", candidate.url_context_metadata),
            ("citation_metadata", candidate.citation_metadata),
        ];
        for (name, value) in kept {
            self.call
                .metadata
                .insert_some(name, value.and_then(|value| Json::parse(value.get()).ok()));
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
                // A signature without text is not a text block. It is kept as an item and sent back as the part that it was.
                text_blocks::close_text_blocks(&mut self.call, out);
                return self.call.emit_item(part::part_to_item(part), out);
            }
            let segment = if part.thought { Segment::Thinking(text) } else { Segment::Text(text) };
            push_segment(&mut self.call, segment, out);
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
        let name = call.name.or_empty();
        let goes_on = self.partial.is_some() && name.is_empty();
        if !goes_on {
            self.end_partial(out);
            if name.is_empty() && call.args.is_none() && call.partial_args.0.is_empty() {
                // The end of a call that has already ended.
                return;
            }
            text_blocks::close_text_blocks(&mut self.call, out);
            self.call.start_block(CALL_KEY, BlockKind::ToolCall, call.id.or_empty(), name, out);
            self.partial = Some(PartialCall::default());
        }
        let Some(partial) = &mut self.partial else { return };
        partial.extra.extend(&part.extra());
        let mut delta = String::new();
        for arg in &call.partial_args.0 {
            let piece = match (&arg.string_value.0, arg.number_value, arg.bool_value) {
                (Some(text), ..) => Piece::Text(text),
                (None, Some(value), _) | (None, None, Some(value)) => Piece::Whole(value.get()),
                (None, None, None) if arg.null_value.0 => Piece::Whole("null"),
                (None, None, None) => continue,
            };
            let steps = parse_path(arg.json_path.or_empty());
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
                if !call.will_continue.0 {
                    self.end_partial(out);
                }
            }
        }
    }

    /// Completes the call whose arguments come in pieces.
    fn end_partial(&mut self, out: &mut EventSink<'_>) {
        if let Some(partial) = self.partial.take() {
            let mut rest = String::new();
            partial.args.finish(&mut rest);
            self.call.push_delta(CALL_KEY, &rest, out);
            self.call.close_block(CALL_KEY, partial.extra, out);
        }
    }

    /// Closes it without completing its arguments: the rest never came.
    fn close_partial_unfinished(&mut self, out: &mut EventSink<'_>) {
        if let Some(partial) = self.partial.take() {
            self.call.close_block(CALL_KEY, partial.extra, out);
        }
    }

    fn update_usage(&mut self, usage: &Usage) {
        set_count(&mut self.call.usage.input_tokens, usage.prompt.0);
        set_count(&mut self.call.usage.cache_input_tokens, usage.cached.0);
        set_count(&mut self.written, usage.written.0);
        set_count(&mut self.thought, usage.thought.0);
        self.call.usage.output_tokens = self.written.saturating_add(self.thought);
    }

    /// Reads why the prompt was blocked.
    fn read_prompt_feedback(&mut self, feedback: &PromptFeedback<'_>) {
        let Some(word) = feedback.block_reason.as_deref().filter(|word| !word.is_empty()) else {
            return;
        };
        self.call.metadata.insert("block_reason", word);
        self.call
            .metadata
            .insert_some("block_reason_message", feedback.block_reason_message.as_deref());
        self.call.finished_reason = Some(FinishedReason::ContentFilter);
    }

    fn set_finish_reason(&mut self, word: &str, message: Option<&str>) {
        if matches!(word, "" | "FINISH_REASON_UNSPECIFIED") {
            return;
        }
        self.call.metadata.insert("finish_reason", word);
        self.call.metadata.insert_some("finish_message", message);
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
                self.call.error = Some(reply_error(ErrorType::Upstream, message));
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
        let status = failure.status.or_empty();
        let details = failure.details.map_or("", RawValue::get);
        self.call.metadata.insert_unless_empty("status", status);
        let r#type = match (status, failure.code.0.unwrap_or_default()) {
            // Gemini reports a wrong key as an invalid argument.
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
        self.call.fail(reply_error(r#type, message), out);
    }
}

impl ProviderDecoder for GeminiDecoder {
    model_call_in!(call);

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        // Without `alt=sse` the frames are items of a list. An error always is.
        if text.trim_ascii_start().starts_with('[') {
            let frames: Vec<&RawValue> = serde_json::from_str(text)
                .map_err(|error| Error::new(ErrorKind::NotJson, error.to_string()))?;
            return frames.into_iter().try_for_each(|frame| self.read_frame(frame.get(), out));
        }
        self.read_frame(text, out)
    }

    fn close_at_end(&mut self, out: &mut EventSink<'_>) {
        // Truncated arguments are not completed.
        if self.call.finished_reason == Some(FinishedReason::Completed) {
            self.end_partial(out);
        } else {
            self.close_partial_unfinished(out);
        }
        // Gemini's finish reason is the same with and without tool calls.
        if self.stopped && self.call.tool_calls() > 0 {
            self.call.finished_reason = Some(FinishedReason::ToolCalls);
        }
    }
}
