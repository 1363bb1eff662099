//! Blobs: their bytes, in one row or in pieces, and the sessions that refer to them.
//!
//! | table | what is in it |
//! |---|---|
//! | `blobs` | one row per blob; also its bytes, if it has one piece |
//! | `blob_pieces` | the pieces of larger blobs, by upload |
//! | `blob_uploads` | unfinished uploads, and abandoned ones whose pieces must be removed |
//! | `blob_info` | size, upload, and since when no session refers to the blob |
//! | `blob_references` | which session refers to which blob |
//! | `blob_usage` | the bytes of each tenant |

use super::batch::Batch;
use super::errors::SqliteError;
use super::messages::{checksum, damaged_row};
use crate::error::Error;
use crate::sql_integers;
use crate::store::{BlobInfo, BlobReferences, NewBlob, to_hex};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::Path;

/// How many pieces are removed in one transaction: 2 MiB.
const REMOVE_PIECES: i64 = 8;
/// How many references or blobs are removed in one transaction.
const REMOVE_ROWS: i64 = 64;

/// The checksum of a blob that is in one row.
pub(super) fn blob_checksum(media_type: &str, bytes: &[u8]) -> i64 {
    checksum(&[media_type.as_bytes(), bytes])
}

/// The checksum of a blob whose bytes are in pieces.
fn header_checksum(media_type: &str, size: u64, upload: i64) -> i64 {
    checksum(&[media_type.as_bytes(), &size.to_le_bytes(), &upload.to_le_bytes()])
}

/// The checksum of a piece.
pub(super) fn piece_checksum(upload: i64, start: i64, bytes: &[u8]) -> i64 {
    checksum(&[&upload.to_le_bytes(), &start.to_le_bytes(), bytes])
}

/// A row of `blobs` without its bytes.
pub(super) struct BlobRow {
    no: i64,
    media_type: String,
    crc: i64,
    pub(super) size: u64,
    /// The upload with its pieces. `None`: its bytes are in its row.
    pub(super) upload: Option<i64>,
    /// Since when no session refers to it.
    unused_ms: Option<i64>,
}

/// The columns of [`BlobRow::from_row`].
macro_rules! header {
    ($rest:literal) => {
        concat!(
            "SELECT b.no, b.media_type, b.crc, ifnull(i.size, length(b.bytes)), i.upload,
                    i.unused_ms
             FROM blobs b LEFT JOIN blob_info i ON i.blob = b.no ",
            $rest
        )
    };
}

impl BlobRow {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            no: row.get(0)?,
            media_type: row.get(1)?,
            crc: row.get(2)?,
            size: sql_integers::from_sql(row.get(3)?),
            upload: row.get(4)?,
            unused_ms: row.get(5)?,
        })
    }

    /// Whether the row is intact. Bytes in the row are checked when they are read.
    pub(super) fn is_sound(&self) -> bool {
        self.upload
            .is_none_or(|upload| self.crc == header_checksum(&self.media_type, self.size, upload))
    }

    fn info(self) -> BlobInfo {
        BlobInfo { media_type: self.media_type, size: self.size }
    }
}

fn find_blob(conn: &Connection, tenant: &str, hash: [u8; 32]) -> rusqlite::Result<Option<BlobRow>> {
    conn.prepare_cached(header!("WHERE b.tenant = ?1 AND b.hash = ?2"))?
        .query_one(params![tenant, hash], BlobRow::from_row)
        .optional()
}

/// Calls a function with every blob, for the check.
pub(super) fn for_each_blob(
    conn: &Connection,
    mut see: impl FnMut(&str, &BlobRow) -> Result<(), SqliteError>,
) -> Result<(), SqliteError> {
    let mut rows = conn.prepare(
        "SELECT b.no, b.media_type, b.crc, ifnull(i.size, length(b.bytes)), i.upload, i.unused_ms,
                b.hash
         FROM blobs b LEFT JOIN blob_info i ON i.blob = b.no",
    )?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        see(&to_hex(row.get_ref(6)?.as_blob()?), &BlobRow::from_row(row)?)?;
    }
    Ok(())
}

