//! Reads AG-UI messages as ours.
//!
//! Consecutive messages without a user message between them are one reply. A tool message belongs
//! to the reply with the call.

use super::frame::{ACTIVITY_TYPES, DISCARDED, METADATA_KEY};
use super::write_messages::MESSAGE_ID;
use crate::json::to_json;
use crate::provider::unknown_block;
use std::collections::HashMap;
use turnwire_core::{
    ContentBlock, DataBlock, Error, ErrorKind, Fields, Json, Msg, Part, Payload, Result, Role,
    Source, TextBlock, ToolCallState, ToolResult, ToolResultState,
};

/// Reads a list of messages, or a single one.
pub(super) fn read_messages(text: &str) -> Result<Vec<Msg>> {
    let json = Json::parse(text)?;
    if !json.text().starts_with('[') {
        return read_message_list(vec![json.parse_as().map_err(|error| not_a_message(&error))?]);
    }
    let list: Vec<Json> = json.parse_as().map_err(|error| not_a_message(&error))?;
    let all = list.iter().enumerate().map(|(at, message)| {
        message.parse_as::<Fields>().map_err(|error| not_a_message(&error).at(format!("[{at}]")))
    });
    read_message_list(all.collect::<Result<_>>()?)
}

/// Reads messages that are already parsed.
pub(super) fn read_message_list(list: Vec<Fields>) -> Result<Vec<Msg>> {
    let mut reader = MessageReader::default();
    for (at, fields) in list.into_iter().enumerate() {
        reader.read_message(fields).map_err(|error| error.at(format!("[{at}]")))?;
    }
    reader.finish_reply()?;
    Ok(reader.messages)
}

fn not_a_message(error: &Error) -> Error {
    Error::new(ErrorKind::NotAMessage, error.message())
}

#[derive(Default)]
struct MessageReader {
    messages: Vec<Msg>,
    reply: Option<PartialReply>,
}

/// The reply being read.
struct PartialReply {
    /// Its id, if the message came from us.
    own_id: Option<String>,
    envelope: Option<Fields>,
    role: Role,
    id: String,
    name: String,
    content: Vec<ContentBlock>,
    /// Tool names by call id.
    calls: HashMap<String, String>,
}

impl MessageReader {
    fn read_message(&mut self, mut fields: Fields) -> Result<()> {
        let role: String = fields
            .take("role")
            .ok()
            .flatten()
            .ok_or_else(|| Error::new(ErrorKind::NotAMessage, "the message has no `role`"))?;
        let id: String =
            fields.take("id").map_err(|error| not_a_message(&error))?.unwrap_or_default();
        let mut metadata: Fields = fields.take("metadata").ok().flatten().unwrap_or_default();
        let mut own: Fields = metadata.take(METADATA_KEY).ok().flatten().unwrap_or_default();
        match role.as_str() {
            "user" => {
                self.finish_reply()?;
                let content = read_content(&mut fields, &mut own)?;
                self.read_prompt(Role::User, id, content, fields, metadata, own)
            }
            "system" | "developer" => {
                self.finish_reply()?;
                let content = match own.take("content").ok().flatten() {
                    Some(content) => content,
                    None => read_content(&mut fields, &mut Fields::default())?,
                };
                if role == "developer" {
                    fields.insert("ag_ui_role", role);
                }
                self.read_prompt(Role::System, id, content, fields, metadata, own)
            }
            "assistant" | "reasoning" | "tool" | "activity" => {
                let name: Option<String> = fields.take("name").ok().flatten();
                let (blocks, inner) = match role.as_str() {
                    "assistant" => read_assistant(&id, fields, &metadata, &own)?,
                    "reasoning" => (vec![read_reasoning(&id, fields, &metadata, &own)?], None),
                    "tool" => (vec![read_tool(&id, fields, metadata, &own)?], None),
                    _ => (read_activity(&id, fields, &metadata, &own)?, None),
                };
                let own = inner.unwrap_or(own);
                self.read_reply_part(&role, id, name, blocks, own)
            }
            other => Err(Error::new(ErrorKind::NotAMessage, format!("unknown `role` `{other}`"))),
        }
    }

    fn read_prompt(
        &mut self,
        role: Role,
        id: String,
        content: Vec<ContentBlock>,
        mut rest: Fields,
        metadata: Fields,
        mut own: Fields,
    ) -> Result<()> {
        let msg = match own.take::<Fields>("message").ok().flatten() {
            Some(envelope) => build_message(envelope, &content)?,
            None => Msg::builder(role)
                .id(id)
                .name(rest.take::<String>("name").ok().flatten().unwrap_or_default())
                .content(content)
                .all_metadata(metadata)
                .rest(rest)
                .build()?,
        };
        self.messages.push(msg);
        Ok(())
    }

