//! Rows of finished messages, queued messages, idempotency keys and conversation states.

use super::blobs;
use super::connection::{Connection, Database, Param, Transaction, transact};
use super::errors::PostgresError;
use super::search;
use super::sessions;
use super::text;
use crate::client_history::HistoryDigest;
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::{
    BlobReferences, HistoryMark, HistoryMatch, IdempotencyRecord, MAX_HISTORY_MATCHES,
    MessageQuery, QueuedMessage, SessionKey, SessionNumber, StoredMessage,
};
use bytes::Bytes;
use std::collections::HashMap;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use turnwire_core::Seq;

/// The columns of [`read_message`].
macro_rules! columns {
    () => {
        "id, first, last, event_id, of_sub_agent, superseded, fold_version, json, text"
    };
}

fn read_message(row: &Row) -> Result<StoredMessage, PostgresError> {
    Ok(StoredMessage {
        id: text::from_sql(row.try_get(0)?),
        first: sql_integers::seq_from_sql(row.try_get(1)?),
        last: sql_integers::seq_from_sql(row.try_get(2)?),
        event_id: text::from_sql(row.try_get(3)?),
        of_sub_agent: row.try_get(4)?,
        superseded: row.try_get(5)?,
        fold_version: u32::try_from(row.try_get::<_, i64>(6)?).unwrap_or(u32::MAX),
        json: Bytes::from(row.try_get::<_, Vec<u8>>(7)?),
        text: text::from_sql(row.try_get(8)?),
    })
}

