//! Writes our messages as AG-UI messages.
//!
//! A user message is one AG-UI message. Each block of a reply is an AG-UI message: text, thinking,
//! tool call and tool result; every other block is an activity. So all ids are ours, and a late
//! client gets exactly what an early one has built from the stream.
//!
//! AG-UI allows `metadata` everywhere. Ours is under one key: in the stream the reply that a
//! message belongs to; in messages written on their own also everything that AG-UI has no field
//! for, so nothing is lost.

use super::frame::METADATA_KEY;
use crate::json::{fields, to_fields, to_json};
use serde_json::json;
use std::collections::HashMap;
use turnwire_core::block::{DataKind, Source};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Json, Msg, Part, Payload, Role, TextBlock, ToolResult,
    ToolResultState, content_blocks,
};

/// How much of a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// What a client builds from the stream.
    Streamed,
    /// Everything.
    Full,
}

/// The entry of a user message's metadata that holds the client context.
const CLIENT_CONTEXT_KEY: &str = "client";

/// The fields that every AG-UI message of a reply has.
#[derive(Clone, Copy)]
pub(super) struct MessageHeader<'a> {
    /// Its id.
    pub id: &'a str,
    /// The reply that it is part of.
    pub reply: &'a str,
    /// The author's name; empty if unknown.
    pub name: &'a str,
    /// The reply id of the sub-agent that wrote it.
    pub subagent: Option<&'a str>,
}

/// Writes messages in full.
pub(super) fn write_messages(messages: &[Msg]) -> Vec<Json> {
    let all = messages.iter().flat_map(|msg| write_message(msg, Detail::Full));
    all.map(Json::from).collect()
}

/// Writes a message as a client that saw its events has it.
pub(super) fn streamed_messages(msg: &Msg) -> Vec<Fields> {
    write_message(msg, Detail::Streamed)
}

fn write_message(msg: &Msg, detail: Detail) -> Vec<Fields> {
    match msg.role() {
        Role::User => vec![write_user(msg, detail)],
        Role::System => vec![write_system(msg, detail)],
        Role::Assistant | Role::Tool => write_reply(msg, detail),
    }
}

/// The message without its content, to restore it when it is read.
fn message_envelope(msg: &Msg) -> Json {
    let mut fields = to_fields(msg);
    fields.remove("content");
    for key in ["usage", "finished_at", "finished_reason", "structured_output", "error"] {
        if fields.raw(key).is_some_and(Json::is_null) {
            fields.remove(key);
        }
    }
    fields.into()
}

fn write_user(msg: &Msg, detail: Detail) -> Fields {
    let mut own = Fields::default();
    let content = match msg.content() {
        [] => Json::from(""),
        [ContentBlock::Text(block)] => {
            own.insert("block", text_rest(block));
            Json::from(block.text.as_str())
        }
        blocks => {
            let parts = blocks.iter().filter_map(|block| match block {
                ContentBlock::Text(block) => Some(text_part(block, detail)),
                ContentBlock::Data(block) => data_part(block, detail),
                content_blocks!(Thinking Hint ToolCall ToolResult Other) => {
                    other_part(block, detail)
                }
            });
            to_json(&parts.collect::<Vec<_>>())
        }
    };
    own.insert("message", message_envelope(msg));
    write_prompt(msg, "user", content, &own, detail)
}

fn write_system(msg: &Msg, detail: Detail) -> Fields {
    let role = match msg.rest().get::<String>("ag_ui_role") {
        Ok(Some(role)) if role == "developer" => "developer",
        _ => "system",
    };
    let own = fields! { "content": to_json(msg.content()), "message": message_envelope(msg) };
    let text = msg.text("\n").unwrap_or_default();
    write_prompt(msg, role, Json::from(text), &own, detail)
}

fn write_prompt(msg: &Msg, role: &str, content: Json, own: &Fields, detail: Detail) -> Fields {
    let mut fields = fields! { "id": msg.id(), "role": role, "content": content };
    fields.insert_unless_empty("name", msg.name());
    let mut metadata = msg.metadata().clone();
    match detail {
        Detail::Full => metadata.insert(METADATA_KEY, own),
        // The client that sent the context has it; others do not need it.
        Detail::Streamed => drop(metadata.remove(CLIENT_CONTEXT_KEY)),
    }
    fields.insert_fields("metadata", &metadata);
    fields
}

