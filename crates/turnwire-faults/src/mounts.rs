//! Maps folders to simulated disks.

use crate::disk::SharedDisk;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

static MOUNTS: Mutex<Vec<(PathBuf, Weak<SharedDisk>)>> = Mutex::new(Vec::new());

/// The disk of a file, if its folder is on one.
pub(crate) fn find_disk(file: &Path) -> Option<Arc<SharedDisk>> {
    let folder = file.parent()?;
    MOUNTS.lock().iter().find(|(mounted, _)| mounted == folder)?.1.upgrade()
}

/// Puts a folder on a disk, instead of the disk's previous folder.
pub(crate) fn mount(folder: PathBuf, state: &Arc<SharedDisk>) {
    let mut mounts = MOUNTS.lock();
    mounts.retain(|(_, other)| {
        other.strong_count() > 0 && !Weak::ptr_eq(other, &Arc::downgrade(state))
    });
    mounts.push((folder, Arc::downgrade(state)));
}
