//! A store in memory that fails or waits when the test wants it to.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use turnwire_core::Seq;
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::store::*;
use turnwire_log::{Error, MemoryStore, Result, Store};

/// A store that can be full or slow.
pub struct FaultyStore {
    store: MemoryStore,
    pub is_full: AtomicBool,
    /// Whether appends are acknowledged only when the test says so.
    pub is_slow: AtomicBool,
    pub acknowledge: Arc<Semaphore>,
    /// Whether messages are returned only when the test says so.
    pub is_slow_to_read: AtomicBool,
    pub hand_out: Semaphore,
}

impl Default for FaultyStore {
    fn default() -> Self {
        Self {
            store: MemoryStore::default(),
            is_full: AtomicBool::default(),
            is_slow: AtomicBool::default(),
            acknowledge: Arc::new(Semaphore::new(0)),
            is_slow_to_read: AtomicBool::default(),
            hand_out: Semaphore::new(0),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.store.create_session(new).await
    }
    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.store.create_fork(new).await
    }
    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        self.store.find_session(key).await
    }
    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
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
        self.store.patch_session(session, patch).await
    }
    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
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
        if self.is_full.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(Error::Full("no room".to_owned()))));
        }
        let done = self.store.append(append);
        if !self.is_slow.load(Ordering::SeqCst) {
            return done;
        }
        let acknowledge = self.acknowledge.clone();
        Box::pin(async move {
            acknowledge.acquire().await.map_err(|_| Error::NoSession)?.forget();
            done.await
        })
    }
    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
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
        self.store.find_message(session, id).await
    }
    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        let messages = self.store.list_messages(session, query).await;
        if self.is_slow_to_read.load(Ordering::SeqCst) {
            self.hand_out.acquire().await.map_err(|_| Error::NoSession)?.forget();
        }
        messages
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
        self.store.begin_upload().await
    }
    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        self.store.add_upload_piece(upload, bytes).await
    }
    fn abandon_upload(&self, upload: UploadNumber) {
        self.store.abandon_upload(upload);
    }
    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
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
        self.store.delete_blob(tenant, hash).await
    }
    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        self.store.blob_bytes_used(tenant).await
    }
    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        self.store.apply_retention(retention).await
    }
    async fn check_health(&self) -> Result<()> {
        self.store.check_health().await
    }
}
