//! A DashScope message while it is built, for messages and for requests.

use super::NAME;
use crate::json::fields;
use crate::model_request::to_json_list;
use crate::provider;
use turnwire_core::{DataBlock, Fields, Json, Source};

/// The type of a block that only DashScope knows, and its field with the part.
pub(super) const PART: (&str, &str) = ("dashscope_part", "part");

pub(super) struct MessageDraft {
    pub role: &'static str,
    pub thinking: String,
    pub content: Vec<ContentPart>,
    pub calls: Vec<Json>,
}

/// A part of the content.
pub(super) enum ContentPart {
    Text(String),
    Part(Json),
}

impl MessageDraft {
    pub(super) fn new(role: &'static str) -> Self {
        Self { role, thinking: String::new(), content: Vec::new(), calls: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.thinking.is_empty() && self.content.is_empty() && self.calls.is_empty()
    }

    /// Whether its content must be a list.
    pub(super) fn needs_list(&self) -> bool {
        self.content.iter().any(|bit| matches!(bit, ContentPart::Part(_)))
    }

    pub(super) fn push_call(&mut self, id: &str, name: &str, input: &str) {
        let function = fields! { "name": name, "arguments": input };
        let index = self.calls.len();
        let call = fields! { "id": id, "type": "function", "index": index, "function": function };
        self.calls.push(call.into());
    }

    /// The message with a list as content.
    pub(super) fn into_list_message(self) -> Json {
        let parts = self.content.iter().map(|bit| match bit {
            ContentPart::Text(text) => fields! { "text": text.as_str() }.into(),
            ContentPart::Part(part) => part.clone(),
        });
        let content = to_json_list(&parts.collect::<Vec<_>>());
        self.into_message(content)
    }

    /// The message with its text as content.
    pub(super) fn into_text_message(self) -> Json {
        let texts = self.content.iter().filter_map(|bit| match bit {
            ContentPart::Text(text) => Some(text.as_str()),
            ContentPart::Part(_) => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        self.into_message(text)
    }

    fn into_message(self, content: impl Into<Json>) -> Json {
        let mut message = fields! { "role": self.role, "content": content };
        message.insert_unless_empty("reasoning_content", &self.thinking);
        if !self.calls.is_empty() {
            message.insert("tool_calls", to_json_list(&self.calls));
        }
        message.into()
    }
}

/// The message with a tool result.
pub(super) fn result_message(id: &str, name: &str, text: &str) -> Json {
    fields! { "role": "tool", "content": text, "tool_call_id": id, "name": name }.into()
}

/// The key of a part with this media type: `image`, `audio` or `video`.
pub(super) fn media_key(media_type: Option<&str>) -> Option<&'static str> {
    let (kind, _) = media_type?.split_once('/')?;
    ["image", "audio", "video"].into_iter().find(|key| *key == kind)
}

/// The part for a data block: a URL, or a data URL with the bytes.
pub(super) fn data_part(block: &DataBlock, key: &str, media_type: &str) -> Option<ContentPart> {
    let url = match &block.source {
        Source::Base64(source) => format!("data:{media_type};base64,{}", source.data),
        Source::Url(source) => source.url.clone(),
        Source::Other(_) => return None,
    };
    Some(ContentPart::Part(fields! { key: url }.into()))
}

/// The part inside such an item, if it came from DashScope.
pub(super) fn item_to_part(block: &Fields) -> Option<ContentPart> {
    provider::block_to_item(NAME, block)?.remove(PART.1).map(ContentPart::Part)
}
