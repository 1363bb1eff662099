//! The usage totals of tenants, updated with every session in the same transaction.

use super::connection::{Connection, Database, Param};
use super::errors::PostgresError;
use super::sessions::{self, VisiblePatterns};
use super::text;
use crate::cost::{AgentTotals, ExactSum, SessionUsage};
use crate::error::Result;
use crate::visible_sessions::VisibleSessions;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// How many rows of one sum there are at most. Each process adds to one of them.
pub(super) const SHARDS: i64 = 16;

/// The usage of a session that changed.
pub(super) struct UsageChange {
    pub(super) tenant: String,
    pub(super) agent: String,
    pub(super) before: SessionUsage,
    pub(super) after: SessionUsage,
}

/// Adds changes to the totals. Tenants and agents are as they are stored.
pub(super) async fn add_changes(
    tx: &Connection,
    shard: i64,
    changes: &[UsageChange],
) -> Result<(), PostgresError> {
    // By agent and sub-agent. In order, so that two transactions do not wait for each other.
    let mut sums: BTreeMap<(&str, &str, &str), ExactSum> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.before != change.after) {
        for (usage, sign) in [(&change.before, -1), (&change.after, 1)] {
            for (sub, total) in usage.parts() {
                let sum = sums.entry((&change.tenant, &change.agent, sub)).or_default();
                sum.add(&total.usage, total.cost, sign);
            }
        }
    }
    sums.retain(|_, sum| *sum != ExactSum::default());
    if sums.is_empty() {
        return Ok(());
    }
    let tenants: Vec<&str> = sums.keys().map(|(tenant, ..)| *tenant).collect();
    let agents: Vec<&str> = sums.keys().map(|(_, agent, _)| *agent).collect();
    let sub_keys: Vec<Vec<u8>> = sums.keys().map(|(.., sub)| text::index_key(sub)).collect();
    let names: Vec<_> = sums.keys().map(|(.., sub)| text::to_sql(sub)).collect();
    let column = |number: fn(&ExactSum) -> i128| -> Vec<String> {
        sums.values().map(|sum| number(sum).to_string()).collect()
    };
    let with_cost: Vec<i64> = sums.values().map(|sum| sum.with_cost).collect();
    tx.execute(
        "INSERT INTO turnwire.totals AS t (tenant, agent, sub, shard, sub_name, input, output, cache_input,
                                           cache_creation, cost, with_cost)
         SELECT v.tenant, v.agent, v.sub, $11, v.sub_name, v.input::numeric, v.output::numeric,
                v.cache_input::numeric, v.cache_creation::numeric, v.cost::numeric, v.with_cost
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
              v (tenant, agent, sub, sub_name, input, output, cache_input, cache_creation, cost, with_cost)
         ON CONFLICT (tenant, agent, sub, shard) DO UPDATE SET
            input = t.input + excluded.input, output = t.output + excluded.output,
            cache_input = t.cache_input + excluded.cache_input,
            cache_creation = t.cache_creation + excluded.cache_creation, cost = t.cost + excluded.cost,
            with_cost = t.with_cost + excluded.with_cost",
        &[
            (&tenants, Type::TEXT_ARRAY),
            (&agents, Type::TEXT_ARRAY),
            (&sub_keys, Type::BYTEA_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&column(|sum| sum.input), Type::TEXT_ARRAY),
            (&column(|sum| sum.output), Type::TEXT_ARRAY),
            (&column(|sum| sum.cache_input), Type::TEXT_ARRAY),
            (&column(|sum| sum.cache_creation), Type::TEXT_ARRAY),
            (&column(|sum| sum.cost), Type::TEXT_ARRAY),
            (&with_cost, Type::INT8_ARRAY),
            (&shard, Type::INT8),
        ],
    )
    .await?;
    Ok(())
}

/// The totals of a tenant's visible sessions, by agent.
pub(super) async fn read(
    database: &Database,
    tenant: &str,
    visible: &VisibleSessions,
    max_time: Option<Duration>,
) -> Result<BTreeMap<String, AgentTotals>> {
    let connection = database.connect_until(max_time).await?;
    let tenant = text::to_sql(tenant);
    let mut params: Vec<Param<'_>> = vec![(&tenant, Type::TEXT)];
    let patterns = visible.patterns().map(VisiblePatterns::new);
    let totals = match &patterns {
        Some(patterns) => {
            let condition = patterns.condition(&mut params);
            let sql = format!(
                "SELECT s.agent, s.state FROM turnwire.sessions s WHERE s.tenant = $1{condition}"
            );
            connection.query(&sql, &params).await.and_then(|rows| sum_states(&rows))
        }
        None => connection.query(READ_ALL, &params).await.and_then(|rows| sum_rows(&rows)),
    };
    totals.map_err(|error| database.explain(error))
}

/// The names of sub-agents come from outside, so that there may be many: of those, the first count.
const READ_ALL: &str = "
SELECT agent, sub_name, sum(input)::text, sum(output)::text, sum(cache_input)::text, sum(cache_creation)::text,
       sum(cost)::text, sum(with_cost)::int8
FROM turnwire.totals WHERE tenant = $1 GROUP BY agent, sub_name ORDER BY agent, sub_name";

fn sum_rows(rows: &[Row]) -> Result<BTreeMap<String, AgentTotals>, PostgresError> {
    let mut totals: BTreeMap<String, AgentTotals> = BTreeMap::new();
    for row in rows {
        let number = |at: usize| {
            let text: &str = row.try_get(at)?;
            Ok::<i128, PostgresError>(text.parse().unwrap_or(if text.starts_with('-') {
                i128::MIN
            } else {
                i128::MAX
            }))
        };
        let sum = ExactSum {
            input: number(2)?,
            output: number(3)?,
            cache_input: number(4)?,
            cache_creation: number(5)?,
            cost: number(6)?,
            with_cost: row.try_get(7)?,
        };
        let agent = totals.entry(text::from_sql(row.try_get(0)?)).or_default();
        agent.set_part(&text::from_sql(row.try_get(1)?), sum);
    }
    Ok(totals)
}

fn sum_states(rows: &[Row]) -> Result<BTreeMap<String, AgentTotals>, PostgresError> {
    let mut totals: BTreeMap<String, AgentTotals> = BTreeMap::new();
    for row in rows {
        let usage: SessionUsage = sessions::from_json(row.try_get(1)?)?;
        let agent = totals.entry(text::from_sql(row.try_get(0)?)).or_default();
        agent.replace_session(&SessionUsage::default(), &usage);
    }
    Ok(totals)
}
