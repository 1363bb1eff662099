//! `GET /v1/sessions/{s}/decisions`: who decided about which call, and the rules that were accepted;
//! `POST /v1/sessions/{s}/rules/revoke`: takes an accepted rule back.

use super::request;
use crate::app::App;
use crate::auth::Caller;
use crate::cluster::operation::{OwnerOperation, run_at_owner};
use crate::error::{ApiError, ApiResult};
use crate::extract::{JsonBody, Path};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use turnwire_core::event::{Custom, CustomValue};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, EventKind, Json as RawJson, PermissionRule, Seq};
use turnwire_log::Session;
use turnwire_log::loaded_session::{RULE_REVOKED, is_same_rule};
use turnwire_log::store::EventLines;

/// How much of the log is read at a time.
const READ_BYTES: usize = 1 << 20;
/// How many decisions are returned: the latest.
const MAX_DECISIONS: usize = 1000;
/// How many questions may be open at once before the oldest is forgotten.
const MAX_QUESTIONS: usize = 4096;

/// The decisions of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DecisionList {
    /// Oldest first, at most the latest 1000.
    decisions: VecDeque<DecisionView>,
    /// The rules that users accepted and that still apply.
    rules: Vec<PermissionRule>,
}

/// A decision about a pending call.
#[derive(Debug, Serialize, JsonSchema)]
struct DecisionView {
    #[schemars(with = "u64")]
    seq: Seq,
    reply_id: String,
    call_id: String,
    /// When it was decided.
    at: String,
    confirmed: bool,
    /// Nobody answered in time, so the server denied the call.
    expired: bool,
    /// The user or program that decided, if its credentials name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// The client that it was decided with, as it calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// The reason that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The input before it was edited, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_before: Option<String>,
    /// The edited input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_after: Option<String>,
    /// The rules that were accepted along with it.
    rules: Vec<PermissionRule>,
}

/// `GET /v1/sessions/{s}/decisions`
pub async fn list_decisions(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<impl IntoResponse> {
    let session = request::find_session(&app, &caller, &id).await?;
    let mut found = Decisions::default();
    let mut from = session.first_seq().await?;
    loop {
        let rows = session.read_events(from, READ_BYTES).await?;
        let Some(last) = rows.last().map(EventLines::last) else { break };
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            if is_about_a_decision(line) {
                found.push(seq, &Session::parse_event(seq, line)?);
            }
        }
        from = last.next();
    }
    let rules = session.snapshot().await?.state.rules;
    Ok(Json(DecisionList { decisions: found.decisions, rules }))
}

/// Whether a line may be a question or an answer. Most lines are deltas, which are not parsed.
fn is_about_a_decision(line: &[u8]) -> bool {
    let has = |name: &[u8]| line.windows(name.len()).any(|bytes| bytes == name);
    let head = line.get(..line.len().min(512)).unwrap_or(line);
    // The type stands before the content; events of other programs may have another order.
    if head.windows(7).any(|bytes| bytes == b"_DELTA\"") {
        return false;
    }
    has(b"USER_CONFIRM")
}

#[derive(Default)]
struct Decisions {
    decisions: VecDeque<DecisionView>,
    /// The inputs of the calls that were asked about.
    questions: HashMap<String, String>,
}

impl Decisions {
    fn push(&mut self, seq: Seq, event: &Event<'_>) {
        if let EventKind::RequireUserConfirm(request) = &event.kind {
            if self.questions.len() >= MAX_QUESTIONS {
                self.questions.clear();
            }
            let calls = request.tool_calls.iter();
            self.questions.extend(calls.map(|call| (call.id.clone(), call.input.clone())));
        } else if let EventKind::UserConfirmResult(answer) = &event.kind {
            let text = |key: &str| event.metadata.get::<String>(key).ok().flatten();
            for result in &answer.confirm_results {
                let call = &result.tool_call;
                let before = self.questions.remove(&call.id);
                let is_edited = result.confirmed
                    && !call.input.is_empty()
                    && before.as_ref().is_some_and(|before| *before != call.input);
                self.decisions.push_back(DecisionView {
                    seq,
                    reply_id: event.reply_id.to_string(),
                    call_id: call.id.clone(),
                    at: event.created_at.to_string(),
                    confirmed: result.confirmed,
                    expired: text("reason").as_deref() == Some("timeout"),
                    by: text("by"),
                    client: text("client"),
                    reason: result.rest.get("message").ok().flatten(),
                    input_before: before.filter(|_| is_edited),
                    input_after: is_edited.then(|| call.input.clone()),
                    rules: result.rules.clone().unwrap_or_default(),
                });
            }
            while self.decisions.len() > MAX_DECISIONS {
                self.decisions.pop_front();
            }
        }
    }
}

/// The body of `POST /v1/sessions/{s}/rules/revoke`: the rule, as it was accepted.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RevokeRule {
    rule: PermissionRule,
}

/// `POST /v1/sessions/{s}/rules/revoke`
pub async fn revoke_rule(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    JsonBody(RevokeRule { rule }): JsonBody<RevokeRule>,
) -> ApiResult<impl IntoResponse> {
    let session = request::find_session(&app, &caller, &id).await?;
    let rules = session.snapshot().await?.state.rules;
    // A rule that does not apply any more is no error: the request may be a repeated one.
    let Some(known) = rules.iter().find(|known| is_same_rule(known, &rule)) else {
        return Ok(StatusCode::NO_CONTENT);
    };
    let value = CustomValue(RawJson::from_value(known).map_err(ApiError::internal)?);
    let mut event = Event::new("", Custom { name: RULE_REVOKED.to_owned(), value });
    event.metadata.insert_some("by", caller.subject().map(ToString::to_string));
    run_at_owner(&app, &session, RevokeOperation(event.stamped(&SystemStamp))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Logs that a rule was revoked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RevokeOperation(Event<'static>);

impl OwnerOperation for RevokeOperation {
    const NAME: &'static str = "revoke";
    type Output = ();

    async fn run(self, _app: &Arc<App>, session: &Arc<Session>) -> ApiResult<()> {
        let Self(mut event) = self;
        let change = session
            .transact(&[], |tx| tx.push(&mut event, None).map(drop).map_err(ApiError::internal));
        change.await.map(drop)
    }

    /// The event is known by its id.
    fn is_repeatable(&self) -> bool {
        true
    }
}
