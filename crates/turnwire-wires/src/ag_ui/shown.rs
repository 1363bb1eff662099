//! What a client has in its list of messages that saw all of a turn so far: which, in which order.
//! Not what is in them: that is in our own messages.

use super::frame::{GONE, OURS};
use super::message::{Nameless, Place, json_of, mark, shown, shown_block};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use turnwire_core::{ContentBlock, Fields, Msg};

/// The messages of a turn, in the order in which a client has them.
#[derive(Default)]
pub(super) struct Shown {
    entries: Vec<Entry>,
    /// The place of each block's message, by family.
    places: [HashMap<String, usize>; 4],
    /// The ids that the client knows: all are of one space there.
    taken: HashSet<String>,
    /// Those of earlier turns, which the client keeps, and of which reply they are.
    earlier: HashMap<String, String>,
    /// How often an id that was taken was asked for.
    asked: HashMap<String, usize>,
}

/// What kind of message a block becomes. Ids are unique in each, as in our own messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Family {
    Text,
    Thinking,
    Call,
    Activity,
}

impl Family {
    pub(super) const ALL: [Self; 4] = [Self::Text, Self::Thinking, Self::Call, Self::Activity];

    pub(super) fn of(block: &ContentBlock) -> Self {
        match block {
            ContentBlock::Text(_) => Self::Text,
            ContentBlock::Thinking(_) => Self::Thinking,
            ContentBlock::ToolCall(_) => Self::Call,
            _ => Self::Activity,
        }
    }
}

struct Entry {
    /// The id that the client knows it by.
    id: String,
    /// The block's, the call's.
    block: String,
    what: What,
    /// The reply that it is a part of.
    reply: String,
    sub: bool,
    /// Whether it has any content.
    filled: bool,
    /// The results that stand behind it.
    results: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Block(Family),
    /// A result, behind its call or at a place of its own.
    Result,
    /// Something that was taken back.
    Gone,
}

impl Shown {
    /// A block gets a message, under this id or another that is free.
    pub(super) fn add(&mut self, family: Family, block: &str, id: &str, reply: &str, sub: bool) {
        let id = self.free(id.to_owned(), reply);
        self.taken.insert(id.clone());
        if let Some(places) = self.places.get_mut(family as usize) {
            places.insert(block.to_owned(), self.entries.len());
        }
        self.entries.push(Entry::new(block, &id, What::Block(family), reply, sub));
    }

    /// The id, or one like it that no message has. A reply that was broken off goes on with its own.
    pub(super) fn free(&mut self, id: String, reply: &str) -> String {
        let is_free = |id: &String| {
            !self.taken.contains(id) && self.earlier.get(id).is_none_or(|other| other == reply)
        };
        if is_free(&id) {
            return id;
        }
        let count = self.asked.entry(id.clone()).or_insert(1);
        loop {
            *count += 1;
            let other = format!("{id}-{count}");
            if is_free(&other) {
                return other;
            }
        }
    }

    /// What is left of it when another turn begins.
    pub(super) fn next(&mut self) -> Self {
        let mut earlier = std::mem::take(&mut self.earlier);
        for entry in std::mem::take(&mut self.entries) {
            for Entry { id, reply, .. } in entry.results {
                earlier.insert(id, reply);
            }
            earlier.insert(entry.id, entry.reply);
        }
        Self { earlier, ..Self::default() }
    }

    fn entry(&self, family: Family, block: &str) -> Option<&Entry> {
        let &at = self.places.get(family as usize)?.get(block)?;
        self.entries.get(at)
    }

    /// Whether the block has, or had, a message.
    pub(super) fn has(&self, family: Family, block: &str) -> bool {
        self.entry(family, block).is_some()
    }

    /// The id under which the client knows a block.
    pub(super) fn id_of(&self, family: Family, block: &str) -> Option<&str> {
        let entry = self.entry(family, block)?;
        (entry.what != What::Gone).then_some(&entry.id)
    }

    /// A block's message has content now.
    pub(super) fn fill(&mut self, family: Family, block: &str) {
        let at = self.places.get(family as usize).and_then(|places| places.get(block));
        if let Some(entry) = at.and_then(|&at| self.entries.get_mut(at)) {
            entry.filled = true;
        }
    }

    /// Whether a block's message has content.
    pub(super) fn is_filled(&self, family: Family, block: &str) -> bool {
        self.entry(family, block).is_some_and(|entry| entry.filled)
    }

