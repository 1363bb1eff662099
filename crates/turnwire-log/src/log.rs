//! All sessions of an engine. The server and the import open sessions through [`Log`].

use crate::client_history::HistoryDigest;
use crate::error::{Error, Result};
use crate::fair_queue::FairQueue;
use crate::session::Session;
use crate::store::{
    HistoryMatch, IdempotencyRecord, NewSession, Retention, RetentionReport, SessionKey,
    SessionQuery, SessionRecord, Store,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

/// How many reads run at once, in all and per tenant. More than an engine can do at once, so that
/// it is never idle; few enough that one tenant hardly delays another.
const MAX_READS: usize = 64;
const MAX_READS_PER_TENANT: usize = 16;

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

/// All sessions of an engine: create, open, list, delete. Sessions in use stay in memory.
pub struct Log {
    store: Arc<dyn Store>,
    owner: Arc<str>,
    reads: ReadQueue,
    sessions: Mutex<HashMap<SessionKey, Arc<Session>>>,
}

/// The time in milliseconds since 1970, for display and for retention. The order of events never
/// depends on it.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Log {
    /// A log over an engine. `owner` is the name under which this process acquires leases.
    pub fn new(store: Arc<dyn Store>, owner: impl Into<Arc<str>>) -> Self {
        Self { store, owner: owner.into(), reads: ReadQueue::new(), sessions: Mutex::default() }
    }

    /// Runs a read of the engine when it is the tenant's turn, for reads that do not belong to one
    /// session.
    pub async fn read_fairly<T>(
        &self,
        tenant: &str,
        read: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.reads.run(tenant, read).await
    }

    /// The engine.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Creates a session, or finds the existing one. Returns whether it was created.
    pub async fn create_session(&self, new: NewSession) -> Result<(Arc<Session>, bool)> {
        let (record, made) = self.store.create_session(new).await?;
        Ok((self.keep_loaded(record), made))
    }

    /// The same for a fork, whose log is copied afterwards.
    /// [`Transaction::complete_fork`](crate::Transaction::complete_fork) ends that.
    pub async fn create_fork(&self, new: NewSession) -> Result<(Arc<Session>, bool)> {
        let (record, made) = self.store.create_fork(new).await?;
        Ok((self.keep_loaded(record), made))
    }

    /// Finds a session and keeps it in memory.
    pub async fn open_session(&self, key: &SessionKey) -> Result<Option<Arc<Session>>> {
        if let Some(session) = self.loaded_session(key) {
            return Ok(Some(session));
        }
        let record = self.read_fairly(&key.tenant, self.store.find_session(key)).await?;
        Ok(record.map(|record| self.keep_loaded(record)))
    }

    /// A session that is already in memory.
    pub fn loaded_session(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.sessions.lock().get(key).cloned()
    }

    fn keep_loaded(&self, record: SessionRecord) -> Arc<Session> {
        let mut sessions = self.sessions.lock();
        if let Some(held) = sessions.get(&record.key).filter(|held| held.number() == record.number)
        {
            return held.clone();
        }
        let key = record.key.clone();
        let session =
            Session::new(record, self.store.clone(), self.owner.clone(), self.reads.clone());
        let session = Arc::new(session);
        if let Some(former) = sessions.insert(key, session.clone()) {
            former.mark_deleted();
        }
        session
    }

    /// Deletes a session. Durable when this returns. Returns whether it existed.
    pub async fn delete_session(&self, key: &SessionKey) -> Result<bool> {
        let Some(record) = self.store.find_session(key).await? else { return Ok(false) };
        self.store.delete_session(record.number).await?;
        let held = {
            let mut sessions = self.sessions.lock();
            let is_it = sessions.get(key).is_some_and(|held| held.number() == record.number);
            if is_it { sessions.remove(key) } else { None }
        };
        if let Some(session) = held {
            session.mark_deleted();
        }
        Ok(true)
    }

    /// Lists sessions as they are stored.
    pub async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.read_fairly(&query.tenant, self.store.list_sessions(query)).await
    }

    /// The stored response to an earlier request.
    pub async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        self.read_fairly(tenant, self.store.find_idempotency_record(tenant, key)).await
    }

    /// Sessions that have, or had, the first of these states of a conversation that any session has.
    pub async fn find_history(
        &self,
        tenant: &str,
        digests: &[HistoryDigest],
    ) -> Result<Vec<HistoryMatch>> {
        self.read_fairly(tenant, self.store.find_history(digests)).await
    }

    /// Deletes what is older or larger than retention allows.
    pub async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        let removed = self.store.apply_retention(retention).await?;
        if removed.sessions > 0 {
            let held: Vec<_> = self.sessions.lock().values().cloned().collect();
            for session in held {
                if let Some(record) = self.store.find_session(session.key()).await?
                    && record.number == session.number()
                {
                    session.advance_first(record.first);
                }
            }
        }
        Ok(removed)
    }

    /// Evicts idle sessions from memory, and returns how many. Call it from time to time.
    pub fn evict_idle(&self) -> usize {
        let mut sessions = self.sessions.lock();
        let before = sessions.len();
        sessions.retain(|_, session| !session.is_idle());
        before - sessions.len()
    }

    /// How many sessions are in memory.
    pub fn loaded_count(&self) -> usize {
        self.sessions.lock().len()
    }
}
