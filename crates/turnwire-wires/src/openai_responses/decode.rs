//! The stream in.
//!
//! Items are told apart by their `output_index`: ids may rotate from event to event. What a `done`
//! event repeats is compared with what the deltas gave, by length and checksum, and only what is
//! missing is handed on.

mod frame;

use super::item::{self, Item, ReasoningPart};
use super::read::{self, Int, Raw, Text};
use super::{NAME, error};
use crate::provider::{BlockKind, ModelCall, ModelCallInfo};
use crate::stream::{Decode, DecoderOptions, EventSink};
use frame::{Frame, IncompleteDetails, InputTokensDetails, Response, Usage};
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{ContentBlock, Error, ErrorKind, Fields, FinishedReason, Json, Result};

/// Where the places begin of items whose own is taken: behind all that a provider counts.
const FIRST_MOVED_INDEX: u64 = 1 << 31;

pub(super) struct ResponsesDecoder {
    call: ModelCall,
    /// The start of the response was seen. Without it the stream may begin anywhere.
    has_start: bool,
    items: BTreeMap<u64, ItemState>,
    /// The items by everything that they were called.
    names: HashMap<String, u64>,
    /// Where the last item is of a place that several have had: some give them all the same.
    moved_indexes: HashMap<u64, u64>,
    move_count: u64,
    parts: BTreeMap<u64, PartState>,
    /// The ids of blocks that are taken.
    block_ids: HashSet<String>,
    /// The same of items that are kept verbatim.
    item_ids: HashSet<String>,
    /// The item that came last, and the place behind all of them.
    last_index: u64,
    next_index: u64,
    call_count: usize,
    is_refusal: bool,
}

/// An item of which something was seen.
#[derive(Default)]
struct ItemState {
    r#type: String,
    id: String,
    /// It was announced, or else began in the middle.
    added: bool,
    done: bool,
    /// It is not the reply's: what it says is said elsewhere.
    is_ignored: bool,
    /// Its parts in the order in which they began.
    parts: Vec<u64>,
    /// The blocks that it became.
    blocks: Vec<String>,
}

/// A block of which the deltas are counted, so that a repeat of them is known.
#[derive(Default)]
struct PartState {
    length: usize,
    checksum: u64,
    is_closed: bool,
    /// The whole text, where the deltas gave another.
    replacement: Option<String>,
}

impl PartState {
    #[inline]
    fn add_delta(&mut self, delta: &str) {
        self.length += delta.len();
        self.checksum = checksum(self.checksum, delta.as_bytes());
    }

    /// What of the whole text the deltas have not given; `None` where they gave another.
    fn missing_text<'w>(&self, whole: &'w str) -> Option<&'w str> {
        let (before, behind) = whole.split_at_checked(self.length)?;
        (checksum(0, before.as_bytes()) == self.checksum).then_some(behind)
    }
}

/// Tells one text from another, and is fed piece by piece. After FNV-1a.
#[inline]
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).wrapping_add(1)
    })
}

/// Where a block is inside an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Text,
    Summary,
    Thinking,
    ToolCall,
}

fn part_key(index: u64, slot: PartKind, at: u64) -> u64 {
    (index << 32) | ((slot as u64) << 30) | (at & 0x3fff_ffff)
}

