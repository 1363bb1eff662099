//! The one error of this crate: a kind, and a sentence that says what happened and what to do.
//!
//! ```
//! use turnwire_core::{ErrorKind, Event};
//!
//! let error = Event::from_json(r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r"}"#).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotAnEvent);
//! assert_eq!(error.to_string(), "NotAnEvent: TEXT_BLOCK_DELTA has no `block_id`");
//! ```

use std::fmt;

/// What went wrong. The name is part of the contract: it is what `turnwire fold` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// One event of a stream is longer than the limit.
    TooLong,
    /// The bytes are not JSON.
    NotJson,
    /// JSON, but not an event.
    NotAnEvent,
    /// JSON, but not a message.
    NotAMessage,
    /// JSON, but not a request or a command of its protocol.
    NotARequest,
    /// JSON, but not what was asked for: a typed view that does not fit.
    WrongShape,
    /// A block that a message of this role cannot hold.
    WrongRole,
    /// An event for another reply than the message's.
    WrongReply,
    /// An event for a block that the message does not have.
    UnknownBlock,
    /// A second start of the same block.
    DuplicateBlock,
    /// A whole message whose id is taken.
    DuplicateMessage,
    /// Something for a block, or for a reply, that has ended.
    AlreadyEnded,
    /// Data that is not base64, or that breaks off inside a byte.
    BadBase64,
    /// Bytes for a block whose content is a URL.
    MixedSource,
    /// A merged event of which a part was applied before.
    Overlap,
}

impl ErrorKind {
    /// The name as printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotUtf8 => "NotUtf8",
            Self::TooLong => "TooLong",
            Self::NotJson => "NotJson",
            Self::NotAnEvent => "NotAnEvent",
            Self::NotAMessage => "NotAMessage",
            Self::NotARequest => "NotARequest",
            Self::WrongShape => "WrongShape",
            Self::WrongRole => "WrongRole",
            Self::WrongReply => "WrongReply",
            Self::UnknownBlock => "UnknownBlock",
            Self::DuplicateBlock => "DuplicateBlock",
            Self::DuplicateMessage => "DuplicateMessage",
            Self::AlreadyEnded => "AlreadyEnded",
            Self::BadBase64 => "BadBase64",
            Self::MixedSource => "MixedSource",
            Self::Overlap => "Overlap",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why something was not read, built or folded.
#[derive(Clone, PartialEq, Eq)]
// Boxed, so that a `Result` on the hot path is one word larger than its value at the most.
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    /// Where in the JSON, such as `content[2].source`; empty at the top.
    path: String,
    message: String,
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a message for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, path: String::new(), message: message.into() }))
    }

    /// What went wrong, for a `match`.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sentence, without the kind's name.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The same error as seen from one level further out.
    #[must_use]
    pub fn at(mut self, step: impl fmt::Display) -> Self {
        let path = &mut self.0.path;
        let joint = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        *path = format!("{step}{joint}{path}");
        self
    }

    /// Path and sentence without the kind, to be wrapped by another error.
    pub(crate) fn plain(&self) -> String {
        let Inner { path, message, .. } = &*self.0;
        if path.is_empty() { message.clone() } else { format!("{path}: {message}") }
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        // A role error stays one at every depth: it says more than "not a message".
        if self.0.kind != ErrorKind::WrongRole {
            self.0.kind = kind;
        }
        self
    }

    /// What `serde_json` says, without its position where that counts from some inner value.
    pub(crate) fn from_json(kind: ErrorKind, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let text = match text.rfind(" at line 1 column ") {
            Some(at) if kind != ErrorKind::NotJson => text.get(..at).unwrap_or(&text),
            _ => &text,
        };
        Self::new(kind, text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.plain())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
