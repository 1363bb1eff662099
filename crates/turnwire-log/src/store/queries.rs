//! The queries of lists.

use super::{SessionNumber, SessionStatus};
use crate::search::SearchQuery;
use crate::visible_sessions::VisibleSessions;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::Seq;

/// Which sessions to list, latest change first.
#[derive(Debug, Clone)]
pub struct SessionQuery {
    /// The tenant.
    pub tenant: Arc<str>,
    /// Only sessions that the caller may see. An engine filters before it counts a page, and its
    /// work depends on what is visible, not on the rest.
    pub visible: VisibleSessions,
    /// Only sessions with these words in one finished message or in the title.
    pub search: Option<SearchQuery>,
    /// Only sessions with this status.
    pub status: Option<SessionStatus>,
    /// After the last session of the previous page.
    pub after: Option<(i64, SessionNumber)>,
    /// The maximum number of sessions.
    pub limit: usize,
    /// The time limit; then the query fails with `TooSlow`. `None`: no limit.
    pub max_time: Option<Duration>,
}

impl SessionQuery {
    /// The latest sessions of a tenant.
    pub fn latest(tenant: impl Into<Arc<str>>, limit: usize) -> Self {
        Self {
            tenant: tenant.into(),
            visible: VisibleSessions::ALL,
            search: None,
            status: None,
            after: None,
            limit,
            max_time: None,
        }
    }
}

/// Which messages to list, in the order of their first events.
#[derive(Debug, Clone, Default)]
pub struct MessageQuery {
    /// Only messages that begin before this seq.
    pub before: Option<Seq>,
    /// Only messages that begin after this seq.
    pub after: Option<Seq>,
    /// The maximum number: the last ones, or with `after` the first ones.
    pub limit: usize,
    /// Stop once they have so many bytes together; at least one is returned.
    pub max_bytes: Option<usize>,
    /// Include messages of sub-agents.
    pub sub_agents: bool,
}

impl MessageQuery {
    /// The last page of the messages before a seq, for whoever reads a session from its end: at most 64
    /// messages, of about 1 MiB together.
    pub fn page_before(before: Seq) -> Self {
        Self { before: Some(before), limit: 64, max_bytes: Some(1 << 20), ..Self::default() }
    }
}
