//! Encodes the events of a turn as the stream of one chat completion.
//!
//! Text and thinking are written as they come. A tool call for the client is written when the turn ends, or waits, without a
//! result for it. A call that the agent executed is never written, because the client would execute it again.

use super::StreamOptions;
use super::audio::AudioDelta;
use super::collect::{self, ChatCompletion, Logprobs, TextField, Usage};
use super::error::ErrorFrame;
use crate::collect::WholeResponse;
use crate::json::escape;
use crate::provider::{LOGPROBS, reply_error, unix_seconds};
use crate::stream::{Encode, EncoderOptions, Frames, StreamFailure, UnsettledCalls};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use turnwire_core::event::{ModelCallEnd, ReplyEnd, TextBlockDelta, TokenCounts};
use turnwire_core::{
    ContentBlock, ErrorType, Event, EventKind, Fields, FinishedReason, Json, ToolCall, event_kinds,
};

pub(super) struct ChatEncoder {
    model: Option<String>,
    /// The id of the completion; by default the reply's id.
    id: Option<String>,
    include_usage: bool,
    pub(super) completion: OpenCompletion,
    /// Whether to build `whole`.
    collects: bool,
    whole: Option<ChatCompletion>,
}

/// The completion that is being written.
#[derive(Default)]
pub(super) struct OpenCompletion {
    id: String,
    state: State,
    created: i64,
    model: String,
    /// The JSON of every chunk up to its delta.
    head: String,
    /// The open text and thinking blocks.
    open_blocks: HashMap<String, OpenBlock>,
    /// The tool calls without a result so far, by id, with their order.
    client_calls: HashMap<String, (usize, ToolCall)>,
    call_count: usize,
    /// Calls that have a result.
    served: HashSet<String>,
    usage: TokenCounts,
    /// The open audio block.
    pub(super) audio: Option<String>,
    /// Text blocks that are transcripts of audio.
    transcripts: HashSet<String>,
    /// Whether any text was written.
    has_text: bool,
    annotations: Vec<Json>,
    logprobs: Vec<Json>,
    /// Those of them that were not written beside their text.
    late_logprobs: Vec<Json>,
}

/// An open text or thinking block.
#[derive(Debug, Clone, Copy, Default)]
struct OpenBlock {
    has_grown: bool,
    /// How many log probabilities were written beside its text.
    logprobs: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// No reply has started.
    #[default]
    NotStarted,
    /// A reply has started; nothing was written.
    Begun,
    /// The first chunk was written.
    Open,
    Ended,
}

impl ChatEncoder {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        Self {
            model: encoding.model.clone(),
            id: encoding.id.clone(),
            include_usage: encoding
                .wire
                .get()
                .is_some_and(|options: &StreamOptions| options.include_usage),
            completion: OpenCompletion::default(),
            collects: encoding.collects,
            whole: None,
        }
    }
}

impl Encode for ChatEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        if let EventKind::Custom(custom) = &event.kind
            && custom.name == super::NAME
            && !event.is_from_sub_agent()
        {
            // An unknown frame of this wire, written back.
            out.push("", &custom.value.0);
            return;
        }
        if self.accepts_event(event) {
            self.push_event(event, out);
        }
    }

    fn end(&mut self, out: &mut Frames) {
        if !matches!(self.completion.state, State::Begun | State::Open) {
            return;
        }
        // For this protocol a turn that waits for the client's tool results has ended. Any other was cut off, and `[DONE]` must
        // not make it look complete.
        let end = if self.completion.client_calls.is_empty() {
            ReplyEnd {
                finished_reason: FinishedReason::Truncated,
                error: Some(reply_error(ErrorType::Connection, "the reply was cut off")),
                ..ReplyEnd::default()
            }
        } else {
            ReplyEnd { finished_reason: FinishedReason::ToolCalls, ..ReplyEnd::default() }
        };
        self.finish(&end, out);
        // With the client's results the same reply continues as another completion.
        self.completion = OpenCompletion::default();
    }

    fn take_response(&mut self) -> Option<WholeResponse> {
        self.whole.take()?.into_response()
    }

    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        if self.enter_reply(&failure.reply_id, &failure.created_at) {
            self.finish(&failure.as_reply_end(), out);
        }
    }

    fn settle_calls(&mut self, reply_id: &str, calls: &UnsettledCalls, _: &mut Frames) {
        if self.enter_reply(reply_id, "") {
            calls.awaiting_approval.iter().for_each(|id| self.completion.mark_served(id));
            calls.of_sub_agents.iter().for_each(|call| self.completion.hold_call(call.clone()));
        }
    }
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u8,
    delta: Delta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a Logprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_finish_reason: Option<&'a str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[ToolCallPiece<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audio: Option<AudioDelta<'a>>,
    #[serde(skip_serializing_if = "<[Json]>::is_empty")]
    annotations: &'a [Json],
}

