//! Reads and writes the history.
//!
//! A reply is several entries with the same `id`: the assistant's blocks up to a tool result, the
//! result as an entry of the role `tool`, and the blocks after it. The first entry holds what
//! applies to the whole reply.

use super::conversions::{
    DisplayMode, USER_STOPPED, attachment, data_block, error_code, error_type, finished_reason,
    input_object, input_text, parse_mode, result_status, stop_reason, to_ms, to_seconds,
    to_timestamp, unix_ms,
};
use super::{RESERVED_BLOCK_TYPES, WRAPPED_BLOCK};
use crate::json::string_field;
use crate::provider::unknown_block;
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, FinishedReason, HintBlock, Json, Msg, MsgBuilder,
    Payload, ReplyError, Result, Role, TextBlock, ThinkingBlock, ToolCall, ToolCallState,
    ToolResult, ToolResultState, Usage,
};

const TERMINAL_USER_STOPPED: &str = "terminal_user_stopped";
const TERMINAL_ERROR: &str = "terminal_error";

/// Writes messages. System messages are left out: a client never sees them.
pub(super) fn encode_messages(messages: &[Msg]) -> Vec<Json> {
    HistoryEncoder::default().encode(messages)
}

/// Writes a history in batches, so that it is never in memory as a whole.
#[derive(Debug, Default)]
pub struct HistoryEncoder {
    /// The display mode of the last user message.
    mode: DisplayMode,
    count: usize,
}

impl HistoryEncoder {
    /// Writes the next messages, in order. A message may become several entries.
    pub fn encode(&mut self, messages: &[Msg]) -> Vec<Json> {
        let mut entries = Vec::new();
        for msg in messages {
            match msg.role() {
                Role::System => {}
                Role::User => {
                    let word = msg.metadata().get::<String>("display_mode").ok().flatten();
                    self.mode = word.and_then(|word| parse_mode(&word)).unwrap_or_default();
                    let mut entry = entry_head(msg);
                    let blocks = msg.content().iter().filter_map(|block| write_block(block, None));
                    insert_list(&mut entry, "content", &blocks.collect::<Vec<_>>());
                    entries.push(entry);
                }
                Role::Assistant => write_reply(msg, self.mode, &mut entries),
                Role::Tool => {
                    let from = entries.len();
                    entries.extend(msg.content().iter().map(|block| tool_entry(msg.id(), block)));
                    if entries.len() == from {
                        entries.push(continued_entry("tool", msg.id()));
                    }
                    if let Some(first) = entries.get_mut(from) {
                        first.extend(&entry_head(msg));
                    }
                }
            }
        }
        let entries: Vec<Json> =
            entries.iter().filter_map(|entry| Json::from_value(entry).ok()).collect();
        self.count += entries.len();
        entries
    }

    /// How many entries were written.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The display mode of the last user message.
    pub fn display_mode(&self) -> DisplayMode {
        self.mode
    }
}

/// The fields of an entry that apply to its whole message.
fn entry_head(msg: &Msg) -> Fields {
    let mut head = continued_entry(msg.role().as_str(), msg.id());
    head.insert_unless_empty("sender", msg.name());
    if let Some(ms) = unix_ms(msg.created_at()) {
        head.insert("timestamp", to_seconds(Some(ms)));
    }
    if let Some(reason) = msg.finished_reason() {
        head.insert("stop_reason", stop_reason(reason));
    }
    insert_some(&mut head, "error", msg.error());
    insert_some(&mut head, "usage", msg.usage());
    insert_some(&mut head, "structured_output", msg.structured_output());
    insert_some(
        &mut head,
        "metadata",
        Some(msg.metadata()).filter(|metadata| !metadata.is_empty()),
    );
    head
}

fn continued_entry(role: &str, id: &str) -> Fields {
    let mut entry = Fields::default();
    entry.insert("role", role);
    entry.insert_unless_empty("id", id);
    entry
}

fn insert_some<T: serde::Serialize>(fields: &mut Fields, key: &str, value: Option<&T>) {
    fields.insert_some(key, value.and_then(|value| Json::from_value(value).ok()));
}

fn insert_list(fields: &mut Fields, key: &str, list: &[Fields]) {
    insert_some(fields, key, Some(&list));
}

