//! The history: messages of ours into its entries, and back.
//!
//! A reply of ours is several entries of the same `id`: the assistant's blocks up to a tool's
//! result, the result as an entry of the role `tool`, the blocks behind it. What is about the reply
//! as a whole stands in its first entry.

use super::words::{
    USER_STOPPED, attachment, code, data_block, error_type, finished_reason, input_object,
    input_text, iso, mode_of, ms_of, seconds, status, stop_reason, unix_ms,
};
use super::{RESERVED, WRAPPED};
use crate::provider::other_block;
use crate::stream::DisplayMode;
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, FinishedReason, HintBlock, Json, Msg, MsgBuilder,
    Payload, ReplyError, Result, Role, TextBlock, ThinkingBlock, ToolCall, ToolCallState,
    ToolResult, ToolResultState, Usage,
};

const STOPPED: &str = "terminal_user_stopped";
const FAILED: &str = "terminal_error";

/// Writes messages. Those of the system are left out: a client never sees them.
pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    HistoryEncoder::default().encode(messages)
}

/// Writes the messages of a history some at a time, so that it never has to be in memory whole.
#[derive(Debug, Default)]
pub struct HistoryEncoder {
    /// As the last message of a user wants its answer to be shown.
    mode: DisplayMode,
    count: usize,
}

impl HistoryEncoder {
    /// The next messages, in order. One of ours may be several.
    pub fn encode(&mut self, messages: &[Msg]) -> Vec<Json> {
        let mut entries = Vec::new();
        for msg in messages {
            match msg.role() {
                Role::System => {}
                Role::User => {
                    let word = msg.metadata().get::<String>("display_mode").ok().flatten();
                    self.mode = word.and_then(|word| mode_of(&word)).unwrap_or_default();
                    let mut entry = head(msg);
                    let blocks = msg.content().iter().filter_map(|block| written(block, None));
                    put_list(&mut entry, "content", &blocks.collect::<Vec<_>>());
                    entries.push(entry);
                }
                Role::Assistant => reply(msg, self.mode, &mut entries),
                Role::Tool => {
                    let from = entries.len();
                    entries.extend(msg.content().iter().map(|block| tool_entry(msg.id(), block)));
                    if entries.len() == from {
                        entries.push(again("tool", msg.id()));
                    }
                    if let Some(first) = entries.get_mut(from) {
                        first.extend(&head(msg));
                    }
                }
            }
        }
        let entries: Vec<Json> = entries.iter().filter_map(|entry| Json::from_value(entry).ok()).collect();
        self.count += entries.len();
        entries
    }

    /// How many were written.
    pub fn count(&self) -> usize {
        self.count
    }

    /// As the last message of a user wants its answer to be shown.
    pub fn display_mode(&self) -> DisplayMode {
        self.mode
    }
}

/// What an entry says about its whole message.
fn head(msg: &Msg) -> Fields {
    let mut head = again(msg.role().as_str(), msg.id());
    if !msg.name().is_empty() {
        head.insert("sender", msg.name());
    }
    if let Some(ms) = unix_ms(msg.created_at()) {
        head.insert("timestamp", seconds(Some(ms)));
    }
    if let Some(reason) = msg.finished_reason() {
        head.insert("stop_reason", stop_reason(reason));
    }
    put(&mut head, "error", msg.error());
    put(&mut head, "usage", msg.usage());
    put(&mut head, "structured_output", msg.structured_output());
    put(&mut head, "metadata", Some(msg.metadata()).filter(|metadata| !metadata.is_empty()));
    head
}

fn again(role: &str, id: &str) -> Fields {
    let mut entry = Fields::default();
    entry.insert("role", role);
    if !id.is_empty() {
        entry.insert("id", id);
    }
    entry
}

fn put<T: serde::Serialize>(fields: &mut Fields, key: &str, value: Option<&T>) {
    if let Some(json) = value.and_then(|value| Json::from_value(value).ok()) {
        fields.insert(key, json);
    }
}

fn put_list(fields: &mut Fields, key: &str, list: &[Fields]) {
    put(fields, key, Some(&list));
}

/// The entries of a reply.
fn reply(msg: &Msg, mode: DisplayMode, entries: &mut Vec<Fields>) {
    let mut open = Entry { fields: head(msg), ..Entry::default() };
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
        open.content.extend(written(block, Some(is_final)));
        if let ContentBlock::ToolCall(call) = block {
            open.calls.push(listed(call));
        }
    }
    open.content.extend(terminals(msg));
    entries.extend(open.take(msg.id()));
}

/// An entry of an assistant's that is being filled.
#[derive(Default)]
struct Entry {
    fields: Fields,
    content: Vec<Fields>,
    calls: Vec<Fields>,
}

impl Entry {
    /// The entry, and an empty one in its place. Only the first may be empty: it has the head.
    fn take(&mut self, id: &str) -> Option<Fields> {
        let entry = std::mem::take(self);
        let is_first = !entry.fields.is_empty();
        if entry.content.is_empty() && !is_first {
            return None;
        }
        let mut fields = if is_first { entry.fields } else { again("assistant", id) };
        put_list(&mut fields, "content", &entry.content);
        if !entry.calls.is_empty() {
            put_list(&mut fields, "tool_calls", &entry.calls);
        }
        Some(fields)
    }
}

