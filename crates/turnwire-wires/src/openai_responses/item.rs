//! Items: which of their fields become extra fields of a block, and how a block becomes an item again. The decoder, the
//! request and the messages share this.

use crate::json::fields;
use crate::lenient::{self, Flag, Raw, TextOrNumber};
use crate::native;
use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::block::{Base64Source, DataBlock, Source};
use turnwire_core::{Fields, Json};

/// An item, or a part of one: the fields that we read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Item<'a> {
    pub r#type: TextOrNumber<'a>,
    pub id: TextOrNumber<'a>,
    pub call_id: TextOrNumber<'a>,
    pub name: TextOrNumber<'a>,
    pub arguments: TextOrNumber<'a>,
    pub input: TextOrNumber<'a>,
    pub role: TextOrNumber<'a>,
    pub text: TextOrNumber<'a>,
    pub refusal: TextOrNumber<'a>,
    pub content: Raw<'a>,
    pub summary: Raw<'a>,
    pub output: Raw<'a>,
    pub result: Raw<'a>,
    pub output_format: TextOrNumber<'a>,
    pub image_url: TextOrNumber<'a>,
    pub file_url: TextOrNumber<'a>,
    pub file_data: TextOrNumber<'a>,
    pub filename: TextOrNumber<'a>,
    pub input_audio: Raw<'a>,
    /// Ours: the message only repeats the structured output.
    pub structured_output: Flag,
    /// Ours: the text of the message differs from its deltas, and may be empty.
    pub replaced: Flag,
    /// Ours: the item was discarded.
    pub discarded: Flag,
}

/// The field with the type of the item that a call or a data block was, if it is not the usual one.
pub(super) const ITEM_TYPE: &str = "item_type";
/// The field with the provider's id of the item.
pub(super) const ITEM_ID: &str = "item_id";
pub(super) use crate::provider::PART_TYPE;

pub(super) const CUSTOM_CALL: &str = "custom_tool_call";
pub(super) const IMAGE_CALL: &str = "image_generation_call";

impl<'a> Item<'a> {
    /// The input of a function call or a custom call.
    pub(super) fn call_input(&self) -> &str {
        if self.arguments.is_empty() { &self.input } else { &self.arguments }
    }

    /// The generated image as base64, if it is valid.
    pub(super) fn image(&self) -> Option<TextOrNumber<'a>> {
        let raw = self.result.filter(|_| &*self.r#type == IMAGE_CALL)?.get();
        let image: TextOrNumber<'a> =
            raw.starts_with('"').then(|| serde_json::from_str(raw).ok())??;
        let source =
            Base64Source { data: image.to_string(), media_type: None, rest: Fields::default() };
        let mut block = DataBlock::from_source(Source::Base64(source));
        // Only a finished block is checked up to its last byte.
        block.finished_at = Some(String::new());
        block.decoded()?.is_ok().then_some(image)
    }

    /// The media type of the image: as declared, or recognised by its bytes. `OpenAI`'s default is PNG.
    pub(super) fn image_type(&self, base64: &str) -> String {
        let format = match &*self.output_format {
            "" if base64.starts_with("/9j/") => "jpeg",
            "" if base64.starts_with("UklGR") => "webp",
            "" if base64.starts_with("R0lG") => "gif",
            "" => "png",
            format => format,
        };
        format!("image/{format}")
    }

    /// The parts of a message's content; a plain string is one part.
    pub(super) fn parts(&self) -> Vec<&'a RawValue> {
        parse_list(self.content)
    }
}

/// The elements of a list; any other value is a list of one.
pub(super) fn parse_list(raw: Raw<'_>) -> Vec<&RawValue> {
    match raw {
        Some(raw) if raw.get().starts_with('[') => lenient::parse(raw),
        Some(raw) if raw.get() != "null" => vec![raw],
        _ => Vec::new(),
    }
}

/// Parses a part of a message's content; a plain string is text.
pub(super) fn parse_part(raw: &RawValue) -> Item<'_> {
    if raw.get().starts_with('"') {
        return Item {
            text: lenient::parse(raw),
            r#type: TextOrNumber("output_text".into()),
            ..Item::default()
        };
    }
    lenient::parse(raw)
}

/// The text of a part of an assistant message, if it is text.
pub(super) fn part_text<'p>(part: &'p Item<'_>) -> Option<&'p str> {
    match &*part.r#type {
        "output_text" | "text" | "input_text" => Some(&part.text),
        "refusal" => Some(&part.refusal),
        _ => None,
    }
}

