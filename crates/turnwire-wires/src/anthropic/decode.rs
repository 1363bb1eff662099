//! Anthropic's stream as events.

use super::NAME;
use super::content::{REDACTED, read_data};
use super::frame::{Delta, FRAMES, Frame, Message, Number, Object, Problem, Rest, Usage, Word};
use crate::provider::{About, Call, Kind};
use crate::stream::{self, Decode, EventSink};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use turnwire_core::event::{Chunk, Custom, CustomValue, TokenCounts};
use turnwire_core::{
    DataBlock, Error, ErrorKind, ErrorType, Fields, FinishedReason, Json, ReplyError, Result,
    Source,
};

/// Where the blocks begin that a message has from its start: beyond any index.
const WHOLE: u64 = 1 << 63;

pub(super) struct Decoding {
    call: Call,
    /// The id of the message that the frames belong to.
    message: String,
    /// The blocks that are open, by their index.
    blocks: BTreeMap<u64, Block>,
    /// The block that a frame without an index is about.
    last: u64,
    /// The ids of calls and items so far.
    ids: HashSet<String>,
}

/// What is known of an open block beside what was handed on.
enum Block {
    Text {
        citations: Vec<Json>,
        extra: Fields,
    },
    /// The signature, or the bytes of what is redacted, is in the fields.
    Thinking {
        extra: Fields,
    },
    /// The arguments that came with the start, which count as long as no others follow.
    Call {
        input: Option<Json>,
        extra: Fields,
    },
    Item(Item),
}

/// An item that only Anthropic knows, as it stood at its start, and what it grew by.
struct Item {
    fields: Fields,
    input: String,
    texts: Vec<(String, String)>,
}

impl Decoding {
    pub(super) fn new(decoding: &stream::DecoderOptions) -> Self {
        Self {
            call: Call::new(NAME, decoding),
            message: String::new(),
            blocks: BTreeMap::new(),
            last: 0,
            ids: HashSet::new(),
        }
    }
}

impl Decode for Decoding {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        // Other providers' word; here it says nothing.
        if text == "[DONE]" {
            return Ok(());
        }
        let frame: Frame<'_> = serde_json::from_str(text).map_err(|error| not_a_frame(&error))?;
        if self.call.has_ended() {
            return Ok(());
        }
        if frame.r#type.0 == "content_block_delta" && !self.call.has_stopped() {
            self.block_delta(&frame, text, out);
            return Ok(());
        }
        self.other_frame(&frame, text, out)
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        self.close_blocks(out);
        if !self.call.has_stopped() {
            // Only `message_stop` says that nothing is missing, whatever the reason was to be.
            self.call.reason = None;
        }
        self.call.end(out);
        Ok(())
    }

    fn find_reply_id(&self, _: &str) -> Option<String> {
        self.call.has_begun().then(|| self.call.reply_id().to_owned())
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}

impl Decoding {
    fn other_frame(&mut self, frame: &Frame<'_>, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let rest: Rest<'_> = loose(text);
        match &*frame.r#type.0 {
            "message_start" => {
                self.message_start(&loose(rest.message.map_or("{}", RawValue::get)), out);
            }
            // An answer that is no stream.
            "message" => {
                self.message_start(&loose(text), out);
                self.close_blocks(out);
                self.call.stop(out);
            }
            "ping" => {}
            // Behind the end of a message there is nothing but another message.
            word if self.call.has_stopped() && (word.is_empty() || FRAMES.contains(&word)) => {}
            "content_block_start" => {
                let key = self.key(frame.index);
                self.block_start(key, rest.content_block, out);
            }
            "content_block_stop" => {
                let key = self.key(frame.index);
                self.block_stop(key, out);
            }
            "message_delta" => self.message_delta(&rest, out),
            "message_stop" => {
                self.call.begin(About::default(), out);
                self.close_blocks(out);
                self.call.stop(out);
            }
            "error" => self.error(&rest, out),
            "" if rest.error.is_some() => self.error(&rest, out),
            "" => return Err(Error::new(ErrorKind::NotAnEvent, "the frame has no `type`")),
            _ => self.unknown(text, out),
        }
        Ok(())
    }

    /// A frame of a later version, as it is.
    fn unknown(&self, text: &str, out: &mut EventSink<'_>) {
        if let Ok(value) = Json::parse(text) {
            self.call.emit(Custom { name: NAME.to_owned(), value: CustomValue(value) }, out);
        }
    }
}

fn not_a_frame(error: &serde_json::Error) -> Error {
    let kind = if error.is_data() { ErrorKind::NotAnEvent } else { ErrorKind::NotJson };
    Error::new(kind, error.to_string())
}