/// Writes the entries of a reply.
fn write_reply(msg: &Msg, mode: DisplayMode, entries: &mut Vec<Fields>) {
    let mut open = OpenEntry { fields: entry_head(msg), ..OpenEntry::default() };
    let last_call =
        msg.content().iter().rposition(|block| matches!(block, ContentBlock::ToolCall(_)));
    let cut =
        matches!(msg.finished_reason(), Some(FinishedReason::Interrupted | FinishedReason::Error));
    for (at, block) in msg.content().iter().enumerate() {
        if let ContentBlock::ToolResult(_) = block {
            entries.extend(open.take(msg.id()));
            entries.push(tool_entry(msg.id(), block));
            continue;
        }
        let hidden = matches!(block, ContentBlock::Thinking(_) | ContentBlock::Hint(_));
        if hidden && mode == DisplayMode::Chat {
            continue;
        }
        let is_final = !cut && last_call.is_none_or(|call| call < at);
        open.content.extend(write_block(block, Some(is_final)));
        if let ContentBlock::ToolCall(call) = block {
            open.calls.push(call_entry(call));
        }
    }
    open.content.extend(terminal_blocks(msg));
    entries.extend(open.take(msg.id()));
}

/// An entry of the assistant that is being filled.
#[derive(Default)]
struct OpenEntry {
    fields: Fields,
    content: Vec<Fields>,
    calls: Vec<Fields>,
}

impl OpenEntry {
    /// Returns the entry and starts an empty one. Only the first entry may be empty: it has the
    /// message's fields.
    fn take(&mut self, id: &str) -> Option<Fields> {
        let entry = std::mem::take(self);
        let is_first = !entry.fields.is_empty();
        if entry.content.is_empty() && !is_first {
            return None;
        }
        let mut fields = if is_first { entry.fields } else { continued_entry("assistant", id) };
        insert_list(&mut fields, "content", &entry.content);
        if !entry.calls.is_empty() {
            insert_list(&mut fields, "tool_calls", &entry.calls);
        }
        Some(fields)
    }
}

/// The blocks that tell the user how a reply ended.
fn terminal_blocks(msg: &Msg) -> impl Iterator<Item = Fields> {
    let stopped = (msg.finished_reason() == Some(&FinishedReason::Interrupted))
        .then(|| Fields::from_iter([("type", TERMINAL_USER_STOPPED), ("text", USER_STOPPED)]));
    let failed = msg.error().map(|error| {
        let mut fields =
            Fields::from_iter([("type", TERMINAL_ERROR), ("text", error.message.as_str())]);
        let mut extras = Fields::default();
        extras.insert("block_subtype", "error");
        extras.insert("code", error_code(&error.r#type));
        insert_some(&mut fields, "extras", Some(&extras));
        fields
    });
    stopped.into_iter().chain(failed)
}

/// A call in the list `tool_calls`.
fn call_entry(call: &ToolCall) -> Fields {
    let mut fields = Fields::default();
    fields.insert("id", call.id.as_str());
    fields.insert("name", call.name.as_str());
    fields.insert("tool_content_message", call_title(call));
    fields.insert("args", input_object(&call.input));
    fields
}

fn call_title(call: &ToolCall) -> String {
    let title = call.rest.get::<String>("title").ok().flatten();
    title.filter(|title| !title.is_empty()).unwrap_or_else(|| call.name.clone())
}

/// Writes a block of an entry.
fn write_block(block: &ContentBlock, is_final: Option<bool>) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut typed = |word: &str, id: &str| {
        fields.insert("type", word);
        fields.insert_unless_empty("id", id);
    };
    match block {
        ContentBlock::Text(block) => {
            typed("text", &block.id);
            fields.insert("text", block.text.as_str());
            fields.insert_some("is_final", is_final);
        }
        ContentBlock::Thinking(block) => {
            typed("thinking", &block.id);
            fields.insert("thinking", block.thinking.as_str());
        }
        ContentBlock::Data(block) => return Some(attachment(block)),
        ContentBlock::Hint(block) => {
            typed("hint", &block.id);
            insert_some(&mut fields, "hint", Some(&block.hint));
            fields.insert("source", block.source.clone());
        }
        ContentBlock::ToolCall(call) => {
            typed("tool_use", &call.id);
            fields.insert("name", call.name.as_str());
            fields.insert("tool_use_id", call.id.as_str());
            fields.insert("tool_content_message", call_title(call));
            fields.insert("input", input_object(&call.input));
            fields.insert("state", call.state.as_str());
            if !call.suggested_rules.is_empty() {
                insert_some(&mut fields, "suggested_rules", Some(&call.suggested_rules));
            }
        }
        ContentBlock::Other(other) => {
            let word = other.get::<String>("type").ok().flatten().unwrap_or_default();
            if !RESERVED_BLOCK_TYPES.contains(&word.as_str()) {
                return Some(other.clone());
            }
            fields.insert("type", WRAPPED_BLOCK);
            insert_some(&mut fields, "block", Some(other));
        }
        // A result is an entry of its own.
        ContentBlock::ToolResult(_) => return None,
    }
    Some(fields)
}

/// Writes a result as an entry. Other blocks of a tool message are in a list.
fn tool_entry(id: &str, block: &ContentBlock) -> Fields {
    let mut entry = continued_entry("tool", id);
    if let ContentBlock::ToolResult(result) = block {
        entry.insert("tool_use_id", result.id.as_str());
        entry.insert("name", result.name.as_str());
        entry.insert("status", result_status(&result.state));
        entry.insert("content", result.output.text(""));
        let none = || Json::from(serde_json::Value::Null);
        entry.insert("artifact", result.metadata.raw("artifact").cloned().unwrap_or_else(none));
    } else {
        insert_list(&mut entry, "content", write_block(block, None).as_slice());
    }
    entry
}

/// Reads entries: a list, a single one, or a whole history response.
pub(super) fn decode_messages(text: &str) -> Result<Vec<Msg>> {
    let json = Json::parse(text)?;
    let entries: Vec<Fields> = if json.text().starts_with('[') {
        json.parse_as().map_err(|_| not_a_history("expected a list of entry objects"))?
    } else {
        let fields: Fields =
            json.parse_as().map_err(|_| not_a_history("expected an entry object"))?;
        match fields.get::<Vec<Fields>>("messages") {
            Ok(Some(entries)) => entries,
            _ => vec![fields],
        }
    };
    let mut messages: Vec<Msg> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        read_entry(entry, &mut messages).map_err(|error| error.at(format!("[{at}]")))?;
    }
    Ok(messages)
}

