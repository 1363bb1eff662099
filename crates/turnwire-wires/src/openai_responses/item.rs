//! Items: what of them becomes extra fields of a block, and what of a block becomes an item again.
//! The stream in, the request and the messages share this.

use super::read::{self, Flag, Raw, Text};
use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::block::{Base64Source, DataBlock, Source};
use turnwire_core::{Fields, Json};

/// An item, or a part of one, as far as we look into it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    pub r#type: Text<'a>,
    #[serde(borrow)]
    pub id: Text<'a>,
    #[serde(borrow)]
    pub call_id: Text<'a>,
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow)]
    pub arguments: Text<'a>,
    #[serde(borrow)]
    pub input: Text<'a>,
    #[serde(borrow)]
    pub role: Text<'a>,
    #[serde(borrow)]
    pub text: Text<'a>,
    #[serde(borrow)]
    pub refusal: Text<'a>,
    #[serde(borrow)]
    pub content: Raw<'a>,
    #[serde(borrow)]
    pub summary: Raw<'a>,
    #[serde(borrow)]
    pub output: Raw<'a>,
    #[serde(borrow)]
    pub result: Raw<'a>,
    #[serde(borrow)]
    pub output_format: Text<'a>,
    #[serde(borrow)]
    pub image_url: Text<'a>,
    #[serde(borrow)]
    pub file_url: Text<'a>,
    #[serde(borrow)]
    pub file_data: Text<'a>,
    #[serde(borrow)]
    pub filename: Text<'a>,
    #[serde(borrow)]
    pub input_audio: Raw<'a>,
    /// Ours: a message that is only there to say the structured output.
    pub structured_output: Flag,
    /// Ours: a message whose text is not what the deltas gave, and may be none at all.
    pub replaced: Flag,
    /// Ours: an item that was taken back.
    pub discarded: Flag,
}

/// The field that says which item a call or a data block was, where it is not the usual one.
pub(super) const ITEM_TYPE: &str = "item_type";
/// The field with the id that the provider gave the item.
pub(super) const ITEM_ID: &str = "item_id";
/// The field that says which part of a message a text was, where it is not the usual one.
pub(super) const PART_TYPE: &str = "part_type";

pub(super) const CUSTOM_CALL: &str = "custom_tool_call";
pub(super) const IMAGE_CALL: &str = "image_generation_call";

impl<'a> Item<'a> {
    /// The input of a call, whichever kind it is.
    pub(super) fn call_input(&self) -> &str {
        if self.arguments.is_empty() { &self.input } else { &self.arguments }
    }

    /// The image that it made, as base64; `None` where there is none that can be read.
    pub(super) fn image(&self) -> Option<Text<'a>> {
        let raw = self.result.filter(|_| &*self.r#type == IMAGE_CALL)?.get();
        let image: Text<'a> = raw.starts_with('"').then(|| serde_json::from_str(raw).ok())??;
        let source =
            Base64Source { data: image.to_string(), media_type: None, rest: Fields::default() };
        let mut block = DataBlock::from_source(Source::Base64(source));
        // Only then its end is looked at too.
        block.finished_at = Some(String::new());
        block.decoded()?.is_ok().then_some(image)
    }

    /// What kind of image that is. Without a word on it, the bytes tell; `OpenAI`'s default is PNG.
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

    /// The parts of a message's content; a bare string is one.
    pub(super) fn parts(&self) -> Vec<&'a RawValue> {
        parse_list(self.content)
    }
}

/// The elements of a list, or the one thing that stands in its place.
pub(super) fn parse_list(raw: Raw<'_>) -> Vec<&RawValue> {
    match raw {
        Some(raw) if raw.get().starts_with('[') => read::of(raw),
        Some(raw) if raw.get() != "null" => vec![raw],
        _ => Vec::new(),
    }
}

/// A part of a message's content; a bare string is text.
pub(super) fn parse_part(raw: &RawValue) -> Item<'_> {
    if raw.get().starts_with('"') {
        return Item { text: read::of(raw), r#type: Text("output_text".into()), ..Item::default() };
    }
    read::of(raw)
}

/// Whether a part of the assistant's message is text, and that text.
pub(super) fn part_text<'p>(part: &'p Item<'_>) -> Option<&'p str> {
    match &*part.r#type {
        "output_text" | "text" | "input_text" => Some(&part.text),
        "refusal" => Some(&part.refusal),
        _ => None,
    }
}

fn parse_fields(raw: &RawValue) -> Fields {
    read::of(raw)
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

/// What a text block keeps of its part, and of the message around it.
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

/// What the last thinking block of a reasoning item keeps: everything but its type, also what is
/// empty, so that the very item can be sent back.
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

/// The fields of a reasoning item that are sent back; others may be those of another provider.
const REASONING_FIELDS: [&str; 4] = ["summary", "content", "encrypted_content", "status"];

/// The reasoning item that a thinking block closed, if it did.
pub(super) fn reasoning_item(extra: &Fields) -> Option<Fields> {
    extra.raw("summary")?;
    let mut item = Fields::default();
    item.insert("type", "reasoning");
    if let Some(id) = extra.raw(ITEM_ID) {
        item.insert("id", id.clone());
    }
    for key in REASONING_FIELDS {
        if let Some(value) = extra.raw(key) {
            item.insert(key, value.clone());
        }
    }
    Some(item)
}

/// Whether a thinking block is a part of a reasoning item that a later block closes.
pub(super) fn continues_reasoning(extra: &Fields) -> bool {
    extra.raw(ITEM_ID).is_some() && extra.raw("summary").is_none()
}

/// What a tool call keeps of its item.
pub(super) fn call_extra(item: &RawValue) -> Fields {
    let own = ["type", "id", "call_id", "name", "arguments", "input", "status", "content"];
    let mut extra = fields_without(item, &own);
    keep_id(item, &mut extra);
    if &*read::of::<Item<'_>>(item).r#type == CUSTOM_CALL {
        extra.insert(ITEM_TYPE, CUSTOM_CALL);
    }
    extra
}

/// What a data block keeps of the item that made an image.
pub(super) fn image_extra(item: &RawValue) -> Fields {
    let mut extra = fields_without(item, &["type", "id", "result", "source", "name"]);
    keep_id(item, &mut extra);
    extra.insert(ITEM_TYPE, IMAGE_CALL);
    extra
}

fn keep_id(item: &RawValue, extra: &mut Fields) {
    let id = read::of::<Item<'_>>(item).id;
    if !id.is_empty() {
        extra.insert(ITEM_ID, &*id);
    }
}

/// Whether a block was an item of this type.
pub(super) fn has_item_type(extra: &Fields, item_type: &str) -> bool {
    extra.raw(ITEM_TYPE).is_some_and(|word| *word == Json::from(item_type))
}

/// The parts of a reasoning item in the order in which they read: its summary, then its content.
pub(super) fn reasoning_parts<'a>(
    item: &Item<'a>,
) -> impl Iterator<Item = (ReasoningPart, &'a RawValue)> {
    let summary = parse_list(item.summary).into_iter().map(|raw| (ReasoningPart::Summary, raw));
    summary.chain(item.parts().into_iter().map(|raw| (ReasoningPart::Content, raw)))
}

/// Where the parts of a reasoning item are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReasoningPart {
    Summary,
    Content,
}
