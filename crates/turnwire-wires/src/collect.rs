//! Responses without streaming, to clients that use an agent as if it were a model. An encoder that
//! [collects](crate::EncoderOptions::collects) builds the response while it writes the frames. The server calls
//! [`Encode::take_response`](crate::Encode::take_response).
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::{EncoderOptions, Frames, Wire};
//!
//! let wire = Wire::named("openai-chat").unwrap();
//! let mut encoder = wire.encoder(&EncoderOptions { collects: true, ..EncoderOptions::default() })?;
//! let mut frames = Frames::default();
//! for line in [
//!     r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
//!     r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hi!"}"#,
//!     r#"{"type":"REPLY_END","reply_id":"r"}"#,
//! ] {
//!     encoder.encode(&Event::from_json(line)?, &mut frames);
//! }
//! let completion = encoder.take_response().unwrap().unwrap();
//! assert!(completion.text().contains(r#""content":"Hi!""#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use serde::Serialize;
use turnwire_core::Json;

/// The response to a request that does not stream, or the error instead of it.
pub type WholeResponse = Result<Json, ErrorResponse>;

/// The HTTP response of a failed reply, in the protocol's format.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Json,
}

impl ErrorResponse {
    /// An error response for the protocol's error type. An authentication error is 500: it is about the agent's own key for its
    /// model, not about the client's.
    pub(crate) fn new<T: Serialize>(kind: &str, body: &T) -> Self {
        // Structs of strings can always be written as JSON.
        let body = Json::from_value(body).unwrap_or_else(|_| Json::from(serde_json::Map::new()));
        let status = match kind {
            "invalid_request_error" => 400,
            "rate_limit_error" => 429,
            _ => 500,
        };
        Self { status, body }
    }
}
