//! Copies from a database, and into an empty one.

use super::append::{StateColumns, has_all_lines};
use super::connection::{Connection, Database, Transaction, transact};
use super::errors::PostgresError;
use super::messages;
use super::schema::{self, COPYING};
use super::totals::{self, UsageChange};
use super::url::Wanted;
use super::{PostgresStore, blobs, check_durability, search, sessions, text};
use crate::client_history::HistoryDigest;
use crate::copy::{
    CopyStore, SessionDetails, SessionEnd, SessionPart, StoreSize, StoredBlob, StoredKey,
    unfinished_state,
};
use crate::cost::SessionUsage;
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::{BlobInfo, HistoryMark, IdempotencyRecord, SessionNumber, SessionRecord};
use async_trait::async_trait;
use std::borrow::Cow;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use turnwire_core::Seq;

impl PostgresStore {
    /// Opens a store to copy it: read-only. `Locked` if a server uses it, as far as that can be seen.
    pub async fn open_source(url: &str) -> Result<Self> {
        let shared = Self::connect(url, Wanted::CopySource)?;
        schema::check(&shared.database).await?;
        refuse_served(&shared.database).await?;
        Ok(Self { shared, appends: None })
    }

    /// Begins a copy to a database without sessions, or continues one. Until
    /// [`finish_copy`](Self::finish_copy) no server uses it.
    pub async fn open_copy(url: &str) -> Result<Self> {
        let shared = Self::connect(url, Wanted::CopyTarget)?;
        check_durability(&shared.database).await?;
        begin(&shared.database).await?;
        Ok(Self { shared, appends: None })
    }

    /// Ends a copy: from now on servers can use it. Everything must have been copied.
    pub async fn finish_copy(&self) -> Result<()> {
        let database = self.database();
        transact!(database, |tx| finish(&tx).await)
    }

    /// How many connections other programs of Turnwire have to the database.
    pub async fn count_other_connections(&self) -> Result<u64> {
        let connection = self.database().connect().await?;
        let count = "SELECT count(*) FROM pg_stat_activity
                     WHERE application_name = 'turnwire' AND datname = current_database()";
        let rows = connection.query(count, &[]).await;
        let read =
            |rows: Vec<Row>| Ok(rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?);
        rows.and_then(read)
            .map(sql_integers::from_sql)
            .map_err(|error| self.database().explain(error))
    }
}

/// Refuses a database that a server uses.
async fn refuse_served(database: &Database) -> Result<()> {
    let connection = database.connect().await?;
    let served = "SELECT count(*), max(extract(epoch FROM expires_at - clock_timestamp()))::int8
                  FROM turnwire.nodes WHERE NOT is_dead AND expires_at > clock_timestamp()";
    let read = |rows: Vec<Row>| {
        let Some(row) = rows.first() else { return Ok(None) };
        let seconds: Option<i64> = row.try_get(1)?;
        Ok(seconds.map(|seconds| (row.try_get::<_, i64>(0).unwrap_or(1), seconds)))
    };
    let found = connection.query(served, &[]).await.and_then(read);
    match found.map_err(|error| database.explain(error))? {
        Some((servers, seconds)) => Err(Error::Locked(format!(
            "{servers} of our servers use {}; stop all of them, and wait {} s if one was killed",
            database.name(),
            seconds + 1
        ))),
        None => Ok(()),
    }
}

/// Marks a database without sessions as one that is copied to, unless it is marked already.
async fn begin(database: &Database) -> Result<()> {
    if let Some(version) = copied_version(database).await? {
        if version == schema::latest_version() {
            return Ok(());
        }
        return Err(Error::Version(format!(
            "the copy to {} was begun by another version of Turnwire; continue it with that one, or remove the schema \
             `turnwire` and copy again",
            database.name()
        )));
    }
    schema::prepare(database).await?;
    let connection = database.connect().await?;
    let mark = "UPDATE turnwire.store SET application = $1
                WHERE NOT EXISTS (SELECT 1 FROM turnwire.sessions) AND NOT EXISTS (SELECT 1 FROM turnwire.blobs)";
    let marked = connection.execute(mark, &[(&COPYING, Type::TEXT)]).await;
    match marked.map_err(|error| database.explain(error))? {
        0 => Err(Error::Store(format!(
            "{} has sessions or blobs, and a copy needs a database without; choose another database. Nothing was \
             changed",
            database.name()
        ))),
        _ => Ok(()),
    }
}

