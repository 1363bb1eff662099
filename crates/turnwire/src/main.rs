//! The command line of Turnwire.

mod convert;
mod fold;
mod input;
mod turns;
mod wires;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// The message-and-event layer for AI agents.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Fold(fold::Fold),
    Convert(convert::Convert),
    Wires(wires::Wires),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Some(Command::Fold(command)) => command.run(),
        Some(Command::Convert(command)) => command.run(),
        Some(Command::Wires(command)) => command.run(),
        None => match Cli::command().print_help() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}
