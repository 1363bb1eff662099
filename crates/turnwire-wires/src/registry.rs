//! All wires, by name. The server, the agent and the command line look them up here.
//!
//! ```
//! use turnwire_wires::Wire;
//!
//! let wire = Wire::named("turnwire").unwrap();
//! assert!(wire.can_decode() && wire.can_encode());
//! assert!(Wire::all().any(|wire| wire.name == "agentscope"));
//! ```
//!
//! # A wire of your own
//!
//! Implement [`Decode`] and [`Encode`], declare a [`Wire`], and register it. Then it can be used by
//! its name wherever a built-in wire can, such as `?wire=lines` of a server in the same process.
//!
//! ```
//! use turnwire_core::event::TextBlockDelta;
//! use turnwire_core::{Event, EventKind, Json, Result};
//! use turnwire_wires::stream::{Decode, DecoderOptions, Encode, EncoderOptions, EventSink, Frames};
//! use turnwire_wires::{Loss, Wire};
//!
//! /// One JSON string per text delta.
//! struct Lines;
//!
//! impl Encode for Lines {
//!     fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
//!         if let EventKind::TextBlockDelta(delta) = &event.kind {
//!             out.push("", &delta.delta);
//!         }
//!     }
//! }
//!
//! impl Decode for Lines {
//!     fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
//!         let delta: String = Json::parse(text)?.parse_as()?;
//!         out(Event::new("r", TextBlockDelta { block_id: "b".into(), delta: delta.into() }));
//!         Ok(())
//!     }
//!
//!     fn find_reply_id(&self, _: &str) -> Option<String> {
//!         None
//!     }
//! }
//!
//! static LINES: Wire = Wire {
//!     name: "lines",
//!     about: "text deltas, one per line",
//!     stream_losses: &[Loss::Hints, Loss::ToolResults],
//!     decode: Some(|_| Box::new(Lines)),
//!     encode: Some(|_| Box::new(Lines)),
//!     ..Wire::EMPTY
//! };
//!
//! Wire::register(&LINES)?;
//! let wire = Wire::named("lines").unwrap();
//! let events = wire.decoder(&DecoderOptions::default())?.decode_all(b"\"Hel\"\n\"lo\"\n")?;
//! let (mut encoder, mut frames) = (wire.encoder(&EncoderOptions::default())?, Frames::default());
//! for event in &events {
//!     encoder.encode(event, &mut frames);
//! }
//! let texts: Vec<&str> = frames.iter().map(|(_, text)| text).collect();
//! assert_eq!(texts, [r#""Hel""#, r#""lo""#]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::loss::Loss;
use crate::model_request::Request;
use crate::stream::{Decode, Decoder, DecoderOptions, Encode, EncoderOptions};
use std::fmt;
use std::sync::{PoisonError, RwLock};
use turnwire_core::{DataBlock, Error, ErrorKind, Json, Msg, Result};

macro_rules! wires {
    ($($folder:ident)+) => {
        static BUILT_IN: &[&Wire] = &[$(&crate::$folder::WIRE,)+];
    };
}

// Every built-in wire. To add one: a module with a `WIRE`, and its name here.
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

/// Wires that the application added.
static REGISTERED: RwLock<Vec<&'static Wire>> = RwLock::new(Vec::new());

/// One protocol: its name, what it can do, what it loses.
///
/// Build one of your own from [`Wire::EMPTY`]. A method that the wire does not support returns
/// [`ErrorKind::Unsupported`].
pub struct Wire {
    /// The name, as in `--wire` and `?wire=`.
    pub name: &'static str,
    /// A one-line description, for `turnwire wires`.
    pub about: &'static str,
    /// What its stream cannot hold, in either direction.
    pub stream_losses: &'static [Loss],
    /// What its messages cannot hold, in either direction.
    pub message_losses: &'static [Loss],
    /// What a client gets that reconnects.
    pub resume: ResumeMode,
    /// The text of the last frame of a stream, such as `[DONE]`.
    pub end_marker: Option<&'static str>,
    /// Whether several replies of a session's own agent can be open at once. On other wires one
    /// reply ends before the next starts.
    pub interleaves_replies: bool,
    /// Whether its events carry our event ids, so that a producer may send them again.
    pub has_event_ids: bool,
    /// Whether the server also sends its frames over a WebSocket.
    pub has_websocket: bool,
    /// The name of the request that its clients send to an agent, where Turnwire reads it.
    pub client_request: Option<&'static str>,
    /// Creates a decoder, if it can decode streams.
    pub decode: Option<NewDecoder>,
    /// Creates an encoder, if it can encode streams.
    pub encode: Option<NewEncoder>,
    /// Reads and writes messages, if it can.
    pub messages: Option<MessageCodec>,
    /// Writes a request to a model, if it can.
    pub model_request: Option<WriteModelRequest>,
    /// Whether such a request has an image, a recording or a file, not a note that describes it. `None`: it has all.
    pub accepts_data: Option<fn(&DataBlock) -> bool>,
}

