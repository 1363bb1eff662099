//! Builds messages and changed copies of them.

use super::{Msg, ReplyError, Usage, check_content};
use crate::block::{
    ContentBlock, DataBlock, HintBlock, Part, Payload, TextBlock, ThinkingBlock, ToolCall,
    ToolResult,
};
use crate::error::Result;
use crate::fold::FoldMemory;
use crate::json::{Fields, Json};
use crate::names::{FinishedReason, Role};
use crate::stamp::Stamp;

/// Content of an assistant's message: a string, a block, or blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content(Vec<ContentBlock>);

/// Content of a user's message: a string, or text and data blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts(Vec<Part>);

macro_rules! made_from {
    ($target:ident of $item:ident: $($block:ty),+) => {
        impl From<Vec<$item>> for $target {
            fn from(items: Vec<$item>) -> Self {
                Self(items)
            }
        }

        impl<const N: usize> From<[$item; N]> for $target {
            fn from(items: [$item; N]) -> Self {
                Self(items.into())
            }
        }

        $(impl From<$block> for $target {
            fn from(block: $block) -> Self {
                Self(vec![block.into()])
            }
        })+
    };
}

made_from!(
    Content of ContentBlock:
    ContentBlock, &str, String, TextBlock, ThinkingBlock, DataBlock, HintBlock, ToolCall, ToolResult
);
made_from!(Parts of Part: Part, &str, String, TextBlock, DataBlock);

impl Msg {
    fn with_content(role: Role, name: impl Into<String>, content: Vec<ContentBlock>) -> Self {
        Self { role, name: name.into(), content, ..Self::default() }
    }

    /// A user's message. Its content type allows only text and data.
    pub fn user(name: impl Into<String>, content: impl Into<Parts>) -> Self {
        let parts = content.into().0;
        Self::with_content(Role::User, name, parts.into_iter().map(ContentBlock::from).collect())
    }

    /// An assistant's message. It may contain all blocks.
    pub fn assistant(name: impl Into<String>, content: impl Into<Content>) -> Self {
        Self::with_content(Role::Assistant, name, content.into().0)
    }

    /// A system prompt: text.
    pub fn system(name: impl Into<String>, text: impl Into<TextBlock>) -> Self {
        Self::with_content(Role::System, name, vec![text.into().into()])
    }

    /// A message with one or more tool results.
    pub fn tool(name: impl Into<String>, results: impl Into<Vec<ToolResult>>) -> Self {
        let results = results.into();
        Self::with_content(Role::Tool, name, results.into_iter().map(ContentBlock::from).collect())
    }

    /// An empty assistant message for the events of one reply.
    pub fn reply(reply_id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: reply_id.into(), ..Self::with_content(Role::Assistant, name, Vec::new()) }
    }

    /// A builder, for messages that the short forms cannot make.
    pub fn builder(role: Role) -> MsgBuilder {
        MsgBuilder { msg: Self { role, ..Self::default() } }
    }

    /// A builder that starts from this message, for a changed copy.
    pub fn to_builder(&self) -> MsgBuilder {
        // The copy is another message: the events that were folded into this one were not folded into it.
        MsgBuilder { msg: Self { memory: FoldMemory::default(), ..self.clone() } }
    }

    /// A copy with another sender.
    #[must_use]
    pub fn with_name(&self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self.to_builder().msg }
    }

    /// Sets the empty ids and timestamps of the message and its blocks. A message that is not an
    /// assistant's is finished when it is created.
    #[must_use]
    pub fn stamped(mut self, stamp: &impl Stamp) -> Self {
        let now = stamp.now();
        fill_if_empty(&mut self.id, || stamp.id());
        fill_if_empty(&mut self.created_at, || now.clone());
        if self.role != Role::Assistant && self.finished_at.is_none() {
            self.finished_at = Some(self.created_at.clone());
        }
        for block in &mut self.content {
            let (id, created_at) = match block {
                ContentBlock::Text(block) => (&mut block.id, &mut block.created_at),
                ContentBlock::Thinking(block) => (&mut block.id, &mut block.created_at),
                ContentBlock::Data(block) => (&mut block.id, &mut block.created_at),
                ContentBlock::Hint(block) => {
                    stamp_payload(&mut block.hint, stamp, &now);
                    (&mut block.id, &mut block.created_at)
                }
                ContentBlock::ToolCall(block) => (&mut block.id, &mut block.created_at),
                ContentBlock::ToolResult(block) => {
                    stamp_payload(&mut block.output, stamp, &now);
                    (&mut block.id, &mut block.created_at)
                }
                ContentBlock::Other(_) => continue,
            };
            fill_if_empty(id, || stamp.id());
            fill_if_empty(created_at, || now.clone());
        }
        self
    }
}

