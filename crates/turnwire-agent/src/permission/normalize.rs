//! Normalizes spellings of a text: case, composed accents, percent-encoding.

use icu_normalizer::ComposingNormalizerBorrowed;

/// How often percent-encoding is decoded: some programs decode more than once.
const MAX_LAYERS: usize = 4;

/// Lower case, in Unicode's composed form (NFC).
pub(super) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let composed = ComposingNormalizerBorrowed::new_nfc().normalize(text);
    // Lower case can break the composed form.
    ComposingNormalizerBorrowed::new_nfc().normalize(&composed.to_lowercase()).into_owned()
}

/// Decodes every layer of percent-encoding. Invalid UTF-8 is replaced.
pub(super) fn decode_percent(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..MAX_LAYERS {
        let decoded = decode_once(&text, |_| true);
        if decoded == text {
            break;
        }
        text = decoded;
    }
    text
}

/// The normal form of a URL segment: decodes letters, digits, `-._~` and non-ASCII; keeps other encoded
/// characters, in upper case.
pub(super) fn normalize_segment(segment: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let decoded = decode_once(segment, |byte| is_unreserved(byte) || !byte.is_ascii());
    if decoded.contains(char::REPLACEMENT_CHARACTER) {
        return decode_once(segment, is_unreserved);
    }
    decoded
}

/// Decodes the wanted bytes, and writes the others in upper case.
fn decode_once(text: &str, is_wanted: impl Fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| {
        bytes
            .get(at)
            .and_then(|byte| char::from(*byte).to_digit(16))
            .and_then(|d| u8::try_from(d).ok())
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                let value = high * 16 + low;
                if is_wanted(value) {
                    out.push(value);
                } else {
                    out.extend(format!("%{value:02X}").into_bytes());
                }
                at += 3;
            }
            // A lone `%` could become part of another encoding.
            (b'%', ..) if !is_wanted(b'%') => {
                out.extend(b"%25");
                at += 1;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_testkit::{Rng, check_property, pick};

    fn some_text(rng: &mut Rng) -> String {
        let pieces = [
            "%", "%2", "%41", "%2f", "%2F", "%25", "%C3%A9", "%c3", "a", "B", "é", "e\u{301}", "/",
            ".", "ß", "İ", "2e",
        ];
        (0..rng.usize(..12)).map(|_| *pick(rng, &pieces)).collect()
    }

    #[test]
    fn normalising_twice_equals_once() {
        check_property("normalising_twice_equals_once", 2_000, |rng| {
            let text = some_text(rng);
            for normal in [fold_case, normalize_segment] {
                let once = normal(&text);
                assert_eq!(normal(&once), once, "{text}");
            }
        });
    }

    #[test]
    fn percent_encoding_is_decoded_layer_by_layer() {
        assert_eq!(decode_percent("%252e%2E/%2561"), "../a");
        assert_eq!(normalize_segment("%7euser%2f%2e%c3%a9"), "~user%2F.é");
        assert_eq!(normalize_segment("%ff%41"), "%FFA");
        assert_eq!(fold_case("CAFE\u{301}"), "caf\u{e9}");
    }
}
