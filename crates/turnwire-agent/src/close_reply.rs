//! Ends a reply that cannot continue, so that its history stays valid. The server and the agent loop call
//! it.

use std::collections::HashSet;
use std::mem::discriminant;
use turnwire_core::event::{
    Block, Chunk, DataBlockDelta, DataBlockEnd, ModelCallEnd, ReplyEnd, TextBlockEnd,
    ThinkingBlockEnd, ToolCallEnd, ToolResultDataDelta, ToolResultEnd, ToolResultStart,
    ToolResultTextDelta,
};
use turnwire_core::{
    ContentBlock, DataBlock, Event, EventKind, Fields, FinishedReason, ModelCalls, Msg, Part,
    Payload, ReplyError, Source, ToolResult, ToolResultState, content_blocks,
};

/// Returns the events that close a reply: they end open blocks and an open model call, give tool calls
/// without a result an interrupted one, and end the reply. After that a provider accepts the history.
/// Nothing is removed.
///
/// ```
/// use turnwire_agent::close_reply;
/// use turnwire_core::{Event, FinishedReason, ModelCalls, Msg, ToolResultState};
///
/// let (mut reply, mut calls) = (Msg::reply("r", "friday"), ModelCalls::default());
/// for line in [
///     r#"{"type":"MODEL_CALL_START","reply_id":"r"}"#,
///     r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
///     r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Let me"}"#,
///     r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"look"}"#,
/// ] {
///     let event = Event::from_json(line)?;
///     reply.append_event(&event)?;
///     calls.observe(&event);
/// }
/// for event in close_reply(&reply, &calls, FinishedReason::Interrupted, None) {
///     reply.append_event(&event)?;
///     calls.observe(&event);
/// }
/// assert_eq!(calls.open_blocks, None);
/// assert_eq!(reply.text("").as_deref(), Some("Let me"));
/// let (_, result) = reply.tool_calls().next().unwrap();
/// assert_eq!(result.unwrap().state, ToolResultState::Interrupted);
/// assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
/// # Ok::<(), turnwire_core::Error>(())
/// ```
///
/// The events have no ids, no times, no session and no sub-agent: the caller fills those in. A reply that
/// has ended needs no events. A sub-agent's reply is closed separately.
///
/// Base64 data that ends inside a byte is padded with zero bits.
pub fn close_reply(
    partial: &Msg,
    calls: &ModelCalls,
    reason: FinishedReason,
    error: Option<ReplyError>,
) -> Vec<Event<'static>> {
    if partial.finished_at().is_some() {
        return Vec::new();
    }
    let blocks = addressable_blocks(partial);
    let mut closing = ClosingEvents { reply_id: partial.id(), events: Vec::new() };
    for block in &blocks {
        closing.end_block(block);
    }
    if calls.open_blocks.is_some() {
        let finished_reason = FinishedReason::Interrupted;
        closing.push(ModelCallEnd { finished_reason, ..ModelCallEnd::default() });
    }
    let with_result: HashSet<&str> =
        partial.blocks::<ToolResult>().map(|result| result.id.as_str()).collect();
    for block in &blocks {
        match block {
            ContentBlock::ToolCall(call) if !with_result.contains(call.id.as_str()) => {
                let (tool_call_id, tool_call_name) =
                    (call.id.clone().into(), call.name.clone().into());
                closing.push(ToolResultStart { tool_call_id, tool_call_name });
                closing.push_interrupted_text(&call.id);
                closing.end_result(&call.id, ToolResultState::Interrupted);
            }
            ContentBlock::ToolResult(result) if result.finished_at.is_none() => {
                closing.interrupt_result(result);
            }
            content_blocks!(ToolCall ToolResult Text Thinking Data Hint Other) => {}
        }
    }
    closing.push(ReplyEnd { finished_reason: reason, error, ..ReplyEnd::default() });
    closing.events
}

/// The events that end all open blocks of a reply.
pub(crate) fn end_open_blocks(partial: &Msg) -> Vec<Event<'static>> {
    let mut closing = ClosingEvents { reply_id: partial.id(), events: Vec::new() };
    for block in addressable_blocks(partial) {
        closing.end_block(block);
    }
    closing.events
}

/// The events that end the result of a call as interrupted.
pub(crate) fn interrupt_result(partial: &Msg, result: &ToolResult) -> Vec<Event<'static>> {
    let mut closing = ClosingEvents { reply_id: partial.id(), events: Vec::new() };
    closing.interrupt_result(result);
    closing.events
}

