//! One session: change it, read it, watch its head. Handlers and workers of the server hold it in
//! an [`Arc`].

use crate::error::{Error, Result};
use crate::loaded_session::{FinishedMessage, LoadedSession, OpenReply, PendingCalls, Transaction};
use crate::log::ReadQueue;
use crate::message_pages::MessagePages;
use crate::projection::{self, parse_event};
use crate::store::{
    EventLines, MessageQuery, QueuedMessage, SessionKey, SessionNumber, SessionPatch,
    SessionRecord, SessionState, SessionStatus, Store, StoreFuture, StoredMessage,
};
use crate::transfer;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use turnwire_core::event::SubAgent;
use turnwire_core::{Event, EventIds, EventKind, FoldCursor, Head, Msg, Seq};

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 1 << 20;
/// How many recent events are read after a restart to recognise repeats, besides those of open
/// replies.
const RECENT_EVENTS: u64 = 1000;
/// How long a lease is valid without renewal.
const LEASE_TTL: Duration = Duration::from_secs(30);

/// A session. [`Log::open_session`](crate::Log::open_session) returns it.
pub struct Session {
    key: SessionKey,
    number: SessionNumber,
    epoch: String,
    agent: String,
    created_ms: i64,
    store: Arc<dyn Store>,
    owner: Arc<str>,
    reads: ReadQueue,
    details: Mutex<Details>,
    inner: Mutex<Inner>,
    /// Held by the task that loads the session.
    loading: tokio::sync::Mutex<()>,
    head: watch::Sender<HeadState>,
    deleted: AtomicBool,
    /// Whether it was used since the last eviction.
    recently_used: AtomicBool,
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
}

/// The durable head of a session and what it is doing there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadState {
    /// The seq of the last durable event; 0 if there is none.
    pub head: u64,
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
    pub head: u64,
    /// How many events were stored.
    pub stored: u32,
}

/// A consistent view of a session.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The seq of the last event in it.
    pub head: u64,
    /// The first event that is kept.
    pub first: Seq,
    /// The state derived from the events.
    pub state: SessionState,
    /// The open replies.
    pub open: Vec<OpenReply>,
    /// The queued messages.
    pub queue: Vec<QueuedMessage>,
    /// The title for people; may be empty.
    pub title: String,
    /// Any data that the creator stored with it.
    pub metadata: turnwire_core::Fields,
}

impl Snapshot {
    /// The pending calls of all open replies.
    pub fn pending_calls(&self) -> Vec<PendingCalls> {
        self.open.iter().filter_map(OpenReply::pending_calls).collect()
    }
}

impl OpenReply {
    /// What the fold needs to continue with the message.
    pub fn cursor(&self) -> FoldCursor {
        self.msg.cursor()
    }
}

impl Session {
    pub(crate) fn new(
        record: SessionRecord,
        store: Arc<dyn Store>,
        owner: Arc<str>,
        reads: ReadQueue,
    ) -> Self {
        let head = HeadState {
            head: record.head.get(),
            status: record.state.status,
            ..HeadState::default()
        };
        Self {
            key: record.key,
            number: record.number,
            epoch: record.epoch,
            agent: record.agent,
            created_ms: record.created_ms,
            store,
            owner,
            reads,
            details: Mutex::new(Details { title: record.title, metadata: record.metadata }),
            inner: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            head: watch::Sender::new(head),
            deleted: AtomicBool::new(false),
            recently_used: AtomicBool::new(true),
        }
    }

    /// Runs a read of the engine when it is the tenant's turn.
    async fn read_fairly<T>(&self, read: impl Future<Output = Result<T>>) -> Result<T> {
        self.reads.run(&self.key.tenant, read).await
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
    pub fn resume_token(&self, cursor: u64) -> String {
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
            self.prepare(touched).await?;
            match self.apply_change(&mut change)? {
                ChangeOutcome::NotLoaded => {}
                ChangeOutcome::NoChange { done, head, asked, failures } => {
                    // The result may depend on appends that are not durable yet.
                    self.wait_until_durable(asked, failures).await?;
                    return Ok((done, Receipt { head: head.get(), stored: 0 }));
                }
                ChangeOutcome::Appending(done, flight) => {
                    return Ok((done, flight.finish().await?));
                }
            }
        }
    }

