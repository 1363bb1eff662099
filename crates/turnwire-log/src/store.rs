//! What an engine must do: store rows durably, in order, and return them.
//!
//! An engine knows sessions, rows of events and rows of messages. It does not parse events:
//! [`Log`](crate::Log) folds and checks them, assigns their seq, and hands the engine what must
//! become durable together. Every engine must pass [`conformance`](mod@crate::conformance).

mod blobs;
pub mod cluster;
mod event_lines;
mod history;
mod queries;

pub use blobs::{BLOB_PIECE_BYTES, Blob, BlobInfo, BlobReferences, NewBlob, UploadNumber, to_hex};
pub use event_lines::{EventLines, EventPage};
pub use history::{HistoryMark, HistoryMatch, HistoryPrefill, HistoryState, MAX_HISTORY_MATCHES};
pub use queries::{MessageQuery, SessionQuery};

use crate::client_history::HistoryDigest;
use crate::cost::{AgentTotals, Cost, UsageTotal};
use crate::error::{Error, Result};
use crate::visible_sessions::VisibleSessions;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{Fields, Head, PermissionRule, Seq, Usage};

/// Identifies a session: its tenant, and its id within the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The tenant that it belongs to.
    pub tenant: Arc<str>,
    /// Its id, unique within the tenant.
    pub id: Arc<str>,
}

impl SessionKey {
    /// A key from tenant and id.
    pub fn new(tenant: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { tenant: tenant.into(), id: id.into() }
    }
}

/// The engine's number of one incarnation of a session. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionNumber(pub i64);

/// The number that an append must carry. A later owner has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence of nobody: every append with it is refused.
    pub(crate) const NONE: Self = Self(0);
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// No reply is open.
    #[default]
    Idle,
    /// A reply is open and the agent works on it.
    Running,
    /// A reply is open and waits for an approval or for a result from outside.
    Waiting,
}

/// How the last reply of a session's own agent ended, unless it ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionOutcome {
    /// It ended with an error.
    Failed,
    /// Somebody stopped it, or it was interrupted.
    Stopped,
    /// Nobody answered one of its pending calls in time.
    Expired,
}

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub number: SessionNumber,
    /// Its tenant and id.
    pub key: SessionKey,
    /// A random number of this incarnation: resume tokens of another one are invalid.
    pub epoch: String,
    /// The name of the agent that replies.
    pub agent: String,
    /// The title for people; may be empty.
    pub title: String,
    /// Any data that the creator stored with it.
    pub metadata: Fields,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: i64,
    /// When a message last began or ended. Lists are sorted by it, latest first.
    pub updated_ms: i64,
    /// The first event that is kept; the seq after the head if none is. 1 unless retention has
    /// removed events.
    pub first: Seq,
    /// The seq of the last event; 0 if there is none.
    pub head: Head,
    /// The state derived from the events, stored so that lists need not read events.
    pub state: SessionState,
}

/// What the log derives from the events of a session. It is written with the append that changes
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// What it is doing.
    pub status: SessionStatus,
    /// The first event of the earliest reply that is still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_from: Option<Seq>,
    /// How its last reply ended, unless it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<SessionOutcome>,
    /// The tokens of all its replies.
    #[serde(default)]
    pub usage: Usage,
    /// Their cost, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The share of its sub-agents, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subs: BTreeMap<String, UsageTotal>,
    /// The producer that publishes to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// Former producers, latest last. A producer with an older fence stays refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_producers: Vec<Producer>,
    /// Whether the open replies belong to the producer. Replies that are open at the same time have
    /// one origin: the session's own agent, or one producer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_produced: bool,
    /// Permission rules that users accepted with their approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PermissionRule>,
    /// Hints that arrived during a model call and are appended at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldHint>,
    /// Whether the session is a fork whose log is still being copied. After a crash it is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_forking: bool,
    /// The conversation as its client knows it, if the client keeps its own history. Engines store it with
    /// [`HistoryState::to_bytes`], because there is one for each conversation.
    #[serde(skip)]
    pub history: Option<HistoryState>,
}

impl SessionState {
    /// From where on the session is open: its first open reply, or all of a fork in progress.
    /// Engines list open sessions by it, and retention keeps their events.
    pub fn keep_from(&self) -> Option<Seq> {
        self.open_from.or(self.is_forking.then_some(Seq::FIRST))
    }
}

/// A hint that waits for the end of a model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldHint {
    /// The reply that it belongs to.
    pub reply_id: String,
    /// The id of its event.
    pub event_id: String,
    /// The id of its block.
    pub block_id: String,
    /// The event, as JSON.
    pub json: String,
}

/// A program outside that publishes events, and its own fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// The name that it chose.
    pub id: String,
    /// The highest fence seen from it.
    pub fence: u64,
    /// The holder of the credentials that it published with. The same name of two holders is two
    /// producers. Empty in data from before holders were recorded: then it matches any holder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
}

