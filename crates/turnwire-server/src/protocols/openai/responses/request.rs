//! What a client asks for: the body of `POST /v1/responses`.

use super::wire;
use crate::error::{ApiError, ApiResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use turnwire_agent::{ClientContext, ClientTool};
use turnwire_core::{ContentBlock, Fields, Json, Msg, ToolResult};
use turnwire_wires::client_request::ClaimedHistory;

#[derive(Deserialize)]
struct Tool {
    r#type: String,
    #[serde(default)]
    name: String,
    description: Option<String>,
    parameters: Option<Json>,
}

#[derive(Deserialize)]
struct Format {
    r#type: String,
    schema: Option<Json>,
}

/// What a client asks for.
#[derive(Debug)]
pub(super) struct CreateRequest {
    pub model: String,
    pub previous: Option<String>,
    pub stream: bool,
    pub background: bool,
    /// What the conversation is recognised by.
    pub claimed: ClaimedHistory,
    offer: ClientContext,
    items: Vec<Item>,
}

/// What somebody is said to have said or done.
#[derive(Debug)]
enum Item {
    /// The user.
    User(Box<Msg>),
    /// A tool of the client's.
    Result(Box<ToolResult>),
    /// The agent. What it said is in the log, and is not taken from anybody.
    Agent,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct CallOutput<'a> {
    pub result: &'a ToolResult,
    /// It comes behind everything that the agent is said to have said. The others may well be a part
    /// of the history that the client repeats.
    pub is_new: bool,
}

impl CreateRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> ApiResult<Self> {
        let mut body: Fields = serde_json::from_slice(body).map_err(|error| {
            invalid_request(format!("the body is no request for a response: {error}"))
                .hint("the shortest one is {\"model\": \"demo\", \"input\": \"hello\"}")
        })?;
        let model = take_field(&mut body, "model")?.filter(|model: &String| !model.is_empty());
        let model = model.ok_or_else(|| {
            invalid_request("`model` is missing")
                .hint("a model is an agent; GET /v1/models lists them")
        })?;
        if body.remove("conversation").is_some_and(|conversation| !conversation.is_null()) {
            return Err(invalid_request(
                "there are no conversations here: `conversation` is not taken",
            )
            .hint("go on with `previous_response_id`, or name a session: Turnwire-Session"));
        }
        let input = body.remove("input").ok_or_else(|| invalid_request("`input` is missing"))?;
        let instructions: Option<String> = take_field(&mut body, "instructions")?;
        let mut said: Vec<_> =
            instructions.into_iter().filter(|text| !text.trim().is_empty()).collect();
        let mut claimed = ClaimedHistory::default();
        let items = parse_items(input.text(), &mut said, &mut claimed)?;
        let tools: Vec<Tool> = take_field(&mut body, "tools")?.unwrap_or_default();
        let tools = tools.into_iter().map(client_tool).collect::<ApiResult<_>>()?;
        let output_schema = output_schema(&mut body)?;
        let previous: Option<String> = take_field(&mut body, "previous_response_id")?;
        Ok(Self {
            model,
            previous: previous.filter(|id| !id.is_empty()),
            stream: take_field(&mut body, "stream")?.unwrap_or_default(),
            background: take_field(&mut body, "background")?.unwrap_or_default(),
            offer: ClientContext {
                tools,
                output_schema,
                instructions: (!said.is_empty()).then(|| said.join("\n\n")),
                // Nobody who speaks this protocol can be asked.
                unattended: true,
                asked_by: None,
                extra: body,
            },
            items,
            claimed,
        })
    }

    /// Where what is new begins: behind everything that the agent is said to have said.
    fn first_new_item(&self) -> usize {
        let last = self.items.iter().rposition(|item| matches!(item, Item::Agent));
        last.map_or(0, |last| last + 1)
    }

    /// The results of calls.
    pub fn outputs(&self) -> impl Iterator<Item = CallOutput<'_>> {
        let news = self.first_new_item();
        self.items.iter().enumerate().filter_map(move |(at, item)| match item {
            Item::Result(result) => Some(CallOutput { result, is_new: at >= news }),
            Item::User(_) | Item::Agent => None,
        })
    }

    /// Whether the user says something new.
    pub fn has_new_user_input(&self) -> bool {
        self.items.iter().skip(self.first_new_item()).any(|item| matches!(item, Item::User(_)))
    }

    /// What the user says: in a session that knows what went before only what is new, else all. What
    /// the client brings beside it is in the last message.
    pub fn messages(self, is_fresh: bool) -> Vec<Msg> {
        let from = if is_fresh { 0 } else { self.first_new_item() };
        let mut messages: Vec<Msg> = self
            .items
            .into_iter()
            .skip(from)
            .filter_map(|item| match item {
                Item::User(msg) => Some(*msg),
                Item::Result(_) | Item::Agent => None,
            })
            .collect();
        if let Some(last) = messages.pop() {
            messages.push(self.offer.attach_to(last));
        }
        messages
    }
}

/// 400, in their words.
pub(super) fn invalid_request(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message.into()).kind("invalid_request")
}

fn client_tool(tool: Tool) -> ApiResult<ClientTool> {
    if tool.r#type != "function" {
        return Err(invalid_request(format!(
            "a tool of the type {:?} cannot be run here",
            tool.r#type
        ))
        .kind("unsupported_tool")
        .hint("a client brings functions; what an agent can do by itself is its own matter"));
    }
    if tool.name.is_empty() {
        return Err(invalid_request("a function among the `tools` has no name"));
    }
    let input = tool.parameters.filter(|parameters| !parameters.is_null());
    if input.as_ref().is_some_and(|input| !input.text().starts_with('{')) {
        return Err(invalid_request(format!(
            "the parameters of the function {} are no schema",
            tool.name
        )));
    }
    Ok(ClientTool { name: tool.name, description: tool.description.unwrap_or_default(), input })
}

