//! All sessions of an engine. The server and the import open sessions through [`Log`].

use crate::client_history::HistoryDigest;
use crate::cluster::NodeLease;
use crate::error::{Error, Result};
use crate::fair_queue::FairQueue;
use crate::session::Session;
use crate::store::cluster::SessionHead;
use crate::store::{
    HistoryMatch, IdempotencyRecord, NewSession, Retention, RetentionReport, SessionKey,
    SessionNumber, SessionQuery, SessionRecord, Store,
};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};

/// How many reads run at once, in all and per tenant. More than an engine can do at once, so that
/// it is never idle; few enough that one tenant hardly delays another.
const MAX_READS: usize = 64;
const MAX_READS_PER_TENANT: usize = 16;

/// How many sessions one query asks for.
const MAX_POLLED: usize = 10_000;

/// Runs the reads of a log, fairly between tenants. Each read is short, and connections bound the
/// callers, so none is refused.
#[derive(Debug, Clone)]
pub(crate) struct ReadQueue(FairQueue);

impl ReadQueue {
    fn new() -> Self {
        Self(FairQueue::unbounded(MAX_READS, MAX_READS_PER_TENANT))
    }

    /// Runs a read when it is the tenant's turn.
    pub(crate) async fn run<T>(
        &self,
        tenant: &str,
        read: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let refused = |full: crate::fair_queue::QueueFull| Error::Store(full.to_string());
        let _permit = self.0.acquire(tenant).await.map_err(refused)?;
        read.await
    }
}

/// Called after events became durable.
pub type AppendListener = Box<dyn Fn(SessionHead) + Send + Sync>;

/// Called when this process has acquired a session that another node may have had: something may be to do in it.
pub type AcquireListener = Box<dyn Fn(&Arc<Session>) + Send + Sync>;

/// What all sessions of a log share.
pub(crate) struct LogContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: Arc<NodeLease>,
    pub(crate) reads: ReadQueue,
    pub(crate) append_listener: OnceLock<AppendListener>,
    pub(crate) acquire_listener: OnceLock<AcquireListener>,
}

/// All sessions of an engine: create, open, list, delete. Sessions in use stay in memory.
pub struct Log {
    context: Arc<LogContext>,
    sessions: Mutex<LoadedSessions>,
}

/// The sessions in memory.
#[derive(Default)]
struct LoadedSessions {
    by_key: HashMap<SessionKey, Arc<Session>>,
    by_number: HashMap<SessionNumber, Weak<Session>>,
}

impl LoadedSessions {
    fn find(&self, number: SessionNumber) -> Option<Arc<Session>> {
        self.by_number.get(&number).and_then(Weak::upgrade)
    }

    fn insert(&mut self, session: &Arc<Session>) {
        self.by_number.insert(session.number(), Arc::downgrade(session));
        if let Some(former) = self.by_key.insert(session.key().clone(), session.clone()) {
            self.by_number.remove(&former.number());
        }
    }

    fn remove(&mut self, session: &Session) {
        self.by_number.remove(&session.number());
        if self.by_key.get(session.key()).is_some_and(|held| held.number() == session.number()) {
            self.by_key.remove(session.key());
        }
    }
}

/// The time in milliseconds since 1970, for display and for retention. The order of events never
/// depends on it.
pub fn now_ms() -> i64 {
    turnwire_core::stamp::unix_millis()
}

impl Log {
    /// A log over an engine that only this process uses. `owner` is the name under which it acquires leases.
    pub fn new(store: Arc<dyn Store>, owner: impl Into<Arc<str>>) -> Self {
        Self::in_cluster(store, Arc::new(NodeLease::permanent(owner)))
    }

    /// A log over an engine that several nodes use. Sessions that other nodes own can be read and watched here; a change
    /// fails with `Owned`.
    pub fn in_cluster(store: Arc<dyn Store>, lease: Arc<NodeLease>) -> Self {
        let context = Arc::new(LogContext {
            store,
            lease,
            reads: ReadQueue::new(),
            append_listener: OnceLock::new(),
            acquire_listener: OnceLock::new(),
        });
        Self { context, sessions: Mutex::default() }
    }

    /// Has a function called after events became durable. Only the first call has an effect.
    pub fn set_append_listener(&self, listener: AppendListener) {
        let _ = self.context.append_listener.set(listener);
    }

    /// Has a function called when this process has acquired a session that another node may have had. Only the first call
    /// has an effect.
    pub fn set_acquire_listener(&self, listener: AcquireListener) {
        let _ = self.context.acquire_listener.set(listener);
    }

    /// The lease of this process.
    pub fn lease(&self) -> &Arc<NodeLease> {
        &self.context.lease
    }

    /// Runs a read of the engine when it is the tenant's turn, for reads that do not belong to one
    /// session.
    pub async fn read_fairly<T>(
        &self,
        tenant: &str,
        read: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.context.reads.run(tenant, read).await
    }

