//! The parts of chat messages, for requests and for messages.

use super::audio::AUDIO_ID;
use super::stream_blocks::{REASONING_DETAILS, REASONING_FIELD};
use crate::model_request::media_type;
use crate::native;
use crate::provider::is_refusal;
use serde_json::{Map, Value, json};
use turnwire_core::{DataBlock, Fields, Source, TextBlock, ThinkingBlock, ToolCall};

/// The media type of a data URL, and its bytes as base64.
pub(super) fn parse_data_url(url: &str) -> Option<(Option<&str>, &str)> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    let kind = kind.strip_suffix(";base64")?;
    Some((Some(kind).filter(|kind| !kind.is_empty()), data))
}

/// A part for data, or the reason why there is none.
pub(super) fn data_part(block: &DataBlock) -> Result<Value, &'static str> {
    let mut part = plain_data_part(block)?;
    add_native(&mut part, Some(&block.rest));
    Ok(part)
}

fn plain_data_part(block: &DataBlock) -> Result<Value, &'static str> {
    let kind = media_type(block).unwrap_or("");
    let family = kind.split_once('/').map_or("", |(family, _)| family);
    match &block.source {
        Source::Base64(source) => match family {
            "image" => {
                let kind = if kind == "image/*" { "image/png" } else { kind };
                Ok(image_part(&format!("data:{kind};base64,{}", source.data)))
            }
            "audio" => match audio_format(kind) {
                Some(format) => Ok(json!({
                    "type": "input_audio",
                    "input_audio": {"data": source.data, "format": format},
                })),
                None => Err("only wav and mp3 are accepted"),
            },
            "text" | "application" if is_document(kind) => {
                let name = block.name.as_deref().unwrap_or("file");
                let data = format!("data:{kind};base64,{}", source.data);
                Ok(json!({"type": "file", "file": {"filename": name, "file_data": data}}))
            }
            _ => Err("the model does not accept this kind"),
        },
        Source::Url(source) if !is_web(&source.url) => Err("its URL is neither http nor https"),
        Source::Url(source) if family == "image" || kind.is_empty() && is_image(&source.url) => {
            Ok(image_part(&source.url))
        }
        Source::Url(_) => Err("the model accepts only images by URL"),
        Source::Other(_) => Err("its source is not known"),
    }
}

