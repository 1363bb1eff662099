//! Decodes Anthropic's stream into events.

use super::NAME;
use super::content::{REDACTED_FIELD, read_data};
use super::frame::{Delta, ErrorFields, Frame, KNOWN_FRAMES, Message, OtherFields, Usage};
use crate::lenient::{Int, Text, parse_text};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, ProviderDecoder, model_call_in, parse_frame, reply_error,
    set_count,
};
use crate::stream::{self, EventSink};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use turnwire_core::event::TokenCounts;
use turnwire_core::{DataBlock, Error, ErrorKind, ErrorType, Fields, FinishedReason, Json, Result};

/// The first key of the blocks that come whole in `message_start`: beyond any index.
const FIRST_WHOLE_KEY: u64 = 1 << 63;

pub(super) struct AnthropicDecoder {
    call: ModelCall,
    /// The id of the current message.
    message: String,
    /// The open blocks, by index.
    blocks: BTreeMap<u64, OpenBlock>,
    /// The index of the last block, for frames without an index.
    last: u64,
    /// The ids of tool calls and items so far.
    ids: HashSet<String>,
}

/// What is known about an open block and not emitted yet.
enum OpenBlock {
    Text {
        citations: Vec<Json>,
        extra: Fields,
    },
    /// The signature or the redacted bytes are in `extra`.
    Thinking {
        extra: Fields,
    },
    /// The input that came with the start. It counts only if no input deltas follow.
    ToolCall {
        input: Option<Json>,
        extra: Fields,
    },
    Item(OpenItem),
}

/// An item that only Anthropic knows: its fields at the start, and what its deltas added.
struct OpenItem {
    fields: Fields,
    input: String,
    texts: Vec<(String, String)>,
}

impl AnthropicDecoder {
    pub(super) fn new(decoding: &stream::DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            message: String::new(),
            blocks: BTreeMap::new(),
            last: 0,
            ids: HashSet::new(),
        }
    }
}

impl ProviderDecoder for AnthropicDecoder {
    model_call_in!(call);

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let frame: Frame<'_> = parse_frame(text)?;
        if frame.r#type.0 == "content_block_delta" && !self.call.is_between_calls() {
            self.block_delta(&frame, text, out);
            return Ok(());
        }
        self.rare_frame(&frame, text, out)
    }

    fn close_at_end(&mut self, out: &mut EventSink<'_>) {
        self.close_blocks(out);
        if !self.call.is_between_calls() {
            // Without `message_stop` the message is incomplete, even if it has a stop reason.
            self.call.finished_reason = None;
        }
    }
}

impl AnthropicDecoder {
    fn rare_frame(&mut self, frame: &Frame<'_>, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let rest: OtherFields<'_> = parse_text(text);
        match &*frame.r#type.0 {
            "message_start" => {
                self.message_start(&parse_text(rest.message.map_or("{}", RawValue::get)), out);
            }
            // A response without streaming.
            "message" => {
                self.message_start(&parse_text(text), out);
                self.close_blocks(out);
                self.call.end_call(out);
            }
            "ping" => {}
            // After the end of a message only another message may follow.
            word if self.call.is_between_calls()
                && (word.is_empty() || KNOWN_FRAMES.contains(&word)) => {}
            "content_block_start" => {
                let key = self.block_key(frame.index);
                self.block_start(key, rest.content_block, out);
            }
            "content_block_stop" => {
                let key = self.block_key(frame.index);
                self.block_stop(key, out);
            }
            "message_delta" => self.message_delta(&rest, out),
            "message_stop" => {
                self.call.begin(ModelCallInfo::default(), out);
                self.close_blocks(out);
                self.call.end_call(out);
            }
            "error" => self.fail(&rest, out),
            "" if rest.error.is_some() => self.fail(&rest, out),
            "" => return Err(Error::new(ErrorKind::NotAnEvent, "the frame has no `type`")),
            _ => self.call.emit_unknown_frame(text, out),
        }
        Ok(())
    }
}

