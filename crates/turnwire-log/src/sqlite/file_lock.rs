//! The lock of a store, a file next to it. It has the pid of its owner, and the URL of the server if that is one.
//! Whoever finds the store locked reads them: they are valid while somebody has the lock.

use super::errors;
use super::file::sibling_path;
use crate::error::{Error, Result};
use crate::private_file::owner_only;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// How much of a lock file is read.
const MAX_BYTES: u64 = 4096;

/// Locks the store for this process, until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock(File);

impl FileLock {
    pub(super) fn acquire(file: &Path) -> Result<Self> {
        let path = sibling_path(file, ".lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let lock = owner_only(&mut options)
            .open(&path)
            .map_err(|error| errors::from_io(&path, "open", &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = match read_lines(lock) {
                    Ok(lines) if !lines.pid.is_empty() => format!(" (pid {})", lines.pid),
                    _ => String::new(),
                };
                return Err(Error::Locked(format!(
                    "{} is in use by another process{pid}; stop that one first, or name another \
                     file with `--store sqlite:PATH`",
                    file.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(errors::from_io(&path, "lock", &error)),
        }
        let lock = Self(lock);
        // Information for others; the lock works without it.
        let _ = lock.write_lines(None);
        Ok(lock)
    }

    /// Writes the URL of the server for [`announced_url`].
    pub(super) fn announce(&self, url: &str) -> io::Result<()> {
        self.write_lines(Some(url))
    }

    fn write_lines(&self, url: Option<&str>) -> io::Result<()> {
        let mut file = &self.0;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        let url = url.map(|url| format!("{url}\n")).unwrap_or_default();
        file.write_all(format!("{}\n{url}", std::process::id()).as_bytes())
    }
}

/// A child process that has just been forked has the same file open until it executes its program. Closing the file
/// here would leave the lock with that child.
impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// What a lock file says.
struct LockLines {
    pid: String,
    url: Option<String>,
}

fn read_lines(file: File) -> io::Result<LockLines> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    // A line without its end is still being written.
    let mut lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n'));
    let pid = lines.next().flatten().unwrap_or(text.trim()).to_owned();
    let url = lines.next().flatten().map(str::to_owned);
    Ok(LockLines { pid, url })
}

/// The URL of the server that has a store open, if it announced one: see
/// [`SqliteStore::announce_url`](super::SqliteStore::announce_url). It is valid if opening the store has just failed
/// with [`Error::Locked`].
///
/// A client sends its token to this URL, so only a lock file that nobody but this user (or root) can write counts.
pub fn announced_url(store: &Path) -> Result<Option<String>> {
    let path = sibling_path(&super::absolute(store)?, ".lock");
    let failed = |error: io::Error| errors::from_io(&path, "read", &error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    check_owner(&file, &path)?;
    Ok(read_lines(file).map_err(failed)?.url)
}

#[cfg(unix)]
fn check_owner(file: &File, path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata().map_err(|error| errors::from_io(path, "read", &error))?;
    let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if is_ours && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::Denied(format!(
        "{} belongs to another user, or others can write it, so its URL of the server is not trusted",
        path.display()
    )))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
fn check_owner(_: &File, _: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_while_a_forked_child_still_has_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let lock = FileLock::acquire(&store).unwrap();
        let inherited = lock.0.try_clone().unwrap();
        assert!(matches!(FileLock::acquire(&store), Err(Error::Locked(_))));
        drop(lock);
        FileLock::acquire(&store).unwrap();
        drop(inherited);
    }
}
