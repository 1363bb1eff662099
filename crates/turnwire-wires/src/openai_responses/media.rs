//! Converts images, audio and files to and from input parts.

use super::NAME;
use super::item::Item;
use crate::lenient::{TextOrNumber, parse_optional};
use crate::model_request::media_type;
use crate::native;
use serde::Deserialize;
use turnwire_core::block::{Base64Source, UrlSource};
use turnwire_core::{DataBlock, Fields, Json, Source};

/// The input part for a data block, or the reason why there is none.
pub(super) fn data_to_part(block: &DataBlock) -> Result<Fields, &'static str> {
    let mut part = plain_part(block)?;
    native::add(&mut part, &block.rest, NAME);
    Ok(part)
}

fn plain_part(block: &DataBlock) -> Result<Fields, &'static str> {
    let kind = media_type(block).unwrap_or_default();
    let (family, format) = kind.split_once('/').unwrap_or((kind, ""));
    match (family, &block.source) {
        (_, Source::Other(_)) => Err("its source is of an unknown type"),
        ("image", Source::Base64(source)) => {
            Ok(image_part(&data_url(&source.data, image_type(kind))))
        }
        ("image", Source::Url(source)) => fetchable_url(&source.url).map(image_part),
        ("audio", Source::Base64(source)) => {
            let format = match format {
                "wav" | "x-wav" | "wave" => "wav",
                "mpeg" | "mp3" => "mp3",
                _ => return Err("only WAV and MP3 are taken"),
            };
            let mut audio = Fields::default();
            audio.insert("data", source.data.as_str());
            audio.insert("format", format);
            let mut part = typed_part("input_audio");
            part.insert(
                "input_audio",
                Json::from_value(&audio).map_err(|_| "it cannot be written")?,
            );
            Ok(part)
        }
        ("audio", Source::Url(_)) => Err("audio is accepted only as bytes"),
        ("application" | "text", Source::Base64(source)) => {
            let mut part = typed_part("input_file");
            let name =
                block.name.clone().unwrap_or_else(|| format!("file.{}", file_extension(kind)));
            part.insert("filename", name);
            part.insert("file_data", data_url(&source.data, kind));
            Ok(part)
        }
        ("application" | "text", Source::Url(source)) => {
            let url = fetchable_url(&source.url)?;
            let mut part = typed_part("input_file");
            part.insert("file_url", url);
            Ok(part)
        }
        ("", _) => Err("its media type is unknown"),
        _ => Err("this kind of data is not accepted"),
    }
}

/// The file extension for this media type.
fn file_extension(kind: &str) -> &str {
    let (_, word) = kind.split_once('/').unwrap_or(("", kind));
    match word.rsplit(['.', '-', '+']).next().unwrap_or(word) {
        "plain" => "txt",
        "markdown" => "md",
        "javascript" => "js",
        "msword" => "doc",
        "excel" => "xls",
        "powerpoint" => "ppt",
        "presentation" => "pptx",
        "sheet" => "xlsx",
        "document" => "docx",
        "text" => "odt",
        word => word,
    }
}

fn typed_part(word: &str) -> Fields {
    let mut part = Fields::default();
    part.insert("type", word);
    part
}

fn image_part(url: &str) -> Fields {
    let mut part = typed_part("input_image");
    part.insert("image_url", url);
    part
}

/// The media type of an image; the older image block does not have one.
pub(super) fn image_type(kind: &str) -> &str {
    if kind == "image/*" { "image/png" } else { kind }
}

fn data_url(data: &str, kind: &str) -> String {
    format!("data:{kind};base64,{data}")
}

/// A URL that the provider can fetch, or a data URL.
fn fetchable_url(url: &str) -> Result<&str, &'static str> {
    let is_web = ["https://", "http://", "data:"].iter().any(|scheme| url.starts_with(scheme));
    if is_web { Ok(url) } else { Err("only http and https are fetched") }
}

/// The data block for an input part, if it is data.
pub(super) fn part_to_data(part: &Item<'_>) -> Option<DataBlock> {
    let name = (!part.filename.is_empty()).then(|| part.filename.to_string());
    let source = match &*part.r#type {
        "input_image" if !part.image_url.is_empty() => {
            source_from_url(&part.image_url, Some("image/*"))
        }
        "input_file" if !part.file_data.is_empty() => source_from_url(&part.file_data, None),
        "input_file" if !part.file_url.is_empty() => source_from_url(&part.file_url, None),
        "input_audio" => {
            #[derive(Default, Deserialize)]
            #[serde(default, bound(deserialize = "'de: 'a"))]
            struct Audio<'a> {
                data: TextOrNumber<'a>,
                format: TextOrNumber<'a>,
            }
            let audio: Audio<'_> = parse_optional(part.input_audio);
            let kind = if &*audio.format == "mp3" { "audio/mpeg" } else { "audio/wav" };
            base64_source(&audio.data, Some(kind))
        }
        _ => return None,
    };
    Some(DataBlock { name, ..DataBlock::from_source(source) })
}

/// The data block for the URL of an image.
pub(super) fn image_from_url(url: &str) -> DataBlock {
    DataBlock::from_source(source_from_url(url, Some("image/*")))
}

fn source_from_url(url: &str, kind: Option<&str>) -> Source {
    if let Some((kind, data)) = url.strip_prefix("data:").and_then(|url| url.split_once(";base64,"))
    {
        return base64_source(data, (!kind.is_empty()).then_some(kind));
    }
    Source::Url(UrlSource {
        url: url.to_owned(),
        media_type: kind.map(str::to_owned),
        rest: Fields::default(),
    })
}

fn base64_source(data: &str, kind: Option<&str>) -> Source {
    Source::Base64(Base64Source {
        data: data.to_owned(),
        media_type: kind.map(str::to_owned),
        rest: Fields::default(),
    })
}
