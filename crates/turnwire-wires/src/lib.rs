//! Decodes and encodes every protocol that Turnwire speaks. No I/O: the server, the agent and the
//! command line bring the bytes.
//!
//! ```
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let wire = Wire::named("agentscope").unwrap();
//! let body = br#"{"type":"USER_INTERRUPT","reply_id":"r"}"#;
//! let events = wire.decoder(&DecoderOptions::default())?.decode_all(body)?;
//! assert_eq!(events[0].kind.type_name(), "USER_INTERRUPT");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`registry`] | finds a wire by name, and adds wires of your own |
//! | [`stream`] | the traits of decoders and encoders, and their options |
//! | [`body`] | splits a body into frames: JSON lines or server-sent events |
//! | [`sse`] | writes server-sent events |
//! | [`loss`] | what a wire cannot hold |
//! | [`model_request`] | a request to a model, independent of its protocol |
//! | [`model_options`] | its options: sampling, limits, tool choice, and which wire has which |
//! | [`client_request`], [`collect`] | an agent that serves as a model: its requests, and responses without streaming |
//! | all others | one protocol each |
//!
//! Files have the same name in every protocol:
//!
//! | file | what it does |
//! |---|---|
//! | `encode.rs`, `decode.rs` | a stream: events to frames, frames to events |
//! | `message.rs` (or `read_messages.rs` and `write_messages.rs`) | whole messages, both ways |
//! | `client_request.rs` | reads the request of a client to an agent |
//! | `model_request.rs` | writes a request to a model |

// Our own enums are matched without `_`, so that the compiler finds the places for a new variant.
#![warn(clippy::wildcard_enum_match_arm)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod ag_ui;
pub mod agentscope;
pub mod agentscope_java;
pub mod ai_sdk;
pub mod anthropic;
pub mod blocks;
pub mod body;
pub mod cache_marks;
pub mod client_request;
pub mod collect;
mod content;
pub mod dashscope;
pub mod gemini;
mod json;
mod lenient;
pub mod loss;
pub mod model_options;
pub mod model_request;
pub mod native;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
mod provider;
pub mod registry;
pub mod sse;
pub mod stream;
mod structured_output;
mod turnwire;

pub use content::check_file_references;
pub use loss::Loss;
pub use model_options::{ModelOption, ModelOptions};
pub use model_request::Request;
pub use registry::{DuplicateWireError, Wire};
pub use stream::{
    Decode, Decoded, Decoder, DecoderOptions, Encode, EncoderOptions, Frames, StreamFailure,
    StreamScope, UnsettledCalls, WireOptions,
};

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
