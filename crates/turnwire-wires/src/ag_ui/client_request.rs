//! The request of an AG-UI client to run an agent.
//!
//! A client sends its whole history every time. Turnwire takes new user messages and answers to
//! pending calls from it, nothing else.

use super::frame::METADATA_KEY;
use super::read_messages::read_message_list;
use super::write_messages::{MESSAGE_ID, streamed_messages};
use crate::json::string_field;
use crate::model_request::ToolDefinition;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, SubAgent, UserConfirmResult};
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Event, Fields, Json, Msg, Payload, Result, Role, ToolCall,
    ToolResult, ToolResultState,
};

/// A request to run an agent: `RunAgentInput`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInput {
    /// The conversation: our session.
    pub thread_id: String,
    /// The client's id for the run.
    pub run_id: String,
    /// The run that started this one.
    pub parent_run_id: Option<String>,
    /// The protocol version of the client.
    pub protocol_version: Option<String>,
    /// Tools that the client executes.
    pub tools: Vec<ToolDefinition>,
    /// Context for the agent.
    pub context: Vec<Context>,
    /// State that the client shares with the agent.
    pub state: Option<Json>,
    /// Other properties that the application passes on.
    pub forwarded_props: Option<Json>,
    /// Answers to interrupts of the last run.
    pub resume: Vec<Answer>,
    /// The messages as received.
    messages: Vec<Fields>,
    /// Unknown fields.
    pub rest: Fields,
}

/// Compares a client's messages with the conversation, message by message.
///
/// Clients older than 1.0 may join a text and the calls after it in one message, and give results ids of their own: their
/// calls and results are found by the id of the call.
#[derive(Debug)]
pub struct HistoryComparison<'a> {
    by_id: HashMap<String, &'a Fields>,
    calls: HashMap<String, Value>,
    results: HashSet<String>,
    found: HistoryDifference,
}

/// Whether a client has a message.
enum Presence {
    Missing,
    Other,
    Same,
}

impl HistoryComparison<'_> {
    /// Compares the next message of the conversation.
    pub fn add(&mut self, message: &Msg) {
        for ours in streamed_messages(message) {
            let role = string_field(&ours, "role").unwrap_or_default();
            let is_beside = matches!(role.as_str(), "reasoning" | "activity");
            if is_beside || self.found == HistoryDifference::Gaps {
                continue;
            }
            self.found = match (self.find(&ours, &role), self.found) {
                (Presence::Other | Presence::Same, HistoryDifference::Behind) => {
                    HistoryDifference::Gaps
                }
                (Presence::Same, found) => found,
                (Presence::Missing | Presence::Other, _) => HistoryDifference::Behind,
            };
        }
    }

    /// Whether the client has this message of ours.
    fn find(&self, ours: &Fields, role: &str) -> Presence {
        let theirs = string_field(ours, "id").and_then(|id| self.by_id.get(&id).copied());
        let is_other = |theirs: &Fields| string_field(theirs, "role").as_deref() != Some(role);
        if theirs.is_some_and(is_other) {
            return Presence::Other;
        }
        let is_same = match role {
            "user" => return theirs.map_or(Presence::Missing, |_| Presence::Same),
            "tool" if theirs.is_none() => {
                let call = string_field(ours, "toolCallId").unwrap_or_default();
                let is_there = self.results.contains(&call);
                return if is_there { Presence::Same } else { Presence::Missing };
            }
            _ => {
                let calls = tool_calls(ours);
                let own = theirs.map(tool_calls).unwrap_or_default();
                let has = |entry: &(String, Value)| {
                    own.contains(entry) || self.calls.get(&entry.0) == Some(&entry.1)
                };
                let has_calls = calls.iter().all(has);
                if theirs.is_none() && (!has_calls || calls.is_empty()) {
                    return Presence::Missing;
                }
                let text = |fields: &Fields| fields.get::<Value>("content").ok().flatten();
                let has_text = theirs.is_some_and(|theirs| text(theirs) == text(ours));
                has_calls && (has_text || text(ours).is_none())
            }
        };
        if is_same { Presence::Same } else { Presence::Other }
    }

    /// The difference so far.
    pub fn difference(&self) -> HistoryDifference {
        self.found
    }
}

/// The calls of a message: ids with names and inputs.
fn tool_calls(fields: &Fields) -> Vec<(String, Value)> {
    let calls = fields.get::<Vec<Value>>("toolCalls").ok().flatten().unwrap_or_default();
    let read = |mut call: Value| {
        let id = call.get("id")?.as_str()?.to_owned();
        Some((id, call.get_mut("function").map(Value::take).unwrap_or_default()))
    };
    calls.into_iter().filter_map(read).collect()
}