fn not_a_history(message: &str) -> Error {
    Error::new(ErrorKind::NotAMessage, message)
}

/// Reads one entry: a new message, or more of the last one.
fn read_entry(entry: &Fields, messages: &mut Vec<Msg>) -> Result<()> {
    let role = match string_field(entry, "role").as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => return Err(not_a_history("`role` must be user, assistant or tool")),
    };
    let id = string_field(entry, "id").unwrap_or_default();
    let mut end = ReplyEnding::default();
    let content =
        if role == Role::Tool { read_tool_blocks(entry) } else { read_blocks(entry, &mut end)? };
    if let Some(last) = messages.last_mut()
        && continues_message(last, role, &id)
    {
        let content = [last.content(), &content].concat();
        let mut builder = last.to_builder().content(content);
        // The first entry says how the reply ended; in histories of other servers the blocks say
        // it.
        if last.finished_reason().is_none() && last.error().is_none() {
            builder = end.set(builder);
        }
        *last = builder.build()?;
        return Ok(());
    }
    let mut builder = Msg::builder(role).id(id).content(content);
    if let Some(sender) = string_field(entry, "sender") {
        builder = builder.name(sender);
    }
    if let Ok(Some(seconds)) = entry.get::<f64>("timestamp") {
        builder = builder.created_at(to_timestamp(to_ms(seconds)));
    }
    let reason = string_field(entry, "stop_reason").map(|word| finished_reason(&word));
    let error = entry.get::<ReplyError>("error").ok().flatten();
    let own = ReplyEnding { reason, error };
    builder = if own.is_known() { own } else { end }.set(builder);
    if let Ok(Some(usage)) = entry.get::<Usage>("usage") {
        builder = builder.usage(usage);
    }
    if let Some(output) = entry.raw("structured_output").filter(|output| !output.is_null()) {
        builder = builder.structured_output(output.clone());
    }
    if let Ok(Some(metadata)) = entry.get::<Fields>("metadata") {
        builder = builder.all_metadata(metadata);
    }
    messages.push(builder.build()?);
    Ok(())
}

/// Whether an entry continues the previous message.
fn continues_message(last: &Msg, role: Role, id: &str) -> bool {
    match (last.role(), role) {
        (Role::Assistant, Role::Tool) => last.id() == id || id.is_empty(),
        (Role::Assistant, Role::Assistant) | (Role::Tool, Role::Tool) => {
            last.id() == id && !id.is_empty()
        }
        _ => false,
    }
}

/// How a reply ended, according to the last blocks of an entry.
#[derive(Default)]
struct ReplyEnding {
    reason: Option<FinishedReason>,
    error: Option<ReplyError>,
}

