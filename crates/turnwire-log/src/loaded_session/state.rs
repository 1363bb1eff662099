//! What the end of a reply and an approval change in the state of a session.

use super::open_reply::OpenReply;
use crate::cost::UsageTotal;
use crate::store::SessionState;
use turnwire_core::{Event, EventKind};

/// How many sub-agents are counted separately.
const MAX_SUB_AGENTS: usize = 64;

/// How many accepted rules a session keeps.
const MAX_RULES: usize = 256;

impl SessionState {
    /// Adds the usage of a reply.
    pub(crate) fn add_reply_usage(&mut self, reply: &OpenReply) {
        let usage = reply.msg().usage().cloned().unwrap_or_default();
        let mut sum = UsageTotal { usage: std::mem::take(&mut self.usage), cost: self.cost };
        sum.add(&usage, reply.cost());
        (self.usage, self.cost) = (sum.usage, sum.cost);
        let path = reply.agent().and_then(|agent| agent.agent_path.as_deref());
        let name =
            path.and_then(|path| path.rsplit('/').next()).filter(|_| reply.is_of_sub_agent());
        if let Some(name) = name
            && (self.subs.len() < MAX_SUB_AGENTS || self.subs.contains_key(name))
        {
            self.subs.entry(name.to_owned()).or_default().add(&usage, reply.cost());
        }
    }

    /// Adds the rules that a user accepted.
    pub(crate) fn accept_rules(&mut self, event: &Event<'_>) {
        let EventKind::UserConfirmResult(answer) = &event.kind else { return };
        for rule in answer.confirm_results.iter().flat_map(|result| result.rules.iter().flatten()) {
            if !self.rules.contains(rule) && self.rules.len() < MAX_RULES {
                self.rules.push(rule.clone());
            }
        }
    }
}
