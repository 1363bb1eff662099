//! Words in titles and messages.

use super::kept::Kept;

/// The words of a query. What is neither letter nor digit only parts them.
pub(super) struct Words(Vec<String>);

impl Words {
    pub(super) fn new(query: &str) -> Self {
        let words = query.split(|char: char| !char.is_alphanumeric());
        Self(words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect())
    }

    /// Whether the title, or one of the messages, has them all.
    pub(super) fn are_in(&self, kept: &Kept) -> bool {
        self.all_in(&kept.record.title)
            || kept.messages.values().any(|message| self.all_in(&message.text))
    }

    fn all_in(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.0.iter().all(|word| text.contains(word.as_str()))
    }
}