    /// Whether a block was taken back.
    pub(super) fn is_gone(&self, family: Family, block: &str) -> bool {
        self.entry(family, block).is_some_and(|entry| entry.what == What::Gone)
    }

    /// A block's message was taken back.
    pub(super) fn discard(&mut self, family: Family, block: &str) {
        let at = self.places.get(family as usize).and_then(|places| places.get(block));
        if let Some(entry) = at.and_then(|&at| self.entries.get_mut(at)) {
            entry.what = What::Gone;
        }
    }

    /// A result came: the client puts it behind the call, and behind the results that are there.
    pub(super) fn result(&mut self, call: &str, id: &str, reply: &str, sub: bool) {
        let gone = self.is_gone(Family::Call, call);
        let at = self.places.get(Family::Call as usize).and_then(|places| places.get(call));
        let Some(&call_at) = at.filter(|_| !gone) else {
            return self.result_behind(call, id, reply, sub);
        };
        let mut at = call_at;
        while self.entries.get(at + 1).is_some_and(|entry| entry.what == What::Result) {
            at += 1;
        }
        self.taken.insert(id.to_owned());
        if let Some(entry) = self.entries.get_mut(at) {
            entry.results.push(Entry::new(call, id, What::Result, reply, sub));
        }
    }

    /// A result came at the end of the list.
    pub(super) fn result_behind(&mut self, call: &str, id: &str, reply: &str, sub: bool) {
        self.taken.insert(id.to_owned());
        self.entries.push(Entry::new(call, id, What::Result, reply, sub));
    }

    /// The whole list: the conversation before the turn, then the turn. `of_turn` says which
    /// messages are replies of the turn, and who speaks in them.
    pub(super) fn snapshot<'m>(
        &self,
        messages: &'m [Msg],
        of_turn: impl Fn(&str) -> bool,
    ) -> Vec<Fields> {
        let mut list = Vec::new();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut blocks: HashMap<(&str, Family, &str), &ContentBlock> = HashMap::new();
        let mut results: HashMap<(&str, &str), &ContentBlock> = HashMap::new();
        let mut nameless: Vec<(String, &'m str, &'m ContentBlock)> = Vec::new();
        for msg in messages {
            if !of_turn(msg.id()) {
                list.extend(shown(msg));
                continue;
            }
            names.insert(msg.id(), msg.name());
            let mut ids = Nameless::default();
            for block in msg.content() {
                match block {
                    ContentBlock::ToolResult(result) => {
                        results.insert((msg.id(), &result.id), block);
                    }
                    block if block.id().is_empty() => {
                        nameless.push((ids.id_of(block, msg.id()), msg.id(), block));
                    }
                    block => {
                        blocks.insert((msg.id(), Family::of(block), block.id()), block);
                    }
                }
            }
        }
        for (id, reply, block) in &nameless {
            blocks.insert((reply, Family::of(block), id), block);
        }
        let all =
            self.entries.iter().flat_map(|entry| std::iter::once(entry).chain(&entry.results));
        for entry in all {
            let reply = entry.reply.as_str();
            let place = Place {
                id: &entry.id,
                reply,
                name: names.get(reply).copied().unwrap_or_default(),
                sub: entry.sub.then_some(reply),
            };
            let id = entry.block.as_str();
            let block = match entry.what {
                What::Gone => {
                    list.push(gone(place));
                    continue;
                }
                What::Block(family) => blocks.get(&(reply, family, id)),
                What::Result => results.get(&(reply, id)),
            };
            list.extend(block.map(|block| shown_block(block, place)));
        }
        list
    }
}

impl Entry {
    fn new(block: &str, id: &str, what: What, reply: &str, sub: bool) -> Self {
        let (id, block, reply) = (id.to_owned(), block.to_owned(), reply.to_owned());
        Self { id, block, what, reply, sub, filled: false, results: Vec::new() }
    }
}

fn gone(place: Place<'_>) -> Fields {
    let mut fields = Fields::default();
    fields.insert("id", place.id);
    fields.insert("role", "activity");
    fields.insert("activityType", GONE);
    fields.insert("content", json!({}));
    let mut metadata = Fields::default();
    metadata.insert(OURS, json_of(&mark(place.reply)));
    fields.insert("metadata", json_of(&metadata));
    if let Some(sub) = place.sub {
        fields.insert("subagentRunId", sub);
    }
    fields
}