    /// The engine.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.context.store
    }

    /// Creates a session, or finds the existing one. Returns whether it was created.
    pub async fn create_session(&self, new: NewSession) -> Result<(Arc<Session>, bool)> {
        let (record, made) = self.store().create_session(new).await?;
        Ok((self.keep_loaded(record), made))
    }

    /// The same for a fork, whose log is copied afterwards.
    /// [`Transaction::complete_fork`](crate::Transaction::complete_fork) ends that.
    pub async fn create_fork(&self, new: NewSession) -> Result<(Arc<Session>, bool)> {
        let (record, made) = self.store().create_fork(new).await?;
        Ok((self.keep_loaded(record), made))
    }

    /// Finds a session and keeps it in memory. Its head, status and title are the latest, also if another node owns it.
    pub async fn open_session(&self, key: &SessionKey) -> Result<Option<Arc<Session>>> {
        let loaded = self.loaded_session(key);
        if let Some(session) = &loaded
            && (self.context.lease.is_permanent() || session.knows_latest_head().await)
        {
            return Ok(loaded);
        }
        self.find_in_store(key).await
    }

    /// The same, to change the session: its head may lag behind appends of this process that are on their way. A change
    /// sees them, and need not wait for them.
    pub async fn open_session_to_write(&self, key: &SessionKey) -> Result<Option<Arc<Session>>> {
        let loaded = self.loaded_session(key);
        if let Some(session) = &loaded
            && (self.context.lease.is_permanent() || session.is_owned())
        {
            return Ok(loaded);
        }
        self.find_in_store(key).await
    }

    async fn find_in_store(&self, key: &SessionKey) -> Result<Option<Arc<Session>>> {
        let loaded = self.loaded_session(key);
        let record = self.read_fairly(&key.tenant, self.store().find_session(key)).await?;
        let Some(record) = record else {
            if let Some(session) = loaded {
                self.forget_deleted(&session);
            }
            return Ok(None);
        };
        Ok(Some(self.keep_loaded(record)))
    }

    /// A session that is already in memory.
    pub fn loaded_session(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.sessions.lock().by_key.get(key).cloned()
    }

    fn keep_loaded(&self, record: SessionRecord) -> Arc<Session> {
        let mut sessions = self.sessions.lock();
        let held = sessions.by_key.get(&record.key).cloned();
        if let Some(held) = held.as_ref().filter(|held| held.number() == record.number) {
            held.observe_record(record);
            return held.clone();
        }
        let session = Arc::new(Session::new(record, self.context.clone()));
        sessions.insert(&session);
        drop(sessions);
        if let Some(former) = held {
            former.mark_deleted();
        }
        session
    }

    /// Deletes a session. Durable when this returns. Returns whether it existed.
    pub async fn delete_session(&self, key: &SessionKey) -> Result<bool> {
        let Some(record) = self.store().find_session(key).await? else { return Ok(false) };
        self.store().delete_session(record.number).await?;
        let held = self.loaded_session(key).filter(|held| held.number() == record.number);
        if let Some(session) = held {
            self.forget_deleted(&session);
        }
        Ok(true)
    }

    /// A session was deleted: wakes everything that waits for it.
    fn forget_deleted(&self, session: &Session) {
        self.sessions.lock().remove(session);
        session.mark_deleted();
    }

    /// The sessions that somebody here watches and another node may write.
    pub fn watched_elsewhere(&self) -> Vec<SessionNumber> {
        let sessions = self.sessions.lock();
        let watched = sessions.by_key.values().filter(|it| it.is_watched() && !it.is_owned());
        watched.map(|session| session.number()).collect()
    }

    /// Looks for events that other nodes have written to watched sessions, in one query. Call it from time to time.
    pub async fn poll_watched(&self) -> Result<()> {
        let Some(store) = self.store().cluster() else { return Ok(()) };
        for numbers in self.watched_elsewhere().chunks(MAX_POLLED) {
            let heads = store.list_heads(numbers).await?;
            self.observe_heads(&heads);
            let found: HashSet<SessionNumber> = heads.iter().map(|head| head.session).collect();
            for number in numbers.iter().filter(|number| !found.contains(number)) {
                let gone = self.sessions.lock().find(*number);
                if let Some(session) = gone {
                    self.forget_deleted(&session);
                }
            }
        }
        Ok(())
    }

    /// Other nodes have written events up to these heads: wakes those who watch.
    pub fn observe_heads(&self, heads: &[SessionHead]) {
        for head in heads {
            let watched = self.sessions.lock().find(head.session);
            if let Some(session) = watched {
                session.observe_head(*head);
            }
        }
    }

    /// Lists sessions as they are stored.
    pub async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.read_fairly(&query.tenant, self.store().list_sessions(query)).await
    }

    /// The stored response to an earlier request.
    pub async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        self.read_fairly(tenant, self.store().find_idempotency_record(tenant, key)).await
    }

    /// Sessions that have, or had, the first of these states of a conversation that any session has.
    pub async fn find_history(
        &self,
        tenant: &str,
        digests: &[HistoryDigest],
    ) -> Result<Vec<HistoryMatch>> {
        self.read_fairly(tenant, self.store().find_history(digests)).await
    }

    /// Deletes what is older or larger than retention allows.
    pub async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        let removed = self.store().apply_retention(retention).await?;
        if removed.sessions > 0 {
            let held: Vec<_> = self.sessions.lock().by_key.values().cloned().collect();
            for session in held {
                if let Some(record) = self.store().find_session(session.key()).await?
                    && record.number == session.number()
                {
                    session.advance_first(record.first);
                }
            }
        }
        Ok(removed)
    }

    /// Evicts idle sessions from memory, and gives up their leases, so that the node that is asked next has them. Returns
    /// how many. Call it from time to time.
    pub async fn evict_idle(&self) -> Result<usize> {
        let mut leases = Vec::new();
        let evicted = {
            let mut sessions = self.sessions.lock();
            let LoadedSessions { by_key, by_number } = &mut *sessions;
            let before = by_key.len();
            by_key.retain(|_, session| {
                let is_idle = session.is_idle();
                if is_idle {
                    by_number.remove(&session.number());
                    leases.extend(session.unneeded_lease());
                }
                !is_idle
            });
            before - by_key.len()
        };
        if let Some(store) = self.store().cluster()
            && !leases.is_empty()
        {
            store.release_leases(&leases).await?;
        }
        Ok(evicted)
    }

    /// How many sessions are in memory.
    pub fn loaded_count(&self) -> usize {
        self.sessions.lock().by_key.len()
    }
}
