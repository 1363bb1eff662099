//! The words of a search query, parsed once for all engines, with limits.
//!
//! ```
//! use turnwire_log::search::SearchQuery;
//!
//! let search = SearchQuery::new("Leeks, carrots!").unwrap().unwrap();
//! assert_eq!(search.words(), ["Leeks", "carrots"]);
//! assert!(SearchQuery::new(" -- ").unwrap().is_none());
//! assert!(SearchQuery::new(&"a ".repeat(6500)).is_err());
//! ```

/// The maximum length in bytes. Scripts without spaces are searched sign by sign, so this also
/// limits the signs of one query.
pub const MAX_BYTES: usize = 512;

/// The maximum number of words. Each costs one pass through the index.
pub const MAX_WORDS: usize = 32;

/// The words of a search: all must be in one text.
///
/// A word of one letter matches only whole words, because half of all texts have a word that starts
/// with it. A longer one also matches the start of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery(Vec<String>);

/// Why a query is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SearchTooLong {
    /// It has more bytes than [`MAX_BYTES`].
    #[error("a search may have at most {MAX_BYTES} bytes")]
    Bytes,
    /// It has more words than [`MAX_WORDS`].
    #[error("a search may have at most {MAX_WORDS} words")]
    Words,
}

impl SearchQuery {
    /// Parses a query. Everything except letters and digits separates words. `None` if there is no
    /// word.
    pub fn new(typed: &str) -> Result<Option<Self>, SearchTooLong> {
        let typed = typed.trim();
        if typed.len() > MAX_BYTES {
            return Err(SearchTooLong::Bytes);
        }
        let mut words: Vec<String> = Vec::new();
        for word in typed.split(|sign: char| !sign.is_alphanumeric()) {
            if word.is_empty() || words.iter().any(|known| known == word) {
                continue;
            }
            if words.len() == MAX_WORDS {
                return Err(SearchTooLong::Words);
            }
            words.push(word.to_owned());
        }
        Ok((!words.is_empty()).then_some(Self(words)))
    }

    /// The words as typed.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

/// Whether a script has no spaces between words. Korean has them, but its words carry particles.
pub fn is_unspaced_script(sign: char) -> bool {
    matches!(u32::from(sign),
        0x0E00..=0x0EFF // Thai, Lao
        | 0x1000..=0x109F // Burmese
        | 0x1100..=0x11FF | 0x3130..=0x318F | 0xA960..=0xA97F | 0xAC00..=0xD7FF // Korean
        | 0x1780..=0x17FF // Khmer
        | 0x2E80..=0x2FDF | 0x3005..=0x3007 | 0x3021..=0x3029 // Chinese
        | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0xFF66..=0xFF9F // Japanese
        | 0x3100..=0x312F | 0x31A0..=0x31BF // Bopomofo
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x2_0000..=0x3_FFFF)
}

/// Whether a word may match the start of a longer one: its last part has at least two letters, or
/// is in a script that is searched sign by sign.
pub fn can_be_word_prefix(word: &str) -> bool {
    let mut signs = word.chars().rev();
    match (signs.next(), signs.next()) {
        (Some(last), _) if is_unspaced_script(last) => true,
        (Some(_), Some(before)) => !is_unspaced_script(before),
        (Some(_) | None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, MAX_WORDS, SearchQuery, SearchTooLong, can_be_word_prefix};

    fn numbers(count: usize) -> String {
        (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_search_has_a_bound_of_words_and_of_bytes() {
        assert_eq!(
            SearchQuery::new(&numbers(MAX_WORDS)).unwrap().unwrap().words().len(),
            MAX_WORDS
        );
        assert_eq!(SearchQuery::new(&numbers(MAX_WORDS + 1)), Err(SearchTooLong::Words));
        assert!(SearchQuery::new(&"x".repeat(MAX_BYTES)).is_ok());
        assert_eq!(SearchQuery::new(&"x".repeat(MAX_BYTES + 1)), Err(SearchTooLong::Bytes));
        assert_eq!(SearchQuery::new(&"今".repeat(MAX_BYTES)), Err(SearchTooLong::Bytes));
    }

    #[test]
    fn a_word_that_comes_twice_counts_once() {
        let search = SearchQuery::new(&"ab cd ".repeat(MAX_WORDS)).unwrap().unwrap();
        assert_eq!(search.words(), ["ab", "cd"]);
    }

    #[test]
    fn a_single_letter_is_no_beginning_of_a_word() {
        for word in ["ab", "猫", "a猫", "今ok", "abc"] {
            assert!(can_be_word_prefix(word), "{word}");
        }
        for word in ["a", "é", "1", "猫a", ""] {
            assert!(!can_be_word_prefix(word), "{word}");
        }
    }
}