/// The blocks that tell a person how a reply ended.
fn terminals(msg: &Msg) -> impl Iterator<Item = Fields> {
    let stopped = (msg.finished_reason() == Some(&FinishedReason::Interrupted))
        .then(|| Fields::from_iter([("type", STOPPED), ("text", USER_STOPPED)]));
    let failed = msg.error().map(|error| {
        let mut fields = Fields::from_iter([("type", FAILED), ("text", error.message.as_str())]);
        let mut extras = Fields::default();
        extras.insert("block_subtype", "error");
        extras.insert("code", code(&error.r#type));
        put(&mut fields, "extras", Some(&extras));
        fields
    });
    stopped.into_iter().chain(failed)
}

/// A call in the list beside the blocks.
fn listed(call: &ToolCall) -> Fields {
    let mut fields = Fields::default();
    fields.insert("id", call.id.as_str());
    fields.insert("name", call.name.as_str());
    fields.insert("tool_content_message", title(call));
    fields.insert("args", input_object(&call.input));
    fields
}

fn title(call: &ToolCall) -> String {
    let title = call.rest.get::<String>("title").ok().flatten();
    title.filter(|title| !title.is_empty()).unwrap_or_else(|| call.name.clone())
}

/// A block as it stands in an entry.
fn written(block: &ContentBlock, is_final: Option<bool>) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut typed = |word: &str, id: &str| {
        fields.insert("type", word);
        if !id.is_empty() {
            fields.insert("id", id);
        }
    };
    match block {
        ContentBlock::Text(block) => {
            typed("text", &block.id);
            fields.insert("text", block.text.as_str());
            if let Some(is_final) = is_final {
                fields.insert("is_final", is_final);
            }
        }
        ContentBlock::Thinking(block) => {
            typed("thinking", &block.id);
            fields.insert("thinking", block.thinking.as_str());
        }
        ContentBlock::Data(block) => return Some(attachment(block)),
        ContentBlock::Hint(block) => {
            typed("hint", &block.id);
            put(&mut fields, "hint", Some(&block.hint));
            fields.insert("source", block.source.clone());
        }
        ContentBlock::ToolCall(call) => {
            typed("tool_use", &call.id);
            fields.insert("name", call.name.as_str());
            fields.insert("tool_use_id", call.id.as_str());
            fields.insert("tool_content_message", title(call));
            fields.insert("input", input_object(&call.input));
            fields.insert("state", call.state.as_str());
            if !call.suggested_rules.is_empty() {
                put(&mut fields, "suggested_rules", Some(&call.suggested_rules));
            }
        }
        ContentBlock::Other(other) => {
            let word = other.get::<String>("type").ok().flatten().unwrap_or_default();
            if !RESERVED.contains(&word.as_str()) {
                return Some(other.clone());
            }
            fields.insert("type", WRAPPED);
            put(&mut fields, "block", Some(other));
        }
        // A result is an entry of its own.
        _ => return None,
    }
    Some(fields)
}

/// A result as an entry. What else a message of results may hold stands in a list.
fn tool_entry(id: &str, block: &ContentBlock) -> Fields {
    let mut entry = again("tool", id);
    if let ContentBlock::ToolResult(result) = block {
        entry.insert("tool_use_id", result.id.as_str());
        entry.insert("name", result.name.as_str());
        entry.insert("status", status(&result.state));
        entry.insert("content", result.output.text(""));
        let none = || Json::from(serde_json::Value::Null);
        entry.insert("artifact", result.metadata.raw("artifact").cloned().unwrap_or_else(none));
    } else {
        put_list(&mut entry, "content", written(block, None).as_slice());
    }
    entry
}

/// Reads entries: a list, a single one, or the whole answer that they stand in.
pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    let json = Json::parse(text)?;
    let entries: Vec<Fields> = if json.text().starts_with('[') {
        json.parse_as().map_err(|_| not_one("entries are objects"))?
    } else {
        let fields: Fields = json.parse_as().map_err(|_| not_one("an entry is an object"))?;
        match fields.get::<Vec<Fields>>("messages") {
            Ok(Some(entries)) => entries,
            _ => vec![fields],
        }
    };
    let mut messages: Vec<Msg> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        read(entry, &mut messages).map_err(|error| error.at(format!("[{at}]")))?;
    }
    Ok(messages)
}

fn not_one(message: &str) -> Error {
    Error::new(ErrorKind::NotAMessage, message)
}

fn word(fields: &Fields, key: &str) -> Option<String> {
    fields.get::<String>(key).ok().flatten()
}

