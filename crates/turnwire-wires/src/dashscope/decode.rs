//! Decodes DashScope's stream into events.
//!
//! There is no last frame: the stream ends with the body, and is complete if a `finish_reason` has come that is not the
//! string `null`.

use super::NAME;
use super::cumulative::{CumulativeText, Mode};
use super::message::{CallFields, Content, Message, Part};
use crate::lenient::{Alternative, First, Int, Object, OptionalText, Raw};
use crate::provider::text_blocks::{self, push_segment};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, ProviderDecoder, Segment, ThinkTagParser, model_call_in,
    parse_frame, reply_error, set_count,
};
use crate::stream::{DecoderOptions, EventSink};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use turnwire_core::{ErrorType, Fields, FinishedReason, Json, Result};

/// The key of the first tool call; the others follow.
const FIRST_CALL_KEY: u64 = text_blocks::THINKING_KEY + 1;

pub(super) struct DashscopeDecoder {
    call: ModelCall,
    mode: Mode,
    text: CumulativeText,
    thinking: CumulativeText,
    think: ThinkTagParser,
    /// The open calls, by index.
    calls: HashMap<i64, OpenCall>,
    /// Hashes of the parts other than text, while frames may repeat them.
    seen_parts: HashSet<u64>,
}

struct OpenCall {
    key: u64,
    /// The provider's id.
    id: String,
    input: CumulativeText,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Frame<'a> {
    output: Object<Output<'a>>,
    usage: Object<Usage>,
    request_id: OptionalText<'a>,
    code: OptionalText<'a>,
    message: OptionalText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Output<'a> {
    choices: First<Choice<'a>>,
    /// The older format: one text instead of choices.
    text: OptionalText<'a>,
    finish_reason: OptionalText<'a>,
    search_info: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Choice<'a> {
    message: Object<Message<'a>>,
    finish_reason: OptionalText<'a>,
    index: Int,
}

impl Alternative for Choice<'_> {
    fn index(&self) -> Option<i64> {
        self.index.0
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Int,
    output_tokens: Int,
    prompt_tokens_details: Object<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Int,
    cache_creation_input_tokens: Int,
}

