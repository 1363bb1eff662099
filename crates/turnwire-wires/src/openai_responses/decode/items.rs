//! Items: found by their index or ids, and turned into blocks when they are added or done.

use super::super::client_call::ClientCall;
use super::super::item::{self, Item, ReasoningPart};
use super::ResponsesDecoder;
use super::frame::{Frame, Response};
use super::parts::{PartKind, part_key};
use crate::lenient::{self, TextOrNumber};
use crate::provider::{BlockKind, ModelCallInfo};
use crate::stream::EventSink;
use serde_json::value::RawValue;
use turnwire_core::event::Chunk;
use turnwire_core::{ContentBlock, Fields, Json};

/// The first index for items whose own index another item has: beyond all that a provider uses.
pub(super) const FIRST_MOVED_INDEX: u64 = 1 << 31;

/// What is known about an item.
#[derive(Default)]
pub(super) struct ItemState {
    pub(super) r#type: String,
    pub(super) id: String,
    /// Its `output_item.added` was seen.
    pub(super) added: bool,
    pub(super) done: bool,
    /// It only repeats the structured output, so it becomes no block.
    pub(super) is_ignored: bool,
    /// The keys of its parts, in the order in which they started.
    pub(super) parts: Vec<u64>,
    /// The ids of its blocks.
    pub(super) blocks: Vec<String>,
}

impl ResponsesDecoder {
    pub(super) fn frame_index(&self, frame: &Frame<'_>) -> u64 {
        self.actual_index(frame.output_index.index().unwrap_or(self.last_index))
    }

    pub(super) fn actual_index(&self, reported: u64) -> u64 {
        let reported = reported & 0xffff_ffff;
        self.moved_indexes.get(&reported).copied().unwrap_or(reported)
    }

    /// The index of an item that starts or is done. An index that another item has is replaced.
    pub(super) fn assign_index(&mut self, reported: u64, item: &Item<'_>, begins: bool) -> u64 {
        let index = self.actual_index(reported);
        if let Some(&known) = item_names(item).find_map(|name| self.names.get(&name)) {
            return if self.moved_indexes.is_empty() { index } else { known };
        }
        let is_taken = self.items.get(&index).is_some_and(|seen| {
            let is_other = begins && seen.added && item_names(item).next().is_some();
            seen.done || is_other
        });
        if !is_taken {
            return index;
        }
        let own = (FIRST_MOVED_INDEX + self.move_count) & 0xffff_ffff;
        self.move_count += 1;
        self.moved_indexes.insert(reported & 0xffff_ffff, own);
        own
    }

    pub(super) fn touch_item(&mut self, index: u64) {
        self.last_index = index;
        self.next_index = self.next_index.max(index.saturating_add(1));
        self.items.entry(index).or_default();
    }

    /// Remembers the ids of an item, to find it in the final response.
    pub(super) fn register_names(&mut self, index: u64, item: &Item<'_>) {
        for name in item_names(item) {
            self.names.entry(name).or_insert(index);
        }
    }

