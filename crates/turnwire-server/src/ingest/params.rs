//! The query parameters of requests that bring events.

use crate::error::{ApiError, ApiResult};
use crate::turns::hints::WhenIdle;
use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error};
use turnwire_wires::Wire;

/// The query of `POST …/events`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
pub(crate) struct PublishQuery {
    /// The wire of the events: `turnwire` (default), `agentscope` or `agentscope-java`.
    pub wire: Option<String>,
    /// Leave out events that do not fit and report them, instead of refusing the request.
    pub tolerant: Option<Flag>,
    /// Whether a hint starts a reply if none is open.
    reply: Option<Flag>,
}

/// The query of `POST …/replies`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
pub(crate) struct PipeQuery {
    /// The wire of the stream; `turnwire` by default.
    pub wire: Option<String>,
    /// Leave out events that do not fit and report them, instead of ending the reply.
    pub tolerant: Option<Flag>,
    /// The reply's id; by default the stream's own, or a new one.
    reply_id: Option<String>,
}

/// `true` or `false`. Also accepts `1` and `0`, and a name without a value as `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Flag(bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "" | "1" | "true" => Ok(Self(true)),
            "0" | "false" => Ok(Self(false)),
            _ => Err(D::Error::custom("expected true or false")),
        }
    }
}

/// What to do with an event that does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Tolerance {
    /// Refuse the request.
    #[default]
    Strict,
    /// Leave the event out, and report it.
    Tolerant,
}

impl From<Option<Flag>> for Tolerance {
    fn from(tolerant: Option<Flag>) -> Self {
        if tolerant == Some(Flag(true)) { Self::Tolerant } else { Self::Strict }
    }
}

impl PublishQuery {
    /// What a hint does if no reply is open; by default as the agent's settings say.
    pub fn when_idle(&self) -> Option<WhenIdle> {
        let Flag(starts) = self.reply?;
        Some(if starts { WhenIdle::Reply } else { WhenIdle::Wait })
    }
}

impl PipeQuery {
    /// The id of the reply, if the client sets it.
    pub fn into_reply_id(self) -> ApiResult<Option<String>> {
        if self.reply_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > 256) {
            let message = "invalid reply_id: expected 1 to 256 bytes";
            return Err(ApiError::bad_request(message).hint("omit it to get one"));
        }
        Ok(self.reply_id)
    }
}

/// The wire of this name; `turnwire` if there is none.
pub(crate) fn find_wire(name: Option<&str>) -> ApiResult<&'static Wire> {
    Wire::named(name.unwrap_or("turnwire")).ok_or_else(|| {
        let known: Vec<&str> = Wire::all().map(|wire| wire.name).collect();
        ApiError::bad_request("unknown wire")
            .kind("unknown_wire")
            .hint(format!("the wires are {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::Query;

    #[test]
    fn a_flag_may_stand_without_a_value() {
        for (query, expected) in [
            ("", None),
            ("tolerant", Some(Flag(true))),
            ("tolerant=", Some(Flag(true))),
            ("tolerant=1", Some(Flag(true))),
            ("tolerant=true", Some(Flag(true))),
            ("tolerant=0", Some(Flag(false))),
            ("tolerant=false", Some(Flag(false))),
        ] {
            let uri = format!("/v1/sessions/s/events?{query}").parse().unwrap();
            let Query(found): Query<PublishQuery> = Query::from_uri(&uri).unwrap();
            assert_eq!(found.tolerant, expected, "{query}");
        }
        let uri = "/x?tolerant=perhaps".parse().unwrap();
        let Err(refused) = Query::<PublishQuery>::from_uri(&uri) else { panic!("accepted") };
        assert!(refused.message().contains("expected true or false"), "{refused}");
    }
}
