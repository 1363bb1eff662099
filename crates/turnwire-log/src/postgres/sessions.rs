//! Rows of sessions, and lists of them.

use super::blobs;
use super::connection::{Connection, Database, Param, Transaction, transact};
use super::errors::PostgresError;
use super::nodes::has_no_owner;
use super::search;
use super::text;
use crate::error::{Error, Result};
use crate::sql_integers;
use crate::store::{
    BlobReferences, Fence, HistoryState, Lease, NewSession, SessionKey, SessionNumber,
    SessionPatch, SessionQuery, SessionRecord, SessionState, SessionStatus, new_epoch,
};
use crate::visible_sessions::{SessionPattern, prefix_end};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// The columns of [`read_record`]; the table is called `s`.
macro_rules! columns {
    () => {
        "s.no, s.tenant, s.id, s.epoch, s.agent, s.title, s.metadata, s.created_ms, s.updated_ms, s.first, s.head,
         s.state, s.history"
    };
}

/// A statement that reads sessions.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM turnwire.sessions s ", $rest)
    };
}

fn read_record(row: &Row) -> Result<SessionRecord, PostgresError> {
    let text = |at: usize| Ok::<_, PostgresError>(text::from_sql(row.try_get(at)?));
    Ok(SessionRecord {
        number: SessionNumber(row.try_get(0)?),
        key: SessionKey::new(text(1)?, text(2)?),
        epoch: row.try_get(3)?,
        agent: text(4)?,
        title: text(5)?,
        metadata: from_json(row.try_get(6)?)?,
        created_ms: row.try_get(7)?,
        updated_ms: row.try_get(8)?,
        first: sql_integers::seq_from_sql(row.try_get(9)?),
        head: sql_integers::head_from_sql(row.try_get(10)?),
        state: read_state(row, 11)?,
    })
}

/// Reads a state from the columns `state` and `history`, which is the next one.
pub(super) fn read_state(row: &Row, at: usize) -> Result<SessionState, PostgresError> {
    let state: SessionState = from_json(row.try_get(at)?)?;
    let history: Option<&[u8]> = row.try_get(at + 1)?;
    let history = history.map(HistoryState::from_bytes).transpose()?;
    Ok(SessionState { history, ..state })
}

/// Parses a column with JSON.
pub(super) fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    serde_json::from_str(json)
        .map_err(|error| Error::Damaged(format!("the database has an invalid value: {error}")))
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::Store(format!("cannot write JSON: {error}")))
}

fn read_records(rows: &[Row]) -> Result<Vec<SessionRecord>, PostgresError> {
    rows.iter().map(read_record).collect()
}

async fn query_records(
    database: &Database,
    max_time: Option<Duration>,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<SessionRecord>> {
    let connection = database.connect_until(max_time).await?;
    let rows = connection.query(sql, params).await;
    rows.and_then(|rows| read_records(&rows)).map_err(|error| database.explain(error))
}

pub(super) async fn find(database: &Database, key: &SessionKey) -> Result<Option<SessionRecord>> {
    let (tenant, id) = (text::to_sql(&key.tenant), text::to_sql(&key.id));
    let sql = select!("WHERE s.tenant = $1 AND s.id = $2");
    let params: [Param<'_>; 2] = [(&tenant, Type::TEXT), (&id, Type::TEXT)];
    Ok(query_records(database, None, sql, &params).await?.pop())
}

pub(super) async fn list_open(database: &Database) -> Result<Vec<SessionRecord>> {
    let sql = select!(
        "WHERE s.no IN (SELECT no FROM turnwire.sessions WHERE open_from IS NOT NULL
                        UNION SELECT session FROM turnwire.queue)
         ORDER BY s.no"
    );
    query_records(database, None, sql, &[]).await
}

/// Sessions with something to do whose owner is gone. A fork in progress has no owner for a moment.
pub(super) async fn list_orphans(
    database: &Database,
    after: SessionNumber,
    limit: usize,
) -> Result<Vec<SessionRecord>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM turnwire.sessions s
         WHERE s.no IN (SELECT no FROM turnwire.sessions WHERE open_from IS NOT NULL AND no > $1
                        UNION SELECT session FROM turnwire.queue WHERE session > $1)
           AND (s.owner IS NOT NULL OR s.state NOT LIKE '%\"is_forking\":true%') AND ",
        has_no_owner!(),
        " ORDER BY s.no LIMIT $2"
    );
    let limit = sql_integers::count_to_sql(limit);
    query_records(database, None, sql, &[(&after.0, Type::INT8), (&limit, Type::INT8)]).await
}

