//! `turnwire sessions`: lists, searches, exports and imports sessions.

mod export;
mod import;
mod list;

use crate::input::CommandError;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// List and search sessions; export and import them
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    list: list::List,
}

#[derive(Subcommand)]
enum Command {
    Export(export::Export),
    Import(import::Import),
}

const AFTER: &str = "\
Listing and exporting work while a server runs.

Exit status:
  0  success
  2  wrong usage, or the store cannot be opened

Examples:
  turnwire sessions
  turnwire sessions --search \"weather in Rome\"
  turnwire sessions --json --limit 0 | jq -r .id
  turnwire sessions export chat-1 > chat-1.ndjson
  turnwire sessions import chat-1.ndjson --store sqlite:other.db";

impl Sessions {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        match self.command {
            None => self.list.run(),
            Some(Command::Export(command)) => command.run(),
            Some(Command::Import(command)) => command.run(),
        }
    }
}

/// Makes untrusted text safe for one line of a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

/// The tenant of a server without credentials.
const DEFAULT_TENANT: &str = turnwire_server::auth::DEFAULT_TENANT;
