//! Base64 that arrives in pieces.
//!
//! A block's base64 text is at the same time the state of its decoder, so that a half-folded
//! message can be written out, read back and folded on without anything beside it. While the block
//! is open its text is
//!
//! - whole groups of four characters, of which only the last may be padded, and
//! - the one to three characters of a group that has begun.
//!
//! Bytes that follow a padded group (each piece of AgentScope's is encoded on its own) are joined
//! to it and that last group is encoded again, so each piece costs its own length.

use crate::error::{Error, ErrorKind, Result};
use crate::work;
use ::base64::Engine;
use ::base64::alphabet::STANDARD as ALPHABET;
use ::base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use ::base64::engine::{DecodePaddingMode, general_purpose};
use std::borrow::Cow;

/// Takes groups with or without padding, and bits behind the last byte: Python writes none and
/// minds none.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

fn base64_error(message: &str) -> Error {
    Error::new(ErrorKind::BadBase64, message)
}

/// Bytes as base64 text.
pub(crate) fn encode(bytes: &[u8]) -> String {
    general_purpose::STANDARD.encode(bytes)
}

/// The bytes of a text; of an open one, as far as they are certain.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>> {
    let mut pieces = PieceDecoder::default();
    pieces.read(text)?;
    pieces.end();
    Ok(pieces.bytes)
}

/// Appends a piece, cut anywhere, to the text of an open block. The text is untouched on error.
pub(crate) fn append(text: &mut String, piece: &str) -> Result<()> {
    let (kept, pieces) = decode_after_end(text, piece)?;
    text.truncate(kept);
    general_purpose::STANDARD.encode_string(&pieces.bytes, text);
    text.push_str(&pieces.open_group);
    Ok(())
}

/// Appends a piece to the text of a block that has ended, and closes it again: a rest that is no byte
/// is refused.
pub(crate) fn append_closed(text: &mut String, piece: &str) -> Result<()> {
    let (kept, mut pieces) = decode_after_end(text, piece)?;
    if pieces.open_group.len() == 1 {
        return Err(base64_error(LEFT_OVER));
    }
    pieces.end();
    text.truncate(kept);
    general_purpose::STANDARD.encode_string(&pieces.bytes, text);
    Ok(())
}

const LEFT_OVER: &str = "the data ends inside a byte: one character is left over";

/// A piece behind the open end of a text: how much of the text stands, and what comes behind it.
fn decode_after_end(text: &str, piece: &str) -> Result<(usize, PieceDecoder)> {
    let (kept, begun, mut pieces) = split_open_end(text)?;
    let joined = if begun.is_empty() { Cow::Borrowed(piece) } else { Cow::Owned(begun + piece) };
    pieces.read(&joined)?;
    work::count(joined.len() + pieces.bytes.len());
    Ok((kept, pieces))
}

/// What is wrong with the end of the text, if it were closed now.
pub(crate) fn check_end(text: &str) -> Result<()> {
    match split_open_end(text) {
        Ok((_, begun, _)) if begun.len() == 1 && is_group_start(&begun) => {
            Err(base64_error(LEFT_OVER))
        }
        _ => Ok(()),
    }
}

/// Closes the text: a group that has begun is taken as unpadded. A rest that is no byte is dropped;
/// [`check_end`] tells beforehand. Text that [`append`] did not make is left as it is.
pub(crate) fn close(text: &mut String) {
    let Ok((kept, begun, mut pieces)) = split_open_end(text) else { return };
    if begun.is_empty() || !is_group_start(&begun) {
        return;
    }
    pieces.open_group = begun;
    pieces.end();
    text.truncate(kept);
    general_purpose::STANDARD.encode_string(&pieces.bytes, text);
}

/// Takes the open end off a text: how much of it stands, the characters of the group that has
/// begun, and the bytes of the padded group before them.
fn split_open_end(text: &str) -> Result<(usize, String, PieceDecoder)> {
    let whole = text.len() - text.len() % 4;
    let not_base64 = || base64_error("the block holds data that is not base64");
    let begun = text.get(whole..).ok_or_else(not_base64)?.to_owned();
    let mut pieces = PieceDecoder::default();
    if !text.get(..whole).ok_or_else(not_base64)?.ends_with('=') {
        return Ok((whole, begun, pieces));
    }
    let kept = whole - 4;
    let last = text.get(kept..whole).ok_or_else(not_base64)?;
    LENIENT.decode_vec(last, &mut pieces.bytes).map_err(|_| not_base64())?;
    Ok((kept, begun, pieces))
}

#[derive(Default)]
struct PieceDecoder {
    bytes: Vec<u8>,
    /// The characters of a group that has begun.
    open_group: String,
}

impl PieceDecoder {
    /// Reads text that starts at a group. Padding ends a run; another may follow.
    fn read(&mut self, text: &str) -> Result<()> {
        let before = self.bytes.len();
        self.read_dense(text).or_else(|error| {
            // Base64 as mail wraps it has line ends inside; looking for them first would cost
            // everybody else.
            if !text.bytes().any(|byte| byte.is_ascii_whitespace()) {
                return Err(error);
            }
            self.bytes.truncate(before);
            let dense: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            self.read_dense(&dense)
        })
    }