pub(super) async fn list_all(
    database: &Database,
    after: SessionNumber,
    limit: usize,
) -> Result<Vec<SessionRecord>> {
    let sql = select!("WHERE s.no > $1 ORDER BY s.no LIMIT $2");
    let limit = sql_integers::count_to_sql(limit);
    query_records(database, None, sql, &[(&after.0, Type::INT8), (&limit, Type::INT8)]).await
}

/// The patterns of visible sessions: ids, and ranges of ids, which may have no end.
pub(super) struct VisiblePatterns {
    ids: Vec<String>,
    from: Vec<String>,
    to: Vec<Option<String>>,
}

impl VisiblePatterns {
    pub(super) fn new(rules: &[SessionPattern]) -> Self {
        let mut patterns = Self { ids: Vec::new(), from: Vec::new(), to: Vec::new() };
        for rule in rules {
            match rule {
                SessionPattern::Id(id) => patterns.ids.push(text::to_sql(id).into_owned()),
                SessionPattern::Prefix(prefix) => {
                    let prefix = text::to_sql(prefix).into_owned();
                    patterns.to.push(prefix_end(&prefix));
                    patterns.from.push(prefix);
                }
            }
        }
        patterns
    }

    /// The condition for sessions `s` of the tenant `$1`. It reads no other session of the tenant.
    pub(super) fn condition<'a>(&'a self, params: &mut Vec<Param<'a>>) -> String {
        params.push((&self.ids, Type::TEXT_ARRAY));
        params.push((&self.from, Type::TEXT_ARRAY));
        params.push((&self.to, Type::TEXT_ARRAY));
        let at = params.len();
        format!(
            " AND s.no IN (
                SELECT n.no FROM turnwire.sessions n WHERE n.tenant = $1 AND n.id = ANY(${})
                UNION ALL
                SELECT n.no FROM unnest(${}, ${at}) r (low, high), turnwire.sessions n
                WHERE n.tenant = $1 AND n.id >= r.low AND (r.high IS NULL OR n.id < r.high))",
            at - 2,
            at - 1,
        )
    }
}

pub(super) async fn list(database: &Database, query: &SessionQuery) -> Result<Vec<SessionRecord>> {
    let tenant = text::to_sql(&query.tenant);
    let limit = sql_integers::count_to_sql(query.limit);
    let visible = query.visible.patterns().map(VisiblePatterns::new);
    let status = query.status.map(status_to_sql);
    let after = query.after.map(|(ms, number)| (ms, number.0));
    let words = match query.search.as_ref().map(search::to_query) {
        Some(None) => return Ok(Vec::new()),
        words => words.flatten(),
    };
    let mut params: Vec<Param<'_>> = vec![(&tenant, Type::TEXT)];
    let mut sql = select!("WHERE s.tenant = $1").to_owned();
    if let Some(visible) = &visible {
        sql.push_str(&visible.condition(&mut params));
    }
    if let Some(words) = &words {
        params.push((words, Type::TEXT));
        sql.push_str(&search::CONDITION.replace("$words", &format!("${}", params.len())));
    }
    // Writing to a string cannot fail.
    if let Some(status) = &status {
        params.push((status, Type::INT8));
        let _ = write!(sql, " AND s.status = ${}", params.len());
        if query.status != Some(SessionStatus::Idle) {
            // Repeated in the form of the partial index, so that Postgres uses it.
            sql.push_str(" AND s.status <> 0");
        }
    }
    if let Some((ms, number)) = &after {
        params.push((ms, Type::INT8));
        params.push((number, Type::INT8));
        let at = params.len();
        let _ = write!(sql, " AND (s.updated_ms, s.no) < (${}, ${at})", at - 1);
    }
    params.push((&limit, Type::INT8));
    let _ = write!(sql, " ORDER BY s.updated_ms DESC, s.no DESC LIMIT ${}", params.len());
    query_records(database, query.max_time, &sql, &params).await
}

