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
//! assert!(matches!(&prompt[..], [PromptMessage::System(_), PromptMessage::User(_)]));
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
use turnwire_core::{Fields, Json, Msg};

/// The first user message of a conversation that begins with the model, for providers that require one.
pub(crate) const FIRST_USER_TEXT: &str = "(The conversation begins with your words.)";

/// The last user message of a conversation that ends with the model, for providers that require one.
pub(crate) const LAST_USER_TEXT: &str = "(Go on.)";

/// The only user message of an empty conversation: providers refuse a request without messages.
pub(crate) const ONLY_USER_TEXT: &str = "(Begin.)";

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
    /// Whether to stream the answer.
    pub stream: bool,
    /// Other options by the provider's own names. They override everything above.
    pub extra: Fields,
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
}

/// A JSON Schema that an answer must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFormat {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// Its JSON Schema.
    pub schema: Json,
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
