//! Events as Anthropic's stream: the client sees one message of a model for the whole turn.
//!
//! Only one block is open at a time here. A block that begins while another is open waits, and so does
//! everything behind a call of which it is not known yet who executes it: a call that gets a result in
//! this turn was served by the agent and is left out, any other is the client's.

mod queue;

use super::NAME;
use super::frame::FRAMES;
use crate::stream::{self, Encode, Frames};
use queue::{Queue, Slot};
use serde::Serialize;
use turnwire_core::event::{Custom, TokenCounts};
use turnwire_core::{
    ContentBlock, ErrorType, Event, EventKind, Fields, FinishedReason, Json, ReplyError,
};

pub(super) struct Encoding {
    model: Option<String>,
    /// What the message is called; otherwise it has the reply's id.
    id: Option<String>,
    turn: Option<Turn>,
    /// The reply that has ended: nothing comes after that.
    ended: String,
}

/// The message that is being written.
struct Turn {
    reply_id: String,
    /// What the message is called.
    called: String,
    begun: bool,
    queue: Queue,
    usage: TokenCounts,
    /// How the last model call ended.
    reason: FinishedReason,
}

impl Encoding {
    pub(super) fn new(encoding: &stream::EncoderOptions) -> Self {
        Self {
            model: encoding.model.clone(),
            id: encoding.id.clone(),
            turn: None,
            ended: String::new(),
        }
    }
}

impl Encode for Encoding {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        // What a sub-agent does is a tool of the agent's to the client.
        if event.is_from_sub_agent() {
            return;
        }
        if let EventKind::Custom(custom) = &event.kind {
            return own_frame(custom, out);
        }
        if !event.kind.is_part_of_reply() {
            return;
        }
        let called = self.id.as_deref();
        let Some(turn) = turn_of(&mut self.turn, &self.ended, called, event, out) else { return };
        if !turn.begun {
            turn.begin(&event.kind, self.model.as_deref(), out);
        }
        if let EventKind::ReplyEnd(end) = &event.kind {
            turn.finish(&end.finished_reason, end.error.as_ref(), out);
            self.ended = event.reply_id.to_string();
            self.turn = None;
        } else {
            turn.event(event, out);
        }
    }

    fn end(&mut self, out: &mut Frames) {
        leave(&mut self.turn, out);
    }
}

/// The turn that an event belongs to, if it is part of one. A reply may begin while the last one has
/// no end; otherwise an event of another reply is none of ours.
fn turn_of<'t>(
    turn: &'t mut Option<Turn>,
    ended: &str,
    called: Option<&str>,
    event: &Event<'_>,
    out: &mut Frames,
) -> Option<&'t mut Turn> {
    let id = &*event.reply_id;
    let begins = matches!(event.kind, EventKind::ReplyStart(_));
    if turn.as_ref().is_none_or(|turn| begins && turn.reply_id != id) {
        if id.is_empty() || ended == id {
            return None;
        }
        leave(turn, out);
        *turn = Some(Turn::new(id, called));
    }
    turn.as_mut().filter(|turn| turn.reply_id == id)
}

/// There is no more of a turn that has no end.
fn leave(turn: &mut Option<Turn>, out: &mut Frames) {
    let Some(mut turn) = turn.take() else { return };
    turn.begin_now("", out);
    turn.queue.flush(out);
    if turn.queue.has_calls() {
        // It waits for the client.
        turn.stop("tool_use", out);
    } else {
        // It was cut off, and that is what its missing end says.
        turn.tell(None, out);
    }
}

/// A frame that came on this wire and that we do not know, as it came.
fn own_frame(custom: &Custom, out: &mut Frames) {
    if custom.name != NAME {
        return;
    }
    let word = custom.value.0.parse_as::<Fields>().and_then(|fields| fields.get::<String>("type"));
    if let Ok(Some(word)) = word
        && !FRAMES.contains(&word.as_str())
    {
        out.push_text("", custom.value.0.text());
    }
}

impl Turn {
    fn new(reply_id: &str, called: Option<&str>) -> Self {
        Self {
            reply_id: reply_id.to_owned(),
            called: called.unwrap_or(reply_id).to_owned(),
            begun: false,
            queue: Queue::default(),
            usage: TokenCounts::default(),
            reason: FinishedReason::default(),
        }
    }

