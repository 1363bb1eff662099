//! Parts of a UI message that are one block each: text, reasoning, files, hints, and unknown parts.
//!
//! What a part has no field for is in its `providerMetadata`, under the key `turnwire`. What a
//! block has no field for is in the block's field `ai_sdk`. So both survive the way there and back.

use super::NAME;
use crate::json::{to_fields, to_json};
use crate::provider::{block_to_item, item_to_block};
use turnwire_core::block::{BlockType, DataBlock, Source};
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, Json, Result, TextBlock, ThinkingBlock,
};

/// The key of our metadata in their messages.
pub(super) const METADATA_KEY: &str = "turnwire";
/// The field of our blocks that keeps their unknown fields.
pub(super) const KEPT_FIELD: &str = "ai_sdk";
/// The type of a block that wraps a part whose type is also a block type of ours.
const WRAPPED_PART: &str = "ai_sdk_part";

/// Removes these fields if they are null.
pub(super) fn without_null(mut fields: Fields, names: &[&str]) -> Fields {
    for name in names {
        if fields.raw(name).is_some_and(Json::is_null) {
            fields.remove(name);
        }
    }
    fields
}

/// Removes and returns an object; any other value stays.
pub(super) fn take_object(fields: &mut Fields, key: &str) -> Option<Fields> {
    let object = fields.raw(key)?.parse_as().ok()?;
    fields.remove(key);
    Some(object)
}

/// Adds our metadata to the providers' metadata.
pub(super) fn add_own_metadata(part: &mut Fields, key: &str, ours: &Fields) {
    if ours.is_empty() {
        return;
    }
    let mut all = take_object(part, key).unwrap_or_default();
    all.insert(METADATA_KEY, to_json(ours));
    part.insert(key, to_json(&all));
}

/// Removes and returns our metadata.
pub(super) fn take_own_metadata(part: &mut Fields, key: &str) -> Fields {
    let Some(mut all) = take_object(part, key) else { return Fields::default() };
    let ours = take_object(&mut all, METADATA_KEY).unwrap_or_default();
    part.insert_fields(key, &all);
    ours
}

/// Writes a block other than tool calls and results as a part.
pub(super) fn write_block(block: &ContentBlock) -> Fields {
    match block {
        ContentBlock::Text(block) => text_part(block),
        ContentBlock::Thinking(block) => reasoning_part(block),
        ContentBlock::Data(block) => file_part(block),
        ContentBlock::Hint(block) => {
            let mut data = without_null(to_fields(block), &["source", "finished_at"]);
            data.remove("type");
            data_part("data-hint", &block.id, &data)
        }
        ContentBlock::Other(block) => match block_to_item(NAME, block) {
            Some(mut part) if part.raw("type") == Some(&Json::from(WRAPPED_PART)) => {
                take_object(&mut part, "part").unwrap_or_default()
            }
            Some(part) => part,
            None => block_part(block),
        },
        // Calls and results are written elsewhere.
        ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => block_part(&to_fields(block)),
    }
}

fn new_part(word: &str) -> Fields {
    let mut part = Fields::default();
    part.insert("type", word);
    part
}

fn data_part(word: &str, id: &str, data: &Fields) -> Fields {
    let mut part = new_part(word);
    part.insert_unless_empty("id", id);
    part.insert("data", to_json(data));
    part
}

/// Any block, unchanged.
pub(super) fn block_part(block: &Fields) -> Fields {
    let id: String = block.get("id").ok().flatten().unwrap_or_default();
    data_part("data-block", &id, block)
}

fn text_part(block: &TextBlock) -> Fields {
    let mut part = new_part("text");
    part.insert("text", block.text.as_str());
    if block.finished_at.is_some() {
        part.insert("state", "done");
    }
    let mut rest = without_null(to_fields(block), &["finished_at"]);
    rest.remove("type");
    rest.remove("text");
    with_rest(part, rest)
}

fn reasoning_part(block: &ThinkingBlock) -> Fields {
    let mut part = new_part("reasoning");
    part.insert_unless_empty("id", &block.id);
    part.insert("text", block.thinking.as_str());
    if block.finished_at.is_some() {
        part.insert("state", "done");
    }
    let mut rest = without_null(to_fields(block), &["finished_at"]);
    for known in ["type", "thinking", "id"] {
        rest.remove(known);
    }
    with_rest(part, rest)
}

fn file_part(block: &DataBlock) -> Fields {
    let Some((url, media_type)) = file_url(block) else { return block_part(&to_fields(block)) };
    let mut part = new_part("file");
    part.insert("mediaType", media_type.as_str());
    part.insert_some("filename", block.name.as_deref());
    let mut rest = without_null(to_fields(block), &["finished_at"]);
    for known in ["source", "name"] {
        rest.remove(known);
    }
    if rest.raw("type") == Some(&Json::from("data")) {
        rest.remove("type");
    }
    if source(&url, &media_type) != block.source {
        let mut source = to_fields(&block.source);
        source.remove("data");
        source.remove("url");
        rest.insert("source", to_json(&source));
    }
    part.insert("url", url);
    with_rest(part, rest)
}

