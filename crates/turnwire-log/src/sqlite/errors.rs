//! Turns errors of SQLite and of the system into [`Error`]: what happened to which file, and what
//! to do.

use crate::error::Error;
use rusqlite::{ErrorCode, ffi};
use std::io;
use std::path::Path;

/// An error inside the engine, before it is given to the caller.
#[derive(Debug)]
pub(super) enum SqliteError {
    /// From SQLite.
    Sql(rusqlite::Error),
    /// From this crate.
    Log(Error),
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<rusqlite::types::FromSqlError> for SqliteError {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::Sql(error.into())
    }
}

impl From<Error> for SqliteError {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

impl SqliteError {
    /// The error for the caller.
    pub(super) fn into_error(self, file: &Path) -> Error {
        match self {
            Self::Sql(error) => from_sqlite(file, &error),
            Self::Log(error) => error,
        }
    }
}

/// The code of an SQLite error.
#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of rusqlite's")]
pub(super) fn error_code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error {
        rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => {
            Some(error.code)
        }
        _ => None,
    }
}

/// Whether the cause is one request, or the rows that it touches, so that other requests may
/// succeed.
pub(super) fn concerns_one_request(error: &rusqlite::Error) -> bool {
    match error_code(error) {
        Some(code) => matches!(
            code,
            ErrorCode::ConstraintViolation
                | ErrorCode::TooBig
                | ErrorCode::TypeMismatch
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::Unknown
        ),
        None => true,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of rusqlite's")]
pub(super) fn from_sqlite(file: &Path, error: &rusqlite::Error) -> Error {
    let at = file.display();
    let Some(code) = error_code(error) else { return damaged_column(file, error) };
    // SQLite's shared memory file did not get space either.
    let no_room = error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE);
    match code {
        ErrorCode::SystemIoFailure if !no_room => Error::Store(format!(
            "I/O error on {at} ({error}); check the disk and the system's log"
        )),
        ErrorCode::DiskFull | ErrorCode::SystemIoFailure => Error::Full(format!(
            "no space left to write {at} ({error}); free some space, then writing continues"
        )),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Damaged(format!(
            "{at} is damaged: {error}; run `turnwire doctor`, and restore the last backup"
        )),
        ErrorCode::PermissionDenied
        | ErrorCode::ReadOnly
        | ErrorCode::CannotOpen
        | ErrorCode::AuthorizationForStatementDenied => Error::Denied(format!(
            "cannot open or write {at}: {error}; check the permissions of the file and its folder"
        )),
        ErrorCode::OperationInterrupted => Error::TooSlow,
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Error::Locked(format!("{at} is locked by another program: {error}; stop that program"))
        }
        _ => Error::Store(format!("{at}: {error}")),
    }
}

/// A column holds something that is never written there.
#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of rusqlite's")]
fn damaged_column(file: &Path, error: &rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => Error::Damaged(format!(
            "{} has an invalid value: {error}; run `turnwire doctor`",
            file.display()
        )),
        _ => Error::Store(format!("{}: {error}", file.display())),
    }
}

/// An error of the system about a file.
#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of the standard library")]
pub(super) fn from_io(file: &Path, doing: &str, error: &io::Error) -> Error {
    let sentence = format!("cannot {doing} {}: {error}", file.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::Denied(format!("{sentence}; check the permissions of the file and its folder"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Full(format!("{sentence}; free some space and try again"))
        }
        _ => Error::Store(sentence),
    }
}
