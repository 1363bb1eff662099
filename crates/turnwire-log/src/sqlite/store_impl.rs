//! Implements [`Store`] for [`SqliteStore`]; each method hands over to the module that knows.

use super::batch::Batch;
use super::errors::SqliteError;
use super::events::EventPage;
use super::readers::QueryLimit;
use super::tail::Tails;
use super::writer::{Grouping, Job};
use super::{
    SqliteStore, blobs, events, history, maintenance, messages, retention, sessions, totals,
    writer_ended,
};
use crate::client_history::HistoryDigest;
use crate::cost::AgentTotals;
use crate::error::{Error, Result};
use crate::store::{
    Append, BlobInfo, BlobReferences, EventLines, HistoryMatch, IdempotencyRecord, Lease,
    MessageQuery, NewBlob, NewSession, QueuedMessage, Retention, RetentionReport, SessionKey,
    SessionNumber, SessionPatch, SessionQuery, SessionRecord, SessionState, Store, StoreFuture,
    StoredMessage, UploadNumber,
};
use crate::visible_sessions::VisibleSessions;
use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use turnwire_core::Seq;

/// Creates a session, or finds it.
fn create_or_find(
    batch: &mut Batch<'_>,
    new: &NewSession,
    state: &SessionState,
) -> Result<(SessionRecord, bool), SqliteError> {
    if let Some(found) = sessions::find_by_key(batch.read_connection(), &new.key, batch)? {
        return Ok((found, false));
    }
    batch.has_unindexed |= !new.title.is_empty();
    let conn = batch.write_connection()?;
    let record = sessions::create(conn, new, state, batch)?;
    let mut references = BlobReferences::default();
    references.add_fields(&new.metadata);
    blobs::add_references(batch, record.number.0, &references)?;
    Ok((record, true))
}