/// Reads one entry: a new message, or more of the last.
fn read(entry: &Fields, messages: &mut Vec<Msg>) -> Result<()> {
    let role = match word(entry, "role").as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => return Err(not_one("`role` is one of user, assistant, tool")),
    };
    let id = word(entry, "id").unwrap_or_default();
    let mut end = End::default();
    let content = if role == Role::Tool { tool_blocks(entry) } else { blocks(entry, &mut end)? };
    if let Some(last) = messages.last_mut()
        && goes_on(last, role, &id)
    {
        let content = [last.content(), &content].concat();
        let mut builder = last.to_builder().content(content);
        // What the first entry says of the end counts; the blocks say it for others' histories.
        if last.finished_reason().is_none() && last.error().is_none() {
            builder = end.set(builder);
        }
        *last = builder.build()?;
        return Ok(());
    }
    let mut builder = Msg::builder(role).id(id).content(content);
    if let Some(sender) = word(entry, "sender") {
        builder = builder.name(sender);
    }
    if let Ok(Some(seconds)) = entry.get::<f64>("timestamp") {
        builder = builder.created_at(iso(ms_of(seconds)));
    }
    let reason = word(entry, "stop_reason").map(|word| finished_reason(&word));
    let error = entry.get::<ReplyError>("error").ok().flatten();
    let said = End { reason, error };
    builder = if said.is_known() { said } else { end }.set(builder);
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

/// Whether an entry is more of the message before it.
fn goes_on(last: &Msg, role: Role, id: &str) -> bool {
    match (last.role(), role) {
        (Role::Assistant, Role::Tool) => last.id() == id || id.is_empty(),
        (Role::Assistant, Role::Assistant) | (Role::Tool, Role::Tool) => {
            last.id() == id && !id.is_empty()
        }
        _ => false,
    }
}

/// What the blocks at the end of an entry say about how its turn ended.
#[derive(Default)]
struct End {
    reason: Option<FinishedReason>,
    error: Option<ReplyError>,
}

impl End {
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

fn blocks(entry: &Fields, end: &mut End) -> Result<Vec<ContentBlock>> {
    let mut content: Vec<ContentBlock> = Vec::new();
    if let Some(text) = word(entry, "content") {
        content.extend((!text.is_empty()).then(|| ContentBlock::from(text)));
    } else {
        let list = entry.get::<Vec<Fields>>("content");
        let list = list.map_err(|_| not_one("`content` is a string or a list of blocks"))?;
        content.extend(list.unwrap_or_default().iter().filter_map(|fields| block(fields, end)));
    }
    // Calls that stand only in the list beside the blocks.
    for fields in entry.get::<Vec<Fields>>("tool_calls").ok().flatten().unwrap_or_default() {
        let call = call(&fields);
        let known = content.iter().any(|block| match block {
            ContentBlock::ToolCall(known) => known.id == call.id,
            _ => false,
        });
        if !known {
            content.push(call.into());
        }
    }
    Ok(content)
}

fn block(fields: &Fields, end: &mut End) -> Option<ContentBlock> {
    let text = |key: &str| word(fields, key).unwrap_or_default();
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
            source: word(fields, "source"),
            ..HintBlock::default()
        }
        .into(),
        "tool_use" => call(fields).into(),
        STOPPED => {
            end.reason = Some(FinishedReason::Interrupted);
            return None;
        }
        FAILED => {
            end.reason = Some(FinishedReason::Error);
            let extras = fields.get::<Fields>("extras").ok().flatten().unwrap_or_default();
            let kind = word(&extras, "code").map(|code| error_type(&code)).unwrap_or_default();
            let message = text("text");
            end.error = Some(ReplyError { r#type: kind, message, ..ReplyError::default() });
            return None;
        }
        WRAPPED if fields.raw("block").is_some() => {
            other_block(fields.get::<Fields>("block").ok().flatten()?)
        }
        _ => other_block(fields.clone()),
    })
}

fn call(fields: &Fields) -> ToolCall {
    let text = |key: &str| word(fields, key);
    let id = text("id").or_else(|| text("tool_use_id")).unwrap_or_default();
    let name = text("name").unwrap_or_default();
    let input = fields.raw("input").or_else(|| fields.raw("args"));
    let mut call = ToolCall::new(id, &name, input.map(input_text).unwrap_or_default());
    if let Some(state) = text("state") {
        call.state = ToolCallState::from(state.as_str());
    }
    call.suggested_rules = fields.get("suggested_rules").ok().flatten().unwrap_or_default();
    if let Some(title) = text("tool_content_message").filter(|title| *title != name) {
        call.rest.insert("title", title);
    }
    call
}

fn tool_blocks(entry: &Fields) -> Vec<ContentBlock> {
    let Some(id) = word(entry, "tool_use_id") else {
        let list = entry.get::<Vec<Fields>>("content").ok().flatten().unwrap_or_default();
        return list.iter().filter_map(|fields| block(fields, &mut End::default())).collect();
    };
    let text = match entry.raw("content") {
        Some(json) if !json.is_null() => json.parse_as().unwrap_or_else(|_| json.text().to_owned()),
        _ => String::new(),
    };
    let mut result = ToolResult::success(id, text);
    result.name = word(entry, "name").unwrap_or_default();
    if let Some(status) = word(entry, "status") {
        result.state = ToolResultState::from(status.as_str());
    }
    if let Some(artifact) = entry.raw("artifact").filter(|artifact| !artifact.is_null()) {
        result.metadata.insert("artifact", artifact.clone());
    }
    vec![result.into()]
}
