//! The events of model calls, for the decoders: start, blocks, and exactly one end.

use super::call_ids::UniqueCallIds;
use super::error::reply_error;
use crate::stream::{DecoderOptions, EventSink, StreamScope};
use std::collections::BTreeMap;
use turnwire_core::event::{
    Block, Chunk, Custom, CustomValue, DataBlockDelta, DataBlockEnd, DataBlockStart, ModelCallEnd,
    ModelCallStart, ReplyEnd, ReplyStart, TextBlockDelta, TextBlockEnd, TextBlockStart,
    ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart, TokenCounts, ToolCallDelta,
    ToolCallEnd, ToolCallStart,
};
use turnwire_core::{
    ContentBlock, ErrorType, Event, EventKind, Fields, FinishedReason, Json, ReplyError,
};

/// Emits the events of a reply and its model calls. `REPLY_START` and `MODEL_CALL_START` come before anything else, open
/// blocks are closed, and the reply ends exactly once: with the provider's reason, or as truncated.
pub(crate) struct ModelCall {
    wire: &'static str,
    scope: StreamScope,
    reply_id: String,
    prefix: String,
    begun: bool,
    /// A model call has started and not ended.
    in_call: bool,
    ended: bool,
    /// The open blocks, by the provider's key.
    open: BTreeMap<u64, OpenBlock>,
    /// The number of blocks so far.
    count: usize,
    /// The ids of the blocks of this model call.
    block_ids: Vec<String>,
    /// The ids of the tool calls of this model call.
    call_ids: UniqueCallIds,
    /// The tokens counted so far; see [`set_count`].
    pub usage: TokenCounts,
    /// Why the call ended, once the provider has sent it. Without it the stream was truncated.
    pub finished_reason: Option<FinishedReason>,
    /// The error that ended the call.
    pub error: Option<ReplyError>,
    /// What else the provider sent about the call, such as its id and its own finish reason. It becomes metadata of
    /// `MODEL_CALL_END`, below the wire's name.
    pub metadata: Fields,
    /// The ids of blocks that the provider took back.
    pub discard: Vec<String>,
    /// The structured output, if the wire has a field for it.
    pub structured_output: Option<Json>,
}

/// What a provider says about a model call at its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ModelCallInfo<'a> {
    /// The id; empty if there is none.
    pub id: &'a str,
    /// The model; empty if unknown.
    pub model: &'a str,
    /// The start time in seconds since 1970; 0 if unknown.
    pub created: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Text,
    Thinking,
    ToolCall,
    /// Bytes as base64; the block's name is their media type.
    Data,
}

struct OpenBlock {
    kind: BlockKind,
    id: String,
    /// Its position among all blocks.
    position: usize,
}

impl ModelCall {
    pub(crate) fn new(wire: &'static str, decoding: &DecoderOptions) -> Self {
        Self {
            wire,
            scope: decoding.scope,
            reply_id: decoding.reply_id.clone().unwrap_or_default(),
            prefix: decoding.block_prefix.clone().unwrap_or_default(),
            begun: false,
            in_call: false,
            ended: false,
            open: BTreeMap::new(),
            count: 0,
            block_ids: Vec::new(),
            call_ids: UniqueCallIds::default(),
            usage: TokenCounts::default(),
            finished_reason: None,
            error: None,
            metadata: Fields::default(),
            discard: Vec::new(),
            structured_output: None,
        }
    }

    /// The reply's id; empty if none was given and the reply has not begun.
    pub(crate) fn reply_id(&self) -> &str {
        &self.reply_id
    }

