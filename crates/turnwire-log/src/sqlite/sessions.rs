//! Rows of sessions, and lists of them.

use super::errors::SqliteError;
use super::search;
use super::tail::Tails;
use crate::error::Error;
use crate::sql_integers;
use crate::store::{
    HistoryState, NewSession, SessionKey, SessionNumber, SessionPatch, SessionQuery, SessionRecord,
    SessionState, SessionStatus, new_epoch,
};
use crate::visible_sessions::{SessionPattern, prefix_end};
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt::Write as _;
use turnwire_core::Head;

/// The columns of [`read_record`]; the table is called `s`.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT s.no, s.tenant, s.id, s.epoch, s.agent, s.title, s.metadata, s.created_ms,
                    s.updated_ms, s.first, s.state, s.history,
                    ifnull((SELECT max(last) FROM segments WHERE session = s.no), 0)
             FROM sessions s ",
            $rest
        )
    };
}

/// The heads of sessions in memory, as of what the connection sees.
pub(super) trait LogEnds {
    fn end(&self, session: i64) -> Head;
}

impl LogEnds for Tails {
    fn end(&self, session: i64) -> Head {
        self.last(session).unwrap_or_default()
    }
}

impl LogEnds for HashMap<i64, Head> {
    fn end(&self, session: i64) -> Head {
        self.get(&session).copied().unwrap_or_default()
    }
}

fn read_record(row: &Row<'_>, ends: &impl LogEnds) -> rusqlite::Result<SessionRecord> {
    let no: i64 = row.get(0)?;
    let first = sql_integers::seq_from_sql(row.get(9)?);
    let stored = sql_integers::head_from_sql(row.get(12)?);
    Ok(SessionRecord {
        number: SessionNumber(no),
        key: SessionKey::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?),
        epoch: row.get(3)?,
        agent: row.get(4)?,
        title: row.get(5)?,
        metadata: read_json(row, 6)?,
        created_ms: row.get(7)?,
        updated_ms: row.get(8)?,
        first,
        head: stored.max(ends.end(no)).max(first.previous()),
        state: read_state(row, 10)?,
    })
}

/// Reads a state from the columns `state` and `history`, which is the next one.
pub(super) fn read_state(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionState> {
    let state: SessionState = read_json(row, column)?;
    let bytes = row.get_ref(column + 1)?.as_blob_or_null()?;
    let history = bytes.map(HistoryState::from_bytes).transpose();
    let history = history.map_err(|error| conversion_error(column + 1, Type::Blob, error))?;
    Ok(SessionState { history, ..state })
}

/// Parses a JSON column.
pub(super) fn read_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| conversion_error(column, Type::Text, error))
}

fn conversion_error(
    column: usize,
    r#type: Type,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, r#type, Box::new(error))
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::Store(format!("cannot write JSON: {error}")))
}

pub(super) fn find_by_key(
    conn: &Connection,
    key: &SessionKey,
    ends: &impl LogEnds,
) -> rusqlite::Result<Option<SessionRecord>> {
    conn.prepare_cached(select!("WHERE s.tenant = ?1 AND s.id = ?2"))?
        .query_one(params![&*key.tenant, &*key.id], |row| read_record(row, ends))
        .optional()
}

pub(super) fn find_by_number(
    conn: &Connection,
    session: SessionNumber,
    ends: &impl LogEnds,
) -> rusqlite::Result<Option<SessionRecord>> {
    conn.prepare_cached(select!("WHERE s.no = ?1"))?
        .query_one([session.0], |row| read_record(row, ends))
        .optional()
}

pub(super) fn list_open(
    conn: &Connection,
    ends: &impl LogEnds,
) -> rusqlite::Result<Vec<SessionRecord>> {
    conn.prepare_cached(select!(
        "WHERE s.no IN (SELECT no FROM sessions WHERE open_from IS NOT NULL
                        UNION SELECT session FROM queue)
         ORDER BY s.no"
    ))?
    .query_map([], |row| read_record(row, ends))?
    .collect()
}

pub(super) fn list_all(
    conn: &Connection,
    after: SessionNumber,
    limit: usize,
    ends: &impl LogEnds,
) -> rusqlite::Result<Vec<SessionRecord>> {
    conn.prepare_cached(select!("WHERE s.no > ?1 ORDER BY s.no LIMIT ?2"))?
        .query_map([after.0, sql_integers::count_to_sql(limit)], |row| read_record(row, ends))?
        .collect()
}

