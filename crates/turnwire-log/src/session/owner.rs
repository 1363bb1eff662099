//! Whether this process owns a session, and what it learns of sessions that another node owns.

use super::load::Access;
use super::{Details, Session};
use crate::error::Result;
use crate::loaded_session::LoadedSession;
use crate::store::cluster::SessionHead;
use crate::store::{Fence, SessionNumber, SessionRecord, SessionStatus};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How often a read that waits for an append looks whether the session is still owned.
const OWNER_CHECK: Duration = Duration::from_millis(100);

impl Session {
    /// Whether this process owns it now, and so knows its latest state.
    pub fn is_owned(&self) -> bool {
        self.inner.lock().live.as_ref().is_some_and(|live| self.is_current_owner(live))
    }

    /// Whether this process owns the session and its durable head is the latest. Appends that are on their way now are
    /// waited for: the store may have them already, so that other nodes have shown them.
    pub(crate) async fn knows_latest_head(&self) -> bool {
        let (appends, failures) = {
            let inner = self.inner.lock();
            if !inner.live.as_ref().is_some_and(|live| self.is_current_owner(live)) {
                return false;
            }
            if inner.appends_started == inner.appends_finished {
                return true;
            }
            (inner.appends_started, inner.failures)
        };
        loop {
            match timeout(OWNER_CHECK, self.wait_until_durable(appends, failures)).await {
                Ok(landed) => return landed.is_ok(),
                Err(_) if self.is_owned() => {}
                // Another node may own it now.
                Err(_) => return false,
            }
        }
    }

    pub(super) fn is_current_owner(&self, live: &LoadedSession) -> bool {
        live.lease_term == Some(self.log.lease.term()) && self.log.lease.is_valid()
    }

    /// A number that changes when this process acquires the session after another node may have written it.
    pub fn ownership(&self) -> u64 {
        self.inner.lock().ownership.count
    }

    /// Acquires the session, unless this process owns it already: `Owned` if another node does.
    pub async fn acquire_ownership(self: &Arc<Self>) -> Result<()> {
        self.prepare(Access::Write, &[]).await
    }

    /// Gives the session up, so that another node can acquire it. What this process has begun to append is finished
    /// first.
    pub async fn release(&self) -> Result<()> {
        let Some(store) = self.log.store.cluster() else { return Ok(()) };
        let _one = self.loading.lock().await;
        let Some(live) = self.stop_owning() else { return Ok(()) };
        self.wait_for_running_appends().await?;
        store.release_leases(&[(self.number, live.fence)]).await
    }

    fn stop_owning(&self) -> Option<Box<LoadedSession>> {
        let mut inner = self.inner.lock();
        inner.ownership.lease_term = None;
        inner.live.take().filter(|live| live.lease_term.is_some())
    }

    /// Whether somebody watches its head.
    pub(crate) fn is_watched(&self) -> bool {
        self.head.receiver_count() > 0
    }

    /// Another node has written events up to this head.
    pub(crate) fn observe_head(&self, seen: SessionHead) {
        if self.is_owned() {
            return;
        }
        self.head.send_if_modified(|now| {
            let is_news =
                seen.head > now.head || (seen.head == now.head && seen.status != now.status);
            if is_news {
                (now.head, now.status) = (seen.head, seen.status);
            }
            is_news
        });
    }

    /// The session was read from the store.
    pub(crate) fn observe_record(&self, record: SessionRecord) {
        let SessionRecord { number, head, state, title, metadata, .. } = record;
        self.observe_head(SessionHead { session: number, head, status: state.status });
        if !self.is_owned() {
            *self.details.lock() = Details { title, metadata };
        }
    }

    /// The lease of a session in which nothing is to do. The session must be out of use.
    pub(crate) fn unneeded_lease(&self) -> Option<(SessionNumber, Fence)> {
        let inner = self.inner.lock();
        let live = inner.live.as_ref()?;
        let is_done = live.state.status == SessionStatus::Idle
            && live.state.keep_from().is_none()
            && live.queue.is_empty();
        (is_done && self.is_current_owner(live)).then_some((self.number, live.fence))
    }
}
