//! Whether this process owns a session, and what it learns of sessions that another node owns.

use super::load::Access;
use super::{Details, Session};
use crate::error::Result;
use crate::loaded_session::LoadedSession;
use crate::store::cluster::SessionHead;
use crate::store::{Fence, SessionNumber, SessionRecord, SessionStatus};
use std::sync::Arc;

impl Session {
    /// Whether this process owns it now, and so knows its latest state.
    pub fn is_owned(&self) -> bool {
        self.inner.lock().live.as_ref().is_some_and(|live| self.is_current_owner(live))
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
