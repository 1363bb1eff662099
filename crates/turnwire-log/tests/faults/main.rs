//! The SQLite engine on disks that lose power, fail, are full, lie about syncs or corrupt data.
//!
//! Seeds are printed. `TURNWIRE_SEED` repeats one, `FAULT_SEEDS` runs that many per test. The seed
//! decides what is done and where the power is cut, but not how the threads interleave.
#![cfg(all(unix, feature = "sqlite"))]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod corruption;
mod session_history;
mod verify;
mod workload;

use corruption::Undetected;
use fastrand::Rng;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use turnwire_core::{Fields, Seq};
use turnwire_faults::{Disk, Faults};
use turnwire_log::sqlite::{LayoutSizes, Options};
use turnwire_log::store::{
    Append, Blob, EventLines, Fence, NewSession, SessionKey, SessionNumber, Store,
};
use turnwire_log::{Error, Log, SqliteStore};
use workload::{OnError, Workload, copy_folder, run_workers};

/// Sizes so small that events move and rows fill all the time.
const SMALL_SIZES: LayoutSizes = LayoutSizes {
    large_bytes: 500,
    gathered_bytes: 900,
    row_bytes: 2000,
    row_ms: 0,
    sweep_rows: 12,
    sweep_bytes: 3000,
    clear_rows: 3,
};

fn seeds(few: u64) -> u64 {
    std::env::var("FAULT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(few)
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs work that must come to an end.
fn block_on<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(async { tokio::time::timeout(Duration::from_mins(2), work).await.unwrap() })
}

fn options(rng: &mut Rng) -> Options {
    let sizes = if rng.bool() { SMALL_SIZES } else { LayoutSizes::default() };
    Options { sizes, ..Options::default() }
}

/// A simulated disk over several power cuts: each leaves a new folder.
struct DiskRun {
    folder: TempDir,
    rounds: usize,
    disk: Arc<Disk>,
    workload: Arc<Workload>,
    options: Options,
}

impl DiskRun {
    fn new(rng: &mut Rng) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("0")).unwrap();
        let disk = Disk::new(rng.u64(..), &folder.path().join("0")).unwrap();
        let workload = Workload::new(rng.usize(1..5));
        Self { folder, rounds: 0, disk: Arc::new(disk), workload, options: options(rng) }
    }

    fn current_folder(&self) -> PathBuf {
        self.folder.path().join(self.rounds.to_string())
    }

    fn next_folder(&self) -> PathBuf {
        self.folder.path().join((self.rounds + 1).to_string())
    }

    fn open(&self) -> turnwire_log::Result<SqliteStore> {
        SqliteStore::open(self.current_folder().join("store.db"), self.options)
    }

    /// Opens the store and lets all workers write until the power is cut.
    fn run_until_power_cut(
        &mut self,
        runtime: &Runtime,
        rng: &mut Rng,
        on_error: OnError,
    ) -> Result<(), String> {
        let changes = match rng.u8(..4) {
            0 => rng.u64(..12),
            1 => rng.u64(..80),
            _ => rng.u64(..800),
        };
        self.disk.cut_power_after(changes, &self.next_folder());
        let steps = rng.usize(1..60);
        match self.open() {
            Ok(store) => {
                let log = Arc::new(Log::new(Arc::new(store), "test"));
                let lived = run_workers(&self.workload, &log, &self.disk, rng, steps, on_error);
                block_on(runtime, lived)?;
                if rng.bool() {
                    self.cut_power();
                }
                close(log);
            }
            Err(_) if self.disk.is_off() => {}
            Err(error) if on_error == OnError::Fail => return Err(error.to_string()),
            Err(_) => {}
        }
        self.cut_power();
        Ok(())
    }

    fn cut_power(&self) {
        if !self.disk.is_off() {
            self.disk.cut_power(&self.next_folder()).unwrap();
        }
        assert!(self.next_folder().exists(), "the power was cut, and nothing is left");
    }

    /// Verifies what is left, and continues with it.
    fn verify_and_continue(&mut self, runtime: &Runtime) -> Result<(), String> {
        let look = self.folder.path().join("look");
        copy_folder(&self.next_folder(), &look);
        let opened = SqliteStore::open(look.join("store.db"), self.options);
        let store = opened.map_err(|error| error.to_string())?;
        block_on(runtime, verify::verify_store(&self.workload, store))?;
        std::fs::remove_dir_all(&look).unwrap();
        std::fs::remove_dir_all(self.current_folder()).unwrap();
        self.rounds += 1;
        self.disk.power_on(&self.current_folder()).map_err(|error| error.to_string())
    }
}

