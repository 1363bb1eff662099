//! Events of one session, one behind the other, as a row holds them.

use super::places;
use crate::store::Lines;
use bytes::{Bytes, BytesMut};
use memchr::memchr_iter;
use turnwire_core::Seq;

/// Some events of a session, and when the last of them came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) ms: i64,
    pub(super) bytes: Bytes,
}

impl Run {
    pub(super) fn new(lines: Lines, ms: i64) -> Self {
        Self { first: lines.first.get(), count: lines.count, ms, bytes: lines.bytes }
    }

    /// What a row says that it holds. Numbers that make no sense give a run that is not sound.
    pub(super) fn of_row(last: i64, count: i64, ms: i64, bytes: Vec<u8>) -> Self {
        let count = u32::try_from(count).unwrap_or(0);
        let first = (places::from_sql(last) + 1).saturating_sub(count.into());
        Self { first, count, ms, bytes: Bytes::from(bytes) }
    }

    pub(super) fn last(&self) -> u64 {
        self.first + u64::from(self.count).saturating_sub(1)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The sum that tells whether a row is what was written: over the events and their place.
    pub(super) fn crc(&self, session: i64) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&session.to_le_bytes());
        crc.update(&self.first.to_le_bytes());
        crc.update(&self.count.to_le_bytes());
        crc.update(&self.ms.to_le_bytes());
        crc.update(&self.bytes);
        crc.finalize()
    }

    /// Whether there are as many lines as it says.
    pub(super) fn is_whole(&self) -> bool {
        let lines = memchr_iter(b'\n', &self.bytes).count();
        lines as u64 == u64::from(self.count) && self.bytes.last().is_none_or(|&byte| byte == b'\n')
    }

    /// Whether it is what was written with this sum.
    pub(super) fn is_sound(&self, session: i64, crc: i64) -> bool {
        self.count > 0 && i64::from(self.crc(session)) == crc && self.is_whole()
    }

    /// Where in the bytes the event of a place begins.
    pub(super) fn offset(&self, place: u64) -> usize {
        let Some(lines) = place.checked_sub(self.first).filter(|&lines| lines > 0) else {
            return 0;
        };
        let nth = usize::try_from(lines - 1).unwrap_or(usize::MAX);
        let end = memchr_iter(b'\n', &self.bytes).nth(nth);
        end.map_or(self.bytes.len(), |end| end + 1)
    }

    /// The events from a place on; `None` when it ends before.
    pub(super) fn from(mut self, place: u64) -> Option<Self> {
        if self.last() < place || self.count == 0 {
            return None;
        }
        if place > self.first {
            self.bytes = self.bytes.slice(self.offset(place)..);
            self.count = u32::try_from(self.last() + 1 - place).unwrap_or(self.count);
            self.first = place;
        }
        Some(self)
    }

    /// As many events as have room, but always one; and the rest.
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

    /// One that goes on with the other ones, which follow it.
    pub(super) fn joined(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        if parts.len() == 1 {
            // Its bytes are there already, for whoever watches.
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

    pub(super) fn into_lines(self) -> Option<Lines> {
        Some(Lines { first: Seq::new(self.first)?, count: self.count, bytes: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::Run;
    use bytes::Bytes;

    fn run(first: u64, lines: &[&str]) -> Run {
        let bytes: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        Run { first, count: u32::try_from(lines.len()).unwrap(), ms: 7, bytes: Bytes::from(bytes) }
    }

    #[test]
    fn a_run_is_cut_at_a_place() {
        let whole = run(5, &["a", "bb", "ccc"]);
        assert_eq!(whole.clone().from(1), Some(whole.clone()));
        assert_eq!(whole.clone().from(5), Some(whole.clone()));
        assert_eq!(whole.clone().from(6), Some(run(6, &["bb", "ccc"])));
        assert_eq!(whole.clone().from(7), Some(run(7, &["ccc"])));
        assert_eq!(whole.from(8), None);
    }

    #[test]
    fn a_run_is_split_by_room_but_keeps_one_event() {
        let whole = run(5, &["a", "bb", "ccc"]);
        assert_eq!(whole.clone().split(100), (whole.clone(), None));
        assert_eq!(whole.clone().split(0), (run(5, &["a"]), Some(run(6, &["bb", "ccc"]))));
        assert_eq!(whole.clone().split(5), (run(5, &["a", "bb"]), Some(run(7, &["ccc"]))));
        assert_eq!(whole.split(9), (run(5, &["a", "bb", "ccc"]), None));
    }

    #[test]
    fn runs_that_follow_each_other_are_joined() {
        let parts = [run(5, &["a"]), run(6, &["bb", "ccc"])];
        assert_eq!(Run::joined(&parts), Some(run(5, &["a", "bb", "ccc"])));
        assert_eq!(Run::joined(&[]), None);
    }

    #[test]
    fn a_sum_knows_the_bytes_and_their_place() {
        let one = run(5, &["a", "bb"]);
        let sum = one.crc(3);
        assert_ne!(sum, one.crc(4));
        assert_ne!(sum, Run { first: 6, ..one.clone() }.crc(3));
        assert_ne!(sum, Run { ms: 8, ..one.clone() }.crc(3));
        assert_ne!(sum, Run { bytes: Bytes::from_static(b"a\nbc\n"), ..one }.crc(3));
    }
}
