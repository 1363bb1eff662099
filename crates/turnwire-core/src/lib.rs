//! Messages, events, and the fold that makes one out of the other.
//!
//! A *message* ([`Msg`]) is one whole turn. An *event* ([`Event`]) is one increment of a reply. The
//! *fold* puts the events of a reply together into exactly one message:
//!
//! ```
//! use turnwire_core::{Event, Folder};
//!
//! let mut folder = Folder::default();
//! for line in [
//!     r#"{"id":"1","type":"REPLY_START","reply_id":"r","name":"friday"}"#,
//!     r#"{"id":"2","type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
//!     r#"{"id":"3","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hello!"}"#,
//!     r#"{"id":"4","type":"REPLY_END","reply_id":"r"}"#,
//! ] {
//!     folder.push(&Event::from_json(line)?)?;
//! }
//! assert_eq!(folder.get("r").unwrap().text("").as_deref(), Some("Hello!"));
//! # Ok::<(), turnwire_core::Error>(())
//! ```
//!
//! Nothing here does I/O, reads a clock, or knows a protocol. The JSON is the shape of AgentScope
//! 2.x with a few additions; what this version does not know survives a round trip.
//!
//! | module | what is in it |
//! |---|---|
//! | [`msg`] | messages: building, reading, role rules |
//! | [`block`] | content blocks |
//! | [`event`] | events, every kind in one table |
//! | [`fold`] | one reply's events into its message |
//! | [`calls`] | how far the model calls of a reply have come |
//! | [`folder`] | a stream with many replies |
//! | [`mod@coalesce`] | merging deltas for who comes late |
//! | [`partial`] | tool input while it streams |
//! | [`json`] | JSON kept as its text |
//! | [`names`] | roles, states, reasons |
//! | [`stamp`] | where ids and times come from |
//! | [`error`] | the one error |

mod base64;
pub mod block;
pub mod coalesce;
pub mod error;
pub mod event;
pub mod fold;
pub mod folder;
pub mod json;
pub mod model_calls;
pub mod msg;
pub mod names;
mod object;
pub mod partial;
mod seq;
#[doc(hidden)]
pub mod shape;
pub mod stamp;
mod work;

pub use block::{
    BlockKind, BlockType, ContentBlock, DataBlock, HintBlock, Part, Payload, PermissionRule,
    Source, TextBlock, ThinkingBlock, ToolCall, ToolResult,
};
pub use coalesce::coalesce;
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, EventKind};
pub use fold::{EventIds, FoldCursor, Outcome, RepeatDetector};
pub use folder::Folder;
pub use json::{Fields, Json};
pub use model_calls::ModelCalls;
pub use msg::{Msg, MsgBuilder, ReplyError, Usage};
pub use names::{Behavior, ErrorType, FinishedReason, Role, ToolCallState, ToolResultState};
pub use partial::{PartialJson, PartialState};
pub use seq::{Head, Seq};
pub use stamp::{FixedStamp, Stamp};
