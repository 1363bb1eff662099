//! Places in a log, as SQLite has them: its integers are signed.

use turnwire_core::Seq;

/// A place that is beyond all others stays beyond them.
pub(super) fn to_sql(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// What was never written, a negative number, becomes 0.
pub(super) fn from_sql(place: i64) -> u64 {
    u64::try_from(place).unwrap_or(0)
}

/// The place of an event; one that makes no sense becomes the first.
pub(super) fn seq_from_sql(place: i64) -> Seq {
    Seq::new(from_sql(place)).unwrap_or(Seq::FIRST)
}

/// How many, for a `LIMIT`.
pub(super) fn count_to_sql(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
