//! Messages: the entries of a conversation.
//!
//! ```
//! use turnwire_core::{DataBlock, Msg, Role, TextBlock, ToolResult};
//!
//! let question = Msg::user("alice", "hi");
//! let with_image = Msg::user("alice", ["What is this?".into(), DataBlock::bytes(b"\x89PNG", "image/png").into()]);
//! let prompt = Msg::system("system", "You are Friday.");
//! let answer = Msg::assistant("friday", "Hello!");
//! let result = Msg::tool("system", ToolResult::error("call_1", "timed out"));
//!
//! assert_eq!(answer.text("\n").as_deref(), Some("Hello!"));
//! assert_eq!(with_image.first::<TextBlock>().unwrap().text, "What is this?");
//! assert_eq!(answer.with_name("monday").name(), "monday");
//!
//! let plan = Msg::builder(Role::Assistant)
//!     .name("friday")
//!     .text("Here is the plan.")
//!     .metadata("priority", 3)
//!     .build()?;
//! assert_eq!(plan.metadata().get::<u8>("priority")?, Some(3));
//! # Ok::<(), turnwire_core::Error>(())
//! ```
//!
//! A message is immutable: [`Msg::to_builder`] makes a changed copy. Only the fold
//! ([`Msg::append_event`]) changes a message in place.

mod access;
mod build;
mod json;

pub use build::{Content, MsgBuilder, Parts};

use crate::block::{BlockType, ContentBlock};
use crate::error::{Error, ErrorKind, Result};
use crate::fold::FoldMemory;
use crate::json::{Fields, Json};
use crate::names::{ErrorType, FinishedReason, Role};
use crate::object::object;

/// One entry of a conversation: a user's input, a reply, a system prompt, tool results.
#[derive(Debug, Clone, Default)]
pub struct Msg {
    pub(crate) name: String,
    pub(crate) content: Vec<ContentBlock>,
    pub(crate) role: Role,
    pub(crate) id: String,
    pub(crate) metadata: Fields,
    pub(crate) created_at: String,
    pub(crate) usage: Option<Usage>,
    pub(crate) finished_at: Option<String>,
    pub(crate) finished_reason: Option<FinishedReason>,
    pub(crate) structured_output: Option<Json>,
    pub(crate) error: Option<ReplyError>,
    pub(crate) rest: Fields,
    /// State of the fold: which events were applied. It is neither compared nor written as JSON; a
    /// [`FoldCursor`](crate::FoldCursor) stores it.
    pub(crate) memory: FoldMemory,
}

impl PartialEq for Msg {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.content == other.content
            && self.role == other.role
            && self.id == other.id
            && self.metadata == other.metadata
            && self.created_at == other.created_at
            && self.usage == other.usage
            && self.finished_at == other.finished_at
            && self.finished_reason == other.finished_reason
            && self.structured_output == other.structured_output
            && self.error == other.error
            && self.rest == other.rest
    }
}

impl Eq for Msg {}

object! {
    /// Tokens that a reply used.
    Usage {
        /// Tokens of the input.
        input_tokens: i64, default;
        /// Tokens of the output.
        output_tokens: i64, default;
        /// Tokens read from the provider's cache.
        cache_input_tokens: i64, default;
        /// Tokens written to the provider's cache.
        cache_creation_input_tokens: i64, default;
    }

    /// The error of a failed reply.
    ReplyError {
        /// Machine-readable type of the error.
        r#type: ErrorType, default;
        /// What happened, for people.
        message: String, default;
    }
}

impl ReplyError {
    /// An error of this type, with a message for people.
    pub fn new(r#type: ErrorType, message: impl Into<String>) -> Self {
        Self { r#type, message: message.into(), rest: Fields::default() }
    }
}

/// Whether a message of this role may contain a block of this type. Unknown types are allowed in every
/// role.
pub(crate) fn check_role(role: Role, block: BlockType, id: &str) -> Result<()> {
    use BlockType::{Audio, Data, Hint, Image, Other, Text, Thinking, ToolCall, ToolResult, Video};
    let (allowed, what) = match role {
        Role::User => (
            matches!(block, Text | Data | Image | Audio | Video | Other),
            "text and data (image, audio and video in the older form)",
        ),
        Role::System => (matches!(block, Text | Other), "only text"),
        Role::Tool => (matches!(block, ToolResult | Other), "only tool results"),
        Role::Assistant => match block {
            Text | Thinking | Data | Image | Audio | Video | Hint | ToolCall | ToolResult
            | Other => (true, ""),
        },
    };
    if allowed {
        return Ok(());
    }
    let (block, joint) = (block.as_str(), if id.is_empty() { "" } else { " " });
    Err(Error::new(
        ErrorKind::WrongRole,
        format!(
            "a {role} message cannot contain the {block} block{joint}{id}; it can contain {what}"
        ),
    ))
}

/// Checks the role rules for all blocks; the error contains the index of the block.
fn check_content(role: Role, content: &[ContentBlock]) -> Result<()> {
    content.iter().enumerate().try_for_each(|(at, block)| {
        check_role(role, block.block_type(), block.id())
            .map_err(|error| error.at(format!("content[{at}]")))
    })
}
