//! Every protocol in and out of one event model. No I/O.
//!
//! ```
//! use turnwire_wires::{Decoding, Wire};
//!
//! let wire = Wire::named("agentscope").unwrap();
//! let events = wire.decoder(&Decoding::default())?.all(br#"{"type":"USER_INTERRUPT","reply_id":"r"}"#)?;
//! assert_eq!(events[0].kind.type_name(), "USER_INTERRUPT");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`registry`] | from a wire's name to what it can do |
//! | [`loss`] | what a wire cannot hold |
//! | [`stream`] | bytes into events, events into frames |
//! | [`body`] | the one reader of bodies: JSON lines or server-sent events, cut anywhere |
//! | [`sse`] | the one writer of server-sent events |
//! | [`request`] | what a model is asked, in no protocol's words yet |
//! | [`model`] | an agent in the place of a model: what it is asked, and its answer in one piece |
//! | the others | one protocol each |

pub mod ag_ui;
pub mod agentscope;
pub mod agentscope_java;
pub mod ai_sdk;
pub mod anthropic;
pub mod blocks;
pub mod body;
pub mod client_request;
pub mod dashscope;
pub mod gemini;
pub mod loss;
pub mod model_request;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
mod provider;
pub mod registry;
pub mod sse;
pub mod stream;
mod structured_output;
mod turnwire;

pub use loss::Loss;
pub use model_request::Request;
pub use registry::{UnsupportedError, Wire};
pub use stream::{
    Decode, Decoded, Decoder, DecoderOptions, Encode, EncoderOptions, Frames, StreamScope,
};
