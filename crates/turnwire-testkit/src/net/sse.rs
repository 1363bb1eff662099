//! A parser of server-sent events for tests. The bytes may be cut anywhere.

/// One event, or a comment between events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its id, if any.
    pub id: Option<String>,
    /// Its name, if any.
    pub event: Option<String>,
    /// Its data; lines are joined.
    pub data: Option<String>,
    /// Reconnection delay in milliseconds.
    pub retry: Option<u64>,
    /// Number of comment lines.
    pub comments: usize,
}

/// Parses a stream of events. An incomplete event at the end of the stream is ignored.
#[derive(Debug, Clone, Default)]
pub struct SseParser {
    buffer: Vec<u8>,
    /// Length of the prefix without the end of a frame.
    searched: usize,
}

impl SseParser {
    /// Takes bytes and returns the complete frames. Invalid UTF-8 is replaced.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.buffer.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(end) = self.first_frame_end() {
            let text: Vec<u8> = self.buffer.drain(..end).collect();
            frames.push(parse_frame(&String::from_utf8_lossy(&text)));
            self.searched = 0;
        }
        self.searched = self.buffer.len().saturating_sub(1);
        frames
    }

    /// End of the first frame.
    fn first_frame_end(&self) -> Option<usize> {
        let rest = self.buffer.get(self.searched..)?;
        Some(self.searched + memchr::memmem::find(rest, b"\n\n")? + 2)
    }
}

fn parse_frame(text: &str) -> Frame {
    let mut frame = Frame::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" => frame.comments += 1,
            "id" => frame.id = Some(value.to_owned()),
            "event" => frame.event = Some(value.to_owned()),
            "retry" => frame.retry = value.parse().ok(),
            "data" => {
                let data = frame.data.get_or_insert_default();
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            _ => {}
        }
    }
    frame
}
