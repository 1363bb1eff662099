//! Encodes events as the Responses stream: one reply is one response.

mod block;
mod collect_blocks;
pub(super) mod frame;
pub(super) mod settings;
mod write_items;

use super::NAME;
use crate::collect::WholeResponse;
use crate::provider::unix_seconds;
use crate::stream::{Encode, EncoderOptions, Frames, StreamFailure, UnsettledCalls};
use block::{OutputBlock, OutputKind};
use frame::Response;
use settings::ResponseSettings;
use std::collections::HashMap;
use std::sync::Arc;
use turnwire_core::event::{Custom, ModelCallEnd, ReplyEnd, TokenCounts};
use turnwire_core::{Event, EventKind, Fields, FinishedReason, Json, event_kinds};

pub(super) struct ResponsesEncoder {
    model: Option<String>,
    /// The id of the response; by default the reply's id.
    id: Option<String>,
    /// The session, if the ids of items say where they are stored.
    session: Option<String>,
    wants_json: bool,
    settings: Arc<ResponseSettings>,
    response: Option<Box<OpenResponse>>,
    /// The reply that has ended; its later events are ignored.
    ended_reply: String,
    delivery: Delivery,
    /// The last response, if it is collected.
    whole: Option<Json>,
}

/// The response that is being written.
struct OpenResponse {
    /// The reply's id.
    reply_id: String,
    /// The id of the response.
    response_id: String,
    /// The session, if the ids of items say where they are stored.
    session: Option<String>,
    /// Text that is not JSON waits until it is known whether it is needed.
    wants_json: bool,
    settings: Arc<ResponseSettings>,
    model: String,
    created: i64,
    /// When the reply ended, or began to wait for the client.
    completed: i64,
    /// `response.created` was written.
    announced: bool,
    /// The number of the next frame.
    number: u64,
    blocks: Vec<OutputBlock>,
    /// How many blocks have been written or dropped, or are being written.
    released: usize,
    /// The positions of text, thinking and data blocks by id, and of tool calls by id.
    positions: [HashMap<String, usize>; 2],
    /// The position of the block of the last delta.
    last_block: usize,
    /// The items of the final response; discarded ones are `None`.
    output: Vec<Option<Json>>,
    /// The reasoning item that the next thinking block continues.
    reasoning: Option<OpenReasoning>,
    /// The position of the last thinking block: the start of its part is written with its first text.
    waiting_part: Option<usize>,
    /// The last complete text.
    last_text: String,
    usage: Option<TokenCounts>,
    /// A tool call for the client was written.
    has_client_calls: bool,
    /// The status of items that have not ended.
    open_status: &'static str,
    delivery: Delivery,
    /// The final response, if it is collected.
    whole: Option<Json>,
}

/// How a client gets a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Streamed,
    /// In one piece.
    Whole,
}

/// How a response ends.
enum ResponseEnd<'e> {
    Ended(&'e ReplyEnd),
    /// Not at all: it is only looked at.
    Running,
}

/// A response as it is at some point of its reply, for clients that retrieve it.
///
/// ```
/// use turnwire_core::Event;
/// use turnwire_wires::EncoderOptions;
/// use turnwire_wires::openai_responses::ResponseBuilder;
///
/// let mut builder = ResponseBuilder::new(&EncoderOptions::default());
/// builder.push(&Event::from_json(r#"{"type":"REPLY_START","reply_id":"r","name":"a"}"#)?);
/// assert!(builder.into_running().unwrap().text().contains(r#""status":"in_progress""#));
/// # Ok::<(), turnwire_core::Error>(())
/// ```
pub struct ResponseBuilder {
    encoder: ResponsesEncoder,
    frames: Frames,
    has_begun: bool,
}

impl ResponseBuilder {
    /// Begins a response.
    pub fn new(encoding: &EncoderOptions) -> Self {
        let encoding = EncoderOptions { collects: true, ..encoding.clone() };
        let encoder = ResponsesEncoder::new(&encoding);
        Self { encoder, frames: Frames::default(), has_begun: false }
    }

