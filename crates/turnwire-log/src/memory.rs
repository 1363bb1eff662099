//! An engine that forgets everything when it ends.
//!
//! ```
//! use turnwire_log::MemoryStore;
//! use turnwire_log::store::{NewSession, SessionKey, Store};
//! # use turnwire_core::Fields;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = MemoryStore::default();
//! let (session, made) = store
//!     .create(NewSession {
//!         key: SessionKey::new("alice", "chat-1"),
//!         agent: "demo".to_owned(),
//!         title: String::new(),
//!         metadata: Fields::default(),
//!         now_ms: 0,
//!     })
//!     .await?;
//! assert!(made);
//! assert_eq!(store.session(&session.key).await?, Some(session));
//! # Ok::<(), turnwire_log::Error>(())
//! # }).unwrap();
//! ```

mod blobs;
mod kept;
mod retain;
mod search;

use crate::cost::{AgentTotals, Spending};
use crate::error::{Error, Result};
use crate::reach::{Reach, SessionRule};
use crate::store::{
    Append, BlobInfo, Fence, KeyRecord, Lease, Lines, MessageQuery, NewBlob, NewSession, Pending,
    Queued, References, Removed, Retention, SessionKey, SessionNo, SessionPatch, SessionQuery,
    SessionRecord, SessionState, Store, StoredMessage, UploadNo, new_epoch,
};
use async_trait::async_trait;
use blobs::Blobs;
use bytes::Bytes;
use kept::Kept;
use parking_lot::Mutex;
use search::Words;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::Seq;

/// An engine in memory: plain maps under one lock, so that whatever is written is there, whole,
/// when the call returns.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Data>);

#[derive(Debug, Default)]
struct Data {
    last_no: i64,
    last_fence: u64,
    /// In the order of tenants and ids, so that a list looks only at what is within reach.
    names: BTreeMap<SessionKey, SessionNo>,
    sessions: BTreeMap<SessionNo, Kept>,
    tenants: HashMap<Arc<str>, Tenant>,
    last_upload: i64,
    /// The pieces of blobs that are not whole yet.
    uploads: HashMap<i64, Vec<Bytes>>,
}

/// What a tenant has beside its sessions.
#[derive(Debug, Default)]
struct Tenant {
    keys: HashMap<String, Key>,
    blobs: Blobs,
}

#[derive(Debug)]
struct Key {
    record: KeyRecord,
    /// The session with which it goes.
    of: SessionNo,
    at_ms: i64,
}

impl Data {
    fn get(&self, session: SessionNo) -> Result<&Kept> {
        self.sessions.get(&session).ok_or(Error::NoSession)
    }

    fn get_mut(&mut self, session: SessionNo) -> Result<&mut Kept> {
        self.sessions.get_mut(&session).ok_or(Error::NoSession)
    }

    fn create(&mut self, new: NewSession) -> Result<(SessionRecord, bool)> {
        if let Some(no) = self.names.get(&new.key) {
            return Ok((self.get(*no)?.record.clone(), false));
        }
        let epoch = new_epoch()?;
        self.last_no += 1;
        let no = SessionNo(self.last_no);
        let record = SessionRecord {
            no,
            key: new.key,
            epoch,
            agent: new.agent,
            title: new.title,
            metadata: new.metadata,
            created_ms: new.now_ms,
            updated_ms: new.now_ms,
            first: Seq::FIRST,
            last: 0,
            state: SessionState::default(),
        };
        self.names.insert(record.key.clone(), no);
        self.sessions.insert(no, Kept::new(record.clone()));
        let mut references = References::default();
        references.add_fields(&record.metadata);
        self.refer(no, &references);
        Ok((record, true))
    }

