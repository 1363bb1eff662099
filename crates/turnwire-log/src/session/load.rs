//! Loads a session from the store when it is first used, and looks up what is not in memory.

use super::{Details, HeadState, Ownership, READ_BYTES, Session};
use crate::error::{Error, Result};
use crate::loaded_session::{FinishedMessage, LoadedSession};
use crate::projection;
use crate::store::{Fence, QueuedMessage, SessionRecord, StoredMessage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use turnwire_core::EventIds;

/// What a session is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// To read it, whoever owns it.
    Read,
    /// To change it.
    Write,
}

impl Session {
    /// Loads the session if necessary, and looks up unknown ids of `touched`.
    pub(super) async fn prepare(self: &Arc<Self>, access: Access, touched: &[&str]) -> Result<()> {
        self.recently_used.store(true, Ordering::Relaxed);
        // A process that has the store for itself owns what it reads.
        let access = if self.log.lease.is_permanent() { Access::Write } else { access };
        let mut is_fresh = false;
        loop {
            if self.deleted.load(Ordering::Acquire) {
                return Err(Error::NoSession);
            }
            let unknown: Option<Vec<&str>> = {
                let inner = self.inner.lock();
                let usable = |live: &&LoadedSession| is_fresh || self.is_current_owner(live);
                inner.live.as_deref().filter(usable).map(|live| {
                    // An empty session has no messages.
                    let touched = if live.last.is_empty() { &[] } else { touched };
                    let mut unknown: Vec<&str> =
                        touched.iter().copied().filter(|id| !live.is_known(id)).collect();
                    unknown.dedup();
                    unknown
                })
            };
            match unknown {
                None => {
                    let before = self.ownership();
                    self.load(access).await?;
                    if let Some(listener) = self.log.acquire_listener.get()
                        && self.ownership() != before
                    {
                        listener(self);
                    }
                    is_fresh = access == Access::Read;
                }
                Some(unknown) if unknown.is_empty() => return Ok(()),
                Some(unknown) => {
                    if self.look_up_messages(&unknown).await? {
                        // All of them are new.
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Looks up finished messages. Returns whether none was found and nothing changed meanwhile.
    async fn look_up_messages(&self, ids: &[&str]) -> Result<bool> {
        let (before, failures) = {
            let inner = self.inner.lock();
            (inner.live.as_ref().map(|live| live.last), inner.failures)
        };
        let mut found = Vec::new();
        for id in ids {
            let Some(message) =
                self.read_fairly(self.log.store.find_message(self.number, id)).await?
            else {
                continue;
            };
            let known = if message.event_id.is_empty() {
                FinishedMessage::Reply(self.event_ids_of(&message).await?)
            } else {
                FinishedMessage::Whole(message.event_id)
            };
            found.push((message.id, known));
        }
        let mut inner = self.inner.lock();
        let unchanged = inner.failures == failures;
        let Some(live) = &mut inner.live else { return Ok(false) };
        let unchanged = unchanged && before == Some(live.last);
        let none = found.is_empty();
        for (id, known) in found {
            live.remember(id, known);
        }
        Ok(none && unchanged)
    }

    /// The ids of the events of a finished reply, as far as they are kept.
    async fn event_ids_of(&self, message: &StoredMessage) -> Result<EventIds> {
        let mut ids = EventIds::default();
        let mut from = message.first;
        while from <= message.last {
            let rows = match self
                .read_fairly(self.log.store.read_events(self.number, from, READ_BYTES))
                .await
            {
                Ok(rows) => rows,
                // Trimmed events are unknown, so repeats of them are refused.
                Err(Error::Trimmed(_)) => break,
                Err(error) => return Err(error),
            };
            let last = projection::for_each_event(&rows, |_, _, event| {
                if event.reply_id == message.id && event.kind.is_part_of_reply() {
                    ids.insert(&event.id);
                }
            })?;
            let Some(last) = last else { break };
            from = last.next();
        }
        Ok(ids)
    }

    /// Loads the state from the store: to write, after acquiring the lease; to read, if this process does not own the
    /// session, as far as other nodes have written it.
    async fn load(&self, access: Access) -> Result<()> {
        let _one = self.loading.lock().await;
        if self.inner.lock().live.as_ref().is_some_and(|live| self.is_current_owner(live)) {
            return Ok(());
        }
        let (fence, lease_term) = match access {
            // The lease first: another process may append until this one has it. A read need not wait for appends that
            // nobody knows of yet, which may hang as long as the database does.
            Access::Write => {
                self.wait_for_running_appends().await?;
                let (fence, term) = self.acquire().await?;
                (fence, Some(term))
            }
            Access::Read => (Fence::NONE, None),
        };
        let (record, mut live) = loop {
            // The owner takes a message from the queue and begins its reply in one append. Whoever reads the head before it and
            // the queue after it would find neither. So the queue must be the same before and after.
            let before = match access {
                Access::Read => Some(self.list_queued().await?),
                Access::Write => None,
            };
            let (record, mut live) = self.read_state(access, fence, lease_term).await?;
            live.queue = self.list_queued().await?.into();
            let ids = |queue: &[QueuedMessage]| {
                queue.iter().map(|one| one.id.clone()).collect::<Vec<_>>()
            };
            let after = ids(live.queue.make_contiguous());
            if before.is_none_or(|before| ids(&before) == after) {
                break (record, live);
            }
        };
        live.tail.watched = self.head.receiver_count() > 0;
        let mut inner = self.inner.lock();
        if lease_term.is_some() && inner.ownership.lease_term != lease_term {
            let count = inner.ownership.count + 1;
            inner.ownership = Ownership { lease_term, count };
        }
        live.ownership = inner.ownership.count;
        inner.live = Some(live);
        self.change_history();
        *self.details.lock() = Details { title: record.title, metadata: record.metadata };
        self.head.send_if_modified(|head| {
            let new = HeadState {
                head: record.head.max(head.head),
                status: record.state.status,
                is_deleted: head.is_deleted,
                // Before a session is acquired, all its appends have finished. One that is only read says nothing about
                // appends of before, which may still fail.
                append_count: lease_term.map_or(head.append_count, |_| inner.appends_started),
                failures: inner.failures,
            };
            let changed = new != *head;
            *head = new;
            changed
        });
        Ok(())
    }

    async fn list_queued(&self) -> Result<Vec<QueuedMessage>> {
        self.read_fairly(self.log.store.list_queued(self.number)).await
    }

    /// Reads head and state, and folds what is open.
    async fn read_state(
        &self,
        access: Access,
        fence: Fence,
        lease_term: Option<u64>,
    ) -> Result<(SessionRecord, Box<LoadedSession>)> {
        let record = self.read_fairly(self.log.store.find_session(&self.key)).await?;
        let record = record.filter(|record| record.number == self.number);
        let record = record.ok_or_else(|| self.note_deleted())?;
        let (mut live, mut from) = if let Some(mut live) = self.take_followed(access, &record) {
            let from = live.continue_to(&record);
            (live, from)
        } else {
            let live = LoadedSession::from_record(&record, fence, lease_term);
            let from = live.replay_from();
            (Box::new(live), from)
        };
        while record.head.includes(from) {
            let rows =
                self.read_fairly(self.log.store.read_events(self.number, from, READ_BYTES)).await?;
            // Another node may have appended more meanwhile.
            let last = projection::for_each_event(&rows, |seq, _, event| {
                if record.head.includes(seq) {
                    live.replay(event, seq);
                }
            })?;
            let Some(last) = last else { break };
            from = last.next();
            tokio::task::yield_now().await;
        }
        live.close_ended_replies();
        Ok((record, live))
    }

    /// Running appends must finish before the state is read: then they are in the log, or they are not.
    pub(super) async fn wait_for_running_appends(&self) -> Result<()> {
        let mut head = self.head.subscribe();
        loop {
            {
                let inner = self.inner.lock();
                if inner.appends_started == inner.appends_finished {
                    return Ok(());
                }
            }
            head.changed().await.map_err(|_| Error::NoSession)?;
        }
    }

    async fn acquire(&self) -> Result<(Fence, u64)> {
        let lease = &self.log.lease;
        let (term, owner) = (lease.term(), lease.id());
        if !lease.is_valid() {
            return Err(Error::Store(
                "the lease of this node has expired, and the database does not answer; \
                                     writing continues when it does"
                    .to_owned(),
            ));
        }
        match self.log.store.acquire_lease(self.number, &owner).await {
            Ok(lease) => Ok((lease.fence, term)),
            Err(Error::NoSession) => Err(self.note_deleted()),
            Err(error) => Err(error),
        }
    }

    fn note_deleted(&self) -> Error {
        self.deleted.store(true, Ordering::Release);
        Error::NoSession
    }

    /// What was loaded to read, if it can be continued up to the head of `record`.
    fn take_followed(&self, access: Access, record: &SessionRecord) -> Option<Box<LoadedSession>> {
        let mut inner = self.inner.lock();
        let can_continue = inner.live.as_ref().is_some_and(|live| {
            access == Access::Read && live.lease_term.is_none() && live.last <= record.head
        });
        inner.live.take_if(|_| can_continue)
    }
}