/// One entry of the client's context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// What it describes.
    pub description: String,
    /// Its content.
    pub value: String,
}

/// An answer to an interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The interrupt: the id of the pending call.
    pub interrupt_id: String,
    /// The answer; none if the user declined to answer.
    pub payload: Option<Json>,
    /// Whether the user cancelled the interrupt.
    pub cancelled: bool,
}

/// The pending calls of one reply.
#[derive(Debug, Clone, Copy)]
pub struct PendingReply<'a> {
    /// The reply's id.
    pub reply_id: &'a str,
    /// The sub-agent, if it is a sub-agent's reply.
    pub agent: Option<&'a SubAgent>,
    /// Calls that wait for an approval.
    pub confirm: &'a [ToolCall],
    /// Calls that wait for a result of the client.
    pub external: &'a [ToolCall],
}

/// What a request answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// The answers as events for [`Event::stamped`] and the log: first results, then decisions.
    pub events: Vec<Event<'static>>,
    /// Answered interrupts that are not pending.
    pub unknown: Vec<String>,
}

/// How a client's messages differ from the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryDifference {
    /// The client has everything.
    None,
    /// The last messages are missing or incomplete.
    Behind,
    /// Messages in the middle are missing.
    Gaps,
}

impl RunInput {
    /// Reads a request.
    pub fn parse(text: &str) -> Result<Self> {
        let json = Json::parse(text)?;
        let mut fields: Fields = json
            .parse_as()
            .map_err(|_| Error::new(ErrorKind::NotARequest, "expected a RunAgentInput object"))?;
        let messages: Vec<Json> = require_field(&mut fields, "messages")?;
        let messages = messages.iter().enumerate().map(|(at, message)| {
            message
                .parse_as::<Fields>()
                .map_err(|error| invalid_request(&error).at(format!("messages[{at}]")))
        });
        let tools: Vec<Fields> = take_field(&mut fields, "tools")?.unwrap_or_default();
        let context: Vec<Fields> = take_field(&mut fields, "context")?.unwrap_or_default();
        let resume: Vec<Fields> = take_field(&mut fields, "resume")?.unwrap_or_default();
        Ok(Self {
            messages: messages.collect::<Result<_>>()?,
            thread_id: require_id(&mut fields, "threadId")?,
            run_id: require_id(&mut fields, "runId")?,
            parent_run_id: take_field(&mut fields, "parentRunId")?,
            protocol_version: take_field(&mut fields, "protocolVersion")?,
            tools: read_each("tools", tools, read_tool)?,
            context: read_each("context", context, |mut fields| {
                Ok(Context {
                    description: require_field(&mut fields, "description")?,
                    value: require_field(&mut fields, "value")?,
                })
            })?,
            state: take_field(&mut fields, "state")?,
            forwarded_props: take_field(&mut fields, "forwardedProps")?,
            resume: read_each("resume", resume, read_answer)?,
            rest: fields,
        })
    }

    /// All messages of the client.
    pub fn history(&self) -> Result<Vec<Msg>> {
        read_message_list(self.messages.clone())
            .map_err(|error| Error::new(ErrorKind::NotARequest, error.to_string()).at("messages"))
    }

    /// Compares the client's messages with the conversation.
    ///
    /// Reasoning and activities do not count: many clients do not send them.
    pub fn compare(&self, messages: &[Msg]) -> HistoryDifference {
        let mut comparison = self.comparison();
        for message in messages {
            comparison.add(message);
        }
        comparison.difference()
    }

