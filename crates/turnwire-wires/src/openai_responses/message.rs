//! Converts items of an input or output to and from our messages.

use super::client_call::{self, ClientCall};
use super::item::{self, Item};
use super::{NAME, media};
use crate::json::fields;
use crate::model_request::media_type;
use crate::{lenient, native, provider};
use serde_json::value::RawValue;
use std::collections::HashSet;
use turnwire_core::block::{Base64Source, Source};
use turnwire_core::{
    ContentBlock, DataBlock, Error, ErrorKind, Fields, Json, Msg, Part, Payload, Result, Role,
    TextBlock, ThinkingBlock, ToolCall, ToolResult, ToolResultState, content_blocks,
};

/// Writes messages as items.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut items = ItemWriter::default();
    for msg in messages {
        match msg.role() {
            Role::User | Role::System => {
                let parts: Vec<Fields> = msg.content().iter().filter_map(user_part).collect();
                items.push_message(msg.role().as_str(), &parts);
            }
            Role::Assistant | Role::Tool => {
                msg.content().iter().for_each(|block| items.push_block(block));
            }
        }
    }
    items.list
}

/// A part of a user or system message. Data that the protocol cannot hold is left out without a note, unlike in a request.
fn user_part(block: &ContentBlock) -> Option<Fields> {
    match block {
        ContentBlock::Text(block) => Some(text_part(block)),
        ContentBlock::Data(block) => media::data_to_part(block).ok(),
        // For example, a file by its id.
        ContentBlock::Other(fields) => provider::block_to_item(NAME, fields),
        ContentBlock::Thinking(_)
        | ContentBlock::Hint(_)
        | ContentBlock::ToolCall(_)
        | ContentBlock::ToolResult(_) => None,
    }
}

pub(super) fn input_text(text: &str) -> Fields {
    fields! { "type": "input_text", "text": text }
}

/// A text, with the fields that only this protocol has.
pub(super) fn text_part(block: &TextBlock) -> Fields {
    let mut part = input_text(&block.text);
    native::add(&mut part, &block.rest, NAME);
    part
}

/// Writes items, for messages and for requests.
#[derive(Default)]
pub(super) struct ItemWriter {
    pub list: Vec<Json>,
}

impl ItemWriter {
    pub(super) fn push(&mut self, item: &Fields) {
        self.list.extend(Json::from_value(item));
    }

    /// Adds a message of the input.
    pub(super) fn push_message(&mut self, role: &str, parts: &[Fields]) {
        if !parts.is_empty() {
            self.write_message(role, parts, &Fields::default());
        }
    }

    fn write_message(&mut self, role: &str, parts: &[Fields], extra: &Fields) {
        let mut message = typed_item("message");
        message.insert("role", role);
        if let Ok(content) = Json::from_value(parts) {
            message.insert("content", content);
        }
        message.insert_some("phase", extra.raw("phase").cloned());
        self.push(&message);
    }

    /// Adds a system message of a client as it came: with its role, for example `developer`.
    pub(super) fn write_system_item(&mut self, msg: &Msg, native: &Fields) {
        let parts: Vec<Fields> = msg.content().iter().filter_map(user_part).collect();
        let mut message = typed_item("message");
        message.insert("role", native::system_role(native));
        if let Ok(content) = Json::from_value(&parts) {
            message.insert("content", content);
        }
        native::add(&mut message, msg.metadata(), NAME);
        self.push(&message);
    }

