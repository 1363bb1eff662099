//! The body of `POST /v1/responses`.

use super::compact;
use super::item_reference::{InputItem, resolve_references};
use super::wire;
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;
use turnwire_agent::{ClientContext, ClientTool};
use turnwire_core::{ContentBlock, Fields, Json, Msg, ToolResult};
use turnwire_log::Session;
use turnwire_wires::openai_responses::{answered_call_id, hosted_call_id, read_tools};
use turnwire_wires::{ModelOptions, native};

/// A request for a response.
#[derive(Debug)]
pub(super) struct CreateRequest {
    pub model: String,
    pub previous: Option<String>,
    /// The id of a conversation.
    pub conversation: Option<String>,
    pub stream: bool,
    pub background: bool,
    /// What the client sends along.
    pub context: ClientContext,
    /// The conversation, or only what is new in it.
    pub input: Vec<InputItem>,
}

impl CreateRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> ApiResult<Self> {
        let mut body: Fields = serde_json::from_slice(body).map_err(|error| {
            invalid_request(format!("invalid Responses request: {error}"))
                .hint("the shortest one is {\"model\": \"demo\", \"input\": \"hello\"}")
        })?;
        let model = take_field(&mut body, "model")?.filter(|model: &String| !model.is_empty());
        let model = model.ok_or_else(|| {
            invalid_request("`model` is missing")
                .hint("a model is an agent; GET /v1/models lists them")
        })?;
        let conversation = conversation_id(&mut body)?;
        let input = body.remove("input").ok_or_else(|| invalid_request("`input` is missing"))?;
        let instructions: Option<String> = take_field(&mut body, "instructions")?;
        let input = parse_items(input.text())?;
        let tools: Vec<Fields> = take_field(&mut body, "tools")?.unwrap_or_default();
        let tools = read_tools(tools).map_err(|error| invalid_request(error.to_string()))?;
        let previous: Option<String> = take_field(&mut body, "previous_response_id")?;
        let previous = previous.filter(|id| !id.is_empty());
        if conversation.is_some() && previous.is_some() {
            return Err(invalid_request(
                "`conversation` and `previous_response_id` exclude each other",
            )
            .hint("leave out one of them"));
        }
        let stream = take_field(&mut body, "stream")?.unwrap_or_default();
        let background = take_field(&mut body, "background")?.unwrap_or_default();
        // The response repeats these.
        body.insert_some("previous_response_id", previous.as_deref());
        body.insert_some("conversation", conversation.as_deref());
        body.insert_some("background", Some(true).filter(|_| background));
        let wire = wire()?.name.to_owned();
        let options = ModelOptions::read(&wire, &body);
        let options = options.map_err(|error| invalid_request(error.to_string()))?;
        let output_schema = options.response_format.and_then(|format| format.schema());
        Ok(Self {
            model,
            previous,
            conversation,
            stream,
            background,
            context: ClientContext {
                tools: tools.into_iter().map(ClientTool::from).collect(),
                output_schema,
                instructions: instructions.filter(|text| !text.trim().is_empty()),
                // This protocol cannot ask for approvals.
                unattended: true,
                extra: body,
                wire,
                ..ClientContext::default()
            },
            input,
        })
    }
}

/// The id in `conversation`, which is a string or an object.
fn conversation_id(body: &mut Fields) -> ApiResult<Option<String>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ConversationField {
        Id(String),
        Object { id: String },
    }
    Ok(take_field(body, "conversation")?.map(|field| match field {
        ConversationField::Id(id) | ConversationField::Object { id } => id,
    }))
}

/// 400 with OpenAI's error code.
pub(in super::super) fn invalid_request(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message.into()).kind("invalid_request")
}

/// Removes a field and parses it; null counts as missing.
fn take_field<T: DeserializeOwned>(fields: &mut Fields, key: &str) -> ApiResult<Option<T>> {
    fields.take(key).map_err(|error| invalid_request(format!("invalid `{key}`: {error}")))
}

/// Parses the input.
fn parse_items(input: &str) -> ApiResult<Vec<InputItem>> {
    if input.starts_with('"') {
        return Ok(vec![InputItem::Message(user_message(input, "input")?)]);
    }
    let list: Vec<&RawValue> = serde_json::from_str(input)
        .map_err(|_| invalid_request("`input` must be a string or a list of items"))?;
    let mut reader = ItemReader::default();
    let mut items = Vec::with_capacity(list.len());
    for (at, raw) in list.iter().enumerate() {
        items.extend(parse_item(raw.get(), &format!("input[{at}]"), &mut reader)?);
    }
    reader.finish()?;
    Ok(items)
}

/// What the items of an input so far mean for the next ones.
#[derive(Default)]
struct ItemReader {
    /// The calls that the provider executed, as JSON, by their ids.
    hosted_calls: HashMap<String, String>,
    /// The type of a result after the last answer that belongs to no known kind of call.
    unknown_result: Option<String>,
}

impl ItemReader {
    /// Reads an item that only a model or an executed call creates.
    fn read_item(&mut self, raw: &str, place: &str) -> Option<Msg> {
        let item: Fields = serde_json::from_str(raw).ok()?;
        self.hosted_calls.extend(hosted_call_id(&item).map(|id| (id, raw.to_owned())));
        let call = answered_call_id(&item).and_then(|id| self.hosted_calls.get(&id));
        let msg = match call {
            Some(call) => {
                // The result of such a call is kept as it is, too.
                let both = parse_message(&format!("[{call},{raw}]"), place).ok()?;
                let result = both.content().last().cloned().into_iter().collect::<Vec<_>>();
                both.to_builder().content(result).build().ok()?
            }
            None => parse_message(raw, place).ok()?,
        };
        let item_type: String = item.get("type").ok().flatten().unwrap_or_default();
        let is_known = call.is_some() || msg.first::<ToolResult>().is_some();
        if !is_known {
            self.unknown_result = Some(item_type).filter(|kind| kind.ends_with("_output"));
        }
        Some(msg)
    }