async fn query_messages(
    database: &Database,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<StoredMessage>> {
    let connection = database.connect().await?;
    let rows = connection.query(sql, params).await;
    let read = |rows: Vec<Row>| rows.iter().map(read_message).collect();
    rows.and_then(read).map_err(|error| database.explain(error))
}

pub(super) async fn find(
    database: &Database,
    session: SessionNumber,
    id: &str,
) -> Result<Option<StoredMessage>> {
    let key = text::index_key(id);
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM turnwire.messages WHERE session = $1 AND key = $2
          AND EXISTS (SELECT 1 FROM turnwire.sessions WHERE no = $1)"
    );
    let params: [Param<'_>; 2] = [(&session.0, Type::INT8), (&key, Type::BYTEA)];
    Ok(query_messages(database, sql, &params).await?.pop())
}

/// Lists messages: those after a seq from there on, otherwise the last ones.
macro_rules! list {
    ($order:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM (
                SELECT *, sum(size) OVER (ORDER BY first ",
            $order,
            ", key ",
            $order,
            ") - size AS before FROM (
                    SELECT * FROM turnwire.messages
                    WHERE session = $1 AND first > $2 AND first < $3 AND of_sub_agent <= $4
                      AND EXISTS (SELECT 1 FROM turnwire.sessions WHERE no = $1)
                    ORDER BY first ",
            $order,
            ", key ",
            $order,
            " LIMIT $5) page
             ) sized WHERE before < $6 OR before = 0 ORDER BY first, key"
        )
    };
}

pub(super) async fn list(
    database: &Database,
    session: SessionNumber,
    query: &MessageQuery,
) -> Result<Vec<StoredMessage>> {
    let sql = if query.after.is_some() { list!("") } else { list!("DESC") };
    let after = query.after.map_or(0, sql_integers::position_to_sql);
    let before = query.before.map_or(i64::MAX, sql_integers::position_to_sql);
    let limit = sql_integers::count_to_sql(query.limit);
    let max_bytes = query.max_bytes.map_or(i64::MAX, sql_integers::count_to_sql);
    let params: [Param<'_>; 6] = [
        (&session.0, Type::INT8),
        (&after, Type::INT8),
        (&before, Type::INT8),
        (&query.sub_agents, Type::BOOL),
        (&limit, Type::INT8),
        (&max_bytes, Type::INT8),
    ];
    query_messages(database, sql, &params).await
}

/// Inserts messages of sessions, or replaces them. No message may be there twice.
pub(super) async fn insert_or_replace(
    tx: &Connection,
    messages: &[(i64, &StoredMessage)],
) -> Result<(), PostgresError> {
    if messages.is_empty() {
        return Ok(());
    }
    let sessions: Vec<i64> = messages.iter().map(|(session, _)| *session).collect();
    let messages = || messages.iter().map(|(_, message)| *message);
    let keys: Vec<Vec<u8>> = messages().map(|message| text::index_key(&message.id)).collect();
    let ids: Vec<_> = messages().map(|message| text::to_sql(&message.id)).collect();
    let number = |seq: Seq| sql_integers::position_to_sql(seq);
    let firsts: Vec<i64> = messages().map(|message| number(message.first)).collect();
    let lasts: Vec<i64> = messages().map(|message| number(message.last)).collect();
    let event_ids: Vec<_> = messages().map(|message| text::to_sql(&message.event_id)).collect();
    let of_sub_agents: Vec<bool> = messages().map(|message| message.of_sub_agent).collect();
    let superseded: Vec<bool> = messages().map(|message| message.superseded).collect();
    let versions: Vec<i64> = messages().map(|message| message.fold_version.into()).collect();
    let sizes: Vec<i64> =
        messages().map(|message| sql_integers::count_to_sql(message.size())).collect();
    let json: Vec<&[u8]> = messages().map(|message| &*message.json).collect();
    let texts: Vec<_> = messages().map(|message| text::to_sql(&message.text)).collect();
    let words: Vec<String> = messages().map(|message| search::to_words(&message.text)).collect();
    tx.execute(
        "INSERT INTO turnwire.messages (session, key, id, first, last, event_id, of_sub_agent, superseded,
                                        fold_version, size, json, text, words)
         SELECT v.session, v.key, v.id, v.first, v.last, v.event_id, v.of_sub_agent, v.superseded, v.fold_version,
                v.size, v.json, v.text, v.words::tsvector
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
              v (session, key, id, first, last, event_id, of_sub_agent, superseded, fold_version, size, json, text,
                 words)
         ON CONFLICT (session, key) DO UPDATE SET
            first = excluded.first, last = excluded.last, event_id = excluded.event_id,
            of_sub_agent = excluded.of_sub_agent, superseded = excluded.superseded,
            fold_version = excluded.fold_version, size = excluded.size, json = excluded.json, text = excluded.text,
            words = excluded.words",
        &[
            (&sessions, Type::INT8_ARRAY),
            (&keys, Type::BYTEA_ARRAY),
            (&ids, Type::TEXT_ARRAY),
            (&firsts, Type::INT8_ARRAY),
            (&lasts, Type::INT8_ARRAY),
            (&event_ids, Type::TEXT_ARRAY),
            (&of_sub_agents, Type::BOOL_ARRAY),
            (&superseded, Type::BOOL_ARRAY),
            (&versions, Type::INT8_ARRAY),
            (&sizes, Type::INT8_ARRAY),
            (&json, Type::BYTEA_ARRAY),
            (&texts, Type::TEXT_ARRAY),
            (&words, Type::TEXT_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

pub(super) async fn replace(
    database: &Database,
    session: SessionNumber,
    messages: &[StoredMessage],
) -> Result<()> {
    transact!(database, |tx| replace_in(&tx, session, messages).await)
}

async fn replace_in(
    tx: &Transaction,
    session: SessionNumber,
    messages: &[StoredMessage],
) -> Result<(), PostgresError> {
    sessions::hold(tx, session).await?;
    // Of two with the same id, the last counts.
    let mut latest: HashMap<&str, &StoredMessage> = HashMap::new();
    let mut references = BlobReferences::default();
    for message in messages {
        latest.insert(&message.id, message);
        references.add(&message.json);
    }
    let rows: Vec<_> = latest.into_values().map(|message| (session.0, message)).collect();
    insert_or_replace(tx, &rows).await?;
    let tenant = tx
        .query("SELECT tenant FROM turnwire.sessions WHERE no = $1", &[(&session.0, Type::INT8)])
        .await?;
    let tenant = tenant.first().ok_or(Error::NoSession)?.try_get(0)?;
    let tenant = text::from_sql(tenant);
    blobs::add_references(tx, &[(session.0, &tenant, &references)]).await
}

/// Marks messages of sessions as superseded.
pub(super) async fn supersede(tx: &Connection, ids: &[(i64, &str)]) -> Result<(), PostgresError> {
    if ids.is_empty() {
        return Ok(());
    }
    let sessions: Vec<i64> = ids.iter().map(|(session, _)| *session).collect();
    let keys: Vec<Vec<u8>> = ids.iter().map(|(_, id)| text::index_key(id)).collect();
    tx.execute(
        "UPDATE turnwire.messages m SET superseded = true FROM unnest($1, $2) v (session, key)
         WHERE m.session = v.session AND m.key = v.key",
        &[(&sessions, Type::INT8_ARRAY), (&keys, Type::BYTEA_ARRAY)],
    )
    .await?;
    Ok(())
}

pub(super) async fn list_queued(
    database: &Database,
    session: SessionNumber,
) -> Result<Vec<QueuedMessage>> {
    let connection = database.connect().await?;
    let rows = connection
        .query(
            "SELECT q.id, q.reply_id, q.json FROM turnwire.sessions s
             LEFT JOIN turnwire.queue q ON q.session = s.no WHERE s.no = $1 ORDER BY q.no",
            &[(&session.0, Type::INT8)],
        )
        .await
        .map_err(|error| database.explain(error))?;
    if rows.is_empty() {
        return Err(Error::NoSession);
    }
    let mut queue = Vec::new();
    for row in &rows {
        let read = || {
            let Some(id) = row.try_get::<_, Option<String>>(0)? else { return Ok(None) };
            let (id, reply_id) = (text::from_sql(id), text::from_sql(row.try_get(1)?));
            let json = Bytes::from(row.try_get::<_, Vec<u8>>(2)?);
            Ok(Some(QueuedMessage { id, reply_id, json }))
        };
        queue.extend(read().map_err(|error: PostgresError| database.explain(error))?);
    }
    Ok(queue)
}

pub(super) async fn enqueue(
    tx: &Connection,
    queued: &[(i64, &QueuedMessage)],
) -> Result<(), PostgresError> {
    if queued.is_empty() {
        return Ok(());
    }
    let sessions: Vec<i64> = queued.iter().map(|(session, _)| *session).collect();
    let ids: Vec<_> = queued.iter().map(|(_, queued)| text::to_sql(&queued.id)).collect();
    let replies: Vec<_> = queued.iter().map(|(_, queued)| text::to_sql(&queued.reply_id)).collect();
    let json: Vec<&[u8]> = queued.iter().map(|(_, queued)| &*queued.json).collect();
    let places: Vec<i64> = (0..).take(queued.len()).collect();
    tx.execute(
        "INSERT INTO turnwire.queue (session, id, reply_id, json)
         SELECT session, id, reply_id, json
         FROM unnest($1, $2, $3, $4, $5) v (session, id, reply_id, json, place) ORDER BY place",
        &[
            (&sessions, Type::INT8_ARRAY),
            (&ids, Type::TEXT_ARRAY),
            (&replies, Type::TEXT_ARRAY),
            (&json, Type::BYTEA_ARRAY),
            (&places, Type::INT8_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

pub(super) async fn dequeue(tx: &Connection, ids: &[(i64, &str)]) -> Result<(), PostgresError> {
    if ids.is_empty() {
        return Ok(());
    }
    let sessions: Vec<i64> = ids.iter().map(|(session, _)| *session).collect();
    let ids: Vec<_> = ids.iter().map(|(_, id)| text::to_sql(id)).collect();
    tx.execute(
        "DELETE FROM turnwire.queue q USING unnest($1, $2) v (session, id)
         WHERE q.session = v.session AND q.id = v.id",
        &[(&sessions, Type::INT8_ARRAY), (&ids, Type::TEXT_ARRAY)],
    )
    .await?;
    Ok(())
}

/// Keys are deleted with their session, so a key of a deleted session is not found.
pub(super) async fn find_idempotency_record(
    database: &Database,
    tenant: &str,
    key: &str,
) -> Result<Option<IdempotencyRecord>> {
    let connection = database.connect().await?;
    let (stored_tenant, index_key) = (text::to_sql(tenant), text::index_key(key));
    let rows = connection
        .query(
            "SELECT k.fingerprint, k.response FROM turnwire.keys k
             JOIN turnwire.sessions s ON s.no = k.session WHERE k.tenant = $1 AND k.key = $2",
            &[(&stored_tenant, Type::TEXT), (&index_key, Type::BYTEA)],
        )
        .await;
    let read = |row: &Row| {
        let fingerprint = row.try_get::<_, &[u8]>(0)?.try_into().unwrap_or_default();
        let response = text::from_sql(row.try_get(1)?);
        Ok(IdempotencyRecord { tenant: tenant.into(), key: key.to_owned(), fingerprint, response })
    };
    let read = |rows: Vec<Row>| rows.first().map(read).transpose();
    rows.and_then(read).map_err(|error| database.explain(error))
}

/// Stores idempotency records with their session and time. No key may be there twice.
pub(super) async fn insert_idempotency_records(
    tx: &Connection,
    records: &[(i64, i64, &IdempotencyRecord)],
) -> Result<(), PostgresError> {
    if records.is_empty() {
        return Ok(());
    }
    let sessions: Vec<i64> = records.iter().map(|(session, ..)| *session).collect();
    let times: Vec<i64> = records.iter().map(|(_, ms, _)| *ms).collect();
    let records = || records.iter().map(|(_, _, record)| *record);
    let tenants: Vec<_> = records().map(|record| text::to_sql(&record.tenant)).collect();
    let keys: Vec<Vec<u8>> = records().map(|record| text::index_key(&record.key)).collect();
    let names: Vec<_> = records().map(|record| text::to_sql(&record.key)).collect();
    let fingerprints: Vec<&[u8]> = records().map(|record| &record.fingerprint[..]).collect();
    let responses: Vec<_> = records().map(|record| text::to_sql(&record.response)).collect();
    tx.execute(
        "INSERT INTO turnwire.keys (tenant, key, name, session, ms, fingerprint, response)
         SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (tenant, key) DO UPDATE SET
            session = excluded.session, ms = excluded.ms, fingerprint = excluded.fingerprint,
            response = excluded.response",
        &[
            (&tenants, Type::TEXT_ARRAY),
            (&keys, Type::BYTEA_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&sessions, Type::INT8_ARRAY),
            (&times, Type::INT8_ARRAY),
            (&fingerprints, Type::BYTEA_ARRAY),
            (&responses, Type::TEXT_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

pub(super) async fn insert_history(
    tx: &Connection,
    marks: &[(i64, &HistoryMark)],
) -> Result<(), PostgresError> {
    if marks.is_empty() {
        return Ok(());
    }
    let sessions: Vec<i64> = marks.iter().map(|(session, _)| *session).collect();
    let marks = || marks.iter().map(|(_, mark)| *mark);
    let seqs: Vec<i64> = marks().map(|mark| sql_integers::position_to_sql(mark.seq)).collect();
    let clients: Vec<i64> = marks().map(|mark| mark.client).collect();
    let digests: Vec<&[u8]> = marks().map(|mark| &mark.digest.0[..]).collect();
    tx.execute(
        "INSERT INTO turnwire.history (session, seq, client, digest) SELECT * FROM unnest($1, $2, $3, $4)",
        &[
            (&sessions, Type::INT8_ARRAY),
            (&seqs, Type::INT8_ARRAY),
            (&clients, Type::INT8_ARRAY),
            (&digests, Type::BYTEA_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

/// The sessions that have the first of these states that any session has.
pub(super) async fn find_history(
    database: &Database,
    digests: &[HistoryDigest],
) -> Result<Vec<HistoryMatch>> {
    let connection = database.connect().await?;
    let bytes: Vec<&[u8]> = digests.iter().map(|digest| &digest.0[..]).collect();
    let places: Vec<i64> = (0..).take(digests.len()).collect();
    let limit = sql_integers::count_to_sql(MAX_HISTORY_MATCHES);
    let rows = connection
        .query(
            "WITH found AS (
                SELECT v.digest FROM unnest($1, $2) v (digest, place)
                WHERE EXISTS (SELECT 1 FROM turnwire.history h JOIN turnwire.sessions s ON s.no = h.session
                              WHERE h.digest = v.digest)
                ORDER BY v.place LIMIT 1)
             SELECT s.tenant, s.id, h.seq, h.client, s.updated_ms, s.state, s.history, h.digest
             FROM found JOIN turnwire.history h ON h.digest = found.digest
             JOIN turnwire.sessions s ON s.no = h.session
             ORDER BY h.session DESC, h.seq DESC, h.no DESC LIMIT $3",
            &[(&bytes, Type::BYTEA_ARRAY), (&places, Type::INT8_ARRAY), (&limit, Type::INT8)],
        )
        .await;
    let read = |row: &Row| {
        let digest = HistoryDigest(row.try_get::<_, &[u8]>(7)?.try_into().unwrap_or_default());
        let seq = sql_integers::seq_from_sql(row.try_get(2)?);
        let key = (text::from_sql(row.try_get(0)?), text::from_sql(row.try_get(1)?));
        Ok(HistoryMatch {
            session: SessionKey::new(key.0, key.1),
            mark: HistoryMark { digest, seq, client: row.try_get(3)? },
            updated_ms: row.try_get(4)?,
            now: sessions::read_state(row, 5)?,
        })
    };
    rows.and_then(|rows| rows.iter().map(read).collect()).map_err(|error| database.explain(error))
}
