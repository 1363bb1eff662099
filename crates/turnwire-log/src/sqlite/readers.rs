//! Pools of connections that read, each connection for one reader at a time.

use super::errors::{self, SqliteError};
use super::file::{self, Access};
use super::shared::SharedState;
use super::tail::Tails;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Semaphore;

/// Enough to keep a disk busy. Each costs a few open files and its cache.
const READERS: usize = 4;

/// Connections for searches only, so that other reads never wait for a search.
const SEARCHERS: usize = 4;

/// How many virtual machine steps of SQLite are between two checks of a query's limit.
const CHECK_STEPS: i32 = 1000;

pub(super) struct Readers {
    shared: Arc<SharedState>,
    to: Access,
    ordinary: ConnectionPool,
    searching: ConnectionPool,
}

/// A pool of connections.
#[derive(Clone)]
struct ConnectionPool {
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
}

impl ConnectionPool {
    fn new(count: usize) -> Self {
        Self { idle: Arc::default(), free: Arc::new(Semaphore::new(count)) }
    }
}

/// The maximum cost of a query.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueryLimit {
    /// When it must be finished.
    pub(super) deadline: Option<Instant>,
    /// How many virtual machine steps of SQLite it may take.
    pub(super) steps: Option<u64>,
}

/// Interrupts a query when it is dropped, because nobody waits for the result then.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl QueryLimit {
    /// Returns a function that says whether a query must stop; it is called every [`CHECK_STEPS`].
    fn limit_check(self, given_up: &Arc<AtomicBool>) -> impl FnMut() -> bool + Send + 'static {
        let given_up = Arc::clone(given_up);
        let mut steps = 0_u64;
        move || {
            steps += u64::from(CHECK_STEPS.unsigned_abs());
            given_up.load(Ordering::Relaxed)
                || self.steps.is_some_and(|most| steps > most)
                || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
        }
    }
}

impl Readers {
    /// A read-only store of another process's file has a single connection: the tails in memory are
    /// then never newer than what the connection sees.
    pub(super) fn new(shared: Arc<SharedState>, to: Access) -> Self {
        let (ordinary, searching) = match to {
            Access::Inspect => {
                let only = ConnectionPool::new(1);
                (only.clone(), only)
            }
            Access::Read | Access::Write => {
                (ConnectionPool::new(READERS), ConnectionPool::new(SEARCHERS))
            }
        };
        Self { shared, to, ordinary, searching }
    }

    /// Reads with a connection, on a thread that may block. `memory` takes what it needs from the
    /// tails, `query` continues without them; both see the same state of the store.
    pub(super) async fn read<M, T: Send + 'static>(
        &self,
        memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, SqliteError> + Send + 'static,
        query: impl FnOnce(&Connection, M) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.run(&self.ordinary, QueryLimit::default(), memory, query).await
    }

    /// The same with a limit.
    pub(super) async fn list<M, T: Send + 'static>(
        &self,
        bound: QueryLimit,
        memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, SqliteError> + Send + 'static,
        query: impl FnOnce(&Connection, M) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.run(&self.ordinary, bound, memory, query).await
    }

    /// The same with a connection for searches.
    pub(super) async fn search<M, T: Send + 'static>(
        &self,
        bound: QueryLimit,
        memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, SqliteError> + Send + 'static,
        query: impl FnOnce(&Connection, M) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.run(&self.searching, bound, memory, query).await
    }

    async fn run<M, T: Send + 'static>(
        &self,
        pool: &ConnectionPool,
        bound: QueryLimit,
        memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, SqliteError> + Send + 'static,
        query: impl FnOnce(&Connection, M) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        let ended = |_| Error::Store("the store was closed".to_owned());
        let free = Arc::clone(&pool.free).acquire_owned();
        let permit = match bound.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), free).await,
            None => Ok(free.await),
        };
        let permit = permit.map_err(|_| Error::TooSlow)?.map_err(ended)?;
        let (shared, idle, to) = (Arc::clone(&self.shared), Arc::clone(&pool.idle), self.to);
        let given_up = Arc::new(AtomicBool::new(false));
        let _waiting = CancelOnDrop(Arc::clone(&given_up));
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let taken = idle.lock().pop();
            let mut conn = match taken {
                Some(conn) => conn,
                None => file::connect(&shared.file, to)?,
            };
            conn.progress_handler(CHECK_STEPS, Some(bound.limit_check(&given_up)))?;
            let found = read(&shared, &conn, to, memory, query);
            conn.progress_handler(0, None::<fn() -> bool>)?;
            // A connection that failed may be the reason, and one that saw damage may have cached
            // it.
            let is_sound = match &found {
                Err(SqliteError::Sql(error)) => {
                    errors::error_code(error) == Some(ErrorCode::OperationInterrupted)
                }
                Err(SqliteError::Log(Error::Damaged(_))) => false,
                Ok(_) | Err(SqliteError::Log(_)) => true,
            };
            if is_sound {
                idle.lock().push(conn);
            }
            found
        });
        match reading.await {
            Ok(found) => found.map_err(|fault| fault.into_error(&self.shared.file)),
            Err(error) => Err(Error::Store(format!("the read failed: {error}"))),
        }
    }

    /// Reads what is only in the tables.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.read(|_, _| Ok(()), |conn, ()| query(conn)).await
    }
}

