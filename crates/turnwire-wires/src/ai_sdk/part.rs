//! Parts of a UI message that are one block each: text, reasoning, files, hints, everything unknown.
//!
//! What a part has no field for travels in its `providerMetadata` under the key `turnwire`; what a
//! block has no field for is kept in the block's field `ai_sdk`. So both come back as they were.

use super::NAME;
use crate::provider::{item, item_block};
use turnwire_core::block::{BlockType, DataBlock, Source};
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, Json, Result, TextBlock, ThinkingBlock,
};

/// The key under which what is ours travels with them.
pub(super) const OURS: &str = "turnwire";
/// The field in which what is theirs stays with us.
pub(super) const THEIRS: &str = "ai_sdk";
/// A part whose type is a word that a block of ours has: whole, inside a block of this type.
const PART: &str = "ai_sdk_part";

/// An object that can be written as JSON, field by field.
pub(super) fn fields_of<T: serde::Serialize + ?Sized>(value: &T) -> Fields {
    Json::from_value(value).and_then(|json| json.parse_as()).unwrap_or_default()
}

/// A value as JSON.
pub(super) fn json_of<T: serde::Serialize + ?Sized>(value: &T) -> Json {
    Json::from_value(value).unwrap_or_else(|_| Json::from(serde_json::Value::Null))
}

/// The fields that say something.
pub(super) fn without_null(mut fields: Fields, names: &[&str]) -> Fields {
    for name in names {
        if fields.raw(name).is_some_and(Json::is_null) {
            fields.remove(name);
        }
    }
    fields
}

/// Takes an object out; anything else stays.
pub(super) fn take_object(fields: &mut Fields, key: &str) -> Option<Fields> {
    let object = fields.raw(key)?.parse_as().ok()?;
    fields.remove(key);
    Some(object)
}

/// Puts what is ours beside what providers said.
pub(super) fn add_ours(part: &mut Fields, key: &str, ours: &Fields) {
    if ours.is_empty() {
        return;
    }
    let mut all = take_object(part, key).unwrap_or_default();
    all.insert(OURS, json_of(ours));
    part.insert(key, json_of(&all));
}

/// Takes out what is ours.
pub(super) fn take_ours(part: &mut Fields, key: &str) -> Fields {
    let Some(mut all) = take_object(part, key) else { return Fields::default() };
    let ours = take_object(&mut all, OURS).unwrap_or_default();
    if !all.is_empty() {
        part.insert(key, json_of(&all));
    }
    ours
}

/// The part of a block that is no tool's.
pub(super) fn write(block: &ContentBlock) -> Fields {
    match block {
        ContentBlock::Text(block) => text(block),
        ContentBlock::Thinking(block) => reasoning(block),
        ContentBlock::Data(block) => file(block),
        ContentBlock::Hint(block) => {
            let mut data = without_null(fields_of(block), &["source", "finished_at"]);
            data.remove("type");
            data_part("data-hint", &block.id, &data)
        }
        ContentBlock::Other(block) => match item(NAME, block) {
            Some(mut part) if part.raw("type") == Some(&Json::from(PART)) => {
                take_object(&mut part, "part").unwrap_or_default()
            }
            Some(part) => part,
            None => whole(block),
        },
        // Calls and results come elsewhere; what a later version adds is written whole.
        block => whole(&fields_of(block)),
    }
}

fn part(word: &str) -> Fields {
    let mut part = Fields::default();
    part.insert("type", word);
    part
}

fn data_part(word: &str, id: &str, data: &Fields) -> Fields {
    let mut part = part(word);
    if !id.is_empty() {
        part.insert("id", id);
    }
    part.insert("data", json_of(data));
    part
}

/// Any block, as it is.
pub(super) fn whole(block: &Fields) -> Fields {
    let id: String = block.get("id").ok().flatten().unwrap_or_default();
    data_part("data-block", &id, block)
}

fn text(block: &TextBlock) -> Fields {
    let mut part = part("text");
    part.insert("text", block.text.as_str());
    if block.finished_at.is_some() {
        part.insert("state", "done");
    }
    let mut rest = without_null(fields_of(block), &["finished_at"]);
    rest.remove("type");
    rest.remove("text");
    finish(part, rest)
}

fn reasoning(block: &ThinkingBlock) -> Fields {
    let mut part = part("reasoning");
    if !block.id.is_empty() {
        part.insert("id", block.id.as_str());
    }
    part.insert("text", block.thinking.as_str());
    if block.finished_at.is_some() {
        part.insert("state", "done");
    }
    let mut rest = without_null(fields_of(block), &["finished_at"]);
    for known in ["type", "thinking", "id"] {
        rest.remove(known);
    }
    finish(part, rest)
}

fn file(block: &DataBlock) -> Fields {
    let Some((url, media_type)) = address(block) else { return whole(&fields_of(block)) };
    let mut part = part("file");
    part.insert("mediaType", media_type.as_str());
    if let Some(name) = &block.name {
        part.insert("filename", name.as_str());
    }
    let mut rest = without_null(fields_of(block), &["finished_at"]);
    for known in ["source", "name"] {
        rest.remove(known);
    }
    if rest.raw("type") == Some(&Json::from("data")) {
        rest.remove("type");
    }
    if source(&url, &media_type) != block.source {
        let mut said = fields_of(&block.source);
        said.remove("data");
        said.remove("url");
        rest.insert("source", json_of(&said));
    }
    part.insert("url", url);
    finish(part, rest)
}