    /// Writes the start, once the model is known or something has to be written.
    fn begin(&mut self, kind: &EventKind<'_>, model: Option<&str>, out: &mut Frames) {
        match (model, kind) {
            (Some(model), _) => self.begin_now(model, out),
            (None, EventKind::ModelCallStart(start)) => self.begin_now(&start.model_name, out),
            (None, EventKind::ReplyStart(_)) => {}
            (None, _) => self.begin_now("", out),
        }
    }

    fn begin_now(&mut self, model: &str, out: &mut Frames) {
        if self.begun {
            return;
        }
        self.begun = true;
        out.push(
            "message_start",
            &Frame::MessageStart {
                message: Start {
                    id: &self.called,
                    r#type: "message",
                    role: "assistant",
                    model,
                    content: [],
                    stop_reason: None,
                    stop_sequence: None,
                    usage: TokenCounts::default().into(),
                },
            },
        );
    }

    fn event(&mut self, event: &Event<'_>, out: &mut Frames) {
        let queue = &mut self.queue;
        match &event.kind {
            EventKind::TextBlockDelta(delta) => queue.text(&delta.block_id, &delta.delta, out),
            EventKind::ThinkingBlockDelta(delta) => queue.text(&delta.block_id, &delta.delta, out),
            EventKind::ToolCallDelta(delta) => queue.text(&delta.tool_call_id, &delta.delta, out),
            EventKind::TextBlockStart(start) => queue.start(&start.block_id, Slot::Text, out),
            EventKind::ThinkingBlockStart(start) => {
                queue.start(&start.block_id, Slot::Thinking, out);
            }
            EventKind::ToolCallStart(start) => {
                let name = start.tool_call_name.to_string();
                queue.start(&start.tool_call_id, Slot::call(name), out);
            }
            EventKind::DataBlockStart(start) => {
                queue.start(&start.block_id, Slot::data(event), out);
            }
            EventKind::DataBlockDelta(delta) => queue.data(&delta.block_id, event),
            EventKind::TextBlockEnd(end) => {
                queue.end(&end.block_id, end.text.as_deref(), &end.extra, out);
            }
            EventKind::ThinkingBlockEnd(end) => queue.end(&end.block_id, None, &end.extra, out),
            EventKind::ToolCallEnd(end) => queue.end(&end.tool_call_id, None, &end.extra, out),
            EventKind::DataBlockEnd(end) => {
                queue.data(&end.block_id, event);
                queue.end(&end.block_id, None, &Fields::default(), out);
            }
            EventKind::ToolResultStart(start) => queue.served(&start.tool_call_id, out),
            EventKind::ExternalExecutionResult(results) => {
                for result in &results.execution_results {
                    queue.served(&result.id, out);
                }
            }
            EventKind::RequireUserConfirm(asked) => {
                asked.tool_calls.iter().for_each(|call| queue.asks(&call.id));
            }
            EventKind::UserConfirmResult(answers) => {
                for answer in answers.confirm_results.iter().filter(|answer| answer.confirmed) {
                    queue.edited(&answer.tool_call.id, &answer.tool_call.input);
                }
            }
            EventKind::Block(block) => self.whole_block(event, &block.block, out),
            // The loop goes round only when every call has its result.
            EventKind::ModelCallStart(_) => queue.flush(out),
            EventKind::ModelCallEnd(end) => {
                // Nobody may execute a call that was taken back.
                end.discard.iter().for_each(|id| queue.served(id, out));
                queue.close(out);
                add(&mut self.usage, end.usage);
                self.reason = end.finished_reason.clone();
            }
            _ => {}
        }
    }

