//! The end of a session's log, kept in memory for those who watch.

use crate::store::EventLines;
use std::collections::VecDeque;
use turnwire_core::Seq;

/// How much is kept: what comes while somebody who follows is woken, and no more, for each session that
/// is watched has it. Who is further behind reads it from the store.
const MAX_TAIL_BYTES: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(crate) struct TailCache {
    rows: VecDeque<EventLines>,
    bytes: usize,
    /// Whether anybody watches. Otherwise nothing is kept.
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

    /// The events from a place on, up to a durable one; `None` when the place is not kept here.
    pub fn read(&self, from: Seq, durable: u64, max_bytes: usize) -> Option<Vec<EventLines>> {
        let front = self.rows.front()?;
        if from < front.first {
            return None;
        }
        let start = self.rows.partition_point(|lines| lines.last() < from.get());
        // A row is written whole: it is durable, or nothing of it is.
        let mut taken = 0;
        let rows = self.rows.iter().skip(start).take_while(|lines| {
            let more = taken < max_bytes && lines.last() <= durable;
            taken += lines.bytes.len();
            more
        });
        Some(rows.filter_map(|lines| lines.starting_at(from)).collect())
    }
}
