//! An engine in memory, for tests and for `--store memory`. It keeps nothing after the process.
//!
//! ```
//! use turnwire_log::MemoryStore;
//! use turnwire_log::store::{NewSession, SessionKey, Store};
//! # use turnwire_core::Fields;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = MemoryStore::default();
//! let (session, created) = store
//!     .create_session(NewSession {
//!         key: SessionKey::new("alice", "chat-1"),
//!         agent: "demo".to_owned(),
//!         title: String::new(),
//!         metadata: Fields::default(),
//!         now_ms: 0,
//!     })
//!     .await?;
//! assert!(created);
//! assert_eq!(store.find_session(&session.key).await?, Some(session));
//! # Ok::<(), turnwire_log::Error>(())
//! # }).unwrap();
//! ```

mod blobs;
mod retention;
mod search;
mod stored_session;

use crate::client_history::HistoryDigest;
use crate::cost::{AgentTotals, SessionUsage};
use crate::error::{Error, Result};
use crate::store::{
    Append, BlobInfo, BlobReferences, EventLines, Fence, HistoryMark, HistoryMatch,
    IdempotencyRecord, Lease, MAX_HISTORY_MATCHES, MessageQuery, NewBlob, NewSession,
    QueuedMessage, Retention, RetentionReport, SessionKey, SessionNumber, SessionPatch,
    SessionQuery, SessionRecord, SessionState, Store, StoreFuture, StoredMessage, UploadNumber,
    new_epoch,
};
use crate::visible_sessions::{SessionPattern, VisibleSessions};
use async_trait::async_trait;
use blobs::Blobs;
use bytes::Bytes;
use parking_lot::Mutex;
use search::TextSearch;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use stored_session::StoredSession;
use turnwire_core::{Head, Seq};

/// An engine in memory: maps under one lock, so a write is complete when the call returns.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Data>);

#[derive(Debug, Default)]
struct Data {
    last_no: i64,
    last_fence: u64,
    /// Ordered by tenant and id, so that a list reads only visible sessions.
    names: BTreeMap<SessionKey, SessionNumber>,
    sessions: BTreeMap<SessionNumber, StoredSession>,
    tenants: HashMap<Arc<str>, Tenant>,
    history: Vec<(SessionNumber, HistoryMark)>,
    last_upload: i64,
    /// The pieces of unfinished uploads.
    uploads: HashMap<i64, Vec<Bytes>>,
}

/// The data of a tenant besides its sessions.
#[derive(Debug, Default)]
struct Tenant {
    keys: HashMap<String, StoredKey>,
    blobs: Blobs,
}

#[derive(Debug)]
struct StoredKey {
    record: IdempotencyRecord,
    /// The session that it is deleted with.
    session: SessionNumber,
    at_ms: i64,
}

impl Data {
    fn get(&self, session: SessionNumber) -> Result<&StoredSession> {
        self.sessions.get(&session).ok_or(Error::NoSession)
    }

    fn get_mut(&mut self, session: SessionNumber) -> Result<&mut StoredSession> {
        self.sessions.get_mut(&session).ok_or(Error::NoSession)
    }

    fn create(&mut self, new: NewSession) -> Result<(SessionRecord, bool)> {
        if let Some(no) = self.names.get(&new.key) {
            return Ok((self.get(*no)?.record.clone(), false));
        }
        let epoch = new_epoch()?;
        self.last_no += 1;
        let no = SessionNumber(self.last_no);
        let record = SessionRecord {
            number: no,
            key: new.key,
            epoch,
            agent: new.agent,
            title: new.title,
            metadata: new.metadata,
            created_ms: new.now_ms,
            updated_ms: new.now_ms,
            first: Seq::FIRST,
            head: Head::EMPTY,
            state: SessionState::default(),
        };
        self.names.insert(record.key.clone(), no);
        self.sessions.insert(no, StoredSession::new(record.clone()));
        let mut references = BlobReferences::default();
        references.add_fields(&record.metadata);
        self.add_blob_references(no, &references);
        Ok((record, true))
    }

