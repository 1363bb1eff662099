//! A storage engine: SQLite inside, and it measures the writes.

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use turnwire_core::Seq;
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::cost::AgentTotals;
use turnwire_log::store::{
    Append, BlobInfo, EventLines, HistoryMatch, IdempotencyRecord, Lease, MessageQuery, NewBlob,
    NewSession, QueuedMessage, Retention, RetentionReport, SessionKey, SessionNumber, SessionPatch,
    SessionQuery, SessionRecord, Store, StoreFuture, StoredMessage, UploadNumber,
};
use turnwire_log::{Result, SqliteStore, VisibleSessions};

/// What was written since the start.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Totals {
    events: u64,
    bytes: u64,
    /// The longest time until an append was durable.
    slowest: Duration,
}

pub struct Metered {
    inner: SqliteStore,
    totals: Arc<Mutex<Totals>>,
}

impl Metered {
    pub fn new(inner: SqliteStore) -> Self {
        Self { inner, totals: Arc::default() }
    }

    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Metered {
    fn append(&self, append: Append) -> StoreFuture<()> {
        let (start, totals) = (Instant::now(), Arc::clone(&self.totals));
        let lines = append.lines.as_ref();
        let (events, bytes) = lines.map_or((0, 0), |lines| (lines.count, lines.bytes.len()));
        // Outside of the future: the call itself reserves the position of the append.
        let written = self.inner.append(append);
        Box::pin(async move {
            written.await?;
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.events += u64::from(events);
            totals.bytes += bytes as u64;
            totals.slowest = totals.slowest.max(start.elapsed());
            Ok(())
        })
    }

    // The rest is the inner engine's.

    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.inner.create_session(new).await
    }

    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.inner.create_fork(new).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        self.inner.find_session(key).await
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.inner.list_sessions(query).await
    }

    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
        self.inner.agent_totals(tenant, reach, max_time).await
    }

    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        self.inner.list_all_sessions(after, limit).await
    }

    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>> {
        self.inner.list_open_sessions().await
    }

    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord> {
        self.inner.patch_session(session, patch).await
    }

    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
        self.inner.delete_session(session).await
    }

    async fn acquire_lease(&self, session: SessionNumber, owner: &str) -> Result<Lease> {
        self.inner.acquire_lease(session, owner).await
    }

    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
        self.inner.read_events(session, from, max_bytes).await
    }

    async fn find_message(
        &self,
        session: SessionNumber,
        id: &str,
    ) -> Result<Option<StoredMessage>> {
        self.inner.find_message(session, id).await
    }

    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        self.inner.list_messages(session, query).await
    }

    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        self.inner.replace_messages(session, messages).await
    }

    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>> {
        self.inner.list_queued(session).await
    }

    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        self.inner.find_idempotency_record(tenant, key).await
    }

    async fn find_history(&self, digests: &[HistoryDigest]) -> Result<Vec<HistoryMatch>> {
        self.inner.find_history(digests).await
    }

    async fn begin_upload(&self) -> Result<UploadNumber> {
        self.inner.begin_upload().await
    }

    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        self.inner.add_upload_piece(upload, bytes).await
    }

    fn abandon_upload(&self, upload: UploadNumber) {
        self.inner.abandon_upload(upload);
    }

    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        self.inner.store_blob(new).await
    }

    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        self.inner.find_blob_info(tenant, hash).await
    }

    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>> {
        self.inner.touch_blob(tenant, hash, now_ms).await
    }

    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>> {
        self.inner.read_blob_piece(tenant, hash, from).await
    }

    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        self.inner.set_blob_type(tenant, hash, media_type).await
    }

    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        self.inner.delete_blob(tenant, hash).await
    }

    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        self.inner.blob_bytes_used(tenant).await
    }

    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        self.inner.apply_retention(retention).await
    }

    async fn check_health(&self) -> Result<()> {
        self.inner.check_health().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_log::conformance::Engine;
    use turnwire_log::sqlite::Options;

    struct Folder(tempfile::TempDir);

    #[async_trait]
    impl Engine for Folder {
        async fn open(&self) -> Arc<dyn Store> {
            let file = self.0.path().join("store.db");
            Arc::new(Metered::new(SqliteStore::open(file, Options::default()).unwrap()))
        }

        async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
            drop(store);
            self.open().await
        }
    }

    turnwire_log::conformance!(Folder(tempfile::tempdir().unwrap()));
}
