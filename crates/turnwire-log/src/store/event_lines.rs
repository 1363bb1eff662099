//! Consecutive events of a session, as engines store them.

use bytes::Bytes;
use turnwire_core::{Head, Seq};

/// Consecutive events of a session, as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLines {
    /// The seq of the first.
    pub first: Seq,
    /// How many events.
    pub count: u32,
    /// One JSON object per line, each with its `\n`. The seq is not in it.
    pub bytes: Bytes,
}

impl EventLines {
    /// The seq of the last event. There is at least one.
    pub fn last(&self) -> Seq {
        self.first.plus(u64::from(self.count).saturating_sub(1))
    }

    /// The events from a seq on; `None` if all are before it.
    pub fn starting_at(&self, from: Seq) -> Option<Self> {
        if from > self.last() {
            return None;
        }
        let skip = u32::try_from(from.offset_from(self.first)).ok()?;
        if skip == 0 {
            return Some(self.clone());
        }
        let ends = memchr::memchr_iter(b'\n', &self.bytes);
        let start = ends.take(skip as usize).last()? + 1;
        let bytes = self.bytes.slice(start.min(self.bytes.len())..);
        Some(Self { first: from, count: self.count - skip, bytes })
    }

    /// The events up to a seq; `None` if all are after it.
    pub fn up_to(&self, head: Head) -> Option<Self> {
        if head.includes(self.last()) {
            return Some(self.clone());
        }
        let count = u32::try_from(head.events_after(self.first.previous())).ok()?;
        let ends = memchr::memchr_iter(b'\n', &self.bytes);
        let end = ends.take(count as usize).last()? + 1;
        let bytes = self.bytes.slice(..end.min(self.bytes.len()));
        Some(Self { first: self.first, count, bytes })
    }

    /// The events with their seq.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, &[u8])> {
        let mut seq = self.first;
        self.bytes.split_inclusive(|&byte| byte == b'\n').map(move |line| {
            let at = seq;
            seq = seq.next();
            (at, line.strip_suffix(b"\n").unwrap_or(line))
        })
    }
}

/// The events of one read, collected row by row. For engines that store events as [`EventLines`].
#[derive(Debug)]
pub struct EventPage {
    from: Seq,
    room: usize,
    rows: Vec<EventLines>,
}

impl EventPage {
    /// An empty page of the events from a seq on, which have at most so many bytes. The first event
    /// may have more.
    pub fn new(from: Seq, max_bytes: usize) -> Self {
        Self { from, room: max_bytes, rows: Vec::new() }
    }

    /// Adds the next row, as far as it belongs to the page. Returns whether there is room for more.
    pub fn push(&mut self, row: &EventLines) -> bool {
        let Some(lines) = row.starting_at(self.from.max(row.first)) else { return true };
        let Some(lines) = self.fitting(lines) else { return false };
        self.room = self.room.saturating_sub(lines.bytes.len());
        let is_whole = lines.last() == row.last();
        self.rows.push(lines);
        is_whole
    }

    /// The events that were collected.
    pub fn finish(self) -> Vec<EventLines> {
        self.rows
    }

    /// As many events as fit; one that does not fit if the page is empty.
    fn fitting(&self, lines: EventLines) -> Option<EventLines> {
        if lines.bytes.len() <= self.room {
            return Some(lines);
        }
        let (mut count, mut end) = (0, 0);
        for (_, line) in lines.iter() {
            let next = end + line.len() + 1;
            if next > self.room && !(count == 0 && self.rows.is_empty()) {
                break;
            }
            (count, end) = (count + 1, next);
        }
        let bytes = lines.bytes.slice(..end.min(lines.bytes.len()));
        (count > 0).then_some(EventLines { first: lines.first, count, bytes })
    }
}
