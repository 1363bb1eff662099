//! One session: its open replies, its log, and whoever waits for more.

use crate::error::{Error, Result};
use crate::live::{Known, Live, OpenReply, PendingCalls, Tx};
use crate::log::Reads;
use crate::projection::{self, event_at};
use crate::store::{
    Lines, MessageQuery, Pending, Queued, SessionKey, SessionNo, SessionPatch, SessionRecord,
    SessionState, Status, Store, StoredMessage,
};
use crate::transfer;
use crate::walk::Messages;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use turnwire_core::event::SubAgent;
use turnwire_core::{FoldCursor, Event, EventIds, EventKind, Msg, Seq};

/// How much is read of the log at a time where all of it is wanted.
const CHUNK: usize = 1 << 20;
/// How far back repeats of events are known after a restart, beside those of open replies.
const RECENT: u64 = 1000;
/// How long a lease holds when nobody renews it.
const LEASE: Duration = Duration::from_secs(30);

/// A session. Made by [`Log::open`](crate::Log::open).
pub struct Session {
    key: SessionKey,
    no: SessionNo,
    epoch: String,
    agent: String,
    created_ms: i64,
    store: Arc<dyn Store>,
    owner: Arc<str>,
    reads: Reads,
    about: Mutex<About>,
    inner: Mutex<Inner>,
    /// One at a time reads the log to begin.
    loading: tokio::sync::Mutex<()>,
    head: watch::Sender<Head>,
    gone: AtomicBool,
    /// Whether it was used since somebody last looked.
    used: AtomicBool,
}

/// What a client may change.
#[derive(Debug, Clone)]
struct About {
    title: String,
    metadata: turnwire_core::Fields,
}

#[derive(Default)]
struct Inner {
    live: Option<Box<Live>>,
    /// Appends that were handed to the engine, and how many of them came back.
    asked: u64,
    answered: u64,
    /// Counts how often what was made had to be thrown away.
    failures: u64,
    why: Option<Error>,
}

/// How far the log goes that nobody can take back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// The place of the last event; 0 when there is none.
    pub last: u64,
    /// What the session is doing at that place.
    pub status: Status,
    /// The session was deleted.
    pub is_gone: bool,
    asked: u64,
    failures: u64,
}

/// What an append came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The place of the session's last event, this append's included.
    pub last: u64,
    /// How many events were stored.
    pub stored: u32,
}

/// A session as it stands at one point.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The place of the last event that is in it.
    pub last: u64,
    /// The earliest event that is kept.
    pub first: Seq,
    /// What can be derived from the events.
    pub state: SessionState,
    /// The replies that have not ended.
    pub open: Vec<OpenReply>,
    /// The messages that wait for their turn.
    pub queue: Vec<Queued>,
    /// For people.
    pub title: String,
    /// Whatever its maker wanted to keep with it.
    pub metadata: turnwire_core::Fields,
}

impl Snapshot {
    /// What waits for a person or for somebody outside.
    pub fn pending(&self) -> Vec<PendingCalls> {
        self.open.iter().filter_map(OpenReply::pending).collect()
    }
}

impl OpenReply {
    /// What the fold needs to go on with the message.
    pub fn cursor(&self) -> FoldCursor {
        self.msg.cursor()
    }
}

impl Session {
    pub(crate) fn new(
        record: SessionRecord,
        store: Arc<dyn Store>,
        owner: Arc<str>,
        reads: Reads,
    ) -> Self {
        let head = Head { last: record.last, status: record.state.status, ..Head::default() };
        Self {
            key: record.key,
            no: record.no,
            epoch: record.epoch,
            agent: record.agent,
            created_ms: record.created_ms,
            store,
            owner,
            reads,
            about: Mutex::new(About { title: record.title, metadata: record.metadata }),
            inner: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            head: watch::Sender::new(head),
            gone: AtomicBool::new(false),
            used: AtomicBool::new(true),
        }
    }