    /// Adds the next event.
    pub fn push(&mut self, event: &Event<'_>) {
        self.encoder.encode(event, &mut self.frames);
        self.has_begun |= !self.frames.is_empty();
        self.frames.clear();
    }

    /// Forgets the response so far: what follows is another one of the same reply.
    pub fn restart(&mut self) {
        self.encoder.end(&mut self.frames);
        self.encoder.whole = None;
        self.frames.clear();
        self.has_begun = false;
    }

    /// Whether a client has seen anything of it.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The response, if it has ended or waits for the client.
    pub fn into_ended(mut self) -> Option<Json> {
        self.encoder.end(&mut self.frames);
        self.encoder.whole
    }

    /// The response while its reply is running. Calls are left out: it is not known yet who executes them.
    pub fn into_running(self) -> Option<Json> {
        self.encoder.into_current()
    }
}

struct OpenReasoning {
    index: usize,
    id: String,
    parts: Vec<String>,
}

/// Blocks and tool calls have separate ids.
#[derive(Clone, Copy)]
enum IdSpace {
    Block = 0,
    Call = 1,
}

impl ResponsesEncoder {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        Self {
            model: encoding.model.clone(),
            id: encoding.id.clone(),
            // Without an id of its own it is not a response that a client can refer to.
            session: encoding.session_id.clone().filter(|_| encoding.id.is_some()),
            wants_json: encoding.wants_json,
            settings: Arc::new(encoding.wire.get().cloned().unwrap_or_default()),
            response: None,
            ended_reply: String::new(),
            delivery: if encoding.collects { Delivery::Whole } else { Delivery::Streamed },
            whole: None,
        }
    }

    /// The response that an event belongs to; `None` if it is not for this wire.
    fn response_for_event(
        &mut self,
        event: &Event<'_>,
        out: &mut Frames,
    ) -> Option<&mut OpenResponse> {
        let is_beside = !event.kind.is_part_of_reply();
        if event.is_from_sub_agent() || (is_beside && self.response.is_none()) {
            return None;
        }
        let starts = matches!(event.kind, EventKind::ReplyStart(_));
        self.response_of_reply(&event.reply_id, &event.created_at, starts, out)
    }

    /// The response of a reply; a new one if none is open, or if the reply begins.
    fn response_of_reply(
        &mut self,
        reply_id: &str,
        created_at: &str,
        starts: bool,
        out: &mut Frames,
    ) -> Option<&mut OpenResponse> {
        let same = |response: &OpenResponse| response.reply_id == reply_id || reply_id.is_empty();
        match &self.response {
            Some(response) if same(response) => {}
            // The reply before did not end because of a crash, or this is the next turn of the stream.
            Some(_) if starts => self.end(out),
            Some(_) => return None,
            None if reply_id.is_empty() || reply_id == self.ended_reply => return None,
            None => {}
        }
        let (id, model) = (self.id.as_deref(), self.model.as_deref());
        let response = self.response.get_or_insert_with(|| {
            Box::new(OpenResponse {
                session: self.session.clone(),
                wants_json: self.wants_json,
                settings: Arc::clone(&self.settings),
                delivery: self.delivery,
                ..OpenResponse::new(reply_id, created_at, id, model)
            })
        });
        Some(response)
    }

    fn finish(&mut self, end: &ReplyEnd, out: &mut Frames) {
        if let Some(mut response) = self.response.take() {
            response.finish(&ResponseEnd::Ended(end), out);
            self.whole = response.whole;
            self.ended_reply = response.reply_id;
        }
    }

    /// The response as it is now, of a reply that has not ended. Nothing more can be encoded.
    fn into_current(mut self) -> Option<Json> {
        let mut response = self.response.take()?;
        response.finish(&ResponseEnd::Running, &mut Frames::default());
        response.whole
    }
}

