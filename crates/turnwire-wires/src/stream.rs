//! Decoders and encoders: bytes of a protocol to events, and events to frames of a protocol. Every
//! wire implements [`Decode`], [`Encode`] or both.
//!
//! ```
//! use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire, sse};
//!
//! let agentscope = Wire::named("agentscope").unwrap();
//! let mut decoder = agentscope.decoder(&DecoderOptions::default())?;
//! let mut encoder = agentscope.encoder(&EncoderOptions::default())?;
//!
//! let mut body = String::new();
//! let mut frames = Frames::default();
//! // The bytes may be split anywhere.
//! for bytes in [&br#"{"type":"USER_INTER"#[..], b"RUPT\",\"reply_id\":\"r\"}\n"] {
//!     decoder.feed(bytes, &mut |decoded| {
//!         encoder.encode(&decoded.event.unwrap(), &mut frames);
//!         sse::write(&frames, None, &mut body);
//!         frames.clear();
//!     });
//! }
//! assert_eq!(body, "data: {\"metadata\":{},\"type\":\"USER_INTERRUPT\",\"reply_id\":\"r\"}\n\n");
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::body::{BadFrame, Frame, FrameReader};
use crate::collect::WholeResponse;
use serde::Serialize;
use std::any::Any;
use std::sync::Arc;
use turnwire_core::event::ReplyEnd;
use turnwire_core::{Error, ErrorKind, ErrorType, Event, ReplyError, Result, ToolCall};

/// Receives the events of a decoder.
pub type EventSink<'s> = dyn FnMut(Event<'_>) + 's;

/// Decodes one stream of a protocol: a state machine from frames to events.
///
/// A frame that cannot be read is an error and changes no state; decoding continues with the next
/// frame.
pub trait Decode: Send {
    /// Decodes one frame: a JSON text, or a marker such as `[DONE]`.
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()>;

    /// Ends the stream: closes what is open, and reports a missing end.
    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        let _ = out;
        Ok(())
    }

    /// The id of the reply that an unreadable frame belongs to, if it can be found.
    fn find_reply_id(&self, text: &str) -> Option<String>;

    /// Whether the events themselves report a truncated stream. Then an incomplete last frame is
    /// not reported again.
    fn reports_truncation(&self) -> bool {
        false
    }
}

/// Options of a decoder.
#[derive(Debug, Clone)]
pub struct DecoderOptions {
    /// The id of the reply that a provider's stream becomes. Default: the id in the stream.
    pub reply_id: Option<String>,
    /// Prefix for the ids of blocks that have none, so that several streams can be parts of one
    /// reply. Default: the id in the stream.
    pub block_prefix: Option<String>,
    /// Whether a provider's stream is a whole reply or one model call of it.
    pub scope: StreamScope,
    /// The maximum size of a frame, in bytes.
    pub max_frame_bytes: usize,
}

/// What a provider's stream contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamScope {
    /// A whole reply: the decoder adds `REPLY_START` and `REPLY_END`.
    #[default]
    Reply,
    /// One model call: the caller starts and ends the reply.
    ModelCall,
}

impl Default for DecoderOptions {
    /// A whole reply with the ids of the stream, and frames of up to 64 MiB (a large image).
    fn default() -> Self {
        Self {
            reply_id: None,
            block_prefix: None,
            scope: StreamScope::Reply,
            max_frame_bytes: 64 << 20,
        }
    }
}

/// Decodes the bytes of one stream into events.
pub struct Decoder {
    body: FrameReader,
    decode: Box<dyn Decode>,
    /// The line of the last frame.
    line: u64,
}

/// One result of a decoder: an event, or an error.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The line of the body, from 1.
    pub line: u64,
    /// The event.
    pub event: Result<Event<'a>>,
    /// The id of the reply that an unreadable frame belongs to, if known.
    pub reply_id: Option<String>,
}

impl Decoder {
    pub(crate) fn new(decode: Box<dyn Decode>, limit: usize) -> Self {
        Self { body: FrameReader::with_limit(limit), decode, line: 0 }
    }

    /// Takes the next bytes and emits every event that they complete.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Decoded<'_>)) {
        let Self { body, decode, line } = self;
        body.feed(bytes, &mut |frame| decode_frame(&mut **decode, line, &frame, each));
    }

    /// Ends the stream: emits what is left, and a missing end.
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

    /// Decodes a whole body.
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

/// Encodes one stream of a protocol: a deterministic state machine from events to frames,
/// sub-agents included.
///
/// Its state depends only on the events, however they were merged. To serve a late subscriber, give
/// a new encoder the same events and discard its frames.
pub trait Encode: Send {
    /// Encodes one event as zero or more frames.
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames);

    /// Ends the stream, or pauses it: closes what the protocol requires to be closed.
    fn end(&mut self, out: &mut Frames) {
        let _ = out;
    }

    /// Ends the stream with an error that only this client gets: the reply itself has not failed. The server calls it
    /// instead of [`end`](Self::end) when the client's credentials expire or when it stops. Wires that never respond with
    /// a single reply ignore it.
    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        let _ = failure;
        self.end(out);
    }

    /// Takes the response to a request that does not stream, if the encoder [collects](EncoderOptions::collects) it: the
    /// same as what its frames add up to. `None` if nothing was written, or if the protocol has no such responses.
    fn take_response(&mut self) -> Option<WholeResponse> {
        None
    }

    /// Writes what a client needs first that connects in the middle of a turn. `messages` is the
    /// conversation so far, including the unfinished reply.
    fn resume(&mut self, messages: &[turnwire_core::Msg], out: &mut Frames) {
        let _ = (messages, out);
    }

    /// Called before [`end`](Self::end), for clients that only execute tools, if calls of the reply or
    /// of its sub-agents are pending: which of them the client has to execute.
    fn settle_calls(&mut self, reply_id: &str, calls: &UnsettledCalls, out: &mut Frames) {
        let _ = (reply_id, calls, out);
    }
}

