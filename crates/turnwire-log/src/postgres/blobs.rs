//! Blobs: their bytes in pieces, and the sessions that refer to them. A small blob has one piece.

use super::connection::{Connection, Database, Transaction, transact};
use super::errors::PostgresError;
use super::text;
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::{BlobInfo, BlobReferences, NewBlob, UploadNumber};
use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// How many blobs or references are removed in one transaction.
const REMOVE_ROWS: i64 = 64;

/// How many pieces are removed in one transaction: 2 MiB.
const REMOVE_PIECES: i64 = 8;

fn read_info(row: &Row) -> Result<BlobInfo, PostgresError> {
    let media_type = text::from_sql(row.try_get(0)?);
    Ok(BlobInfo { media_type, size: sql_integers::from_sql(row.try_get(1)?) })
}

pub(super) async fn find_info(
    database: &Database,
    tenant: &str,
    hash: [u8; 32],
) -> Result<Option<BlobInfo>> {
    let connection = database.connect().await?;
    let tenant = text::to_sql(tenant);
    let rows = connection
        .query(
            "SELECT media_type, size FROM turnwire.blobs WHERE tenant = $1 AND hash = $2",
            &[(&tenant, Type::TEXT), (&&hash[..], Type::BYTEA)],
        )
        .await;
    let read = |rows: Vec<Row>| rows.first().map(read_info).transpose();
    rows.and_then(read).map_err(|error| database.explain(error))
}

/// Finds a blob. If no session refers to it, it counts as unused from now on.
const TOUCH: &str = "
UPDATE turnwire.blobs SET unused_ms = CASE WHEN unused_ms < $3 THEN $3 ELSE unused_ms END
WHERE tenant = $1 AND hash = $2 RETURNING media_type, size";

pub(super) async fn touch(
    database: &Database,
    tenant: &str,
    hash: [u8; 32],
    now_ms: i64,
) -> Result<Option<BlobInfo>> {
    let connection = database.connect().await?;
    let tenant = text::to_sql(tenant);
    let rows = connection
        .query(TOUCH, &[(&tenant, Type::TEXT), (&&hash[..], Type::BYTEA), (&now_ms, Type::INT8)])
        .await;
    let read = |rows: Vec<Row>| rows.first().map(read_info).transpose();
    rows.and_then(read).map_err(|error| database.explain(error))
}

/// The bytes of a blob from an offset to the end of a piece.
pub(super) async fn read_piece(
    database: &Database,
    tenant: &str,
    hash: [u8; 32],
    from: u64,
) -> Result<Option<Bytes>> {
    let connection = database.connect().await?;
    let (tenant, from) = (text::to_sql(tenant), sql_integers::to_sql(from));
    let rows = connection
        .query(
            "SELECT b.size, p.start, p.bytes FROM turnwire.blobs b LEFT JOIN LATERAL (
                SELECT start, bytes FROM turnwire.blob_pieces
                WHERE upload = b.upload AND start <= $3 AND $3 < b.size ORDER BY start DESC LIMIT 1
             ) p ON true WHERE b.tenant = $1 AND b.hash = $2",
            &[(&tenant, Type::TEXT), (&&hash[..], Type::BYTEA), (&from, Type::INT8)],
        )
        .await
        .map_err(|error| database.explain(error))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || {
        let (size, start) = (row.try_get::<_, i64>(0)?, row.try_get::<_, Option<i64>>(1)?);
        let Some(start) = start else { return Ok((from >= size).then(Bytes::new)) };
        let bytes = Bytes::from(row.try_get::<_, Vec<u8>>(2)?);
        let skip = usize::try_from(from - start).unwrap_or(usize::MAX);
        Ok((skip < bytes.len()).then(|| bytes.slice(skip..)))
    };
    let piece = read().map_err(|error: PostgresError| database.explain(error))?;
    let missing = || Error::Damaged(format!("{}: a piece of a blob is missing", database.name()));
    piece.map(Some).ok_or_else(missing)
}

pub(super) async fn begin_upload(database: &Database) -> Result<UploadNumber> {
    let connection = database.connect().await?;
    insert_upload(&connection).await.map(UploadNumber).map_err(|error| database.explain(error))
}

async fn insert_upload(connection: &Connection) -> Result<i64, PostgresError> {
    let insert = "INSERT INTO turnwire.blob_uploads (size, is_dead, used_at) VALUES (0, false, now()) RETURNING no";
    let rows = connection.query(insert, &[]).await?;
    Ok(rows.first().ok_or_else(no_upload)?.try_get(0)?)
}

