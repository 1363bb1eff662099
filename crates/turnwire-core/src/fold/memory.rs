//! What the fold remembers: which events it has applied, and where the blocks are.

use super::Index;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::seq::Seq;
use hashbrown::HashSet;
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::fmt;
use std::hash::Hasher;

/// The fold's memory of one message. Nothing until the first event.
#[derive(Clone, Default)]
pub(crate) struct Memory(Option<Box<State>>);

#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) seen: SeenEvents,
    pub(super) started: bool,
    /// The message came whole: it is no reply, and takes no events.
    pub(super) is_whole: bool,
    pub(super) index: Index,
}

impl State {
    /// Gives back what only a reply that goes on needs.
    pub(super) fn shrink(&mut self) {
        self.index.clear();
        self.seen.ids.list.shrink_to_fit();
    }
}

impl Memory {
    pub(super) fn state(&mut self) -> &mut State {
        self.0.get_or_insert_default()
    }

    pub(super) fn cursor(&self) -> Cursor {
        let Some(state) = &self.0 else { return Cursor::default() };
        let mut ids: Vec<EventId> = state.seen.ids.iter().collect();
        ids.sort_unstable();
        Cursor { started: state.started, is_whole: state.is_whole, seq: state.seen.seq, ids }
    }

    /// Remembers the event that brought the whole message.
    pub(crate) fn came_whole(&mut self, event: &Event<'_>) -> Result<()> {
        let state = self.state();
        state.is_whole = true;
        state.seen.remember(event).map(|_| ())
    }

    /// Whether an event was applied before.
    pub(crate) fn has_seen(&mut self, event: &Event<'_>) -> Result<bool> {
        let seen = &mut self.state().seen;
        match seen.remember(event)? {
            Seen::Before => Ok(true),
            Seen::New(mark) => {
                seen.forget(event, mark);
                Ok(false)
            }
        }
    }
}

impl From<Cursor> for Memory {
    fn from(cursor: Cursor) -> Self {
        let mut state = Box::<State>::default();
        state.started = cursor.started;
        state.is_whole = cursor.is_whole;
        state.seen.seq = cursor.seq;
        for id in cursor.ids {
            state.seen.ids.insert(id);
        }
        Self(Some(state))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(state) => {
                write!(f, "Memory(seq {:?}, {} ids)", state.seen.seq, state.seen.ids.len())
            }
            None => f.write_str("Memory(nothing)"),
        }
    }
}

/// Where the fold of a message stands. Stored beside the message, it lets the fold go on later.
///
/// As JSON: `{"started": true, "seq": 17}`, or with the ids of events that had no seq:
/// `{"started": true, "ids": ["…"]}`. A message that came whole has `"whole": true`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    started: bool,
    is_whole: bool,
    seq: Option<Seq>,
    ids: Vec<EventId>,
}

impl Cursor {
    /// The last place in the log that was applied.
    pub fn seq(&self) -> Option<Seq> {
        self.seq
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("started", &self.started)?;
        if self.is_whole {
            map.serialize_entry("whole", &true)?;
        }
        if let Some(seq) = &self.seq {
            map.serialize_entry("seq", seq)?;
        }
        if !self.ids.is_empty() {
            let ids: Vec<String> = self.ids.iter().map(|id| format!("{:032x}", id.0)).collect();
            map.serialize_entry("ids", &ids)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = crate::json::Fields::deserialize(deserializer)?;
        let mut read = || -> Result<Self> {
            let ids: Vec<String> = fields.take("ids")?.unwrap_or_default();
            Ok(Self {
                started: fields.take("started")?.unwrap_or_default(),
                is_whole: fields.take("whole")?.unwrap_or_default(),
                seq: fields.take("seq")?,
                ids: ids.iter().map(|id| EventId::of(id)).collect(),
            })
        };
        read().map_err(|error| D::Error::custom(error.plain()))
    }
}

/// Which events were applied: all up to a seq, and those without a seq by their ids.
#[derive(Clone, Default)]
pub(super) struct SeenEvents {
    seq: Option<Seq>,
    ids: IdSet,
}

pub(super) enum Seen {
    Before,
    New(Mark),
}

/// What [`SeenEvents::forget`] needs to undo a [`SeenEvents::remember`].
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Nothing,
    Seq(Option<Seq>),
    Id,
}

