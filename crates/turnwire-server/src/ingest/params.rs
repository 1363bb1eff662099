//! What stands behind the `?`.

use crate::error::{ApiError, ApiResult};
use turnwire_wires::Wire;
use url::form_urlencoded;

/// What a request that brings events may say behind the `?`.
#[derive(Debug, Default)]
pub(crate) struct Params {
    pub wire: Option<&'static Wire>,
    pub tolerance: Tolerance,
    pub reply_id: Option<String>,
}

/// What becomes of an event that does not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Everything is refused.
    #[default]
    Strict,
    /// It is left out, and reported.
    Tolerant,
}

impl Params {
    pub fn parse(query: Option<&str>) -> ApiResult<Self> {
        let mut params = Self::default();
        let Some(query) = query else { return Ok(params) };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "wire" => params.wire = Some(wire(&value)?),
                "tolerant" => {
                    params.tolerance = match &*value {
                        "" | "1" | "true" => Tolerance::Tolerant,
                        "0" | "false" => Tolerance::Strict,
                        _ => {
                            let message = "tolerant is true or false";
                            return Err(ApiError::bad_request(message));
                        }
                    }
                }
                "reply_id" if value.is_empty() || value.len() > 256 => {
                    let message = "reply_id has 1 to 256 bytes";
                    return Err(ApiError::bad_request(message).hint("leave it out to get one"));
                }
                "reply_id" => params.reply_id = Some(value.into_owned()),
                _ => {}
            }
        }
        Ok(params)
    }
}

fn wire(name: &str) -> ApiResult<&'static Wire> {
    Wire::named(name).ok_or_else(|| {
        let known: Vec<&str> = Wire::all().map(|wire| wire.name).collect();
        ApiError::bad_request("there is no wire of this name")
            .kind("unknown_wire")
            .hint(format!("the wires are {}", known.join(", ")))
    })
}