/// The status of a column value.
pub(super) fn status_from_sql(status: i64) -> SessionStatus {
    match status {
        1 => SessionStatus::Running,
        2 => SessionStatus::Waiting,
        _ => SessionStatus::Idle,
    }
}

/// The column value of a status.
pub(super) fn status_to_sql(status: SessionStatus) -> i64 {
    match status {
        SessionStatus::Idle => 0,
        SessionStatus::Running => 1,
        SessionStatus::Waiting => 2,
    }
}

/// Creates a session, or finds it. Returns whether it was created.
pub(super) async fn create(
    database: &Database,
    new: &NewSession,
    state: &SessionState,
) -> Result<(SessionRecord, bool)> {
    loop {
        if let Some(found) = find(database, &new.key).await? {
            return Ok((found, false));
        }
        // It may be deleted again before it is found.
        if let Some(made) = transact!(database, |tx| insert(&tx, new, state).await)? {
            return Ok((made, true));
        }
    }
}

/// Inserts a session. `None` if there is one.
async fn insert(
    tx: &Transaction,
    new: &NewSession,
    state: &SessionState,
) -> Result<Option<SessionRecord>, PostgresError> {
    let (tenant, id) = (text::to_sql(&new.key.tenant), text::to_sql(&new.key.id));
    let (agent, title) = (text::to_sql(&new.agent), text::to_sql(&new.title));
    let (epoch, metadata, json) = (new_epoch()?, to_json(&new.metadata)?, to_json(state)?);
    let status = status_to_sql(state.status);
    let open_from = state.keep_from().map(sql_integers::position_to_sql);
    let rows = tx
        .query(
            concat!(
                "INSERT INTO turnwire.sessions AS s (tenant, id, epoch, agent, title, metadata, created_ms, updated_ms,
                                                     status, open_from, state)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10)
                 ON CONFLICT (tenant, id) DO NOTHING RETURNING ",
                columns!()
            ),
            &[
                (&tenant, Type::TEXT),
                (&id, Type::TEXT),
                (&epoch, Type::TEXT),
                (&agent, Type::TEXT),
                (&title, Type::TEXT),
                (&metadata, Type::TEXT),
                (&new.now_ms, Type::INT8),
                (&status, Type::INT8),
                (&open_from, Type::INT8),
                (&json, Type::TEXT),
            ],
        )
        .await?;
    let Some(record) = rows.first().map(read_record).transpose()? else { return Ok(None) };
    if !new.title.is_empty() {
        set_title_words(tx, record.number, &new.title).await?;
    }
    let mut references = BlobReferences::default();
    references.add_fields(&new.metadata);
    blobs::add_references(tx, &[(record.number.0, &new.key.tenant, &references)]).await?;
    Ok(Some(record))
}

async fn set_title_words(
    tx: &Connection,
    session: SessionNumber,
    title: &str,
) -> Result<(), PostgresError> {
    let words = search::to_words(title);
    tx.execute(
        "INSERT INTO turnwire.titles (session, words) VALUES ($1, $2::text::tsvector)
         ON CONFLICT (session) DO UPDATE SET words = excluded.words",
        &[(&session.0, Type::INT8), (&words, Type::TEXT)],
    )
    .await?;
    Ok(())
}

