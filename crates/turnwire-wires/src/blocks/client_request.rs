//! The commands of a client, and the server's answers outside of turns.
//!
//! ```
//! use turnwire_wires::blocks::{AnswerFrame, Command, IncomingCommand, ServerAnswer};
//!
//! let incoming = IncomingCommand::from_json(r#"{"type":"stop","session_id":"abc-123","id":7}"#);
//! let Ok(Command::Stop { session_id }) = incoming.command else { panic!() };
//! assert_eq!(session_id, "abc-123");
//!
//! let pong = AnswerFrame { answer: ServerAnswer::Pong, id: incoming.id };
//! assert_eq!(pong.to_json(), r#"{"type":"pong","id":7}"#);
//!
//! let error = Command::from_json(r#"{"type":"subscribe"}"#).unwrap_err();
//! assert_eq!(error.to_string(), "NotARequest: subscribe has no `session_id`");
//! ```

use super::approval::{Approval, ApprovalDetails, ApprovalKey, Decision};
use super::conversions::{DisplayMode, mode_name, parse_mode, source};
use super::message::HistoryEncoder;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use turnwire_core::{DataBlock, Error, ErrorKind, Fields, Json, Msg, Part, Result};

/// A command, and the id that its answer repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingCommand {
    /// The client's id for the command, also if the command is invalid.
    pub id: Option<Json>,
    /// Its `type`, known or not.
    pub command_type: Option<String>,
    /// The command, or why it is invalid.
    pub command: Result<Command>,
}

/// A client's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Authenticates.
    Auth {
        /// The credential.
        token: String,
    },
    /// Subscribes to a session.
    Subscribe {
        /// The session's id.
        session_id: String,
        /// The last event that the client has. Default: everything from the start.
        last_event_id: Option<String>,
    },
    /// Sends a message to the agent.
    Chat(Chat),
    /// Answers an approval request.
    Approval(Approval),
    /// Stops the turn.
    Stop {
        /// The session's id.
        session_id: String,
    },
    /// Keeps the connection alive.
    Ping,
}

/// A message to the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chat {
    /// The session's id. Default: a new session.
    pub session_id: Option<String>,
    /// The text.
    pub message: String,
    /// Files of the message.
    pub content_urls: Vec<ContentUrl>,
    /// How much of the agent's work is shown.
    pub display_mode: Option<DisplayMode>,
}

/// A file of a message: a URL, or an object with these fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentUrl {
    /// Its URL.
    pub url: String,
    /// Its name.
    pub name: Option<String>,
    /// Its media type.
    pub mime_type: Option<String>,
}

/// What the server sends outside of turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerAnswer {
    /// The socket is open.
    Connected,
    /// The credentials are valid.
    AuthOk,
    /// The session's events follow.
    Subscribed {
        /// The session's id.
        session_id: String,
        /// Whether a turn runs.
        status: SubscriptionStatus,
    },
    /// The message is in the log, and its turn starts.
    Accepted {
        /// The session's id.
        session_id: String,
        /// The turn's id.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
    },
    /// The answer to a ping.
    Pong,
    /// The command failed.
    Error {
        /// The error code.
        code: String,
        /// What happened.
        message: String,
        /// What to do.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// The command's type.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// The session's id, if no command caused the error.
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
    },
}

impl ServerAnswer {
    /// An error without a hint.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        Self::Error { code, message, hint: None, command: None, session_id: None }
    }
}

/// Whether a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionStatus {
    /// A turn runs, or waits for the user.
    Running,
    /// No turn runs.
    Completed,
}

/// An answer with the id of its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerFrame {
    /// The answer.
    #[serde(flatten)]
    pub answer: ServerAnswer,
    /// The client's id for the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Json>,
}

/// The response of `GET /v2/sessions/{id}/history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BlocksHistory"))]
pub struct History {
    /// The session's id.
    pub session_id: String,
    /// Its messages, oldest first.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Fields>"))]
    pub messages: Vec<Json>,
    /// The number of messages.
    pub message_count: usize,
    /// The state of the last turn.
    pub status: Status,
    /// The pending approval request.
    pub pending_approval: Option<PendingApproval>,
    /// How much of the agent's work is shown.
    #[serde(serialize_with = "write_mode")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub display_mode: DisplayMode,
    /// Data that the application keeps with the session.
    pub workspace: Option<Json>,
    /// What the agent does.
    pub agent_status: Option<String>,
    /// The position to subscribe from.
    pub last_event_id: Option<String>,
}

