//! From events to the bytes of a stream.

use bytes::Bytes;
use turnwire_core::{Event, Fields, Msg, Seq};
use turnwire_log::Session;
use turnwire_wires::stream::DisplayMode;
use turnwire_wires::{Encode, EncoderOptions, Frames, UnsupportedError, Wire, sse};

/// What a stream looks like. Watchers of one session that want the same share the work.
#[derive(Debug, Clone, Copy)]
pub struct StreamFormat {
    /// The protocol.
    pub wire: &'static Wire,
    /// What its frames are put in.
    pub framing: Framing,
    /// Whether deltas that wait are merged.
    pub merge: Merge,
    /// How much the blocks protocol shows.
    pub display: DisplayMode,
}

/// What frames are put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One frame a line; each becomes a message of a WebSocket, and names its session.
    WebSocket,
}

/// What is done to neighbouring deltas that a watcher has missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Merge {
    /// They become one.
    Deltas,
    /// They stay as they were written.
    Nothing,
}

/// What tells shapes apart.
pub(super) type FormatKey = (&'static str, Framing, Merge, bool);

impl StreamFormat {
    /// Server-sent events of a wire, merged.
    pub fn sse(wire: &'static Wire) -> Self {
        let display = DisplayMode::default();
        Self { wire, framing: Framing::Sse, merge: Merge::Deltas, display }
    }

    /// Whether an event is written as it is stored.
    pub(super) fn is_canonical(&self) -> bool {
        self.wire.name == "turnwire"
    }

    pub(super) fn key(&self) -> FormatKey {
        (self.wire.name, self.framing, self.merge, self.display == DisplayMode::Chat)
    }
}

/// Writes the events of a session in a shape.
pub(super) struct StreamWriter {
    framing: Framing,
    session: String,
    epoch: String,
    /// Not there for the canonical form.
    encode: Option<Box<dyn Encode>>,
    frames: Frames,
    out: String,
    token: String,
}

impl StreamWriter {
    pub fn new(session: &Session, shape: &StreamFormat) -> Result<Self, UnsupportedError> {
        let encoding = EncoderOptions {
            session_id: Some(session.id().to_owned()),
            display_mode: shape.display,
            usage: true,
            ..EncoderOptions::default()
        };
        let encode = if shape.is_canonical() { None } else { Some(shape.wire.encoder(&encoding)?) };
        Ok(Self {
            framing: shape.framing,
            session: session.id().to_owned(),
            epoch: session.epoch().to_owned(),
            encode,
            frames: Frames::default(),
            out: String::new(),
            token: String::new(),
        })
    }

    /// Writes an event as it is stored.
    pub fn write_line(&mut self, seq: Seq, line: &[u8]) -> turnwire_log::Result<()> {
        let is_plain = self.encode.is_none()
            && match self.framing {
                Framing::Sse => true,
                Framing::WebSocket => !has_routing_fields(line),
            };
        // What is stored was read as text once; a row that is damaged is noticed by its checksum.
        let text = is_plain.then(|| std::str::from_utf8(line).ok()).flatten();
        let Some(open) = text.and_then(|text| text.strip_suffix('}')) else {
            self.write_event(&Session::parse_event(seq, line)?);
            return Ok(());
        };
        self.begin_frame(seq);
        self.out.push_str(open);
        self.out.push_str(",\"seq\":");
        self.push_number(seq.get());
        self.finish_frame();
        Ok(())
    }

    /// Writes an event.
    pub fn write_event(&mut self, event: &Event<'_>) {
        let Some(encode) = &mut self.encode else { return self.write_canonical(event) };
        encode.encode(event, &mut self.frames);
        self.write_frames(event.seq);
    }

    /// What it encodes with, where it is not the canonical form.
    pub fn encode_mut(&mut self) -> Option<&mut (dyn Encode + 'static)> {
        self.encode.as_deref_mut()
    }

    /// What a client is told that comes in here.
    pub fn write_snapshot(&mut self, messages: &[Msg]) {
        if let Some(encode) = &mut self.encode {
            encode.resume(messages, &mut self.frames);
            self.write_frames(None);
        }
    }

    /// Nothing more comes.
    pub fn write_end(&mut self, last_word: Option<&'static str>) {
        if let Some(encode) = &mut self.encode {
            encode.end(&mut self.frames);
            if let Some(word) = last_word {
                self.frames.push_text("", word);
            }
            self.write_frames(None);
        }
    }

    fn write_canonical(&mut self, event: &Event<'_>) {
        let text = event.to_json();
        match event.seq {
            Some(seq) => self.set_token(seq),
            None => self.token.clear(),
        }
        let token = Some(self.token.as_str()).filter(|token| !token.is_empty());
        match self.framing {
            Framing::WebSocket => write_socket_frame(&text, &self.session, token, &mut self.out),
            Framing::Sse => {
                if let Some(token) = token {
                    self.out.push_str("id: ");
                    self.out.push_str(token);
                    self.out.push('\n');
                }
                self.out.push_str("data: ");
                self.out.push_str(&text);
                self.out.push_str("\n\n");
            }
        }
    }

    /// The beginning of a canonical frame.
    fn begin_frame(&mut self, seq: Seq) {
        self.set_token(seq);
        if self.framing == Framing::Sse {
            self.out.push_str("id: ");
            self.out.push_str(&self.token);
            self.out.push_str("\ndata: ");
        }
    }

    /// The end of a canonical frame.
    fn finish_frame(&mut self) {
        match self.framing {
            Framing::Sse => self.out.push_str("}\n\n"),
            Framing::WebSocket => {
                // A session's id and a token have no character that JSON would escape.
                self.out.push_str(",\"session_id\":\"");
                self.out.push_str(&self.session);
                self.out.push_str("\",\"event_id\":\"");
                self.out.push_str(&self.token);
                self.out.push_str("\"}\n");
            }
        }
    }

    fn write_frames(&mut self, seq: Option<Seq>) {
        if self.frames.is_empty() {
            return;
        }
        match seq {
            Some(seq) => self.set_token(seq),
            None => self.token.clear(),
        }
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

    fn set_token(&mut self, seq: Seq) {
        self.token.clear();
        self.token.push_str(&self.epoch);
        self.token.push('.');
        let mut digits = [0; 20];
        self.token.push_str(format_decimal(seq.get(), &mut digits));
    }

    fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        self.out.push_str(format_decimal(number, &mut digits));
    }

    /// How much was written.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes what was written.
    pub fn take_bytes(&mut self) -> Bytes {
        if self.out.len() > COPY_BELOW {
            return Bytes::from(std::mem::take(&mut self.out));
        }
        // It may be kept for a while, and takes no more room than it needs.
        let bytes = Bytes::copy_from_slice(self.out.as_bytes());
        self.out.clear();
        bytes
    }
}

/// What is copied rather than handed over.
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

/// Whether a frame may name a session or a token already: its own, or something deep inside.
fn has_routing_fields(text: &[u8]) -> bool {
    [&b"\"session_id\""[..], b"\"event_id\""]
        .iter()
        .any(|name| memchr::memmem::find(text, name).is_some())
}

/// A frame of a socket says which session it is of, and its token. What the event itself calls so is
/// another matter on a socket with many sessions: an agent elsewhere may have its own names.
fn write_socket_frame(text: &str, session: &str, token: Option<&str>, out: &mut String) {
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
    fn a_frame_of_a_socket_names_its_session_and_its_token() {
        assert_eq!(frame("{}", None), "{\"session_id\":\"s\"}\n");
        assert_eq!(
            frame(r#"{"type":"X"}"#, Some("e.1")),
            "{\"type\":\"X\",\"session_id\":\"s\",\"event_id\":\"e.1\"}\n"
        );
    }

    #[test]
    fn what_an_event_calls_its_session_does_not_lead_astray() {
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
}
