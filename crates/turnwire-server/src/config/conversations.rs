//! `[conversations]`: how the conversations of clients that keep their own history are recognised.

use serde::Deserialize;

/// `[conversations]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConversationsConfig {
    /// Whether a request without a session is matched by its history. Otherwise it starts a session.
    pub recognize: bool,
    /// Headers in which programs send an id of their conversation. Empty: none are read.
    pub id_headers: Vec<String>,
    /// Fields of the request body in which they do.
    pub id_fields: Vec<String>,
}

impl Default for ConversationsConfig {
    fn default() -> Self {
        let headers = ["x-claude-code-session-id", "session-id", "session_id", "x-session-id"];
        Self {
            recognize: true,
            id_headers: headers.map(str::to_owned).into(),
            id_fields: vec!["prompt_cache_key".to_owned()],
        }
    }
}
