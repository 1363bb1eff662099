//! The database file: create, inspect and open it.

use super::errors::{self, SqliteError};
use super::schema;
use crate::error::{Error, Result};
use crate::private_file;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Large enough that a row of merged events spans few pages, small enough that a small commit
/// writes little: 16 KiB was slower for single events, 4 KiB for many.
const PAGE_BYTES: u32 = 8192;

/// How long a statement waits for another program that has the file locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Writes: the writer and the checkpoints.
    Write,
    /// Reads in the process that writes.
    Read,
    /// Reads a file that another process may be writing.
    Inspect,
}

/// The path of a file next to the store.
pub(super) fn sibling_path(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// Creates the folder of a file if it is missing.
pub(super) fn create_folder(file: &Path) -> Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| errors::from_io(folder, "create the folder", &error))
}

/// Creates an empty file that only its owner may read.
pub(super) fn create_empty(path: &Path) -> Result<()> {
    let made = private_file::create_new(path);
    made.map(drop).map_err(|error| errors::from_io(path, "create", &error))
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileContent {
    /// Nothing, or an empty file.
    Nothing,
    /// A store, according to its header.
    Store,
}

/// Reads the header without changing anything. SQLite itself would already apply the write-ahead
/// log of a foreign file.
pub(super) fn inspect_header(path: &Path) -> Result<FileContent> {
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file
            .take(100)
            .read_to_end(&mut header)
            .map_err(|error| errors::from_io(path, "read", &error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileContent::Nothing),
        Err(error) => return Err(errors::from_io(path, "open", &error)),
    };
    if header.is_empty() {
        return Ok(FileContent::Nothing);
    }
    let magic = header.starts_with(b"SQLite format 3\0");
    match (magic, has_application_id(&header)) {
        (true, true) => Ok(FileContent::Store),
        // A power cut may have damaged the header during a checkpoint; then the write-ahead log has
        // it too.
        _ if log_has_header(path) => Ok(FileContent::Store),
        (false, true) => Err(Error::Damaged(format!(
            "{} is damaged in its first bytes; restore the last backup",
            path.display()
        ))),
        (_, false) => Err(schema::not_ours(path)),
    }
}

fn has_application_id(header: &[u8]) -> bool {
    header.get(68..72) == Some(&schema::APPLICATION_ID.to_be_bytes())
}

/// Whether the write-ahead log has the first page of a store. SQLite decides whether it is valid.
fn log_has_header(path: &Path) -> bool {
    let look = || -> io::Result<bool> {
        let mut log = io::BufReader::new(File::open(sibling_path(path, "-wal"))?);
        let mut start = [0; 32];
        log.read_exact(&mut start)?;
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = start;
        let page = i64::from(u32::from_be_bytes([a, b, c, d]));
        // A smaller number is not a page size.
        let rest = page.checked_sub(100).filter(|rest| *rest > 0);
        while let Some(rest) = rest {
            let (mut frame, mut header) = ([0; 24], [0; 100]);
            log.read_exact(&mut frame)?;
            log.read_exact(&mut header)?;
            if frame.starts_with(&[0, 0, 0, 1]) && has_application_id(&header) {
                return Ok(true);
            }
            log.seek_relative(rest)?;
        }
        Ok(false)
    };
    look().unwrap_or(false)
}

/// Creates an empty store. It appears complete or not at all.
pub(super) fn create_store(path: &Path) -> Result<()> {
    let new = sibling_path(path, ".new");
    remove_if_exists(&new)?;
    create_empty(&new)?;
    let made = || -> Result<(), SqliteError> {
        let conn = Connection::open(&new)?;
        conn.pragma_update(None, "page_size", PAGE_BYTES)?;
        conn.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
        schema::migrate(&conn, schema::STEPS)?;
        // `query_one` reads to the end, where the change is committed. Where a write-ahead log is
        // impossible, SQLite keeps the old mode without an error.
        let mode: String = conn.query_one("PRAGMA journal_mode = wal", [], |row| row.get(0))?;
        if mode != "wal" {
            let why = format!(
                "cannot create {}: SQLite cannot use a write-ahead log there",
                new.display()
            );
            return Err(Error::Store(why).into());
        }
        conn.close().map_err(|(_, error)| SqliteError::Sql(error))
    };
    made().map_err(|fault| fault.into_error(&new))?;
    move_into_place(&new, path)
}

/// Moves a finished file to its place, durably.
pub(super) fn move_into_place(new: &Path, path: &Path) -> Result<()> {
    let synced = File::open(new).and_then(|file| file.sync_all());
    synced.map_err(|error| errors::from_io(new, "sync", &error))?;
    // A write-ahead log here belongs to a file that no longer exists.
    for suffix in ["-wal", "-shm"] {
        remove_if_exists(&sibling_path(path, suffix))?;
    }
    fs::rename(new, path).map_err(|error| errors::from_io(path, "create", &error))?;
    sync_folder(path)
}

/// Without this a new name may be lost in a power cut.
fn sync_folder(path: &Path) -> Result<()> {
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| errors::from_io(folder, "sync", &error))?;
    }
    Ok(())
}

/// Removes a file that may not exist.
pub(super) fn remove_if_exists(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(errors::from_io(path, "remove", &error))
        }
        _ => Ok(()),
    }
}

/// Opens a connection to an existing store.
pub(super) fn connect(path: &Path, to: Access) -> rusqlite::Result<Connection> {
    let access = match to {
        Access::Write | Access::Read => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Inspect => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    // Each connection is used by one thread at a time. Paths are never URIs.
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // The file may come from an untrusted source: nothing in its schema may run, and only FTS5
    // itself may write to its tables.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(64);
    conn.pragma_update(None, "temp_store", "memory")?;
    if to == Access::Inspect {
        conn.pragma_update(None, "cell_size_check", 1)?;
    }
    match to {
        Access::Write => {
            conn.pragma_update(None, "synchronous", "full")?;
            // A checkpoint within a commit would delay those who wait for the commit.
            conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
            conn.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
            conn.pragma_update(None, "cache_size", -8_192)?;
        }
        Access::Read | Access::Inspect => {
            conn.pragma_update(None, "query_only", 1)?;
            conn.pragma_update(None, "cache_size", -2_048)?;
        }
    }
    Ok(conn)
}
