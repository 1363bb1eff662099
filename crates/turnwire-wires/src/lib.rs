//! Every protocol in and out of one event model. No I/O.
//!
//! ```
//! use turnwire_wires::Wire;
//!
//! let wire = Wire::from_name("agentscope").unwrap();
//! let event = wire.decode_event(r#"{"type":"USER_INTERRUPT","reply_id":"r"}"#)?;
//! assert_eq!(wire.encode_event(&event), r#"{"metadata":{},"type":"USER_INTERRUPT","reply_id":"r"}"#);
//! # Ok::<(), turnwire_core::Error>(())
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`registry`] | from a wire's name to what it can do |
//! | [`frames`] | the one reader of bodies: JSON lines or server-sent events, cut anywhere |
//! | [`agentscope`] | exactly what the AgentScope 2.x packages accept |
//!
//! The wire `turnwire` has no module: it is the JSON of `turnwire-core`.

pub mod agentscope;
pub mod frames;
pub mod registry;

pub use registry::Wire;
