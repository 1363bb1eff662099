//! One session and everything in it.

use crate::error::{Error, Result};
use crate::store::{
    Append, EventLines, EventPage, Fence, MessageQuery, QueuedMessage, SessionRecord, StoredMessage,
};
use std::collections::{BTreeMap, HashMap};
use turnwire_core::Seq;

#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) record: SessionRecord,
    pub(super) segments: BTreeMap<Seq, Segment>,
    /// By the seq of the first event.
    pub(super) messages: BTreeMap<(Seq, String), StoredMessage>,
    pub(super) queue: Vec<QueuedMessage>,
    /// The first seq of each message, by id.
    positions: HashMap<String, Seq>,
    /// The fence of the current owner.
    fence: Option<Fence>,
    /// An append of this owner failed, and the appends after it may depend on it.
    failed: bool,
}

/// The events of one append.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) lines: EventLines,
    pub(super) at_ms: i64,
}

impl Segment {
    pub(super) fn bytes(&self) -> u64 {
        self.lines.bytes.len() as u64
    }

    /// The bytes of its events before a seq.
    pub(super) fn bytes_before_seq(&self, seq: Seq) -> u64 {
        byte_offset(&self.lines, seq) as u64
    }

    /// Drops its events before a seq.
    pub(super) fn starting_at(mut self, seq: Seq) -> Self {
        self.lines = lines_from(&self.lines, seq);
        self
    }
}

impl StoredSession {
    pub(super) fn new(record: SessionRecord) -> Self {
        Self {
            record,
            segments: BTreeMap::new(),
            messages: BTreeMap::new(),
            queue: Vec::new(),
            positions: HashMap::new(),
            fence: None,
            failed: false,
        }
    }

    pub(super) fn acquire(&mut self, fence: Fence) {
        self.fence = Some(fence);
        self.failed = false;
    }

    pub(super) fn check_fence(&self, fence: Fence) -> Result<()> {
        if self.fence == Some(fence) { Ok(()) } else { Err(Error::Fenced) }
    }

    pub(super) fn append(&mut self, append: Append) -> Result<()> {
        self.check_fence(append.fence)?;
        self.failed = match &append.lines {
            Some(lines) => lines.first != self.record.head.next(),
            None => self.failed,
        };
        if self.failed {
            return Err(Error::OutOfOrder);
        }
        if append.state.is_some() || !append.messages.is_empty() {
            self.record.updated_ms = append.now_ms;
        }
        for message in append.messages {
            self.put_message(message);
        }
        for id in &append.superseded {
            if let Some(message) = self.message_key(id).and_then(|key| self.messages.get_mut(&key))
            {
                message.superseded = true;
            }
        }
        if let Some(state) = append.state {
            self.record.state = state;
        }
        self.queue.extend(append.enqueue);
        self.queue.retain(|queued| !append.dequeue.contains(&queued.id));
        if let Some(lines) = append.lines.filter(|lines| lines.count > 0) {
            self.record.head = lines.last().into();
            self.segments.insert(lines.first, Segment { lines, at_ms: append.now_ms });
        }
        Ok(())
    }

    pub(super) fn read(&self, from: Seq, max_bytes: usize) -> Result<Vec<EventLines>> {
        if from < self.record.first {
            return Err(Error::Trimmed(self.record.first));
        }
        let holder = self.segments.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let mut page = EventPage::new(from, max_bytes);
        for (_, segment) in self.segments.range(holder..) {
            if !page.push(&segment.lines) {
                break;
            }
        }
        Ok(page.finish())
    }

    pub(super) fn message(&self, id: &str) -> Option<&StoredMessage> {
        self.messages.get(&self.message_key(id)?)
    }

    fn message_key(&self, id: &str) -> Option<(Seq, String)> {
        Some((*self.positions.get(id)?, id.to_owned()))
    }

    pub(super) fn messages(&self, query: &MessageQuery) -> Vec<StoredMessage> {
        let from = query.after.map_or(Seq::FIRST, Seq::next);
        let found = self
            .messages
            .range((from, String::new())..)
            .map(|(_, message)| message)
            .take_while(|message| query.before.is_none_or(|before| message.first < before))
            .filter(|message| query.sub_agents || !message.of_sub_agent);
        let mut bytes: Option<usize> = None;
        let mut has_room = |message: &&StoredMessage| {
            let before = bytes.replace(bytes.unwrap_or(0) + message.size());
            query.max_bytes.is_none_or(|most| before.is_none_or(|before| before < most))
        };
        if query.after.is_some() {
            return found.take(query.limit).take_while(has_room).cloned().collect();
        }
        let found: Vec<_> = found.collect();
        let last = found.into_iter().rev().take(query.limit).take_while(|m| has_room(m));
        let mut last: Vec<_> = last.cloned().collect();
        last.reverse();
        last
    }

    pub(super) fn put_message(&mut self, message: StoredMessage) {
        if let Some(key) = self.message_key(&message.id) {
            self.messages.remove(&key);
        }
        self.positions.insert(message.id.clone(), message.first);
        self.messages.insert((message.first, message.id.clone()), message);
    }
}

/// The offset of an event in the bytes.
fn byte_offset(lines: &EventLines, at: Seq) -> usize {
    let before = lines.iter().take_while(|(seq, _)| *seq < at);
    before.map(|(_, line)| line.len() + 1).sum::<usize>().min(lines.bytes.len())
}

/// The events from a seq on.
fn lines_from(lines: &EventLines, from: Seq) -> EventLines {
    let first = lines.first.max(from);
    let gone = first.offset_from(lines.first);
    let count = u64::from(lines.count).saturating_sub(gone);
    EventLines {
        first,
        count: u32::try_from(count).unwrap_or(lines.count),
        bytes: lines.bytes.slice(byte_offset(lines, first)..),
    }
}
