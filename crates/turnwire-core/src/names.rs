//! The fixed words of the model: roles, states, reasons.
//!
//! Only [`Role`] is closed: the rules about blocks depend on it. Every other word may grow in a
//! later version of the systems around us, so a word that we do not know is kept as
//! `Other` and written back.
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

/// Who speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// A person, or whoever calls the agent.
    User,
    /// An agent.
    #[default]
    Assistant,
    /// The system prompt.
    System,
    /// The results of tools, as AgentScope for Java keeps them.
    Tool,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// The word in JSON.
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
                "`{word}` is no role; it is one of user, assistant, system, tool"
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
            /// A word that this version does not know.
            Other(Box<str>),
        }

        impl $name {
            /// The words that this version knows.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// The word in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }

            /// Whether this version knows the word.
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
    /// How far a tool call has come.
    ToolCallState {
        /// Not yet checked.
        #[default]
        Pending = "pending",
        /// Waits for a person.
        Asking = "asking",
        /// May run.
        Allowed = "allowed",
        /// Runs outside, and the result is awaited.
        Submitted = "submitted",
        /// Over, whatever came of it.
        Finished = "finished",
    }

    /// What came of a tool call.
    ToolResultState {
        /// Still running, or gone to the background.
        #[default]
        Running = "running",
        /// Went well.
        Success = "success",
        /// Failed.
        Error = "error",
        /// Was stopped.
        Interrupted = "interrupted",
        /// Was not allowed.
        Denied = "denied",
    }

    /// Why a reply, or a model call, ended.
    FinishedReason {
        /// It came to its end.
        #[default]
        Completed = "completed",
        /// It was stopped.
        Interrupted = "interrupted",
        /// It went round as often as it may.
        ExceedMaxIters = "exceed_max_iters",
        /// It failed.
        Error = "error",
        /// A model stopped at the limit of its output.
        Length = "length",
        /// A model stopped to have tools called.
        ToolCalls = "tool_calls",
        /// A model declined to answer.
        Refusal = "refusal",
        /// A filter took the answer, or the question, out.
        ContentFilter = "content_filter",
        /// A provider's stream broke off before it said that it was done.
        Truncated = "truncated",
    }

    /// What kind of error ended a reply.
    ErrorType {
        /// No credential, or a wrong one.
        Authentication = "authentication",
        /// Known, but not allowed.
        Permission = "permission",
        /// Too much at once.
        RateLimit = "rate_limit",
        /// The request was wrong.
        InvalidRequest = "invalid_request",
        /// A service behind us failed.
        Upstream = "upstream",
        /// A service behind us was not reached.
        Connection = "connection",
        /// A fault of our own.
        Internal = "internal",
        /// It failed before it began.
        Setup = "setup",
        /// None of these.
        #[default]
        Unknown = "unknown",
    }

    /// What a permission rule does.
    Behavior {
        /// Runs without asking.
        Allow = "allow",
        /// Does not run.
        Deny = "deny",
        /// Asks a person.
        #[default]
        Ask = "ask",
        /// Leaves it to the next rule.
        Passthrough = "passthrough",
    }
}
