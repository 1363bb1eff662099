//! The Postgres engine: sessions in the schema `turnwire` of a database.
//!
//! One task writes appends. It takes all that wait and writes them in one transaction (group
//! commit): a statement that checks fences and heads of all sessions, and what belongs to the
//! appends besides their events. Everything else runs on a pool of connections. Nothing depends on
//! the state of a connection, so it works through pgbouncer in transaction mode.
//!
//! ```no_run
//! use turnwire_log::PostgresStore;
//! use turnwire_log::store::{NewSession, SessionKey, Store};
//! # use turnwire_core::Fields;
//!
//! # async fn example() -> turnwire_log::Result<()> {
//! let store = PostgresStore::open("postgres://turnwire:secret@localhost/turnwire").await?;
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
//! # Ok(())
//! # }
//! ```
//!
//! | to change | open |
//! |---|---|
//! | the tables | `schema.rs` |
//! | what a URL may say | `url.rs`, `tls.rs` |
//! | time limits, transactions | `connection.rs` |
//! | which appends share a transaction | `writer.rs` |
//! | what an append writes | `append.rs` |
//! | how events are read | `events.rs` |
//! | nodes that use the database together | `nodes.rs` |
//! | text search | `search.rs` |
//! | how blobs are stored | `blobs.rs` |
//! | usage totals | `totals.rs` |
//! | copying to and from another engine | `copy.rs` |
//! | background work | `maintenance.rs` |
//! | error messages | `errors.rs` |

mod append;
mod blobs;
mod connection;
mod copy;
mod errors;
mod events;
mod maintenance;
mod messages;
mod nodes;
mod retention;
mod schema;
mod search;
mod sessions;
mod store_impl;
mod text;
mod tls;
mod totals;
mod url;
mod writer;

use crate::error::{Error, Result};
use crate::store::UploadNumber;
use connection::Database;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use url::{DatabaseUrl, Wanted};
use writer::{Job, Writer};

/// A store in a Postgres database.
///
/// Appends that were handed over are still written after it is dropped, if its runtime goes on.
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// `None` if it was opened read-only.
    appends: Option<mpsc::UnboundedSender<Job>>,
}

/// State that the store and its tasks share.
struct Shared {
    database: Database,
    /// Which rows of totals this process adds to.
    shard: i64,
    /// There is something to remove.
    maintenance: Arc<Notify>,
    /// Uploads that were cancelled a moment ago.
    abandoned: Mutex<HashSet<UploadNumber>>,
}

impl Shared {
    fn check_upload(&self, upload: UploadNumber) -> Result<()> {
        if self.abandoned.lock().contains(&upload) { Err(blobs::no_upload()) } else { Ok(()) }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // So that the task sees that the store is gone.
        self.shared.maintenance.notify_one();
    }
}

impl PostgresStore {
    /// Opens a store, and creates or migrates its tables. Must be called in a Tokio runtime, which
    /// runs the tasks of the store.
    pub async fn open(url: &str) -> Result<Self> {
        let shared = Self::connect(url, Wanted::ReadWrite)?;
        check_durability(&shared.database).await?;
        schema::prepare(&shared.database).await?;
        let (appends, jobs) = mpsc::unbounded_channel();
        tokio::spawn(Writer::new(Arc::clone(&shared)).run(jobs));
        tokio::spawn(maintenance::run(Arc::downgrade(&shared)));
        Ok(Self { shared, appends: Some(appends) })
    }

    /// Opens a store to read, also from a standby server. The tables must exist. Appends fail with
    /// `Denied`, and other writes unless the database allows them.
    pub async fn open_read_only(url: &str) -> Result<Self> {
        let shared = Self::connect(url, Wanted::Any)?;
        schema::check(&shared.database).await?;
        Ok(Self { shared, appends: None })
    }

    /// User, hosts and database, without the password.
    pub fn name(&self) -> &str {
        self.shared.database.name()
    }

    fn connect(url: &str, wanted: Wanted) -> Result<Arc<Shared>> {
        let mut random = [0; 1];
        getrandom::fill(&mut random).map_err(|error| {
            Error::Store(format!("the system returned no random numbers: {error}"))
        })?;
        Ok(Arc::new(Shared {
            database: Database::new(&DatabaseUrl::parse(url, wanted)?)?,
            shard: i64::from(random[0]) % totals::SHARDS,
            maintenance: Arc::default(),
            abandoned: Mutex::default(),
        }))
    }

    fn database(&self) -> &Database {
        &self.shared.database
    }

    fn send_append(&self, job: Job) -> Result<()> {
        let Some(appends) = &self.appends else {
            return Err(Error::Denied(format!("{} was opened read-only", self.name())));
        };
        let ended = |_| Error::Store("the task that writes appends has ended".to_owned());
        appends.send(job).map_err(ended)
    }
}

/// Refuses a database whose settings break our promises.
async fn check_durability(database: &Database) -> Result<()> {
    let connection = database.connect().await?;
    let settings =
        "SELECT current_setting('synchronous_commit'), current_setting('server_encoding')";
    let rows = connection.query(settings, &[]).await.map_err(|error| database.explain(error))?;
    let read = |at: usize| rows.first().and_then(|row| row.try_get::<_, String>(at).ok());
    if read(0).as_deref() == Some("off") {
        return Err(Error::Store(format!(
            "{} has synchronous_commit = off: a crash of the server could take back what was acknowledged; \
             set it to on for this database (ALTER DATABASE … SET synchronous_commit = on). Nothing was changed",
            database.name()
        )));
    }
    match read(1) {
        Some(encoding) if encoding != "UTF8" => Err(Error::Store(format!(
            "the texts in {} are {encoding}; create the database with the encoding UTF8. Nothing was changed",
            database.name()
        ))),
        _ => Ok(()),
    }
}
