//! A request to a model before it is written in a provider's format: what the `model_request` modules of the wires read.
//!
//! ```
//! use turnwire_core::Msg;
//! use turnwire_wires::Request;
//! use turnwire_wires::model_request::{PromptMessage, SpeakerFormat, build_prompt};
//!
//! let messages = [Msg::system("", "Be brief."), Msg::user("ann", "Hi!")];
//! let request = Request { model: "m", messages: &messages, ..Request::default() };
//! let prompt = build_prompt(request.messages, SpeakerFormat::SingleAgent);
//! assert!(matches!(&prompt[..], [PromptMessage::System(_), PromptMessage::User { .. }]));
//! ```

mod call_names;
mod media;
mod model_quirks;
mod prompt;
mod schema;
mod speakers;

pub(crate) use call_names::{
    CallIds, input_to_object, input_to_object_text, is_name_char, object_to_input,
    sanitize_call_name,
};
pub(crate) use media::{
    ACCEPTED_IMAGES_ONLY, RASTER_IMAGES_ONLY, SVG, default_media_type, is_text, normalize_data,
    openai_accepts_image, read_text_file, sniff_image_type,
};
pub use media::{describe_omitted_data, media_type};
pub(crate) use model_quirks::accepts_temperature;
pub use prompt::{AssistantPart, CallOutcome, PromptMessage, UserPart, build_prompt};
pub(crate) use schema::{input_schema, is_strict_schema};

use crate::json::fields;
use crate::model_options::{ModelOptions, ResponseFormat};
use serde::{Deserialize, Serialize};
use turnwire_core::{ContentBlock, Fields, Json, Msg, Role};

/// The first user message of a conversation that begins with the model, for providers that require one.
pub(crate) const FIRST_USER_TEXT: &str = "(The conversation begins with your words.)";

/// The last user message of a conversation that ends with the model, for providers that require one.
pub(crate) const LAST_USER_TEXT: &str = "(Go on.)";

/// The only user message of an empty conversation: providers refuse a request without messages.
pub(crate) const ONLY_USER_TEXT: &str = "(Begin.)";

/// In the metadata of an assistant message: it is the beginning of an answer that a client gave, and the model continues it.
pub const PREFILL: &str = "prefill";

/// Whether a message is the beginning of an answer that the model continues.
pub fn is_prefill(msg: &Msg) -> bool {
    msg.role() == Role::Assistant && msg.metadata().get(PREFILL).is_ok_and(|it| it == Some(true))
}

/// Whether a block of a reply is such a beginning: the client gave it behind tool results.
pub fn is_prefill_block(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Text(text) if text.rest.raw(PREFILL).is_some())
}

/// The argument of a free-text tool that is written as a function.
pub const FREE_TEXT: &str = "input";

/// A request to a model.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The conversation so far. Metadata of messages is never sent.
    pub messages: &'a [Msg],
    /// The tools that the model may call.
    pub tools: &'a [ToolDefinition],
    /// Whether it must call one.
    pub tool_choice: ToolChoice,
    /// The JSON Schema that the answer must match.
    pub output: Option<&'a OutputFormat>,
    /// The most tokens to generate. A provider that requires a number gets 4096 by default.
    pub max_tokens: Option<u32>,
    /// Sampling temperature. It is not sent to models that refuse it.
    pub temperature: Option<f64>,
    /// How messages name their speakers when several agents take part.
    pub speaker_format: SpeakerFormat,
    /// Whether to mark a long conversation for the provider's cache, if the provider requires marks. A client of the
    /// provider's own protocol decides itself.
    pub prompt_caching: bool,
    /// Whether to stream the answer.
    pub stream: bool,
    /// The client's options. They override `max_tokens` and `temperature`; `tool_choice` and `output` override theirs.
    pub options: ModelOptions,
    /// Other options by the provider's own names. They override everything above.
    pub extra: Fields,
}

