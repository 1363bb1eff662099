//! Base64 that arrives in pieces, cut anywhere. The fold of data blocks uses it.
//!
//! The base64 text of a block is also the state of its decoder, so that a half-folded message can be stored
//! as JSON, loaded, and continued. While the block is open its text is
//!
//! - complete groups of four characters, of which only the last may be padded, and
//! - one to three characters of an incomplete group.
//!
//! Bytes after a padded group (AgentScope encodes each piece separately) are appended to the bytes of that
//! group, and the group is encoded again. So each piece costs only its own length.

use crate::error::{Error, ErrorKind, Result};
use crate::work;
use ::base64::Engine;
use ::base64::alphabet::STANDARD as ALPHABET;
use ::base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use ::base64::engine::{DecodePaddingMode, general_purpose};
use std::borrow::Cow;

/// Accepts groups with or without padding, and bits after the last byte, as Python does.
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

/// Decodes a text; of an open one, the complete bytes.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>> {
    let mut pieces = PieceDecoder::default();
    pieces.read(text)?;
    pieces.end();
    Ok(pieces.bytes)
}

/// Appends a piece, cut anywhere, to the text of an open block. On error the text is unchanged.
pub(crate) fn append(text: &mut String, piece: &str) -> Result<()> {
    let (kept, pieces) = decode_after_end(text, piece)?;
    text.truncate(kept);
    general_purpose::STANDARD.encode_string(&pieces.bytes, text);
    text.push_str(&pieces.open_group);
    Ok(())
}

/// Appends a piece to the text of a block that has ended, and closes it again. An incomplete byte at the end
/// is an error.
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

const LEFT_OVER: &str = "the data ends inside a byte: one leftover character";

/// Decodes a piece after the open end of a text. Returns how many characters of the text stay, and what
/// follows them.
fn decode_after_end(text: &str, piece: &str) -> Result<(usize, PieceDecoder)> {
    let (kept, begun, mut pieces) = split_open_end(text)?;
    let joined = if begun.is_empty() { Cow::Borrowed(piece) } else { Cow::Owned(begun + piece) };
    pieces.read(&joined)?;
    work::count(joined.len() + pieces.bytes.len());
    Ok((kept, pieces))
}

/// Checks whether the text could be closed now.
pub(crate) fn check_end(text: &str) -> Result<()> {
    match split_open_end(text) {
        Ok((_, begun, _)) if begun.len() == 1 && is_group_start(&begun) => {
            Err(base64_error(LEFT_OVER))
        }
        _ => Ok(()),
    }
}

/// Closes the text: an incomplete group counts as unpadded. A single leftover character is dropped;
/// [`check_end`] reports it first. Text that [`append`] did not make stays unchanged.
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

/// Splits the open end off a text. Returns how many characters stay, the characters of the incomplete
/// group, and the decoded padded group before it.
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
    /// The characters of an incomplete group.
    open_group: String,
}

impl PieceDecoder {
    /// Decodes text that starts at a group. Padding ends a run; another run may follow.
    fn read(&mut self, text: &str) -> Result<()> {
        let before = self.bytes.len();
        self.read_dense(text).or_else(|error| {
            // MIME base64 has line breaks. Searching for them first would slow down all other data.
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
                return Err(base64_error("misplaced padding"));
            }
            self.decode(rest.get(..group))?;
            match rest.get(group..group + 4) {
                Some(last)
                    if last.get(pad - group..).is_some_and(|pad| pad == "=" || pad == "==") =>
                {
                    self.decode(Some(last))?;
                    rest = rest.get(group + 4..).unwrap_or_default();
                }
                // `ab=`: the second `=` has not arrived.
                None if rest.len() - group == 3 => return self.set_open_group(rest.get(group..)),
                _ => return Err(base64_error("misplaced padding")),
            }
        }
        let whole = rest.len() - rest.len() % 4;
        self.decode(rest.get(..whole))?;
        self.set_open_group(rest.get(whole..))
    }

    fn decode(&mut self, groups: Option<&str>) -> Result<()> {
        // `None`: not a character boundary, so this is not base64.
        let groups = groups.ok_or_else(|| base64_error("invalid base64 character"))?;
        LENIENT
            .decode_vec(groups, &mut self.bytes)
            .map_err(|_| base64_error("invalid base64 character"))
    }

    /// Decodes the incomplete group as unpadded.
    fn end(&mut self) {
        let before = self.bytes.len();
        // One character is less than a byte: then there is nothing to add.
        if LENIENT.decode_vec(self.open_group.trim_end_matches('='), &mut self.bytes).is_err() {
            self.bytes.truncate(before);
        }
    }

    fn set_open_group(&mut self, group: Option<&str>) -> Result<()> {
        let group = group.ok_or_else(|| base64_error("invalid base64 character"))?;
        if !group.is_empty() && !is_group_start(group) {
            return Err(base64_error("invalid base64 character"));
        }
        group.clone_into(&mut self.open_group);
        Ok(())
    }
}

/// Whether these one to three characters can be the start of a group; `ab=` is the longest with padding.
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
    fn pieces_join_at_any_cut() {
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
            // Bits after the last byte.
            (&["aGl="], "hi"),
        ] {
            let text = whole(pieces).unwrap();
            assert_eq!(text, encode(expected.as_bytes()), "{pieces:?}");
            assert_eq!(decode(&text).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn invalid_base64_is_refused_and_changes_nothing() {
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
    fn foreign_text_does_not_panic() {
        for start in ["é", "aé", "====", "aGk", "==é=", "a\u{10FFFF}b", "a==="] {
            let mut text = start.to_owned();
            let _ = append(&mut text, "aGk=");
            let _ = check_end(&text);
            close(&mut text);
            let _ = decode(&text);
        }
    }

    #[test]
    fn closing_does_not_change_foreign_text() {
        for whole in ["", "...", "é", "aGVs\nbG8=", "=", "a==", "aGk=", "aGVs"] {
            let mut text = whole.to_owned();
            assert_eq!(check_end(&text), Ok(()));
            close(&mut text);
            assert_eq!(text, whole);
        }
    }
}
