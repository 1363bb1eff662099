//! What the commands share: reading input, parsing wire names, printing errors, exit statuses.

use clap::builder::PossibleValue;
use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use turnwire_log::Error;
use turnwire_server::StartError;
use turnwire_server::config::ConfigError;
use turnwire_wires::Wire;

/// The exit status of a program that a broken pipe ended.
const EXIT_BROKEN_PIPE: u8 = 141;
/// The exit status for input with invalid events.
pub(crate) const EXIT_INVALID: u8 = 1;
/// The exit status for wrong usage, and for failed input or output.
pub(crate) const EXIT_ERROR: u8 = 2;

/// Passes the bytes of a file, or of standard input, to `each` until it fails.
pub(crate) fn read_chunks(
    file: &Path,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), CommandError> {
    let cannot_read = |error: io::Error| {
        CommandError::new(format!("cannot read {}: {error}", file.display()), "")
    };
    let mut input: Box<dyn Read> = if file == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            print_stderr("reading events from standard input; end with Ctrl-D, or see --help");
        }
        Box::new(stdin.lock())
    } else {
        Box::new(File::open(file).map_err(cannot_read)?)
    };
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => each(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot_read(error)),
        }
    }
}

/// Why a command failed, with a hint.
#[derive(Debug)]
pub(crate) struct CommandError {
    message: String,
    hint: Cow<'static, str>,
    /// The reader of the output has closed the pipe, so it cannot be reported.
    is_broken_pipe: bool,
}

impl CommandError {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), hint: hint.into(), is_broken_pipe: false }
    }

    /// Prints the error, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_broken_pipe {
            return ExitCode::from(EXIT_BROKEN_PIPE);
        }
        print_stderr(format_args!("error: {}", self.message));
        if !self.hint.is_empty() {
            print_stderr(format_args!("hint: {}", self.hint));
        }
        ExitCode::from(EXIT_ERROR)
    }
}

/// A failed output.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let is_broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_broken_pipe, ..Self::new(format!("cannot write: {error}"), "") }
    }
}

impl From<turnwire_core::Error> for CommandError {
    fn from(error: turnwire_core::Error) -> Self {
        Self::new(error.to_string(), "")
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        Self::new(format!("invalid settings\n{error}"), "")
    }
}

/// With its hint in the message.
impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        Self::new(error.to_string(), "")
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let hint = if matches!(error, Error::Locked(_)) {
            "a server uses it; `turnwire sessions`, `sessions export`, `backup`, and `doctor` \
             without --repair work at the same time"
        } else if matches!(error, Error::Version(_)) {
            "use the version of Turnwire that wrote it, or a later one"
        } else {
            ""
        };
        Self::new(error.to_string(), hint)
    }
}

/// Prints a line to standard error. A failure is ignored: it could not be reported.
pub(crate) fn print_stderr(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Parses the name of a wire with the needed direction, and lists the possible ones in `--help`.
#[derive(Clone)]
pub(crate) enum WireParser {
    /// Its streams can be read.
    Readable,
    /// Its streams can be written.
    Writable,
}

impl WireParser {
    fn is_supported(&self, wire: &Wire) -> bool {
        match self {
            Self::Readable => wire.can_decode(),
            Self::Writable => wire.can_encode(),
        }
    }

    fn wires(&self) -> impl Iterator<Item = &'static Wire> {
        Wire::all().filter(|wire| self.is_supported(wire))
    }

    /// The error for a wire without the needed direction.
    fn unsupported_error(&self, wire: &Wire, command: &clap::Command) -> clap::Error {
        let cannot = match self {
            Self::Readable => "its streams can be written but not read",
            Self::Writable => "its streams can be read but not written",
        };
        let names: Vec<&str> = self.wires().map(|wire| wire.name).collect();
        let message = format!(
            "the wire {} cannot be used here: {cannot}\n\nPossible wires: {}\n",
            wire.name,
            names.join(", ")
        );
        clap::Error::raw(clap::error::ErrorKind::InvalidValue, message).with_cmd(command)
    }
}

impl clap::builder::TypedValueParser for WireParser {
    type Value = &'static Wire;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<&'static Wire, clap::Error> {
        match value.to_str().and_then(Wire::named) {
            Some(wire) if self.is_supported(wire) => return Ok(wire),
            Some(wire) => return Err(self.unsupported_error(wire, command)),
            None => {}
        }
        let names = clap::builder::PossibleValuesParser::new(self.wires().map(possible_value));
        let name = names.parse_ref(command, arg, value)?;
        Wire::named(&name).ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidValue))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.wires().map(possible_value)))
    }
}

fn possible_value(wire: &Wire) -> PossibleValue {
    PossibleValue::new(wire.name).help(wire.about)
}
