//! A store in memory that fails or waits when the test wants it to.

use crate::wrapped_store::{Hooks, WrappedStore};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use turnwire_log::store::*;
use turnwire_log::{Error, MemoryStore, Result, Store};

/// A store that can be full or slow.
pub type FaultyStore = WrappedStore<Faults>;

pub struct Faults {
    pub is_full: AtomicBool,
    /// Whether appends are acknowledged only when the test says so.
    pub is_slow: AtomicBool,
    pub acknowledge: Arc<Semaphore>,
    /// Whether slow appends are lost in the end.
    pub is_lossy: AtomicBool,
    /// Whether slow appends are written, and said to have failed.
    pub is_unsure: AtomicBool,
    /// Whether messages are returned only when the test says so.
    pub is_slow_to_read: AtomicBool,
    pub hand_out: Semaphore,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            is_full: AtomicBool::default(),
            is_slow: AtomicBool::default(),
            acknowledge: Arc::new(Semaphore::new(0)),
            is_lossy: AtomicBool::default(),
            is_unsure: AtomicBool::default(),
            is_slow_to_read: AtomicBool::default(),
            hand_out: Semaphore::new(0),
        }
    }
}

#[async_trait]
impl Hooks for Faults {
    fn append(&self, store: &MemoryStore, append: Append) -> StoreFuture<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(Error::Full("no room".to_owned()))));
        }
        let acknowledge = self.acknowledge.clone();
        if self.is_lossy.load(Ordering::SeqCst) {
            return Box::pin(async move {
                acknowledge.acquire().await.map_err(|_| Error::NoSession)?.forget();
                Err(Error::Store("it was lost".to_owned()))
            });
        }
        let done = store.append(append);
        let is_unsure = self.is_unsure.load(Ordering::SeqCst);
        if !self.is_slow.load(Ordering::SeqCst) {
            return done;
        }
        Box::pin(async move {
            acknowledge.acquire().await.map_err(|_| Error::NoSession)?.forget();
            let done = done.await;
            if is_unsure { Err(Error::Store("no answer".to_owned())) } else { done }
        })
    }

    async fn after_messages(&self, _: &[StoredMessage]) -> Result<()> {
        if self.is_slow_to_read.load(Ordering::SeqCst) {
            self.hand_out.acquire().await.map_err(|_| Error::NoSession)?.forget();
        }
        Ok(())
    }
}
