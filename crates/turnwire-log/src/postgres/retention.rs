//! Retention: deletes the oldest events, never a part of a reply, a little at a time.
//!
//! It goes through the rows of all sessions from the oldest on. Each step is a short transaction
//! that locks one session: others wait for it no longer than for an append.

use super::blobs;
use super::connection::{Database, Transaction, transact};
use super::errors::PostgresError;
use crate::error::Result;
use crate::log::now_ms;
use crate::sql_integers;
use crate::store::{EventLines, Retention, RetentionReport};
use bytes::Bytes;
use std::collections::HashSet;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use turnwire_core::{Head, Seq};

/// How many rows one transaction removes, about.
const TRIM_ROWS: i64 = 512;

pub(super) async fn apply(database: &Database, retention: Retention) -> Result<RetentionReport> {
    let mut report = RetentionReport::default();
    if retention.before_ms.is_some() || retention.max_bytes.is_some() {
        trim_all(database, retention, &mut report).await?;
    }
    if let Some(before_ms) = retention.keys_before_ms {
        report.keys = remove_keys(database, before_ms).await?;
    }
    if let Some(before_ms) = retention.blobs_before_ms {
        while blobs::remove_references(database, now_ms()).await? {}
        report.blobs = blobs::remove_unused(database, before_ms).await?;
    }
    Ok(report)
}

async fn remove_keys(database: &Database, before_ms: i64) -> Result<u64> {
    let delete = "
        DELETE FROM turnwire.keys k USING (
            SELECT tenant, key FROM turnwire.keys WHERE ms < $1 ORDER BY tenant, key LIMIT $2) old
        WHERE k.tenant = old.tenant AND k.key = old.key AND k.ms < $1";
    let mut removed = 0;
    loop {
        let connection = database.connect().await?;
        let params = [(&before_ms as _, Type::INT8), (&TRIM_ROWS as _, Type::INT8)];
        let some = connection.execute(delete, &params).await;
        let some = some.map_err(|error| database.explain(error))?;
        removed += some;
        if some == 0 {
            return Ok(removed);
        }
    }
}

/// Trims sessions from the oldest row on.
async fn trim_all(
    database: &Database,
    retention: Retention,
    report: &mut RetentionReport,
) -> Result<()> {
    let mut over = match retention.max_bytes {
        Some(max) => stored_bytes(database).await?.saturating_sub(max),
        None => 0,
    };
    let (mut trimmed, mut old) = (HashSet::new(), HashSet::new());
    let mut after = (i64::MIN, i64::MIN);
    loop {
        let rows = oldest_rows(database, after).await?;
        let Some(last) = rows.last() else { break };
        after = *last;
        for (ms, session) in rows {
            let is_old = retention.before_ms.is_some_and(|before| ms < before);
            if !is_old && over == 0 {
                report.sessions = trimmed.len() as u64;
                return Ok(());
            }
            // What is too old goes at once, whatever its bytes.
            if is_old && !old.insert(session) {
                continue;
            }
            let up_to_ms = match retention.before_ms {
                Some(before) if is_old => before.saturating_sub(1),
                _ => ms,
            };
            let trim = Trim { session, up_to_ms, bytes: (!is_old).then_some(over) };
            loop {
                let removed = transact!(database, |tx| trim.run(&tx).await)?;
                report.events += removed.events;
                report.bytes += removed.bytes;
                over = over.saturating_sub(removed.bytes);
                if removed.events > 0 {
                    trimmed.insert(session);
                }
                if !removed.has_more {
                    break;
                }
            }
        }
    }
    report.sessions = trimmed.len() as u64;
    Ok(())
}

async fn stored_bytes(database: &Database) -> Result<u64> {
    let connection = database.connect().await?;
    let sum = "SELECT coalesce(sum(size), 0)::int8 FROM turnwire.segments";
    let rows = connection.query(sum, &[]).await;
    let read = |rows: Vec<Row>| Ok(rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?);
    rows.and_then(read).map(sql_integers::from_sql).map_err(|error| database.explain(error))
}

/// Times and sessions of the next rows, from the oldest on.
async fn oldest_rows(database: &Database, after: (i64, i64)) -> Result<Vec<(i64, i64)>> {
    let connection = database.connect().await?;
    let next = "SELECT DISTINCT ms, session FROM (
                    SELECT ms, session FROM turnwire.segments WHERE (ms, session) > ($1, $2)
                    ORDER BY ms, session LIMIT $3) page
                ORDER BY ms, session";
    let params =
        [(&after.0 as _, Type::INT8), (&after.1 as _, Type::INT8), (&TRIM_ROWS as _, Type::INT8)];
    let rows = connection.query(next, &params).await;
    let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.and_then(|rows| rows.iter().map(read).collect()).map_err(|error| database.explain(error))
}