    /// Starts a comparison, for a conversation that is read message by message.
    pub fn comparison(&self) -> HistoryComparison<'_> {
        let with_id = |fields| Some((string_field(fields, "id")?, fields));
        let joined = if self.protocol_version.is_none() { &*self.messages } else { &[] };
        HistoryComparison {
            by_id: self.messages.iter().filter_map(with_id).collect(),
            calls: joined.iter().flat_map(tool_calls).collect(),
            results: joined.iter().filter_map(|it| string_field(it, "toolCallId")).collect(),
            found: HistoryDifference::None,
        }
    }

    /// The ids of the client's messages.
    pub fn message_ids(&self) -> HashSet<String> {
        self.messages.iter().filter_map(|fields| string_field(fields, "id")).collect()
    }

    /// The last message, if it is the user's: its id.
    pub fn last_user_id(&self) -> Option<String> {
        let last = self.messages.last()?;
        let is_user = string_field(last, "role").as_deref() == Some("user");
        string_field(last, "id").filter(|_| is_user)
    }

    /// The replies of which the client has at least a part.
    pub fn reply_ids(&self) -> HashSet<String> {
        let replies = self.messages.iter().filter_map(|fields| {
            let metadata = fields.get::<Fields>("metadata").ok().flatten()?;
            string_field(&metadata.get::<Fields>(METADATA_KEY).ok().flatten()?, "reply")
        });
        replies.collect()
    }

    /// The user messages with new ids, in order. Everything else in the client's history is
    /// ignored.
    pub fn new_messages(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<Msg>> {
        let mut new = Vec::new();
        for (at, fields) in self.messages.iter().enumerate() {
            let role: Option<String> = fields.get("role").ok().flatten();
            let id: String = fields.get("id").ok().flatten().unwrap_or_default();
            if role.as_deref() != Some("user") || is_known(&id) {
                continue;
            }
            let read = read_message_list(vec![without_own_metadata(fields)]).map_err(|error| {
                Error::new(ErrorKind::NotARequest, error.message()).at(format!("messages[{at}]"))
            })?;
            new.extend(read.into_iter().filter(|msg| msg.role() == Role::User));
        }
        Ok(new)
    }

    /// The answers to pending calls.
    ///
    /// A decision is `{approved, editedArgs?}`; a cancelled interrupt rejects the call. A result is
    /// a tool message.
    pub fn answers(&self, waiting: &[PendingReply<'_>]) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut used: HashSet<&str> = HashSet::new();
        for reply in waiting {
            let mut results = Vec::new();
            for call in reply.external {
                if let Some(result) = self.find_result(call)? {
                    results.push(result);
                } else if let Some(answer) = self.find_answer(&call.id) {
                    used.insert(&answer.interrupt_id);
                    results.push(answer.to_tool_result(call));
                }
            }
            let mut decisions = Vec::new();
            for call in reply.confirm {
                let Some((at, answer)) = self.find_indexed_answer(&call.id) else { continue };
                used.insert(&answer.interrupt_id);
                let decision = answer.to_confirm_result(call);
                decisions.push(decision.map_err(|error| error.at(format!("resume[{at}]")))?);
            }
            let event = |kind: turnwire_core::EventKind<'static>| {
                let mut event = Event::new(reply.reply_id.to_owned(), kind);
                event.agent = reply.agent.cloned().map(Box::new);
                event
            };
            if !results.is_empty() {
                let kind = ExternalExecutionResult { execution_results: results };
                answers.events.push(event(kind.into()));
            }
            if !decisions.is_empty() {
                let kind = UserConfirmResult { confirm_results: decisions };
                answers.events.push(event(kind.into()));
            }
        }
        let ids = self.resume.iter().map(|answer| answer.interrupt_id.as_str());
        answers.unknown = ids.filter(|id| !used.contains(id)).map(str::to_owned).collect();
        // Results of all replies first: only `RUN_STARTED` can carry them.
        answers.events.sort_by_key(|event| {
            matches!(event.kind, turnwire_core::EventKind::UserConfirmResult(_))
        });
        Ok(answers)
    }

    fn find_indexed_answer(&self, call: &str) -> Option<(usize, &Answer)> {
        self.resume.iter().enumerate().find(|(_, answer)| answer.interrupt_id == call)
    }

    fn find_answer(&self, call: &str) -> Option<&Answer> {
        self.find_indexed_answer(call).map(|(_, answer)| answer)
    }

    /// The tool message with a call's result. It must come after the last user message: an earlier
    /// one belongs to an earlier turn, whose calls may have had the same ids.
    fn find_result(&self, call: &ToolCall) -> Result<Option<ToolResult>> {
        let is_of = |fields: &Fields, role: &str| {
            fields.get::<String>("role").ok().flatten().as_deref() == Some(role)
        };
        let messages = self.messages.iter().enumerate().rev();
        let found =
            messages.take_while(|(_, fields)| !is_of(fields, "user")).find(|(_, fields)| {
                fields.get::<String>("toolCallId").ok().flatten().as_deref() == Some(&call.id)
                    && is_of(fields, "tool")
            });
        let Some((at, fields)) = found else { return Ok(None) };
        let read = read_message_list(vec![without_own_metadata(fields)]).map_err(|error| {
            Error::new(ErrorKind::NotARequest, error.message()).at(format!("messages[{at}]"))
        })?;
        let blocks = read.into_iter().flat_map(|msg| msg.content().to_vec());
        let result = blocks.into_iter().find_map(|block| {
            let ContentBlock::ToolResult(result) = block else { return None };
            Some(result)
        });
        Ok(result.map(|result| {
            let id: Option<String> = fields.get("id").ok().flatten();
            let mut rest = Fields::default();
            rest.insert_some(MESSAGE_ID, id);
            ToolResult { rest, ..result }.named(&call.name)
        }))
    }
}

