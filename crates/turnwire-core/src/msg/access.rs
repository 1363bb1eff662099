//! Accessors of a message.

use super::{Msg, ReplyError, Usage};
use crate::block::{BlockKind, BlockType, ContentBlock, TextBlock, ToolCall, ToolResult};
use crate::error::Result;
use crate::json::{Fields, Json};
use crate::names::{FinishedReason, Role};
use serde::de::DeserializeOwned;
use std::collections::HashMap;

impl Msg {
    /// The message's id: that of the reply that it comes from. Empty until it is stamped.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name of the sender.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Role of the sender.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The blocks in order.
    pub fn content(&self) -> &[ContentBlock] {
        &self.content
    }

    /// Metadata.
    pub fn metadata(&self) -> &Fields {
        &self.metadata
    }

    /// When it started, as text. Empty if not known.
    pub fn created_at(&self) -> &str {
        &self.created_at
    }

    /// When it ended, as text.
    pub fn finished_at(&self) -> Option<&str> {
        self.finished_at.as_deref()
    }

    /// Why it ended.
    pub fn finished_reason(&self) -> Option<&FinishedReason> {
        self.finished_reason.as_ref()
    }

    /// Tokens used.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// The structured output as JSON.
    pub fn structured_output(&self) -> Option<&Json> {
        self.structured_output.as_ref()
    }

    /// The error, if it failed.
    pub fn error(&self) -> Option<&ReplyError> {
        self.error.as_ref()
    }

    /// Unknown fields.
    pub fn rest(&self) -> &Fields {
        &self.rest
    }

    /// Whether there is structured output.
    pub fn has_structured_output(&self) -> bool {
        self.structured_output.is_some()
    }

    /// Parses the structured output as `T`; `None` if there is none.
    ///
    /// ```
    /// # use turnwire_core::{Msg, Role};
    /// #[derive(serde::Deserialize)]
    /// struct TaskPlan { goal: String, steps: Vec<String> }
    ///
    /// let json = serde_json::json!({"goal": "tea", "steps": ["boil", "pour"]});
    /// let msg = Msg::builder(Role::Assistant).structured_output(json).build()?;
    /// let plan: TaskPlan = msg.parse_structured_output()?.unwrap();
    /// assert_eq!((plan.goal.as_str(), plan.steps.len()), ("tea", 2));
    /// # Ok::<(), turnwire_core::Error>(())
    /// ```
    pub fn parse_structured_output<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.structured_output
            .as_ref()
            .map(|json| json.parse_as().map_err(|error| error.at("structured_output")))
            .transpose()
    }

    /// The text of all text blocks, joined by the separator; `None` if there is no text block.
    pub fn text(&self, separator: &str) -> Option<String> {
        let texts: Vec<&str> =
            self.blocks::<TextBlock>().map(|block| block.text.as_str()).collect();
        if texts.is_empty() { None } else { Some(texts.join(separator)) }
    }

    /// Whether there is no content but white space.
    pub fn is_blank(&self) -> bool {
        let is_blank = |block: &ContentBlock| matches!(block, ContentBlock::Text(block) if block.text.trim().is_empty());
        self.content.iter().all(is_blank)
    }

    /// The blocks of one Rust type: `msg.blocks::<ToolCall>()`.
    pub fn blocks<B: BlockKind>(&self) -> impl Iterator<Item = &B> {
        self.content.iter().filter_map(B::from_block)
    }

    /// The first block of one Rust type.
    pub fn first<B: BlockKind>(&self) -> Option<&B> {
        self.blocks().next()
    }

    /// Whether there is a block of one Rust type.
    pub fn has<B: BlockKind>(&self) -> bool {
        self.first::<B>().is_some()
    }

    /// The blocks of one JSON type: for types that are known only at run time, and for the older media
    /// blocks, which share one Rust type.
    pub fn blocks_of_type(&self, block_type: BlockType) -> impl Iterator<Item = &ContentBlock> {
        self.content.iter().filter(move |block| block.block_type() == block_type)
    }

    /// Whether there is a block of one JSON type.
    pub fn has_block_type(&self, block_type: BlockType) -> bool {
        self.blocks_of_type(block_type).next().is_some()
    }

    /// The tool calls in order, each with its result if this message contains it.
    pub fn tool_calls(&self) -> impl Iterator<Item = (&ToolCall, Option<&ToolResult>)> {
        let results: HashMap<&str, &ToolResult> =
            self.blocks::<ToolResult>().map(|result| (result.id.as_str(), result)).collect();
        self.blocks::<ToolCall>().map(move |call| (call, results.get(call.id.as_str()).copied()))
    }
}