pub(super) fn list(
    conn: &Connection,
    query: &SessionQuery,
    ends: &impl LogEnds,
) -> rusqlite::Result<Vec<SessionRecord>> {
    let (sql, values) = list_statement(query);
    conn.prepare_cached(&sql)?
        .query_map(params_from_iter(values), |row| read_record(row, ends))?
        .collect()
}

/// The visible sessions, by id and by ranges of ids with a prefix. The index `sessions_name` covers
/// this query, so no other session of the tenant is read.
const VISIBLE: &str = " AND s.no IN (
    SELECT n.no FROM json_each(?ids) r CROSS JOIN sessions n
    WHERE n.tenant = ?1 AND n.id = r.value
    UNION ALL
    SELECT n.no FROM json_each(?ranges) r CROSS JOIN sessions n
    WHERE n.tenant = ?1 AND n.id >= r.value ->> 0
      AND n.id < r.value ->> 1
    UNION ALL
    SELECT n.no FROM json_each(?open_ranges) r CROSS JOIN sessions n
    WHERE n.tenant = ?1 AND n.id >= r.value)";

/// The values of [`VISIBLE`]: ids, ranges with an end, ranges without one.
fn visible_values(rules: &[SessionPattern]) -> [(&'static str, String); 3] {
    let (mut ids, mut ranges, mut open_ranges) = (Vec::new(), Vec::new(), Vec::new());
    for rule in rules {
        match rule {
            SessionPattern::Id(id) => ids.push(&**id),
            SessionPattern::Prefix(prefix) => match prefix_end(prefix) {
                Some(end) => ranges.push((&**prefix, end)),
                None => open_ranges.push(&**prefix),
            },
        }
    }
    // Lists of strings always serialise.
    let json = |values: Result<String, Error>| values.unwrap_or_else(|_| "[]".to_owned());
    [
        ("?ids", json(to_json(&ids))),
        ("?ranges", json(to_json(&ranges))),
        ("?open_ranges", json(to_json(&open_ranges))),
    ]
}

/// The condition for sessions `s` of the tenant `?1` that match these patterns.
pub(super) fn visible_condition(rules: &[SessionPattern], values: &mut Vec<Value>) -> String {
    let mut condition = VISIBLE.to_owned();
    for (name, json) in visible_values(rules) {
        values.push(json.into());
        condition = condition.replace(name, &format!("?{}", values.len()));
    }
    condition
}

fn list_statement(query: &SessionQuery) -> (String, Vec<Value>) {
    let mut values: Vec<Value> = vec![query.tenant.to_string().into()];
    let mut sql = String::new();
    if let Some(rules) = query.visible.patterns() {
        sql.push_str(&visible_condition(rules, &mut values));
    }
    let mut bind = |value: Value| {
        values.push(value);
        values.len()
    };
    if let Some(search) = &query.search {
        let at = bind(search::fts_expression(search).into());
        sql.push_str(&search::CONDITION.replace("?words", &format!("?{at}")));
    }
    if let Some(status) = query.status {
        let at = bind(status_to_sql(status).into());
        let _ = write!(sql, " AND s.status = ?{at}");
        if status != SessionStatus::Idle {
            // Repeated in the form of the partial index, so that SQLite uses it.
            sql.push_str(" AND s.status <> 0");
        }
    }
    if let Some((updated_ms, no)) = query.after {
        let (ms, no) = (bind(updated_ms.into()), bind(no.0.into()));
        let _ = write!(sql, " AND (s.updated_ms, s.no) < (?{ms}, ?{no})");
    }
    let at = bind(sql_integers::count_to_sql(query.limit).into());
    let order = "ORDER BY s.updated_ms DESC, s.no DESC";
    let sql = if query.visible.patterns().is_none() {
        format!("{} WHERE s.tenant = ?1{sql} {order} LIMIT ?{at}", select!(""))
    } else {
        // The `+` keeps SQLite from scanning all sessions of the tenant. Only sessions on the page
        // are read completely.
        format!(
            "{} WHERE s.no IN (SELECT s.no FROM sessions s WHERE +s.tenant = ?1{sql} {order} \
             LIMIT ?{at}) {order}",
            select!("")
        )
    };
    (sql, values)
}

/// The column value of a status.
pub(super) fn status_to_sql(status: SessionStatus) -> i64 {
    match status {
        SessionStatus::Idle => 0,
        SessionStatus::Running => 1,
        SessionStatus::Waiting => 2,
    }
}

/// Inserts a new session.
pub(super) fn create(
    conn: &Connection,
    new: &NewSession,
    state: &SessionState,
    ends: &impl LogEnds,
) -> Result<SessionRecord, SqliteError> {
    conn.prepare_cached(
        "INSERT INTO sessions (tenant, id, epoch, agent, title, metadata, created_ms, updated_ms,
                               status, open_from, state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        &*new.key.tenant,
        &*new.key.id,
        new_epoch()?,
        new.agent,
        new.title,
        to_json(&new.metadata)?,
        new.now_ms,
        status_to_sql(state.status),
        state.keep_from().map(sql_integers::position_to_sql),
        to_json(state)?,
    ])?;
    let no = conn.last_insert_rowid();
    if !new.title.is_empty() {
        search::mark_unindexed(conn, -no)?;
    }
    let made = find_by_number(conn, SessionNumber(no), ends)?;
    Ok(made.ok_or(Error::NoSession)?)
}