    /// Refuses results that no call of the conversation can have: the model would be asked the same again.
    fn finish(self) -> ApiResult<()> {
        let Some(item_type) = self.unknown_result else { return Ok(()) };
        Err(invalid_request(format!(
            "`input` ends with an item of the type {item_type:?}, which answers no call that is known here; nothing \
             was stored"
        ))
        .kind("unsupported_option")
        .hint("docs/openai.md lists the tools that a client may execute; take this one out of `tools`"))
    }
}

/// The messages of items that are added to a session.
pub(in super::super) async fn parse_input(
    app: &App,
    caller: &Caller,
    session: &Arc<Session>,
    items: Vec<Fields>,
) -> ApiResult<Vec<Msg>> {
    let mut parsed = Vec::with_capacity(items.len());
    let mut reader = ItemReader::default();
    for (at, item) in items.iter().enumerate() {
        let (item, place) = (Json::from(item), format!("items[{at}]"));
        parsed.extend(parse_item(item.text(), &place, &mut reader)?);
    }
    resolve_references(app, caller, session.agent(), Some(session), parsed).await
}

#[derive(Deserialize)]
struct ItemHead {
    r#type: Option<String>,
    role: Option<String>,
    call_id: Option<String>,
    id: Option<String>,
}

fn parse_item(raw: &str, place: &str, reader: &mut ItemReader) -> ApiResult<Option<InputItem>> {
    let head: ItemHead = serde_json::from_str(raw)
        .map_err(|error| invalid_request(format!("{place} is not a valid item: {error}")))?;
    let msg = match (head.r#type.as_deref(), head.role.as_deref()) {
        (None | Some("message"), Some("user")) => user_message(raw, place)?,
        (None | Some("message"), Some("system" | "developer")) => system_message(raw, place)?,
        (None | Some("message"), Some("assistant")) => {
            reader.unknown_result = None;
            parse_message(raw, place)?
        }
        // The short form of a reference has no type.
        (Some("item_reference"), _) | (None, None) if head.id.is_some() => {
            reader.unknown_result = None;
            return Ok(head.id.map(InputItem::Reference));
        }
        (Some("item_reference"), _) => {
            return Err(invalid_request(format!("{place} has no `id`")));
        }
        (None | Some("message"), role) => {
            return Err(invalid_request(format!(
                "{place} has {}",
                role.map_or("neither `type` nor `role`".to_owned(), |role| format!(
                    "the unknown role {role:?}"
                ))
            )));
        }
        (Some("function_call_output" | "custom_tool_call_output"), _) => {
            if head.call_id.is_none_or(|id| id.is_empty()) {
                return Err(invalid_request(format!("{place} has no `call_id`")));
            }
            let msg = parse_message(raw, place)?;
            if msg.first::<ToolResult>().is_none() {
                return Err(invalid_request(format!("{place} is not a tool result")));
            }
            native::keep_result_parts(msg, wire()?.name)
        }
        (Some("compaction"), _) if let Some(msg) = compact::read_item(raw, place)? => msg,
        // Calls, reasoning, and results of tools that the protocol defines.
        (Some(_), _) => {
            return Ok(reader.read_item(raw, place).map(InputItem::Message));
        }
    };
    Ok(Some(InputItem::Message(msg)))
}

fn user_message(raw: &str, place: &str) -> ApiResult<Msg> {
    let msg = parse_message(raw, place)?;
    let mut is_said = false;
    for block in msg.content() {
        match block {
            ContentBlock::Text(block) => is_said |= !block.text.trim().is_empty(),
            ContentBlock::Data(block) if block.decoded().is_some_and(|bytes| bytes.is_err()) => {
                return Err(invalid_request(format!("{place} has invalid base64")));
            }
            ContentBlock::Data(_) => is_said = true,
            // Such as a file by its id: a model of the same protocol knows it.
            ContentBlock::Other(part) if is_input_part(part) => is_said = true,
            ContentBlock::Thinking(_)
            | ContentBlock::Hint(_)
            | ContentBlock::ToolCall(_)
            | ContentBlock::ToolResult(_)
            | ContentBlock::Other(_) => {
                return Err(invalid_request(format!("{place} has an unsupported part")).hint(
                    "expected input_text, input_image or input_file, with text, data, URL or `file_id`",
                ));
            }
        }
    }
    if is_said { Ok(msg) } else { Err(invalid_request(format!("{place} is empty"))) }
}

fn is_input_part(part: &Fields) -> bool {
    part.get::<String>("type").ok().flatten().is_some_and(|kind| kind.starts_with("input_"))
}

fn parse_message(raw: &str, place: &str) -> ApiResult<Msg> {
    let read = wire()?.decode_messages(raw);
    let read = read.map_err(|error| invalid_request(format!("{place} is invalid: {error}")))?;
    read.into_iter().next().ok_or_else(|| invalid_request(format!("{place} is empty")))
}

/// A system message, with its role and other fields that only this protocol has.
fn system_message(raw: &str, place: &str) -> ApiResult<Msg> {
    let msg = parse_message(raw, place)?;
    let mut fields: Fields = serde_json::from_str(raw)
        .map_err(|error| invalid_request(format!("{place} is invalid: {error}")))?;
    for known in ["type", "content", "id", "status"] {
        fields.remove(known);
    }
    Ok(native::set_on_message(msg, wire()?.name, &fields))
}