/// The form that the answer is to have. What else `text` says stays where it is.
fn output_schema(body: &mut Fields) -> ApiResult<Option<Json>> {
    let Some(mut text) = take_field::<Fields>(body, "text")? else { return Ok(None) };
    let format: Option<Format> = take_field(&mut text, "format")?;
    if !text.is_empty() {
        body.insert("text", Json::from_value(&text).map_err(ApiError::internal)?);
    }
    let Some(format) = format else { return Ok(None) };
    match (&*format.r#type, format.schema) {
        ("json_schema", Some(schema)) if schema.text().starts_with('{') => Ok(Some(schema)),
        ("json_schema", _) => Err(invalid_request("`text.format` has no schema")),
        ("json_object", _) => {
            Json::parse(r#"{"type":"object"}"#).map(Some).map_err(ApiError::internal)
        }
        ("text", _) => Ok(None),
        (other, _) => {
            Err(invalid_request(format!("there is no `text.format` of the type {other:?}"))
                .hint("text, json_object or json_schema"))
        }
    }
}

/// Takes a field out; null is as if it were not there.
fn take_field<T: DeserializeOwned>(fields: &mut Fields, key: &str) -> ApiResult<Option<T>> {
    fields.take(key).map_err(|error| invalid_request(format!("`{key}` cannot be read: {error}")))
}

/// Reads the input. What system and developer say is added to `said`.
fn parse_items(
    input: &str,
    said: &mut Vec<String>,
    claimed: &mut ClaimedHistory,
) -> ApiResult<Vec<Item>> {
    if input.starts_with('"') {
        return Ok(vec![Item::User(user_message(input, "input")?.into())]);
    }
    let list: Vec<&RawValue> = serde_json::from_str(input)
        .map_err(|_| invalid_request("`input` is neither a text nor a list of items"))?;
    let mut items = Vec::with_capacity(list.len());
    for (at, raw) in list.into_iter().enumerate() {
        let read = wire()?.decode_messages(raw.get()).map_err(ApiError::internal)?;
        read.into_iter().flatten().for_each(|msg| claimed.add_message(&msg));
        items.extend(parse_item(raw, at, said)?);
    }
    Ok(items)
}

#[derive(Deserialize)]
struct ItemHead {
    r#type: Option<String>,
    role: Option<String>,
    call_id: Option<String>,
}

fn parse_item(raw: &RawValue, at: usize, said: &mut Vec<String>) -> ApiResult<Option<Item>> {
    let place = format!("input[{at}]");
    let head: ItemHead = serde_json::from_str(raw.get())
        .map_err(|error| invalid_request(format!("{place} is no item: {error}")))?;
    match (head.r#type.as_deref(), head.role.as_deref()) {
        (None | Some("message"), Some("user")) => {
            Ok(Some(Item::User(user_message(raw.get(), &place)?.into())))
        }
        (None | Some("message"), Some("system" | "developer")) => {
            said.extend(joined_text(&parse_message(raw.get(), &place)?));
            Ok(None)
        }
        (None | Some("message"), Some("assistant")) => Ok(Some(Item::Agent)),
        (None | Some("message"), role) => Err(invalid_request(format!(
            "{place} has {}",
            role.map_or("neither a type nor a role".to_owned(), |role| format!(
                "the unknown role {role:?}"
            ))
        ))),
        (Some("function_call_output" | "custom_tool_call_output"), _) => {
            if head.call_id.is_none_or(|id| id.is_empty()) {
                return Err(invalid_request(format!("{place} has no `call_id`")));
            }
            let content = parse_message(raw.get(), &place)?.content().to_vec();
            let result = content.into_iter().find_map(|block| match block {
                ContentBlock::ToolResult(result) => Some(result),
                _ => None,
            });
            result.map_or_else(
                || Err(invalid_request(format!("{place} is no result of a call"))),
                |result| Ok(Some(Item::Result(result.into()))),
            )
        }
        // Calls, reasoning, references, and whatever else only a model makes.
        (Some(_), _) => Ok(Some(Item::Agent)),
    }
}

fn user_message(raw: &str, place: &str) -> ApiResult<Msg> {
    let msg = parse_message(raw, place)?;
    let mut is_said = false;
    for block in msg.content() {
        match block {
            ContentBlock::Text(block) => is_said |= !block.text.trim().is_empty(),
            ContentBlock::Data(block) if block.decoded().is_some_and(|bytes| bytes.is_err()) => {
                return Err(invalid_request(format!("{place} has data that is no base64")));
            }
            ContentBlock::Data(_) => is_said = true,
            _ => {
                return Err(invalid_request(format!("{place} has a part that cannot be read"))
                    .hint("input_text, input_image or input_file, with their text, data or URL"));
            }
        }
    }
    if is_said { Ok(msg) } else { Err(invalid_request(format!("{place} says nothing"))) }
}

fn parse_message(raw: &str, place: &str) -> ApiResult<Msg> {
    let read = wire()?.decode_messages(raw).map_err(ApiError::internal)?;
    let read = read.map_err(|error| invalid_request(format!("{place} cannot be read: {error}")))?;
    read.into_iter().next().ok_or_else(|| invalid_request(format!("{place} says nothing")))
}

fn joined_text(msg: &Msg) -> Option<String> {
    let texts = msg.content().iter().filter_map(|block| match block {
        ContentBlock::Text(block) => Some(block.text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    Some(text).filter(|text| !text.trim().is_empty())
}
