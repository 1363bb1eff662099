//! Connections to the database: a pool, time limits, transactions.
//!
//! Nothing depends on the state of a connection, so that pgbouncer may give each transaction another
//! one: no prepared statements with names, no settings beyond a transaction, no `LISTEN`.

use super::errors::{self, PostgresError};
use super::url::DatabaseUrl;
use crate::error::{Error, Result};
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// How many connections are used besides that of the appends.
const MAX_CONNECTIONS: usize = 16;

/// How long to wait for a connection, and for the answer to a statement.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Begins a transaction. If this process hangs in the middle, the database ends the transaction, so
/// that its locks keep nobody waiting.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// A parameter of a statement. Its type is given, so that the statement need not be prepared.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A database and the connections to it.
pub(super) struct Database {
    name: String,
    pool: Pool,
    /// One connection, so that reads never keep appends waiting.
    appends: Pool,
    /// Connections of the node, so that reads never keep its lease from being renewed.
    nodes: Pool,
    /// The first host of the URL, and its port.
    host: Option<(String, u16)>,
}

const NODE_CONNECTIONS: usize = 2;

impl Database {
    pub(super) fn new(url: &DatabaseUrl) -> Result<Self> {
        let tls = url.tls()?;
        let pool = |size: usize| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(url.config().clone(), tls.clone(), recycling);
            let pool = Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1);
            let pool = pool.wait_timeout(Some(CONNECT_TIMEOUT));
            let pool = pool.create_timeout(Some(CONNECT_TIMEOUT)).build();
            pool.map_err(|error| Error::Store(format!("{}: {error}", url.name())))
        };
        let (general, appends, nodes) = (pool(MAX_CONNECTIONS)?, pool(1)?, pool(NODE_CONNECTIONS)?);
        Ok(Self { name: url.name().to_owned(), pool: general, appends, nodes, host: url.host() })
    }

    /// The first host of the URL, and its port.
    pub(super) fn host(&self) -> Option<(&str, u16)> {
        self.host.as_ref().map(|(host, port)| (host.as_str(), *port))
    }

    /// Host and database, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn explain(&self, error: PostgresError) -> Error {
        error.into_error(&self.name)
    }

    /// A connection for statements that are transactions of their own.
    pub(super) async fn connect(&self) -> Result<Connection> {
        self.connect_until(None).await
    }

    /// The same. Statements that take longer than `max_time` fail with `TooSlow`.
    pub(super) async fn connect_until(&self, max_time: Option<Duration>) -> Result<Connection> {
        self.take(&self.pool, max_time).await
    }

    /// The connection of the appends.
    pub(super) async fn connect_to_append(&self) -> Result<Connection> {
        self.take(&self.appends, None).await
    }

    /// A connection for the lease of this node, and what nodes share.
    pub(super) async fn connect_as_node(&self) -> Result<Connection> {
        self.take(&self.nodes, None).await
    }

    async fn take(&self, pool: &Pool, max_time: Option<Duration>) -> Result<Connection> {
        let object = pool.get().await.map_err(|error| self.explain_pool(&error))?;
        let limit = max_time.map_or(ANSWER_TIMEOUT, |time| time.min(ANSWER_TIMEOUT));
        Ok(Connection {
            object: Some(object),
            name: self.name.clone(),
            is_limited: max_time.is_some(),
            deadline: Instant::now() + limit,
            unfinished: AtomicU32::new(0),
        })
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<Transaction, PostgresError> {
        Transaction::begin(self.connect().await?).await
    }

    fn explain_pool(&self, error: &PoolError) -> Error {
        let at = &self.name;
        match error {
            PoolError::Backend(error) => errors::from_postgres(at, error),
            PoolError::Timeout(TimeoutType::Wait) => Error::Store(format!(
                "{at} is overloaded: no connection became free within {} s",
                CONNECT_TIMEOUT.as_secs()
            )),
            PoolError::Timeout(_) => errors::unreachable(at, "it does not answer"),
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                Error::Store(format!("{at}: {error}"))
            }
        }
    }
}

/// A connection of the pool. Dropped in the middle of a statement, it is closed.
pub(super) struct Connection {
    /// `None` only while it is dropped.
    object: Option<Object>,
    name: String,
    /// Whether the caller gave the time limit.
    is_limited: bool,
    deadline: Instant,
    /// Statements without an answer, and open transactions.
    unfinished: AtomicU32,
}

