//! A store in memory whose appends and reads finish only when the test says so.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use turnwire_core::Seq;
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::store::*;
use turnwire_log::{Error, MemoryStore, Result, Store};

/// What can be held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Appends,
    Reads,
    Deletes,
    /// Searches of the tenant `slow`.
    Searches,
}

/// What is held back, what has been done, and which errors are set.
#[derive(Debug, Clone, Default)]
pub struct State {
    closed: Vec<Operation>,
    waiting: Vec<Operation>,
    pub reads: usize,
    /// How many lists of sessions were read.
    pub lists: usize,
    /// The most bytes of messages that were read at once.
    pub largest_page: usize,
    /// How many writes were refused.
    pub refused: usize,
    writes: Option<Error>,
    reading: Option<Error>,
}

impl State {
    fn remove_waiting(&mut self, pass: Operation) {
        if let Some(at) = self.waiting.iter().position(|waits| *waits == pass) {
            self.waiting.remove(at);
        }
    }
}

type Held = (Append, oneshot::Sender<Result<()>>);

pub struct GatedStore {
    store: Arc<MemoryStore>,
    state: watch::Sender<State>,
    held: Mutex<VecDeque<Held>>,
}

impl GatedStore {
    pub fn new() -> Arc<Self> {
        Self::with_store(Arc::default())
    }

    /// Over the store of another one: like a process after a crash.
    pub fn with_store(store: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { store, state: watch::Sender::default(), held: Mutex::default() })
    }

    /// What is durable.
    pub fn durable(&self) -> Arc<MemoryStore> {
        self.store.clone()
    }

    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub fn close(&self, pass: Operation) {
        self.state.send_modify(|state| state.closed.push(pass));
    }

    pub fn open(&self, pass: Operation) {
        let mut held = self.held.lock();
        self.state.send_modify(|state| state.closed.retain(|closed| *closed != pass));
        if pass == Operation::Appends {
            for (append, done) in held.drain(..) {
                // The caller may be gone.
                let _ = done.send(at_once(self.store.append(append)));
            }
        }
    }

    /// Drops the appends that are held back: they never become durable.
    pub fn drop_held(&self) {
        let mut held = self.held.lock();
        self.state.send_modify(|state| state.closed.retain(|closed| *closed != Operation::Appends));
        for (_, done) in held.drain(..) {
            let _ = done.send(Err(Error::Store("it was lost".to_owned())));
        }
    }

    /// Waits until so many operations are held back.
    pub async fn wait_for_waiting(&self, pass: Operation, count: usize) {
        self.until(|state| state.waiting.iter().filter(|waits| **waits == pass).count() >= count)
            .await;
    }

    /// How many operations are held back now.
    pub fn waiting(&self, pass: Operation) -> usize {
        self.state().waiting.iter().filter(|waits| **waits == pass).count()
    }

    pub async fn until(&self, wanted: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        let found = state.wait_for(wanted);
        let found = tokio::time::timeout(Duration::from_mins(1), found).await;
        found.expect("it takes too long").unwrap();
    }

    /// From now on writes fail with this error, or succeed.
    pub fn fail_writes(&self, error: Option<Error>) {
        self.state.send_modify(|state| state.writes = error);
    }

    pub fn fail_reads(&self, error: Option<Error>) {
        self.state.send_modify(|state| state.reading = error);
    }

    async fn wait_open(&self, pass: Operation) {
        let mut state = self.state.subscribe();
        if !state.borrow().closed.contains(&pass) {
            return;
        }
        self.state.send_modify(|state| state.waiting.push(pass));
        let _ = state.wait_for(|state| !state.closed.contains(&pass)).await;
        self.state.send_modify(|state| state.remove_waiting(pass));
    }

    fn check_writable(&self) -> Result<()> {
        let Some(error) = self.state().writes else { return Ok(()) };
        self.state.send_modify(|state| state.refused += 1);
        Err(error)
    }

    fn check_readable(&self) -> Result<()> {
        self.state().reading.map_or(Ok(()), Err)
    }
}

/// The result of the store in memory, which is ready at once.
fn at_once(pending: StoreFuture<()>) -> Result<()> {
    futures_util::FutureExt::now_or_never(pending).unwrap()
}

