//! Takes events from users and clients: approvals, tool results, hints, stops. Called by the HTTP
//! route, the WebSocket and the protocols.
//!
//! An answer is never trusted further than what was asked. The logged event is built from the
//! question and the few fields that an answer may decide.

use super::deadlines;
use super::end_replies::end_own_replies;
use super::event_origin::EventOrigin;
use super::hints::WhenIdle;
use super::journal::stamp_event;
use super::send::HistoryChange;
use super::{EXTERNAL, own_reply};
use crate::app::App;
use crate::auth::{Action, Caller, is_valid_id};
use crate::cluster::operation::{OwnerOperation, run_at_owner};
use crate::error::{ApiError, ApiResult};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use turnwire_agent::permission::check_input;
use turnwire_agent::{AgentError, ClientContext, SentHistory};
use turnwire_core::event::{
    Block, ConfirmResult, ExternalExecutionResult, UserConfirmResult, UserInterrupt,
};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, FinishedReason, Head, PermissionRule, ToolCall,
    ToolCallState, ToolResult, ToolResultState, event_kinds,
};
use turnwire_log::{OpenReply, PushOutcome, Session, Transaction};
use turnwire_wires::native;

pub use deadlines::first_deadline;

/// What became of the events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsAccepted {
    /// The head of the log after them.
    pub last: Head,
    /// How many events were stored.
    pub stored: u32,
    /// How many were in the log already.
    pub repeated: u32,
    /// The reply that a hint has started.
    pub started: Option<String>,
}

impl EventsAccepted {
    /// Where the log ended before these events.
    pub fn cursor_before(&self) -> Head {
        self.last.minus(self.stored.into())
    }
}

/// Stores events of a caller that is not a producer: all of them, or none. A stop of a reply that
/// has ended is neither stored nor an error.
pub async fn accept_events(
    app: &Arc<App>,
    session: &Arc<Session>,
    caller: &Caller,
    events: &[Event<'_>],
) -> ApiResult<EventsAccepted> {
    accept_events_with(app, session, caller, events, AcceptOptions::default()).await
}

/// How events are accepted.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptOptions<'a> {
    /// What to do with hints while no reply is open. Starting a reply requires the scope `chat`.
    pub when_idle: Option<WhenIdle>,
    /// The conversation as the client knows it, if it keeps its own history. Hints are then the user's own text
    /// beside tool results, and need no scope but `chat`.
    pub history: Option<&'a HistoryChange>,
    /// What a client sends along with tool results, for the rest of the reply.
    pub client: Option<&'a ClientContext>,
    /// What the client's history has beside what the log keeps of it, if that changes with the results.
    pub sent: Option<&'a SentHistory>,
    /// The beginning of the answer that the client gives behind tool results, as blocks of the reply.
    pub prefill: &'a [ContentBlock],
}

/// The same, with options.
pub async fn accept_events_with(
    app: &Arc<App>,
    session: &Arc<Session>,
    caller: &Caller,
    events: &[Event<'_>],
    options: AcceptOptions<'_>,
) -> ApiResult<EventsAccepted> {
    for event in events {
        let action = required_action(event)?;
        let is_own_text = options.history.is_some() && matches!(action, Action::Publish);
        caller.require(if is_own_text { Action::Chat } else { action })?;
    }
    if options.when_idle == Some(WhenIdle::Reply) {
        caller.require(Action::StartWithHint)?;
    }
    let subject = caller.subject().map(ToString::to_string);
    if app.cluster.is_none() {
        return accept_here(app, session, events, options, subject).await;
    }
    let events = events.iter().map(|event| event.clone().into_owned()).collect();
    run_at_owner(app, session, AcceptOperation::new(events, options, subject)).await
}

/// Events that were checked, on their way to the owner of the session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AcceptOperation {
    events: Vec<Event<'static>>,
    when_idle: Option<WhenIdle>,
    history: Option<HistoryChange>,
    client: Option<ClientContext>,
    sent: Option<SentHistory>,
    prefill: Vec<ContentBlock>,
    /// Who sends them.
    subject: Option<String>,
}