impl SeenEvents {
    #[inline]
    pub(super) fn remember(&mut self, event: &Event<'_>) -> Result<Seen> {
        let Some(seq) = event.seq else { return Ok(self.remember_id(event)) };
        if let Some(cursor) = self.seq {
            if seq <= cursor {
                return Ok(Seen::Before);
            }
            if event.seq_from.is_some_and(|from| from <= cursor) {
                return Err(overlap(event, cursor));
            }
        }
        // Where a stream changes from ids to seqs, what came with an id may come again.
        if !self.ids.is_empty() && self.ids.contains(EventId::of(&event.id)) {
            return Ok(Seen::Before);
        }
        Ok(Seen::New(Mark::Seq(self.seq.replace(seq))))
    }

    pub(super) fn remember_id(&mut self, event: &Event<'_>) -> Seen {
        if event.id.is_empty() {
            return Seen::New(Mark::Nothing);
        }
        let id = EventId::of(&event.id);
        if self.ids.insert(id) { Seen::New(Mark::Id) } else { Seen::Before }
    }

    /// The event was refused after all.
    pub(super) fn forget(&mut self, event: &Event<'_>, mark: Mark) {
        match mark {
            Mark::Nothing => {}
            Mark::Seq(before) => self.seq = before,
            Mark::Id => self.ids.remove(EventId::of(&event.id)),
        }
    }
}

#[cold]
fn overlap(event: &Event<'_>, cursor: Seq) -> Error {
    let (from, to) = (event.seq_from.unwrap_or(cursor), event.seq.unwrap_or(cursor));
    Error::new(
        ErrorKind::Overlap,
        format!(
            "the merged event {from} to {to} was applied in part, up to {cursor}; \
             ask for the events after {cursor} instead"
        ),
    )
}

/// An event's id in 16 bytes: 32 hexadecimal digits (what AgentScope and Turnwire write) exactly,
/// anything else by a hash that never changes, since cursors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EventId(u128);

impl EventId {
    #[inline]
    fn of(id: &str) -> Self {
        Self(hex(id.as_bytes()).unwrap_or_else(|| {
            let mut hasher = SipHasher13::new();
            hasher.write(id.as_bytes());
            hasher.finish128().as_u128()
        }))
    }
}

