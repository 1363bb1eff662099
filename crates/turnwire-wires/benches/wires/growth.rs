//! Checks that the work is linear: one stream of eight times the length against eight streams.

use crate::Result;
use crate::streams::{Kind, Script, delta, end, long_reply, reply_end, reply_start, start};
use crate::timing::{all_frames, best_of, events, frames};
use turnwire_core::Event;
use turnwire_testkit::Rng;
use turnwire_wires::{EncoderOptions, Frames, Wire};

const ROUNDS: usize = 25;
const TIMES: usize = 8;

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    Deltas,
    Blocks,
    Replies,
}

impl Growth {
    pub const ALL: [Self; 3] = [Self::Deltas, Self::Blocks, Self::Replies];

    /// A stream of this size.
    fn events(self, from: usize, many: usize) -> Vec<Event<'static>> {
        match self {
            Self::Deltas => long_reply(Kind::Text, 2000 * many),
            Self::Blocks => {
                let mut events = Vec::from(reply_start("r"));
                for at in 0..400 * many {
                    let kind = Kind::ALL.into_iter().cycle().nth(at % 4).unwrap_or(Kind::Text);
                    let id = format!("b{at}");
                    events.extend(start("r", kind, &id));
                    events.push(delta("r", kind, &id, "{}"));
                    events.push(end("r", kind, &id));
                }
                events.extend(reply_end("r"));
                events
            }
            Self::Replies => (from..from + many)
                .flat_map(|at| {
                    let mut rng = Rng::with_seed(at as u64);
                    (0..80).flat_map(move |_| {
                        let id = format!("{at}-{}", rng.u64(..));
                        turnwire_testkit::random_reply(&mut rng, &id).events
                    })
                })
                .collect(),
        }
    }
}

/// The time per event in the long stream, relative to the short ones; `None` if a stream holds only
/// one reply.
pub fn encoder(wire: &Wire, of: Growth) -> Result<Option<f64>> {
    let whole = of.events(0, TIMES);
    let parts: Vec<_> = (0..TIMES).map(|at| of.events(at, 1)).collect();
    time_ratio(|| frames(wire, &whole), || all_frames(wire, parts.iter()))
}

/// The same for a decoder.
pub fn decoder(wire: &Wire, of: Growth) -> Result<Option<f64>> {
    let Some(whole) = body(wire, of, 0, TIMES)? else { return Ok(None) };
    let parts = (0..TIMES).map(|at| body(wire, of, at, 1)).collect::<Result<Vec<_>>>()?;
    let mut parts = parts.iter().flatten().cycle();
    let count = |body: &[u8]| -> Result<usize> {
        let mut count = 0;
        events(wire, body, &mut |_| count += 1)?;
        Ok(count)
    };
    time_ratio(|| count(&whole), || parts.by_ref().take(TIMES).map(|part| count(part)).sum())
}

/// The ratio of the two times; `None` if one yields far fewer events.
fn time_ratio(
    mut one: impl FnMut() -> Result<usize>,
    mut other: impl FnMut() -> Result<usize>,
) -> Result<Option<f64>> {
    if one()? * 10 < other()? * 9 {
        return Ok(None);
    }
    let (long, short) = best_of(ROUNDS, || one().map(drop), || other().map(drop))?;
    Ok(Some(long / short))
}

/// The stream as lines: encoded by the wire, or from the provider's frames.
fn body(wire: &Wire, of: Growth, from: usize, many: usize) -> Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    let mut push = |text: &str| {
        body.extend_from_slice(text.as_bytes());
        body.push(b'\n');
    };
    if wire.can_encode() {
        let mut encoder = wire.encoder(&EncoderOptions::default())?;
        let mut frames = Frames::default();
        for event in of.events(from, many) {
            encoder.encode(&event, &mut frames);
        }
        encoder.end(&mut frames);
        frames.iter().for_each(|(_, text)| push(text));
        return Ok(Some(body));
    }
    let scripts = (Script::for_wire(wire, Kind::Text)?, Script::for_wire(wire, Kind::Thinking)?);
    let (Some(text), Some(thinking)) = scripts else { return Ok(None) };
    for at in 0..1600 * many {
        match of {
            Growth::Deltas => push(text.delta(at)),
            // A new block ends the previous one.
            Growth::Blocks if at % 2 == 0 => push(text.delta(at)),
            Growth::Blocks => push(thinking.delta(at)),
            Growth::Replies => return Ok(None),
        }
    }
    Ok(Some(body))
}