impl Producer {
    /// Whether it has this name and this holder.
    pub fn matches(&self, id: &str, holder: &str) -> bool {
        self.id == id && (self.holder.is_empty() || self.holder == holder)
    }
}

/// A session to create.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its tenant and id.
    pub key: SessionKey,
    /// The name of the agent that replies.
    pub agent: String,
    /// The title for people; may be empty.
    pub title: String,
    /// Any data to store with it.
    pub metadata: Fields,
    /// The time now, in milliseconds since 1970.
    pub now_ms: i64,
}

/// What a client may change in a session.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// A new title.
    pub title: Option<String>,
    /// New metadata; it replaces the old.
    pub metadata: Option<Fields>,
}

/// What must become durable together: events, and what follows from them.
#[derive(Debug, Clone)]
pub struct Append {
    /// The session.
    pub session: SessionNumber,
    /// The fence of the owner. An outdated one is refused with `Fenced`.
    pub fence: Fence,
    /// The events. `first` must be the seq after the head, otherwise the append fails with
    /// `OutOfOrder`. `None` if only the rest changes.
    pub lines: Option<EventLines>,
    /// The time now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Messages that these events finish.
    pub messages: Vec<StoredMessage>,
    /// Messages that no longer count as history.
    pub superseded: Vec<String>,
    /// The session's state, if it changed. Then a message began or ended.
    pub state: Option<SessionState>,
    /// The response to a request with an idempotency key.
    pub idempotency: Option<IdempotencyRecord>,
    /// Messages to add to the queue.
    pub enqueue: Vec<QueuedMessage>,
    /// Ids of messages to remove from the queue.
    pub dequeue: Vec<String>,
    /// States of the conversation, by which a client that sends its history finds the session.
    pub history: Vec<HistoryMark>,
}

impl Append {
    /// An append that changes nothing yet.
    pub fn empty(session: SessionNumber, fence: Fence, now_ms: i64) -> Self {
        Self {
            session,
            fence,
            lines: None,
            now_ms,
            messages: Vec::new(),
            superseded: Vec::new(),
            state: None,
            idempotency: None,
            enqueue: Vec::new(),
            dequeue: Vec::new(),
            history: Vec::new(),
        }
    }
}

/// A finished message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its id.
    pub id: String,
    /// The seq of its first event. Messages are ordered by it.
    pub first: Seq,
    /// The seq of its last event.
    pub last: Seq,
    /// The id of its `MESSAGE` event, if it came as one event; otherwise empty.
    pub event_id: String,
    /// Whether a sub-agent wrote it.
    pub of_sub_agent: bool,
    /// Whether it no longer counts as history.
    pub superseded: bool,
    /// The version of the fold that produced it.
    pub fold_version: u32,
    /// The message, as JSON.
    pub json: Bytes,
    /// The text that a search looks through.
    pub text: String,
}

impl StoredMessage {
    /// Its size in memory, about, in bytes.
    pub fn size(&self) -> usize {
        self.json.len() + self.text.len()
    }
}

/// The stored response to a request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// The tenant of the caller.
    pub tenant: Arc<str>,
    /// The idempotency key, with what it applies to.
    pub key: String,
    /// A hash of the request.
    pub fingerprint: [u8; 32],
    /// The response.
    pub response: String,
}

/// A message that waits until the running reply ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The message's id.
    pub id: String,
    /// The id of the reply that it will start.
    pub reply_id: String,
    /// The message, as JSON.
    pub json: Bytes,
}

/// The right to write to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The fence that an append must carry.
    pub fence: Fence,
}

/// What to delete. Only events of whole finished replies are deleted, never their messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// Events older than this, in milliseconds since 1970.
    pub before_ms: Option<i64>,
    /// The oldest events, until all events together have at most so many bytes.
    pub max_bytes: Option<u64>,
    /// Idempotency keys older than this.
    pub keys_before_ms: Option<i64>,
    /// Blobs that no session has referred to since this time, and that were not stored after it.
    pub blobs_before_ms: Option<i64>,
}

/// What retention deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Events.
    pub events: u64,
    /// Bytes of events.
    pub bytes: u64,
    /// Sessions of which events were deleted.
    pub sessions: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Blobs.
    pub blobs: u64,
}

/// Generates an epoch: 80 random bits as lower-case letters and digits.
pub fn new_epoch() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Store(format!("the system returned no random numbers: {error}")))?;
    let alphabet = b"abcdefghijklmnopqrstuvwxyz234567";
    let letters = random.iter().filter_map(|byte| alphabet.get(usize::from(byte % 32)));
    Ok(letters.map(|&letter| char::from(letter)).collect())
}

