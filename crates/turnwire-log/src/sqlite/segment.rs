//! A segment: consecutive events of one session, as one row stores them.

use super::sql_integers;
use crate::store::EventLines;
use bytes::{Bytes, BytesMut};
use memchr::memchr_iter;
use turnwire_core::{Head, Seq};

/// Consecutive events, and the time of the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// The seq of the first event. A plain number, because a damaged row may have any.
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) ms: i64,
    pub(super) bytes: Bytes,
}

impl Segment {
    pub(super) fn new(lines: EventLines, ms: i64) -> Self {
        Self { first: lines.first.get(), count: lines.count, ms, bytes: lines.bytes }
    }

    /// A segment from a row. Invalid numbers give a segment that is not intact.
    pub(super) fn from_row(last: i64, count: i64, ms: i64, bytes: Vec<u8>) -> Self {
        let count = u32::try_from(count).unwrap_or(0);
        let first = (sql_integers::from_sql(last) + 1).saturating_sub(count.into());
        Self { first, count, ms, bytes: Bytes::from(bytes) }
    }

    pub(super) fn last(&self) -> u64 {
        self.first + u64::from(self.count).saturating_sub(1)
    }

    /// The head of a log that ends with these events.
    pub(super) fn head(&self) -> Head {
        Head::new(self.last())
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The checksum over the events, their seqs, their time and their session.
    pub(super) fn checksum(&self, session: i64) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&session.to_le_bytes());
        crc.update(&self.first.to_le_bytes());
        crc.update(&self.count.to_le_bytes());
        crc.update(&self.ms.to_le_bytes());
        crc.update(&self.bytes);
        crc.finalize()
    }

    /// Whether it has as many lines as it says.
    pub(super) fn has_all_lines(&self) -> bool {
        let lines = memchr_iter(b'\n', &self.bytes).count();
        lines as u64 == u64::from(self.count) && self.bytes.last().is_none_or(|&byte| byte == b'\n')
    }

    /// Whether it is what was written with this checksum.
    pub(super) fn is_intact(&self, session: i64, crc: i64) -> bool {
        self.count > 0 && i64::from(self.checksum(session)) == crc && self.has_all_lines()
    }

    /// The offset of an event in the bytes.
    pub(super) fn byte_offset(&self, seq: u64) -> usize {
        let Some(lines) = seq.checked_sub(self.first).filter(|&lines| lines > 0) else {
            return 0;
        };
        let nth = usize::try_from(lines - 1).unwrap_or(usize::MAX);
        let end = memchr_iter(b'\n', &self.bytes).nth(nth);
        end.map_or(self.bytes.len(), |end| end + 1)
    }

    /// The events from a seq on; `None` if all are before it.
    pub(super) fn starting_at(mut self, seq: u64) -> Option<Self> {
        if self.last() < seq || self.count == 0 {
            return None;
        }
        if seq > self.first {
            self.bytes = self.bytes.slice(self.byte_offset(seq)..);
            self.count = u32::try_from(self.last() + 1 - seq).unwrap_or(self.count);
            self.first = seq;
        }
        Some(self)
    }

    /// As many events as fit, at least one; and the rest.
    pub(super) fn split(mut self, room: usize) -> (Self, Option<Self>) {
        if self.bytes.len() <= room {
            return (self, None);
        }
        let (mut count, mut end) = (0_u32, 0);
        for line in self.bytes.split_inclusive(|&byte| byte == b'\n') {
            if count > 0 && end + line.len() > room {
                break;
            }
            (count, end) = (count + 1, end + line.len());
        }
        let rest = Self {
            first: self.first + u64::from(count),
            count: self.count.saturating_sub(count),
            ms: self.ms,
            bytes: self.bytes.split_off(end.min(self.bytes.len())),
        };
        self.count = count;
        (self, (rest.count > 0).then_some(rest))
    }

    /// Joins consecutive segments.
    pub(super) fn join(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        if parts.len() == 1 {
            // Its bytes can be shared with the tail cache.
            return Some(first.clone());
        }
        let mut bytes = BytesMut::with_capacity(parts.iter().map(Self::len).sum());
        for part in parts {
            bytes.extend_from_slice(&part.bytes);
        }
        Some(Self {
            first: first.first,
            count: parts.iter().map(|part| part.count).fold(0, u32::saturating_add),
            ms: parts.iter().map(|part| part.ms).max().unwrap_or(first.ms),
            bytes: bytes.freeze(),
        })
    }

    pub(super) fn into_lines(self) -> Option<EventLines> {
        Some(EventLines { first: Seq::new(self.first)?, count: self.count, bytes: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;
    use bytes::Bytes;

    fn segment(first: u64, lines: &[&str]) -> Segment {
        let bytes: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        Segment {
            first,
            count: u32::try_from(lines.len()).unwrap(),
            ms: 7,
            bytes: Bytes::from(bytes),
        }
    }

    #[test]
    fn a_run_is_cut_at_a_place() {
        let whole = segment(5, &["a", "bb", "ccc"]);
        assert_eq!(whole.clone().starting_at(1), Some(whole.clone()));
        assert_eq!(whole.clone().starting_at(5), Some(whole.clone()));
        assert_eq!(whole.clone().starting_at(6), Some(segment(6, &["bb", "ccc"])));
        assert_eq!(whole.clone().starting_at(7), Some(segment(7, &["ccc"])));
        assert_eq!(whole.starting_at(8), None);
    }

    #[test]
    fn a_run_is_split_by_room_but_keeps_one_event() {
        let whole = segment(5, &["a", "bb", "ccc"]);
        assert_eq!(whole.clone().split(100), (whole.clone(), None));
        assert_eq!(whole.clone().split(0), (segment(5, &["a"]), Some(segment(6, &["bb", "ccc"]))));
        assert_eq!(whole.clone().split(5), (segment(5, &["a", "bb"]), Some(segment(7, &["ccc"]))));
        assert_eq!(whole.split(9), (segment(5, &["a", "bb", "ccc"]), None));
    }

    #[test]
    fn runs_that_follow_each_other_are_joined() {
        let parts = [segment(5, &["a"]), segment(6, &["bb", "ccc"])];
        assert_eq!(Segment::join(&parts), Some(segment(5, &["a", "bb", "ccc"])));
        assert_eq!(Segment::join(&[]), None);
    }

    #[test]
    fn a_sum_knows_the_bytes_and_their_place() {
        let one = segment(5, &["a", "bb"]);
        let sum = one.checksum(3);
        assert_ne!(sum, one.checksum(4));
        assert_ne!(sum, Segment { first: 6, ..one.clone() }.checksum(3));
        assert_ne!(sum, Segment { ms: 8, ..one.clone() }.checksum(3));
        assert_ne!(sum, Segment { bytes: Bytes::from_static(b"a\nbc\n"), ..one }.checksum(3));
    }
}
