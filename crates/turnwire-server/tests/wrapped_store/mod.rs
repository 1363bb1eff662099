//! A store in memory around which a test puts [`Hooks`]: they delay, fail or count what is done.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::Seq;
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::cost::AgentTotals;
use turnwire_log::store::*;
use turnwire_log::{MemoryStore, Result, Store, VisibleSessions};

/// What a test does around the operations of a store. By default nothing.
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// Before anything but an append is written.
    fn before_write(&self) -> Result<()> {
        Ok(())
    }
    async fn before_delete(&self) {}
    async fn before_lease(&self, _: &MemoryStore, _: SessionNumber) {}
    async fn before_list(&self, _: &SessionQuery) {}
    /// Before messages or events are read.
    fn before_read(&self) -> Result<()> {
        Ok(())
    }
    async fn before_events(&self) -> Result<()> {
        self.before_read()
    }
    async fn after_messages(&self, _: &[StoredMessage]) -> Result<()> {
        Ok(())
    }
    fn append(&self, store: &MemoryStore, append: Append) -> StoreFuture<()> {
        store.append(append)
    }
    fn check_health(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub struct WrappedStore<H> {
    pub store: Arc<MemoryStore>,
    pub hooks: H,
}

impl<H> std::ops::Deref for WrappedStore<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hooks
    }
}

#[async_trait]
impl<H: Hooks> Store for WrappedStore<H> {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.hooks.before_write()?;
        self.store.create_session(new).await
    }
    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.store.create_fork(new).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        self.store.find_session(key).await
    }
    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.hooks.before_list(query).await;
        self.store.list_sessions(query).await
    }
    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
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
        self.hooks.before_write()?;
        self.store.patch_session(session, patch).await
    }
    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
        self.hooks.before_write()?;
        self.hooks.before_delete().await;
        self.store.delete_session(session).await
    }
    async fn acquire_lease(&self, session: SessionNumber, owner: &str) -> Result<Lease> {
        self.hooks.before_lease(&self.store, session).await;
        self.store.acquire_lease(session, owner).await
    }
    fn append(&self, append: Append) -> StoreFuture<()> {
        self.hooks.append(&self.store, append)
    }
    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
        self.hooks.before_events().await?;
        self.store.read_events(session, from, max_bytes).await
    }
    async fn find_message(
        &self,
        session: SessionNumber,
        id: &str,
    ) -> Result<Option<StoredMessage>> {
        self.hooks.before_read()?;
        self.store.find_message(session, id).await
    }
    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        self.hooks.before_read()?;
        let messages = self.store.list_messages(session, query).await?;
        self.hooks.after_messages(&messages).await?;
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
        self.hooks.before_write()?;
        self.store.begin_upload().await
    }
    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        self.hooks.before_write()?;
        self.store.add_upload_piece(upload, bytes).await
    }
    fn abandon_upload(&self, upload: UploadNumber) {
        self.store.abandon_upload(upload);
    }
    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        self.hooks.before_write()?;
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
        self.hooks.before_write()?;
        self.store.delete_blob(tenant, hash).await
    }
    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        self.store.blob_bytes_used(tenant).await
    }
    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        self.store.apply_retention(retention).await
    }
    async fn check_health(&self) -> Result<()> {
        self.hooks.check_health()
    }
}
