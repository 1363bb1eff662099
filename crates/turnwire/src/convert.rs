//! `turnwire convert`: converts a stream of one wire to another.

use crate::input::{self, CommandError, EXIT_INVALID, WireParser, print_stderr};
use crate::recognition::Recognition;
use crate::reply_sequencer::ReplySequencer;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use turnwire_core::{Event, RepeatDetector, Result};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{Decoded, DecoderOptions, Encode, EncoderOptions, Frames, Wire, sse};

/// Convert a stream of one wire to another
///
/// Reads a stream, one JSON object per line or server-sent events (detected), and writes each event
/// in the other protocol as it arrives. Repeated events (by seq or id) are left out, and so is what
/// the other protocol cannot hold: `turnwire wires` lists it.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Convert {
    /// The events: a file, or - for standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// The wire of the input
    #[arg(long, value_parser = WireParser::Readable)]
    from: &'static Wire,

    /// The wire of the output
    #[arg(long, value_parser = WireParser::Writable)]
    to: &'static Wire,

    /// Write server-sent events, as a server of that protocol does, instead of lines
    #[arg(long)]
    sse: bool,
}

const AFTER: &str = "\
Invalid events are reported on standard error with their line, and so are merged events that were
partly repeated; the others are converted.

Exit status:
  0    everything was converted
  1    an invalid event, a merged event that was partly repeated, or nothing that the wire knows
  2    wrong usage, or the input or output failed
  141  the reader of the output closed the pipe

Examples:
  turnwire convert --from anthropic --to turnwire answer.sse
  turnwire convert --from turnwire --to ag-ui --sse reply.ndjson";

/// How much output waits for the first event that is recognised.
const MAX_HELD_BYTES: usize = 1024 * 1024;

impl Convert {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let mut decoder = self.from.decoder(&DecoderOptions::default())?;
        let options = EncoderOptions::default().with(StreamOptions { include_usage: true });
        let mut writing = Conversion {
            encode: self.to.encoder(&options)?,
            repeats: RepeatDetector::default(),
            turns: (!self.to.interleaves_replies).then(ReplySequencer::default),
            last_word: self.to.end_marker.filter(|_| self.sse),
            sse: self.sse,
            frames: Frames::default(),
            text: String::new(),
            failed: false,
        };
        let mut out = io::stdout().lock();
        let mut recognition = Recognition::new(self.from);
        let done = input::read_chunks(&self.file, |bytes| {
            recognition.push_bytes(bytes);
            decoder.feed(bytes, &mut |decoded| {
                recognition.push_decoded(&decoded);
                writing.push_decoded(decoded);
            });
            // Nothing is written for an input of another wire.
            let is_held = recognition.has_failed() && writing.text.len() < MAX_HELD_BYTES;
            if is_held { Ok(()) } else { writing.flush(&mut out) }
        });
        if recognition.has_failed() {
            done?;
            recognition.error("--from").report();
            return Ok(ExitCode::from(EXIT_INVALID));
        }
        decoder.end(&mut |decoded| writing.push_decoded(decoded));
        writing.end();
        let written = writing.flush(&mut out).map_err(CommandError::from);
        done.and(written)?;
        Ok(ExitCode::from(u8::from(writing.failed)))
    }
}

struct Conversion {
    encode: Box<dyn Encode>,
    repeats: RepeatDetector,
    /// For wires on which a reply must end before the next starts.
    turns: Option<ReplySequencer>,
    last_word: Option<&'static str>,
    sse: bool,
    frames: Frames,
    /// Pending output.
    text: String,
    failed: bool,
}

impl Conversion {
    fn push_decoded(&mut self, decoded: Decoded<'_>) {
        if let Err(error) = decoded.event.and_then(|event| self.encode_event(&event)) {
            print_stderr(format_args!("error: line {}: {error}", decoded.line));
            self.failed = true;
        }
        self.write_frames();
    }

    /// Repeated events are dropped here: other protocols cannot recognise them.
    fn encode_event(&mut self, event: &Event<'_>) -> Result<()> {
        let Self { encode, frames, .. } = self;
        if !self.repeats.is_repeat(event)? {
            match &mut self.turns {
                Some(turns) => turns.push(event, &mut |event| encode.encode(event, frames)),
                None => encode.encode(event, frames),
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        let Self { encode, frames, .. } = self;
        if let Some(turns) = &mut self.turns {
            turns.finish(&mut |event| encode.encode(event, frames));
        }
        self.encode.end(&mut self.frames);
        if let Some(word) = self.last_word {
            self.frames.push_text("", word);
        }
        self.write_frames();
    }

    fn write_frames(&mut self) {
        if self.sse {
            sse::write(&self.frames, None, &mut self.text);
        } else {
            for (_, frame) in self.frames.iter() {
                self.text.push_str(frame);
                self.text.push('\n');
            }
        }
        self.frames.clear();
    }

    fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.text.as_bytes())?;
        self.text.clear();
        out.flush()
    }
}