impl Encode for ResponsesEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        let Some(response) = self.response_for_event(event, out) else { return };
        if matches!(event.kind, EventKind::ReplyEnd(_) | EventKind::RequireExternalExecution(_)) {
            response.completed = unix_seconds(&event.created_at);
        }
        if let EventKind::ReplyEnd(end) = &event.kind {
            self.finish(end, out);
        } else {
            response.push_event(event, out);
        }
    }

    /// The reply pauses for the client's tool results, or was cut off.
    fn end(&mut self, out: &mut Frames) {
        let Some(response) = &self.response else { return };
        // It was cut off, not stopped by the user.
        let finished_reason = if response.has_pending_calls() {
            FinishedReason::ToolCalls
        } else {
            FinishedReason::Truncated
        };
        self.finish(&ReplyEnd { finished_reason, ..ReplyEnd::default() }, out);
        // If the reply continues, that is another response.
        self.ended_reply.clear();
    }

    fn take_response(&mut self) -> Option<WholeResponse> {
        self.whole.take().map(Ok)
    }

    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        let (reply_id, created_at) = (&failure.reply_id, &failure.created_at);
        if self.response_of_reply(reply_id, created_at, false, out).is_some() {
            self.finish(&failure.as_reply_end(), out);
        }
    }

    fn settle_calls(&mut self, reply_id: &str, calls: &UnsettledCalls, out: &mut Frames) {
        let Some(response) = self.response_of_reply(reply_id, "", false, out) else { return };
        for id in &calls.awaiting_approval {
            response.mark_served(id, out);
        }
        for call in &calls.of_sub_agents {
            let kind = OutputKind::tool_call(&call.name);
            response.push_whole_block(kind, &call.id, &call.input, &call.rest, out);
        }
    }
}

impl OpenResponse {
    fn new(reply_id: &str, created_at: &str, name: Option<&str>, model: Option<&str>) -> Self {
        Self {
            reply_id: reply_id.to_owned(),
            response_id: name.unwrap_or(reply_id).to_owned(),
            session: None,
            wants_json: false,
            model: model.unwrap_or_default().to_owned(),
            settings: Arc::default(),
            created: unix_seconds(created_at),
            completed: 0,
            announced: false,
            number: 0,
            blocks: Vec::new(),
            released: 0,
            positions: [HashMap::new(), HashMap::new()],
            last_block: 0,
            output: Vec::new(),
            reasoning: None,
            waiting_part: None,
            last_text: String::new(),
            usage: None,
            has_client_calls: false,
            open_status: "incomplete",
            delivery: Delivery::Streamed,
            whole: None,
        }
    }