#[async_trait]
impl Store for SqliteStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        let state = SessionState::default();
        self.write(Grouping::Shared, move |batch| create_or_find(batch, &new, &state)).await
    }

    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        let state = SessionState { is_forking: true, ..SessionState::default() };
        self.write(Grouping::Shared, move |batch| create_or_find(batch, &new, &state)).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        let key = key.clone();
        let look = move |conn: &Connection, tails: &mut Tails| {
            Ok(sessions::find_by_key(conn, &key, &*tails)?)
        };
        self.readers.read(look, |_, found| Ok(found)).await
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        let bound = QueryLimit {
            deadline: query.max_time.and_then(|time| Instant::now().checked_add(time)),
            steps: self.query_steps,
        };
        if query.search.is_some() {
            self.index_before(bound.deadline).await;
        }
        let is_search = query.search.is_some();
        let query = query.clone();
        let list = move |conn: &Connection, ends| Ok(sessions::list(conn, &query, &ends)?);
        let ends = |_: &Connection, tails: &mut Tails| Ok(tails.ends());
        if is_search {
            self.readers.search(bound, ends, list).await
        } else {
            self.readers.list(bound, ends, list).await
        }
    }

    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
        let deadline = max_time.and_then(|time| Instant::now().checked_add(time));
        let bound = QueryLimit { deadline, steps: self.query_steps };
        let (tenant, reach) = (tenant.to_owned(), reach.clone());
        if let Some(rules) = reach.patterns().map(<[_]>::to_vec) {
            let sum =
                move |conn: &Connection, ()| Ok(totals::visible_totals(conn, &tenant, &rules)?);
            return self.readers.search(bound, |_, _| Ok(()), sum).await;
        }
        // Sessions of earlier versions are counted in the background; this call helps.
        while self.readers.query(|conn| Ok(totals::has_uncounted(conn)?)).await? {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TooSlow);
            }
            self.write(Grouping::Shared, |batch| totals::count_some(batch.write_connection()?))
                .await?;
        }
        let read = move |conn: &Connection, ()| Ok(totals::tenant_totals(conn, &tenant)?);
        self.readers.list(bound, |_, _| Ok(()), read).await
    }

    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        let query =
            move |conn: &Connection, ends| Ok(sessions::list_all(conn, after, limit, &ends)?);
        self.readers.read(|_, tails| Ok(tails.ends()), query).await
    }

    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>> {
        let list = |conn: &Connection, ends| Ok(sessions::list_open(conn, &ends)?);
        self.readers.read(|_, tails| Ok(tails.ends()), list).await
    }

    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord> {
        self.write(Grouping::Shared, move |batch| {
            batch.index_entry(session.0)?;
            batch.has_unindexed |= patch.title.is_some();
            let conn = batch.write_connection()?;
            let record = sessions::patch(conn, session, &patch, batch)?;
            let mut references = BlobReferences::default();
            patch.metadata.iter().for_each(|metadata| references.add_fields(metadata));
            blobs::add_references(batch, session.0, &references)?;
            Ok(record)
        })
        .await
    }

    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
        self.write(Grouping::Alone, move |batch| maintenance::delete_session(batch, session.0))
            .await
    }

    // Only one process can have the file, so a lease ends only when another task of this process
    // takes it.
    async fn acquire_lease(&self, session: SessionNumber, _owner: &str) -> Result<Lease> {
        self.write(Grouping::Shared, move |batch| {
            batch.index_entry(session.0)?;
            Ok(Lease { fence: batch.index.acquire_lease(session.0) })
        })
        .await
    }

    fn append(&self, append: Append) -> StoreFuture<()> {
        let (answer, answered) = oneshot::channel();
        let sent = self.send_job(Job::Append(Box::new(append), answer));
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            sent?;
            answered.await.unwrap_or_else(|_| Err(writer_ended(&shared.file)))
        })
    }

    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
        if self.writing.is_some() {
            let memory = self.shared.tails.lock().view(session.0, from, max_bytes);
            if memory.first.is_some_and(|first| first <= from) {
                let mut page = EventPage::new(from, max_bytes);
                if page.push_tail_rows(&memory.rows).is_ok() {
                    return Ok(page.finish());
                }
            }
        }
        let look = self.writing.is_none();
        let file = self.shared.file.clone();
        let memory = move |conn: &Connection, tails: &mut Tails| {
            if look {
                tails.drop_moved(conn, session.0)?;
            }
            Ok(tails.view(session.0, from, max_bytes))
        };
        let query = move |conn: &Connection, memory| {
            events::read_events(conn, &file, session.0, from, max_bytes, &memory)
        };
        self.readers.read(memory, query).await
    }

    async fn find_message(
        &self,
        session: SessionNumber,
        id: &str,
    ) -> Result<Option<StoredMessage>> {
        let (id, file) = (id.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| messages::find(conn, &file, session.0, &id)).await
    }

    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        let (query, file) = (query.clone(), self.shared.file.clone());
        self.readers.query(move |conn| messages::list(conn, &file, session.0, &query)).await
    }

    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        self.write(Grouping::Shared, move |batch| {
            batch.index_entry(session.0)?;
            batch.has_unindexed = true;
            let conn = batch.write_connection()?;
            let mut references = BlobReferences::default();
            for message in &messages {
                messages::insert_or_replace(conn, session.0, message)?;
                references.add(&message.json);
            }
            blobs::add_references(batch, session.0, &references)
        })
        .await
    }

    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>> {
        let file = self.shared.file.clone();
        self.readers.query(move |conn| messages::list_queued(conn, &file, session.0)).await
    }

    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        let (tenant, key, file) = (tenant.to_owned(), key.to_owned(), self.shared.file.clone());
        self.readers
            .query(move |conn| messages::find_idempotency_record(conn, &file, &tenant, &key))
            .await
    }

    async fn find_history(&self, digests: &[HistoryDigest]) -> Result<Vec<HistoryMatch>> {
        let digests = digests.to_vec();
        self.readers.query(move |conn| history::find(conn, &digests)).await
    }

    async fn begin_upload(&self) -> Result<UploadNumber> {
        self.write(Grouping::Shared, blobs::begin_upload).await.map(UploadNumber)
    }

    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        let size = bytes.len();
        let add = move |batch: &mut Batch<'_>| blobs::add_piece(batch, upload.0, &bytes);
        self.write_bytes(Grouping::Shared, size, add).await.map(drop)
    }

    fn abandon_upload(&self, upload: UploadNumber) {
        let abandon = move |batch: &mut Batch<'_>| blobs::abandon(batch, upload.0);
        let (job, _) = Job::task(Grouping::Shared, abandon);
        // It is removed when the store is opened again.
        let _ = self.send_job(job);
    }

    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        let size = new.bytes.len();
        self.write_bytes(Grouping::Shared, size, move |batch| blobs::store(batch, &new)).await
    }

    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        let (tenant, file) = (tenant.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| blobs::find_info(conn, &file, &tenant, hash)).await
    }

    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>> {
        let owned = tenant.to_owned();
        let look = move |conn: &Connection| Ok(blobs::is_unused(conn, &owned, hash)?);
        if self.readers.query(look).await? {
            let tenant = tenant.to_owned();
            let touch =
                move |batch: &mut Batch<'_>| blobs::touch_unused(batch, &tenant, hash, now_ms);
            self.write(Grouping::Shared, touch).await?;
        }
        self.find_blob_info(tenant, hash).await
    }

    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>> {
        let (tenant, file) = (tenant.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| blobs::read_blob(conn, &file, &tenant, hash, from)).await
    }

    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        let (tenant, media_type) = (tenant.to_owned(), media_type.to_owned());
        self.write(Grouping::Shared, move |batch| {
            blobs::set_blob_type(batch, &tenant, hash, &media_type)
        })
        .await
    }

    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        let tenant = tenant.to_owned();
        self.write(Grouping::Shared, move |batch| blobs::delete_blob(batch, &tenant, hash)).await
    }

    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        let tenant = tenant.to_owned();
        self.readers.query(move |conn| Ok(blobs::bytes_used(conn, &tenant)?)).await
    }

    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        retention::apply(self, retention).await
    }

    async fn check_health(&self) -> Result<()> {
        self.write(Grouping::Shared, |batch| {
            let conn = batch.write_connection()?;
            conn.prepare_cached("INSERT INTO probe VALUES (zeroblob(32768))")?.execute([])?;
            conn.prepare_cached("DELETE FROM probe")?.execute([])?;
            Ok(())
        })
        .await
    }
}
