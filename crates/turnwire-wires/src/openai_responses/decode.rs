//! The stream in.
//!
//! Items are told apart by their `output_index`: ids may rotate from event to event. What a `done`
//! event repeats is compared with what the deltas gave, by length and checksum, and only what is
//! missing is handed on.

mod frame;

use super::item::{self, Item, Place};
use super::read::{self, Int, Raw, Text};
use super::{NAME, error};
use crate::provider::{About, Call, Kind};
use crate::stream::{Decode, DecoderOptions, EventSink};
use frame::{Cached, Frame, Incomplete, Response, Usage};
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{ContentBlock, Error, ErrorKind, Fields, FinishedReason, Json, Result};

/// Where the places begin of items whose own is taken: behind all that a provider counts.
const MOVED: u64 = 1 << 31;

pub(super) struct Responses {
    call: Call,
    /// The start of the response was seen. Without it the stream may begin anywhere.
    started: bool,
    items: BTreeMap<u64, Seen>,
    /// The items by everything that they were called.
    names: HashMap<String, u64>,
    /// Where the last item is of a place that several have had: some give them all the same.
    moved: HashMap<u64, u64>,
    moves: u64,
    parts: BTreeMap<u64, Part>,
    /// The ids of blocks that are taken.
    ids: HashSet<String>,
    /// The same of items that are kept verbatim.
    kept: HashSet<String>,
    /// The item that came last, and the place behind all of them.
    last: u64,
    next: u64,
    calls: usize,
    refused: bool,
}

/// An item of which something was seen.
#[derive(Default)]
struct Seen {
    r#type: String,
    id: String,
    /// It was announced, or else began in the middle.
    added: bool,
    done: bool,
    /// It is not the reply's: what it says is said elsewhere.
    silent: bool,
    /// Its parts in the order in which they began.
    parts: Vec<u64>,
    /// The blocks that it became.
    blocks: Vec<String>,
}

/// A block of which the deltas are counted, so that a repeat of them is known.
#[derive(Default)]
struct Part {
    length: usize,
    checksum: u64,
    closed: bool,
    /// The whole text, where the deltas gave another.
    whole: Option<String>,
}

impl Part {
    #[inline]
    fn grow(&mut self, delta: &str) {
        self.length += delta.len();
        self.checksum = checksum(self.checksum, delta.as_bytes());
    }

    /// What of the whole text the deltas have not given; `None` where they gave another.
    fn missing<'w>(&self, whole: &'w str) -> Option<&'w str> {
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
enum Slot {
    Text,
    Summary,
    Thinking,
    Call,
}

fn key(index: u64, slot: Slot, at: u64) -> u64 {
    (index << 32) | ((slot as u64) << 30) | (at & 0x3fff_ffff)
}

