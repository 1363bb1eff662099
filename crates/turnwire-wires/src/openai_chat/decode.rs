//! A stream of chunks into events.

use super::blocks::{Blocks, Origin};
use super::chunk::{CallPiece, Choice, Chunk, Content, Delta, Groq, Part, object, usage};
use super::failure;
use super::loose::{Int, Object};
use crate::provider::{About, Call, Segment, Think};
use crate::stream::{Decode, DecoderOptions, EventSink};
use serde_json::value::RawValue;
use turnwire_core::event::{Custom, CustomValue};
use turnwire_core::{Error, ErrorKind, Fields, FinishedReason, Json, ReplyError, Result};

pub(super) struct ChatDecoder {
    blocks: Blocks,
    think: Think,
    /// The model has declined to answer, in a field of its own.
    refused: bool,
    /// There was a delta: a whole message beside it, or behind it, says nothing new.
    delta: bool,
}

impl ChatDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            blocks: Blocks::new(Call::new(super::NAME, decoding)),
            think: Think::default(),
            refused: false,
            delta: false,
        }
    }
}

impl Decode for ChatDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        if self.blocks.call.has_ended() {
            return Ok(());
        }
        if text.trim_ascii() == "[DONE]" {
            if self.refused {
                self.blocks.call.reason.get_or_insert_default();
            }
            self.close(out);
            self.blocks.call.finish(out);
            return Ok(());
        }
        // A list could be read as a struct too, by the places of its values.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(not_an_object(text));
        }
        let chunk: Chunk<'_> =
            serde_json::from_str(text).map_err(|error| unreadable(text, &error))?;
        self.chunk(text, &chunk, out);
        Ok(())
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        if !self.blocks.call.has_ended() {
            self.close(out);
            self.blocks.call.end(out);
        }
        Ok(())
    }

    fn find_reply_id(&self, _text: &str) -> Option<String> {
        Some(self.blocks.call.reply_id().to_owned()).filter(|id| !id.is_empty())
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}

#[cold]
fn not_an_object(text: &str) -> Error {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => Error::new(ErrorKind::NotAnEvent, "a chunk of a chat is an object"),
        Err(error) => Error::new(ErrorKind::NotJson, error.to_string()),
    }
}

#[cold]
fn unreadable(text: &str, error: &serde_json::Error) -> Error {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => Error::new(ErrorKind::NotAnEvent, format!("this is no chunk of a chat: {error}")),
        Err(error) => Error::new(ErrorKind::NotJson, error.to_string()),
    }
}

impl ChatDecoder {
    fn chunk(&mut self, text: &str, chunk: &Chunk<'_>, out: &mut EventSink<'_>) {
        let groq: Groq<'_> = object(chunk.x_groq).unwrap_or_default();
        let failed = chunk.error.or(groq.error);
        let is_error = chunk.is_error();
        let choice = chunk.choices.first.is_some();
        if !choice && chunk.usage.is_none() && groq.usage.is_none() && failed.is_none() && !is_error
        {
            if !chunk.choices.others {
                self.unknown(text, out);
            }
            return;
        }

        let call = &mut self.blocks.call;
        if !call.has_begun() {
            let created = chunk.created.0.unwrap_or(0);
            call.begin(About { id: &chunk.id.0, model: &chunk.model.0, created }, out);
        }
        self.blocks.citations(chunk.citations, chunk.search_results);
        self.usage(chunk.usage.or(groq.usage));
        for choice in chunk.choices.first.as_deref().into_iter().chain(&chunk.choices.more) {
            self.choice(choice, out);
        }
        let mut choices = chunk.choices.first.as_deref().into_iter().chain(&chunk.choices.more);
        if let Some(raw) = failed.or_else(|| choices.find_map(|choice| choice.error)) {
            self.fail(raw, out);
        } else if is_error && let Ok(raw) = serde_json::from_str(text) {
            self.fail(raw, out);
        }
    }

