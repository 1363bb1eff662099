//! Ids of the frames of a response, for clients that reconnect in the middle of it (`Last-Event-ID`).
//!
//! | id | part |
//! |---|---|
//! | `REPLY~start~12` | frame 12 of the response that begins with the reply |
//! | `REPLY~after40~3` | frame 3 of a response that continues the reply after seq 40 |
//! | `REPLY~snapshot40~3`, `REPLY~reset40~3` | the response begins with a snapshot of the conversation as of seq 40 |
//! | `REPLY~start~12~57` | the reply waits: the response ended at seq 57, and frame 12 belongs to that end |
//!
//! The id locates the frame, so nothing is stored for it, and it is valid after a restart. Frames are numbered from 0 in
//! their response, which is encoded without merging deltas: then the same events give the same frames every time. A
//! log position with an index inside the event would not be cheaper, because an encoder must see the reply from its start
//! in any case. And it would not fit all clients: the AI SDK's workflow transports count the frames they receive and
//! request the rest by that count. An end at which a reply only waits is not in the log, and a later request finds
//! the reply continued; so ids of its frames name its position.

use super::reply_source::ReplyPosition;
use super::resume_token::parse_cursor;
use crate::auth::is_valid_id;
use std::fmt;
use turnwire_core::Head;
use turnwire_wires::{Frames, sse};

/// Separates the parts. It occurs in no id of a session or reply.
pub(crate) const SEPARATOR: char = '~';

/// Identifies a response: which reply it streams, and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseKey {
    /// Empty for the first reply after the position, which an external agent publishes.
    pub reply_id: String,
    pub begin: ReplyPosition,
    /// Whether a snapshot first removes what the client has.
    pub resets_client: bool,
}

impl ResponseKey {
    pub fn new(reply_id: String, begin: ReplyPosition) -> Self {
        Self { reply_id, begin, resets_client: false }
    }

    /// Parses `REPLY~BEGIN`.
    pub fn parse(text: &str) -> Option<Self> {
        let (reply_id, begin) = text.split_once(SEPARATOR)?;
        let at = |name: &str| begin.strip_prefix(name).and_then(parse_cursor);
        let (begin, resets_client) = if begin == "start" {
            (ReplyPosition::Start, false)
        } else if let Some(cursor) = at("after") {
            (ReplyPosition::After(cursor), false)
        } else if let Some(cursor) = at("snapshot") {
            (ReplyPosition::SnapshotAt(cursor), false)
        } else {
            (ReplyPosition::SnapshotAt(at("reset")?), true)
        };
        let may_be_empty = begin != ReplyPosition::Start;
        let is_valid = is_valid_id(reply_id) || (may_be_empty && reply_id.is_empty());
        is_valid.then(|| Self { reply_id: reply_id.to_owned(), begin, resets_client })
    }
}

impl fmt::Display for ResponseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}", self.reply_id)?;
        match self.begin {
            ReplyPosition::Start => f.write_str("start"),
            ReplyPosition::After(cursor) => write!(f, "after{cursor}"),
            ReplyPosition::SnapshotAt(cursor) if self.resets_client => write!(f, "reset{cursor}"),
            ReplyPosition::SnapshotAt(cursor) => write!(f, "snapshot{cursor}"),
            // Only its position makes it a name.
            ReplyPosition::Snapshot => f.write_str("snapshot"),
        }
    }
}

/// The id of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameId {
    pub response: ResponseKey,
    /// Its number in the response, from 0.
    pub number: u64,
    /// Where the response ended because the reply waits, if the frame belongs to that end.
    pub paused_at: Option<Head>,
}

impl FrameId {
    /// Parses an id.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, SEPARATOR);
        let (reply_id, begin, number) = (parts.next()?, parts.next()?, parts.next()?);
        let paused_at = match parts.next() {
            Some(cursor) => Some(parse_cursor(cursor)?),
            None => None,
        };
        let response = ResponseKey::parse(&format!("{reply_id}{SEPARATOR}{begin}"))?;
        Some(Self { response, number: parse_cursor(number)?.get(), paused_at })
    }
}

/// Numbers the frames of a response.
pub(super) struct FrameNumbering {
    response: String,
    next: u64,
    /// Set when the response ends because the reply waits.
    pub paused_at: Option<Head>,
    /// From this frame in the buffer on there are no ids: they are an error of this connection, not part of the response.
    pub unnumbered_from: Option<usize>,
}

impl FrameNumbering {
    pub fn new(response: &ResponseKey) -> Self {
        Self { response: response.to_string(), next: 0, paused_at: None, unnumbered_from: None }
    }

    /// Counts frames that are not written.
    pub fn skip(&mut self, frames: usize) {
        self.next = self.next.saturating_add(u64::try_from(frames).unwrap_or(u64::MAX));
    }

    /// Writes frames with their ids.
    pub fn write(&mut self, frames: &Frames, out: &mut String) {
        let numbered = self.unnumbered_from.unwrap_or(usize::MAX);
        for (at, (name, text)) in frames.iter().enumerate() {
            let id = (at < numbered).then(|| self.next_id());
            sse::begin_frame(name, id.as_deref(), out);
            out.push_str(text);
            sse::end_frame(out);
        }
    }

    fn next_id(&mut self) -> String {
        let Self { response, next, .. } = self;
        let id = match self.paused_at {
            Some(cursor) => format!("{response}{SEPARATOR}{next}{SEPARATOR}{cursor}"),
            None => format!("{response}{SEPARATOR}{next}"),
        };
        self.next += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_as_they_are_written() {
        let mut frames = Frames::default();
        frames.push_text("", "{}");
        frames.push_text("", "[DONE]");
        for response in ["r-1~start", "r~after0", "~after7", "r~snapshot40", "~reset40"] {
            let key = ResponseKey::parse(response).unwrap();
            assert_eq!(key.to_string(), response);
            let mut numbering = FrameNumbering::new(&key);
            numbering.skip(3);
            let mut out = String::new();
            numbering.write(&frames, &mut out);
            numbering.paused_at = Some(Head::new(57));
            numbering.unnumbered_from = Some(1);
            numbering.write(&frames, &mut out);
            let ids: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
            let parsed: Vec<_> = ids.iter().map(|id| FrameId::parse(id).unwrap()).collect();
            let id = |number, paused_at| FrameId { response: key.clone(), number, paused_at };
            assert_eq!(parsed, [id(3, None), id(4, None), id(5, Some(Head::new(57)))]);
        }
    }

    #[test]
    fn other_ids_are_refused() {
        for text in [
            "",
            "7",
            "r~start",
            "r~start~",
            "r~start~-1",
            "r~start~x",
            "r~start~1~",
            "r~start~1~2~3",
            "~start~1",
            "r~snapshot~1",
            "r~after~1",
            "r~end4~1",
            "r é~start~1",
            "e1.7",
            "r~start~99999999999999999999999",
        ] {
            assert_eq!(FrameId::parse(text), None, "{text}");
        }
    }
}
