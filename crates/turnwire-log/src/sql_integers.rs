//! Conversions to and from the integers of SQL, which are signed.

use turnwire_core::{Head, Seq};

/// A number that is too large becomes the largest.
pub(crate) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A negative number, which is never written, becomes 0.
pub(crate) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A seq or a head. A number that is too large becomes the largest.
pub(crate) fn position_to_sql(position: impl Into<Head>) -> i64 {
    to_sql(position.into().get())
}

/// A seq. A number that is never written becomes the first.
pub(crate) fn seq_from_sql(number: i64) -> Seq {
    Seq::new(from_sql(number)).unwrap_or(Seq::FIRST)
}

/// A head. A number that is never written becomes an empty log's.
pub(crate) fn head_from_sql(number: i64) -> Head {
    Head::new(from_sql(number))
}

/// A count, for example for a `LIMIT`.
pub(crate) fn count_to_sql(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
