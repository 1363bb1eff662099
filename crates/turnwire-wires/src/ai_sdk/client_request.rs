//! The request of an AI SDK client: its whole history, of which Turnwire takes only what is new.
//!
//! ```
//! use turnwire_core::ToolCall;
//! use turnwire_wires::ai_sdk::{ChatRequest, PendingReply};
//!
//! let request = ChatRequest::parse(r#"{"id": "chat-1", "trigger": "submit-message", "messages": [
//!     {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Buy!"}]},
//!     {"id": "r1", "role": "assistant", "parts": [{"type": "dynamic-tool", "toolName": "trade",
//!         "toolCallId": "c1", "state": "approval-responded", "input": {"n": 1},
//!         "approval": {"id": "c1", "approved": true}}]}
//! ]}"#)?;
//! assert!(request.new_messages(|id| id == "m1")?.is_empty());
//!
//! let calls = [ToolCall::new("c1", "trade", r#"{"n": 1}"#)];
//! let pending = PendingReply { reply_id: "r1", confirm: &calls, external: &[] };
//! assert_eq!(request.answers(&[pending])?[0].kind.type_name(), "USER_CONFIRM_RESULT");
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use super::tool::{input_json, payload_of};
use super::{message, tool};
use crate::client_request::ClientToolDefinition;
use serde_json::Value;
use std::collections::HashMap;
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, UserConfirmResult};
use turnwire_core::{
    Error, ErrorKind, Event, Fields, Json, Msg, Result, ToolCall, ToolResult, ToolResultState,
};

/// The request of `DefaultChatTransport`.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// The chat: our session.
    pub chat_id: String,
    /// What the client requests.
    pub trigger: Trigger,
    /// The message to regenerate, edit or continue.
    pub message_id: Option<String>,
    /// Whether the request has a trigger. Every transport of the AI SDK sends one, and all messages of the chat.
    pub has_trigger: bool,
    /// The tools that the page executes, in the form of assistant-ui.
    pub tools: Vec<ClientToolDefinition>,
    /// Instructions of the page, in the form of assistant-ui.
    pub system: Option<String>,
    /// Other fields that the application sends.
    pub rest: Fields,
    messages: Vec<Json>,
}

/// What a chat request asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trigger {
    /// A reply to the new messages.
    #[default]
    Submit,
    /// Another reply in place of the named one, or the last one.
    Regenerate,
}

/// A message of the assistant that the client continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuedMessage {
    /// Its id: the reply's id.
    pub id: String,
    /// The calls of its last step without an output, or with one from the client.
    pub calls: Vec<String>,
}

/// The pending calls of one reply.
#[derive(Debug, Clone, Copy)]
pub struct PendingReply<'a> {
    /// The reply's id.
    pub reply_id: &'a str,
    /// Calls that wait for an approval.
    pub confirm: &'a [ToolCall],
    /// Calls that the client executes.
    pub external: &'a [ToolCall],
}

impl ChatRequest {
    /// Reads a request.
    pub fn parse(text: &str) -> Result<Self> {
        let json = Json::parse(text)?;
        let mut rest: Fields =
            json.parse_as().map_err(|_| bad_request("expected a chat request object"))?;
        let chat_id = rest.take("id").map_err(|_| bad_request("`id` is not a string"))?;
        let messages =
            rest.remove("messages").ok_or_else(|| bad_request("`messages` is missing"))?;
        let trigger: Option<String> =
            rest.take("trigger").map_err(|_| bad_request("`trigger` is not a string"))?;
        let has_trigger = trigger.is_some();
        let trigger = match trigger.as_deref() {
            None | Some("submit-message") => Trigger::Submit,
            Some("regenerate-message") => Trigger::Regenerate,
            Some(other) => {
                return Err(bad_request(format!(
                    "`trigger` is `{other}`; expected submit-message or regenerate-message"
                )));
            }
        };
        Ok(Self {
            chat_id: chat_id.ok_or_else(|| bad_request("`id` (the chat) is missing"))?,
            trigger,
            message_id: rest
                .take("messageId")
                .map_err(|_| bad_request("`messageId` is not a string"))?,
            messages: messages.parse_as().map_err(|_| bad_request("`messages` is not a list"))?,
            has_trigger,
            tools: take_tools(&mut rest).unwrap_or_default(),
            system: take_system(&mut rest),
            rest,
        })
    }

    /// The client's history.
    pub fn history(&self) -> Result<Vec<Msg>> {
        self.messages.iter().enumerate().map(|(at, json)| read_message(at, json)).collect()
    }

