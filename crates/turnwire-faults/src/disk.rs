//! A disk, its faults, and power cuts.

use crate::file::File;
use crate::{mounts, vfs};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the disk refuses something, each a chance from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// A write fails, and a part of it may be done.
    pub write: f64,
    /// A write finds no room.
    pub full: f64,
    /// A sync fails. What it should have made durable may be lost for good, and everybody else who
    /// has the file open hears of it once, as with Linux.
    pub sync: f64,
    /// A read fails.
    pub read: f64,
    /// A read gives less than there is.
    pub short_read: f64,
}

/// A disk with one folder on it. Whatever SQLite does with files there goes through the disk.
pub struct Disk {
    state: Arc<State>,
}

pub(crate) struct State {
    inner: Mutex<Inner>,
    cut: Condvar,
}

struct Inner {
    folder: PathBuf,
    rng: Rng,
    files: BTreeMap<PathBuf, File>,
    faults: Faults,
    /// How many faults are still to come.
    left: u64,
    refused: u64,
    open: usize,
    /// Syncs are acknowledged, and do nothing.
    lies: bool,
    power: Power,
}

enum Power {
    On,
    /// It is cut at the so-manieth change from now.
    Until {
        changes: u64,
        into: PathBuf,
    },
    Off(io::Result<()>),
}

/// Why the disk does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Failed,
    Full,
}

/// What a write comes to.
pub(crate) enum Written {
    All,
    /// So many bytes of it, and then this.
    Part(usize, Refusal),
}

/// What a read comes to.
pub(crate) enum Reading {
    All,
    /// Only so many bytes.
    Short(usize),
}

impl Disk {
    /// A disk that does what it should, with a folder that is there. All that it decides by chance
    /// follows from the seed.
    pub fn new(seed: u64, folder: &Path) -> io::Result<Self> {
        vfs::install()?;
        let folder = folder.canonicalize()?;
        let state = Arc::new(State {
            inner: Mutex::new(Inner {
                folder: folder.clone(),
                rng: Rng::with_seed(seed),
                files: BTreeMap::new(),
                faults: Faults::default(),
                left: 0,
                refused: 0,
                open: 0,
                lies: false,
                power: Power::On,
            }),
            cut: Condvar::new(),
        });
        mounts::mount(folder, &state);
        Ok(Self { state })
    }

    /// The folder that is on it.
    pub fn folder(&self) -> PathBuf {
        self.state.inner.lock().folder.clone()
    }

    /// From now on it fails so often, until it has failed so many times.
    pub fn set_faults(&self, faults: Faults, times: u64) {
        let mut inner = self.state.inner.lock();
        inner.faults = faults;
        inner.left = times;
    }

    /// From now on it does what it should.
    pub fn heal(&self) {
        self.state.inner.lock().left = 0;
    }

    /// How often it has failed.
    pub fn refused(&self) -> u64 {
        self.state.inner.lock().refused
    }

    /// How many files are open now, each as often as it is.
    pub fn open_files(&self) -> usize {
        self.state.inner.lock().open
    }

    /// From now on it says that it has synced, and has not.
    pub fn lie_about_syncs(&self) {
        self.state.inner.lock().lies = true;
    }

    /// Cuts the power now, and leaves in a new folder what might be on the disk.
    pub fn cut_power(&self, into: &Path) -> io::Result<()> {
        self.cut_power_after(0, into);
        let mut inner = self.state.inner.lock();
        inner.step();
        self.state.cut.notify_all();
        inner.is_cut()
    }

    /// Cuts the power in the middle of a change: the so-manieth from now.
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

    /// Waits until the power is cut; `false` when it is not, after so long.
    pub fn wait_until_off(&self, at_most: Duration) -> bool {
        let mut inner = self.state.inner.lock();
        let on = |inner: &mut Inner| !matches!(inner.power, Power::Off(_));
        !self.state.cut.wait_while_for(&mut inner, on, at_most).timed_out()
    }

    /// Begins anew with another folder, such as one that a power cut has left. Nobody may have a
    /// file of the old one open.
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

impl Inner {
    /// Counts a change, and cuts the power when it is time.
    fn step(&mut self) {
        let Power::Until { changes, into } = &mut self.power else { return };
        if let Some(left) = changes.checked_sub(1) {
            *changes = left;
            return;
        }
        let into = std::mem::take(into);
        self.power = Power::Off(self.leave(&into));
    }

