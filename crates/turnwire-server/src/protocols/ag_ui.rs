//! AG-UI: `POST /ag-ui/{agent}`, `GET /ag-ui/{agent}` (`join`) and `POST /ag-ui/{agent}/{thread}/stop`.
//!
//! A client sends its whole history with each request. What is new decides what the request does: new user messages
//! start a reply, answers continue one, and without either the client resumes and gets the current state. So a
//! repeated request does nothing twice.
//!
//! With `Last-Event-ID` a request stores nothing: it continues the response that the frame belongs to.

mod edits;
pub(crate) mod join;

use super::resume::{check_resumable, last_event_id};
use super::{
    add_ignored_header, follow_reply, open_or_create_session as open_or_make, require_agent,
    require_known_agent, sse_response,
};
use crate::app::App;
use crate::auth::{Action, Caller, is_valid_id};
use crate::error::{ApiError, ApiResult};
use crate::extract::{BodyBytes, Path, Query};
use crate::stream::{
    FrameId, PausePolicy, ReplyPosition, ReplyStreamOptions, ReplySubscriber, ResponseKey,
    sse_response_with,
};
use crate::turns::EXTERNAL;
use crate::turns::client_context;
use crate::turns::client_events;
use crate::turns::hints::is_hint_message;
use crate::turns::send::{SendRequest, is_blank, send_all};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::HashSet;
use std::sync::Arc;
use turnwire_agent::{ClientContext, ClientTool};
use turnwire_core::{Event, Fields, Json, Msg, Role, ToolCall};
use turnwire_log::{PendingCalls, Session, Snapshot};
use turnwire_wires::ag_ui::{ClientVersion, HistoryDifference, PendingReply, RunInput, RunOptions};
use turnwire_wires::{EncoderOptions, Frames, Wire, sse as lines};

/// How often a request is evaluated again after it lost a race.
const MAX_ATTEMPTS: usize = 3;

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct RunQuery {
    /// Whose history counts where the client has another one than the thread.
    #[serde(default)]
    history: HistoryOwner,
}

/// Whose history counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HistoryOwner {
    /// The thread's: a client that lacks messages gets them.
    #[default]
    Thread,
    /// The client's: messages that it lacks were edited or are to be answered again.
    Client,
}

/// A run: new messages, answers, or a resume.
pub async fn run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(agent): Path<String>,
    Query(query): Query<RunQuery>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> ApiResult<Response> {
    let text = std::str::from_utf8(&body)
        .map_err(|_| ApiError::bad_request("the body is not UTF-8").hint(EXAMPLE_INPUT))?;
    let input = RunInput::parse(text).map_err(|why| invalid_input(&why))?;
    let owner = query.history;
    let request = RunRequest { app: &app, caller: &caller, agent: &agent, input: &input, owner };
    if let Some(id) = last_event_id(&headers)? {
        return request.resume_after(&id).await;
    }
    let Some(session) = request.session().await? else { return request.empty_run() };
    let mut tries = 1;
    loop {
        let thread = ThreadState::load(&session, &request).await?;
        match request.handle(&session, &thread).await {
            // The same message or another answer was stored at the same time: evaluate again.
            Err(error) if lost_race(&error) && tries < MAX_ATTEMPTS => tries += 1,
            done => return done,
        }
    }
}

/// Stops the reply that runs in a thread. Its subscribers see the run end as cancelled.
pub async fn stop(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((agent, thread)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    let session = app.log.open_session(&caller.session_key(&thread)?).await?;
    let session = session.ok_or(turnwire_log::Error::NoSession)?;
    client_events::stop_reply(&app, &require_agent(session, &agent)?, &caller).await?;
    Ok(StatusCode::NO_CONTENT)
}

const EXAMPLE_INPUT: &str = "the shortest one is {\"threadId\": \"t\", \"runId\": \"r\", \"messages\": \
                        [{\"id\": \"m\", \"role\": \"user\", \"content\": \"hello\"}]}";

fn invalid_input(why: &turnwire_core::Error) -> ApiError {
    ApiError::unprocessable(format!("invalid RunAgentInput: {why}; nothing was stored"))
        .kind("not_a_run_input")
        .hint(EXAMPLE_INPUT)
}

/// Whether a request lost a race against another one.
fn lost_race(error: &ApiError) -> bool {
    matches!(error.name(), "message_exists" | "already_answered")
}

/// A request.
struct RunRequest<'a> {
    app: &'a Arc<App>,
    caller: &'a Caller,
    agent: &'a str,
    input: &'a RunInput,
    owner: HistoryOwner,
}