/// Options of an encoder. The defaults come from the events.
#[derive(Debug, Clone, Default)]
pub struct EncoderOptions {
    /// The session: AG-UI's thread, the content-block protocol's session. Default: as `REPLY_START`
    /// says.
    pub session_id: Option<String>,
    /// The model's name, if the protocol has one. Default: as `MODEL_CALL_START` says.
    pub model: Option<String>,
    /// The id of the response, completion or message. Default: the reply's id.
    pub id: Option<String>,
    /// Whether the client asked for JSON: then text that is not JSON is held back, and dropped if
    /// the reply has structured output.
    pub wants_json: bool,
    /// Whether the encoder builds the whole response, for [`Encode::take_response`].
    pub collects: bool,
    /// Options of single wires.
    pub wire: WireOptions,
}

/// Why a stream ends before its reply does.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamFailure {
    /// The reply.
    pub reply_id: String,
    /// When the stream ends, as ISO 8601.
    pub created_at: String,
    /// The error type for programs.
    pub error_type: ErrorType,
    /// What happened, and what to do next.
    pub message: String,
}

impl StreamFailure {
    /// The error that the client gets.
    pub(crate) fn error(&self) -> ReplyError {
        ReplyError::new(self.error_type.clone(), self.message.clone())
    }

    /// For encoders that write an error of the stream like one of the reply.
    pub(crate) fn as_reply_end(&self) -> ReplyEnd {
        ReplyEnd::failed(self.error())
    }
}

/// Pending calls that an encoder cannot recognise by the events of a reply alone.
#[derive(Debug, Clone, Default)]
pub struct UnsettledCalls {
    /// The ids of calls that wait for an approval: not for the client to execute.
    pub awaiting_approval: Vec<String>,
    /// Calls of sub-agents that the client has to execute, as if they were the agent's own.
    pub of_sub_agents: Vec<ToolCall>,
}

impl UnsettledCalls {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.awaiting_approval.is_empty() && self.of_sub_agents.is_empty()
    }
}

/// Options of single wires, each of a type of its own, such as
/// [`ag_ui::RunOptions`](crate::ag_ui::RunOptions). Other wires ignore them.
#[derive(Debug, Clone, Default)]
pub struct WireOptions(Vec<Arc<dyn Any + Send + Sync>>);

impl WireOptions {
    /// The options of this type, if they were set.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.iter().find_map(|options| options.downcast_ref())
    }
}

impl EncoderOptions {
    /// Sets the options of one wire.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, options: T) -> Self {
        self.wire.0.retain(|known| !known.as_ref().is::<T>());
        self.wire.0.push(Arc::new(options));
        self
    }
}

/// The frames of one or more events: each a text and, if the protocol names its frames, a name.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    text: String,
    ends: Vec<(&'static str, usize)>,
    /// Buffer for the frame being written.
    scratch: Vec<u8>,
    /// How many frames there were when an answer ended.
    answer_end: Option<usize>,
}

impl Frames {
    /// Adds a frame. The name is for protocols with `event:` lines; otherwise it is empty.
    pub fn push<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.scratch.clear();
        // Serializing maps with string keys does not fail, and the result is UTF-8.
        if serde_json::to_writer(&mut self.scratch, value).is_ok()
            && let Ok(text) = std::str::from_utf8(&self.scratch)
        {
            self.text.push_str(text);
            self.ends.push((name, self.text.len()));
        }
    }

    /// Adds a frame that is already text: JSON on one line, or a marker such as `[DONE]`.
    pub fn push_text(&mut self, name: &'static str, text: &str) {
        self.text.push_str(text);
        self.ends.push((name, self.text.len()));
    }

    /// Adds a frame that `write` appends to the buffer, on one line.
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

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Marks the last frame as the end of an answer, in protocols where one reply may have several
    /// answers: nothing after it belongs to the same answer.
    pub fn end_answer(&mut self) {
        self.answer_end = Some(self.ends.len());
    }

    /// Whether the last frame ends an answer.
    pub fn ends_answer(&self) -> bool {
        self.answer_end == Some(self.ends.len())
    }

    /// Removes the first frames.
    pub fn remove_first(&mut self, count: usize) {
        let count = count.min(self.ends.len());
        let text = self.ends.drain(..count).next_back().map_or(0, |(_, end)| end);
        self.text.drain(..text);
        self.ends.iter_mut().for_each(|(_, end)| *end -= text);
        self.answer_end = self.answer_end.and_then(|end| end.checked_sub(count));
    }

    /// Takes all frames out, and keeps the room.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.answer_end = None;
    }
}
