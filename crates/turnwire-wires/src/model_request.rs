//! What a model is asked, in no protocol's words yet.
//!
//! ```
//! use turnwire_core::Msg;
//! use turnwire_wires::Request;
//! use turnwire_wires::request::{Agents, Turn, turns};
//!
//! let messages = [Msg::system("", "Be brief."), Msg::user("ann", "Hi!")];
//! let request = Request { model: "m", messages: &messages, ..Request::default() };
//! let turns = turns(request.messages, Agents::One);
//! assert!(matches!(&turns[..], [Turn::System(_), Turn::User(_)]));
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

use turnwire_core::{Fields, Json, Msg};

/// What a conversation begins with that begins with the model, for a provider that wants a user's
/// turn first.
pub(crate) const FIRST_USER_TEXT: &str = "(The conversation begins with your words.)";

/// What a conversation ends with that ends with the model's words, for a provider that wants a
/// user's turn last.
pub(crate) const LAST_USER_TEXT: &str = "(Go on.)";

/// What the user says in a conversation in which nobody has said anything: none is refused.
pub(crate) const ONLY_USER_TEXT: &str = "(Begin.)";

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// Which model.
    pub model: &'a str,
    /// The conversation so far. Metadata of messages never reaches a provider.
    pub messages: &'a [Msg],
    /// The tools that it may call.
    pub tools: &'a [ToolDefinition],
    /// Whether it has to.
    pub tool_choice: ToolChoice,
    /// The form that the answer must have.
    pub output: Option<&'a OutputFormat>,
    /// The most tokens that it may write. A provider that needs a number gets 4096 without it.
    pub max_tokens: Option<u32>,
    /// How much chance there is in the answer. Models that refuse to be told are not told.
    pub temperature: Option<f64>,
    /// Whether several agents speak in this conversation, and how they are told apart.
    pub speaker_format: SpeakerFormat,
    /// Whether the answer comes as a stream.
    pub stream: bool,
    /// Whatever else this provider takes, by its own names. It wins over everything above.
    pub extra: Fields,
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Json,
}

/// Whether a model has to call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it sees fit.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must, whichever.
    Required,
    /// It must call this one.
    Tool(String),
}

/// The form that an answer must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFormat {
    /// A name for it; letters, digits, `_` and `-`.
    pub name: String,
    /// Its JSON Schema.
    pub schema: Json,
}

/// How several agents in one conversation are told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpeakerFormat {
    /// There is one.
    #[default]
    SingleAgent,
    /// Messages without tools become one user turn: lines `NAME: text` inside `<history>` tags.
    HistoryTags,
    /// The older form: each message without tools becomes a user turn `[NAME]: text`.
    NamePrefix,
}

/// An object, as JSON.
pub(crate) fn to_json_object(fields: &Fields) -> Json {
    // Text keys and values that are JSON always give JSON.
    Json::from_value(fields).unwrap_or_else(|_| serde_json::Map::new().into())
}

/// A list, as JSON.
pub(crate) fn to_json_list(items: &[Json]) -> Json {
    Json::from_value(items).unwrap_or_else(|_| Vec::<serde_json::Value>::new().into())
}

/// A body with whatever else the provider takes: `extra` wins. Objects that both have are merged,
/// so that one more option does not take the others away.
pub(crate) fn merge_extra(mut body: Fields, extra: &Fields) -> Fields {
    for (key, value) in extra {
        let both =
            body.raw(key).and_then(|old| old.parse_as::<Fields>().ok().zip(value.parse_as().ok()));
        match both {
            Some((old, new)) => body.insert(key, to_json_object(&merge_extra(old, &new))),
            None => body.insert(key, value.clone()),
        }
    }
    body
}
