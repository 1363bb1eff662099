//! Scopes: what credentials allow.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// One permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read sessions, messages and events.
    Read,
    /// Create sessions, send messages, stop replies.
    Chat,
    /// Act as an agent: publish events and pipe replies in.
    Publish,
    /// Approve or deny tool calls.
    Approve,
    /// Everything, including what concerns the whole server.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Chat, Self::Publish, Self::Approve, Self::Admin];

    /// The name in settings and tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Chat => "chat",
            Self::Publish => "publish",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Chat => 2,
            Self::Publish => 4,
            Self::Approve => 8,
            Self::Admin => 16,
        }
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// All scopes.
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set allows what a scope does. `admin` allows everything.
    pub fn allow(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scope| scope.name() == name).ok_or_else(|| {
            format!("unknown scope \"{name}\"; expected read, chat, publish, approve or admin")
        })
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = Scope::ALL.into_iter().filter(|scope| self.0 & scope.bit() != 0);
        for (index, scope) in held.enumerate() {
            write!(f, "{}{}", if index > 0 { "," } else { "" }, scope.name())?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        names
            .iter()
            .map(|name| name.parse::<Scope>())
            .collect::<Result<_, _>>()
            .map_err(D::Error::custom)
    }
}
