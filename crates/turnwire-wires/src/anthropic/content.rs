//! Converts content blocks between Anthropic's format and ours; for messages, requests and streams.

use super::NAME;
use crate::json::fields;
use crate::model_request::{is_text, media_type, sniff_image_type};
use crate::{native, provider};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Part, Payload, Source, TextBlock, ThinkingBlock,
    ToolCall, ToolResult, ToolResultState,
};

/// The field of a thinking block that holds redacted thinking.
pub(super) const REDACTED_FIELD: &str = "redacted_thinking_data";

/// The field that wraps a tool input that is not a JSON object: Anthropic accepts only objects.
const RAW_INPUT_FIELD: &str = "raw_input";

/// Fields of Anthropic's text blocks that must be sent back.
const TEXT_FIELDS: &[&str] = &["citations"];

/// Fields of Anthropic's tool calls that must be sent back.
const CALL_FIELDS: &[&str] = &["caller", "toolset_name"];

/// The image types that Anthropic accepts.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

pub(super) fn plain_text(text: &str) -> Fields {
    fields! { "type": "text", "text": text }
}

pub(super) fn write_text(block: &TextBlock) -> Fields {
    let mut fields = plain_text(&block.text);
    copy_fields(TEXT_FIELDS, &block.rest, &mut fields);
    native::add(&mut fields, &block.rest, NAME);
    fields
}

/// Moves the fields of a block that ours does not have to where only this protocol finds them.
fn keep_other_fields(mut rest: Fields, known: &[&str]) -> Fields {
    let mut others = Fields::default();
    for (key, value) in &std::mem::take(&mut rest) {
        let to = if known.contains(&key) { &mut rest } else { &mut others };
        to.insert(key, value.clone());
    }
    if !others.is_empty() {
        native::set(&mut rest, NAME, &others);
    }
    rest
}

/// Copies the fields with these names. Others may be another provider's, and Anthropic refuses unknown ones.
fn copy_fields(names: &[&str], from: &Fields, into: &mut Fields) {
    for &name in names {
        into.insert_some(name, from.raw(name).filter(|value| !value.is_null()).cloned());
    }
}

/// A thinking block that Anthropic accepts: with its signature, or redacted.
pub(super) fn write_thinking(block: &ThinkingBlock) -> Option<Fields> {
    if let Some(data) = redacted_data(&block.rest) {
        return Some(fields! { "type": "redacted_thinking", "data": data });
    }
    let signature: String = block.rest.get("signature").ok()??;
    (!signature.is_empty()).then(|| {
        fields! { "type": "thinking", "thinking": block.thinking.as_str(), "signature": signature }
    })
}

/// The bytes of redacted thinking.
pub(super) fn redacted_data(rest: &Fields) -> Option<String> {
    rest.get(REDACTED_FIELD).ok()?
}

pub(super) fn write_call(call: &ToolCall, id: &str) -> Fields {
    let mut fields = fields! {
        "type": "tool_use",
        "id": id,
        "name": call.name.as_str(),
        "input": input_to_json(&call.input),
    };
    copy_fields(CALL_FIELDS, &call.rest, &mut fields);
    native::add(&mut fields, &call.rest, NAME);
    fields
}

/// The fields of a call that must be sent back with it.
pub(super) fn call_extra(rest: &Fields) -> Fields {
    let mut fields = Fields::default();
    copy_fields(CALL_FIELDS, rest, &mut fields);
    fields
}

/// A tool input as the object that Anthropic requires. Input that is truncated or no object is wrapped in one.
pub(super) fn input_to_json(text: &str) -> Json {
    if text.trim().is_empty() {
        return Json::from(serde_json::Map::new());
    }
    match (serde_json::from_str::<Fields>(text), Json::parse(text)) {
        (Ok(fields), Ok(json)) if unwrap_raw_input(&fields).is_none() => json,
        _ => fields! { RAW_INPUT_FIELD: text }.into(),
    }
}

/// The input that [`input_to_json`] wrapped.
fn unwrap_raw_input(fields: &Fields) -> Option<String> {
    if fields.len() == 1 { fields.get(RAW_INPUT_FIELD).ok()? } else { None }
}

fn input_text(input: &Json) -> String {
    let raw = serde_json::from_str(input.text()).ok().and_then(|fields| unwrap_raw_input(&fields));
    raw.unwrap_or_else(|| input.text().to_owned())
}

/// An image or a document, if Anthropic accepts it.
pub(super) fn write_data(block: &DataBlock) -> Option<Fields> {
    let mut fields = write_plain_data(block)?;
    native::add(&mut fields, &block.rest, NAME);
    Some(fields)
}

fn write_plain_data(block: &DataBlock) -> Option<Fields> {
    let media = media_type(block).unwrap_or_default();
    match &block.source {
        Source::Base64(source) => {
            if let Some(image) = image_type(media, &source.data) {
                let source = base64_source(image, &source.data);
                return Some(fields! { "type": "image", "source": source });
            }
            if media == "application/pdf" {
                return Some(document(block, base64_source(media, &source.data)));
            }
            if !is_text(media) {
                return None;
            }
            let text = String::from_utf8(block.decoded()?.ok()?).ok()?;
            let source = fields! { "type": "text", "media_type": "text/plain", "data": text };
            Some(document(block, source))
        }
        Source::Url(source) if is_fetchable(&source.url) => {
            let from = fields! { "type": "url", "url": source.url.as_str() };
            match media {
                "application/pdf" => Some(document(block, from)),
                _ if media.starts_with("image/") => {
                    Some(fields! { "type": "image", "source": from })
                }
                _ => None,
            }
        }
        Source::Url(_) | Source::Other(_) => None,
    }
}

