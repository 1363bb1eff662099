//! The speed and memory of the wires: `make bench`.
//!
//! Side by side in one run, on the same bytes:
//!
//! - ours: a stream from bytes to events;
//! - the floor: each frame parsed by `serde_json` as raw JSON, and a copy of its delta, whose position
//!   is known in advance;
//! - the official Python packages, if `PROVIDERS_PYTHON` names an interpreter that has them: from the
//!   same bytes to their final object.
//!
//! An argument such as `decoding` runs only that part.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::print_stderr, reason = "and tells who waits what it is at")]
#![expect(clippy::cast_precision_loss, reason = "figures are shown with three digits")]

mod growth;
mod memory;
mod python;
mod streams;
mod timing;

use growth::Growth;
use std::env;
use std::error::Error;
use streams::{Kind, Stream};
use turnwire_wires::Wire;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// A part of the benchmark, by name.
type Part = (&'static str, fn() -> Result<()>);

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let [memory::CHILD, way, wire, kind, count] = args[..] {
        return memory::child(way, wire, kind, count.parse()?);
    }
    let parts: [Part; 4] =
        [("decoding", decoding), ("encoding", encoding), ("growth", growth), ("memory", memory)];
    let is_named = |(name, _): &Part| args.contains(name);
    let all = !parts.iter().any(is_named);
    parts.iter().filter(|part| all || is_named(part)).try_for_each(|(_, part)| part())
}

fn decoding() -> Result<()> {
    eprintln!("timing decoders, the floor and the Python packages");
    println!("Streams to events: the best of {} rounds, by turns.\n", timing::ROUNDS);
    println!(
        "| wire | frames | ours, ms | floor, ms | ours / floor (at most 3.5) | Python, ms | Python / ours (at least 30) |"
    );
    println!("|---|---|---|---|---|---|---|");
    for wire in Wire::all().filter(|wire| wire.can_decode()) {
        let stream = Stream::for_wire(wire)?;
        let times = timing::decode(&stream)?;
        let python = python::accumulate(&stream)?;
        println!(
            "| {} | {} | {} | {} | {:.2} | {} | {} |",
            wire.name,
            stream.frames.len(),
            format_ms(times.ours),
            format_ms(times.floor),
            times.ours / times.floor,
            format_figure(python, format_ms),
            format_figure(python, |seconds| format!("{:.0}", seconds / times.ours)),
        );
    }
    Ok(())
}

fn encoding() -> Result<()> {
    eprintln!("timing encoders");
    println!("\nEvents to a wire's frames, in millions a second (at least 1).\n");
    println!("| wire | text deltas | replies of every kind |\n|---|---|---|");
    for wire in Wire::all().filter(|wire| wire.can_encode()) {
        let [deltas, mixed] = timing::encode(wire)?;
        println!("| {} | {:.1} | {:.1} |", wire.name, deltas / 1e6, mixed / 1e6);
    }
    Ok(())
}

fn growth() -> Result<()> {
    eprintln!("timing long streams against short ones");
    println!("\nOne stream of 8 times the length, against 8 streams: time (at most 1.1).\n");
    println!(
        "| wire | decoder: deltas | blocks | replies | encoder: deltas | blocks | replies |\n|---|---|---|---|---|---|---|"
    );
    let ratio = |ratio: f64| format!("{ratio:.2}");
    for wire in Wire::all() {
        let mut cells = vec![wire.name.to_owned()];
        for of in Growth::ALL {
            let slope = if wire.can_decode() { growth::decoder(wire, of)? } else { None };
            cells.push(format_figure(slope, ratio));
        }
        for of in Growth::ALL {
            let slope = if wire.can_encode() { growth::encoder(wire, of)? } else { None };
            cells.push(format_figure(slope, ratio));
        }
        println!("| {} |", cells.join(" | "));
    }
    Ok(())
}

fn memory() -> Result<()> {
    eprintln!("measuring memory");
    println!(
        "\nWhat the peak of memory grows by from 100 thousand to 1 million deltas, which are some 4000 KiB of text, in KiB.\n"
    );
    println!(
        "| wire | decoder: text | thinking | input | output | encoder: text | thinking | input | output |\n|---|---|---|---|---|---|---|---|---|"
    );
    for wire in Wire::all() {
        let mut cells = vec![wire.name.to_owned()];
        for way in [memory::DECODE, memory::ENCODE] {
            for kind in Kind::ALL {
                let kib = memory::growth(way, wire, kind)?;
                cells.push(format_figure(kib, |kib| format!("{kib:.0}")));
            }
        }
        println!("| {} |", cells.join(" | "));
    }
    println!("{GROWTH_NOTES}");
    Ok(())
}

/// Why some of them grow.
const GROWTH_NOTES: &str = "
Held, because the wire sends it whole later:

- ai-sdk: a call's input (`tool-input-available`), a tool's output and its previews
  (`tool-output-available`);
- blocks: a call's input, which its protocol has in one piece;
- openai-chat, openai-responses, anthropic: a call's input until it is known whether the agent or the
  client executes it;
- openai-responses: text and thinking, which the final response repeats.";

fn format_figure(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or("-".to_owned(), show)
}

fn format_ms(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}
