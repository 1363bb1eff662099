//! What every engine does, done here.

use super::batch::Batch;
use super::events::Page;
use super::fault::Fault;
use super::readers::Bound;
use super::tail::Tails;
use super::writer::{Company, Job};
use super::{SqliteStore, blobs, chores, events, gone, messages, retain, sessions, totals};
use crate::cost::AgentTotals;
use crate::error::{Error, Result};
use crate::reach::Reach;
use crate::store::{
    Append, BlobInfo, KeyRecord, Lease, Lines, MessageQuery, NewBlob, NewSession, Pending, Queued,
    References, Removed, Retention, SessionKey, SessionNo, SessionPatch, SessionQuery,
    SessionRecord, Store, StoredMessage, UploadNo,
};
use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use turnwire_core::Seq;

/// How often somebody who only looks asks whether there is more.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Makes a session, or finds it.
fn make(batch: &mut Batch<'_>, new: &NewSession) -> Result<(SessionRecord, bool), Fault> {
    if let Some(found) = sessions::by_key(batch.look(), &new.key, batch)? {
        return Ok((found, false));
    }
    batch.has_words |= !new.title.is_empty();
    let conn = batch.write()?;
    let record = sessions::create(conn, new, batch)?;
    let mut references = References::default();
    references.add_fields(&new.metadata);
    blobs::refer(batch, record.no.0, &references)?;
    Ok((record, true))
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, new: NewSession) -> Result<(SessionRecord, bool)> {
        self.write(Company::Any, move |batch| make(batch, &new)).await
    }

    async fn create_waiting(
        &self,
        new: NewSession,
        waits: Queued,
    ) -> Result<(SessionRecord, bool)> {
        self.write(Company::Any, move |batch| {
            let (record, made) = make(batch, &new)?;
            if made {
                messages::enqueue(batch.write()?, record.no.0, &waits)?;
                let mut references = References::default();
                references.add(&waits.json);
                blobs::refer(batch, record.no.0, &references)?;
            }
            Ok((record, made))
        })
        .await
    }

    async fn session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        let key = key.clone();
        let look =
            move |conn: &Connection, tails: &mut Tails| Ok(sessions::by_key(conn, &key, &*tails)?);
        self.readers.read(look, |_, found| Ok(found)).await
    }

    async fn sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
        let bound = Bound {
            deadline: query.max_time.and_then(|time| Instant::now().checked_add(time)),
            steps: self.query_steps,
        };
        if query.search.is_some() {
            self.index_until(bound.deadline).await;
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

    async fn totals(
        &self,
        tenant: &str,
        reach: &Reach,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>> {
        let deadline = max_time.and_then(|time| Instant::now().checked_add(time));
        let bound = Bound { deadline, steps: self.query_steps };
        let (tenant, reach) = (tenant.to_owned(), reach.clone());
        if let Some(rules) = reach.rules().map(<[_]>::to_vec) {
            let sum = move |conn: &Connection, ()| Ok(totals::within_reach(conn, &tenant, &rules)?);
            return self.readers.search(bound, |_, _| Ok(()), sum).await;
        }
        // Sessions of an earlier version are counted in the background; whoever asks first helps.
        while self.readers.query(|conn| Ok(totals::is_behind(conn)?)).await? {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TooSlow);
            }
            self.write(Company::Any, |batch| totals::step(batch.write()?)).await?;
        }
        let read = move |conn: &Connection, ()| Ok(totals::of_tenant(conn, &tenant)?);
        self.readers.list(bound, |_, _| Ok(()), read).await
    }

    async fn all_sessions(&self, after: SessionNo, limit: usize) -> Result<Vec<SessionRecord>> {
        let query = move |conn: &Connection, ends| Ok(sessions::all(conn, after, limit, &ends)?);
        self.readers.read(|_, tails| Ok(tails.ends()), query).await
    }

    async fn open_sessions(&self) -> Result<Vec<SessionRecord>> {
        let list = |conn: &Connection, ends| Ok(sessions::open(conn, &ends)?);
        self.readers.read(|_, tails| Ok(tails.ends()), list).await
    }

    async fn patch(&self, session: SessionNo, patch: SessionPatch) -> Result<SessionRecord> {
        self.write(Company::Any, move |batch| {
            batch.known(session.0)?;
            batch.has_words |= patch.title.is_some();
            let conn = batch.write()?;
            let record = sessions::patch(conn, session, &patch, batch)?;
            let mut references = References::default();
            patch.metadata.iter().for_each(|metadata| references.add_fields(metadata));
            blobs::refer(batch, session.0, &references)?;
            Ok(record)
        })
        .await
    }

    async fn delete(&self, session: SessionNo) -> Result<()> {
        self.write(Company::None, move |batch| chores::delete(batch, session.0)).await
    }

    // Nobody else can have the file, so a lease ends only when somebody in this process takes it.
    async fn acquire(&self, session: SessionNo, _owner: &str, _ttl: Duration) -> Result<Lease> {
        self.write(Company::Any, move |batch| {
            batch.known(session.0)?;
            Ok(Lease { fence: batch.book.acquire(session.0) })
        })
        .await
    }

    async fn renew(&self, session: SessionNo, lease: Lease, _ttl: Duration) -> Result<()> {
        self.write(Company::Any, move |batch| Ok(batch.known(session.0)?.check(lease.fence)?)).await
    }

    fn append(&self, append: Append) -> Pending<()> {
        let (answer, answered) = oneshot::channel();
        let sent = self.send(Job::Append(Box::new(append), answer));
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            sent?;
            answered.await.unwrap_or_else(|_| Err(gone(&shared.file)))
        })
    }

    async fn read(&self, session: SessionNo, from: Seq, max_bytes: usize) -> Result<Vec<Lines>> {
        if self.writing.is_some() {
            let memory = self.shared.tails.lock().glimpse(session.0, from.get(), max_bytes);
            if memory.first.is_some_and(|first| first <= from.get()) {
                let mut page = Page::new(from, max_bytes);
                if page.push_pieces(&memory.pieces).is_ok() {
                    return Ok(page.finish());
                }
            }
        }
        let look = self.writing.is_none();
        let file = self.shared.file.clone();
        let memory = move |conn: &Connection, tails: &mut Tails| {
            if look {
                tails.settle(conn, session.0)?;
            }
            Ok(tails.glimpse(session.0, from.get(), max_bytes))
        };
        let query = move |conn: &Connection, memory| {
            events::read(conn, &file, session.0, from, max_bytes, &memory)
        };
        self.readers.read(memory, query).await
    }

    async fn wait(&self, session: SessionNo, after: u64) -> Result<u64> {
        // Entered before the end is looked up, so that nothing falls in between.
        let mut waiter = self.shared.waits.enter(session.0);
        loop {
            let last = self.end(session).await?;
            if last > after {
                return Ok(last);
            }
            if self.writing.is_some() {
                return waiter.until_behind(after).await;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn message(&self, session: SessionNo, id: &str) -> Result<Option<StoredMessage>> {
        let (id, file) = (id.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| messages::get(conn, &file, session.0, &id)).await
    }

    async fn messages(
        &self,
        session: SessionNo,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>> {
        let (query, file) = (query.clone(), self.shared.file.clone());
        self.readers.query(move |conn| messages::list(conn, &file, session.0, &query)).await
    }

    async fn replace_messages(
        &self,
        session: SessionNo,
        messages: Vec<StoredMessage>,
    ) -> Result<()> {
        self.write(Company::Any, move |batch| {
            batch.known(session.0)?;
            batch.has_words = true;
            let conn = batch.write()?;
            let mut references = References::default();
            for message in &messages {
                messages::put(conn, session.0, message)?;
                references.add(&message.json);
            }
            blobs::refer(batch, session.0, &references)
        })
        .await
    }

    async fn queued(&self, session: SessionNo) -> Result<Vec<Queued>> {
        let file = self.shared.file.clone();
        self.readers.query(move |conn| messages::queued(conn, &file, session.0)).await
    }

    async fn key(&self, tenant: &str, key: &str) -> Result<Option<KeyRecord>> {
        let (tenant, key, file) = (tenant.to_owned(), key.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| messages::key(conn, &file, &tenant, &key)).await
    }

    async fn begin_upload(&self) -> Result<UploadNo> {
        self.write(Company::Any, blobs::begin_upload).await.map(UploadNo)
    }

    async fn add_piece(&self, upload: UploadNo, bytes: Bytes) -> Result<()> {
        let size = bytes.len();
        let add = move |batch: &mut Batch<'_>| blobs::add_piece(batch, upload.0, &bytes);
        self.write_bytes(Company::Any, size, add).await.map(drop)
    }

    fn abandon_upload(&self, upload: UploadNo) {
        let abandon = move |batch: &mut Batch<'_>| blobs::abandon(batch, upload.0);
        let (job, _) = Job::task(Company::Any, abandon);
        // Whoever opens the store again removes it.
        let _ = self.send(job);
    }

    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        let size = new.bytes.len();
        self.write_bytes(Company::Any, size, move |batch| blobs::store(batch, &new)).await
    }

    async fn blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>> {
        let (tenant, file) = (tenant.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| blobs::info(conn, &file, &tenant, hash)).await
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
            self.write(Company::Any, touch).await?;
        }
        self.blob_info(tenant, hash).await
    }

    async fn blob_piece(&self, tenant: &str, hash: [u8; 32], from: u64) -> Result<Option<Bytes>> {
        let (tenant, file) = (tenant.to_owned(), self.shared.file.clone());
        self.readers.query(move |conn| blobs::read(conn, &file, &tenant, hash, from)).await
    }

    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()> {
        let (tenant, media_type) = (tenant.to_owned(), media_type.to_owned());
        self.write(Company::Any, move |batch| blobs::set_type(batch, &tenant, hash, &media_type))
            .await
    }

    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool> {
        let tenant = tenant.to_owned();
        self.write(Company::Any, move |batch| blobs::delete(batch, &tenant, hash)).await
    }

    async fn blob_bytes(&self, tenant: &str) -> Result<u64> {
        let tenant = tenant.to_owned();
        self.readers.query(move |conn| Ok(blobs::usage(conn, &tenant)?)).await
    }

    async fn retain(&self, retention: Retention) -> Result<Removed> {
        retain::run(self, retention).await
    }

    async fn healthy(&self) -> Result<()> {
        self.write(Company::Any, |batch| {
            let conn = batch.write()?;
            conn.prepare_cached("INSERT INTO probe VALUES (zeroblob(32768))")?.execute([])?;
            conn.prepare_cached("DELETE FROM probe")?.execute([])?;
            Ok(())
        })
        .await
    }
}
