//! What an engine does: keep what it is given, in order, and give it back.
//!
//! An engine knows sessions, rows of events and rows of messages. It does not parse an event: the
//! [`Log`](crate::Log) folds, checks and assigns, and hands an engine what is to be durable
//! together. Every engine passes [`conformance`](mod@crate::conformance).

mod blobs;
mod queries;

pub use blobs::{BLOB_PIECE_BYTES, Blob, BlobInfo, BlobReferences, NewBlob, UploadNumber};
pub use queries::{MessageQuery, SessionQuery};

use crate::cost::{AgentTotals, Cost, UsageTotal};
use crate::error::{Error, Result};
use crate::loaded_session::OpenReply;
use crate::visible_sessions::VisibleSessions;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{Event, EventKind, Fields, PermissionRule, Seq, Usage};

/// Names a session: its tenant, and its id within it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// Whose it is.
    pub tenant: Arc<str>,
    /// Its id, unique for the tenant.
    pub id: Arc<str>,
}

impl SessionKey {
    /// A key of both parts.
    pub fn new(tenant: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { tenant: tenant.into(), id: id.into() }
    }
}

/// The number under which an engine knows an incarnation of a session. It is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub i64);

/// The number that fences an owner: of two owners the later one has the higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// What a session is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// No reply is open.
    #[default]
    Idle,
    /// A reply grows.
    Running,
    /// A reply is open, and waits for a person or for somebody outside.
    Waiting,
}

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub number: SessionNumber,
    /// Its name.
    pub key: SessionKey,
    /// Random for each incarnation: a token of another one leads nowhere.
    pub epoch: String,
    /// Which agent replies.
    pub agent: String,
    /// For people. Empty: none.
    pub title: String,
    /// Whatever its maker wanted to keep with it.
    pub metadata: Fields,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// When a message last began or ended in it. Lists are sorted by it, latest first.
    pub updated_ms: i64,
    /// The earliest event that is kept; one behind `last` when there is none. 1 unless retention
    /// has removed something.
    pub first: Seq,
    /// How many events there ever were: the seq of the last one, or 0.
    pub head: u64,
    /// What can be derived from the events, kept so that no list has to read them.
    pub state: SessionState,
}

/// What can be derived from the events of a session. It is written with the append that changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// What it is doing.
    pub status: SessionStatus,
    /// The first event of the earliest reply that is still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_from: Option<Seq>,
    /// The tokens of all its replies together.
    #[serde(default)]
    pub usage: Usage,
    /// What they cost, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The part of both that sub-agents took, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subs: BTreeMap<String, UsageTotal>,
    /// Who publishes to it from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// Who did so before, the latest of them last: whoever was overtaken stays overtaken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_producers: Vec<Producer>,
    /// Whether the replies that are open are that producer's. All that are open at one time are of
    /// one origin: the session's own agent, or one producer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_produced: bool,
    /// Rules that people accepted while they answered questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PermissionRule>,
    /// Hints that came while a model call was open, and get their places at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldHint>,
}

/// A hint that waits for its place in the log.
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

/// How many sub-agents are counted by themselves.
const MAX_SUB_AGENTS: usize = 64;

impl SessionState {
    /// Counts what a reply took.
    pub(crate) fn add_reply_usage(&mut self, reply: &OpenReply) {
        let usage = reply.msg().usage().cloned().unwrap_or_default();
        let mut sum = UsageTotal { usage: std::mem::take(&mut self.usage), cost: self.cost };
        sum.add(&usage, reply.cost());
        (self.usage, self.cost) = (sum.usage, sum.cost);
        let path = reply.agent().and_then(|agent| agent.agent_path.as_deref());
        let name =
            path.and_then(|path| path.rsplit('/').next()).filter(|_| reply.is_of_sub_agent());
        if let Some(name) = name
            && (self.subs.len() < MAX_SUB_AGENTS || self.subs.contains_key(name))
        {
            self.subs.entry(name.to_owned()).or_default().add(&usage, reply.cost());
        }
    }

