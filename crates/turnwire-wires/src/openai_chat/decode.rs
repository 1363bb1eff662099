//! Decodes a stream of chunks into events.

use super::chunk::{CallPiece, Choice, Chunk, Content, Delta, Groq, Part, parse_usage};
use super::error;
use super::parse_logprobs;
use super::stream_blocks::{StreamBlocks, ThinkingOrigin};
use crate::lenient::{Int, Object, parse_object};
use crate::provider::{
    LOGPROBS, ModelCall, ModelCallInfo, ProviderDecoder, Segment, ThinkTagParser, model_call_in,
    parse_frame, reply_error, set_count,
};
use crate::stream::{DecoderOptions, EventSink};
use serde_json::value::RawValue;
use turnwire_core::{ErrorType, Event, EventKind, Fields, FinishedReason, Json, Result};

pub(super) struct ChatDecoder {
    blocks: StreamBlocks,
    think: ThinkTagParser,
    /// The model has refused to answer, in the field `refusal`.
    is_refusal: bool,
    /// There was a delta: a whole message beside or after it only repeats it.
    has_delta: bool,
    /// Log probabilities of tokens whose text has not been emitted.
    logprobs_without_text: Vec<Json>,
}

impl ChatDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            blocks: StreamBlocks::new(ModelCall::new(super::NAME, decoding)),
            think: ThinkTagParser::default(),
            is_refusal: false,
            has_delta: false,
            logprobs_without_text: Vec::new(),
        }
    }
}

impl ProviderDecoder for ChatDecoder {
    model_call_in!(blocks.call);

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let chunk: Chunk<'_> = parse_frame(text)?;
        self.read_chunk(text, &chunk, out);
        Ok(())
    }

    fn read_done(&mut self, out: &mut EventSink<'_>) {
        if self.is_refusal {
            self.blocks.call.finished_reason.get_or_insert_default();
        }
        self.close_at_end(out);
        self.blocks.call.finish(out);
    }

    /// Closes everything that is open.
    fn close_at_end(&mut self, out: &mut EventSink<'_>) {
        if !self.blocks.call.has_begun() {
            return;
        }
        self.flush_think_tags(out);
        self.blocks.close_all(out);
        let reason = &mut self.blocks.call.finished_reason;
        if self.is_refusal && *reason == Some(FinishedReason::Completed) {
            *reason = Some(FinishedReason::Refusal);
        }
    }
}

impl ChatDecoder {
    fn read_chunk(&mut self, text: &str, chunk: &Chunk<'_>, out: &mut EventSink<'_>) {
        let groq: Groq<'_> = parse_object(chunk.x_groq).unwrap_or_default();
        let failed = chunk.error.or(groq.error);
        let is_error = chunk.is_error();
        let choice = chunk.choices.first.is_some();
        if !choice && chunk.usage.is_none() && groq.usage.is_none() && failed.is_none() && !is_error
        {
            if !chunk.choices.others {
                self.blocks.call.emit_unknown_frame(text, out);
            }
            return;
        }

        let call = &mut self.blocks.call;
        if !call.has_begun() {
            let created = chunk.created.0.unwrap_or(0);
            call.begin(ModelCallInfo { id: &chunk.id.0, model: &chunk.model.0, created }, out);
        }
        self.blocks.set_citations(chunk.citations, chunk.search_results);
        self.update_usage(chunk.usage.or(groq.usage));
        for choice in chunk.choices.first.as_deref().into_iter().chain(&chunk.choices.more) {
            self.read_choice(choice, out);
        }
        let mut choices = chunk.choices.first.as_deref().into_iter().chain(&chunk.choices.more);
        if let Some(raw) = failed.or_else(|| choices.find_map(|choice| choice.error)) {
            self.fail(raw, out);
        } else if is_error && let Ok(raw) = serde_json::from_str(text) {
            self.fail(raw, out);
        }
    }

    /// Updates the token counts.
    fn update_usage(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        if let Some(counts) = parse_usage(raw) {
            let known = &mut self.blocks.call.usage;
            set_count(&mut known.input_tokens, Some(counts.input_tokens));
            set_count(&mut known.output_tokens, Some(counts.output_tokens));
            set_count(&mut known.cache_input_tokens, Some(counts.cache_input_tokens));
            let created = counts.cache_creation_input_tokens;
            set_count(&mut known.cache_creation_input_tokens, Some(created));
            if let Ok(json) = Json::parse(raw.get()) {
                self.blocks.call.metadata.insert("usage", json);
            }
        }
    }

