//! The errors of a log and its engines.

use std::fmt;
use turnwire_core::Seq;

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the log failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The session does not exist.
    NoSession,
    /// Another owner has the session: nothing was written.
    Fenced,
    /// The events do not continue at the log's end: nothing was written. Read the head again.
    OutOfOrder,
    /// Retention has removed the requested events; this is the first that remains.
    Trimmed(Seq),
    /// An event that does not fit.
    Refused {
        /// Its index among the given events, from 0.
        at: usize,
        /// Why.
        why: turnwire_core::Error,
    },
    /// The query exceeded its limit of time or work. Nothing was changed.
    TooSlow,
    /// The disk or the store's size limit is full. Acknowledged data is safe, and writing continues
    /// when there is space.
    Full(String),
    /// The blobs of a tenant would exceed this quota in bytes. Nothing was stored.
    OverQuota(u64),
    /// Another process has the store open.
    Locked(String),
    /// Another version of Turnwire wrote the store, and this one does not know its format.
    Version(String),
    /// Stored data differs from what was written; says which file and where.
    Damaged(String),
    /// No permission to read or write a file.
    Denied(String),
    /// Any other error of the store.
    Store(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession => f.write_str("there is no such session"),
            Self::Fenced => f.write_str("another owner has this session now"),
            Self::OutOfOrder => f.write_str("the log has changed meanwhile"),
            Self::Trimmed(first) => write!(f, "events before {first} are no longer kept"),
            Self::Refused { at, why } => write!(f, "event {at}: {why}"),
            Self::TooSlow => f.write_str("the query exceeds its time limit"),
            Self::OverQuota(max) => {
                write!(f, "the blobs of this tenant would exceed their quota of {max} bytes")
            }
            Self::Full(what)
            | Self::Locked(what)
            | Self::Version(what)
            | Self::Damaged(what)
            | Self::Denied(what)
            | Self::Store(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
