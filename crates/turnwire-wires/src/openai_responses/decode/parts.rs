//! The blocks inside an item: their deltas, and the final text that repeats them.

use super::super::item;
use super::ResponsesDecoder;
use super::frame::Frame;
use crate::lenient::IntOrText;
use crate::provider::{BlockKind, ModelCallInfo};
use crate::stream::EventSink;
use turnwire_core::Fields;

/// The length and checksum of a block's deltas, to recognise a repetition.
#[derive(Default)]
pub(super) struct PartState {
    pub(super) length: usize,
    pub(super) checksum: u64,
    pub(super) is_closed: bool,
    /// The final text, if it differs from the deltas.
    pub(super) replacement: Option<String>,
}

impl PartState {
    #[inline]
    pub(super) fn add_delta(&mut self, delta: &str) {
        self.length += delta.len();
        self.checksum = checksum(self.checksum, delta.as_bytes());
    }

    /// The end of the final text that the deltas did not give; `None` if they gave another text.
    pub(super) fn missing_text<'w>(&self, whole: &'w str) -> Option<&'w str> {
        let (before, behind) = whole.split_at_checked(self.length)?;
        (checksum(0, before.as_bytes()) == self.checksum).then_some(behind)
    }
}

/// An incremental checksum, similar to FNV-1a.
#[inline]
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).wrapping_add(1)
    })
}

/// The type of a block inside an item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Summary,
    Thinking,
    ToolCall,
}

pub(super) fn part_key(index: u64, part_kind: PartKind, at: u64) -> u64 {
    (index << 32) | ((part_kind as u64) << 30) | (at & 0x3fff_ffff)
}

impl ResponsesDecoder {
    #[inline]
    pub(super) fn push_delta(
        &mut self,
        index: u64,
        part_kind: PartKind,
        at: IntOrText,
        delta: &str,
        out: &mut EventSink<'_>,
    ) {
        let at = at.index().unwrap_or(0);
        let key = part_key(index, part_kind, at);
        if !self.parts.contains_key(&key) && !self.open_part(index, part_kind, at, out) {
            return;
        }
        if let Some(part) = self.parts.get_mut(&key)
            && !part.is_closed
        {
            part.add_delta(delta);
            self.call.push_delta(key, delta, out);
        }
    }

    /// Starts a block of text or thinking. Returns whether it did.
    pub(super) fn open_part(
        &mut self,
        index: u64,
        part_kind: PartKind,
        at: u64,
        out: &mut EventSink<'_>,
    ) -> bool {
        let kind = match part_kind {
            PartKind::Text => BlockKind::Text,
            PartKind::Summary | PartKind::Thinking => BlockKind::Thinking,
            // A call starts with its item, which has its name.
            PartKind::ToolCall => return false,
        };
        let key = part_key(index, part_kind, at);
        self.touch_item(index);
        let Some(seen) = self.items.get(&index) else { return false };
        // If the beginning of thinking was missed, it cannot be corrected later. So it waits for the final text.
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

    /// The item's id for its first block, and a derived id for the others.
    pub(super) fn block_id(&mut self, index: u64, at: u64) -> String {
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

    pub(super) fn start_block(
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

    /// Takes the final text of a block, and emits what is missing.
    pub(super) fn complete_text(&mut self, key: u64, whole: &str, out: &mut EventSink<'_>) {
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

    pub(super) fn close_part(&mut self, key: u64, extra: Fields, out: &mut EventSink<'_>) {
        if let Some(part) = self.parts.get_mut(&key)
            && !part.is_closed
        {
            part.is_closed = true;
            let whole = part.replacement.take();
            self.call.close_block_with_text(key, whole.as_deref(), extra, out);
        }
    }

    pub(super) fn read_part(&mut self, frame: &Frame<'_>, out: &mut EventSink<'_>) {
        let Some(raw) = frame.part else { return };
        let (index, part) = (self.frame_index(frame), item::parse_part(raw));
        let part_kind = match &*part.r#type {
            "output_text" | "text" => PartKind::Text,
            "refusal" => {
                self.is_refusal = true;
                PartKind::Text
            }
            "summary_text" => PartKind::Summary,
            "reasoning_text" => PartKind::Thinking,
            // The item itself is kept verbatim.
            _ => return,
        };
        let at =
            if part_kind == PartKind::Summary { frame.summary_index } else { frame.content_index };
        let at = at.index().unwrap_or(0);
        self.open_part(index, part_kind, at, out);
        let text = item::part_text(&part).unwrap_or(&part.text);
        self.complete_text(part_key(index, part_kind, at), text, out);
    }

    pub(super) fn close_replaced_parts(&mut self, out: &mut EventSink<'_>) {
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
}
