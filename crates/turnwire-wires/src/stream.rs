//! Streams: bytes of a protocol into events, and events into frames of a protocol.
//!
//! ```
//! use turnwire_wires::{Decoding, Encoding, Frames, Wire, sse};
//!
//! let agentscope = Wire::named("agentscope").unwrap();
//! let mut decoder = agentscope.decoder(&Decoding::default())?;
//! let mut encoder = agentscope.encoder(&Encoding::default())?;
//!
//! let mut body = String::new();
//! let mut frames = Frames::default();
//! // Bytes come as they come, cut anywhere.
//! for bytes in [&br#"{"type":"USER_INTER"#[..], b"RUPT\",\"reply_id\":\"r\"}\n"] {
//!     decoder.feed(bytes, &mut |decoded| {
//!         encoder.event(&decoded.event.unwrap(), &mut frames);
//!         sse::write(&frames, None, &mut body);
//!         frames.clear();
//!     });
//! }
//! assert_eq!(body, "data: {\"metadata\":{},\"type\":\"USER_INTERRUPT\",\"reply_id\":\"r\"}\n\n");
//! # Ok::<(), turnwire_wires::CannotError>(())
//! ```

use crate::body::{BadFrame, Frame, FrameReader};
use serde::Serialize;
use turnwire_core::{Error, ErrorKind, Event, Result};

/// Where a decoder puts the events.
pub type EventSink<'s> = dyn FnMut(Event<'_>) + 's;

/// What a protocol's stream is on its way in: a state machine over frames.
///
/// A frame that cannot be read is an error, and changes nothing; the stream goes on.
pub trait Decode: Send {
    /// Takes one frame: a JSON text, or a word such as `[DONE]`.
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()>;

    /// There is no more. What is open is closed, and what has no end gets one that says so.
    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        let _ = out;
        Ok(())
    }

    /// The reply that a frame is about which could not be read.
    fn find_reply_id(&self, text: &str) -> Option<String>;

    /// Whether the events themselves say that a stream broke off. Then the beginning of a frame at
    /// its end is no further problem.
    fn reports_truncation(&self) -> bool {
        false
    }
}

/// What a decoder is told.
#[derive(Debug, Clone)]
pub struct DecoderOptions {
    /// The reply that the events of a provider's stream belong to. Without it: the id that the
    /// stream gives.
    pub reply_id: Option<String>,
    /// What stands in front of the ids of blocks that have none of their own, so that several
    /// streams can be parts of one reply. Without it: the id that the stream gives.
    pub block_prefix: Option<String>,
    /// What a provider's stream is.
    pub scope: StreamScope,
    /// The most bytes that one frame may have.
    pub max_frame_bytes: usize,
}

/// What a provider's stream is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamScope {
    /// A whole reply: it gets a `REPLY_START` and a `REPLY_END`.
    #[default]
    Reply,
    /// One model call of a reply that somebody else begins and ends.
    ModelCall,
}

impl Default for DecoderOptions {
    /// A whole reply with the ids of the stream, frames of up to 64 MiB: a large image in one piece.
    fn default() -> Self {
        Self {
            reply_id: None,
            block_prefix: None,
            scope: StreamScope::Reply,
            max_frame_bytes: 64 << 20,
        }
    }
}

/// Bytes of a protocol into events.
pub struct Decoder {
    body: FrameReader,
    decode: Box<dyn Decode>,
    /// The line of the last frame.
    line: u64,
}

/// What a decoder hands on: an event, or why there is none.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The line of the body that it comes from, counted from 1.
    pub line: u64,
    /// The event.
    pub event: Result<Event<'a>>,
    /// The reply that a bad frame is about, where that can be told.
    pub reply_id: Option<String>,
}

impl Decoder {
    pub(crate) fn new(decode: Box<dyn Decode>, limit: usize) -> Self {
        Self { body: FrameReader::with_limit(limit), decode, line: 0 }
    }

    /// Takes the next bytes, and hands on every event that they complete.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Decoded<'_>)) {
        let Self { body, decode, line } = self;
        body.feed(bytes, &mut |frame| decode_frame(&mut **decode, line, &frame, each));
    }

    /// There is no more: hands on what is left, and the end that the stream has, or lacks.
    pub fn end(&mut self, each: &mut dyn FnMut(Decoded<'_>)) {
        let Self { body, decode, line } = self;
        let broken_off = decode.reports_truncation();
        body.end(&mut |frame| {
            decode_frame(&mut **decode, line, &frame, &mut |decoded| {
                if decoded.event.is_ok() || !broken_off {
                    each(decoded);
                }
            });
        });
        let line = *line;
        let ended =
            decode.end(&mut |event| each(Decoded { line, event: Ok(event), reply_id: None }));
        if let Err(error) = ended {
            each(Decoded { line, event: Err(error), reply_id: None });
        }
    }

    /// Takes a whole body.
    pub fn decode_all(mut self, bytes: &[u8]) -> Result<Vec<Event<'static>>> {
        let mut events = Vec::new();
        let mut problem = None;
        let mut each = |decoded: Decoded<'_>| match decoded.event {
            Ok(event) => events.push(event.into_owned()),
            Err(error) => problem = problem.take().or(Some(error)),
        };
        self.feed(bytes, &mut each);
        self.end(&mut each);
        problem.map_or(Ok(events), Err)
    }
}

