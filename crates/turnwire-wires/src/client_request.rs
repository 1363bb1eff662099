//! Requests of clients that use an agent as if it were a model: chat completions and Anthropic Messages. The server calls
//! this.
//!
//! ```
//! use turnwire_wires::openai_chat;
//!
//! let request = openai_chat::read_request(r#"{"model": "friday", "messages": [
//!     {"role": "system", "content": "Be brief."},
//!     {"role": "user", "content": "Hi!"},
//!     {"role": "assistant", "content": "Hello."},
//!     {"role": "user", "content": "And now?"}
//! ]}"#)?;
//! assert_eq!(request.messages.len(), 4);
//! assert_eq!(request.messages[0].text("").as_deref(), Some("Be brief."));
//! assert_eq!(request.messages[3].text("").as_deref(), Some("And now?"));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::model_options::ModelOptions;
use crate::model_request::ToolKind;
use serde_json::value::RawValue;
use turnwire_core::{Error, ErrorKind, Fields, Json, Msg, Result, Role, ToolResult};

/// A request of a client.
#[derive(Debug, Clone, Default)]
pub struct ClientRequest {
    /// The model, which is the name of an agent.
    pub model: String,
    /// Whether to stream the answer.
    pub stream: bool,
    /// Whether the stream reports the tokens, if the protocol lets the client choose.
    pub include_usage: bool,
    /// The tools that the client executes.
    pub tools: Vec<ClientToolDefinition>,
    /// The JSON Schema that the answer must match.
    pub output_schema: Option<Json>,
    /// All other fields, by the protocol's names: the options of the model call.
    pub extra: Fields,
    /// The whole conversation as the client sends it, with its system prompts. What it says of earlier turns is its
    /// claim.
    pub messages: Vec<Msg>,
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
    /// Whether the provider enforces the schema, if the client says so.
    pub strict: Option<bool>,
    /// What kind of tool it is.
    pub kind: ToolKind,
    /// Of a function: its other fields. Of any other tool: all of it.
    pub fields: Fields,
    /// The group that the function belongs to.
    pub namespace: Option<String>,
}

impl ClientToolDefinition {
    /// Reads a function whose JSON Schema is in this field.
    pub(crate) fn read(mut fields: Fields, schema: &str) -> Result<Self> {
        let name = take_name(&mut fields)?;
        let input_schema = fields.remove(schema).filter(|schema| !schema.is_null());
        if input_schema.as_ref().is_some_and(|schema| !schema.text().starts_with('{')) {
            return Err(invalid_request(format!(
                "`{schema}` of the tool {name} is not a JSON Schema"
            )));
        }
        Ok(Self {
            name,
            description: take_field(&mut fields, "description")?.unwrap_or_default(),
            input_schema,
            strict: take_field(&mut fields, "strict")?,
            fields,
            ..Self::default()
        })
    }

    /// A tool of another kind. It is passed on unchanged to a model of the same protocol.
    pub(crate) fn native(kind: ToolKind, name: String, tool: Fields) -> Self {
        Self { name, kind, fields: tool, ..Self::default() }
    }
}

/// Takes the name of a tool.
pub(crate) fn take_name(fields: &mut Fields) -> Result<String> {
    let name: Option<String> = take_field(fields, "name")?;
    let name = name.filter(|name| !name.is_empty());
    name.ok_or_else(|| invalid_request("a tool has no `name`"))
}

impl ClientRequest {
    /// Reads the fields that all protocols share; returns the others.
    pub(crate) fn read(text: &str) -> Result<(Self, Fields)> {
        let Ok(mut fields) = serde_json::from_str::<Fields>(text) else {
            Json::parse(text)?;
            return Err(invalid_request("a request must be a JSON object"));
        };
        let request = Self {
            model: take_field(&mut fields, "model")?.unwrap_or_default(),
            stream: take_field(&mut fields, "stream")?.unwrap_or_default(),
            ..Self::default()
        };
        Ok((request, fields))
    }

    /// Reads the rest of a request: the tools and messages of its protocol, then its options. Refuses a request that cannot be
    /// answered.
    pub(crate) fn read_rest(
        mut self,
        wire: &str,
        mut fields: Fields,
        read_tool: fn(Fields) -> Result<ClientToolDefinition>,
        read_message: fn(&str) -> Result<Vec<Msg>>,
    ) -> Result<Self> {
        for tool in take_field::<Vec<Fields>>(&mut fields, "tools")?.unwrap_or_default() {
            self.tools.push(read_tool(tool)?);
        }
        let messages = fields.remove("messages").filter(|messages| !messages.is_null());
        let messages = messages.ok_or_else(|| invalid_request("`messages` is missing"))?;
        let list: Vec<&RawValue> = serde_json::from_str(messages.text())
            .map_err(|error| invalid_request(format!("`messages` {error}")))?;
        for (at, message) in list.into_iter().enumerate() {
            let read = read_message(message.get());
            self.messages.extend(read.map_err(|error| error.at(format!("messages[{at}]")))?);
        }
        let options = ModelOptions::read(wire, &fields)?;
        self.output_schema = options.response_format.and_then(|format| format.schema());
        self.extra = fields;
        self.validate()
    }

    /// Refuses a request without a model, without user input, or with an empty user message.
    fn validate(self) -> Result<Self> {
        if self.model.is_empty() {
            return Err(invalid_request("`model` is missing; set it to the name of an agent"));
        }
        let is_input = |msg: &Msg| msg.role() == Role::User || msg.first::<ToolResult>().is_some();
        if !self.messages.iter().any(is_input) {
            return Err(invalid_request("`messages` has neither a user message nor a tool result"));
        }
        let mut user_messages = self.messages.iter().filter(|msg| msg.role() == Role::User);
        if user_messages.any(Msg::is_blank) {
            return Err(invalid_request("a user message is empty"));
        }
        Ok(self)
    }
}

/// An error for a request that cannot be served.
pub(crate) fn invalid_request(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::NotARequest, message)
}

/// Reads a field of a request. The error names the field.
pub(crate) fn get_field<T: serde::de::DeserializeOwned>(
    fields: &Fields,
    name: &str,
) -> Result<Option<T>> {
    fields.get(name).map_err(|error| invalid_request(format!("`{name}` {}", error.message())))
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
