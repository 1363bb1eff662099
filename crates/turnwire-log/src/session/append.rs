//! Appends of a session on their way through the engine, and the head that follows them.

use super::{HeadState, Inner, Receipt, Session};
use crate::error::{Error, Result};
use crate::loaded_session::Transaction;
use crate::store::StoreFuture;
use crate::store::cluster::SessionHead;
use std::sync::Arc;
use turnwire_core::Head;

impl Session {
    /// Runs the change, and hands it to the engine.
    pub(super) fn apply_change<R, E>(
        self: &Arc<Self>,
        change: &mut Option<impl FnOnce(&mut Transaction<'_>) -> Result<R, E>>,
    ) -> Result<ChangeOutcome<R>, E> {
        let mut inner = self.inner.lock();
        let Inner { live: slot, appends_started: appends, failures, .. } = &mut *inner;
        // A change that is found unnecessary must be judged by the latest state, too.
        let Some(live) = slot.as_mut().filter(|live| self.is_current_owner(live)) else {
            return Ok(ChangeOutcome::NotLoaded);
        };
        let Some(change) = change.take() else { return Ok(ChangeOutcome::NotLoaded) };
        live.tail.watched = self.head.receiver_count() > 0;
        let mut tx = Transaction::new(live, crate::log::now_ms());
        let done = match change(&mut tx) {
            Ok(done) => done,
            Err(error) => {
                if !tx.is_empty() {
                    // The partial change is undone by loading the session again.
                    *slot = None;
                }
                return Err(error);
            }
        };
        if tx.is_empty() {
            let (head, appends, failures) = (tx.head(), *appends, *failures);
            return Ok(ChangeOutcome::NoChange { done, head, appends, failures });
        }
        let stored = tx.count();
        let append = tx.into_append();
        let supersedes = !append.superseded.is_empty();
        *appends += 1;
        let head = HeadState {
            head: live.last,
            status: live.state.status,
            is_deleted: false,
            append_count: *appends,
            failures: *failures,
        };
        // The call reserves the position in the engine's queue, so it happens under the lock.
        let pending = Some(self.log.store.append(append));
        Ok(ChangeOutcome::Appending(
            done,
            PendingAppend { session: self.clone(), pending, head, stored, supersedes },
        ))
    }

    /// Discards changes that were not written. The next use loads the session again.
    fn discard_unwritten(&self, inner: &mut Inner, why: Error) {
        inner.live = None;
        inner.failures += 1;
        inner.last_error = Some(why);
        let failures = inner.failures;
        self.head.send_modify(|head| head.failures = failures);
    }

    /// Waits until all appends up to this one are durable.
    pub(super) async fn wait_until_durable(&self, appends: u64, failures: u64) -> Result<()> {
        let mut head = self.head.subscribe();
        loop {
            let now = *head.borrow_and_update();
            // First: after a failure, a session that is loaded again counts the lost appends, too.
            if now.failures != failures {
                let why = self.inner.lock().last_error.clone();
                return Err(why.unwrap_or(Error::OutOfOrder));
            }
            if now.append_count >= appends {
                return Ok(());
            }
            head.changed().await.map_err(|_| Error::NoSession)?;
        }
    }

    fn finish_append(&self, head: HeadState, supersedes: bool, result: &Result<()>) {
        if supersedes {
            self.change_history();
        }
        let mut inner = self.inner.lock();
        inner.appends_finished += 1;
        match result {
            Ok(()) => {
                drop(inner);
                if let Some(listener) = self.log.append_listener.get() {
                    let HeadState { head, status, .. } = head;
                    listener(SessionHead { session: self.number, head, status });
                }
                let is_news = self.head.send_if_modified(|now| {
                    // A later append may have finished earlier, and its head is newer.
                    let is_newer = head.append_count > now.append_count;
                    if is_newer {
                        now.append_count = head.append_count;
                    }
                    // Another node may have continued the session, and its events were seen here already.
                    if is_newer && head.head >= now.head {
                        (now.head, now.status) = (head.head, head.status);
                    }
                    is_newer
                });
                if !is_news {
                    // Wakes a load that waits until all appends have finished.
                    self.head.send_modify(|_| ());
                }
            }
            Err(error) => {
                if head.failures == inner.failures {
                    self.discard_unwritten(&mut inner, error.clone());
                } else {
                    drop(inner);
                    // Wakes a load that waits until all appends have finished.
                    self.head.send_modify(|_| ());
                }
            }
        }
    }
}

/// The result of running a change.
pub(super) enum ChangeOutcome<R> {
    /// The session has to be loaded first.
    NotLoaded,
    /// Nothing to write. The result is valid once `appends` appends are durable.
    NoChange { done: R, head: Head, appends: u64, failures: u64 },
    /// It was handed to the engine.
    Appending(R, PendingAppend),
}

/// An append that was handed to the engine. It is finished even if nobody waits for it.
pub(super) struct PendingAppend {
    session: Arc<Session>,
    pending: Option<StoreFuture<()>>,
    head: HeadState,
    stored: u32,
    supersedes: bool,
}

impl PendingAppend {
    pub(super) async fn finish(mut self) -> Result<Receipt> {
        if let Some(pending) = &mut self.pending {
            let result = pending.await;
            self.pending = None;
            self.session.finish_append(self.head, self.supersedes, &result);
            result?;
        }
        Ok(Receipt { head: self.head.head, stored: self.stored })
    }
}

impl Drop for PendingAppend {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let (session, head, supersedes) = (self.session.clone(), self.head, self.supersedes);
        let land = async move { session.finish_append(head, supersedes, &pending.await) };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(land);
        }
    }
}