pub(super) async fn add_piece(
    database: &Database,
    upload: UploadNumber,
    bytes: &[u8],
) -> Result<()> {
    transact!(database, |tx| add_piece_in(&tx, upload.0, bytes).await).map(drop)
}

/// Adds a piece, and returns the size of the upload.
async fn add_piece_in(tx: &Transaction, upload: i64, bytes: &[u8]) -> Result<i64, PostgresError> {
    let length = sql_integers::count_to_sql(bytes.len());
    let rows = tx
        .query(
            "UPDATE turnwire.blob_uploads SET size = size + $2, used_at = now()
             WHERE no = $1 AND NOT is_dead RETURNING size",
            &[(&upload, Type::INT8), (&length, Type::INT8)],
        )
        .await?;
    let end: i64 = rows.first().ok_or_else(no_upload)?.try_get(0)?;
    if !bytes.is_empty() {
        tx.execute(
            "INSERT INTO turnwire.blob_pieces (upload, start, bytes) VALUES ($1, $2, $3)",
            &[(&upload, Type::INT8), (&(end - length), Type::INT8), (&bytes, Type::BYTEA)],
        )
        .await?;
    }
    Ok(end)
}

pub(super) fn no_upload() -> Error {
    Error::Store("no such upload, or it has ended".to_owned())
}

const ABANDON: &str = "UPDATE turnwire.blob_uploads SET is_dead = true WHERE no = $1";

pub(super) async fn abandon(database: &Database, upload: UploadNumber) -> Result<()> {
    let connection = database.connect().await?;
    let done = connection.execute(ABANDON, &[(&upload.0, Type::INT8)]).await;
    done.map(drop).map_err(|error| database.explain(error))
}

/// Stores a blob, or finds it. Returns whether it was stored.
pub(super) async fn store(database: &Database, new: &NewBlob) -> Result<(BlobInfo, bool)> {
    transact!(database, |tx| store_in(&tx, new).await)
}

async fn store_in(tx: &Transaction, new: &NewBlob) -> Result<(BlobInfo, bool), PostgresError> {
    let tenant = text::to_sql(&new.tenant);
    let hash = &new.hash[..];
    let rows = tx
        .query(TOUCH, &[(&tenant, Type::TEXT), (&hash, Type::BYTEA), (&new.now_ms, Type::INT8)])
        .await?;
    if let Some(found) = rows.first() {
        if let Some(upload) = new.upload {
            tx.execute(ABANDON, &[(&upload.0, Type::INT8)]).await?;
        }
        return Ok((read_info(found)?, false));
    }
    let upload = match new.upload {
        Some(upload) => upload.0,
        None => insert_upload(tx).await?,
    };
    let size = add_piece_in(tx, upload, &new.bytes).await?;
    tx.execute("DELETE FROM turnwire.blob_uploads WHERE no = $1", &[(&upload, Type::INT8)]).await?;
    let media_type = text::to_sql(&new.media_type);
    let inserted = tx
        .execute(
            "INSERT INTO turnwire.blobs (tenant, hash, media_type, size, upload, unused_ms)
             VALUES ($1, $2, $3, $4, $5, CASE WHEN EXISTS (
                SELECT 1 FROM turnwire.blob_references WHERE tenant = $1 AND hash = $2) THEN NULL ELSE $6 END)
             ON CONFLICT (tenant, hash) DO NOTHING",
            &[
                (&tenant, Type::TEXT),
                (&hash, Type::BYTEA),
                (&media_type, Type::TEXT),
                (&size, Type::INT8),
                (&upload, Type::INT8),
                (&new.now_ms, Type::INT8),
            ],
        )
        .await?;
    if inserted == 0 {
        // Another process stores it at the same time: the next attempt finds it.
        return Err(PostgresError::Conflict);
    }
    let used = add_usage(tx, &tenant, size).await?;
    if let Some(max) = new.max_bytes.filter(|max| sql_integers::from_sql(used) > *max) {
        return Err(Error::OverQuota(max).into());
    }
    let info = BlobInfo { media_type: new.media_type.clone(), size: sql_integers::from_sql(size) };
    Ok((info, true))
}

