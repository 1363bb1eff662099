//! Enumerated strings of the JSON: roles, states, reasons.
//!
//! Only [`Role`] is closed: the role rules depend on it. Later versions of other systems may add values to
//! the others, so an unknown value is kept as `Other` and written back.
//!
//! ```
//! use turnwire_core::ToolResultState;
//!
//! assert_eq!(ToolResultState::from("denied"), ToolResultState::Denied);
//! assert_eq!(ToolResultState::from("paused").as_str(), "paused");
//! ```

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Role of a message's sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// A person, or a program that calls the agent.
    User,
    /// An agent.
    #[default]
    Assistant,
    /// The system prompt.
    System,
    /// Tool results, as AgentScope for Java stores them.
    Tool,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// The value in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = Cow::<str>::deserialize(deserializer)?;
        Self::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "unknown role `{word}`; expected user, assistant, system or tool"
            ))
        })
    }
}

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// An unknown value.
            Other(Box<str>),
        }

        impl $name {
            /// All known values.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// The value in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }

            /// Whether the value is known.
            pub fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let doc = concat!($(stringify!($meta),)+ "");
                crate::schema::words(&crate::shape::doc_text(doc), Self::WORDS)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(&*Cow::<str>::deserialize(deserializer)?))
            }
        }
    )+};
}

words! {
    /// State of a tool call.
    ToolCallState {
        /// Not checked yet.
        #[default]
        Pending = "pending",
        /// Waits for a person's approval.
        Asking = "asking",
        /// May run.
        Allowed = "allowed",
        /// Runs outside; waits for the result.
        Submitted = "submitted",
        /// Finished, with any result.
        Finished = "finished",
    }

    /// State of a tool result.
    ToolResultState {
        /// Still running, or running in the background.
        #[default]
        Running = "running",
        /// Succeeded.
        Success = "success",
        /// Failed.
        Error = "error",
        /// Stopped before it ended.
        Interrupted = "interrupted",
        /// Not allowed to run.
        Denied = "denied",
    }

    /// Why a reply, or a model call, ended.
    FinishedReason {
        /// It ended normally.
        #[default]
        Completed = "completed",
        /// It was stopped.
        Interrupted = "interrupted",
        /// It reached the maximum number of iterations.
        ExceedMaxIters = "exceed_max_iters",
        /// It failed.
        Error = "error",
        /// The model reached its output limit.
        Length = "length",
        /// The model stopped to call tools.
        ToolCalls = "tool_calls",
        /// The model refused to answer.
        Refusal = "refusal",
        /// A content filter blocked the request or the response.
        ContentFilter = "content_filter",
        /// The provider's stream ended before it was complete.
        Truncated = "truncated",
    }

    /// Type of the error that ended a reply.
    ErrorType {
        /// Missing or wrong credentials.
        Authentication = "authentication",
        /// Not allowed with these credentials.
        Permission = "permission",
        /// Too many requests.
        RateLimit = "rate_limit",
        /// The request was invalid.
        InvalidRequest = "invalid_request",
        /// An upstream service failed.
        Upstream = "upstream",
        /// An upstream service could not be reached.
        Connection = "connection",
        /// An internal error.
        Internal = "internal",
        /// The reply failed before it started.
        Setup = "setup",
        /// Any other error.
        #[default]
        Unknown = "unknown",
    }

    /// Effect of a permission rule.
    Behavior {
        /// The tool runs without approval.
        Allow = "allow",
        /// The tool does not run.
        Deny = "deny",
        /// A person is asked.
        #[default]
        Ask = "ask",
        /// The next rule decides.
        Passthrough = "passthrough",
    }
}