    /// Runs the change, and hands it to the engine.
    fn apply_change<R, E>(
        self: &Arc<Self>,
        change: &mut Option<impl FnOnce(&mut Transaction<'_>) -> Result<R, E>>,
    ) -> Result<ChangeOutcome<R>, E> {
        let mut inner = self.inner.lock();
        let Inner { live: slot, appends_started: asked, failures, .. } = &mut *inner;
        let Some(live) = slot else { return Ok(ChangeOutcome::NotLoaded) };
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
            let (head, asked, failures) = (Head::new(tx.last_seq()), *asked, *failures);
            return Ok(ChangeOutcome::NoChange { done, head, asked, failures });
        }
        let stored = tx.count();
        let append = tx.into_append();
        *asked += 1;
        let head = HeadState {
            head: live.last.get(),
            status: live.state.status,
            is_deleted: false,
            append_count: *asked,
            failures: *failures,
        };
        // The call reserves the position in the engine's queue, so it happens under the lock.
        let pending = Some(self.store.append(append));
        Ok(ChangeOutcome::Appending(
            done,
            PendingAppend { session: self.clone(), pending, head, stored },
        ))
    }

    /// Loads the session if necessary, and looks up unknown ids of `touched`.
    async fn prepare(self: &Arc<Self>, touched: &[&str]) -> Result<()> {
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
        let recent = Head::new(record.head.get().saturating_sub(RECENT_EVENTS)).next();
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
                head: record.head.get().max(head.head),
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

    /// Discards changes that were not written. The next use loads the session again.
    fn discard_unwritten(&self, inner: &mut Inner, why: Error) {
        inner.live = None;
        inner.failures += 1;
        inner.last_error = Some(why);
        let failures = inner.failures;
        self.head.send_modify(|head| head.failures = failures);
    }

    /// Waits until all appends up to this one are durable.
    async fn wait_until_durable(&self, asked: u64, failures: u64) -> Result<()> {
        let mut head = self.head.subscribe();
        loop {
            let now = *head.borrow_and_update();
            if now.append_count >= asked {
                return Ok(());
            }
            if now.failures != failures {
                let why = self.inner.lock().last_error.clone();
                return Err(why.unwrap_or(Error::OutOfOrder));
            }
            head.changed().await.map_err(|_| Error::NoSession)?;
        }
    }

    /// The session as it is, with durable events only.
    pub async fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        loop {
            let (snapshot, asked, failures) = {
                self.prepare(&[]).await?;
                let inner = self.inner.lock();
                let Some(live) = &inner.live else { continue };
                let about = self.details.lock().clone();
                let snapshot = Snapshot {
                    head: live.last.get(),
                    first: live.first,
                    state: live.state.clone(),
                    open: live.replies.clone(),
                    queue: live.queue.iter().cloned().collect(),
                    title: about.title,
                    metadata: about.metadata,
                };
                (snapshot, inner.appends_started, inner.failures)
            };
            match self.wait_until_durable(asked, failures).await {
                Ok(()) => return Ok(snapshot),
                // An append failed: take a new snapshot.
                Err(Error::NoSession) => return Err(Error::NoSession),
                Err(_) => {}
            }
        }
    }

