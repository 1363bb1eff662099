//! Counts the bytes that are held in memory for requests, per tenant and in all.

use crate::error::{ApiError, ApiResult};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many bytes may be held at once: in all, and for one tenant.
#[derive(Debug, Clone)]
pub(crate) struct ByteBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    per_tenant: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    tenants: HashMap<Arc<str>, usize>,
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    budget: Arc<Inner>,
    tenant: Arc<str>,
    bytes: usize,
}

impl ByteBudget {
    /// A budget of so many bytes in all, and for one tenant.
    pub(crate) fn new(total: usize, per_tenant: usize) -> Self {
        Self(Arc::new(Inner { total, per_tenant, state: Mutex::default() }))
    }

    /// Counts bytes before they are held, or refuses them.
    pub(crate) fn reserve(&self, tenant: &str, bytes: usize) -> ApiResult<ReservedBytes> {
        let mut reserved =
            ReservedBytes { budget: Arc::clone(&self.0), tenant: tenant.into(), bytes: 0 };
        reserved.grow(bytes)?;
        Ok(reserved)
    }

    /// How many bytes are held now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.0.state.lock().used
    }
}

impl ReservedBytes {
    /// How many bytes are counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts more bytes, or refuses them: then what was counted before stays as it is.
    pub(crate) fn grow(&mut self, bytes: usize) -> ApiResult<()> {
        let mut state = self.budget.state.lock();
        let of_tenant = state.tenants.get(&self.tenant).copied().unwrap_or(0);
        if of_tenant.saturating_add(bytes) > self.budget.per_tenant {
            return Err(ApiError::too_many(
                "too many bytes of this tenant's requests are in memory",
            )
            .kind("too_many_bytes")
            .hint("wait until some of its requests have finished, then try again")
            .retry_after(1));
        }
        if state.used.saturating_add(bytes) > self.budget.total {
            return Err(ApiError::unavailable("too many bytes of requests are in memory")
                .kind("too_many_bytes")
                .hint("try again in a moment")
                .retry_after(1));
        }
        state.used += bytes;
        state.tenants.insert(Arc::clone(&self.tenant), of_tenant + bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.used -= self.bytes;
        let left = state.tenants.get_mut(&self.tenant).map(|used| {
            *used -= self.bytes;
            *used
        });
        if left == Some(0) {
            state.tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_per_tenant_and_in_all() {
        let budget = ByteBudget::new(10, 6);
        let first = budget.reserve("a", 4).unwrap();
        assert_eq!(budget.reserve("a", 3).unwrap_err().status(), 429);
        let mut second = budget.reserve("b", 6).unwrap();
        assert_eq!(budget.reserve("c", 1).unwrap_err().status(), 503);
        assert_eq!(second.grow(1).unwrap_err().status(), 429);
        drop(first);
        let _third = budget.reserve("c", 4).unwrap();
        assert_eq!(budget.used(), 10);
    }

    #[test]
    fn what_is_refused_is_not_counted() {
        let budget = ByteBudget::new(10, 10);
        let mut held = budget.reserve("a", 4).unwrap();
        assert!(held.grow(7).is_err());
        assert!(held.grow(usize::MAX).is_err());
        assert_eq!(budget.used(), 4);
        drop(held);
        assert_eq!(budget.used(), 0);
        assert!(budget.0.state.lock().tenants.is_empty());
    }
}
