//! DashScope's messages and ours.

use super::NAME;
use super::message_draft::{
    ContentPart, MessageDraft, PART, data_part, item_to_part, media_key, result_message,
};
use crate::model_request::{media_type, to_json_object};
use crate::provider::loose::{self, Any, Want};
use crate::provider::{HistoryReader, item_to_block};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use turnwire_core::block::{Base64Source, DataKind, UrlSource};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Msg, Result, Role, Source, TextBlock, ThinkingBlock,
    ToolCall, ToolResult,
};

/// Writes messages. What a reply's message cannot hold in its order goes on in another one.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut written = Vec::new();
    for msg in messages {
        let role = match msg.role() {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let mut draft = MessageDraft::new(role);
        let mut is_first = true;
        for block in msg.content() {
            let goes_on = match block {
                ContentBlock::Thinking(_) => draft.is_empty(),
                ContentBlock::ToolResult(_) => false,
                _ => draft.calls.is_empty(),
            } || matches!(block, ContentBlock::ToolCall(_));
            if !goes_on {
                let done = std::mem::replace(&mut draft, MessageDraft::new(role));
                if role == "assistant" && (is_first || !done.is_empty()) {
                    written.push(draft_to_json(done));
                }
                is_first = false;
            }
            match block {
                ContentBlock::Text(block) if !block.text.is_empty() => {
                    draft.content.push(ContentPart::Text(block.text.clone()));
                }
                ContentBlock::Thinking(block) => draft.thinking.clone_from(&block.thinking),
                ContentBlock::Data(block) => {
                    let key = media_key(media_type(block));
                    let said = block.media_type().unwrap_or_default();
                    draft.content.extend(key.and_then(|key| data_part(block, key, said)));
                }
                ContentBlock::ToolCall(call) => draft.push_call(&call.id, &call.name, &call.input),
                ContentBlock::ToolResult(block) => {
                    written.push(result_message(&block.id, &block.name, &block.output.text("")));
                }
                ContentBlock::Other(item) => draft.content.extend(item_to_part(item)),
                _ => {}
            }
        }
        if is_first || !draft.is_empty() {
            written.push(draft_to_json(draft));
        }
    }
    written
}

fn draft_to_json(draft: MessageDraft) -> Json {
    if draft.needs_list() || draft.content.len() > 1 {
        draft.into_list_message()
    } else {
        draft.into_text_message()
    }
}

/// A message on its way in.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub role: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "content")]
    pub content: Content<'a>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::list")]
    pub tool_calls: Vec<CallFields<'a>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub tool_call_id: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(super) struct CallFields<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub id: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "loose::int")]
    pub index: Option<i64>,
    #[serde(default, borrow, deserialize_with = "loose::object")]
    pub function: Option<Box<Function<'a>>>,
}

#[derive(Default, Deserialize)]
pub(super) struct Function<'a> {
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub name: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "loose::text")]
    pub arguments: Option<Cow<'a, str>>,
}

/// A string, or parts.
#[derive(Default)]
pub(super) enum Content<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// A part of a content: text, or anything else.
#[derive(Default)]
pub(super) struct Part<'a> {
    pub text: Option<Cow<'a, str>>,
    pub rest: Vec<(String, &'a RawValue)>,
}

fn content<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Content<'a>, D::Error> {
    struct Read;
    impl<'de> Want<'de> for Read {
        type Out = Content<'de>;

        fn text(text: Cow<'de, str>) -> Content<'de> {
            Content::Text(text)
        }
        fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Content<'de>, A::Error> {
            let mut parts = Vec::new();
            while let Some(part) = seq.next_element()? {
                parts.push(part);
            }
            Ok(Content::Parts(parts))
        }
    }
    from.deserialize_any(Any::<Read>::new())
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Want<'de> for Read {
            type Out = Part<'de>;

            fn text(text: Cow<'de, str>) -> Part<'de> {
                Part { text: Some(text), rest: Vec::new() }
            }
            fn map<A: MapAccess<'de>>(mut map: A) -> Result<Part<'de>, A::Error> {
                let mut part = Part::default();
                while let Some(key) = map.next_key::<Key>()? {
                    match key {
                        Key::Text => part.text = map.next_value_seed(Any::<loose::Text>::new())?,
                        Key::Other(key) => {
                            let value: Option<&RawValue> = map.next_value()?;
                            part.rest.extend(value.map(|value| (key, value)));
                        }
                    }
                }
                Ok(part)
            }
        }
        from.deserialize_any(Any::<Read>::new())
    }
}

