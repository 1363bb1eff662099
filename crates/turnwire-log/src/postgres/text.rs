//! Texts as Postgres can store them.

use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// Stands before a digit that says which character was meant. A control character that nobody types.
const ESCAPE: char = '\u{1A}';

/// Postgres stores no NUL. Each character is escaped on its own, so prefixes stay prefixes.
pub(super) fn to_sql(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for sign in text.chars() {
        match sign {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, '1']),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// The text that [`to_sql`] was given.
pub(super) fn from_sql(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        out.push(match sign {
            ESCAPE if signs.next() == Some('0') => '\0',
            other => other,
        });
    }
    out
}

/// The longest id that is its own key. An entry of an index has at most 2,704 bytes.
const MAX_KEY_BYTES: usize = 512;

/// What an index holds of an id that may be long: its bytes, or a hash of them. No text begins with
/// the byte 255.
pub(super) fn index_key(id: &str) -> Vec<u8> {
    if id.len() <= MAX_KEY_BYTES {
        return id.as_bytes().to_vec();
    }
    let mut key = vec![0xFF];
    key.extend(Sha256::digest(id));
    key
}

#[cfg(test)]
mod tests {
    use super::{from_sql, index_key, to_sql};

    #[test]
    fn texts_come_back_as_they_were() {
        for text in ["", "plain", "a\0b", "\0", "\u{1A}", "\u{1A}0\0\u{1A}1", "日本\0語"] {
            let stored = to_sql(text);
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(from_sql(stored.into_owned()), text);
        }
        assert!(to_sql("a\0bc").starts_with(&*to_sql("a\0b")));
    }

    #[test]
    fn a_key_is_short_and_no_two_ids_have_the_same() {
        let long = "x".repeat(513);
        assert_eq!(index_key("short"), b"short");
        assert_eq!(index_key(&long).len(), 33);
        assert_ne!(index_key(&long), index_key(&format!("{long}x")));
    }
}
