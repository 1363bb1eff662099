//! Copies from a file, and into a new one.

use super::batch::Batch;
use super::errors::SqliteError;
use super::file::{self, Access, FileContent};
use super::file_lock::FileLock;
use super::messages::{self, damaged_row};
use super::segment::Segment;
use super::sessions::{status_to_sql, to_json};
use super::tail::Tails;
use super::writer::Grouping;
use super::{Options, SqliteStore, append, blobs, history, schema, search, with_connection};
use crate::client_history::HistoryDigest;
use crate::copy::{
    CopyStore, SessionDetails, SessionPart, StoreSize, StoredBlob, StoredKey, unfinished_state,
};
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::{BlobInfo, HistoryMark, IdempotencyRecord, SessionNumber, SessionRecord};
use async_trait::async_trait;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use turnwire_core::Head;

/// The time in which events share a row.
const HOUR_MS: i64 = 60 * 60 * 1000;

/// A file that is being copied to. It gets its name when the copy is complete.
pub struct SqliteCopy {
    store: SqliteStore,
    path: PathBuf,
    partial: PathBuf,
}

impl SqliteStore {
    /// Opens a store to copy it: read-only, and locked, so that no server can use it meanwhile.
    pub fn open_source(path: impl AsRef<Path>) -> Result<Self> {
        let path = super::absolute(path.as_ref())?;
        if file::inspect_header(&path)? == FileContent::Nothing {
            return Err(Error::Store(format!("there is no store at {}", path.display())));
        }
        let lock = FileLock::acquire(&path)?;
        let mut store = Self::open_read_only(&path)?;
        with_connection(&path, Access::Inspect, |conn| {
            let version = schema::user_version(conn)?;
            if usize::try_from(version).is_ok_and(|version| version < schema::STEPS.len()) {
                return Err(Error::Version(format!(
                    "{} has the older format {version}, and a copy must not change it; start `turnwire serve` with it \
                     once, then stop it and copy",
                    path.display()
                ))
                .into());
            }
            Ok(())
        })?;
        store.source_lock = Some(lock);
        Ok(store)
    }
}