fn loose<'a, T: serde::Deserialize<'a> + Default>(text: &'a str) -> T {
    serde_json::from_str::<Object<T>>(text).map(|object| object.0).unwrap_or_default()
}

impl Decoding {
    fn key(&self, index: Number) -> u64 {
        index.0.and_then(|index| u64::try_from(index).ok()).unwrap_or(self.last)
    }

    fn message_start(&mut self, message: &Message<'_>, out: &mut EventSink<'_>) {
        let goes_on = self.call.has_begun() && !self.call.has_stopped();
        if goes_on && (message.id.0.is_empty() || message.id.0 == self.message) {
            // The same start again.
            return;
        }
        if goes_on && !self.message.is_empty() {
            // Another message spliced in: somebody on the way has lost the first and asked again.
            // Both together could not be sent back, so the first is taken back.
            self.close_blocks(out);
            self.call.abandon(out);
        }
        self.message = message.id.0.to_string();
        self.call.begin(About { id: &message.id.0, model: &message.model.0, created: 0 }, out);
        self.usage(message.usage);
        let whole: Vec<&RawValue> = message
            .content
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for (key, raw) in (WHOLE..).zip(whole) {
            self.block_start(key, Some(raw), out);
            self.block_stop(key, out);
        }
        self.stopped(&message.stop_reason, &message.stop_sequence);
        self.note("stop_details", message.stop_details);
        self.note("container", message.container);
    }

    fn message_delta(&mut self, frame: &Rest<'_>, out: &mut EventSink<'_>) {
        self.call.begin(About::default(), out);
        let delta = &frame.delta.0;
        self.usage(frame.usage);
        self.stopped(&delta.stop_reason, &delta.stop_sequence);
        self.note("stop_details", delta.stop_details);
        self.note("container", delta.container);
        self.note("context_management", frame.context_management);
    }

    fn stopped(&mut self, why: &Word<'_>, sequence: &Word<'_>) {
        if !why.0.is_empty() {
            self.call.reason = Some(reason(&why.0));
            self.call.notes.insert("stop_reason", &*why.0);
        }
        if !sequence.0.is_empty() {
            self.call.notes.insert("stop_sequence", &*sequence.0);
        }
    }

    fn note(&mut self, name: &str, raw: Option<&RawValue>) {
        if let Some(json) = raw.and_then(|raw| Json::parse(raw.get()).ok())
            && !json.is_null()
        {
            self.call.notes.insert(name, json);
        }
    }

    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        count(raw.get(), &mut self.call.usage);
        // What we do not count: server tools, the calls of a fallback, the kinds of cache.
        let mut rest: Fields = serde_json::from_str(raw.get()).unwrap_or_default();
        for name in COUNTERS {
            rest.remove(name);
        }
        if let Ok(rest) = Json::from_value(&rest)
            && rest.text() != "{}"
        {
            self.call.notes.insert("usage", rest);
        }
    }

    fn error(&mut self, frame: &Rest<'_>, out: &mut EventSink<'_>) {
        let raw = frame.error.map_or("", RawValue::get);
        let problem: Problem<'_> = loose(raw);
        let mut message = problem.message.0.into_owned();
        if message.is_empty() && problem.r#type.0.is_empty() {
            // Whatever there is, as it stands.
            message = serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned());
        }
        if !problem.r#type.0.is_empty() {
            self.call.notes.insert("error_type", &*problem.r#type.0);
        }
        if !frame.request_id.0.is_empty() {
            self.call.notes.insert("request_id", &*frame.request_id.0);
        }
        self.close_blocks(out);
        let r#type = error_type(&problem.r#type.0);
        self.call.fail(ReplyError { r#type, message, ..ReplyError::default() }, out);
    }
}

/// Blocks.
impl Decoding {
    fn block_start(&mut self, key: u64, raw: Option<&RawValue>, out: &mut EventSink<'_>) {
        self.call.begin(About::default(), out);
        self.block_stop(key, out);
        self.last = key;
        let mut fields: Fields =
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        if fields.is_empty() {
            // What it is, its first delta will tell.
            return;
        }
        let word = fields.get::<String>("type").ok().flatten().unwrap_or_default();
        let block = match word.as_str() {
            "text" => {
                let text = string(&mut fields, "text");
                let citations = fields.take("citations").ok().flatten().unwrap_or_default();
                self.begin_block(key, Kind::Text, &text, out);
                Block::Text { citations, extra: without_type(fields) }
            }
            "thinking" => {
                let text = string(&mut fields, "thinking");
                self.begin_block(key, Kind::Thinking, &text, out);
                let signature = string(&mut fields, "signature");
                let mut extra = without_type(fields);
                if !signature.is_empty() {
                    extra.insert("signature", signature);
                }
                Block::Thinking { extra }
            }
            "redacted_thinking" => {
                let data = string(&mut fields, "data");
                self.begin_block(key, Kind::Thinking, "", out);
                let mut extra = without_type(fields);
                extra.insert(REDACTED, data);
                Block::Thinking { extra }
            }
            "tool_use" => {
                let id = string(&mut fields, "id");
                let id = self.own_id(id);
                let name = string(&mut fields, "name");
                // No arguments at all are `{}`, and so is an empty string of them.
                let input = match fields.remove("input") {
                    Some(json) if !json.is_null() && json.text() != "\"\"" => json,
                    _ => Json::from(serde_json::Map::new()),
                };
                self.call.start(key, Kind::Call, &id, &name, out);
                Block::Call { input: Some(input), extra: without_type(fields) }
            }
            _ => Block::Item(Item { fields, input: String::new(), texts: Vec::new() }),
        };
        self.blocks.insert(key, block);
    }