/// Changes the bytes of a tenant, and returns how many it has.
async fn add_usage(tx: &Connection, tenant: &str, bytes: i64) -> Result<i64, PostgresError> {
    let rows = tx
        .query(
            "INSERT INTO turnwire.blob_usage AS u (tenant, bytes) VALUES ($1, $2)
             ON CONFLICT (tenant) DO UPDATE SET bytes = u.bytes + excluded.bytes RETURNING bytes",
            &[(&tenant, Type::TEXT), (&bytes, Type::INT8)],
        )
        .await?;
    Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
}

pub(super) async fn bytes_used(database: &Database, tenant: &str) -> Result<u64> {
    let connection = database.connect().await?;
    let tenant = text::to_sql(tenant);
    let used = "SELECT bytes FROM turnwire.blob_usage WHERE tenant = $1";
    let rows = connection.query(used, &[(&tenant, Type::TEXT)]).await;
    let read = |rows: Vec<Row>| Ok(rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?);
    rows.and_then(read).map(sql_integers::from_sql).map_err(|error| database.explain(error))
}

pub(super) async fn set_type(
    database: &Database,
    tenant: &str,
    hash: [u8; 32],
    media_type: &str,
) -> Result<()> {
    let connection = database.connect().await?;
    let (tenant, media_type) = (text::to_sql(tenant), text::to_sql(media_type));
    let done = connection
        .execute(
            "UPDATE turnwire.blobs SET media_type = $3 WHERE tenant = $1 AND hash = $2",
            &[(&tenant, Type::TEXT), (&&hash[..], Type::BYTEA), (&media_type, Type::TEXT)],
        )
        .await;
    done.map(drop).map_err(|error| database.explain(error))
}

pub(super) async fn delete(database: &Database, tenant: &str, hash: [u8; 32]) -> Result<bool> {
    let tenant = text::to_sql(tenant);
    let delete =
        "DELETE FROM turnwire.blobs WHERE tenant = $1 AND hash = $2 RETURNING tenant, upload, size";
    let gone = transact!(database, |tx| {
        match tx.query(delete, &[(&tenant, Type::TEXT), (&&hash[..], Type::BYTEA)]).await {
            Ok(rows) => after_delete(&tx, &rows).await,
            Err(error) => Err(error),
        }
    })?;
    Ok(gone > 0)
}

/// Leaves the pieces of deleted blobs for later, and makes room. Takes rows of
/// `tenant, upload, size`.
async fn after_delete(tx: &Transaction, rows: &[Row]) -> Result<u64, PostgresError> {
    for row in rows {
        let (upload, size) = (row.try_get::<_, i64>(1)?, row.try_get::<_, i64>(2)?);
        add_usage(tx, row.try_get(0)?, -size).await?;
        tx.execute(
            "INSERT INTO turnwire.blob_uploads (no, size, is_dead, used_at) VALUES ($1, 0, true, now())",
            &[(&upload, Type::INT8)],
        )
        .await?;
    }
    Ok(rows.len() as u64)
}

/// Removes some pieces of abandoned and forgotten uploads, and returns whether there may be more.
pub(super) async fn remove_pieces(database: &Database) -> Result<bool> {
    transact!(database, |tx| remove_pieces_in(&tx).await)
}