impl AcceptOperation {
    fn new(
        events: Vec<Event<'static>>,
        options: AcceptOptions<'_>,
        subject: Option<String>,
    ) -> Self {
        Self {
            events,
            when_idle: options.when_idle,
            history: options.history.cloned(),
            client: options.client.cloned(),
            sent: options.sent.cloned(),
            prefill: options.prefill.to_vec(),
            subject,
        }
    }
}

impl OwnerOperation for AcceptOperation {
    const NAME: &'static str = "accept";
    type Output = EventsAccepted;

    async fn run(self, app: &Arc<App>, session: &Arc<Session>) -> ApiResult<EventsAccepted> {
        let options = AcceptOptions {
            when_idle: self.when_idle,
            history: self.history.as_ref(),
            client: self.client.as_ref(),
            sent: self.sent.as_ref(),
            prefill: &self.prefill,
        };
        accept_here(app, session, &self.events, options, self.subject).await
    }

    /// An answer counts once, but the second time it is an error.
    fn is_repeatable(&self) -> bool {
        false
    }
}

async fn accept_here(
    app: &Arc<App>,
    session: &Arc<Session>,
    events: &[Event<'_>],
    options: AcceptOptions<'_>,
    by: Option<String>,
) -> ApiResult<EventsAccepted> {
    let AcceptOptions { when_idle, history, client, sent, prefill } = options;
    let when_idle = when_idle.unwrap_or_else(|| app.turns.when_idle(session.agent()));
    let touched: Vec<&str> =
        events.iter().map(|event| &*event.reply_id).filter(|id| !id.is_empty()).collect();
    let stopped = Vec::new();
    let mut handler = ClientEventHandler {
        app,
        session,
        client,
        sent,
        when_idle,
        stored: 0,
        repeated: 0,
        stopped,
        started: None,
        by,
    };
    let (handler, receipt) = session
        .transact(&touched, |tx| {
            if let Some(history) = history {
                history.check(tx)?;
            }
            for event in events {
                handler.accept(tx, event)?;
            }
            if handler.stored > 0 {
                handler.add_prefill(tx, prefill)?;
            }
            if let Some(history) = history.filter(|_| handler.stored > 0) {
                history.apply(tx);
            }
            if handler.stored > 0 {
                app.turns.wake(session);
            }
            Ok::<_, ApiError>(handler)
        })
        .await?;
    app.turns.count_stopped(session, handler.stopped.len());
    for reply in &handler.stopped {
        app.turns.cancel_reply(session, Some(reply));
    }
    let ClientEventHandler { stored, repeated, started, .. } = handler;
    Ok(EventsAccepted { last: receipt.head, stored, repeated, started })
}

/// Stops the open reply. Requires the scope `chat`.
pub async fn stop_reply(
    app: &Arc<App>,
    session: &Arc<Session>,
    caller: &Caller,
) -> ApiResult<EventsAccepted> {
    accept_events(app, session, caller, &[Event::new("", UserInterrupt {})]).await
}

/// The action that sending such an event is.
fn required_action(event: &Event<'_>) -> ApiResult<Action> {
    match EventOrigin::from_kind(&event.kind) {
        EventOrigin::Approver => Ok(Action::Confirm),
        EventOrigin::Client => Ok(Action::Chat),
        EventOrigin::Publisher => Ok(Action::Publish),
        EventOrigin::Agent | EventOrigin::Conversation => Err(ApiError::unprocessable(format!(
            "{} is sent by agents only, and this request has no Turnwire-Producer header; nothing was stored",
            event.kind.type_name()
        ))
        .kind("no_producer")
        .hint(
            "agents publish with the header Turnwire-Producer: ID.FENCE; other callers may send \
             USER_CONFIRM_RESULT, EXTERNAL_EXECUTION_RESULT, USER_INTERRUPT, HINT_BLOCK and CUSTOM",
        )),
    }
}

/// Checks and stores events within one transaction.
struct ClientEventHandler<'a> {
    app: &'a Arc<App>,
    session: &'a Arc<Session>,
    client: Option<&'a ClientContext>,
    sent: Option<&'a SentHistory>,
    when_idle: WhenIdle,
    stored: u32,
    repeated: u32,
    stopped: Vec<String>,
    started: Option<String>,
    /// Who sends them, if the credentials name somebody.
    by: Option<String>,
}

