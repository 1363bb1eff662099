//! What a client sends along with a message: its tools, the schema of the answer, instructions, and whether
//! somebody can approve calls.
//!
//! It is part of the user's message, and so in the log: a reply that continues after a restart finds it
//! again.
//!
//! ```
//! use turnwire_agent::{ClientTool, ClientContext};
//! use turnwire_core::Msg;
//!
//! let tool = ClientTool { name: "open_page".to_owned(), ..ClientTool::default() };
//! let offer = ClientContext { tools: vec![tool], ..ClientContext::default() };
//! let msg = offer.attach_to(Msg::user("ann", "Show me the news."));
//! assert_eq!(ClientContext::from_msg(&msg).tools[0].name, "open_page");
//! ```

use serde::{Deserialize, Serialize};
use turnwire_core::{Fields, Json, Msg};

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
    /// Nobody can approve calls: calls that need an approval are denied at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// Other fields of the client's request.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub extra: Fields,
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
}

impl ClientContext {
    /// Reads the context of a message; empty if it has none or an invalid one.
    pub fn from_msg(msg: &Msg) -> Self {
        msg.metadata().get::<Self>(METADATA_KEY).ok().flatten().unwrap_or_default()
    }

    /// Adds the context to a message.
    pub fn attach_to(&self, msg: Msg) -> Msg {
        if *self == Self::default() { msg } else { self.replace_in(msg) }
    }

    /// Adds the context to a message, and replaces an existing one.
    pub fn replace_in(&self, msg: Msg) -> Msg {
        let Ok(json) = Json::from_value(self) else { return msg };
        msg.to_builder().metadata(METADATA_KEY, json).build().unwrap_or(msg)
    }
}
