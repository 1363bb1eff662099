//! The embedded engine passes the suite of all engines, and each case is looked at again after the
//! store was opened again.

use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use turnwire_log::conformance::Engine;
use turnwire_log::sqlite::{LayoutSizes, Options};
use turnwire_log::{Error, SqliteStore, Store};

struct InAFolder(TempDir, Options);

impl InAFolder {
    fn new(sizes: LayoutSizes) -> Self {
        Self(tempfile::tempdir().unwrap(), Options { sizes, ..Options::default() })
    }
}

#[async_trait]
impl Engine for InAFolder {
    async fn open(&self) -> Arc<dyn Store> {
        // A neighbour starts processes. Between its fork and its exec such a process holds all locks of
        // this one, also those that were given up meanwhile.
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
    turnwire_log::conformance!(super::InAFolder::new(super::LayoutSizes::default()));
}

/// So little makes events move, and rows full, that each case goes through all of that.
mod small_sizes {
    use crate::harness::MOVING;

    turnwire_log::conformance!(super::InAFolder::new(MOVING));
}