/// Waits until all files are closed.
fn close(log: Arc<Log>) {
    let store = Arc::downgrade(log.store());
    drop(log);
    assert_eq!(store.strong_count(), 0, "somebody holds the store");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_is_cut() {
    let runtime = runtime();
    turnwire_testkit::check_property("power cuts", seeds(14), |rng| {
        let mut life = DiskRun::new(rng);
        for _ in 0..rng.usize(1..6) {
            life.run_until_power_cut(&runtime, rng, OnError::Fail).unwrap();
            life.verify_and_continue(&runtime).unwrap();
        }
    });
}

#[test]
fn a_disk_that_lies_about_syncs_is_noticed_by_this_test() {
    let runtime = runtime();
    let (mut lives, mut noticed) = (0, 0);
    // One by one, because a single run may be lucky.
    for seed in 0..seeds(5) {
        let mut rng = Rng::with_seed(seed);
        let mut life = DiskRun::new(&mut rng);
        life.disk.ignore_syncs();
        life.disk.cut_power_after(300, &life.next_folder());
        let log = Arc::new(Log::new(Arc::new(life.open().unwrap()), "test"));
        block_on(
            &runtime,
            run_workers(&life.workload, &log, &life.disk, &mut rng, 20, OnError::Fail),
        )
        .unwrap();
        life.cut_power();
        close(log);
        lives += 1;
        noticed += u32::from(life.verify_and_continue(&runtime).is_err());
    }
    assert!(noticed * 2 > lives, "noticed {noticed} of {lives}");
}

#[test]
fn errors_of_the_disk_lose_nothing_and_writing_goes_on_when_they_end() {
    let runtime = runtime();
    turnwire_testkit::check_property("errors", seeds(4), |rng| {
        let mut life = DiskRun::new(rng);
        for _ in 0..rng.usize(1..4) {
            let rare = |rng: &mut Rng| if rng.bool() { 0.0 } else { rng.f64() * rng.f64() * 0.3 };
            let store = Arc::new(life.open().unwrap());
            let faults = Faults {
                write: rare(rng),
                full: rare(rng),
                sync: rare(rng),
                read: rare(rng) / 4.0,
                short_read: 0.0,
            };
            life.disk.set_faults(faults, rng.u64(1..40));
            let log = Arc::new(Log::new(store, "test"));
            block_on(
                &runtime,
                run_workers(&life.workload, &log, &life.disk, rng, 30, OnError::Retry),
            )
            .unwrap();
            life.disk.stop_faults();
            block_on(
                &runtime,
                run_workers(&life.workload, &log, &life.disk, rng, 5, OnError::Fail),
            )
            .unwrap();
            block_on(&runtime, log.store().check_health()).unwrap();
            if rng.bool() {
                life.cut_power();
            }
            close(log);
            life.cut_power();
            life.verify_and_continue(&runtime).unwrap();
        }
        eprintln!("{} faults: {:?}", life.disk.fault_count(), life.workload.errors.lock());
    });
}

#[test]
fn errors_and_power_cuts_together_lose_nothing() {
    let runtime = runtime();
    turnwire_testkit::check_property("errors and power cuts", seeds(6), |rng| {
        let mut life = DiskRun::new(rng);
        for _ in 0..rng.usize(1..5) {
            let (write, sync) = (rng.f64() * 0.1, rng.f64() * 0.1);
            life.disk.set_faults(Faults { write, sync, ..Faults::default() }, rng.u64(1..20));
            life.run_until_power_cut(&runtime, rng, OnError::Retry).unwrap();
            life.disk.stop_faults();
            life.verify_and_continue(&runtime).unwrap();
        }
    });
}

fn append(session: SessionNumber, fence: Fence, first: u64, line: &str) -> Append {
    let bytes = format!("{line}\n").into();
    Append {
        lines: Some(EventLines { first: Seq::new(first).unwrap(), count: 1, bytes }),
        ..Append::empty(session, fence, 0)
    }
}

/// A commit whose sync fails is complete in the write-ahead log. A process that then opens the file
/// as the only one would find it.
#[test]
fn what_a_failed_sync_refused_does_not_come_back_beside_what_was_written_instead() {
    let runtime = runtime();
    let life = DiskRun::new(&mut Rng::with_seed(1));
    let store = life.open().unwrap();
    block_on(&runtime, async {
        let new = NewSession {
            key: SessionKey::new("t", "s"),
            agent: "external".to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        let (session, _) = store.create_session(new).await.unwrap();
        let lease = store.acquire_lease(session.number, "o").await.unwrap();
        let put = |first, line| store.append(append(session.number, lease.fence, first, line));
        put(1, "1").await.unwrap();
        // The writer and the checkpoint thread have the file and the log open.
        while life.disk.open_files() < 4 {
            tokio::task::yield_now().await;
        }
        life.disk.set_faults(Faults { sync: 1.0, ..Faults::default() }, u64::MAX);
        assert!(put(2, "refused").await.is_err());
        let with_checkpoints = life.disk.open_files();
        while life.disk.open_files() >= with_checkpoints {
            assert!(put(2, "refused").await.is_err());
        }
        life.disk.stop_faults();
        put(2, "2").await.unwrap();
        put(3, "3").await.unwrap();
    });
    block_on(&runtime, assert_three_events(&store));
    drop(store);
    life.cut_power();
    let store = SqliteStore::open(life.next_folder().join("store.db"), Options::default()).unwrap();
    block_on(&runtime, assert_three_events(&store));
}

async fn assert_three_events(store: &SqliteStore) {
    let record = store.find_session(&SessionKey::new("t", "s")).await.unwrap().unwrap();
    assert_eq!(verify::read_lines(store, &record).await.unwrap(), ["1", "2", "3"]);
    assert_eq!(store.check(|_| ()).await.unwrap(), []);
}

/// A closed store with content, and everything that can be read from it.
fn filled_store(runtime: &Runtime, rng: &mut Rng) -> (DiskRun, corruption::StoreContents) {
    let mut life = DiskRun::new(rng);
    life.options.sizes = SMALL_SIZES;
    let log = Arc::new(Log::new(Arc::new(life.open().unwrap()), "test"));
    block_on(runtime, run_workers(&life.workload, &log, &life.disk, rng, 40, OnError::Fail))
        .unwrap();
    close(log);
    let answers =
        block_on(runtime, corruption::read_everything(&life.workload, &life.open().unwrap()));
    (life, answers)
}

#[test]
fn a_file_that_has_rotted_is_noticed_and_never_served() {
    let runtime = runtime();
    turnwire_testkit::check_property("rot", seeds(1), |rng| {
        let (life, sound) = filled_store(&runtime, rng);
        for _ in 0..20 {
            let folder = life.folder.path().join("rot");
            copy_folder(&life.current_folder(), &folder);
            let how = corruption::corrupt_file(rng, &folder.join("store.db"));
            // A store that cannot be opened is detected, too.
            if let Ok(store) = SqliteStore::open(folder.join("store.db"), life.options) {
                let now = block_on(&runtime, corruption::read_everything(&life.workload, &store));
                let silent = corruption::find_undetected(&sound, &now);
                let wrong = silent.iter().find(|silent| matches!(silent, Undetected::Wrong(_)));
                assert_eq!(wrong, None, "{how}");
                if silent.iter().any(|silent| matches!(silent, Undetected::Missing(_))) {
                    let found = block_on(&runtime, corruption::is_detected(&store));
                    assert!(found, "{how}: {silent:?}");
                }
            }
            std::fs::remove_dir_all(folder).unwrap();
        }
    });
}

#[test]
fn reads_that_fail_or_come_short_are_never_served_and_are_forgotten_when_they_end() {
    let runtime = runtime();
    turnwire_testkit::check_property("reads", seeds(4), |rng| {
        let (life, sound) = filled_store(&runtime, rng);
        // A writer that acts on a short read corrupts the file, so short reads are only for a
        // read-only store.
        let (store, faults) = if rng.bool() {
            (life.open().unwrap(), Faults { read: rng.f64(), ..Faults::default() })
        } else {
            let store =
                SqliteStore::open_read_only(life.current_folder().join("store.db")).unwrap();
            (store, Faults { short_read: rng.f64(), ..Faults::default() })
        };
        for _ in 0..8 {
            life.disk.set_faults(faults, rng.u64(1..20));
            let now = block_on(&runtime, corruption::read_everything(&life.workload, &store));
            let silent = corruption::find_undetected(&sound, &now);
            let wrong = silent.iter().find(|silent| matches!(silent, Undetected::Wrong(_)));
            assert_eq!(wrong, None);
            life.disk.stop_faults();
        }
        // A short read may be cached by a connection, and hide what is there.
        let store = if faults.short_read > 0.0 {
            drop(store);
            life.open().unwrap()
        } else {
            store
        };
        let now = block_on(&runtime, corruption::read_everything(&life.workload, &store));
        assert_eq!(corruption::find_undetected(&sound, &now), []);
        assert_eq!(
            now.values().find_map(|answer| answer.as_ref().err()).map(Error::to_string),
            None
        );
    });
}

#[test]
fn a_store_is_made_with_its_log_or_not_at_all() {
    turnwire_testkit::check_property("making", seeds(40), |rng| {
        let life = DiskRun::new(rng);
        let (write, sync) = (rng.f64() * 0.1, rng.f64() * 0.3);
        life.disk.set_faults(Faults { write, sync, ..Faults::default() }, 1);
        if life.open().is_ok() {
            let header = std::fs::read(life.current_folder().join("store.db")).unwrap();
            assert_eq!(header[18..20], [2, 2], "it has no write-ahead log");
        }
        life.disk.stop_faults();
        drop(life.open().unwrap());
    });
}

#[test]
fn a_header_that_a_power_cut_has_spoilt_is_found_in_the_log() {
    let runtime = runtime();
    let life = DiskRun::new(&mut Rng::with_seed(3));
    let store = life.open().unwrap();
    let blob = Blob { media_type: "text/plain".to_owned(), bytes: vec![1; 100_000].into() };
    block_on(&runtime, store.put_blob("t", [7; 32], blob.clone())).unwrap();
    let folder = life.folder.path().join("spoilt");
    copy_folder(&life.current_folder(), &folder);
    let file = folder.join("store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[..512].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let store = SqliteStore::open(&file, Options::default()).unwrap();
    assert_eq!(block_on(&runtime, store.read_blob("t", [7; 32])).unwrap(), Some(blob));
    assert_eq!(block_on(&runtime, store.check(|_| ())).unwrap(), []);
}
