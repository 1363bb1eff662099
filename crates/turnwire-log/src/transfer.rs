//! Sessions as lines of JSON: out of one store, and into another.
//!
//! A session begins with a line that says what it is, `{"turnwire":"session","version":1,…}`. Then
//! come messages whose events are gone (`{"message":…}`), then the events as they are stored, with
//! their seq. Another such line begins the next session. What waits in a queue, and blobs, stay
//! behind: a backup has them.
//!
//! | | |
//! |---|---|
//! | [`export`] | one session out |
//! | [`import`] | all sessions of a file in |

mod export;
mod import;

pub use export::{ExportError, export};
pub use import::{ExistingSession, ImportOptions, ImportProblem, ImportReport, import};

use crate::error::{Error, Result};
use crate::store::StoredMessage;
use serde::{Deserialize, Serialize};
use turnwire_core::event::{Message, SubAgent};
use turnwire_core::{Event, Fields, Msg, Seq};

/// The version of the lines.
const VERSION: u32 = 1;

/// The line with which a session begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SessionHeader {
    turnwire: String,
    version: u32,
    #[serde(default)]
    tenant: String,
    id: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    metadata: Fields,
    #[serde(default)]
    epoch: String,
    #[serde(default)]
    created_at: String,
    /// The places of the first and the last event that follow, where there are any.
    #[serde(default)]
    first: Option<Seq>,
    #[serde(default)]
    last: Option<u64>,
}

/// A message whose events are gone, as the one event that brings it whole. It has no time, and no id
/// unless it came whole before.
pub fn to_message_event(stored: &StoredMessage, agent: &str) -> Result<Event<'static>> {
    let damaged = |why: String| Error::Damaged(format!("message {} is none: {why}", stored.id));
    let text = std::str::from_utf8(&stored.json).map_err(|error| damaged(error.to_string()))?;
    let msg = Msg::from_json(text).map_err(|error| damaged(error.to_string()))?;
    let sub_agent = stored.of_sub_agent.then(|| Box::new(sub_agent_of(agent, &msg)));
    let mut event = Event::new("", Message { message: Box::new(msg) });
    event.id = stored.event_id.clone().into();
    event.agent = sub_agent;
    Ok(event)
}

/// Whose message it was. The path is not kept beside a message; the name of who wrote it is.
fn sub_agent_of(agent: &str, msg: &Msg) -> SubAgent {
    let agent_path = Some(format!("{agent}/{}", msg.name()));
    SubAgent { agent_path, parent_tool_call_id: None }
}