    /// The sessions of a tenant that a caller may see.
    fn visible_sessions(&self, tenant: &Arc<str>, reach: &VisibleSessions) -> Vec<&StoredSession> {
        let prefixed = |prefix: &str| {
            let from = SessionKey::new(Arc::clone(tenant), prefix);
            let names = self.names.range(from..);
            names.take_while({
                let prefix = prefix.to_owned();
                move |(key, _)| key.tenant == *tenant && key.id.starts_with(&*prefix)
            })
        };
        let mut found = Vec::new();
        match reach.patterns() {
            None => found.extend(prefixed("").map(|(_, no)| no)),
            Some(rules) => {
                for rule in rules {
                    match rule {
                        SessionPattern::Id(id) => {
                            let key = SessionKey::new(Arc::clone(tenant), &**id);
                            found.extend(self.names.get(&key));
                        }
                        SessionPattern::Prefix(prefix) => {
                            found.extend(prefixed(prefix).map(|(_, no)| no));
                        }
                    }
                }
            }
        }
        found.into_iter().filter_map(|no| self.sessions.get(no)).collect()
    }

    fn list(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        let mut words = query.search.as_ref().map(|search| TextSearch::new(search, query.max_time));
        let place =
            |stored: &StoredSession| Reverse((stored.record.updated_ms, stored.record.number));
        let mut fitting = self.visible_sessions(&query.tenant, &query.visible);
        fitting.retain(|stored| {
            query.status.is_none_or(|status| stored.record.state.status == status)
                && query.after.is_none_or(|after| place(stored) > Reverse(after))
        });
        fitting.sort_unstable_by_key(|stored| place(stored));
        let mut found = Vec::new();
        for stored in fitting {
            if found.len() == query.limit {
                break;
            }
            let fits = match &mut words {
                Some(words) => words.matches_session(stored)?,
                None => true,
            };
            if fits {
                found.push(stored.record.clone());
            }
        }
        Ok(found)
    }

    fn delete(&mut self, session: SessionNumber) -> Result<()> {
        let stored = self.sessions.remove(&session).ok_or(Error::NoSession)?;
        self.names.remove(&stored.record.key);
        self.history.retain(|(of, _)| *of != session);
        for tenant in self.tenants.values_mut() {
            tenant.keys.retain(|_, key| key.session != session);
        }
        self.blobs_mut(&stored.record.key.tenant).remove_references(session, crate::log::now_ms());
        Ok(())
    }