pub(super) async fn patch(
    database: &Database,
    session: SessionNumber,
    patch: &SessionPatch,
) -> Result<SessionRecord> {
    transact!(database, |tx| patch_in(&tx, session, patch).await)
}

async fn patch_in(
    tx: &Transaction,
    session: SessionNumber,
    patch: &SessionPatch,
) -> Result<SessionRecord, PostgresError> {
    let title = patch.title.as_deref().map(text::to_sql);
    let metadata = patch.metadata.as_ref().map(to_json).transpose()?;
    let rows = tx
        .query(
            concat!(
                "UPDATE turnwire.sessions s SET title = coalesce($2, title), metadata = coalesce($3, metadata)
                 WHERE no = $1 RETURNING ",
                columns!()
            ),
            &[(&session.0, Type::INT8), (&title, Type::TEXT), (&metadata, Type::TEXT)],
        )
        .await?;
    let record = rows.first().map(read_record).transpose()?.ok_or(Error::NoSession)?;
    if let Some(title) = &patch.title {
        set_title_words(tx, session, title).await?;
    }
    let mut references = BlobReferences::default();
    patch.metadata.iter().for_each(|metadata| references.add_fields(metadata));
    blobs::add_references(tx, &[(session.0, &record.key.tenant, &references)]).await?;
    Ok(record)
}

/// Takes the lease, unless a living node has it.
pub(super) async fn acquire_lease(
    database: &Database,
    session: SessionNumber,
    owner: &str,
) -> Result<Lease> {
    transact!(database, |tx| acquire_in(&tx, session, owner).await)
}

/// The row is locked by a statement of its own: the next one then sees a node that joined and acquired the session while this
/// one waited for the lock.
async fn acquire_in(
    tx: &Transaction,
    session: SessionNumber,
    owner: &str,
) -> Result<Lease, PostgresError> {
    let owner = text::to_sql(owner);
    let params = [(&session.0 as _, Type::INT8), (&owner as _, Type::TEXT)];
    let lock = "SELECT 1 FROM turnwire.sessions WHERE no = $1 FOR UPDATE";
    if tx.query(lock, &params[..1]).await?.is_empty() {
        return Err(Error::NoSession.into());
    }
    let acquire = concat!(
        "UPDATE turnwire.sessions s SET fence = fence + 1, owner = $2
         WHERE no = $1 AND (owner = $2 OR ",
        has_no_owner!(),
        ") RETURNING fence"
    );
    if let Some(row) = tx.query(acquire, &params).await?.first() {
        return Ok(Lease { fence: Fence(sql_integers::from_sql(row.try_get(0)?)) });
    }
    let current = "SELECT n.node FROM turnwire.sessions s JOIN turnwire.nodes n ON n.id = s.owner WHERE s.no = $1";
    let rows = tx.query(current, &params[..1]).await?;
    let node = rows.first().ok_or_else(|| {
        Error::Store("the node that owns the session is not in the database".to_owned())
    })?;
    Err(Error::Owned(Box::new(from_json(node.try_get(0)?)?)).into())
}

/// A fence that nobody has becomes one that no row has.
pub(super) fn fence_to_sql(fence: Fence) -> i64 {
    i64::try_from(fence.0).ok().filter(|fence| *fence > 0).unwrap_or(-1)
}

/// Keeps a session from being deleted until the transaction ends; `NoSession` if it was.
pub(super) async fn hold(tx: &Connection, session: SessionNumber) -> Result<(), PostgresError> {
    let held = "SELECT 1 FROM turnwire.sessions WHERE no = $1 FOR KEY SHARE";
    if tx.query(held, &[(&session.0, Type::INT8)]).await?.is_empty() {
        return Err(Error::NoSession.into());
    }
    Ok(())
}
