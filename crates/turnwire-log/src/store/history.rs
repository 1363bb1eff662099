//! Rows about conversations of clients that keep their own history.

use super::{SessionKey, SessionState};
use crate::client_history::HistoryDigest;
use serde::{Deserialize, Serialize};
use turnwire_core::{Head, Seq};

/// How far a client that keeps its own history knows the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryState {
    /// The empty conversation of the same client.
    pub root: HistoryDigest,
    /// The conversation up to the last input.
    pub input: HistoryDigest,
    /// The conversation up to the answer, if there is one: the reply has ended, or waits for results of
    /// the client's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<HistoryDigest>,
    /// A hash of the id that the client sends for its conversation; 0 if it sends none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub client: i64,
    /// A hash of the client's request, to recognise it when it is sent again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub request: i64,
    /// The reply that answers the input.
    pub reply_id: String,
    /// The position before the input, if it is the results of calls of an open reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results_after: Option<Head>,
    /// How many blocks the reply had when the input came. The answer is what follows them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocks: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A state of a conversation that a client may send again as its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryMark {
    /// The conversation up to this state.
    pub digest: HistoryDigest,
    /// The seq of the last event that belongs to it.
    pub seq: Seq,
    /// A hash of the id that the client sends for its conversation; 0 if it sends none.
    pub client: i64,
}

/// A session that has, or had, a state of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryMatch {
    /// The session.
    pub session: SessionKey,
    /// The state.
    pub mark: HistoryMark,
    /// The state of the session now.
    pub now: SessionState,
    /// When a message of it last began or ended, in milliseconds since 1970.
    pub updated_ms: i64,
}

/// How many sessions with the same state of a conversation are found, latest first.
pub const MAX_HISTORY_MATCHES: usize = 16;
