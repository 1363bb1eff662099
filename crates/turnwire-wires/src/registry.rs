//! From a wire's name to what it can do.
//!
//! ```
//! use turnwire_wires::Wire;
//!
//! let wire = Wire::named("turnwire").unwrap();
//! assert!(wire.can_decode() && wire.can_encode());
//! assert!(Wire::all().any(|wire| wire.name == "agentscope"));
//! ```

use crate::loss::Loss;
use crate::model_request::Request;
use crate::stream::{Decode, Decoder, DecoderOptions, Encode, EncoderOptions};
use std::fmt;
use turnwire_core::{Json, Msg, Result};

macro_rules! wires {
    ($($folder:ident)+) => {
        static WIRES: &[&Wire] = &[$(&crate::$folder::WIRE,)+];
    };
}

// Every wire. To add a protocol is to add a folder and a line here.
wires! {
    turnwire
    agentscope
    agentscope_java
    blocks
    ag_ui
    ai_sdk
    openai_chat
    openai_responses
    anthropic
    gemini
    dashscope
    ollama
}

/// A protocol's way to write messages and events, and what it can do.
pub struct Wire {
    /// The name, as in `--wire` and `?wire=`.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What its stream cannot hold, both ways.
    pub stream_losses: &'static [Loss],
    /// What its messages cannot hold, both ways.
    pub message_losses: &'static [Loss],
    /// How a client that was away goes on.
    pub resume: ResumeMode,
    /// The word that ends its stream, behind everything else.
    pub end_marker: Option<&'static str>,
    /// Whether replies of the session's own agent may grow at the same time. Elsewhere one has to end
    /// before the next begins.
    pub interleaves_replies: bool,
    /// What its clients send to an agent, where we read that.
    pub client_request: Option<&'static str>,
    pub(crate) decode: Option<NewDecoder>,
    pub(crate) encode: Option<NewEncoder>,
    pub(crate) messages: Option<MessageCodec>,
    pub(crate) model_request: Option<WriteModelRequest>,
}

type NewDecoder = fn(&DecoderOptions) -> Box<dyn Decode>;
type NewEncoder = fn(&EncoderOptions) -> Box<dyn Encode>;
type WriteModelRequest = fn(&Request<'_>) -> Result<Json>;

/// How a client of a protocol goes on after it was away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeMode {
    /// It gets what came after its token.
    Tail,
    /// It gets the current turn again from its start.
    Replay,
    /// It gets the conversation as it stands, then what came after its token.
    Snapshot,
}

/// A protocol's messages, both ways.
#[derive(Clone, Copy)]
pub(crate) struct MessageCodec {
    /// Reads a list of messages, or a single one. What one of ours holds may be several of theirs.
    pub decode: fn(&str) -> Result<Vec<Msg>>,
    /// Writes messages; one of ours may become several of theirs, or none.
    pub encode: fn(&[Msg]) -> Vec<Json>,
}

impl Wire {
    /// A wire that can do nothing yet: what a folder's own declaration starts from.
    pub(crate) const EMPTY: Self = Self {
        name: "",
        about: "",
        stream_losses: &[],
        message_losses: &[],
        resume: ResumeMode::Tail,
        end_marker: None,
        interleaves_replies: false,
        client_request: None,
        decode: None,
        encode: None,
        messages: None,
        model_request: None,
    };

    /// All wires.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        WIRES.iter().copied()
    }

    /// The wire of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|wire| wire.name == name)
    }

    /// Whether its streams can be read.
    pub fn can_decode(&self) -> bool {
        self.decode.is_some()
    }

    /// Whether its streams can be written.
    pub fn can_encode(&self) -> bool {
        self.encode.is_some()
    }

    /// Whether its messages can be read and written.
    pub fn has_messages(&self) -> bool {
        self.messages.is_some()
    }

    /// Whether a model can be asked in it.
    pub fn can_request_model(&self) -> bool {
        self.model_request.is_some()
    }

    /// Reads a stream.
    pub fn decoder(&self, decoding: &DecoderOptions) -> Result<Decoder, UnsupportedError> {
        let decode = self.decode.ok_or_else(|| self.unsupported("be read as a stream"))?;
        Ok(Decoder::new(decode(decoding), decoding.max_frame_bytes))
    }

    /// Writes a stream.
    pub fn encoder(&self, encoding: &EncoderOptions) -> Result<Box<dyn Encode>, UnsupportedError> {
        let encode = self.encode.ok_or_else(|| self.unsupported("be written as a stream"))?;
        Ok(encode(encoding))
    }

    /// Reads messages: a JSON list of them, or a single one.
    pub fn decode_messages(&self, text: &str) -> Result<Result<Vec<Msg>>, UnsupportedError> {
        let messages = self.messages.ok_or_else(|| self.unsupported("be read as messages"))?;
        Ok((messages.decode)(text))
    }

    /// Writes messages. One of ours may become several of theirs.
    pub fn encode_messages(&self, messages: &[Msg]) -> Result<Vec<Json>, UnsupportedError> {
        let wire = self.messages.ok_or_else(|| self.unsupported("be written as messages"))?;
        Ok((wire.encode)(messages))
    }

    /// The body of a request to a model.
    pub fn model_request(&self, request: &Request<'_>) -> Result<Result<Json>, UnsupportedError> {
        let body = self.model_request.ok_or_else(|| self.unsupported("be asked as a model"))?;
        Ok(body(request))
    }

    fn unsupported(&self, what: &'static str) -> UnsupportedError {
        UnsupportedError { wire: self.name, what }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wire").field(&self.name).finish()
    }
}

impl PartialEq for Wire {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Wire {}

/// The wire is not made for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedError {
    wire: &'static str,
    what: &'static str,
}

impl fmt::Display for UnsupportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the wire {} cannot {}", self.wire, self.what)
    }
}

impl std::error::Error for UnsupportedError {}
