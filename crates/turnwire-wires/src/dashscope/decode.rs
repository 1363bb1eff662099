//! DashScope's stream into events.
//!
//! There is no last word: the stream is over when there are no more bytes, and complete if a
//! `finish_reason` has come that is not the string `null`.

use super::NAME;
use super::cumulative::{CumulativeText, Mode};
use super::message::{CallFields, Content, Message, Part};
use crate::provider::text_blocks::{self, push_segment};
use crate::provider::{
    BlockKind, ModelCall, ModelCallInfo, Segment, ThinkTagParser, UniqueCallIds, loose, parse_frame,
};
use crate::stream::{Decode, DecoderOptions, EventSink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{ErrorType, Fields, FinishedReason, Json, ReplyError, Result};

/// What the first call is called while it is open; the others follow.
const FIRST_CALL_KEY: u64 = text_blocks::THINKING_KEY + 1;

pub(super) struct DashscopeDecoder {
    call: ModelCall,
    ids: UniqueCallIds,
    mode: Mode,
    text: CumulativeText,
    thinking: CumulativeText,
    think: ThinkTagParser,
    /// The calls by their index.
    calls: HashMap<i64, OpenCall>,
    /// The parts that are no text, by their hash, as long as frames may repeat them.
    seen_parts: HashSet<u64>,
}

struct OpenCall {
    key: u64,
    /// What the provider calls it.
    id: String,
    input: CumulativeText,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(default, borrow, deserialize_with = "loose::object")]
    output: Option<Box<Output<'a>>>,
    #[serde(default, deserialize_with = "loose::object")]
    usage: Option<Box<Usage>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    request_id: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    code: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(default, borrow, deserialize_with = "loose::first")]
    choices: Option<Box<Choice<'a>>>,
    /// The older form: no choices, but one text.
    #[serde(default, borrow, deserialize_with = "loose::text")]
    text: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    search_info: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, borrow, deserialize_with = "loose::object")]
    message: Option<Box<Message<'a>>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "loose::int")]
    index: Option<i64>,
}

impl loose::Choice for Choice<'_> {
    fn index(&self) -> Option<i64> {
        self.index
    }
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default, deserialize_with = "loose::int")]
    input_tokens: Option<i64>,
    #[serde(default, deserialize_with = "loose::int")]
    output_tokens: Option<i64>,
    #[serde(default, deserialize_with = "loose::object")]
    prompt_tokens_details: Option<Box<Details>>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default, deserialize_with = "loose::int")]
    cached_tokens: Option<i64>,
    #[serde(default, deserialize_with = "loose::int")]
    cache_creation_input_tokens: Option<i64>,
}