/// The state of a session's last turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BlocksStatus"))]
pub enum Status {
    /// It has ended.
    #[default]
    Completed,
    /// It was stopped.
    Cancelled,
    /// It failed.
    Error,
    /// It waits for an approval.
    WaitingApproval,
    /// It runs. Our addition: the protocol does not define a value for this.
    Running,
}

/// A pending approval request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BlocksPendingApproval"))]
pub struct PendingApproval {
    /// The request's key.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub approval_key: ApprovalKey,
    /// The reply that waits: the turn's, or a sub-agent's.
    pub reply_id: String,
    /// The request.
    #[serde(flatten)]
    pub request: ApprovalDetails,
}

const COMMANDS: &[&str] = &["auth", "subscribe", "chat", "approval", "stop", "ping"];

impl IncomingCommand {
    /// Reads a client's frame.
    pub fn from_json(text: &str) -> Self {
        let fields = match parse_fields(text) {
            Ok(fields) => fields,
            Err(error) => return Self { id: None, command_type: None, command: Err(error) },
        };
        let id = fields.raw("id").filter(|id| !id.is_null()).cloned();
        let word = fields.get::<String>("type").ok().flatten();
        Self { id, command_type: word, command: read_command(&fields) }
    }
}

impl Command {
    /// Reads a command.
    pub fn from_json(text: &str) -> Result<Self> {
        read_command(&parse_fields(text)?)
    }
}

fn parse_fields(text: &str) -> Result<Fields> {
    let json = Json::parse(text)?;
    json.parse_as().map_err(|_| bad_request("expected a JSON object with a `type`"))
}

fn read_command(fields: &Fields) -> Result<Command> {
    let known = || COMMANDS.join(", ");
    let Some(word) = fields.get::<String>("type").ok().flatten() else {
        return Err(bad_request(format!("`type` is missing; expected one of {}", known())));
    };
    let from = CommandFields { word: &word, fields };
    Ok(match word.as_str() {
        "auth" => Command::Auth { token: from.need("token")? },
        "subscribe" => Command::Subscribe {
            session_id: from.need("session_id")?,
            last_event_id: from.resume_token()?,
        },
        "chat" => Command::Chat(from.chat()?),
        "approval" => Command::Approval(from.approval()?),
        "stop" => Command::Stop { session_id: from.need("session_id")? },
        "ping" => Command::Ping,
        _ => {
            let word: String = word.chars().take(64).collect();
            let message = format!("unknown command `{word}`; expected one of {}", known());
            return Err(bad_request(message));
        }
    })
}

pub(super) fn bad_request(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::NotARequest, message)
}

/// A command's fields, with its type for error messages.
struct CommandFields<'a> {
    word: &'a str,
    fields: &'a Fields,
}