    fn push_block(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(block) => self.push_text(block),
            ContentBlock::Thinking(block) => self.push_thinking(block),
            ContentBlock::ToolCall(call) => self.push_call(call),
            ContentBlock::ToolResult(result) => {
                let output = match &result.output {
                    Payload::Text(text) => Json::from(text.as_str()),
                    Payload::Parts(parts) => {
                        let parts: Vec<Fields> = parts.iter().filter_map(output_part).collect();
                        Json::from_value(&parts).unwrap_or_else(|_| Json::from(""))
                    }
                };
                if let Some(kind) = ClientCall::of_result(result) {
                    let text = result.output.text("\n");
                    return self.push(&kind.write_result(&result.id, Some(result), &text));
                }
                let is_custom = item::has_item_type(&result.rest, item::CUSTOM_CALL);
                self.push_output(&result.id, is_custom, output);
            }
            ContentBlock::Data(block) => {
                self.push_image(block);
            }
            ContentBlock::Other(fields) => {
                if let Some(item) = provider::block_to_item(NAME, fields) {
                    self.push(&item);
                }
            }
            // A hint has no equivalent; in a request it is a user message.
            ContentBlock::Hint(_) => {}
        }
    }

    /// Adds text of the model. Message ids are optional, and ours would be refused.
    pub(super) fn push_text(&mut self, block: &TextBlock) {
        let refused = provider::is_refusal(&block.rest);
        let mut part = typed_item(if refused { "refusal" } else { "output_text" });
        part.insert(if refused { "refusal" } else { "text" }, block.text.as_str());
        for key in ["annotations", "logprobs"] {
            part.insert_some(key, block.rest.raw(key).cloned());
        }
        self.write_message("assistant", &[part], &block.rest);
    }

    /// Adds reasoning: the original item, or a new one.
    fn push_thinking(&mut self, block: &ThinkingBlock) {
        if let Some(item) = item::reasoning_item(&block.rest) {
            return self.push(&item);
        }
        if item::continues_reasoning(&block.rest) {
            return;
        }
        let mut part = typed_item("summary_text");
        part.insert("text", block.thinking.as_str());
        let mut item = typed_item("reasoning");
        if let Ok(summary) = Json::from_value(&[part]) {
            item.insert("summary", summary);
        }
        self.push(&item);
    }

    pub(super) fn push_call(&mut self, call: &ToolCall) {
        if let Some(kind) = ClientCall::of_call(&call.rest) {
            return self.push(&kind.write_call(&call.id, &call.input, &call.rest));
        }
        let is_custom = item::has_item_type(&call.rest, item::CUSTOM_CALL);
        let (word, input) =
            if is_custom { (item::CUSTOM_CALL, "input") } else { ("function_call", "arguments") };
        let mut item = typed_item(word);
        item.insert_some("id", call.rest.raw(item::ITEM_ID).cloned());
        item.insert("call_id", call.id.as_str());
        item.insert("name", call.name.as_str());
        item.insert(input, call.input.as_str());
        for key in ["namespace", "caller"] {
            item.insert_some(key, call.rest.raw(key).cloned());
        }
        self.push(&item);
    }

    pub(super) fn push_output(&mut self, call_id: &str, is_custom: bool, output: Json) {
        let word = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
        let mut item = typed_item(word);
        item.insert("call_id", call_id);
        item.insert("output", output);
        self.push(&item);
    }

    /// Adds an image that the model made. Returns whether it is one.
    pub(super) fn push_image(&mut self, block: &DataBlock) -> bool {
        let Source::Base64(source) = &block.source else { return false };
        let kind = media_type(block).map(media::image_type).unwrap_or_default();
        let Some(format) = kind.strip_prefix("image/") else { return false };
        let mut item = typed_item(item::IMAGE_CALL);
        match block.rest.raw(item::ITEM_ID) {
            Some(id) => item.insert("id", id.clone()),
            None => item.insert("id", block.id.as_str()),
        }
        item.insert("status", "completed");
        item.insert("output_format", format);
        item.insert("result", source.data.as_str());
        self.push(&item);
        true
    }
}

fn typed_item(word: &str) -> Fields {
    let mut item = Fields::default();
    item.insert("type", word);
    item
}

fn output_part(part: &Part) -> Option<Fields> {
    match part {
        Part::Text(block) => Some(text_part(block)),
        Part::Data(block) => media::data_to_part(block).ok(),
        Part::Other(fields) => provider::block_to_item(NAME, fields),
    }
}