    /// Notes the rules that a person accepted.
    pub(crate) fn accept_rules(&mut self, event: &Event<'_>) {
        let EventKind::UserConfirmResult(answer) = &event.kind else { return };
        for rule in answer.confirm_results.iter().flat_map(|result| result.rules.iter().flatten()) {
            if !self.rules.contains(rule) && self.rules.len() < MAX_RULES {
                self.rules.push(rule.clone());
            }
        }
    }
}

/// How many accepted rules a session keeps.
const MAX_RULES: usize = 256;

/// An agent elsewhere, and its own fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// The name that it gave itself.
    pub id: String,
    /// The highest fence that was seen of it.
    pub fence: u64,
    /// Who holds the credentials that it published with. Two holders may use the same name: they are two
    /// producers. Empty in what was stored before holders were known: then it is anybody's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
}

impl Producer {
    /// Whether it is the one of this name and this holder.
    pub fn matches(&self, id: &str, holder: &str) -> bool {
        self.id == id && (self.holder.is_empty() || self.holder == holder)
    }
}

/// A session to be made.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its name.
    pub key: SessionKey,
    /// Which agent replies.
    pub agent: String,
    /// For people.
    pub title: String,
    /// Whatever its maker wants to keep with it.
    pub metadata: Fields,
    /// The time now, in milliseconds since 1970.
    pub now_ms: i64,
}

/// What a client may change of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// A new title.
    pub title: Option<String>,
    /// New metadata, in place of the old.
    pub metadata: Option<Fields>,
}

/// Some events of a session, one after the other, as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLines {
    /// The place of the first.
    pub first: Seq,
    /// How many.
    pub count: u32,
    /// One JSON object a line, each with its `\n`; the seq is not in it.
    pub bytes: Bytes,
}

impl EventLines {
    /// The place of the last one. There is at least one.
    pub fn last(&self) -> u64 {
        self.first.get() + u64::from(self.count) - 1
    }

    /// What is there from a place on; nothing when it ends before.
    pub fn starting_at(&self, from: Seq) -> Option<Self> {
        if from.get() > self.last() {
            return None;
        }
        let skip = u32::try_from(from.get().saturating_sub(self.first.get())).ok()?;
        if skip == 0 {
            return Some(self.clone());
        }
        let ends = memchr::memchr_iter(b'\n', &self.bytes);
        let start = ends.take(skip as usize).last()? + 1;
        let bytes = self.bytes.slice(start.min(self.bytes.len())..);
        Some(Self { first: from, count: self.count - skip, bytes })
    }

    /// What is there up to a place; nothing when it begins behind it.
    pub fn up_to(&self, to: u64) -> Option<Self> {
        if self.last() <= to {
            return Some(self.clone());
        }
        let count = u32::try_from(to.checked_sub(self.first.get())?.saturating_add(1)).ok()?;
        let end = memchr::memchr_iter(b'\n', &self.bytes).take(count as usize).last()? + 1;
        let bytes = self.bytes.slice(..end.min(self.bytes.len()));
        Some(Self { first: self.first, count, bytes })
    }

    /// The events with their places.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, &[u8])> {
        let mut seq = self.first;
        self.bytes.split_inclusive(|&byte| byte == b'\n').map(move |line| {
            let at = seq;
            seq = seq.next();
            (at, line.strip_suffix(b"\n").unwrap_or(line))
        })
    }
}

/// What is to become durable together: events, and what follows from them.
#[derive(Debug, Clone)]
pub struct Append {
    /// Where.
    pub session: SessionNumber,
    /// Who owns the session; an outdated one is refused with `Fenced`.
    pub fence: Fence,
    /// The events; `first` has to be one behind the log's last, or it is `OutOfOrder`. `None` when
    /// only the rest changes.
    pub lines: Option<EventLines>,
    /// The time now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Messages that are finished with these events.
    pub messages: Vec<StoredMessage>,
    /// Messages that no longer count as history.
    pub superseded: Vec<String>,
    /// The session's state, where it has changed. A message began or ended then.
    pub state: Option<SessionState>,
    /// A request that is not to be done twice, and its answer.
    pub idempotency: Option<IdempotencyRecord>,
    /// Messages that wait for their turn.
    pub enqueue: Vec<QueuedMessage>,
    /// Messages that wait no more.
    pub dequeue: Vec<String>,
}

