//! Reads and writes the parts of a `Content`.

use super::NAME;
use crate::json::fields;
use crate::lenient::{Flag, List, Object, OptionalText, Present, Raw};
use crate::model_request::{input_to_object, to_json_list};
use crate::provider;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use turnwire_core::event::Chunk;
use turnwire_core::{DataBlock, Fields, Json, Source, ThinkingBlock, ToolCall};

/// The field of a block with the thought signature of its part.
pub(super) const SIGNATURE_FIELD: &str = "thought_signature";
/// The field of a block with other fields of its part; also the type of a block that only Gemini knows.
pub(super) const PART_FIELD: &str = "gemini_part";
/// The field of such a block with the part.
const WHOLE_PART_FIELD: &str = "part";

/// A part as it is read.
#[derive(Default)]
pub(super) struct Part<'a> {
    pub text: Option<Cow<'a, str>>,
    pub thought: bool,
    pub signature: Option<Cow<'a, str>>,
    pub function_call: Option<Box<FunctionCall<'a>>>,
    pub function_response: Option<Box<FunctionResponse<'a>>>,
    data: Option<(Option<Cow<'a, str>>, Chunk<'a>)>,
    /// Its other fields.
    rest: Vec<(String, &'a RawValue)>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct FunctionCall<'a> {
    pub id: OptionalText<'a>,
    pub name: OptionalText<'a>,
    pub args: Raw<'a>,
    pub partial_args: List<PartialArg<'a>>,
    pub will_continue: Flag,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct PartialArg<'a> {
    pub json_path: OptionalText<'a>,
    pub string_value: OptionalText<'a>,
    pub number_value: Raw<'a>,
    pub bool_value: Raw<'a>,
    /// Its value is always null, so only its presence counts.
    pub null_value: Present,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct FunctionResponse<'a> {
    pub id: OptionalText<'a>,
    pub name: OptionalText<'a>,
    pub response: Raw<'a>,
    pub parts: List<Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Blob<'a> {
    mime_type: OptionalText<'a>,
    data: OptionalText<'a>,
    file_uri: OptionalText<'a>,
}

impl<'a> Blob<'a> {
    fn chunk(self) -> Option<(Option<Cow<'a, str>>, Chunk<'a>)> {
        let chunk = self.data.0.map(Chunk::Data).or(self.file_uri.0.map(Chunk::Url))?;
        Some((self.mime_type.0, chunk))
    }
}

impl<'a> Part<'a> {
    /// Media type, and bytes or URL.
    pub(super) fn data(&self) -> Option<(Option<&str>, &Chunk<'a>)> {
        let (media_type, chunk) = self.data.as_ref()?;
        Some((media_type.as_deref(), chunk))
    }

    pub(super) fn has_extra(&self) -> bool {
        self.signature.is_some() || !self.rest.is_empty()
    }

    /// Whether it has no content.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_extra()
    }

    /// The extra fields of its block, with which it can be sent back.
    pub(super) fn extra(&self) -> Fields {
        let mut extra = Fields::default();
        extra.insert_some(SIGNATURE_FIELD, self.signature.as_deref());
        if !self.rest.is_empty() {
            extra.insert(PART_FIELD, self.rest());
        }
        extra
    }

    fn rest(&self) -> Fields {
        let read = |(key, value): &(String, &RawValue)| {
            Some((key.clone(), Json::parse(value.get()).ok()?))
        };
        self.rest.iter().filter_map(read).collect()
    }
}

/// A part that only Gemini knows, as an item.
pub(super) fn part_to_item(part: &Part<'_>) -> Fields {
    let mut whole = Fields::default();
    whole.insert_some("text", part.text.as_deref());
    if part.thought {
        whole.insert("thought", true);
    }
    whole.extend(&part.rest());
    whole.insert_some("thoughtSignature", part.signature.as_deref());
    fields! { "type": PART_FIELD, WHOLE_PART_FIELD: whole }
}

