//! What sessions spent together: kept with every change of a session, in the same transaction. Sessions
//! that an earlier version wrote are counted some at a time.

use super::fault::Fault;
use super::sessions::{json, reach_condition, to_json};
use crate::cost::{AgentTotals, Spending};
use crate::reach::SessionRule;
use crate::store::SessionState;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use std::collections::BTreeMap;

/// How many sessions of an earlier version are counted at a time.
const STEP: i64 = 256;

/// Notes what a session has spent, before its state is written.
pub(super) fn change(conn: &Connection, session: i64, after: &SessionState) -> Result<(), Fault> {
    replace(conn, session, &Spending::of(after))
}

/// Notes that a session goes, before it does.
pub(super) fn remove(conn: &Connection, session: i64) -> Result<(), Fault> {
    replace(conn, session, &Spending::default())
}

fn replace(conn: &Connection, session: i64, after: &Spending) -> Result<(), Fault> {
    let Some((tenant, agent, before)) = stored(conn, session)? else { return Ok(()) };
    let is_new =
        conn.prepare_cached("DELETE FROM uncounted WHERE no = ?1")?.execute([session])? > 0;
    let before = if is_new { Spending::default() } else { before };
    if before == *after {
        return Ok(());
    }
    let sums: Option<AgentTotals> = conn
        .prepare_cached("SELECT sums FROM totals WHERE tenant = ?1 AND agent = ?2")?
        .query_one([&tenant, &agent], |row| json(row, 0))
        .optional()?;
    let mut sums = sums.unwrap_or_default();
    sums.change(&before, after);
    conn.prepare_cached("INSERT OR REPLACE INTO totals VALUES (?1, ?2, ?3)")?.execute(params![
        tenant,
        agent,
        to_json(&sums)?
    ])?;
    Ok(())
}

/// Whose a session is, and what it has spent.
fn stored(conn: &Connection, session: i64) -> rusqlite::Result<Option<(String, String, Spending)>> {
    conn.prepare_cached("SELECT tenant, agent, state FROM sessions WHERE no = ?1")?
        .query_one([session], |row| Ok((row.get(0)?, row.get(1)?, json(row, 2)?)))
        .optional()
}

/// Whether there are sessions that are not counted yet.
pub(super) fn is_behind(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM uncounted LIMIT 1")?.exists([])
}

/// Counts some sessions of an earlier version, and says whether there may be more.
pub(super) fn step(conn: &Connection) -> Result<bool, Fault> {
    let some: Vec<i64> = conn
        .prepare_cached("SELECT no FROM uncounted LIMIT ?1")?
        .query_map([STEP], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for &session in &some {
        match stored(conn, session)? {
            Some((_, _, spending)) => replace(conn, session, &spending)?,
            None => {
                conn.prepare_cached("DELETE FROM uncounted WHERE no = ?1")?.execute([session])?;
            }
        }
    }
    Ok(!some.is_empty())
}

/// The totals of a tenant.
pub(super) fn of_tenant(
    conn: &Connection,
    tenant: &str,
) -> rusqlite::Result<BTreeMap<String, AgentTotals>> {
    conn.prepare_cached("SELECT agent, sums FROM totals WHERE tenant = ?1")?
        .query_map([tenant], |row| Ok((row.get(0)?, json(row, 1)?)))?
        .collect()
}

/// The totals of those sessions of a tenant that these rules reach.
pub(super) fn within_reach(
    conn: &Connection,
    tenant: &str,
    rules: &[SessionRule],
) -> rusqlite::Result<BTreeMap<String, AgentTotals>> {
    let mut values: Vec<Value> = vec![tenant.to_owned().into()];
    let condition = reach_condition(rules, &mut values);
    let sql = format!("SELECT s.agent, s.state FROM sessions s WHERE +s.tenant = ?1{condition}");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut totals: BTreeMap<String, AgentTotals> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let spending: Spending = json(row, 1)?;
        totals.entry(row.get(0)?).or_default().change(&Spending::default(), &spending);
    }
    Ok(totals)
}
