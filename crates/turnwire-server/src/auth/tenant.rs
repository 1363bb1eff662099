//! Limits of one tenant: connections, and requests per second.

use crate::error::{ApiError, ApiResult};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// The error type for a tenant that has all its connections open.
pub(crate) const TOO_MANY_CONNECTIONS: &str = "too_many_connections";

/// A tenant, with its current use of connections and requests.
#[derive(Debug)]
pub struct Tenant {
    name: Arc<str>,
    connections: AtomicUsize,
    max_connections: usize,
    /// When the next request would be on time if they all came evenly, in nanoseconds since `start`
    /// (the generic cell rate algorithm: a token bucket in one number).
    next: AtomicU64,
    /// The time between two requests at the allowed rate.
    interval: u64,
    /// How far ahead of that rate requests may be.
    burst: u64,
    start: Instant,
}

impl Tenant {
    fn new(name: Arc<str>, max_connections: usize, per_second: u32, start: Instant) -> Self {
        Self {
            name,
            connections: AtomicUsize::new(0),
            max_connections,
            next: AtomicU64::new(0),
            interval: 1_000_000_000 / u64::from(per_second.max(1)),
            burst: 1_000_000_000,
            start,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Counts a request; an error if the tenant is over its rate.
    pub(crate) fn count_request(&self, now: Instant) -> ApiResult<()> {
        let now = u64::try_from(now.duration_since(self.start).as_nanos()).unwrap_or(u64::MAX);
        let latest = now.saturating_add(self.burst);
        let next = |next: u64| {
            let after = next.max(now).saturating_add(self.interval);
            (after <= latest).then_some(after)
        };
        match self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(_) => Err(ApiError::too_many("this tenant has exceeded its request rate")
                .hint("try again after `retry-after` seconds")
                .retry_after(1)),
        }
    }

    /// Counts a connection until the permit is dropped.
    pub(crate) fn count_connection(self: &Arc<Self>) -> ApiResult<ConnectionPermit> {
        let room = |count| (count < self.max_connections).then_some(count + 1);
        match self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(ConnectionPermit(Arc::clone(self))),
            Err(_) => Err(ApiError::too_many("this tenant has too many open connections")
                .kind(TOO_MANY_CONNECTIONS)
                .hint("close some, or use one WebSocket for several sessions")
                .retry_after(5)),
        }
    }
}

/// A connection that counts for a tenant.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<Tenant>);

impl ConnectionPermit {
    pub(crate) fn belongs_to(&self, tenant: &Arc<Tenant>) -> bool {
        Arc::ptr_eq(&self.0, tenant)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All known tenants. Credentials name them, so outsiders cannot create many.
#[derive(Debug)]
pub(crate) struct Tenants {
    known: Mutex<HashMap<Arc<str>, Arc<Tenant>>>,
    max_connections: usize,
    per_second: u32,
    start: Instant,
}

impl Tenants {
    pub(crate) fn new(max_connections: usize, per_second: u32) -> Self {
        let known = Mutex::default();
        Self { known, max_connections, per_second, start: Instant::now() }
    }

    pub(crate) fn get(&self, name: &str) -> Arc<Tenant> {
        let mut known = self.known.lock();
        if let Some(tenant) = known.get(name) {
            return Arc::clone(tenant);
        }
        let name: Arc<str> = name.into();
        let tenant =
            Tenant::new(Arc::clone(&name), self.max_connections, self.per_second, self.start);
        let tenant = Arc::new(tenant);
        known.insert(name, Arc::clone(&tenant));
        tenant
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_tenant_may_send_a_second_ahead_and_then_at_its_rate() {
        let tenants = Tenants::new(1, 10);
        let tenant = tenants.get("t");
        let start = tenants.start;
        assert_eq!((0..20).filter(|_| tenant.count_request(start).is_ok()).count(), 10);
        let later = start + Duration::from_millis(300);
        assert_eq!((0..20).filter(|_| tenant.count_request(later).is_ok()).count(), 3);
        let much_later = start + Duration::from_secs(100);
        assert_eq!((0..20).filter(|_| tenant.count_request(much_later).is_ok()).count(), 10);
    }

    #[test]
    fn a_connection_counts_until_it_is_closed() {
        let tenants = Tenants::new(1, 10);
        let first = tenants.get("t").count_connection().unwrap();
        assert_eq!(tenants.get("t").count_connection().unwrap_err().status(), 429);
        assert!(tenants.get("other").count_connection().is_ok());
        drop(first);
        assert!(tenants.get("t").count_connection().is_ok());
    }
}
