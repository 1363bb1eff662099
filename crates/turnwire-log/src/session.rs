//! One session: change it, read it, watch its head. Handlers and workers of the server hold it in
//! an [`Arc`].

mod append;
mod history;
mod load;
mod owner;

use crate::error::{Error, Result};
use crate::loaded_session::{LoadedSession, OpenReply, PendingCalls, Transaction};
use crate::log::LogContext;
use crate::projection::parse_event;
use crate::store::{
    EventLines, QueuedMessage, SessionKey, SessionNumber, SessionPatch, SessionRecord,
    SessionState, SessionStatus,
};
use append::ChangeOutcome;
use load::Access;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;
use turnwire_core::{Event, Head, Seq};

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A session. [`Log::open_session`](crate::Log::open_session) returns it.
pub struct Session {
    key: SessionKey,
    number: SessionNumber,
    epoch: String,
    agent: String,
    created_ms: i64,
    log: Arc<LogContext>,
    details: Mutex<Details>,
    inner: Mutex<Inner>,
    /// Held by the task that loads the session.
    loading: tokio::sync::Mutex<()>,
    head: watch::Sender<HeadState>,
    deleted: AtomicBool,
    /// Whether it was used since the last eviction.
    recently_used: AtomicBool,
    /// Counts what may have changed finished messages.
    history_version: AtomicU64,
}

/// What a client may change.
#[derive(Debug, Clone)]
struct Details {
    title: String,
    metadata: turnwire_core::Fields,
}

#[derive(Default)]
struct Inner {
    live: Option<Box<LoadedSession>>,
    /// How many appends were handed to the engine, and how many finished.
    appends_started: u64,
    appends_finished: u64,
    /// How often unwritten changes had to be discarded.
    failures: u64,
    last_error: Option<Error>,
    /// The lease under which the session was owned last, and how often others may have written it before that.
    ownership: Ownership,
}

/// Whether this process has owned a session without interruption.
#[derive(Debug, Clone, Copy, Default)]
struct Ownership {
    /// The term of this process's lease, while the session is owned.
    lease_term: Option<u64>,
    /// How often the session was acquired after another node may have had it.
    count: u64,
}

/// The durable head of a session and what it is doing there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadState {
    /// The seq of the last durable event; 0 if there is none.
    pub head: Head,
    /// What the session is doing at that point.
    pub status: SessionStatus,
    /// The session was deleted.
    pub is_deleted: bool,
    append_count: u64,
    failures: u64,
}

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The seq of the session's last event, including this append.
    pub head: Head,
    /// How many events were stored.
    pub stored: u32,
}

/// A consistent view of a session.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The seq of the last event in it.
    pub head: Head,
    /// The first event that is kept.
    pub first: Seq,
    /// The state derived from the events.
    pub state: SessionState,
    /// The open replies.
    pub open: Vec<OpenReply>,
    /// The queued messages.
    pub queue: Vec<QueuedMessage>,
    /// A number that changes when another node may have written the session in between.
    pub ownership: u64,
    /// The title for people; may be empty.
    pub title: String,
    /// Any data that the creator stored with it.
    pub metadata: turnwire_core::Fields,
}

/// Appends that were not durable yet when a session was looked at.
pub struct RunningAppends {
    session: Arc<Session>,
    /// How many appends there were, and how many had failed.
    up_to: Option<(u64, u64)>,
}

impl RunningAppends {
    /// Waits until they are durable. An error if they were not written: the session is as it was before them.
    pub async fn finish(&self) -> Result<()> {
        let Some((appends, failures)) = self.up_to else { return Ok(()) };
        self.session.wait_until_durable(appends, failures).await
    }
}

impl Snapshot {
    /// The pending calls of all open replies.
    pub fn pending_calls(&self) -> Vec<PendingCalls> {
        self.open.iter().filter_map(OpenReply::pending_calls).collect()
    }
}

