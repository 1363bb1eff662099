//! The events that a producer publishes: text replies, one after the other.
//!
//! A line is assembled from prepared pieces: with 64 events per request this is most of the load
//! generator's cost.

use std::fmt::Write as _;

/// The endless events of one session.
pub(super) struct EventScript {
    session: String,
    text: DeltaText,
    deltas_per_reply: u64,
    /// The line up to the counter in the event id.
    head: Vec<u8>,
    /// The line from after the time to the text of a delta, for the current reply.
    middle: Vec<u8>,
    reply: u64,
    /// The position of the next event in the reply.
    position: u64,
    events: u64,
    deltas: u64,
}

/// The text of the deltas.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeltaText {
    /// Words, as of a model.
    Words,
    /// `#0000042`: the number of the delta in its session, so that a subscriber can recognise it.
    Marks,
}

/// Digits of a mark.
pub(super) const MARK_DIGITS: u8 = 7;

const WORDS: [&[u8]; 8] =
    [b" it", b" looks", b" sunny", b" in Paris", b" tomorrow,", b" with", b" a light", b" breeze."];
const BLOCK: &str = "text-1";

impl EventScript {
    /// `run` and `nth` make the ids unique per run and session.
    pub(super) fn new(
        session: &str,
        run: u32,
        nth: u32,
        text: DeltaText,
        deltas_per_reply: u64,
    ) -> Self {
        Self {
            session: session.to_owned(),
            text,
            deltas_per_reply,
            head: format!(r#"{{"id":"{run:08x}{nth:08x}"#).into_bytes(),
            middle: Vec::new(),
            reply: 0,
            position: 0,
            events: 0,
            deltas: 0,
        }
    }

    /// The id of the current reply.
    pub(super) fn reply_id(&self) -> String {
        let prefix = self.head.get(7..).unwrap_or_default();
        format!("{}{:016x}", String::from_utf8_lossy(prefix), self.reply)
    }

    /// Whether the next event starts a reply.
    pub(super) fn is_between_replies(&self) -> bool {
        self.position == 0
    }

    /// Writes the next event as a line.
    pub(super) fn write_event(&mut self, now: &str, out: &mut Vec<u8>) {
        let Self { position: at, deltas_per_reply, .. } = *self;
        out.extend_from_slice(&self.head);
        let _ = std::io::Write::write_fmt(out, format_args!("{:016x}", self.events));
        out.extend_from_slice(b"\",\"created_at\":\"");
        out.extend_from_slice(now.as_bytes());
        self.events += 1;
        self.position += 1;
        match at {
            0 => {
                let session = &self.session;
                let reply = self.reply_id();
                self.middle.clear();
                let middle = format!(
                    r#"","metadata":{{}},"type":"TEXT_BLOCK_DELTA","reply_id":"{reply}","block_id":"{BLOCK}","delta":""#
                );
                self.middle.extend_from_slice(middle.as_bytes());
                write_rare_event(
                    "REPLY_START",
                    &format!(
                        r#""session_id":"{session}","reply_id":"{reply}","name":"bench","role":"assistant""#
                    ),
                    out,
                );
            }
            1 => self.write_block_event("TEXT_BLOCK_START", "", out),
            _ if at < deltas_per_reply + 2 => {
                out.extend_from_slice(&self.middle);
                match self.text {
                    DeltaText::Words => {
                        let word = usize::try_from(self.deltas).unwrap_or_default() % WORDS.len();
                        out.extend_from_slice(WORDS.get(word).copied().unwrap_or_default());
                    }
                    DeltaText::Marks => write_mark(self.deltas, out),
                }
                out.extend_from_slice(b"\"}\n");
                self.deltas += 1;
            }
            _ if at == deltas_per_reply + 2 => {
                self.write_block_event("TEXT_BLOCK_END", r#","text":null"#, out);
            }
            _ => {
                let session = &self.session;
                let reply = self.reply_id();
                write_rare_event(
                    "REPLY_END",
                    &format!(
                        r#""session_id":"{session}","reply_id":"{reply}","finished_reason":"completed","error":null"#
                    ),
                    out,
                );
                self.position = 0;
                self.reply += 1;
            }
        }
    }

    /// Writes events up to and including the next delta.
    pub(super) fn write_delta(&mut self, now: &str, out: &mut Vec<u8>) {
        let before = self.deltas;
        while self.deltas == before {
            self.write_event(now, out);
        }
    }

    /// Ends the current reply, however many deltas it has.
    pub(super) fn write_end(&mut self, now: &str, out: &mut Vec<u8>) {
        self.position = match self.position {
            0 => 0,
            // Its text block has not started.
            1 => self.deltas_per_reply + 3,
            at => at.max(self.deltas_per_reply + 2),
        };
        while !self.is_between_replies() {
            self.write_event(now, out);
        }
    }

    fn write_block_event(&self, kind: &str, rest: &str, out: &mut Vec<u8>) {
        let reply = self.reply_id();
        write_rare_event(kind, &format!(r#""reply_id":"{reply}","block_id":"{BLOCK}"{rest}"#), out);
    }
}

/// The part of an event other than a delta, after its time.
fn write_rare_event(kind: &str, fields: &str, out: &mut Vec<u8>) {
    let text = format!("\",\"metadata\":{{}},\"type\":\"{kind}\",{fields}}}\n");
    out.extend_from_slice(text.as_bytes());
}

/// The current time as in an event.
pub(super) fn timestamp_now() -> String {
    let mut text = String::with_capacity(24);
    let _ = write!(text, "{:.3}", jiff::Timestamp::now());
    text
}

fn write_mark(number: u64, out: &mut Vec<u8>) {
    let _ = std::io::Write::write_fmt(
        out,
        format_args!("#{number:0width$}", width = usize::from(MARK_DIGITS)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::{Event, Folder};

    fn write_lines(script: &mut EventScript, count: usize) -> String {
        let mut out = Vec::new();
        for _ in 0..count {
            script.write_event(&timestamp_now(), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_is_canonical_and_about_200_bytes() {
        let mut script = EventScript::new("s", 7, 9, DeltaText::Words, 200);
        let text = write_lines(&mut script, 500);
        for line in text.lines() {
            assert_eq!(Event::from_json(line).unwrap().to_json(), line);
        }
        let mean = text.len() / 500;
        assert!((190..=230).contains(&mean), "{mean} bytes each");
    }

    #[test]
    fn a_strict_fold_takes_reply_after_reply() {
        let mut script = EventScript::new("s", 1, 2, DeltaText::Marks, 3);
        let first = script.reply_id();
        let text = write_lines(&mut script, 14);
        assert!(script.is_between_replies());
        assert_eq!(script.deltas, 6);
        let mut folder = Folder::default();
        for line in text.lines() {
            folder.push(&Event::from_json(line).unwrap()).unwrap();
        }
        let found = folder.get(&first).unwrap().text("");
        assert_eq!(found.as_deref(), Some("#0000000#0000001#0000002"));
    }

    #[test]
    fn a_reply_can_end_at_any_point() {
        for count in 0..7 {
            let mut script = EventScript::new("s", 1, 2, DeltaText::Words, 3);
            let mut text = write_lines(&mut script, count).into_bytes();
            script.write_end(&timestamp_now(), &mut text);
            assert!(script.is_between_replies());
            let mut folder = Folder::default();
            for line in String::from_utf8(text).unwrap().lines() {
                folder.push(&Event::from_json(line).unwrap()).unwrap();
            }
        }
    }

    #[test]
    fn no_id_comes_twice() {
        let mut ids = std::collections::HashSet::new();
        for nth in 0..3 {
            let mut script = EventScript::new("s", 1, nth, DeltaText::Words, 5);
            for line in write_lines(&mut script, 100).lines() {
                assert!(ids.insert(Event::from_json(line).unwrap().id.to_string()));
            }
        }
    }
}
