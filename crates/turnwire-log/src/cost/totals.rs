//! The usage of all sessions of a tenant, by agent. Engines update it with every session, so that
//! reading it does not need all sessions.

use super::{Cost, UsageTotal};
use crate::store::SessionState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use turnwire_core::Usage;

/// How many sub-agents of one agent are counted separately. Their names come from outside.
const MAX_SUB_AGENTS: usize = 256;

/// The usage of all sessions of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTotals {
    sum: ExactSum,
    /// The share of its sub-agents, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    subs: BTreeMap<String, ExactSum>,
}

/// An exact sum, so that what was added can be subtracted again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExactSum {
    pub(crate) input: i128,
    pub(crate) output: i128,
    pub(crate) cache_input: i128,
    pub(crate) cache_creation: i128,
    pub(crate) cost: i128,
    /// How many sessions have a known cost.
    pub(crate) with_cost: i64,
}

/// The part of a session's state that is summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SessionUsage {
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    cost: Option<Cost>,
    #[serde(default)]
    subs: BTreeMap<String, UsageTotal>,
}

impl SessionUsage {
    /// The usage in a session's state.
    pub fn from_state(state: &SessionState) -> Self {
        let SessionState { usage, cost, subs, .. } = state;
        Self { usage: usage.clone(), cost: *cost, subs: subs.clone() }
    }

    /// The whole under the name "", and the share of each sub-agent under its own.
    #[cfg(feature = "postgres")]
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, UsageTotal)> {
        let whole = UsageTotal { usage: self.usage.clone(), cost: self.cost };
        let subs = self.subs.iter().filter(|(name, _)| !name.is_empty());
        let subs = subs.map(|(name, total)| (name.as_str(), total.clone()));
        std::iter::once(("", whole)).chain(subs)
    }
}

impl ExactSum {
    /// Adds usage, or with a negative sign subtracts it.
    pub(crate) fn add(&mut self, usage: &Usage, cost: Option<Cost>, sign: i128) {
        let times = |count: i64| sign * i128::from(count);
        self.input += times(usage.input_tokens);
        self.output += times(usage.output_tokens);
        self.cache_input += times(usage.cache_input_tokens);
        self.cache_creation += times(usage.cache_creation_input_tokens);
        if let Some(cost) = cost {
            self.cost += sign * i128::from(cost.0);
            self.with_cost += if sign < 0 { -1 } else { 1 };
        }
    }

    fn to_total(&self) -> UsageTotal {
        let tokens =
            |sum: i128| i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX });
        let cost = || Cost(u64::try_from(self.cost.max(0)).unwrap_or(u64::MAX));
        UsageTotal {
            usage: Usage {
                input_tokens: tokens(self.input),
                output_tokens: tokens(self.output),
                cache_input_tokens: tokens(self.cache_input),
                cache_creation_input_tokens: tokens(self.cache_creation),
                ..Usage::default()
            },
            cost: (self.with_cost > 0).then(cost),
        }
    }
}

impl AgentTotals {
    /// Replaces what a session had used before by what it has used now.
    pub fn replace_session(&mut self, before: &SessionUsage, after: &SessionUsage) {
        for (spending, sign) in [(before, -1), (after, 1)] {
            self.sum.add(&spending.usage, spending.cost, sign);
            for (name, UsageTotal { usage, cost }) in &spending.subs {
                // A name without room is never counted, so only what was added is subtracted.
                if self.subs.len() >= MAX_SUB_AGENTS && !self.subs.contains_key(name) {
                    continue;
                }
                self.subs.entry(name.clone()).or_default().add(usage, *cost, sign);
            }
        }
    }

    /// Sets the whole, under the name "", or the share of a sub-agent. Of too many, the first count.
    #[cfg(feature = "postgres")]
    pub(crate) fn set_part(&mut self, sub: &str, sum: ExactSum) {
        if sub.is_empty() {
            self.sum = sum;
        } else if self.subs.len() < MAX_SUB_AGENTS {
            self.subs.insert(sub.to_owned(), sum);
        }
    }

    /// The total, including sub-agents.
    pub fn total(&self) -> UsageTotal {
        self.sum.to_total()
    }

    /// The share of its sub-agents, by name.
    pub fn sub_agents(&self) -> impl Iterator<Item = (&str, UsageTotal)> {
        self.subs.iter().map(|(name, sum)| (name.as_str(), sum.to_total()))
    }
}