/// The version of the tables, if a copy was begun.
async fn copied_version(database: &Database) -> Result<Option<i64>> {
    let connection = database.connect().await?;
    let mark = "SELECT version FROM turnwire.store WHERE application = $1";
    // If there are no such tables, that is found out later.
    let rows = connection.query(mark, &[(&COPYING, Type::TEXT)]).await.unwrap_or_default();
    let read = |row: &Row| Ok(row.try_get(0)?);
    rows.first().map(read).transpose().map_err(|error: PostgresError| database.explain(error))
}

async fn finish(tx: &Transaction) -> Result<(), PostgresError> {
    // The next session gets the number after the last.
    tx.query(
        "SELECT setval(pg_get_serial_sequence('turnwire.sessions', 'no'), coalesce(max(no), 1), max(no) IS NOT NULL)
         FROM turnwire.sessions",
        &[],
    )
    .await?;
    tx.execute("UPDATE turnwire.store SET application = 'turnwire'", &[]).await?;
    Ok(())
}

#[async_trait]
impl CopyStore for PostgresStore {
    async fn count_rows(&self) -> Result<StoreSize> {
        let connection = self.database().connect().await?;
        let count = "SELECT (SELECT count(*) FROM turnwire.sessions), (SELECT count(*) FROM turnwire.blobs)";
        let read = |rows: Vec<Row>| {
            let number = |at: usize| rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(at));
            Ok(StoreSize {
                sessions: sql_integers::from_sql(number(0)?),
                blobs: sql_integers::from_sql(number(1)?),
            })
        };
        let rows = connection.query(count, &[]).await;
        rows.and_then(read).map_err(|error| self.database().explain(error))
    }

    async fn read_details(&self, session: SessionNumber) -> Result<SessionDetails> {
        let connection = self.database().connect().await?;
        let read = read_details(&connection, session).await;
        read.map_err(|error| self.database().explain(error))
    }

    async fn list_keys(
        &self,
        session: SessionNumber,
        after: Option<&IdempotencyRecord>,
        limit: usize,
    ) -> Result<Vec<StoredKey>> {
        let connection = self.database().connect().await?;
        let tenant = after.map(|after| text::to_sql(&after.tenant));
        let key = after.map(|after| text::index_key(&after.key));
        let rows = connection
            .query(
                "SELECT tenant, name, fingerprint, response, ms FROM turnwire.keys
                 WHERE session = $1 AND ($2 IS NULL OR (tenant, key) > ($2, $3)) ORDER BY tenant, key LIMIT $4",
                &[
                    (&session.0, Type::INT8),
                    (&tenant, Type::TEXT),
                    (&key, Type::BYTEA),
                    (&sql_integers::count_to_sql(limit), Type::INT8),
                ],
            )
            .await;
        let read = |row: &Row| {
            let record = IdempotencyRecord {
                tenant: text::from_sql(row.try_get(0)?).into(),
                key: text::from_sql(row.try_get(1)?),
                fingerprint: row.try_get::<_, &[u8]>(2)?.try_into().unwrap_or_default(),
                response: text::from_sql(row.try_get(3)?),
            };
            Ok(StoredKey { record, stored_ms: row.try_get(4)? })
        };
        rows.and_then(|rows| rows.iter().map(read).collect())
            .map_err(|error| self.database().explain(error))
    }

    async fn list_blobs(
        &self,
        after: Option<&StoredBlob>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>> {
        let connection = self.database().connect().await?;
        let tenant = after.map(|after| text::to_sql(&after.tenant));
        let hash = after.map(|after| &after.hash[..]);
        let rows = connection
            .query(
                "SELECT tenant, hash, media_type, size, unused_ms FROM turnwire.blobs
                 WHERE $1 IS NULL OR (tenant, hash) > ($1, $2) ORDER BY tenant, hash LIMIT $3",
                &[
                    (&tenant, Type::TEXT),
                    (&hash, Type::BYTEA),
                    (&sql_integers::count_to_sql(limit), Type::INT8),
                ],
            )
            .await;
        let read = |row: &Row| {
            let media_type = text::from_sql(row.try_get(2)?);
            Ok(StoredBlob {
                tenant: text::from_sql(row.try_get(0)?).into(),
                hash: read_hash(row, 1)?,
                info: BlobInfo { media_type, size: sql_integers::from_sql(row.try_get(3)?) },
                unused_ms: row.try_get(4)?,
            })
        };
        rows.and_then(|rows| rows.iter().map(read).collect())
            .map_err(|error| self.database().explain(error))
    }

    async fn write_parts(&self, parts: Vec<SessionPart>) -> Result<()> {
        let shard = self.shared.shard;
        transact!(self.database(), |tx| write_parts(&tx, shard, &parts).await)
    }
}

