//! The queue of blocks in the order of their starts. Only the first one is written.

use super::super::content;
use super::output::{Delta, Output};
use crate::json::fields;
use std::collections::{HashMap, VecDeque};
use turnwire_core::{DataBlock, Event, Fields, Json, Msg, ThinkingBlock};

#[derive(Default)]
pub(super) struct BlockQueue {
    blocks: VecDeque<QueuedBlock>,
    /// The positions of the blocks by id, counted over the whole message.
    positions: HashMap<String, usize>,
    /// The number of blocks that were removed.
    removed: usize,
    /// The index of the next block in the stream.
    index: u64,
    has_calls: bool,
}

struct QueuedBlock {
    id: String,
    content: QueuedContent,
    /// Text that is not written yet.
    text: String,
    /// Whether its start was written.
    begun: bool,
    /// Whether any of its text was written.
    has_written: bool,
    ended: bool,
    extra: Fields,
}

/// The type of a block, and what it needs.
pub(super) enum QueuedContent {
    Text,
    Thinking,
    ToolCall {
        name: String,
        /// It waits for the user's confirmation.
        asking: bool,
        /// The agent has executed it.
        served: bool,
    },
    /// The fold collects the bytes in this message.
    Data(Box<Msg>),
    Item(Fields),
}

impl QueuedContent {
    pub(super) fn tool_call(name: String) -> Self {
        Self::ToolCall { name, asking: false, served: false }
    }

    /// A data block that starts with this event.
    pub(super) fn from_data_event(event: &Event<'_>) -> Self {
        let mut msg = Msg::reply(event.reply_id.to_string(), "");
        // The message ignores an event that does not fit, and so does this.
        let _ = msg.append_event(event);
        Self::Data(Box::new(msg))
    }
}

impl BlockQueue {
    /// Whether a call for the client was written.
    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    pub(super) fn start_block(&mut self, id: &str, content: QueuedContent, out: &mut Output<'_>) {
        self.push(QueuedBlock::new(id, content), out);
    }

    pub(super) fn push_whole(
        &mut self,
        id: &str,
        content: QueuedContent,
        text: &str,
        extra: &Fields,
        out: &mut Output<'_>,
    ) {
        let (text, extra) = (text.to_owned(), extra.clone());
        self.push(QueuedBlock { text, extra, ended: true, ..QueuedBlock::new(id, content) }, out);
    }

    fn push(&mut self, block: QueuedBlock, out: &mut Output<'_>) {
        if self.positions.contains_key(&block.id) {
            return;
        }
        if !block.id.is_empty() {
            self.positions.insert(block.id.clone(), self.removed + self.blocks.len());
        }
        self.blocks.push_back(block);
        self.advance(ReleaseLimit::UndecidedCall, out);
    }

    /// Appends to the text of a block.
    #[inline]
    pub(super) fn push_text(&mut self, id: &str, delta: &str, out: &mut Output<'_>) {
        if let Some(front) = self.blocks.front_mut()
            && front.id == id
            && front.is_live()
        {
            return front.write_text(delta, self.index, out);
        }
        if let Some(block) = self.get(id).filter(|block| !block.ended) {
            block.text.push_str(delta);
        }
    }

    pub(super) fn fold_data(&mut self, id: &str, event: &Event<'_>) {
        if let Some(QueuedBlock { content: QueuedContent::Data(msg), .. }) = self.get(id) {
            let _ = msg.append_event(event);
        }
    }

    /// Ends a block. A text that replaces the deltas can be written only if there were none.
    pub(super) fn end_block(
        &mut self,
        id: &str,
        text: Option<&str>,
        extra: &Fields,
        out: &mut Output<'_>,
    ) {
        let Some(block) = self.get(id).filter(|block| !block.ended) else { return };
        block.ended = true;
        block.extra = extra.clone();
        if let Some(text) = text.filter(|_| !block.has_written && block.text.is_empty()) {
            text.clone_into(&mut block.text);
        }
        self.advance(ReleaseLimit::UndecidedCall, out);
    }

    /// The agent has executed a call.
    pub(super) fn mark_served(&mut self, id: &str, out: &mut Output<'_>) {
        if let Some(QueuedBlock { content: QueuedContent::ToolCall { served, .. }, .. }) =
            self.get(id)
        {
            *served = true;
            self.advance(ReleaseLimit::UndecidedCall, out);
        }
    }

    /// The user is asked to confirm a call.
    pub(super) fn mark_asking(&mut self, id: &str) {
        if let Some(QueuedBlock { content: QueuedContent::ToolCall { asking, .. }, .. }) =
            self.get(id)
        {
            *asking = true;
        }
    }

    /// The user has confirmed a call, perhaps with an edited input.
    pub(super) fn apply_edit(&mut self, id: &str, input: &str) {
        if let Some(QueuedBlock { content: QueuedContent::ToolCall { asking, .. }, text, .. }) =
            self.get(id)
            && std::mem::take(asking)
            && !input.is_empty()
        {
            input.clone_into(text);
        }
    }

    /// Closes all blocks at the end of a model call. It is not known yet who executes its tool calls.
    pub(super) fn close_blocks(&mut self, out: &mut Output<'_>) {
        for block in &mut self.blocks {
            block.ended = true;
        }
        self.advance(ReleaseLimit::UndecidedCall, out);
    }

