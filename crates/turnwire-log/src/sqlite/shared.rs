//! State that the writer, the readers and the checkpoints share.

use super::tail::Tails;
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) file: PathBuf,
    pub(super) tails: Mutex<Tails>,
    /// Held by the writer from the commit until the tails have it, and by a reader while it begins.
    /// So a reader sees tables and tails of the same moment.
    pub(super) publish_lock: RwLock<()>,
    /// Held during a write transaction, and during the last part of a checkpoint: the write-ahead
    /// log can only restart without a writer.
    pub(super) write_turn: Mutex<()>,
    /// Whether there is text that searches do not find yet.
    pub(super) unindexed: AtomicBool,
    /// The maximum size of the file in bytes.
    pub(super) max_bytes: AtomicU64,
}