    fn read_choice(&mut self, choice: &Choice<'_>, out: &mut EventSink<'_>) {
        let logprobs = choice.logprobs.map(parse_logprobs).unwrap_or_default();
        if logprobs.is_empty() {
            return self.read_content(choice, out);
        }
        // Beside the text of their tokens, too. Text that may be a tag comes later, and they come with it.
        let mut beside = std::mem::take(&mut self.logprobs_without_text);
        beside.extend_from_slice(&logprobs);
        self.read_content(choice, &mut |mut event: Event<'_>| {
            if matches!(event.kind, EventKind::TextBlockDelta(_)) && !beside.is_empty() {
                let logprobs = Json::from_value(&std::mem::take(&mut beside));
                event.metadata.insert_some(LOGPROBS, logprobs.ok());
            }
            out(event);
        });
        self.logprobs_without_text = beside;
        self.blocks.add_logprobs(logprobs);
    }

    fn read_content(&mut self, choice: &Choice<'_>, out: &mut EventSink<'_>) {
        if let Some(delta) = &choice.delta.0 {
            self.has_delta = true;
            self.read_delta(delta, out);
        } else if !self.has_delta
            && let Some(message) = parse_object(choice.message)
        {
            self.has_delta = true;
            self.read_delta(&message, out);
        } else if choice.message.is_none() {
            self.push_text(&choice.text.0, out);
        }
        self.update_usage(choice.usage);
        if !choice.finish_reason.is_empty() || !choice.native_finish_reason.is_empty() {
            self.set_finish_reason(&choice.finish_reason.0, &choice.native_finish_reason.0);
        }
    }

    fn read_delta(&mut self, delta: &Delta<'_>, out: &mut EventSink<'_>) {
        self.read_reasoning(delta, out);
        match &delta.content {
            Content::None => {}
            Content::Text(text) => self.push_text(text, out),
            Content::List(parts) => {
                for raw in parts {
                    self.read_part(raw, out);
                }
            }
        }
        if !delta.refusal.is_empty() {
            self.is_refusal = true;
            self.push_text(&delta.refusal.0, out);
        }
        if let Some(raw) = delta.annotations {
            self.blocks.add_annotations(raw);
        }
        if let Some(audio) = parse_object(delta.audio) {
            self.flush_think_tags(out);
            self.blocks.push_audio(&audio, out);
        }
        if let Some(raw) = delta.images
            && let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(raw.get())
        {
            for raw in parts {
                self.read_part(raw, out);
            }
        }
        for piece in &delta.tool_calls.0 {
            self.flush_think_tags(out);
            self.blocks.push_call_piece(piece, out);
        }
        if let Some(function) = parse_object(delta.function_call) {
            // The obsolete field holds at most one call.
            let index = Int(Some(i64::MIN));
            let piece = CallPiece {
                index,
                function: Object(Some(Box::new(function))),
                ..CallPiece::default()
            };
            self.flush_think_tags(out);
            self.blocks.push_call_piece(&piece, out);
        }
    }

    /// Reads the reasoning once: providers repeat it in two or three fields.
    fn read_reasoning(&mut self, delta: &Delta<'_>, out: &mut EventSink<'_>) {
        if let Some(raw) = delta.reasoning_details.filter(|raw| raw.get() != "[]") {
            self.flush_think_tags(out);
            if self.blocks.push_reasoning_details(raw, out) {
                return;
            }
        }
        let (name, piece) = if delta.reasoning_content.is_empty() {
            ("reasoning", &delta.reasoning)
        } else {
            ("reasoning_content", &delta.reasoning_content)
        };
        if !piece.is_empty() {
            self.flush_think_tags(out);
            self.blocks.push_thinking(&piece.0, ThinkingOrigin::Field(name), out);
        }
    }

    fn push_text(&mut self, piece: &str, out: &mut EventSink<'_>) {
        let Self { blocks, think, .. } = self;
        if !piece.is_empty() {
            think.feed(piece, |segment| push_segment(blocks, segment, out));
        }
    }

    /// Emits text that was held back as a possible `<think>` tag.
    fn flush_think_tags(&mut self, out: &mut EventSink<'_>) {
        let Self { blocks, think, .. } = self;
        think.finish(|segment| push_segment(blocks, segment, out));
    }

    /// Reads a part of content that is a list.
    fn read_part(&mut self, raw: &RawValue, out: &mut EventSink<'_>) {
        let Some(part) = parse_object::<Part<'_>>(Some(raw)) else {
            if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
                self.push_text(&text, out);
            }
            return;
        };
        match &*part.r#type.0 {
            "text" | "output_text" | "" if !part.text.is_empty() => {
                self.push_text(&part.text.0, out);
            }
            "text" | "output_text" | "" => {}
            "refusal" => {
                self.is_refusal = true;
                self.push_text(&part.refusal.0, out);
            }
            "thinking" | "reasoning" => {
                self.flush_think_tags(out);
                let origin = ThinkingOrigin::Field("content");
                match &part.thinking {
                    Content::None => {}
                    Content::Text(text) => self.blocks.push_thinking(text, origin, out),
                    Content::List(parts) => {
                        for raw in parts {
                            if let Some(part) = parse_object::<Part<'_>>(Some(raw)) {
                                self.blocks.push_thinking(&part.text.0, origin, out);
                            }
                        }
                    }
                }
            }
            "image_url" => {
                self.flush_think_tags(out);
                self.blocks.push_image(&part.image_url.0, out);
            }
            _ => {
                if let Ok(item) = serde_json::from_str::<Fields>(raw.get()) {
                    self.flush_think_tags(out);
                    self.blocks.push_item(item, out);
                }
            }
        }
    }

    fn set_finish_reason(&mut self, word: &str, native: &str) {
        let call = &mut self.blocks.call;
        for (key, word) in [("finish_reason", word), ("native_finish_reason", native)] {
            call.metadata.insert_unless_empty(key, word);
        }
        let reason = match FinishedReason::from(native) {
            // Our own encoder writes these, and others that do mean the same.
            native @ (FinishedReason::Interrupted
            | FinishedReason::ExceedMaxIters
            | FinishedReason::Refusal
            | FinishedReason::ToolCalls) => native,
            FinishedReason::Completed
            | FinishedReason::Length
            | FinishedReason::ContentFilter
            | FinishedReason::Error
            | FinishedReason::Truncated
            | FinishedReason::Other(_) => {
                if word.is_empty() {
                    return;
                }
                parse_finish_reason(word)
            }
        };
        if reason == FinishedReason::Error {
            let message = format!("the provider ended the answer with the finish reason `{word}`");
            call.error = Some(reply_error(ErrorType::Upstream, message));
        } else {
            call.error = None;
        }
        call.finished_reason = Some(reason);
    }

    fn fail(&mut self, raw: &RawValue, out: &mut EventSink<'_>) {
        let (error, reason) = error::read_error(raw);
        if let Ok(json) = Json::parse(raw.get()) {
            self.blocks.call.metadata.insert("error", json);
        }
        self.flush_think_tags(out);
        self.blocks.close_all(out);
        self.blocks.call.error = Some(error);
        self.blocks.call.finished_reason = Some(reason);
        self.blocks.call.finish(out);
    }
}

fn push_segment(blocks: &mut StreamBlocks, segment: Segment<'_>, out: &mut EventSink<'_>) {
    match segment {
        Segment::Text(text) => blocks.push_text(text, out),
        Segment::Thinking(text) => blocks.push_thinking(text, ThinkingOrigin::Tags, out),
    }
}

/// Our finish reason for the provider's; an unknown one counts as completed.
fn parse_finish_reason(word: &str) -> FinishedReason {
    match word.to_ascii_lowercase().as_str() {
        // Mistral: the context is full.
        "length" | "max_tokens" | "model_length" => FinishedReason::Length,
        "tool_calls" | "tool_use" | "function_call" => FinishedReason::ToolCalls,
        // Zhipu: `sensitive`.
        "content_filter" | "safety" | "sensitive" | "recitation" => FinishedReason::ContentFilter,
        "refusal" => FinishedReason::Refusal,
        // DeepSeek: `insufficient_system_resource`. Zhipu: `network_error`.
        "error" | "insufficient_system_resource" | "network_error" => FinishedReason::Error,
        _ => FinishedReason::Completed,
    }
}
