//! Server-sent events out of bytes that were cut anywhere.

/// One event, or what stands between events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its id, where it has one.
    pub id: Option<String>,
    /// Its name, where it has one.
    pub event: Option<String>,
    /// Its data, lines joined.
    pub data: Option<String>,
    /// After how many milliseconds to come back.
    pub retry: Option<u64>,
    /// Lines that mean nothing.
    pub comments: usize,
}

/// A stream of events. One that is not whole when the stream ends never was.
#[derive(Debug, Clone, Default)]
pub struct SseParser {
    buffer: Vec<u8>,
    /// How much of it has no end of a frame.
    searched: usize,
}

impl SseParser {
    /// Takes bytes, and gives the frames that are whole now. Text that is no UTF-8 shows as such.
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

    /// Where the first frame ends.
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