    /// The sessions of a tenant that a caller reaches.
    fn reached(&self, tenant: &Arc<str>, reach: &Reach) -> Vec<&Kept> {
        let prefixed = |prefix: &str| {
            let from = SessionKey::new(Arc::clone(tenant), prefix);
            let names = self.names.range(from..);
            names.take_while({
                let prefix = prefix.to_owned();
                move |(key, _)| key.tenant == *tenant && key.id.starts_with(&*prefix)
            })
        };
        let mut found = Vec::new();
        match reach.rules() {
            None => found.extend(prefixed("").map(|(_, no)| no)),
            Some(rules) => {
                for rule in rules {
                    match rule {
                        SessionRule::Id(id) => {
                            let key = SessionKey::new(Arc::clone(tenant), &**id);
                            found.extend(self.names.get(&key));
                        }
                        SessionRule::Prefix(prefix) => {
                            found.extend(prefixed(prefix).map(|(_, no)| no));
                        }
                    }
                }
            }
        }
        found.into_iter().filter_map(|no| self.sessions.get(no)).collect()
    }

    fn list(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        let mut words = query.search.as_ref().map(|search| Words::new(search, query.max_time));
        let place = |kept: &Kept| Reverse((kept.record.updated_ms, kept.record.no));
        let mut fitting = self.reached(&query.tenant, &query.reach);
        fitting.retain(|kept| {
            query.status.is_none_or(|status| kept.record.state.status == status)
                && query.after.is_none_or(|after| place(kept) > Reverse(after))
        });
        fitting.sort_unstable_by_key(|kept| place(kept));
        let mut found = Vec::new();
        for kept in fitting {
            if found.len() == query.limit {
                break;
            }
            let fits = match &mut words {
                Some(words) => words.are_in(kept)?,
                None => true,
            };
            if fits {
                found.push(kept.record.clone());
            }
        }
        Ok(found)
    }

    fn delete(&mut self, session: SessionNo) -> Result<()> {
        let kept = self.sessions.remove(&session).ok_or(Error::NoSession)?;
        self.names.remove(&kept.record.key);
        for tenant in self.tenants.values_mut() {
            tenant.keys.retain(|_, key| key.of != session);
        }
        self.blobs_mut(&kept.record.key.tenant).forget(session, crate::log::now_ms());
        Ok(())
    }

    fn append(&mut self, mut append: Append) -> Result<()> {
        let (of, at_ms, key) = (append.session, append.now_ms, append.key.take());
        let references = append.references();
        self.get_mut(of)?.append(append)?;
        self.refer(of, &references);
        if let Some(record) = key {
            let tenant = self.tenants.entry(Arc::clone(&record.tenant)).or_default();
            tenant.keys.insert(record.key.clone(), Key { record, of, at_ms });
        }
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.0.lock().create(new)
    }

    async fn create_waiting(
        &self,
        new: NewSession,
        waits: Queued,
    ) -> Result<(SessionRecord, bool)> {
        let mut data = self.0.lock();
        let (record, made) = data.create(new)?;
        if made {
            let mut references = References::default();
            references.add(&waits.json);
            data.refer(record.no, &references);
            data.get_mut(record.no)?.queue.push(waits);
        }
        Ok((record, made))
    }

