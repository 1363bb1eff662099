//! Builds blocks from a stream without block boundaries. A new block closes the one before it; tool calls stay open until
//! the end.

use super::audio::{AUDIO_ID, EXPIRES_AT, MEDIA_TYPE};
use super::chunk::{Audio, CallPiece, Detail};
use crate::lenient::{Object, Text};
use crate::provider::{BlockKind, LOGPROBS, ModelCall};
use crate::stream::EventSink;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use turnwire_core::event::Chunk;
use turnwire_core::{Fields, Json};

const TEXT_KEY: u64 = 0;
const THINKING_KEY: u64 = 1;
const AUDIO_KEY: u64 = 2;
/// The key of the first tool call; the others follow.
const FIRST_CALL_KEY: u64 = 3;

/// The field of a thinking block that names the field of the chunk it came in, and is sent back in.
pub(super) const REASONING_FIELD: &str = "reasoning_field";
/// The field of a thinking block with its entry of OpenRouter's `reasoning_details`, without the text.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Where thinking came from, and where it is sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThinkingOrigin {
    /// `<think>` tags inside the text.
    Tags,
    /// A field with this name; `content` is Mistral's list of parts.
    Field(&'static str),
    /// OpenRouter's `reasoning_details`.
    Details,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Nothing,
    Text,
    Thinking(ThinkingOrigin),
}

pub(super) struct StreamBlocks {
    pub call: ModelCall,
    open: OpenBlock,
    /// The entry of `reasoning_details` that the open thinking block is.
    detail: ReasoningDetail,
    /// The annotations of the open text block.
    annotations: Vec<Json>,
    last_annotations: String,
    /// The log probabilities of its tokens.
    logprobs: Vec<Json>,
    /// The references of the whole answer; Perplexity repeats them in every chunk.
    citations: String,
    search_results: String,
    audio_id: String,
    audio_expires_at: Option<i64>,
    calls: Vec<CallSlot>,
    by_index: HashMap<i64, usize>,
    by_id: HashMap<String, usize>,
}

#[derive(Default)]
struct ReasoningDetail {
    r#type: String,
    index: Option<i64>,
    fields: Fields,
}

/// A tool call, started or about to start.
#[derive(Default)]
struct CallSlot {
    /// The provider's id.
    id: String,
    name: String,
    begun: bool,
    extra: Fields,
}

impl StreamBlocks {
    pub(super) fn new(call: ModelCall) -> Self {
        Self {
            call,
            open: OpenBlock::Nothing,
            detail: ReasoningDetail::default(),
            annotations: Vec::new(),
            last_annotations: String::new(),
            logprobs: Vec::new(),
            citations: String::new(),
            search_results: String::new(),
            audio_id: String::new(),
            audio_expires_at: None,
            calls: Vec::new(),
            by_index: HashMap::new(),
            by_id: HashMap::new(),
        }
    }

    pub(super) fn push_text(&mut self, piece: &str, out: &mut EventSink<'_>) {
        if self.open != OpenBlock::Text {
            self.close_text_block(out);
            self.call.start_block(TEXT_KEY, BlockKind::Text, "", "", out);
            self.open = OpenBlock::Text;
        }
        self.call.push_delta(TEXT_KEY, piece, out);
    }

    pub(super) fn push_thinking(
        &mut self,
        piece: &str,
        origin: ThinkingOrigin,
        out: &mut EventSink<'_>,
    ) {
        if piece.is_empty() {
            return;
        }
        if !matches!(self.open, OpenBlock::Thinking(_)) {
            self.begin_thinking(origin, out);
        }
        self.call.push_delta(THINKING_KEY, piece, out);
    }

    fn begin_thinking(&mut self, origin: ThinkingOrigin, out: &mut EventSink<'_>) {
        self.close_text_block(out);
        self.call.start_block(THINKING_KEY, BlockKind::Thinking, "", "", out);
        self.open = OpenBlock::Thinking(origin);
    }

