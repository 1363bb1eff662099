//! Whether this process still owns what it acquired.

use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The lease of this process. While it is valid, no other node can own a session that this one has acquired.
///
/// Its end is measured by the monotonic clock of this process, from before the renewal was sent: so it ends here before it
/// ends in the store, whatever the clocks show.
#[derive(Debug)]
pub struct NodeLease {
    id: RwLock<Arc<str>>,
    /// How many ids this process has had. Sessions that were acquired under an earlier one are lost.
    term: AtomicU64,
    start: Instant,
    /// In nanoseconds since `start`. `u64::MAX`: forever.
    valid_until: AtomicU64,
}

impl NodeLease {
    /// The lease of a process that has the store for itself.
    pub fn permanent(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: RwLock::new(id.into()),
            term: AtomicU64::new(1),
            start: Instant::now(),
            valid_until: AtomicU64::new(u64::MAX),
        }
    }

    /// A lease that is not valid yet.
    pub(super) fn renewable(id: &str) -> Self {
        Self { valid_until: AtomicU64::new(0), ..Self::permanent(id) }
    }

    /// The id of the node now.
    pub fn id(&self) -> Arc<str> {
        self.id.read().clone()
    }

    /// A number that changes with the id.
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// Whether no other process can use the store.
    pub fn is_permanent(&self) -> bool {
        self.valid_until.load(Ordering::Relaxed) == u64::MAX
    }

    /// Whether it is certain now that no other node owns what this one has acquired.
    pub fn is_valid(&self) -> bool {
        let until = self.valid_until.load(Ordering::Acquire);
        until == u64::MAX || self.nanos(Instant::now()) < until
    }

    pub(super) fn extend(&self, until: Instant) {
        self.valid_until.fetch_max(self.nanos(until), Ordering::AcqRel);
    }

    pub(super) fn end(&self) {
        self.valid_until.store(0, Ordering::Release);
    }

    pub(super) fn replace_id(&self, id: &str) {
        self.end();
        *self.id.write() = id.into();
        self.term.fetch_add(1, Ordering::AcqRel);
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_lease_ends_by_itself_and_a_permanent_one_does_not() {
        let lease = NodeLease::renewable("a");
        assert!(!lease.is_valid() && !lease.is_permanent());
        lease.extend(Instant::now() + Duration::from_mins(1));
        assert!(lease.is_valid());
        lease.end();
        assert!(!lease.is_valid());
        lease.extend(lease.start);
        assert!(!lease.is_valid());
        assert!(NodeLease::permanent("a").is_valid());
    }

    #[test]
    fn another_id_is_another_term_without_a_lease() {
        let lease = NodeLease::renewable("a");
        lease.extend(Instant::now() + Duration::from_mins(1));
        let term = lease.term();
        lease.replace_id("b");
        assert!(lease.term() > term && !lease.is_valid());
        assert_eq!(&*lease.id(), "b");
    }
}
