//! Splits a body into frames: one JSON text per line, or server-sent events. The format is detected.
//! All decoders use it.
//!
//! ```
//! use turnwire_wires::body::FrameReader;
//!
//! let mut frames = FrameReader::default();
//! let mut texts = Vec::new();
//! // The bytes may be split anywhere.
//! for bytes in [&b": hello\ndata: {\"a\""[..], b":1}\r\n\r\nda", b"ta: {}"] {
//!     frames.feed(bytes, &mut |frame| texts.push((frame.line, frame.text.unwrap().to_owned())));
//! }
//! frames.end(&mut |frame| texts.push((frame.line, frame.text.unwrap().to_owned())));
//! assert_eq!(texts, [(2, r#"{"a":1}"#.to_owned()), (4, "{}".to_owned())]);
//! ```

use std::fmt;

/// One frame of a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The line on which it starts, from 1.
    pub line: u64,
    /// Its text, or why there is none.
    pub text: Result<&'a str, BadFrame>,
}

/// Why a frame has no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFrame {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// Longer than the limit, in bytes.
    TooLong(usize),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("NotUtf8: the bytes are not UTF-8"),
            Self::TooLong(limit) => write!(f, "TooLong: an event of more than {limit} bytes"),
        }
    }
}

impl std::error::Error for BadFrame {}

/// Splits a body into frames.
#[derive(Debug)]
pub struct FrameReader {
    limit: usize,
    format: BodyFormat,
    /// The line being read, from 1.
    line: u64,
    /// An incomplete line.
    partial_line: Vec<u8>,
    /// The current line exceeds the limit; the rest of it is skipped.
    too_long: bool,
    /// The last byte was a carriage return: a following line feed belongs to it.
    after_return: bool,
    event: SseEvent,
}

/// Room for what precedes a value: a byte order mark and `data: `.
const MAX_FIELD_PREFIX: usize = 16;
/// How many bytes of an overlong line are kept to detect the body's format.
const HEAD_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    /// No line with content yet.
    Unknown,
    Lines,
    Sse,
}

/// The server-sent event being read.
#[derive(Debug, Default)]
struct SseEvent {
    /// The line of its first `data`, if it has any.
    line: Option<u64>,
    data: Vec<u8>,
    too_long: bool,
}

impl Default for FrameReader {
    /// Frames of up to 64 MiB (a large image).
    fn default() -> Self {
        Self::with_limit(64 << 20)
    }
}