    /// Reads OpenRouter's `reasoning_details`. Each entry is a block, so that it can be sent back as it was. Returns whether
    /// there was any text.
    pub(super) fn push_reasoning_details(
        &mut self,
        raw: &RawValue,
        out: &mut EventSink<'_>,
    ) -> bool {
        let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else { return false };
        let mut any = false;
        for raw in list {
            let Ok(Object(Some(detail))) = serde_json::from_str::<Object<Detail<'_>>>(raw.get())
            else {
                continue;
            };
            let Ok(mut fields) = serde_json::from_str::<Fields>(raw.get()) else { continue };
            let goes_on = matches!(&*detail.r#type.0, "reasoning.text" | "reasoning.summary");
            let same = self.open == OpenBlock::Thinking(ThinkingOrigin::Details)
                && self.detail.r#type == detail.r#type.0
                && self.detail.index == detail.index.0;
            if !(goes_on && same) {
                self.begin_thinking(ThinkingOrigin::Details, out);
                self.detail.r#type = detail.r#type.0.into_owned();
                self.detail.index = detail.index.0;
            }
            if goes_on {
                fields.remove("text");
                fields.remove("summary");
            }
            for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                self.detail.fields.insert(key, value.clone());
            }
            if goes_on {
                let piece = if detail.text.is_empty() { &detail.summary } else { &detail.text };
                any |= !piece.is_empty();
                self.call.push_delta(THINKING_KEY, &piece.0, out);
            } else {
                self.close_text_block(out);
            }
        }
        any
    }

    /// Closes the open text or thinking block.
    pub(super) fn close_text_block(&mut self, out: &mut EventSink<'_>) {
        match std::mem::replace(&mut self.open, OpenBlock::Nothing) {
            OpenBlock::Nothing => {}
            OpenBlock::Text => {
                let extra = self.take_references();
                self.call.close_block(TEXT_KEY, extra, out);
            }
            OpenBlock::Thinking(origin) => {
                let mut extra = Fields::default();
                match origin {
                    ThinkingOrigin::Tags => {}
                    ThinkingOrigin::Field(name) => extra.insert(REASONING_FIELD, name),
                    ThinkingOrigin::Details => {
                        let entry = std::mem::take(&mut self.detail).fields;
                        if let Ok(list) = Json::from_value(&[entry]) {
                            extra.insert(REASONING_DETAILS, list);
                        }
                    }
                }
                self.call.close_block(THINKING_KEY, extra, out);
            }
        }
    }

    /// The references of the text, its log probabilities, and of which audio it is the transcript, as fields of its block.
    fn take_references(&mut self) -> Fields {
        let mut fields = Fields::default();
        if self.call.is_open(AUDIO_KEY) {
            fields.insert_unless_empty(AUDIO_ID, &self.audio_id);
        }
        for (key, list) in [("annotations", &mut self.annotations), (LOGPROBS, &mut self.logprobs)]
        {
            let list = std::mem::take(list);
            if !list.is_empty()
                && let Ok(list) = Json::from_value(&list)
            {
                fields.insert(key, list);
            }
        }
        for (key, text) in
            [("citations", &self.citations), ("search_results", &self.search_results)]
        {
            if let Ok(list) = Json::parse(text) {
                fields.insert(key, list);
            }
        }
        fields
    }

    pub(super) fn add_annotations(&mut self, raw: &RawValue) {
        // Some providers repeat them.
        if self.last_annotations == raw.get() {
            return;
        }
        raw.get().clone_into(&mut self.last_annotations);
        if let Ok(list) = serde_json::from_str::<Vec<Json>>(raw.get()) {
            self.annotations.extend(list);
        }
    }

    /// Adds log probabilities of tokens of the text.
    pub(super) fn add_logprobs(&mut self, logprobs: Vec<Json>) {
        self.logprobs.extend(logprobs);
    }

    pub(super) fn set_citations(
        &mut self,
        citations: Option<&RawValue>,
        results: Option<&RawValue>,
    ) {
        for (held, raw) in [(&mut self.citations, citations), (&mut self.search_results, results)] {
            if let Some(raw) = raw.filter(|raw| raw.get() != held && raw.get() != "[]") {
                raw.get().clone_into(held);
            }
        }
    }

    /// Emits a part that only the provider knows.
    pub(super) fn push_item(&mut self, item: Fields, out: &mut EventSink<'_>) {
        self.close_text_block(out);
        self.call.emit_item(item, out);
    }

    /// Emits an image.
    pub(super) fn push_image(&mut self, url: &str, out: &mut EventSink<'_>) {
        if url.is_empty() {
            return;
        }
        self.close_text_block(out);
        let (media_type, chunk) = match super::parts::parse_data_url(url) {
            Some((media_type, data)) => (media_type, Chunk::Data(data.into())),
            None => (None, Chunk::Url(url.into())),
        };
        self.call.emit_data_block("", media_type, chunk, Fields::default(), out);
    }

