//! A segment: consecutive events of one session, as one row stores them.

use crate::sql_integers;
use crate::store::EventLines;
use bytes::{Bytes, BytesMut};
use memchr::memchr_iter;
use turnwire_core::{Head, Seq};

/// Consecutive events, and the time of the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: Seq,
    /// How many events. A row with impossible numbers has none, and is not intact.
    pub(super) count: u32,
    pub(super) ms: i64,
    pub(super) bytes: Bytes,
}

impl Segment {
    pub(super) fn new(lines: EventLines, ms: i64) -> Self {
        Self { first: lines.first, count: lines.count, ms, bytes: lines.bytes }
    }

    /// A segment from a row. Invalid numbers give a segment that is not intact.
    pub(super) fn from_row(last: i64, count: i64, ms: i64, bytes: Vec<u8>) -> Self {
        let last = sql_integers::head_from_sql(last);
        let count = u32::try_from(count).ok().filter(|&count| u64::from(count) <= last.get());
        let count = count.unwrap_or(0);
        Self { first: last.minus(count.into()).next(), count, ms, bytes: Bytes::from(bytes) }
    }

    pub(super) fn last(&self) -> Seq {
        self.first.plus(u64::from(self.count).saturating_sub(1))
    }

    /// The head of a log that ends with these events.
    pub(super) fn head(&self) -> Head {
        self.last().into()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The checksum over the events, their seqs, their time and their session.
    pub(super) fn checksum(&self, session: i64) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&session.to_le_bytes());
        crc.update(&self.first.get().to_le_bytes());
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
    pub(super) fn byte_offset(&self, seq: Seq) -> usize {
        let Some(line_before) = seq.offset_from(self.first).checked_sub(1) else { return 0 };
        let nth = usize::try_from(line_before).unwrap_or(usize::MAX);
        let end = memchr_iter(b'\n', &self.bytes).nth(nth);
        end.map_or(self.bytes.len(), |end| end + 1)
    }

    /// The events from a seq on; `None` if all are before it.
    pub(super) fn starting_at(mut self, seq: Seq) -> Option<Self> {
        if self.last() < seq || self.count == 0 {
            return None;
        }
        if seq > self.first {
            self.bytes = self.bytes.slice(self.byte_offset(seq)..);
            self.count = u32::try_from(self.last().next().offset_from(seq)).unwrap_or(self.count);
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
            first: self.first.plus(count.into()),
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

    pub(super) fn into_lines(self) -> EventLines {
        EventLines { first: self.first, count: self.count, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;
    use bytes::Bytes;
    use turnwire_core::Seq;

    fn seq(number: u64) -> Seq {
        Seq::new(number).unwrap()
    }

    fn segment(first: u64, lines: &[&str]) -> Segment {
        let bytes: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        Segment {
            first: seq(first),
            count: u32::try_from(lines.len()).unwrap(),
            ms: 7,
            bytes: Bytes::from(bytes),
        }
    }

    #[test]
    fn a_segment_is_cut_at_a_seq() {
        let whole = segment(5, &["a", "bb", "ccc"]);
        assert_eq!(whole.clone().starting_at(seq(1)), Some(whole.clone()));
        assert_eq!(whole.clone().starting_at(seq(5)), Some(whole.clone()));
        assert_eq!(whole.clone().starting_at(seq(6)), Some(segment(6, &["bb", "ccc"])));
        assert_eq!(whole.clone().starting_at(seq(7)), Some(segment(7, &["ccc"])));
        assert_eq!(whole.starting_at(seq(8)), None);
    }

    #[test]
    fn a_segment_is_split_by_size_but_keeps_one_event() {
        let whole = segment(5, &["a", "bb", "ccc"]);
        assert_eq!(whole.clone().split(100), (whole.clone(), None));
        assert_eq!(whole.clone().split(0), (segment(5, &["a"]), Some(segment(6, &["bb", "ccc"]))));
        assert_eq!(whole.clone().split(5), (segment(5, &["a", "bb"]), Some(segment(7, &["ccc"]))));
        assert_eq!(whole.split(9), (segment(5, &["a", "bb", "ccc"]), None));
    }

    #[test]
    fn consecutive_segments_are_joined() {
        let parts = [segment(5, &["a"]), segment(6, &["bb", "ccc"])];
        assert_eq!(Segment::join(&parts), Some(segment(5, &["a", "bb", "ccc"])));
        assert_eq!(Segment::join(&[]), None);
    }

    #[test]
    fn the_checksum_covers_the_bytes_and_their_position() {
        let one = segment(5, &["a", "bb"]);
        let sum = one.checksum(3);
        assert_ne!(sum, one.checksum(4));
        assert_ne!(sum, Segment { first: seq(6), ..one.clone() }.checksum(3));
        assert_ne!(sum, Segment { ms: 8, ..one.clone() }.checksum(3));
        assert_ne!(sum, Segment { bytes: Bytes::from_static(b"a\nbc\n"), ..one }.checksum(3));
    }

    #[test]
    fn a_row_that_counts_more_events_than_the_log_has_is_not_intact() {
        let whole = segment(1, &["a"]);
        let from_row =
            |last, count| Segment::from_row(last, count, whole.ms, whole.bytes.clone().into());
        assert_eq!(from_row(1, 1), whole);
        let crc = whole.checksum(3).into();
        for (last, count) in [(0, 1), (-1, 1), (1, 2), (1, 0), (1, -1), (1, i64::MAX)] {
            assert!(!from_row(last, count).is_intact(3, crc), "{last} {count}");
        }
    }
}
