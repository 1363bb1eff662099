//! The simulated disk, its faults, and power cuts. Tests use it; the VFS reports every operation to it.

use crate::file::File;
use crate::{mounts, vfs};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Probabilities of faults, each from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// A write fails, possibly after a part of it was written.
    pub write: f64,
    /// A write fails because the disk is full.
    pub full: f64,
    /// A sync fails. The data may be lost for good, and every other open handle of the file gets the error
    /// once, as on Linux.
    pub sync: f64,
    /// A read fails.
    pub read: f64,
    /// A read returns too few bytes.
    pub short_read: f64,
}

/// A disk with one folder. Everything that SQLite does with files in it goes through the disk.
pub struct Disk {
    state: Arc<SharedDisk>,
}

pub(crate) struct SharedDisk {
    inner: Mutex<DiskState>,
    power_cut: Condvar,
}

struct DiskState {
    folder: PathBuf,
    rng: Rng,
    files: BTreeMap<PathBuf, File>,
    faults: Faults,
    /// Number of faults still to come.
    faults_left: u64,
    fault_count: u64,
    open: usize,
    /// Syncs succeed but do nothing.
    ignores_syncs: bool,
    power: Power,
}

enum Power {
    On,
    /// The power is cut after this many changes.
    Until {
        changes: u64,
        into: PathBuf,
    },
    Off(io::Result<()>),
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskError {
    Failed,
    Full,
}

/// Result of a write.
pub(crate) enum WriteOutcome {
    All,
    /// This many bytes were written, then this error.
    Part(usize, DiskError),
}

/// Result of a read.
pub(crate) enum ReadOutcome {
    All,
    /// Only this many bytes.
    Short(usize),
}

impl Disk {
    /// A disk without faults, over an existing folder. The seed determines all random decisions.
    pub fn new(seed: u64, folder: &Path) -> io::Result<Self> {
        vfs::install()?;
        let folder = folder.canonicalize()?;
        let state = Arc::new(SharedDisk {
            inner: Mutex::new(DiskState {
                folder: folder.clone(),
                rng: Rng::with_seed(seed),
                files: BTreeMap::new(),
                faults: Faults::default(),
                faults_left: 0,
                fault_count: 0,
                open: 0,
                ignores_syncs: false,
                power: Power::On,
            }),
            power_cut: Condvar::new(),
        });
        mounts::mount(folder, &state);
        Ok(Self { state })
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        self.state.inner.lock().folder.clone()
    }

    /// Sets the probabilities of faults, until `times` faults have happened.
    pub fn set_faults(&self, faults: Faults, times: u64) {
        let mut inner = self.state.inner.lock();
        inner.faults = faults;
        inner.faults_left = times;
    }

    /// Stops all faults.
    pub fn stop_faults(&self) {
        self.state.inner.lock().faults_left = 0;
    }

    /// Number of faults so far.
    pub fn fault_count(&self) -> u64 {
        self.state.inner.lock().fault_count
    }

    /// Number of open file handles.
    pub fn open_files(&self) -> usize {
        self.state.inner.lock().open
    }

    /// From now on syncs succeed but do nothing.
    pub fn ignore_syncs(&self) {
        self.state.inner.lock().ignores_syncs = true;
    }

    /// Cuts the power now, and writes to a new folder what might be on the disk.
    pub fn cut_power(&self, into: &Path) -> io::Result<()> {
        self.cut_power_after(0, into);
        let mut inner = self.state.inner.lock();
        inner.count_change();
        self.state.power_cut.notify_all();
        inner.power_cut_result()
    }

    /// Cuts the power in the middle of a change, after this many changes.
    pub fn cut_power_after(&self, changes: u64, into: &Path) {
        let mut inner = self.state.inner.lock();
        if !matches!(inner.power, Power::Off(_)) {
            inner.power = Power::Until { changes, into: into.to_owned() };
        }
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        matches!(self.state.inner.lock().power, Power::Off(_))
    }