impl Connection {
    pub(super) fn database_name(&self) -> &str {
        &self.name
    }

    /// Runs a statement that returns rows. Statements that are begun at the same time are sent
    /// together, in the order of the calls.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, PostgresError> {
        let object = self.object()?;
        if !self.is_limited {
            return self.answer(object.query_typed(sql, params)).await;
        }
        // The server ends the statement by itself, also if the caller gives up. A request to cancel
        // it would not do: pgbouncer 1.18 may crash when it gets one.
        let left = self.deadline.saturating_duration_since(Instant::now()).as_millis().max(1);
        let start = format!("BEGIN; SET LOCAL statement_timeout = {left}");
        let statement = self.answer(object.query_typed(sql, params));
        let (begun, rows, ended) =
            tokio::join!(self.batch(&start), statement, self.batch("COMMIT"));
        begun?;
        let rows = rows?;
        ended?;
        Ok(rows)
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<u64, PostgresError> {
        let object = self.object()?;
        self.answer(object.execute_typed(sql, params)).await
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), PostgresError> {
        let object = self.object()?;
        self.answer(object.batch_execute(sql)).await
    }

    fn object(&self) -> Result<&Object, PostgresError> {
        Ok(self
            .object
            .as_ref()
            .ok_or_else(|| Error::Store("the connection is closed".to_owned()))?)
    }

    async fn answer<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PostgresError> {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let Ok(answer) = tokio::time::timeout_at(self.deadline, statement).await else {
            return Err(PostgresError::Log(if self.is_limited {
                Error::TooSlow
            } else {
                errors::unreachable(&self.name, "a statement was not answered in time")
            }));
        };
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
        Ok(answer?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(object) = self.object.take().filter(|_| *self.unfinished.get_mut() > 0) else {
            return;
        };
        // Not back to the pool. The server ends the transaction when the connection is closed.
        drop(Object::take(object));
    }
}

/// A transaction. It is rolled back if it is dropped.
pub(super) struct Transaction(Connection);

impl std::ops::Deref for Transaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl Transaction {
    async fn begin(connection: Connection) -> Result<Self, PostgresError> {
        connection.batch(BEGIN).await?;
        connection.unfinished.fetch_add(1, Ordering::Relaxed);
        Ok(Self(connection))
    }

    /// Begins a transaction together with its first statement, in one round trip.
    pub(super) async fn begin_with(
        connection: Connection,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<(Self, Vec<Row>), PostgresError> {
        let transaction = Self(connection);
        transaction.unfinished.fetch_add(1, Ordering::Relaxed);
        let (begun, rows) = tokio::join!(transaction.batch(BEGIN), transaction.query(sql, params));
        begun?;
        let rows = rows?;
        Ok((transaction, rows))
    }

    pub(super) async fn commit(self) -> Result<(), PostgresError> {
        self.batch("COMMIT").await?;
        self.set_ended();
        Ok(())
    }

    /// Marks a transaction as ended whose `COMMIT` was sent together with other statements. All of
    /// them must have succeeded: a `COMMIT` after a failed one succeeds and commits nothing.
    pub(super) fn set_ended(&self) {
        self.0.unfinished.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) async fn roll_back(self) {
        if self.batch("ROLLBACK").await.is_ok() {
            self.set_ended();
        }
    }
}

/// How often a transaction is repeated that lost against another one.
pub(super) const MAX_ATTEMPTS: usize = 10;

/// Runs an expression in a transaction, and again if it lost against another one. The expression
/// returns a `Result` with `PostgresError`; an error rolls back.
macro_rules! transact {
    ($database:expr, |$transaction:ident| $work:expr) => {{
        let database: &$crate::postgres::connection::Database = $database;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let $transaction = match database.begin().await {
                Ok(transaction) => transaction,
                Err(error) => break Err(database.explain(error)),
            };
            let done = match $work {
                Ok(done) => $transaction.commit().await.map(|()| done),
                Err(error) => {
                    $transaction.roll_back().await;
                    Err(error)
                }
            };
            match done {
                Ok(done) => break Ok(done),
                Err(error)
                    if error.is_conflict()
                        && attempts < $crate::postgres::connection::MAX_ATTEMPTS => {}
                Err(error) => break Err(database.explain(error)),
            }
        }
    }};
}
pub(super) use transact;
