//! Text, thinking and hint blocks.

use super::Payload;
use crate::object::object;

object! {
    /// Plain text.
    TextBlock is Text {
        /// The text.
        text: String, needed;
        /// The block's id; empty if it has none.
        id: String, known;
        /// When it started; empty if not known.
        created_at: String, known;
        /// When it ended.
        finished_at: Option<String>, nullable;
    }

    /// The model's reasoning. Fields of the provider (`signature`, `redacted_thinking_data`, …) are in
    /// `rest`.
    ThinkingBlock is Thinking {
        /// The reasoning.
        thinking: String, needed;
        /// The block's id; empty if it has none.
        id: String, known;
        /// When it started; empty if not known.
        created_at: String, known;
        /// When it ended.
        finished_at: Option<String>, nullable;
    }

    /// A note for a running reply: a trigger, a message of another agent, a background result.
    HintBlock is Hint {
        /// Content of the hint.
        hint: Payload, needed;
        /// The block's id; empty if it has none.
        id: String, known;
        /// Where the hint comes from, often a small JSON text for the front end.
        source: Option<String>, nullable;
        /// When it was added; empty if not known.
        created_at: String, known;
        /// When it ended.
        finished_at: Option<String>, nullable;
    }
}

impl TextBlock {
    /// A block with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl<T: Into<String>> From<T> for TextBlock {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

impl ThinkingBlock {
    /// A block with this reasoning.
    pub fn new(thinking: impl Into<String>) -> Self {
        Self { thinking: thinking.into(), ..Self::default() }
    }
}

impl HintBlock {
    /// A hint without a source.
    pub fn new(hint: impl Into<Payload>) -> Self {
        Self { hint: hint.into(), ..Self::default() }
    }
}
