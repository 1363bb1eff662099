//! Turns errors of Postgres and of the network into [`Error`]: what happened, and what to do.

use crate::error::Error;
use std::error::Error as _;
use tokio_postgres::error::SqlState;

/// An error inside the engine, before it is given to the caller.
#[derive(Debug)]
pub(super) enum PostgresError {
    /// From the database, or from the connection to it.
    Sql(tokio_postgres::Error),
    /// From this crate.
    Log(Error),
    /// The transaction lost against another one, and can be repeated.
    Conflict,
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for PostgresError {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

impl PostgresError {
    /// The error for the caller.
    pub(super) fn into_error(self, at: &str) -> Error {
        match self {
            Self::Sql(error) => from_postgres(at, &error),
            Self::Log(error) => error,
            Self::Conflict => {
                Error::Store(format!("{at}: other transactions changed the same rows too often"))
            }
        }
    }

    /// The code that the database gave.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Sql(error) => error.code(),
            Self::Log(_) | Self::Conflict => None,
        }
    }

    /// Whether the transaction lost against another one, and can be repeated.
    pub(super) fn is_conflict(&self) -> bool {
        let is_lost = |code: &SqlState| {
            [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
        };
        matches!(self, Self::Conflict) || self.code().is_some_and(is_lost)
    }

    /// Whether the cause is one request, so that other requests may succeed.
    pub(super) fn concerns_one_request(&self) -> bool {
        // Classes of codes: data, constraints, cardinality, limits of the program.
        let is_data = |code: &SqlState| {
            ["21", "22", "23", "54"].iter().any(|class| code.code().starts_with(class))
        };
        self.code().is_some_and(is_data)
    }
}

/// No answer from the database. Clients may try again.
pub(super) fn unreachable(at: &str, why: &str) -> Error {
    Error::Store(format!(
        "cannot reach the database {at}: {why}; check that it runs, and its address"
    ))
}

pub(super) fn from_postgres(at: &str, error: &tokio_postgres::Error) -> Error {
    let Some(database) = error.as_db_error() else {
        let why =
            error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
        if why.starts_with("error performing TLS handshake") {
            return Error::Store(format!(
                "cannot reach the database {at} with TLS ({why}); check its certificate and `sslrootcert`, or reach it \
                 without TLS: add `?sslmode=disable` to the URL"
            ));
        }
        return unreachable(at, &why);
    };
    let (code, why) = (database.code(), database.message());
    let class = code.code().get(..2).unwrap_or_default();
    match (class, code) {
        (_, &SqlState::QUERY_CANCELED) => Error::TooSlow,
        (_, &SqlState::READ_ONLY_SQL_TRANSACTION) => Error::Denied(format!(
            "{at} is read-only ({why}); name the primary server, or allow this user to write"
        )),
        (_, &SqlState::INSUFFICIENT_PRIVILEGE) => Error::Denied(format!(
            "the database user may not do this in {at} ({why}); it needs CREATE on the database, or must own the \
             schema `turnwire`"
        )),
        (_, &SqlState::INVALID_CATALOG_NAME) => Error::Store(format!(
            "{at}: {why}; create the database first, for example with `createdb`"
        )),
        // What Postgres adds where `pg_hba.conf` wants TLS.
        ("28", _) if why.contains("no encryption") => Error::Denied(format!(
            "{at} refuses the login ({why}); if it wants TLS, add `?sslmode=require` to the URL, otherwise check \
             pg_hba.conf of the server"
        )),
        ("28", _) => Error::Denied(format!(
            "{at} refuses the login ({why}); check user and password, and pg_hba.conf of the server"
        )),
        (_, &SqlState::DISK_FULL) => Error::Full(format!(
            "no space left for the database {at} ({why}); free some space, then writing continues"
        )),
        (_, &SqlState::TOO_MANY_CONNECTIONS) => Error::Store(format!(
            "{at} accepts no more connections ({why}); raise max_connections, or use pgbouncer"
        )),
        ("57", _) => unreachable(at, why),
        (_, &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
            Error::Damaged(format!("{at} is damaged: {why}; restore the last backup"))
        }
        _ => Error::Store(format!("{at}: {why} ({})", code.code())),
    }
}
