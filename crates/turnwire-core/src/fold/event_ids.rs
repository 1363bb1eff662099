//! A compact set of event ids, to recognise repeated events.

use hashbrown::HashSet;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::fmt;
use std::hash::Hasher;

/// An event id in 16 bytes: 32 hexadecimal digits (as AgentScope and Turnwire write them) exactly, others as
/// a hash. The hash must never change: cursors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EventId(u128);

impl EventId {
    #[inline]
    pub(super) fn from_text(id: &str) -> Self {
        Self(parse_hex(id.as_bytes()).unwrap_or_else(|| {
            let mut hasher = SipHasher13::new();
            hasher.write(id.as_bytes());
            hasher.finish128().as_u128()
        }))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Parses 32 lower-case hexadecimal digits, eight at a time.
#[inline]
fn parse_hex(digits: &[u8]) -> Option<u128> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let digits: &[u8; 32] = digits.try_into().ok()?;
    let (mut number, mut good) = (0u128, TOP);
    for eight in digits.as_chunks::<8>().0 {
        let word = u64::from_be_bytes(*eight);
        // The top bit of each byte says whether it is in '0'..='9' or in 'a'..='f'. Bytes below 128 never
        // carry into the next one.
        let ascii = word & !TOP;
        let digit = (ascii + 0x50 * EACH) & !(ascii + 0x46 * EACH);
        let letter = (ascii + 0x1f * EACH) & !(ascii + 0x19 * EACH) & TOP;
        good &= (digit | letter) & !word;
        let mut value = (word & (0x0f * EACH)) + (letter >> 7) * 9;
        value = (value | value >> 4) & 0x00ff_00ff_00ff_00ff;
        value = (value | value >> 8) & 0x0000_ffff_0000_ffff;
        value = (value | value >> 16) & 0xffff_ffff;
        number = number << 32 | u128::from(value);
    }
    (good == TOP).then_some(number)
}

/// A set of event ids, for code that detects repeated events without folding.
///
/// ```
/// let mut ids = turnwire_core::EventIds::default();
/// assert!(ids.insert("e1"));
/// assert!(!ids.insert("e1"));
/// ids.remove("e1");
/// assert!(ids.insert("e1"));
/// // An event without an id is always new.
/// assert!(ids.insert("") && ids.insert(""));
/// ```
///
/// It needs at most about 40 bytes per id; consecutive ids need almost nothing.
#[derive(Clone, Default)]
pub struct EventIds(IdSet);

impl EventIds {
    /// Adds an id. Returns whether it was new.
    #[inline]
    pub fn insert(&mut self, id: &str) -> bool {
        id.is_empty() || self.0.insert(EventId::from_text(id))
    }

    /// Whether the id is in the set.
    pub fn contains(&self, id: &str) -> bool {
        !id.is_empty() && self.0.contains(EventId::from_text(id))
    }

    /// Removes an id.
    pub fn remove(&mut self, id: &str) {
        self.0.remove(EventId::from_text(id));
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for EventIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventIds({})", self.len())
    }
}

/// A set of ids that needs at most about 40 bytes per id, also while it grows.
///
/// Short replies use a list, longer ones a table. A table that doubles needs three times its size for a
/// moment, so long replies use many small tables. Consecutive ids, as our own agents make them, are stored as
/// ranges.
#[derive(Clone, Default)]
pub(super) struct IdSet {
    list: Vec<EventId>,
    tables: Vec<Table>,
    ranges: Vec<IdRange>,
    /// The id that was inserted last.
    last: Option<EventId>,
}

type Table = HashSet<EventId, foldhash::fast::RandomState>;

/// Consecutive ids: the first and the last.
#[derive(Clone, Copy)]
struct IdRange(EventId, EventId);

impl IdRange {
    fn contains(&self, id: EventId) -> bool {
        self.0 <= id && id <= self.1
    }

    fn ids(&self) -> impl Iterator<Item = EventId> + use<> {
        (self.0.0..=self.1.0).map(EventId)
    }