/// Creates a decoder for one stream.
pub type NewDecoder = fn(&DecoderOptions) -> Box<dyn Decode>;
/// Creates an encoder for one stream.
pub type NewEncoder = fn(&EncoderOptions) -> Box<dyn Encode>;
/// Writes the body of a request to a model.
pub type WriteModelRequest = fn(&Request<'_>) -> Result<Json>;

/// What a client gets that reconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeMode {
    /// The events after its resume token.
    Tail,
    /// The current turn from its start.
    Replay,
    /// A snapshot of the conversation, then the events after its resume token.
    Snapshot,
}

/// Reads and writes a protocol's whole messages.
#[derive(Debug, Clone, Copy)]
pub struct MessageCodec {
    /// Reads a JSON list of messages, or a single one. Several of theirs may become one of ours.
    pub decode: fn(&str) -> Result<Vec<Msg>>,
    /// Writes messages. One of ours may become several of theirs, or none.
    pub encode: fn(&[Msg]) -> Vec<Json>,
}

impl Wire {
    /// A wire without a name that can do nothing. Declarations start from it.
    pub const EMPTY: Self = Self {
        name: "",
        about: "",
        stream_losses: &[],
        message_losses: &[],
        resume: ResumeMode::Tail,
        end_marker: None,
        interleaves_replies: false,
        has_event_ids: false,
        has_websocket: false,
        client_request: None,
        decode: None,
        encode: None,
        messages: None,
        model_request: None,
        accepts_data: None,
    };

    /// All wires: the built-in ones, then registered ones.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
        BUILT_IN.iter().copied().chain(registered)
    }

    /// Adds a wire of your own for the whole process.
    pub fn register(wire: &'static Self) -> Result<(), DuplicateWireError> {
        let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
        if BUILT_IN.iter().chain(registered.iter()).any(|known| known.name == wire.name) {
            return Err(DuplicateWireError { name: wire.name });
        }
        registered.push(wire);
        Ok(())
    }

    /// Finds a wire by name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|wire| wire.name == name)
    }

    /// Whether it can decode streams.
    pub fn can_decode(&self) -> bool {
        self.decode.is_some()
    }

    /// Whether it can encode streams.
    pub fn can_encode(&self) -> bool {
        self.encode.is_some()
    }

    /// Whether it reads and writes messages.
    pub fn has_messages(&self) -> bool {
        self.messages.is_some()
    }

    /// Whether it writes requests to a model.
    pub fn can_request_model(&self) -> bool {
        self.model_request.is_some()
    }

    /// Creates a decoder for one stream.
    pub fn decoder(&self, decoding: &DecoderOptions) -> Result<Decoder> {
        let decode = self.decode.ok_or_else(|| self.unsupported("decode streams"))?;
        Ok(Decoder::new(decode(decoding), decoding.max_frame_bytes))
    }

    /// Creates an encoder for one stream.
    pub fn encoder(&self, encoding: &EncoderOptions) -> Result<Box<dyn Encode>> {
        let encode = self.encode.ok_or_else(|| self.unsupported("encode streams"))?;
        Ok(encode(encoding))
    }

    /// Reads messages: a JSON list of them, or a single one.
    pub fn decode_messages(&self, text: &str) -> Result<Vec<Msg>> {
        let messages = self.messages.ok_or_else(|| self.unsupported("read messages"))?;
        (messages.decode)(text)
    }

    /// Writes messages. One of ours may become several of theirs.
    pub fn encode_messages(&self, messages: &[Msg]) -> Result<Vec<Json>> {
        let wire = self.messages.ok_or_else(|| self.unsupported("write messages"))?;
        Ok((wire.encode)(messages))
    }

    /// Writes the body of a request to a model.
    pub fn model_request(&self, request: &Request<'_>) -> Result<Json> {
        let body =
            self.model_request.ok_or_else(|| self.unsupported("write requests to a model"))?;
        body(request)
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::new(ErrorKind::Unsupported, format!("the wire {} cannot {what}", self.name))
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

/// A wire of this name exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuplicateWireError {
    name: &'static str,
}

impl fmt::Display for DuplicateWireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a wire named {} exists already; choose another name", self.name)
    }
}

impl std::error::Error for DuplicateWireError {}
