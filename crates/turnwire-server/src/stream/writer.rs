//! Encodes events into the bytes of a stream.

use bytes::Bytes;
use memchr::memmem;
use std::sync::{Arc, LazyLock};
use turnwire_core::{Event, EventKind, Fields, Msg, Seq};
use turnwire_log::Session;
use turnwire_wires::blocks::DisplayMode;
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire, sse};

/// The format of a stream. Subscribers of one session with the same format share the encoding.
#[derive(Debug, Clone, Copy)]
pub struct StreamFormat {
    /// The protocol.
    pub wire: &'static Wire,
    /// How frames are delimited.
    pub framing: Framing,
    /// Whether adjacent deltas of the backlog are merged.
    pub merge: Merge,
    /// How much the blocks protocol shows.
    pub display: DisplayMode,
}

/// How frames are delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One frame a line; each becomes a message of a WebSocket, and has its session's id.
    WebSocket,
}

/// What to do with adjacent deltas of the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Merge {
    /// Merge them.
    Deltas,
    /// Leave them as they were written.
    Nothing,
}

/// Identifies a format.
pub(super) type FormatKey = (&'static str, Framing, Merge, bool);

impl StreamFormat {
    /// Server-sent events of a wire, merged.
    pub fn sse(wire: &'static Wire) -> Self {
        let display = DisplayMode::default();
        Self { wire, framing: Framing::Sse, merge: Merge::Deltas, display }
    }

    /// Whether events are written as they are stored.
    pub(super) fn is_canonical(&self) -> bool {
        self.wire.name == "turnwire"
    }

    pub(super) fn key(&self) -> FormatKey {
        (self.wire.name, self.framing, self.merge, self.display == DisplayMode::Chat)
    }
}

/// The frames of some events.
#[derive(Debug, Clone, Default)]
pub(super) struct Encoded {
    pub bytes: Bytes,
    pub reply_ends: Option<Arc<[ReplyEndMark]>>,
}

/// The end of a reply among encoded events.
#[derive(Debug)]
pub(super) struct ReplyEndMark {
    reply_id: String,
    is_from_sub_agent: bool,
    /// Where its frame ends.
    offset: usize,
}

/// The end of a reply with which a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastReply<'a> {
    /// None.
    None,
    /// That of this reply.
    Id(&'a str),
    /// The next one, except those of sub-agents.
    Next,
}

impl LastReply<'_> {
    fn matches(self, mark: &ReplyEndMark) -> bool {
        match self {
            Self::None => false,
            Self::Id(id) => mark.reply_id == id,
            Self::Next => !mark.is_from_sub_agent,
        }
    }
}

impl Encoded {
    /// The frames from an offset on, up to the end of a reply if that is among them. Returns whether it is.
    pub fn slice(&self, from: usize, last: LastReply<'_>) -> (Bytes, bool) {
        let from = from.min(self.bytes.len());
        let marks = self.reply_ends.iter().flat_map(|marks| marks.iter());
        let mut ends = marks.filter(|mark| mark.offset > from && last.matches(mark));
        match ends.next() {
            Some(end) => (self.bytes.slice(from..end.offset), true),
            None => (self.bytes.slice(from..), false),
        }
    }
}

/// Encodes the events of a session in a format.
pub(super) struct StreamWriter {
    framing: Framing,
    session: String,
    epoch: String,
    /// `None` for the canonical wire.
    encoder: Option<Box<dyn Encode>>,
    frames: Frames,
    out: String,
    reply_ends: Vec<ReplyEndMark>,
    token: String,
}

/// Finds stored lines that may be the end of a reply: in a text there would be a backslash before the second quote.
static REPLY_END: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(b"\"REPLY_END\""));

impl StreamWriter {
    pub fn new(session: &Session, format: &StreamFormat) -> Result<Self, turnwire_core::Error> {
        let options = EncoderOptions {
            session_id: Some(session.id().to_owned()),
            ..EncoderOptions::default()
        };
        let options = options.with(format.display).with(StreamOptions { include_usage: true });
        let encoder =
            if format.is_canonical() { None } else { Some(format.wire.encoder(&options)?) };
        Ok(Self {
            framing: format.framing,
            session: session.id().to_owned(),
            epoch: session.epoch().to_owned(),
            encoder,
            frames: Frames::default(),
            out: String::new(),
            reply_ends: Vec::new(),
            token: String::new(),
        })
    }