    /// Writes everything: calls without a result are for the client.
    pub(super) fn flush(&mut self, out: &mut Output<'_>) {
        for block in &mut self.blocks {
            block.ended = true;
        }
        self.advance(ReleaseLimit::QueueEmpty, out);
    }

    fn get(&mut self, id: &str) -> Option<&mut QueuedBlock> {
        let place = *self.positions.get(id)?;
        self.blocks.get_mut(place.checked_sub(self.removed)?)
    }

    /// Writes what can be written of the first block, and continues with the next when it is complete.
    fn advance(&mut self, until: ReleaseLimit, out: &mut Output<'_>) {
        while let Some(block) = self.blocks.front_mut() {
            match block.advance(self.index, until, out) {
                Progress::Waiting => return,
                Progress::Skipped => {}
                Progress::Written => {
                    self.has_calls |= matches!(block.content, QueuedContent::ToolCall { .. });
                    self.index += 1;
                }
            }
            if let Some(block) = self.blocks.pop_front() {
                self.positions.remove(&block.id);
                self.removed += 1;
            }
        }
    }
}

/// How far to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReleaseLimit {
    /// Up to the first call that nobody has executed yet.
    UndecidedCall,
    QueueEmpty,
}

enum Progress {
    Waiting,
    Skipped,
    Written,
}

impl QueuedBlock {
    fn new(id: &str, content: QueuedContent) -> Self {
        Self {
            id: id.to_owned(),
            content,
            text: String::new(),
            begun: false,
            has_written: false,
            ended: false,
            extra: Fields::default(),
        }
    }

    fn is_thinking(&self) -> bool {
        matches!(self.content, QueuedContent::Thinking)
    }

    /// Whether its text is written as it comes while it is the first block.
    fn is_live(&self) -> bool {
        matches!(self.content, QueuedContent::Text | QueuedContent::Thinking)
    }

    fn advance(&mut self, index: u64, until: ReleaseLimit, out: &mut Output<'_>) -> Progress {
        let text = std::mem::take(&mut self.text);
        match &self.content {
            QueuedContent::Text | QueuedContent::Thinking => {
                // Redacted thinking is another type of block, so the start waits.
                if !self.is_thinking() {
                    self.write_block_start(index, out);
                }
                self.write_text(&text, index, out);
                if !self.ended {
                    return Progress::Waiting;
                }
                self.write_block_end(index, out);
            }
            QueuedContent::ToolCall { served: true, .. } => return Progress::Skipped,
            QueuedContent::ToolCall { name, .. } => {
                if !self.ended || until == ReleaseLimit::UndecidedCall {
                    self.text = text;
                    return Progress::Waiting;
                }
                let mut fields = fields! {
                    "type": "tool_use",
                    "id": self.id.as_str(),
                    "name": name.as_str(),
                    "input": Fields::default(),
                };
                fields.extend(&content::call_extra(&self.extra));
                out.start_block(&fields, index);
                if !text.is_empty() {
                    out.push_delta(Delta::Input { partial_json: &text }, index);
                }
                out.stop_block(index);
            }
            QueuedContent::Data(_) if !self.ended => return Progress::Waiting,
            QueuedContent::Data(msg) => {
                match msg.first::<DataBlock>().and_then(content::write_data) {
                    Some(fields) => write_whole(&fields, index, out),
                    None => return Progress::Skipped,
                }
            }
            QueuedContent::Item(fields) => write_whole(fields, index, out),
        }
        Progress::Written
    }

    fn write_block_start(&mut self, index: u64, out: &mut Output<'_>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let fields = if self.is_thinking() {
            fields! { "type": "thinking", "thinking": "", "signature": "" }
        } else {
            content::plain_text("")
        };
        out.start_block(&fields, index);
    }

    /// Writes text of a text or thinking block.
    #[inline]
    fn write_text(&mut self, text: &str, index: u64, out: &mut Output<'_>) {
        if text.is_empty() {
            return;
        }
        self.write_block_start(index, out);
        self.has_written = true;
        if self.is_thinking() {
            out.push_delta(Delta::Thinking { thinking: text }, index);
        } else {
            out.push_delta(Delta::Text { text }, index);
        }
    }

    /// Ends such a block, with its signature or citations.
    fn write_block_end(&mut self, index: u64, out: &mut Output<'_>) {
        let is_thinking = self.is_thinking();
        if is_thinking && !self.begun {
            let block = ThinkingBlock { rest: self.extra.clone(), ..ThinkingBlock::default() };
            if content::redacted_data(&self.extra).is_some()
                && let Some(fields) = content::write_thinking(&block)
            {
                return write_whole(&fields, index, out);
            }
        }
        self.write_block_start(index, out);
        if is_thinking {
            if let Ok(Some(signature)) = self.extra.get::<String>("signature") {
                out.push_delta(Delta::Signature { signature: &signature }, index);
            }
        } else if let Ok(Some(citations)) = self.extra.get::<Vec<Json>>("citations") {
            for citation in &citations {
                out.push_delta(Delta::Citation { citation }, index);
            }
        }
        out.stop_block(index);
    }
}

fn write_whole(fields: &Fields, index: u64, out: &mut Output<'_>) {
    out.start_block(fields, index);
    out.stop_block(index);
}
