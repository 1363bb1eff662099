//! What a client sends along with a message: its tools, the schema of the answer, instructions, options of
//! the model call, and whether somebody can approve calls.
//!
//! It is part of the user's message, and so in the log: a reply that continues after a restart finds it
//! again. A request with tool results may bring another one, which is part of the last result.
//!
//! ```
//! use turnwire_agent::{ClientTool, ClientContext};
//! use turnwire_core::Msg;
//!
//! let tool = ClientTool { name: "open_page".to_owned(), ..ClientTool::default() };
//! let context = ClientContext { tools: vec![tool], ..ClientContext::default() };
//! let msg = context.attach_to(Msg::user("ann", "Show me the news."));
//! assert_eq!(ClientContext::from_msg(&msg).tools[0].name, "open_page");
//! ```

use crate::places::{BlockIndex, split_entries};
use crate::request_metadata;
use serde::{Deserialize, Serialize};
use turnwire_core::{ContentBlock, Fields, Json, Msg, Role, ToolResult};
use turnwire_wires::client_request::ClientToolDefinition;
use turnwire_wires::model_request::{NativeTool, ToolDefinition, ToolKind};
use turnwire_wires::{ModelOption, ModelOptions};

/// The key in the metadata of a message.
const METADATA_KEY: &str = "client";

/// What a client sends along with a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientContext {
    /// Tools that the client executes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// A JSON Schema that the answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// Instructions in addition to the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The system messages of the client's conversation. Each request brings all of them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<SystemMessage>,
    /// Nobody can approve calls: calls that need an approval are denied at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// Other fields of the client's request: among them the options of the model call, by the names of `wire`.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub extra: Fields,
    /// The wire of the client's request, if it is one. Without it, options have their canonical names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wire: String,
    /// Headers of the client's request for a model of the same wire, such as `anthropic-beta`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Options and tools that the model does not get, by the client's names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_options: Vec<String>,
}

/// A system message of a client's conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemMessage {
    /// Its text.
    pub content: Vec<ContentBlock>,
    /// Its metadata: among it what only the client's protocol has.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub metadata: Fields,
    /// How many entries of the conversation follow it: user messages, answers, results of calls. `None`: it is before
    /// all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<usize>,
}

impl SystemMessage {
    /// The system messages of a conversation.
    ///
    /// ```
    /// use turnwire_agent::SystemMessage;
    /// use turnwire_core::Msg;
    ///
    /// let messages = [Msg::system("", "Be brief."), Msg::user("", "Hi!"), Msg::system("", "It is late.")];
    /// let found = SystemMessage::collect(&messages);
    /// assert_eq!((found[0].following, found[1].following), (None, Some(0)));
    /// ```
    pub fn collect(messages: &[Msg]) -> Vec<Self> {
        let entries = split_entries(messages);
        let system = messages.iter().enumerate().filter(|(_, msg)| msg.role() == Role::System);
        let read = |(at, msg): (usize, &Msg)| {
            let is_before =
                |entry: &Vec<BlockIndex>| entry.first().is_some_and(|(message, _)| *message < at);
            let before = entries.partition_point(is_before);
            Self {
                content: msg.content().to_vec(),
                metadata: msg.metadata().clone(),
                following: (before > 0).then(|| entries.len() - before),
            }
        };
        system.map(read).collect()
    }

    /// The message for the model.
    pub(crate) fn to_msg(&self) -> Msg {
        let msg = Msg::builder(Role::System).name("system").content(self.content.clone());
        let msg = msg.all_metadata(self.metadata.clone()).build();
        msg.unwrap_or_else(|_| Msg::system("system", ""))
    }
}

/// A tool that the client executes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientTool {
    /// The name.
    pub name: String,
    /// The description for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// Whether the provider enforces the schema, if the client says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// What kind of tool it is.
    #[serde(default, skip_serializing_if = "ToolKind::is_function")]
    pub kind: ToolKind,
    /// Of a function: fields that only the client's protocol has. Of any other tool: all of it.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub fields: Fields,
    /// The group that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl From<ClientToolDefinition> for ClientTool {
    fn from(tool: ClientToolDefinition) -> Self {
        let ClientToolDefinition {
            name,
            description,
            input_schema: input,
            strict,
            kind,
            fields,
            namespace,
        } = tool;
        Self { name, description, input, strict, kind, fields, namespace }
    }
}

impl ClientTool {
    /// The tool in a request to a model, as a client of this wire sent it.
    pub(crate) fn definition(&self, wire: &str) -> ToolDefinition {
        let has_schema = self.input.is_some();
        let native = NativeTool {
            wire: wire.to_owned(),
            kind: self.kind,
            fields: self.fields.clone(),
            namespace: self.namespace.clone(),
            has_schema,
        };
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: self.input.clone().unwrap_or_else(|| serde_json::Map::new().into()),
            strict: self.strict,
            native: (!wire.is_empty()).then_some(native),
        }
    }
}

impl ClientContext {
    /// Reads the context of a message; empty if it has none or an invalid one.
    pub fn from_msg(msg: &Msg) -> Self {
        request_metadata::value_of_message(METADATA_KEY, msg).unwrap_or_default()
    }

    /// The context of a reply: that of the last tool result that has one, or of the message that is answered. Also
    /// returns how many blocks of the reply came before it.
    pub fn in_force(history: &[Msg], reply: Option<&Msg>) -> (Self, usize) {
        let (found, before) = request_metadata::value_for_reply(METADATA_KEY, history, reply);
        (found.unwrap_or_default(), before)
    }

    /// Adds the context to a tool result: it replaces that of the message from here on.
    pub fn attach_to_result(&self, result: &mut ToolResult) {
        request_metadata::set_on_result(METADATA_KEY, self, result);
    }

    /// Removes a context from a tool result.
    pub fn remove_from_result(result: &mut ToolResult) {
        result.metadata.remove(METADATA_KEY);
    }

    /// The options of the model call. Fields that cannot be read as options are none.
    pub fn options(&self) -> ModelOptions {
        let mut options = ModelOptions::read(&self.wire, &self.extra).unwrap_or_default();
        options.headers.clone_from(&self.headers);
        options
    }

    /// Removes the form of the answer.
    pub(crate) fn remove_response_format(&mut self) {
        self.output_schema = None;
        let mut options = ModelOptions::read(&self.wire, &self.extra).unwrap_or_default();
        options.remove(ModelOption::ResponseFormat);
        self.extra = options.original;
    }

    /// The JSON Schema that the answer must match: the given one, or that of the options.
    pub fn answer_schema(&self) -> Option<Json> {
        let of_options = || self.options().response_format.and_then(|format| format.schema());
        self.output_schema.clone().or_else(of_options)
    }

    /// Adds the context to a message.
    pub fn attach_to(&self, msg: Msg) -> Msg {
        if *self == Self::default() { msg } else { self.replace_in(msg) }
    }

    /// Adds the context to a message, and replaces an existing one.
    pub fn replace_in(&self, msg: Msg) -> Msg {
        request_metadata::set_on_message(METADATA_KEY, self, msg)
    }
}
