//! Background work, a little at a time: remove rows of deleted sessions, and pieces of blobs that
//! nobody needs. The tables hold what is left to do, so any process can continue it.

use super::Shared;
use super::blobs;
use super::connection::{Database, Transaction, transact};
use super::errors::PostgresError;
use super::sessions;
use super::totals::{self, UsageChange};
use crate::cost::SessionUsage;
use crate::error::{Error, Result};
use crate::log::now_ms;
use crate::store::SessionNumber;
use std::sync::Weak;
use std::time::Duration;
use tokio_postgres::types::Type;

/// How often it looks for work without a reason.
const INTERVAL: Duration = Duration::from_mins(10);

/// After a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// How many rows are removed at a time.
const REMOVE_ROWS: i64 = 256;

/// Runs until the store is dropped.
pub(super) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(store) = shared.upgrade() else { return };
        let work = std::sync::Arc::clone(&store.maintenance);
        let wait = match do_all(&store.database).await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "background work failed; will retry");
                RETRY_DELAY
            }
        };
        drop(store);
        // The store wakes it when it is dropped, too.
        let _ = tokio::time::timeout(wait, work.notified()).await;
    }
}

async fn do_all(database: &Database) -> Result<()> {
    while blobs::remove_references(database, now_ms()).await? {}
    while transact!(database, |tx| remove_deleted_rows(&tx).await)? {}
    while blobs::remove_pieces(database).await? {}
    Ok(())
}

/// Deletes a session. Its rows in other tables are removed later, because there may be many.
pub(super) async fn delete_session(shared: &Shared, session: SessionNumber) -> Result<()> {
    transact!(&shared.database, |tx| delete_in(&tx, shared.shard, session).await)?;
    shared.maintenance.notify_one();
    Ok(())
}

async fn delete_in(
    tx: &Transaction,
    shard: i64,
    session: SessionNumber,
) -> Result<(), PostgresError> {
    let rows = tx
        .query(
            "DELETE FROM turnwire.sessions WHERE no = $1 RETURNING tenant, agent, state",
            &[(&session.0, Type::INT8)],
        )
        .await?;
    let row = rows.first().ok_or(Error::NoSession)?;
    let change = UsageChange {
        tenant: row.try_get(0)?,
        agent: row.try_get(1)?,
        before: sessions::from_json(row.try_get(2)?)?,
        after: SessionUsage::default(),
    };
    totals::add_changes(tx, shard, &[change]).await?;
    let mark = "INSERT INTO turnwire.deleted (session) VALUES ($1)";
    tx.execute(mark, &[(&session.0, Type::INT8)]).await?;
    Ok(())
}

/// The rows of a session in a table, some at a time.
const REMOVE: [&str; 6] = [
    "DELETE FROM turnwire.segments WHERE session = $1 AND last IN (
        SELECT last FROM turnwire.segments WHERE session = $1 LIMIT $2)",
    "DELETE FROM turnwire.messages WHERE session = $1 AND key IN (
        SELECT key FROM turnwire.messages WHERE session = $1 LIMIT $2)",
    "DELETE FROM turnwire.history WHERE no IN (
        SELECT no FROM turnwire.history WHERE session = $1 LIMIT $2)",
    "DELETE FROM turnwire.queue WHERE no IN (
        SELECT no FROM turnwire.queue WHERE session = $1 LIMIT $2)",
    "DELETE FROM turnwire.keys WHERE (tenant, key) IN (
        SELECT tenant, key FROM turnwire.keys WHERE session = $1 LIMIT $2)",
    "DELETE FROM turnwire.titles WHERE session IN (
        SELECT session FROM turnwire.titles WHERE session = $1 LIMIT $2)",
];

/// Removes some rows of a deleted session, and returns whether there may be more.
async fn remove_deleted_rows(tx: &Transaction) -> Result<bool, PostgresError> {
    // Another process may do the same. References to blobs are removed before.
    let next = "SELECT d.session FROM turnwire.deleted d WHERE NOT EXISTS (
                    SELECT 1 FROM turnwire.blob_references r WHERE r.session = d.session)
                ORDER BY d.session LIMIT 1 FOR UPDATE SKIP LOCKED";
    let rows = tx.query(next, &[]).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let session: i64 = row.try_get(0)?;
    for remove in REMOVE {
        let params = [(&session as _, Type::INT8), (&REMOVE_ROWS as _, Type::INT8)];
        if tx.execute(remove, &params).await? > 0 {
            return Ok(true);
        }
    }
    let done = "DELETE FROM turnwire.deleted WHERE session = $1";
    tx.execute(done, &[(&session, Type::INT8)]).await?;
    Ok(true)
}
