//! A store in memory that has bad days.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use turnwire_core::Seq;
use turnwire_log::store::*;
use turnwire_log::{Error, MemoryStore, Result, Store};

/// A store that can be full, and slow.
pub struct Moody {
    store: MemoryStore,
    pub is_full: AtomicBool,
    /// Whether an append is acknowledged only when the test says so.
    pub is_slow: AtomicBool,
    pub acknowledge: Arc<Semaphore>,
    /// Whether messages that were read are handed out only when the test says so.
    pub is_slow_to_read: AtomicBool,
    pub hand_out: Semaphore,
}

impl Default for Moody {
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
impl Store for Moody {
    async fn create(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.store.create(new).await
    }
    async fn create_waiting(
        &self,
        new: NewSession,
        waits: Queued,
    ) -> Result<(SessionRecord, bool)> {
        self.store.create_waiting(new, waits).await
    }
    async fn session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        self.store.session(key).await
    }
    async fn sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.store.sessions(query).await
    }
    async fn totals(
        &self,
        tenant: &str,
        reach: &turnwire_log::Reach,
        max_time: Option<Duration>,
    ) -> Result<std::collections::BTreeMap<String, turnwire_log::cost::AgentTotals>> {
        self.store.totals(tenant, reach, max_time).await
    }
    async fn all_sessions(&self, after: SessionNo, limit: usize) -> Result<Vec<SessionRecord>> {
        self.store.all_sessions(after, limit).await
    }
    async fn open_sessions(&self) -> Result<Vec<SessionRecord>> {
        self.store.open_sessions().await
    }
    async fn patch(&self, session: SessionNo, patch: SessionPatch) -> Result<SessionRecord> {
        self.store.patch(session, patch).await
    }
    async fn delete(&self, session: SessionNo) -> Result<()> {
        self.store.delete(session).await
    }
    async fn acquire(&self, session: SessionNo, owner: &str, ttl: Duration) -> Result<Lease> {
        self.store.acquire(session, owner, ttl).await
    }
    async fn renew(&self, session: SessionNo, lease: Lease, ttl: Duration) -> Result<()> {
        self.store.renew(session, lease, ttl).await
    }
    fn append(&self, append: Append) -> Pending<()> {
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
    async fn read(&self, session: SessionNo, from: Seq, max_bytes: usize) -> Result<Vec<Lines>> {
        self.store.read(session, from, max_bytes).await
    }
    async fn wait(&self, session: SessionNo, after: u64) -> Result<u64> {
        self.store.wait(session, after).await
    }
    async fn message(&self, session: SessionNo, id: &str) -> Result<Option<StoredMessage>> {
        self.store.message(session, id).await
    }
    async fn messages(
        &self,
        session: SessionNo,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        let messages = self.store.messages(session, query).await;
        if self.is_slow_to_read.load(Ordering::SeqCst) {
            self.hand_out.acquire().await.map_err(|_| Error::NoSession)?.forget();
        }
        messages
    }
    async fn replace_messages(
        &self,
        session: SessionNo,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        self.store.replace_messages(session, messages).await
    }
    async fn queued(&self, session: SessionNo) -> Result<Vec<Queued>> {
        self.store.queued(session).await
    }
    async fn key(&self, tenant: &str, key: &str) -> Result<Option<KeyRecord>> {
        self.store.key(tenant, key).await
    }
    async fn begin_upload(&self) -> Result<UploadNo> {
        self.store.begin_upload().await
    }
    async fn add_piece(&self, upload: UploadNo, bytes: Bytes) -> Result<()> {
        self.store.add_piece(upload, bytes).await
    }
    fn abandon_upload(&self, upload: UploadNo) {
        self.store.abandon_upload(upload);
    }
    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        self.store.store_blob(new).await
    }
    async fn blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        self.store.blob_info(tenant, hash).await
    }
    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>> {
        self.store.touch_blob(tenant, hash, now_ms).await
    }
    async fn blob_piece(&self, tenant: &str, hash: [u8; 32], from: u64) -> Result<Option<Bytes>> {
        self.store.blob_piece(tenant, hash, from).await
    }
    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        self.store.set_blob_type(tenant, hash, media_type).await
    }
    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        self.store.delete_blob(tenant, hash).await
    }
    async fn blob_bytes(&self, tenant: &str) -> Result<u64> {
        self.store.blob_bytes(tenant).await
    }
    async fn retain(&self, retention: Retention) -> Result<Removed> {
        self.store.retain(retention).await
    }
    async fn healthy(&self) -> Result<()> {
        self.store.healthy().await
    }
}