/// What to delete of one session.
struct Trim {
    session: i64,
    /// Events up to the first row that is younger.
    up_to_ms: i64,
    /// As much as frees so many bytes; `None`: everything.
    bytes: Option<u64>,
}

#[derive(Default)]
struct Removed {
    events: u64,
    bytes: u64,
    has_more: bool,
}

/// A row of events: its range and size.
struct EventRow {
    first: Seq,
    last: Seq,
    size: u64,
}

impl Trim {
    /// Does one step.
    async fn run(&self, tx: &Transaction) -> Result<Removed, PostgresError> {
        let locked = tx
            .query(
                "SELECT first, open_from FROM turnwire.sessions WHERE no = $1 FOR NO KEY UPDATE",
                &[(&self.session, Type::INT8)],
            )
            .await?;
        // It may have been deleted meanwhile.
        let Some(session) = locked.first() else { return Ok(Removed::default()) };
        let first: i64 = session.try_get(0)?;
        let (left, bytes) = self.remove_rows(tx, first - 1).await?;
        if left == TRIM_ROWS {
            return Ok(Removed { events: 0, bytes, has_more: true });
        }
        let keep_from = session.try_get::<_, Option<i64>>(1)?.map(sql_integers::seq_from_sql);
        let first = sql_integers::seq_from_sql(first);
        let mut rows = Vec::new();
        loop {
            let before = rows.len();
            let next = rows.last().map_or(first, |row: &EventRow| row.last.next());
            rows.extend(self.old_rows(tx, next).await?);
            if let Some(cut) = self.find_cut(tx, first, keep_from, &rows).await? {
                return self.trim_to(tx, first, cut, &rows).await;
            }
            // A reply may have more rows than were read.
            if rows.len() - before < usize::try_from(TRIM_ROWS).unwrap_or(usize::MAX) {
                return Ok(Removed { events: 0, bytes, has_more: false });
            }
        }
    }

    /// The next rows, up to the first that is too young.
    async fn old_rows(&self, tx: &Transaction, from: Seq) -> Result<Vec<EventRow>, PostgresError> {
        let from = sql_integers::position_to_sql(from);
        let rows = tx
            .query(
                "SELECT last, count, size, ms FROM turnwire.segments
                 WHERE session = $1 AND last >= $2 ORDER BY last LIMIT $3",
                &[(&self.session, Type::INT8), (&from, Type::INT8), (&TRIM_ROWS, Type::INT8)],
            )
            .await?;
        let mut found = Vec::new();
        for row in &rows {
            if row.try_get::<_, i64>(3)? > self.up_to_ms {
                break;
            }
            let last = sql_integers::seq_from_sql(row.try_get(0)?);
            let count = sql_integers::from_sql(row.try_get(1)?);
            let size = sql_integers::from_sql(row.try_get(2)?);
            found.push(EventRow { first: Head::from(last).minus(count).next(), last, size });
        }
        Ok(found)
    }

    /// The last event to delete: an end of whole replies.
    async fn find_cut(
        &self,
        tx: &Transaction,
        first: Seq,
        keep_from: Option<Seq>,
        rows: &[EventRow],
    ) -> Result<Option<Seq>, PostgresError> {
        let Some(end) = rows.last().map(|row| Head::from(row.last)) else { return Ok(None) };
        let end = keep_from.map_or(end, |keep_from| end.min(keep_from.previous()));
        let (from, to) = (sql_integers::position_to_sql(first), sql_integers::position_to_sql(end));
        let found = tx
            .query(
                "SELECT first, last FROM turnwire.messages
                 WHERE session = $1 AND first >= $2 AND first <= $3 ORDER BY first",
                &[(&self.session, Type::INT8), (&from, Type::INT8), (&to, Type::INT8)],
            )
            .await?;
        let mut messages = Vec::new();
        for row in &found {
            let (first, last) = (row.try_get(0)?, row.try_get(1)?);
            messages.push((sql_integers::seq_from_sql(first), sql_integers::seq_from_sql(last)));
        }
        let mut cuts: Vec<Seq> = messages.iter().map(|(_, last)| *last).collect();
        cuts.extend(rows.iter().map(|row| row.last).chain(end.seq()));
        cuts.retain(|&cut| cut >= first && end.includes(cut));
        cuts.sort_unstable();
        cuts.dedup();
        let mut messages = messages.into_iter().peekable();
        // The last event of all messages that begin up to the cut.
        let mut reach = Head::EMPTY;
        let mut best = None;
        for cut in cuts {
            while let Some((_, last)) = messages.next_if(|(first, _)| *first <= cut) {
                reach = reach.max(last.into());
            }
            if reach > cut.into() {
                continue;
            }
            best = Some(cut);
            if let Some(enough) = self.bytes
                && self.bytes_until(tx, cut, rows).await? >= enough
            {
                break;
            }
        }
        Ok(best)
    }

