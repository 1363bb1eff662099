//! The store of the tests: in memory, or with `TURNWIRE_TEST_STORE=postgres` a database of its own in a real Postgres
//! (`make test-server-on-postgres`).
//!
//! Tests that pause the clock, decide when an append finishes, or end a runtime in place of a process, keep their store in
//! memory.

use std::sync::{Arc, LazyLock};
use std::thread;
use tokio::runtime::Runtime;
use turnwire_log::{MemoryStore, PostgresStore, Store};
use turnwire_testkit::postgres::PostgresServer;

static SERVER: LazyLock<Option<PostgresServer>> = LazyLock::new(|| {
    PostgresServer::start("the tests of the server on Postgres", &["max_connections=1000"])
});

/// The tasks of the stores run here: a test may use its store from several runtimes, one after the other.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// An empty store.
pub fn test_store() -> Arc<dyn Store> {
    if std::env::var("TURNWIRE_TEST_STORE").as_deref() != Ok("postgres") {
        return Arc::new(MemoryStore::default());
    }
    // A test waits for this inside of a runtime, which cannot wait for another one.
    thread::spawn(|| -> Arc<dyn Store> {
        let Some(server) = &*SERVER else { return Arc::new(MemoryStore::default()) };
        let url = server.url(&server.create_database());
        Arc::new(RUNTIME.block_on(PostgresStore::open(&url)).unwrap())
    })
    .join()
    .unwrap()
}
