//! Several agents in one conversation, for a model that knows only a user and itself.

use super::turns::{Given, Turn};
use turnwire_core::{ContentBlock, DataBlock, Msg};

const HEAD: &str = "# Conversation History\n\
The content between <history></history> tags contains your conversation history\n";

/// A run of messages without tools, as one user turn.
#[derive(Default)]
pub(super) struct History<'a> {
    parts: Vec<Given<'a>>,
    /// The text that goes on.
    text: String,
    /// Whether a run was written before: only the first has a heading.
    headed: bool,
}

impl<'a> History<'a> {
    pub(super) fn add(&mut self, msg: &'a Msg) {
        for block in msg.content() {
            match block {
                ContentBlock::Text(block) if !block.text.is_empty() => {
                    self.begin();
                    self.text.push('\n');
                    if !msg.name().is_empty() {
                        self.text.push_str(msg.name());
                        self.text.push_str(": ");
                    }
                    self.text.push_str(&block.text);
                }
                ContentBlock::Data(block) => self.data(block),
                _ => {}
            }
        }
    }

    fn begin(&mut self) {
        if self.parts.is_empty() && self.text.is_empty() {
            self.text.push_str(if self.headed { "" } else { HEAD });
            self.text.push_str("<history>");
            self.headed = true;
        }
    }

    fn data(&mut self, block: &'a DataBlock) {
        self.begin();
        if !self.text.is_empty() {
            self.parts.push(Given::Text(std::mem::take(&mut self.text).into()));
        }
        self.parts.push(Given::Data(block));
    }

    /// The run so far, if there is one.
    pub(super) fn take(&mut self) -> Option<Turn<'a>> {
        if self.parts.is_empty() && self.text.is_empty() {
            return None;
        }
        self.text.push_str("\n</history>");
        // Behind data the text begins with a line end of no use.
        let text = std::mem::take(&mut self.text);
        let text = if self.parts.is_empty() { text } else { text.trim_start().to_owned() };
        self.parts.push(Given::Text(text.into()));
        Some(Turn::User(std::mem::take(&mut self.parts)))
    }
}

/// One message in the older form.
pub(super) fn named(msg: &Msg) -> Option<Turn<'_>> {
    let mut parts = Vec::new();
    for block in msg.content() {
        match block {
            ContentBlock::Text(block) if !block.text.is_empty() && msg.name().is_empty() => {
                parts.push(Given::Text((&block.text).into()));
            }
            ContentBlock::Text(block) if !block.text.is_empty() => {
                parts.push(Given::Text(format!("[{}]: {}", msg.name(), block.text).into()));
            }
            ContentBlock::Data(block) => parts.push(Given::Data(block)),
            _ => {}
        }
    }
    (!parts.is_empty()).then_some(Turn::User(parts))
}
