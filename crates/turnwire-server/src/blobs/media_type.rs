//! Media types of blobs: which are stored, and how each is served.
//!
//! Only the essence of a media type is stored: `type/subtype` in lower case, without parameters.
//! Browsers read a `Content-Type` with commas or odd parameters in ways of their own, so nothing
//! that a client or another server wrote is repeated in a header.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

/// The type of bytes of unknown type.
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// The longest type, and the longest subtype (RFC 6838, section 4.2).
const MAX_NAME: usize = 127;

/// Types that a browser may display, because none of them can run a script. All others are downloads.
/// PDF is not among them: PDF viewers run scripts, and do not start in a sandbox.
const PASSIVE: [&str; 24] = [
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "audio/mpeg",
    "audio/mp3",
    "audio/mp4",
    "audio/aac",
    "audio/wav",
    "audio/wave",
    "audio/x-wav",
    "audio/ogg",
    "audio/webm",
    "audio/flac",
    "video/mp4",
    "video/webm",
    "video/ogg",
    "video/quicktime",
    "video/mpeg",
    "video/x-matroska",
];

/// The essence of a media type; `None` if the text is not a media type.
pub(crate) fn essence(text: &str) -> Option<String> {
    let essence = text.split(';').next().unwrap_or_default();
    let essence = essence.trim_matches([' ', '\t']).to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    (is_name(kind) && is_name(subtype)).then_some(essence)
}

/// The essence of a media type, or [`UNKNOWN`]: for unchecked types, from older versions or other servers.
pub(crate) fn essence_or_unknown(text: &str) -> String {
    essence(text).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// A restricted name of RFC 6838.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    text.len() <= MAX_NAME
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(fits)
}

/// The essence of a request's `Content-Type`, [`UNKNOWN`] without one; `None` if it is not a media
/// type, or if there are several.
pub(crate) fn from_headers(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let Some(value) = values.next() else { return Some(UNKNOWN.to_owned()) };
    if values.next().is_some() {
        return None;
    }
    essence(value.to_str().ok()?)
}

/// How the bytes of a blob are served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServedType {
    pub(crate) content_type: HeaderValue,
    pub(crate) disposition: &'static str,
}

/// How bytes of a stored type are served.
pub(crate) fn served_as(stored: &str) -> ServedType {
    let essence = essence_or_unknown(stored);
    let disposition = if is_passive(&essence) { "inline" } else { "attachment" };
    let unknown = HeaderValue::from_static(UNKNOWN);
    // The console's policy allows scripts and styles of its own origin, and a download could be loaded
    // as either. The media type prevents that.
    let content_type = if is_script_or_style(&essence) {
        unknown
    } else {
        HeaderValue::from_str(&essence).unwrap_or(unknown)
    };
    ServedType { content_type, disposition }
}

/// Whether a browser may display it.
pub(crate) fn is_passive(essence: &str) -> bool {
    PASSIVE.contains(&essence)
}

/// Whether the type of a new upload replaces the stored one of the same bytes. So whoever uploads an image
/// first under another type cannot prevent its display.
pub(crate) fn outranks(essence: &str, stored: &str) -> bool {
    let rank = |essence: &str| match essence {
        UNKNOWN => 0,
        essence if is_passive(essence) => 2,
        _ => 1,
    };
    rank(essence) > rank(&essence_or_unknown(stored))
}

fn is_script_or_style(essence: &str) -> bool {
    essence == "text/css"
        || ["javascript", "ecmascript", "jscript", "livescript"]
            .iter()
            .any(|word| essence.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_essence_of_a_valid_type_is_kept() {
        let long = format!("image/{}", "x".repeat(127));
        let too_long = format!("image/{}", "x".repeat(128));
        for (text, expected) in [
            ("image/png", Some("image/png")),
            (" \tIMAGE/Png ", Some("image/png")),
            ("text/html;charset=utf-8", Some("text/html")),
            ("video/webm;codecs=vp8,opus", Some("video/webm")),
            ("application/pdf;x=y, text/html", Some("application/pdf")),
            ("image/svg+xml", Some("image/svg+xml")),
            (&long, Some(&long)),
            (&too_long, None),
            ("application/pdf, text/html", None),
            ("image/png,text/html", None),
            ("text/html image/png", None),
            ("image/png\r\nx: y", None),
            ("image/png\0", None),
            ("image/png\u{a0}", None),
            ("image/p\u{e4}ng", None),
            ("image/png/x", None),
            ("image/*", None),
            ("*/*", None),
            ("image/.png", None),
            ("image/", None),
            ("/png", None),
            ("png", None),
            (";image/png", None),
            ("", None),
        ] {
            assert_eq!(essence(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_type_takes_the_place_of_one_that_says_less() {
        for (new, stored, expected) in [
            ("image/png", "text/html", true),
            ("image/png", UNKNOWN, true),
            ("image/png", "image/jpeg", false),
            ("image/png", "image/png, text/html", true),
            ("text/html", "image/png", false),
            ("text/html", "text/csv", false),
            ("text/csv", UNKNOWN, true),
            (UNKNOWN, UNKNOWN, false),
        ] {
            assert_eq!(outranks(new, stored), expected, "{new} {stored}");
        }
    }

    #[test]
    fn only_passive_types_are_displayed() {
        for (stored, content_type, disposition) in [
            ("image/png", "image/png", "inline"),
            ("IMAGE/PNG; x=y", "image/png", "inline"),
            ("image/png, text/html", UNKNOWN, "attachment"),
            ("application/pdf;x=y, text/html", "application/pdf", "attachment"),
            ("application/pdf", "application/pdf", "attachment"),
            ("image/svg+xml", "image/svg+xml", "attachment"),
            ("text/html; charset=utf-8", "text/html", "attachment"),
            ("application/xhtml+xml", "application/xhtml+xml", "attachment"),
            ("text/xml", "text/xml", "attachment"),
            ("multipart/x-mixed-replace", "multipart/x-mixed-replace", "attachment"),
            ("text/plain", "text/plain", "attachment"),
            ("text/javascript", UNKNOWN, "attachment"),
            ("application/x-ECMAscript", UNKNOWN, "attachment"),
            ("text/css", UNKNOWN, "attachment"),
            ("\u{e4}", UNKNOWN, "attachment"),
            ("", UNKNOWN, "attachment"),
        ] {
            let served = served_as(stored);
            assert_eq!(served.content_type, content_type, "{stored:?}");
            assert_eq!(served.disposition, disposition, "{stored:?}");
        }
    }
}