impl ReplyEnding {
    fn is_known(&self) -> bool {
        self.reason.is_some() || self.error.is_some()
    }

    fn set(self, mut builder: MsgBuilder) -> MsgBuilder {
        if let Some(reason) = self.reason {
            builder = builder.finished_reason(reason);
        }
        if let Some(error) = self.error {
            builder = builder.error(error);
        }
        builder
    }
}

fn read_blocks(entry: &Fields, end: &mut ReplyEnding) -> Result<Vec<ContentBlock>> {
    let mut content: Vec<ContentBlock> = Vec::new();
    if let Some(text) = string_field(entry, "content") {
        content.extend((!text.is_empty()).then(|| ContentBlock::from(text)));
    } else {
        let list = entry.get::<Vec<Fields>>("content");
        let list =
            list.map_err(|_| not_a_history("`content` must be a string or a list of blocks"))?;
        content
            .extend(list.unwrap_or_default().iter().filter_map(|fields| read_block(fields, end)));
    }
    // Calls that are only in the list `tool_calls`.
    for fields in entry.get::<Vec<Fields>>("tool_calls").ok().flatten().unwrap_or_default() {
        let call = read_call(&fields);
        let known = content
            .iter()
            .any(|block| matches!(block, ContentBlock::ToolCall(known) if known.id == call.id));
        if !known {
            content.push(call.into());
        }
    }
    Ok(content)
}

fn read_block(fields: &Fields, end: &mut ReplyEnding) -> Option<ContentBlock> {
    let text = |key: &str| string_field(fields, key).unwrap_or_default();
    let id = text("id");
    Some(match text("type").as_str() {
        "text" => TextBlock { id, text: text("text"), ..TextBlock::default() }.into(),
        "thinking" => {
            ThinkingBlock { id, thinking: text("thinking"), ..ThinkingBlock::default() }.into()
        }
        "attachment" => data_block(fields).into(),
        "hint" => HintBlock {
            id,
            hint: fields.get::<Payload>("hint").ok().flatten().unwrap_or_default(),
            source: string_field(fields, "source"),
            ..HintBlock::default()
        }
        .into(),
        "tool_use" => read_call(fields).into(),
        TERMINAL_USER_STOPPED => {
            end.reason = Some(FinishedReason::Interrupted);
            return None;
        }
        TERMINAL_ERROR => {
            end.reason = Some(FinishedReason::Error);
            let extras = fields.get::<Fields>("extras").ok().flatten().unwrap_or_default();
            let kind =
                string_field(&extras, "code").map(|code| error_type(&code)).unwrap_or_default();
            let message = text("text");
            end.error = Some(ReplyError::new(kind, message));
            return None;
        }
        WRAPPED_BLOCK if fields.raw("block").is_some() => {
            unknown_block(fields.get::<Fields>("block").ok().flatten()?)
        }
        _ => unknown_block(fields.clone()),
    })
}

pub(super) fn read_call(fields: &Fields) -> ToolCall {
    let text = |key: &str| string_field(fields, key);
    let id = text("id").or_else(|| text("tool_use_id")).unwrap_or_default();
    let name = text("name").unwrap_or_default();
    let input = fields.raw("input").or_else(|| fields.raw("args"));
    let mut call = ToolCall::new(id, &name, input.map(input_text).unwrap_or_default());
    if let Some(state) = text("state") {
        call.state = ToolCallState::from(state.as_str());
    }
    call.suggested_rules = fields.get("suggested_rules").ok().flatten().unwrap_or_default();
    call.rest.insert_some("title", text("tool_content_message").filter(|title| *title != name));
    call
}

fn read_tool_blocks(entry: &Fields) -> Vec<ContentBlock> {
    let Some(id) = string_field(entry, "tool_use_id") else {
        let list = entry.get::<Vec<Fields>>("content").ok().flatten().unwrap_or_default();
        return list
            .iter()
            .filter_map(|fields| read_block(fields, &mut ReplyEnding::default()))
            .collect();
    };
    let text = match entry.raw("content") {
        Some(json) if !json.is_null() => json.parse_as().unwrap_or_else(|_| json.text().to_owned()),
        _ => String::new(),
    };
    let mut result = ToolResult::success(id, text);
    result.name = string_field(entry, "name").unwrap_or_default();
    if let Some(status) = string_field(entry, "status") {
        result.state = ToolResultState::from(status.as_str());
    }
    result.metadata.insert_some(
        "artifact",
        entry.raw("artifact").filter(|artifact| !artifact.is_null()).cloned(),
    );
    vec![result.into()]
}