impl RunRequest<'_> {
    /// The thread's session. A request with a new message creates it; one that only looks does not.
    async fn session(&self) -> ApiResult<Option<Arc<Session>>> {
        let id = &self.input.thread_id;
        if let Some(session) = self.app.log.open_session(&self.caller.session_key(id)?).await? {
            return require_agent(session, self.agent).map(Some);
        }
        if self.new_messages(&HashSet::new())?.is_empty() {
            require_known_agent(self.app, self.agent)?;
            return Ok(None);
        }
        client_context::check_client_context(
            self.app,
            self.caller.tenant(),
            &client_context(self.input),
        )
        .await?;
        open_or_make(self.app, self.caller, Some(id), self.agent).await.map(Some)
    }

    /// The run of a thread without messages.
    fn empty_run(&self) -> ApiResult<Response> {
        let mut encoder = wire()?.encoder(&self.encoding(false)).map_err(ApiError::internal)?;
        let mut frames = Frames::default();
        encoder.resume(&[], &mut frames);
        let mut body = String::new();
        lines::write(&frames, None, &mut body);
        Ok(sse_response_with(body.into()))
    }

    /// The user's messages that are not stored yet, after checking them.
    fn new_messages(&self, known: &HashSet<String>) -> ApiResult<Vec<Msg>> {
        let new =
            self.input.new_messages(|id| known.contains(id)).map_err(|why| invalid_input(&why))?;
        let mut ids = HashSet::new();
        for msg in &new {
            if !is_valid_id(msg.id()) || !ids.insert(msg.id()) {
                return Err(ApiError::unprocessable(
                    "a new message needs a unique id: 1 to 128 characters of A-Z a-z 0-9 . _ : -; \
                     nothing was stored",
                )
                .hint("the id identifies the message when the request is repeated"));
            }
            if is_blank(msg) {
                return Err(ApiError::unprocessable(format!(
                    "the message {} is empty; nothing was stored",
                    msg.id()
                )));
            }
        }
        Ok(new)
    }

    async fn handle(&self, session: &Arc<Session>, thread: &ThreadState) -> ApiResult<Response> {
        let new = self.new_messages(&thread.known)?;
        if let Some(response) = self.apply_client_history(session, thread, &new).await? {
            return Ok(response);
        }
        let answers = self.input.answers(&thread.waiting()).map_err(|why| invalid_input(&why))?;
        if !new.is_empty() {
            if let Some(error) = self.busy_reason(thread) {
                return Err(error);
            }
            return self.send_messages(session, thread, new).await;
        }
        if !answers.events.is_empty() {
            return self.send_answers(session, thread, &answers.events).await;
        }
        self.resume(session, thread).await
    }

    /// Sends new messages: a reply starts.
    async fn send_messages(
        &self,
        session: &Arc<Session>,
        thread: &ThreadState,
        mut messages: Vec<Msg>,
    ) -> ApiResult<Response> {
        if let Some(last) = messages.pop() {
            messages.push(client_context(self.input).attach_to(last));
        }
        let outcome =
            send_all(self.app, session, SendRequest { messages, ..SendRequest::default() }).await;
        let sent = outcome.map_err(|error| match error.name() {
            "busy" => self.busy_error("a reply is running"),
            _ => error,
        })?;
        let accepted = sent.accepted();
        let begin = match (self.difference(thread), &accepted.reply_id) {
            (HistoryDifference::None, Some(_)) => ReplyPosition::Start,
            // The agent runs in another process: its reply is what it publishes from now on.
            (HistoryDifference::None, None) => ReplyPosition::After(session.head_state().head),
            _ => ReplyPosition::Snapshot,
        };
        // The new messages come after everything that the client does not have.
        self.stream_reply(session, accepted.reply_id.clone(), begin, HistoryDifference::Gaps).await
    }

    /// Submits answers: the reply continues.
    async fn send_answers(
        &self,
        session: &Arc<Session>,
        thread: &ThreadState,
        events: &[Event<'static>],
    ) -> ApiResult<Response> {
        let taken = client_events::accept_events(self.app, session, self.caller, events).await?;
        let cursor = taken.cursor_before();
        // The client has not seen events of other agents during the wait.
        let difference = self.difference(thread);
        let is_all = cursor == thread.snapshot.head && difference == HistoryDifference::None;
        let begin = if is_all || !self.caller.can(Action::Read) {
            ReplyPosition::After(cursor)
        } else {
            ReplyPosition::Snapshot
        };
        self.stream_reply(session, thread.open_reply(), begin, difference).await
    }

    /// Nothing new: the current state, then live events.
    async fn resume(&self, session: &Arc<Session>, thread: &ThreadState) -> ApiResult<Response> {
        self.caller.require(Action::Read)?;
        let reply = if session.agent() == EXTERNAL && thread.is_unanswered() {
            None
        } else {
            Some(thread.open_reply().or_else(|| thread.last_reply()).unwrap_or_default())
        };
        self.stream_reply(session, reply, ReplyPosition::Snapshot, self.difference(thread)).await
    }

    /// How the client's history differs from ours, if the caller may read it.
    fn difference(&self, thread: &ThreadState) -> HistoryDifference {
        if !self.caller.can(Action::Read) || self.owner == HistoryOwner::Client {
            return HistoryDifference::None;
        }
        if thread.has_superseded {
            return HistoryDifference::Gaps;
        }
        thread.difference
    }

    /// The run of a reply, or of the one that an external agent will publish.
    async fn stream_reply(
        &self,
        session: &Arc<Session>,
        reply_id: Option<String>,
        begin: ReplyPosition,
        difference: HistoryDifference,
    ) -> ApiResult<Response> {
        let pause = if reply_id.is_some() { PausePolicy::Any } else { PausePolicy::AwaitStart };
        let resets_client = difference == HistoryDifference::Gaps;
        let response = ResponseKey { reply_id: reply_id.unwrap_or_default(), begin, resets_client };
        let follow = self.follow(session, &response, pause).await?;
        Ok(self.respond(session, follow.numbered(&response)))
    }

    /// Continues a response after a frame that the client has.
    async fn resume_after(&self, id: &FrameId) -> ApiResult<Response> {
        self.caller.require(Action::Read)?;
        let key = self.caller.session_key(&self.input.thread_id)?;
        let session = self.app.log.open_session(&key).await?;
        let session = require_agent(session.ok_or(turnwire_log::Error::NoSession)?, self.agent)?;
        check_resumable(&session, &id.response, id.paused_at).await?;
        let pause = match id.response.reply_id.as_str() {
            "" => PausePolicy::AwaitStart,
            _ => PausePolicy::Any,
        };
        let follow = self.follow(&session, &id.response, pause).await?;
        Ok(self.respond(&session, follow.resume_after(id)))
    }

    /// The response, with a header that names the options that the agent ignores.
    fn respond(&self, session: &Session, follow: ReplySubscriber) -> Response {
        let messages = self.input.history().unwrap_or_default();
        let context = client_context(self.input);
        let ignored = client_context::check_options(self.app, session.agent(), &context, &messages);
        let mut response = sse_response(self.app, follow);
        add_ignored_header(&mut response, &ignored.unwrap_or_default());
        response
    }

    async fn follow(
        &self,
        session: &Arc<Session>,
        response: &ResponseKey,
        pause: PausePolicy,
    ) -> ApiResult<ReplySubscriber> {
        let options = ReplyStreamOptions {
            wire: wire()?,
            encoding: self.encoding(response.resets_client),
            reply_id: response.reply_id.clone(),
            begin: response.begin,
            pause,
            expires_at: self.caller.expires_at(),
        };
        follow_reply(self.app, session, options).await
    }

    fn encoding(&self, resets_client: bool) -> EncoderOptions {
        let session_id = Some(self.input.thread_id.clone());
        let run_id = Some(self.input.run_id.clone());
        let version = match self.input.protocol_version {
            Some(_) => ClientVersion::V1,
            None => ClientVersion::Before1,
        };
        EncoderOptions { session_id, ..EncoderOptions::default() }.with(RunOptions {
            run_id,
            resets_client,
            version,
        })
    }

    /// Why no message can be sent now.
    fn busy_reason(&self, thread: &ThreadState) -> Option<ApiError> {
        if thread.snapshot.open.is_empty() && thread.snapshot.queue.is_empty() {
            return None;
        }
        let ids = |calls: fn(&PendingCalls) -> &Vec<ToolCall>| -> String {
            let all = thread.pending.iter().flat_map(calls);
            all.map(|call| call.id.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (interrupts, results) = (ids(|calls| &calls.confirm), ids(|calls| &calls.external));
        Some(if !interrupts.is_empty() {
            self.busy_error(&format!("interrupts are pending ({interrupts})"))
                .kind("unanswered")
                .hint("answer all of them with `resume` first, or stop the reply")
        } else if !results.is_empty() {
            self.busy_error(&format!("tool results are pending ({results})"))
                .kind("unanswered")
                .hint("send the tool messages first, without a new user message, or stop the reply")
        } else if thread.snapshot.open.is_empty() {
            self.busy_error("messages are queued")
        } else {
            self.busy_error("a reply is running")
        })
    }

    fn busy_error(&self, what: &str) -> ApiError {
        ApiError::conflict(format!("{what}; nothing was stored")).kind("busy").hint(format!(
            "the same request without the new message follows the reply; \
             POST /ag-ui/{}/{}/stop stops it",
            self.agent, self.input.thread_id
        ))
    }
}

fn wire() -> ApiResult<&'static Wire> {
    Wire::named("ag-ui").ok_or_else(|| ApiError::internal("the wire ag-ui is missing"))
}

/// The state of a thread, as far as a request needs it. Its memory grows with the request, not with the
/// conversation.
struct ThreadState {
    snapshot: Snapshot,
    /// The pending calls.
    pending: Vec<PendingCalls>,
    /// Which of the client's messages are stored.
    known: HashSet<String>,
    /// Whether the client has a reply that a retry replaced.
    has_superseded: bool,
    /// How the client's history differs from the conversation.
    difference: HistoryDifference,
    /// The last message of the assistant.
    last_reply: Option<String>,
    /// The role of the last message.
    last_role: Option<Role>,
    /// The first user message after those that the client has.
    left_out: Option<String>,
}

impl ThreadState {
    async fn load(session: &Arc<Session>, request: &RunRequest<'_>) -> ApiResult<Self> {
        let snapshot = session.snapshot().await?;
        let (ids, replies) = (request.input.message_ids(), request.input.reply_ids());
        let mut thread = Self {
            pending: snapshot.pending_calls(),
            known: HashSet::new(),
            has_superseded: false,
            difference: HistoryDifference::None,
            last_reply: None,
            last_role: None,
            left_out: None,
            snapshot,
        };
        thread.known.extend(thread.snapshot.queue.iter().map(|queued| queued.id.clone()));
        let open = thread.snapshot.open.iter().map(|reply| reply.msg().id().to_owned());
        thread.known.extend(open);
        let mut comparison = request.input.comparison();
        let mut walk = session.message_pages().without_sub_agents();
        loop {
            let stored = walk.next_page().await?;
            if stored.is_empty() {
                break;
            }
            for stored in stored {
                if stored.superseded {
                    thread.has_superseded |= replies.contains(&stored.id);
                } else if thread.snapshot.head.includes(stored.last) {
                    let text = std::str::from_utf8(&stored.json).map_err(ApiError::internal)?;
                    let msg = Msg::from_json(text).map_err(ApiError::internal)?;
                    thread.track_last(&msg);
                    thread.track_left_out(&msg, &ids);
                    comparison.add(&msg);
                }
                // What was stored after the snapshot is not known yet: sending it again fails, and the request is
                // evaluated again with the reply to it.
                if thread.snapshot.head.includes(stored.last) && ids.contains(&stored.id) {
                    thread.known.insert(stored.id);
                }
            }
        }
        let open: Vec<Msg> = thread
            .snapshot
            .open
            .iter()
            .filter(|reply| !reply.is_of_sub_agent())
            .map(|reply| reply.msg().clone())
            .collect();
        for msg in &open {
            thread.track_last(msg);
            comparison.add(msg);
        }
        thread.difference = comparison.difference();
        Ok(thread)
    }

    /// Tracks the last message and the last reply.
    fn track_last(&mut self, msg: &Msg) {
        self.last_role = Some(msg.role());
        if msg.role() == Role::Assistant {
            self.last_reply = Some(msg.id().to_owned());
        }
    }

    /// Tracks what the client lacks at the end.
    fn track_left_out(&mut self, msg: &Msg, ids: &HashSet<String>) {
        if msg.role() != Role::User || is_hint_message(msg) {
            return;
        }
        if ids.contains(msg.id()) {
            self.left_out = None;
        } else {
            self.left_out.get_or_insert_with(|| msg.id().to_owned());
        }
    }

    /// The pending calls, to match answers with.
    fn waiting(&self) -> Vec<PendingReply<'_>> {
        let waiting = self.pending.iter().map(|pending| {
            let reply = self.snapshot.open.iter().find(|open| open.msg().id() == pending.reply_id);
            PendingReply {
                reply_id: &pending.reply_id,
                agent: reply.and_then(|reply| reply.agent()),
                confirm: &pending.confirm,
                external: &pending.external,
            }
        });
        waiting.collect()
    }

    /// The open reply: the agent's own before those of sub-agents.
    fn open_reply(&self) -> Option<String> {
        let own = self.snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
        own.or(self.snapshot.open.first()).map(|reply| reply.msg().id().to_owned())
    }

    /// Whether a reply runs, and does not wait.
    fn is_running(&self) -> bool {
        !self.snapshot.open.is_empty() && self.pending.is_empty()
    }

    /// The last reply that has ended.
    fn last_reply(&self) -> Option<String> {
        self.last_reply.clone()
    }

    /// Whether the last message is the user's.
    fn is_unanswered(&self) -> bool {
        self.last_role == Some(Role::User)
    }
}

/// The tools and context that the client sends along.
fn client_context(input: &RunInput) -> ClientContext {
    let tools = input.tools.iter().map(|tool| ClientTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input: Some(tool.input_schema.clone()),
        ..ClientTool::default()
    });
    let context: Vec<String> = input
        .context
        .iter()
        .map(|context| format!("{}:\n{}", context.description, context.value))
        .collect();
    let mut extra = Fields::default();
    for (key, value) in [("state", &input.state), ("forwardedProps", &input.forwarded_props)] {
        extra.insert_some(key, value.as_ref().filter(|value| is_not_empty(value)).cloned());
    }
    ClientContext {
        tools: tools.collect(),
        instructions: Some(context.join("\n\n")).filter(|text| !text.is_empty()),
        wire: if extra.is_empty() { String::new() } else { "ag-ui".to_owned() },
        extra,
        ..ClientContext::default()
    }
}

/// A client that has no state sends an empty one.
fn is_not_empty(json: &Json) -> bool {
    !matches!(json.text(), "null" | "{}" | "[]" | "\"\"")
}
