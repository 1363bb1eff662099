//! [`Seq`]: an event's place in its session's log.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::num::NonZeroU64;

/// An event's place in its session's log: dense, from 1.
///
/// ```
/// use turnwire_core::Seq;
///
/// assert_eq!(Seq::new(0), None);
/// assert_eq!(Seq::FIRST.next().get(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(NonZeroU64);

impl Seq {
    /// The place of a session's first event.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// A place, unless it is 0.
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

    /// The place behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Seq {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for Seq {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?)
            .ok_or_else(|| serde::de::Error::custom("a seq counts from 1, so it cannot be 0"))
    }
}