impl Request<'_> {
    pub(crate) fn max_tokens(&self) -> Option<u32> {
        self.options.max_tokens.or(self.max_tokens)
    }

    pub(crate) fn temperature(&self) -> Option<f64> {
        self.options.temperature.or(self.temperature)
    }

    /// Whether the model continues the last message.
    pub(crate) fn ends_with_prefill(&self) -> bool {
        let is_begun = |msg: &Msg| msg.content().last().is_some_and(is_prefill_block);
        self.messages.last().is_some_and(|last| is_prefill(last) || is_begun(last))
    }

    /// Whether the client asked for JSON without a schema.
    pub(crate) fn is_any_json(&self) -> bool {
        self.options.response_format == Some(ResponseFormat::JsonObject)
    }
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDefinition {
    /// The tool's name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Json,
    /// Whether the provider enforces the schema, if the client says so.
    pub strict: Option<bool>,
    /// What only the client's protocol has. A model of the same protocol gets it unchanged.
    pub native: Option<NativeTool>,
}

impl Default for ToolDefinition {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            input_schema: serde_json::Map::new().into(),
            strict: None,
            native: None,
        }
    }
}

/// What a client's tool has beside name, description and schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeTool {
    /// The wire of the client.
    pub wire: String,
    /// What kind of tool it is.
    pub kind: ToolKind,
    /// Of a function: its other fields. Of any other tool: all of it.
    pub fields: Fields,
    /// The group that the function belongs to.
    pub namespace: Option<String>,
    /// Whether the function has an input schema.
    pub has_schema: bool,
}

/// Kinds of tools that clients bring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    /// A function with a JSON Schema. The client executes it.
    #[default]
    Function,
    /// A tool that the protocol defines, such as one with free text as its input. The client executes its calls.
    Custom,
    /// A group of functions, which are listed beside it.
    Namespace,
    /// A tool that the provider executes.
    Hosted,
}

impl ToolKind {
    /// Whether it is the usual kind.
    pub fn is_function(&self) -> bool {
        *self == Self::Function
    }

    /// Whether the client executes its calls.
    pub fn is_callable(self) -> bool {
        matches!(self, Self::Function | Self::Custom)
    }
}

impl ToolDefinition {
    /// Whether a request on this wire has the tool. Functions of a group are written with the group where the protocol has
    /// groups, and by themselves elsewhere; other kinds exist only on the client's own wire.
    pub fn is_written_to(&self, wire: &str) -> bool {
        match &self.native {
            None => true,
            Some(native) if native.wire == wire => native.namespace.is_none(),
            Some(native) => native.kind.is_function(),
        }
    }

    /// A free-text tool of `OpenAI`'s protocols for a model of another one: a function whose only argument is the text.
    /// `None` if it is another tool, or the model has free-text tools of this form.
    pub fn to_function(&self, wire: &str) -> Option<Self> {
        let native = self.native.as_ref().filter(|native| native.kind == ToolKind::Custom)?;
        if !native.wire.starts_with("openai-") || native.wire == wire {
            return None;
        }
        // Others are tools that the protocol defines.
        let tool_type: Option<String> = native.fields.get("type").ok().flatten();
        if tool_type.as_deref() != Some("custom") {
            return None;
        }
        // Chat Completions has an object inside, and the grammar in another one.
        let inner = |fields: &Fields, key: &str| fields.get::<Fields>(key).ok().flatten();
        let text = |fields: &Fields, key: &str| fields.get::<String>(key).ok().flatten();
        let tool = inner(&native.fields, "custom").unwrap_or_else(|| native.fields.clone());
        let mut description = text(&tool, "description").unwrap_or_default();
        let format = inner(&tool, "format");
        let grammar = format.as_ref().and_then(|format| inner(format, "grammar")).or(format);
        if let Some(definition) = grammar.as_ref().and_then(|it| text(it, "definition")) {
            let syntax = grammar.as_ref().and_then(|it| text(it, "syntax")).unwrap_or_default();
            description = format!(
                "{description}\n\n`{FREE_TEXT}` matches this {syntax} grammar:\n{definition}"
            );
        }
        let schema = serde_json::json!({
            "type": "object", "properties": {FREE_TEXT: {"type": "string"}},
            "required": [FREE_TEXT], "additionalProperties": false,
        });
        Some(Self {
            name: self.name.clone(),
            description: description.trim_start().to_owned(),
            input_schema: schema.into(),
            ..Self::default()
        })
    }

    /// Whether the model can call it by this name.
    pub fn can_call(&self, name: &str) -> bool {
        self.name == name && self.native.as_ref().is_none_or(|native| native.kind.is_callable())
    }