    /// The new user messages at the end of the history. The client only repeats what comes before.
    pub fn new_messages(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<Msg>> {
        let mut new = Vec::new();
        for (at, json) in self.messages.iter().enumerate().rev() {
            let head: MessageHead = json.parse_as().map_err(|_| not_a_message(at))?;
            if head.role != "user" || is_known(&head.id) {
                break;
            }
            new.push(read_message(at, json)?);
        }
        new.reverse();
        Ok(new)
    }

    /// The ids of the user messages at the end of the history, the last one first. Only the session
    /// knows whether they are new.
    pub fn trailing_user_ids(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for (at, json) in self.messages.iter().enumerate().rev() {
            let head: MessageHead = json.parse_as().map_err(|_| not_a_message(at))?;
            if head.role != "user" {
                break;
            }
            ids.push(head.id);
        }
        Ok(ids)
    }

    /// The id of the message before the last `count`. `None` if there is none.
    pub fn id_before_last(&self, count: usize) -> Result<Option<String>> {
        let at = self.messages.len().checked_sub(count + 1);
        let Some((at, json)) = at.and_then(|at| Some((at, self.messages.get(at)?))) else {
            return Ok(None);
        };
        let head: MessageHead = json.parse_as().map_err(|_| not_a_message(at))?;
        Ok(Some(head.id))
    }

    /// The message that the client continues: the named one, or the last one.
    pub fn continued_message(&self) -> Result<Option<ContinuedMessage>> {
        if self.trigger == Trigger::Regenerate {
            return Ok(None);
        }
        for (at, json) in self.messages.iter().enumerate().rev() {
            let head: MessageHead = json.parse_as().map_err(|_| not_a_message(at))?;
            let is_last = at + 1 == self.messages.len();
            let is_named = self.message_id.as_deref() == Some(&*head.id);
            if head.role == "assistant" && (is_last || is_named) {
                return Ok(Some(ContinuedMessage { calls: head.unfinished_calls(), id: head.id }));
            }
            if self.message_id.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// The user message that the client edited. It dropped everything after it.
    pub fn edited_message(&self, is_known: impl Fn(&str) -> bool) -> Result<Option<Msg>> {
        let (Trigger::Submit, Some(id)) = (self.trigger, &self.message_id) else { return Ok(None) };
        let Some((at, json)) = self.messages.iter().enumerate().next_back() else {
            return Ok(None);
        };
        let head: MessageHead = json.parse_as().map_err(|_| not_a_message(at))?;
        let is_edited = head.role == "user" && head.id == *id && is_known(id);
        is_edited.then(|| read_message(at, json)).transpose()
    }

    /// The answers to pending calls: one event for each reply and kind of answer. An approval may
    /// change the input of its call.
    pub fn answers(&self, pending: &[PendingReply<'_>]) -> Result<Vec<Event<'static>>> {
        let parts = self.tool_parts()?;
        let mut events = Vec::new();
        for pending in pending {
            let part = |call: &ToolCall| parts.get(call.id.as_str());
            let mut confirm_results = Vec::new();
            for call in pending.confirm {
                let answer = part(call).map(|part| read_confirmation(call, part)).transpose()?;
                confirm_results.extend(answer.flatten());
            }
            let mut execution_results = Vec::new();
            for call in pending.external {
                let result =
                    part(call).map(|part| read_execution_result(call, part)).transpose()?;
                execution_results.extend(result.flatten());
            }
            let reply_id = pending.reply_id.to_owned();
            if !confirm_results.is_empty() {
                events.push(Event::new(reply_id.clone(), UserConfirmResult { confirm_results }));
            }
            if !execution_results.is_empty() {
                events.push(Event::new(reply_id, ExternalExecutionResult { execution_results }));
            }
        }
        Ok(events)
    }

    /// Whether the client has cancelled all these calls.
    pub fn cancels_calls<'c>(&self, mut calls: impl Iterator<Item = &'c str>) -> Result<bool> {
        let parts = self.tool_parts()?;
        let is_cancelled = |call| {
            let state = parts.get(call).and_then(|part| part.get::<String>("state").ok().flatten());
            matches!(state.as_deref(), Some("output-error" | "output-denied"))
        };
        Ok(calls.all(is_cancelled))
    }

    /// The tool parts by call id; the last one wins.
    fn tool_parts(&self) -> Result<HashMap<String, Fields>> {
        let mut found = HashMap::new();
        for (at, json) in self.messages.iter().enumerate() {
            let head: MessageHead = json.parse_as().map_err(|_| not_a_message(at))?;
            if head.role != "assistant" {
                continue;
            }
            for part in head.parts.into_iter().filter(tool::is_tool_part) {
                if let Ok(Some(id)) = part.get("toolCallId") {
                    found.insert(id, part);
                }
            }
        }
        Ok(found)
    }
}

/// Takes `tools` if it is an object of functions by name: `{NAME: {description, parameters}}`. Any other form belongs to the
/// application.
fn take_tools(rest: &mut Fields) -> Option<Vec<ClientToolDefinition>> {
    let by_name: Fields = rest.get("tools").ok().flatten()?;
    let read = |(name, json): (&str, &Json)| {
        let mut fields: Fields = json.parse_as().ok()?;
        fields.raw("parameters")?;
        fields.insert("name", Json::from(name));
        ClientToolDefinition::read(fields, "parameters").ok()
    };
    let tools = by_name.iter().map(read).collect::<Option<_>>()?;
    rest.remove("tools");
    Some(tools)
}

/// Takes `system` if it is a text.
fn take_system(rest: &mut Fields) -> Option<String> {
    let system: String = rest.get("system").ok().flatten()?;
    rest.remove("system");
    Some(system).filter(|text| !text.is_empty())
}

/// The fields that identify a message.
#[derive(serde::Deserialize)]
struct MessageHead {
    #[serde(default)]
    id: String,
    role: String,
    #[serde(default)]
    parts: Vec<Fields>,
}

impl MessageHead {
    /// The calls of the last step that may still change.
    fn unfinished_calls(&self) -> Vec<String> {
        let is_step = |part: &&Fields| part.raw("type") == Some(&Json::from("step-start"));
        let step = self.parts.rsplit(|part| is_step(&part)).next().unwrap_or_default();
        let tools = step.iter().filter(|part| tool::is_tool_part(part)).filter(|part| {
            let state: String = part.get("state").ok().flatten().unwrap_or_default();
            let is_here = part.raw("providerExecuted") == Some(&Json::from(true));
            !is_here || !state.starts_with("output-")
        });
        tools.filter_map(|part| part.get("toolCallId").ok().flatten()).collect()
    }
}

#[cold]
fn bad_request(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::NotARequest, message)
}

#[cold]
fn not_a_message(at: usize) -> Error {
    bad_request("expected a message with `id`, `role` and `parts`").at(format!("messages[{at}]"))
}

fn read_message(at: usize, json: &Json) -> Result<Msg> {
    message::read_message(json).map_err(|error| {
        // The text says what is wrong; the kind says with what.
        bad_request(error.to_string()).at(format!("messages[{at}]"))
    })
}

/// The user's decision, if there is one.
fn read_confirmation(call: &ToolCall, part: &Fields) -> Result<Option<ConfirmResult>> {
    let state: String = part.get("state").ok().flatten().unwrap_or_default();
    if state != "approval-responded" && state != "output-denied" {
        return Ok(None);
    }
    let wrong = || bad_request(format!("the approval of the call {} has no `approved`", call.id));
    let approval: Fields = part.get("approval").map_err(|_| wrong())?.ok_or_else(wrong)?;
    let confirmed: bool = approval.get("approved").map_err(|_| wrong())?.ok_or_else(wrong)?;
    let mut tool_call = call.clone();
    if confirmed
        && let Some(input) = part.raw("input")
        && is_edited(&call.input, input)
    {
        input.text().clone_into(&mut tool_call.input);
    }
    let mut rest = Fields::default();
    rest.insert_some("reason", approval.raw("reason").filter(|reason| !reason.is_null()).cloned());
    Ok(Some(ConfirmResult { confirmed, tool_call, rules: None, rest }))
}

/// Whether the client edited an input. It parsed and serialized the JSON, so numbers are compared
/// as JavaScript does.
fn is_edited(original: &str, given: &Json) -> bool {
    let (Some(json), Ok(given)) = (input_json(original), given.parse_as::<Value>()) else {
        // Text that is not JSON was sent as a string.
        return given.parse_as::<String>().is_ok_and(|given| given != original);
    };
    json.parse_as::<Value>().is_ok_and(|original| !is_same_json(&original, &given))
}

fn is_same_json(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_json(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same_json(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The result of a call that the client executes, if there is one.
fn read_execution_result(call: &ToolCall, part: &Fields) -> Result<Option<ToolResult>> {
    let state: String = part.get("state").ok().flatten().unwrap_or_default();
    let preliminary: Option<bool> = part.get("preliminary").ok().flatten();
    let result = match state.as_str() {
        "output-available" if preliminary != Some(true) => {
            let null = Json::from(Value::Null);
            let mut metadata = Fields::default();
            let output = payload_of(part.raw("output").unwrap_or(&null), &mut metadata);
            ToolResult { metadata, ..ToolResult::success(call.id.as_str(), output) }
        }
        "output-error" => {
            let text: Option<String> = part.get("errorText").map_err(|_| {
                bad_request(format!("`errorText` of the call {} is not a string", call.id))
            })?;
            ToolResult::error(call.id.as_str(), text.unwrap_or_default())
        }
        "output-denied" => ToolResult {
            state: ToolResultState::Denied,
            ..ToolResult::error(call.id.as_str(), "The client declined to execute this.")
        },
        _ => return Ok(None),
    };
    Ok(Some(result.named(call.name.as_str())))
}
