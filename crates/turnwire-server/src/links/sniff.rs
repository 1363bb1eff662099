//! Detects the media type of fetched bytes: from their server, their first bytes, or their name.

use crate::blobs::media_type::{UNKNOWN, essence};

/// Types that servers send for unknown content.
const GENERIC_TYPES: [&str; 5] = [
    UNKNOWN,
    "binary/octet-stream",
    "application/x-download",
    "application/force-download",
    "application/unknown",
];

/// Magic numbers: offset, bytes, media type.
const SIGNATURES: [(usize, &[u8], &str); 18] = [
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBPVP8", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (8, b"WAVEfmt ", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (4, b"ftypM4A ", "audio/mp4"),
    (4, b"ftypqt  ", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
];

/// Media types by file extension.
const EXTENSIONS: [(&str, &str); 34] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("heic", "image/heic"),
    ("bmp", "image/bmp"),
    ("svg", "image/svg+xml"),
    ("tiff", "image/tiff"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("ogg", "audio/ogg"),
    ("flac", "audio/flac"),
    ("m4a", "audio/mp4"),
    ("mp4", "video/mp4"),
    ("mov", "video/quicktime"),
    ("webm", "video/webm"),
    ("mkv", "video/x-matroska"),
    ("pdf", "application/pdf"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("txt", "text/plain"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("tsv", "text/tab-separated-values"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
];

/// The media type of bytes: from what their server declares, their first bytes, or the file name.
/// `application/octet-stream` if nothing tells.
pub fn detect_media_type(declared: Option<&str>, name: Option<&str>, bytes: &[u8]) -> String {
    let declared =
        declared.and_then(essence).filter(|declared| !GENERIC_TYPES.contains(&declared.as_str()));
    let seen = sniff_bytes(bytes);
    match (declared, seen) {
        // Servers mix up formats of one family; the bytes decide.
        (Some(declared), Some(seen)) if type_family(&declared) == type_family(seen) => {
            seen.to_owned()
        }
        (Some(declared), _) => declared,
        (None, Some(seen)) => seen.to_owned(),
        (None, None) => match name.and_then(type_by_extension) {
            Some(called) => called.to_owned(),
            None if is_text(bytes) => "text/plain".to_owned(),
            None => UNKNOWN.to_owned(),
        },
    }
}

/// The media type that a block declares; of older media blocks only the family is known.
pub(super) fn declared_type(text: &str) -> Option<String> {
    let is_family = ["image/*", "audio/*", "video/*"].contains(&text);
    if is_family { Some(text.to_owned()) } else { essence(text) }
}

/// The part before the `/`.
pub(super) fn type_family(kind: &str) -> &str {
    kind.split('/').next().unwrap_or_default()
}

fn sniff_bytes(bytes: &[u8]) -> Option<&'static str> {
    let begins = |(at, begin, _): &&(usize, &[u8], &str)| {
        bytes.get(*at..).is_some_and(|rest| rest.starts_with(begin))
    };
    SIGNATURES.iter().find(begins).map(|(_, _, kind)| *kind)
}

fn type_by_extension(name: &str) -> Option<&'static str> {
    let (_, end) = name.rsplit_once('.')?;
    EXTENSIONS.iter().find(|(word, _)| word.eq_ignore_ascii_case(end)).map(|(_, kind)| *kind)
}

fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_are_said_to_be_unless_they_show_otherwise() {
        let png = b"\x89PNG\r\n\x1a\n....";
        for (declared, name, bytes, expected) in [
            (Some("image/png"), None, &png[..], "image/png"),
            (Some("Image/JPEG; q=1"), None, png, "image/png"),
            (Some("text/html"), None, png, "text/html"),
            (Some("application/octet-stream"), None, png, "image/png"),
            (None, Some("a.PDF"), b"x", "application/pdf"),
            (None, Some("a.pdf"), png, "image/png"),
            (Some("nonsense"), Some("a"), b"words", "text/plain"),
            (Some("*/*"), None, b"words", "text/plain"),
            (Some("image/png, text/html"), None, b"words", "text/plain"),
            (Some("image/jpeg, text/html"), None, png, "image/png"),
            (Some("image/\"png"), None, b"\0", "application/octet-stream"),
            (None, None, b"\0\x01", "application/octet-stream"),
            (Some("audio/mp4"), None, b"\0\0\0\x20ftypisom", "audio/mp4"),
            (None, None, b"\0\0\0\x20ftypisom", "video/mp4"),
            (None, None, b"RIFF....WEBPVP8 ", "image/webp"),
            (None, None, b"RIFF....WAVEfmt ", "audio/wav"),
        ] {
            assert_eq!(detect_media_type(declared, name, bytes), expected, "{declared:?} {name:?}");
        }
    }
}