impl ResponsesDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            has_start: false,
            items: BTreeMap::new(),
            names: HashMap::new(),
            moved_indexes: HashMap::new(),
            move_count: 0,
            parts: BTreeMap::new(),
            block_ids: HashSet::new(),
            item_ids: HashSet::new(),
            last_index: 0,
            next_index: 0,
            call_count: 0,
            is_refusal: false,
        }
    }

    fn frame_index(&self, frame: &Frame<'_>) -> u64 {
        self.actual_index(frame.output_index.index().unwrap_or(self.last_index))
    }

    fn actual_index(&self, said: u64) -> u64 {
        let said = said & 0xffff_ffff;
        self.moved_indexes.get(&said).copied().unwrap_or(said)
    }

    /// The place of an item that begins, or is done. One that is another's gets its own.
    fn assign_index(&mut self, said: u64, item: &Item<'_>, begins: bool) -> u64 {
        let place = self.actual_index(said);
        if let Some(&known) = item_names(item).find_map(|name| self.names.get(&name)) {
            return if self.moved_indexes.is_empty() { place } else { known };
        }
        let is_taken = self.items.get(&place).is_some_and(|seen| {
            let is_other = begins && seen.added && item_names(item).next().is_some();
            seen.done || is_other
        });
        if !is_taken {
            return place;
        }
        let own = (FIRST_MOVED_INDEX + self.move_count) & 0xffff_ffff;
        self.move_count += 1;
        self.moved_indexes.insert(said & 0xffff_ffff, own);
        own
    }

    #[inline]
    fn push_delta(
        &mut self,
        index: u64,
        slot: PartKind,
        at: Int,
        delta: &str,
        out: &mut EventSink<'_>,
    ) {
        let at = at.index().unwrap_or(0);
        let key = part_key(index, slot, at);
        if !self.parts.contains_key(&key) && !self.open_part(index, slot, at, out) {
            return;
        }
        if let Some(part) = self.parts.get_mut(&key)
            && !part.is_closed
        {
            part.add_delta(delta);
            self.call.push_delta(key, delta, out);
        }
    }

    /// Begins a block of text or thinking; whether it could.
    fn open_part(&mut self, index: u64, slot: PartKind, at: u64, out: &mut EventSink<'_>) -> bool {
        let kind = match slot {
            PartKind::Text => BlockKind::Text,
            PartKind::Summary | PartKind::Thinking => BlockKind::Thinking,
            // A call begins with its item: there is no other place for its name.
            PartKind::ToolCall => return false,
        };
        let key = part_key(index, slot, at);
        self.touch_item(index);
        let Some(seen) = self.items.get(&index) else { return false };
        // Nothing can set right what is missing at the front of thinking, so it waits for the whole.
        let cut = kind == BlockKind::Thinking && !seen.added && !self.has_start;
        if seen.done || seen.is_ignored || cut || self.parts.contains_key(&key) {
            return false;
        }
        if kind == BlockKind::Thinking
            && let Some(&before) = seen.parts.last()
        {
            let mut extra = Fields::default();
            extra.insert(item::ITEM_ID, seen.id.as_str());
            self.close_part(before, extra, out);
        }
        let id = self.block_id(index, at);
        self.start_block(index, key, kind, &id, "", out);
        true
    }

    /// The item's own id for its first block; for the others one made from it.
    fn block_id(&mut self, index: u64, at: u64) -> String {
        let Some(seen) = self.items.get(&index) else { return String::new() };
        let mut id = seen.id.clone();
        if !id.is_empty() && !seen.blocks.is_empty() {
            id = format!("{id}-{at}");
        }
        if id.is_empty() || self.block_ids.contains(&id) {
            id = String::new();
        }
        id
    }

    fn start_block(
        &mut self,
        index: u64,
        key: u64,
        kind: BlockKind,
        id: &str,
        name: &str,
        out: &mut EventSink<'_>,
    ) {
        self.call.begin(ModelCallInfo::default(), out);
        let id = if id.is_empty() { self.call.new_id() } else { id.to_owned() };
        self.call.start_block(key, kind, &id, name, out);
        self.block_ids.insert(id.clone());
        self.parts.insert(key, PartState::default());
        if let Some(seen) = self.items.get_mut(&index) {
            seen.parts.push(key);
            seen.blocks.push(id);
        }
    }

    fn touch_item(&mut self, index: u64) {
        self.last_index = index;
        self.next_index = self.next_index.max(index.saturating_add(1));
        self.items.entry(index).or_default();
    }

    /// Takes the whole text of a block: what of it is new is handed on.
    fn complete_text(&mut self, key: u64, whole: &str, out: &mut EventSink<'_>) {
        let Some(part) = self.parts.get_mut(&key) else { return };
        if part.is_closed || whole.is_empty() {
            return;
        }
        match part.missing_text(whole) {
            Some(missing) => {
                part.add_delta(missing);
                part.replacement = None;
                self.call.push_delta(key, missing, out);
            }
            None => part.replacement = Some(whole.to_owned()),
        }
    }

    fn close_part(&mut self, key: u64, extra: Fields, out: &mut EventSink<'_>) {
        if let Some(part) = self.parts.get_mut(&key)
            && !part.is_closed
        {
            part.is_closed = true;
            let whole = part.replacement.take();
            self.call.close_block_with_text(key, whole.as_deref(), extra, out);
        }
    }

    fn read_part(&mut self, frame: &Frame<'_>, out: &mut EventSink<'_>) {
        let Some(raw) = frame.part else { return };
        let (index, part) = (self.frame_index(frame), item::parse_part(raw));
        let slot = match &*part.r#type {
            "output_text" | "text" => PartKind::Text,
            "refusal" => {
                self.is_refusal = true;
                PartKind::Text
            }
            "summary_text" => PartKind::Summary,
            "reasoning_text" => PartKind::Thinking,
            // It comes with the item, verbatim.
            _ => return,
        };
        let at = if slot == PartKind::Summary { frame.summary_index } else { frame.content_index };
        let at = at.index().unwrap_or(0);
        self.open_part(index, slot, at, out);
        let text = item::part_text(&part).unwrap_or(&part.text);
        self.complete_text(part_key(index, slot, at), text, out);
    }

    fn item_added(&mut self, frame: &Frame<'_>, out: &mut EventSink<'_>) {
        let Some(raw) = frame.item else { return };
        let item: Item<'_> = read::of(raw);
        let index =
            self.assign_index(frame.output_index.index().unwrap_or(self.next_index), &item, true);
        self.call.begin(ModelCallInfo::default(), out);
        self.touch_item(index);
        self.register_names(index, &item);
        let Some(seen) = self.items.get_mut(&index) else { return };
        if std::mem::replace(&mut seen.added, true) {
            return;
        }
        (*item.r#type).clone_into(&mut seen.r#type);
        (*item.id).clone_into(&mut seen.id);
        seen.is_ignored = item.structured_output.0;
        if is_call(&item) && !item.name.is_empty() {
            self.start_call(index, &item, out);
            self.complete_text(part_key(index, PartKind::ToolCall, 0), item.call_input(), out);
        }
    }

    /// Remembers what the item is called, for the final response.
    fn register_names(&mut self, index: u64, item: &Item<'_>) {
        for name in item_names(item) {
            self.names.entry(name).or_insert(index);
        }
    }

    fn start_call(&mut self, index: u64, item: &Item<'_>, out: &mut EventSink<'_>) {
        self.call_count += 1;
        let given = if item.call_id.is_empty() { &item.id } else { &item.call_id };
        let mut id = given.to_string();
        let mut count = 1;
        while !id.is_empty() && self.block_ids.contains(&id) {
            count += 1;
            id = format!("{}-{count}", &**given);
        }
        self.start_block(
            index,
            part_key(index, PartKind::ToolCall, 0),
            BlockKind::ToolCall,
            &id,
            &item.name,
            out,
        );
    }

    fn item_done(&mut self, index: u64, raw: &RawValue, out: &mut EventSink<'_>) {
        let item: Item<'_> = read::of(raw);
        self.call.begin(ModelCallInfo::default(), out);
        self.touch_item(index);
        self.register_names(index, &item);
        let Some(seen) = self.items.get_mut(&index) else { return };
        if seen.done {
            if item.discarded.0 {
                self.call.discard.append(&mut seen.blocks);
            }
            return;
        }
        // What the final response has is matched by this, where ids rotate.
        if !item.r#type.is_empty() {
            (*item.r#type).clone_into(&mut seen.r#type);
        }
        if seen.id.is_empty() {
            (*item.id).clone_into(&mut seen.id);
        }
        seen.added = true;
        if seen.is_ignored || item.structured_output.0 {
            seen.done = true;
            return;
        }
        if !is_call(&item) && !item.r#type.is_empty() {
            self.discard_call(index, out);
        }
        match &*item.r#type {
            "message" => self.message_done(index, &item, raw, out),
            "reasoning" => self.reasoning_done(index, &item, raw, out),
            _ if is_call(&item) => {
                if !self.parts.contains_key(&part_key(index, PartKind::ToolCall, 0)) {
                    self.start_call(index, &item, out);
                }
                self.complete_text(part_key(index, PartKind::ToolCall, 0), item.call_input(), out);
                self.close_part(part_key(index, PartKind::ToolCall, 0), item::call_extra(raw), out);
            }
            _ => match item.image() {
                Some(image) => self.emit_image(index, &item, image, raw, out),
                None => self.emit_item(read::of(raw), out),
            },
        }
        self.close_remaining(index, raw, out);
        if let Some(seen) = self.items.get_mut(&index) {
            seen.done = true;
            if item.discarded.0 {
                self.call.discard.append(&mut seen.blocks);
            }
        }
    }

    /// What began as a call ends as something else: the provider has served it itself, as Perplexity
    /// does with its searches.
    fn discard_call(&mut self, index: u64, out: &mut EventSink<'_>) {
        let key = part_key(index, PartKind::ToolCall, 0);
        if self.parts.remove(&key).is_none() {
            return;
        }
        self.call.close_block(key, Fields::default(), out);
        self.call_count = self.call_count.saturating_sub(1);
        if let Some(seen) = self.items.get_mut(&index) {
            seen.parts.retain(|part| *part != key);
            self.call.discard.append(&mut seen.blocks);
        }
    }

    fn message_done(
        &mut self,
        index: u64,
        item: &Item<'_>,
        raw: &RawValue,
        out: &mut EventSink<'_>,
    ) {
        for (at, part) in (0..).zip(item.parts()) {
            let read = item::parse_part(part);
            self.is_refusal |= &*read.r#type == "refusal";
            let Some(text) = item::part_text(&read) else {
                // A part that nobody knows goes back as a message of its own.
                let mut alone: Fields = read::of(raw);
                if let Ok(part) = Json::parse(part.get()) {
                    alone.insert(
                        "content",
                        Json::from_value(&[part]).unwrap_or_else(|_| Json::from(0)),
                    );
                }
                self.emit_item(alone, out);
                continue;
            };
            let key = part_key(index, PartKind::Text, at);
            self.open_part(index, PartKind::Text, at, out);
            self.complete_text(key, text, out);
            if item.replaced.0
                && text.is_empty()
                && let Some(part) = self.parts.get_mut(&key)
            {
                part.replacement = Some(String::new());
            }
            self.close_part(key, item::text_extra(Some(part), raw), out);
        }
    }

    fn reasoning_done(
        &mut self,
        index: u64,
        item: &Item<'_>,
        raw: &RawValue,
        out: &mut EventSink<'_>,
    ) {
        let (mut summaries, mut contents) = (0, 0);
        for (place, part) in item::reasoning_parts(item) {
            let (slot, count) = match place {
                ReasoningPart::Summary => (PartKind::Summary, &mut summaries),
                ReasoningPart::Content => (PartKind::Thinking, &mut contents),
            };
            self.open_part(index, slot, *count, out);
            self.complete_text(part_key(index, slot, *count), &item::parse_part(part).text, out);
            *count += 1;
        }
        if self.items.get(&index).is_some_and(|seen| seen.parts.is_empty()) {
            self.open_part(index, PartKind::Summary, 0, out);
        }
        if let Some(&last) = self.items.get(&index).and_then(|seen| seen.parts.last()) {
            self.close_part(last, item::reasoning_extra(raw), out);
        }
    }

    fn emit_image(
        &mut self,
        index: u64,
        item: &Item<'_>,
        image: Text<'_>,
        raw: &RawValue,
        out: &mut EventSink<'_>,
    ) {
        let kind = item.image_type(&image);
        let mut id = self.block_id(index, 0);
        if id.is_empty() {
            id = self.call.new_id();
        }
        self.block_ids.insert(id.clone());
        self.call.emit_data_block(
            &id,
            Some(&kind),
            Chunk::Data(image.0),
            item::image_extra(raw),
            out,
        );
        if let Some(seen) = self.items.get_mut(&index) {
            seen.blocks.push(id);
        }
    }

    /// An item, or a part of one, that only the provider knows. Two blocks cannot have one id, and
    /// items can do without.
    fn emit_item(&mut self, mut item: Fields, out: &mut EventSink<'_>) {
        let id: Option<String> = item.get("id").unwrap_or_default();
        if id.is_some_and(|id| !self.item_ids.insert(id)) {
            item.remove("id");
        }
        // Without a type, or with one of ours, a stored message could not be read again.
        let again = item.parse_as::<ContentBlock>();
        if matches!(again, Ok(ContentBlock::Other(_))) {
            self.call.emit_item(item, out);
        }
    }

    /// Ends blocks of an item that its end did not mention.
    fn close_remaining(&mut self, index: u64, raw: &RawValue, out: &mut EventSink<'_>) {
        let parts = self.items.get(&index).map(|seen| seen.parts.clone()).unwrap_or_default();
        for key in parts {
            if self.parts.get(&key).is_some_and(|part| !part.is_closed) {
                self.close_part(key, item::text_extra(None, raw), out);
            }
        }
    }

    fn begin_response(&mut self, response: &Response<'_>, out: &mut EventSink<'_>) {
        self.has_start = true;
        let about = ModelCallInfo {
            id: &response.id,
            model: &response.model,
            created: response.created_at.or_zero(),
        };
        self.call.begin(about, out);
        self.update_usage(response.usage);
    }

    /// The last word counts, unless it says nothing.
    fn update_usage(&mut self, usage: Raw<'_>) {
        let usage: Usage<'_> = read::maybe(usage);
        let cached: InputTokensDetails = read::maybe(usage.input_tokens_details);
        let counts = &mut self.call.usage;
        for (count, said) in [
            (&mut counts.input_tokens, usage.input_tokens),
            (&mut counts.output_tokens, usage.output_tokens),
            (&mut counts.cache_input_tokens, cached.cached_tokens),
            (&mut counts.cache_creation_input_tokens, cached.cache_write_tokens),
        ] {
            if said.or_zero() != 0 {
                *count = said.or_zero();
            }
        }
    }

    fn end_response(&mut self, response: &Response<'_>, word: &str, out: &mut EventSink<'_>) {
        // There is no event of its own for it.
        let word = if &*response.status == "cancelled" { "cancelled" } else { word };
        self.begin_response(response, out);
        self.final_items(response, out);
        self.close_replaced_parts(out);
        self.call.metadata.insert("status", word);
        if let Some(output) = response.structured_output {
            self.call.structured_output = Json::parse(output.get()).ok();
        }
        let details: IncompleteDetails<'_> = read::maybe(response.incomplete_details);
        if !details.reason.is_empty() {
            self.call.metadata.insert("incomplete_reason", &*details.reason);
        }
        if word == "failed" {
            let raw = response.error.map_or("{}", |error| error.get());
            return self.call.fail(error::read_error(raw), out);
        }
        self.call.finished_reason = Some(self.finished_reason(word, &details.reason));
        self.call.end_call(out);
    }

    /// Another response in the same body is the next model call of the same reply. Its places are its
    /// own; ids of blocks stay taken.
    fn next_response(&mut self) {
        self.items.clear();
        self.names.clear();
        self.parts.clear();
        (self.last_index, self.next_index) = (0, 0);
        self.moved_indexes.clear();
        (self.call_count, self.is_refusal) = (0, false);
    }

    fn finished_reason(&self, word: &str, why: &str) -> FinishedReason {
        match (word, why) {
            (_, "max_output_tokens" | "max_tokens" | "length") => FinishedReason::Length,
            (_, "content_filter") => FinishedReason::ContentFilter,
            ("cancelled", _) => FinishedReason::Interrupted,
            // Never a success, whatever the word is.
            ("incomplete", why) => match FinishedReason::from(why) {
                FinishedReason::Completed | FinishedReason::Other(_) => FinishedReason::Truncated,
                reason => reason,
            },
            _ if self.is_refusal => FinishedReason::Refusal,
            _ if self.call_count > 0 => FinishedReason::ToolCalls,
            _ => FinishedReason::Completed,
        }
    }

    /// The final response may have items that were never streamed, or never ended. Its places are
    /// not always those of the stream, and its ids may be new: an item is known by either.
    fn final_items(&mut self, response: &Response<'_>, out: &mut EventSink<'_>) {
        for (at, raw) in (0..).zip(item::parse_list(response.output)) {
            let item: Item<'_> = read::of(raw);
            let named = item_names(&item).find_map(|name| self.names.get(&name).copied());
            let placed = || {
                let seen = self.items.get(&at)?;
                let same = *seen.r#type == *item.r#type || seen.r#type.is_empty();
                same.then_some(at)
            };
            let index = named.or_else(placed).unwrap_or(self.next_index);
            if !self.items.get(&index).is_some_and(|seen| seen.done) {
                self.item_done(index, raw, out);
            }
        }
    }

    fn close_replaced_parts(&mut self, out: &mut EventSink<'_>) {
        let mut open: Vec<u64> = self
            .parts
            .iter()
            .filter(|(_, part)| part.replacement.is_some())
            .map(|(&key, _)| key)
            .collect();
        open.sort_unstable();
        for key in open {
            self.close_part(key, Fields::default(), out);
        }
    }

    fn fail(&mut self, text: &str, out: &mut EventSink<'_>) {
        self.close_replaced_parts(out);
        self.call.fail(error::read_error(text), out);
    }

    fn end_with_status(&mut self, raw: Raw<'_>, word: &str, out: &mut EventSink<'_>) {
        let response: Response<'_> = read::maybe(raw);
        self.end_response(&response, word, out);
    }
}