/// A client's message without our metadata, which is ignored in requests.
fn without_own_metadata(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    if let Ok(Some(mut metadata)) = fields.get::<Fields>("metadata") {
        metadata.remove(METADATA_KEY);
        fields.insert("metadata", crate::json::to_json(&metadata));
    }
    fields
}

impl Answer {
    fn to_confirm_result(&self, call: &ToolCall) -> Result<ConfirmResult> {
        let mut decision = ConfirmResult {
            tool_call: ToolCall::new(&call.id, &call.name, ""),
            ..ConfirmResult::default()
        };
        if self.cancelled {
            return Ok(decision);
        }
        let payload = self.payload.as_ref().and_then(|payload| payload.parse_as::<Fields>().ok());
        let mut payload = payload.ok_or_else(|| {
            Error::new(ErrorKind::NotARequest, "expected an object with `approved`").at("payload")
        })?;
        let at = |error: Error| error.at("payload");
        decision.confirmed = require_field(&mut payload, "approved").map_err(at)?;
        if let Some(input) = payload.remove("editedArgs").filter(|input| !input.is_null()) {
            if !input.text().starts_with('{') {
                let error = Error::new(ErrorKind::NotARequest, "`editedArgs` is not an object");
                return Err(error.at("payload"));
            }
            input.text().clone_into(&mut decision.tool_call.input);
        }
        Ok(decision)
    }

    fn to_tool_result(&self, call: &ToolCall) -> ToolResult {
        let result = match &self.payload {
            _ if self.cancelled => ToolResult {
                state: ToolResultState::Interrupted,
                ..ToolResult::success(&call.id, "The call was cancelled.")
            },
            Some(payload) => {
                let text =
                    payload.parse_as::<String>().unwrap_or_else(|_| payload.text().to_owned());
                ToolResult::success(&call.id, Payload::Text(text))
            }
            None => ToolResult::success(&call.id, ""),
        };
        result.named(&call.name)
    }
}

fn read_tool(mut fields: Fields) -> Result<ToolDefinition> {
    let input: Option<Json> = take_field(&mut fields, "parameters")?;
    Ok(ToolDefinition {
        name: require_id(&mut fields, "name")?,
        description: take_field(&mut fields, "description")?.unwrap_or_default(),
        input_schema: input.unwrap_or_else(|| json!({ "type": "object" }).into()),
        ..ToolDefinition::default()
    })
}

fn read_answer(mut fields: Fields) -> Result<Answer> {
    let status: String = require_field(&mut fields, "status")?;
    let cancelled = match status.as_str() {
        "resolved" => false,
        "cancelled" => true,
        other => {
            return Err(Error::new(
                ErrorKind::NotARequest,
                format!("`status` is `{other}`; expected resolved or cancelled"),
            ));
        }
    };
    let interrupt_id = require_id(&mut fields, "interruptId")?;
    Ok(Answer { interrupt_id, payload: take_field(&mut fields, "payload")?, cancelled })
}

fn read_each<T>(
    key: &str,
    list: Vec<Fields>,
    read: impl Fn(Fields) -> Result<T>,
) -> Result<Vec<T>> {
    let all = list.into_iter().enumerate();
    all.map(|(at, fields)| read(fields).map_err(|error| error.at(format!("{key}[{at}]")))).collect()
}

fn invalid_request(error: &Error) -> Error {
    Error::new(ErrorKind::NotARequest, error.message())
}

fn take_field<T: serde::de::DeserializeOwned>(fields: &mut Fields, key: &str) -> Result<Option<T>> {
    fields.take(key).map_err(|error| invalid_request(&error).at(key))
}

fn require_field<T: serde::de::DeserializeOwned>(fields: &mut Fields, key: &str) -> Result<T> {
    take_field(fields, key)?
        .ok_or_else(|| Error::new(ErrorKind::NotARequest, format!("`{key}` is missing")))
}

fn require_id(fields: &mut Fields, key: &str) -> Result<String> {
    let id: String = require_field(fields, key)?;
    if id.is_empty() {
        return Err(Error::new(ErrorKind::NotARequest, format!("`{key}` is empty")));
    }
    Ok(id)
}