fn image_part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn audio_format(kind: &str) -> Option<&'static str> {
    match kind {
        "audio/wav" | "audio/wave" | "audio/x-wav" | "audio/vnd.wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}

fn is_document(kind: &str) -> bool {
    kind == "application/pdf" || kind == "application/json" || kind.starts_with("text/")
}

fn is_web(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

/// Whether the URL has the file extension of an image.
fn is_image(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    ["png", "jpg", "jpeg", "gif", "webp"].iter().any(|image| end.eq_ignore_ascii_case(image))
}

/// A text part.
pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A text part, with the fields that only this protocol has.
pub(super) fn text_block_part(block: &TextBlock) -> Value {
    let mut part = text_part(&block.text);
    add_native(&mut part, Some(&block.rest));
    part
}

/// Adds the fields that only this protocol has to a message or a part. Those that it has already stay.
pub(super) fn add_native(to: &mut Value, holder: Option<&Fields>) {
    let native = holder.and_then(|holder| native::get(holder, super::NAME));
    if let Some(mut native) = native {
        native.remove(native::MESSAGE);
        add_missing(to, native.parse_as().unwrap_or_default());
    }
}

/// Adds the fields that a client's message has beside those of this protocol, from a block of it.
pub(super) fn add_message_fields(to: &mut Value, rest: &Fields) {
    if let Ok(Some(fields)) = native::message_fields(rest).get(super::NAME) {
        add_missing(to, fields);
    }
}

fn add_missing(to: &mut Value, more: Value) {
    if let (Value::Object(to), Value::Object(more)) = (to, more) {
        for (key, value) in more {
            match to.get_mut(&key) {
                Some(known) => add_missing(known, value),
                None => drop(to.insert(key, value)),
            }
        }
    }
}

/// A single text is a string, which every compatible API accepts; anything else is a list.
pub(super) fn to_content(mut parts: Vec<Value>) -> Value {
    match parts.as_mut_slice() {
        [Value::Object(part)] if is_plain_text(part) => part.remove("text").unwrap_or_default(),
        _ => parts.into(),
    }
}

/// Whether a part has only text.
pub(super) fn is_plain_text(part: &Map<String, Value>) -> bool {
    part.len() == 2 && part.get("type").is_some_and(|kind| kind == "text")
}

/// A tool call, with this input.
pub(super) fn call_part(call: &ToolCall, id: &str, name: &str, input: &str) -> Value {
    let mut piece = if call.rest.raw("custom").is_some() {
        // Its input is plain text, and may be empty.
        let custom = json!({"name": name, "input": call.input});
        json!({"id": id, "type": "custom", "custom": custom})
    } else {
        let function = json!({"name": name, "arguments": input});
        json!({"id": id, "type": "function", "function": function})
    };
    if let (Some(map), Ok(Some(extra))) =
        (piece.as_object_mut(), call.rest.get::<Value>("extra_content"))
    {
        map.insert("extra_content".to_owned(), extra);
    }
    piece
}

/// An assistant message while it is built.
#[derive(Default)]
pub(super) struct AssistantMessage {
    /// The content parts.
    pub parts: Vec<Value>,
    pub calls: Vec<Value>,
    /// Thinking, by its field.
    reasoning: Map<String, Value>,
    details: Vec<Value>,
    audio: Option<String>,
    refusal: String,
}

impl AssistantMessage {
    /// Adds text. A refusal has a field of its own, and the provider knows the transcript of its audio.
    pub(super) fn add_text(&mut self, block: &TextBlock) {
        if is_refusal(&block.rest) {
            self.refusal.push_str(&block.text);
        } else if block.rest.raw(AUDIO_ID).is_none() {
            self.parts.push(text_block_part(block));
        }
    }

    /// Adds thinking to the field that it came in, or to `otherwise` if that is unknown.
    pub(super) fn add_thinking(&mut self, block: &ThinkingBlock, otherwise: Option<&str>) {
        if let Ok(Some(details)) = block.rest.get::<Vec<Map<String, Value>>>(REASONING_DETAILS) {
            for detail in details {
                self.add_detail(detail, &block.thinking);
            }
            return;
        }
        let field = block.rest.get::<String>(REASONING_FIELD).ok().flatten();
        let Some(field) = field.as_deref().or(otherwise) else { return };
        if block.thinking.is_empty() {
            return;
        }
        if field == "content" {
            let thinking = [text_part(&block.thinking)];
            self.parts.push(json!({"type": "thinking", "thinking": thinking}));
        } else if let Some(Value::String(before)) = self.reasoning.get_mut(field) {
            before.push_str(&block.thinking);
        } else {
            self.reasoning.insert(field.to_owned(), block.thinking.clone().into());
        }
    }

    /// Adds an entry of OpenRouter's `reasoning_details`. An entry without text, such as a signature, completes the one before.
    fn add_detail(&mut self, mut detail: Map<String, Value>, text: &str) {
        let field = match detail.get("type").and_then(Value::as_str) {
            Some("reasoning.text") => "text",
            Some("reasoning.summary") => "summary",
            _ => return self.details.push(detail.into()),
        };
        if let Some(Value::Object(last)) = self.details.last_mut()
            && text.is_empty()
            && last.get("type") == detail.get("type")
            && last.get("index") == detail.get("index")
        {
            last.extend(detail);
            return;
        }
        detail.insert(field.to_owned(), text.into());
        self.details.push(detail.into());
    }

    /// Refers to audio by the provider's id. Returns whether it has one.
    pub(super) fn add_audio(&mut self, block: &DataBlock) -> bool {
        let id = block.rest.get::<String>(AUDIO_ID).ok().flatten();
        let known = id.is_some();
        self.audio = self.audio.take().or(id);
        known
    }

    /// Whether it has neither calls, nor audio, nor a refusal, which may be without content.
    pub(super) fn needs_content(&self) -> bool {
        self.calls.is_empty() && self.audio.is_none() && self.refusal.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
            && self.calls.is_empty()
            && self.reasoning.is_empty()
            && self.details.is_empty()
            && self.audio.is_none()
            && self.refusal.is_empty()
    }

    /// The message, with this content.
    pub(super) fn into_json(self, name: &str, content: Value) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        if !name.is_empty() {
            message.insert("name".to_owned(), name.into());
        }
        message.insert("content".to_owned(), content);
        if !self.refusal.is_empty() {
            message.insert("refusal".to_owned(), self.refusal.into());
        }
        message.extend(self.reasoning);
        if !self.details.is_empty() {
            message.insert(REASONING_DETAILS.to_owned(), self.details.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), self.calls.into());
        }
        if let Some(id) = self.audio {
            message.insert("audio".to_owned(), json!({"id": id}));
        }
        message.into()
    }
}

/// An item of this wire as it came, if it is one.
pub(super) fn item_part(fields: &Fields) -> Option<Value> {
    crate::provider::block_to_item(super::NAME, fields)?.parse_as().ok()
}