    fn append(&mut self, mut append: Append) -> Result<()> {
        let (of, at_ms, key) = (append.session, append.now_ms, append.idempotency.take());
        let (references, history) = (append.blob_references(), std::mem::take(&mut append.history));
        self.get_mut(of)?.append(append)?;
        self.add_blob_references(of, &references);
        self.history.extend(history.into_iter().map(|mark| (of, mark)));
        if let Some(record) = key {
            let tenant = self.tenants.entry(Arc::clone(&record.tenant)).or_default();
            tenant.keys.insert(record.key.clone(), StoredKey { record, session: of, at_ms });
        }
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.0.lock().create(new)
    }

    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        let mut data = self.0.lock();
        let (mut record, made) = data.create(new)?;
        if made {
            record.state.is_forking = true;
            data.get_mut(record.number)?.record.state.is_forking = true;
        }
        Ok((record, made))
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        let data = self.0.lock();
        let no = data.names.get(key);
        Ok(no.and_then(|no| data.sessions.get(no)).map(|stored| stored.record.clone()))
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.0.lock().list(query)
    }

    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        _: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
        let data = self.0.lock();
        let mut totals: BTreeMap<String, AgentTotals> = BTreeMap::new();
        // Summing up sessions in memory is cheap, so totals are not stored.
        for stored in data.visible_sessions(&tenant.into(), reach) {
            let agent = totals.entry(stored.record.agent.clone()).or_default();
            agent.replace_session(
                &SessionUsage::default(),
                &SessionUsage::from_state(&stored.record.state),
            );
        }
        Ok(totals)
    }

    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        let data = self.0.lock();
        let behind = data.sessions.range(SessionNumber(after.0.saturating_add(1))..);
        Ok(behind.take(limit).map(|(_, stored)| stored.record.clone()).collect())
    }

    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>> {
        let data = self.0.lock();
        let open = |stored: &&StoredSession| {
            stored.record.state.keep_from().is_some() || !stored.queue.is_empty()
        };
        Ok(data.sessions.values().filter(open).map(|stored| stored.record.clone()).collect())
    }

    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord> {
        let mut data = self.0.lock();
        let record = &mut data.get_mut(session)?.record;
        if let Some(title) = patch.title {
            record.title = title;
        }
        let mut references = BlobReferences::default();
        if let Some(metadata) = patch.metadata {
            references.add_fields(&metadata);
            record.metadata = metadata;
        }
        let record = record.clone();
        data.add_blob_references(session, &references);
        Ok(record)
    }

    async fn delete_session(&self, session: SessionNumber) -> Result<()> {
        self.0.lock().delete(session)
    }

    async fn acquire_lease(&self, session: SessionNumber, _owner: &str) -> Result<Lease> {
        let mut data = self.0.lock();
        let fence = Fence(data.last_fence + 1);
        data.get_mut(session)?.acquire(fence);
        data.last_fence = fence.0;
        Ok(Lease { fence })
    }

    fn append(&self, append: Append) -> StoreFuture<()> {
        Box::pin(ready(self.0.lock().append(append)))
    }

    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>> {
        self.0.lock().get(session)?.read(from, max_bytes)
    }

    async fn find_message(
        &self,
        session: SessionNumber,
        id: &str,
    ) -> Result<Option<StoredMessage>> {
        Ok(self.0.lock().get(session)?.message(id).cloned())
    }

    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        Ok(self.0.lock().get(session)?.messages(query))
    }

    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        let mut data = self.0.lock();
        let stored = data.get_mut(session)?;
        let mut references = BlobReferences::default();
        for message in messages {
            references.add(&message.json);
            stored.put_message(message);
        }
        data.add_blob_references(session, &references);
        Ok(())
    }

    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>> {
        Ok(self.0.lock().get(session)?.queue.clone())
    }

    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>> {
        let data = self.0.lock();
        let tenant = data.tenants.get(tenant);
        Ok(tenant.and_then(|tenant| tenant.keys.get(key)).map(|key| key.record.clone()))
    }

    async fn find_history(&self, digests: &[HistoryDigest]) -> Result<Vec<HistoryMatch>> {
        let data = self.0.lock();
        for digest in digests {
            let with_digest = |(_, mark): &&(SessionNumber, HistoryMark)| mark.digest == *digest;
            let mut found: Vec<_> = data.history.iter().filter(with_digest).copied().collect();
            if found.is_empty() {
                continue;
            }
            found.sort_unstable_by_key(|(session, mark)| Reverse((*session, mark.seq)));
            found.truncate(MAX_HISTORY_MATCHES);
            let to_match = |(session, mark)| {
                let record = &data.get(session)?.record;
                Ok(HistoryMatch {
                    session: record.key.clone(),
                    mark,
                    now: record.state.clone(),
                    updated_ms: record.updated_ms,
                })
            };
            return found.into_iter().map(to_match).collect();
        }
        Ok(Vec::new())
    }

    async fn begin_upload(&self) -> Result<UploadNumber> {
        Ok(UploadNumber(self.0.lock().begin_upload()))
    }

    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()> {
        self.0.lock().add_piece(upload.0, bytes)
    }

    fn abandon_upload(&self, upload: UploadNumber) {
        self.0.lock().uploads.remove(&upload.0);
    }

    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        self.0.lock().store_blob(new)
    }

    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        Ok(self.0.lock().blobs(tenant).and_then(|blobs| blobs.info(hash)))
    }

    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>> {
        Ok(self.0.lock().blobs_mut(tenant).touch(hash, now_ms))
    }

    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>> {
        Ok(self.0.lock().blobs(tenant).and_then(|blobs| blobs.piece(hash, from)))
    }

    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        self.0.lock().blobs_mut(tenant).set_type(hash, media_type);
        Ok(())
    }

    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        Ok(self.0.lock().blobs_mut(tenant).delete(hash))
    }

    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64> {
        Ok(self.0.lock().blobs(tenant).map_or(0, |blobs| blobs.bytes))
    }

    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport> {
        Ok(self.0.lock().retain(retention))
    }

    async fn check_health(&self) -> Result<()> {
        Ok(())
    }
}