#[async_trait]
impl Store for GatedStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.check_writable()?;
        self.store.create_session(new).await
    }
    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.store.create_fork(new).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        self.store.find_session(key).await
    }
    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.state.send_modify(|state| state.lists += 1);
        if query.search.is_some() && &*query.tenant == "slow" {
            self.wait_open(Operation::Searches).await;
        }
        self.store.list_sessions(query).await
    }
    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &turnwire_log::VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<std::collections::BTreeMap<String, turnwire_log::cost::AgentTotals>> {
        self.store.agent_totals(tenant, reach, max_time).await
    }
    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        self.store.list_all_sessions(after, limit).await
    }
    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>> {
        self.store.list_open_sessions().await
    }
    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord> {
        self.check_writable()?;
        self.store.patch_session(session, patch).await
    }
    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
        self.check_writable()?;
        self.wait_open(Operation::Deletes).await;
        self.store.delete_session(session).await
    }
    async fn acquire_lease(
        &self,
        session: SessionNumber,
        owner: &str,
        ttl: Duration,
    ) -> Result<Lease> {
        self.store.acquire_lease(session, owner, ttl).await
    }
    async fn renew_lease(&self, session: SessionNumber, lease: Lease, ttl: Duration) -> Result<()> {
        self.store.renew_lease(session, lease, ttl).await
    }
    fn append(&self, append: Append) -> StoreFuture<()> {
        if let Err(error) = self.check_writable() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let mut held = self.held.lock();
        if !self.state.borrow().closed.contains(&Operation::Appends) {
            return self.store.append(append);
        }
        let (sender, done) = oneshot::channel();
        held.push_back((append, sender));
        self.state.send_modify(|state| state.waiting.push(Operation::Appends));
        let state = self.state.clone();
        Box::pin(async move {
            let done = done.await.unwrap_or(Err(Error::OutOfOrder));
            state.send_modify(|state| state.remove_waiting(Operation::Appends));
            done
        })
    }
    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
        self.state.send_modify(|state| state.reads += 1);
        self.check_readable()?;
        self.wait_open(Operation::Reads).await;
        self.store.read_events(session, from, max_bytes).await
    }
    async fn wait_for_events(
        &self,
        session: SessionNumber,
        after: turnwire_core::Head,
    ) -> Result<turnwire_core::Head> {
        self.store.wait_for_events(session, after).await
    }
    async fn find_message(
        &self,
        session: SessionNumber,
        id: &str,
    ) -> Result<Option<StoredMessage>> {
        self.check_readable()?;
        self.store.find_message(session, id).await
    }
    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        self.check_readable()?;
        let messages = self.store.list_messages(session, query).await?;
        let bytes = messages.iter().map(StoredMessage::size).sum();
        self.state.send_modify(|state| state.largest_page = state.largest_page.max(bytes));
        Ok(messages)
    }
    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        self.store.replace_messages(session, messages).await
    }
    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>> {
        self.store.list_queued(session).await
    }
    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        self.store.find_idempotency_record(tenant, key).await
    }
    async fn find_history(&self, digests: &[HistoryDigest]) -> Result<Vec<HistoryMatch>> {
        self.store.find_history(digests).await
    }
    async fn begin_upload(&self) -> Result<UploadNumber> {
        self.check_writable()?;
        self.store.begin_upload().await
    }
    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        self.check_writable()?;
        self.store.add_upload_piece(upload, bytes).await
    }
    fn abandon_upload(&self, upload: UploadNumber) {
        self.store.abandon_upload(upload);
    }
    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        self.check_writable()?;
        self.store.store_blob(new).await
    }
    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        self.store.find_blob_info(tenant, hash).await
    }
    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>> {
        self.store.touch_blob(tenant, hash, now_ms).await
    }
    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>> {
        self.store.read_blob_piece(tenant, hash, from).await
    }
    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        self.store.set_blob_type(tenant, hash, media_type).await
    }
    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        self.check_writable()?;
        self.store.delete_blob(tenant, hash).await
    }
    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        self.store.blob_bytes_used(tenant).await
    }
    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        self.store.apply_retention(retention).await
    }
    async fn check_health(&self) -> Result<()> {
        self.state().writes.map_or(Ok(()), Err)
    }
}
