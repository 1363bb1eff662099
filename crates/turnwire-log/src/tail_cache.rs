//! The last events of a watched session, in memory for subscribers near the head.

use crate::store::EventLines;
use std::collections::VecDeque;
use turnwire_core::{Head, Seq};

/// How many bytes are kept per watched session: enough while a subscriber wakes up. One that is
/// further behind reads the store.
const MAX_TAIL_BYTES: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(crate) struct TailCache {
    rows: VecDeque<EventLines>,
    bytes: usize,
    /// Whether someone watches. Otherwise nothing is kept.
    pub watched: bool,
}

impl TailCache {
    pub fn push(&mut self, lines: EventLines) {
        if !self.watched {
            self.clear();
            return;
        }
        self.bytes += lines.bytes.len();
        self.rows.push_back(lines);
        while self.bytes > MAX_TAIL_BYTES && self.rows.len() > 1 {
            if let Some(oldest) = self.rows.pop_front() {
                self.bytes -= oldest.bytes.len();
            }
        }
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }

    /// The events from a seq up to the durable head; `None` if `from` is not kept here.
    pub fn read(&self, from: Seq, durable: Head, max_bytes: usize) -> Option<Vec<EventLines>> {
        let front = self.rows.front()?;
        if from < front.first {
            return None;
        }
        let start = self.rows.partition_point(|lines| lines.last() < from);
        // Lines of one append are durable together.
        let mut taken = 0;
        let rows = self.rows.iter().skip(start).take_while(|lines| {
            let more = taken < max_bytes && durable.includes(lines.last());
            taken += lines.bytes.len();
            more
        });
        Some(rows.filter_map(|lines| lines.starting_at(from)).collect())
    }
}