    fn read_dense(&mut self, mut rest: &str) -> Result<()> {
        while let Some(pad) = memchr::memchr(b'=', rest.as_bytes()) {
            let group = pad - pad % 4;
            if pad - group < 2 {
                return Err(base64_error("padding where none can be"));
            }
            self.decode(rest.get(..group))?;
            match rest.get(group..group + 4) {
                Some(last)
                    if last.get(pad - group..).is_some_and(|pad| pad == "=" || pad == "==") =>
                {
                    self.decode(Some(last))?;
                    rest = rest.get(group + 4..).unwrap_or_default();
                }
                // `ab=`: the second `=` is still to come.
                None if rest.len() - group == 3 => return self.set_open_group(rest.get(group..)),
                _ => return Err(base64_error("padding where none can be")),
            }
        }
        let whole = rest.len() - rest.len() % 4;
        self.decode(rest.get(..whole))?;
        self.set_open_group(rest.get(whole..))
    }

    fn decode(&mut self, groups: Option<&str>) -> Result<()> {
        // `None` is a cut inside a character, which no base64 text has.
        let groups = groups.ok_or_else(|| base64_error("a character that is not base64"))?;
        LENIENT
            .decode_vec(groups, &mut self.bytes)
            .map_err(|_| base64_error("a character that is not base64"))
    }

    /// Takes the group that has begun as unpadded.
    fn end(&mut self) {
        let before = self.bytes.len();
        // One character is no byte: an error here means that there is nothing to add.
        if LENIENT.decode_vec(self.open_group.trim_end_matches('='), &mut self.bytes).is_err() {
            self.bytes.truncate(before);
        }
    }

    fn set_open_group(&mut self, group: Option<&str>) -> Result<()> {
        let group = group.ok_or_else(|| base64_error("a character that is not base64"))?;
        if !group.is_empty() && !is_group_start(group) {
            return Err(base64_error("a character that is not base64"));
        }
        group.clone_into(&mut self.open_group);
        Ok(())
    }
}

/// Whether these one to three characters can be the beginning of a group: `ab=` is the longest with
/// padding.
fn is_group_start(group: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = group.strip_suffix('=').filter(|digits| digits.len() == 2).unwrap_or(group);
    !digits.is_empty() && digits.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pieces: &[&str]) -> Result<String> {
        let mut text = String::new();
        for piece in pieces {
            append(&mut text, piece)?;
        }
        check_end(&text)?;
        close(&mut text);
        Ok(text)
    }

    #[test]
    fn pieces_join_wherever_they_are_cut() {
        for (pieces, expected) in [
            (&["aGVsbG8="][..], "hello"),
            (&["a", "G", "V", "s", "b", "G", "8", "="], "hello"),
            (&["aGVsbG8"], "hello"),
            (&["aGk=", "aGk="], "hihi"),
            (&["aGk=aGk="], "hihi"),
            (&["aGk=aG", "k=aGk"], "hihihi"),
            (&["aA=", "=", "aA", "=", "=aA"], "hhh"),
            (&["aA=="], "h"),
            (&["aA="], "h"),
            (&["aG\r\nVs", " bG8=\n"], "hello"),
            (&[""], ""),
            (&[], ""),
            // Bits behind the last byte.
            (&["aGl="], "hi"),
        ] {
            let text = whole(pieces).unwrap();
            assert_eq!(text, encode(expected.as_bytes()), "{pieces:?}");
            assert_eq!(decode(&text).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn what_is_not_base64_is_refused_and_changes_nothing() {
        for pieces in [
            &["a"][..],
            &["aGk=", "a"],
            &["="],
            &["aGk=="],
            &["aG=k"],
            &["a=bc"],
            &["!!!!"],
            &["é"],
            &["aGk", "é"],
            &["aGV", "s-"],
        ] {
            let error = whole(pieces).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadBase64, "{pieces:?}");
        }
        let mut text = "aGVs".to_owned();
        append(&mut text, "bG8=*").unwrap_err();
        assert_eq!(text, "aGVs");
    }

    #[test]
    fn text_that_others_made_is_no_reason_to_panic() {
        for start in ["é", "aé", "====", "aGk", "==é=", "a\u{10FFFF}b", "a==="] {
            let mut text = start.to_owned();
            let _ = append(&mut text, "aGk=");
            let _ = check_end(&text);
            close(&mut text);
            let _ = decode(&text);
        }
    }

    #[test]
    fn text_that_others_made_is_not_changed_by_closing_it() {
        for whole in ["", "...", "é", "aGVs\nbG8=", "=", "a==", "aGk=", "aGVs"] {
            let mut text = whole.to_owned();
            assert_eq!(check_end(&text), Ok(()));
            close(&mut text);
            assert_eq!(text, whole);
        }
    }
}