fn read_hash(row: &Row, at: usize) -> Result<[u8; 32], PostgresError> {
    Ok(row.try_get::<_, &[u8]>(at)?.try_into().unwrap_or_default())
}

async fn read_details(
    connection: &Connection,
    session: SessionNumber,
) -> Result<SessionDetails, PostgresError> {
    let param = [(&session.0 as _, Type::INT8)];
    let (times, history, references, messages) = tokio::try_join!(
        connection.query(
            "SELECT max(last), max(ms) FROM turnwire.segments WHERE session = $1 GROUP BY ms / 3600000 ORDER BY 1, 2",
            &param,
        ),
        connection.query(
            "SELECT digest, seq, client FROM turnwire.history WHERE session = $1 ORDER BY seq, no",
            &param,
        ),
        connection.query(
            "SELECT hash FROM turnwire.blob_references WHERE session = $1 ORDER BY hash",
            &param,
        ),
        connection.query("SELECT count(*) FROM turnwire.messages WHERE session = $1", &param),
    )?;
    let read_time = |row: &Row| Ok((sql_integers::head_from_sql(row.try_get(0)?), row.try_get(1)?));
    let read_mark = |row: &Row| {
        let digest = HistoryDigest(row.try_get::<_, &[u8]>(0)?.try_into().unwrap_or_default());
        let seq = sql_integers::seq_from_sql(row.try_get(1)?);
        Ok::<_, PostgresError>(HistoryMark { digest, seq, client: row.try_get(2)? })
    };
    let count = messages.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?;
    Ok(SessionDetails {
        times: times.iter().map(read_time).collect::<Result<_, PostgresError>>()?,
        history: history.iter().map(read_mark).collect::<Result<_, _>>()?,
        references: references.iter().map(|row| read_hash(row, 0)).collect::<Result<_, _>>()?,
        messages: sql_integers::from_sql(count),
    })
}

async fn write_parts(
    tx: &Transaction,
    shard: i64,
    parts: &[SessionPart],
) -> Result<(), PostgresError> {
    let records: Vec<&SessionRecord> = parts.iter().map(|part| &*part.record).collect();
    insert_unfinished(tx, &records).await?;
    hold_unfinished(tx, &records).await?;
    insert_events(tx, parts).await?;
    let (mut rows, mut keys, mut references) = (Vec::new(), Vec::new(), Vec::new());
    let mut ends = Vec::new();
    for part in parts {
        let record = &*part.record;
        let session = record.number.0;
        rows.extend(part.messages.iter().map(|message| (session, message)));
        keys.extend(part.keys.iter().map(|key| (session, key.stored_ms, &key.record)));
        references.push((session, &*record.key.tenant, &part.references));
        ends.extend(part.end.iter().map(|end| (record, end)));
    }
    messages::insert_or_replace(tx, &rows).await?;
    messages::insert_idempotency_records(tx, &keys).await?;
    blobs::add_references(tx, &references).await?;
    write_ends(tx, shard, &ends).await
}

/// Inserts sessions, except those that an earlier part inserted.
async fn insert_unfinished(
    tx: &Transaction,
    records: &[&SessionRecord],
) -> Result<(), PostgresError> {
    let texts = |field: fn(&SessionRecord) -> &str| -> Vec<Cow<'_, str>> {
        records.iter().map(|record| text::to_sql(field(record))).collect()
    };
    let numbers = |field: fn(&SessionRecord) -> i64| -> Vec<i64> {
        records.iter().map(|record| field(record)).collect()
    };
    let state = unfinished_state();
    let metadata: Vec<String> = records
        .iter()
        .map(|record| sessions::to_json(&record.metadata))
        .collect::<Result<_, _>>()?;
    tx.execute(
        "INSERT INTO turnwire.sessions (no, tenant, id, epoch, agent, title, metadata, created_ms, updated_ms, first,
                                        head, status, open_from, state)
         SELECT v.no, v.tenant, v.id, v.epoch, v.agent, v.title, v.metadata, v.created_ms, v.created_ms, v.first,
                v.first - 1, $10, $11, $12
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
              v (no, tenant, id, epoch, agent, title, metadata, created_ms, first)
         ON CONFLICT (no) DO NOTHING",
        &[
            (&numbers(|record| record.number.0), Type::INT8_ARRAY),
            (&texts(|record| &record.key.tenant), Type::TEXT_ARRAY),
            (&texts(|record| &record.key.id), Type::TEXT_ARRAY),
            (&texts(|record| &record.epoch), Type::TEXT_ARRAY),
            (&texts(|record| &record.agent), Type::TEXT_ARRAY),
            (&texts(|record| &record.title), Type::TEXT_ARRAY),
            (&metadata, Type::TEXT_ARRAY),
            (&numbers(|record| record.created_ms), Type::INT8_ARRAY),
            (&numbers(|record| sql_integers::position_to_sql(record.first)), Type::INT8_ARRAY),
            (&sessions::status_to_sql(state.status), Type::INT8),
            (&state.keep_from().map(sql_integers::position_to_sql), Type::INT8),
            (&sessions::to_json(&state)?, Type::TEXT),
        ],
    )
    .await?;
    Ok(())
}