pub(super) fn patch(
    conn: &Connection,
    session: SessionNumber,
    patch: &SessionPatch,
    ends: &impl LogEnds,
) -> Result<SessionRecord, SqliteError> {
    let metadata = patch.metadata.as_ref().map(to_json).transpose()?;
    let changed = conn
        .prepare_cached(
            "UPDATE sessions SET title = ifnull(?2, title), metadata = ifnull(?3, metadata)
             WHERE no = ?1",
        )?
        .execute(params![session.0, patch.title, metadata])?;
    if changed == 0 {
        return Err(Error::NoSession.into());
    }
    if patch.title.is_some() {
        search::mark_unindexed(conn, -session.0)?;
    }
    Ok(find_by_number(conn, session, ends)?.ok_or(Error::NoSession)?)
}

#[cfg(test)]
mod tests {
    use super::list_statement;
    use crate::search::SearchQuery;
    use crate::sqlite::schema::{STEPS, migrate};
    use crate::store::{SessionNumber, SessionQuery, SessionStatus};
    use crate::visible_sessions::{SessionPattern, VisibleSessions};
    use rusqlite::{Connection, params_from_iter};

    /// SQLite's query plan of a list.
    fn plan(query: &SessionQuery) -> String {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, STEPS).unwrap();
        let (sql, values) = list_statement(query);
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps =
            plan.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
        steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn lists_follow_an_index_and_sort_nothing() {
        let all = SessionQuery::latest("t", 10);
        let next = SessionQuery { after: Some((5, SessionNumber(5))), ..all.clone() };
        let idle = SessionQuery { status: Some(SessionStatus::Idle), ..next.clone() };
        let busy = SessionQuery { status: Some(SessionStatus::Waiting), ..next.clone() };
        let search = SessionQuery { search: SearchQuery::new("words").unwrap(), ..all.clone() };
        for (query, index) in [
            (&all, "sessions_updated (tenant=?)"),
            (&search, "sessions_updated (tenant=?)"),
            (&next, "sessions_updated (tenant=? AND updated_ms<?)"),
            (&idle, "sessions_updated (tenant=? AND updated_ms<?)"),
            (&busy, "sessions_busy (tenant=? AND status=? AND updated_ms<?)"),
        ] {
            let plan = plan(query);
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }

    #[test]
    fn a_list_within_reach_looks_at_nothing_else_of_the_tenant() {
        let reach = VisibleSessions::only(["one", "team:*"].map(SessionPattern::new));
        let all = SessionQuery { visible: reach, ..SessionQuery::latest("t", 10) };
        let search = SessionQuery { search: SearchQuery::new("words").unwrap(), ..all.clone() };
        let busy = SessionQuery { status: Some(SessionStatus::Waiting), ..search.clone() };
        let next = SessionQuery { after: Some((5, SessionNumber(5))), ..busy.clone() };
        for query in [all, search, busy, next] {
            let plan = plan(&query);
            for step in [
                "sessions_name (tenant=? AND id=?)",
                "sessions_name (tenant=? AND id>? AND id<?)",
                "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
            ] {
                assert!(plan.contains(step), "{step}: {plan}");
            }
            for index in ["sessions_updated", "sessions_busy", "SCAN s"] {
                assert!(!plan.contains(index), "{index}: {plan}");
            }
        }
    }
}