    pub(super) fn item_added(&mut self, frame: &Frame<'_>, out: &mut EventSink<'_>) {
        let Some(raw) = frame.item else { return };
        let item: Item<'_> = lenient::parse(raw);
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

    pub(super) fn start_call(&mut self, index: u64, item: &Item<'_>, out: &mut EventSink<'_>) {
        self.call_count += 1;
        let id_source = if item.call_id.is_empty() { &item.id } else { &item.call_id };
        let mut id = id_source.to_string();
        let mut count = 1;
        while !id.is_empty() && self.block_ids.contains(&id) {
            count += 1;
            id = format!("{}-{count}", &**id_source);
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

    pub(super) fn item_done(&mut self, index: u64, raw: &RawValue, out: &mut EventSink<'_>) {
        let item: Item<'_> = lenient::parse(raw);
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
        // Matches items of the final response if ids change.
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
            _ => match (item.image(), ClientCall::of_item(&item::parse_fields(raw))) {
                (Some(image), _) => self.emit_image(index, &item, image, raw, out),
                (None, Some(kind)) => self.emit_client_call(index, kind, raw, out),
                (None, None) => self.emit_item(lenient::parse(raw), out),
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

    /// Emits the call of a tool that the protocol defines and the client executes.
    fn emit_client_call(
        &mut self,
        index: u64,
        kind: &ClientCall,
        raw: &RawValue,
        out: &mut EventSink<'_>,
    ) {
        let call = kind.read_call(item::parse_fields(raw));
        let named = Item {
            call_id: TextOrNumber(call.id.as_str().into()),
            name: TextOrNumber(kind.name.into()),
            ..Item::default()
        };
        self.start_call(index, &named, out);
        self.complete_text(part_key(index, PartKind::ToolCall, 0), &call.input, out);
        self.close_part(part_key(index, PartKind::ToolCall, 0), call.rest, out);
    }

    /// Discards a call whose item ends as another type: the provider executed it, as Perplexity does with searches.
    pub(super) fn discard_call(&mut self, index: u64, out: &mut EventSink<'_>) {
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

    pub(super) fn message_done(
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
                // An unknown part is kept as a message of its own.
                let mut alone: Fields = lenient::parse(raw);
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

    pub(super) fn reasoning_done(
        &mut self,
        index: u64,
        item: &Item<'_>,
        raw: &RawValue,
        out: &mut EventSink<'_>,
    ) {
        let (mut summaries, mut contents) = (0, 0);
        for (place, part) in item::reasoning_parts(item) {
            let (part_kind, count) = match place {
                ReasoningPart::Summary => (PartKind::Summary, &mut summaries),
                ReasoningPart::Content => (PartKind::Thinking, &mut contents),
            };
            self.open_part(index, part_kind, *count, out);
            self.complete_text(
                part_key(index, part_kind, *count),
                &item::parse_part(part).text,
                out,
            );
            *count += 1;
        }
        if self.items.get(&index).is_some_and(|seen| seen.parts.is_empty()) {
            self.open_part(index, PartKind::Summary, 0, out);
        }
        if let Some(&last) = self.items.get(&index).and_then(|seen| seen.parts.last()) {
            self.close_part(last, item::reasoning_extra(raw), out);
        }
    }

    pub(super) fn emit_image(
        &mut self,
        index: u64,
        item: &Item<'_>,
        image: TextOrNumber<'_>,
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

    /// Emits an item, or a part of one, that only the provider knows. A repeated id is removed.
    pub(super) fn emit_item(&mut self, mut item: Fields, out: &mut EventSink<'_>) {
        let id: Option<String> = item.get("id").unwrap_or_default();
        if id.is_some_and(|id| !self.item_ids.insert(id)) {
            item.remove("id");
        }
        // A stored block without a type, or with one of ours, could not be read again.
        let again = item.parse_as::<ContentBlock>();
        if matches!(again, Ok(ContentBlock::Other(_))) {
            self.call.emit_item(item, out);
        }
    }

    /// Closes the blocks of an item that its end did not mention.
    pub(super) fn close_remaining(&mut self, index: u64, raw: &RawValue, out: &mut EventSink<'_>) {
        let parts = self.items.get(&index).map(|seen| seen.parts.clone()).unwrap_or_default();
        for key in parts {
            if self.parts.get(&key).is_some_and(|part| !part.is_closed) {
                self.close_part(key, item::text_extra(None, raw), out);
            }
        }
    }

    /// Adds items of the final response that were never streamed, or never ended. An item is recognised by its id or by its
    /// index, because either may differ from the stream.
    pub(super) fn final_items(&mut self, response: &Response<'_>, out: &mut EventSink<'_>) {
        for (at, raw) in (0..).zip(item::parse_list(response.output)) {
            let item: Item<'_> = lenient::parse(raw);
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
}

/// The ids of an item: its own, and its call's, together with its type because a call and its output share it.
pub(super) fn item_names(item: &Item<'_>) -> impl Iterator<Item = String> {
    let id = (!item.id.is_empty()).then(|| item.id.to_string());
    let call = (!item.call_id.is_empty()).then(|| format!("{} {}", &*item.r#type, &*item.call_id));
    id.into_iter().chain(call)
}

pub(super) fn is_call(item: &Item<'_>) -> bool {
    matches!(&*item.r#type, "function_call" | item::CUSTOM_CALL)
}
