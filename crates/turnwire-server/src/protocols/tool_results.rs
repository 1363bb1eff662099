//! Submits the results of pending tool calls. Called by `client_turn`.

use super::SESSION_HEADER;
use super::client_turn::{ClientTurn, ReplyPart};
use crate::error::{ApiError, ApiResult};
use crate::stream::ReplyPosition;
use crate::turns::client_context::ContextChange;
use crate::turns::client_events::{AcceptOptions, accept_events_with};
use crate::turns::idempotency::read_header;
use crate::turns::send::HistoryChange;
use std::collections::HashSet;
use std::sync::Arc;
use turnwire_agent::SentHistory;
use turnwire_core::event::{ExternalExecutionResult, Hint};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{ContentBlock, Event, Msg, Part, Payload, Seq, ToolCall, ToolResult};
use turnwire_log::store::{EventLines, MessageQuery};
use turnwire_log::{OpenReply, PendingCalls, Session, Snapshot};
use turnwire_wires::openai_responses::refer_by_call_id;

/// How many messages back an answered call is searched.
const LOOK_BACK: usize = 32;
/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

/// New results of calls, and what the user says beside them.
pub(crate) struct NewResults {
    pub(crate) results: Vec<ToolResult>,
    /// Results before the last answer. Some clients put each result behind its call.
    pub(crate) earlier: Vec<ToolResult>,
    pub(crate) messages: Vec<Msg>,
    /// The beginning of the answer, if the client gives it.
    pub(crate) prefill: Vec<ContentBlock>,
}

/// Submits results to a session. The same reply continues, and the response is the rest of it.
pub(crate) async fn submit_results_to(
    turn: &ClientTurn<'_>,
    new: &NewResults,
    session: Arc<Session>,
    mut change: Option<HistoryChange>,
) -> ApiResult<ReplyPart> {
    let snapshot = session.snapshot().await?;
    let pending = snapshot.pending_calls();
    let mut results = new.results.clone();
    for result in &mut results {
        refer_by_call_id(result, external_calls(&pending));
    }
    for call in external_calls(&pending) {
        let earlier = new.earlier.iter().rev().find(|result| result.id == call.id);
        if let Some(earlier) = earlier.filter(|_| !results.iter().any(|new| new.id == call.id)) {
            results.push(earlier.clone());
        }
    }
    let ids = unique_call_ids(&results)?;
    let waiting: HashSet<&str> = external_calls(&pending).map(|call| call.id.as_str()).collect();
    if let Some(other) = ids.iter().find(|id| !waiting.contains(**id)) {
        return replay_or_reject(turn, session, other).await;
    }
    let left_out: Vec<&str> = waiting.into_iter().filter(|id| !ids.contains(id)).collect();
    if !left_out.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the reply also waits for the results of {}; nothing was stored",
            left_out.join(", ")
        ))
        .kind("missing_results")
        .hint("send the results of all calls of a response in one request"));
    }
    let own_reply = own_reply(&snapshot)?;
    let own = own_reply.msg().id();
    let mut events = result_events(&pending, &results);
    // The agent's own goes last: the response begins with it.
    events.sort_by_key(|event| event.reply_id == own);
    if let Some(change) = &mut change {
        change.input.results_after = Some(snapshot.head);
    }
    events.extend(user_hint(new, own));
    assign_event_ids(turn, &mut events)?;
    let ClientTurn { context, conversation, .. } = turn;
    let answer = conversation.sent_answer().and_then(|answer| answer.without(own_reply.msg()));
    let sent = SentHistory { answer, ..conversation.sent().clone() };
    let changed = ContextChange::find(&session, own_reply, context, &sent).await?;
    let options = AcceptOptions {
        when_idle: None,
        history: change.as_ref(),
        client: changed.client.as_ref(),
        sent: changed.sent.as_ref(),
        prefill: &new.prefill,
    };
    let delivery = turn.app.deliveries.prepare(session.key());
    let taken = accept_events_with(turn.app, &session, turn.caller, &events, options).await?;
    if taken.stored == 0 {
        // The same request was handled at the same time.
        return replay_or_reject(turn, session, ids.first().copied().unwrap_or_default()).await;
    }
    // The response is only what the model adds.
    let after = if new.prefill.is_empty() { taken.cursor_before() } else { taken.last };
    let (reply_id, begin) = (own.to_owned(), ReplyPosition::After(after));
    let delivery = delivery.begin(&reply_id, snapshot.head);
    Ok(ReplyPart { session, reply_id, begin, replayed: false, delivery })
}

fn unique_call_ids(results: &[ToolResult]) -> ApiResult<Vec<&str>> {
    let mut ids: Vec<&str> = Vec::with_capacity(results.len());
    for result in results {
        if ids.contains(&result.id.as_str()) {
            return Err(ApiError::bad_request(format!(
                "duplicate result for the call {}",
                result.id
            )));
        }
        ids.push(&result.id);
    }
    Ok(ids)
}

fn external_calls(pending: &[PendingCalls]) -> impl Iterator<Item = &ToolCall> {
    pending.iter().flat_map(|pending| &pending.external)
}