fn write_reply(msg: &Msg, detail: Detail) -> Vec<Fields> {
    let mut written: Vec<Vec<Fields>> = Vec::new();
    // The position of each call's message: in the stream the result follows directly.
    let mut positions: HashMap<&str, usize> = HashMap::new();
    let mut block_ids = BlockIds::default();
    for block in msg.content() {
        let id = if let ContentBlock::ToolResult(result) = block {
            result_id(result)
        } else {
            block_ids.id_for(block, msg.id())
        };
        let mut own = reply_metadata(msg.id());
        if detail == Detail::Full && written.is_empty() {
            own.insert("message", message_envelope(msg));
        }
        let header = MessageHeader { id: &id, reply: msg.id(), name: msg.name(), subagent: None };
        let fields = write_block(block, header, own, detail);
        if detail == Detail::Streamed {
            if let ContentBlock::ToolCall(call) = block {
                positions.insert(&call.id, written.len());
            } else if let ContentBlock::ToolResult(result) = block
                && !has_own_id(result)
                && let Some(slot) = positions.get(&*result.id).and_then(|&at| written.get_mut(at))
            {
                slot.push(fields);
                continue;
            }
        }
        written.push(vec![fields]);
    }
    if written.is_empty() && detail == Detail::Full {
        let mut own = reply_metadata(msg.id());
        own.insert("message", message_envelope(msg));
        own.insert("empty", true);
        let metadata = own_metadata(own);
        written.push(vec![fields! { "id": msg.id(), "role": "assistant", "metadata": metadata }]);
    }
    written.into_iter().flatten().collect()
}

/// The field in which a result keeps the message id that a client gave it.
pub(super) const MESSAGE_ID: &str = "message_id";

/// The id of a result's message: the client's, if it sent one.
pub(super) fn result_id(result: &ToolResult) -> String {
    match result.rest.get::<String>(MESSAGE_ID) {
        Ok(Some(id)) => id,
        _ => format!("{}-result", result.id),
    }
}

/// Whether a client sent the result, and so has its message.
pub(super) fn has_own_id(result: &ToolResult) -> bool {
    matches!(result.rest.get::<String>(MESSAGE_ID), Ok(Some(_)))
}

/// Generates ids for blocks that have none: the reply's id and a number.
#[derive(Default)]
pub(super) struct BlockIds(u32);

impl BlockIds {
    pub(super) fn id_for(&mut self, block: &ContentBlock, reply: &str) -> String {
        if !block.id().is_empty() {
            return block.id().to_owned();
        }
        self.0 += 1;
        format!("{reply}-block-{}", self.0)
    }
}

/// The metadata that names the reply of a message.
pub(super) fn reply_metadata(reply: &str) -> Fields {
    fields! { "reply": reply }
}

/// Writes one block as a client that saw the stream has it.
pub(super) fn streamed_block(block: &ContentBlock, header: MessageHeader<'_>) -> Fields {
    write_block(block, header, reply_metadata(header.reply), Detail::Streamed)
}

fn write_block(
    block: &ContentBlock,
    header: MessageHeader<'_>,
    mut own: Fields,
    detail: Detail,
) -> Fields {
    let full = detail == Detail::Full;
    let mut fields = fields! { "id": header.id };
    let mut metadata = Fields::default();
    match block {
        ContentBlock::Text(block) => {
            fields.insert("role", "assistant");
            fields.insert("content", block.text.as_str());
            fields.insert_unless_empty("name", header.name);
            add_rest(&mut own, full, || text_rest(block));
        }
        ContentBlock::Thinking(block) => {
            fields.insert("role", "reasoning");
            fields.insert("content", block.thinking.as_str());
            let signature = block.rest.get::<String>("signature").ok().flatten();
            let native = signature.is_some();
            fields.insert_some("encryptedValue", signature);
            add_rest(&mut own, full, || {
                let mut rest = without_keys(to_fields(block), &["type", "thinking"]);
                rest.insert("id", block.id.as_str());
                if native {
                    rest.remove("signature");
                }
                rest
            });
        }
        ContentBlock::ToolCall(call) => {
            fields.insert("role", "assistant");
            add_rest(&mut own, full, || {
                without_keys(to_fields(call), &["type", "id", "name", "input"])
            });
            let written = fields! {
                "id": call.id.as_str(),
                "type": "function",
                "function": json!({ "name": call.name, "arguments": call.input }),
                "metadata": own_metadata(own.clone()),
            };
            fields.insert("toolCalls", to_json(&[written]));
        }
        ContentBlock::ToolResult(result) => {
            fields.insert("role", "tool");
            fields.insert("toolCallId", result.id.as_str());
            fields.insert("content", write_content(&result.output, detail));
            metadata = result_metadata(result, own.clone());
            if full {
                if has_failed(result) {
                    fields.insert("error", result.output.text(""));
                }
                let rest = without_keys(to_fields(result), &["type", "id", "output"]);
                let mut own: Fields = metadata.get(METADATA_KEY).ok().flatten().unwrap_or_default();
                own.insert("block", rest);
                metadata.insert(METADATA_KEY, own);
            }
            fields.insert("metadata", &metadata);
        }
        ContentBlock::Data(_) | ContentBlock::Hint(_) | ContentBlock::Other(_) => {
            let (activity, content) = block_activity(block);
            fields.insert("role", "activity");
            fields.insert("activityType", activity);
            fields.insert("content", content);
        }
    }
    fields.insert_some("subagentRunId", header.subagent);
    if !matches!(block, ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_)) {
        metadata.insert(METADATA_KEY, own);
        fields.insert("metadata", metadata);
    }
    fields
}

fn add_rest(own: &mut Fields, full: bool, rest: impl FnOnce() -> Fields) {
    if full {
        own.insert("block", rest());
    }
}

