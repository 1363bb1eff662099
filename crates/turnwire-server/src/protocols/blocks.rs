//! The content-block protocol: `GET /v2/sessions/{s}/history`, and its approval requests.
//!
//! The history is the conversation before the open turn: its `last_event_id` is the position before that turn,
//! so a client that subscribes from there gets the turn from its `message_start` on. A client of this protocol
//! cannot continue a block whose start it has not seen.

use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::Path;
use crate::turns::ceil_seconds;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use memchr::memmem;
use std::sync::Arc;
use turnwire_core::{EventKind, FinishedReason, Head, Msg, Role, Seq, ToolCall};
use turnwire_log::message_pages::MessagePages;
use turnwire_log::store::{EventLines, SessionStatus, Store, StoredMessage};
use turnwire_log::{OpenReply, Session, Snapshot};
use turnwire_wires::blocks::{
    self, APPROVAL_SECONDS, ApprovalDetails, ApprovalKey, History, HistoryEncoder, PendingApproval,
};

/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

/// `GET /v2/sessions/{s}/history`
pub async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let session = app.log.open_session(&caller.session_key(&id)?).await?;
    let session = session.ok_or(turnwire_log::Error::NoSession)?;
    let snapshot = session.snapshot().await?;
    let open_from = snapshot.open.iter().map(OpenReply::first_seq).min();
    let head = open_from.map_or(snapshot.head, Seq::previous);
    let pending_approval = find_pending_approval(&app, &session, &snapshot).await?;
    let stored = session.message_pages().without_sub_agents();
    let writing = HistoryWriter {
        stored: stored.before(head.next()),
        encoder: HistoryEncoder::default(),
        state: WriterState::Head,
        last_reason: None,
        pending_approval,
        session,
        snapshot,
        head,
    };
    // Streamed, so that only a few messages are in memory at a time.
    let body = stream::try_unfold(writing, HistoryWriter::next);
    Ok(([(CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response())
}

/// Writes a history.
struct HistoryWriter {
    session: Arc<Session>,
    snapshot: Snapshot,
    /// Only messages that ended up to here are written.
    head: Head,
    pending_approval: Option<PendingApproval>,
    stored: MessagePages<Arc<dyn Store>>,
    encoder: HistoryEncoder,
    state: WriterState,
    /// Why the last reply ended.
    last_reason: Option<FinishedReason>,
}

/// What is written next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    Head,
    Messages,
    End,
}

impl HistoryWriter {
    async fn next(mut self) -> ApiResult<Option<(String, Self)>> {
        let mut text = String::new();
        match self.state {
            WriterState::Head => {
                text.push_str(&self.history().split_around_messages().0);
                self.state = WriterState::Messages;
            }
            WriterState::Messages => {
                let stored = self.stored.next_page().await?;
                if stored.is_empty() {
                    text.push_str(&self.history().split_around_messages().1);
                    self.state = WriterState::End;
                } else {
                    self.write(&stored, &mut text)?;
                }
            }
            WriterState::End => return Ok(None),
        }
        Ok(Some((text, self)))
    }

    fn write(&mut self, stored: &[StoredMessage], text: &mut String) -> ApiResult<()> {
        let head = self.head;
        let counted =
            stored.iter().filter(|message| head.includes(message.last) && !message.superseded);
        for message in counted {
            let json = std::str::from_utf8(&message.json).map_err(ApiError::internal)?;
            let msg = Msg::from_json(json).map_err(ApiError::internal)?;
            if msg.role() == Role::Assistant {
                self.last_reason = msg.finished_reason().cloned();
            }
            let is_first = self.encoder.count() == 0;
            for (at, entry) in self.encoder.encode(&[msg]).iter().enumerate() {
                if !(is_first && at == 0) {
                    text.push(',');
                }
                text.push_str(entry.text());
            }
        }
        Ok(())
    }

    /// The fields around the messages.
    fn history(&self) -> History {
        History {
            status: status(&self.snapshot, self.last_reason.as_ref()),
            pending_approval: self.pending_approval.clone(),
            workspace: self.snapshot.metadata.raw("workspace").cloned(),
            agent_status: Some(status_name(self.snapshot.state.status).to_owned()),
            last_event_id: Some(self.session.resume_token(self.head)),
            ..History::from_encoder(self.session.id(), &self.encoder)
        }
    }
}

fn status_name(status: SessionStatus) -> &'static str {
    match status {
        SessionStatus::Idle => "idle",
        SessionStatus::Running => "running",
        SessionStatus::Waiting => "waiting",
    }
}

