//! An agent in the place of a model: what its clients ask, and an answer in one piece.
//!
//! ```
//! use turnwire_wires::openai_chat;
//!
//! let asked = openai_chat::read_request(r#"{"model": "friday", "messages": [
//!     {"role": "system", "content": "Be brief."},
//!     {"role": "user", "content": "Hi!"},
//!     {"role": "assistant", "content": "Whatever the client says that we said."},
//!     {"role": "user", "content": "And now?"}
//! ]}"#)?;
//! assert_eq!(asked.instructions.as_deref(), Some("Be brief."));
//! assert_eq!(asked.said.len(), 2);
//! assert_eq!(asked.new_messages()[0].text("").as_deref(), Some("And now?"));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, Json, Msg, Result, Role, TextBlock, ToolCall,
    ToolResult,
};

/// What a client asks of an agent that it takes for a model. What it says that the assistant said is
/// not in here.
#[derive(Debug, Clone, Default)]
pub struct ClientRequest {
    /// The model, which is an agent.
    pub model: String,
    /// Whether the answer comes as a stream.
    pub stream: bool,
    /// Whether the stream ends with the tokens, where a protocol leaves that to the client.
    pub include_usage: bool,
    /// What the client tells the model beforehand.
    pub instructions: Option<String>,
    /// The tools that the client executes.
    pub tools: Vec<ClientToolDefinition>,
    /// The form that the answer is to have: a JSON Schema.
    pub output_schema: Option<Json>,
    /// Everything else, by the protocol's own names.
    pub extra: Fields,
    /// All messages of the user's, oldest first.
    pub user_messages: Vec<Msg>,
    /// How many of them stand before the last message of the assistant's.
    pub before_last_reply: usize,
    /// The results of calls behind the last message of the assistant's.
    pub results: Vec<ToolResult>,
    /// What the conversation is recognised by.
    pub claimed_history: ClaimedHistory,
}

/// What a client says of its conversation. It is compared with what the log has, to find the session that
/// results of calls belong to, and is never taken for what was said.
#[derive(Debug, Clone, Default)]
pub struct ClaimedHistory {
    /// The user's words before the last of the assistant's, without white space.
    pub user_text: String,
    /// What the assistant is said to have said since the user's last words.
    pub assistant_texts: Vec<String>,
    /// The calls that it is said to have made since then.
    pub calls: Vec<ToolCall>,
    /// Their results, as far as the client has them.
    pub results: Vec<ToolResult>,
    /// The user's words behind the last of the assistant's; `None`: there are none.
    new_user_text: Option<String>,
}

impl ClaimedHistory {
    /// Takes the next message of the conversation.
    pub fn add_message(&mut self, msg: &Msg) {
        if msg.role() == Role::Assistant
            && let Some(newest) = self.new_user_text.take()
        {
            self.user_text.push_str(&newest);
            (self.assistant_texts, self.calls, self.results) = (Vec::new(), Vec::new(), Vec::new());
        }
        for block in msg.content() {
            match (msg.role(), block) {
                (Role::User, ContentBlock::Text(block)) => {
                    let newest = self.new_user_text.get_or_insert_default();
                    newest.push_str(&strip_whitespace(&block.text));
                }
                (Role::User, ContentBlock::Data(_)) => {
                    self.new_user_text.get_or_insert_default();
                }
                (Role::Assistant, ContentBlock::Text(block)) => {
                    self.assistant_texts.push(strip_whitespace(&block.text));
                }
                (_, ContentBlock::ToolCall(call)) => self.calls.push(call.clone()),
                (_, ContentBlock::ToolResult(result)) => self.results.push(result.clone()),
                _ => {}
            }
        }
    }
}

/// A text without white space: clients cut it off, split and join texts.
pub fn strip_whitespace(text: &str) -> String {
    text.split_whitespace().collect()
}

/// A tool that the client executes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Option<Json>,
}

impl ClientRequest {
    /// What the user said behind the last message of the assistant's: what lies further back the
    /// client only repeats.
    pub fn new_messages(&self) -> &[Msg] {
        self.user_messages.get(self.before_last_reply..).unwrap_or_default()
    }

    /// Takes a message that was read.
    pub(crate) fn add_message(&mut self, msg: Msg) {
        self.claimed_history.add_message(&msg);
        match msg.role() {
            Role::User => self.user_messages.push(msg),
            Role::System => self.add_instructions(&msg.text("\n").unwrap_or_default()),
            Role::Assistant | Role::Tool => {
                self.results.extend(msg.content().iter().filter_map(|block| match block {
                    ContentBlock::ToolResult(result) => Some(result.clone()),
                    _ => None,
                }));
            }
        }
    }

    /// Here the client says that the assistant said this; what cannot be read is passed over.
    pub(crate) fn add_claimed_reply(&mut self, said: Result<Vec<Msg>>) {
        self.before_last_reply = self.user_messages.len();
        self.results.clear();
        said.into_iter().flatten().for_each(|msg| self.claimed_history.add_message(&msg));
    }

    pub(crate) fn add_instructions(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let instructions = self.instructions.get_or_insert_default();
        if !instructions.is_empty() {
            instructions.push_str("\n\n");
        }
        instructions.push_str(text);
    }

    /// An error unless there is something to do, and every message says something.
    pub(crate) fn validate(self) -> Result<Self> {
        if self.model.is_empty() {
            return Err(invalid_request("`model` is missing: it is the name of an agent"));
        }
        if self.user_messages.is_empty() && self.results.is_empty() {
            return Err(invalid_request("`messages` has nothing of the user's"));
        }
        let is_blank = |block: &ContentBlock| matches!(block, ContentBlock::Text(TextBlock { text, .. }) if text.trim().is_empty());
        if self.user_messages.iter().any(|msg| msg.content().iter().all(is_blank)) {
            return Err(invalid_request("a message of the user's says nothing"));
        }
        Ok(self)
    }
}

/// A request that cannot be done.
pub(crate) fn invalid_request(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::NotARequest, message)
}

/// A field of a request, with its name in the error.
pub(crate) fn take_field<T: serde::de::DeserializeOwned>(
    fields: &mut Fields,
    name: &str,
) -> Result<Option<T>> {
    match fields.remove(name) {
        Some(json) if !json.is_null() => json
            .parse_as()
            .map(Some)
            .map_err(|error| invalid_request(format!("`{name}` {}", error.message()))),
        _ => Ok(None),
    }
}

/// The frames of a stream, put together as the protocol has an answer in one piece.
pub trait ResponseCollector: Send {
    /// Takes the next frame.
    fn push_frame(&mut self, text: &str);

    /// The answer, or what went wrong.
    fn finish(self: Box<Self>) -> Result<Json, ErrorResponse>;
}

/// A reply that failed, as the protocol tells it without a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Json,
}

impl ErrorResponse {
    /// By the protocol's word for what went wrong. That the agent's own key does not open its model's
    /// door is no fault of the client's.
    pub(crate) fn new(kind: &str, body: Json) -> Self {
        let status = match kind {
            "invalid_request_error" => 400,
            "rate_limit_error" => 429,
            _ => 500,
        };
        Self { status, body }
    }
}
