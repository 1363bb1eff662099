//! Conversions to and from SQLite's integers, which are signed.

use turnwire_core::Seq;

/// A number that is too large becomes the largest.
pub(super) fn to_sql(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// A negative number, which is never written, becomes 0.
pub(super) fn from_sql(place: i64) -> u64 {
    u64::try_from(place).unwrap_or(0)
}

/// A seq. A number that is never written becomes the first.
pub(super) fn seq_from_sql(place: i64) -> Seq {
    Seq::new(from_sql(place)).unwrap_or(Seq::FIRST)
}

/// A count, for example for a `LIMIT`.
pub(super) fn count_to_sql(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