impl ClientEventHandler<'_> {
    fn accept(&mut self, tx: &mut Transaction<'_>, event: &Event<'_>) -> ApiResult<()> {
        if tx.has_event(&event.reply_id, &event.id) {
            self.repeated += 1;
            return Ok(());
        }
        match &event.kind {
            EventKind::UserConfirmResult(answer) => {
                let reply = find_open_reply(tx, event)?;
                let kind = checked_confirmation(reply, answer)?;
                let client = client_of(event);
                let mut event = answer_event(reply, event, kind);
                event.metadata.insert_some("by", self.by.clone());
                event.metadata.insert_some("client", client);
                self.store_answer(tx, event)
            }
            EventKind::ExternalExecutionResult(answer) => {
                let reply = find_open_reply(tx, event)?;
                let mut kind = checked_results(reply, answer)?;
                let last = kind.execution_results.last_mut();
                if let Some(last) = last.filter(|_| !reply.is_of_sub_agent()) {
                    self.client.iter().for_each(|client| client.attach_to_result(last));
                    self.sent.iter().for_each(|sent| sent.attach_to_result(last));
                }
                let event = answer_event(reply, event, kind);
                self.store_answer(tx, event)
            }
            EventKind::UserInterrupt(_) => self.stop(tx, event),
            EventKind::Hint(_) => {
                let outcome = self.app.turns.store_hint(self.session, tx, event, self.when_idle)?;
                self.stored += u32::from(outcome.is_new);
                self.repeated += u32::from(!outcome.is_new);
                self.started = outcome.started.or(self.started.take());
                Ok(())
            }
            // Custom events: `required_action` has refused all others.
            event_kinds!(
                RequireUserConfirm RequireExternalExecution ExceedMaxIters Block
                java reply model_call text thinking data tool session
            ) => self.push(tx, event.clone().into_owned().stamped(&SystemStamp)).map(drop),
        }
    }

    /// Appends an answer, and keeps it for the agent.
    fn store_answer(&mut self, tx: &mut Transaction<'_>, event: Event<'static>) -> ApiResult<()> {
        let event = self.push(tx, event)?;
        self.app.turns.store_answer_for_agent(self.session, tx, event);
        Ok(())
    }

    /// Adds the beginning of the answer to the reply.
    fn add_prefill(&mut self, tx: &mut Transaction<'_>, blocks: &[ContentBlock]) -> ApiResult<()> {
        let own = own_reply(self.session, tx).map(|own| own.msg().id().to_owned());
        let Some(own) = own.filter(|_| !blocks.is_empty()) else { return Ok(()) };
        for block in blocks {
            let event = Event::new(own.clone(), Block { block: Box::new(block.clone()) });
            self.push(tx, stamp_event(event, self.session))?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        tx: &mut Transaction<'_>,
        mut event: Event<'static>,
    ) -> ApiResult<Event<'static>> {
        let at = usize::try_from(self.stored + self.repeated).unwrap_or_default();
        match tx.push(&mut event, None) {
            Ok(PushOutcome::Stored(_)) => self.stored += 1,
            Ok(PushOutcome::Repeated) => self.repeated += 1,
            Err(why) => return Err(turnwire_log::Error::Refused { at, why }.into()),
        }
        Ok(event)
    }

    /// Ends the reply in the same change that logs the stop, so a crash cannot continue a stopped
    /// reply. An external agent watches for the event instead.
    fn stop(&mut self, tx: &mut Transaction<'_>, event: &Event<'_>) -> ApiResult<()> {
        let id = &*event.reply_id;
        let is_named = |reply: &&OpenReply| match id {
            "" => !reply.is_of_sub_agent(),
            id => reply.msg().id() == id,
        };
        let Some(reply) = tx.replies().iter().find(is_named) else {
            return match id {
                // It has ended by itself.
                "" => Ok(()),
                id if tx.is_finished(id) => Ok(()),
                id => Err(unknown_reply(id)),
            };
        };
        let stop = answer_event(reply, event, UserInterrupt {});
        self.push(tx, stop)?;
        if tx.is_produced() || self.session.agent() == EXTERNAL {
            return Ok(());
        }
        self.stopped.extend(own_reply(self.session, tx).map(|own| own.msg().id().to_owned()));
        end_own_replies(tx, self.session, &FinishedReason::Interrupted, None)
            .map(drop)
            .map_err(|error: AgentError| ApiError::internal(error))
    }
}

