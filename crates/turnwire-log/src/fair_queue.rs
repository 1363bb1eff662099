//! A semaphore that is fair between tenants: limits in all and per tenant, and waiting tenants are
//! served round-robin. The log reads through one, and the server has others.
//!
//! ```
//! use turnwire_log::FairQueue;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let queue = FairQueue::new(8, 2);
//! let permit = queue.acquire("tenant-1").await?;
//! // … at most two of these run for tenant-1 …
//! drop(permit);
//! # Ok::<(), turnwire_log::fair_queue::QueueFull>(())
//! # }).unwrap();
//! ```

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

/// How many callers of one tenant may wait, per permit that it may hold.
const WAITERS_PER_PERMIT: usize = 32;

/// Hands out permits: at most `total` in all, at most `per_tenant` to one tenant.
#[derive(Debug, Clone)]
pub struct FairQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    per_tenant: usize,
    waiters_per_tenant: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// Tenants that hold a permit or wait for one.
    tenants: HashMap<Arc<str>, TenantQueue>,
    /// Tenants with waiters, the one whose turn is next first.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct TenantQueue {
    used: usize,
    waiters: VecDeque<oneshot::Sender<FairPermit>>,
}

/// The right to run. Dropping it lets the next waiter run.
#[derive(Debug)]
pub struct FairPermit {
    queue: Arc<Inner>,
    tenant: Arc<str>,
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let granted = {
            let mut state = self.queue.state.lock();
            state.used -= 1;
            if let Some(tenant) = state.tenants.get_mut(&self.tenant) {
                tenant.used -= 1;
            }
            state.forget_if_idle(&self.tenant);
            self.queue.grant(&mut state)
        };
        // Outside of the lock: the permit of a waiter that has gone is dropped here, and locks
        // again.
        for (waiter, permit) in granted {
            drop(waiter.send(permit));
        }
    }
}

impl FairQueue {
    /// A queue with at least one permit for everybody. Too many waiters of a tenant are refused.
    pub fn new(total: usize, per_tenant: usize) -> Self {
        Self::with_waiters(total, per_tenant, per_tenant.saturating_mul(WAITERS_PER_PERMIT))
    }

    /// The same without a limit of waiters, for callers that are limited elsewhere.
    pub fn unbounded(total: usize, per_tenant: usize) -> Self {
        Self::with_waiters(total, per_tenant, usize::MAX)
    }

    fn with_waiters(total: usize, per_tenant: usize, waiters_per_tenant: usize) -> Self {
        let (total, per_tenant) = (total.max(1), per_tenant.max(1));
        let state = Mutex::default();
        Self(Arc::new(Inner { total, per_tenant, waiters_per_tenant, state }))
    }

    /// Waits for a permit. A caller that stops waiting leaves the queue. Too many waiters of one
    /// tenant are an error.
    pub async fn acquire(&self, tenant: &str) -> Result<FairPermit, QueueFull> {
        let waiting = {
            let mut state = self.0.state.lock();
            match self.0.enter(&mut state, tenant) {
                Entered::Granted(permit) => return Ok(permit),
                Entered::Waiting(waiting) => waiting,
                Entered::Full => return Err(QueueFull),
            }
        };
        // The sender is dropped only with the queue, which this call holds.
        waiting.await.map_err(|_| QueueFull)
    }
}

enum Entered {
    Granted(FairPermit),
    Waiting(oneshot::Receiver<FairPermit>),
    Full,
}

impl Inner {
    fn enter(self: &Arc<Self>, state: &mut State, tenant: &str) -> Entered {
        let name = state.tenants.get_key_value(tenant).map(|(name, _)| Arc::clone(name));
        let name = name.unwrap_or_else(|| tenant.into());
        let queue = state.tenants.entry(Arc::clone(&name)).or_default();
        if queue.waiters.is_empty() && queue.used < self.per_tenant && state.used < self.total {
            queue.used += 1;
            state.used += 1;
            return Entered::Granted(FairPermit { queue: Arc::clone(self), tenant: name });
        }
        let most = self.waiters_per_tenant;
        if queue.waiters.len() >= most {
            queue.waiters.retain(|waiter| !waiter.is_closed());
        }
        if queue.waiters.len() >= most {
            return Entered::Full;
        }
        let (sender, receiver) = oneshot::channel();
        queue.waiters.push_back(sender);
        if !state.turns.contains(&name) {
            state.turns.push_back(name);
        }
        Entered::Waiting(receiver)
    }

    /// Grants free permits to waiters, tenant by tenant.
    fn grant(
        self: &Arc<Self>,
        state: &mut State,
    ) -> Vec<(oneshot::Sender<FairPermit>, FairPermit)> {
        let mut granted = Vec::new();
        let mut at_their_limit = 0;
        while state.used < self.total && at_their_limit < state.turns.len() {
            let Some(name) = state.turns.pop_front() else { break };
            let Some(queue) = state.tenants.get_mut(&name) else { continue };
            while queue.waiters.front().is_some_and(oneshot::Sender::is_closed) {
                queue.waiters.pop_front();
            }
            if queue.waiters.is_empty() {
                state.forget_if_idle(&name);
                continue;
            }
            if queue.used >= self.per_tenant {
                at_their_limit += 1;
            } else if let Some(waiter) = queue.waiters.pop_front() {
                at_their_limit = 0;
                queue.used += 1;
                state.used += 1;
                let permit = FairPermit { queue: Arc::clone(self), tenant: Arc::clone(&name) };
                granted.push((waiter, permit));
            }
            state.turns.push_back(name);
        }
        granted
    }
}