impl Responses {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: Call::new(NAME, decoding),
            started: false,
            items: BTreeMap::new(),
            names: HashMap::new(),
            moved: HashMap::new(),
            moves: 0,
            parts: BTreeMap::new(),
            ids: HashSet::new(),
            kept: HashSet::new(),
            last: 0,
            next: 0,
            calls: 0,
            refused: false,
        }
    }

    fn index(&self, frame: &Frame<'_>) -> u64 {
        self.place(frame.output_index.index().unwrap_or(self.last))
    }

    fn place(&self, said: u64) -> u64 {
        let said = said & 0xffff_ffff;
        self.moved.get(&said).copied().unwrap_or(said)
    }

    /// The place of an item that begins, or is done. One that is another's gets its own.
    fn place_of(&mut self, said: u64, item: &Item<'_>, begins: bool) -> u64 {
        let place = self.place(said);
        if let Some(&known) = names(item).find_map(|name| self.names.get(&name)) {
            return if self.moved.is_empty() { place } else { known };
        }
        let is_taken = self.items.get(&place).is_some_and(|seen| {
            let is_other = begins && seen.added && names(item).next().is_some();
            seen.done || is_other
        });
        if !is_taken {
            return place;
        }
        let own = (MOVED + self.moves) & 0xffff_ffff;
        self.moves += 1;
        self.moved.insert(said & 0xffff_ffff, own);
        own
    }

    #[inline]
    fn delta(&mut self, index: u64, slot: Slot, at: Int, delta: &str, out: &mut EventSink<'_>) {
        let at = at.index().unwrap_or(0);
        let key = key(index, slot, at);
        if !self.parts.contains_key(&key) && !self.open(index, slot, at, out) {
            return;
        }
        if let Some(part) = self.parts.get_mut(&key)
            && !part.closed
        {
            part.grow(delta);
            self.call.delta(key, delta, out);
        }
    }

    /// Begins a block of text or thinking; whether it could.
    fn open(&mut self, index: u64, slot: Slot, at: u64, out: &mut EventSink<'_>) -> bool {
        let kind = match slot {
            Slot::Text => Kind::Text,
            Slot::Summary | Slot::Thinking => Kind::Thinking,
            // A call begins with its item: there is no other place for its name.
            Slot::Call => return false,
        };
        let key = key(index, slot, at);
        self.see(index);
        let Some(seen) = self.items.get(&index) else { return false };
        // Nothing can set right what is missing at the front of thinking, so it waits for the whole.
        let cut = kind == Kind::Thinking && !seen.added && !self.started;
        if seen.done || seen.silent || cut || self.parts.contains_key(&key) {
            return false;
        }
        if kind == Kind::Thinking
            && let Some(&before) = seen.parts.last()
        {
            let mut extra = Fields::default();
            extra.insert(item::ITEM_ID, seen.id.as_str());
            self.close(before, extra, out);
        }
        let id = self.block_id(index, at);
        self.start(index, key, kind, &id, "", out);
        true
    }

    /// The item's own id for its first block; for the others one made from it.
    fn block_id(&mut self, index: u64, at: u64) -> String {
        let Some(seen) = self.items.get(&index) else { return String::new() };
        let mut id = seen.id.clone();
        if !id.is_empty() && !seen.blocks.is_empty() {
            id = format!("{id}-{at}");
        }
        if id.is_empty() || self.ids.contains(&id) {
            id = String::new();
        }
        id
    }

    fn start(
        &mut self,
        index: u64,
        key: u64,
        kind: Kind,
        id: &str,
        name: &str,
        out: &mut EventSink<'_>,
    ) {
        self.call.begin(About::default(), out);
        let id = if id.is_empty() { self.call.new_id() } else { id.to_owned() };
        self.call.start(key, kind, &id, name, out);
        self.ids.insert(id.clone());
        self.parts.insert(key, Part::default());
        if let Some(seen) = self.items.get_mut(&index) {
            seen.parts.push(key);
            seen.blocks.push(id);
        }
    }

    fn see(&mut self, index: u64) {
        self.last = index;
        self.next = self.next.max(index.saturating_add(1));
        self.items.entry(index).or_default();
    }

    /// Takes the whole text of a block: what of it is new is handed on.
    fn settle(&mut self, key: u64, whole: &str, out: &mut EventSink<'_>) {
        let Some(part) = self.parts.get_mut(&key) else { return };
        if part.closed || whole.is_empty() {
            return;
        }
        match part.missing(whole) {
            Some(missing) => {
                part.grow(missing);
                part.whole = None;
                self.call.delta(key, missing, out);
            }
            None => part.whole = Some(whole.to_owned()),
        }
    }

    fn close(&mut self, key: u64, extra: Fields, out: &mut EventSink<'_>) {
        if let Some(part) = self.parts.get_mut(&key)
            && !part.closed
        {
            part.closed = true;
            let whole = part.whole.take();
            self.call.close_with(key, whole.as_deref(), extra, out);
        }
    }

    fn part_event(&mut self, frame: &Frame<'_>, out: &mut EventSink<'_>) {
        let Some(raw) = frame.part else { return };
        let (index, part) = (self.index(frame), item::part(raw));
        let slot = match &*part.r#type {
            "output_text" | "text" => Slot::Text,
            "refusal" => {
                self.refused = true;
                Slot::Text
            }
            "summary_text" => Slot::Summary,
            "reasoning_text" => Slot::Thinking,
            // It comes with the item, verbatim.
            _ => return,
        };
        let at = if slot == Slot::Summary { frame.summary_index } else { frame.content_index };
        let at = at.index().unwrap_or(0);
        self.open(index, slot, at, out);
        let text = item::said(&part).unwrap_or(&part.text);
        self.settle(key(index, slot, at), text, out);
    }

    fn added(&mut self, frame: &Frame<'_>, out: &mut EventSink<'_>) {
        let Some(raw) = frame.item else { return };
        let item: Item<'_> = read::of(raw);
        let index = self.place_of(frame.output_index.index().unwrap_or(self.next), &item, true);
        self.call.begin(About::default(), out);
        self.see(index);
        self.name(index, &item);
        let Some(seen) = self.items.get_mut(&index) else { return };
        if std::mem::replace(&mut seen.added, true) {
            return;
        }
        (*item.r#type).clone_into(&mut seen.r#type);
        (*item.id).clone_into(&mut seen.id);
        seen.silent = item.structured_output.0;
        if is_call(&item) && !item.name.is_empty() {
            self.start_call(index, &item, out);
            self.settle(key(index, Slot::Call, 0), item.call_input(), out);
        }
    }

    /// Remembers what the item is called, for the final response.
    fn name(&mut self, index: u64, item: &Item<'_>) {
        for name in names(item) {
            self.names.entry(name).or_insert(index);
        }
    }

    fn start_call(&mut self, index: u64, item: &Item<'_>, out: &mut EventSink<'_>) {
        self.calls += 1;
        let given = if item.call_id.is_empty() { &item.id } else { &item.call_id };
        let mut id = given.to_string();
        let mut count = 1;
        while !id.is_empty() && self.ids.contains(&id) {
            count += 1;
            id = format!("{}-{count}", &**given);
        }
        self.start(index, key(index, Slot::Call, 0), Kind::Call, &id, &item.name, out);
    }

    fn done(&mut self, index: u64, raw: &RawValue, out: &mut EventSink<'_>) {
        let item: Item<'_> = read::of(raw);
        self.call.begin(About::default(), out);
        self.see(index);
        self.name(index, &item);
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
        if seen.silent || item.structured_output.0 {
            seen.done = true;
            return;
        }
        if !is_call(&item) && !item.r#type.is_empty() {
            self.take_call_back(index, out);
        }
        match &*item.r#type {
            "message" => self.message_done(index, &item, raw, out),
            "reasoning" => self.reasoning_done(index, &item, raw, out),
            _ if is_call(&item) => {
                if !self.parts.contains_key(&key(index, Slot::Call, 0)) {
                    self.start_call(index, &item, out);
                }
                self.settle(key(index, Slot::Call, 0), item.call_input(), out);
                self.close(key(index, Slot::Call, 0), item::call_extra(raw), out);
            }
            _ => match item.image() {
                Some(image) => self.image(index, &item, image, raw, out),
                None => self.keep(read::of(raw), out),
            },
        }
        self.close_rest(index, raw, out);
        if let Some(seen) = self.items.get_mut(&index) {
            seen.done = true;
            if item.discarded.0 {
                self.call.discard.append(&mut seen.blocks);
            }
        }
    }

    /// What began as a call ends as something else: the provider has served it itself, as Perplexity
    /// does with its searches.
    fn take_call_back(&mut self, index: u64, out: &mut EventSink<'_>) {
        let key = key(index, Slot::Call, 0);
        if self.parts.remove(&key).is_none() {
            return;
        }
        self.call.close(key, Fields::default(), out);
        self.calls = self.calls.saturating_sub(1);
        if let Some(seen) = self.items.get_mut(&index) {
            seen.parts.retain(|part| *part != key);
            self.call.discard.append(&mut seen.blocks);
        }
    }

    fn message_done(&mut self, index: u64, item: &Item<'_>, raw: &RawValue, out: &mut EventSink<'_>) {
        for (at, part) in (0..).zip(item.parts()) {
            let read = item::part(part);
            self.refused |= &*read.r#type == "refusal";
            let Some(text) = item::said(&read) else {
                // A part that nobody knows goes back as a message of its own.
                let mut alone: Fields = read::of(raw);
                if let Ok(part) = Json::parse(part.get()) {
                    alone.insert("content", Json::from_value(&[part]).unwrap_or_else(|_| Json::from(0)));
                }
                self.keep(alone, out);
                continue;
            };
            let key = key(index, Slot::Text, at);
            self.open(index, Slot::Text, at, out);
            self.settle(key, text, out);
            if item.replaced.0
                && text.is_empty()
                && let Some(part) = self.parts.get_mut(&key)
            {
                part.whole = Some(String::new());
            }
            self.close(key, item::text_extra(Some(part), raw), out);
        }
    }

    fn reasoning_done(&mut self, index: u64, item: &Item<'_>, raw: &RawValue, out: &mut EventSink<'_>) {
        let (mut summaries, mut contents) = (0, 0);
        for (place, part) in item::reasoning_parts(item) {
            let (slot, count) = match place {
                Place::Summary => (Slot::Summary, &mut summaries),
                Place::Content => (Slot::Thinking, &mut contents),
            };
            self.open(index, slot, *count, out);
            self.settle(key(index, slot, *count), &item::part(part).text, out);
            *count += 1;
        }
        if self.items.get(&index).is_some_and(|seen| seen.parts.is_empty()) {
            self.open(index, Slot::Summary, 0, out);
        }
        if let Some(&last) = self.items.get(&index).and_then(|seen| seen.parts.last()) {
            self.close(last, item::reasoning_extra(raw), out);
        }
    }

    fn image(
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
        self.ids.insert(id.clone());
        self.call.data(&id, Some(&kind), Chunk::Data(image.0), item::image_extra(raw), out);
        if let Some(seen) = self.items.get_mut(&index) {
            seen.blocks.push(id);
        }
    }

    /// An item, or a part of one, that only the provider knows. Two blocks cannot have one id, and
    /// items can do without.
    fn keep(&mut self, mut item: Fields, out: &mut EventSink<'_>) {
        let id: Option<String> = item.get("id").unwrap_or_default();
        if id.is_some_and(|id| !self.kept.insert(id)) {
            item.remove("id");
        }
        // Without a type, or with one of ours, a stored message could not be read again.
        let again = item.parse_as::<ContentBlock>();
        if matches!(again, Ok(ContentBlock::Other(_))) {
            self.call.item(item, out);
        }
    }

    /// Ends blocks of an item that its end did not mention.
    fn close_rest(&mut self, index: u64, raw: &RawValue, out: &mut EventSink<'_>) {
        let parts = self.items.get(&index).map(|seen| seen.parts.clone()).unwrap_or_default();
        for key in parts {
            if self.parts.get(&key).is_some_and(|part| !part.closed) {
                self.close(key, item::text_extra(None, raw), out);
            }
        }
    }

    fn begin(&mut self, response: &Response<'_>, out: &mut EventSink<'_>) {
        self.started = true;
        let about = About {
            id: &response.id,
            model: &response.model,
            created: response.created_at.or_zero(),
        };
        self.call.begin(about, out);
        self.usage(response.usage);
    }

    /// The last word counts, unless it says nothing.
    fn usage(&mut self, usage: Raw<'_>) {
        let usage: Usage<'_> = read::maybe(usage);
        let cached: Cached = read::maybe(usage.input_tokens_details);
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

    fn finish(&mut self, response: &Response<'_>, word: &str, out: &mut EventSink<'_>) {
        // There is no event of its own for it.
        let word = if &*response.status == "cancelled" { "cancelled" } else { word };
        self.begin(response, out);
        self.final_items(response, out);
        self.close_parts(out);
        self.call.notes.insert("status", word);
        if let Some(output) = response.structured_output {
            self.call.structured_output = Json::parse(output.get()).ok();
        }
        let details: Incomplete<'_> = read::maybe(response.incomplete_details);
        if !details.reason.is_empty() {
            self.call.notes.insert("incomplete_reason", &*details.reason);
        }
        if word == "failed" {
            let raw = response.error.map_or("{}", |error| error.get());
            return self.call.fail(error::read(raw), out);
        }
        self.call.reason = Some(self.reason(word, &details.reason));
        self.call.stop(out);
    }

    /// Another response in the same body is the next model call of the same reply. Its places are its
    /// own; ids of blocks stay taken.
    fn next_response(&mut self) {
        self.items.clear();
        self.names.clear();
        self.parts.clear();
        (self.last, self.next) = (0, 0);
        self.moved.clear();
        (self.calls, self.refused) = (0, false);
    }

    fn reason(&self, word: &str, why: &str) -> FinishedReason {
        match (word, why) {
            (_, "max_output_tokens" | "max_tokens" | "length") => FinishedReason::Length,
            (_, "content_filter") => FinishedReason::ContentFilter,
            ("cancelled", _) => FinishedReason::Interrupted,
            // Never a success, whatever the word is.
            ("incomplete", why) => match FinishedReason::from(why) {
                FinishedReason::Completed | FinishedReason::Other(_) => FinishedReason::Truncated,
                reason => reason,
            },
            _ if self.refused => FinishedReason::Refusal,
            _ if self.calls > 0 => FinishedReason::ToolCalls,
            _ => FinishedReason::Completed,
        }
    }

    /// The final response may have items that were never streamed, or never ended. Its places are
    /// not always those of the stream, and its ids may be new: an item is known by either.
    fn final_items(&mut self, response: &Response<'_>, out: &mut EventSink<'_>) {
        for (at, raw) in (0..).zip(item::list(response.output)) {
            let item: Item<'_> = read::of(raw);
            let named = names(&item).find_map(|name| self.names.get(&name).copied());
            let placed = || {
                let seen = self.items.get(&at)?;
                let same = *seen.r#type == *item.r#type || seen.r#type.is_empty();
                same.then_some(at)
            };
            let index = named.or_else(placed).unwrap_or(self.next);
            if !self.items.get(&index).is_some_and(|seen| seen.done) {
                self.done(index, raw, out);
            }
        }
    }

    fn close_parts(&mut self, out: &mut EventSink<'_>) {
        let mut open: Vec<u64> = self
            .parts
            .iter()
            .filter(|(_, part)| part.whole.is_some())
            .map(|(&key, _)| key)
            .collect();
        open.sort_unstable();
        for key in open {
            self.close(key, Fields::default(), out);
        }
    }

    fn fail(&mut self, text: &str, out: &mut EventSink<'_>) {
        self.close_parts(out);
        self.call.fail(error::read(text), out);
    }

    fn terminal(&mut self, raw: Raw<'_>, word: &str, out: &mut EventSink<'_>) {
        let response: Response<'_> = read::maybe(raw);
        self.finish(&response, word, out);
    }
}

