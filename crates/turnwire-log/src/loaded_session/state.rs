//! What the end of a reply, an approval and a revoked rule change in the state of a session.

use super::open_reply::OpenReply;
use crate::cost::UsageTotal;
use crate::store::{SessionOutcome, SessionState};
use turnwire_core::{Event, EventKind, FinishedReason, PermissionRule};

/// The name of the `CUSTOM` event that revokes an accepted rule; its value is the rule.
pub const RULE_REVOKED: &str = "rule_revoked";

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

    /// Removes a rule that a user revoked.
    pub(crate) fn revoke_rule(&mut self, event: &Event<'_>) {
        let EventKind::Custom(custom) = &event.kind else { return };
        if custom.name != RULE_REVOKED {
            return;
        }
        if let Ok(revoked) = serde_json::from_str::<PermissionRule>(custom.value.0.text()) {
            self.rules.retain(|rule| !is_same_rule(rule, &revoked));
        }
    }

    /// Notes how the reply of the session's own agent goes.
    pub(crate) fn note_outcome(&mut self, event: &Event<'_>, is_of_sub_agent: bool) {
        if matches!(event.kind, EventKind::ReplyStart(_)) && !is_of_sub_agent {
            self.outcome = None;
        } else if let EventKind::UserConfirmResult(_) | EventKind::ExternalExecutionResult(_) =
            event.kind
        {
            let reason: Option<String> = event.metadata.get("reason").ok().flatten();
            if reason.as_deref() == Some("timeout") {
                self.outcome = Some(SessionOutcome::Expired);
            }
        } else if let EventKind::ReplyEnd(end) = &event.kind
            && !is_of_sub_agent
        {
            if end.finished_reason == FinishedReason::Error {
                self.outcome = Some(SessionOutcome::Failed);
            } else if end.finished_reason == FinishedReason::Interrupted {
                self.outcome.get_or_insert(SessionOutcome::Stopped);
            }
        }
    }
}

/// Whether two rules mean the same. Fields that are only for display may differ.
pub fn is_same_rule(one: &PermissionRule, other: &PermissionRule) -> bool {
    one.tool_name == other.tool_name
        && one.rule_content == other.rule_content
        && one.behavior == other.behavior
}