    /// Waits until the power is cut; `false` after a timeout.
    pub fn wait_until_off(&self, at_most: Duration) -> bool {
        let mut inner = self.state.inner.lock();
        let on = |inner: &mut DiskState| !matches!(inner.power, Power::Off(_));
        !self.state.power_cut.wait_while_for(&mut inner, on, at_most).timed_out()
    }

    /// Starts again with another folder, such as one that a power cut has written. No file of the old folder
    /// may be open.
    pub fn power_on(&self, folder: &Path) -> io::Result<()> {
        let folder = folder.canonicalize()?;
        let mut inner = self.state.inner.lock();
        inner.files.clear();
        inner.power = Power::On;
        inner.folder.clone_from(&folder);
        mounts::mount(folder, &self.state);
        Ok(())
    }
}

impl DiskState {
    /// Counts a change, and cuts the power if it is time.
    fn count_change(&mut self) {
        let Power::Until { changes, into } = &mut self.power else { return };
        if let Some(left) = changes.checked_sub(1) {
            *changes = left;
            return;
        }
        let into = std::mem::take(into);
        self.power = Power::Off(self.write_image(&into));
    }

    fn write_image(&mut self, into: &Path) -> io::Result<()> {
        std::fs::create_dir_all(into)?;
        for (path, file) in &self.files {
            // A file that was renamed without SQLite is copied under its new name below.
            if file.exists() && !path.exists() {
                continue;
            }
            if let (Some(bytes), Some(name)) =
                (file.after_power_cut(&mut self.rng), path.file_name())
            {
                std::fs::write(into.join(name), bytes)?;
            }
        }
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            let is_shared_memory = name.to_string_lossy().ends_with("-shm");
            if !self.files.contains_key(&path) && path.is_file() && !is_shared_memory {
                std::fs::copy(&path, into.join(name))?;
            }
        }
        Ok(())
    }

    fn power_cut_result(&self) -> io::Result<()> {
        match &self.power {
            Power::Off(Ok(())) => Ok(()),
            Power::Off(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            Power::On | Power::Until { .. } => Err(io::Error::other("the power was not cut")),
        }
    }

    fn is_off(&self) -> bool {
        matches!(self.power, Power::Off(_))
    }

    fn draw_fault(&mut self, chance: f64) -> bool {
        let happens = self.faults_left > 0 && self.rng.f64() < chance;
        self.faults_left -= u64::from(happens);
        self.fault_count += u64::from(happens);
        happens
    }

    fn draw_write_error(&mut self) -> Option<DiskError> {
        if self.is_off() || self.draw_fault(self.faults.write) {
            Some(DiskError::Failed)
        } else if self.draw_fault(self.faults.full) {
            Some(DiskError::Full)
        } else {
            None
        }
    }

    fn make_names_durable(&mut self, path: &Path) {
        let folder = path.parent();
        let beside = self.files.iter_mut().filter(|(other, _)| other.parent() == folder);
        beside.for_each(|(_, file)| file.make_name_durable());
    }
}

impl SharedDisk {
    /// Opens a file with `open`; returns the number of its failed syncs.
    pub(crate) fn open(
        &self,
        path: &Path,
        open: impl FnOnce() -> Result<(), i32>,
    ) -> Result<u64, OpenError> {
        let mut inner = self.inner.lock();
        if inner.is_off() {
            return Err(OpenError::Refused);
        }
        if !inner.files.contains_key(path) {
            let file = match std::fs::read(path) {
                Ok(bytes) => File::existing(bytes),
                Err(_) => File::default(),
            };
            inner.files.insert(path.to_owned(), file);
        }
        open().map_err(OpenError::System)?;
        inner.open += 1;
        let file = inner.files.entry(path.to_owned()).or_default();
        file.mark_opened();
        Ok(file.failures)
    }

    pub(crate) fn close(&self) {
        self.inner.lock().open -= 1;
    }