/// A finished message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its id.
    pub id: String,
    /// The place of its first event: the order of messages.
    pub first: Seq,
    /// The place of its last event.
    pub last: Seq,
    /// The id of the event that brought it, where it came whole.
    pub event_id: String,
    /// Whether a sub-agent wrote it.
    pub of_sub_agent: bool,
    /// Whether it no longer counts as history.
    pub superseded: bool,
    /// The version of the fold that made it.
    pub fold_version: u32,
    /// The message, as JSON.
    pub json: Bytes,
    /// What a search finds it by.
    pub text: String,
}

impl StoredMessage {
    /// About as many bytes as it takes of memory.
    pub fn size(&self) -> usize {
        self.json.len() + self.text.len()
    }
}

/// A request that is not to be done twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Whose.
    pub tenant: Arc<str>,
    /// What the client called it, with what it belongs to.
    pub key: String,
    /// A hash of what was asked.
    pub fingerprint: [u8; 32],
    /// What was answered.
    pub response: String,
}

/// A message that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The message's id.
    pub id: String,
    /// Of the reply that it will start.
    pub reply_id: String,
    /// The message, as JSON.
    pub json: Bytes,
}

/// The right to write to a session, for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What an append has to show.
    pub fence: Fence,
}

/// What is to be removed. Whole finished replies only, and never their messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// Events older than this, in milliseconds since 1970.
    pub before_ms: Option<i64>,
    /// The oldest, until all events together take at most so many bytes.
    pub max_bytes: Option<u64>,
    /// Idempotency keys older than this.
    pub keys_before_ms: Option<i64>,
    /// Blobs to which no session has referred since this time, and which were not stored since.
    pub blobs_before_ms: Option<i64>,
}

/// What retention did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Events.
    pub events: u64,
    /// Bytes of events.
    pub bytes: u64,
    /// Sessions of which something was removed.
    pub sessions: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Blobs.
    pub blobs: u64,
}

/// A new epoch: 80 random bits, as lower-case letters and digits.
pub fn new_epoch() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Store(format!("the system gives no random numbers: {error}")))?;
    let alphabet = b"abcdefghijklmnopqrstuvwxyz234567";
    let letters = random.iter().filter_map(|byte| alphabet.get(usize::from(byte % 32)));
    Ok(letters.map(|&letter| char::from(letter)).collect())
}