/// Anthropic fetches only `https` URLs.
fn is_fetchable(url: &str) -> bool {
    url.starts_with("https://")
}

/// The type of an image that Anthropic accepts. Anthropic refuses an image whose bytes are of another type than declared,
/// so the type of the bytes wins.
fn image_type<'a>(media: &'a str, data: &str) -> Option<&'a str> {
    if !media.starts_with("image/") {
        return None;
    }
    if let Some(seen) = sniff_image_type(data) {
        return Some(seen);
    }
    match media {
        "image/jpg" => Some("image/jpeg"),
        _ => IMAGES.contains(&media).then_some(media),
    }
}

fn base64_source(media: &str, data: &str) -> Fields {
    fields! { "type": "base64", "media_type": media, "data": data }
}

fn document(block: &DataBlock, source: Fields) -> Fields {
    let mut fields = fields! { "type": "document", "source": source };
    fields.insert_some("title", block.name.as_deref().filter(|name| !name.is_empty()));
    fields
}

/// Reads an image or a document as data, if our block can hold it.
pub(super) fn read_data(fields: &Fields) -> Option<DataBlock> {
    let source: Fields = fields.get("source").ok()??;
    let word = |key: &str| source.get::<String>(key).ok().flatten();
    let kind: String = fields.get("type").ok()??;
    let whole = match kind.as_str() {
        "image" => "image/*",
        "document" => "application/pdf",
        _ => return None,
    };
    let mut block = match word("type")?.as_str() {
        "base64" => {
            let mut block = DataBlock::bytes([], word("media_type")?);
            if let Source::Base64(source) = &mut block.source {
                source.data = word("data")?;
            }
            // Only a finished block is checked up to its last byte.
            block.finished_at = Some(String::new());
            block.decoded()?.ok()?;
            block.finished_at = None;
            block
        }
        "url" => DataBlock::url(word("url")?, whole),
        "text" => DataBlock::bytes(word("data")?, "text/plain"),
        _ => return None,
    };
    block.name = fields.get("title").ok()?;
    let mut others = fields.clone();
    for known in ["type", "source", "title"] {
        others.remove(known);
    }
    block.rest = keep_other_fields(others, &[]);
    Some(block)
}

/// The parts of a tool result that Anthropic accepts. `left_out` gives what replaces data that it does not accept.
pub(super) fn write_parts(
    parts: &[Part],
    left_out: impl Fn(&DataBlock) -> Option<Fields>,
) -> Vec<Json> {
    let blocks = parts.iter().filter_map(|part| match part {
        Part::Text(block) if block.text.is_empty() => None,
        Part::Text(block) => Some(write_text(block)),
        Part::Data(block) => write_data(block).or_else(|| left_out(block)),
        Part::Other(item) => provider::block_to_item(NAME, item),
    });
    blocks.map(Json::from).collect()
}

pub(super) fn write_result(id: &str, content: Json, is_error: bool) -> Fields {
    let mut fields = fields! { "type": "tool_result", "tool_use_id": id, "content": content };
    if is_error {
        fields.insert("is_error", true);
    }
    fields
}

/// Reads a content block. An unknown one is kept verbatim.
pub(super) fn read_block(fields: Fields) -> ContentBlock {
    read_known(&fields).unwrap_or_else(|| provider::item_to_block(NAME, fields))
}

fn read_known(fields: &Fields) -> Option<ContentBlock> {
    let mut rest = fields.clone();
    let word: String = rest.need("type").ok()?;
    Some(match word.as_str() {
        "text" => {
            let text = rest.need("text").ok()?;
            let rest = keep_other_fields(rest, TEXT_FIELDS);
            TextBlock { text, rest, ..TextBlock::default() }.into()
        }
        "thinking" => ThinkingBlock {
            thinking: rest.need("thinking").ok()?,
            rest,
            ..ThinkingBlock::default()
        }
        .into(),
        "redacted_thinking" => {
            let data: String = rest.need("data").ok()?;
            rest.insert(REDACTED_FIELD, data);
            ThinkingBlock { rest, ..ThinkingBlock::default() }.into()
        }
        "tool_use" => ToolCall {
            id: rest.need("id").ok()?,
            name: rest.take("name").ok()?.unwrap_or_default(),
            input: rest.remove("input").map_or_else(|| "{}".to_owned(), |json| input_text(&json)),
            rest: keep_other_fields(rest, CALL_FIELDS),
            ..ToolCall::default()
        }
        .into(),
        "tool_result" => {
            let is_error = rest.take("is_error").ok()?.unwrap_or(false);
            ToolResult {
                id: rest.need("tool_use_id").ok()?,
                output: rest
                    .remove("content")
                    .map_or_else(|| Some(Payload::default()), |content| read_payload(&content))?,
                state: if is_error { ToolResultState::Error } else { ToolResultState::Success },
                rest: keep_other_fields(rest, &[]),
                ..ToolResult::default()
            }
            .into()
        }
        _ => read_data(fields)?.into(),
    })
}

/// The content of a tool result: a string, or blocks.
fn read_payload(content: &Json) -> Option<Payload> {
    if let Ok(text) = content.parse_as::<String>() {
        return Some(Payload::Text(text));
    }
    let blocks: Vec<Fields> =
        if content.is_null() { Vec::new() } else { content.parse_as().ok()? };
    let parts = blocks.into_iter().map(|fields| Part::from_block(read_block(fields)));
    Some(Payload::Parts(parts.collect::<Option<Vec<Part>>>()?))
}
