//! `turnwire wires`: lists the wires with their directions and losses.

use crate::input::CommandError;
use clap::Args;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use turnwire_wires::{Loss, Wire};

/// List the wires: what each supports, and what it cannot hold
#[derive(Args)]
pub(crate) struct Wires {
    /// Only this wire
    wire: Option<String>,
}

impl Wires {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let text = match self.wire.as_deref().map(|name| (name, Wire::named(name))) {
            None => all_wires_table(),
            Some((_, Some(wire))) => describe_wire(wire),
            Some((name, None)) => {
                let names: Vec<&str> = Wire::all().map(|wire| wire.name).collect();
                let names = names.join(", ");
                let message = format!("unknown wire {name}; known wires: {names}");
                return Err(CommandError::new(message, ""));
            }
        };
        io::stdout().lock().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn all_wires_table() -> String {
    let mut text = table_row("wire", ["messages", "stream in", "stream out", "request"]);
    for wire in Wire::all() {
        let yes = |can| if can { "yes" } else { "-" };
        let (decode, encode) = (yes(wire.can_decode()), yes(wire.can_encode()));
        let request = if wire.can_request_model() { "out" } else { "-" };
        let request = wire.client_request.map_or(request.to_owned(), |what| format!("in: {what}"));
        text.push_str(&table_row(wire.name, [yes(wire.has_messages()), decode, encode, &request]));
    }
    text.push_str(ABOUT);
    for wire in Wire::all() {
        text.push('\n');
        text.push_str(&describe_wire(wire));
    }
    text
}

const ABOUT: &str = "
messages: messages can be read and written; stream: events can be read (in) and written (out); request:
out, requests to a model; in, requests of clients to an agent. The losses below are what a wire leaves out
or returns changed. Everything else survives.
";

fn table_row(wire: &str, [messages, decode, encode, request]: [&str; 4]) -> String {
    format!("{wire:<18}{messages:<10}{decode:<11}{encode:<12}{request}\n")
}

fn describe_wire(wire: &Wire) -> String {
    let mut text = format!("{}: {}\n", wire.name, wire.about);
    for (what, losses) in [("stream", wire.stream_losses), ("messages", wire.message_losses)] {
        if !losses.is_empty() {
            let losses: Vec<&str> = losses.iter().map(|loss: &Loss| loss.about()).collect();
            let _ = writeln!(text, "  what its {what} cannot hold:\n    {}", losses.join("\n    "));
        }
    }
    text
}
