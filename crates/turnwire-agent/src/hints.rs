//! Hints: what a reply is told from outside while it runs, or before it begins.
//!
//! A tool that has gone to the background posts what it finds; so may anybody else who has the mailbox.
//! A reply takes hints between two steps: each is a `HINT_BLOCK` of it, so the model reads it with the
//! next call. Where no reply runs, a hint waits for the next one of its session.
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

/// Where hints wait. A hint stays until it is in the log: one that was taken twice because of a crash is
/// known by its id.
#[async_trait]
pub trait HintStore: Send + Sync + 'static {
    /// Posts a hint to a session. One without an id gets one.
    async fn post(&self, session_id: &str, hint: HintBlock);

    /// Those that wait, in the order in which they came.
    async fn pending(&self, session_id: &str) -> Vec<HintBlock>;

    /// These are in the log now.
    async fn remove(&self, session_id: &str, ids: &[String]);
}

/// Hints in memory: they are gone with the process.
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

/// Where a tool that has gone to the background says what it has found.
#[derive(Clone)]
pub struct HintSender {
    pub(crate) hints: Arc<dyn HintStore>,
    pub(crate) session_id: String,
    pub(crate) call_id: String,
    pub(crate) tool: String,
}

impl HintSender {
    /// Tells the model: in this reply while it runs, else in the next of the session.
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
