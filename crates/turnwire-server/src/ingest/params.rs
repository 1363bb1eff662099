//! The query parameters of requests that bring events.

use crate::error::{ApiError, ApiResult};
use crate::turns::hints::WhenIdle;
use turnwire_wires::Wire;
use url::form_urlencoded;

/// The query parameters of requests that bring events.
#[derive(Debug, Default)]
pub(crate) struct IngestQuery {
    pub wire: Option<&'static Wire>,
    pub tolerance: Tolerance,
    pub reply_id: Option<String>,
    pub when_idle: Option<WhenIdle>,
}

/// What to do with an event that does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Refuse the request.
    #[default]
    Strict,
    /// Leave the event out, and report it.
    Tolerant,
}

impl IngestQuery {
    pub fn parse(query: Option<&str>) -> ApiResult<Self> {
        let mut params = Self::default();
        let Some(query) = query else { return Ok(params) };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "wire" => params.wire = Some(parse_wire(&value)?),
                "tolerant" => {
                    let is_tolerant = parse_bool("tolerant", &value)?;
                    params.tolerance =
                        if is_tolerant { Tolerance::Tolerant } else { Tolerance::Strict };
                }
                "reply" => {
                    let starts = parse_bool("reply", &value)?;
                    let when_idle = if starts { WhenIdle::Reply } else { WhenIdle::Wait };
                    params.when_idle = Some(when_idle);
                }
                "reply_id" if value.is_empty() || value.len() > 256 => {
                    let message = "invalid reply_id: expected 1 to 256 bytes";
                    return Err(ApiError::bad_request(message).hint("omit it to get one"));
                }
                "reply_id" => params.reply_id = Some(value.into_owned()),
                _ => {}
            }
        }
        Ok(params)
    }
}

fn parse_bool(name: &str, value: &str) -> ApiResult<bool> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(ApiError::bad_request(format!("invalid {name}: expected true or false"))),
    }
}

fn parse_wire(name: &str) -> ApiResult<&'static Wire> {
    Wire::named(name).ok_or_else(|| {
        let known: Vec<&str> = Wire::all().map(|wire| wire.name).collect();
        ApiError::bad_request("unknown wire")
            .kind("unknown_wire")
            .hint(format!("the wires are {}", known.join(", ")))
    })
}
