//! Why the server cannot start, and what to do about it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Why the server cannot start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    message: String,
    hint: String,
}

impl StartError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: String::new() }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// What to do about it. Empty if unknown.
    pub fn hint_text(&self) -> &str {
        &self.hint
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "an enum of the standard library")]
    pub(crate) fn bind(address: SocketAddr, error: &io::Error) -> Self {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                "another program uses this port, perhaps another Turnwire: stop it, or choose another port with --listen"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 require privileges: choose a higher one with --listen"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine does not have that address: use 127.0.0.1, or 0.0.0.0 for all its addresses"
            }
            _ => "choose another address with --listen",
        };
        Self::new(format!("cannot listen on {address}: {error}")).hint(hint)
    }
}

impl From<turnwire_log::Error> for StartError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only errors of opening a store get here")]
    fn from(error: turnwire_log::Error) -> Self {
        use turnwire_log::Error;
        let hint = match &error {
            Error::Locked(_) => {
                "a store can be used by one server only: stop the other one, or use another with --store"
            }
            Error::Denied(_) => {
                "this user must be allowed to read and write the store; or choose another one with --store"
            }
            Error::Full(_) => "make room on the disk, or choose another place with --store",
            Error::Version(_) => "use the version of Turnwire that wrote it, or a later one",
            Error::Damaged(_) => {
                "`turnwire doctor` checks the store; if it cannot be repaired, restore the last backup"
            }
            _ => "choose another store with --store",
        };
        Self::new(format!("cannot open the store: {error}")).hint(hint)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for StartError {}