/// The number that 32 lower-case hexadecimal digits are, read eight at a time.
#[inline]
fn hex(digits: &[u8]) -> Option<u128> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let digits: &[u8; 32] = digits.try_into().ok()?;
    let (mut number, mut good) = (0u128, TOP);
    for eight in digits.as_chunks::<8>().0 {
        let word = u64::from_be_bytes(*eight);
        // The top bit of each byte tells whether it is in '0'..='9', or in 'a'..='f'. Bytes below 128
        // never carry into the next one.
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

/// The ids of events that were seen, for whoever has to know a repeat without folding.
///
/// ```
/// let mut ids = turnwire_core::EventIds::default();
/// assert!(ids.insert("e1"));
/// assert!(!ids.insert("e1"));
/// ids.remove("e1");
/// assert!(ids.insert("e1"));
/// // What has no id is always new.
/// assert!(ids.insert("") && ids.insert(""));
/// ```
///
/// It costs at most about 40 bytes an id.
#[derive(Clone, Default)]
pub struct EventIds(IdSet);

impl EventIds {
    /// Remembers an id, and says whether it was new.
    #[inline]
    pub fn insert(&mut self, id: &str) -> bool {
        id.is_empty() || self.0.insert(EventId::of(id))
    }

    /// Forgets an id.
    pub fn remove(&mut self, id: &str) {
        self.0.remove(EventId::of(id));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for EventIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventIds({})", self.len())
    }
}

/// A set of ids that costs at most about 40 bytes for each, also while it grows.
///
/// Most replies are short: their ids are a list. A longer one has a table; and since a table that
/// doubles holds three times its size for a moment, a long one has many small tables.
#[derive(Clone, Default)]
struct IdSet {
    list: Vec<EventId>,
    tables: Vec<Table>,
}

type Table = HashSet<EventId, foldhash::fast::RandomState>;

impl IdSet {
    const LIST: usize = 1 << 5;
    const TABLE: usize = 1 << 12;
    const TABLES: usize = 1 << 6;

    fn is_empty(&self) -> bool {
        self.list.is_empty() && self.tables.is_empty()
    }

    fn len(&self) -> usize {
        self.list.len() + self.tables.iter().map(Table::len).sum::<usize>()
    }

    fn iter(&self) -> impl Iterator<Item = EventId> {
        self.list.iter().chain(self.tables.iter().flatten()).copied()
    }

    #[expect(clippy::cast_possible_truncation, reason = "only some bits are needed")]
    #[inline]
    fn table(&mut self, id: EventId) -> Option<&mut Table> {
        // Some UUIDs are random at their end, others at their beginning: all bits count.
        let mixed = (id.0 ^ id.0 >> 64) as u64;
        let at = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let last = self.tables.len().wrapping_sub(1);
        self.tables.get_mut(at & last)
    }

    fn contains(&mut self, id: EventId) -> bool {
        self.list.contains(&id) || self.table(id).is_some_and(|table| table.contains(&id))
    }

    /// Whether it was not there.
    #[inline]
    fn insert(&mut self, id: EventId) -> bool {
        if self.tables.len() < Self::TABLES {
            return self.insert_in_few(id);
        }
        self.table(id).is_some_and(|table| table.insert(id))
    }

    fn insert_in_few(&mut self, id: EventId) -> bool {
        if self.tables.is_empty() {
            let new = !self.list.contains(&id);
            if new {
                self.list.push(id);
            }
            if self.list.len() >= Self::LIST {
                self.tables.push(std::mem::take(&mut self.list).into_iter().collect());
            }
            return new;
        }
        let new = self.table(id).is_some_and(|table| table.insert(id));
        if self.len() >= Self::TABLE {
            let one = std::mem::take(&mut self.tables);
            self.tables = vec![Table::default(); Self::TABLES];
            for id in one.into_iter().flatten() {
                self.insert(id);
            }
        }
        new
    }

    fn remove(&mut self, id: EventId) {
        self.list.retain(|known| *known != id);
        if let Some(table) = self.table(id) {
            table.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_hexadecimal_ids_are_taken_as_numbers() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(hex(id.as_bytes()), Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        for other in [&id.to_uppercase(), &id[1..], "", "é123456789abcdef0123456789abcde"] {
            assert_eq!(hex(other.as_bytes()), None);
        }
        // Every byte, in every place of a word.
        for (place, byte) in (0..8).flat_map(|place| (0..=u8::MAX).map(move |byte| (place, byte))) {
            let mut digits = *b"00000000000000000000000000000000";
            digits[24 + place] = byte;
            let value = char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
            let expected = value.map(|value| u128::from(value) << (4 * (7 - place)));
            assert_eq!(hex(&digits), expected, "{byte:#x} at {place}");
        }
    }

    #[test]
    fn the_hash_of_other_ids_never_changes() {
        let id = EventId::of("evt_1");
        assert_eq!(format!("{:032x}", id.0), "487d7d00696e39c557804d8d4278f51d");
        // What a cursor holds reads back as itself.
        assert_eq!(EventId::of(&format!("{:032x}", id.0)), id);
    }

    #[test]
    fn ids_that_are_alike_at_either_end_spread_over_all_tables() {
        for shift in [0, 40, 96] {
            let mut set = IdSet::default();
            for n in 0..20_000u128 {
                set.insert(EventId(0xabcd_0000_0000_0000_0000_0000_0000_1234 ^ n << shift));
            }
            let largest = set.tables.iter().map(Table::len).max().unwrap();
            assert!(largest < 2 * 20_000 / IdSet::TABLES, "{largest} in one table");
        }
    }

    #[test]
    fn the_set_keeps_every_id_as_it_spreads() {
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
}
