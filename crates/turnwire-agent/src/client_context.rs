//! What a client brings to a turn beside its words: tools of its own, the form of the answer, and
//! whether anybody is there to be asked.
//!
//! It is part of the user's message, so it is in the log with it: a reply that goes on after a
//! restart finds it again.
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

/// The entry of a message's metadata.
const METADATA_KEY: &str = "client";

/// What a client brings to a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientContext {
    /// Tools that the client executes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// The form that the answer is to have: a JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// What the agent is told about where it runs, or how to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Whether nobody can be asked: what needs a person's yes is denied at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// Who asked: a name of the credentials that says nothing by itself. Results of calls that name no
    /// session are taken only from the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<String>,
    /// Whatever else the client sends, by its own names.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub extra: Fields,
}

/// A tool that the client executes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientTool {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
}

impl ClientContext {
    /// What came with a message; nothing when there is nothing, or when it cannot be read.
    pub fn from_msg(msg: &Msg) -> Self {
        msg.metadata().get::<Self>(METADATA_KEY).ok().flatten().unwrap_or_default()
    }

    /// Puts it into a message.
    pub fn attach_to(&self, msg: Msg) -> Msg {
        if *self == Self::default() { msg } else { self.replace_in(msg) }
    }

    /// Puts it into a message, in the place of what is there.
    pub fn replace_in(&self, msg: Msg) -> Msg {
        let Ok(json) = Json::from_value(self) else { return msg };
        msg.to_builder().metadata(METADATA_KEY, json).build().unwrap_or(msg)
    }
}