    /// Writes with `write`, which gets the number of bytes to write.
    pub(crate) fn write(
        &self,
        path: &Path,
        at: usize,
        bytes: &[u8],
        write: impl FnOnce(usize) -> i32,
    ) -> (WriteOutcome, i32) {
        let mut inner = self.inner.lock();
        let written = match inner.draw_write_error() {
            None => WriteOutcome::All,
            Some(DiskError::Failed) if !inner.is_off() && !bytes.is_empty() => {
                WriteOutcome::Part(inner.rng.usize(..bytes.len()), DiskError::Failed)
            }
            Some(refusal) => WriteOutcome::Part(0, refusal),
        };
        let len = match written {
            WriteOutcome::All => bytes.len(),
            WriteOutcome::Part(len, _) => len,
        };
        let result = if len > 0 { write(len) } else { 0 };
        if let (Some(file), Some(part)) = (inner.files.get_mut(path), bytes.get(..len))
            && result == 0
            && len > 0
        {
            file.write(at, part);
        }
        self.count_change(&mut inner);
        if inner.is_off() {
            (WriteOutcome::Part(len, DiskError::Failed), result)
        } else {
            (written, result)
        }
    }

    pub(crate) fn truncate(
        &self,
        path: &Path,
        len: usize,
        truncate: impl FnOnce() -> i32,
    ) -> Result<i32, DiskError> {
        let mut inner = self.inner.lock();
        if let Some(refusal) = inner.draw_write_error() {
            return Err(refusal);
        }
        let result = truncate();
        if let Some(file) = inner.files.get_mut(path)
            && result == 0
        {
            file.truncate(len);
        }
        self.count_change(&mut inner);
        if inner.is_off() { Err(DiskError::Failed) } else { Ok(result) }
    }

    /// Syncs a file, for a handle that has seen this many failed syncs of it.
    pub(crate) fn sync(&self, path: &Path, seen: &mut u64) -> Result<(), DiskError> {
        let mut inner = self.inner.lock();
        self.count_change(&mut inner);
        if inner.is_off() {
            return Err(DiskError::Failed);
        }
        if inner.ignores_syncs {
            return Ok(());
        }
        let faults = inner.faults;
        let fails = inner.draw_fault(faults.sync);
        let DiskState { files, rng, .. } = &mut *inner;
        let Some(file) = files.get_mut(path) else { return Ok(()) };
        if fails {
            file.fail_sync(rng);
        }
        if file.failures != *seen {
            *seen = file.failures;
            return Err(DiskError::Failed);
        }
        if file.sync() {
            inner.make_names_durable(path);
        }
        Ok(())
    }

    pub(crate) fn delete(
        &self,
        path: &Path,
        with_folder: bool,
        delete: impl FnOnce() -> i32,
    ) -> Result<i32, DiskError> {
        let mut inner = self.inner.lock();
        self.count_change(&mut inner);
        if let Some(refusal) = inner.draw_write_error() {
            return Err(refusal);
        }
        let result = delete();
        let DiskState { files, rng, .. } = &mut *inner;
        if let Some(file) = files.get_mut(path)
            && result == 0
        {
            file.delete(rng);
        }
        if with_folder && result == 0 {
            inner.make_names_durable(path);
        }
        Ok(result)
    }

    pub(crate) fn read(&self, len: usize) -> Result<ReadOutcome, DiskError> {
        let mut inner = self.inner.lock();
        let faults = inner.faults;
        if inner.is_off() || inner.draw_fault(faults.read) {
            Err(DiskError::Failed)
        } else if len > 0 && inner.draw_fault(faults.short_read) {
            Ok(ReadOutcome::Short(inner.rng.usize(..len)))
        } else {
            Ok(ReadOutcome::All)
        }
    }

    fn count_change(&self, inner: &mut DiskState) {
        inner.count_change();
        if inner.is_off() {
            self.power_cut.notify_all();
        }
    }
}

/// Why a file was not opened.
pub(crate) enum OpenError {
    Refused,
    /// SQLite's own code.
    System(i32),
}