/// The URL and media type of a file. `None` for an unknown source.
pub(super) fn file_url(block: &DataBlock) -> Option<(String, String)> {
    let media_type = crate::model_request::media_type(block).unwrap_or("application/octet-stream");
    let url = match &block.source {
        Source::Base64(source) => {
            // Other characters would end the head of the `data:` URL early.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/+-._=;*".contains(c);
            let head = if media_type.chars().all(is_plain) {
                media_type
            } else {
                "application/octet-stream"
            };
            format!("data:{head};base64,{}", source.data)
        }
        Source::Url(source) => source.url.clone(),
        Source::Other(_) => return None,
    };
    Some((url, media_type.to_owned()))
}

/// The base64 of a `data:` URL.
fn base64_of(url: &str) -> Option<&str> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    head.ends_with(";base64").then_some(data)
}

fn source(url: &str, media_type: &str) -> Source {
    let block = match base64_of(url) {
        Some(data) => {
            let mut source = new_part("base64");
            source.insert("data", data);
            source.insert("media_type", media_type);
            to_json(&source).parse_as()
        }
        None => return DataBlock::url(url, media_type).source,
    };
    block.unwrap_or_else(|_| DataBlock::url(url, media_type).source)
}

/// Adds everything to a part that it has no field for.
fn with_rest(mut part: Fields, mut rest: Fields) -> Fields {
    if let Some(kept) = take_object(&mut rest, KEPT_FIELD) {
        part.extend(&kept);
    }
    add_own_metadata(&mut part, "providerMetadata", &rest);
    part
}

/// Reads a part that is not a tool's. Unknown parts are kept.
pub(super) fn read_part(mut part: Fields) -> Result<ContentBlock> {
    let word: String = part.need("type")?;
    match word.as_str() {
        "text" => {
            let text: String = part.need("text")?;
            let mut block = read_rest(part, &["state"]);
            block.insert("type", "text");
            block.insert("text", text);
            to_json(&block).parse_as()
        }
        "reasoning" => {
            let (text, id): (String, Option<String>) = (part.need("text")?, part.take("id")?);
            let mut block = read_rest(part, &["state"]);
            block.insert("type", "thinking");
            block.insert("thinking", text);
            block.insert_some("id", id);
            to_json(&block).parse_as()
        }
        "file" => read_file(part),
        "data-hint" => {
            let hint =
                part.raw("data").and_then(|data| data.parse_as::<Fields>().ok()).map(|mut hint| {
                    hint.insert("type", "hint");
                    hint
                });
            Ok(hint
                .and_then(|hint| to_json(&hint).parse_as().ok())
                .unwrap_or_else(|| unknown_part(&word, &part)))
        }
        "data-block" => {
            let block = part.raw("data").and_then(|data| data.parse_as::<ContentBlock>().ok());
            Ok(block.unwrap_or_else(|| unknown_part(&word, &part)))
        }
        _ => Ok(unknown_part(&word, &part)),
    }
}

/// Keeps an unknown part. `rest` is the part without its type.
fn unknown_part(word: &str, rest: &Fields) -> ContentBlock {
    let mut whole = new_part(word);
    whole.extend(rest);
    keep_part(whole)
}

/// Keeps a part as a whole.
pub(super) fn keep_part(whole: Fields) -> ContentBlock {
    let word: String = whole.get("type").ok().flatten().unwrap_or_default();
    if !is_block_type(&word) && word != WRAPPED_PART {
        return item_to_block(NAME, whole);
    }
    let mut block = new_part(WRAPPED_PART);
    block.insert("part", to_json(&whole));
    item_to_block(NAME, block)
}

fn is_block_type(word: &str) -> bool {
    use BlockType::{Audio, Data, Hint, Image, Text, Thinking, ToolCall, ToolResult, Video};
    [Text, Thinking, Data, Image, Audio, Video, Hint, ToolCall, ToolResult]
        .iter()
        .any(|known| known.as_str() == word)
}

/// The fields of a block besides its content: from our metadata, and unknown ones.
fn read_rest(mut part: Fields, dropped: &[&str]) -> Fields {
    for name in dropped {
        part.remove(name);
    }
    let mut block = take_own_metadata(&mut part, "providerMetadata");
    let kept = without_null(part, &["providerMetadata"]);
    block.insert_fields(KEPT_FIELD, &kept);
    block
}

fn read_file(mut part: Fields) -> Result<ContentBlock> {
    let (url, media_type): (String, Option<String>) = (part.need("url")?, part.take("mediaType")?);
    // Required since version 5; older clients have it in the URL.
    let url_type = || url.strip_prefix("data:")?.split([';', ',']).next().map(str::to_owned);
    let media_type = media_type
        .or_else(url_type)
        .ok_or_else(|| Error::new(ErrorKind::NotAMessage, "a file part has no `mediaType`"))?;
    let name: Option<String> = part.take("filename")?;
    let mut block = read_rest(part, &[]);
    let mut from = to_fields(&source(&url, &media_type));
    if let Some(source) = take_object(&mut block, "source") {
        let is_base64 = source.raw("type") == Some(&Json::from("base64"));
        match base64_of(&url) {
            Some(data) if is_base64 => from = with_field(source, "data", data),
            None if is_base64 => {}
            _ => from = with_field(source, "url", &url),
        }
    }
    block.insert("source", to_json(&from));
    if block.raw("type").is_none() {
        block.insert("type", "data");
    }
    block.insert_some("name", name);
    to_json(&block).parse_as()
}

fn with_field(mut fields: Fields, key: &str, value: &str) -> Fields {
    fields.insert(key, value);
    fields
}
