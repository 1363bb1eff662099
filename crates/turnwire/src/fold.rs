//! `turnwire fold`: events in, one message per reply out.

use clap::Args;
use clap::builder::PossibleValue;
use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use turnwire_core::{Event, EventKind, Fields, Folder};
use turnwire_wires::Wire;
use turnwire_wires::frames::{Frame, Frames};

/// Fold events into messages: one message per reply
///
/// Reads events, one JSON per line or the body of a server-sent event stream (told apart by
/// looking), and writes one message per reply, as one line of JSON, in the order of the replies'
/// first events. Replies may be interleaved, events may come twice. Whole messages in the stream
/// (MESSAGE events) are written where they stand.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Fold {
    /// Where the events are: a file, or - for standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// How the events are written
    #[arg(long, default_value = "turnwire", value_parser = WireParser)]
    wire: Wire,

    /// Print every reply, with what could be applied; problems become warnings
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
  1    a problem in the events, or a line that is no event
  2    wrong usage, or the file cannot be read, or the messages not be written
  141  whoever read our output has gone away

Examples:
  turnwire fold reply.ndjson
  curl -sN http://localhost:4747/v1/sessions/s/events?until=idle | turnwire fold";

#[derive(Clone)]
struct WireParser;

impl clap::builder::TypedValueParser for WireParser {
    type Value = Wire;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Wire, clap::Error> {
        let names = clap::builder::PossibleValuesParser::new(Wire::ALL.map(possible));
        let name = names.parse_ref(command, arg, value)?;
        Wire::from_name(&name).ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidValue))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Wire::ALL.into_iter().map(possible)))
    }
}

fn possible(wire: Wire) -> PossibleValue {
    PossibleValue::new(wire.name()).help(wire.about())
}

/// What the shell shows for a program that a broken pipe ended.
const BROKEN_PIPE: u8 = 141;
const CANNOT: u8 = 2;

impl Fold {
    pub(crate) fn run(self) -> ExitCode {
        let mut run = Run::new(self.wire, self.tolerant);
        let unread = read(&self.file, |bytes| run.feed(bytes)).err();
        if let Some(error) = &unread {
            say(format_args!("error: cannot read {}: {error}", self.file.display()));
        }
        // What was read before an error is not lost for it.
        match run.finish(io::stdout().lock()) {
            Ok(_) if unread.is_some() => ExitCode::from(CANNOT),
            Ok(code) => code,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(BROKEN_PIPE),
            Err(error) => {
                say(format_args!("error: cannot write the messages: {error}"));
                ExitCode::from(CANNOT)
            }
        }
    }
}

/// Hands on the bytes of a file, or of standard input, as they come.
fn read(file: &Path, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut input: Box<dyn Read> = if file == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            say("reading events from standard input; end with Ctrl-D, or see turnwire fold --help");
        }
        Box::new(stdin.lock())
    } else {
        Box::new(File::open(file)?)
    };
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => each(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A line for people. Where nobody can read it, there is nobody to tell.
fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

struct Run {
    frames: Frames,
    folding: Folding,
}

struct Folding {
    wire: Wire,
    tolerant: bool,
    folder: Folder,
    /// Replies that are not printed.
    with_problem: HashSet<String>,
    /// Whether the exit status has to tell of a problem.
    failed: bool,
}

impl Run {
    fn new(wire: Wire, tolerant: bool) -> Self {
        let folding = Folding {
            wire,
            tolerant,
            folder: Folder::default(),
            with_problem: HashSet::new(),
            failed: false,
        };
        Self { frames: Frames::default(), folding }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let Self { frames, folding } = self;
        frames.feed(bytes, &mut |frame| folding.frame(&frame));
    }

    fn finish(mut self, out: impl Write) -> io::Result<ExitCode> {
        let Self { frames, folding } = &mut self;
        frames.end(&mut |frame| folding.frame(&frame));
        let mut out = BufWriter::new(out);
        for msg in self.folding.folder.messages() {
            if self.folding.tolerant || !self.folding.with_problem.contains(msg.id()) {
                serde_json::to_writer(&mut out, msg)?;
                out.write_all(b"\n")?;
            }
        }
        out.flush()?;
        Ok(ExitCode::from(u8::from(self.folding.failed)))
    }
}

impl Folding {
    fn frame(&mut self, frame: &Frame<'_>) {
        let line = frame.line;
        let text = match &frame.text {
            Ok(text) => text,
            Err(error) => return self.no_event(line, error),
        };
        // How a stream that is no stream of events says that it ends.
        if *text == "[DONE]" {
            return;
        }
        match self.wire.decode_event(text) {
            Ok(event) => self.event(line, &event),
            Err(error) => {
                self.no_event(line, &error);
                // Whatever it was to say, its reply is not whole without it.
                self.with_problem.extend(reply_id(text));
            }
        }
    }

    fn event(&mut self, line: u64, event: &Event<'_>) {
        if matches!(event.kind, EventKind::Reset(_)) {
            // Everything comes again, and is judged again.
            self.with_problem.clear();
        }
        if self.tolerant {
            if let (_, Some(problem)) = self.folder.push_tolerant(event) {
                say(format_args!("warning: line {line}: {problem}"));
            }
        } else if let Err(problem) = self.folder.push(event) {
            say(format_args!("error: line {line}: {problem}"));
            self.failed = true;
            self.with_problem.insert(message_id(event).to_owned());
        }
    }

    fn no_event(&mut self, line: u64, why: &impl Display) {
        say(format_args!("error: line {line}: {why}"));
        self.failed = true;
    }
}

/// The reply that a line names, although it is no event.
fn reply_id(text: &str) -> Option<String> {
    let fields: Fields = serde_json::from_str(text).ok()?;
    fields.get("reply_id").ok()?
}

/// Which message an event is about.
fn message_id<'e>(event: &'e Event<'_>) -> &'e str {
    match &event.kind {
        EventKind::Message(event) => event.message.id(),
        _ => &event.reply_id,
    }
}
