//! Hints: notes for a running reply, or for the next reply of a session.
//!
//! A tool that continues in the background sends its findings as hints; so can anyone with access to the
//! store. The agent loop adds pending hints to the reply as `HINT_BLOCK`s between two steps, so the model
//! reads them with its next call. If no reply runs, a hint waits for the next reply of its session.
//!
//! ```
//! use turnwire_agent::hints::{HintStore, InMemoryHints};
//! use turnwire_core::HintBlock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let mailbox = InMemoryHints::default();
//! mailbox.post("s", HintBlock::new("The build is done.")).await;
//! let waiting = mailbox.pending("s").await;
//! assert_eq!(waiting[0].hint.text(""), "The build is done.");
//! mailbox.remove("s", &[waiting[0].id.clone()]).await;
//! assert!(mailbox.pending("s").await.is_empty());
//! # }
//! ```

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{HintBlock, Payload};

/// Stores hints until they are in the log. After a crash a hint may be added twice: its id makes it a
/// repeat.
#[async_trait]
pub trait HintStore: Send + Sync + 'static {
    /// Adds a hint to a session. A hint without an id gets one.
    async fn post(&self, session_id: &str, hint: HintBlock);

    /// The pending hints, oldest first.
    async fn pending(&self, session_id: &str) -> Vec<HintBlock>;

    /// Removes hints that are in the log now.
    async fn remove(&self, session_id: &str, ids: &[String]);
}

/// Hints in memory. They are lost when the process ends.
#[derive(Debug, Default)]
pub struct InMemoryHints {
    sessions: Mutex<HashMap<String, Vec<HintBlock>>>,
}

#[async_trait]
impl HintStore for InMemoryHints {
    async fn post(&self, session_id: &str, mut hint: HintBlock) {
        if hint.id.is_empty() {
            hint.id = SystemStamp.id();
        }
        self.sessions.lock().entry(session_id.to_owned()).or_default().push(hint);
    }

    async fn pending(&self, session_id: &str) -> Vec<HintBlock> {
        self.sessions.lock().get(session_id).cloned().unwrap_or_default()
    }

    async fn remove(&self, session_id: &str, ids: &[String]) {
        let mut sessions = self.sessions.lock();
        let Some(hints) = sessions.get_mut(session_id) else { return };
        hints.retain(|hint| !ids.contains(&hint.id));
        if hints.is_empty() {
            sessions.remove(session_id);
        }
    }
}

/// Sends the findings of a tool that continues in the background.
#[derive(Clone)]
pub struct HintSender {
    pub(crate) hints: Arc<dyn HintStore>,
    pub(crate) session_id: String,
    pub(crate) call_id: String,
    pub(crate) tool: String,
}

impl HintSender {
    /// Sends a hint: to this reply while it runs, else to the next reply of the session.
    pub async fn send(&self, found: impl Into<Payload> + Send) {
        let source = json!({
            "type": "background_tool",
            "tool_call_id": self.call_id,
            "tool_call_name": self.tool,
        });
        let hint = HintBlock { source: Some(source.to_string()), ..HintBlock::new(found) };
        self.hints.post(&self.session_id, hint).await;
    }
}

impl fmt::Debug for HintSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("call_id", &self.call_id).finish_non_exhaustive()
    }
}