pub(crate) fn unknown_call(id: &str) -> ApiError {
    ApiError::bad_request(format!("no call {id:?} waits for a result"))
        .kind("unknown_call")
        .hint(format!(
            "the previous response has the ids of the calls; its header {SESSION_HEADER} names the session, which \
             the request may name, too"
        ))
}

/// The reply that continues.
fn own_reply(snapshot: &Snapshot) -> ApiResult<&OpenReply> {
    let own = snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
    own.ok_or_else(|| ApiError::internal("no reply is open"))
}

/// The result events, one for each reply that waits.
fn result_events(pending: &[PendingCalls], results: &[ToolResult]) -> Vec<Event<'static>> {
    let of_reply = |pending: &PendingCalls| {
        let is_asked =
            |result: &&ToolResult| pending.external.iter().any(|call| call.id == result.id);
        let execution_results: Vec<_> = results.iter().filter(is_asked).cloned().collect();
        (!execution_results.is_empty()).then(|| {
            Event::new(pending.reply_id.clone(), ExternalExecutionResult { execution_results })
        })
    };
    pending.iter().filter_map(of_reply).collect()
}

/// What the user says beside the results, as a hint for the reply that continues.
fn user_hint(new: &NewResults, reply: &str) -> Option<Event<'static>> {
    if new.messages.is_empty() {
        return None;
    }
    let parts = new.messages.iter().flat_map(Msg::content).filter_map(to_part).collect();
    let hint = Hint {
        block_id: SystemStamp.id(),
        source: Some("user".to_owned()),
        hint: Payload::Parts(parts),
    };
    Some(Event::new(reply.to_owned(), hint))
}

fn to_part(block: &ContentBlock) -> Option<Part> {
    match block {
        ContentBlock::Text(block) => Some(Part::Text(block.clone())),
        ContentBlock::Data(block) => Some(Part::Data(block.clone())),
        ContentBlock::Other(item) => Some(Part::Other(item.clone())),
        ContentBlock::Thinking(_)
        | ContentBlock::Hint(_)
        | ContentBlock::ToolCall(_)
        | ContentBlock::ToolResult(_) => None,
    }
}

/// Derives the events' ids from the idempotency key, to recognise a repeated request.
fn assign_event_ids(turn: &ClientTurn<'_>, events: &mut [Event<'static>]) -> ApiResult<()> {
    let Some(key) = read_header(turn.headers)? else { return Ok(()) };
    let id = turn.request_id(key);
    for (at, event) in events.iter_mut().enumerate() {
        event.id = format!("{id}-{at}").into();
    }
    Ok(())
}

/// No call waits for the result. A repeated request gets the same response again, any other an error.
async fn replay_or_reject(
    turn: &ClientTurn<'_>,
    session: Arc<Session>,
    id: &str,
) -> ApiResult<ReplyPart> {
    let Some((reply_id, first)) = find_reply_with_call(&session, id).await? else {
        return Err(unknown_call(id));
    };
    if let Some(key) = read_header(turn.headers)? {
        let wanted = format!("{}-0", turn.request_id(key));
        if let Some(seq) = find_event(&session, first, &wanted).await? {
            let after = seq.previous();
            let delivery = turn.app.deliveries.begin(session.key(), &reply_id, after);
            let begin = ReplyPosition::After(after);
            return Ok(ReplyPart { session, reply_id, begin, replayed: true, delivery });
        }
    }
    Err(ApiError::conflict(format!(
        "the call {id} waits for no result, or has one already; nothing was stored"
    ))
    .kind("already_answered")
    .hint("a repeated request needs the same Idempotency-Key to get the same response"))
}

/// The reply with a call, and its first seq.
async fn find_reply_with_call(
    session: &Arc<Session>,
    id: &str,
) -> ApiResult<Option<(String, Seq)>> {
    let has = |msg: &Msg| msg.blocks::<ToolCall>().any(|call| call.id == id);
    let snapshot = session.snapshot().await?;
    let mut open = snapshot.open.iter().filter(|reply| !reply.is_of_sub_agent());
    if let Some(reply) = open.find(|reply| has(reply.msg())) {
        return Ok(Some((reply.msg().id().to_owned(), reply.first_seq())));
    }
    let query = MessageQuery { limit: LOOK_BACK, ..MessageQuery::default() };
    let mut stored = session.list_messages(&query).await?.into_iter().rev();
    Ok(stored.find_map(|stored| {
        let text = std::str::from_utf8(&stored.json).ok()?;
        has(&Msg::from_json(text).ok()?).then_some((stored.id, stored.first))
    }))
}

/// The seq of the event with this id, searched from a position on.
async fn find_event(session: &Session, mut from: Seq, id: &str) -> ApiResult<Option<Seq>> {
    loop {
        let rows = session.read_events(from, CHUNK).await?;
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            if Session::parse_event(seq, line)?.id == id {
                return Ok(Some(seq));
            }
        }
        let next = rows.last().map(|rows| rows.last().next());
        let Some(next) = next.filter(|next| session.head_state().head.includes(*next)) else {
            return Ok(None);
        };
        from = next;
    }
}
