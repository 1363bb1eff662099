//! What SQLite says, in this crate's words: what happened to which file, and what to do next.

use crate::error::Error;
use rusqlite::{ErrorCode, ffi};
use std::io;
use std::path::Path;

/// Why something did not work, before it is known to whom it is told.
#[derive(Debug)]
pub(super) enum SqliteError {
    /// SQLite says so.
    Sql(rusqlite::Error),
    /// We say so.
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
    /// The error for whoever asked.
    pub(super) fn into_error(self, file: &Path) -> Error {
        match self {
            Self::Sql(error) => from_sqlite(file, &error),
            Self::Log(error) => error,
        }
    }
}

/// Which kind of error SQLite gave.
pub(super) fn error_code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error {
        rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => {
            Some(error.code)
        }
        _ => None,
    }
}

/// Whether the cause lies in one request, or in the rows that it touches, so that others may
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

pub(super) fn from_sqlite(file: &Path, error: &rusqlite::Error) -> Error {
    let at = file.display();
    let Some(code) = error_code(error) else { return damaged_column(file, error) };
    // What SQLite shares between connections has no room either.
    let no_room = error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE);
    match code {
        ErrorCode::SystemIoFailure if !no_room => Error::Store(format!(
            "the disk does not do what it should for {at} ({error}); look into the system's log"
        )),
        ErrorCode::DiskFull | ErrorCode::SystemIoFailure => Error::Full(format!(
            "there is no room left to write to {at} ({error}); free some space, then writing goes on"
        )),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Damaged(format!(
            "{at} is damaged: {error}; look with `turnwire doctor`, and restore the last backup"
        )),
        ErrorCode::PermissionDenied
        | ErrorCode::ReadOnly
        | ErrorCode::CannotOpen
        | ErrorCode::AuthorizationForStatementDenied => Error::Denied(format!(
            "{at} cannot be opened or written: {error}; check the rights of the file and its folder"
        )),
        ErrorCode::OperationInterrupted => Error::TooSlow,
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::Locked(format!(
            "{at} is held by another program: {error}; end what else has it open"
        )),
        _ => Error::Store(format!("{at}: {error}")),
    }
}

/// A column that does not hold what is always written there.
fn damaged_column(file: &Path, error: &rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => Error::Damaged(format!(
            "{} holds something that was never written there: {error}; look with `turnwire doctor`",
            file.display()
        )),
        _ => Error::Store(format!("{}: {error}", file.display())),
    }
}

/// What the system says of a file.
pub(super) fn from_io(file: &Path, doing: &str, error: &io::Error) -> Error {
    let sentence = format!("cannot {doing} {}: {error}", file.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::Denied(format!("{sentence}; check the rights of the file and its folder"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Full(format!("{sentence}; free some space and try again"))
        }
        _ => Error::Store(sentence),
    }
}