/// Where a file is, and what it is: both are needed. `None` for a source that we do not know.
pub(super) fn address(block: &DataBlock) -> Option<(String, String)> {
    let said = crate::request::media_type(block).unwrap_or("application/octet-stream");
    let url = match &block.source {
        Source::Base64(source) => {
            // What would end a URL's head early stays out of it.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/+-._=;*".contains(c);
            let head = if said.chars().all(is_plain) { said } else { "application/octet-stream" };
            format!("data:{head};base64,{}", source.data)
        }
        Source::Url(source) => source.url.clone(),
        Source::Other(_) => return None,
    };
    Some((url, said.to_owned()))
}

/// The bytes of a `data:` URL, where they are base64.
fn base64_of(url: &str) -> Option<&str> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    head.ends_with(";base64").then_some(data)
}

fn source(url: &str, media_type: &str) -> Source {
    let block = match base64_of(url) {
        Some(data) => {
            let mut source = part("base64");
            source.insert("data", data);
            source.insert("media_type", media_type);
            json_of(&source).parse_as()
        }
        None => return DataBlock::url(url, media_type).source,
    };
    block.unwrap_or_else(|_| DataBlock::url(url, media_type).source)
}

/// A part with all that it has no field for.
fn finish(mut part: Fields, mut rest: Fields) -> Fields {
    if let Some(theirs) = take_object(&mut rest, THEIRS) {
        part.extend(&theirs);
    }
    add_ours(&mut part, "providerMetadata", &rest);
    part
}

/// Reads a part that is no tool's. What we do not know stays as it is.
pub(super) fn read(mut part: Fields) -> Result<ContentBlock> {
    let word: String = part.need("type")?;
    match word.as_str() {
        "text" => {
            let text: String = part.need("text")?;
            let mut block = rest_of(part, &["state"]);
            block.insert("type", "text");
            block.insert("text", text);
            json_of(&block).parse_as()
        }
        "reasoning" => {
            let (text, id): (String, Option<String>) = (part.need("text")?, part.take("id")?);
            let mut block = rest_of(part, &["state"]);
            block.insert("type", "thinking");
            block.insert("thinking", text);
            if let Some(id) = id {
                block.insert("id", id);
            }
            json_of(&block).parse_as()
        }
        "file" => read_file(part),
        "data-hint" => {
            let hint =
                part.raw("data").and_then(|data| data.parse_as::<Fields>().ok()).map(|mut hint| {
                    hint.insert("type", "hint");
                    hint
                });
            Ok(hint
                .and_then(|hint| json_of(&hint).parse_as().ok())
                .unwrap_or_else(|| other(&word, &part)))
        }
        "data-block" => {
            let block = part.raw("data").and_then(|data| data.parse_as::<ContentBlock>().ok());
            Ok(block.unwrap_or_else(|| other(&word, &part)))
        }
        _ => Ok(other(&word, &part)),
    }
}

/// A part of theirs, kept whole. `rest` is the part without its type.
fn other(word: &str, rest: &Fields) -> ContentBlock {
    let mut whole = part(word);
    whole.extend(rest);
    unread(whole)
}

/// A part of theirs, kept whole.
pub(super) fn unread(whole: Fields) -> ContentBlock {
    let word: String = whole.get("type").ok().flatten().unwrap_or_default();
    if !is_word_of_ours(&word) && word != PART {
        return item_block(NAME, whole);
    }
    let mut block = part(PART);
    block.insert("part", json_of(&whole));
    item_block(NAME, block)
}

fn is_word_of_ours(word: &str) -> bool {
    use BlockType::{Audio, Data, Hint, Image, Text, Thinking, ToolCall, ToolResult, Video};
    [Text, Thinking, Data, Image, Audio, Video, Hint, ToolCall, ToolResult]
        .iter()
        .any(|known| known.as_str() == word)
}

/// What a block has besides its content: what is ours of the part, and the rest of it.
fn rest_of(mut part: Fields, dropped: &[&str]) -> Fields {
    for name in dropped {
        part.remove(name);
    }
    let mut block = take_ours(&mut part, "providerMetadata");
    let theirs = without_null(part, &["providerMetadata"]);
    if !theirs.is_empty() {
        block.insert(THEIRS, json_of(&theirs));
    }
    block
}

fn read_file(mut part: Fields) -> Result<ContentBlock> {
    let (url, media_type): (String, Option<String>) = (part.need("url")?, part.take("mediaType")?);
    // Needed since version 5; who leaves it out may have said it in the URL.
    let said = || url.strip_prefix("data:")?.split([';', ',']).next().map(str::to_owned);
    let media_type = media_type
        .or_else(said)
        .ok_or_else(|| Error::new(ErrorKind::NotAMessage, "a file part has no `mediaType`"))?;
    let name: Option<String> = part.take("filename")?;
    let mut block = rest_of(part, &[]);
    let mut from = fields_of(&source(&url, &media_type));
    if let Some(said) = take_object(&mut block, "source") {
        let is_base64 = said.raw("type") == Some(&Json::from("base64"));
        match base64_of(&url) {
            Some(data) if is_base64 => from = with(said, "data", data),
            None if is_base64 => {}
            _ => from = with(said, "url", &url),
        }
    }
    block.insert("source", json_of(&from));
    if block.raw("type").is_none() {
        block.insert("type", "data");
    }
    if let Some(name) = name {
        block.insert("name", name);
    }
    json_of(&block).parse_as()
}

fn with(mut fields: Fields, key: &str, value: &str) -> Fields {
    fields.insert(key, value);
    fields
}