/// What an item is called: by its id, and by its call's, which the call and its output share.
fn item_names(item: &Item<'_>) -> impl Iterator<Item = String> {
    let id = (!item.id.is_empty()).then(|| item.id.to_string());
    let call = (!item.call_id.is_empty()).then(|| format!("{} {}", &*item.r#type, &*item.call_id));
    id.into_iter().chain(call)
}

fn is_call(item: &Item<'_>) -> bool {
    matches!(&*item.r#type, "function_call" | item::CUSTOM_CALL)
}

impl Decode for ResponsesDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        // Nothing counts behind the end; and this wire has no last word, but some send one.
        if self.call.has_ended() || text == "[DONE]" {
            return Ok(());
        }
        let frame: Frame<'_> = serde_json::from_str(text).map_err(|error| {
            let kind = match error.classify() {
                Category::Data => ErrorKind::NotAnEvent,
                Category::Io | Category::Syntax | Category::Eof => ErrorKind::NotJson,
            };
            Error::new(kind, error.to_string())
        })?;
        // A list would be read as the fields in order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(Error::new(ErrorKind::NotAnEvent, "it is no object"));
        }
        if self.call.is_between_calls() {
            if &*frame.r#type != "response.created" {
                return Ok(());
            }
            self.next_response();
        }
        let index = self.frame_index(&frame);
        match &*frame.r#type {
            "response.output_text.delta" => {
                self.push_delta(index, PartKind::Text, frame.content_index, &frame.delta, out);
            }
            "response.refusal.delta" => {
                self.is_refusal = true;
                self.push_delta(index, PartKind::Text, frame.content_index, &frame.delta, out);
            }
            "response.reasoning_summary_text.delta" => {
                self.push_delta(index, PartKind::Summary, frame.summary_index, &frame.delta, out);
            }
            "response.reasoning_text.delta" => {
                self.push_delta(index, PartKind::Thinking, frame.content_index, &frame.delta, out);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.push_delta(index, PartKind::ToolCall, Int(Some(0)), &frame.delta, out);
            }
            "response.output_text.done" | "response.refusal.done" => {
                let at = frame.content_index.index().unwrap_or(0);
                self.open_part(index, PartKind::Text, at, out);
                let whole = if frame.text.is_empty() { &frame.refusal } else { &frame.text };
                self.complete_text(part_key(index, PartKind::Text, at), whole, out);
            }
            "response.reasoning_summary_text.done" => {
                let at = frame.summary_index.index().unwrap_or(0);
                self.open_part(index, PartKind::Summary, at, out);
                self.complete_text(part_key(index, PartKind::Summary, at), &frame.text, out);
            }
            "response.reasoning_text.done" => {
                let at = frame.content_index.index().unwrap_or(0);
                self.open_part(index, PartKind::Thinking, at, out);
                self.complete_text(part_key(index, PartKind::Thinking, at), &frame.text, out);
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let input =
                    if frame.arguments.is_empty() { &frame.input } else { &frame.arguments };
                self.complete_text(part_key(index, PartKind::ToolCall, 0), input, out);
            }
            "response.content_part.added"
            | "response.content_part.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done" => self.read_part(&frame, out),
            "response.output_item.added" => self.item_added(&frame, out),
            "response.output_item.done" => {
                if let Some(item) = frame.item {
                    let said = frame.output_index.index().unwrap_or(self.last_index);
                    let index = self.assign_index(said, &read::of(item), false);
                    self.item_done(index, item, out);
                }
            }
            "response.created" | "response.queued" | "response.in_progress" => {
                let response: Response<'_> = read::maybe(frame.response);
                self.begin_response(&response, out);
            }
            "response.completed" | "response.done" => {
                let response: Response<'_> = read::maybe(frame.response);
                let word = match &*response.status {
                    word @ ("incomplete" | "failed" | "cancelled") => word.to_owned(),
                    _ => "completed".to_owned(),
                };
                self.end_response(&response, &word, out);
            }
            "response.incomplete" => self.end_with_status(frame.response, "incomplete", out),
            "response.failed" => self.end_with_status(frame.response, "failed", out),
            "response.cancelled" => self.end_with_status(frame.response, "cancelled", out),
            "error" => self.fail(text, out),
            // The annotations come again with their text.
            "response.output_text.annotation.added" | "keepalive" | "ping" => {}
            "" if &*frame.object == "response" => self.read_whole_response(text, out),
            "" if frame.error.is_some() => self.fail(text, out),
            "" => {
                return Err(Error::new(ErrorKind::NotAnEvent, "it has no `type`"));
            }
            _ => {
                self.call.begin(ModelCallInfo::default(), out);
                let value = CustomValue(Json::parse(text)?);
                self.call.emit(Custom { name: NAME.to_owned(), value }, out);
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        self.close_replaced_parts(out);
        self.call.end_of_stream(out);
        Ok(())
    }

    fn find_reply_id(&self, _: &str) -> Option<String> {
        self.call.has_begun().then(|| self.call.reply_id().to_owned())
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}

impl ResponsesDecoder {
    /// A response that was not streamed.
    fn read_whole_response(&mut self, text: &str, out: &mut EventSink<'_>) {
        let response: Response<'_> = serde_json::from_str(text).unwrap_or_default();
        let word = if response.status.is_empty() { "completed" } else { &response.status };
        let word = word.to_owned();
        self.end_response(&response, &word, out);
    }
}
