//! The command line of Turnwire.

// Our own enums are matched without `_`, so that the compiler finds the places for a new variant.
#![warn(clippy::wildcard_enum_match_arm)]

mod backup;
#[cfg(feature = "bench")]
mod bench;
mod chat;
mod client;
mod completions;
mod config;
mod convert;
mod copy;
mod doctor;
mod export_lines;
mod fold;
mod input;
mod man;
mod recognition;
mod replay;
mod reply_sequencer;
mod serve;
mod sessions;
mod store;
mod token;
mod wires;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The message-and-event layer for AI agents.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Chat(chat::Chat),
    Replay(replay::Replay),
    Fold(fold::Fold),
    Convert(convert::Convert),
    Wires(wires::Wires),
    Token(token::Token),
    Config(config::Settings),
    #[cfg(feature = "bench")]
    Bench(bench::Bench),
    Sessions(sessions::Sessions),
    Doctor(doctor::Doctor),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Copy(copy::Copy),
    Completions(completions::Completions),
    Man(man::Man),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Some(Command::Serve(command)) => command.run(),
        Some(Command::Chat(command)) => command.run(),
        Some(Command::Replay(command)) => command.run(),
        Some(Command::Fold(command)) => command.run(),
        Some(Command::Convert(command)) => command.run(),
        Some(Command::Wires(command)) => command.run(),
        Some(Command::Token(command)) => command.run(),
        Some(Command::Config(command)) => command.run(),
        #[cfg(feature = "bench")]
        Some(Command::Bench(command)) => command.run(),
        Some(Command::Sessions(command)) => command.run(),
        Some(Command::Doctor(command)) => command.run(),
        Some(Command::Backup(command)) => command.run(),
        Some(Command::Restore(command)) => command.run(),
        Some(Command::Copy(command)) => command.run(),
        Some(Command::Completions(command)) => command.run(Cli::command()),
        Some(Command::Man(command)) => command.run(Cli::command()),
        None => match Cli::command().print_help() {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(_) => Ok(ExitCode::FAILURE),
        },
    };
    done.unwrap_or_else(|failed| failed.report())
}