/// The metadata of a result's message: the result's own, and its state unless it succeeded.
pub(super) fn result_metadata(result: &ToolResult, mut own: Fields) -> Fields {
    let mut metadata = result.metadata.clone();
    if result.state != ToolResultState::Success {
        own.insert("state", result.state.as_str());
    }
    metadata.insert(METADATA_KEY, own);
    metadata
}

fn has_failed(result: &ToolResult) -> bool {
    use ToolResultState::{Denied, Error, Interrupted};
    matches!(result.state, Error | Interrupted | Denied)
}

/// The type and content of the activity for a block that has no message type.
pub(super) fn block_activity(block: &ContentBlock) -> (String, Json) {
    if let ContentBlock::Other(fields) = block
        && let Some(activity) = client_activity(fields)
    {
        return activity;
    }
    let word = match block {
        ContentBlock::Data(_) => "data",
        ContentBlock::Hint(_) => "hint",
        content_blocks!(Text Thinking ToolCall ToolResult Other) => "block",
    };
    (word.to_owned(), to_json(block))
}

/// The activity that a client sent, restored.
fn client_activity(fields: &Fields) -> Option<(String, Json)> {
    if fields.get::<String>("type").ok()?? != "activity" {
        return None;
    }
    let content = fields.raw("content").filter(|content| content.text().starts_with('{'))?;
    Some((fields.get::<String>("activityType").ok()??, content.clone()))
}

/// The output of a tool: a string if it is only text, otherwise parts.
pub(super) fn write_content(payload: &Payload, detail: Detail) -> Json {
    let parts = match payload {
        Payload::Text(text) => return Json::from(text.as_str()),
        Payload::Parts(parts) => parts,
    };
    let only_text = !parts.iter().any(|part| matches!(part, Part::Data(_)));
    if only_text && detail == Detail::Streamed {
        return Json::from(payload.text(""));
    }
    let written = parts.iter().filter_map(|part| match part {
        Part::Text(block) => Some(text_part(block, detail)),
        Part::Data(block) => data_part(block, detail),
        Part::Other(_) => other_part(&ContentBlock::from(part.clone()), detail),
    });
    to_json(&written.collect::<Vec<_>>())
}

fn text_part(block: &TextBlock, detail: Detail) -> Fields {
    let mut fields = fields! { "type": "text", "text": block.text.as_str() };
    if detail == Detail::Full {
        fields.insert("metadata", own_metadata(text_rest(block)));
    }
    fields
}

fn text_rest(block: &TextBlock) -> Fields {
    let mut rest = without_keys(to_fields(block), &["type", "text"]);
    rest.insert("id", block.id.as_str());
    rest
}

/// A part that AG-UI has no type for: in full, an empty text that carries it.
fn other_part(block: &ContentBlock, detail: Detail) -> Option<Fields> {
    let metadata = || own_metadata(fields! { "block": to_json(block) });
    (detail == Detail::Full).then(|| fields! { "type": "text", "text": "", "metadata": metadata() })
}

fn data_part(block: &DataBlock, detail: Detail) -> Option<Fields> {
    let media = crate::model_request::media_type(block);
    let source = match &block.source {
        Source::Base64(source) => {
            let media = media.unwrap_or("application/octet-stream");
            Json::from(json!({ "type": "data", "value": source.data, "mimeType": media }))
        }
        Source::Url(source) => Json::from(match media {
            Some(media) => json!({ "type": "url", "value": source.url, "mimeType": media }),
            None => json!({ "type": "url", "value": source.url }),
        }),
        Source::Other(fields) => match client_file(fields) {
            Some(file) if detail == Detail::Streamed => file,
            _ => return other_part(&block.clone().into(), detail),
        },
    };
    let kind = match (media.and_then(|media| media.split('/').next()), block.kind) {
        (Some("image"), _) | (None, DataKind::Image) => "image",
        (Some("audio"), _) | (None, DataKind::Audio) => "audio",
        (Some("video"), _) | (None, DataKind::Video) => "video",
        _ => "document",
    };
    let mut fields = fields! { "type": kind, "source": source };
    let mut metadata = Fields::default();
    metadata.insert_some("filename", block.name.as_deref());
    if detail == Detail::Full {
        let mut rest = to_fields(block);
        let mut source: Fields = rest.get("source").ok().flatten().unwrap_or_default();
        source.remove("data");
        source.remove("url");
        rest.insert("source", source);
        metadata.insert(METADATA_KEY, rest);
    }
    fields.insert_fields("metadata", &metadata);
    Some(fields)
}

/// A file at a provider, as a client sent it.
fn client_file(fields: &Fields) -> Option<Json> {
    if fields.get::<String>("type").ok()?? != "file" {
        return None;
    }
    fields.get::<String>("value").ok()??;
    Some(fields.into())
}

/// The fields of a block without these keys; unknown times are left out.
fn without_keys(mut fields: Fields, keys: &[&str]) -> Fields {
    for key in keys {
        fields.remove(key);
    }
    if fields.raw("finished_at").is_some_and(Json::is_null) {
        fields.remove("finished_at");
    }
    fields
}

/// Metadata that holds only our entry.
pub(super) fn own_metadata(own: Fields) -> Fields {
    fields! { METADATA_KEY: own }
}