impl AnthropicDecoder {
    fn block_key(&self, index: Int) -> u64 {
        index.0.and_then(|index| u64::try_from(index).ok()).unwrap_or(self.last)
    }

    fn message_start(&mut self, message: &Message<'_>, out: &mut EventSink<'_>) {
        let goes_on = self.call.has_begun() && !self.call.is_between_calls();
        if goes_on && (message.id.0.is_empty() || message.id.0 == self.message) {
            // A repeated start.
            return;
        }
        if goes_on && !self.message.is_empty() {
            // A proxy lost the first message and requested another. Both together could not be sent back to Anthropic,
            // so the first one is discarded.
            self.close_blocks(out);
            self.call.discard_call(out);
        }
        self.message = message.id.0.to_string();
        self.call
            .begin(ModelCallInfo { id: &message.id.0, model: &message.model.0, created: 0 }, out);
        self.update_usage(message.usage);
        let whole: Vec<&RawValue> = message
            .content
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for (key, raw) in (FIRST_WHOLE_KEY..).zip(whole) {
            self.block_start(key, Some(raw), out);
            self.block_stop(key, out);
        }
        self.set_stop_reason(&message.stop_reason, &message.stop_sequence);
        self.keep_metadata("stop_details", message.stop_details);
        self.keep_metadata("container", message.container);
    }

    fn message_delta(&mut self, frame: &OtherFields<'_>, out: &mut EventSink<'_>) {
        self.call.begin(ModelCallInfo::default(), out);
        let delta = &frame.delta.0;
        self.update_usage(frame.usage);
        self.set_stop_reason(&delta.stop_reason, &delta.stop_sequence);
        self.keep_metadata("stop_details", delta.stop_details);
        self.keep_metadata("container", delta.container);
        self.keep_metadata("context_management", frame.context_management);
    }

    fn set_stop_reason(&mut self, why: &Text<'_>, sequence: &Text<'_>) {
        if !why.0.is_empty() {
            self.call.finished_reason = Some(parse_stop_reason(&why.0));
            self.call.metadata.insert("stop_reason", &*why.0);
        }
        self.call.metadata.insert_unless_empty("stop_sequence", &sequence.0);
    }

    fn keep_metadata(&mut self, name: &str, raw: Option<&RawValue>) {
        if let Some(json) = raw.and_then(|raw| Json::parse(raw.get()).ok())
            && !json.is_null()
        {
            self.call.metadata.insert(name, json);
        }
    }

    fn update_usage(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        update_token_counts(raw.get(), &mut self.call.usage);
        // Other counters, such as those of server tools, fallbacks and cache types, are kept as metadata.
        let mut rest: Fields = serde_json::from_str(raw.get()).unwrap_or_default();
        for name in COUNTERS {
            rest.remove(name);
        }
        if let Ok(rest) = Json::from_value(&rest)
            && rest.text() != "{}"
        {
            self.call.metadata.insert("usage", rest);
        }
    }