fn stamp_payload(payload: &mut Payload, stamp: &impl Stamp, now: &str) {
    let Payload::Parts(parts) = payload else { return };
    for part in parts {
        let (id, created_at) = match part {
            Part::Text(block) => (&mut block.id, &mut block.created_at),
            Part::Data(block) => (&mut block.id, &mut block.created_at),
            Part::Other(_) => continue,
        };
        fill_if_empty(id, || stamp.id());
        fill_if_empty(created_at, || now.to_owned());
    }
}

fn fill_if_empty(slot: &mut String, value: impl FnOnce() -> String) {
    if slot.is_empty() {
        *slot = value();
    }
}

/// Builds a message; [`build`](Self::build) checks the role rules.
#[derive(Debug, Clone)]
#[must_use]
pub struct MsgBuilder {
    msg: Msg,
}

impl MsgBuilder {
    /// The message, or an error if its role cannot contain one of the blocks.
    pub fn build(self) -> Result<Msg> {
        check_content(self.msg.role, &self.msg.content)?;
        Ok(self.msg)
    }

    /// Sets the sender's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.msg.name = name.into();
        self
    }

    /// Sets the id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.msg.id = id.into();
        self
    }

    /// Sets the role.
    pub fn role(mut self, role: Role) -> Self {
        self.msg.role = role;
        self
    }

    /// Adds a block.
    pub fn block(mut self, block: impl Into<ContentBlock>) -> Self {
        self.msg.content.push(block.into());
        self
    }

    /// Adds a text block.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(TextBlock::new(text))
    }

    /// Sets all blocks.
    pub fn content(mut self, content: impl Into<Content>) -> Self {
        self.msg.content = content.into().0;
        self
    }

    /// Adds an entry to the metadata.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.msg.metadata.insert(key, value);
        self
    }

    /// Sets all metadata.
    pub fn all_metadata(mut self, metadata: Fields) -> Self {
        self.msg.metadata = metadata;
        self
    }

    /// Sets when it started.
    pub fn created_at(mut self, at: impl Into<String>) -> Self {
        self.msg.created_at = at.into();
        self
    }

    /// Sets when it ended.
    pub fn finished_at(mut self, at: impl Into<String>) -> Self {
        self.msg.finished_at = Some(at.into());
        self
    }

    /// Sets why it ended.
    pub fn finished_reason(mut self, reason: FinishedReason) -> Self {
        self.msg.finished_reason = Some(reason);
        self
    }

    /// Sets the tokens used.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.msg.usage = Some(usage);
        self
    }

    /// Sets the structured output.
    pub fn structured_output(mut self, output: impl Into<Json>) -> Self {
        self.msg.structured_output = Some(output.into());
        self
    }

    /// Removes the structured output.
    pub fn without_structured_output(mut self) -> Self {
        self.msg.structured_output = None;
        self
    }

    /// Sets the error.
    pub fn error(mut self, error: ReplyError) -> Self {
        self.msg.error = Some(error);
        self
    }

    /// Sets the unknown fields, for decoders that keep them.
    pub fn rest(mut self, rest: Fields) -> Self {
        self.msg.rest = rest;
        self
    }
}