    async fn session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        let data = self.0.lock();
        let no = data.names.get(key);
        Ok(no.and_then(|no| data.sessions.get(no)).map(|kept| kept.record.clone()))
    }

    async fn sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        self.0.lock().list(query)
    }

    async fn totals(
        &self,
        tenant: &str,
        reach: &Reach,
        _: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
        let data = self.0.lock();
        let mut totals: BTreeMap<String, AgentTotals> = BTreeMap::new();
        // Here to add up all sessions costs less than a page of them does elsewhere.
        for kept in data.reached(&tenant.into(), reach) {
            let agent = totals.entry(kept.record.agent.clone()).or_default();
            agent.change(&Spending::default(), &Spending::of(&kept.record.state));
        }
        Ok(totals)
    }

    async fn all_sessions(&self, after: SessionNo, limit: usize) -> Result<Vec<SessionRecord>> {
        let data = self.0.lock();
        let behind = data.sessions.range(SessionNo(after.0.saturating_add(1))..);
        Ok(behind.take(limit).map(|(_, kept)| kept.record.clone()).collect())
    }

    async fn open_sessions(&self) -> Result<Vec<SessionRecord>> {
        let data = self.0.lock();
        let open = |kept: &&Kept| kept.record.state.open_from.is_some() || !kept.queue.is_empty();
        Ok(data.sessions.values().filter(open).map(|kept| kept.record.clone()).collect())
    }

    async fn patch(&self, session: SessionNo, patch: SessionPatch) -> Result<SessionRecord> {
        let mut data = self.0.lock();
        let record = &mut data.get_mut(session)?.record;
        if let Some(title) = patch.title {
            record.title = title;
        }
        let mut references = References::default();
        if let Some(metadata) = patch.metadata {
            references.add_fields(&metadata);
            record.metadata = metadata;
        }
        let record = record.clone();
        data.refer(session, &references);
        Ok(record)
    }

    async fn delete(&self, session: SessionNo) -> Result<()> {
        self.0.lock().delete(session)
    }

    // Whoever asks has it: the time for which it was asked limits nobody here, because no other
    // process can see this store.
    async fn acquire(&self, session: SessionNo, _owner: &str, _ttl: Duration) -> Result<Lease> {
        let mut data = self.0.lock();
        let fence = Fence(data.last_fence + 1);
        data.get_mut(session)?.acquire(fence);
        data.last_fence = fence.0;
        Ok(Lease { fence })
    }

    async fn renew(&self, session: SessionNo, lease: Lease, _ttl: Duration) -> Result<()> {
        self.0.lock().get(session)?.check(lease.fence)
    }

    fn append(&self, append: Append) -> Pending<()> {
        Box::pin(ready(self.0.lock().append(append)))
    }

    async fn read(&self, session: SessionNo, from: Seq, max_bytes: usize) -> Result<Vec<Lines>> {
        self.0.lock().get(session)?.read(from, max_bytes)
    }

    async fn wait(&self, session: SessionNo, after: u64) -> Result<u64> {
        let mut end = self.0.lock().get(session)?.end.subscribe();
        // The sender goes with the session.
        end.wait_for(|last| *last > after).await.map(|last| *last).map_err(|_| Error::NoSession)
    }

    async fn message(&self, session: SessionNo, id: &str) -> Result<Option<StoredMessage>> {
        Ok(self.0.lock().get(session)?.message(id).cloned())
    }

    async fn messages(
        &self,
        session: SessionNo,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        Ok(self.0.lock().get(session)?.messages(query))
    }

    async fn replace_messages(
        &self,
        session: SessionNo,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        let mut data = self.0.lock();
        let kept = data.get_mut(session)?;
        let mut references = References::default();
        for message in messages {
            references.add(&message.json);
            kept.put_message(message);
        }
        data.refer(session, &references);
        Ok(())
    }

    async fn queued(&self, session: SessionNo) -> Result<Vec<Queued>> {
        Ok(self.0.lock().get(session)?.queue.clone())
    }

    async fn key(&self, tenant: &str, key: &str) -> Result<Option<KeyRecord>> {
        let data = self.0.lock();
        let tenant = data.tenants.get(tenant);
        Ok(tenant.and_then(|tenant| tenant.keys.get(key)).map(|key| key.record.clone()))
    }

    async fn begin_upload(&self) -> Result<UploadNo> {
        Ok(UploadNo(self.0.lock().begin_upload()))
    }

    async fn add_piece(&self, upload: UploadNo, bytes: Bytes) -> Result<()> {
        self.0.lock().add_piece(upload.0, bytes)
    }

    fn abandon_upload(&self, upload: UploadNo) {
        self.0.lock().uploads.remove(&upload.0);
    }

    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        self.0.lock().store_blob(new)
    }

    async fn blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
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

    async fn blob_piece(&self, tenant: &str, hash: [u8; 32], from: u64) -> Result<Option<Bytes>> {
        Ok(self.0.lock().blobs(tenant).and_then(|blobs| blobs.piece(hash, from)))
    }

    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        self.0.lock().blobs_mut(tenant).set_type(hash, media_type);
        Ok(())
    }

    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        Ok(self.0.lock().blobs_mut(tenant).delete(hash))
    }

    async fn blob_bytes(&self, tenant: &str) -> Result<u64> {
        Ok(self.0.lock().blobs(tenant).map_or(0, |blobs| blobs.bytes))
    }

    async fn retain(&self, retention: Retention) -> Result<Removed> {
        Ok(self.0.lock().retain(retention))
    }

    async fn healthy(&self) -> Result<()> {
        Ok(())
    }
}