    /// Whether the end was emitted. Nothing is emitted after it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Emits the start. Only the first one counts, because ids may change in mid-stream. After
    /// [`end_call`](Self::end_call) it starts the next model call of the same reply.
    pub(crate) fn begin(&mut self, about: ModelCallInfo<'_>, out: &mut EventSink<'_>) {
        if self.in_call || self.ended {
            return;
        }
        self.block_ids.clear();
        self.call_ids = UniqueCallIds::default();
        if self.begun {
            self.usage = TokenCounts::default();
            (self.finished_reason, self.error, self.metadata) = (None, None, Fields::default());
        }
        let id = if about.id.is_empty() { "reply" } else { about.id };
        if self.reply_id.is_empty() {
            id.clone_into(&mut self.reply_id);
        }
        if self.prefix.is_empty() {
            id.clone_into(&mut self.prefix);
        }
        self.metadata.insert_unless_empty("id", about.id);
        let at = format_unix_time(about.created);
        if self.scope == StreamScope::Reply && !self.begun {
            let mut event = Event::new(self.reply_id.as_str(), ReplyStart::default());
            event.created_at = at.as_str().into();
            out(event);
        }
        (self.begun, self.in_call) = (true, true);
        let start = ModelCallStart { model_name: about.model.to_owned() };
        let mut event = Event::new(self.reply_id.as_str(), start);
        event.created_at = at.as_str().into();
        out(event);
    }

