//! Approval requests and their answers.
//!
//! ```
//! use turnwire_core::ToolCall;
//! use turnwire_wires::blocks::{ApprovalKey, Command};
//!
//! let frame = r#"{"type":"approval","session_id":"abc-123","approval_key":"abc-123_1",
//!     "decisions":[{"tool_use_id":"t1","type":"edit","args":{"quantity":10}}]}"#;
//! let Command::Approval(approval) = Command::from_json(frame)? else { panic!() };
//! assert_eq!(approval.approval_key, ApprovalKey::parse("abc-123_1").unwrap());
//!
//! // The server finds the session's pending calls, and logs the answer.
//! let pending = [ToolCall::new("t1", "execute_trade", r#"{"quantity":100}"#)];
//! let answer = &approval.to_event(&pending)?.confirm_results[0];
//! assert_eq!((answer.confirmed, answer.tool_call.input.as_str()), (true, r#"{"quantity":10}"#));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use super::client_request::bad_request;
use super::conversions::{input_object, input_text};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;
use turnwire_core::event::{ConfirmResult, UserConfirmResult};
use turnwire_core::{Fields, Json, PermissionRule, Result, ToolCall};

/// The answer to an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The session's id.
    pub session_id: String,
    /// The request's key.
    pub approval_key: ApprovalKey,
    /// One decision for each call.
    pub decisions: Vec<Decision>,
}

/// Names an approval request: `SESSION_COUNT`. The count is the seq of the request in the session's
/// log, so keys are unique. In a stream without seqs it counts the requests of the turn, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApprovalKey {
    /// The session's id.
    pub session_id: String,
    /// The request's seq.
    pub count: u64,
}

/// A decision about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The call's id. Default: the call at the same index of the request.
    pub tool_use_id: Option<String>,
    /// Approve or reject.
    pub verdict: Verdict,
    /// The reason.
    pub message: Option<String>,
}

/// Approve or reject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Approve.
    Approve,
    /// Approve with another input.
    Edit {
        /// The input: a JSON object.
        args: Json,
    },
    /// Reject.
    Reject,
}

/// The delta of an `approval_request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BlocksApprovalDetails"))]
pub struct ApprovalDetails {
    /// The calls.
    pub action_requests: Vec<ActionRequest>,
    /// One for each call.
    pub review_configs: Vec<ReviewConfig>,
    /// The time to answer, in seconds.
    pub timeout_seconds: u64,
}

/// A call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BlocksActionRequest"))]
pub struct ActionRequest {
    /// The tool's name.
    pub name: String,
    /// Its input: a JSON object.
    pub args: Json,
    /// The call's id.
    pub tool_use_id: String,
}

/// How a call can be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BlocksReviewConfig"))]
pub struct ReviewConfig {
    /// Always true: other calls need no approval.
    pub require_approval: bool,
    /// Permission rules that the user may accept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suggested_rules: Vec<PermissionRule>,
}

impl Approval {
    /// The answer as an event, for these pending calls in the order of the request.
    ///
    /// A decision about a call that is not pending, or two about the same call, reject the whole
    /// answer. Calls without a decision stay pending.
    pub fn to_event(&self, waiting: &[ToolCall]) -> Result<UserConfirmResult> {
        let mut seen = HashSet::new();
        let answers = self.decisions.iter().enumerate().map(|(at, decision)| {
            let call = match &decision.tool_use_id {
                Some(id) => waiting.iter().find(|call| call.id == *id),
                None => waiting.get(at),
            };
            let Some(call) = call else {
                let which =
                    decision.tool_use_id.clone().unwrap_or_else(|| format!("decisions[{at}]"));
                return Err(bad_request(format!("approval of {which}: no such pending call")));
            };
            if !seen.insert(&call.id) {
                return Err(bad_request(format!(
                    "approval of {}: two decisions for one call",
                    call.id
                )));
            }
            Ok(decision.to_confirmation(call))
        });
        Ok(UserConfirmResult { confirm_results: answers.collect::<Result<_>>()? })
    }
}

impl Decision {
    fn to_confirmation(&self, call: &ToolCall) -> ConfirmResult {
        self.to_result(&call.id, &call.name)
    }

    pub(super) fn to_result(&self, id: &str, name: &str) -> ConfirmResult {
        let (confirmed, input) = match &self.verdict {
            Verdict::Approve => (true, String::new()),
            Verdict::Edit { args } => (true, input_text(args)),
            Verdict::Reject => (false, String::new()),
        };
        let mut result = ConfirmResult {
            confirmed,
            tool_call: ToolCall::new(id, name, input),
            ..ConfirmResult::default()
        };
        result.rest.insert_some("message", self.message.as_deref());
        result
    }

    /// Reads a decision, or says what is wrong with it.
    pub(super) fn from_json(json: &Json) -> Result<Self, &'static str> {
        let fields: Fields = json.parse_as().map_err(|_| "an object")?;
        let text = |field: &str| fields.get::<String>(field).map_err(|_| "a decision");
        let verdict = match text("type")?.as_deref() {
            Some("approve") => Verdict::Approve,
            Some("reject") => Verdict::Reject,
            Some("edit") => {
                let args = fields.raw("args").filter(|args| args.text().starts_with('{')).cloned();
                Verdict::Edit { args: args.ok_or("an edit with `args`, an object")? }
            }
            _ => return Err("of `type` approve, edit or reject"),
        };
        let tool_use_id = text("tool_use_id")?.filter(|id| !id.is_empty());
        Ok(Self { tool_use_id, verdict, message: text("message")? })
    }
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.tool_use_id {
            map.serialize_entry("tool_use_id", id)?;
        }
        let word = match &self.verdict {
            Verdict::Approve => "approve",
            Verdict::Edit { .. } => "edit",
            Verdict::Reject => "reject",
        };
        map.serialize_entry("type", word)?;
        if let Verdict::Edit { args } = &self.verdict {
            map.serialize_entry("args", args)?;
        }
        if let Some(message) = &self.message {
            map.serialize_entry("message", message)?;
        }
        map.end()
    }
}

impl ApprovalKey {
    /// Reads a key. A session's id may contain underscores.
    pub fn parse(text: &str) -> Option<Self> {
        let (session_id, count) = text.rsplit_once('_')?;
        let is_plain = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|_| is_plain)?;
        Some(Self { session_id: session_id.to_owned(), count })
    }
}

impl fmt::Display for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.session_id, self.count)
    }
}

impl Serialize for ApprovalKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl ApprovalDetails {
    /// The approval request for these calls.
    pub fn new<'c>(calls: impl IntoIterator<Item = &'c ToolCall>, timeout_seconds: u64) -> Self {
        let (action_requests, review_configs) = calls
            .into_iter()
            .map(|call| {
                let suggested_rules = call.suggested_rules.clone();
                (call.into(), ReviewConfig { require_approval: true, suggested_rules })
            })
            .unzip();
        Self { action_requests, review_configs, timeout_seconds }
    }
}

impl From<&ToolCall> for ActionRequest {
    fn from(call: &ToolCall) -> Self {
        let args = input_object(&call.input);
        Self { name: call.name.clone(), args, tool_use_id: call.id.clone() }
    }
}
