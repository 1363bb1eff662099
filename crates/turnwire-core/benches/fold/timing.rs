//! Measures the times of our fold and of the floor.

use crate::streams::{Shape, Stream};
use crate::{Result, content, json_to_message, lines};
use serde_json::value::RawValue;
use std::hint::black_box;
use std::time::Instant;
use turnwire_core::{Event, Folder, Seq};

pub const ROUNDS: usize = 25;

/// The best of all rounds, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub ours: f64,
    pub floor: f64,
}

/// Times of each stream, in their order. Each round measures all streams, so that disturbances of the
/// machine affect all alike.
pub fn measure_interleaved(streams: &[Stream]) -> Result<Vec<Times>> {
    for stream in streams {
        check(stream)?;
    }
    let mut best = vec![Times { ours: f64::MAX, floor: f64::MAX }; streams.len()];
    for _ in 0..ROUNDS {
        for (stream, best) in streams.iter().zip(&mut best) {
            let repeats = stream.shape.repeats();
            best.ours = best.ours.min(time(repeats, || json_to_message(&stream.json))?);
            best.floor = best.floor.min(time(repeats, || floor(stream))?);
        }
    }
    Ok(best)
}

/// Checks the result of our fold: otherwise its time means nothing.
fn check(stream: &Stream) -> Result<()> {
    let folded = content(&json_to_message(&stream.json)?);
    let copied = floor(stream)?;
    let same = match stream.shape {
        Shape::Deltas(_) | Shape::Blocks(_) => {
            folded == serde_json::from_str::<String>(&format!("\"{copied}\""))?
        }
        // Padding inside is removed, so the text is shorter.
        Shape::Data(mib) => folded.len() == (mib << 20).div_ceil(3) * 4,
    };
    if same { Ok(()) } else { Err(format!("{}: wrong result", stream.shape).into()) }
}

fn floor(stream: &Stream) -> Result<String> {
    let mut copy = String::new();
    for (line, delta) in lines(&stream.json).zip(&stream.deltas) {
        black_box(serde_json::from_slice::<&RawValue>(line)?);
        let delta = stream.json.get(delta.clone()).unwrap_or_default();
        copy.push_str(std::str::from_utf8(delta)?);
    }
    Ok(copy)
}

/// Events per second.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub by_seq: f64,
    pub by_id: f64,
}

/// Measures how fast parsed events are folded.
pub fn measure_parsed(streams: &[Stream]) -> Result<Rates> {
    let Some(stream) = streams.iter().find(|stream| matches!(stream.shape, Shape::Deltas(_)))
    else {
        return Err("no stream of deltas".into());
    };
    let text = std::str::from_utf8(&stream.json)?;
    let by_id: Vec<Event<'_>> = text.lines().map(Event::from_json).collect::<Result<_, _>>()?;
    let mut by_seq = by_id.clone();
    for (event, seq) in by_seq.iter_mut().zip(1..) {
        event.seq = Seq::new(seq);
    }
    let (mut best_seq, mut best_id) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        best_seq = best_seq.min(time(1, || fold(&by_seq))?);
        best_id = best_id.min(time(1, || fold(&by_id))?);
    }
    let count = by_id.len() as f64;
    Ok(Rates { by_seq: count / best_seq, by_id: count / best_id })
}

fn fold(events: &[Event<'_>]) -> Result<Folder> {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event)?;
    }
    Ok(folder)
}

/// The mean time of a run, in seconds. The results are dropped after the clock has stopped.
fn time<T>(repeats: usize, run: impl Fn() -> Result<T>) -> Result<f64> {
    let mut made = Vec::with_capacity(repeats);
    let start = Instant::now();
    for _ in 0..repeats {
        made.push(black_box(run()?));
    }
    Ok(start.elapsed().as_secs_f64() / repeats as f64)
}