/// The reply that an answer is for.
fn find_open_reply<'t>(tx: &'t Transaction<'_>, event: &Event<'_>) -> ApiResult<&'t OpenReply> {
    let id = &*event.reply_id;
    match tx.reply(id) {
        Some(reply) => Ok(reply),
        None if tx.is_finished(id) => Err(ApiError::conflict(format!(
            "the reply {id} has ended and waits for no answer; nothing was stored"
        ))
        .kind("already_answered")),
        None => Err(unknown_reply(id)),
    }
}

fn unknown_reply(id: &str) -> ApiError {
    ApiError::unprocessable(format!("this session has no reply {id:?}"))
        .kind("unknown_reply")
        .hint("GET /v1/sessions/{s} lists pending calls under `pending`")
}

/// A new event that takes only its id from the client's event.
fn answer_event(
    reply: &OpenReply,
    event: &Event<'_>,
    kind: impl Into<EventKind<'static>>,
) -> Event<'static> {
    let mut made = Event::new(reply.msg().id().to_owned(), kind);
    made.id = event.id.clone().into_owned().into();
    made.agent = reply.agent().cloned().map(Box::new);
    made.stamped(&SystemStamp)
}

/// The call that an answer is about, if it is in the state that the answer needs.
fn find_call_in_state<'m>(
    reply: &'m OpenReply,
    id: &str,
    state: &ToolCallState,
) -> ApiResult<&'m ToolCall> {
    let mut calls = reply.msg().blocks::<ToolCall>();
    let call = calls.find(|call| call.id == id).ok_or_else(|| {
        ApiError::unprocessable(format!("the reply {} has no call {id:?}", reply.msg().id()))
            .kind("unknown_call")
            .hint("GET /v1/sessions/{s} lists pending calls under `pending`")
    })?;
    if call.state == *state {
        return Ok(call);
    }
    Err(ApiError::conflict(format!(
        "the call {id} does not wait for this answer, or was answered already; nothing was stored"
    ))
    .kind("already_answered")
    .hint("GET /v1/sessions/{s} lists pending calls under `pending`"))
}

/// An error if a call is answered twice in one event, or if there is no answer.
fn check_unique_ids<'a>(ids: impl Iterator<Item = &'a str>) -> ApiResult<()> {
    let mut seen = HashSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(ApiError::unprocessable(format!("the call {id} is answered twice")));
        }
    }
    if seen.is_empty() {
        return Err(ApiError::unprocessable("the answer is empty: it names no call"));
    }
    Ok(())
}

/// Takes from a confirmation: the decision, the edited input, suggested rules, and the reason.
fn checked_confirmation(
    reply: &OpenReply,
    answer: &UserConfirmResult,
) -> ApiResult<UserConfirmResult> {
    check_unique_ids(answer.confirm_results.iter().map(|result| result.tool_call.id.as_str()))?;
    let results = answer.confirm_results.iter().map(|result| {
        let call = find_call_in_state(reply, &result.tool_call.id, &ToolCallState::Asking)?;
        let mut tool_call = call.clone();
        if result.confirmed && !result.tool_call.input.is_empty() {
            tool_call.input = checked_input(&result.tool_call)?;
        }
        // The rule is stored as it was suggested. A client may omit its fields that are only for
        // display.
        let accepted = result.rules.iter().flatten().filter(|_| result.confirmed);
        let suggested = |accepted: &PermissionRule| {
            let is_same = |rule: &&PermissionRule| {
                rule.tool_name == accepted.tool_name
                    && rule.rule_content == accepted.rule_content
                    && rule.behavior == accepted.behavior
            };
            call.suggested_rules.iter().find(is_same).cloned()
        };
        let rules: Vec<_> = accepted.filter_map(suggested).collect();
        let mut rest = Fields::default();
        rest.insert_some("message", reason_of(result)?);
        Ok(ConfirmResult {
            confirmed: result.confirmed,
            tool_call,
            rules: Some(rules).filter(|rules| !rules.is_empty()),
            rest,
        })
    });
    Ok(UserConfirmResult { confirm_results: results.collect::<ApiResult<_>>()? })
}

/// The longest reason that is kept, in bytes.
const MAX_REASON_BYTES: usize = 4096;

