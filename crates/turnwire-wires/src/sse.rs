//! Writes server-sent events, for every response that streams.
//!
//! ```
//! use turnwire_wires::{Frames, sse};
//!
//! let mut frames = Frames::default();
//! frames.push_text("message_start", "{}");
//! frames.push_text("", "[DONE]");
//! let mut body = String::new();
//! // Only the last frame of an event has its token: after a break between two, both are sent again.
//! sse::write(&frames, Some("e1.7"), &mut body);
//! assert_eq!(body, "event: message_start\ndata: {}\n\nid: e1.7\ndata: [DONE]\n\n");
//! ```

use crate::stream::Frames;

/// Writes the frames of one event; the last one carries the resume token, if any.
pub fn write(frames: &Frames, token: Option<&str>, out: &mut String) {
    let last = frames.len();
    for (at, (name, text)) in frames.iter().enumerate() {
        begin_frame(name, token.filter(|_| at + 1 == last), out);
        out.reserve(text.len() + 2);
        // A frame is one line: JSON, or a word.
        match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
            None => out.push_str(text),
            Some(_) => out.push_str(&text.replace(['\n', '\r'], "\ndata: ")),
        }
        end_frame(out);
    }
}

/// Writes a frame up to its data, which the caller appends as one line; then comes [`end_frame`].
pub fn begin_frame(name: &str, token: Option<&str>, out: &mut String) {
    if !name.is_empty() {
        write_field("event", name, out);
    }
    if let Some(token) = token {
        write_field("id", token, out);
    }
    out.push_str("data: ");
}

/// Ends a frame that [`begin_frame`] has begun.
pub fn end_frame(out: &mut String) {
    out.push_str("\n\n");
}

/// Writes what comes first in a stream: a comment, and after how many milliseconds a client is to reconnect.
pub fn write_greeting(comment: &str, retry_ms: u64, out: &mut String) {
    write_field("", comment, out);
    write_field("retry", &retry_ms.to_string(), out);
    out.push('\n');
}

/// Writes a comment. It keeps the connection alive, and clients ignore it.
pub fn write_comment(text: &str, out: &mut String) {
    write_field("", text, out);
    out.push('\n');
}

/// Writes a value with line breaks as several fields, so that it cannot inject a field.
fn write_field(name: &str, value: &str, out: &mut String) {
    if memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_none() {
        return write_line(name, value, out);
    }
    for part in value.split(['\n', '\r']) {
        write_line(name, part, out);
    }
}

fn write_line(name: &str, value: &str, out: &mut String) {
    out.reserve(name.len() + value.len() + 4);
    out.push_str(name);
    out.push_str(": ");
    out.push_str(value);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_end_inside_a_value_does_not_end_the_field() {
        let mut frames = Frames::default();
        frames.push_text("", "a\r\nb");
        let mut body = String::new();
        write(&frames, Some("1\nevent: x"), &mut body);
        assert_eq!(body, "id: 1\nid: event: x\ndata: a\ndata: \ndata: b\n\n");
        body.clear();
        write_comment("still here\ndata: no", &mut body);
        assert_eq!(body, ": still here\n: data: no\n\n");
    }
}