/// Whether all bytes of a blob are present and intact.
pub(super) fn is_intact(conn: &Connection, header: &BlobRow) -> Result<bool, SqliteError> {
    let Some(upload) = header.upload else {
        let mut row = conn.prepare_cached("SELECT bytes FROM blobs WHERE no = ?1")?;
        return Ok(row.query_one([header.no], |row| {
            let bytes = row.get_ref(0)?.as_blob()?;
            let is_sound = header.crc == blob_checksum(&header.media_type, bytes);
            Ok(is_sound && bytes.len() as u64 == header.size)
        })?);
    };
    let mut end = 0;
    while header.is_sound() && end < header.size {
        let Some(piece) = read_piece(conn, upload, end)? else { return Ok(false) };
        end += piece.len() as u64;
    }
    Ok(end == header.size)
}

/// The bytes of a piece from an offset on; `None` if it is missing or damaged.
fn read_piece(conn: &Connection, upload: i64, from: u64) -> rusqlite::Result<Option<Bytes>> {
    let found = conn
        .prepare_cached(
            "SELECT start, crc, bytes FROM blob_pieces
             WHERE upload = ?1 AND start <= ?2 ORDER BY start DESC LIMIT 1",
        )?
        .query_one([upload, sql_integers::to_sql(from)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?))
        })
        .optional()?;
    let Some((start, crc, bytes)) = found else { return Ok(None) };
    if crc != piece_checksum(upload, start, &bytes) {
        return Ok(None);
    }
    let bytes = Bytes::from(bytes);
    let skip = usize::try_from(from - sql_integers::from_sql(start)).unwrap_or(usize::MAX);
    Ok((skip < bytes.len()).then(|| bytes.slice(skip..)))
}

fn damaged(file: &Path, hash: [u8; 32]) -> SqliteError {
    damaged_row(file, &format!("blob {}", to_hex(&hash))).into()
}

/// A blob without its bytes.
pub(super) fn find_info(
    conn: &Connection,
    file: &Path,
    tenant: &str,
    hash: [u8; 32],
) -> Result<Option<BlobInfo>, SqliteError> {
    match find_blob(conn, tenant, hash)? {
        Some(header) if !header.is_sound() => Err(damaged(file, hash)),
        found => Ok(found.map(BlobRow::info)),
    }
}

/// The bytes of a blob from an offset to the end of a piece.
pub(super) fn read_blob(
    conn: &Connection,
    file: &Path,
    tenant: &str,
    hash: [u8; 32],
    from: u64,
) -> Result<Option<Bytes>, SqliteError> {
    let Some(header) = find_blob(conn, tenant, hash)? else { return Ok(None) };
    let found = match header.upload {
        _ if !header.is_sound() => None,
        Some(_) if from >= header.size => Some(Bytes::new()),
        Some(upload) => read_piece(conn, upload, from)?,
        None => {
            let bytes: Vec<u8> = conn
                .prepare_cached("SELECT bytes FROM blobs WHERE no = ?1")?
                .query_one([header.no], |row| row.get(0))?;
            let is_sound = header.crc == blob_checksum(&header.media_type, &bytes)
                && header.size == bytes.len() as u64;
            let from = usize::try_from(from.min(header.size)).unwrap_or(usize::MAX);
            is_sound.then(|| Bytes::from(bytes).slice(from..))
        }
    };
    found.map(Some).ok_or_else(|| damaged(file, hash))
}

/// Abandons all uploads of an earlier process.
pub(super) fn abandon_open_uploads(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("UPDATE blob_uploads SET is_dead = 1 WHERE NOT is_dead", []).map(drop)
}

/// Whether there are pieces to remove.
pub(super) fn has_dead_pieces(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM blob_uploads WHERE is_dead LIMIT 1")?.exists([])
}

/// Removes some pieces of abandoned uploads, and returns whether there may be more.
pub(super) fn remove_pieces(conn: &Connection) -> Result<bool, SqliteError> {
    let upload: Option<i64> = conn
        .prepare_cached("SELECT no FROM blob_uploads WHERE is_dead LIMIT 1")?
        .query_one([], |row| row.get(0))
        .optional()?;
    let Some(upload) = upload else { return Ok(false) };
    let removed = conn
        .prepare_cached(
            "DELETE FROM blob_pieces WHERE no IN
             (SELECT no FROM blob_pieces WHERE upload = ?1 LIMIT ?2)",
        )?
        .execute([upload, REMOVE_PIECES])?;
    if removed == 0 {
        conn.prepare_cached("DELETE FROM blob_uploads WHERE no = ?1")?.execute([upload])?;
    }
    Ok(true)
}

