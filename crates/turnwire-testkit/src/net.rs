//! Plain HTTP and SSE clients, and a proxy that behaves like a bad network.
//!
//! | module | contents |
//! |---|---|
//! | [`http`] | one request on one connection; the response complete or as a stream |
//! | [`sse`] | parses server-sent events from bytes that were cut anywhere |
//! | [`proxy`] | a proxy that cuts, splits, delays and stalls |

pub mod http;
pub mod proxy;
pub mod sse;

pub use http::{HttpResponse, StreamingResponse, send_http};
pub use proxy::Proxy;
pub use sse::{Frame, SseParser};
