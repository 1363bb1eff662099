//! Clients that send exactly what they are told, and a network that does its worst.
//!
//! | module | what is in it |
//! |---|---|
//! | [`http`] | one request on one connection, its answer whole or as it comes |
//! | [`sse`] | server-sent events out of bytes that were cut anywhere |
//! | [`proxy`] | a proxy that cuts, splits, delays and stalls |

pub mod http;
pub mod proxy;
pub mod sse;

pub use http::{HttpResponse, StreamingResponse, send_http};
pub use proxy::Proxy;
pub use sse::{Frame, SseParser};