    fn whole_block(&mut self, event: &Event<'_>, block: &ContentBlock, out: &mut Frames) {
        let queue = &mut self.queue;
        match block {
            ContentBlock::Text(block) => {
                queue.whole(&block.id, Slot::Text, &block.text, &block.rest, out);
            }
            ContentBlock::Thinking(block) => {
                queue.whole(&block.id, Slot::Thinking, &block.thinking, &block.rest, out);
            }
            ContentBlock::Data(block) => {
                queue.whole(&block.id, Slot::data(event), "", &Fields::default(), out);
            }
            ContentBlock::ToolCall(call) => {
                let slot = Slot::call(call.name.clone());
                queue.whole(&call.id, slot, &call.input, &call.rest, out);
            }
            ContentBlock::ToolResult(result) => queue.served(&result.id, out),
            ContentBlock::Other(item) => {
                if let Some(item) = crate::provider::item(NAME, item) {
                    queue.whole(block.id(), Slot::Item(item), "", &Fields::default(), out);
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, reason: &FinishedReason, error: Option<&ReplyError>, out: &mut Frames) {
        self.queue.flush(out);
        if error.is_some() || *reason == FinishedReason::Error {
            self.tell(None, out);
            return out.push("error", &Frame::Error { error: Problem::of(error) });
        }
        // The agent is done; why its model stopped says more.
        let reason = if *reason == FinishedReason::Completed { &self.reason } else { reason };
        let word = match reason {
            FinishedReason::Length => "max_tokens",
            FinishedReason::Refusal | FinishedReason::ContentFilter => "refusal",
            _ if self.queue.has_calls() => "tool_use",
            // Anthropic's word for its own loop that went round as often as it may.
            FinishedReason::ExceedMaxIters => "pause_turn",
            _ => "end_turn",
        };
        self.stop(word, out);
    }

    fn stop(&self, stop_reason: &'static str, out: &mut Frames) {
        self.tell(Some(stop_reason), out);
        out.push("message_stop", &Frame::MessageStop {});
    }

    /// Tells why the message ends, and the tokens that it took.
    fn tell(&self, stop_reason: Option<&'static str>, out: &mut Frames) {
        let delta = Stop { stop_reason, stop_sequence: None };
        out.push("message_delta", &Frame::MessageDelta { delta, usage: self.usage.into() });
    }
}

fn add(sum: &mut TokenCounts, more: TokenCounts) {
    let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
    add(&mut sum.input_tokens, more.input_tokens);
    add(&mut sum.output_tokens, more.output_tokens);
    add(&mut sum.cache_input_tokens, more.cache_input_tokens);
    add(&mut sum.cache_creation_input_tokens, more.cache_creation_input_tokens);
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Frame<'a> {
    MessageStart { message: Start<'a> },
    ContentBlockStart { index: u64, content_block: Json },
    ContentBlockStop { index: u64 },
    MessageDelta { delta: Stop, usage: Usage },
    MessageStop {},
    Error { error: Problem<'a> },
}

/// A block goes on.
#[derive(Serialize)]
struct BlockDelta<'a> {
    r#type: &'static str,
    index: u64,
    delta: Delta<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Delta<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "citations_delta")]
    Citation { citation: &'a Json },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: &'a str },
}

#[derive(Serialize)]
struct Start<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: [(); 0],
    stop_reason: Option<()>,
    stop_sequence: Option<()>,
    usage: Usage,
}

#[derive(Serialize)]
struct Stop {
    stop_reason: Option<&'static str>,
    stop_sequence: Option<()>,
}

#[derive(Serialize)]
struct Usage {
    #[serde(rename = "input_tokens")]
    input: i64,
    #[serde(rename = "output_tokens")]
    output: i64,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_creation: i64,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: i64,
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Self {
            input: counts.input_tokens,
            output: counts.output_tokens,
            cache_creation: counts.cache_creation_input_tokens,
            cache_read: counts.cache_input_tokens,
        }
    }
}

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    message: &'a str,
}

impl<'a> Problem<'a> {
    fn of(error: Option<&'a ReplyError>) -> Self {
        let Some(error) = error else {
            return Self { r#type: "api_error", message: "The reply failed." };
        };
        let r#type = match error.r#type {
            ErrorType::Authentication => "authentication_error",
            ErrorType::Permission => "permission_error",
            ErrorType::RateLimit => "rate_limit_error",
            ErrorType::InvalidRequest => "invalid_request_error",
            ErrorType::Upstream
            | ErrorType::Connection
            | ErrorType::Internal
            | ErrorType::Setup
            | ErrorType::Unknown
            | ErrorType::Other(_) => "api_error",
        };
        Self { r#type, message: &error.message }
    }
}
