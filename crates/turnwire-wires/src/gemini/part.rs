//! The parts that a `Content` is made of, both ways.

use super::NAME;
use crate::model_request::{input_to_object, to_json_list, to_json_object};
use crate::provider;
use crate::provider::loose::{self, Any, Object};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use turnwire_core::event::Chunk;
use turnwire_core::{DataBlock, Fields, Json, Source, ThinkingBlock, ToolCall};

/// The field of a block that holds the part's thought signature.
pub(super) const SIGNATURE_FIELD: &str = "thought_signature";
/// The field of a block that holds what else the part had. Also the type of a block that only
/// Gemini knows.
pub(super) const PART_FIELD: &str = "gemini_part";
/// The field of such a block that holds the part.
const WHOLE_PART_FIELD: &str = "part";

/// A part on its way in.
#[derive(Default)]
pub(super) struct Part<'a> {
    pub text: Option<Cow<'a, str>>,
    pub thought: bool,
    pub signature: Option<Cow<'a, str>>,
    pub function_call: Option<Box<FunctionCall<'a>>>,
    pub function_response: Option<Box<FunctionResponse<'a>>>,
    data: Option<(Option<Cow<'a, str>>, Chunk<'a>)>,
    /// What it has besides.
    rest: Vec<(String, &'a RawValue)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub id: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub args: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "loose::list")]
    pub partial_args: Vec<PartialArg<'a>>,
    #[serde(default, deserialize_with = "loose::flag")]
    pub will_continue: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartialArg<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub json_path: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub string_value: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub number_value: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub bool_value: Option<&'a RawValue>,
    /// Its value is null, so that it is there is all that counts.
    #[serde(default, deserialize_with = "loose::present")]
    pub null_value: bool,
}

#[derive(Deserialize)]
pub(super) struct FunctionResponse<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub id: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub response: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "loose::list")]
    pub parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    mime_type: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    data: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    file_uri: Option<Cow<'a, str>>,
}

impl<'a> Blob<'a> {
    fn chunk(self) -> Option<(Option<Cow<'a, str>>, Chunk<'a>)> {
        let chunk = self.data.map(Chunk::Data).or(self.file_uri.map(Chunk::Url))?;
        Some((self.mime_type, chunk))
    }
}

impl<'a> Part<'a> {
    /// Bytes, or where they are.
    pub(super) fn data(&self) -> Option<(Option<&str>, &Chunk<'a>)> {
        let (media_type, chunk) = self.data.as_ref()?;
        Some((media_type.as_deref(), chunk))
    }

    pub(super) fn has_extra(&self) -> bool {
        self.signature.is_some() || !self.rest.is_empty()
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_extra()
    }

    /// What becomes fields of its block, so that it can be sent back.
    pub(super) fn extra(&self) -> Fields {
        let mut extra = Fields::default();
        if let Some(signature) = &self.signature {
            extra.insert(SIGNATURE_FIELD, &**signature);
        }
        let rest = self.rest();
        if let Ok(rest) = Json::from_value(&rest)
            && !self.rest.is_empty()
        {
            extra.insert(PART_FIELD, rest);
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
    if let Some(text) = &part.text {
        whole.insert("text", &**text);
    }
    if part.thought {
        whole.insert("thought", true);
    }
    whole.extend(&part.rest());
    if let Some(signature) = &part.signature {
        whole.insert("thoughtSignature", &**signature);
    }
    let mut item = Fields::default();
    item.insert("type", PART_FIELD);
    item.insert(WHOLE_PART_FIELD, to_json_object(&whole));
    item
}

/// The part that such an item is, if it came from Gemini.
pub(super) fn item_to_part(block: &Fields) -> Option<Json> {
    provider::block_to_item(NAME, block)?.remove(WHOLE_PART_FIELD)
}

/// A part with these fields, and with what its block kept of the part that it came from.
fn with_kept_fields(mut fields: Fields, kept: &Fields) -> Json {
    if let Ok(Some(rest)) = kept.get::<Fields>(PART_FIELD) {
        fields.extend(&rest);
    }
    if let Ok(Some(signature)) = kept.get::<String>(SIGNATURE_FIELD) {
        fields.insert("thoughtSignature", signature);
    }
    to_json_object(&fields)
}

pub(super) fn text_part(text: &str, kept: &Fields) -> Json {
    with_kept_fields([("text", text)].into_iter().collect(), kept)
}

pub(super) fn thinking_part(block: &ThinkingBlock) -> Json {
    let mut fields: Fields = [("text", block.thinking.as_str())].into_iter().collect();
    fields.insert("thought", true);
    with_kept_fields(fields, &block.rest)
}

/// Bytes or a URL; none where they are of a kind that we do not know.
pub(super) fn data_part(block: &DataBlock, media_type: Option<&str>) -> Option<Json> {
    let (name, key, value) = match &block.source {
        Source::Base64(source) => ("inlineData", "data", &source.data),
        Source::Url(source) => ("fileData", "fileUri", &source.url),
        Source::Other(_) => return None,
    };
    let mut blob = Fields::default();
    if let Some(media_type) = media_type {
        blob.insert("mimeType", media_type);
    }
    blob.insert(key, value.as_str());
    let mut fields: Fields = [(name, to_json_object(&blob))].into_iter().collect();
    if let Ok(Some(true)) = block.rest.get("thought") {
        fields.insert("thought", true);
    }
    Some(with_kept_fields(fields, &block.rest))
}

pub(super) fn call_part(call: &ToolCall, name: &str) -> Json {
    let mut function = Fields::default();
    function.insert("id", call.id.as_str());
    function.insert("name", name);
    function.insert("args", input_to_object(&call.input));
    with_kept_fields(
        [("functionCall", to_json_object(&function))].into_iter().collect(),
        &call.rest,
    )
}

/// What came of a call: `key` is `output` or `error`.
pub(super) fn response_part(id: &str, name: &str, key: &str, text: &str, parts: &[Json]) -> Json {
    let mut function = Fields::default();
    function.insert("id", id);
    function.insert("name", name);
    function.insert("response", to_json_object(&[(key, text)].into_iter().collect()));
    if !parts.is_empty() {
        function.insert("parts", to_json_list(parts));
    }
    to_json_object(&[("functionResponse", to_json_object(&function))].into_iter().collect())
}

/// A `Content` of this role.
pub(super) fn content_json(role: &str, parts: &[Json]) -> Json {
    let mut content = Fields::default();
    content.insert("role", role);
    content.insert("parts", to_json_list(parts));
    to_json_object(&content)
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
                        Key::Text => part.text = map.next_value_seed(Any::<loose::Text>::new())?,
                        Key::Thought => {
                            part.thought = map.next_value_seed(Any::<loose::Flag>::new())?;
                        }
                        Key::ThoughtSignature => {
                            let text = map.next_value_seed(Any::<loose::Text>::new())?;
                            part.signature = text.filter(|text| !text.is_empty());
                        }
                        Key::FunctionCall => {
                            part.function_call = map.next_value_seed(Any::<Object<_>>::new())?;
                        }
                        Key::FunctionResponse => {
                            part.function_response = map.next_value_seed(Any::<Object<_>>::new())?;
                        }
                        Key::InlineData | Key::FileData => {
                            let blob = map.next_value_seed(Any::<Object<Blob<'_>>>::new())?;
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