    /// What the client's protocol has beside the canonical fields, if it is this one.
    pub(crate) fn native_to(&self, wire: &str) -> Option<&NativeTool> {
        self.native.as_ref().filter(|native| native.wire == wire)
    }

    /// The whole tool, if it is not a function.
    pub(crate) fn as_native(&self, wire: &str) -> Option<Json> {
        let native = self.native_to(wire).filter(|native| !native.kind.is_function())?;
        Some(Json::from(&native.fields))
    }

    /// The tool as a request on this wire has it: a tool of the wire itself unchanged, and a function as `write_function`
    /// writes it. `None` if the request does not have it.
    pub(crate) fn write(&self, wire: &str, write_function: fn(&Self) -> Fields) -> Option<Json> {
        if !self.is_written_to(wire) {
            return None;
        }
        let function = || self.with_native(wire, write_function(self)).into();
        Some(self.as_native(wire).unwrap_or_else(function))
    }

    /// The description to write: a client of the same wire may leave it out.
    pub(crate) fn written_description(&self, wire: &str) -> Option<&str> {
        let is_missing = self.description.is_empty() && self.native_to(wire).is_some();
        (!is_missing).then_some(&self.description)
    }

    /// The schema to write: a client of the same wire gets its own.
    pub(crate) fn written_schema(&self, wire: &str) -> Option<Json> {
        match self.native_to(wire) {
            Some(native) => native.has_schema.then(|| self.input_schema.clone()),
            None => Some(input_schema(self)),
        }
    }

    /// Adds the fields of the client's own protocol to a tool.
    pub(crate) fn with_native(&self, wire: &str, tool: Fields) -> Fields {
        match self.native_to(wire) {
            Some(native) => merge_extra(tool, &native.fields),
            None => tool,
        }
    }
}

/// Whether a model must call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must not call a tool.
    None,
    /// It must call any tool.
    Required,
    /// It must call this one.
    Tool(String),
    /// It may call only these.
    Allowed {
        /// Whether it must call one of them.
        required: bool,
        /// Their names.
        names: Vec<String>,
    },
    /// A choice that only the client's protocol has.
    Other(Json),
}

/// A JSON Schema that an answer must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFormat {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// Its JSON Schema.
    pub schema: Json,
    /// What it is for.
    pub description: Option<String>,
    /// Whether the provider enforces it, if the client says so.
    pub strict: Option<bool>,
}

impl OutputFormat {
    /// A format with this schema.
    pub fn new(name: impl Into<String>, schema: Json) -> Self {
        Self { name: name.into(), schema, description: None, strict: None }
    }

    /// Whether to request that the provider enforces the schema: as the client says, or if `OpenAI` can enforce it.
    pub(crate) fn is_strict(&self) -> bool {
        let can_be = || self.schema.parse_as().is_ok_and(|schema| is_strict_schema(&schema));
        self.strict.unwrap_or_else(can_be)
    }
}

/// How messages name their speakers in a conversation with several agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpeakerFormat {
    /// There is one agent: messages are sent as they are.
    #[default]
    SingleAgent,
    /// Messages without tools become one user message: lines `NAME: text` inside `<history>` tags.
    HistoryTags,
    /// The older format: each message without tools becomes a user message `[NAME]: text`.
    NamePrefix,
}

/// A tool as most providers declare it.
pub(crate) fn function_tool(tool: &ToolDefinition) -> Json {
    let function = fields! {
        "name": tool.name.as_str(),
        "description": tool.description.as_str(),
        "parameters": input_schema(tool),
    };
    fields! { "type": "function", "function": function }.into()
}

/// Items as a JSON list.
pub(crate) fn to_json_list(items: &[Json]) -> Json {
    Json::from_value(items).unwrap_or_else(|_| Vec::<serde_json::Value>::new().into())
}

/// Adds the options of `extra` to a body; they win. Objects that both have are merged, so that one more option does not
/// remove the others.
pub(crate) fn merge_extra(mut body: Fields, extra: &Fields) -> Fields {
    for (key, value) in extra {
        let both =
            body.raw(key).and_then(|old| old.parse_as::<Fields>().ok().zip(value.parse_as().ok()));
        match both {
            Some((old, new)) => body.insert(key, merge_extra(old, &new)),
            None => body.insert(key, value.clone()),
        }
    }
    body
}
