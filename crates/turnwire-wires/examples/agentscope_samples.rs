//! Prints what the `agentscope` wire writes, one sample per line, for the tests with the real package:
//!
//! - `agentscope_samples SEED COUNT`: random events and messages;
//! - `agentscope_samples SEED COUNT data`: replies with a data block, and one in a tool result, whose
//!   base64 is split anywhere, and their bytes.

use std::io::{self, Write};
use turnwire_core::event::{
    Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart, ReplyEnd, ReplyStart, ToolResultDataDelta,
    ToolResultEnd, ToolResultStart,
};
use turnwire_core::{DataBlock, Event, EventKind, Fields, Source, ToolResultState};
use turnwire_testkit::{Rng, values};
use turnwire_wires::{EncoderOptions, Frames, Wire, agentscope};

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: agentscope_samples SEED COUNT [data]");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (seed, count, with_data) = match args.as_slice() {
        [seed, count] => (seed, count, false),
        [seed, count, what] if what == "data" => (seed, count, true),
        _ => return Err(usage()),
    };
    let mut rng = Rng::with_seed(seed.parse().map_err(|_| usage())?);
    let mut out = io::BufWriter::new(io::stdout().lock());
    for _ in 0..count.parse::<u64>().map_err(|_| usage())? {
        if with_data {
            writeln!(out, "{}", data_reply(&mut rng)?)?;
            continue;
        }
        let event = agentscope::encode_event(&values::event(&mut rng));
        writeln!(out, r#"{{"event":{event}}}"#)?;
        let message = agentscope::encode_message(&values::message(&mut rng));
        writeln!(out, r#"{{"message":{message}}}"#)?;
    }
    out.flush()
}

/// A reply as the wire writes it, and the bytes of its two blocks as one run of base64 each.
fn data_reply(rng: &mut Rng) -> io::Result<String> {
    let mut events = vec![event(ReplyStart::default())];
    events.push(event(DataBlockStart {
        block_id: "d".into(),
        media_type: Some("image/png".to_owned()),
        name: None,
    }));
    let (block, deltas) = pieces(rng);
    for data in deltas {
        events.push(event(DataBlockDelta {
            block_id: "d".into(),
            media_type: Some("image/png".to_owned()),
            chunk: Chunk::Data(data.into()),
        }));
    }
    // The end of a reply ends its blocks.
    if rng.bool() {
        events.push(event(DataBlockEnd { block_id: "d".into(), extra: Fields::default() }));
    }
    events.push(event(ToolResultStart { tool_call_id: "c".into(), tool_call_name: "f".into() }));
    let (result, deltas) = pieces(rng);
    for data in deltas {
        events.push(event(ToolResultDataDelta {
            tool_call_id: "c".into(),
            block_id: "p".into(),
            media_type: Some("image/png".to_owned()),
            chunk: Chunk::Data(data.into()),
        }));
    }
    events.push(event(ToolResultEnd { tool_call_id: "c".into(), state: ToolResultState::Success }));
    events.push(event(ReplyEnd::default()));

    let wire = Wire::named("agentscope").ok_or_else(|| io::Error::other("no such wire"))?;
    let mut encoder = wire.encoder(&EncoderOptions::default()).map_err(io::Error::other)?;
    let mut frames = Frames::default();
    for (number, mut event) in (1..).zip(events) {
        event.id = format!("e{number}").into();
        event.created_at = format!("2026-01-01T00:00:00.{number:06}").into();
        encoder.encode(&event, &mut frames);
    }
    let lines: Vec<&str> = frames.iter().map(|(_, text)| text).collect();
    let lines = lines.join(",");
    Ok(format!(r#"{{"stream":[{lines}],"block":"{block}","result":"{result}"}}"#))
}

fn event(kind: impl Into<EventKind<'static>>) -> Event<'static> {
    Event::new("r", kind)
}

/// Random bytes as one run of base64; and as several runs, the last perhaps unpadded, split
/// anywhere.
fn pieces(rng: &mut Rng) -> (String, Vec<String>) {
    let mut bytes = Vec::new();
    let mut text = String::new();
    for _ in 0..rng.usize(..4) {
        let run: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
        text.push_str(&base64(&run));
        bytes.extend(run);
    }
    if rng.bool() {
        text.truncate(text.trim_end_matches('=').len());
    }
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let rest = text.split_off(rng.usize(..=text.len().min(9)));
        pieces.push(std::mem::replace(&mut text, rest));
    }
    (base64(&bytes), pieces)
}

fn base64(bytes: &[u8]) -> String {
    match DataBlock::bytes(bytes, "").source {
        Source::Base64(source) => source.data,
        Source::Url(_) | Source::Other(_) => String::new(),
    }
}
