//! Text search with Postgres' own full text, over words that we split.
//!
//! The parsers of Postgres know URLs, host names and hyphenated words, and take a text without
//! spaces, such as Chinese, for one word. A search must find the same as with the other engines, so
//! texts and queries are split here: at everything but letters and digits, and in scripts without
//! spaces sign by sign, together with all pairs of neighbours. A word of several such signs is found
//! where all its pairs are. Positions are not stored: Postgres has room for few of them.

use crate::search::{SearchQuery, can_be_word_prefix, is_unspaced_script};
use icu_normalizer::{ComposingNormalizer, DecomposingNormalizer};
use std::collections::BTreeSet;

/// The condition for sessions `s` that have the words `$words`.
pub(super) const CONDITION: &str = " AND s.no IN (
    SELECT session FROM turnwire.messages WHERE words @@ $words::text::tsquery
    UNION ALL SELECT session FROM turnwire.titles WHERE words @@ $words::text::tsquery)";

/// Only this much of a text is indexed. Postgres stores at most 1 MiB of words of one text.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Longer words are cut. Postgres stores at most 2 KiB of a word.
const MAX_WORD_BYTES: usize = 1024;

/// Marks of letters, which are not searched: `é` is found as `e`.
const ACCENTS: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36F}';

/// Part of a text.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// A word of letters and digits.
    Word(String),
    /// Neighbouring signs of scripts without spaces.
    Signs(Vec<char>),
}

fn tokens(text: &str) -> Vec<Token> {
    let folded: String = text.chars().flat_map(char::to_lowercase).collect();
    let folded = DecomposingNormalizer::new_nfd().normalize(&folded).into_owned();
    let mut tokens = Vec::new();
    for word in folded.split(|sign: char| !sign.is_alphanumeric() && !ACCENTS.contains(&sign)) {
        let word: String = word.chars().filter(|sign| !ACCENTS.contains(sign)).collect();
        // Korean syllables as one sign each, not as the letters that they are made of.
        for sign in ComposingNormalizer::new_nfc().normalize(&word).chars() {
            match (is_unspaced_script(sign), tokens.last_mut()) {
                (true, Some(Token::Signs(signs))) => signs.push(sign),
                (true, _) => tokens.push(Token::Signs(vec![sign])),
                (false, Some(Token::Word(word))) => word.push(sign),
                (false, _) => tokens.push(Token::Word(sign.to_string())),
            }
        }
        // The next word begins a token of its own.
        tokens.push(Token::Word(String::new()));
    }
    tokens.retain(|token| *token != Token::Word(String::new()));
    tokens
}

fn cut(word: &str) -> &str {
    word.get(..word.floor_char_boundary(MAX_WORD_BYTES)).unwrap_or(word)
}

/// A text as the value of a `tsvector`.
pub(super) fn to_words(text: &str) -> String {
    let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or(text);
    let mut words = BTreeSet::new();
    for token in tokens(text) {
        match token {
            Token::Word(word) => drop(words.insert(cut(&word).to_owned())),
            Token::Signs(signs) => {
                words.extend(signs.iter().map(char::to_string));
                words.extend(pairs(&signs));
            }
        }
    }
    // Letters and digits need no escape.
    words.into_iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

fn pairs(signs: &[char]) -> impl Iterator<Item = String> {
    signs.iter().zip(signs.iter().skip(1)).map(|(one, next)| format!("{one}{next}"))
}

/// A search as the value of a `tsquery`: all words must match. `None` if nothing can match.
pub(super) fn to_query(search: &SearchQuery) -> Option<String> {
    let mut parts = Vec::new();
    for word in search.words() {
        let mut tokens = tokens(word);
        let last = tokens.pop();
        for token in tokens {
            add_token(token, false, &mut parts);
        }
        if let Some(last) = last {
            add_token(last, can_be_word_prefix(word), &mut parts);
        }
    }
    (!parts.is_empty()).then(|| parts.join(" & "))
}

fn add_token(token: Token, is_prefix: bool, parts: &mut Vec<String>) {
    match token {
        Token::Word(word) => {
            let star = if is_prefix { ":*" } else { "" };
            parts.push(format!("'{}'{star}", cut(&word)));
        }
        Token::Signs(signs) => match signs.as_slice() {
            [sign] => parts.push(format!("'{sign}'")),
            signs => parts.extend(pairs(signs).map(|pair| format!("'{pair}'"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{SearchQuery, to_query, to_words};

    fn query(typed: &str) -> String {
        to_query(&SearchQuery::new(typed).unwrap().unwrap()).unwrap_or_default()
    }

    #[test]
    fn words_are_letters_and_digits_without_case_and_accents() {
        assert_eq!(
            to_words("Überall: e-mail, x.y/2 CAFÉS!"),
            "'2' 'cafes' 'e' 'mail' 'uberall' 'x' 'y'"
        );
        assert_eq!(to_words("it's 'quoted' \\ \0"), "'it' 'quoted' 's'");
        assert_eq!(to_words(""), "");
        assert_eq!(query("Überlingen b"), "'uberlingen':* & 'b'");
    }

    #[test]
    fn signs_are_found_alone_and_with_their_neighbours() {
        assert_eq!(to_words("今天 ok气"), "'ok' '今' '今天' '天' '气'");
        assert_eq!(query("今天气ok"), "'今天' & '天气' & 'ok':*");
        assert_eq!(query("猫"), "'猫'");
        assert_eq!(query("날씨"), "'날씨'");
        assert_eq!(to_words("날씨"), "'날' '날씨' '씨'");
    }

    #[test]
    fn texts_and_words_have_a_bound() {
        assert!(to_words(&"x".repeat(1 << 20)).len() < 2000);
        let many: Vec<String> = (0..200_000).map(|n| format!("w{n}")).collect();
        assert!(to_words(&many.join(" ")).len() < 1 << 20);
    }
}