/// Reads items: a list, a single one, or a whole response.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::NotJson, error.to_string()))?;
    let mut messages = MessageReader::default();
    if raw.get().starts_with('"') {
        messages
            .begin_message(Role::User)?
            .push(TextBlock::new(lenient::parse::<String>(raw)).into());
        return messages.into_messages();
    }
    if raw.get().starts_with('{') {
        let one: Item<'_> = lenient::parse(raw);
        let is_response = one.r#type.is_empty() && one.role.is_empty() && one.output.is_some();
        let list = if is_response { item::parse_list(one.output) } else { vec![raw] };
        list.into_iter().try_for_each(|raw| messages.read_item(raw))?;
        return messages.into_messages();
    }
    if !raw.get().starts_with('[') {
        return Err(Error::new(ErrorKind::NotAMessage, "expected a list of items or an item"));
    }
    for (at, raw) in item::parse_list(Some(raw)).into_iter().enumerate() {
        messages.read_item(raw).map_err(|error| error.at(format!("[{at}]")))?;
    }
    messages.into_messages()
}

/// Reads messages. Everything between two inputs is one reply.
#[derive(Default)]
struct MessageReader {
    list: Vec<(Role, Vec<ContentBlock>)>,
    /// The ids of calls that the provider executes. Their results are kept verbatim, as they are.
    hosted_calls: HashSet<String>,
}

impl MessageReader {
    /// Starts a message, and returns its content.
    fn begin_message(&mut self, role: Role) -> Result<&mut Vec<ContentBlock>> {
        self.list.push((role, Vec::new()));
        self.last_content()
    }

    /// The content of the current reply, or of a new one.
    fn reply_content(&mut self) -> Result<&mut Vec<ContentBlock>> {
        if self.list.last().is_none_or(|(role, _)| *role != Role::Assistant) {
            return self.begin_message(Role::Assistant);
        }
        self.last_content()
    }

    fn last_content(&mut self) -> Result<&mut Vec<ContentBlock>> {
        let last = self.list.last_mut().map(|(_, content)| content);
        last.ok_or_else(|| Error::new(ErrorKind::NotAMessage, "there is no message"))
    }

    fn read_item(&mut self, raw: &RawValue) -> Result<()> {
        if !raw.get().starts_with('{') {
            return Err(Error::new(ErrorKind::NotAMessage, "an item must be an object"));
        }
        let item: Item<'_> = lenient::parse(raw);
        match &*item.r#type {
            // The short format of a message has no type.
            "message" | "" if parse_role(&item).is_some() => self.read_message(&item, raw)?,
            "reasoning" => self.read_reasoning(&item, raw)?,
            "function_call" | item::CUSTOM_CALL => {
                let mut call = ToolCall::new(&*item.call_id, &*item.name, item.call_input());
                call.rest = item::call_extra(raw);
                self.reply_content()?.push(call.into());
            }
            "function_call_output" | "custom_tool_call_output" => {
                let mut result = ToolResult::success(&*item.call_id, read_output(&item));
                result.state = ToolResultState::Success;
                if &*item.r#type == "custom_tool_call_output" {
                    result.rest.insert(item::ITEM_TYPE, item::CUSTOM_CALL);
                }
                self.reply_content()?.push(result.into());
            }
            _ => {
                let block = match item.image() {
                    Some(data) => Some(image_block(&item, &data, raw).into()),
                    None => self.read_client_call(raw).or_else(|| unknown_item_block(raw)),
                };
                self.reply_content()?.extend(block);
            }
        }
        Ok(())
    }

    /// Reads the call or the result of a tool that the protocol defines and the client executes.
    fn read_client_call(&mut self, raw: &RawValue) -> Option<ContentBlock> {
        let item = item::parse_fields(raw);
        if let Some(kind) = ClientCall::of_item(&item) {
            return Some(kind.read_call(item).into());
        }
        self.hosted_calls.extend(client_call::hosted_call_id(&item));
        let result = ClientCall::of_result_item(&item)?.read_result(item);
        let is_clients = !result.id.is_empty() && !self.hosted_calls.contains(&result.id);
        is_clients.then(|| result.into())
    }

    fn read_message(&mut self, item: &Item<'_>, raw: &RawValue) -> Result<()> {
        let Some(role) = parse_role(item) else { return Ok(()) };
        let mut blocks = Vec::new();
        for raw_part in item.parts() {
            let part = item::parse_part(raw_part);
            let block = match (item::part_text(&part), media::part_to_data(&part)) {
                (Some(text), _) => {
                    let mut block = TextBlock::new(text);
                    if role == Role::Assistant {
                        block.rest = item::text_extra(Some(raw_part), raw);
                        block.id = item.id.to_string();
                    } else {
                        item::keep_other_fields(raw_part, &mut block.rest);
                    }
                    block.into()
                }
                (None, Some(mut data)) if role != Role::System => {
                    item::keep_other_fields(raw_part, &mut data.rest);
                    data.into()
                }
                // A message is not a valid part of a message.
                _ if parse_role(&part).is_some() => continue,
                _ => match unknown_item_block(raw_part) {
                    Some(block) => block,
                    None => continue,
                },
            };
            blocks.push(block);
        }
        if role == Role::Assistant {
            self.reply_content()?.append(&mut blocks);
        } else {
            self.begin_message(role)?.append(&mut blocks);
        }
        Ok(())
    }

    fn read_reasoning(&mut self, item: &Item<'_>, raw: &RawValue) -> Result<()> {
        let mut parts: Vec<ThinkingBlock> = item::reasoning_parts(item)
            .map(|(_, part)| ThinkingBlock::new(&*item::parse_part(part).text))
            .collect();
        if parts.is_empty() {
            parts.push(ThinkingBlock::default());
        }
        let last = parts.len() - 1;
        for (at, mut block) in parts.into_iter().enumerate() {
            if at == last {
                block.rest = item::reasoning_extra(raw);
            } else {
                block.rest.insert(item::ITEM_ID, &*item.id);
            }
            self.reply_content()?.push(block.into());
        }
        Ok(())
    }

    fn into_messages(self) -> Result<Vec<Msg>> {
        let build = |(role, content): (Role, Vec<ContentBlock>)| {
            Msg::builder(role).content(content).build()
        };
        self.list.into_iter().map(build).collect()
    }
}