    fn push_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        match &event.kind {
            EventKind::TextBlockDelta(delta) => {
                self.push_delta(event, IdSpace::Block, &delta.block_id, &delta.delta, out);
            }
            EventKind::ThinkingBlockDelta(delta) => {
                self.push_delta(event, IdSpace::Block, &delta.block_id, &delta.delta, out);
            }
            EventKind::ToolCallDelta(delta) => {
                self.push_delta(event, IdSpace::Call, &delta.tool_call_id, &delta.delta, out);
            }
            EventKind::ModelCallStart(start) => {
                if self.model.is_empty() {
                    self.model.clone_from(&start.model_name);
                }
                self.announce(out);
            }
            EventKind::ModelCallEnd(end) => self.end_model_call(end, out),
            EventKind::TextBlockStart(start) => {
                self.begin_block(OutputKind::Text, &start.block_id, out);
            }
            EventKind::ThinkingBlockStart(start) => {
                self.begin_block(OutputKind::Thinking, &start.block_id, out);
            }
            EventKind::DataBlockStart(start) => {
                let media_type = start.media_type.clone();
                self.begin_block(OutputKind::Data { media_type, url: false }, &start.block_id, out);
            }
            EventKind::DataBlockDelta(delta) => {
                let media_type = delta.media_type.as_deref();
                self.push_data(&delta.block_id, media_type, &delta.chunk);
            }
            EventKind::ToolCallStart(start) => {
                self.begin_block(
                    OutputKind::tool_call(&start.tool_call_name),
                    &start.tool_call_id,
                    out,
                );
            }
            EventKind::TextBlockEnd(end) => {
                let whole = end.text.as_deref();
                self.end_block(IdSpace::Block, &end.block_id, whole, &end.extra, out);
            }
            EventKind::ThinkingBlockEnd(end) => {
                self.end_block(IdSpace::Block, &end.block_id, None, &end.extra, out);
            }
            EventKind::DataBlockEnd(end) => {
                self.end_block(IdSpace::Block, &end.block_id, None, &end.extra, out);
            }
            EventKind::ToolCallEnd(end) => {
                self.end_block(IdSpace::Call, &end.tool_call_id, None, &end.extra, out);
            }
            EventKind::ToolResultStart(start) => self.mark_served(&start.tool_call_id, out),
            EventKind::ExternalExecutionResult(event) => {
                for result in &event.execution_results {
                    self.mark_served(&result.id, out);
                }
            }
            EventKind::RequireUserConfirm(event) => {
                for call in &event.tool_calls {
                    self.update_call(&call.id, |asking, _| *asking = true);
                }
            }
            EventKind::UserConfirmResult(event) => {
                for result in &event.confirm_results {
                    let call = &result.tool_call;
                    let mut denied = false;
                    self.update_call(&call.id, |asking, input| {
                        let asked = std::mem::take(asking);
                        denied = asked && !result.confirmed;
                        if asked && result.confirmed && !call.input.is_empty() {
                            input.clone_from(&call.input);
                        }
                    });
                    // A denied call must not be executed.
                    if denied {
                        self.mark_served(&call.id, out);
                    }
                }
            }
            EventKind::Block(event) => self.write_whole_block(&event.block, out),
            EventKind::Custom(custom) if custom.name == NAME => {
                self.write_custom_frame(custom, out);
            }
            // Not shown to clients of this wire, or handled by the caller.
            event_kinds!(
                Hint ToolResultTextDelta ToolResultDataDelta ToolResultEnd RequireExternalExecution
                reply notice session
            ) => {}
        }
    }

    fn announce(&mut self, out: &mut Frames) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        let response = Response {
            id: &self.response_id,
            created_at: self.created,
            model: &self.model,
            status: "in_progress",
            ..Response::new(&self.settings)
        };
        for name in ["response.created", "response.in_progress"] {
            write_lifecycle(name, &mut self.number, &response, out);
        }
    }

    fn end_model_call(&mut self, end: &ModelCallEnd, out: &mut Frames) {
        self.usage.get_or_insert_default().add(end.usage);
        for id in &end.discard {
            for id_space in [IdSpace::Block, IdSpace::Call] {
                if let Some(position) = self.find_block(id_space, id) {
                    self.discard_block(position, out);
                }
            }
        }
        self.release_blocks(false, out);
    }

    /// Writes an unknown event of this wire back.
    fn write_custom_frame(&mut self, custom: &Custom, out: &mut Frames) {
        let Ok(mut fields) = custom.value.0.parse_as::<Fields>() else { return };
        self.announce(out);
        fields.insert("sequence_number", self.number);
        out.push("", &fields);
        self.number += 1;
    }
}

/// Writes a frame with the response as it is.
fn write_lifecycle(
    name: &'static str,
    number: &mut u64,
    response: &Response<'_>,
    out: &mut Frames,
) {
    out.push(name, &frame::Lifecycle { r#type: name, sequence_number: *number, response });
    *number += 1;
}

impl IdSpace {
    fn is_call(self) -> bool {
        matches!(self, Self::Call)
    }
}
