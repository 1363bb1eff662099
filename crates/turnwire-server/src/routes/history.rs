//! `GET /v1/sessions/{s}/messages`: the history, with the token to watch from; and one message at any event.

use super::request;
use super::view::{self, PendingView};
use crate::Caller;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use axum::extract::State;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use turnwire_core::event::SubAgent;
use turnwire_core::{Fields, FoldCursor, Head, Msg, Seq};
use turnwire_log::store::{MessageQuery, SessionStatus, StoredMessage};
use turnwire_log::{Error, Session, Snapshot};
use turnwire_wires::Wire;

/// The default and the largest page.
const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: usize = 500;
/// A page ends early when its messages exceed this size.
const PAGE_BYTES: usize = 16 << 20;
/// How many messages are read at a time, and how many bytes of them.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 1 << 20;
/// How many messages are scanned for one page: superseded ones are skipped.
const MAX_SCANNED: usize = 10_000;

/// The query of `GET …/messages`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListMessagesQuery {
    /// Only messages before the one with this id.
    before: Option<String>,
    /// The size of the page: by default 50, at most 500.
    limit: Option<usize>,
    /// `all`: also messages of sub-agents.
    agents: Option<AgentFilter>,
    /// Also messages that a retry has replaced.
    #[serde(default)]
    superseded: bool,
    /// The wire in whose form the messages are returned; `turnwire` by default.
    wire: Option<String>,
}

/// Which agents' messages to list.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AgentFilter {
    /// Also messages of sub-agents.
    All,
}

/// The fields of a page beside its messages.
#[derive(Serialize, JsonSchema)]
struct PageInfo {
    cursors: BTreeMap<String, FoldCursor>,
    /// The agents of sub-agents' messages, by message id.
    agents: BTreeMap<String, SubAgentView>,
    last_event_id: String,
    status: SessionStatus,
    pending: Vec<PendingView>,
    has_more: bool,
    next_before: Option<String>,
}

/// A message in a page.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ListedMessage {
    /// A message.
    Msg(Box<Msg>),
    /// With `wire=`: a message in that protocol's form.
    OtherWire(Fields),
}

/// One page of messages.
#[derive(JsonSchema)]
pub struct MessagePage {
    /// Oldest first. With `wire=` they have that protocol's form.
    #[expect(dead_code, reason = "the messages are written as they are stored")]
    messages: Vec<ListedMessage>,
    #[serde(flatten)]
    #[expect(dead_code, reason = "only the schema of the page is used")]
    info: PageInfo,
}

/// The sub-agent that wrote a message, and the tool call that it works for.
#[derive(Serialize, JsonSchema)]
struct SubAgentView {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_tool_call_id: Option<String>,
}

impl From<SubAgent> for SubAgentView {
    fn from(SubAgent { agent_path, parent_tool_call_id }: SubAgent) -> Self {
        Self { agent_path, parent_tool_call_id }
    }
}

/// `GET /v1/sessions/{s}/messages`
pub async fn list_messages(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(listed): Query<ListMessagesQuery>,
) -> ApiResult<impl IntoResponse> {
    let wire =
        listed.wire.as_deref().filter(|name| *name != "turnwire").map(message_wire).transpose()?;
    let session = request::find_session(&app, &caller, &id).await?;
    let snapshot = session.snapshot().await?;
    let sub_agents = matches!(listed.agents, Some(AgentFilter::All));
    let before = match &listed.before {
        Some(id) => Some(first_seq(&session, &snapshot, id).await?),
        None => None,
    };
    let wanted = PageQuery {
        limit: listed.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE),
        before,
        sub_agents,
        superseded: listed.superseded,
        head: snapshot.head,
    };
    let (finished, next_before) = wanted.find_page(&session).await?;
    let has_more = next_before.is_some();
    let mut agents: BTreeMap<String, SubAgentView> = BTreeMap::new();
    for message in finished.iter().filter(|message| message.of_sub_agent) {
        let agent = session.sub_agent_of(message).await?;
        agents.extend(agent.map(|agent| (message.id.clone(), agent.into())));
    }
    let mut messages: Vec<(Seq, Bytes)> =
        finished.into_iter().map(|message| (message.first, message.json)).collect();
    let mut cursors = BTreeMap::new();
    // Open replies belong to the latest page, wherever they began: a client that loads it and watches from
    // its token misses nothing.
    if listed.before.is_none() {
        for reply in snapshot.open.iter().filter(|reply| sub_agents || !reply.is_of_sub_agent()) {
            messages.push((reply.first_seq(), reply.msg().to_json().into()));
            let id = reply.msg().id();
            cursors.insert(id.to_owned(), reply.cursor());
            let agent = reply.agent().filter(|_| reply.is_of_sub_agent());
            agents.extend(agent.map(|agent| (id.to_owned(), agent.clone().into())));
        }
    }
    messages.sort_by_key(|(first, _)| *first);
    let messages = messages.into_iter().map(|(_, json)| json).collect();
    let messages = match wire {
        Some(wire) => encode_for_wire(wire, messages)?,
        None => messages,
    };
    let around = PageInfo {
        cursors,
        agents,
        last_event_id: session.resume_token(snapshot.head),
        status: snapshot.state.status,
        pending: view::pending_views(&app, session.agent(), &snapshot),
        has_more,
        next_before,
    };
    Ok(([(CONTENT_TYPE, "application/json")], write_page(&messages, &around)?))
}

/// A wire that has messages.
fn message_wire(name: &str) -> ApiResult<&'static Wire> {
    Wire::named(name).filter(|wire| wire.has_messages()).ok_or_else(|| {
        let names: Vec<&str> =
            Wire::all().filter(|wire| wire.has_messages()).map(|wire| wire.name).collect();
        ApiError::bad_request("unknown `wire`, or it has no messages")
            .kind("unknown_wire")
            .hint(format!("`wire` is one of {}", names.join(", ")))
    })
}