    /// A message that is part of a reply.
    fn read_reply_part(
        &mut self,
        role: &str,
        id: String,
        name: Option<String>,
        blocks: Vec<ContentBlock>,
        mut own: Fields,
    ) -> Result<()> {
        let ours: Option<String> = own.take("reply").ok().flatten();
        let envelope: Option<Fields> = own.take("message").ok().flatten();
        let joins = self.reply.as_ref().is_some_and(|reply| {
            let same = reply.own_id == ours && (reply.role == Role::Assistant || role == "tool");
            let answers = ours.is_none()
                && (role == "activity"
                    || blocks.iter().any(|block| reply.calls.contains_key(block.id())));
            envelope.is_none() && (same || answers)
        });
        if !joins {
            self.finish_reply()?;
            let alone = role == "tool" && ours.is_none();
            self.reply = Some(PartialReply {
                id: ours.clone().unwrap_or(id),
                own_id: ours,
                envelope,
                role: if alone { Role::Tool } else { Role::Assistant },
                name: String::new(),
                content: Vec::new(),
                calls: HashMap::new(),
            });
        }
        let Some(reply) = &mut self.reply else { return Ok(()) };
        if let Some(name) = name.filter(|_| reply.name.is_empty()) {
            reply.name = name;
        }
        for mut block in blocks {
            if let ContentBlock::ToolCall(call) = &block {
                reply.calls.insert(call.id.clone(), call.name.clone());
            } else if let ContentBlock::ToolResult(result) = &mut block
                && result.name.is_empty()
                && reply.envelope.is_none()
            {
                result.name = reply.calls.get(&result.id).cloned().unwrap_or_default();
            }
            reply.content.push(block);
        }
        Ok(())
    }

    /// Ends the reply being read.
    fn finish_reply(&mut self) -> Result<()> {
        let Some(mut reply) = self.reply.take() else { return Ok(()) };
        let msg = if let Some(envelope) = reply.envelope {
            build_message(envelope, &reply.content)?
        } else {
            finish_calls(&mut reply.content);
            let msg = Msg::builder(reply.role).id(reply.id).name(reply.name);
            msg.content(reply.content).build()?
        };
        self.messages.push(msg);
        Ok(())
    }
}

/// Marks calls that have a result as finished.
fn finish_calls(content: &mut [ContentBlock]) {
    let done: std::collections::HashSet<String> = content
        .iter()
        .filter_map(|block| {
            let ContentBlock::ToolResult(result) = block else { return None };
            Some(result.id.clone())
        })
        .collect();
    for block in content {
        if let ContentBlock::ToolCall(call) = block
            && done.contains(&call.id)
        {
            call.state = ToolCallState::Finished;
        }
    }
}

/// Builds our message from its envelope and content.
fn build_message(mut envelope: Fields, content: &[ContentBlock]) -> Result<Msg> {
    envelope.insert("content", to_json(content));
    Msg::from_json(to_json(&envelope).text())
}

/// Builds a block from AG-UI's fields, unknown fields and our metadata.
fn build_block(native: Fields, unknown: &Fields, own: &Fields) -> Result<ContentBlock> {
    let mut fields = native;
    match own.get::<Fields>("block").ok().flatten() {
        Some(ours) => fields.extend(&ours),
        None => fields.extend(unknown),
    }
    to_json(&fields).parse_as::<ContentBlock>().map_err(|error| not_a_message(&error))
}

/// The fields of a message that we have no field for.
fn unknown_fields(mut fields: Fields, metadata: &Fields) -> Fields {
    // An unknown field must not overwrite a field of the block.
    const OWN: [&str; 13] = [
        "type",
        "id",
        "name",
        "text",
        "thinking",
        "hint",
        "source",
        "input",
        "output",
        "state",
        "suggested_rules",
        "created_at",
        "finished_at",
    ];
    for key in OWN {
        fields.remove(key);
    }
    fields.insert_fields("metadata", metadata);
    fields
}