/// Locks sessions; `OutOfOrder` if one is finished.
async fn hold_unfinished(
    tx: &Transaction,
    records: &[&SessionRecord],
) -> Result<(), PostgresError> {
    let numbers: Vec<i64> = records.iter().map(|record| record.number.0).collect();
    let state = sessions::to_json(&unfinished_state())?;
    let held =
        "SELECT no FROM turnwire.sessions WHERE no = ANY($1) AND state = $2 ORDER BY no FOR UPDATE";
    let held = tx.query(held, &[(&numbers, Type::INT8_ARRAY), (&state, Type::TEXT)]).await?;
    if held.len() == numbers.len() { Ok(()) } else { Err(Error::OutOfOrder.into()) }
}

/// Inserts events, which must continue at the heads of their sessions.
async fn insert_events(tx: &Transaction, parts: &[SessionPart]) -> Result<(), PostgresError> {
    let position = |seq: Seq| sql_integers::position_to_sql(seq);
    let (mut changed, mut before, mut heads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut owners, mut lasts, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes, mut times, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let session = part.record.number.0;
        let mut next: Option<Seq> = None;
        for (lines, ms) in &part.events {
            if next.is_some_and(|next| next != lines.first) || !has_all_lines(lines) {
                return Err(Error::OutOfOrder.into());
            }
            if next.is_none() {
                before.push(position(lines.first) - 1);
            }
            next = Some(lines.last().next());
            owners.push(session);
            lasts.push(position(lines.last()));
            counts.push(i64::from(lines.count));
            sizes.push(sql_integers::count_to_sql(lines.bytes.len()));
            times.push(*ms);
            bytes.push(&*lines.bytes);
        }
        if let Some(next) = next {
            changed.push(session);
            heads.push(position(next) - 1);
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let advance =
        "UPDATE turnwire.sessions s SET head = v.head FROM unnest($1, $2, $3) v (no, before, head)
                   WHERE s.no = v.no AND s.head = v.before";
    let params = [&changed, &before, &heads].map(|column| (column as _, Type::INT8_ARRAY));
    if tx.execute(advance, &params).await? != changed.len() as u64 {
        return Err(Error::OutOfOrder.into());
    }
    tx.execute(
        "INSERT INTO turnwire.segments (session, last, count, size, ms, bytes)
         SELECT * FROM unnest($1, $2, $3, $4, $5, $6)",
        &[
            (&owners, Type::INT8_ARRAY),
            (&lasts, Type::INT8_ARRAY),
            (&counts, Type::INT8_ARRAY),
            (&sizes, Type::INT8_ARRAY),
            (&times, Type::INT8_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

/// Finishes sessions.
async fn write_ends(
    tx: &Transaction,
    shard: i64,
    ends: &[(&SessionRecord, &SessionEnd)],
) -> Result<(), PostgresError> {
    if ends.is_empty() {
        return Ok(());
    }
    let (mut queued, mut marks, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut states, mut titled, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for (record, end) in ends {
        let session = record.number.0;
        queued.extend(end.queue.iter().map(|message| (session, message)));
        marks.extend(end.history.iter().map(|mark| (session, mark)));
        states.push((session, record.updated_ms, Some(&record.state)));
        changes.push(UsageChange {
            tenant: text::to_sql(&record.key.tenant).into_owned(),
            agent: text::to_sql(&record.agent).into_owned(),
            before: SessionUsage::default(),
            after: SessionUsage::from_state(&record.state),
        });
        if !record.title.is_empty() {
            titled.push(session);
            words.push(search::to_words(&record.title));
        }
    }
    messages::enqueue(tx, &queued).await?;
    messages::insert_history(tx, &marks).await?;
    tx.execute(
        "INSERT INTO turnwire.titles (session, words) SELECT v.session, v.words::tsvector
         FROM unnest($1, $2) v (session, words)",
        &[(&titled, Type::INT8_ARRAY), (&words, Type::TEXT_ARRAY)],
    )
    .await?;
    StateColumns::new(&states)?.write(tx).await?;
    totals::add_changes(tx, shard, &changes).await
}
