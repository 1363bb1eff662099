//! Collects the blocks of a response from the events, and discards those that the client must not see.

use super::super::NAME;
use super::block::{BlockState, OutputBlock, OutputKind};
use super::{IdSpace, OpenResponse};
use crate::provider::{self, LOGPROBS};
use crate::stream::Frames;
use turnwire_core::block::DataKind;
use turnwire_core::event::Chunk;
use turnwire_core::{ContentBlock, Event, Fields, Json, Source};

impl OpenResponse {
    pub(super) fn begin_block(&mut self, kind: OutputKind, id: &str, out: &mut Frames) {
        self.announce(out);
        let id_space = kind.id_space();
        let position = self.blocks.len();
        let Some(places) = self.positions.get_mut(id_space as usize) else { return };
        if !id.is_empty() && places.contains_key(id) {
            return;
        }
        places.insert(id.to_owned(), position);
        self.blocks.push(OutputBlock::new(kind, id));
        self.last_block = position;
        self.release_blocks(false, out);
    }

    #[inline]
    pub(super) fn find_block(&self, id_space: IdSpace, id: &str) -> Option<usize> {
        let is_last = self
            .blocks
            .get(self.last_block)
            .is_some_and(|block| block.id == id && block.kind.is_call() == id_space.is_call());
        if is_last {
            return Some(self.last_block);
        }
        self.positions.get(id_space as usize)?.get(id).copied()
    }

    #[inline]
    pub(super) fn push_delta(
        &mut self,
        event: &Event<'_>,
        id_space: IdSpace,
        id: &str,
        delta: &str,
        out: &mut Frames,
    ) {
        let Some(position) = self.find_block(id_space, id) else { return };
        self.last_block = position;
        // Merged deltas have the number of the last one.
        let merged = match (event.seq, event.seq_from) {
            (Some(seq), Some(from)) => seq.get().saturating_sub(from.get()),
            _ => 0,
        };
        let logprobs = event.metadata.raw(LOGPROBS).filter(|list| list.text().starts_with('['));
        self.append_text(position, delta, (merged, logprobs), out);
    }

    /// Appends to a block: so many deltas that were merged into one, and the log probabilities of its tokens.
    #[inline]
    pub(super) fn append_text(
        &mut self,
        position: usize,
        delta: &str,
        (merged, logprobs): (u64, Option<&Json>),
        out: &mut Frames,
    ) {
        let Some(block) = self.blocks.get_mut(position) else { return };
        if block.ended {
            return;
        }
        block.text.push_str(delta);
        if let BlockState::Live(index) = block.state {
            block.open_part(&mut self.number, index, out);
            self.number += merged;
            block.write_delta(self.number, delta, logprobs, out);
            self.number += 1;
        } else if self.wants_json {
            self.release_blocks(false, out);
        }
    }

    pub(super) fn push_data(&mut self, id: &str, declared: Option<&str>, chunk: &Chunk<'_>) {
        let Some(position) = self.find_block(IdSpace::Block, id) else { return };
        let Some(block) = self.blocks.get_mut(position) else { return };
        let OutputKind::Data { media_type, url } = &mut block.kind else { return };
        if media_type.is_none() {
            *media_type = declared.map(str::to_owned);
        }
        match chunk {
            Chunk::Data(data) => block.text.push_str(data),
            Chunk::Url(_) => *url = true,
        }
    }

    pub(super) fn end_block(
        &mut self,
        id_space: IdSpace,
        id: &str,
        whole: Option<&str>,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let Some(position) = self.find_block(id_space, id) else { return };
        let Some(block) = self.blocks.get_mut(position) else { return };
        if std::mem::replace(&mut block.ended, true) {
            return;
        }
        if let Some(whole) = whole {
            block.is_replaced = matches!(block.state, BlockState::Live(_)) && block.text != whole;
            whole.clone_into(&mut block.text);
        }
        block.extra = extra.clone();
        self.close_block(position, "completed", out);
        self.release_blocks(false, out);
    }

    /// The client does not see a call that the agent has executed, or that nobody will execute.
    pub(super) fn mark_served(&mut self, id: &str, out: &mut Frames) {
        let Some(position) = self.find_block(IdSpace::Call, id) else { return };
        if let Some(block) = self.blocks.get_mut(position) {
            block.drop_held();
        }
        self.release_blocks(false, out);
    }

    pub(super) fn update_call(&mut self, id: &str, change: impl FnOnce(&mut bool, &mut String)) {
        let Some(position) = self.find_block(IdSpace::Call, id) else { return };
        if let Some(block) = self.blocks.get_mut(position)
            && let OutputKind::ToolCall { asking, .. } = &mut block.kind
        {
            change(asking, &mut block.text);
        }
    }

    /// Discards a block. If it was written, another frame says so.
    pub(super) fn discard_block(&mut self, position: usize, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(position) else { return };
        block.drop_held();
        block.ended = true;
        let (BlockState::Live(index) | BlockState::Done(index)) = block.state else { return };
        block.state = BlockState::Done(index);
        let item = block.discarded_item();
        if self.reasoning.as_ref().is_some_and(|open| open.index == index) {
            self.reasoning = None;
        }
        self.write_item_done(index, &item, out);
        if let Some(slot) = self.output.get_mut(index) {
            *slot = None;
        }
    }

    pub(super) fn write_whole_block(&mut self, block: &ContentBlock, out: &mut Frames) {
        let (kind, text, extra) = match block {
            ContentBlock::Text(block) => (OutputKind::Text, &block.text, &block.rest),
            ContentBlock::Thinking(block) => (OutputKind::Thinking, &block.thinking, &block.rest),
            ContentBlock::Data(block) => {
                // An older image block may have none.
                let default = (block.kind == DataKind::Image).then_some("image/png");
                let media_type = block.media_type().or(default).map(str::to_owned);
                let Source::Base64(source) = &block.source else { return };
                (OutputKind::Data { media_type, url: false }, &source.data, &block.rest)
            }
            ContentBlock::ToolCall(call) => {
                (OutputKind::tool_call(&call.name), &call.input, &call.rest)
            }
            ContentBlock::ToolResult(result) => return self.mark_served(&result.id, out),
            ContentBlock::Other(fields) => {
                if let Some(item) = provider::block_to_item(NAME, fields)
                    && let Ok(item) = Json::from_value(&item)
                {
                    self.announce(out);
                    self.blocks.push(OutputBlock::new(OutputKind::Item(item), ""));
                    self.release_blocks(false, out);
                }
                return;
            }
            ContentBlock::Hint(_) => return,
        };
        self.push_whole_block(kind, block.id(), text, extra, out);
    }

    pub(super) fn push_whole_block(
        &mut self,
        kind: OutputKind,
        id: &str,
        text: &str,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let id_space = kind.id_space();
        let before = self.blocks.len();
        self.begin_block(kind, id, out);
        if before < self.blocks.len() {
            self.append_text(before, text, (0, None), out);
            self.last_block = before;
            self.end_block(id_space, id, None, extra, out);
        }
    }
}
