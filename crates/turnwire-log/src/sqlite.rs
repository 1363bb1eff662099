//! The SQLite engine: one file, the default of `turnwire serve`.
//!
//! One thread writes. It takes all waiting requests, writes them in one transaction, and answers
//! after the sync (group commit). Small appends go to the table `tail` in the order of arrival, and
//! from there, many at once, to `segments`, where a row belongs to one session. This layout is the
//! cheapest to write and to read (`cargo bench -p turnwire-log` compares it with others). Every row
//! of events has a checksum; damaged rows are reported and never returned. Retention by age is exact
//! to the hour, because events of one hour may share a row; by size it is exact to the reply.
//!
//! ```
//! use turnwire_log::store::{NewSession, SessionKey, Store};
//! use turnwire_log::{SqliteStore, sqlite::Options};
//! # use turnwire_core::Fields;
//! # let folder = tempfile::tempdir().unwrap();
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = SqliteStore::open(folder.path().join("turnwire.db"), Options::default())?;
//! let (session, created) = store
//!     .create_session(NewSession {
//!         key: SessionKey::new("alice", "chat-1"),
//!         agent: "demo".to_owned(),
//!         title: String::new(),
//!         metadata: Fields::default(),
//!         now_ms: 0,
//!     })
//!     .await?;
//! assert!(created);
//! assert_eq!(store.find_session(&session.key).await?, Some(session));
//! # Ok::<(), turnwire_log::Error>(())
//! # }).unwrap();
//! ```
//!
//! | to change | open |
//! |---|---|
//! | the tables | `schema.rs` |
//! | how events are stored | `tail_table.rs`, `segment.rs` |
//! | what goes into one transaction | `writer.rs`, `batch.rs` |
//! | which appends are refused | `append.rs`, `session_index.rs` |
//! | how events are read | `events.rs`, `tail.rs` |
//! | text search | `search.rs` |
//! | how blobs are stored | `blobs.rs` |
//! | usage totals | `totals.rs` |
//! | how conversations are recognised | `history.rs` |
//! | copying to and from another engine | `copy.rs` |
//! | background work | `maintenance.rs`, `checkpoint.rs` |
//! | error messages | `errors.rs` |

mod append;
mod backup;
mod batch;
mod blobs;
mod check;
mod checkpoint;
mod copy;
mod errors;
mod events;
mod file;
mod file_lock;
mod history;
mod maintenance;
mod messages;
mod readers;
mod retention;
mod schema;
mod search;
mod segment;
mod session_index;
mod sessions;
mod shared;
mod store_impl;
mod tail;
mod tail_table;
mod totals;
mod writer;

pub use backup::{ExistingStore, restore};
pub use check::{FindingKind, Progress, StoreFinding};
pub use copy::SqliteCopy;
pub use file_lock::announced_url;
#[doc(hidden)]
pub use tail_table::LayoutSizes;

use crate::error::{Error, Result};
use crate::sql_integers;
use batch::Batch;
use errors::SqliteError;
use file::{Access, FileContent};
use file_lock::FileLock;
use maintenance::Maintenance;
use parking_lot::{Mutex, RwLock};
use readers::Readers;
use rusqlite::Connection;
use session_index::SessionIndex;
use shared::SharedState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use tail::Tails;
use tail_table::TailTable;
use writer::{Grouping, Job, Writer};

/// How to open a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The maximum size of the file in bytes; beyond it writes fail with `Full`. `None`: limited by
    /// the disk only.
    pub max_bytes: Option<u64>,
    #[doc(hidden)]
    pub sizes: LayoutSizes,
    /// The maximum number of SQLite's virtual machine steps of a list or search.
    #[doc(hidden)]
    pub query_steps: Option<u64>,
}

/// A store in one file.
///
/// Dropping it writes all pending requests first.
pub struct SqliteStore {
    shared: Arc<SharedState>,
    readers: Readers,
    query_steps: Option<u64>,
    /// `None` if it was opened read-only.
    writing: Option<Writing>,
    /// Keeps servers away while the store is copied.
    source_lock: Option<FileLock>,
}

/// The threads of a writable store.
struct Writing {
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    /// Released after the threads have ended.
    lock: FileLock,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}

