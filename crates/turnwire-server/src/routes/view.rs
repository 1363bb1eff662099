//! A session as clients see it.

use super::fork::unfinished;
use crate::app::App;
use crate::auth::{Action, Caller};
use crate::error::{ApiError, ApiResult};
use crate::turns::client_events::first_deadline;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use turnwire_core::{ContentBlock, Fields, Msg, ToolCall, Usage};
use turnwire_log::store::{QueuedMessage, SessionRecord, SessionState, SessionStatus};
use turnwire_log::{Cost, PendingCalls, Session, Snapshot};

/// A session.
#[derive(Debug, Serialize)]
pub struct SessionView {
    id: String,
    agent: String,
    title: Option<String>,
    status: SessionStatus,
    epoch: String,
    last_seq: u64,
    last_event_id: String,
    pending: Vec<PendingView>,
    queued: Vec<QueuedView>,
    usage: Usage,
    /// What they cost, each call by the prices of its time, where any are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    created_at: String,
    /// When it last changed, which is how lists are ordered.
    updated_at: String,
    metadata: Fields,
}

/// What a reply waits for.
#[derive(Debug, Serialize)]
pub struct PendingView {
    reply_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_path: Option<String>,
    confirm: Vec<ToolCall>,
    external: Vec<ToolCall>,
    since: String,
    /// When the question counts as denied. What somebody outside executes may take its time.
    expires_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct QueuedView {
    message_id: String,
    reply_id: String,
    /// What was said.
    content: Vec<ContentBlock>,
}

/// What a message that waits says; nothing where it cannot be read.
fn queued_content(json: &[u8]) -> Vec<ContentBlock> {
    let msg = std::str::from_utf8(json).ok().and_then(|text| Msg::from_json(text).ok());
    msg.map_or_else(Vec::new, |msg| msg.content().to_vec())
}

impl SessionView {
    /// A session as it is stored. Of one that waits the log has to be read; and of one that is in
    /// use the engine may know more than was told yet, so that its token would lead nowhere.
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
        let SessionRecord { key, epoch, agent, title, metadata, head: last, state, .. } = record;
        let (created_ms, updated_ms) = (record.created_ms, record.updated_ms);
        let about =
            SessionFacts { id: &key.id, epoch: &epoch, agent: &agent, created_ms, updated_ms };
        Ok(Self::new(&about, last.get(), state, title, metadata, Vec::new(), &queue))
    }

    /// A session at one point, which is taken for the time of its last change.
    pub fn from_snapshot(app: &App, session: &Session, snapshot: Snapshot) -> Self {
        let about = SessionFacts {
            id: session.id(),
            epoch: session.epoch(),
            agent: session.agent(),
            created_ms: session.created_ms(),
            updated_ms: Timestamp::now().as_millisecond(),
        };
        let waiting = pending_views(app, session.agent(), &snapshot);
        let Snapshot { head: last, state, queue, title, metadata, .. } = snapshot;
        Self::new(&about, last, state, title, metadata, waiting, &queue)
    }

    fn new(
        about: &SessionFacts<'_>,
        last: u64,
        state: SessionState,
        title: String,
        metadata: Fields,
        pending: Vec<PendingView>,
        queue: &[QueuedMessage],
    ) -> Self {
        let queue = queue.iter().filter(|queued| queued.id != unfinished::ID);
        let queued = queue.map(|queued| QueuedView {
            message_id: queued.id.clone(),
            reply_id: queued.reply_id.clone(),
            content: queued_content(&queued.json),
        });
        Self {
            id: about.id.to_owned(),
            agent: about.agent.to_owned(),
            title: Some(title).filter(|title| !title.is_empty()),
            status: state.status,
            epoch: about.epoch.to_owned(),
            last_seq: last,
            last_event_id: format!("{}.{last}", about.epoch),
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

/// What the answer to a request that writes shows of a session.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum SessionResponse {
    /// All of it.
    Whole(Box<SessionView>),
    /// What a caller is told that may not read it.
    IdOnly {
        /// The session.
        id: Arc<str>,
        /// Its agent.
        agent: String,
    },
}

impl SessionResponse {
    /// A session, as far as the caller may see it.
    pub async fn for_caller(caller: &Caller, app: &App, record: SessionRecord) -> ApiResult<Self> {
        if caller.can(Action::Read) {
            return Ok(Self::Whole(SessionView::from_record(app, record).await?.into()));
        }
        Ok(Self::IdOnly { id: record.key.id, agent: record.agent })
    }
}

/// What its events do not say of a session.
struct SessionFacts<'a> {
    id: &'a str,
    epoch: &'a str,
    agent: &'a str,
    created_ms: i64,
    updated_ms: i64,
}

/// What waits in a session.
pub fn pending_views(app: &App, agent: &str, snapshot: &Snapshot) -> Vec<PendingView> {
    // A producer watches its own clock.
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

/// The stored record of a session that the caller reaches.
pub async fn find_record(app: &App, caller: &Caller, id: &str) -> ApiResult<SessionRecord> {
    let key = caller.session_key(id)?;
    let record = app.log.read_fairly(&key.tenant, app.log.store().find_session(&key)).await?;
    record.ok_or_else(|| ApiError::from(turnwire_log::Error::NoSession))
}