    /// Appends audio. Its transcript is a text block inside of it.
    pub(super) fn push_audio(&mut self, audio: &Audio<'_>, out: &mut EventSink<'_>) {
        if self.audio_id.is_empty() {
            self.audio_id = audio.id.0.clone().into_owned();
        }
        self.audio_expires_at = audio.expires_at.0.or(self.audio_expires_at);
        if !self.call.is_open(AUDIO_KEY) {
            self.close_text_block(out);
            self.call.start_block(AUDIO_KEY, BlockKind::Data, &self.audio_id, MEDIA_TYPE, out);
        }
        if !audio.data.is_empty() {
            self.call.push_delta(AUDIO_KEY, &audio.data.0, out);
        }
        if !audio.transcript.is_empty() {
            self.push_text(&audio.transcript.0, out);
        }
    }

    /// Adds a piece of a tool call, or a whole one.
    pub(super) fn push_call_piece(&mut self, piece: &CallPiece<'_>, out: &mut EventSink<'_>) {
        let none = Text::default();
        let (name, input) = match (&piece.function.0, &piece.custom.0) {
            (_, Some(custom)) => (&custom.name, Cow::Borrowed(&*custom.input.0)),
            (Some(function), None) => {
                (&function.name, function.arguments.map_or("".into(), input_text))
            }
            (None, None) => (&none, "".into()),
        };
        let at = self.find_or_add_call(piece.index.0, &piece.id.0, &name.0);
        let Some(slot) = self.calls.get_mut(at) else { return };
        if slot.id.is_empty() && !slot.begun {
            slot.id = piece.id.0.clone().into_owned();
        }
        if slot.name.is_empty() {
            slot.name = name.0.clone().into_owned();
        }
        if piece.custom.0.is_some() {
            slot.extra.insert("custom", true);
        }
        if let Some(raw) = piece.extra_content
            && let Ok(extra) = Json::parse(raw.get())
        {
            slot.extra.insert("extra_content", extra);
        }
        // The name may come after the id.
        let named = !slot.name.is_empty() || !input.is_empty();
        if named && !slot.begun {
            self.begin_call(at, out);
        }
        self.call.push_delta(FIRST_CALL_KEY + at as u64, &input, out);
    }

    /// The index of the call that a piece belongs to.
    fn find_or_add_call(&mut self, index: Option<i64>, id: &str, name: &str) -> usize {
        let known = match index {
            // Some providers give all calls the index 0.
            Some(index) => self.by_index.get(&index).copied().filter(|&at| {
                let before = self.calls.get(at).map_or("", |slot| &slot.id);
                id.is_empty() || before.is_empty() || before == id || name.is_empty()
            }),
            None if !id.is_empty() => self.by_id.get(id).copied(),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        let at = known.unwrap_or_else(|| {
            self.calls.push(CallSlot::default());
            self.calls.len() - 1
        });
        if let Some(index) = index {
            self.by_index.insert(index, at);
        }
        at
    }

    fn begin_call(&mut self, at: usize, out: &mut EventSink<'_>) {
        self.close_text_block(out);
        let Some(slot) = self.calls.get_mut(at) else { return };
        slot.begun = true;
        let key = FIRST_CALL_KEY + at as u64;
        self.call.start_block(key, BlockKind::ToolCall, &slot.id, &slot.name, out);
        if !slot.id.is_empty() {
            self.by_id.entry(slot.id.clone()).or_insert(at);
        }
    }

    /// Closes all blocks, in the order in which they started.
    pub(super) fn close_all(&mut self, out: &mut EventSink<'_>) {
        self.close_text_block(out);
        if self.call.is_open(AUDIO_KEY) {
            let mut extra = Fields::default();
            extra.insert_unless_empty(AUDIO_ID, &self.audio_id);
            extra.insert_some(EXPIRES_AT, self.audio_expires_at);
            self.call.close_block(AUDIO_KEY, extra, out);
        }
        for at in 0..self.calls.len() {
            if self.calls.get(at).is_some_and(|slot| !slot.begun) {
                self.begin_call(at, out);
            }
        }
        for (at, slot) in self.calls.drain(..).enumerate() {
            self.call.close_block(FIRST_CALL_KEY + at as u64, slot.extra, out);
        }
        // Annotations without a text block.
        let references = std::mem::take(&mut self.annotations);
        if !references.is_empty()
            && let Ok(list) = Json::from_value(&references)
        {
            self.call.metadata.insert("annotations", list);
        }
    }
}

/// A piece of the arguments, which is JSON text; some providers send the JSON itself.
fn input_text(raw: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<Text<'_>>(raw.get()) {
        Ok(text) if raw.get().starts_with('"') => text.0,
        _ => raw.get().into(),
    }
}