/// The part inside such an item, if it came from Gemini.
pub(super) fn item_to_part(block: &Fields) -> Option<Json> {
    provider::block_to_item(NAME, block)?.remove(WHOLE_PART_FIELD)
}

/// A part with these fields, and with those that its block kept from the original part.
fn with_kept_fields(mut fields: Fields, kept: &Fields) -> Json {
    if let Ok(Some(rest)) = kept.get::<Fields>(PART_FIELD) {
        fields.extend(&rest);
    }
    if let Ok(Some(signature)) = kept.get::<String>(SIGNATURE_FIELD) {
        fields.insert("thoughtSignature", signature);
    }
    fields.into()
}

pub(super) fn text_part(text: &str, kept: &Fields) -> Json {
    with_kept_fields(fields! { "text": text }, kept)
}

pub(super) fn thinking_part(block: &ThinkingBlock) -> Json {
    with_kept_fields(fields! { "text": block.thinking.as_str(), "thought": true }, &block.rest)
}

/// A part with bytes or a URL; `None` for a source of an unknown type.
pub(super) fn data_part(block: &DataBlock, media_type: Option<&str>) -> Option<Json> {
    let (name, key, value) = match &block.source {
        Source::Base64(source) => ("inlineData", "data", &source.data),
        Source::Url(source) => ("fileData", "fileUri", &source.url),
        Source::Other(_) => return None,
    };
    let mut blob = Fields::default();
    blob.insert_some("mimeType", media_type);
    blob.insert(key, value.as_str());
    let mut fields = fields! { name: blob };
    if let Ok(Some(true)) = block.rest.get("thought") {
        fields.insert("thought", true);
    }
    Some(with_kept_fields(fields, &block.rest))
}

pub(super) fn call_part(call: &ToolCall, name: &str) -> Json {
    let args = input_to_object(&call.input);
    let function = fields! { "id": call.id.as_str(), "name": name, "args": args };
    with_kept_fields(fields! { "functionCall": function }, &call.rest)
}

/// A function response; `key` is `output` or `error`.
pub(super) fn response_part(id: &str, name: &str, key: &str, text: &str, parts: &[Json]) -> Json {
    let mut function = fields! { "id": id, "name": name, "response": fields! { key: text } };
    if !parts.is_empty() {
        function.insert("parts", to_json_list(parts));
    }
    fields! { "functionResponse": function }.into()
}

/// A `Content` with this role.
pub(super) fn content_json(role: &str, parts: &[Json]) -> Json {
    fields! { "role": role, "parts": to_json_list(parts) }.into()
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Text,
    Thought,
    ThoughtSignature,
    FunctionCall,
    FunctionResponse,
    InlineData,
    FileData,
    Other(String),
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Part<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'de>, A::Error> {
                let mut part = Part::default();
                while let Some(key) = map.next_key()? {
                    match key {
                        Key::Text => part.text = map.next_value::<OptionalText<'_>>()?.0,
                        Key::Thought => part.thought = map.next_value::<Flag>()?.0,
                        Key::ThoughtSignature => {
                            let OptionalText(text) = map.next_value()?;
                            part.signature = text.filter(|text| !text.is_empty());
                        }
                        Key::FunctionCall => part.function_call = map.next_value::<Object<_>>()?.0,
                        Key::FunctionResponse => {
                            part.function_response = map.next_value::<Object<_>>()?.0;
                        }
                        Key::InlineData | Key::FileData => {
                            let Object(blob) = map.next_value::<Object<Blob<'_>>>()?;
                            part.data = blob.and_then(|blob| blob.chunk()).or(part.data);
                        }
                        Key::Other(key) => {
                            let value: Option<&RawValue> = map.next_value()?;
                            part.rest.extend(value.map(|value| (key, value)));
                        }
                    }
                }
                Ok(part)
            }
        }
        from.deserialize_map(Read)
    }
}