    fn begin_block(&mut self, key: u64, kind: Kind, text: &str, out: &mut EventSink<'_>) {
        self.call.start(key, kind, "", "", out);
        self.call.delta(key, text, out);
    }

    /// The id of a call, or another one where it is missing or taken.
    fn own_id(&mut self, id: String) -> String {
        let first = if id.is_empty() { self.call.new_id() } else { id };
        let mut id = first.clone();
        let mut copy = 1;
        while !self.ids.insert(id.clone()) {
            copy += 1;
            id = format!("{first}-{copy}");
        }
        id
    }

    #[inline]
    fn block_delta(&mut self, frame: &Frame<'_>, text: &str, out: &mut EventSink<'_>) {
        let key = self.key(frame.index);
        let delta = &frame.delta.0;
        if delta.r#type.0 == "text_delta" && self.call.delta_of(key, Kind::Text, &delta.text.0, out)
        {
            return;
        }
        self.other_delta(key, delta, text, out);
    }

    fn other_delta(&mut self, key: u64, delta: &Delta<'_>, text: &str, out: &mut EventSink<'_>) {
        if !self.blocks.contains_key(&key) {
            self.missed_start(key, &delta.r#type.0, out);
        }
        let Some(block) = self.blocks.get_mut(&key) else { return self.unknown(text, out) };
        match (block, &*delta.r#type.0) {
            (Block::Text { .. }, "text_delta") => {
                self.call.delta(key, &delta.text.0, out);
            }
            (Block::Text { citations, .. }, "citations_delta") => {
                let rest: Rest<'_> = loose(text);
                let citation = rest.delta.0.citation.and_then(|raw| Json::parse(raw.get()).ok());
                citations.extend(citation.filter(|json| !json.is_null()));
            }
            (Block::Thinking { .. }, "thinking_delta") => {
                self.call.delta(key, &delta.thinking.0, out);
            }
            (Block::Thinking { extra }, "signature_delta") => {
                let rest: Rest<'_> = loose(text);
                if !rest.delta.0.signature.0.is_empty() {
                    extra.insert("signature", &*rest.delta.0.signature.0);
                }
            }
            (Block::Call { input, .. }, "input_json_delta") if !delta.partial_json.0.is_empty() => {
                *input = None;
                self.call.delta(key, &delta.partial_json.0, out);
            }
            (Block::Item(item), "input_json_delta") => item.input.push_str(&delta.partial_json.0),
            (Block::Item(item), _) => item.grow(text),
            // Nothing, or a delta that this block cannot have.
            (_, word) if word.is_empty() || DELTAS.contains(&word) => {}
            _ => self.unknown(text, out),
        }
    }

    /// A delta for a block whose start was never seen: what the block is can be told from it.
    fn missed_start(&mut self, key: u64, delta: &str, out: &mut EventSink<'_>) {
        let block = match delta {
            "text_delta" | "citations_delta" => r#"{"type":"text"}"#,
            "thinking_delta" | "signature_delta" => r#"{"type":"thinking"}"#,
            "input_json_delta" => r#"{"type":"tool_use"}"#,
            _ => return,
        };
        let raw = serde_json::from_str(block).ok();
        self.block_start(key, raw, out);
    }

    fn block_stop(&mut self, key: u64, out: &mut EventSink<'_>) {
        match self.blocks.remove(&key) {
            Some(Block::Text { citations, mut extra }) => {
                if !citations.is_empty()
                    && let Ok(citations) = Json::from_value(&citations)
                {
                    extra.insert("citations", citations);
                }
                self.call.close(key, extra, out);
            }
            Some(Block::Thinking { extra }) => self.call.close(key, extra, out),
            Some(Block::Call { input, extra }) => {
                if let Some(input) = input {
                    self.call.delta(key, input.text(), out);
                }
                self.call.close(key, extra, out);
            }
            Some(Block::Item(item)) => self.item(item.whole(), out),
            None => {}
        }
    }

    fn item(&mut self, item: Fields, out: &mut EventSink<'_>) {
        if let Some(block) = read_data(&item) {
            return self.data(&block, out);
        }
        let id = item.get::<String>("id").ok().flatten().unwrap_or_default();
        if id.is_empty() || self.ids.insert(id) {
            self.call.item(item, out);
        } else {
            self.call.item_again(&item, out);
        }
    }

    fn data(&mut self, block: &DataBlock, out: &mut EventSink<'_>) {
        let chunk = match &block.source {
            Source::Base64(source) => Chunk::Data(source.data.as_str().into()),
            Source::Url(source) => Chunk::Url(source.url.as_str().into()),
            Source::Other(_) => return,
        };
        self.call.data("", block.media_type(), chunk, Fields::default(), out);
    }

    /// Ends every open block, in the order of their indexes.
    fn close_blocks(&mut self, out: &mut EventSink<'_>) {
        let mut keys: Vec<u64> = self.blocks.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.block_stop(key, out);
        }
    }
}

