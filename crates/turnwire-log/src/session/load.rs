//! Loads a session from the store when it is first used, and looks up what is not in memory.

use super::{HeadState, READ_BYTES, Session};
use crate::error::{Error, Result};
use crate::loaded_session::{FinishedMessage, LoadedSession};
use crate::projection;
use crate::store::StoredMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use turnwire_core::EventIds;

/// How many recent events are read after a restart to recognise repeats, besides those of open
/// replies.
const RECENT_EVENTS: u64 = 1000;

/// How long a lease is valid without renewal.
const LEASE_TTL: Duration = Duration::from_secs(30);

impl Session {
    /// Loads the session if necessary, and looks up unknown ids of `touched`.
    pub(super) async fn prepare(self: &Arc<Self>, touched: &[&str]) -> Result<()> {
        self.recently_used.store(true, Ordering::Relaxed);
        loop {
            if self.deleted.load(Ordering::Acquire) {
                return Err(Error::NoSession);
            }
            let unknown: Option<Vec<&str>> = {
                let inner = self.inner.lock();
                inner.live.as_ref().map(|live| {
                    let mut unknown: Vec<&str> =
                        touched.iter().copied().filter(|id| !live.is_known(id)).collect();
                    unknown.dedup();
                    unknown
                })
            };
            match unknown {
                None => self.load().await?,
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
            let Some(message) = self.read_fairly(self.store.find_message(self.number, id)).await?
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
            let rows =
                match self.read_fairly(self.store.read_events(self.number, from, READ_BYTES)).await
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

    /// Loads the state from the store.
    async fn load(&self) -> Result<()> {
        let _one = self.loading.lock().await;
        if self.inner.lock().live.is_some() {
            return Ok(());
        }
        // Running appends must finish first: then they are in the log, or they are not.
        let mut head = self.head.subscribe();
        loop {
            {
                let inner = self.inner.lock();
                if inner.appends_started == inner.appends_finished {
                    break;
                }
            }
            head.changed().await.map_err(|_| Error::NoSession)?;
        }
        drop(head);
        let record = self.read_fairly(self.store.find_session(&self.key)).await?;
        let record = record.filter(|record| record.number == self.number).ok_or_else(|| {
            self.deleted.store(true, Ordering::Release);
            Error::NoSession
        })?;
        let lease = self.store.acquire_lease(self.number, &self.owner, LEASE_TTL).await?;
        let mut live = LoadedSession::new(
            self.number,
            lease.fence,
            record.first,
            record.head,
            record.state.clone(),
        );
        let recent = record.head.minus(RECENT_EVENTS).next();
        let from = record.state.open_from.map_or(recent, |open| recent.min(open));
        let mut from = from.max(record.first);
        while record.head.includes(from) {
            let rows =
                self.read_fairly(self.store.read_events(self.number, from, READ_BYTES)).await?;
            let last = projection::for_each_event(&rows, |seq, _, event| live.replay(event, seq))?;
            let Some(last) = last else { break };
            from = last.next();
            tokio::task::yield_now().await;
        }
        live.queue = self.read_fairly(self.store.list_queued(self.number)).await?.into();
        live.tail.watched = self.head.receiver_count() > 0;
        let mut inner = self.inner.lock();
        inner.live = Some(Box::new(live));
        self.head.send_if_modified(|head| {
            let new = HeadState {
                head: record.head.max(head.head),
                status: record.state.status,
                is_deleted: head.is_deleted,
                // All started appends have finished.
                append_count: inner.appends_started,
                failures: inner.failures,
            };
            let changed = new != *head;
            *head = new;
            changed
        });
        Ok(())
    }
}
