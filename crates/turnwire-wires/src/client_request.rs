//! Requests of clients that use an agent as if it were a model: chat completions and Anthropic Messages. The server calls
//! this.
//!
//! ```
//! use turnwire_wires::openai_chat;
//!
//! let request = openai_chat::read_request(r#"{"model": "friday", "messages": [
//!     {"role": "system", "content": "Be brief."},
//!     {"role": "user", "content": "Hi!"},
//!     {"role": "assistant", "content": "Whatever the client says that we said."},
//!     {"role": "user", "content": "And now?"}
//! ]}"#)?;
//! assert_eq!(request.instructions.as_deref(), Some("Be brief."));
//! assert_eq!(request.user_messages.len(), 2);
//! assert_eq!(request.new_messages()[0].text("").as_deref(), Some("And now?"));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, Json, Msg, Result, Role, TextBlock, ToolCall,
    ToolResult,
};

/// A request of a client. What it claims that the assistant said is only in `claimed_history`.
#[derive(Debug, Clone, Default)]
pub struct ClientRequest {
    /// The model, which is the name of an agent.
    pub model: String,
    /// Whether to stream the answer.
    pub stream: bool,
    /// Whether the stream reports the tokens, if the protocol lets the client choose.
    pub include_usage: bool,
    /// The client's system prompt.
    pub instructions: Option<String>,
    /// The tools that the client executes.
    pub tools: Vec<ClientToolDefinition>,
    /// The JSON Schema that the answer must match.
    pub output_schema: Option<Json>,
    /// All other fields, by the protocol's names.
    pub extra: Fields,
    /// All user messages, oldest first.
    pub user_messages: Vec<Msg>,
    /// How many of them come before the last assistant message.
    pub before_last_reply: usize,
    /// The tool results after the last assistant message.
    pub results: Vec<ToolResult>,
    /// What the client claims about its conversation, to find its session.
    pub claimed_history: ClaimedHistory,
}

/// What a client claims about its conversation. It is compared with the log, to find the session that tool results belong
/// to. It is never added to a session.
#[derive(Debug, Clone, Default)]
pub struct ClaimedHistory {
    /// The user's text before the last assistant message, without white space.
    pub user_text: String,
    /// The assistant's texts since then.
    pub assistant_texts: Vec<String>,
    /// The assistant's tool calls since then.
    pub calls: Vec<ToolCall>,
    /// Their results, if the client has them.
    pub results: Vec<ToolResult>,
    /// The user's text after the last assistant message, if there is any.
    new_user_text: Option<String>,
}

impl ClaimedHistory {
    /// Adds the next message of the conversation.
    pub fn add_message(&mut self, msg: &Msg) {
        if msg.role() == Role::Assistant
            && let Some(newest) = self.new_user_text.take()
        {
            self.user_text.push_str(&newest);
            (self.assistant_texts, self.calls, self.results) = (Vec::new(), Vec::new(), Vec::new());
        }
        for block in msg.content() {
            match block {
                ContentBlock::Text(block) => match msg.role() {
                    Role::User => {
                        let newest = self.new_user_text.get_or_insert_default();
                        newest.push_str(&strip_whitespace(&block.text));
                    }
                    Role::Assistant => self.assistant_texts.push(strip_whitespace(&block.text)),
                    Role::System | Role::Tool => {}
                },
                ContentBlock::Data(_) if msg.role() == Role::User => {
                    self.new_user_text.get_or_insert_default();
                }
                ContentBlock::ToolCall(call) => self.calls.push(call.clone()),
                ContentBlock::ToolResult(result) => self.results.push(result.clone()),
                ContentBlock::Data(_)
                | ContentBlock::Thinking(_)
                | ContentBlock::Hint(_)
                | ContentBlock::Other(_) => {}
            }
        }
    }
}

/// A text without white space, to compare texts that clients trim, split and join.
pub fn strip_whitespace(text: &str) -> String {
    text.split_whitespace().collect()
}

