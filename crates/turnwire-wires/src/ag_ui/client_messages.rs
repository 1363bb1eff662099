//! The list of messages that a client has that saw the whole turn so far: their ids and order.
//! Their content is in our messages.

use super::frame::DISCARDED;
use super::write_messages::{
    BlockIds, MessageHeader, own_metadata, reply_metadata, streamed_block, streamed_messages,
};
use crate::json::fields;
use std::collections::{HashMap, HashSet};
use turnwire_core::{ContentBlock, Fields, Msg, content_blocks};

/// The messages of a turn in the client's order.
#[derive(Default)]
pub(super) struct ClientMessages {
    entries: Vec<Entry>,
    /// The index of each block's message, by kind.
    positions: [HashMap<String, usize>; 4],
    /// Ids in use: AG-UI has one id space for all messages.
    used_ids: HashSet<String>,
    /// Ids of earlier turns, which the client keeps, with their reply.
    earlier_ids: HashMap<String, String>,
    /// How often a used id was requested.
    collisions: HashMap<String, usize>,
}

/// The kind of message that a block becomes. Ids are unique within a kind, as in our messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MessageKind {
    Text,
    Thinking,
    Call,
    Activity,
}

impl MessageKind {
    pub(super) const ALL: [Self; 4] = [Self::Text, Self::Thinking, Self::Call, Self::Activity];

    pub(super) fn from_block(block: &ContentBlock) -> Self {
        match block {
            ContentBlock::Text(_) => Self::Text,
            ContentBlock::Thinking(_) => Self::Thinking,
            ContentBlock::ToolCall(_) => Self::Call,
            content_blocks!(Data Hint ToolResult Other) => Self::Activity,
        }
    }
}

struct Entry {
    /// The id that the client knows.
    id: String,
    /// The id of the block or the call.
    block: String,
    kind: EntryKind,
    /// The reply that it is part of.
    reply: String,
    is_subagent: bool,
    /// Whether it has content.
    filled: bool,
    /// The results that follow it.
    results: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Block(MessageKind),
    /// A result, after its call or on its own.
    Result,
    /// Replaced by the activity `discarded`.
    Discarded,
}

impl ClientMessages {
    /// Adds a block's message, with this id or a similar free one.
    pub(super) fn add_block(
        &mut self,
        kind: MessageKind,
        block: &str,
        id: &str,
        reply: &str,
        sub: bool,
    ) {
        let id = self.free_id(id.to_owned(), reply);
        self.used_ids.insert(id.clone());
        if let Some(positions) = self.positions.get_mut(kind as usize) {
            positions.insert(block.to_owned(), self.entries.len());
        }
        self.entries.push(Entry::new(block, &id, EntryKind::Block(kind), reply, sub));
    }

    /// The id, or a similar one that no message has. An interrupted reply keeps its ids when it
    /// continues.
    pub(super) fn free_id(&mut self, id: String, reply: &str) -> String {
        let is_free = |id: &String| {
            !self.used_ids.contains(id)
                && self.earlier_ids.get(id).is_none_or(|other| other == reply)
        };
        if is_free(&id) {
            return id;
        }
        let count = self.collisions.entry(id.clone()).or_insert(1);
        loop {
            *count += 1;
            let other = format!("{id}-{count}");
            if is_free(&other) {
                return other;
            }
        }
    }

    /// The state for the next turn.
    pub(super) fn next_turn(&mut self) -> Self {
        let mut earlier = std::mem::take(&mut self.earlier_ids);
        for entry in std::mem::take(&mut self.entries) {
            for Entry { id, reply, .. } in entry.results {
                earlier.insert(id, reply);
            }
            earlier.insert(entry.id, entry.reply);
        }
        Self { earlier_ids: earlier, ..Self::default() }
    }

    fn position(&self, kind: MessageKind, block: &str) -> Option<usize> {
        self.positions.get(kind as usize)?.get(block).copied()
    }

    fn entry(&self, kind: MessageKind, block: &str) -> Option<&Entry> {
        self.entries.get(self.position(kind, block)?)
    }

    fn entry_mut(&mut self, kind: MessageKind, block: &str) -> Option<&mut Entry> {
        let at = self.position(kind, block)?;
        self.entries.get_mut(at)
    }

    /// Whether the block has or had a message.
    pub(super) fn has(&self, kind: MessageKind, block: &str) -> bool {
        self.entry(kind, block).is_some()
    }

    /// The id that the client knows for a block.
    pub(super) fn id_of(&self, kind: MessageKind, block: &str) -> Option<&str> {
        let entry = self.entry(kind, block)?;
        (entry.kind != EntryKind::Discarded).then_some(&entry.id)
    }

