//! The errors of a log and its engines.

use crate::store::cluster::Node;
use turnwire_core::Seq;

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the log failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session does not exist.
    #[error("there is no such session")]
    NoSession,
    /// Another owner has the session: nothing was written.
    #[error("another owner has this session now")]
    Fenced,
    /// Another node has the session and is alive: requests that change it go there.
    #[error("the session belongs to node {}", .0.id)]
    Owned(Box<Node>),
    /// The events do not continue at the log's end: nothing was written. Read the head again.
    #[error("the log has changed meanwhile")]
    OutOfOrder,
    /// Retention has removed the requested events; this is the first that remains.
    #[error("events before {0} are no longer kept")]
    Trimmed(Seq),
    /// An event that does not fit.
    #[error("event {at}: {why}")]
    Refused {
        /// Its index among the given events, from 0.
        at: usize,
        /// Why.
        why: turnwire_core::Error,
    },
    /// The query exceeded its limit of time or work. Nothing was changed.
    #[error("the query exceeds its time limit")]
    TooSlow,
    /// The disk or the store's size limit is full. Acknowledged data is safe, and writing continues
    /// when there is space.
    #[error("{0}")]
    Full(String),
    /// The blobs of a tenant would exceed this quota in bytes. Nothing was stored.
    #[error("the blobs of this tenant would exceed their quota of {0} bytes")]
    OverQuota(u64),
    /// Another process has the store open.
    #[error("{0}")]
    Locked(String),
    /// Another version of Turnwire wrote the store, and this one does not know its format.
    #[error("{0}")]
    Version(String),
    /// Stored data differs from what was written; says which file and where.
    #[error("{0}")]
    Damaged(String),
    /// No permission to read or write a file.
    #[error("{0}")]
    Denied(String),
    /// Any other error of the store.
    #[error("{0}")]
    Store(String),
}