pub(super) fn begin_upload(batch: &mut Batch<'_>) -> Result<i64, SqliteError> {
    let conn = batch.write_connection()?;
    conn.prepare_cached("INSERT INTO blob_uploads (size, is_dead) VALUES (0, 0)")?.execute([])?;
    Ok(conn.last_insert_rowid())
}

/// Adds a piece, and returns the size of the upload.
pub(super) fn add_piece(
    batch: &mut Batch<'_>,
    upload: i64,
    bytes: &[u8],
) -> Result<u64, SqliteError> {
    let conn = batch.write_connection()?;
    let end: Option<i64> = conn
        .prepare_cached(
            "UPDATE blob_uploads SET size = size + ?2 WHERE no = ?1 AND NOT is_dead
             RETURNING size",
        )?
        .query_one([upload, sql_integers::count_to_sql(bytes.len())], |row| row.get(0))
        .optional()?;
    let end = end.ok_or_else(no_upload)?;
    if !bytes.is_empty() {
        let start = end - sql_integers::count_to_sql(bytes.len());
        conn.prepare_cached(
            "INSERT INTO blob_pieces (upload, start, crc, bytes) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![upload, start, piece_checksum(upload, start, bytes), bytes])?;
    }
    Ok(sql_integers::from_sql(end))
}

fn no_upload() -> Error {
    Error::Store("no such upload, or it has ended".to_owned())
}

pub(super) fn abandon(batch: &mut Batch<'_>, upload: i64) -> Result<(), SqliteError> {
    let conn = batch.write_connection()?;
    conn.prepare_cached("UPDATE blob_uploads SET is_dead = 1 WHERE no = ?1")?.execute([upload])?;
    batch.has_dead_pieces = true;
    Ok(())
}

/// Stores a blob, or finds it. Returns whether it was stored.
pub(super) fn store(batch: &mut Batch<'_>, new: &NewBlob) -> Result<(BlobInfo, bool), SqliteError> {
    let (tenant, hash) = (&*new.tenant, new.hash);
    let conn = batch.write_connection()?;
    if let Some(header) = find_blob(conn, tenant, hash)? {
        touch(conn, &header, new.now_ms)?;
        if let Some(upload) = new.upload {
            abandon(batch, upload.0)?;
        }
        return Ok((header.info(), false));
    }
    // Everything that can be refused must be refused before anything is written.
    let before = match new.upload {
        Some(upload) => conn
            .prepare_cached("SELECT size FROM blob_uploads WHERE no = ?1 AND NOT is_dead")?
            .query_one([upload.0], |row| row.get(0))
            .optional()?
            .ok_or_else(no_upload)?,
        None => 0,
    };
    let size = sql_integers::from_sql(before) + new.bytes.len() as u64;
    let used = bytes_used(conn, tenant)?;
    if let Some(max) = new.max_bytes.filter(|max| used.saturating_add(size) > *max) {
        return Err(Error::OverQuota(max).into());
    }
    let upload = new.upload.map(|upload| upload.0);
    let (crc, bytes) = match upload {
        Some(upload) => {
            add_piece(batch, upload, &new.bytes)?;
            conn.prepare_cached("DELETE FROM blob_uploads WHERE no = ?1")?.execute([upload])?;
            (header_checksum(&new.media_type, size, upload), Bytes::new())
        }
        None => (blob_checksum(&new.media_type, &new.bytes), new.bytes.clone()),
    };
    conn.prepare_cached(
        "INSERT INTO blobs (tenant, hash, media_type, crc, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![tenant, hash, new.media_type, crc, &*bytes])?;
    let unused_ms = (!is_referred_to(conn, tenant, hash)?).then_some(new.now_ms);
    conn.prepare_cached(
        "INSERT INTO blob_info (blob, size, upload, is_tracked, unused_ms)
         VALUES (?1, ?2, ?3, 1, ?4)",
    )?
    .execute(params![
        conn.last_insert_rowid(),
        sql_integers::to_sql(size),
        upload,
        unused_ms
    ])?;
    add_usage(conn, tenant, sql_integers::to_sql(size))?;
    Ok((BlobInfo { media_type: new.media_type.clone(), size }, true))
}

/// If no session refers to the blob, it counts as unused from now on.
fn touch(conn: &Connection, header: &BlobRow, now_ms: i64) -> Result<(), SqliteError> {
    if header.unused_ms.is_some() {
        conn.prepare_cached("UPDATE blob_info SET unused_ms = max(unused_ms, ?2) WHERE blob = ?1")?
            .execute([header.no, now_ms])?;
    }
    Ok(())
}

/// Whether a blob exists and no session refers to it.
pub(super) fn is_unused(conn: &Connection, tenant: &str, hash: [u8; 32]) -> rusqlite::Result<bool> {
    Ok(find_blob(conn, tenant, hash)?.is_some_and(|header| header.unused_ms.is_some()))
}

pub(super) fn touch_unused(
    batch: &mut Batch<'_>,
    tenant: &str,
    hash: [u8; 32],
    now_ms: i64,
) -> Result<(), SqliteError> {
    let conn = batch.write_connection()?;
    match find_blob(conn, tenant, hash)? {
        Some(header) => touch(conn, &header, now_ms),
        None => Ok(()),
    }
}

/// The bytes of all blobs of a tenant.
pub(super) fn bytes_used(conn: &Connection, tenant: &str) -> rusqlite::Result<u64> {
    let bytes: Option<i64> = conn
        .prepare_cached("SELECT bytes FROM blob_usage WHERE tenant = ?1")?
        .query_one([tenant], |row| row.get(0))
        .optional()?;
    Ok(sql_integers::from_sql(bytes.unwrap_or(0)))
}

fn add_usage(conn: &Connection, tenant: &str, bytes: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO blob_usage (tenant, bytes) VALUES (?1, ?2)
         ON CONFLICT (tenant) DO UPDATE SET bytes = max(bytes + excluded.bytes, 0)",
    )?
    .execute(params![tenant, bytes])
    .map(drop)
}

pub(super) fn set_blob_type(
    batch: &mut Batch<'_>,
    tenant: &str,
    hash: [u8; 32],
    media_type: &str,
) -> Result<(), SqliteError> {
    let conn = batch.write_connection()?;
    let Some(header) = find_blob(conn, tenant, hash)? else { return Ok(()) };
    // A new checksum over damaged bytes would hide the damage.
    if !can_change_type(conn, &header)? {
        return Err(damaged(&batch.shared.file, hash));
    }
    let crc = match header.upload {
        Some(upload) => header_checksum(media_type, header.size, upload),
        None => conn
            .prepare_cached("SELECT bytes FROM blobs WHERE no = ?1")?
            .query_one([header.no], |row| {
                Ok(blob_checksum(media_type, row.get_ref(0)?.as_blob()?))
            })?,
    };
    conn.prepare_cached("UPDATE blobs SET media_type = ?2, crc = ?3 WHERE no = ?1")?
        .execute(params![header.no, media_type, crc])?;
    Ok(())
}

fn can_change_type(conn: &Connection, header: &BlobRow) -> Result<bool, SqliteError> {
    if header.upload.is_some() { Ok(header.is_sound()) } else { is_intact(conn, header) }
}

/// Deletes a blob. Returns whether it existed.
pub(super) fn delete_blob(
    batch: &mut Batch<'_>,
    tenant: &str,
    hash: [u8; 32],
) -> Result<bool, SqliteError> {
    let conn = batch.write_connection()?;
    let Some(header) = find_blob(conn, tenant, hash)? else { return Ok(false) };
    remove_blob(batch, tenant, &header)?;
    Ok(true)
}

fn remove_blob(batch: &mut Batch<'_>, tenant: &str, header: &BlobRow) -> Result<(), SqliteError> {
    let conn = batch.write_connection()?;
    conn.prepare_cached("DELETE FROM blobs WHERE no = ?1")?.execute([header.no])?;
    conn.prepare_cached("DELETE FROM blob_info WHERE blob = ?1")?.execute([header.no])?;
    add_usage(conn, tenant, -sql_integers::to_sql(header.size))?;
    if let Some(upload) = header.upload {
        conn.prepare_cached("INSERT INTO blob_uploads (no, size, is_dead) VALUES (?1, 0, 1)")?
            .execute([upload])?;
        batch.has_dead_pieces = true;
    }
    Ok(())
}

/// Adds references of a session to blobs, which may be stored later.
pub(super) fn add_references(
    batch: &mut Batch<'_>,
    session: i64,
    references: &BlobReferences,
) -> Result<(), SqliteError> {
    if references.iter().next().is_none() {
        return Ok(());
    }
    let conn = batch.write_connection()?;
    let tenant: String = conn
        .prepare_cached("SELECT tenant FROM sessions WHERE no = ?1")?
        .query_one([session], |row| row.get(0))?;
    for hash in references.iter() {
        let is_new = conn
            .prepare_cached("INSERT OR IGNORE INTO blob_references VALUES (?1, ?2, ?3)")?
            .execute(params![tenant, hash, session])?;
        if is_new == 1 {
            conn.prepare_cached(
                "UPDATE blob_info SET unused_ms = NULL WHERE unused_ms IS NOT NULL
                 AND blob = (SELECT no FROM blobs WHERE tenant = ?1 AND hash = ?2)",
            )?
            .execute(params![tenant, hash])?;
        }
    }
    Ok(())
}

fn is_referred_to(conn: &Connection, tenant: &str, hash: [u8; 32]) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM blob_references WHERE tenant = ?1 AND hash = ?2 LIMIT 1")?
        .exists(params![tenant, hash])
}