impl DashscopeDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            mode: Mode::default(),
            text: CumulativeText::default(),
            thinking: CumulativeText::default(),
            think: ThinkTagParser::default(),
            calls: HashMap::new(),
            seen_parts: HashSet::new(),
        }
    }

    fn read_output(&mut self, output: &Output<'_>, out: &mut EventSink<'_>) {
        self.call.metadata.insert_some(
            "search_info",
            output.search_info.and_then(|info| Json::parse(info.get()).ok()),
        );
        let mut reason = output.finish_reason.as_deref();
        match &output.choices.0 {
            Some(choice) => {
                if let Some(message) = &choice.message.0 {
                    self.read_message(message, out);
                }
                reason = choice.finish_reason.as_deref().or(reason);
            }
            None => self.push_answer(output.text.or_empty(), out),
        }
        if let Some(word) = reason {
            self.set_finish_reason(word);
        }
    }

    fn read_message(&mut self, message: &Message<'_>, out: &mut EventSink<'_>) {
        let Self { call, mode, thinking, .. } = self;
        thinking.push_frame(mode, message.reasoning_content.or_empty(), |new| {
            push_segment(call, Segment::Thinking(new), out);
        });
        match &message.content {
            Content::None => {}
            Content::Text(text) => self.push_answer(text, out),
            Content::List(parts) => self.push_parts(parts, out),
        }
        for (at, called) in (0..).zip(&message.tool_calls.0) {
            self.push_call(called, at, out);
        }
    }

    /// Takes the text of a frame, which may repeat the earlier text.
    fn push_answer(&mut self, text: &str, out: &mut EventSink<'_>) {
        if text.is_empty() {
            return;
        }
        let Self { call, mode, thinking, .. } = self;
        thinking.flush(*mode, |new| push_segment(call, Segment::Thinking(new), out));
        let Self { call, mode, text: so_far, think, .. } = self;
        so_far.push_frame(mode, text, |new| push_answer_text(call, think, new, out));
    }

    fn push_parts(&mut self, parts: &[Part<'_>], out: &mut EventSink<'_>) {
        let mut texts = parts.iter().filter_map(|part| part.text.as_deref());
        match (texts.next(), texts.next()) {
            (Some(first), Some(second)) => {
                let all: String = [first, second].into_iter().chain(texts).collect();
                self.push_answer(&all, out);
            }
            (Some(only), None) => self.push_answer(only, out),
            (None, _) => {}
        }
        for part in parts.iter().filter(|part| !part.rest.is_empty()) {
            let mut hasher = DefaultHasher::new();
            for (key, value) in &part.rest {
                (key, value.get()).hash(&mut hasher);
            }
            let is_new = self.seen_parts.insert(hasher.finish());
            if self.mode == Mode::Incremental {
                self.seen_parts = HashSet::new();
            }
            if is_new || self.mode == Mode::Incremental {
                self.push_media(part, out);
            }
        }
    }

    fn push_media(&mut self, part: &Part<'_>, out: &mut EventSink<'_>) {
        self.close_text(out);
        let mut text = String::new();
        let Some(media) = part.read_media(&mut text) else {
            return self.call.emit_item(part.to_item(), out);
        };
        let any = format!("{}/*", media.key);
        let media_type = media.mime.unwrap_or(&any);
        self.call.emit_data_block("", Some(media_type), media.chunk, Fields::default(), out);
    }

    fn push_call(&mut self, called: &CallFields<'_>, at: i64, out: &mut EventSink<'_>) {
        let id = called.id.or_empty();
        let function = called.function.0.as_ref();
        let name = function.map_or("", |function| function.name.or_empty());
        let input = function.map_or("", |function| function.arguments.or_empty());
        let index = called.index.0.unwrap_or(at);
        let is_other = |open: &OpenCall| {
            called.index.0.is_none() && !id.is_empty() && !name.is_empty() && open.id != id
        };
        if self.calls.get(&index).is_none_or(is_other) {
            if id.is_empty() && name.is_empty() && input.is_empty() {
                return;
            }
            self.close_text(out);
            let key = FIRST_CALL_KEY.saturating_add(self.call.tool_calls());
            self.call.start_block(key, BlockKind::ToolCall, id, name, out);
            let open = OpenCall { key, id: id.to_owned(), input: CumulativeText::default() };
            if let Some(mut before) = self.calls.insert(index, open) {
                before.end(&mut self.call, self.mode, out);
            }
        }
        let Self { call, mode, calls, .. } = self;
        if let Some(open) = calls.get_mut(&index) {
            let key = open.key;
            open.input.push_frame(mode, input, |new| {
                call.push_delta(key, new, out);
            });
        }
    }

    /// Closes the text and the thinking.
    fn close_text(&mut self, out: &mut EventSink<'_>) {
        let Self { call, mode, text, thinking, think, .. } = self;
        thinking.flush(*mode, |new| push_segment(call, Segment::Thinking(new), out));
        text.flush(*mode, |new| push_answer_text(call, think, new, out));
        think.finish(|segment| push_segment(call, segment, out));
        text_blocks::close_text_blocks(call, out);
    }

    fn set_finish_reason(&mut self, word: &str) {
        if matches!(word, "" | "null") {
            return;
        }
        self.call.metadata.insert("finish_reason", word);
        self.call.finished_reason = Some(match word {
            "length" => FinishedReason::Length,
            "tool_calls" => FinishedReason::ToolCalls,
            "content_filter" => FinishedReason::ContentFilter,
            _ => FinishedReason::Completed,
        });
    }

    fn update_usage(&mut self, usage: &Usage) {
        let counts = &mut self.call.usage;
        set_count(&mut counts.input_tokens, usage.input_tokens.0);
        set_count(&mut counts.output_tokens, usage.output_tokens.0);
        if let Some(details) = &usage.prompt_tokens_details.0 {
            set_count(&mut counts.cache_input_tokens, details.cached_tokens.0);
            let created = details.cache_creation_input_tokens.0;
            set_count(&mut counts.cache_creation_input_tokens, created);
        }
    }

    fn fail(&mut self, code: &str, message: &str, out: &mut EventSink<'_>) {
        self.close_text(out);
        self.end_calls(out);
        self.call.metadata.insert("code", code);
        let family = code.split('.').next().unwrap_or(code);
        let r#type = match family {
            "Throttling" | "RateLimit" | "LimitRequests" | "limit_requests"
            | "insufficient_quota" => ErrorType::RateLimit,
            "InvalidApiKey" | "invalid_api_key" => ErrorType::Authentication,
            "AccessDenied" | "Arrearage" | "AllocationQuota" => ErrorType::Permission,
            _ if family.starts_with("Invalid")
                || family.starts_with("BadRequest")
                || family.starts_with("invalid")
                || matches!(
                    family,
                    "DataInspectionFailed"
                        | "data_inspection_failed"
                        | "ModelNotFound"
                        | "model_not_found"
                        | "UnsupportedOperation"
                        | "NotFound"
                ) =>
            {
                ErrorType::InvalidRequest
            }
            _ if family.starts_with("Internal")
                || family.starts_with("internal")
                || matches!(
                    family,
                    "SystemError"
                        | "ServiceUnavailable"
                        | "ModelServiceFailed"
                        | "ModelServingError"
                        | "ModelUnavailable"
                        | "RequestTimeOut"
                        | "ResponseTimeout"
                ) =>
            {
                ErrorType::Upstream
            }
            _ => ErrorType::Unknown,
        };
        let error = reply_error(r#type, message);
        if matches!(family, "DataInspectionFailed" | "data_inspection_failed") {
            self.call.finished_reason = Some(FinishedReason::ContentFilter);
            self.call.error = Some(error);
            return self.call.finish(out);
        }
        self.call.fail(error, out);
    }

    fn end_calls(&mut self, out: &mut EventSink<'_>) {
        let mut calls: Vec<OpenCall> = self.calls.drain().map(|(_, open)| open).collect();
        calls.sort_by_key(|open| open.key);
        for mut open in calls {
            open.end(&mut self.call, self.mode, out);
        }
    }
}

