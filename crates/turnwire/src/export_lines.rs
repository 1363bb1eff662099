//! The lines of `turnwire sessions export`, as events. `fold` uses it.

/// What stands in an export.
pub(crate) enum ExportPiece<'a> {
    /// Bytes of events.
    Events(&'a [u8]),
    /// Another session begins: it may have replies with the same ids.
    NextSession,
}

/// The first line of a session.
const SESSION: &[u8] = b"{\"turnwire\":\"session\"";
/// Any other line that is not an event.
const NOTE: &[u8] = b"{\"turnwire\":";
/// A message whose events were removed.
const MESSAGE: &[u8] = b"{\"message\":";
/// The same as an event.
const MESSAGE_EVENT: &[u8] = b"{\"type\":\"MESSAGE\",\"reply_id\":\"\",\"message\":";

/// Turns the bytes of an export into bytes of events, with the same lines. Other input stays as it is.
#[derive(Default)]
pub(crate) struct ExportLines {
    state: State,
    /// The start of a line whose kind is not certain yet.
    start: Vec<u8>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    LineStart,
    Events,
    Skipped,
}

impl ExportLines {
    pub(crate) fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        each: &mut impl FnMut(ExportPiece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&first) = bytes.first() {
            if self.state == State::LineStart {
                self.start.push(first);
                bytes = bytes.get(1..).unwrap_or_default();
                self.decide(each)?;
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.state == State::Events {
                each(ExportPiece::Events(line))?;
            } else if end.is_some() {
                each(ExportPiece::Events(b"\n"))?;
            }
            if end.is_some() {
                self.state = State::LineStart;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// The input has ended.
    pub(crate) fn finish<E>(
        &mut self,
        each: &mut impl FnMut(ExportPiece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        each(ExportPiece::Events(&std::mem::take(&mut self.start)))
    }

    /// Decides what the line is, unless its next byte decides.
    fn decide<E>(
        &mut self,
        each: &mut impl FnMut(ExportPiece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if [SESSION, MESSAGE]
            .iter()
            .any(|kind| kind.len() > self.start.len() && kind.starts_with(&self.start))
        {
            return Ok(());
        }
        let start = std::mem::take(&mut self.start);
        if start == SESSION {
            self.state = State::Skipped;
            return each(ExportPiece::NextSession);
        }
        if start.starts_with(NOTE) {
            self.state = State::Skipped;
            return Ok(());
        }
        self.state = if start.ends_with(b"\n") { State::LineStart } else { State::Events };
        each(ExportPiece::Events(if start == MESSAGE { MESSAGE_EVENT } else { &start }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(pieces: &[&[u8]]) -> String {
        let (mut lines, mut out) = (ExportLines::default(), Vec::new());
        let mut each = |piece: ExportPiece<'_>| {
            match piece {
                ExportPiece::Events(bytes) => out.extend_from_slice(bytes),
                ExportPiece::NextSession => out.extend_from_slice(b"<next>"),
            }
            Ok::<_, ()>(())
        };
        for piece in pieces {
            lines.feed(piece, &mut each).unwrap();
        }
        lines.finish(&mut each).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_of_an_export_become_events_wherever_the_input_is_cut() {
        let export = "{\"turnwire\":\"session\",\"id\":\"a\"}\n{\"message\":{\"id\":\"m\"}}\n{\"type\":\"X\"}\n\n\
                      {\"turnwire\":\"queued\",\"id\":\"q\"}\n{\"turnwire\":\"session\"}\n{\"type\":\"Y\"}";
        let events = "<next>\n{\"type\":\"MESSAGE\",\"reply_id\":\"\",\"message\":{\"id\":\"m\"}}\n\
                      {\"type\":\"X\"}\n\n\n<next>\n{\"type\":\"Y\"}";
        assert_eq!(convert(&[export.as_bytes()]), events);
        for at in 0..export.len() {
            let (a, b) = export.as_bytes().split_at(at);
            assert_eq!(convert(&[a, b]), events, "cut at {at}");
        }
    }

    #[test]
    fn other_input_stays_as_it_is() {
        for text in [
            "",
            "{",
            "{\"turn",
            "data: {\"type\":\"X\"}\n\n",
            "{\"type\":\"X\"}\n[1]\n",
            "{\"message",
        ] {
            assert_eq!(convert(&[text.as_bytes()]), text);
        }
    }
}
