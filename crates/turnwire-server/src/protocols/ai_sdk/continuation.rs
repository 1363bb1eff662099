//! A client continues a message that waited for its answers.
//!
//! The client has the message up to the pending calls and appends what it receives. So the response begins
//! where the first of its calls was answered, by this client or by another one.

use super::{ChatContext, busy_error, invalid_request, nothing_new, open_reply};
use crate::auth::Action;
use crate::error::{ApiError, ApiResult};
use crate::stream::ReplyPosition;
use crate::turns::client_events;
use axum::response::Response;
use turnwire_core::{Event, EventKind, Head, Seq, event_kinds};
use turnwire_log::Session;
use turnwire_log::store::EventLines;
use turnwire_wires::ai_sdk::{ChatRequest, ContinuedMessage, PendingReply};

/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

impl ChatContext<'_> {
    /// Submits the client's answers and streams the rest of the reply. Calls that others have answered in the
    /// meantime keep those answers.
    pub(super) async fn continue_reply(
        &self,
        request: &ChatRequest,
        continued: &ContinuedMessage,
    ) -> ApiResult<Response> {
        let snapshot = self.session.snapshot().await?;
        let Some(reply) = open_reply(&snapshot) else {
            return Err(self.no_open_reply_error(continued).await?);
        };
        let (id, first) = (reply.msg().id().to_owned(), reply.first_seq());
        if id != continued.id {
            // The client would append the events to another message.
            return Err(busy_error());
        }
        let waiting = snapshot.pending_calls();
        let pending: Vec<PendingReply<'_>> = waiting
            .iter()
            .map(|one| PendingReply {
                reply_id: &one.reply_id,
                confirm: &one.confirm,
                external: &one.external,
            })
            .collect();
        let events = request.answers(&pending).map_err(invalid_request)?;
        let mut taken = None;
        if !events.is_empty() {
            match client_events::accept_events(self.app, &self.session, self.caller, &events).await
            {
                Ok(done) => taken = Some(done.cursor_before()),
                // At the same time.
                Err(error) if error.name() == "already_answered" => {}
                Err(error) => return Err(error),
            }
        }
        let is_pending = |call: &String| {
            let mut calls = waiting.iter().flat_map(|one| one.confirm.iter().chain(&one.external));
            calls.any(|waits| waits.id == *call)
        };
        let cursor = match taken {
            // Without `read` the caller sees only what follows its own answers.
            Some(cursor) if !self.caller.can(Action::Read) => Some(cursor),
            Some(cursor) if continued.calls.iter().all(is_pending) => Some(cursor),
            // Others have answered some of them before.
            Some(cursor) => {
                let earlier = cursor_before_answer(&self.session, first, &continued.calls).await?;
                Some(earlier.map_or(cursor, |earlier| earlier.min(cursor)))
            }
            None => {
                self.caller.require(Action::Read)?;
                cursor_before_answer(&self.session, first, &continued.calls).await?
            }
        };
        match cursor {
            Some(cursor) => self.stream_reply(id, ReplyPosition::After(cursor)).await,
            None => Err(no_answers_error(!waiting.is_empty())),
        }
    }

    /// The error if no reply is open.
    async fn no_open_reply_error(&self, continued: &ContinuedMessage) -> ApiResult<ApiError> {
        let is_known = self.session.find_message(&continued.id).await?.is_some();
        if !is_known || continued.calls.is_empty() {
            return Ok(nothing_new());
        }
        Ok(ApiError::conflict(format!(
            "the reply {} has ended and waits for no answer; nothing was stored",
            continued.id
        ))
        .kind("already_answered")
        .hint("load the messages again: GET /v1/sessions/{s}/messages?wire=ai-sdk"))
    }
}

fn no_answers_error(waits: bool) -> ApiError {
    let error = if waits {
        ApiError::unprocessable("the reply has pending calls, and the request answers none of them")
            .hint("the part of the call must have the state approval-responded, output-available or output-error")
    } else {
        ApiError::conflict("the reply is running, and the request has nothing new")
            .hint("GET /ai-sdk/{agent}/{chat}/stream (resumeStream) streams the reply")
    };
    error.kind("nothing_new")
}

/// The position before the first answer to one of these calls.
async fn cursor_before_answer(
    session: &Session,
    first: Seq,
    calls: &[String],
) -> ApiResult<Option<Head>> {
    let (mut from, head) = (first, session.head_state().head);
    while head.includes(from) {
        let rows = session.read_events(from, CHUNK).await?;
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            if is_answer(&Session::parse_event(seq, line)?, calls) {
                return Ok(Some(seq.previous()));
            }
        }
        let Some(last) = rows.last().map(EventLines::last) else { break };
        from = last.next();
    }
    Ok(None)
}

fn is_answer(event: &Event<'_>, calls: &[String]) -> bool {
    let is_one = |id: &str| calls.iter().any(|call| call == id);
    match &event.kind {
        EventKind::UserConfirmResult(answer) => {
            answer.confirm_results.iter().any(|one| is_one(&one.tool_call.id))
        }
        EventKind::ExternalExecutionResult(answer) => {
            answer.execution_results.iter().any(|one| is_one(&one.id))
        }
        event_kinds!(
            RequireUserConfirm RequireExternalExecution reply model_call content tool notice session
        ) => false,
    }
}