/// The text of a result that has no output.
const INTERRUPTED_TEXT: &str = "interrupted";

/// After one character of base64: the rest of the byte, as zeros, and the padding.
const REST_OF_BYTE: &str = "A==";

struct ClosingEvents<'m> {
    reply_id: &'m str,
    events: Vec<Event<'static>>,
}

impl ClosingEvents<'_> {
    fn push(&mut self, kind: impl Into<EventKind<'static>>) {
        self.events.push(Event::new(self.reply_id.to_owned(), kind));
    }

    fn end_block(&mut self, block: &ContentBlock) {
        let extra = Fields::default();
        match block {
            ContentBlock::Text(block) if block.finished_at.is_none() => {
                self.push(TextBlockEnd { block_id: block.id.clone().into(), text: None, extra });
            }
            ContentBlock::Thinking(block) if block.finished_at.is_none() => {
                self.push(ThinkingBlockEnd { block_id: block.id.clone().into(), extra });
            }
            ContentBlock::Data(block) if block.finished_at.is_none() => {
                if is_cut_inside_byte(&block.source) {
                    self.push(DataBlockDelta {
                        block_id: block.id.clone().into(),
                        media_type: None,
                        chunk: Chunk::Data(REST_OF_BYTE.into()),
                    });
                }
                self.push(DataBlockEnd { block_id: block.id.clone().into(), extra });
            }
            ContentBlock::ToolCall(call) if call.finished_at.is_none() => {
                self.push(ToolCallEnd { tool_call_id: call.id.clone().into(), extra });
            }
            content_blocks!(Text Thinking Data ToolCall ToolResult Hint Other) => {}
        }
    }

    /// Ends an open result. One that came as a whole block has its final state already, and keeps it.
    fn interrupt_result(&mut self, result: &ToolResult) {
        self.pad_data_parts(result);
        if result.state != ToolResultState::Running {
            self.end_result(&result.id, result.state.clone());
            return;
        }
        if result.output.is_empty() {
            self.push_interrupted_text(&result.id);
        }
        self.end_result(&result.id, ToolResultState::Interrupted);
    }

    fn pad_data_parts(&mut self, result: &ToolResult) {
        let Payload::Parts(parts) = &result.output else { return };
        let mut seen = HashSet::new();
        for part in parts.iter().rev() {
            let Part::Data(block) = part else { continue };
            let is_in_reach = !block.id.is_empty() && seen.insert(&block.id);
            if is_in_reach && is_cut_inside_byte(&block.source) {
                self.push(ToolResultDataDelta {
                    tool_call_id: result.id.clone().into(),
                    block_id: block.id.clone().into(),
                    media_type: None,
                    chunk: Chunk::Data(REST_OF_BYTE.into()),
                });
            }
        }
    }

    fn push_interrupted_text(&mut self, call: &str) {
        let (tool_call_id, delta) = (call.to_owned().into(), INTERRUPTED_TEXT.into());
        self.push(ToolResultTextDelta { tool_call_id, delta });
    }

    fn end_result(&mut self, call: &str, state: ToolResultState) {
        let tool_call_id = call.to_owned().into();
        self.push(ToolResultEnd { tool_call_id, state });
    }
}

/// The blocks that an event can refer to: the last one of each type and id.
fn addressable_blocks(msg: &Msg) -> Vec<&ContentBlock> {
    let mut seen = HashSet::new();
    let mut blocks: Vec<&ContentBlock> = msg
        .content()
        .iter()
        .rev()
        .filter(|block| seen.insert((discriminant(*block), block.id())))
        .collect();
    blocks.reverse();
    blocks
}

/// Whether the fold would reject the end of this data. Asks the fold itself, which owns the rule.
fn is_cut_inside_byte(source: &Source) -> bool {
    // Only an incomplete group of one character can be invalid.
    if !matches!(source, Source::Base64(source) if source.data.len() % 4 == 1) {
        return false;
    }
    let block = DataBlock { id: "data".to_owned(), ..DataBlock::from_source(source.clone()) };
    let whole = Event::new("probe", Block { block: Box::new(block.into()) });
    let end = DataBlockEnd { block_id: "data".into(), extra: Fields::default() };
    let mut probe = Msg::reply("probe", "");
    probe.append_event(&whole).is_ok() && probe.append_event(&Event::new("probe", end)).is_err()
}