fn read_assistant(
    id: &str,
    mut fields: Fields,
    metadata: &Fields,
    own: &Fields,
) -> Result<(Vec<ContentBlock>, Option<Fields>)> {
    if own.raw("empty").is_some() {
        return Ok((Vec::new(), None));
    }
    let text: Option<String> = fields.take("content").map_err(|error| not_a_message(&error))?;
    let calls: Vec<Fields> =
        fields.take("toolCalls").map_err(|error| not_a_message(&error))?.unwrap_or_default();
    let mut blocks = Vec::new();
    let text = text.filter(|text| !text.is_empty() || calls.is_empty());
    let mut inner = None;
    if let Some(text) = text {
        let native = [("type", "text"), ("text", &text), ("id", id)].into_iter().collect();
        blocks.push(build_block(native, &unknown_fields(fields, metadata), own)?);
    }
    for (at, mut call) in calls.into_iter().enumerate() {
        let wrong = |error: Error| not_a_message(&error).at(format!("toolCalls[{at}]"));
        let call_id: String = call.need("id").map_err(wrong)?;
        let mut function: Fields = call.need("function").map_err(wrong)?;
        let name: String = function.need("name").map_err(wrong)?;
        let input: String = function.take("arguments").map_err(wrong)?.unwrap_or_default();
        let mut metadata: Fields = call.take("metadata").ok().flatten().unwrap_or_default();
        let call_mark: Option<Fields> = metadata.take(METADATA_KEY).ok().flatten();
        let native: Fields =
            [("type", "tool_call"), ("id", &call_id), ("name", &name), ("input", &input)]
                .into_iter()
                .collect();
        let own = call_mark.clone().unwrap_or_default();
        blocks.push(build_block(native, &unknown_fields(call, &metadata), &own)?);
        inner = inner.or(call_mark);
    }
    // In messages that we wrote, a call has its metadata on the call.
    let inner = inner.filter(|_| own.raw("reply").is_none());
    Ok((blocks, inner))
}

fn read_reasoning(
    id: &str,
    mut fields: Fields,
    metadata: &Fields,
    own: &Fields,
) -> Result<ContentBlock> {
    let text: String =
        fields.take("content").map_err(|error| not_a_message(&error))?.unwrap_or_default();
    let mut native: Fields =
        [("type", "thinking"), ("thinking", &text), ("id", id)].into_iter().collect();
    native.insert_some("signature", fields.remove("encryptedValue"));
    build_block(native, &unknown_fields(fields, metadata), own)
}

fn read_tool(id: &str, mut fields: Fields, metadata: Fields, own: &Fields) -> Result<ContentBlock> {
    let call: String = fields.need("toolCallId").map_err(|error| not_a_message(&error))?;
    let error: Option<String> = fields.take("error").ok().flatten();
    let mut output = read_payload(&mut fields)?;
    let is_empty = matches!(&output, Payload::Text(text) if text.is_empty());
    if let (Some(error), true) = (&error, is_empty) {
        output = Payload::Text(error.clone());
    }
    let state = match own.get::<String>("state").ok().flatten() {
        Some(state) => ToolResultState::from(state.as_str()),
        None if error.is_some() => ToolResultState::Error,
        None => ToolResultState::Success,
    };
    let mut result = ToolResult { state, metadata, ..ToolResult::success(call, output) };
    if let Some(ours) = own.get::<Fields>("block").ok().flatten() {
        let mut whole: Fields = to_json(&result).parse_as()?;
        whole.remove("metadata");
        whole.extend(&ours);
        return to_json(&whole).parse_as::<ContentBlock>().map_err(|error| not_a_message(&error));
    }
    result.rest = unknown_fields(fields, &Fields::default());
    if id != format!("{}-result", result.id) {
        result.rest.insert(MESSAGE_ID, id);
    }
    Ok(result.into())
}

fn read_activity(
    id: &str,
    mut fields: Fields,
    metadata: &Fields,
    own: &Fields,
) -> Result<Vec<ContentBlock>> {
    let word: String = fields.need("activityType").map_err(|error| not_a_message(&error))?;
    let content: Json = fields.need("content").map_err(|error| not_a_message(&error))?;
    if own.raw("reply").is_some() && ACTIVITY_TYPES.contains(&word.as_str()) {
        return match word.as_str() {
            DISCARDED => Ok(Vec::new()),
            _ => Ok(vec![content.parse_as().map_err(|error| not_a_message(&error))?]),
        };
    }
    let mut whole: Fields =
        [("type", "activity"), ("id", id), ("activityType", &word)].into_iter().collect();
    whole.insert("content", content);
    whole.extend(&unknown_fields(fields, metadata));
    Ok(vec![unknown_block(whole)])
}

/// The content of a user or system message: a string, or parts.
fn read_content(fields: &mut Fields, own: &mut Fields) -> Result<Vec<ContentBlock>> {
    match fields.remove("content") {
        Some(json) if json.text().starts_with('"') => {
            let text: String = json.parse_as().map_err(|error| not_a_message(&error))?;
            let native: Fields = [("type", "text"), ("text", &text)].into_iter().collect();
            if text.is_empty() && own.raw("block").is_none() {
                return Ok(Vec::new());
            }
            Ok(vec![build_block(native, &Fields::default(), own)?])
        }
        Some(json) if json.text().starts_with('[') => read_parts(&json),
        Some(json) if !json.is_null() => Err(Error::new(
            ErrorKind::NotAMessage,
            "`content` is neither a string nor a list of parts",
        )),
        _ => Ok(Vec::new()),
    }
}

