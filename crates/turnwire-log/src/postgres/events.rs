//! Reads events.

use super::connection::Database;
use super::errors::PostgresError;
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::{EventLines, EventPage, SessionNumber};
use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use turnwire_core::Seq;

/// How many rows one statement reads.
const MAX_ROWS: i64 = 1024;

/// The events from a seq on. One statement, so that the rows fit to `first`. The first row is not
/// counted, because it may begin before the seq.
const READ: &str = "
SELECT s.first, e.last, e.count, e.bytes FROM turnwire.sessions s
LEFT JOIN (
    SELECT last, count, bytes FROM (
        SELECT last, count, bytes,
               sum(size) OVER (ORDER BY last) - size - first_value(size) OVER (ORDER BY last) AS before FROM (
            SELECT last, count, size, bytes FROM turnwire.segments
            WHERE session = $1 AND last >= $2 ORDER BY last LIMIT $4) page
    ) sized WHERE before <= $3
) e ON true
WHERE s.no = $1 ORDER BY e.last";

pub(super) async fn read(
    database: &Database,
    session: SessionNumber,
    from: Seq,
    max_bytes: usize,
) -> Result<Vec<EventLines>> {
    let mut page = EventPage::new(from, max_bytes);
    let mut next = from;
    loop {
        let rows = read_rows(database, session, next, max_bytes).await?;
        let read = |row| read_row(row, from).map_err(|error| database.explain(error));
        let mut count = 0;
        for row in &rows {
            let Some(lines) = read(row)? else { break };
            // The first row may begin before the page.
            if lines.first > next {
                return Err(missing(database, session, next));
            }
            count += 1;
            next = lines.last().next();
            if !page.push(&lines) {
                return Ok(page.finish());
            }
        }
        if count < MAX_ROWS {
            return Ok(page.finish());
        }
    }
}

async fn read_rows(
    database: &Database,
    session: SessionNumber,
    from: Seq,
    max_bytes: usize,
) -> Result<Vec<Row>> {
    let connection = database.connect().await?;
    let rows = connection
        .query(
            READ,
            &[
                (&session.0, Type::INT8),
                (&sql_integers::position_to_sql(from), Type::INT8),
                (&sql_integers::count_to_sql(max_bytes), Type::INT8),
                (&MAX_ROWS, Type::INT8),
            ],
        )
        .await
        .map_err(|error| database.explain(error))?;
    if rows.is_empty() { Err(Error::NoSession) } else { Ok(rows) }
}

/// Reads a row; `None` if the session has no events there.
fn read_row(row: &Row, from: Seq) -> Result<Option<EventLines>, PostgresError> {
    let first = sql_integers::seq_from_sql(row.try_get(0)?);
    if from < first {
        return Err(Error::Trimmed(first).into());
    }
    let Some(last) = row.try_get::<_, Option<i64>>(1)? else { return Ok(None) };
    let count = row.try_get::<_, i64>(2)?;
    let first = sql_integers::head_from_sql(last).minus(sql_integers::from_sql(count)).next();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Some(EventLines { first, count, bytes: Bytes::from(row.try_get::<_, Vec<u8>>(3)?) }))
}

fn missing(database: &Database, session: SessionNumber, seq: Seq) -> Error {
    Error::Damaged(format!(
        "{} is damaged: event {seq} of session number {} is missing; restore the last backup",
        database.name(),
        session.0
    ))
}
