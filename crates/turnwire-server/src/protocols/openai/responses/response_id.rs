//! The id of a response: `resp_SESSION~REPLY`, or `resp_SESSION~REPLY~SEQ` for the part of a reply after tool
//! results, which are at that seq of the log.
//!
//! The id locates the response, so nothing has to be stored for it.

use super::delete::is_deleted;
use super::echo::request_fields;
use crate::app::App;
use crate::auth::{Caller, is_valid_id};
use crate::error::{ApiError, ApiResult};
use crate::turns::client_context::answered_message;
use std::fmt;
use std::sync::Arc;
use turnwire_agent::ClientContext;
use turnwire_core::{ContentBlock, Event, EventKind, Fields, Msg, Role, Seq, ToolResult};
use turnwire_log::Session;
use turnwire_log::store::EventLines;

/// The prefix of every id.
const PREFIX: &str = "resp_";

/// The id of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub session: String,
    pub reply: String,
    /// The seq of the tool results that it continues from.
    pub results: Option<Seq>,
}

/// An existing response.
pub(super) struct FoundResponse {
    pub session: Arc<Session>,
    pub id: ResponseId,
    /// The seq of the reply's first event.
    pub first: Seq,
    /// Whether the request asks for JSON.
    pub wants_json: bool,
    /// The fields of the request that the response repeats.
    pub request: Fields,
    /// Whether retention has kept all its events.
    pub is_kept: bool,
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}~{}", self.session, self.reply)?;
        self.results.map_or(Ok(()), |seq| write!(f, "~{seq}"))
    }
}

impl ResponseId {
    /// Parses an id.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(PREFIX)?.split('~');
        let (session, reply) = (parts.next()?, parts.next()?);
        let results = match parts.next() {
            Some(seq) => Some(Seq::new(seq.parse().ok()?)?),
            None => None,
        };
        let is_whole = parts.next().is_none() && is_valid_id(session) && !reply.is_empty();
        is_whole.then(|| Self { session: session.to_owned(), reply: reply.to_owned(), results })
    }

    /// Finds a response of a session that the caller may use.
    pub async fn find(text: &str, app: &App, caller: &Caller) -> ApiResult<Option<FoundResponse>> {
        let Some(name) = Self::parse(text) else { return Ok(None) };
        if !caller.0.reaches(&name.session) {
            return Ok(None);
        }
        let Some(session) = app.log.open_session(&caller.session_key(&name.session)?).await? else {
            return Ok(None);
        };
        let snapshot = session.snapshot().await?;
        let open = snapshot.open.iter().find(|reply| reply.msg().id() == name.reply);
        let (first, end, is_ours) = if let Some(reply) = open {
            (reply.first_seq(), snapshot.head, !reply.is_of_sub_agent())
        } else if let Some(stored) = session.find_message(&name.reply).await? {
            // A message that was stored whole is not a reply.
            let is_reply = stored.event_id.is_empty();
            (stored.first, stored.last.into(), is_reply && !stored.of_sub_agent)
        } else {
            return Ok(None);
        };
        if !is_ours || is_deleted(&session, &name.reply).await? {
            return Ok(None);
        }
        let mut results = Vec::new();
        if let Some(seq) = name.results {
            let is_inside = seq > first && end.includes(seq);
            let found = if is_inside { read_results(&session, seq).await? } else { None };
            let Some(found) = found else { return Ok(None) };
            results = found;
        }
        let context = request_context(&session, first, results).await?;
        Ok(Some(FoundResponse {
            is_kept: first >= snapshot.first,
            session,
            id: name,
            first,
            wants_json: context.answer_schema().is_some(),
            request: request_fields(&context)?,
        }))
    }
}

/// Whether an event has tool results of the client. The next response begins with it.
pub(super) fn is_tool_result(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::ExternalExecutionResult(_))
}

/// What the client sent along: with these results, or with the message that the reply answers.
async fn request_context(
    session: &Session,
    reply: Seq,
    results: Vec<ToolResult>,
) -> ApiResult<ClientContext> {
    let question = answered_message(session, reply).await?;
    let blocks: Vec<ContentBlock> = results.into_iter().map(Into::into).collect();
    let results = Msg::builder(Role::Assistant).content(blocks).build();
    let results = results.map_err(ApiError::internal)?;
    Ok(ClientContext::in_force(question.as_slice(), Some(&results)).0)
}

/// The tool results of the client at a seq, if they are there.
pub(super) async fn read_results(
    session: &Session,
    seq: Seq,
) -> ApiResult<Option<Vec<ToolResult>>> {
    let rows = session.read_events(seq, 1).await?;
    let found = rows.iter().flat_map(EventLines::iter).find(|(at, _)| *at == seq);
    let event = found.map(|(seq, line)| Session::parse_event(seq, line)).transpose()?;
    if let Some(EventKind::ExternalExecutionResult(results)) = event.map(|event| event.kind) {
        return Ok(Some(results.execution_results));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back() {
        for text in ["resp_s~r", "resp_a.b:c-d_e~r~17"] {
            assert_eq!(ResponseId::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "resp_",
            "resp_s",
            "resp_~r",
            "resp_s~",
            "s~r",
            "resp_s~r~0",
            "resp_s~r~x",
            "resp_s~r~1~2",
            "resp_s/..~r",
            "resp_s~r~",
            "resp_s~r~-1",
        ] {
            assert_eq!(ResponseId::parse(text), None, "{text}");
        }
    }
}