impl SqliteCopy {
    /// Begins a copy to a file that does not exist, or continues one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = super::absolute(path.as_ref())?;
        refuse_existing(&path)?;
        let partial = file::sibling_path(&path, ".copying");
        let store = SqliteStore::open(&partial, Options::default())?;
        Ok(Self { store, path, partial })
    }

    /// The store to copy to.
    pub fn store(&self) -> &SqliteStore {
        &self.store
    }

    /// Gives the file its name. Everything must have been copied.
    pub async fn finish(self) -> Result<()> {
        let Self { store, path, partial } = self;
        store.index_all().await?;
        let finish = move || {
            // With it, the lock is free.
            drop(store);
            with_connection(&partial, Access::Write, |conn| {
                Ok(conn.query_one("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
            })?;
            refuse_existing(&path)?;
            file::move_into_place(&partial, &path)?;
            file::remove_if_exists(&file::sibling_path(&partial, ".lock"))
        };
        let ended = |error| Err(Error::Store(format!("the copy failed: {error}")));
        tokio::task::spawn_blocking(finish).await.unwrap_or_else(ended)
    }
}

fn refuse_existing(path: &Path) -> Result<()> {
    super::backup::refuse_existing(path, "a copy never changes a file; choose another name")
}

#[async_trait]
impl CopyStore for SqliteStore {
    async fn count_rows(&self) -> Result<StoreSize> {
        let count = |conn: &Connection| {
            let count = |sql| conn.query_one(sql, [], |row| row.get(0)).map(sql_integers::from_sql);
            Ok(StoreSize {
                sessions: count("SELECT count(*) FROM sessions")?,
                blobs: count("SELECT count(*) FROM blobs")?,
            })
        };
        self.readers.query(count).await
    }

    async fn read_details(&self, session: SessionNumber) -> Result<SessionDetails> {
        let look = self.writing.is_none();
        let memory = move |conn: &Connection, tails: &mut Tails| {
            if look {
                tails.drop_moved(conn, session.0)?;
            }
            let rows = tails.rows_of(session.0).iter();
            Ok(rows.map(|row| (row.segment.head(), row.segment.ms)).collect())
        };
        let read = move |conn: &Connection, tail: Vec<_>| Ok(read_details(conn, session.0, tail)?);
        self.readers.read(memory, read).await
    }

    async fn list_keys(
        &self,
        session: SessionNumber,
        after: Option<&IdempotencyRecord>,
        limit: usize,
    ) -> Result<Vec<StoredKey>> {
        let (after, file) = (after.cloned(), self.shared.file.clone());
        let list = move |conn: &Connection| list_keys(conn, &file, session.0, after, limit);
        self.readers.query(list).await
    }

    async fn list_blobs(
        &self,
        after: Option<&StoredBlob>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>> {
        let after = after.cloned();
        self.readers.query(move |conn| Ok(list_blobs(conn, after, limit)?)).await
    }

    async fn write_parts(&self, parts: Vec<SessionPart>) -> Result<()> {
        let bytes = parts.iter().flat_map(|part| &part.events).map(|(lines, _)| lines.bytes.len());
        let bytes = bytes.sum();
        let write = move |batch: &mut Batch<'_>| {
            // Everything that can be refused is refused before anything is written.
            parts.iter().try_for_each(|part| check_part(batch, part))?;
            parts.iter().try_for_each(|part| write_part(batch, part))
        };
        self.write_bytes(Grouping::Alone, bytes, write).await
    }
}

fn read_details(
    conn: &Connection,
    session: i64,
    tail: Vec<(Head, i64)>,
) -> rusqlite::Result<SessionDetails> {
    let stored = conn
        .prepare_cached("SELECT last, ms FROM segments WHERE session = ?1")?
        .query_map([session], |row| Ok((sql_integers::head_from_sql(row.get(0)?), row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(Head, i64)>>>()?;
    let mut hours: BTreeMap<i64, (Head, i64)> = BTreeMap::new();
    for (last, ms) in stored.into_iter().chain(tail) {
        let hour = hours.entry(ms.div_euclid(HOUR_MS)).or_insert((last, ms));
        *hour = (hour.0.max(last), hour.1.max(ms));
    }
    let mut times: Vec<(Head, i64)> = hours.into_values().collect();
    times.sort_unstable();
    let history = conn
        .prepare_cached(
            "SELECT digest, seq, client FROM history WHERE session = ?1 ORDER BY seq, no",
        )?
        .query_map([session], |row| {
            let seq = sql_integers::seq_from_sql(row.get(1)?);
            Ok(HistoryMark { digest: HistoryDigest(row.get(0)?), seq, client: row.get(2)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let references = conn
        .prepare_cached("SELECT hash FROM blob_references WHERE session = ?1 ORDER BY hash")?
        .query_map([session], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let messages = conn
        .prepare_cached("SELECT count(*) FROM messages WHERE session = ?1")?
        .query_one([session], |row| row.get(0))?;
    Ok(SessionDetails { times, history, references, messages: sql_integers::from_sql(messages) })
}

fn list_keys(
    conn: &Connection,
    file: &Path,
    session: i64,
    after: Option<IdempotencyRecord>,
    limit: usize,
) -> Result<Vec<StoredKey>, SqliteError> {
    let mut rows = conn.prepare_cached(
        "SELECT tenant, key, fingerprint, answer, crc, ms FROM keys
         WHERE session = ?1 AND (?2 IS NULL OR (tenant, key) > (?2, ?3)) ORDER BY tenant, key LIMIT ?4",
    )?;
    let (tenant, key) = after.map(|after| (after.tenant, after.key)).unzip();
    let limit = sql_integers::count_to_sql(limit);
    rows.query_and_then(params![session, tenant.as_deref(), key, limit], |row| {
        let (record, is_intact) = messages::read_idempotency_row(row)?;
        if !is_intact {
            return Err(
                damaged_row(file, &format!("the stored response to `{}`", record.key)).into()
            );
        }
        Ok(StoredKey { record, stored_ms: row.get(5)? })
    })?
    .collect()
}

fn list_blobs(
    conn: &Connection,
    after: Option<StoredBlob>,
    limit: usize,
) -> rusqlite::Result<Vec<StoredBlob>> {
    let (tenant, hash) = after.map(|after| (after.tenant, after.hash)).unzip();
    conn.prepare_cached(
        "SELECT b.tenant, b.hash, b.media_type, ifnull(i.size, length(b.bytes)),
                iif(i.is_tracked, i.unused_ms, 9223372036854775807)
         FROM blobs b LEFT JOIN blob_info i ON i.blob = b.no
         WHERE ?1 IS NULL OR (b.tenant, b.hash) > (?1, ?2) ORDER BY b.tenant, b.hash LIMIT ?3",
    )?
    .query_map(params![tenant.as_deref(), hash, sql_integers::count_to_sql(limit)], |row| {
        let size = sql_integers::from_sql(row.get(3)?);
        Ok(StoredBlob {
            tenant: row.get::<_, String>(0)?.into(),
            hash: row.get(1)?,
            info: BlobInfo { media_type: row.get(2)?, size },
            unused_ms: row.get(4)?,
        })
    })?
    .collect()
}

/// Refuses a part that does not continue what is there.
fn check_part(batch: &mut Batch<'_>, part: &SessionPart) -> Result<(), SqliteError> {
    let session = part.record.number.0;
    let mut head = match batch.index_entry(session) {
        Ok(entry) => entry.last(),
        Err(SqliteError::Log(Error::NoSession)) => part.record.first.previous(),
        Err(error) => return Err(error),
    };
    let finished = batch
        .read_connection()
        .prepare_cached("SELECT 1 FROM sessions WHERE no = ?1 AND state <> ?2")?
        .exists(params![session, to_json(&unfinished_state())?])?;
    for (lines, ms) in &part.events {
        let segment = Segment::new(lines.clone(), *ms);
        if segment.first != head.next() || !segment.has_all_lines() {
            return Err(Error::OutOfOrder.into());
        }
        head = segment.head();
    }
    if finished { Err(Error::OutOfOrder.into()) } else { Ok(()) }
}

fn write_part(batch: &mut Batch<'_>, part: &SessionPart) -> Result<(), SqliteError> {
    let record = &*part.record;
    let session = record.number.0;
    let conn = batch.write_connection()?;
    insert_unfinished(conn, record)?;
    for (lines, ms) in &part.events {
        batch.push_segment(session, Segment::new(lines.clone(), *ms));
    }
    for message in &part.messages {
        messages::insert_or_replace(conn, session, message)?;
        batch.has_unindexed = true;
    }
    for key in &part.keys {
        messages::insert_idempotency_record(conn, session, key.stored_ms, &key.record)?;
    }
    blobs::add_references(batch, session, &part.references)?;
    if let Some(end) = &part.end {
        for queued in &end.queue {
            messages::enqueue(conn, session, queued)?;
        }
        for mark in &end.history {
            history::insert(conn, session, mark)?;
        }
        if !record.title.is_empty() {
            search::mark_unindexed(conn, -session)?;
            batch.has_unindexed = true;
        }
        append::set_state(conn, session, record.updated_ms, Some(&record.state))?;
    }
    Ok(())
}

/// Inserts a session, unless an earlier part did.
fn insert_unfinished(conn: &Connection, record: &SessionRecord) -> Result<(), SqliteError> {
    let state = unfinished_state();
    conn.prepare_cached(
        "INSERT INTO sessions (no, tenant, id, epoch, agent, title, metadata, created_ms, updated_ms, first, status,
                               open_from, state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (no) DO NOTHING",
    )?
    .execute(params![
        record.number.0,
        &*record.key.tenant,
        &*record.key.id,
        record.epoch,
        record.agent,
        record.title,
        to_json(&record.metadata)?,
        record.created_ms,
        sql_integers::position_to_sql(record.first),
        status_to_sql(state.status),
        state.keep_from().map(sql_integers::position_to_sql),
        to_json(&state)?,
    ])?;
    Ok(())
}