    /// The bytes of all events up to a seq.
    async fn bytes_until(
        &self,
        tx: &Transaction,
        cut: Seq,
        rows: &[EventRow],
    ) -> Result<u64, PostgresError> {
        let whole = rows.iter().filter(|row| row.last <= cut).map(|row| row.size).sum::<u64>();
        match rows.iter().find(|row| row.first <= cut && cut < row.last) {
            Some(split) => {
                let rest = self.rest_of_row(tx, split, cut).await?;
                Ok(whole + split.size.saturating_sub(rest.bytes.len() as u64))
            }
            None => Ok(whole),
        }
    }

    /// The events of a row after a seq.
    async fn rest_of_row(
        &self,
        tx: &Transaction,
        row: &EventRow,
        cut: Seq,
    ) -> Result<EventLines, PostgresError> {
        let last = sql_integers::position_to_sql(row.last);
        let found = tx
            .query(
                "SELECT bytes FROM turnwire.segments WHERE session = $1 AND last = $2",
                &[(&self.session, Type::INT8), (&last, Type::INT8)],
            )
            .await?;
        let bytes = found.first().map_or(Ok(Vec::new()), |row| row.try_get::<_, Vec<u8>>(0))?;
        let count = u32::try_from(row.last.next().offset_from(row.first)).unwrap_or(u32::MAX);
        let whole = EventLines { first: row.first, count, bytes: Bytes::from(bytes) };
        Ok(whole.starting_at(cut.next()).unwrap_or(whole))
    }

    async fn trim_to(
        &self,
        tx: &Transaction,
        first: Seq,
        cut: Seq,
        rows: &[EventRow],
    ) -> Result<Removed, PostgresError> {
        let mut removed = Removed { events: cut.next().offset_from(first), ..Removed::default() };
        if let Some(split) = rows.iter().find(|row| row.first <= cut && cut < row.last) {
            let rest = self.rest_of_row(tx, split, cut).await?;
            removed.bytes = split.size.saturating_sub(rest.bytes.len() as u64);
            let (count, size) =
                (i64::from(rest.count), sql_integers::count_to_sql(rest.bytes.len()));
            tx.execute(
                "UPDATE turnwire.segments SET count = $3, size = $4, bytes = $5
                 WHERE session = $1 AND last = $2",
                &[
                    (&self.session, Type::INT8),
                    (&sql_integers::position_to_sql(split.last), Type::INT8),
                    (&count, Type::INT8),
                    (&size, Type::INT8),
                    (&&*rest.bytes, Type::BYTEA),
                ],
            )
            .await?;
        }
        // From now on nobody reads the events before it. Rows that are left are removed next.
        tx.execute(
            "UPDATE turnwire.sessions SET first = $2 WHERE no = $1",
            &[
                (&self.session, Type::INT8),
                (&sql_integers::position_to_sql(cut.next()), Type::INT8),
            ],
        )
        .await?;
        let (left, bytes) = self.remove_rows(tx, sql_integers::position_to_sql(cut)).await?;
        removed.bytes += bytes;
        removed.has_more = left == TRIM_ROWS || self.bytes.is_none();
        Ok(removed)
    }

    /// Removes some rows up to a seq, and returns how many, and their bytes.
    async fn remove_rows(&self, tx: &Transaction, last: i64) -> Result<(i64, u64), PostgresError> {
        let rows = tx
            .query(
                "WITH gone AS (
                    DELETE FROM turnwire.segments WHERE session = $1 AND last IN (
                        SELECT last FROM turnwire.segments WHERE session = $1 AND last <= $2
                        ORDER BY last LIMIT $3)
                    RETURNING size)
                 SELECT count(*), coalesce(sum(size), 0)::int8 FROM gone",
                &[(&self.session, Type::INT8), (&last, Type::INT8), (&TRIM_ROWS, Type::INT8)],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok((0, 0)) };
        Ok((row.try_get(0)?, sql_integers::from_sql(row.try_get(1)?)))
    }
}