fn read<M, T>(
    shared: &SharedState,
    conn: &Connection,
    to: Access,
    memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, SqliteError>,
    query: impl FnOnce(&Connection, M) -> Result<T, SqliteError>,
) -> Result<T, SqliteError> {
    let publish = shared.publish_lock.read();
    let snapshot = conn.unchecked_transaction()?;
    snapshot.prepare_cached("SELECT 1 FROM store")?.exists([])?;
    let memory = {
        let mut tails = shared.tails.lock();
        if to == Access::Inspect {
            tails.load(&snapshot)?;
        }
        memory(&snapshot, &mut tails)?
    };
    drop(publish);
    query(&snapshot, memory)
}

#[cfg(test)]
mod tests {
    use super::{QueryLimit, READERS, SEARCHERS};
    use crate::error::Error;
    use crate::sqlite::{Options, SqliteError, SqliteStore};
    use rusqlite::Connection;
    use std::time::Instant;

    fn store() -> (tempfile::TempDir, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("store.db"), Options::default()).unwrap();
        (folder, store)
    }

    /// A query that never ends by itself.
    fn endless(conn: &Connection, (): ()) -> Result<i64, SqliteError> {
        let count = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
                     SELECT max(x) FROM c";
        Ok(conn.query_one(count, [], |row| row.get(0))?)
    }

    fn one(conn: &Connection, (): ()) -> Result<i64, SqliteError> {
        Ok(conn.query_one("SELECT 1", [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn a_query_ends_when_its_steps_or_its_time_are_used_up() {
        let (_folder, store) = store();
        let steps = QueryLimit { steps: Some(10_000), ..QueryLimit::default() };
        let time = QueryLimit { deadline: Some(Instant::now()), ..QueryLimit::default() };
        for bound in [steps, time, steps] {
            let ended = store.readers.search(bound, |_, _| Ok(()), endless).await;
            assert!(matches!(ended, Err(Error::TooSlow)), "{ended:?}");
        }
        let bound = QueryLimit::default();
        let next = store.readers.search(bound, |_, _| Ok(()), one).await;
        assert_eq!(next.unwrap(), 1, "what ended one query does not end the next");
    }

    #[tokio::test]
    async fn a_query_ends_when_nobody_waits_for_it() {
        let (_folder, store) = store();
        let bound = QueryLimit::default();
        // More queries than connections: each connection must come back.
        for _ in 0..2 * SEARCHERS {
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let query = move |conn: &Connection, ()| {
                begun.send(()).unwrap();
                endless(conn, ())
            };
            let searching = store.readers.search(bound, |_, _| Ok(()), query);
            tokio::select! {
                ended = searching => panic!("it cannot end: {ended:?}"),
                begun = has_begun => begun.unwrap(),
            }
        }
        assert_eq!(store.readers.search(bound, |_, _| Ok(()), one).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn whatever_else_is_read_does_not_wait_for_searches() {
        let (_folder, store) = store();
        let bound = QueryLimit::default();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Arc::new(parking_lot::Mutex::new(held));
        let searches = (0..SEARCHERS + READERS).map(|_| {
            let held = std::sync::Arc::clone(&held);
            let wait = move |conn: &Connection, ()| {
                let _ = held.lock().recv();
                one(conn, ())
            };
            Box::pin(store.readers.search(bound, |_, _| Ok(()), wait))
        });
        let mut searches: Vec<_> = searches.collect();
        for search in &mut searches {
            tokio::select! {
                biased;
                ended = search => panic!("it waits: {ended:?}"),
                () = std::future::ready(()) => {}
            }
        }
        assert_eq!(store.readers.read(|_, _| Ok(()), one).await.unwrap(), 1);
        assert_eq!(store.readers.list(bound, |_, _| Ok(()), one).await.unwrap(), 1);
        drop(release);
        for search in searches {
            assert_eq!(search.await.unwrap(), 1);
        }
    }
}