/// The output of a tool: a string, or parts.
fn read_payload(fields: &mut Fields) -> Result<Payload> {
    match fields.remove("content") {
        Some(json) if json.text().starts_with('[') => {
            let parts = read_parts(&json)?;
            let parts = parts.iter().map(|block| {
                to_json(block).parse_as::<Part>().map_err(|error| not_a_message(&error))
            });
            Ok(Payload::Parts(parts.collect::<Result<_>>()?))
        }
        Some(json) if json.text().starts_with('"') => {
            Ok(Payload::Text(json.parse_as().map_err(|error| not_a_message(&error))?))
        }
        // Not allowed by AG-UI, but a tool's output must not get lost.
        Some(json) if !json.is_null() => Ok(Payload::Text(json.text().to_owned())),
        _ => Ok(Payload::Text(String::new())),
    }
}

fn read_parts(json: &Json) -> Result<Vec<ContentBlock>> {
    let parts: Vec<Fields> = json.parse_as().map_err(|error| not_a_message(&error))?;
    let blocks = parts.into_iter().enumerate().map(|(at, fields)| {
        read_part(fields).map_err(|error| not_a_message(&error).at(format!("content[{at}]")))
    });
    blocks.collect()
}

fn read_part(mut fields: Fields) -> Result<ContentBlock> {
    let mut metadata: Fields = fields.get("metadata").ok().flatten().unwrap_or_default();
    let own: Option<Fields> = metadata.take(METADATA_KEY).ok().flatten();
    if let Some(whole) = own.as_ref().and_then(|own| own.raw("block")) {
        return whole.parse_as();
    }
    let word: String = fields.get("type")?.unwrap_or_default();
    match word.as_str() {
        "text" => {
            let text: String = fields.need("text")?;
            let Some(own) = own else {
                let id = fields.take("id").ok().flatten().unwrap_or_default();
                let rest = unknown_fields(without_metadata(fields), &metadata);
                return Ok(TextBlock { id, rest, ..TextBlock::new(text) }.into());
            };
            let mut native: Fields = [("type", "text"), ("text", &text)].into_iter().collect();
            native.extend(&own);
            to_json(&native).parse_as()
        }
        "image" | "audio" | "video" | "document" => {
            let source: Fields = fields.need("source")?;
            match own {
                Some(own) => restore_data(own, &source),
                None => read_data(fields, source, metadata),
            }
        }
        // Files before AG-UI 1.0.
        "binary" => {
            let mut source = Fields::default();
            let (word, key) = match fields.raw("url") {
                Some(_) => ("url", "url"),
                None => ("data", "data"),
            };
            source.insert("type", word);
            let value: Json = fields.need(key)?;
            source.insert("value", value);
            source.insert_some("mimeType", fields.remove("mimeType"));
            metadata.insert_some("filename", fields.remove("filename"));
            read_data(fields, source, metadata)
        }
        _ => Ok(unknown_block(fields)),
    }
}

fn without_metadata(mut fields: Fields) -> Fields {
    fields.remove("metadata");
    fields
}

/// Restores a data block that we wrote.
fn restore_data(mut own: Fields, client_data: &Fields) -> Result<ContentBlock> {
    let mut source: Fields = own.need("source")?;
    let word: String = source.get("type")?.unwrap_or_default();
    let key = if word == "url" { "url" } else { "data" };
    source.insert_some(key, client_data.raw("value").cloned());
    own.insert("source", to_json(&source));
    to_json(&own).parse_as()
}

fn read_data(mut fields: Fields, mut source: Fields, mut metadata: Fields) -> Result<ContentBlock> {
    let word: String = source.get("type")?.unwrap_or_default();
    let source = match word.as_str() {
        "data" | "url" => {
            let value: String = source.need("value")?;
            let media: String = source.take("mimeType")?.unwrap_or_default();
            if word == "url" {
                DataBlock::url(value, media).source
            } else {
                let mut source = DataBlock::bytes([], media).source;
                if let Source::Base64(source) = &mut source {
                    source.data = value;
                }
                source
            }
        }
        _ => Source::Other(source),
    };
    let mut block = DataBlock::from_source(source);
    match &mut block.source {
        Source::Url(source) if source.media_type.as_deref() == Some("") => source.media_type = None,
        Source::Base64(source) if source.media_type.as_deref() == Some("") => {
            source.media_type = None;
        }
        Source::Url(_) | Source::Base64(_) | Source::Other(_) => {}
    }
    block.id = fields.take("id").ok().flatten().unwrap_or_default();
    block.name = metadata.take("filename").ok().flatten();
    block.rest = unknown_fields(without_metadata(fields), &metadata);
    Ok(block.into())
}