/// The reason for a decision, for others to read.
fn reason_of(result: &ConfirmResult) -> ApiResult<Option<String>> {
    let text = result.rest.get::<String>("message").ok().flatten();
    match text.filter(|text| !text.is_empty()) {
        Some(text) if text.len() > MAX_REASON_BYTES => Err(ApiError::unprocessable(format!(
            "the `message` of the answer to {} is longer than {MAX_REASON_BYTES} bytes",
            result.tool_call.id
        ))),
        text => Ok(text),
    }
}

/// What a client calls itself, for others to read. A long name is ignored.
fn client_of(event: &Event<'_>) -> Option<String> {
    let name: Option<String> = event.metadata.get("client").ok().flatten();
    name.filter(|name| (1..=100).contains(&name.len()))
}

fn checked_input(call: &ToolCall) -> ApiResult<String> {
    let wrong = |why: &str| {
        ApiError::unprocessable(format!("the edited input of the call {} is {why}", call.id))
            .kind("wrong_input")
            .hint("`input` is the text of a JSON object; leave it empty to change nothing")
    };
    check_input(&call.input).map(|()| call.input.clone()).map_err(|why| wrong(&why))
}

/// Takes from the results of tools that the client ran: the output and the state.
fn checked_results(
    reply: &OpenReply,
    answer: &ExternalExecutionResult,
) -> ApiResult<ExternalExecutionResult> {
    check_unique_ids(answer.execution_results.iter().map(|result| result.id.as_str()))?;
    let results = answer.execution_results.iter().map(|result| {
        let call = find_call_in_state(reply, &result.id, &ToolCallState::Submitted)?;
        if result.state == ToolResultState::Running {
            return Err(ApiError::unprocessable(format!(
                "the result of the call {} is still running",
                call.id
            ))
            .hint("send it when it is done, with the state success or error"));
        }
        let mut taken = ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            output: result.output.clone(),
            state: result.state.clone(),
            metadata: result.metadata.clone(),
            rest: message_id_field(result),
            ..ToolResult::default()
        };
        // A model of the client's own protocol gets them back.
        native::copy(&result.rest, &mut taken.rest);
        // Only the server adds them, after they were checked.
        ClientContext::remove_from_result(&mut taken);
        SentHistory::remove_from_result(&mut taken);
        Ok(taken)
    });
    Ok(ExternalExecutionResult { execution_results: results.collect::<ApiResult<_>>()? })
}

/// Of the canonical fields of a result only `message_id`, the id that its client gave the message:
/// clients that know the message by that id must not get it under another.
fn message_id_field(result: &ToolResult) -> Fields {
    let id = result.rest.get::<String>("message_id").ok().flatten();
    id.filter(|id| is_valid_id(id)).map(|id| ("message_id", id)).into_iter().collect()
}

/// Results for calls that the client did not execute in time.
pub(super) fn timeout_results(
    reply: &OpenReply,
    calls: &[&ToolCall],
    limit: Duration,
) -> Option<Event<'static>> {
    if calls.is_empty() {
        return None;
    }
    let result = |call: &&ToolCall| ToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        output: format!("The client sent no result within {limit:?}.").into(),
        state: ToolResultState::Interrupted,
        ..ToolResult::default()
    };
    let execution_results = calls.iter().map(result).collect();
    let nobody = Event::new("", UserInterrupt {});
    let mut event = answer_event(reply, &nobody, ExternalExecutionResult { execution_results });
    event.metadata = Fields::from_iter([("reason", "timeout")]);
    Some(event)
}

/// A denial of some calls by the server itself.
pub(super) fn denial<'m>(
    reply: &'m OpenReply,
    calls: impl Iterator<Item = &'m ToolCall>,
    reason: &str,
) -> Option<Event<'static>> {
    let confirm_results: Vec<_> = calls
        .map(|call| ConfirmResult {
            confirmed: false,
            tool_call: call.clone(),
            ..ConfirmResult::default()
        })
        .collect();
    if confirm_results.is_empty() {
        return None;
    }
    let nobody = Event::new("", UserInterrupt {});
    let mut event = answer_event(reply, &nobody, UserConfirmResult { confirm_results });
    event.metadata = Fields::from_iter([("reason", reason)]);
    Some(event)
}