#[derive(Serialize)]
struct ToolCallPiece<'a> {
    index: usize,
    #[serde(flatten)]
    call: &'a collect::ToolCall,
}

impl ChatEncoder {
    /// Whether the event belongs to the current reply. The first event starts it.
    fn accepts_event(&mut self, event: &Event<'_>) -> bool {
        !event.is_from_sub_agent()
            && event.kind.is_part_of_reply()
            && self.enter_reply(&event.reply_id, &event.created_at)
    }

    /// Begins a completion for a reply, unless it is open. `false` if another one is open, or if it has ended.
    fn enter_reply(&mut self, reply_id: &str, created_at: &str) -> bool {
        if reply_id.is_empty() {
            return false;
        }
        let same = self.completion.id == reply_id;
        match self.completion.state {
            State::Begun | State::Open => same,
            State::Ended if same => false,
            // Each reply is a completion.
            State::NotStarted | State::Ended => {
                self.completion = OpenCompletion {
                    id: reply_id.to_owned(),
                    state: State::Begun,
                    created: unix_seconds(created_at),
                    ..OpenCompletion::default()
                };
                true
            }
        }
    }

    fn push_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        let completion = &mut self.completion;
        match &event.kind {
            EventKind::TextBlockDelta(delta) => {
                if completion.mark_grown(&delta.block_id, &delta.delta) {
                    match completion.logprobs_of(event, delta) {
                        Some(logprobs) => {
                            self.write_text_with_logprobs(&delta.delta, &logprobs, out);
                        }
                        None => self.write_text_of(&delta.block_id, &delta.delta, out),
                    }
                }
            }
            EventKind::ThinkingBlockDelta(delta) => {
                if completion.mark_grown(&delta.block_id, &delta.delta) {
                    self.write_thinking(&delta.delta, out);
                }
            }
            EventKind::ToolCallDelta(delta) => {
                if let Some((_, call)) = completion.client_calls.get_mut(&*delta.tool_call_id) {
                    call.input.push_str(&delta.delta);
                }
            }
            EventKind::ModelCallStart(start) => {
                if completion.model.is_empty() {
                    completion.model.clone_from(&start.model_name);
                }
            }
            EventKind::ModelCallEnd(end) => completion.add_model_call_end(end),
            EventKind::TextBlockStart(start) => {
                completion.begin_block(&start.block_id);
                if completion.audio.is_some() {
                    completion.transcripts.insert(start.block_id.to_string());
                }
            }
            EventKind::ThinkingBlockStart(start) => completion.begin_block(&start.block_id),
            EventKind::TextBlockEnd(end) => {
                let open = completion.open_blocks.remove(&*end.block_id);
                completion.keep_extras(&end.extra, open.map_or(0, |open| open.logprobs));
                // Deltas that were written cannot be replaced.
                if let (Some(OpenBlock { has_grown: false, .. }), Some(text)) = (open, &end.text) {
                    self.write_text_of(&end.block_id, text, out);
                }
            }
            EventKind::DataBlockStart(start) => self.audio_start(start, out),
            EventKind::DataBlockDelta(delta) => self.audio_delta(delta, out),
            EventKind::DataBlockEnd(end) => self.audio_end(end, out),
            EventKind::ThinkingBlockEnd(end) => {
                completion.open_blocks.remove(&*end.block_id);
            }
            EventKind::ToolCallStart(start) => {
                completion.hold_call(ToolCall::new(
                    &*start.tool_call_id,
                    &*start.tool_call_name,
                    "",
                ));
            }
            EventKind::ToolCallEnd(end) => {
                if let Some((_, call)) = completion.client_calls.get_mut(&*end.tool_call_id) {
                    call.rest.extend(&end.extra);
                }
            }
            EventKind::ToolResultStart(start) => completion.mark_served(&start.tool_call_id),
            EventKind::ExternalExecutionResult(event) => {
                for result in &event.execution_results {
                    completion.mark_served(&result.id);
                }
            }
            EventKind::UserConfirmResult(event) => {
                for answer in &event.confirm_results {
                    if !answer.confirmed {
                        completion.mark_served(&answer.tool_call.id);
                    } else if let Some((_, call)) =
                        completion.client_calls.get_mut(&answer.tool_call.id)
                        && !answer.tool_call.input.is_empty()
                    {
                        call.input.clone_from(&answer.tool_call.input);
                    }
                }
            }
            EventKind::Block(event) => self.write_block(&event.block, out),
            EventKind::ReplyEnd(end) => self.finish(end, out),
            // Not shown to clients of this wire, or handled by the caller.
            event_kinds!(
                ReplyStart Hint ToolResultTextDelta ToolResultDataDelta ToolResultEnd
                RequireUserConfirm RequireExternalExecution notice session
            ) => {}
        }
    }

    /// Writes a whole block.
    fn write_block(&mut self, block: &ContentBlock, out: &mut Frames) {
        match block {
            ContentBlock::Text(block) => {
                self.completion.keep_extras(&block.rest, 0);
                self.write_text(&block.text, out);
            }
            ContentBlock::Thinking(block) => self.write_thinking(&block.thinking, out),
            ContentBlock::ToolCall(call) => self.completion.hold_call(call.clone()),
            ContentBlock::ToolResult(result) => self.completion.mark_served(&result.id),
            ContentBlock::Data(_) | ContentBlock::Hint(_) | ContentBlock::Other(_) => {}
        }
    }

    /// Writes text of a block, which may be the transcript of audio.
    fn write_text_of(&mut self, block_id: &str, text: &str, out: &mut Frames) {
        if self.completion.transcripts.contains(block_id) {
            self.write_transcript(text, out);
        } else {
            self.write_text(text, out);
        }
    }

    pub(super) fn write_audio(&mut self, delta: AudioDelta<'_>, out: &mut Frames) {
        self.write_delta(Delta { audio: Some(delta), ..Delta::default() }, out);
        if let Some(whole) = &mut self.whole {
            whole.push_audio(delta);
        }
    }

    fn write_text(&mut self, text: &str, out: &mut Frames) {
        if !text.is_empty() {
            self.completion.has_text = true;
            self.write_text_delta(TextField::Content, text, out);
        }
    }

    /// Writes text with the log probabilities of its tokens.
    fn write_text_with_logprobs(&mut self, text: &str, logprobs: &Logprobs, out: &mut Frames) {
        self.completion.has_text = true;
        self.write_first_chunk(out);
        if let Some(whole) = &mut self.whole {
            whole.push_text(TextField::Content, text);
        }
        let delta = Delta { content: Some(text), ..Delta::default() };
        self.write_choice(delta, Some(logprobs), None, None, out);
    }

    fn write_thinking(&mut self, text: &str, out: &mut Frames) {
        if !text.is_empty() {
            self.write_text_delta(TextField::Reasoning, text, out);
        }
    }

    /// Writes a delta of text. Most chunks are this, so it is written without serde.
    fn write_text_delta(&mut self, field: TextField, text: &str, out: &mut Frames) {
        self.write_first_chunk(out);
        if let Some(whole) = &mut self.whole {
            whole.push_text(field, text);
        }
        let head = &self.completion.head;
        out.push_with("", |out| {
            out.push_str(head);
            out.push_str(r#"{""#);
            out.push_str(field.name());
            out.push_str(r#"":""#);
            escape(text, out);
            out.push_str(r#""},"finish_reason":null}]}"#);
        });
    }

    fn write_delta(&mut self, delta: Delta<'_>, out: &mut Frames) {
        self.write_first_chunk(out);
        self.write_choice(delta, None, None, None, out);
    }

    /// Writes the first chunk, which has the role.
    fn write_first_chunk(&mut self, out: &mut Frames) {
        if self.completion.state == State::Begun {
            self.completion.state = State::Open;
            self.completion.head = self.build_head();
            self.whole = self.collects.then(|| {
                ChatCompletion::new(self.response_id(), self.completion.created, self.model_name())
            });
            let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
            self.write_choice(delta, None, None, None, out);
        }
    }

    /// The JSON of a chunk up to its delta.
    fn build_head(&self) -> String {
        let mut first = Frames::default();
        self.write_choice(Delta::default(), None, None, None, &mut first);
        let text = first.iter().next().map_or("", |(_, text)| text);
        // The empty delta is the last object that starts.
        let end = text.rfind("{}").unwrap_or(text.len());
        text.get(..end).unwrap_or_default().to_owned()
    }

    fn write_choice(
        &self,
        delta: Delta<'_>,
        logprobs: Option<&Logprobs>,
        finish_reason: Option<&'static str>,
        native_finish_reason: Option<&str>,
        out: &mut Frames,
    ) {
        let choice = Choice { index: 0, delta, logprobs, finish_reason, native_finish_reason };
        self.write_chunk(&[choice], None, out);
    }

    fn write_chunk(&self, choices: &[Choice<'_>], usage: Option<Usage>, out: &mut Frames) {
        let chunk = Chunk {
            id: self.response_id(),
            object: "chat.completion.chunk",
            created: self.completion.created,
            model: self.model_name(),
            choices,
            usage,
        };
        out.push("", &chunk);
    }

    fn response_id(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.completion.id)
    }

    fn model_name(&self) -> &str {
        self.model.as_deref().unwrap_or(&self.completion.model)
    }

    fn finish(&mut self, end: &ReplyEnd, out: &mut Frames) {
        self.write_first_chunk(out);
        // A client that requested JSON reads the text.
        if let Some(output) = end.structured_output.as_ref().filter(|_| !self.completion.has_text) {
            self.write_text(output.text(), out);
        }
        let calls = self.write_calls(out);
        let reason = &end.finished_reason;
        let failed = matches!(reason, FinishedReason::Error | FinishedReason::Truncated);
        let unnamed = reply_error(ErrorType::default(), "the reply failed");
        let error = end.error.as_ref().or_else(|| failed.then_some(&unnamed));
        if error.is_none() {
            let (word, native) = finish_reasons(reason, calls);
            let annotations = std::mem::take(&mut self.completion.annotations);
            let logprobs = Logprobs::new(std::mem::take(&mut self.completion.logprobs));
            if let Some(whole) = &mut self.whole {
                whole.finish(word, native, &annotations, logprobs.as_ref());
            }
            let late = Logprobs::new(std::mem::take(&mut self.completion.late_logprobs));
            let delta = Delta { annotations: &annotations, ..Delta::default() };
            self.write_choice(delta, late.as_ref(), Some(word), native, out);
        }
        if self.include_usage {
            let usage = Usage::from(self.completion.usage);
            if let Some(whole) = &mut self.whole {
                whole.set_usage(usage);
            }
            self.write_chunk(&[], Some(usage), out);
        }
        // The error comes last: clients stop reading there.
        if let Some(error) = error {
            let frame = ErrorFrame::new(error, reason);
            if let Some(whole) = &mut self.whole {
                whole.fail(&frame.error);
            }
            out.push("", &frame);
        }
        // Later events of this reply are ignored.
        let id = std::mem::take(&mut self.completion.id);
        self.completion = OpenCompletion { id, state: State::Ended, ..OpenCompletion::default() };
    }

    /// Writes the tool calls for the client. Returns whether there were any.
    fn write_calls(&mut self, out: &mut Frames) -> bool {
        let mut calls: Vec<(usize, ToolCall)> =
            self.completion.client_calls.drain().map(|(_, it)| it).collect();
        calls.sort_by_key(|(place, _)| *place);
        let has_calls = !calls.is_empty();
        for (index, (_, call)) in calls.into_iter().enumerate() {
            let call = collect::ToolCall::from(call);
            let piece = ToolCallPiece { index, call: &call };
            self.write_delta(Delta { tool_calls: Some([piece]), ..Delta::default() }, out);
            if let Some(whole) = &mut self.whole {
                whole.push_call(call);
            }
        }
        has_calls
    }
}

impl OpenCompletion {
    fn begin_block(&mut self, id: &str) {
        self.open_blocks.insert(id.to_owned(), OpenBlock::default());
    }

    /// Marks a block as having had a delta. Returns whether it is open.
    fn mark_grown(&mut self, id: &str, delta: &str) -> bool {
        let open = self.open_blocks.get_mut(id);
        open.map(|open| open.has_grown |= !delta.is_empty()).is_some()
    }

    /// The log probabilities of the tokens in a delta of text.
    fn logprobs_of(&mut self, event: &Event<'_>, delta: &TextBlockDelta<'_>) -> Option<Logprobs> {
        let raw = event.metadata.raw(LOGPROBS)?;
        let open = self.open_blocks.get_mut(&*delta.block_id)?;
        if delta.delta.is_empty() || self.transcripts.contains(&*delta.block_id) {
            return None;
        }
        let logprobs: Vec<Json> = raw.parse_as().ok()?;
        open.logprobs += logprobs.len();
        Logprobs::new(logprobs)
    }

    fn hold_call(&mut self, call: ToolCall) {
        if !self.served.contains(&call.id) && !self.client_calls.contains_key(&call.id) {
            self.client_calls.insert(call.id.clone(), (self.call_count, call));
            self.call_count += 1;
        }
    }

    fn mark_served(&mut self, id: &str) {
        if self.client_calls.remove(id).is_some() {
            self.served.insert(id.to_owned());
        }
    }

    fn add_model_call_end(&mut self, end: &ModelCallEnd) {
        self.usage.add(end.usage);
        for id in &end.discard {
            self.client_calls.remove(id);
            self.open_blocks.remove(id);
        }
    }

    /// Keeps what belongs to a text and is written at the end. So many log probabilities were written already.
    fn keep_extras(&mut self, extra: &Fields, logprobs: usize) {
        let list = |key| extra.get::<Vec<Json>>(key).ok().flatten().unwrap_or_default();
        self.annotations.extend(list("annotations"));
        let all = list(LOGPROBS);
        self.late_logprobs.extend(all.iter().skip(logprobs).cloned());
        self.logprobs.extend(all);
    }
}

/// The protocol's finish reason, and ours if the protocol has no equivalent.
fn finish_reasons(reason: &FinishedReason, calls: bool) -> (&'static str, Option<&str>) {
    match reason {
        FinishedReason::Completed | FinishedReason::ToolCalls if calls => ("tool_calls", None),
        FinishedReason::Completed => ("stop", None),
        FinishedReason::Length => ("length", None),
        FinishedReason::ContentFilter => ("content_filter", None),
        FinishedReason::ExceedMaxIters => ("length", Some(reason.as_str())),
        FinishedReason::Refusal => ("content_filter", Some(reason.as_str())),
        FinishedReason::ToolCalls
        | FinishedReason::Interrupted
        | FinishedReason::Error
        | FinishedReason::Truncated
        | FinishedReason::Other(_) => ("stop", Some(reason.as_str())),
    }
}