async fn remove_pieces_in(tx: &Transaction) -> Result<bool, PostgresError> {
    // Another process may do the same.
    let rows = tx
        .query(
            "SELECT no FROM turnwire.blob_uploads WHERE is_dead ORDER BY no LIMIT 1 FOR UPDATE SKIP LOCKED",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else {
        let forgotten = "UPDATE turnwire.blob_uploads SET is_dead = true
                         WHERE NOT is_dead AND used_at < now() - interval '1 day'";
        return Ok(tx.execute(forgotten, &[]).await? > 0);
    };
    let upload: i64 = row.try_get(0)?;
    let removed = tx
        .execute(
            "DELETE FROM turnwire.blob_pieces WHERE upload = $1 AND start IN
             (SELECT start FROM turnwire.blob_pieces WHERE upload = $1 ORDER BY start LIMIT $2)",
            &[(&upload, Type::INT8), (&REMOVE_PIECES, Type::INT8)],
        )
        .await?;
    if removed == 0 {
        let delete = "DELETE FROM turnwire.blob_uploads WHERE no = $1";
        tx.execute(delete, &[(&upload, Type::INT8)]).await?;
    }
    Ok(true)
}

/// Adds references of sessions to blobs, which may be stored later: session, tenant, references.
pub(super) async fn add_references(
    tx: &Connection,
    all: &[(i64, &str, &BlobReferences)],
) -> Result<(), PostgresError> {
    let (mut tenants, mut hashes, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
    for (session, tenant, references) in all {
        for hash in references.iter() {
            tenants.push(text::to_sql(tenant));
            hashes.push(&hash[..]);
            sessions.push(*session);
        }
    }
    if hashes.is_empty() {
        return Ok(());
    }
    // Blobs are locked in one order.
    tx.execute(
        "WITH new AS (
            INSERT INTO turnwire.blob_references (tenant, hash, session)
            SELECT * FROM unnest($1, $2, $3) v (tenant, hash, session) ORDER BY tenant, hash
            ON CONFLICT DO NOTHING RETURNING tenant, hash),
         used AS (
            SELECT b.no FROM turnwire.blobs b JOIN new ON new.tenant = b.tenant AND new.hash = b.hash
            WHERE b.unused_ms IS NOT NULL ORDER BY b.no FOR UPDATE OF b)
         UPDATE turnwire.blobs b SET unused_ms = NULL FROM used WHERE b.no = used.no",
        &[
            (&tenants, Type::TEXT_ARRAY),
            (&hashes, Type::BYTEA_ARRAY),
            (&sessions, Type::INT8_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

/// Removes some references of deleted sessions, and returns whether there may be more. Blobs that no
/// other session refers to are unused from now on.
pub(super) async fn remove_references(database: &Database, now_ms: i64) -> Result<bool> {
    let remove = "
        WITH gone AS (
            DELETE FROM turnwire.blob_references r USING (
                SELECT d.tenant, d.hash, d.session FROM turnwire.blob_references d
                JOIN turnwire.deleted s ON s.session = d.session LIMIT $1) page
            WHERE r.tenant = page.tenant AND r.hash = page.hash AND r.session = page.session
            RETURNING r.tenant, r.hash, r.session)
        SELECT tenant, hash FROM gone";
    let removed = transact!(database, |tx| {
        match tx.query(remove, &[(&REMOVE_ROWS, Type::INT8)]).await {
            Ok(rows) => mark_unused(&tx, &rows, now_ms).await,
            Err(error) => Err(error),
        }
    })?;
    Ok(removed > 0)
}

/// Takes rows of `tenant, hash`.
async fn mark_unused(tx: &Transaction, rows: &[Row], now_ms: i64) -> Result<usize, PostgresError> {
    let (mut tenants, mut hashes) = (Vec::new(), Vec::new());
    for row in rows {
        tenants.push(row.try_get::<_, &str>(0)?);
        hashes.push(row.try_get::<_, &[u8]>(1)?);
    }
    tx.execute(
        "UPDATE turnwire.blobs b SET unused_ms = $3 FROM unnest($1, $2) v (tenant, hash)
         WHERE b.tenant = v.tenant AND b.hash = v.hash AND b.unused_ms IS NULL AND NOT EXISTS (
            SELECT 1 FROM turnwire.blob_references r WHERE r.tenant = b.tenant AND r.hash = b.hash)",
        &[(&tenants, Type::TEXT_ARRAY), (&hashes, Type::BYTEA_ARRAY), (&now_ms, Type::INT8)],
    )
    .await?;
    Ok(rows.len())
}

/// Removes some blobs that have been unused since a time, and returns how many.
pub(super) async fn remove_unused(database: &Database, before_ms: i64) -> Result<u64> {
    // A reference that came at the same time as its blob did not see the blob.
    let used = "UPDATE turnwire.blobs b SET unused_ms = NULL WHERE unused_ms < $1 AND EXISTS (
        SELECT 1 FROM turnwire.blob_references r WHERE r.tenant = b.tenant AND r.hash = b.hash)";
    let delete = "
        DELETE FROM turnwire.blobs b USING (
            SELECT no FROM turnwire.blobs WHERE unused_ms < $1 ORDER BY no LIMIT $2 FOR UPDATE) page
        WHERE b.no = page.no AND b.unused_ms < $1 RETURNING b.tenant, b.upload, b.size";
    let mut removed = 0;
    loop {
        let gone = transact!(database, |tx| {
            match tx.execute(used, &[(&before_ms, Type::INT8)]).await {
                Ok(_) => match tx
                    .query(delete, &[(&before_ms, Type::INT8), (&REMOVE_ROWS, Type::INT8)])
                    .await
                {
                    Ok(rows) => after_delete(&tx, &rows).await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            }
        })?;
        removed += gone;
        if gone == 0 {
            return Ok(removed);
        }
    }
}
