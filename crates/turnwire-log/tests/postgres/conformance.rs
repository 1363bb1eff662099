//! The Postgres engine passes the conformance tests, directly and through pgbouncer in transaction mode; each
//! case checks again after the store was opened again.

use crate::harness::TestDatabase;
use async_trait::async_trait;
use std::sync::Arc;
use turnwire_log::conformance::Engine;
use turnwire_log::{PostgresStore, Store};

/// Where Postgres cannot run, there is no database, and a skip is recorded.
struct PostgresEngine(Option<TestDatabase>);

#[async_trait]
impl Engine for PostgresEngine {
    fn can_run(&self) -> bool {
        self.0.is_some()
    }

    async fn open(&self) -> Arc<dyn Store> {
        let database = self.0.as_ref().unwrap();
        Arc::new(PostgresStore::open(&database.url()).await.unwrap())
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        drop(store);
        self.open().await
    }
}

mod direct {
    use super::{PostgresEngine, TestDatabase};

    turnwire_log::conformance!(PostgresEngine(TestDatabase::new()));
}

mod behind_pgbouncer {
    use super::{PostgresEngine, TestDatabase};

    turnwire_log::conformance!(PostgresEngine(TestDatabase::behind_pgbouncer()));
}