/// What an item is called: by its id, and by its call's, which the call and its output share.
fn names(item: &Item<'_>) -> impl Iterator<Item = String> {
    let id = (!item.id.is_empty()).then(|| item.id.to_string());
    let call = (!item.call_id.is_empty()).then(|| format!("{} {}", &*item.r#type, &*item.call_id));
    id.into_iter().chain(call)
}

fn is_call(item: &Item<'_>) -> bool {
    matches!(&*item.r#type, "function_call" | item::CUSTOM_CALL)
}

impl Decode for Responses {
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
        if self.call.has_stopped() {
            if &*frame.r#type != "response.created" {
                return Ok(());
            }
            self.next_response();
        }
        let index = self.index(&frame);
        match &*frame.r#type {
            "response.output_text.delta" => {
                self.delta(index, Slot::Text, frame.content_index, &frame.delta, out);
            }
            "response.refusal.delta" => {
                self.refused = true;
                self.delta(index, Slot::Text, frame.content_index, &frame.delta, out);
            }
            "response.reasoning_summary_text.delta" => {
                self.delta(index, Slot::Summary, frame.summary_index, &frame.delta, out);
            }
            "response.reasoning_text.delta" => {
                self.delta(index, Slot::Thinking, frame.content_index, &frame.delta, out);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.delta(index, Slot::Call, Int(Some(0)), &frame.delta, out);
            }
            "response.output_text.done" | "response.refusal.done" => {
                let at = frame.content_index.index().unwrap_or(0);
                self.open(index, Slot::Text, at, out);
                let whole = if frame.text.is_empty() { &frame.refusal } else { &frame.text };
                self.settle(key(index, Slot::Text, at), whole, out);
            }
            "response.reasoning_summary_text.done" => {
                let at = frame.summary_index.index().unwrap_or(0);
                self.open(index, Slot::Summary, at, out);
                self.settle(key(index, Slot::Summary, at), &frame.text, out);
            }
            "response.reasoning_text.done" => {
                let at = frame.content_index.index().unwrap_or(0);
                self.open(index, Slot::Thinking, at, out);
                self.settle(key(index, Slot::Thinking, at), &frame.text, out);
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let input =
                    if frame.arguments.is_empty() { &frame.input } else { &frame.arguments };
                self.settle(key(index, Slot::Call, 0), input, out);
            }
            "response.content_part.added"
            | "response.content_part.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done" => self.part_event(&frame, out),
            "response.output_item.added" => self.added(&frame, out),
            "response.output_item.done" => {
                if let Some(item) = frame.item {
                    let said = frame.output_index.index().unwrap_or(self.last);
                    let index = self.place_of(said, &read::of(item), false);
                    self.done(index, item, out);
                }
            }
            "response.created" | "response.queued" | "response.in_progress" => {
                let response: Response<'_> = read::maybe(frame.response);
                self.begin(&response, out);
            }
            "response.completed" | "response.done" => {
                let response: Response<'_> = read::maybe(frame.response);
                let word = match &*response.status {
                    word @ ("incomplete" | "failed" | "cancelled") => word.to_owned(),
                    _ => "completed".to_owned(),
                };
                self.finish(&response, &word, out);
            }
            "response.incomplete" => self.terminal(frame.response, "incomplete", out),
            "response.failed" => self.terminal(frame.response, "failed", out),
            "response.cancelled" => self.terminal(frame.response, "cancelled", out),
            "error" => self.fail(text, out),
            // The annotations come again with their text.
            "response.output_text.annotation.added" | "keepalive" | "ping" => {}
            "" if &*frame.object == "response" => self.whole(text, out),
            "" if frame.error.is_some() => self.fail(text, out),
            "" => {
                return Err(Error::new(ErrorKind::NotAnEvent, "it has no `type`"));
            }
            _ => {
                self.call.begin(About::default(), out);
                let value = CustomValue(Json::parse(text)?);
                self.call.emit(Custom { name: NAME.to_owned(), value }, out);
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        self.close_parts(out);
        self.call.end(out);
        Ok(())
    }

    fn find_reply_id(&self, _: &str) -> Option<String> {
        self.call.has_begun().then(|| self.call.reply_id().to_owned())
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}

impl Responses {
    /// A response that was not streamed.
    fn whole(&mut self, text: &str, out: &mut EventSink<'_>) {
        let response: Response<'_> = serde_json::from_str(text).unwrap_or_default();
        let word = if response.status.is_empty() { "completed" } else { &response.status };
        let word = word.to_owned();
        self.finish(&response, &word, out);
    }
}