    /// Emits any event of the reply.
    pub(crate) fn emit<'e>(&'e self, kind: impl Into<EventKind<'e>>, out: &mut EventSink<'_>) {
        if !self.ended {
            out(Event::new(self.reply_id.as_str(), kind));
        }
    }

    /// Emits a frame that we do not know as a custom event.
    pub(crate) fn emit_unknown_frame(&self, text: &str, out: &mut EventSink<'_>) {
        if let Ok(value) = Json::parse(text) {
            self.emit(Custom { name: self.wire.to_owned(), value: CustomValue(value) }, out);
        }
    }

    /// A new id for a block without one.
    pub(crate) fn new_id(&self) -> String {
        format!("{}-{}", self.prefix, self.count)
    }

    /// The number of tool calls of this model call.
    pub(crate) fn tool_calls(&self) -> u64 {
        self.call_ids.len()
    }

    pub(crate) fn is_open(&self, key: u64) -> bool {
        self.open.contains_key(&key)
    }

    /// Starts a block. `key` identifies it while it is open, `id` is its id (empty: a new one), `name` the tool's name for a
    /// tool call. The id of a tool call gets a number if another call of this model call has the same.
    pub(crate) fn start_block(
        &mut self,
        key: u64,
        kind: BlockKind,
        id: &str,
        name: &str,
        out: &mut EventSink<'_>,
    ) {
        self.close_block(key, Fields::default(), out);
        let id = if id.is_empty() { self.new_id() } else { id.to_owned() };
        let id = match kind {
            BlockKind::ToolCall => self.call_ids.make_unique(id),
            BlockKind::Text | BlockKind::Thinking | BlockKind::Data => id,
        };
        match kind {
            BlockKind::Text => self.emit(TextBlockStart { block_id: id.as_str().into() }, out),
            BlockKind::Thinking => {
                self.emit(ThinkingBlockStart { block_id: id.as_str().into() }, out);
            }
            BlockKind::ToolCall => {
                let start =
                    ToolCallStart { tool_call_id: id.as_str().into(), tool_call_name: name.into() };
                out(Event::new(self.reply_id.as_str(), start));
            }
            BlockKind::Data => {
                let media_type = Some(name.to_owned()).filter(|name| !name.is_empty());
                let start = DataBlockStart { block_id: id.as_str().into(), media_type, name: None };
                self.emit(start, out);
            }
        }
        self.block_ids.push(id.clone());
        self.open.insert(key, OpenBlock { kind, id, position: self.count });
        self.count += 1;
    }

    /// Appends to an open block. Returns whether there is one.
    pub(crate) fn push_delta(&self, key: u64, delta: &str, out: &mut EventSink<'_>) -> bool {
        let Some(open) = self.open.get(&key) else { return false };
        self.emit_delta(open, delta, out);
        true
    }

    /// Appends to an open block of this kind. Returns whether there is one.
    pub(crate) fn push_delta_of_kind(
        &self,
        key: u64,
        kind: BlockKind,
        delta: &str,
        out: &mut EventSink<'_>,
    ) -> bool {
        let Some(open) = self.open.get(&key).filter(|open| open.kind == kind) else { return false };
        self.emit_delta(open, delta, out);
        true
    }

    #[inline]
    fn emit_delta(&self, open: &OpenBlock, delta: &str, out: &mut EventSink<'_>) {
        if delta.is_empty() {
            return;
        }
        let (id, delta) = (open.id.as_str().into(), delta.into());
        let kind: EventKind<'_> = match open.kind {
            BlockKind::Text => TextBlockDelta { block_id: id, delta }.into(),
            BlockKind::Thinking => ThinkingBlockDelta { block_id: id, delta }.into(),
            BlockKind::ToolCall => ToolCallDelta { tool_call_id: id, delta }.into(),
            BlockKind::Data => {
                let chunk = Chunk::Data(delta);
                DataBlockDelta { block_id: id, media_type: None, chunk }.into()
            }
        };
        out(Event::new(self.reply_id.as_str(), kind));
    }

    /// Closes a block, if it is open. `extra` becomes fields of the block.
    pub(crate) fn close_block(&mut self, key: u64, extra: Fields, out: &mut EventSink<'_>) {
        self.close_block_with_text(key, None, extra, out);
    }

    /// The same, with the text that replaces what the deltas of a text block gave.
    pub(crate) fn close_block_with_text(
        &mut self,
        key: u64,
        whole: Option<&str>,
        extra: Fields,
        out: &mut EventSink<'_>,
    ) {
        if let Some(open) = self.open.remove(&key) {
            self.emit_block_end(&open, whole, extra, out);
        }
    }

    /// Closes every open block, in the order in which they started.
    pub(crate) fn close_all_blocks(&mut self, out: &mut EventSink<'_>) {
        let mut open: Vec<OpenBlock> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_by_key(|open| open.position);
        for open in open {
            self.emit_block_end(&open, None, Fields::default(), out);
        }
    }

    fn emit_block_end(
        &self,
        open: &OpenBlock,
        whole: Option<&str>,
        extra: Fields,
        out: &mut EventSink<'_>,
    ) {
        let id = open.id.as_str().into();
        match open.kind {
            BlockKind::Text => {
                let text = whole.map(Into::into);
                out(Event::new(self.reply_id.as_str(), TextBlockEnd { block_id: id, text, extra }));
            }
            BlockKind::Thinking => self.emit(ThinkingBlockEnd { block_id: id, extra }, out),
            BlockKind::ToolCall => self.emit(ToolCallEnd { tool_call_id: id, extra }, out),
            BlockKind::Data => self.emit(DataBlockEnd { block_id: id, extra }, out),
        }
    }

    /// Emits a whole block of bytes, or of a URL.
    pub(crate) fn emit_data_block(
        &mut self,
        id: &str,
        media_type: Option<&str>,
        chunk: Chunk<'_>,
        extra: Fields,
        out: &mut EventSink<'_>,
    ) {
        let id = if id.is_empty() { self.new_id() } else { id.to_owned() };
        self.count += 1;
        let media_type = media_type.map(str::to_owned);
        let block_id = || id.as_str().into();
        let start =
            DataBlockStart { block_id: block_id(), media_type: media_type.clone(), name: None };
        self.emit(start, out);
        self.emit(DataBlockDelta { block_id: block_id(), media_type, chunk }, out);
        self.emit(DataBlockEnd { block_id: block_id(), extra }, out);
        self.block_ids.push(id);
    }

    /// Emits an item that only the provider knows, verbatim.
    pub(crate) fn emit_item(&mut self, item: Fields, out: &mut EventSink<'_>) {
        self.emit_block(super::item_to_block(self.wire, item), out);
    }

    /// The same for an item whose id an earlier block has.
    pub(crate) fn emit_duplicate_item(&mut self, item: &Fields, out: &mut EventSink<'_>) {
        self.emit_block(super::item_to_wrapped_block(self.wire, item), out);
    }

    fn emit_block(&mut self, block: ContentBlock, out: &mut EventSink<'_>) {
        self.count += 1;
        if !block.id().is_empty() {
            self.block_ids.push(block.id().to_owned());
        }
        self.emit(Block { block: Box::new(block) }, out);
    }

    /// Ends the reply with an error of the provider.
    pub(crate) fn fail(&mut self, error: ReplyError, out: &mut EventSink<'_>) {
        self.finished_reason = Some(FinishedReason::Error);
        self.error = Some(error);
        self.finish(out);
    }

    /// Closes open blocks and emits the end of the model call. The reply continues with another model call, or with
    /// [`end_of_stream`](Self::end_of_stream).
    pub(crate) fn end_call(&mut self, out: &mut EventSink<'_>) {
        if self.ended || !self.in_call {
            return;
        }
        self.close_all_blocks(out);
        self.in_call = false;
        let reason = self.finished_reason.get_or_insert_default();
        let end = ModelCallEnd {
            usage: self.usage,
            finished_reason: reason.clone(),
            error: self.error.clone(),
            discard: std::mem::take(&mut self.discard),
        };
        let mut event = Event::new(self.reply_id.as_str(), end);
        if !self.metadata.is_empty()
            && let Ok(notes) = Json::from_value(&self.metadata)
        {
            event.metadata.insert(self.wire, notes);
        }
        out(event);
    }

    /// Ends the model call and discards its blocks, because the provider has restarted its answer. The tokens of the first
    /// attempt are unknown.
    pub(crate) fn discard_call(&mut self, out: &mut EventSink<'_>) {
        self.close_all_blocks(out);
        self.usage = TokenCounts::default();
        self.finished_reason = Some(FinishedReason::Truncated);
        self.discard.append(&mut self.block_ids);
        self.end_call(out);
    }

    /// Whether a model call has ended and no other has started.
    pub(crate) fn is_between_calls(&self) -> bool {
        self.begun && !self.in_call
    }

    /// Closes open blocks and emits the end of the reply. The default reason is `completed`.
    pub(crate) fn finish(&mut self, out: &mut EventSink<'_>) {
        if self.ended {
            return;
        }
        if !self.begun {
            self.begin(ModelCallInfo::default(), out);
        }
        self.end_call(out);
        if self.scope == StreamScope::Reply {
            let end = ReplyEnd {
                finished_reason: self.finished_reason.clone().unwrap_or_default(),
                error: self.error.clone(),
                structured_output: self.structured_output.take(),
                ..ReplyEnd::default()
            };
            out(Event::new(self.reply_id.as_str(), end));
        }
        self.ended = true;
    }

    /// The body has ended. A stream without a finish reason was truncated.
    pub(crate) fn end_of_stream(&mut self, out: &mut EventSink<'_>) {
        if self.finished_reason.is_none() && !self.ended {
            self.finished_reason = Some(FinishedReason::Truncated);
            let message = "the provider's stream ended before it was complete";
            self.error = Some(reply_error(ErrorType::Connection, message));
        }
        self.finish(out);
    }
}

/// Takes a token count that a provider reports. The last one counts, but a 0 does not replace another.
pub(crate) fn set_count(count: &mut i64, reported: Option<i64>) {
    if let Some(reported) = reported.filter(|reported| *reported > 0) {
        *count = reported;
    }
}

/// A time as seconds since 1970; 0 if it is unknown or invalid. A time without a zone is in UTC.
pub(crate) fn unix_seconds(time: &str) -> i64 {
    let at = time.parse::<jiff::Timestamp>().or_else(|_| {
        let civil: jiff::civil::DateTime = time.parse()?;
        jiff::tz::TimeZone::UTC.to_timestamp(civil)
    });
    at.map_or(0, jiff::Timestamp::as_second)
}

/// Seconds since 1970 as a time in UTC; empty if the number is no valid time.
fn format_unix_time(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(at) if seconds > 0 => at.to_string(),
        _ => String::new(),
    }
}
