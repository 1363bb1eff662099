//! Positions in a session's log: [`Seq`] is one event, [`Head`] is the end of the log.
//!
//! ```
//! use turnwire_core::{Head, Seq};
//!
//! let mut head = Head::EMPTY;
//! for _ in 0..3 {
//!     head = head.next().into(); // append an event
//! }
//! assert_eq!(head.seq(), Seq::new(3));
//!
//! // A subscriber that has seen event 1 still needs two events, from 2 on.
//! let cursor = Head::from(Seq::FIRST);
//! assert_eq!((head.events_after(cursor), cursor.next().get()), (2, 2));
//! ```

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::num::NonZeroU64;

/// Position of an event in its session's log. The first event has 1, and there are no gaps.
///
/// ```
/// use turnwire_core::Seq;
///
/// assert_eq!(Seq::new(0), None);
/// assert_eq!(Seq::FIRST.next().get(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Seq(NonZeroU64);

impl Seq {
    /// Position of a session's first event.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The position with this number; `None` for 0.
    pub const fn new(seq: u64) -> Option<Self> {
        match NonZeroU64::new(seq) {
            Some(seq) => Some(Self(seq)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The next position. The largest number is its own next: no log gets there.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The next position; `None` after the largest number.
    pub const fn checked_next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(seq) => Some(Self(seq)),
            None => None,
        }
    }

    /// The position that many events later; at most the largest number.
    #[must_use]
    pub const fn plus(self, events: u64) -> Self {
        Self(self.0.saturating_add(events))
    }

    /// Where the log ended before this event: the cursor of a subscriber that wants this event next.
    ///
    /// ```
    /// # use turnwire_core::{Head, Seq};
    /// assert_eq!(Seq::FIRST.previous(), Head::EMPTY);
    /// ```
    pub const fn previous(self) -> Head {
        Head(self.0.get() - 1)
    }

    /// How many events after `first` this one is; 0 where it is not after it.
    ///
    /// ```
    /// # use turnwire_core::Seq;
    /// assert_eq!(Seq::FIRST.plus(4).offset_from(Seq::FIRST), 4);
    /// ```
    pub const fn offset_from(self, first: Self) -> u64 {
        self.0.get().saturating_sub(first.0.get())
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Seq {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?)
            .ok_or_else(|| serde::de::Error::custom("a seq counts from 1, so it cannot be 0"))
    }
}

/// The [`Seq`] of the last event of a log, or of the part of it that somebody has; 0 where there is
/// none yet.
///
/// The same type serves for a cursor: the last event that a subscriber has seen.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Head(u64);

impl Head {
    /// No event yet.
    pub const EMPTY: Self = Self(0);

    /// The head with this number: how many events there are.
    pub const fn new(events: u64) -> Self {
        Self(events)
    }

    /// The number: how many events there are.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The last event; `None` where there is none yet.
    pub const fn seq(self) -> Option<Seq> {
        Seq::new(self.0)
    }

    /// Whether there is no event yet.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The position after the last event: the next append gets it, and a reader starts there.
    ///
    /// ```
    /// # use turnwire_core::{Head, Seq};
    /// assert_eq!(Head::EMPTY.next(), Seq::FIRST);
    /// ```
    pub const fn next(self) -> Seq {
        Seq(NonZeroU64::MIN.saturating_add(self.0))
    }

    /// Whether the event is there.
    pub const fn includes(self, seq: Seq) -> bool {
        seq.get() <= self.0
    }

    /// How many events there are after `earlier`; 0 where that is not earlier.
    pub const fn events_after(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Where the log ended that many events earlier; at least [`EMPTY`](Self::EMPTY).
    ///
    /// ```
    /// # use turnwire_core::Head;
    /// assert_eq!(Head::new(7).minus(2), Head::new(5));
    /// ```
    #[must_use]
    pub const fn minus(self, events: u64) -> Self {
        Self(self.0.saturating_sub(events))
    }
}

impl From<Seq> for Head {
    fn from(last: Seq) -> Self {
        Self(last.get())
    }
}

impl From<Option<Seq>> for Head {
    fn from(last: Option<Seq>) -> Self {
        last.map_or(Self::EMPTY, Self::from)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_and_its_next_seq_are_neighbours() {
        for events in [0, 1, 2, 41, u64::MAX - 1] {
            let head = Head::new(events);
            assert_eq!(head.next().get(), events + 1);
            assert_eq!(head.next().previous(), head);
            assert!(!head.includes(head.next()));
            assert_eq!(Head::from(head.seq()), head);
            assert!(head.seq().is_none_or(|last| head.includes(last)));
        }
        assert!(Head::EMPTY.is_empty() && Head::EMPTY.seq().is_none());
    }

    #[test]
    fn positions_stop_at_the_largest_number() {
        let largest = Seq::new(u64::MAX).unwrap();
        assert_eq!((largest.next(), largest.checked_next()), (largest, None));
        assert_eq!(Seq::FIRST.plus(u64::MAX), largest);
        assert_eq!(Head::new(u64::MAX).next(), largest);
        assert_eq!(Seq::FIRST.checked_next(), Seq::new(2));
    }

    #[test]
    fn the_distance_of_heads_is_never_negative() {
        let (two, five) = (Head::new(2), Head::new(5));
        assert_eq!((five.events_after(two), two.events_after(five)), (3, 0));
        assert_eq!((five.minus(3), two.minus(5)), (two, Head::EMPTY));
        let (second, fifth) = (two.next(), five.next());
        assert_eq!((fifth.offset_from(second), second.offset_from(fifth)), (3, 0));
    }

    #[test]
    fn positions_are_plain_numbers_in_json() {
        assert_eq!(serde_json::to_string(&(Seq::FIRST, Head::EMPTY)).unwrap(), "[1,0]");
        assert_eq!(serde_json::from_str::<Head>("7").unwrap(), Head::new(7));
        assert!(serde_json::from_str::<Seq>("0").is_err());
        assert_eq!(format!("{} {}", Seq::FIRST, Head::new(3)), "1 3");
    }
}
