//! `turnwire fold`: folds events into one message per reply.

use crate::export_lines::{ExportLines, ExportPiece};
use crate::input::{self, CommandError, EXIT_ERROR, EXIT_INVALID, WireParser, print_stderr};
use crate::recognition::{Recognition, SAMPLE_BYTES};
use clap::Args;
use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use turnwire_core::{Event, EventKind, Folder, event_kinds};
use turnwire_wires::{Decoded, Decoder, DecoderOptions, Wire};

/// Fold events into messages: one message per reply
///
/// Reads events, one JSON object per line or a server-sent event stream (detected), and writes one
/// message per reply, one JSON object per line, in the order of the replies' first events. Replies
/// may be interleaved, and events may be repeated. Whole messages in the stream (MESSAGE events)
/// are written in their place. A model provider's stream is one reply. Of `turnwire sessions export` the
/// messages of all sessions are written, without those in the queue.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Fold {
    /// The events: a file, or - for standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// The wire of the input
    #[arg(long, default_value = "turnwire", value_parser = WireParser::Readable)]
    wire: &'static Wire,

    /// Print every reply with what could be applied; problems become warnings
    ///
    /// Without it, a reply with a problem is not printed.
    #[arg(long)]
    tolerant: bool,
}

const AFTER: &str = "\
Problems go to standard error with their line and a name, such as
  error: line 3: UnknownBlock: reply r1 has no text block b1; was its TEXT_BLOCK_START lost?

Exit status:
  0    every event was folded (or, with --tolerant, only warned about)
  1    a problem in the events, an invalid event, or nothing that the wire knows
  2    wrong usage, or the input or output failed
  141  the reader of the output closed the pipe

Examples:
  turnwire fold reply.ndjson
  turnwire fold --wire anthropic answer.sse
  turnwire sessions export chat-1 | turnwire fold
  curl -sN http://localhost:4747/v1/sessions/s/events?until=idle | turnwire fold";

impl Fold {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let mut decoder = self.wire.decoder(&DecoderOptions::default())?;
        let mut folding = FoldRun::new(self.tolerant);
        let mut recognition = Recognition::new(self.wire);
        let mut out = BufWriter::new(io::stdout().lock());
        let mut lines = ExportLines::default();
        let is_own = self.wire.name == "turnwire";
        let mut feed = |piece: ExportPiece<'_>| {
            match piece {
                ExportPiece::Events(bytes) => decoder.feed(bytes, &mut |decoded| {
                    recognition.push_decoded(&decoded);
                    folding.push_decoded(decoded);
                }),
                ExportPiece::NextSession => folding.write_messages(&mut out)?,
            }
            io::Result::Ok(())
        };
        let mut sample = Vec::new();
        let unread = input::read_chunks(&self.file, |bytes| {
            let room = SAMPLE_BYTES.saturating_sub(sample.len());
            sample.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            if is_own { lines.feed(bytes, &mut feed) } else { feed(ExportPiece::Events(bytes)) }
        });
        lines.finish(&mut feed)?;
        recognition.push_bytes(&sample);
        if let Err(failed) = &unread {
            failed.report();
        }
        if recognition.has_failed() {
            recognition.error("--wire").report();
            return Ok(ExitCode::from(if unread.is_err() { EXIT_ERROR } else { EXIT_INVALID }));
        }
        // Events before a read error still count.
        let code = folding.finish(decoder, &mut out)?;
        Ok(if unread.is_err() { ExitCode::from(EXIT_ERROR) } else { code })
    }
}

struct FoldRun {
    tolerant: bool,
    folder: Folder,
    /// Replies that are not printed.
    with_problem: HashSet<String>,
    /// Whether the exit status must report a problem.
    failed: bool,
}

impl FoldRun {
    fn new(tolerant: bool) -> Self {
        Self { tolerant, folder: Folder::default(), with_problem: HashSet::new(), failed: false }
    }

    fn finish(mut self, mut decoder: Decoder, out: &mut impl Write) -> io::Result<ExitCode> {
        decoder.end(&mut |decoded| self.push_decoded(decoded));
        self.write_messages(out)?;
        out.flush()?;
        Ok(ExitCode::from(u8::from(self.failed)))
    }

    /// Writes the messages of a session.
    fn write_messages(&mut self, out: &mut impl Write) -> io::Result<()> {
        for msg in std::mem::take(&mut self.folder).messages() {
            if self.tolerant || !self.with_problem.contains(msg.id()) {
                serde_json::to_writer(&mut *out, msg)?;
                out.write_all(b"\n")?;
            }
        }
        self.with_problem.clear();
        Ok(())
    }

    fn push_decoded(&mut self, decoded: Decoded<'_>) {
        match decoded.event {
            Ok(event) => self.push_event(decoded.line, &event),
            Err(error) => {
                self.report_invalid(decoded.line, &error);
                // Without this event its reply is incomplete.
                self.with_problem.extend(decoded.reply_id);
            }
        }
    }

    fn push_event(&mut self, line: u64, event: &Event<'_>) {
        if matches!(event.kind, EventKind::Reset(_)) {
            // All events come again.
            self.with_problem.clear();
        }
        if self.tolerant {
            if let (_, Some(problem)) = self.folder.push_tolerant(event) {
                print_stderr(format_args!("warning: line {line}: {problem}"));
            }
        } else if let Err(problem) = self.folder.push(event) {
            print_stderr(format_args!("error: line {line}: {problem}"));
            self.failed = true;
            self.with_problem.insert(message_id(event).to_owned());
        }
    }

    fn report_invalid(&mut self, line: u64, why: &impl Display) {
        print_stderr(format_args!("error: line {line}: {why}"));
        self.failed = true;
    }
}

/// The id of an event's message.
fn message_id<'e>(event: &'e Event<'_>) -> &'e str {
    match &event.kind {
        EventKind::Message(event) => event.message.id(),
        event_kinds!(
            Custom Supersede Reset Unknown reply model_call content tool pending_call notice
        ) => &event.reply_id,
    }
}
