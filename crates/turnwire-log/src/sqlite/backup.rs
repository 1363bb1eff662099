//! Backup of a store that is in use, and restore.

use super::check::{self, Progress};
use super::errors::{self, SqliteError};
use super::file::{self, Access, FileContent};
use super::file_lock::FileLock;
use super::{SqliteStore, schema, with_connection};
use crate::error::{Error, Result};
use crate::store::new_epoch;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many pages are copied between two reports of progress.
const COPY_PAGES: i32 = 1024;

/// What to do with a store that already exists at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingStore {
    /// Keep it, and fail.
    Keep,
    /// Replace it.
    Replace,
}

impl SqliteStore {
    /// Copies the store as it is now to a new file. The file appears complete or not at all. Reads
    /// and writes continue meanwhile.
    pub async fn backup(
        &self,
        to: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<()> {
        let (from, to) = (self.path().to_owned(), super::absolute(to.as_ref())?);
        let copying = tokio::task::spawn_blocking(move || {
            refuse_existing(&to, "a backup never overwrites a file; choose another name")?;
            file::create_folder(&to)?;
            let new = file::sibling_path(&to, ".partial");
            copy_store(&from, &new, &mut progress)?;
            file::move_into_place(&new, &to)
        });
        let gone = |error| Err(Error::Store(format!("the backup failed: {error}")));
        copying.await.unwrap_or_else(gone)
    }
}

pub(super) fn refuse_existing(path: &Path, hint: &str) -> Result<()> {
    match path.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::Store(format!("{} already exists; {hint}", path.display()))),
        Err(error) => Err(errors::from_io(path, "look at", &error)),
    }
}

/// Copies one consistent view of a store, including its write-ahead log, to a new file.
fn copy_store(from: &Path, to: &Path, progress: &mut impl FnMut(Progress)) -> Result<()> {
    file::remove_if_exists(to)?;
    file::create_empty(to)?;
    let copied = with_connection(from, Access::Inspect, |conn| {
        // One transaction for all steps; otherwise each commit of the writer would restart the
        // copy.
        let view = conn.unchecked_transaction()?;
        view.prepare_cached("SELECT 1 FROM store")?.exists([])?;
        write_pages(&view, to, progress)
    });
    if copied.is_err() {
        file::remove_if_exists(to)?;
    }
    copied
}

fn write_pages(
    from: &Connection,
    to: &Path,
    progress: &mut impl FnMut(Progress),
) -> Result<(), SqliteError> {
    let about = |error: rusqlite::Error| errors::from_sqlite(to, &error);
    let mut target = Connection::open(to).map_err(about)?;
    // It is synced once, when it is complete.
    target.pragma_update(None, "synchronous", "off").map_err(about)?;
    {
        let backup = Backup::new(from, &mut target).map_err(about)?;
        loop {
            let step = backup.step(COPY_PAGES).map_err(about)?;
            let pages = backup.progress();
            let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
            progress(Progress {
                stage: "copying",
                done: count(pages.pagecount - pages.remaining),
                total: count(pages.pagecount),
            });
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // Only this thread has the copy, so another connection has the store locked for a
                // moment.
                StepResult::Busy | StepResult::Locked | _ => {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
    target.close().map_err(|(_, error)| about(error).into())
}

/// Creates a store from a backup, after checking all of the backup. Every session gets a new epoch,
/// because clients may have seen events that are not in the backup: their resume tokens become
/// invalid.
///
/// Blocks on the disk.
pub fn restore(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    existing: ExistingStore,
    mut progress: impl FnMut(Progress),
) -> Result<()> {
    let (from, to): (PathBuf, PathBuf) =
        (super::absolute(from.as_ref())?, super::absolute(to.as_ref())?);
    if file::inspect_header(&from)? == FileContent::Nothing {
        return Err(Error::Store(format!("there is no backup at {}", from.display())));
    }
    if from == to {
        return Err(Error::Store(format!(
            "{} cannot be restored to itself; choose another file",
            from.display()
        )));
    }
    file::create_folder(&to)?;
    let _lock = FileLock::acquire(&to)?;
    match existing {
        ExistingStore::Keep => refuse_existing(&to, "confirm that it may be replaced")?,
        // Only a store, damaged or not, or nothing, is ever replaced.
        ExistingStore::Replace => match file::inspect_header(&to) {
            Ok(_) | Err(Error::Damaged(_)) => {}
            Err(error) => return Err(error),
        },
    }
    with_connection(&from, Access::Inspect, |conn| schema::check(conn, &from))?;
    let findings = check::check_file(&from, &mut progress)?;
    if let Some(finding) = findings.first() {
        return Err(Error::Damaged(format!(
            "the backup {} has {} findings, so nothing was restored. The first: {}; use an \
             earlier backup",
            from.display(),
            findings.len(),
            finding.text
        )));
    }
    let new = file::sibling_path(&to, ".new");
    copy_store(&from, &new, &mut progress)?;
    // Checked again: the backup may have changed while it was copied.
    let renewed = with_connection(&new, Access::Inspect, |conn| schema::check(conn, &from))
        .and_then(|()| with_connection(&new, Access::Write, renew_epochs));
    if renewed.is_err() {
        file::remove_if_exists(&new)?;
    }
    renewed?;
    file::move_into_place(&new, &to)
}

/// Gives all sessions new epochs, and empties the write-ahead log.
fn renew_epochs(conn: &Connection) -> Result<(), SqliteError> {
    let transaction = conn.unchecked_transaction()?;
    transaction.execute("UPDATE store SET generation = generation + 1", [])?;
    let mut after = 0;
    loop {
        let next: Vec<i64> = transaction
            .prepare_cached("SELECT no FROM sessions WHERE no > ?1 ORDER BY no LIMIT 1000")?
            .query_map([after], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let Some(last) = next.last() else { break };
        after = *last;
        for no in &next {
            transaction
                .prepare_cached("UPDATE sessions SET epoch = ?2 WHERE no = ?1")?
                .execute(params![no, new_epoch()?])?;
        }
    }
    transaction.commit()?;
    conn.query_one("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