enum Key {
    Text,
    Other(String),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(if key == "text" { Key::Text } else { Key::Other(key.to_owned()) })
            }
        }
        from.deserialize_identifier(Read)
    }
}

/// Bytes, or where they are: what one part of a content is about, besides text.
pub(super) struct Media<'a> {
    /// `image`, `audio` or `video`.
    pub key: &'static str,
    /// What kind of bytes, where that is said.
    pub mime: Option<&'a str>,
    /// Whether `value` is base64, not a URL.
    pub is_base64: bool,
    pub value: &'a str,
}

impl Part<'_> {
    /// The media that the part is, if it is nothing else: by `text`, its own string.
    pub(super) fn read_media<'s>(&self, text: &'s mut String) -> Option<Media<'s>> {
        let [(key, value)] = self.rest.as_slice() else { return None };
        let key = ["image", "audio", "video"].into_iter().find(|known| known == key)?;
        *text = serde_json::from_str(value.get()).ok()?;
        let inline = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        Some(match inline {
            Some((said, data)) => {
                let mime = (!said.is_empty()).then_some(said);
                Media { key, mime, is_base64: true, value: data }
            }
            None => Media { key, mime: None, is_base64: false, value: text },
        })
    }

    /// What the part has besides text, as an item.
    pub(super) fn to_item(&self) -> Fields {
        let read = |(key, value): &(String, &RawValue)| {
            Some((key.clone(), Json::parse(value.get()).ok()?))
        };
        let part: Fields = self.rest.iter().filter_map(read).collect();
        let mut item = Fields::default();
        item.insert("type", PART.0);
        item.insert(PART.1, to_json_object(&part));
        item
    }
}

/// Reads a list of messages, or a single one.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    HistoryReader::read(text, read_message)
}

fn read_message(history: &mut HistoryReader, message: Message<'_>) {
    let mut blocks = Vec::new();
    if let Some(thinking) = message.reasoning_content.filter(|text| !text.is_empty()) {
        blocks.push(ThinkingBlock::new(thinking).into());
    }
    match &message.content {
        Content::None => {}
        Content::Text(text) if text.is_empty() => {}
        Content::Text(text) => blocks.push(ContentBlock::from(text.clone().into_owned())),
        Content::Parts(parts) => parts.iter().for_each(|part| push_blocks(part, &mut blocks)),
    }
    match message.role.as_deref() {
        Some("assistant") => {
            for call in message.tool_calls {
                let function = call.function.unwrap_or_default();
                let name = function.name.unwrap_or_default();
                let id = history.register_call(call.id.as_deref(), &name);
                let input = function.arguments.unwrap_or_default();
                blocks.push(ToolCall::new(id, name, input).into());
            }
            history.push_reply(blocks);
        }
        Some("tool") => {
            let says =
                |field: &Option<Cow<'_, str>>| field.as_ref().is_some_and(|id| !id.is_empty());
            if blocks.is_empty() && !says(&message.tool_call_id) && !says(&message.name) {
                return history.push_result(None);
            }
            let (name, id) =
                history.match_result(message.tool_call_id.as_deref(), message.name.as_deref());
            let text = blocks.iter().filter_map(|block| match block {
                ContentBlock::Text(block) => Some(block.text.as_str()),
                _ => None,
            });
            let text: String = text.collect();
            history.push_result(Some(ToolResult::success(id, text).named(name)));
        }
        Some("system") => history.push_message(Role::System, blocks),
        _ => history.push_message(Role::User, blocks),
    }
}

fn push_blocks(part: &Part<'_>, blocks: &mut Vec<ContentBlock>) {
    if let Some(text) = &part.text {
        blocks.push(TextBlock::new(text.clone()).into());
    }
    if part.rest.is_empty() {
        return;
    }
    let mut text = String::new();
    let Some(media) = part.read_media(&mut text) else {
        blocks.push(item_to_block(NAME, part.to_item()));
        return;
    };
    let (rest, media_type) = (Fields::default(), media.mime.map(str::to_owned));
    let kind = match (media.key, &media_type) {
        (_, Some(_)) => DataKind::Data,
        ("image", None) => DataKind::Image,
        ("audio", None) => DataKind::Audio,
        (_, None) => DataKind::Video,
    };
    let value = media.value.to_owned();
    let source = if media.is_base64 {
        Source::Base64(Base64Source { data: value, media_type, rest })
    } else {
        Source::Url(UrlSource { url: value, media_type, rest })
    };
    blocks.push(DataBlock { kind, ..DataBlock::from_source(source) }.into());
}
