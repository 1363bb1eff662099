//! One clock for all nodes: that of the database.
//!
//! Leases need no clock that nodes agree on. But the times of events do, where one node wrote an event and another one
//! asks how long ago that was: the deadline of an approval, for example.

use std::time::Duration;
use turnwire_core::stamp;

/// Clocks that differ by less are taken for equal, so that time does not jump with each measurement.
const TOLERANCE_MS: i64 = 2_000;

/// Compares the clock of this machine with that of the store, which was read `within` this time until now, and corrects
/// the clock of this process if they differ.
pub(super) fn agree(store_ms: i64, within: Duration) {
    let former = stamp::clock_correction();
    let own_ms = stamp::unix_millis().saturating_sub(former);
    let Some(correction) = correct(former, store_ms.saturating_sub(own_ms), within) else { return };
    stamp::correct_clock(correction);
    if correction == 0 {
        tracing::info!("the clock of this machine and that of the database are equal again");
    } else {
        tracing::warn!(
            seconds = correction / 1000,
            "the clock of this machine differs from that of the database; using the time of the database"
        );
    }
}

/// The new correction, unless the former one is right.
fn correct(former: i64, measured: i64, within: Duration) -> Option<i64> {
    let is_equal = |one: i64, other: i64| one.abs_diff(other) <= TOLERANCE_MS.unsigned_abs();
    let correction = if is_equal(measured, 0) { 0 } else { measured };
    let is_right =
        correction == former || (former != 0 && correction != 0 && is_equal(former, correction));
    let is_exact = within.as_millis() <= TOLERANCE_MS.unsigned_abs().into();
    (is_exact && !is_right).then_some(correction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_corrected_only_if_it_is_off_by_more_than_the_tolerance() {
        let soon = Duration::from_millis(20);
        assert_eq!(correct(0, 0, soon), None);
        assert_eq!(correct(0, 1_999, soon), None);
        assert_eq!(correct(0, -600_000, soon), Some(-600_000));
        assert_eq!(correct(-600_000, -600_900, soon), None);
        assert_eq!(correct(-600_000, 300_000, soon), Some(300_000));
        assert_eq!(correct(-600_000, 40, soon), Some(0));
        assert_eq!(correct(0, -600_000, Duration::from_secs(3)), None, "measured too slowly");
    }
}
