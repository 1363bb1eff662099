//! `POST /v1/responses`: finds the session of a request, and stores what is new.

use super::request::{CreateRequest, invalid_request};
use super::response_id::{FoundResponse, ResponseId, is_tool_result};
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::links;
use crate::protocols::session_matching::{Candidate, find_waiting_sessions};
use crate::protocols::{self, require_agent, session_in_header};
use crate::turns::client_context;
use crate::turns::client_events;
use crate::turns::idempotency::{IdempotencyKey, derived_id, read_header};
use crate::turns::send::{SendRequest, send_all};
use http::{HeaderMap, Uri};
use std::sync::Arc;
use turnwire_core::event::ExternalExecutionResult;
use turnwire_core::{Event, Seq, ToolResult};
use turnwire_log::store::EventLines;
use turnwire_log::{PendingCalls, Session};

/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

/// A request that is being handled.
pub(super) struct Submission<'r> {
    pub app: &'r Arc<App>,
    pub caller: &'r Caller,
    pub uri: &'r Uri,
    pub headers: &'r HeaderMap,
    pub body: &'r [u8],
}

impl Submission<'_> {
    /// Stores what is new in the request, and returns its response.
    pub async fn submit(&self, asked: CreateRequest) -> ApiResult<FoundResponse> {
        let previous = self.find_previous(&asked).await?;
        let name = session_in_header(self.headers)?;
        let session = match (&previous, name) {
            (Some(previous), Some(name)) if previous.session.id() != name => {
                return Err(invalid_request(format!(
                    "the previous response belongs to the session {}, not to {name}",
                    previous.session.id()
                ))
                .hint("leave out either `previous_response_id` or the session header"));
            }
            (Some(previous), _) => Some(previous.session.clone()),
            (None, Some(name)) => {
                self.app.log.open_session(&self.caller.session_key(name)?).await?
            }
            (None, None) => None,
        };
        let session = session.map(|session| require_agent(session, &asked.model)).transpose()?;
        if asked.outputs().next().is_some()
            && let Some(found) =
                self.submit_results(&asked, session.as_ref(), previous.as_ref()).await?
        {
            return Ok(found);
        }
        self.send_messages(asked, session, name).await
    }

    /// The response that this one continues.
    async fn find_previous(&self, asked: &CreateRequest) -> ApiResult<Option<FoundResponse>> {
        let Some(id) = &asked.previous else { return Ok(None) };
        let found = ResponseId::find(id, self.app, self.caller).await?;
        found.map(Some).ok_or_else(|| {
            invalid_request(format!("Previous response with id '{id}' not found."))
                .kind("previous_response_not_found")
                .hint("its session may have been deleted")
        })
    }

    /// Sends user messages.
    async fn send_messages(
        &self,
        asked: CreateRequest,
        session: Option<Arc<Session>>,
        name: Option<&str>,
    ) -> ApiResult<FoundResponse> {
        let is_fresh = session.as_ref().is_none_or(|session| session.head_state().head == 0);
        let agent = asked.model.clone();
        let mut messages = asked.messages(is_fresh);
        if messages.is_empty() {
            return Err(invalid_request("`input` has nothing new to answer")
                .hint("end it with a user message, or with tool results"));
        }
        client_context::check_last_message(self.app, self.caller.tenant(), &messages).await?;
        let session = if let Some(session) = session {
            session
        } else {
            let name = match name {
                Some(name) => Some(name.to_owned()),
                None => self.session_of_key()?,
            };
            if name.is_none() {
                // A session with a random id is created only after its message is known to be valid.
                protocols::require_known_agent(self.app, &agent)?;
                messages = links::fetch_links(self.app, self.caller.tenant(), messages).await?;
            }
            protocols::open_or_create_session(self.app, self.caller, name.as_deref(), &agent)
                .await?
        };
        let once =
            IdempotencyKey::from_request(&session, self.caller, self.headers, self.uri, self.body)?;
        let asked_by = Some(&*self.caller.0.holder);
        let said = SendRequest {
            messages,
            idempotency_key: once.as_ref(),
            requester: asked_by,
            ..SendRequest::default()
        };
        let sent = send_all(self.app, &session, said).await?;
        let reply = sent.accepted().reply_id.clone();
        let reply = reply.ok_or_else(|| ApiError::internal("the message has no reply"))?;
        self.find_started(&session, reply, None).await
    }

    /// The session id of a request that names none but has a key, so that a repeated request finds
    /// it.
    fn session_of_key(&self) -> ApiResult<Option<String>> {
        let id = |key: &str| derived_id(self.caller, [self.uri.path().as_bytes(), key.as_bytes()]);
        Ok(read_header(self.headers)?.map(|key| format!("key-{}", id(key))))
    }

    /// A response that was just started.
    async fn find_started(
        &self,
        session: &Arc<Session>,
        reply: String,
        results: Option<Seq>,
    ) -> ApiResult<FoundResponse> {
        let name = ResponseId { session: session.id().to_owned(), reply, results };
        let found = ResponseId::find(&name.to_string(), self.app, self.caller).await?;
        found.ok_or_else(|| turnwire_log::Error::NoSession.into())
    }

    /// Submits the results of pending calls. `None`: all results are of earlier turns.
    async fn submit_results(
        &self,
        asked: &CreateRequest,
        session: Option<&Arc<Session>>,
        previous: Option<&FoundResponse>,
    ) -> ApiResult<Option<FoundResponse>> {
        let key = read_header(self.headers)?;
        let key = key.map(|key| derived_id(self.caller, [key.as_bytes(), self.body]));
        if let (Some(key), Some(previous)) = (&key, previous)
            && let Some(seq) = find_stored_results(previous, key).await?
        {
            let reply = previous.id.reply.clone();
            return self.find_started(&previous.session, reply, Some(seq)).await.map(Some);
        }
        let key = key.unwrap_or_default();
        if let Some(session) = session {
            let snapshot = session.snapshot().await?;
            return self.submit_results_in(asked, &key, (session.clone(), snapshot)).await;
        }
        let outputs = asked.outputs().filter(|output| output.is_new);
        let ids: Vec<&str> = outputs.map(|output| output.result.id.as_str()).collect();
        let Self { app, caller, .. } = self;
        for found in find_waiting_sessions(app, caller, &asked.model, &ids, &asked.claimed).await? {
            match self.submit_results_in(asked, &key, found).await {
                // Somebody was faster, and another conversation may be the same to its client.
                Err(late) if late.name() == "already_answered" => {}
                done => return done,
            }
        }
        // An error if a new result has no pending call.
        MatchedResults::new(asked, &[]).map(|_| None)
    }

    /// Submits the results to a session. `None`: all results are of earlier turns.
    async fn submit_results_in(
        &self,
        asked: &CreateRequest,
        key: &str,
        (session, snapshot): Candidate,
    ) -> ApiResult<Option<FoundResponse>> {
        let pending = snapshot.pending_calls();
        let answers = MatchedResults::new(asked, &pending)?;
        if answers.list.is_empty() {
            return Ok(None);
        }
        answers.check_complete(asked, &pending)?;
        let main = snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
        let main = main.map(|reply| reply.msg().id().to_owned());
        let main = main.ok_or_else(|| ApiError::internal("no open reply"))?;
        let events = answers.events(key);
        let taken = client_events::accept_events(self.app, &session, self.caller, &events).await?;
        let first = taken.last.saturating_add(1).saturating_sub(u64::from(taken.stored));
        self.find_started(&session, main, Seq::new(first)).await.map(Some)
    }
}

