//! Responses without streaming, to clients that use an agent as if it were a model: collected from the frames of the stream.
//! The server calls this.

use turnwire_core::{Json, Result};

/// Builds the response to a request that does not stream, from the frames of the stream.
pub trait ResponseCollector: Send {
    /// Adds the next frame.
    fn push_frame(&mut self, text: &str);

    /// The response, or the error.
    fn finish(self: Box<Self>) -> Result<Json, ErrorResponse>;
}

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
    pub(crate) fn new(kind: &str, body: Json) -> Self {
        let status = match kind {
            "invalid_request_error" => 400,
            "rate_limit_error" => 429,
            _ => 500,
        };
        Self { status, body }
    }
}