impl Session {
    pub(crate) fn new(record: SessionRecord, log: Arc<LogContext>) -> Self {
        let head =
            HeadState { head: record.head, status: record.state.status, ..HeadState::default() };
        Self {
            key: record.key,
            number: record.number,
            epoch: record.epoch,
            agent: record.agent,
            created_ms: record.created_ms,
            log,
            details: Mutex::new(Details { title: record.title, metadata: record.metadata }),
            inner: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            head: watch::Sender::new(head),
            deleted: AtomicBool::new(false),
            recently_used: AtomicBool::new(true),
            history_version: AtomicU64::new(0),
        }
    }

    /// Runs a read of the engine when it is the tenant's turn.
    async fn read_fairly<T>(&self, read: impl Future<Output = Result<T>>) -> Result<T> {
        self.log.reads.run(&self.key.tenant, read).await
    }

    /// Its tenant and id.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.key.id
    }

    /// Its number in the store.
    pub fn number(&self) -> SessionNumber {
        self.number
    }

    /// A random number of this incarnation of the session.
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The name of the agent that replies.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// When it was created, in milliseconds since 1970.
    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    /// The resume token of a position: `EPOCH.SEQ`.
    pub fn resume_token(&self, cursor: Head) -> String {
        format!("{}.{cursor}", self.epoch)
    }

    /// The durable head.
    pub fn head_state(&self) -> HeadState {
        *self.head.borrow()
    }

    /// Watches the head. It changes after events become durable, and carries none of them.
    pub fn watch_head(&self) -> watch::Receiver<HeadState> {
        let receiver = self.head.subscribe();
        if let Some(live) = &mut self.inner.lock().live {
            live.tail.watched = true;
        }
        receiver
    }

    /// Changes the session. The function sees the current state and appends, while nobody else
    /// changes it. Returns when everything is durable. If the function fails, nothing changes.
    ///
    /// `touched` are ids of replies and messages that come from outside; they are looked up before
    /// the function runs.
    pub async fn transact<R, E: From<Error>>(
        self: &Arc<Self>,
        touched: &[&str],
        change: impl FnOnce(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Receipt), E> {
        let mut change = Some(change);
        loop {
            self.prepare(Access::Write, touched).await?;
            match self.apply_change(&mut change)? {
                ChangeOutcome::NotLoaded => {}
                ChangeOutcome::NoChange { done, head, appends, failures } => {
                    // The result may depend on appends that are not durable yet.
                    self.wait_until_durable(appends, failures).await?;
                    return Ok((done, Receipt { head, stored: 0 }));
                }
                ChangeOutcome::Appending(done, flight) => {
                    return Ok((done, flight.finish().await?));
                }
            }
        }
    }

    /// The session as it is, with durable events only. It shows everything that any node has shown before.
    pub async fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        self.snapshot_with(Access::Read).await
    }

    /// The same, for a task that works on the session: `Owned` if another node owns it.
    pub async fn snapshot_as_owner(self: &Arc<Self>) -> Result<Snapshot> {
        self.snapshot_with(Access::Write).await
    }

    /// The session as it is now, and the appends in it that may not be durable yet. For a task that begins its work
    /// meanwhile: what it does must not be seen before they are.
    pub async fn latest_snapshot(self: &Arc<Self>) -> Result<(Snapshot, RunningAppends)> {
        self.latest_snapshot_with(Access::Write).await
    }

    /// Looks at the session as it is now. What it shows may not be durable yet.
    pub async fn peek<R>(self: &Arc<Self>, look: impl FnOnce(&Transaction<'_>) -> R) -> Result<R> {
        loop {
            self.prepare(Access::Write, &[]).await?;
            let mut inner = self.inner.lock();
            let live = inner.live.as_mut().filter(|live| self.is_current_owner(live));
            let Some(live) = live else { continue };
            return Ok(look(&Transaction::new(live, crate::log::now_ms())));
        }
    }

    async fn snapshot_with(self: &Arc<Self>, access: Access) -> Result<Snapshot> {
        loop {
            let (snapshot, running) = self.latest_snapshot_with(access).await?;
            match running.finish().await {
                Ok(()) => return Ok(snapshot),
                // An append failed: take a new snapshot.
                Err(Error::NoSession) => return Err(Error::NoSession),
                Err(_) => {}
            }
        }
    }

    async fn latest_snapshot_with(
        self: &Arc<Self>,
        access: Access,
    ) -> Result<(Snapshot, RunningAppends)> {
        loop {
            self.prepare(access, &[]).await?;
            let inner = self.inner.lock();
            let Some(live) = &inner.live else { continue };
            let about = self.details.lock().clone();
            let snapshot = Snapshot {
                head: live.last,
                first: live.first,
                state: live.state.clone(),
                open: live.replies.clone(),
                queue: live.queue.iter().cloned().collect(),
                ownership: live.ownership,
                title: about.title,
                metadata: about.metadata,
            };
            // What was only read is durable.
            let up_to = live.lease_term.map(|_| (inner.appends_started, inner.failures));
            return Ok((snapshot, RunningAppends { session: self.clone(), up_to }));
        }
    }

    /// The durable events from a seq on, until they have about `max_bytes`. Empty if there are none
    /// yet.
    pub async fn read_events(&self, from: Seq, max_bytes: usize) -> Result<Vec<EventLines>> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(Error::NoSession);
        }
        let durable = self.head_state().head;
        if !durable.includes(from) {
            return Ok(Vec::new());
        }
        // What a former owner has in memory may never have become durable: another node may have written other events there.
        let at_hand = {
            let inner = self.inner.lock();
            let live = inner.live.as_ref().filter(|live| self.is_current_owner(live));
            live.and_then(|live| live.tail.read(from, durable, max_bytes))
        };
        if let Some(rows) = at_hand {
            return Ok(rows);
        }
        // The engine may have events beyond the head that was announced. A client that saw them
        // would come back with a resume token from the future.
        let rows =
            self.read_fairly(self.log.store.read_events(self.number, from, max_bytes)).await?;
        Ok(rows.iter().filter_map(|rows| rows.up_to(durable)).collect())
    }

    /// The first event that is kept; the seq after the head if none is.
    pub async fn first_seq(&self) -> Result<Seq> {
        if let Some(live) = &self.inner.lock().live
            && self.is_current_owner(live)
        {
            return Ok(live.first);
        }
        let record = self
            .read_fairly(self.log.store.find_session(&self.key))
            .await?
            .ok_or(Error::NoSession)?;
        Ok(record.first)
    }

    /// The first event of the earliest open reply.
    pub async fn open_from(&self) -> Result<Option<Seq>> {
        if let Some(live) = &self.inner.lock().live
            && self.is_current_owner(live)
        {
            return Ok(live.state.open_from);
        }
        let record = self.read_fairly(self.log.store.find_session(&self.key)).await?;
        Ok(record.ok_or(Error::NoSession)?.state.open_from)
    }

    /// Changes title or metadata.
    pub async fn patch(&self, patch: SessionPatch) -> Result<()> {
        let record = self.log.store.patch_session(self.number, patch).await?;
        *self.details.lock() = Details { title: record.title, metadata: record.metadata };
        Ok(())
    }

    /// Whether it can be evicted: nobody uses it, and nobody did since the last call.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let inner = self.inner.lock();
        let was_used = self.recently_used.swap(false, Ordering::Relaxed);
        !was_used
            && Arc::strong_count(self) == 1
            && self.head.receiver_count() == 0
            && inner.appends_started == inner.appends_finished
    }

    /// Retention has removed events before `first`.
    pub(crate) fn advance_first(&self, first: Seq) {
        if let Some(live) = &mut self.inner.lock().live {
            live.first = live.first.max(first);
        }
    }

    /// Marks it as deleted and wakes everything that waits for it.
    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
        self.inner.lock().live = None;
        self.head.send_modify(|head| head.is_deleted = true);
    }

    /// Parses an event of its log.
    pub fn parse_event(seq: Seq, line: &[u8]) -> Result<Event<'_>> {
        parse_event(seq, line)
    }
}