/// The reply that waits for the result of a call.
fn reply_waiting_for<'p>(pending: &'p [PendingCalls], call: &str) -> Option<&'p PendingCalls> {
    pending.iter().find(|pending| pending.external.iter().any(|waiting| waiting.id == call))
}

/// The results of pending calls, by reply.
struct MatchedResults {
    list: Vec<(String, Vec<ToolResult>)>,
}

impl MatchedResults {
    /// Matches results with pending calls; an error if a new result has none.
    fn new(asked: &CreateRequest, pending: &[PendingCalls]) -> ApiResult<Self> {
        let mut list: Vec<(String, Vec<ToolResult>)> = Vec::new();
        for output in asked.outputs() {
            let Some(pending) = reply_waiting_for(pending, &output.result.id) else {
                if output.is_new {
                    return Err(unexpected_result(&output.result.id));
                }
                continue;
            };
            let result = output.result.clone();
            match list.iter_mut().find(|(reply, _)| *reply == pending.reply_id) {
                Some((_, results)) => results.push(result),
                None => list.push((pending.reply_id.clone(), vec![result])),
            }
        }
        Ok(Self { list })
    }

    /// An error unless every pending call gets its result and nothing else is new.
    fn check_complete(&self, asked: &CreateRequest, pending: &[PendingCalls]) -> ApiResult<()> {
        if asked.has_new_user_input() {
            return Err(invalid_request(
                "tool results and user messages cannot be sent in one request; nothing was stored",
            )
            .hint("send the results first, and the user message after the response"));
        }
        let is_given = |id: &str| self.list.iter().flat_map(|(_, list)| list).any(|r| r.id == id);
        let mut calls = pending.iter().flat_map(|pending| &pending.external);
        calls.find(|call| !is_given(&call.id)).map_or(Ok(()), |call| {
            Err(invalid_request(format!("No tool output found for function call {}.", call.id))
                .hint("send the results of all calls of a response together"))
        })
    }

    fn events(self, id: &str) -> Vec<Event<'static>> {
        let event = |(reply, execution_results)| {
            let mut event = Event::new(reply, ExternalExecutionResult { execution_results });
            event.id = id.to_owned().into();
            event
        };
        self.list.into_iter().map(event).collect()
    }
}

fn unexpected_result(id: &str) -> ApiError {
    ApiError::conflict(format!(
        "no call {id:?} waits for a result: it does not exist or has one already; nothing was stored"
    ))
    .kind("already_answered")
    .hint("set `previous_response_id` to the response that has the call")
}

/// The seq at which results with this idempotency key are stored.
async fn find_stored_results(previous: &FoundResponse, key: &str) -> ApiResult<Option<Seq>> {
    let last = previous.session.head_state().head;
    let mut from = previous.first;
    while from.get() <= last {
        let rows = previous.session.read_events(from, CHUNK).await?;
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            let event = Session::parse_event(seq, line)?;
            if event.id == key && is_tool_result(&event) {
                return Ok(Some(seq));
            }
        }
        let Some(next) = rows.last().and_then(|rows| Seq::new(rows.last() + 1)) else { break };
        from = next;
    }
    Ok(None)
}
