//! One model call as events: its start, its blocks, and its end whatever happens.

use crate::stream::{DecoderOptions, EventSink, StreamScope};
use std::collections::{BTreeMap, HashSet};
use turnwire_core::event::{
    Block, Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart, ModelCallEnd, ModelCallStart,
    ReplyEnd, ReplyStart, TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta,
    ThinkingBlockEnd, ThinkingBlockStart, TokenCounts, ToolCallDelta, ToolCallEnd, ToolCallStart,
};
use turnwire_core::{
    ContentBlock, ErrorType, Event, EventKind, Fields, FinishedReason, Json, ReplyError,
};

/// A model call on its way in. It hands on `REPLY_START` and `MODEL_CALL_START` before anything
/// else, closes what is open, and ends exactly once: as the provider said, or as truncated.
pub(crate) struct ModelCall {
    wire: &'static str,
    scope: StreamScope,
    reply_id: String,
    prefix: String,
    begun: bool,
    /// Whether a model call is open: between its start and its end.
    in_call: bool,
    ended: bool,
    /// The blocks that are open, by what the provider calls them.
    open: BTreeMap<u64, OpenBlock>,
    /// How many blocks there were.
    count: usize,
    /// The ids of those of this model call.
    block_ids: Vec<String>,
    /// The ids of its tool calls.
    call_ids: HashSet<String>,
    /// The tokens, as far as they are known: the provider's last word counts.
    pub usage: TokenCounts,
    /// Why it ended, once the provider has said so. Without it the stream was truncated.
    pub finished_reason: Option<FinishedReason>,
    /// What went wrong.
    pub error: Option<ReplyError>,
    /// What else the provider said of the call: its id, its own words for the end. It becomes the
    /// metadata of `MODEL_CALL_END`, below the wire's name.
    pub metadata: Fields,
    /// Blocks that were taken back.
    pub discard: Vec<String>,
    /// Its structured output, where the wire has a place for it.
    pub structured_output: Option<Json>,
}

/// What a provider says of a call at its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ModelCallInfo<'a> {
    /// Its id; empty where there is none.
    pub id: &'a str,
    /// The model; empty where it is not said.
    pub model: &'a str,
    /// When it began, as seconds since 1970; 0 where it is not said.
    pub created: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Text,
    Thinking,
    ToolCall,
    /// Bytes as base64; the name is what kind of bytes.
    Data,
}

struct OpenBlock {
    kind: BlockKind,
    id: String,
    /// Its place among all blocks.
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
            call_ids: HashSet::new(),
            usage: TokenCounts::default(),
            finished_reason: None,
            error: None,
            metadata: Fields::default(),
            discard: Vec::new(),
            structured_output: None,
        }
    }

    /// The reply; empty until it has begun, where nobody gave one.
    pub(crate) fn reply_id(&self) -> &str {
        &self.reply_id
    }

    /// Whether the end was handed on. Nothing is, behind it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Hands on the start. Only the first one counts: ids may change in mid-stream. Behind
    /// [`stop`](Self::stop) it is the start of the next model call of the same reply.
    pub(crate) fn begin(&mut self, about: ModelCallInfo<'_>, out: &mut EventSink<'_>) {
        if self.in_call || self.ended {
            return;
        }
        self.block_ids.clear();
        self.call_ids.clear();
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
        if !about.id.is_empty() {
            self.metadata.insert("id", about.id);
        }
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

    /// Hands on any event of the reply.
    pub(crate) fn emit<'e>(&'e self, kind: impl Into<EventKind<'e>>, out: &mut EventSink<'_>) {
        if !self.ended {
            out(Event::new(self.reply_id.as_str(), kind));
        }
    }

    /// An id for a block that the provider gives none.
    pub(crate) fn new_id(&self) -> String {
        format!("{}-{}", self.prefix, self.count)
    }

    /// The provider's id for a call, or one like it where another call of this answer has it already.
    fn unique_call_id(&mut self, id: &str) -> String {
        let mut unused = id.to_owned();
        while !self.call_ids.insert(unused.clone()) {
            unused = format!("{unused}-{}", self.count);
        }
        unused
    }

    pub(crate) fn is_open(&self, key: u64) -> bool {
        self.open.contains_key(&key)
    }

    /// Begins a block. `key` is what the provider calls it while it is open, `id` its id for good
    /// (empty: a new one), `name` the tool's for a call.
    pub(crate) fn start_block(
        &mut self,
        key: u64,
        kind: BlockKind,
        id: &str,
        name: &str,
        out: &mut EventSink<'_>,
    ) {
        self.close_block(key, Fields::default(), out);
        let id = match kind {
            _ if id.is_empty() => self.new_id(),
            BlockKind::ToolCall => self.unique_call_id(id),
            BlockKind::Text | BlockKind::Thinking | BlockKind::Data => id.to_owned(),
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

    /// Goes on with an open block; whether there is one.
    pub(crate) fn push_delta(&self, key: u64, delta: &str, out: &mut EventSink<'_>) -> bool {
        let Some(open) = self.open.get(&key) else { return false };
        self.emit_delta(open, delta, out);
        true
    }

    /// Goes on with an open block of this kind; whether there is one.
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

    /// Ends a block, if it is open. `extra` becomes fields of the block.
    pub(crate) fn close_block(&mut self, key: u64, extra: Fields, out: &mut EventSink<'_>) {
        self.close_block_with_text(key, None, extra, out);
    }

    /// The same, with the whole text where the deltas of a text block gave another.
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

    /// Ends every open block, in the order in which they began.
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

    /// A block of bytes, or of a URL, whole.
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

    /// An item that only the provider knows, verbatim.
    pub(crate) fn emit_item(&mut self, item: Fields, out: &mut EventSink<'_>) {
        self.emit_block(super::item_to_block(self.wire, item), out);
    }

    /// The same, where a block of the item's id was there before.
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

    /// The provider says that it failed: that is the last event of the call.
    pub(crate) fn fail(&mut self, error: ReplyError, out: &mut EventSink<'_>) {
        self.finished_reason = Some(FinishedReason::Error);
        self.error = Some(error);
        self.finish(out);
    }

    /// The provider says that this call is done: closes what is open, and hands on the end of the
    /// call. The reply goes on: with another call, or with [`end`](Self::end).
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

    /// The provider has begun its answer anew: ends the call, and takes back all that came of it. What
    /// it took was never said.
    pub(crate) fn discard_call(&mut self, out: &mut EventSink<'_>) {
        self.close_all_blocks(out);
        self.usage = TokenCounts::default();
        self.finished_reason = Some(FinishedReason::Truncated);
        self.discard.append(&mut self.block_ids);
        self.end_call(out);
    }

    /// Whether a call was done, and no other has begun.
    pub(crate) fn is_between_calls(&self) -> bool {
        self.begun && !self.in_call
    }

    /// The provider says that it is done: closes what is open, and hands on the end. A reason that
    /// was never given is `completed`.
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

    /// There are no more bytes. A stream that never said why it ended was cut off.
    pub(crate) fn end_of_stream(&mut self, out: &mut EventSink<'_>) {
        if self.finished_reason.is_none() && !self.ended {
            self.finished_reason = Some(FinishedReason::Truncated);
            self.error = Some(ReplyError {
                r#type: ErrorType::Connection,
                message: "the provider's stream broke off before its end".to_owned(),
                ..ReplyError::default()
            });
        }
        self.finish(out);
    }
}

/// Seconds since 1970 as a time in UTC; empty where there are none, or too many.
fn format_unix_time(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(at) if seconds > 0 => at.to_string(),
        _ => String::new(),
    }
}