    /// Writes a stored event.
    pub fn write_line(&mut self, seq: Seq, line: &[u8]) -> turnwire_log::Result<()> {
        let is_copied = self.encoder.is_none()
            && match self.framing {
                Framing::Sse => true,
                Framing::WebSocket => !has_routing_fields(line),
            };
        // Stored lines are UTF-8; a damaged row is detected by its checksum.
        let text = is_copied.then(|| std::str::from_utf8(line).ok()).flatten();
        let Some(open) = text.and_then(|text| text.strip_suffix('}')) else {
            self.write_event(&Session::parse_event(seq, line)?);
            return Ok(());
        };
        self.set_token(Some(seq));
        if self.framing == Framing::Sse {
            sse::begin_frame("", Some(&self.token), &mut self.out);
        }
        self.out.push_str(open);
        self.out.push_str(",\"seq\":");
        let mut digits = [0; 20];
        self.out.push_str(format_decimal(seq.get(), &mut digits));
        match self.framing {
            Framing::Sse => {
                self.out.push('}');
                sse::end_frame(&mut self.out);
            }
            Framing::WebSocket => {
                // Session ids and tokens need no escaping in JSON.
                self.out.push_str(",\"session_id\":\"");
                self.out.push_str(&self.session);
                self.out.push_str("\",\"event_id\":\"");
                self.out.push_str(&self.token);
                self.out.push_str("\"}\n");
            }
        }
        if REPLY_END.find(line).is_some() {
            self.mark_reply_end(&Session::parse_event(seq, line)?);
        }
        Ok(())
    }

    /// Writes an event.
    pub fn write_event(&mut self, event: &Event<'_>) {
        match &mut self.encoder {
            Some(encoder) => encoder.encode(event, &mut self.frames),
            None => self.frames.push_text("", &event.to_json()),
        }
        self.write_frames(event.seq);
        self.mark_reply_end(event);
    }

    fn mark_reply_end(&mut self, event: &Event<'_>) {
        if let EventKind::ReplyEnd(_) = event.kind {
            let (reply_id, offset) = (event.reply_id.to_string(), self.out.len());
            let is_from_sub_agent = event.is_from_sub_agent();
            self.reply_ends.push(ReplyEndMark { reply_id, is_from_sub_agent, offset });
        }
    }

    /// The encoder, unless the wire is canonical.
    pub fn encoder_mut(&mut self) -> Option<&mut (dyn Encode + 'static)> {
        self.encoder.as_deref_mut()
    }

    /// Writes the snapshot for a client that joins in the middle.
    pub fn write_snapshot(&mut self, messages: &[Msg]) {
        if let Some(encoder) = &mut self.encoder {
            encoder.resume(messages, &mut self.frames);
            self.write_frames(None);
        }
    }

    /// Writes the end of the stream.
    pub fn write_end(&mut self, end_marker: Option<&'static str>) {
        if let Some(encoder) = &mut self.encoder {
            encoder.end(&mut self.frames);
            if let Some(marker) = end_marker {
                self.frames.push_text("", marker);
            }
            self.write_frames(None);
        }
    }

    /// Writes the frames of one event. The last of them has the token.
    fn write_frames(&mut self, seq: Option<Seq>) {
        if self.frames.is_empty() {
            return;
        }
        self.set_token(seq);
        let token = Some(self.token.as_str()).filter(|token| !token.is_empty());
        match self.framing {
            Framing::Sse => sse::write(&self.frames, token, &mut self.out),
            Framing::WebSocket => {
                let last = self.frames.len();
                for (at, (_, text)) in self.frames.iter().enumerate() {
                    let token = token.filter(|_| at + 1 == last);
                    write_socket_frame(text, &self.session, token, &mut self.out);
                }
            }
        }
        self.frames.clear();
    }