fn decode_frame(
    decode: &mut dyn Decode,
    line: &mut u64,
    frame: &Frame<'_>,
    each: &mut dyn FnMut(Decoded<'_>),
) {
    *line = frame.line;
    let line = frame.line;
    let text = match frame.text {
        Ok(text) => text,
        Err(bad) => {
            let reply_id = decode.find_reply_id("");
            return each(Decoded { line, event: Err(bad.into()), reply_id });
        }
    };
    let done =
        decode.decode(text, &mut |event| each(Decoded { line, event: Ok(event), reply_id: None }));
    if let Err(error) = done {
        let reply_id = decode.find_reply_id(text);
        each(Decoded { line, event: Err(error), reply_id });
    }
}

impl From<BadFrame> for Error {
    fn from(bad: BadFrame) -> Self {
        match bad {
            BadFrame::NotUtf8 => Self::new(ErrorKind::NotUtf8, "the bytes are not UTF-8"),
            BadFrame::TooLong(limit) => {
                Self::new(ErrorKind::TooLong, format!("an event of more than {limit} bytes"))
            }
        }
    }
}

/// What a protocol's stream is on its way out: a deterministic state machine over the events of
/// turns, their sub-agents' included.
///
/// The state depends on the events alone, however they were merged. So whoever comes late is served
/// by a machine that has seen the same events, with its frames thrown away.
pub trait Encode: Send {
    /// Takes one event, and puts the frames that it becomes into `out`: none, one or several.
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames);

    /// There is no more. What the protocol needs to be closed is closed.
    fn end(&mut self, out: &mut Frames) {
        let _ = out;
    }

    /// What a client has to be told first that comes in here, in the middle of a turn. `messages`
    /// are those of the conversation as they stand, the unfinished reply included.
    fn resume(&mut self, messages: &[turnwire_core::Msg], out: &mut Frames) {
        let _ = (messages, out);
    }
}

/// What an encoder is told. Every field has a sensible default, mostly from the events themselves.
#[derive(Debug, Clone, Default)]
pub struct EncoderOptions {
    /// The session: AG-UI's thread, the blocks protocol's session. Without it: what the reply's
    /// start says.
    pub session_id: Option<String>,
    /// The run, where the protocol has the client name it. Without it: the reply's id.
    pub run_id: Option<String>,
    /// The model, where the protocol names one. Without it: what the model call says.
    pub model: Option<String>,
    /// What the protocol calls the reply: a response, a completion, a message. Without it: the
    /// reply's id.
    pub id: Option<String>,
    /// Whether the client of `OpenAI`'s Responses asked for an answer in JSON: then text that is none
    /// waits, and is left out where the structured output takes its place.
    pub wants_json: bool,
    /// Whether the blocks protocol shows thinking (`agent`) or not (`chat`).
    pub display_mode: DisplayMode,
    /// Whether `OpenAI`'s chat stream ends with a chunk of usage.
    pub usage: bool,
    /// Whether a client that comes in has messages in another order than they stand in, or with
    /// gaps between: then AG-UI has it forget them before it is told them.
    pub resets_client: bool,
}

/// How much of an agent's work the blocks protocol shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DisplayMode {
    /// Thinking too.
    #[default]
    Agent,
    /// The answer.
    Chat,
}

/// What an event became: frames, each a text and, where the protocol names its frames, a name.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    text: String,
    ends: Vec<(&'static str, usize)>,
    /// A frame while it is written.
    scratch: Vec<u8>,
}

impl Frames {
    /// Adds a frame. A name is for protocols that have `event:` lines; otherwise it is empty.
    pub fn push<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.scratch.clear();
        // What is written here are maps with string keys, which always succeed, as UTF-8.
        if serde_json::to_writer(&mut self.scratch, value).is_ok()
            && let Ok(text) = std::str::from_utf8(&self.scratch)
        {
            self.text.push_str(text);
            self.ends.push((name, self.text.len()));
        }
    }

    /// Adds a frame that is a text already: JSON on one line, or a word such as `[DONE]`.
    pub fn push_text(&mut self, name: &'static str, text: &str) {
        self.text.push_str(text);
        self.ends.push((name, self.text.len()));
    }

    /// Adds a frame that is written piece by piece, on one line.
    pub fn push_with(&mut self, name: &'static str, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push((name, self.text.len()));
    }

    /// The frames in order: name and text.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let mut start = 0;
        self.ends.iter().map(move |&(name, end)| {
            let text = self.text.get(start..end).unwrap_or_default();
            start = end;
            (name, text)
        })
    }

    /// How many frames.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes all frames out, and keeps the room.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}
