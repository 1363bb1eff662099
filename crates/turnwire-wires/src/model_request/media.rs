//! Images, audio and files: what all providers handle alike.

use std::borrow::Cow;
use turnwire_core::block::{Base64Source, DataKind, UrlSource};
use turnwire_core::{DataBlock, Source};

/// The text that replaces data that a provider does not accept.
pub fn describe_omitted_data(block: &DataBlock, why: &str) -> String {
    let kind = media_type(block).unwrap_or("data");
    match &block.name {
        Some(name) => format!("[{kind} \"{name}\" was left out: {why}]"),
        None => format!("[{kind} was left out: {why}]"),
    }
}

/// The media type of a block, if known. Older media blocks give only a family, such as `image/*`.
pub fn media_type(block: &DataBlock) -> Option<&str> {
    block.media_type().or(match block.kind {
        DataKind::Data => None,
        DataKind::Image => Some("image/*"),
        DataKind::Audio => Some("audio/*"),
        DataKind::Video => Some("video/*"),
    })
}

/// The media type of a block for a provider that requires one: the usual type if only the family is known.
pub(crate) fn default_media_type(block: &DataBlock) -> Option<&str> {
    match media_type(block)? {
        "" => None,
        "image/*" => Some("image/png"),
        "audio/*" => Some("audio/wav"),
        "video/*" => Some("video/mp4"),
        declared => Some(declared),
    }
}

/// Why `OpenAI` does not accept an image.
pub(crate) const ACCEPTED_IMAGES_ONLY: &str = "only PNG, JPEG, GIF and WebP are taken";

/// Whether `OpenAI` accepts images of this type. An unknown type may be one of them.
pub(crate) fn openai_accepts_image(kind: &str) -> bool {
    kind == "image/*" || IMAGE_SIGNATURES.iter().any(|(word, _)| *word == kind)
}

/// The type of image that no model accepts, and why.
pub(crate) const SVG: &str = "image/svg+xml";
pub(crate) const RASTER_IMAGES_ONLY: &str = "the model accepts only bitmap images";

/// How the base64 of each image type begins.
const IMAGE_SIGNATURES: [(&str, &str); 4] = [
    ("image/png", "iVBORw0KGgo"),
    ("image/jpeg", "/9j/"),
    ("image/gif", "R0lGOD"),
    ("image/webp", "UklGR"),
];

/// The type of an image, recognised by its first bytes.
pub(crate) fn sniff_image_type(base64: &str) -> Option<&'static str> {
    IMAGE_SIGNATURES.iter().find(|(_, begin)| base64.starts_with(begin)).map(|(word, _)| *word)
}

/// A block as it can be sent: a `data:` URL becomes bytes, the media type is normalized, and an image without one gets the
/// type of its bytes. The error says why there is nothing to send.
pub(crate) fn normalize_data(block: &DataBlock) -> Result<Cow<'_, DataBlock>, &'static str> {
    let mut block = Cow::Borrowed(block);
    if let Source::Url(source) = &block.source
        && starts_with_ignoring_case(&source.url, "data:")
    {
        let source = Source::Base64(decode_data_url(source).ok_or("its URL cannot be read")?);
        block.to_mut().source = source;
    }
    if matches!(&block.source, Source::Base64(source) if source.data.is_empty()) {
        return Err("it has no bytes");
    }
    if let Some(kind) = media_type(&block)
        && let Some(plain) = normalized_media_type(kind, &block.source)
    {
        match &mut block.to_mut().source {
            Source::Base64(source) => source.media_type = Some(plain),
            Source::Url(source) => source.media_type = Some(plain),
            Source::Other(_) => {}
        }
    }
    Ok(block)
}

fn starts_with_ignoring_case(text: &str, begin: &str) -> bool {
    text.get(..begin.len()).is_some_and(|start| start.eq_ignore_ascii_case(begin))
}

/// The media type as providers compare it, if it is written differently.
fn normalized_media_type(kind: &str, source: &Source) -> Option<String> {
    let (word, _) = kind.split_once(';').unwrap_or((kind, ""));
    let word = word.trim().to_ascii_lowercase();
    let plain = match (word.as_str(), source) {
        ("image/jpg", _) => "image/jpeg",
        ("image/*", Source::Base64(source)) => sniff_image_type(&source.data).unwrap_or(&word),
        _ => &word,
    };
    (plain != kind).then(|| plain.to_owned())
}