    /// Reads from the engine when it is the tenant's turn.
    async fn fairly<T>(&self, read: impl Future<Output = Result<T>>) -> Result<T> {
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
    pub fn no(&self) -> SessionNo {
        self.no
    }

    /// Random for each incarnation.
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Which agent replies.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// When it was made, in milliseconds since 1970.
    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    /// The token of a place.
    pub fn token(&self, seq: u64) -> String {
        format!("{}.{seq}", self.epoch)
    }

    /// How far the log goes that nobody can take back.
    pub fn head(&self) -> Head {
        *self.head.borrow()
    }

    /// Watches the head. It changes after events became durable; it carries none of them.
    pub fn watch(&self) -> watch::Receiver<Head> {
        let receiver = self.head.subscribe();
        if let Some(live) = &mut self.inner.lock().live {
            live.tail.watched = true;
        }
        receiver
    }

    /// Changes the session: the function sees it as it stands, and appends. Nobody else changes it
    /// meanwhile. Returns when everything is durable; when the function fails, nothing happens.
    ///
    /// `touched` are the ids of replies and messages that come from outside: what they are is
    /// looked up first.
    pub async fn transact<R, E: From<Error>>(
        self: &Arc<Self>,
        touched: &[&str],
        change: impl FnOnce(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Receipt), E> {
        let mut change = Some(change);
        loop {
            self.prepare(touched).await?;
            match self.change(&mut change)? {
                Changed::NotLoaded => {}
                Changed::Nothing { done, last, asked, failures } => {
                    // What it answers may rest on what is not durable yet.
                    self.durable(asked, failures).await?;
                    return Ok((done, Receipt { last, stored: 0 }));
                }
                Changed::Asked(done, flight) => return Ok((done, flight.land().await?)),
            }
        }
    }

    /// Makes a change, and hands it to the engine.
    fn change<R, E>(
        self: &Arc<Self>,
        change: &mut Option<impl FnOnce(&mut Tx<'_>) -> Result<R, E>>,
    ) -> Result<Changed<R>, E> {
        let mut inner = self.inner.lock();
        let Inner { live: slot, asked, failures, .. } = &mut *inner;
        let Some(live) = slot else { return Ok(Changed::NotLoaded) };
        let Some(change) = change.take() else { return Ok(Changed::NotLoaded) };
        live.tail.watched = self.head.receiver_count() > 0;
        let mut tx = Tx::new(live, crate::log::now_ms());
        let done = match change(&mut tx) {
            Ok(done) => done,
            Err(error) => {
                if !tx.is_empty() {
                    // What was done so far is undone by reading the log again.
                    *slot = None;
                }
                return Err(error);
            }
        };
        if tx.is_empty() {
            let (last, asked, failures) = (tx.last(), *asked, *failures);
            return Ok(Changed::Nothing { done, last, asked, failures });
        }
        let stored = tx.count();
        let append = tx.into_append();
        *asked += 1;
        let head = Head {
            last: live.last,
            status: live.state.status,
            is_gone: false,
            asked: *asked,
            failures: *failures,
        };
        // The call takes the place in the queue, so it happens while nobody else can.
        let pending = Some(self.store.append(append));
        Ok(Changed::Asked(done, Flight { session: self.clone(), pending, head, stored }))
    }

    /// Makes sure that the session is loaded, and that everything about `touched` is known.
    async fn prepare(self: &Arc<Self>, touched: &[&str]) -> Result<()> {
        self.used.store(true, Ordering::Relaxed);
        loop {
            if self.gone.load(Ordering::Acquire) {
                return Err(Error::NoSession);
            }
            let unknown: Option<Vec<&str>> = {
                let inner = self.inner.lock();
                inner.live.as_ref().map(|live| {
                    let mut unknown: Vec<&str> =
                        touched.iter().copied().filter(|id| !live.knows(id)).collect();
                    unknown.dedup();
                    unknown
                })
            };
            match unknown {
                None => self.load().await?,
                Some(unknown) if unknown.is_empty() => return Ok(()),
                Some(unknown) => {
                    if self.look_up(&unknown).await? {
                        // They are new.
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Looks up finished messages. Whether none was found, and nothing happened meanwhile.
    async fn look_up(&self, ids: &[&str]) -> Result<bool> {
        let (before, failures) = {
            let inner = self.inner.lock();
            (inner.live.as_ref().map(|live| live.last), inner.failures)
        };
        let mut found = Vec::new();
        for id in ids {
            let Some(message) = self.fairly(self.store.message(self.no, id)).await? else {
                continue;
            };
            let known = if message.event_id.is_empty() {
                Known::Reply(self.ids_of(&message).await?)
            } else {
                Known::Whole(message.event_id)
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
    async fn ids_of(&self, message: &StoredMessage) -> Result<EventIds> {
        let mut ids = EventIds::default();
        let mut from = message.first;
        while from <= message.last {
            let rows = match self.fairly(self.store.read(self.no, from, CHUNK)).await {
                Ok(rows) => rows,
                // What is gone cannot be told from what never was: it is refused.
                Err(Error::Trimmed(_)) => break,
                Err(error) => return Err(error),
            };
            let last = projection::each_event(&rows, |_, _, event| {
                if event.reply_id == message.id && event.kind.is_part_of_reply() {
                    ids.insert(&event.id);
                }
            })?;
            let Some(last) = last else { break };
            from = last.next();
        }
        Ok(ids)
    }

    /// Reads what has to be known from the log.
    async fn load(&self) -> Result<()> {
        let _one = self.loading.lock().await;
        if self.inner.lock().live.is_some() {
            return Ok(());
        }
        // What is under way has to come back first: it is in the log then, or it is not.
        let mut head = self.head.subscribe();
        loop {
            {
                let inner = self.inner.lock();
                if inner.asked == inner.answered {
                    break;
                }
            }
            head.changed().await.map_err(|_| Error::NoSession)?;
        }
        drop(head);
        let record = self.fairly(self.store.session(&self.key)).await?;
        let record = record.filter(|record| record.no == self.no).ok_or_else(|| {
            self.gone.store(true, Ordering::Release);
            Error::NoSession
        })?;
        let lease = self.store.acquire(self.no, &self.owner, LEASE).await?;
        let mut live =
            Live::new(self.no, lease.fence, record.first, record.last, record.state.clone());
        let recent = record.last.saturating_sub(RECENT).saturating_add(1);
        let from = record.state.open_from.map_or(recent, |open| recent.min(open.get()));
        let mut from = Seq::new(from).unwrap_or(Seq::FIRST).max(record.first);
        while from.get() <= record.last {
            let rows = self.fairly(self.store.read(self.no, from, CHUNK)).await?;
            let last = projection::each_event(&rows, |seq, _, event| live.replay(event, seq))?;
            let Some(last) = last else { break };
            from = last.next();
            tokio::task::yield_now().await;
        }
        live.queue = self.fairly(self.store.queued(self.no)).await?.into();
        live.tail.watched = self.head.receiver_count() > 0;
        let mut inner = self.inner.lock();
        inner.live = Some(Box::new(live));
        self.head.send_if_modified(|head| {
            let new = Head {
                last: record.last.max(head.last),
                status: record.state.status,
                is_gone: head.is_gone,
                // Everything that was asked for has come back, one way or the other.
                asked: inner.asked,
                failures: inner.failures,
            };
            let changed = new != *head;
            *head = new;
            changed
        });
        Ok(())
    }

    /// What was made and not written is not there: it is read again from the log.
    fn throw_away(&self, inner: &mut Inner, why: Error) {
        inner.live = None;
        inner.failures += 1;
        inner.why = Some(why);
        let failures = inner.failures;
        self.head.send_modify(|head| head.failures = failures);
    }

    /// Waits until everything is durable that was asked for up to here.
    async fn durable(&self, asked: u64, failures: u64) -> Result<()> {
        let mut head = self.head.subscribe();
        loop {
            let now = *head.borrow_and_update();
            if now.asked >= asked {
                return Ok(());
            }
            if now.failures != failures {
                let why = self.inner.lock().why.clone();
                return Err(why.unwrap_or(Error::OutOfOrder));
            }
            head.changed().await.map_err(|_| Error::NoSession)?;
        }
    }

    /// The session as it stands, of which nothing can be taken back.
    pub async fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        loop {
            let (snapshot, asked, failures) = {
                self.prepare(&[]).await?;
                let inner = self.inner.lock();
                let Some(live) = &inner.live else { continue };
                let about = self.about.lock().clone();
                let snapshot = Snapshot {
                    last: live.last,
                    first: live.first,
                    state: live.state.clone(),
                    open: live.replies.clone(),
                    queue: live.queue.iter().cloned().collect(),
                    title: about.title,
                    metadata: about.metadata,
                };
                (snapshot, inner.asked, inner.failures)
            };
            match self.durable(asked, failures).await {
                Ok(()) => return Ok(snapshot),
                // It was not to be: look again.
                Err(Error::NoSession) => return Err(Error::NoSession),
                Err(_) => {}
            }
        }
    }

    /// The durable events from a place on, until they have about so many bytes; none when there is
    /// nothing there yet.
    pub async fn read(&self, from: Seq, max_bytes: usize) -> Result<Vec<Lines>> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Error::NoSession);
        }
        let durable = self.head().last;
        if from.get() > durable {
            return Ok(Vec::new());
        }
        let at_hand = {
            let inner = self.inner.lock();
            inner.live.as_ref().and_then(|live| live.tail.read(from, durable, max_bytes))
        };
        if let Some(rows) = at_hand {
            return Ok(rows);
        }
        // The engine may know more than was told yet. A token of that would be one from the future to
        // whoever comes back with it.
        let rows = self.fairly(self.store.read(self.no, from, max_bytes)).await?;
        Ok(rows.iter().filter_map(|rows| rows.up_to(durable)).collect())
    }

    /// A finished message.
    pub async fn message(&self, id: &str) -> Result<Option<StoredMessage>> {
        self.fairly(self.store.message(self.no, id)).await
    }

    /// Finished messages, in the order of their first events.
    pub async fn messages(&self, query: &MessageQuery) -> Result<Vec<StoredMessage>> {
        self.fairly(self.store.messages(self.no, query)).await
    }

    /// Goes through all finished messages, some at a time.
    pub fn all_messages(&self) -> Messages<Arc<dyn Store>> {
        Messages::new(Arc::clone(&self.store), self.no).fair(self.reads.clone(), &self.key.tenant)
    }

    /// Whose a finished message is and for which call it was made, where a sub-agent wrote it. Its
    /// first event says so; once that is no longer kept, only the name of who wrote it is left.
    pub async fn sub_agent(&self, message: &StoredMessage) -> Result<Option<SubAgent>> {
        if !message.of_sub_agent {
            return Ok(None);
        }
        let event = match self.read(message.first, 1).await {
            Ok(rows) => match rows.first().and_then(|lines| lines.iter().next()) {
                Some((seq, line)) => event_at(seq, line)?.into_owned(),
                None => transfer::whole(message, &self.agent)?,
            },
            Err(Error::Trimmed(_)) => transfer::whole(message, &self.agent)?,
            Err(error) => return Err(error),
        };
        Ok(event.agent.map(|agent| *agent))
    }

    /// A message as it stood when the log went up to a place. `None`: it had not begun.
    pub async fn message_at(self: &Arc<Self>, id: &str, at: Seq) -> Result<Option<Msg>> {
        let snapshot = self.snapshot().await?;
        let first = match snapshot.open.iter().find(|reply| reply.msg.id() == id) {
            Some(reply) => reply.first,
            None => match self.fairly(self.store.message(self.no, id)).await? {
                Some(message) => message.first,
                None => return Ok(None),
            },
        };
        let (mut msg, mut from): (Option<Msg>, Seq) = (None, first);
        while from <= at && from.get() <= snapshot.last {
            let rows = self.fairly(self.store.read(self.no, from, CHUNK)).await?;
            let last = projection::each_event(&rows, |seq, _, event| {
                if seq > at {
                    return;
                }
                if matches!(event.kind, EventKind::Message(_)) {
                    let whole = projection::whole_message(event).filter(|whole| whole.id() == id);
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

    /// The earliest event that is kept; one behind the last when there is none.
    pub async fn first(&self) -> Result<Seq> {
        if let Some(live) = &self.inner.lock().live {
            return Ok(live.first);
        }
        let record = self.fairly(self.store.session(&self.key)).await?.ok_or(Error::NoSession)?;
        Ok(record.first)
    }

    /// The first event of the earliest reply that is open, as far as that is known.
    pub fn open_from(&self) -> Option<Seq> {
        self.inner.lock().live.as_ref()?.state.open_from
    }

    /// The ids of the messages that had begun, but not ended, at a place.
    pub async fn unfinished_at(self: &Arc<Self>, at: Seq) -> Result<Vec<String>> {
        let query = MessageQuery {
            before: Some(at.next()),
            limit: 256,
            sub_agents: true,
            ..MessageQuery::default()
        };
        let stored = self.fairly(self.store.messages(self.no, &query)).await?;
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
        let record = self.store.patch(self.no, patch).await?;
        *self.about.lock() = About { title: record.title, metadata: record.metadata };
        Ok(())
    }

    /// Whether nobody needs it in memory, nor did since this was last asked.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let inner = self.inner.lock();
        let was_used = self.used.swap(false, Ordering::Relaxed);
        !was_used
            && Arc::strong_count(self) == 1
            && self.head.receiver_count() == 0
            && inner.asked == inner.answered
    }

    /// The earliest event that is kept has moved.
    pub(crate) fn trimmed(&self, first: Seq) {
        if let Some(live) = &mut self.inner.lock().live {
            live.first = live.first.max(first);
        }
    }

    /// Ends everything that waits for it: it is deleted.
    pub(crate) fn vanish(&self) {
        self.gone.store(true, Ordering::Release);
        self.inner.lock().live = None;
        self.head.send_modify(|head| head.is_gone = true);
    }

    /// An event of its log.
    pub fn event_at(seq: Seq, line: &[u8]) -> Result<Event<'_>> {
        event_at(seq, line)
    }

    fn landed(&self, head: Head, result: &Result<()>) {
        let mut inner = self.inner.lock();
        inner.answered += 1;
        match result {
            Ok(()) => {
                drop(inner);
                self.head.send_if_modified(|now| {
                    // A later one may have come back before: it says more.
                    let newer = head.asked > now.asked;
                    if newer {
                        *now = Head { is_gone: now.is_gone, failures: now.failures, ..head };
                    }
                    newer
                });
            }
            Err(error) => {
                if head.failures == inner.failures {
                    self.throw_away(&mut inner, error.clone());
                } else {
                    drop(inner);
                    // Whoever waits for all to come back looks again.
                    self.head.send_modify(|_| ());
                }
            }
        }
    }
}

/// What came of a change.
enum Changed<R> {
    /// The session has to be loaded first.
    NotLoaded,
    /// There was nothing to change; so it stands when this much has come back.
    Nothing { done: R, last: u64, asked: u64, failures: u64 },
    /// It was handed to the engine.
    Asked(R, Flight),
}

/// An append on its way. It lands, whether or not anybody waits for it.
struct Flight {
    session: Arc<Session>,
    pending: Option<Pending<()>>,
    head: Head,
    stored: u32,
}

impl Flight {
    async fn land(mut self) -> Result<Receipt> {
        if let Some(pending) = &mut self.pending {
            let result = pending.await;
            self.pending = None;
            self.session.landed(self.head, &result);
            result?;
        }
        Ok(Receipt { last: self.head.last, stored: self.stored })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let (session, head) = (self.session.clone(), self.head);
        let land = async move { session.landed(head, &pending.await) };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(land);
        }
    }
}
