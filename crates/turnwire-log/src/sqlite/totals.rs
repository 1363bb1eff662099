//! The usage totals of tenants, updated with every session in the same transaction. Sessions of
//! earlier versions are counted a few at a time.

use super::errors::SqliteError;
use super::sessions::{read_json, to_json, visible_condition};
use crate::cost::{AgentTotals, SessionUsage};
use crate::store::SessionState;
use crate::visible_sessions::SessionPattern;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use std::collections::BTreeMap;

/// How many sessions of earlier versions are counted at a time.
const STEP: i64 = 256;

/// Updates the totals for a session, before its state is written.
pub(super) fn update_session(
    conn: &Connection,
    session: i64,
    after: &SessionState,
) -> Result<(), SqliteError> {
    replace_usage(conn, session, &SessionUsage::from_state(after))
}

/// Subtracts a session, before it is deleted.
pub(super) fn remove_session(conn: &Connection, session: i64) -> Result<(), SqliteError> {
    replace_usage(conn, session, &SessionUsage::default())
}

fn replace_usage(conn: &Connection, session: i64, after: &SessionUsage) -> Result<(), SqliteError> {
    let Some((tenant, agent, before)) = read_session(conn, session)? else { return Ok(()) };
    let is_new =
        conn.prepare_cached("DELETE FROM uncounted WHERE no = ?1")?.execute([session])? > 0;
    let before = if is_new { SessionUsage::default() } else { before };
    if before == *after {
        return Ok(());
    }
    let sums: Option<AgentTotals> = conn
        .prepare_cached("SELECT sums FROM totals WHERE tenant = ?1 AND agent = ?2")?
        .query_one([&tenant, &agent], |row| read_json(row, 0))
        .optional()?;
    let mut sums = sums.unwrap_or_default();
    sums.replace_session(&before, after);
    conn.prepare_cached("INSERT OR REPLACE INTO totals VALUES (?1, ?2, ?3)")?.execute(params![
        tenant,
        agent,
        to_json(&sums)?
    ])?;
    Ok(())
}

/// The tenant, agent and usage of a session.
fn read_session(
    conn: &Connection,
    session: i64,
) -> rusqlite::Result<Option<(String, String, SessionUsage)>> {
    conn.prepare_cached("SELECT tenant, agent, state FROM sessions WHERE no = ?1")?
        .query_one([session], |row| Ok((row.get(0)?, row.get(1)?, read_json(row, 2)?)))
        .optional()
}

/// Whether there are sessions that are not counted yet.
pub(super) fn has_uncounted(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM uncounted LIMIT 1")?.exists([])
}

/// Counts some sessions of earlier versions, and returns whether there may be more.
pub(super) fn count_some(conn: &Connection) -> Result<bool, SqliteError> {
    let some: Vec<i64> = conn
        .prepare_cached("SELECT no FROM uncounted LIMIT ?1")?
        .query_map([STEP], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for &session in &some {
        match read_session(conn, session)? {
            Some((_, _, spending)) => replace_usage(conn, session, &spending)?,
            None => {
                conn.prepare_cached("DELETE FROM uncounted WHERE no = ?1")?.execute([session])?;
            }
        }
    }
    Ok(!some.is_empty())
}

/// The totals of a tenant.
pub(super) fn tenant_totals(
    conn: &Connection,
    tenant: &str,
) -> rusqlite::Result<BTreeMap<String, AgentTotals>> {
    conn.prepare_cached("SELECT agent, sums FROM totals WHERE tenant = ?1")?
        .query_map([tenant], |row| Ok((row.get(0)?, read_json(row, 1)?)))?
        .collect()
}

/// The totals of the sessions of a tenant that match these patterns.
pub(super) fn visible_totals(
    conn: &Connection,
    tenant: &str,
    rules: &[SessionPattern],
) -> rusqlite::Result<BTreeMap<String, AgentTotals>> {
    let mut values: Vec<Value> = vec![tenant.to_owned().into()];
    let condition = visible_condition(rules, &mut values);
    let sql = format!("SELECT s.agent, s.state FROM sessions s WHERE +s.tenant = ?1{condition}");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut totals: BTreeMap<String, AgentTotals> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let spending: SessionUsage = read_json(row, 1)?;
        totals.entry(row.get(0)?).or_default().replace_session(&SessionUsage::default(), &spending);
    }
    Ok(totals)
}