    /// The ranges before and after one id.
    fn without(self, id: EventId) -> impl Iterator<Item = Self> {
        let before = (self.0 < id).then(|| Self(self.0, EventId(id.0.wrapping_sub(1))));
        let behind = (id < self.1).then(|| Self(EventId(id.0.wrapping_add(1)), self.1));
        before.into_iter().chain(behind)
    }
}

impl IdSet {
    const MAX_LIST: usize = 1 << 5;
    const MAX_TABLE: usize = 1 << 12;
    const TABLE_COUNT: usize = 1 << 6;
    /// Every insert scans all ranges, so there are few.
    const MAX_RANGES: usize = 1 << 3;

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        let series = self.ranges.iter().map(|IdRange(first, last)| last.0 - first.0 + 1);
        let in_series = series.fold(0, u128::saturating_add);
        self.singles_len().saturating_add(usize::try_from(in_series).unwrap_or(usize::MAX))
    }

    /// Frees spare capacity.
    pub(super) fn shrink(&mut self) {
        self.list.shrink_to_fit();
        self.ranges.shrink_to_fit();
    }

    /// Number of ids that are in no range.
    fn singles_len(&self) -> usize {
        self.list.len() + self.tables.iter().map(Table::len).sum::<usize>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = EventId> {
        let singles = self.list.iter().chain(self.tables.iter().flatten()).copied();
        singles.chain(self.ranges.iter().flat_map(IdRange::ids))
    }

    #[expect(clippy::cast_possible_truncation, reason = "only some bits are needed")]
    #[inline]
    fn table_index(&self, id: EventId) -> usize {
        // Some UUIDs are random at their end, others at their start: use all bits.
        let mixed = (id.0 ^ id.0 >> 64) as u64;
        let at = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        at & self.tables.len().wrapping_sub(1)
    }

    #[inline]
    fn table_mut(&mut self, id: EventId) -> Option<&mut Table> {
        let at = self.table_index(id);
        self.tables.get_mut(at)
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.ranges.iter().any(|series| series.contains(id))
            || self.list.contains(&id)
            || self.tables.get(self.table_index(id)).is_some_and(|table| table.contains(&id))
    }

    /// Returns whether the id was new.
    #[inline]
    pub(super) fn insert(&mut self, id: EventId) -> bool {
        let last = self.last.replace(id);
        if last.and_then(|last| last.0.checked_add(1)) == Some(id.0) {
            return self.insert_consecutive(id);
        }
        if self.ranges.iter().any(|series| series.contains(id)) {
            return false;
        }
        self.insert_single(id)
    }

    /// Inserts an id that follows the one inserted before.
    fn insert_consecutive(&mut self, id: EventId) -> bool {
        if self.contains(id) {
            return false;
        }
        let count = self.ranges.len();
        match self.ranges.last_mut() {
            Some(series) if series.1.0.checked_add(1) == Some(id.0) => series.1 = id,
            _ if count < Self::MAX_RANGES => self.ranges.push(IdRange(id, id)),
            _ => return self.insert_single(id),
        }
        true
    }

    #[inline]
    fn insert_single(&mut self, id: EventId) -> bool {
        if self.tables.len() < Self::TABLE_COUNT {
            return self.insert_growing(id);
        }
        self.table_mut(id).is_some_and(|table| table.insert(id))
    }

    fn insert_growing(&mut self, id: EventId) -> bool {
        if self.tables.is_empty() {
            let new = !self.list.contains(&id);
            if new {
                self.list.push(id);
            }
            if self.list.len() >= Self::MAX_LIST {
                self.tables.push(std::mem::take(&mut self.list).into_iter().collect());
            }
            return new;
        }
        let new = self.table_mut(id).is_some_and(|table| table.insert(id));
        if self.singles_len() >= Self::MAX_TABLE {
            let one = std::mem::take(&mut self.tables);
            self.tables = vec![Table::default(); Self::TABLE_COUNT];
            for id in one.into_iter().flatten() {
                self.insert_single(id);
            }
        }
        new
    }

    pub(super) fn remove(&mut self, id: EventId) {
        self.last = None;
        self.list.retain(|known| *known != id);
        if let Some(table) = self.table_mut(id) {
            table.remove(&id);
        }
        if let Some(at) = self.ranges.iter().position(|series| series.contains(id)) {
            let series = self.ranges.remove(at);
            self.ranges.extend(series.without(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_hexadecimal_ids_are_numbers() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(parse_hex(id.as_bytes()), Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        for other in [&id.to_uppercase(), &id[1..], "", "é123456789abcdef0123456789abcde"] {
            assert_eq!(parse_hex(other.as_bytes()), None);
        }
        // Every byte, at every position of a word.
        for (place, byte) in (0..8).flat_map(|place| (0..=u8::MAX).map(move |byte| (place, byte))) {
            let mut digits = *b"00000000000000000000000000000000";
            digits[24 + place] = byte;
            let value = char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
            let expected = value.map(|value| u128::from(value) << (4 * (7 - place)));
            assert_eq!(parse_hex(&digits), expected, "{byte:#x} at {place}");
        }
    }

    #[test]
    fn the_hash_of_other_ids_never_changes() {
        let id = EventId::from_text("evt_1");
        assert_eq!(id.to_string(), "487d7d00696e39c557804d8d4278f51d");
        // An id from a stored cursor reads back as itself.
        assert_eq!(EventId::from_text(&id.to_string()), id);
    }

    #[test]
    fn similar_ids_spread_over_all_tables() {
        for shift in [0, 40, 96] {
            let mut set = IdSet::default();
            for n in 0..20_000u128 {
                set.insert(EventId(0xabcd_0000_0000_0000_0000_0000_0000_1234 ^ n << shift));
            }
            let largest = set.tables.iter().map(Table::len).max().unwrap();
            assert!(largest < 2 * 20_000 / IdSet::TABLE_COUNT, "{largest} in one table");
        }
    }

    #[test]
    fn the_set_keeps_every_id_while_it_grows() {
        let mut set = IdSet::default();
        for n in 0..20_000u128 {
            assert!(set.insert(EventId(n)));
            assert!(!set.insert(EventId(n)));
            assert!(set.contains(EventId(n / 2)) && !set.contains(EventId(n + 1)));
        }
        assert_eq!((set.len(), set.iter().count()), (20_000, 20_000));
        set.remove(EventId(7));
        assert!(!set.contains(EventId(7)) && set.contains(EventId(8)));
    }

    #[test]
    fn consecutive_ids_are_one_range() {
        let mut set = IdSet::default();
        for n in 0..20_000u128 {
            set.insert(EventId(1 << 90 | n));
        }
        assert_eq!((set.singles_len(), set.ranges.len(), set.len()), (1, 1, 20_000));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut set = IdSet::default();
        for n in 0..2000u128 {
            set.insert(EventId(n * 10));
            set.insert(EventId(n * 10 + 1));
        }
        assert_eq!((set.ranges.len(), set.len()), (IdSet::MAX_RANGES, 4000));
    }

    #[test]
    fn it_behaves_like_a_set() {
        // A small random number generator.
        let mut seed = 0x5eed_u64;
        let mut next = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let (mut set, mut model) = (IdSet::default(), std::collections::BTreeSet::new());
            let mut at = 0;
            for _ in 0..400 {
                at = if next(5) == 0 { next(300) } else { (at + 1) % 300 };
                let id = EventId(at.into());
                if next(6) == 0 {
                    set.remove(id);
                    model.remove(&id);
                } else {
                    assert_eq!(set.insert(id), model.insert(id));
                }
                assert_eq!(set.len(), model.len());
            }
            let mut all: Vec<EventId> = set.iter().collect();
            all.sort_unstable();
            assert!(all.iter().eq(&model));
            assert!((0..300).map(EventId).all(|id| set.contains(id) == model.contains(&id)));
        }
    }
}
