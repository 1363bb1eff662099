//! What can go wrong with a log, for a `match`, with a sentence for people.

use std::fmt;
use turnwire_core::Seq;

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the log did not do what it was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The session is not there, or not any more.
    NoSession,
    /// Somebody else owns the session now: nothing was written.
    Fenced,
    /// The events do not go on from the log's end: nothing was written. Whoever asked has to look
    /// again where the log stands.
    OutOfOrder,
    /// What was asked for has been removed by retention; this is the earliest place that is left.
    Trimmed(Seq),
    /// An event that does not fit, and which of those that were handed in.
    Refused {
        /// Counted from 0.
        at: usize,
        /// Why.
        why: turnwire_core::Error,
    },
    /// The query took longer, or more work, than it may. Nothing was changed.
    TooSlow,
    /// No room left. What was acknowledged is safe; writing goes on when there is room again.
    Full(String),
    /// The blobs of a tenant would have more bytes than they may: this many. Nothing was stored.
    OverQuota(u64),
    /// Another process has the store.
    Locked(String),
    /// The store was written by a version that this one does not know.
    Version(String),
    /// What is stored is not what was written: which file, and where.
    Damaged(String),
    /// Not allowed to read or write a file.
    Denied(String),
    /// Anything else that the store says.
    Store(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession => f.write_str("there is no such session"),
            Self::Fenced => f.write_str("somebody else owns this session now"),
            Self::OutOfOrder => f.write_str("the log went on in the meantime"),
            Self::Trimmed(first) => write!(f, "events before {first} are no longer kept"),
            Self::Refused { at, why } => write!(f, "event {at}: {why}"),
            Self::TooSlow => f.write_str("the query takes longer than it may"),
            Self::OverQuota(max) => {
                write!(f, "the blobs of this tenant would have more than {max} bytes together")
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
