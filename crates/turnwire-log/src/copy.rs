//! Copies all sessions and blobs of a store to another one, and compares the two. `turnwire copy` calls it.
//!
//! Everything stays as it is: numbers, epochs, seqs, times. So resume tokens and the cursors of lists stay
//! valid. A session is copied in parts; until its last part, it is marked as unfinished in the target. So a
//! copy that was interrupted continues where it was.
//!
//! Nobody may write to either store meanwhile.
//!
//! | function | |
//! |---|---|
//! | [`copy`] | copies what the target lacks |
//! | [`compare`] | reads both stores, and lists what differs |

mod compare;
mod copying;

pub use compare::{Comparison, Difference, compare};
pub use copying::{CopyReport, copy};

use crate::error::Result;
use crate::store::{
    BlobInfo, BlobReferences, EventLines, HistoryMark, IdempotencyRecord, QueuedMessage,
    SessionNumber, SessionRecord, SessionState, Store, StoredMessage,
};
use async_trait::async_trait;
use std::sync::Arc;
use turnwire_core::Head;

/// An engine whose stores can be copied.
#[async_trait]
pub trait CopyStore: Store {
    /// How many sessions and blobs there are.
    async fn count_rows(&self) -> Result<StoreSize>;

    /// What a session has besides its events, messages, queue and idempotency keys.
    async fn read_details(&self, session: SessionNumber) -> Result<SessionDetails>;

    /// The idempotency keys of a session, in an order of the engine, after one of them.
    async fn list_keys(
        &self,
        session: SessionNumber,
        after: Option<&IdempotencyRecord>,
        limit: usize,
    ) -> Result<Vec<StoredKey>>;

    /// Lists blobs of all tenants, in an order of the engine, after one of them.
    async fn list_blobs(&self, after: Option<&StoredBlob>, limit: usize)
    -> Result<Vec<StoredBlob>>;

    /// Writes parts of sessions, all or none, at most one of each session. `OutOfOrder` if one does not
    /// continue what is there: then another process writes too.
    async fn write_parts(&self, parts: Vec<SessionPart>) -> Result<()>;
}

/// How much there is to copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Sessions.
    pub sessions: u64,
    /// Blobs.
    pub blobs: u64,
}

/// What a session has besides its events, messages, queue and idempotency keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionDetails {
    /// When events were stored, at least to the hour: up to which event, and the time in milliseconds
    /// since 1970. In order.
    pub times: Vec<(Head, i64)>,
    /// States of the conversation, in order.
    pub history: Vec<HistoryMark>,
    /// The blobs that it refers to.
    pub references: Vec<[u8; 32]>,
    /// How many messages it has.
    pub messages: u64,
}

/// An idempotency key with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// The key and its response.
    pub record: IdempotencyRecord,
    /// When it was stored, in milliseconds since 1970.
    pub stored_ms: i64,
}

/// A blob without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// The tenant that it belongs to.
    pub tenant: Arc<str>,
    /// The SHA-256 of its bytes.
    pub hash: [u8; 32],
    /// Its media type and size.
    pub info: BlobInfo,
    /// Since when no session refers to it, in milliseconds since 1970. `i64::MAX` if that is unknown, as it is
    /// of blobs from before references were recorded: they are never unused.
    pub unused_ms: Option<i64>,
}

/// A part of a session, to be written to another store.
#[derive(Debug, Clone)]
pub struct SessionPart {
    /// The session. The first part creates it.
    pub record: Arc<SessionRecord>,
    /// Events that continue those of the parts before, and when they were stored.
    pub events: Vec<(EventLines, i64)>,
    /// Messages.
    pub messages: Vec<StoredMessage>,
    /// Idempotency keys.
    pub keys: Vec<StoredKey>,
    /// The blobs that this part refers to.
    pub references: BlobReferences,
    /// What comes with the last part.
    pub end: Option<SessionEnd>,
}

/// What comes with the last part of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionEnd {
    /// The queued messages, in order.
    pub queue: Vec<QueuedMessage>,
    /// States of the conversation, in order.
    pub history: Vec<HistoryMark>,
}

/// How far a copy or a comparison is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// What is being done, such as "copying sessions".
    pub stage: &'static str,
    /// How many are done.
    pub done: u64,
    /// How many there are.
    pub total: u64,
}

/// The state of a session that has not been copied to its end. A server that finds one deletes it.
pub fn unfinished_state() -> SessionState {
    SessionState { is_forking: true, ..SessionState::default() }
}

/// How many sessions are read or written at the same time.
const CONCURRENT_SESSIONS: usize = 32;

/// How many sessions, blobs or keys are listed at a time.
const PAGE_ROWS: usize = 512;

/// How many bytes of events are read at a time.
const READ_BYTES: usize = 512 << 10;
