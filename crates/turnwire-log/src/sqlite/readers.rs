//! The connections that read, each for one reader at a time.

use super::fault::Fault;
use super::file::{self, Use};
use super::shared::Shared;
use super::tail::Tails;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Enough to keep a disk busy; each costs a few files and its cache.
const READERS: usize = 4;

pub(super) struct Readers {
    shared: Arc<Shared>,
    to: Use,
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
    /// A search may take long: some readers are left for the others.
    pub(super) searches: Semaphore,
}

impl Readers {
    /// One who looks at the file of another process has a single connection: what it has learned of
    /// the tails is never newer than what that one sees.
    pub(super) fn new(shared: Arc<Shared>, to: Use) -> Self {
        let count = if to == Use::Look { 1 } else { READERS };
        let free = Arc::new(Semaphore::new(count));
        let searches = Semaphore::new(count.div_ceil(2));
        Self { shared, to, idle: Arc::default(), free, searches }
    }

    /// Reads with a connection, in a thread that may wait for the disk. First it takes what it needs
    /// of the tails, then it goes on without them; both see the store of one moment.
    pub(super) async fn read<M, T: Send + 'static>(
        &self,
        memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, Fault> + Send + 'static,
        query: impl FnOnce(&Connection, M) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let ended = |_| Error::Store("the store was closed".to_owned());
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(ended)?;
        let (shared, idle, to) = (Arc::clone(&self.shared), Arc::clone(&self.idle), self.to);
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let taken = idle.lock().pop();
            let conn = match taken {
                Some(conn) => conn,
                None => file::connect(&shared.file, to)?,
            };
            let found = read(&shared, &conn, to, memory, query);
            // One that failed may be the reason; and what was damaged may have been read wrongly.
            if !matches!(found, Err(Fault::Sql(_) | Fault::Ours(Error::Damaged(_)))) {
                idle.lock().push(conn);
            }
            found
        });
        match reading.await {
            Ok(found) => found.map_err(|fault| fault.about(&self.shared.file)),
            Err(error) => Err(Error::Store(format!("the read was given up: {error}"))),
        }
    }

    /// Reads what is only in the tables.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        self.read(|_, _| Ok(()), |conn, ()| query(conn)).await
    }
}

fn read<M, T>(
    shared: &Shared,
    conn: &Connection,
    to: Use,
    memory: impl FnOnce(&Connection, &mut Tails) -> Result<M, Fault>,
    query: impl FnOnce(&Connection, M) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let publish = shared.publish.read();
    let snapshot = conn.unchecked_transaction()?;
    snapshot.prepare_cached("SELECT 1 FROM store")?.exists([])?;
    let memory = {
        let mut tails = shared.tails.lock();
        if to == Use::Look {
            tails.load(&snapshot)?;
        }
        memory(&snapshot, &mut tails)?
    };
    drop(publish);
    query(&snapshot, memory)
}
