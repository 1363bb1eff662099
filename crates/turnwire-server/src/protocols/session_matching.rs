//! Finds the session that a client's tool results belong to, if the request names none.
//!
//! Clients of Chat Completions, Messages and Responses send their own history and tool results. A session
//! matches within the tenant, the agent and the holder of the credentials, by its pending calls and by the
//! client's history:
//!
//! | the ids of the calls | what must be equal |
//! |---|---|
//! | look random (OpenAI, Anthropic) | the ids and names of the calls |
//! | are common (`call_0`) | also their inputs, the user's text, earlier results and text of this reply |
//!
//! Conversations that a client cannot distinguish are interchangeable: the one that changed last gets the
//! result, and the other one the next result.

use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::turns::waiting_sessions::for_each_waiting;
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::Arc;
use turnwire_agent::{ClientContext, is_random_id};
use turnwire_core::{HintBlock, Msg, Part, Payload, Role, ToolCall, ToolResult};
use turnwire_log::store::MessageQuery;
use turnwire_log::{Session, Snapshot};
use turnwire_wires::client_request::{ClaimedHistory, strip_whitespace};

/// How many messages before a reply are compared.
const MAX_COMPARED: usize = 1024;

/// A session that matches.
pub(crate) type Candidate = (Arc<Session>, Snapshot);

/// The sessions that results can belong to, the best match first.
pub(crate) async fn find_waiting_sessions(
    app: &App,
    caller: &Caller,
    agent: &str,
    results: &[&str],
    claimed: &ClaimedHistory,
) -> ApiResult<Vec<Candidate>> {
    let mut waiting: Vec<Candidate> = Vec::new();
    if results.is_empty() {
        return Ok(waiting);
    }
    let is_of_agent = |session: &str| session == agent;
    for_each_waiting(app, caller, is_of_agent, |session, snapshot| {
        let is_asked = snapshot
            .pending_calls()
            .iter()
            .any(|pending| pending.external.iter().any(|call| results.contains(&call.id.as_str())));
        if is_asked {
            waiting.push((session, snapshot));
        }
        ControlFlow::Continue(())
    })
    .await?;
    let (mut same, mut by_id) = (Vec::new(), Vec::new());
    let are_random = results.iter().all(|id| is_random_id(id));
    for (session, snapshot) in waiting {
        let Some(user) = user_text(caller, &session, &snapshot).await? else { continue };
        if user == claimed.user_text && is_same_reply(&snapshot, claimed) {
            same.push((session, snapshot));
        } else if are_random && has_same_names(&snapshot, claimed) {
            by_id.push((session, snapshot));
        }
    }
    same.append(&mut by_id);
    Ok(same)
}

/// The user's text in a session without white space, if the same holder sent it.
async fn user_text(
    caller: &Caller,
    session: &Session,
    snapshot: &Snapshot,
) -> ApiResult<Option<String>> {
    let own = snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
    let Some(own) = own else { return Ok(None) };
    let query = MessageQuery {
        before: Some(own.first_seq()),
        limit: MAX_COMPARED,
        ..MessageQuery::default()
    };
    let mut words = String::new();
    let mut asked_by = None;
    for stored in session.list_messages(&query).await?.iter().filter(|stored| !stored.superseded) {
        let text = std::str::from_utf8(&stored.json).map_err(ApiError::internal)?;
        let msg = Msg::from_json(text).map_err(ApiError::internal)?;
        if msg.role() == Role::User {
            asked_by = ClientContext::from_msg(&msg).asked_by;
            words.extend(msg.text("").iter().map(|text| strip_whitespace(text)));
        }
    }
    // A user message beside earlier results is a part of the reply.
    for hint in own.msg().blocks::<HintBlock>() {
        if hint.source.as_deref() == Some("user") {
            words.push_str(&payload_text(&hint.hint));
        }
    }
    Ok(Some(words).filter(|_| asked_by.as_deref() == Some(&*caller.0.holder)))
}

/// Whether the client's version of the reply equals the log's.
fn is_same_reply(snapshot: &Snapshot, claimed: &ClaimedHistory) -> bool {
    let said: String = snapshot
        .open
        .iter()
        .filter_map(|reply| reply.msg().text(""))
        .map(|text| strip_whitespace(&text))
        .collect();
    let same_call = |call: &ToolCall| {
        find_call(snapshot, &call.id)
            .is_some_and(|(own, _)| own.name == call.name && is_same_input(&own.input, &call.input))
    };
    let same_result = |result: &ToolResult| {
        // A missing result is the one that is submitted now.
        find_call(snapshot, &result.id).is_some_and(|(_, own)| {
            own.is_none_or(|own| payload_text(&own.output) == payload_text(&result.output))
        })
    };
    claimed.assistant_texts.iter().all(|text| said.contains(text.as_str()))
        && claimed.calls.iter().all(same_call)
        && claimed.results.iter().all(same_result)
}

fn has_same_names(snapshot: &Snapshot, claimed: &ClaimedHistory) -> bool {
    claimed
        .calls
        .iter()
        .all(|call| find_call(snapshot, &call.id).is_none_or(|(own, _)| own.name == call.name))
}

/// A call of an open reply, and its result.
fn find_call<'s>(
    snapshot: &'s Snapshot,
    id: &str,
) -> Option<(&'s ToolCall, Option<&'s ToolResult>)> {
    let mut calls = snapshot.open.iter().flat_map(|reply| reply.msg().tool_calls());
    calls.find(|(call, _)| call.id == id)
}

/// Whether two inputs are the same JSON, or the same text if they are not JSON.
fn is_same_input(one: &str, other: &str) -> bool {
    let read = |input: &str| -> Option<Value> {
        serde_json::from_str(if input.trim().is_empty() { "{}" } else { input }).ok()
    };
    match (read(one), read(other)) {
        (Some(one), Some(other)) => is_same_json(&one, &other),
        _ => strip_whitespace(one) == strip_whitespace(other),
    }
}

/// Compares JSON; `1.0` equals `1`, because clients re-encode it.
fn is_same_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same_json(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| is_same_json(value, other))
            };
            one.len() == other.len() && one.iter().all(has)
        }
        (one, other) => one == other,
    }
}

fn payload_text(payload: &Payload) -> String {
    match payload {
        Payload::Text(text) => strip_whitespace(text),
        Payload::Parts(parts) => {
            let text = |part: &Part| match part {
                Part::Text(block) => Some(strip_whitespace(&block.text)),
                Part::Data(_) | Part::Other(_) => None,
            };
            parts.iter().filter_map(text).collect()
        }
    }
}
