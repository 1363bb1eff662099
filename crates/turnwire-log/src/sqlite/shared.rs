//! What the writer, the readers and the checkpoints have in common.

use super::end_watchers::EndWatchers;
use super::tail::Tails;
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) file: PathBuf,
    pub(super) tails: Mutex<Tails>,
    /// Held by the writer from a commit until the tails know of it, and by a reader while it
    /// begins: so whoever reads sees tables and tails of the same moment.
    pub(super) publish_lock: RwLock<()>,
    /// Held for a write transaction, and for the last part of a checkpoint: only without a writer
    /// can the log begin anew.
    pub(super) write_turn: Mutex<()>,
    pub(super) end_watchers: EndWatchers,
    /// Whether there are words that no search finds yet.
    pub(super) unindexed: AtomicBool,
    /// How large the file may grow, in bytes.
    pub(super) max_bytes: AtomicU64,
}