impl State {
    fn forget_if_idle(&mut self, tenant: &Arc<str>) {
        if self.tenants.get(tenant).is_some_and(|queue| queue.used == 0 && queue.waiters.is_empty())
        {
            self.tenants.remove(tenant);
        }
    }
}

/// Too many callers of one tenant are waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this tenant wait for the same resource")]
pub struct QueueFull;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// The permit of a call that does not have to wait.
    fn now(queue: &FairQueue, tenant: &str) -> Option<FairPermit> {
        queue.acquire(tenant).now_or_never().map(Result::unwrap)
    }

    #[tokio::test]
    async fn a_tenant_at_its_limit_leaves_room_for_others() {
        let queue = FairQueue::new(4, 2);
        let _held = [now(&queue, "a").unwrap(), now(&queue, "a").unwrap()];
        assert!(now(&queue, "a").is_none());
        assert!(now(&queue, "b").is_some());
    }

    #[tokio::test]
    async fn waiting_tenants_are_served_in_turns() {
        let queue = FairQueue::new(1, 1);
        let held = now(&queue, "z").unwrap();
        let mut order = Vec::new();
        let mut waiting = Vec::new();
        for tenant in ["a", "a", "a", "b", "c", "b"] {
            let mut call = Box::pin(queue.acquire(tenant));
            assert!((&mut call).now_or_never().is_none());
            waiting.push((tenant, call));
        }
        let mut running = Some(held);
        while !waiting.is_empty() {
            drop(running.take());
            let ready = waiting.iter_mut().enumerate().find_map(|(at, (_, call))| {
                call.now_or_never().map(|permit| (at, permit.unwrap()))
            });
            let (at, permit) = ready.expect("somebody is next");
            order.push(waiting.remove(at).0);
            running = Some(permit);
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
    }

    #[tokio::test]
    async fn a_caller_that_stops_waiting_leaves_the_queue() {
        let queue = FairQueue::new(1, 1);
        let held = now(&queue, "a").unwrap();
        let mut first = Box::pin(queue.acquire("a"));
        let mut second = Box::pin(queue.acquire("b"));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        drop(held);
        assert!(second.now_or_never().is_some());
        assert!(queue.0.state.lock().tenants.is_empty());
    }

    #[tokio::test]
    async fn a_permit_that_nobody_took_is_not_lost() {
        let queue = FairQueue::new(1, 1);
        let held = now(&queue, "a").unwrap();
        let mut first = Box::pin(queue.acquire("a"));
        assert!((&mut first).now_or_never().is_none());
        drop(held);
        // It was granted, and its caller was dropped before it looked.
        drop(first);
        assert!(now(&queue, "b").is_some());
    }

    #[tokio::test]
    async fn too_many_waiters_of_one_tenant_are_refused() {
        let queue = FairQueue::new(1, 1);
        let _held = now(&queue, "a").unwrap();
        let mut waiting: Vec<_> =
            (0..WAITERS_PER_PERMIT).map(|_| Box::pin(queue.acquire("a"))).collect();
        assert!(waiting.iter_mut().all(|call| call.now_or_never().is_none()));
        assert_eq!(queue.acquire("a").now_or_never().unwrap().unwrap_err(), QueueFull);
        assert!(queue.acquire("b").now_or_never().is_none(), "others may still wait");
        waiting.truncate(1);
        assert!(queue.acquire("a").now_or_never().is_none(), "who has left makes room");
    }

    #[test]
    fn limits_hold_in_any_order_of_calls() {
        turnwire_testkit::check_property("limits_hold_in_any_order_of_calls", 200, |rng| {
            let (total, per_tenant) = (rng.usize(1..6), rng.usize(1..4));
            let queue = FairQueue::new(total, per_tenant);
            let mut held: Vec<(&str, FairPermit)> = Vec::new();
            let mut waiting = Vec::new();
            for _ in 0..200 {
                match rng.u8(0..4) {
                    0 | 1 => {
                        let tenant = ["a", "b", "c"][rng.usize(0..3)];
                        waiting.push((tenant, Box::pin(queue.acquire(tenant))));
                    }
                    2 if !held.is_empty() => drop(held.swap_remove(rng.usize(0..held.len()))),
                    3 if !waiting.is_empty() => {
                        drop(waiting.swap_remove(rng.usize(0..waiting.len())));
                    }
                    _ => {}
                }
                waiting.retain_mut(|(tenant, call)| match call.now_or_never() {
                    Some(Ok(permit)) => {
                        held.push((tenant, permit));
                        false
                    }
                    Some(Err(_)) => false,
                    None => true,
                });
                let count = |tenant: &str| held.iter().filter(|(of, _)| *of == tenant).count();
                assert!(held.len() <= total);
                assert!(held.iter().all(|(tenant, _)| count(tenant) <= per_tenant));
                let idle = held.len() < total
                    && waiting.iter().any(|(tenant, _)| count(tenant) < per_tenant);
                assert!(!idle, "a permit is free, and a waiter does not get it");
            }
            drop((held, waiting));
            let state = queue.0.state.lock();
            assert_eq!((state.used, state.tenants.len()), (0, 0));
        });
    }
}