    /// Records that a block's message has content.
    pub(super) fn mark_filled(&mut self, kind: MessageKind, block: &str) {
        if let Some(entry) = self.entry_mut(kind, block) {
            entry.filled = true;
        }
    }

    /// Whether a block's message has content.
    pub(super) fn is_filled(&self, kind: MessageKind, block: &str) -> bool {
        self.entry(kind, block).is_some_and(|entry| entry.filled)
    }

    /// Whether a block's message was discarded.
    pub(super) fn is_discarded(&self, kind: MessageKind, block: &str) -> bool {
        self.entry(kind, block).is_some_and(|entry| entry.kind == EntryKind::Discarded)
    }

    /// Records that a block's message was discarded.
    pub(super) fn discard(&mut self, kind: MessageKind, block: &str) {
        if let Some(entry) = self.entry_mut(kind, block) {
            entry.kind = EntryKind::Discarded;
        }
    }

    /// Adds a result: the client puts it after the call and its earlier results.
    pub(super) fn add_result(&mut self, call: &str, id: &str, reply: &str, sub: bool) {
        let gone = self.is_discarded(MessageKind::Call, call);
        let Some(mut at) = self.position(MessageKind::Call, call).filter(|_| !gone) else {
            return self.append_result(call, id, reply, sub);
        };
        while self.entries.get(at + 1).is_some_and(|entry| entry.kind == EntryKind::Result) {
            at += 1;
        }
        self.used_ids.insert(id.to_owned());
        if let Some(entry) = self.entries.get_mut(at) {
            entry.results.push(Entry::new(call, id, EntryKind::Result, reply, sub));
        }
    }

    /// Adds a result at the end of the list.
    pub(super) fn append_result(&mut self, call: &str, id: &str, reply: &str, sub: bool) {
        self.used_ids.insert(id.to_owned());
        self.entries.push(Entry::new(call, id, EntryKind::Result, reply, sub));
    }

    /// The whole list: the conversation before the turn, then the turn. `of_turn` tells which
    /// messages are replies of the turn.
    pub(super) fn snapshot<'m>(
        &self,
        messages: &'m [Msg],
        of_turn: impl Fn(&str) -> bool,
    ) -> Vec<Fields> {
        let mut list = Vec::new();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut blocks: HashMap<(&str, MessageKind, &str), &ContentBlock> = HashMap::new();
        let mut results: HashMap<(&str, &str), &ContentBlock> = HashMap::new();
        let mut without_id: Vec<(String, &'m str, &'m ContentBlock)> = Vec::new();
        for msg in messages {
            if !of_turn(msg.id()) {
                list.extend(streamed_messages(msg));
                continue;
            }
            names.insert(msg.id(), msg.name());
            let mut ids = BlockIds::default();
            for block in msg.content() {
                if let ContentBlock::ToolResult(result) = block {
                    results.insert((msg.id(), &result.id), block);
                } else if block.id().is_empty() {
                    without_id.push((ids.id_for(block, msg.id()), msg.id(), block));
                } else {
                    blocks.insert((msg.id(), MessageKind::from_block(block), block.id()), block);
                }
            }
        }
        for (id, reply, block) in &without_id {
            blocks.insert((reply, MessageKind::from_block(block), id), block);
        }
        let all =
            self.entries.iter().flat_map(|entry| std::iter::once(entry).chain(&entry.results));
        for entry in all {
            let reply = entry.reply.as_str();
            let header = MessageHeader {
                id: &entry.id,
                reply,
                name: names.get(reply).copied().unwrap_or_default(),
                subagent: entry.is_subagent.then_some(reply),
            };
            let id = entry.block.as_str();
            let block = match entry.kind {
                EntryKind::Discarded => {
                    list.push(discarded_message(header));
                    continue;
                }
                EntryKind::Block(kind) => blocks.get(&(reply, kind, id)),
                EntryKind::Result => results.get(&(reply, id)),
            };
            list.extend(block.map(|block| streamed_block(block, header)));
        }
        list
    }
}

impl Entry {
    fn new(block: &str, id: &str, what: EntryKind, reply: &str, sub: bool) -> Self {
        let (id, block, reply) = (id.to_owned(), block.to_owned(), reply.to_owned());
        Self { id, block, kind: what, reply, is_subagent: sub, filled: false, results: Vec::new() }
    }
}

fn discarded_message(header: MessageHeader<'_>) -> Fields {
    let mut fields = fields! {
        "id": header.id,
        "role": "activity",
        "activityType": DISCARDED,
        "content": Fields::default(),
        "metadata": own_metadata(reply_metadata(header.reply)),
    };
    fields.insert_some("subagentRunId", header.subagent);
    fields
}
