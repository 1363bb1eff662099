//! Writes messages of several agents for a model that knows only a user and itself.

use super::prompt::{PromptMessage, UserPart};
use std::borrow::Cow;
use turnwire_core::{ContentBlock, DataBlock, Msg, content_blocks};

const HISTORY_HEADING: &str = "# Conversation History\n\
The content between <history></history> tags contains your conversation history\n";

/// Consecutive messages without tools, as one user message.
#[derive(Default)]
pub(super) struct HistoryText<'a> {
    parts: Vec<UserPart<'a>>,
    /// The text that is not in `parts` yet.
    text: String,
    /// Whether the heading was written: only the first user message has it.
    has_heading: bool,
}

impl<'a> HistoryText<'a> {
    pub(super) fn add_message(&mut self, msg: &'a Msg) {
        for block in msg.content() {
            match block {
                ContentBlock::Text(block) if block.text.is_empty() => {}
                ContentBlock::Text(block) => {
                    self.begin_text();
                    self.text.push('\n');
                    if !msg.name().is_empty() {
                        self.text.push_str(msg.name());
                        self.text.push_str(": ");
                    }
                    self.text.push_str(&block.text);
                }
                ContentBlock::Data(block) => self.add_data(block),
                content_blocks!(Thinking Hint ToolCall ToolResult Other) => {}
            }
        }
    }

    fn begin_text(&mut self) {
        if self.parts.is_empty() && self.text.is_empty() {
            self.text.push_str(if self.has_heading { "" } else { HISTORY_HEADING });
            self.text.push_str("<history>");
            self.has_heading = true;
        }
    }

    fn add_data(&mut self, block: &'a DataBlock) {
        self.begin_text();
        if !self.text.is_empty() {
            self.parts.push(UserPart::text(std::mem::take(&mut self.text)));
        }
        self.parts.push(UserPart::Data(block));
    }

    /// Takes the user message so far, if there is one.
    pub(super) fn take_message(&mut self) -> Option<PromptMessage<'a>> {
        if self.parts.is_empty() && self.text.is_empty() {
            return None;
        }
        self.text.push_str("\n</history>");
        // After data the text begins with a line end that is not needed.
        let text = std::mem::take(&mut self.text);
        let text = if self.parts.is_empty() { text } else { text.trim_start().to_owned() };
        self.parts.push(UserPart::text(text));
        Some(PromptMessage::User { parts: std::mem::take(&mut self.parts), msg: None })
    }
}

/// One message in the older format.
pub(super) fn name_prefixed_message(msg: &Msg) -> Option<PromptMessage<'_>> {
    let mut parts = Vec::new();
    for block in msg.content() {
        match block {
            ContentBlock::Text(block) if block.text.is_empty() => {}
            ContentBlock::Text(block) if msg.name().is_empty() => {
                parts.push(UserPart::Text(Cow::Borrowed(block)));
            }
            ContentBlock::Text(block) => {
                parts.push(UserPart::text(format!("[{}]: {}", msg.name(), block.text)));
            }
            ContentBlock::Data(block) => parts.push(UserPart::Data(block)),
            content_blocks!(Thinking Hint ToolCall ToolResult Other) => {}
        }
    }
    (!parts.is_empty()).then_some(PromptMessage::User { parts, msg: None })
}
