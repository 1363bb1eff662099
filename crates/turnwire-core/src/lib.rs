//! Messages and events of AI agents, and the fold that turns events into messages.
//!
//! A *message* ([`Msg`]) is one whole entry of a conversation. An *event* ([`Event`]) is one increment of a
//! reply. The *fold* turns the events of a reply into exactly one message:
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
//! Nothing here does I/O, reads a clock, or knows a network protocol. The JSON is that of AgentScope 2.x
//! with a few additions. Unknown event types, block types and fields survive a round trip.
//!
//! | module | contents |
//! |---|---|
//! | [`msg`] | messages: building, reading, role rules |
//! | [`block`] | content blocks |
//! | [`event`] | events; all kinds in one table |
//! | [`fold`] | folds the events of one reply into its message |
//! | [`folder`] | folds a stream with many replies |
//! | [`model_calls`] | progress of the model calls of a reply |
//! | [`mod@coalesce`] | merges deltas for late subscribers |
//! | [`partial`] | the JSON value of tool input while it streams |
//! | [`json`] | JSON that is kept as text |
//! | [`names`] | roles, states, reasons |
//! | [`stamp`] | source of ids and timestamps |
//! | [`error`] | the error of this crate |

// Our own enums are matched without `_`, so that the compiler finds the places for a new variant.
#![warn(clippy::wildcard_enum_match_arm)]
#![cfg_attr(docsrs, feature(doc_cfg))]

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
#[cfg(feature = "schema")]
mod schema;
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

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
