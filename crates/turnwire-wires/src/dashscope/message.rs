//! Converts DashScope's messages to and from ours.

use super::NAME;
use super::message_draft::{
    ContentPart, MessageDraft, PART, data_part, item_to_part, media_key, result_message,
};
use crate::json::fields;
use crate::lenient::{
    Int, Lenient, List, Object, OptionalText, Text, TextOrList, deserialize_leniently,
};
use crate::model_request::media_type;
use crate::provider::{HistoryReader, item_to_block};
use serde::Deserialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use std::borrow::Cow;
use turnwire_core::block::DataKind;
use turnwire_core::event::Chunk;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Msg, Result, Role, TextBlock, ThinkingBlock, ToolCall,
    ToolResult, content_blocks,
};

/// Writes messages. A reply becomes several messages where one cannot keep the order of its blocks.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut written = Vec::new();
    for msg in messages {
        let role = msg.role().as_str();
        let mut draft = MessageDraft::new(role);
        let mut is_first = true;
        for block in msg.content() {
            let goes_on = match block {
                ContentBlock::Thinking(_) => draft.is_empty(),
                ContentBlock::ToolResult(_) => false,
                ContentBlock::ToolCall(_) => true,
                content_blocks!(Text Data Hint Other) => draft.calls.is_empty(),
            };
            if !goes_on {
                let done = std::mem::replace(&mut draft, MessageDraft::new(role));
                if role == "assistant" && (is_first || !done.is_empty()) {
                    written.push(draft_to_json(done));
                }
                is_first = false;
            }
            match block {
                ContentBlock::Text(block) if block.text.is_empty() => {}
                ContentBlock::Text(block) => {
                    draft.content.push(ContentPart::Text(block.text.clone()));
                }
                ContentBlock::Thinking(block) => draft.thinking.clone_from(&block.thinking),
                ContentBlock::Data(block) => {
                    let key = media_key(media_type(block));
                    let declared = block.media_type().unwrap_or_default();
                    draft.content.extend(key.and_then(|key| data_part(block, key, declared)));
                }
                ContentBlock::ToolCall(call) => draft.push_call(&call.id, &call.name, &call.input),
                ContentBlock::ToolResult(block) => {
                    written.push(result_message(&block.id, &block.name, &block.output.text("")));
                }
                ContentBlock::Other(item) => draft.content.extend(item_to_part(item)),
                ContentBlock::Hint(_) => {}
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

/// A message as it is read.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub role: OptionalText<'a>,
    pub content: Content<'a>,
    pub reasoning_content: OptionalText<'a>,
    pub tool_calls: List<CallFields<'a>>,
    pub tool_call_id: OptionalText<'a>,
    pub name: OptionalText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CallFields<'a> {
    pub id: OptionalText<'a>,
    pub index: Int,
    pub function: Object<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub name: OptionalText<'a>,
    pub arguments: OptionalText<'a>,
}

/// Content: a string, or parts.
pub(super) type Content<'a> = TextOrList<'a, Part<'a>>;

/// A part of the content: text, or anything else.
#[derive(Default)]
pub(super) struct Part<'a> {
    pub text: Option<Cow<'a, str>>,
    pub rest: Vec<(String, &'a RawValue)>,
}

deserialize_leniently!(Part<'a>);

impl<'de: 'a, 'a> Lenient<'de> for Part<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self { text: Some(text), rest: Vec::new() }
    }
    fn from_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut part = Self::default();
        while let Some(Text(key)) = map.next_key()? {
            if key == "text" {
                part.text = map.next_value::<OptionalText<'_>>()?.0;
            } else {
                let value: Option<&RawValue> = map.next_value()?;
                part.rest.extend(value.map(|value| (key.into_owned(), value)));
            }
        }
        Ok(part)
    }
}

/// The media in a part: bytes or a URL.
pub(super) struct Media<'a> {
    /// `image`, `audio` or `video`.
    pub key: &'static str,
    /// The media type, if known.
    pub mime: Option<&'a str>,
    /// Whether `value` is base64 instead of a URL.
    pub chunk: Chunk<'a>,
}

impl Part<'_> {
    /// The media of a part that has nothing else. `text` holds the string that it borrows from.
    pub(super) fn read_media<'s>(&self, text: &'s mut String) -> Option<Media<'s>> {
        let [(key, value)] = self.rest.as_slice() else { return None };
        let key = ["image", "audio", "video"].into_iter().find(|known| known == key)?;
        *text = serde_json::from_str(value.get()).ok()?;
        let inline = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        Some(match inline {
            Some((declared, data)) => {
                let mime = (!declared.is_empty()).then_some(declared);
                Media { key, mime, chunk: Chunk::Data(data.into()) }
            }
            None => Media { key, mime: None, chunk: Chunk::Url(text.as_str().into()) },
        })
    }

    /// The part without its text, as an item.
    pub(super) fn to_item(&self) -> Fields {
        let read = |(key, value): &(String, &RawValue)| {
            Some((key.clone(), Json::parse(value.get()).ok()?))
        };
        let part: Fields = self.rest.iter().filter_map(read).collect();
        let (word, field) = PART;
        fields! { "type": word, field: part }
    }
}

/// Reads a list of messages, or a single one.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    HistoryReader::read(text, read_message)
}

fn read_message(history: &mut HistoryReader, message: Message<'_>) {
    let mut blocks = Vec::new();
    if let Some(thinking) = message.reasoning_content.0.filter(|text| !text.is_empty()) {
        blocks.push(ThinkingBlock::new(thinking).into());
    }
    match &message.content {
        Content::None => {}
        Content::Text(text) if text.is_empty() => {}
        Content::Text(text) => blocks.push(ContentBlock::from(text.clone().into_owned())),
        Content::List(parts) => parts.iter().for_each(|part| push_blocks(part, &mut blocks)),
    }
    match message.role.as_deref() {
        Some("assistant") => {
            for call in message.tool_calls.0 {
                let function = call.function.0.unwrap_or_default();
                let name = function.name.0.unwrap_or_default();
                let id = history.register_call(call.id.as_deref(), &name);
                let input = function.arguments.0.unwrap_or_default();
                blocks.push(ToolCall::new(id, name, input).into());
            }
            history.push_reply(blocks);
        }
        Some("tool") => {
            if blocks.is_empty()
                && message.tool_call_id.or_empty().is_empty()
                && message.name.or_empty().is_empty()
            {
                return history.push_result(None);
            }
            let (name, id) =
                history.match_result(message.tool_call_id.as_deref(), message.name.as_deref());
            let mut text = String::new();
            for block in &blocks {
                if let ContentBlock::Text(block) = block {
                    text.push_str(&block.text);
                }
            }
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
    let media_type = media.mime.map(str::to_owned);
    let kind = match (media.key, &media_type) {
        (_, Some(_)) => DataKind::Data,
        ("image", None) => DataKind::Image,
        ("audio", None) => DataKind::Audio,
        (_, None) => DataKind::Video,
    };
    let source = media.chunk.into_source(media_type);
    blocks.push(DataBlock { kind, ..DataBlock::from_source(source) }.into());
}