    fn fail(&mut self, frame: &OtherFields<'_>, out: &mut EventSink<'_>) {
        let raw = frame.error.map_or("", RawValue::get);
        let problem: ErrorFields<'_> = parse_text(raw);
        let mut message = problem.message.0.into_owned();
        if message.is_empty() && problem.r#type.0.is_empty() {
            // An unknown format: use all of it as the message.
            message = serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned());
        }
        if !problem.r#type.0.is_empty() {
            self.call.metadata.insert("error_type", &*problem.r#type.0);
        }
        self.call.metadata.insert_unless_empty("request_id", &frame.request_id.0);
        self.close_blocks(out);
        self.call.fail(reply_error(error_type(&problem.r#type.0), message), out);
    }
}

/// Blocks.
impl AnthropicDecoder {
    fn block_start(&mut self, key: u64, raw: Option<&RawValue>, out: &mut EventSink<'_>) {
        self.call.begin(ModelCallInfo::default(), out);
        self.block_stop(key, out);
        self.last = key;
        let mut fields: Fields =
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        if fields.is_empty() {
            // The first delta will show what type it is.
            return;
        }
        let word = fields.get::<String>("type").ok().flatten().unwrap_or_default();
        let block = match word.as_str() {
            "text" => {
                let text = take_string(&mut fields, "text");
                let citations = fields.take("citations").ok().flatten().unwrap_or_default();
                self.begin_block(key, BlockKind::Text, &text, out);
                OpenBlock::Text { citations, extra: without_type(fields) }
            }
            "thinking" => {
                let text = take_string(&mut fields, "thinking");
                self.begin_block(key, BlockKind::Thinking, &text, out);
                let signature = take_string(&mut fields, "signature");
                let mut extra = without_type(fields);
                extra.insert_unless_empty("signature", &signature);
                OpenBlock::Thinking { extra }
            }
            "redacted_thinking" => {
                let data = take_string(&mut fields, "data");
                self.begin_block(key, BlockKind::Thinking, "", out);
                let mut extra = without_type(fields);
                extra.insert(REDACTED_FIELD, data);
                OpenBlock::Thinking { extra }
            }
            "tool_use" => {
                let id = take_string(&mut fields, "id");
                let id = self.unique_id(id);
                let name = take_string(&mut fields, "name");
                // Missing and empty arguments are `{}`.
                let input = match fields.remove("input") {
                    Some(json) if !json.is_null() && json.text() != "\"\"" => json,
                    _ => Json::from(serde_json::Map::new()),
                };
                self.call.start_block(key, BlockKind::ToolCall, &id, &name, out);
                OpenBlock::ToolCall { input: Some(input), extra: without_type(fields) }
            }
            _ => OpenBlock::Item(OpenItem { fields, input: String::new(), texts: Vec::new() }),
        };
        self.blocks.insert(key, block);
    }

    fn begin_block(&mut self, key: u64, kind: BlockKind, text: &str, out: &mut EventSink<'_>) {
        self.call.start_block(key, kind, "", "", out);
        self.call.push_delta(key, text, out);
    }

    /// The id of a call; another one if it is missing or used.
    fn unique_id(&mut self, id: String) -> String {
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
        let key = self.block_key(frame.index);
        let delta = &frame.delta.0;
        if delta.r#type.0 == "text_delta"
            && self.call.push_delta_of_kind(key, BlockKind::Text, &delta.text.0, out)
        {
            return;
        }
        self.other_delta(key, delta, text, out);
    }

    fn other_delta(&mut self, key: u64, delta: &Delta<'_>, text: &str, out: &mut EventSink<'_>) {
        if !self.blocks.contains_key(&key) {
            self.start_from_delta(key, &delta.r#type.0, out);
        }
        let Some(block) = self.blocks.get_mut(&key) else {
            return self.call.emit_unknown_frame(text, out);
        };
        match (block, &*delta.r#type.0) {
            (OpenBlock::Text { .. }, "text_delta") => {
                self.call.push_delta(key, &delta.text.0, out);
            }
            (OpenBlock::Text { citations, .. }, "citations_delta") => {
                let rest: OtherFields<'_> = parse_text(text);
                let citation = rest.delta.0.citation.and_then(|raw| Json::parse(raw.get()).ok());
                citations.extend(citation.filter(|json| !json.is_null()));
            }
            (OpenBlock::Thinking { .. }, "thinking_delta") => {
                self.call.push_delta(key, &delta.thinking.0, out);
            }
            (OpenBlock::Thinking { extra }, "signature_delta") => {
                let rest: OtherFields<'_> = parse_text(text);
                extra.insert_unless_empty("signature", &rest.delta.0.signature.0);
            }
            (OpenBlock::ToolCall { input, .. }, "input_json_delta")
                if !delta.partial_json.0.is_empty() =>
            {
                *input = None;
                self.call.push_delta(key, &delta.partial_json.0, out);
            }
            (OpenBlock::Item(item), "input_json_delta") => {
                item.input.push_str(&delta.partial_json.0);
            }
            (OpenBlock::Item(item), _) => item.apply_delta(text),
            // Empty, or a delta that does not belong to this type of block.
            (_, word) if word.is_empty() || KNOWN_DELTAS.contains(&word) => {}
            _ => self.call.emit_unknown_frame(text, out),
        }
    }

    /// Starts a block whose start was missed. The type of its first delta shows what it is.
    fn start_from_delta(&mut self, key: u64, delta: &str, out: &mut EventSink<'_>) {
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
            Some(OpenBlock::Text { citations, mut extra }) => {
                if !citations.is_empty()
                    && let Ok(citations) = Json::from_value(&citations)
                {
                    extra.insert("citations", citations);
                }
                self.call.close_block(key, extra, out);
            }
            Some(OpenBlock::Thinking { extra }) => self.call.close_block(key, extra, out),
            Some(OpenBlock::ToolCall { input, extra }) => {
                if let Some(input) = input {
                    self.call.push_delta(key, input.text(), out);
                }
                self.call.close_block(key, extra, out);
            }
            Some(OpenBlock::Item(item)) => self.emit_item(item.into_fields(), out),
            None => {}
        }
    }

    fn emit_item(&mut self, item: Fields, out: &mut EventSink<'_>) {
        if let Some(block) = read_data(&item) {
            return self.emit_data(block, out);
        }
        let id = item.get::<String>("id").ok().flatten().unwrap_or_default();
        if id.is_empty() || self.ids.insert(id) {
            self.call.emit_item(item, out);
        } else {
            self.call.emit_duplicate_item(&item, out);
        }
    }

    fn emit_data(&mut self, block: DataBlock, out: &mut EventSink<'_>) {
        let Some((media_type, chunk)) = block.source.into_chunk() else { return };
        self.call.emit_data_block("", media_type.as_deref(), chunk, Fields::default(), out);
    }

    /// Closes every open block, in the order of their indexes.
    fn close_blocks(&mut self, out: &mut EventSink<'_>) {
        let mut keys: Vec<u64> = self.blocks.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.block_stop(key, out);
        }
    }
}

