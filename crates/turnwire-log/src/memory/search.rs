//! Text search in memory.

use super::stored_session::StoredSession;
use crate::error::{Error, Result};
use crate::search::{SearchQuery, can_be_word_prefix};
use std::time::{Duration, Instant};

/// How many bytes of text one search reads, because the store is locked meanwhile.
const MAX_SEARCHED_BYTES: usize = 64 << 20;

/// A search and its remaining work.
pub(super) struct TextSearch {
    wanted: Vec<String>,
    bytes_left: usize,
    deadline: Option<Instant>,
}

impl TextSearch {
    pub(super) fn new(search: &SearchQuery, max_time: Option<Duration>) -> Self {
        Self {
            wanted: search.words().iter().map(|word| word.to_lowercase()).collect(),
            bytes_left: MAX_SEARCHED_BYTES,
            deadline: max_time.and_then(|time| Instant::now().checked_add(time)),
        }
    }

    /// Whether the title or one message has all words; `TooSlow` if the work is used up.
    pub(super) fn matches_session(&mut self, stored: &StoredSession) -> Result<bool> {
        let texts = stored.messages.values().map(|message| &message.text);
        for text in [&stored.record.title].into_iter().chain(texts) {
            let left = self.bytes_left.checked_sub(text.len());
            self.bytes_left = left.ok_or(Error::TooSlow)?;
            if self.matches_text(text) {
                return Ok(true);
            }
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::TooSlow);
        }
        Ok(false)
    }

    fn matches_text(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.wanted.iter().all(|word| {
            if can_be_word_prefix(word) {
                return text.contains(word.as_str());
            }
            text.split(|sign: char| !sign.is_alphanumeric()).any(|whole| whole == word)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SEARCHED_BYTES, StoredSession, TextSearch};
    use crate::error::Error;
    use crate::search::SearchQuery;
    use crate::store::SessionKey;

    #[test]
    fn a_search_stops_when_it_has_looked_at_enough() {
        let mut store = crate::memory::Data::default();
        let new = crate::store::NewSession {
            key: SessionKey::new("t", "s"),
            agent: String::new(),
            title: "x".repeat(MAX_SEARCHED_BYTES / 2),
            metadata: turnwire_core::Fields::default(),
            now_ms: 0,
        };
        let (record, _) = store.create(new).unwrap();
        let stored = StoredSession::new(record);
        let mut words = TextSearch::new(&SearchQuery::new("yy").unwrap().unwrap(), None);
        assert!(!words.matches_session(&stored).unwrap());
        assert!(!words.matches_session(&stored).unwrap());
        assert!(matches!(words.matches_session(&stored), Err(Error::TooSlow)));
    }
}