/// Messages in the form of another wire; one message may become several.
fn encode_for_wire(wire: &Wire, messages: Vec<Bytes>) -> ApiResult<Vec<Bytes>> {
    let read = |json: Bytes| {
        let text = std::str::from_utf8(&json).map_err(ApiError::internal)?;
        Msg::from_json(text).map_err(ApiError::internal)
    };
    let messages: Vec<Msg> = messages.into_iter().map(read).collect::<ApiResult<_>>()?;
    let theirs = wire.encode_messages(&messages).map_err(ApiError::internal)?;
    Ok(theirs.iter().map(|json| Bytes::copy_from_slice(json.text().as_bytes())).collect())
}

/// Writes a page with messages that are JSON already.
fn write_page(messages: &[Bytes], around: &PageInfo) -> ApiResult<Vec<u8>> {
    let around = serde_json::to_string(around).map_err(ApiError::internal)?;
    let size: usize = messages.iter().map(|json| json.len() + 1).sum();
    let mut body = Vec::with_capacity(size + around.len() + 16);
    body.extend_from_slice(b"{\"messages\":[");
    for (at, json) in messages.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(json);
    }
    body.extend_from_slice(b"],");
    body.extend_from_slice(around.strip_prefix('{').unwrap_or(&around).as_bytes());
    Ok(body)
}

/// The first seq of a message.
async fn first_seq(session: &Session, snapshot: &Snapshot, id: &str) -> ApiResult<Seq> {
    if let Some(reply) = snapshot.open.iter().find(|reply| reply.msg().id() == id) {
        return Ok(reply.first_seq());
    }
    match session.find_message(id).await? {
        Some(message) => Ok(message.first),
        None => Err(no_such_message(id)),
    }
}

fn no_such_message(id: &str) -> ApiError {
    let id: String = id.chars().take(128).collect();
    ApiError::not_found(format!("this session has no message {id}"))
        .hint("GET /v1/sessions/{s}/messages lists them")
}

/// Which finished messages a page has.
struct PageQuery {
    limit: usize,
    before: Option<Seq>,
    sub_agents: bool,
    superseded: bool,
    /// The head of the snapshot: a message that ended after it is still open in this page.
    head: Head,
}

impl PageQuery {
    fn includes(&self, message: &StoredMessage) -> bool {
        self.head.includes(message.last) && (self.superseded || !message.superseded)
    }

    /// The last of them in order, and the `before` of the next page, if there may be one.
    async fn find_page(
        &self,
        session: &Session,
    ) -> ApiResult<(Vec<StoredMessage>, Option<String>)> {
        let mut found: Vec<StoredMessage> = Vec::new();
        let (mut before, mut bytes, mut looked_at) = (self.before, 0, 0);
        let next = loop {
            let query = MessageQuery {
                before,
                limit: BATCH.min(self.limit + 1),
                max_bytes: Some(BATCH_BYTES),
                sub_agents: self.sub_agents,
                ..MessageQuery::default()
            };
            let read = session.list_messages(&query).await?;
            let Some(first) = read.first() else { break None };
            before = Some(first.first);
            looked_at += read.len();
            let earliest = first.id.clone();
            let mut fitting = read.into_iter().rev().filter(|message| self.includes(message));
            let is_full = fitting.any(|message| {
                let is_full = found.len() == self.limit || bytes > PAGE_BYTES;
                if !is_full {
                    bytes += message.json.len();
                    found.push(message);
                }
                is_full
            });
            if is_full {
                break found.last().map(|message| message.id.clone());
            }
            if looked_at >= MAX_SCANNED {
                break Some(earliest);
            }
        };
        found.reverse();
        Ok((found, next))
    }
}

/// The query of `GET …/messages/{id}`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetMessageQuery {
    /// The message as it was at this event: a seq or a resume token.
    at: Option<String>,
}

/// `GET /v1/sessions/{s}/messages/{id}`
pub async fn get_message(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((session, id)): Path<(String, String)>,
    Query(when): Query<GetMessageQuery>,
) -> ApiResult<impl IntoResponse> {
    let session = request::find_session(&app, &caller, &session).await?;
    let snapshot = session.snapshot().await?;
    let at = match &when.at {
        Some(text) => request::parse_position(&session, snapshot.head, text)?,
        None => snapshot.head,
    };
    let json = message_at(&session, &snapshot, &id, at).await?;
    Ok(([(CONTENT_TYPE, "application/json")], json))
}

async fn message_at(
    session: &Arc<Session>,
    snapshot: &Snapshot,
    id: &str,
    at: Head,
) -> ApiResult<Bytes> {
    let first = first_seq(session, snapshot, id).await?;
    let not_begun = || {
        ApiError::not_found(format!("this message did not exist at {at}; it begins at {first}"))
            .kind("not_begun")
    };
    let open = || snapshot.open.iter().find(|reply| reply.msg().id() == id);
    if at >= snapshot.head
        && let Some(reply) = open()
    {
        return Ok(reply.msg().to_json().into());
    }
    if !at.includes(first) {
        return Err(not_begun());
    }
    let kept = session.first_seq().await?;
    if !at.includes(kept) && at < snapshot.head {
        return Err(Error::Trimmed(kept).into());
    }
    match session.find_message(id).await? {
        Some(message) if at.includes(message.last) => Ok(message.json),
        _ => {
            let at = at.seq().ok_or_else(not_begun)?;
            let message = session.message_at(id, at).await?.ok_or_else(not_begun)?;
            Ok(message.to_json().into())
        }
    }
}