/// Removes a string field; anything else is empty.
fn take_string(fields: &mut Fields, key: &str) -> String {
    fields.take(key).ok().flatten().unwrap_or_default()
}

/// The fields of a block that we do not know.
fn without_type(mut fields: Fields) -> Fields {
    fields.remove("type");
    fields
}

impl OpenItem {
    /// Applies a delta to an unknown item: text is appended to the text of the same name, anything else replaces the field.
    fn apply_delta(&mut self, frame: &str) {
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

    fn into_fields(mut self) -> Fields {
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

/// The known types of deltas.
const KNOWN_DELTAS: [&str; 5] =
    ["text_delta", "thinking_delta", "signature_delta", "citations_delta", "input_json_delta"];

const COUNTERS: [&str; 4] =
    ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];

/// Updates the token counts with those of `usage`.
pub(super) fn update_token_counts(usage: &str, counts: &mut TokenCounts) {
    let usage: Usage = parse_text(usage);
    set_count(&mut counts.input_tokens, usage.input.0);
    set_count(&mut counts.output_tokens, usage.output.0);
    set_count(&mut counts.cache_input_tokens, usage.cache_read.0);
    set_count(&mut counts.cache_creation_input_tokens, usage.cache_creation.0);
}

/// Our finish reason for Anthropic's `stop_reason`. `pause_turn` counts as completed; the metadata has the original.
pub(super) fn parse_stop_reason(word: &str) -> FinishedReason {
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