    /// A frame without anything that we know: kept as it is.
    fn unknown(&mut self, text: &str, out: &mut EventSink<'_>) {
        if let Ok(frame) = Json::parse(text) {
            let custom = Custom { name: super::NAME.to_owned(), value: CustomValue(frame) };
            self.blocks.call.emit(custom, out);
        }
    }

    /// The provider's last word on each number counts, unless it says nothing.
    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        if let Some(counts) = usage(raw) {
            let known = &mut self.blocks.call.usage;
            for (known, count) in [
                (&mut known.input_tokens, counts.input_tokens),
                (&mut known.output_tokens, counts.output_tokens),
                (&mut known.cache_input_tokens, counts.cache_input_tokens),
                (&mut known.cache_creation_input_tokens, counts.cache_creation_input_tokens),
            ] {
                if count != 0 {
                    *known = count;
                }
            }
            if let Ok(json) = Json::parse(raw.get()) {
                self.blocks.call.notes.insert("usage", json);
            }
        }
    }

    fn choice(&mut self, choice: &Choice<'_>, out: &mut EventSink<'_>) {
        if let Some(delta) = &choice.delta.0 {
            self.delta = true;
            self.delta(delta, out);
        } else if !self.delta
            && let Some(message) = object(choice.message)
        {
            self.delta = true;
            self.delta(&message, out);
        } else if choice.message.is_none() {
            self.text(&choice.text.0, out);
        }
        self.usage(choice.usage);
        if !choice.finish_reason.is_empty() || !choice.native_finish_reason.is_empty() {
            self.reason(&choice.finish_reason.0, &choice.native_finish_reason.0);
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, out: &mut EventSink<'_>) {
        self.reasoning(delta, out);
        match &delta.content {
            Content::None => {}
            Content::Text(text) => self.text(text, out),
            Content::Parts(parts) => {
                for raw in parts {
                    self.part(raw, out);
                }
            }
        }
        if !delta.refusal.is_empty() {
            self.refused = true;
            self.text(&delta.refusal.0, out);
        }
        if let Some(raw) = delta.annotations {
            self.blocks.annotations(raw);
        }
        if let Some(audio) = object(delta.audio) {
            self.settle(out);
            self.blocks.audio(&audio, out);
        }
        if let Some(raw) = delta.images
            && let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(raw.get())
        {
            for raw in parts {
                self.part(raw, out);
            }
        }
        for piece in &delta.tool_calls.0 {
            self.settle(out);
            self.blocks.call_piece(piece, out);
        }
        if let Some(function) = object(delta.function_call) {
            // There was only ever one.
            let index = Int(Some(i64::MIN));
            let piece = CallPiece {
                index,
                function: Object(Some(Box::new(function))),
                ..CallPiece::default()
            };
            self.settle(out);
            self.blocks.call_piece(&piece, out);
        }
    }

    /// The same reasoning may be in two fields, or in three.
    fn reasoning(&mut self, delta: &Delta<'_>, out: &mut EventSink<'_>) {
        if let Some(raw) = delta.reasoning_details.filter(|raw| raw.get() != "[]") {
            self.settle(out);
            if self.blocks.details(raw, out) {
                return;
            }
        }
        let (name, piece) = if delta.reasoning_content.is_empty() {
            ("reasoning", &delta.reasoning)
        } else {
            ("reasoning_content", &delta.reasoning_content)
        };
        if !piece.is_empty() {
            self.settle(out);
            self.blocks.thinking(&piece.0, Origin::Field(name), out);
        }
    }

    fn text(&mut self, piece: &str, out: &mut EventSink<'_>) {
        let Self { blocks, think, .. } = self;
        if !piece.is_empty() {
            think.feed(piece, |segment| put(blocks, segment, out));
        }
    }

    /// Releases what may have been the beginning of a tag: something else comes now.
    fn settle(&mut self, out: &mut EventSink<'_>) {
        let Self { blocks, think, .. } = self;
        think.end(|segment| put(blocks, segment, out));
    }

    /// A part of a content that is a list.
    fn part(&mut self, raw: &RawValue, out: &mut EventSink<'_>) {
        let Some(part) = object::<Part<'_>>(Some(raw)) else {
            if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
                self.text(&text, out);
            }
            return;
        };
        match &*part.r#type.0 {
            "text" | "output_text" | "" if !part.text.is_empty() => self.text(&part.text.0, out),
            "text" | "output_text" | "" => {}
            "refusal" => {
                self.refused = true;
                self.text(&part.refusal.0, out);
            }
            "thinking" | "reasoning" => {
                self.settle(out);
                let origin = Origin::Field("content");
                match &part.thinking {
                    Content::None => {}
                    Content::Text(text) => self.blocks.thinking(text, origin, out),
                    Content::Parts(parts) => {
                        for raw in parts {
                            if let Some(part) = object::<Part<'_>>(Some(raw)) {
                                self.blocks.thinking(&part.text.0, origin, out);
                            }
                        }
                    }
                }
            }
            "image_url" => {
                self.settle(out);
                self.blocks.image(&part.image_url.0, out);
            }
            _ => {
                if let Ok(item) = serde_json::from_str::<Fields>(raw.get()) {
                    self.settle(out);
                    self.blocks.item(item, out);
                }
            }
        }
    }

    fn reason(&mut self, word: &str, native: &str) {
        let call = &mut self.blocks.call;
        for (key, word) in [("finish_reason", word), ("native_finish_reason", native)] {
            if !word.is_empty() {
                call.notes.insert(key, word);
            }
        }
        let reason = match FinishedReason::from(native) {
            // Only our own encoder, and those that mean the same, say these in their own words.
            native @ (FinishedReason::Interrupted
            | FinishedReason::ExceedMaxIters
            | FinishedReason::Refusal
            | FinishedReason::ToolCalls) => native,
            _ if word.is_empty() => return,
            _ => reason_of(word),
        };
        if reason == FinishedReason::Error {
            call.error = Some(ReplyError {
                r#type: turnwire_core::ErrorType::Upstream,
                message: format!("the provider ended the answer with `{word}`"),
                ..ReplyError::default()
            });
        } else {
            call.error = None;
        }
        call.reason = Some(reason);
    }

    fn fail(&mut self, raw: &RawValue, out: &mut EventSink<'_>) {
        let (error, reason) = failure::read(raw);
        if let Ok(json) = Json::parse(raw.get()) {
            self.blocks.call.notes.insert("error", json);
        }
        self.settle(out);
        self.blocks.close_all(out);
        self.blocks.call.error = Some(error);
        self.blocks.call.reason = Some(reason);
        self.blocks.call.finish(out);
    }

    /// Closes everything, whatever comes then.
    fn close(&mut self, out: &mut EventSink<'_>) {
        if !self.blocks.call.has_begun() {
            return;
        }
        self.settle(out);
        self.blocks.close_all(out);
        let reason = &mut self.blocks.call.reason;
        if self.refused && *reason == Some(FinishedReason::Completed) {
            *reason = Some(FinishedReason::Refusal);
        }
    }
}

fn put(blocks: &mut Blocks, segment: Segment<'_>, out: &mut EventSink<'_>) {
    match segment {
        Segment::Text(text) => blocks.text(text, out),
        Segment::Thinking(text) => blocks.thinking(text, Origin::Tags, out),
    }
}

/// Why it ended; a word that we do not know is an end like any other.
fn reason_of(word: &str) -> FinishedReason {
    match word.to_ascii_lowercase().as_str() {
        // Mistral: the context is full.
        "length" | "max_tokens" | "model_length" => FinishedReason::Length,
        "tool_calls" | "tool_use" | "function_call" => FinishedReason::ToolCalls,
        // Zhipu: `sensitive`.
        "content_filter" | "safety" | "sensitive" | "recitation" => FinishedReason::ContentFilter,
        "refusal" => FinishedReason::Refusal,
        // DeepSeek and Zhipu have words of their own for what is no end of the answer.
        "error" | "insufficient_system_resource" | "network_error" => FinishedReason::Error,
        _ => FinishedReason::Completed,
    }
}