/// Takes a string out; anything else is none.
fn string(fields: &mut Fields, key: &str) -> String {
    fields.take(key).ok().flatten().unwrap_or_default()
}

/// What a block has that we do not know.
fn without_type(mut fields: Fields) -> Fields {
    fields.remove("type");
    fields
}

impl Item {
    /// A delta for an item of which nobody knows how it grows: text goes on with the text of the same
    /// name, and anything else replaces what was there.
    fn grow(&mut self, frame: &str) {
        let delta = serde_json::from_str::<Fields>(frame).ok();
        let Some(delta) = delta.and_then(|frame| frame.get::<Fields>("delta").ok()?) else {
            return;
        };
        for (name, value) in delta.iter().filter(|(name, _)| *name != "type") {
            match value.parse_as::<String>() {
                Ok(text) => self.append(name, &text),
                Err(_) if value.is_null() => {}
                Err(_) => self.fields.insert(name, value.clone()),
            }
        }
    }

    fn append(&mut self, name: &str, more: &str) {
        if let Some((_, text)) = self.texts.iter_mut().find(|(known, _)| known == name) {
            return text.push_str(more);
        }
        let mut text = self.fields.get::<String>(name).ok().flatten().unwrap_or_default();
        text.push_str(more);
        self.texts.push((name.to_owned(), text));
    }

    fn whole(mut self) -> Fields {
        for (name, text) in self.texts {
            self.fields.insert(name, text);
        }
        if !self.input.is_empty() {
            let input = Json::parse(&self.input).unwrap_or_else(|_| self.input.into());
            self.fields.insert("input", input);
        }
        self.fields
    }
}

/// The types of deltas that we know.
const DELTAS: [&str; 5] =
    ["text_delta", "thinking_delta", "signature_delta", "citations_delta", "input_json_delta"];

const COUNTERS: [&str; 4] =
    ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];

/// Takes over the tokens that were counted. The last word counts, but a 0 takes nothing back.
pub(super) fn count(usage: &str, counts: &mut TokenCounts) {
    let usage: Usage = loose(usage);
    let set = |count: &mut i64, number: Number| {
        if let Some(number) = number.0.filter(|number| *number != 0) {
            *count = number;
        }
    };
    set(&mut counts.input_tokens, usage.input);
    set(&mut counts.output_tokens, usage.output);
    set(&mut counts.cache_input_tokens, usage.cache_read);
    set(&mut counts.cache_creation_input_tokens, usage.cache_creation);
}

/// Anthropic's word for the end of a message in ours. A turn that is paused is one of the model's
/// that came to its end; the word itself is in the notes.
pub(super) fn reason(word: &str) -> FinishedReason {
    match word {
        "max_tokens" | "model_context_window_exceeded" => FinishedReason::Length,
        "tool_use" => FinishedReason::ToolCalls,
        "refusal" => FinishedReason::Refusal,
        _ => FinishedReason::Completed,
    }
}

fn error_type(word: &str) -> ErrorType {
    match word {
        "authentication_error" => ErrorType::Authentication,
        "permission_error" | "billing_error" => ErrorType::Permission,
        "rate_limit_error" => ErrorType::RateLimit,
        "invalid_request_error" | "not_found_error" | "request_too_large" => {
            ErrorType::InvalidRequest
        }
        "api_error" | "overloaded_error" | "timeout_error" | "gateway_timeout_error" => {
            ErrorType::Upstream
        }
        _ => ErrorType::Unknown,
    }
}