impl OpenCall {
    fn end(&mut self, call: &mut ModelCall, mode: Mode, out: &mut EventSink<'_>) {
        let key = self.key;
        self.input.flush(mode, |new| {
            call.push_delta(key, new, out);
        });
        call.close_block(key, Fields::default(), out);
    }
}

/// Emits text, with thinking in tags separated.
fn push_answer_text(
    call: &mut ModelCall,
    think: &mut ThinkTagParser,
    new: &str,
    out: &mut EventSink<'_>,
) {
    think.feed(new, |segment| push_segment(call, segment, out));
}

impl ProviderDecoder for DashscopeDecoder {
    model_call_in!(call);

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let frame: Frame<'_> = parse_frame(text)?;
        let id = frame.request_id.or_empty();
        self.call.begin(ModelCallInfo { id, ..ModelCallInfo::default() }, out);
        if let Some(usage) = &frame.usage.0 {
            self.update_usage(usage);
        }
        let is_known = frame.output.0.is_some() || frame.usage.0.is_some();
        if let Some(output) = frame.output.0 {
            self.read_output(&output, out);
        }
        match frame.code.as_deref().filter(|code| !code.is_empty()) {
            Some(code) => {
                self.fail(code, frame.message.as_deref().unwrap_or(code), out);
            }
            None if !is_known => self.call.emit_unknown_frame(text, out),
            None => {}
        }
        Ok(())
    }

    fn close_at_end(&mut self, out: &mut EventSink<'_>) {
        self.close_text(out);
        self.end_calls(out);
        if self.call.finished_reason == Some(FinishedReason::Completed)
            && self.call.tool_calls() > 0
        {
            self.call.finished_reason = Some(FinishedReason::ToolCalls);
        }
    }
}