impl FrameReader {
    /// Frames of up to `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            format: BodyFormat::Unknown,
            line: 1,
            partial_line: Vec::new(),
            too_long: false,
            after_return: false,
            event: SseEvent::default(),
        }
    }

    /// Takes the next bytes and emits every frame that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(Frame<'_>)) {
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_return) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(at);
            let (end, rest) = rest.split_at(1);
            bytes = rest;
            if end == b"\r" {
                match bytes.strip_prefix(b"\n") {
                    Some(rest) => bytes = rest,
                    None => self.after_return = bytes.is_empty(),
                }
            }
            if self.partial_line.is_empty() {
                self.read_line(line, each);
            } else {
                self.buffer_line(line);
                let whole = std::mem::take(&mut self.partial_line);
                self.read_line(&whole, each);
                self.partial_line = whole;
                self.partial_line.clear();
            }
            self.too_long = false;
            self.line += 1;
        }
        self.buffer_line(bytes);
    }

    /// Ends the body: emits what is left.
    pub fn end(&mut self, each: &mut impl FnMut(Frame<'_>)) {
        if !self.partial_line.is_empty() || self.too_long {
            let rest = std::mem::take(&mut self.partial_line);
            self.read_line(&rest, each);
        }
        self.finish_sse_event(each);
    }

    fn buffer_line(&mut self, bytes: &[u8]) {
        if self.too_long {
            return;
        }
        self.too_long =
            self.partial_line.len() + bytes.len() > self.limit.saturating_add(MAX_FIELD_PREFIX);
        // The start of an overlong line is enough to detect the format.
        let room = if self.too_long {
            MAX_FIELD_PREFIX.saturating_sub(self.partial_line.len())
        } else {
            usize::MAX
        };
        self.partial_line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        if self.too_long {
            self.partial_line.truncate(MAX_FIELD_PREFIX);
        }
    }

    fn read_line(&mut self, mut line: &[u8], each: &mut impl FnMut(Frame<'_>)) {
        self.too_long |= line.len() > self.limit.saturating_add(MAX_FIELD_PREFIX);
        if self.line == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if self.format == BodyFormat::Unknown {
            self.format = match self.too_long {
                false => detect_format(line),
                true if detect_format(line.get(..HEAD_BYTES).unwrap_or(line))
                    == BodyFormat::Sse =>
                {
                    BodyFormat::Sse
                }
                true => BodyFormat::Lines,
            };
        }
        match self.format {
            BodyFormat::Unknown => {}
            BodyFormat::Lines if self.too_long || line.len() > self.limit => {
                each(Frame { line: self.line, text: Err(BadFrame::TooLong(self.limit)) });
            }
            BodyFormat::Lines if line.trim_ascii().is_empty() => {}
            BodyFormat::Lines => each(Frame { line: self.line, text: utf8(line) }),
            BodyFormat::Sse if self.too_long => {
                self.event.line.get_or_insert(self.line);
                self.event.too_long = true;
            }
            BodyFormat::Sse if line.is_empty() => self.finish_sse_event(each),
            BodyFormat::Sse => self.read_sse_field(line),
        }
    }

    fn read_sse_field(&mut self, line: &[u8]) {
        let (name, value) = split_field(line);
        if name != b"data" {
            return;
        }
        let event = &mut self.event;
        if event.line.is_some() {
            event.data.push(b'\n');
        }
        event.line.get_or_insert(self.line);
        if event.data.len() + value.len() > self.limit {
            event.too_long = true;
            event.data.clear();
        }
        if !event.too_long {
            event.data.extend_from_slice(value);
        }
    }

    fn finish_sse_event(&mut self, each: &mut impl FnMut(Frame<'_>)) {
        let Some(line) = self.event.line.take() else { return };
        if std::mem::take(&mut self.event.too_long) {
            each(Frame { line, text: Err(BadFrame::TooLong(self.limit)) });
        } else if !self.event.data.is_empty() {
            each(Frame { line, text: utf8(&self.event.data) });
        }
        self.event.data.clear();
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, BadFrame> {
    std::str::from_utf8(bytes).map_err(|_| BadFrame::NotUtf8)
}

/// Splits an SSE field into name and value; one space after the colon is not part of the value.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b':', line) {
        Some(at) => {
            let (name, value) = line.split_at(at);
            let value = value.strip_prefix(b":").unwrap_or(value);
            (name, value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, b""),
    }
}

fn detect_format(line: &[u8]) -> BodyFormat {
    let (name, _) = split_field(line);
    match name {
        // A line that begins with a colon is a comment.
        b"" if line.starts_with(b":") => BodyFormat::Sse,
        b"data" | b"event" | b"id" | b"retry" => BodyFormat::Sse,
        _ if line.trim_ascii().is_empty() => BodyFormat::Unknown,
        _ => BodyFormat::Lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(body: &[u8], cut: usize, limit: usize) -> Vec<(u64, Result<String, BadFrame>)> {
        let mut found = Vec::new();
        let mut frames = FrameReader::with_limit(limit);
        let mut each = |frame: Frame<'_>| found.push((frame.line, frame.text.map(str::to_owned)));
        for piece in body.chunks(cut) {
            frames.feed(piece, &mut each);
        }
        frames.end(&mut each);
        found
    }

    fn assert_frames_at_every_cut(body: &[u8], expected: &[(u64, &str)]) {
        for cut in 1..=body.len().max(1) {
            let found = frames(body, cut, 1 << 20);
            let found: Vec<(u64, &str)> =
                found.iter().map(|(line, text)| (*line, text.as_deref().unwrap())).collect();
            assert_eq!(found, expected, "cut every {cut} bytes");
        }
    }

    #[test]
    fn lines_end_in_lf_cr_or_crlf_and_the_last_needs_none() {
        assert_frames_at_every_cut(
            b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}\r{\"d\":4}",
            &[(1, r#"{"a":1}"#), (3, r#"{"b":2}"#), (4, r#"{"c":3}"#), (5, r#"{"d":4}"#)],
        );
    }

    #[test]
    fn a_line_feed_belongs_to_one_carriage_return() {
        assert_frames_at_every_cut(b"data: 1\r\n\ndata: 2\n\n", &[(1, "1"), (3, "2")]);
        assert_frames_at_every_cut(b"{}\r\n\n{}\r\r\n{}", &[(1, "{}"), (3, "{}"), (5, "{}")]);
    }

    #[test]
    fn server_sent_events_join_their_data_lines_and_the_last_needs_no_blank_line() {
        assert_frames_at_every_cut(
            b"\n: hi\r\nid: 1\r\nevent: x\r\ndata: {\"a\":\r\ndata:1}\r\n\r\ndata\n\nid: 2\n\ndata:  x",
            &[(5, "{\"a\":\n1}"), (12, " x")],
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_frames_at_every_cut("\u{feff}{}\n{}".as_bytes(), &[(1, "{}"), (2, "{}")]);
        assert_frames_at_every_cut("\u{feff}data: {}\n\n".as_bytes(), &[(1, "{}")]);
    }

    #[test]
    fn an_overlong_frame_is_reported_and_the_next_is_read() {
        let long = Err(BadFrame::TooLong(8));
        for cut in 1..40 {
            let lines = frames(b"{\"a\":\"too long\"}\n{}\n{\"b\":\"too long\"}", cut, 8);
            assert_eq!(lines, [(1, long.clone()), (2, Ok("{}".into())), (3, long.clone())]);
            let sse = frames(b"data: {\"a\"\ndata: 1234567\n\ndata: {}\n\n", cut, 8);
            assert_eq!(sse, [(1, long.clone()), (4, Ok("{}".into()))]);
        }
    }

    #[test]
    fn the_format_of_an_overlong_line_is_detected_however_it_is_cut() {
        let text = [
            &b"                                      x\n{}"[..],
            b"\n\xef\xbb\xbfxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ];
        for body in text {
            let whole = frames(body, body.len(), 8);
            assert!(whole.contains(&(whole[0].0, Err(BadFrame::TooLong(8)))), "{whole:?}");
            for cut in 1..body.len() {
                assert_eq!(frames(body, cut, 8), whole, "cut every {cut} bytes");
            }
        }
    }

    #[test]
    fn invalid_utf8_is_reported() {
        assert_eq!(
            frames(b"{\"\xff\"}\n{}", 3, 99),
            [(1, Err(BadFrame::NotUtf8)), (2, Ok("{}".into())),]
        );
    }

    #[test]
    fn an_empty_body_has_no_frames() {
        assert_frames_at_every_cut(b"", &[]);
        assert_frames_at_every_cut(b"\n\r\n \n", &[]);
    }
}
