//! Times decoders, the floor, and encoders.

use crate::Result;
use crate::streams::{Kind, Stream, long_reply};
use serde_json::value::RawValue;
use std::hint::black_box;
use std::time::Instant;
use turnwire_core::{Event, EventKind};
use turnwire_testkit::Rng;
use turnwire_wires::{Decoded, DecoderOptions, EncoderOptions, Frames, Wire};

pub const ROUNDS: usize = 25;

/// How often the same replies are encoded in a round.
const REPEATS: usize = 20;

/// The size of a network read.
const CHUNK_BYTES: usize = 16 * 1024;

/// The best of all rounds, in seconds.
pub struct Times {
    pub ours: f64,
    pub floor: f64,
}

pub fn decode(stream: &Stream) -> Result<Times> {
    if text(stream)? != stream.text {
        return Err(format!("{}: the stream became another text", stream.wire.name).into());
    }
    let (ours, floor) = best_of(
        ROUNDS,
        || events(stream.wire, &stream.body, &mut |event| drop(black_box(event))),
        || floor(stream),
    )?;
    Ok(Times { ours, floor })
}

/// Decodes a body and passes on its events.
pub fn events(wire: &Wire, body: &[u8], each: &mut dyn FnMut(Event<'_>)) -> Result<()> {
    let mut decoder = wire.decoder(&DecoderOptions::default())?;
    let mut problem = None;
    let mut each = |decoded: Decoded<'_>| match decoded.event {
        Ok(event) => each(event),
        Err(error) => problem = Some(error),
    };
    for piece in body.chunks(CHUNK_BYTES) {
        decoder.feed(piece, &mut each);
    }
    decoder.end(&mut each);
    problem.map_or(Ok(()), |problem| Err(format!("{}: {problem}", wire.name).into()))
}

fn text(stream: &Stream) -> Result<String> {
    let mut text = String::new();
    events(stream.wire, &stream.body, &mut |event| {
        if let EventKind::TextBlockDelta(delta) = event.kind {
            text.push_str(&delta.delta);
        }
    })?;
    Ok(text)
}

fn floor(stream: &Stream) -> Result<()> {
    let mut copy = String::new();
    for (frame, delta) in stream.frames.iter().zip(&stream.deltas) {
        let frame = stream.body.get(frame.clone()).unwrap_or_default();
        black_box(serde_json::from_slice::<&RawValue>(frame)?);
        let delta = stream.body.get(delta.clone()).unwrap_or_default();
        copy.push_str(std::str::from_utf8(delta)?);
    }
    black_box(copy);
    Ok(())
}

/// Events per second: for a long text, and for random replies as separate streams.
pub fn encode(wire: &Wire) -> Result<[f64; 2]> {
    let mut rng = Rng::with_seed(7);
    // Few enough to stay in the cache, as a new event does.
    let mixed: Vec<Vec<Event<'static>>> = (0..100)
        .map(|at| turnwire_testkit::random_reply(&mut rng, &format!("r{at}")).events)
        .collect();
    let deltas = vec![long_reply(Kind::Text, 100_000)];
    let count =
        |streams: &[Vec<Event<'static>>]| streams.iter().map(Vec::len).sum::<usize>() as f64;
    let (slow, quick) = best_of(
        ROUNDS,
        || all_frames(wire, mixed.iter().cycle().take(REPEATS * mixed.len())).map(drop),
        || all_frames(wire, deltas.iter()).map(drop),
    )?;
    Ok([count(&deltas) / quick, REPEATS as f64 * count(&mixed) / slow])
}

/// Encodes one stream, and returns the number of frames.
pub fn frames(wire: &Wire, events: &[Event<'_>]) -> Result<usize> {
    let mut encoder = wire.encoder(&EncoderOptions::default())?;
    let mut frames = Frames::default();
    let mut count = 0;
    for event in events {
        encoder.encode(event, &mut frames);
        count += black_box(&frames).len();
        frames.clear();
    }
    encoder.end(&mut frames);
    Ok(count + frames.len())
}

/// The same for several streams.
pub fn all_frames<'e>(
    wire: &Wire,
    mut streams: impl Iterator<Item = &'e Vec<Event<'static>>>,
) -> Result<usize> {
    streams.try_fold(0, |count, events| Ok(count + frames(wire, events)?))
}

/// The best times of two alternating runs, in seconds.
pub fn best_of(
    rounds: usize,
    mut one: impl FnMut() -> Result<()>,
    mut other: impl FnMut() -> Result<()>,
) -> Result<(f64, f64)> {
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        best.0 = best.0.min(time(&mut one)?);
        best.1 = best.1.min(time(&mut other)?);
    }
    Ok(best)
}

fn time(run: &mut impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64())
}