impl CommandFields<'_> {
    fn text(&self, field: &str) -> Result<Option<String>> {
        let read = self.fields.get::<String>(field);
        read.map_err(|_| bad_request(format!("`{field}` of {} is not a string", self.word)))
    }

    fn need(&self, field: &str) -> Result<String> {
        let text = self.text(field)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| bad_request(format!("{} has no `{field}`", self.word)))
    }

    /// A resume token is a string; some clients send it as a number.
    fn resume_token(&self) -> Result<Option<String>> {
        if let Ok(Some(number)) = self.fields.get::<u64>("last_event_id") {
            return Ok(Some(number.to_string()));
        }
        Ok(self.text("last_event_id")?.filter(|token| !token.is_empty()))
    }

    fn list(&self, field: &str) -> Result<Vec<Json>> {
        let list = self.fields.get::<Vec<Json>>(field);
        let list =
            list.map_err(|_| bad_request(format!("`{field}` of {} is not a list", self.word)))?;
        Ok(list.unwrap_or_default())
    }

    fn chat(&self) -> Result<Chat> {
        let urls = self.list("content_urls")?;
        let content_urls: Vec<ContentUrl> = urls
            .iter()
            .enumerate()
            .map(|(at, json)| {
                read_content_url(json).ok_or_else(|| self.item_error("content_urls", at, "a URL"))
            })
            .collect::<Result<_>>()?;
        let message = self.text("message")?.unwrap_or_default();
        if message.trim().is_empty() && content_urls.is_empty() {
            return Err(bad_request("chat has no `message`"));
        }
        let display_mode = match self.text("display_mode")? {
            None => None,
            Some(word) => Some(parse_mode(&word).ok_or_else(|| {
                bad_request(format!("`display_mode` of chat must be agent or chat, not `{word}`"))
            })?),
        };
        let session_id = self.text("session_id")?.filter(|id| !id.is_empty());
        Ok(Chat { session_id, message, content_urls, display_mode })
    }

    fn item_error(&self, field: &str, at: usize, what: &str) -> Error {
        bad_request(format!("`{field}[{at}]` of {} is not {what}", self.word))
    }

    fn approval(&self) -> Result<Approval> {
        let key = self.need("approval_key")?;
        let approval_key = ApprovalKey::parse(&key).ok_or_else(|| {
            bad_request(format!("`approval_key` of approval must be SESSION_COUNT, not `{key}`"))
        })?;
        // The key contains the session's id too.
        let session_id = match self.text("session_id")? {
            Some(session_id) if !session_id.is_empty() => session_id,
            _ => approval_key.session_id.clone(),
        };
        if session_id != approval_key.session_id {
            return Err(bad_request("`approval_key` of approval belongs to another session"));
        }
        let list = self.list("decisions")?;
        if list.is_empty() {
            return Err(bad_request("approval has no `decisions`"));
        }
        let read = |(at, json): (usize, &Json)| {
            Decision::from_json(json).map_err(|what| self.item_error("decisions", at, what))
        };
        let decisions = list.iter().enumerate().map(read).collect::<Result<_>>()?;
        Ok(Approval { session_id, approval_key, decisions })
    }
}

fn read_content_url(json: &Json) -> Option<ContentUrl> {
    let content = if let Ok(url) = json.parse_as::<String>() {
        ContentUrl { url, ..ContentUrl::default() }
    } else {
        let fields: Fields = json.parse_as().ok()?;
        let text = |field: &str| fields.get::<String>(field).ok().flatten();
        ContentUrl { url: text("url")?, name: text("name"), mime_type: text("mime_type") }
    };
    Some(content).filter(|content| !content.url.trim().is_empty())
}

impl Chat {
    /// The message for the log: its text, its files, and the display mode.
    pub fn to_msg(&self) -> Msg {
        let words = (!self.message.trim().is_empty()).then(|| Part::from(self.message.as_str()));
        let files = self.content_urls.iter().map(|file| {
            let source = source(&file.url, file.mime_type.clone());
            Part::Data(DataBlock { name: file.name.clone(), ..DataBlock::from_source(source) })
        });
        let msg = Msg::user("user", words.into_iter().chain(files).collect::<Vec<_>>());
        let Some(mode) = self.display_mode else { return msg };
        let marked = msg.to_builder().metadata("display_mode", mode_name(mode)).build();
        marked.unwrap_or(msg)
    }
}

impl AnswerFrame {
    /// The frame.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl History {
    /// The history of an idle session. The display mode is that of its last user message.
    pub fn from_messages(session_id: impl Into<String>, messages: &[Msg]) -> Self {
        let mut encoder = HistoryEncoder::default();
        let messages = encoder.encode(messages);
        Self { messages, ..Self::from_encoder(session_id, &encoder) }
    }

    /// The history without its messages, which were written already.
    pub fn from_encoder(session_id: impl Into<String>, written: &HistoryEncoder) -> Self {
        Self {
            session_id: session_id.into(),
            message_count: written.count(),
            messages: Vec::new(),
            status: Status::default(),
            pending_approval: None,
            display_mode: written.display_mode(),
            workspace: None,
            agent_status: None,
            last_event_id: None,
        }
    }

    /// The response before and after the messages, to stream it.
    pub fn split_around_messages(&self) -> (String, String) {
        const MESSAGES: &str = "\"messages\":[";
        let mut json = Self { messages: Vec::new(), ..self.clone() }.to_json();
        // Quotes inside strings are escaped, so this is the field.
        let at = json.find(MESSAGES).map_or(json.len(), |at| at + MESSAGES.len());
        let behind = json.split_off(at);
        (json, behind)
    }

    /// The response.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over like this")]
fn write_mode<S: Serializer>(mode: &DisplayMode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode_name(*mode))
}