    /// The durable events from a seq on, until they have about `max_bytes`. Empty if there are none
    /// yet.
    pub async fn read_events(&self, from: Seq, max_bytes: usize) -> Result<Vec<EventLines>> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(Error::NoSession);
        }
        let durable = Head::new(self.head_state().head);
        if !durable.includes(from) {
            return Ok(Vec::new());
        }
        let at_hand = {
            let inner = self.inner.lock();
            inner.live.as_ref().and_then(|live| live.tail.read(from, durable, max_bytes))
        };
        if let Some(rows) = at_hand {
            return Ok(rows);
        }
        // The engine may have events beyond the head that was announced. A client that saw them
        // would come back with a resume token from the future.
        let rows = self.read_fairly(self.store.read_events(self.number, from, max_bytes)).await?;
        Ok(rows.iter().filter_map(|rows| rows.up_to(durable)).collect())
    }

    /// A finished message.
    pub async fn find_message(&self, id: &str) -> Result<Option<StoredMessage>> {
        self.read_fairly(self.store.find_message(self.number, id)).await
    }

    /// Finished messages, in the order of their first events.
    pub async fn list_messages(&self, query: &MessageQuery) -> Result<Vec<StoredMessage>> {
        self.read_fairly(self.store.list_messages(self.number, query)).await
    }

    /// Iterates over all finished messages, page by page.
    pub fn message_pages(&self) -> MessagePages<Arc<dyn Store>> {
        MessagePages::new(Arc::clone(&self.store), self.number)
            .with_fair_reads(self.reads.clone(), &self.key.tenant)
    }

    /// Which sub-agent wrote a finished message and for which call. Its first event has this; once
    /// that event is trimmed, only the sub-agent's name is known.
    pub async fn sub_agent_of(&self, message: &StoredMessage) -> Result<Option<SubAgent>> {
        if !message.of_sub_agent {
            return Ok(None);
        }
        let event = match self.read_events(message.first, 1).await {
            Ok(rows) => match rows.first().and_then(|lines| lines.iter().next()) {
                Some((seq, line)) => parse_event(seq, line)?.into_owned(),
                None => transfer::to_message_event(message, &self.agent)?,
            },
            Err(Error::Trimmed(_)) => transfer::to_message_event(message, &self.agent)?,
            Err(error) => return Err(error),
        };
        Ok(event.agent.map(|agent| *agent))
    }

    /// A message as it was when the log ended at `at`. `None` if it had not begun.
    pub async fn message_at(self: &Arc<Self>, id: &str, at: Seq) -> Result<Option<Msg>> {
        let snapshot = self.snapshot().await?;
        let first = match snapshot.open.iter().find(|reply| reply.msg.id() == id) {
            Some(reply) => reply.first,
            None => match self.read_fairly(self.store.find_message(self.number, id)).await? {
                Some(message) => message.first,
                None => return Ok(None),
            },
        };
        let (mut msg, mut from): (Option<Msg>, Seq) = (None, first);
        while from <= at && Head::new(snapshot.head).includes(from) {
            let rows =
                self.read_fairly(self.store.read_events(self.number, from, READ_BYTES)).await?;
            let last = projection::for_each_event(&rows, |seq, _, event| {
                if seq > at {
                    return;
                }
                if matches!(event.kind, EventKind::Message(_)) {
                    let whole = event.whole_message().filter(|whole| whole.id() == id);
                    msg = msg.take().or(whole);
                } else if event.reply_id == id && event.kind.is_part_of_reply() {
                    let msg = msg.get_or_insert_with(|| Msg::reply(id, ""));
                    msg.append_event_tolerant(event);
                }
            })?;
            let Some(last) = last else { break };
            from = last.next();
            if msg.as_ref().is_some_and(|msg| msg.finished_at().is_some()) {
                break;
            }
        }
        Ok(msg)
    }

    /// The first event that is kept; the seq after the head if none is.
    pub async fn first_seq(&self) -> Result<Seq> {
        if let Some(live) = &self.inner.lock().live {
            return Ok(live.first);
        }
        let record =
            self.read_fairly(self.store.find_session(&self.key)).await?.ok_or(Error::NoSession)?;
        Ok(record.first)
    }

    /// The first event of the earliest open reply, if the session is loaded.
    pub fn open_from(&self) -> Option<Seq> {
        self.inner.lock().live.as_ref()?.state.open_from
    }

    /// The ids of the messages that had begun but not ended at a seq.
    pub async fn unfinished_messages_at(self: &Arc<Self>, at: Seq) -> Result<Vec<String>> {
        let query = MessageQuery {
            before: Some(at.next()),
            limit: 256,
            sub_agents: true,
            ..MessageQuery::default()
        };
        let stored = self.read_fairly(self.store.list_messages(self.number, &query)).await?;
        let stored = stored.into_iter().filter(|message| message.last > at);
        let mut begun: Vec<(Seq, String)> =
            stored.map(|message| (message.first, message.id)).collect();
        for reply in self.snapshot().await?.open {
            if reply.first <= at && begun.iter().all(|(_, id)| *id != reply.msg.id()) {
                begun.push((reply.first, reply.msg.id().to_owned()));
            }
        }
        begun.sort();
        Ok(begun.into_iter().map(|(_, id)| id).collect())
    }

    /// Changes title or metadata.
    pub async fn patch(&self, patch: SessionPatch) -> Result<()> {
        let record = self.store.patch_session(self.number, patch).await?;
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

    fn finish_append(&self, head: HeadState, result: &Result<()>) {
        let mut inner = self.inner.lock();
        inner.appends_finished += 1;
        match result {
            Ok(()) => {
                drop(inner);
                self.head.send_if_modified(|now| {
                    // A later append may have finished earlier, and its head is newer.
                    let newer = head.append_count > now.append_count;
                    if newer {
                        *now = HeadState {
                            is_deleted: now.is_deleted,
                            failures: now.failures,
                            ..head
                        };
                    }
                    newer
                });
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
enum ChangeOutcome<R> {
    /// The session has to be loaded first.
    NotLoaded,
    /// Nothing to write. The result is valid once the appends up to `appends` are durable.
    NoChange { done: R, head: Head, asked: u64, failures: u64 },
    /// It was handed to the engine.
    Appending(R, PendingAppend),
}

/// An append that was handed to the engine. It is finished even if nobody waits for it.
struct PendingAppend {
    session: Arc<Session>,
    pending: Option<StoreFuture<()>>,
    head: HeadState,
    stored: u32,
}

impl PendingAppend {
    async fn finish(mut self) -> Result<Receipt> {
        if let Some(pending) = &mut self.pending {
            let result = pending.await;
            self.pending = None;
            self.session.finish_append(self.head, &result);
            result?;
        }
        Ok(Receipt { head: self.head.head, stored: self.stored })
    }
}

impl Drop for PendingAppend {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let (session, head) = (self.session.clone(), self.head);
        let land = async move { session.finish_append(head, &pending.await) };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(land);
        }
    }
}
