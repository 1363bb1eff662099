//! The embedded engine: one SQLite file.
//!
//! One thread writes. It takes all requests that wait, writes them in one transaction, and answers
//! when that is synced: the more who write, the more share a sync. Small appends go to a table in
//! the order in which they come, and from there, many at once, to rows of one session each; this is
//! what costs least to write, and to read (`cargo bench -p turnwire-log` shows by how much). Every
//! row of events carries a checksum, and damage is named, never served. Retention by age is exact to
//! the hour, because events of one hour may share a row; by size it is exact to the reply.
//!
//! ```
//! use turnwire_log::store::{NewSession, SessionKey, Store};
//! use turnwire_log::{SqliteStore, sqlite::Options};
//! # use turnwire_core::Fields;
//! # let folder = tempfile::tempdir().unwrap();
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = SqliteStore::open(folder.path().join("turnwire.db"), Options::default())?;
//! let (session, made) = store
//!     .create(NewSession {
//!         key: SessionKey::new("alice", "chat-1"),
//!         agent: "demo".to_owned(),
//!         title: String::new(),
//!         metadata: Fields::default(),
//!         now_ms: 0,
//!     })
//!     .await?;
//! assert!(made);
//! assert_eq!(store.session(&session.key).await?, Some(session));
//! # Ok::<(), turnwire_log::Error>(())
//! # }).unwrap();
//! ```
//!
//! | to change | look at |
//! |---|---|
//! | the tables | `schema.rs` |
//! | how events are laid out | `tail_rows.rs` |
//! | what goes into one transaction | `writer.rs`, `batch.rs` |
//! | what may be appended | `append.rs`, `book.rs` |
//! | how events are read | `events.rs`, `tail.rs` |
//! | what is searched | `search.rs` |
//! | how blobs are laid out | `blobs.rs` |
//! | what sessions spent together | `totals.rs` |

mod append;
mod backup;
mod batch;
mod blobs;
mod check;
mod checkpoint;
mod end_watchers;
mod errors;
mod events;
mod file;
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
mod sql_integers;
mod store_impl;
mod tail;
mod tail_table;
mod totals;
mod writer;

pub use backup::{ExistingStore, restore};
pub use check::{FindingKind, Progress, StoreFinding};
#[doc(hidden)]
pub use tail_table::LayoutSizes;

use crate::error::{Error, Result};
use crate::store::SessionNumber;
use batch::Batch;
use end_watchers::EndWatchers;
use errors::SqliteError;
use file::{Access, FileContent, FileLock};
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

/// How a store is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// How large the file may grow, in bytes; then it is `Full`. `None`: as large as the disk lets
    /// it.
    pub max_bytes: Option<u64>,
    #[doc(hidden)]
    pub sizes: LayoutSizes,
    /// How many steps of SQLite's machine a list or a search may take.
    #[doc(hidden)]
    pub query_steps: Option<u64>,
}

/// A store in one file.
///
/// When it is dropped, all that was handed in is written first.
pub struct SqliteStore {
    shared: Arc<SharedState>,
    readers: Readers,
    query_steps: Option<u64>,
    /// `None` for one who only looks.
    writing: Option<Writing>,
}

/// The threads of a store that can be written to.
struct Writing {
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    /// Let go after the threads have ended.
    _lock: FileLock,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that broke has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl SqliteStore {
    /// Opens a store, and makes it where there is none. Waits for the disk: in a server, do it
    /// before anything else runs.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let file = absolute(path.as_ref())?;
        // Before anything is made beside a file that is not ours.
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
            end_watchers: EndWatchers::default(),
            unindexed: AtomicBool::new(opened.has_unindexed),
            max_bytes: AtomicU64::new(options.max_bytes.unwrap_or(u64::MAX)),
            file,
        });
        let (jobs, asked) = mpsc::channel();
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
            start_thread("turnwire-writer", move || writer.run(&asked))?,
            start_thread("turnwire-checkpoint", move || checkpoint::run(&checkpoints, &seen))?,
        ];
        Ok(Self {
            readers: Readers::new(Arc::clone(&shared), Access::Read),
            shared,
            query_steps: options.query_steps,
            writing: Some(Writing { jobs: Some(jobs), threads, _lock: lock }),
        })
    }

    /// Opens a store to look at it, also while another process writes to it. Whatever would change
    /// something is `Denied`.
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
            end_watchers: EndWatchers::default(),
            unindexed: AtomicBool::new(false),
            max_bytes: AtomicU64::new(u64::MAX),
            file,
        });
        let readers = Readers::new(Arc::clone(&shared), Access::Inspect);
        Ok(Self { shared, readers, query_steps: None, writing: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.shared.file
    }

    /// Changes how large the file may grow, as in [`Options::max_bytes`].
    pub fn set_max_bytes(&self, max_bytes: Option<u64>) {
        self.shared.max_bytes.store(max_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn send_job(&self, job: Job) -> Result<()> {
        let Some(writing) = &self.writing else {
            return Err(Error::Denied(format!(
                "{} was opened to look at it, not to change it",
                self.shared.file.display()
            )));
        };
        let sent = writing.jobs.as_ref().and_then(|jobs| jobs.send(job).ok());
        sent.ok_or_else(|| writer_ended(&self.shared.file))
    }

    /// Has the writer do something, and waits until it is durable.
    async fn write<T: Send + 'static>(
        &self,
        company: Grouping,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.write_bytes(company, 0, work).await
    }

    /// The same for something that writes about so many bytes.
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

    /// Where the log of a session ends.
    async fn log_end(&self, session: SessionNumber) -> Result<u64> {
        if self.writing.is_some()
            && let Some(last) = self.shared.tails.lock().last(session.0)
        {
            return Ok(last);
        }
        let look = move |conn: &Connection, tails: &mut Tails| {
            Ok(sessions::find_by_number(conn, session, &*tails)?.ok_or(Error::NoSession)?.head)
        };
        self.readers.read(look, |_, last| Ok(last)).await
    }

    /// Waits until searches find all that was written before, but not past the deadline of a search.
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
                tracing::warn!(%error, "what was written last cannot be searched yet");
            }
            Err(_) => tracing::debug!("what was written last cannot be searched yet"),
        }
    }

    /// Waits until searches find all that was written before.
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
    Error::Store(format!("the writer of {} has ended; start again", file.display()))
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| Error::Store(format!("cannot start a thread: {error}")))
}

/// Does something with a connection of its own.
fn with_connection<T>(
    file: &Path,
    to: Access,
    work: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<T> {
    let done = file::connect(file, to).map_err(SqliteError::from).and_then(|conn| work(&conn));
    done.map_err(|fault| fault.into_error(file))
}

/// What a writer begins with.
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