    fn leave(&mut self, into: &Path) -> io::Result<()> {
        std::fs::create_dir_all(into)?;
        for (path, file) in &self.files {
            // One that was moved by other means is known by its new name.
            if file.exists() && !path.exists() {
                continue;
            }
            if let (Some(bytes), Some(name)) = (file.image(&mut self.rng), path.file_name()) {
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

    fn is_cut(&self) -> io::Result<()> {
        match &self.power {
            Power::Off(Ok(())) => Ok(()),
            Power::Off(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            Power::On | Power::Until { .. } => Err(io::Error::other("the power is on")),
        }
    }

    fn is_off(&self) -> bool {
        matches!(self.power, Power::Off(_))
    }

    fn happens(&mut self, chance: f64) -> bool {
        let happens = self.left > 0 && self.rng.f64() < chance;
        self.left -= u64::from(happens);
        self.refused += u64::from(happens);
        happens
    }

    fn refuses_write(&mut self) -> Option<Refusal> {
        if self.is_off() || self.happens(self.faults.write) {
            Some(Refusal::Failed)
        } else if self.happens(self.faults.full) {
            Some(Refusal::Full)
        } else {
            None
        }
    }

    fn settle_names_beside(&mut self, path: &Path) {
        let folder = path.parent();
        let beside = self.files.iter_mut().filter(|(other, _)| other.parent() == folder);
        beside.for_each(|(_, file)| file.settle_name());
    }
}

impl State {
    /// Opens a file with `open`, and says how many syncs of it have failed before.
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
                Ok(bytes) => File::found(bytes),
                Err(_) => File::default(),
            };
            inner.files.insert(path.to_owned(), file);
        }
        open().map_err(OpenError::System)?;
        inner.open += 1;
        let file = inner.files.entry(path.to_owned()).or_default();
        file.open();
        Ok(file.failures)
    }

    pub(crate) fn close(&self) {
        self.inner.lock().open -= 1;
    }

    /// Lets a write happen with `write`, which is given how many bytes of it to write.
    pub(crate) fn write(
        &self,
        path: &Path,
        at: usize,
        bytes: &[u8],
        write: impl FnOnce(usize) -> i32,
    ) -> (Written, i32) {
        let mut inner = self.inner.lock();
        let written = match inner.refuses_write() {
            None => Written::All,
            Some(Refusal::Failed) if !inner.is_off() && !bytes.is_empty() => {
                Written::Part(inner.rng.usize(..bytes.len()), Refusal::Failed)
            }
            Some(refusal) => Written::Part(0, refusal),
        };
        let len = match written {
            Written::All => bytes.len(),
            Written::Part(len, _) => len,
        };
        let result = if len > 0 { write(len) } else { 0 };
        if let (Some(file), Some(part)) = (inner.files.get_mut(path), bytes.get(..len))
            && result == 0
            && len > 0
        {
            file.write(at, part);
        }
        self.step(&mut inner);
        if inner.is_off() {
            (Written::Part(len, Refusal::Failed), result)
        } else {
            (written, result)
        }
    }

    pub(crate) fn truncate(
        &self,
        path: &Path,
        len: usize,
        truncate: impl FnOnce() -> i32,
    ) -> Result<i32, Refusal> {
        let mut inner = self.inner.lock();
        if let Some(refusal) = inner.refuses_write() {
            return Err(refusal);
        }
        let result = truncate();
        if let Some(file) = inner.files.get_mut(path)
            && result == 0
        {
            file.truncate(len);
        }
        self.step(&mut inner);
        if inner.is_off() { Err(Refusal::Failed) } else { Ok(result) }
    }

    /// Makes a file durable, for somebody who has seen so many syncs of it fail.
    pub(crate) fn sync(&self, path: &Path, seen: &mut u64) -> Result<(), Refusal> {
        let mut inner = self.inner.lock();
        self.step(&mut inner);
        if inner.is_off() {
            return Err(Refusal::Failed);
        }
        if inner.lies {
            return Ok(());
        }
        let faults = inner.faults;
        let fails = inner.happens(faults.sync);
        let Inner { files, rng, .. } = &mut *inner;
        let Some(file) = files.get_mut(path) else { return Ok(()) };
        if fails {
            file.fail_sync(rng);
        }
        if file.failures != *seen {
            *seen = file.failures;
            return Err(Refusal::Failed);
        }
        if file.sync() {
            inner.settle_names_beside(path);
        }
        Ok(())
    }

    pub(crate) fn delete(
        &self,
        path: &Path,
        with_folder: bool,
        delete: impl FnOnce() -> i32,
    ) -> Result<i32, Refusal> {
        let mut inner = self.inner.lock();
        self.step(&mut inner);
        if let Some(refusal) = inner.refuses_write() {
            return Err(refusal);
        }
        let result = delete();
        let Inner { files, rng, .. } = &mut *inner;
        if let Some(file) = files.get_mut(path)
            && result == 0
        {
            file.delete(rng);
        }
        if with_folder && result == 0 {
            inner.settle_names_beside(path);
        }
        Ok(result)
    }

    pub(crate) fn read(&self, len: usize) -> Result<Reading, Refusal> {
        let mut inner = self.inner.lock();
        let faults = inner.faults;
        if inner.is_off() || inner.happens(faults.read) {
            Err(Refusal::Failed)
        } else if len > 0 && inner.happens(faults.short_read) {
            Ok(Reading::Short(inner.rng.usize(..len)))
        } else {
            Ok(Reading::All)
        }
    }

    fn step(&self, inner: &mut Inner) {
        inner.step();
        if inner.is_off() {
            self.cut.notify_all();
        }
    }
}

/// Why a file was not opened.
pub(crate) enum OpenError {
    Refused,
    /// SQLite's own code.
    System(i32),
}