/// A deleted session that still has references.
pub(super) fn deleted_with_references(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(
        "SELECT d.session FROM deleted d
         WHERE EXISTS (SELECT 1 FROM blob_references r WHERE r.session = d.session) LIMIT 1",
    )?
    .query_one([], |row| row.get(0))
    .optional()
}

/// Removes some references of a deleted session, and returns whether there may be more. Blobs that
/// no other session refers to become unused.
pub(super) fn remove_references(
    conn: &Connection,
    session: i64,
    now_ms: i64,
) -> Result<bool, SqliteError> {
    let some: Vec<(String, [u8; 32])> = conn
        .prepare_cached("SELECT tenant, hash FROM blob_references WHERE session = ?1 LIMIT ?2")?
        .query_map([session, REMOVE_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (tenant, hash) in &some {
        conn.prepare_cached(
            "DELETE FROM blob_references WHERE tenant = ?1 AND hash = ?2 AND session = ?3",
        )?
        .execute(params![tenant, hash, session])?;
        if !is_referred_to(conn, tenant, *hash)? {
            conn.prepare_cached(
                "UPDATE blob_info SET unused_ms = ?3 WHERE is_tracked AND unused_ms IS NULL
                 AND blob = (SELECT no FROM blobs WHERE tenant = ?1 AND hash = ?2)",
            )?
            .execute(params![tenant, hash, now_ms])?;
        }
    }
    Ok(!some.is_empty())
}

/// Removes some blobs that have been unused since a time, and returns how many.
pub(super) fn remove_unused(batch: &mut Batch<'_>, before_ms: i64) -> Result<u64, SqliteError> {
    let conn = batch.write_connection()?;
    let some: Vec<(BlobRow, String)> = conn
        .prepare_cached(
            "SELECT b.no, b.media_type, b.crc, i.size, i.upload, i.unused_ms, b.tenant
             FROM blob_info i JOIN blobs b ON b.no = i.blob
             WHERE i.unused_ms < ?1 ORDER BY i.unused_ms LIMIT ?2",
        )?
        .query_map([before_ms, REMOVE_ROWS], |row| Ok((BlobRow::from_row(row)?, row.get(6)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (header, tenant) in &some {
        remove_blob(batch, tenant, header)?;
    }
    Ok(some.len() as u64)
}

/// Whether so few blobs were removed that there are no more.
pub(super) fn is_last_batch(removed: u64) -> bool {
    removed < sql_integers::from_sql(REMOVE_ROWS)
}
