//! The SQLite engine passes the conformance tests; each case checks again after the store was
//! opened again.

use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use turnwire_log::conformance::Engine;
use turnwire_log::sqlite::{LayoutSizes, Options};
use turnwire_log::{Error, SqliteStore, Store};

struct SqliteEngine(TempDir, Options);

impl SqliteEngine {
    fn new(sizes: LayoutSizes) -> Self {
        Self(tempfile::tempdir().unwrap(), Options { sizes, ..Options::default() })
    }
}

#[async_trait]
impl Engine for SqliteEngine {
    async fn open(&self) -> Arc<dyn Store> {
        // Another test starts processes. Between fork and exec such a process holds all locks of
        // this one, also released ones.
        let path = self.0.path().join("store.db");
        for _ in 0..500 {
            match SqliteStore::open(&path, self.1) {
                Err(Error::Locked(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                opened => return Arc::new(opened.unwrap()),
            }
        }
        Arc::new(SqliteStore::open(&path, self.1).unwrap())
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        drop(store);
        self.open().await
    }
}

mod default_sizes {
    turnwire_log::conformance!(super::SqliteEngine::new(super::LayoutSizes::default()));
}

/// Sizes so small that every case moves events and fills rows.
mod small_sizes {
    use crate::harness::SMALL_SIZES;

    turnwire_log::conformance!(super::SqliteEngine::new(SMALL_SIZES));
}
