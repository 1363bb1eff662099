//! Sessions as clients see them: the JSON of a session and its pending calls.

use crate::app::App;
use crate::auth::{Action, Caller};
use crate::error::{ApiError, ApiResult};
use crate::turns::client_events::first_deadline;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use turnwire_core::{ContentBlock, Fields, Head, Msg, ToolCall, Usage};
use turnwire_log::log::now_ms;
use turnwire_log::store::{
    QueuedMessage, SessionOutcome, SessionRecord, SessionState, SessionStatus,
};
use turnwire_log::{Cost, PendingCalls, Session, Snapshot};

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionView {
    id: String,
    agent: String,
    title: Option<String>,
    status: SessionStatus,
    /// How its last reply ended, unless it ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<SessionOutcome>,
    epoch: String,
    #[schemars(with = "u64")]
    last_seq: Head,
    last_event_id: String,
    pending: Vec<PendingView>,
    queued: Vec<QueuedView>,
    usage: Usage,
    /// Costs, each call by the prices of its time. Missing if no prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    created_at: String,
    /// When it last changed; lists are sorted by it.
    updated_at: String,
    metadata: Fields,
}

/// The pending calls of a reply.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PendingView {
    reply_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_path: Option<String>,
    confirm: Vec<ToolCall>,
    external: Vec<ToolCall>,
    since: String,
    /// When the first of them expires.
    expires_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct QueuedView {
    message_id: String,
    reply_id: String,
    /// The content of the message.
    content: Vec<ContentBlock>,
}

/// The content of a queued message; empty if it cannot be read.
fn queued_content(json: &[u8]) -> Vec<ContentBlock> {
    let msg = std::str::from_utf8(json).ok().and_then(|text| Msg::from_json(text).ok());
    msg.map_or_else(Vec::new, |msg| msg.content().to_vec())
}

impl SessionView {
    /// A stored session. For a waiting session the log is read. For a session in use the record may be ahead of
    /// what subscribers have seen, so its snapshot is used.
    pub async fn from_record(app: &App, record: SessionRecord) -> ApiResult<Self> {
        let held =
            app.log.loaded_session(&record.key).filter(|held| held.number() == record.number);
        let session = match held {
            None if record.state.status == SessionStatus::Waiting => {
                let session = app.log.open_session(&record.key).await?;
                Some(session.ok_or(turnwire_log::Error::NoSession)?)
            }
            held => held,
        };
        if let Some(session) = session {
            let view = Self::from_snapshot(app, &session, session.snapshot().await?);
            return Ok(Self { updated_at: iso8601(record.updated_ms), ..view });
        }
        let queued = app.log.store().list_queued(record.number);
        let queue = app.log.read_fairly(&record.key.tenant, queued).await?;
        let SessionRecord { key, epoch, agent, title, metadata, head, state, .. } = record;
        let (created_ms, updated_ms) = (record.created_ms, record.updated_ms);
        let about =
            SessionFacts { id: &key.id, epoch: &epoch, agent: &agent, created_ms, updated_ms };
        Ok(Self::new(&about, head, state, title, metadata, Vec::new(), &queue))
    }

    /// A session at a snapshot; `updated_at` is the current time.
    pub fn from_snapshot(app: &App, session: &Session, snapshot: Snapshot) -> Self {
        let about = SessionFacts {
            id: session.id(),
            epoch: session.epoch(),
            agent: session.agent(),
            created_ms: session.created_ms(),
            updated_ms: now_ms(),
        };
        let waiting = pending_views(app, session.agent(), &snapshot);
        let Snapshot { head, state, queue, title, metadata, .. } = snapshot;
        Self::new(&about, head, state, title, metadata, waiting, &queue)
    }

    fn new(
        about: &SessionFacts<'_>,
        head: Head,
        state: SessionState,
        title: String,
        metadata: Fields,
        pending: Vec<PendingView>,
        queue: &[QueuedMessage],
    ) -> Self {
        let queued = queue.iter().map(|queued| QueuedView {
            message_id: queued.id.clone(),
            reply_id: queued.reply_id.clone(),
            content: queued_content(&queued.json),
        });
        Self {
            id: about.id.to_owned(),
            agent: about.agent.to_owned(),
            title: Some(title).filter(|title| !title.is_empty()),
            status: state.status,
            outcome: state.outcome,
            epoch: about.epoch.to_owned(),
            last_seq: head,
            last_event_id: format!("{}.{head}", about.epoch),
            pending,
            queued: queued.collect(),
            cost: state.cost.map(Cost::amount),
            usage: state.usage,
            created_at: iso8601(about.created_ms),
            updated_at: iso8601(about.updated_ms),
            metadata,
        }
    }
}

/// A session in the response to a writing request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SessionResponse {
    /// The whole session.
    Whole(Box<SessionView>),
    /// For callers without the scope `read`.
    IdOnly {
        /// The session.
        id: Arc<str>,
        /// Its agent.
        agent: String,
    },
}

impl SessionResponse {
    /// A session as far as the caller may read it.
    pub async fn for_caller(caller: &Caller, app: &App, record: SessionRecord) -> ApiResult<Self> {
        if caller.can(Action::Read) {
            return Ok(Self::Whole(SessionView::from_record(app, record).await?.into()));
        }
        Ok(Self::IdOnly { id: record.key.id, agent: record.agent })
    }
}

/// Properties of a session that are not in its events.
struct SessionFacts<'a> {
    id: &'a str,
    epoch: &'a str,
    agent: &'a str,
    created_ms: i64,
    updated_ms: i64,
}

/// The pending calls of a session.
pub fn pending_views(app: &App, agent: &str, snapshot: &Snapshot) -> Vec<PendingView> {
    // Producers have their own deadlines.
    let is_here = !snapshot.state.is_produced;
    let limits = app.turns.wait_limits(agent).filter(|_| is_here);
    let views = snapshot.open.iter().filter_map(|reply| {
        let PendingCalls { reply_id, agent_path, confirm, external, since } =
            reply.pending_calls()?;
        let expires_at = first_deadline(reply, limits);
        Some(PendingView { reply_id, agent_path, confirm, external, since, expires_at })
    });
    views.collect()
}

/// Milliseconds since 1970 as ISO 8601.
pub fn iso8601(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// The record of a session that the caller may use.
pub async fn find_record(app: &App, caller: &Caller, id: &str) -> ApiResult<SessionRecord> {
    let key = caller.session_key(id)?;
    let record = app.log.read_fairly(&key.tenant, app.log.store().find_session(&key)).await?;
    record.ok_or_else(|| ApiError::from(turnwire_log::Error::NoSession))
}