/// A tool that the client executes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientToolDefinition {
    /// The tool's name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Option<Json>,
}

impl ClientToolDefinition {
    /// Reads a tool whose JSON Schema is in this field.
    pub(crate) fn read(mut fields: Fields, schema: &str) -> Result<Self> {
        let name: Option<String> = take_field(&mut fields, "name")?;
        let name = name.filter(|name| !name.is_empty());
        Ok(Self {
            name: name.ok_or_else(|| invalid_request("a tool has no `name`"))?,
            description: take_field(&mut fields, "description")?.unwrap_or_default(),
            input_schema: fields.remove(schema).filter(|schema| !schema.is_null()),
        })
    }
}

impl ClientRequest {
    /// The user messages after the last assistant message: the client only repeats the earlier ones.
    pub fn new_messages(&self) -> &[Msg] {
        self.user_messages.get(self.before_last_reply..).unwrap_or_default()
    }

    /// Reads the fields that all protocols share; returns the others.
    pub(crate) fn read(text: &str) -> Result<(Self, Fields)> {
        let mut fields: Fields = Json::parse(text)?
            .parse_as()
            .map_err(|_| invalid_request("a request must be a JSON object"))?;
        let request = Self {
            model: take_field(&mut fields, "model")?.unwrap_or_default(),
            stream: take_field(&mut fields, "stream")?.unwrap_or_default(),
            ..Self::default()
        };
        Ok((request, fields))
    }

    /// Reads `messages`. A client cannot change what the assistant said: its version is only compared.
    pub(crate) fn read_messages(
        &mut self,
        fields: &mut Fields,
        decode: fn(&str) -> Result<Vec<Msg>>,
    ) -> Result<()> {
        let messages: Option<Vec<Fields>> = take_field(fields, "messages")?;
        let messages = messages.ok_or_else(|| invalid_request("`messages` is missing"))?;
        for (at, message) in messages.into_iter().enumerate() {
            let read = decode(Json::from_value(&message)?.text());
            if message.raw("role").is_some_and(|role| *role == Json::from("assistant")) {
                self.add_claimed_reply(read);
                continue;
            }
            for msg in read.map_err(|error| error.at(format!("messages[{at}]")))? {
                self.add_message(msg);
            }
        }
        Ok(())
    }

    /// Adds a message of the request.
    pub(crate) fn add_message(&mut self, msg: Msg) {
        self.claimed_history.add_message(&msg);
        match msg.role() {
            Role::User => self.user_messages.push(msg),
            Role::System => self.add_instructions(&msg.text("\n").unwrap_or_default()),
            Role::Assistant | Role::Tool => {
                self.results.extend(msg.blocks::<ToolResult>().cloned());
            }
        }
    }

    /// Adds what the client claims that the assistant said. What cannot be read is skipped.
    pub(crate) fn add_claimed_reply(&mut self, messages: Result<Vec<Msg>>) {
        self.before_last_reply = self.user_messages.len();
        self.results.clear();
        messages.into_iter().flatten().for_each(|msg| self.claimed_history.add_message(&msg));
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

    /// Refuses a request without a model, without user input, or with an empty user message.
    pub(crate) fn validate(self) -> Result<Self> {
        if self.model.is_empty() {
            return Err(invalid_request("`model` is missing; set it to the name of an agent"));
        }
        if self.user_messages.is_empty() && self.results.is_empty() {
            return Err(invalid_request("`messages` has neither a user message nor a tool result"));
        }
        let is_blank = |block: &ContentBlock| matches!(block, ContentBlock::Text(TextBlock { text, .. }) if text.trim().is_empty());
        if self.user_messages.iter().any(|msg| msg.content().iter().all(is_blank)) {
            return Err(invalid_request("a user message is empty"));
        }
        Ok(self)
    }
}

/// An error for a request that cannot be served.
pub(crate) fn invalid_request(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::NotARequest, message)
}

/// Takes a field out of a request. The error names the field.
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
