//! From a wire's name to what it can do.
//!
//! ```
//! use turnwire_wires::Wire;
//!
//! let names: Vec<&str> = Wire::ALL.iter().map(|wire| wire.name()).collect();
//! assert_eq!(names, ["turnwire", "agentscope"]);
//! assert_eq!(Wire::from_name("turnwire"), Some(Wire::Turnwire));
//! ```

use crate::agentscope;
use turnwire_core::{Event, Msg, Result};

/// A protocol's way to write messages and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// The canonical form: the AgentScope 2.x shape plus our own events and fields.
    Turnwire,
    /// Exactly what the AgentScope 2.x packages accept.
    Agentscope,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 2] = [Self::Turnwire, Self::Agentscope];

    /// The name, as in `--wire` and `?wire=`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turnwire => "turnwire",
            Self::Agentscope => "agentscope",
        }
    }

    /// What it is, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Turnwire => "the canonical form; reads all that AgentScope 2.x writes",
            Self::Agentscope => "exactly what the AgentScope 2.x packages accept",
        }
    }

    /// The wire of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// Reads one event.
    pub fn decode_event(self, text: &str) -> Result<Event<'_>> {
        match self {
            Self::Turnwire => Event::from_json(text),
            Self::Agentscope => agentscope::decode_event(text),
        }
    }

    /// Writes one event, on one line.
    pub fn encode_event(self, event: &Event<'_>) -> String {
        match self {
            Self::Turnwire => event.to_json(),
            Self::Agentscope => agentscope::encode_event(event),
        }
    }

    /// Reads one message.
    pub fn decode_message(self, text: &str) -> Result<Msg> {
        match self {
            Self::Turnwire => Msg::from_json(text),
            Self::Agentscope => agentscope::decode_message(text),
        }
    }

    /// Writes one message, on one line.
    pub fn encode_message(self, msg: &Msg) -> String {
        match self {
            Self::Turnwire => msg.to_json(),
            Self::Agentscope => agentscope::encode_message(msg),
        }
    }
}
