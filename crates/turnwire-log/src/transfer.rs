//! Export and import of sessions as lines of JSON. `turnwire sessions export` and `import` call it.
//!
//! A session begins with a header line, `{"turnwire":"session","version":1,…}`. Then come messages
//! whose events were trimmed (`{"message":…}`), then the events as they are stored, with their seq, then
//! queued messages (`{"turnwire":"queued",…}`) and the blobs that the session refers to (`{"turnwire":"blob",…}`,
//! followed by their bytes in pieces), each blob once. Where something damaged cannot be read, a line
//! `{"turnwire":"left_out",…}` says what is missing. The next header begins the next session.
//!
//! | function | |
//! |---|---|
//! | [`export`] | writes one session |
//! | [`import`] | reads all sessions of a file |

mod blob_import;
mod export;
mod import;

pub use export::{ExportError, ExportReport, ExportedBlobs, export};
pub use import::{ExistingSession, ImportOptions, ImportProblem, ImportReport, import};

use crate::error::{Error, Result};
use crate::store::StoredMessage;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::event::{Message, SubAgent};
use turnwire_core::{Event, Fields, Head, Msg, Seq};

/// The version of the format.
const VERSION: u32 = 1;

/// The first line of a session.
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
    /// The seq of the first and the last event in the file, if there are any.
    #[serde(default)]
    first: Option<Seq>,
    #[serde(default)]
    last: Option<Head>,
}

/// A queued message.
#[derive(Debug, Serialize, Deserialize)]
struct QueuedLine<'a> {
    #[serde(borrow)]
    turnwire: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    reply_id: Cow<'a, str>,
    #[serde(borrow)]
    message: &'a RawValue,
}

/// What an export lacks, because it cannot be read.
#[derive(Debug, Serialize, Deserialize)]
struct LeftOutLine {
    turnwire: String,
    /// The first event that is missing; all events from there on are missing. `None`: not events.
    #[serde(default)]
    first: Option<Seq>,
    why: String,
}

/// A blob. Its bytes follow.
#[derive(Debug, Serialize, Deserialize)]
struct BlobLine {
    turnwire: String,
    #[serde(default)]
    tenant: String,
    /// The SHA-256, in hexadecimal digits.
    hash: String,
    media_type: String,
    size: u64,
}

/// The next bytes of a blob.
#[derive(Debug, Serialize, Deserialize)]
struct BytesLine<'a> {
    #[serde(borrow)]
    turnwire: Cow<'a, str>,
    /// In base64; at most [`BLOB_PIECE_BYTES`](crate::store::BLOB_PIECE_BYTES).
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// A message whose events were trimmed, as one `MESSAGE` event. It has no time, and no id unless it
/// had one.
pub fn to_message_event(stored: &StoredMessage, agent: &str) -> Result<Event<'static>> {
    let damaged =
        |why: String| Error::Damaged(format!("message {} cannot be parsed: {why}", stored.id));
    let text = std::str::from_utf8(&stored.json).map_err(|error| damaged(error.to_string()))?;
    let msg = Msg::from_json(text).map_err(|error| damaged(error.to_string()))?;
    let sub_agent = stored.of_sub_agent.then(|| Box::new(sub_agent_of(agent, &msg)));
    let mut event = Event::new("", Message { message: Box::new(msg) });
    event.id = stored.event_id.clone().into();
    event.agent = sub_agent;
    Ok(event)
}

/// The sub-agent of a message. Its path is not stored with the message, but its name is.
fn sub_agent_of(agent: &str, msg: &Msg) -> SubAgent {
    let agent_path = Some(format!("{agent}/{}", msg.name()));
    SubAgent { agent_path, parent_tool_call_id: None }
}