/// The bytes of a `data:` URL.
fn decode_data_url(source: &UrlSource) -> Option<Base64Source> {
    let (head, data) = source.url.get("data:".len()..)?.split_once(',')?;
    let (kind, is_base64) = match head.rsplit_once(';') {
        Some((kind, word)) if word.trim().eq_ignore_ascii_case("base64") => (kind, true),
        _ if head.trim().eq_ignore_ascii_case("base64") => ("", true),
        _ => (head, false),
    };
    let declared = source.media_type.clone();
    let kind = if kind.starts_with(';') { "" } else { kind };
    let media_type = if kind.is_empty() { declared } else { Some(kind.to_owned()) };
    let bytes = percent_decode(data)?;
    let data = if is_base64 {
        String::from_utf8(bytes).ok()?
    } else {
        let media_type = media_type.clone().unwrap_or_else(|| "text/plain".to_owned());
        return match DataBlock::bytes(bytes, media_type).source {
            Source::Base64(source) => Some(source),
            Source::Url(_) | Source::Other(_) => None,
        };
    };
    Some(Base64Source { data, media_type, ..Base64Source::default() })
}

/// Decodes `%` escapes.
fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(bytes)
}

/// Whether this media type is text.
pub(crate) fn is_text(kind: &str) -> bool {
    const WORDS: [&str; 7] = ["json", "xml", "yaml", "x-yaml", "toml", "javascript", "x-sh"];
    match kind.split_once('/') {
        Some(("text", _)) => true,
        Some(("application", word)) => {
            WORDS.contains(&word) || word.ends_with("+json") || word.ends_with("+xml")
        }
        _ => false,
    }
}

/// A text file as text, for models that accept no files.
pub(crate) fn read_text_file(block: &DataBlock) -> Option<String> {
    let kind = media_type(block).filter(|kind| is_text(kind))?;
    let text = String::from_utf8(block.decoded()?.ok()?).ok()?;
    Some(match &block.name {
        Some(name) => format!("[{kind} \"{name}\"]\n{text}"),
        None => format!("[{kind}]\n{text}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base64(data: &str, kind: &str) -> DataBlock {
        let media_type = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
        let data = data.to_owned();
        let source = Base64Source { data, media_type, ..Base64Source::default() };
        DataBlock::from_source(Source::Base64(source))
    }

    #[test]
    fn a_data_url_is_bytes() {
        for (url, expected) in [
            ("data:image/png;base64,AQID", base64("AQID", "image/png")),
            ("DATA:image/png;base64,AQ%3D%3D", base64("AQ==", "image/png")),
            ("data:image/png;name=a;base64,AQID", base64("AQID", "image/png")),
            ("data:;base64,AQID", base64("AQID", "image/gif")),
            ("data:base64,AQID", base64("AQID", "image/gif")),
            ("data:text/plain,a%20b", base64("YSBi", "text/plain")),
            ("data:,a", base64("YQ==", "image/gif")),
        ] {
            let block = DataBlock::url(url, "image/gif");
            assert_eq!(normalize_data(&block).unwrap().into_owned(), expected, "{url}");
        }
        for url in ["data:image/png;base64", "data:image/png;base64,%4"] {
            assert_eq!(
                normalize_data(&DataBlock::url(url, "")),
                Err("its URL cannot be read"),
                "{url}"
            );
        }
    }

    #[test]
    fn types_are_plain_and_what_is_whole_is_borrowed() {
        for (declared, plain) in [
            ("image/jpg", "image/jpeg"),
            ("Text/Plain; charset=utf-8", "text/plain"),
            ("image/*", "image/png"),
        ] {
            let block = base64("iVBORw0KGgo=", declared);
            assert_eq!(normalize_data(&block).unwrap().media_type(), Some(plain));
        }
        assert!(matches!(normalize_data(&base64("AQID", "image/png")), Ok(Cow::Borrowed(_))));
        assert_eq!(normalize_data(&base64("", "image/png")), Err("it has no bytes"));
    }
}
