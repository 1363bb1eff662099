//! What lists of an engine are asked for.

use super::{SessionNumber, SessionStatus};
use crate::search::SearchQuery;
use crate::visible_sessions::VisibleSessions;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::Seq;

/// Which sessions to list: latest change first.
#[derive(Debug, Clone)]
pub struct SessionQuery {
    /// Whose.
    pub tenant: Arc<str>,
    /// Only those that the caller reaches. An engine filters before it counts a page, and its work
    /// grows with what is within reach, not with what is not.
    pub visible: VisibleSessions,
    /// Only those with a finished message, or a title, that has these words.
    pub search: Option<SearchQuery>,
    /// Only those that are doing this.
    pub status: Option<SessionStatus>,
    /// Behind the last of an earlier page.
    pub after: Option<(i64, SessionNumber)>,
    /// How many at the most.
    pub limit: usize,
    /// How long it may take; then it is `TooSlow`. `None`: as long as it takes.
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
    /// Only messages that begin before this place.
    pub before: Option<Seq>,
    /// Only messages that begin behind this place.
    pub after: Option<Seq>,
    /// The last so many of them (the first so many when `after` is given).
    pub limit: usize,
    /// No more of them once they have so many bytes together, but always one.
    pub max_bytes: Option<usize>,
    /// Also those of sub-agents.
    pub sub_agents: bool,
}