pub(super) fn parse_fields(raw: &RawValue) -> Fields {
    lenient::parse(raw)
}

fn fields_without(raw: &RawValue, own: &[&str]) -> Fields {
    let mut fields = Fields::default();
    for (key, value) in &parse_fields(raw) {
        let is_nothing = value.is_null() || value.text() == "[]";
        if !own.contains(&key) && !is_nothing {
            fields.insert(key, value.clone());
        }
    }
    fields
}

/// Keeps the fields of an input part that our block does not have, such as `detail`.
pub(super) fn keep_other_fields(part: &RawValue, rest: &mut Fields) {
    let own = ["type", "text", "image_url", "file_url", "file_data", "filename", "input_audio"];
    let others = fields_without(part, &own);
    if !others.is_empty() {
        native::set(rest, super::NAME, &others);
    }
}

/// The extra fields of a text block, from its part and its message.
pub(super) fn text_extra(part: Option<&RawValue>, message: &RawValue) -> Fields {
    let own = ["type", "id", "role", "status", "content", "replaced", "discarded"];
    let mut extra = fields_without(message, &own);
    if let Some(part) = part {
        extra.extend(&fields_without(part, &["type", "text", "refusal"]));
        if &*parse_part(part).r#type == "refusal" {
            extra.insert(PART_TYPE, "refusal");
        }
    }
    extra
}

/// The extra fields of the last thinking block of a reasoning item: all fields but the type, even empty ones, so that the
/// same item can be sent back.
pub(super) fn reasoning_extra(item: &RawValue) -> Fields {
    let mut extra = Fields::default();
    for (key, value) in &parse_fields(item) {
        match key {
            "type" => {}
            "id" => extra.insert(ITEM_ID, value.clone()),
            key => extra.insert(key, value.clone()),
        }
    }
    if extra.raw("summary").is_none() {
        extra.insert("summary", Vec::<String>::new());
    }
    extra
}

/// The fields of a reasoning item that are sent back; others may be another provider's.
const REASONING_FIELDS: [&str; 4] = ["summary", "content", "encrypted_content", "status"];

/// The reasoning item that a thinking block completes, if it does.
pub(super) fn reasoning_item(extra: &Fields) -> Option<Fields> {
    extra.raw("summary")?;
    let mut item = fields! { "type": "reasoning" };
    item.insert_some("id", extra.raw(ITEM_ID).cloned());
    for key in REASONING_FIELDS {
        item.insert_some(key, extra.raw(key).cloned());
    }
    Some(item)
}

/// Whether a later thinking block completes the reasoning item of this one.
pub(super) fn continues_reasoning(extra: &Fields) -> bool {
    extra.raw(ITEM_ID).is_some() && extra.raw("summary").is_none()
}

/// The extra fields of a tool call.
pub(super) fn call_extra(item: &RawValue) -> Fields {
    let own = ["type", "id", "call_id", "name", "arguments", "input", "status", "content"];
    let mut extra = fields_without(item, &own);
    keep_id(item, &mut extra);
    if &*lenient::parse::<Item<'_>>(item).r#type == CUSTOM_CALL {
        extra.insert(ITEM_TYPE, CUSTOM_CALL);
    }
    extra
}

/// The extra fields of a data block with a generated image.
pub(super) fn image_extra(item: &RawValue) -> Fields {
    let mut extra = fields_without(item, &["type", "id", "result", "source", "name"]);
    keep_id(item, &mut extra);
    extra.insert(ITEM_TYPE, IMAGE_CALL);
    extra
}

fn keep_id(item: &RawValue, extra: &mut Fields) {
    let id = lenient::parse::<Item<'_>>(item).id;
    extra.insert_unless_empty(ITEM_ID, &id);
}

/// Whether a block came from an item of this type.
pub(super) fn has_item_type(extra: &Fields, item_type: &str) -> bool {
    extra.raw(ITEM_TYPE).is_some_and(|word| *word == Json::from(item_type))
}

/// The parts of a reasoning item in order: its summary, then its content.
pub(super) fn reasoning_parts<'a>(
    item: &Item<'a>,
) -> impl Iterator<Item = (ReasoningPart, &'a RawValue)> {
    let summary = parse_list(item.summary).into_iter().map(|raw| (ReasoningPart::Summary, raw));
    summary.chain(item.parts().into_iter().map(|raw| (ReasoningPart::Content, raw)))
}

/// Where a part of a reasoning item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReasoningPart {
    Summary,
    Content,
}