impl SqliteStore {
    /// Opens a store, and creates it if there is none. Blocks on the disk: in a server, do it
    /// before anything else runs.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let file = absolute(path.as_ref())?;
        // Before anything is created next to a file that is not ours.
        file::inspect_header(&file)?;
        file::create_folder(&file)?;
        let lock = FileLock::acquire(&file)?;
        match file::inspect_header(&file)? {
            FileContent::Nothing => file::create_store(&file)?,
            FileContent::Store => {
                with_connection(&file, Access::Inspect, |conn| schema::check(conn, &file))?;
            }
        }
        let opened =
            OpenedStore::new(&file, options.sizes).map_err(|fault| fault.into_error(&file))?;
        let shared = Arc::new(SharedState {
            tails: Mutex::new(opened.tails),
            publish_lock: RwLock::new(()),
            write_turn: Mutex::new(()),
            unindexed: AtomicBool::new(opened.has_unindexed),
            max_bytes: AtomicU64::new(options.max_bytes.unwrap_or(u64::MAX)),
            file,
        });
        let (jobs, received_jobs) = mpsc::channel();
        let (written, seen) = mpsc::sync_channel(1);
        let writer = Writer::new(
            Arc::clone(&shared),
            opened.conn,
            opened.index,
            opened.tail_table,
            opened.maintenance,
            written,
        )
        .with_runtime(tokio::runtime::Handle::try_current().ok());
        let checkpoints = Arc::clone(&shared);
        let threads = vec![
            start_thread("turnwire-writer", move || writer.run(&received_jobs))?,
            start_thread("turnwire-checkpoint", move || checkpoint::run(&checkpoints, &seen))?,
        ];
        Ok(Self {
            readers: Readers::new(Arc::clone(&shared), Access::Read),
            shared,
            query_steps: options.query_steps,
            writing: Some(Writing { jobs: Some(jobs), threads, lock }),
            source_lock: None,
        })
    }

    /// Opens a store read-only, also while another process writes to it. Writes fail with `Denied`.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        let file = absolute(path.as_ref())?;
        if file::inspect_header(&file)? == FileContent::Nothing {
            return Err(Error::Store(format!("there is no store at {}", file.display())));
        }
        with_connection(&file, Access::Inspect, |conn| schema::check(conn, &file))?;
        let shared = Arc::new(SharedState {
            tails: Mutex::default(),
            publish_lock: RwLock::new(()),
            write_turn: Mutex::new(()),
            unindexed: AtomicBool::new(false),
            max_bytes: AtomicU64::new(u64::MAX),
            file,
        });
        let readers = Readers::new(Arc::clone(&shared), Access::Inspect);
        Ok(Self { shared, readers, query_steps: None, writing: None, source_lock: None })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.shared.file
    }

    /// Tells other processes the URL of the server that has this store open, while it is open: they find it with
    /// [`announced_url`].
    pub fn announce_url(&self, url: &str) -> Result<()> {
        let Some(writing) = &self.writing else {
            return Err(Error::Denied(format!(
                "{} was opened read-only",
                self.shared.file.display()
            )));
        };
        writing
            .lock
            .announce(url)
            .map_err(|error| errors::from_io(&self.shared.file, "write the lock of", &error))
    }

    /// Changes the maximum size of the file, see [`Options::max_bytes`].
    pub fn set_max_bytes(&self, max_bytes: Option<u64>) {
        self.shared.max_bytes.store(max_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn send_job(&self, job: Job) -> Result<()> {
        let Some(writing) = &self.writing else {
            return Err(Error::Denied(format!(
                "{} was opened read-only",
                self.shared.file.display()
            )));
        };
        let sent = writing.jobs.as_ref().and_then(|jobs| jobs.send(job).ok());
        sent.ok_or_else(|| writer_ended(&self.shared.file))
    }

    /// Runs work on the writer thread, and waits until it is durable.
    async fn write<T: Send + 'static>(
        &self,
        company: Grouping,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.write_bytes(company, 0, work).await
    }

    /// The same for work that writes about so many bytes.
    async fn write_bytes<T: Send + 'static>(
        &self,
        company: Grouping,
        bytes: usize,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        let (job, answer) = Job::large_task(company, bytes, work);
        self.send_job(job)?;
        answer.await.unwrap_or_else(|_| Err(writer_ended(&self.shared.file)))
    }

    /// Indexes all pending text, but not past the deadline of the search that needs it.
    async fn index_before(&self, deadline: Option<Instant>) {
        let indexed = match deadline {
            // Half of the time is left for the search itself.
            Some(deadline) => {
                let half = deadline.saturating_duration_since(Instant::now()) / 2;
                tokio::time::timeout(half, self.index_all()).await
            }
            None => Ok(self.index_all().await),
        };
        match indexed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "text that was written last cannot be searched yet");
            }
            Err(_) => tracing::debug!("text that was written last cannot be searched yet"),
        }
    }

    /// Indexes all pending text, so that a search finds it.
    async fn index_all(&self) -> Result<()> {
        while self.shared.unindexed.load(Ordering::Acquire) && self.writing.is_some() {
            if !self
                .write(Grouping::Shared, |batch| search::index_some(batch.write_connection()?))
                .await?
            {
                break;
            }
        }
        Ok(())
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| errors::from_io(path, "find", &error))
}

fn writer_ended(file: &Path) -> Error {
    Error::Store(format!("the writer thread of {} has ended; restart the process", file.display()))
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| Error::Store(format!("cannot start a thread: {error}")))
}

/// Runs work with a connection of its own.
fn with_connection<T>(
    file: &Path,
    to: Access,
    work: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<T> {
    let done = file::connect(file, to).map_err(SqliteError::from).and_then(|conn| work(&conn));
    done.map_err(|fault| fault.into_error(file))
}

/// What the writer starts with.
struct OpenedStore {
    conn: Connection,
    tails: Tails,
    index: SessionIndex,
    tail_table: TailTable,
    maintenance: Maintenance,
    has_unindexed: bool,
}

impl OpenedStore {
    fn new(file: &Path, sizes: LayoutSizes) -> Result<Self, SqliteError> {
        let conn = file::connect(file, Access::Write)?;
        schema::migrate(&conn, schema::STEPS)?;
        let generation: i64 = conn.query_one(
            "UPDATE store SET generation = generation + 1 RETURNING generation",
            [],
            |row| row.get(0),
        )?;
        let generation = sql_integers::from_sql(generation);
        blobs::abandon_open_uploads(&conn)?;
        let tails = Tails::load_all(&conn)?;
        Ok(Self {
            tail_table: TailTable::new(&tails, sizes, generation),
            index: SessionIndex::new(generation),
            maintenance: Maintenance::load(&conn)?,
            has_unindexed: search::has_unindexed(&conn)?,
            tails,
            conn,
        })
    }
}