impl DashscopeDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            ids: UniqueCallIds::default(),
            mode: Mode::default(),
            text: CumulativeText::default(),
            thinking: CumulativeText::default(),
            think: ThinkTagParser::default(),
            calls: HashMap::new(),
            seen_parts: HashSet::new(),
        }
    }

    fn read_output(&mut self, output: &Output<'_>, out: &mut EventSink<'_>) {
        if let Some(info) = output.search_info.and_then(|info| Json::parse(info.get()).ok()) {
            self.call.metadata.insert("search_info", info);
        }
        let mut reason = output.finish_reason.as_deref();
        match &output.choices {
            Some(choice) => {
                if let Some(message) = &choice.message {
                    self.read_message(message, out);
                }
                reason = choice.finish_reason.as_deref().or(reason);
            }
            None => self.push_answer(output.text.as_deref().unwrap_or_default(), out),
        }
        if let Some(word) = reason {
            self.set_finish_reason(word);
        }
    }

    fn read_message(&mut self, message: &Message<'_>, out: &mut EventSink<'_>) {
        let Self { call, mode, thinking, .. } = self;
        thinking.push_frame(
            mode,
            message.reasoning_content.as_deref().unwrap_or_default(),
            |new| {
                push_segment(call, Segment::Thinking(new), out);
            },
        );
        match &message.content {
            Content::None => {}
            Content::Text(text) => self.push_answer(text, out),
            Content::Parts(parts) => self.push_parts(parts, out),
        }
        for (at, called) in (0..).zip(&message.tool_calls) {
            self.push_call(called, at, out);
        }
    }

    /// The answer goes on, or is repeated and goes on.
    fn push_answer(&mut self, text: &str, out: &mut EventSink<'_>) {
        if text.is_empty() {
            return;
        }
        let Self { call, mode, thinking, .. } = self;
        thinking.flush(*mode, |new| push_segment(call, Segment::Thinking(new), out));
        let Self { call, mode, text: said, think, .. } = self;
        said.push_frame(mode, text, |new| push_answer_text(call, think, new, out));
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
        let chunk = if media.is_base64 {
            Chunk::Data(media.value.into())
        } else {
            Chunk::Url(media.value.into())
        };
        let any = format!("{}/*", media.key);
        let media_type = media.mime.unwrap_or(&any);
        self.call.emit_data_block("", Some(media_type), chunk, Fields::default(), out);
    }

    fn push_call(&mut self, called: &CallFields<'_>, at: i64, out: &mut EventSink<'_>) {
        let id = called.id.as_deref().unwrap_or_default();
        let function = called.function.as_ref();
        let name = function.and_then(|function| function.name.as_deref()).unwrap_or_default();
        let input = function.and_then(|function| function.arguments.as_deref()).unwrap_or_default();
        let index = called.index.unwrap_or(at);
        let is_other = |open: &OpenCall| {
            called.index.is_none() && !id.is_empty() && !name.is_empty() && open.id != id
        };
        if self.calls.get(&index).is_none_or(is_other) {
            if id.is_empty() && name.is_empty() && input.is_empty() {
                return;
            }
            self.close_text(out);
            let key = FIRST_CALL_KEY.saturating_add(self.ids.len());
            let own = if id.is_empty() { self.call.new_id() } else { id.to_owned() };
            let own = self.ids.make_unique(own);
            self.call.start_block(key, BlockKind::ToolCall, &own, name, out);
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

    /// Ends the answer and the reasoning as far as they have come.
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
        let set = |slot: &mut i64, count: Option<i64>| match count {
            Some(count) if count > 0 => *slot = count,
            _ => {}
        };
        let counts = &mut self.call.usage;
        set(&mut counts.input_tokens, usage.input_tokens);
        set(&mut counts.output_tokens, usage.output_tokens);
        if let Some(details) = &usage.prompt_tokens_details {
            set(&mut counts.cache_input_tokens, details.cached_tokens);
            set(&mut counts.cache_creation_input_tokens, details.cache_creation_input_tokens);
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
        let error = ReplyError { r#type, message: message.to_owned(), ..ReplyError::default() };
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

/// The answer, with what is thinking in it told apart.
fn push_answer_text(
    call: &mut ModelCall,
    think: &mut ThinkTagParser,
    new: &str,
    out: &mut EventSink<'_>,
) {
    think.feed(new, |segment| push_segment(call, segment, out));
}

impl Decode for DashscopeDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        // DashScope has no last word, but what stands between may add one.
        if self.call.has_ended() || text == "[DONE]" {
            return Ok(());
        }
        let frame: Frame<'_> = parse_frame(text)?;
        let id = frame.request_id.as_deref().unwrap_or_default();
        self.call.begin(ModelCallInfo { id, ..ModelCallInfo::default() }, out);
        if let Some(usage) = &frame.usage {
            self.update_usage(usage);
        }
        let is_known = frame.output.is_some() || frame.usage.is_some();
        if let Some(output) = frame.output {
            self.read_output(&output, out);
        }
        match frame.code.as_deref().filter(|code| !code.is_empty()) {
            Some(code) => {
                self.fail(code, frame.message.as_deref().unwrap_or(code), out);
            }
            None if !is_known => {
                let value = Json::parse(text).map(CustomValue).unwrap_or_default();
                self.call.emit(Custom { name: NAME.to_owned(), value }, out);
            }
            None => {}
        }
        Ok(())
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        if self.call.has_ended() {
            return Ok(());
        }
        self.close_text(out);
        self.end_calls(out);
        if self.call.finished_reason == Some(FinishedReason::Completed) && !self.ids.is_empty() {
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