    /// Sets the resume token of the current event.
    fn set_token(&mut self, seq: Option<Seq>) {
        self.token.clear();
        let Some(seq) = seq else { return };
        self.token.push_str(&self.epoch);
        self.token.push('.');
        let mut digits = [0; 20];
        self.token.push_str(format_decimal(seq.get(), &mut digits));
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes what was written.
    pub fn take(&mut self) -> Encoded {
        let reply_ends = std::mem::take(&mut self.reply_ends);
        let reply_ends = (!reply_ends.is_empty()).then(|| reply_ends.into());
        if self.out.len() > COPY_BELOW {
            return Encoded { bytes: std::mem::take(&mut self.out).into(), reply_ends };
        }
        // It may be kept for a while, so it should not take more memory than it needs.
        let bytes = Bytes::copy_from_slice(self.out.as_bytes());
        self.out.clear();
        Encoded { bytes, reply_ends }
    }
}

/// Shorter output is copied rather than moved.
const COPY_BELOW: usize = 4096;

/// The decimal digits of a number.
fn format_decimal(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    digits.get(start..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or("0")
}

/// Whether a frame may contain these fields already: its own, or inside of a value.
fn has_routing_fields(text: &[u8]) -> bool {
    [&b"\"session_id\""[..], b"\"event_id\""].iter().any(|name| memmem::find(text, name).is_some())
}

/// Writes a WebSocket frame with its session and token. Fields of the same names in the event are overwritten: an
/// external agent may have its own ids.
pub(crate) fn write_socket_frame(text: &str, session: &str, token: Option<&str>, out: &mut String) {
    let names = [Some(("session_id", session)), token.map(|token| ("event_id", token))];
    if has_routing_fields(text.as_bytes())
        && let Ok(mut fields) = serde_json::from_str::<Fields>(text)
    {
        for (name, value) in names.into_iter().flatten() {
            fields.insert(name, value);
        }
        if let Ok(text) = serde_json::to_string(&fields) {
            out.push_str(&text);
            out.push('\n');
            return;
        }
    }
    let Some(open) = text.strip_suffix('}').filter(|_| text.starts_with('{')) else {
        out.push_str(text);
        out.push('\n');
        return;
    };
    out.push_str(open);
    let mut joint = if open == "{" { "" } else { "," };
    for (name, value) in names.into_iter().flatten() {
        out.push_str(joint);
        out.push('"');
        out.push_str(name);
        out.push_str("\":\"");
        out.push_str(value);
        out.push('"');
        joint = ",";
    }
    out.push_str("}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str, token: Option<&str>) -> String {
        let mut out = String::new();
        write_socket_frame(text, "s", token, &mut out);
        out
    }

    #[test]
    fn a_socket_frame_has_its_session_and_its_token() {
        assert_eq!(frame("{}", None), "{\"session_id\":\"s\"}\n");
        assert_eq!(
            frame(r#"{"type":"X"}"#, Some("e.1")),
            "{\"type\":\"X\",\"session_id\":\"s\",\"event_id\":\"e.1\"}\n"
        );
    }

    #[test]
    fn fields_of_the_event_with_the_same_names_are_overwritten() {
        for (text, wanted) in [
            (r#"{"session_id":"x","a":1}"#, r#"{"session_id":"s","a":1,"event_id":"e.1"}"#),
            (
                r#"{"metadata":{"session_id":"x"}}"#,
                r#"{"metadata":{"session_id":"x"},"session_id":"s","event_id":"e.1"}"#,
            ),
            (
                r#"{"delta":["event_id"]}"#,
                r#"{"delta":["event_id"],"session_id":"s","event_id":"e.1"}"#,
            ),
        ] {
            assert_eq!(frame(text, Some("e.1")), format!("{wanted}\n"));
        }
    }

    #[test]
    fn encoded_events_are_cut_after_the_end_of_a_reply() {
        let marks = [("a", true, 2), ("b", false, 4)].map(|(id, is_from_sub_agent, offset)| {
            ReplyEndMark { reply_id: id.to_owned(), is_from_sub_agent, offset }
        });
        let encoded =
            Encoded { bytes: Bytes::from_static(b"aabbcc"), reply_ends: Some(marks.into()) };
        let slice = |from, last| {
            let (bytes, has_end) = encoded.slice(from, last);
            (String::from_utf8(bytes.to_vec()).unwrap(), has_end)
        };
        assert_eq!(slice(0, LastReply::None), ("aabbcc".to_owned(), false));
        assert_eq!(slice(0, LastReply::Id("b")), ("aabb".to_owned(), true));
        assert_eq!(slice(2, LastReply::Id("b")), ("bb".to_owned(), true));
        assert_eq!(slice(2, LastReply::Id("a")), ("bbcc".to_owned(), false));
        assert_eq!(slice(9, LastReply::Id("a")), (String::new(), false));
        // Of an agent, not of its sub-agent.
        assert_eq!(slice(0, LastReply::Next), ("aabb".to_owned(), true));
        assert_eq!(slice(4, LastReply::Next), ("cc".to_owned(), false));
    }
}
