//! The error of this crate: a kind, and a message that says what happened and what to do.
//!
//! ```
//! use turnwire_core::{ErrorKind, Event};
//!
//! let error = Event::from_json(r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r"}"#).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotAnEvent);
//! assert_eq!(error.to_string(), "NotAnEvent: TEXT_BLOCK_DELTA has no `block_id`");
//! ```

use std::fmt;

/// Kind of an error. The name is part of the public contract: `turnwire fold` prints it.
// `#[non_exhaustive]`: callers pick out a few kinds and treat all others, also new ones, alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// One event of a stream is longer than the limit.
    TooLong,
    /// The bytes are not JSON.
    NotJson,
    /// The JSON is not an event.
    NotAnEvent,
    /// The JSON is not a message.
    NotAMessage,
    /// The JSON is not a request or command of its protocol.
    NotARequest,
    /// The JSON does not have the requested type.
    WrongShape,
    /// A block that a message of this role cannot contain.
    WrongRole,
    /// An event of another reply.
    WrongReply,
    /// An event for a block that the message does not have.
    UnknownBlock,
    /// A second start of the same block.
    DuplicateBlock,
    /// A complete message whose id exists already.
    DuplicateMessage,
    /// An event for a block or reply that has ended.
    AlreadyEnded,
    /// Data that is not base64, or that ends inside a byte.
    BadBase64,
    /// Bytes for a block whose content is a URL.
    MixedSource,
    /// A merged event, a part of which was applied before.
    Overlap,
    /// The wire cannot do this, such as decoding a stream.
    Unsupported,
}

impl ErrorKind {
    /// The name, as `turnwire fold` prints it.
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
            Self::Unsupported => "Unsupported",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an event or message could not be read, built or folded.
#[derive(Clone, PartialEq, Eq)]
// Boxed, so that a `Result` on the hot path is at most one word larger than its value.
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    /// Path in the JSON, such as `content[2].source`; empty at the top.
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

    /// The kind, for a `match`.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message, without the kind.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Adds one step to the front of the path.
    #[must_use]
    pub fn at(mut self, step: impl fmt::Display) -> Self {
        let path = &mut self.0.path;
        let joint = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        *path = format!("{step}{joint}{path}");
        self
    }

    /// Path and message without the kind, for wrapping in another error.
    pub(crate) fn plain(&self) -> String {
        let Inner { path, message, .. } = &*self.0;
        if path.is_empty() { message.clone() } else { format!("{path}: {message}") }
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        // A role error keeps its kind: it says more than "not a message".
        if self.0.kind != ErrorKind::WrongRole {
            self.0.kind = kind;
        }
        self
    }

    /// The message of `serde_json`, without its position if that is relative to an inner value.
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