/// A future that borrows nothing.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A storage engine.
///
/// Appends to one session are written in the order of the calls of [`append`](Self::append),
/// whether or not anyone awaits them: when a later one is durable, so are the earlier ones. If one
/// fails, the appends after it fail too (`OutOfOrder`), until one continues at the log's end.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a session, or finds the existing one. Returns whether it was created.
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)>;

    /// The same, and a created session is a fork in progress: it is among the [open
    /// sessions](Self::list_open_sessions) until an append clears [`SessionState::is_forking`].
    async fn create_fork(&self, new: NewSession) -> Result<(SessionRecord, bool)>;

    /// Finds a session.
    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>>;

    /// Lists sessions. The work stops when the caller drops the future.
    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>>;

    /// The usage of a tenant's visible sessions, by agent. If all are visible, no session is read.
    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>>;

    /// Lists sessions of all tenants in order of creation, after one of them (`SessionNumber(0)`:
    /// from the first).
    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>>;

    /// Lists sessions of all tenants that have an open reply or a queued message.
    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>>;

    /// Changes title or metadata.
    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord>;

    /// Deletes a session with everything in it. Durable when this returns. Later appends fail with
    /// `NoSession`.
    async fn delete_session(&self, session: SessionNumber) -> Result<()>;

    /// Takes the lease of a session. `Owned` if another [node](cluster::Node) has it that is alive;
    /// an owner that is no node counts as gone. After opening a store, acquire it again.
    async fn acquire_lease(&self, session: SessionNumber, owner: &str) -> Result<Lease>;

    /// Writes an append. The future is ready when it is durable. The call itself reserves the
    /// position in the queue.
    fn append(&self, append: Append) -> StoreFuture<()>;

    /// Reads events from a seq on, in order, until they have `max_bytes`; at least one if there is
    /// one. `Trimmed` if retention has removed the event at `from`.
    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>>;

    /// Finds a finished message.
    async fn find_message(&self, session: SessionNumber, id: &str)
    -> Result<Option<StoredMessage>>;

    /// Lists finished messages, in the order of their first events.
    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>>;

    /// Replaces messages with the same id, or adds them. For messages that were folded again.
    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()>;

    /// The queued messages of a session, in order.
    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>>;

    /// The stored response to an earlier request.
    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>>;

    /// Finds sessions by the first of these digests that any session has: at most
    /// [`MAX_HISTORY_MATCHES`], the latest session first, and in a session the latest state first.
    async fn find_history(&self, digests: &[HistoryDigest]) -> Result<Vec<HistoryMatch>>;

    /// Starts the upload of a blob in pieces. An upload that [`store_blob`](Self::store_blob) does
    /// not complete is removed some time later.
    async fn begin_upload(&self) -> Result<UploadNumber>;

    /// Adds a piece of at most [`BLOB_PIECE_BYTES`] to an upload.
    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()>;

    /// Cancels an upload. Its pieces are removed some time later.
    fn abandon_upload(&self, upload: UploadNumber);

    /// Stores a blob, or finds the stored one with this hash. Returns whether it was stored. The
    /// upload ends. `OverQuota` if the tenant would exceed its quota.
    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)>;

    /// A blob without its bytes.
    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>>;

    /// The same. If no session refers to the blob yet, it counts as stored now, so that there is
    /// time to refer to it before retention deletes it.
    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>>;

    /// Reads bytes of a blob from an offset to the end of a piece; at least one if there is one.
    /// `None` if the blob does not exist.
    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>>;

    /// Changes the media type of a blob.
    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()>;

    /// Deletes a blob, even if sessions refer to it. Returns whether it existed.
    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool>;

    /// How many bytes all blobs of a tenant have.
    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64>;

    /// Stores bytes under their SHA-256, unless they are stored already.
    async fn put_blob(&self, tenant: &str, hash: [u8; 32], blob: Blob) -> Result<()> {
        let Blob { media_type, mut bytes } = blob;
        let mut upload = None;
        while bytes.len() > BLOB_PIECE_BYTES {
            let no = match upload {
                Some(no) => no,
                None => self.begin_upload().await?,
            };
            upload = Some(no);
            self.add_upload_piece(no, bytes.split_to(BLOB_PIECE_BYTES)).await?;
        }
        let (tenant, now_ms) = (tenant.into(), crate::log::now_ms());
        let new = NewBlob { tenant, hash, media_type, upload, bytes, now_ms, max_bytes: None };
        self.store_blob(new).await.map(drop)
    }

    /// A blob with all its bytes.
    async fn read_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<Blob>> {
        let Some(info) = self.find_blob_info(tenant, hash).await? else { return Ok(None) };
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut from = 0;
        while let Some(piece) = self.read_blob_piece(tenant, hash, from).await? {
            from += piece.len() as u64;
            pieces.push(piece);
            if from >= info.size {
                let bytes = match <[Bytes; 1]>::try_from(pieces) {
                    Ok([bytes]) => bytes,
                    Err(pieces) => pieces.concat().into(),
                };
                return Ok(Some(Blob { media_type: info.media_type, bytes }));
            }
        }
        Ok(None)
    }

    /// What processes need that use the store together. `None` if only one process at a time can
    /// open it.
    fn cluster(&self) -> Option<&dyn cluster::ClusterStore> {
        None
    }

    /// Deletes what retention no longer allows.
    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport>;

    /// Checks that the store can be written; the error says what is wrong.
    async fn check_health(&self) -> Result<()>;
}