/// The role of a message. A message with an unknown role is kept as an unknown item.
fn parse_role(item: &Item<'_>) -> Option<Role> {
    match &*item.role {
        "user" => Some(Role::User),
        "system" | "developer" => Some(Role::System),
        "assistant" => Some(Role::Assistant),
        _ => None,
    }
}

/// An unknown item as a block, if the block can be read again: it needs a type that is not ours.
fn unknown_item_block(raw: &RawValue) -> Option<ContentBlock> {
    let block = provider::item_to_block(NAME, lenient::parse(raw));
    let again = Json::from_value(&block).ok()?.parse_as::<ContentBlock>();
    matches!(again, Ok(ContentBlock::Other(_))).then_some(block)
}

fn image_block(item: &Item<'_>, data: &str, raw: &RawValue) -> DataBlock {
    let mut block = DataBlock::from_source(Source::Base64(Base64Source {
        data: data.to_owned(),
        media_type: Some(item.image_type(data)),
        rest: Fields::default(),
    }));
    block.id = item.id.to_string();
    block.rest = item::image_extra(raw);
    block
}

/// A part of a result that only this protocol has, such as a file by its id.
fn unknown_part(raw: &RawValue) -> Part {
    match provider::item_to_block(NAME, lenient::parse(raw)) {
        ContentBlock::Other(fields) => Part::Other(fields),
        content_blocks!(Text Thinking Hint Data ToolCall ToolResult) => {
            Part::Other(lenient::parse(raw))
        }
    }
}

fn read_output(item: &Item<'_>) -> Payload {
    let Some(raw) = item.output else { return Payload::Text(String::new()) };
    if !raw.get().starts_with('[') {
        return Payload::Text(lenient::parse::<lenient::TextOrNumber<'_>>(raw).0.into_owned());
    }
    let parts = item::parse_list(Some(raw)).into_iter().map(|raw| {
        let part = item::parse_part(raw);
        match (item::part_text(&part), media::part_to_data(&part)) {
            (Some(text), _) => {
                let mut block = TextBlock::new(text);
                item::keep_other_fields(raw, &mut block.rest);
                Part::Text(block)
            }
            (None, Some(mut data)) => {
                item::keep_other_fields(raw, &mut data.rest);
                Part::Data(data)
            }
            (None, None) => unknown_part(raw),
        }
    });
    Payload::Parts(parts.collect())
}
