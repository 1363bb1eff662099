//! Implements [`Store`] for [`PostgresStore`]; each method hands over to the module that knows.

use super::writer::Job;
use super::{PostgresStore, blobs, events, maintenance, messages, retention, sessions, totals};
use crate::client_history::HistoryDigest;
use crate::cost::AgentTotals;
use crate::error::{Error, Result};
use crate::log::now_ms;
use crate::store::cluster::ClusterStore;
use crate::store::{
    Append, BlobInfo, EventLines, HistoryMatch, IdempotencyRecord, Lease, MessageQuery, NewBlob,
    NewSession, QueuedMessage, Retention, RetentionReport, SessionKey, SessionNumber, SessionPatch,
    SessionQuery, SessionRecord, SessionState, Store, StoreFuture, StoredMessage, UploadNumber,
};
use crate::visible_sessions::VisibleSessions;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;
use turnwire_core::Seq;

#[async_trait]
impl Store for PostgresStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        sessions::create(self.database(), &new, &SessionState::default()).await
    }

    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        let state = SessionState { is_forking: true, ..SessionState::default() };
        sessions::create(self.database(), &new, &state).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        sessions::find(self.database(), key).await
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        sessions::list(self.database(), query).await
    }

    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
        totals::read(self.database(), tenant, reach, max_time).await
    }

    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        sessions::list_all(self.database(), after, limit).await
    }

    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>> {
        sessions::list_open(self.database()).await
    }

    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord> {
        sessions::patch(self.database(), session, &patch).await
    }

    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
        maintenance::delete_session(&self.shared, session).await
    }

    async fn acquire_lease(&self, session: SessionNumber, owner: &str) -> Result<Lease> {
        sessions::acquire_lease(self.database(), session, owner).await
    }

    fn append(&self, append: Append) -> StoreFuture<()> {
        let (answer, answered) = oneshot::channel();
        let sent = self.send_append(Job { append, answer });
        Box::pin(async move {
            sent?;
            let ended = || Error::Store("the store was closed before the append".to_owned());
            answered.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
        events::read(self.database(), session, from, max_bytes).await
    }

    fn cluster(&self) -> Option<&dyn ClusterStore> {
        Some(self)
    }

    async fn find_message(
        &self,
        session: SessionNumber,
        id: &str,
    ) -> Result<Option<StoredMessage>> {
        messages::find(self.database(), session, id).await
    }

    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        messages::list(self.database(), session, query).await
    }

    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        messages::replace(self.database(), session, &messages).await
    }

    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>> {
        messages::list_queued(self.database(), session).await
    }

    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        messages::find_idempotency_record(self.database(), tenant, key).await
    }

    async fn find_history(&self, digests: &[HistoryDigest]) -> Result<Vec<HistoryMatch>> {
        messages::find_history(self.database(), digests).await
    }

    async fn begin_upload(&self) -> Result<UploadNumber> {
        blobs::begin_upload(self.database()).await
    }

    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        self.shared.check_upload(upload)?;
        blobs::add_piece(self.database(), upload, &bytes).await
    }

    fn abandon_upload(&self, upload: UploadNumber) {
        let shared = Arc::clone(&self.shared);
        // Until the database knows it.
        shared.abandoned.lock().insert(upload);
        tokio::spawn(async move {
            match blobs::abandon(&shared.database, upload).await {
                Ok(()) => {
                    shared.abandoned.lock().remove(&upload);
                    shared.maintenance.notify_one();
                }
                // An upload that nobody continues is removed after a day.
                Err(error) => tracing::debug!(%error, "an upload could not be cancelled"),
            }
        });
    }

    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        new.upload.map_or(Ok(()), |upload| self.shared.check_upload(upload))?;
        blobs::store(self.database(), &new).await
    }

    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        blobs::find_info(self.database(), tenant, hash).await
    }

    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>> {
        blobs::touch(self.database(), tenant, hash, now_ms).await
    }

    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>> {
        blobs::read_piece(self.database(), tenant, hash, from).await
    }

    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        blobs::set_type(self.database(), tenant, hash, media_type).await
    }

    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        let deleted = blobs::delete(self.database(), tenant, hash).await;
        self.shared.maintenance.notify_one();
        deleted
    }

    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        blobs::bytes_used(self.database(), tenant).await
    }

    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        let report = retention::apply(self.database(), retention).await;
        self.shared.maintenance.notify_one();
        report
    }

    async fn check_health(&self) -> Result<()> {
        let connection = self.database().connect().await?;
        let write = "UPDATE turnwire.store SET checked_ms = $1";
        let written = connection.execute(write, &[(&now_ms(), Type::INT8)]).await;
        written.map(drop).map_err(|error| self.database().explain(error))
    }
}