/// A future that owns all it needs.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// An engine.
///
/// Appends to one session are written in the order in which [`append`](Self::append) was called,
/// whether or not anybody waits for them: when a later one is durable, so are the earlier ones. When
/// one fails, those behind it fail too (`OutOfOrder`), until a new one goes on from the log's end.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Makes a session, or finds the one that has this name; and whether it was made.
    async fn create_session(&self, new: NewSession) -> Result<(SessionRecord, bool)>;

    /// The same, and what is made has something that waits for its turn from the very start: it is
    /// among the [open sessions](Self::list_open_sessions) until that is taken out. An engine that
    /// outlives a crash makes both in one commit.
    async fn create_session_with_queued(
        &self,
        new: NewSession,
        waits: QueuedMessage,
    ) -> Result<(SessionRecord, bool)>;

    /// A session by its name.
    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionRecord>>;

    /// A list of sessions. The work stops when nobody waits for the answer any more.
    async fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRecord>>;

    /// What the sessions of a tenant that a caller reaches spent together, by their agents. Where all
    /// are within reach, no session is looked at.
    async fn agent_totals(
        &self,
        tenant: &str,
        reach: &VisibleSessions,
        max_time: Option<Duration>,
    ) -> Result<BTreeMap<String, AgentTotals>>;

    /// Sessions of all tenants in the order in which they were made, behind one of them
    /// (`SessionNumber(0)`: from the first).
    async fn list_all_sessions(
        &self,
        after: SessionNumber,
        limit: usize,
    ) -> Result<Vec<SessionRecord>>;

    /// Sessions of all tenants in which a reply is open, or a message waits for its turn.
    async fn list_open_sessions(&self) -> Result<Vec<SessionRecord>>;

    /// Changes what a client may change.
    async fn patch_session(
        &self,
        session: SessionNumber,
        patch: SessionPatch,
    ) -> Result<SessionRecord>;

    /// Removes a session with all it has. Durable when this returns; nothing is left that would
    /// bring it back, and appends that come later are `NoSession`.
    async fn delete_session(&self, session: SessionNumber) -> Result<()>;

    /// Takes the right to write to a session, from whoever had it. It may end with the store that
    /// gave it: whoever opens a store takes it again.
    async fn acquire_lease(
        &self,
        session: SessionNumber,
        owner: &str,
        ttl: Duration,
    ) -> Result<Lease>;

    /// Holds on to it; `Fenced` when somebody else has it now.
    async fn renew_lease(&self, session: SessionNumber, lease: Lease, ttl: Duration) -> Result<()>;

    /// Writes, and returns when it is durable. The call itself takes the place in the queue.
    fn append(&self, append: Append) -> StoreFuture<()>;

    /// The events from a place on, in order, at least one if there is one, until they have so many
    /// bytes. `Trimmed` when the place is before the earliest that is kept.
    async fn read_events(
        &self,
        session: SessionNumber,
        from: Seq,
        max_bytes: usize,
    ) -> Result<Vec<EventLines>>;

    /// Waits until there are events behind a place, and says where the log ends then.
    async fn wait_for_events(&self, session: SessionNumber, after: u64) -> Result<u64>;

    /// A finished message.
    async fn find_message(&self, session: SessionNumber, id: &str)
    -> Result<Option<StoredMessage>>;

    /// A list of finished messages, in the order of their first events.
    async fn list_messages(
        &self,
        session: SessionNumber,
        query: &MessageQuery,
    ) -> Result<Vec<StoredMessage>>;

    /// Puts messages in place of those of the same id, or adds them: a projection made again.
    async fn replace_messages(
        &self,
        session: SessionNumber,
        messages: Vec<StoredMessage>,
    ) -> Result<()>;

    /// The messages that wait for their turn, in order.
    async fn list_queued(&self, session: SessionNumber) -> Result<Vec<QueuedMessage>>;

    /// A request that was done before.
    async fn find_idempotency_record(
        &self,
        tenant: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>>;

    /// Begins a blob of several pieces. What is not stored by [`store_blob`](Self::store_blob) is
    /// removed when the store is opened again.
    async fn begin_upload(&self) -> Result<UploadNumber>;

    /// Adds a piece of at most [`BLOB_PIECE`] bytes behind the others.
    async fn add_upload_piece(&self, upload: UploadNumber, bytes: Bytes) -> Result<()>;

    /// Removes the pieces of an upload that is not to be stored, some time later.
    fn abandon_upload(&self, upload: UploadNumber);

    /// Stores a blob, or finds the one of this hash; and whether it was stored. Nothing is left of
    /// the upload then. `OverQuota` when the tenant would have too many bytes.
    async fn store_blob(&self, new: NewBlob) -> Result<(BlobInfo, bool)>;

    /// A blob without its bytes.
    async fn find_blob_info(&self, tenant: &str, hash: [u8; 32]) -> Result<Option<BlobInfo>>;

    /// The same, and if no session refers to it yet, it counts as stored now: there is time to refer
    /// to it before retention removes it.
    async fn touch_blob(
        &self,
        tenant: &str,
        hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Option<BlobInfo>>;

    /// The bytes of a blob from a place on, at least one if there is one, to the end of a piece.
    /// `None` when the blob is not there.
    async fn read_blob_piece(
        &self,
        tenant: &str,
        hash: [u8; 32],
        from: u64,
    ) -> Result<Option<Bytes>>;

    /// Changes what a blob is said to be.
    async fn set_blob_type(&self, tenant: &str, hash: [u8; 32], media_type: &str) -> Result<()>;

    /// Removes a blob, whoever refers to it. Whether it was there.
    async fn delete_blob(&self, tenant: &str, hash: [u8; 32]) -> Result<bool>;

    /// How many bytes all blobs of a tenant have.
    async fn blob_bytes_used(&self, tenant: &str) -> Result<u64>;

    /// Stores bytes under their SHA-256, unless they are there.
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

    /// Removes what is not to be kept any longer.
    async fn apply_retention(&self, retention: Retention) -> Result<RetentionReport>;

    /// Whether it can be written to now: an error says what is wrong.
    async fn check_health(&self) -> Result<()>;
}