/// The state of the last turn.
fn status(snapshot: &Snapshot, last_reason: Option<&FinishedReason>) -> blocks::Status {
    if snapshot.pending_calls().iter().any(|pending| !pending.confirm.is_empty()) {
        return blocks::Status::WaitingApproval;
    }
    if snapshot.state.status != SessionStatus::Idle {
        return blocks::Status::Running;
    }
    match last_reason.unwrap_or(&FinishedReason::Completed) {
        FinishedReason::Interrupted => blocks::Status::Cancelled,
        FinishedReason::Error => blocks::Status::Error,
        FinishedReason::Completed
        | FinishedReason::ExceedMaxIters
        | FinishedReason::Length
        | FinishedReason::ToolCalls
        | FinishedReason::Refusal
        | FinishedReason::ContentFilter
        | FinishedReason::Truncated
        | FinishedReason::Other(_) => blocks::Status::Completed,
    }
}

/// The first pending approval, with its calls that are still pending.
async fn find_pending_approval(
    app: &App,
    session: &Arc<Session>,
    snapshot: &Snapshot,
) -> ApiResult<Option<PendingApproval>> {
    let asking = snapshot.pending_calls().into_iter().find(|pending| !pending.confirm.is_empty());
    let Some(asking) = asking else { return Ok(None) };
    let reply = snapshot.open.iter().find(|reply| reply.msg().id() == asking.reply_id);
    let from = reply.map_or(Seq::FIRST, OpenReply::first_seq);
    let Some(first) = asking.confirm.first() else { return Ok(None) };
    let Some((at, question)) = last_question(session, from, snapshot.head, &first.id).await? else {
        return Ok(None);
    };
    let is_asked = |call: &&ToolCall| question.calls.iter().any(|asked| asked.id == call.id);
    let timeout = question.timeout_seconds.unwrap_or_else(|| {
        app.turns.approval_timeout(session.agent()).map_or(APPROVAL_SECONDS, ceil_seconds)
    });
    Ok(Some(PendingApproval {
        approval_key: ApprovalKey { session_id: session.id().to_owned(), count: at.get() },
        reply_id: asking.reply_id,
        request: ApprovalDetails::new(asking.confirm.iter().filter(is_asked), timeout),
    }))
}

/// An approval request.
pub(crate) struct Question {
    /// The reply that waits.
    pub reply_id: String,
    /// The calls.
    pub calls: Vec<ToolCall>,
    /// How long the approval may take.
    timeout_seconds: Option<u64>,
}

/// The approval request with this seq, if there is one.
pub(crate) async fn find_question(session: &Session, seq: Option<Seq>) -> ApiResult<Question> {
    let unknown = || {
        ApiError::unprocessable("unknown `approval_key`; nothing was stored")
            .kind("unknown_approval")
            .hint("the block `approval_request` and the history have the key")
    };
    let head = session.head_state().head;
    let at = seq.filter(|seq| head.includes(*seq)).ok_or_else(unknown)?;
    let rows = match session.read_events(at, 1).await {
        Err(turnwire_log::Error::Trimmed(_)) => return Err(unknown()),
        rows => rows?,
    };
    let found = rows.iter().flat_map(EventLines::iter).find(|(seq, _)| *seq == at);
    let read = found.map(|(seq, line)| parse_question(seq, line)).transpose()?.flatten();
    read.ok_or_else(unknown)
}

fn parse_question(seq: Seq, line: &[u8]) -> ApiResult<Option<Question>> {
    let event = Session::parse_event(seq, line)?;
    let timeout_seconds = event.metadata.get::<u64>("timeout_seconds").ok().flatten();
    let EventKind::RequireUserConfirm(ask) = event.kind else { return Ok(None) };
    let reply_id = event.reply_id.into_owned();
    Ok(Some(Question { reply_id, calls: ask.tool_calls, timeout_seconds }))
}

/// The last approval request of a call, and its seq.
async fn last_question(
    session: &Session,
    from: Seq,
    to: Head,
    call: &str,
) -> ApiResult<Option<(Seq, Question)>> {
    let finder = memmem::Finder::new("REQUIRE_USER_CONFIRM");
    let (mut from, mut found) = (from, None);
    while to.includes(from) {
        let rows = session.read_events(from, CHUNK).await?;
        let Some(last) = rows.last().map(EventLines::last) else { break };
        let lines = rows.iter().flat_map(EventLines::iter);
        for (seq, line) in lines.take_while(|(seq, _)| to.includes(*seq)) {
            if finder.find(line).is_none() {
                continue;
            }
            let question = parse_question(seq, line)?;
            let question =
                question.filter(|question| question.calls.iter().any(|pending| pending.id == call));
            found = question.map(|question| (seq, question)).or(found);
        }
        from = last.next();
    }
    Ok(found)
}
