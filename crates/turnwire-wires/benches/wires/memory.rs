//! The peak memory of a decoder or an encoder. The program starts itself once for each figure,
//! because the peak of a process never falls.

use crate::Result;
use crate::streams::{Kind, Script, WORDS, delta, reply_start, start, word};
use std::env;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::Command;
use turnwire_core::Event;
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire};

/// The argument that starts a child process; direction, wire, kind and count follow.
pub const CHILD: &str = "peak-memory";
pub const DECODE: &str = "decode";
pub const ENCODE: &str = "encode";

/// The growth of the peak from 100 thousand to a million deltas, in KiB; `None` if the wire has no
/// such deltas, or the system does not report the peak.
pub fn growth(way: &str, wire: &Wire, kind: Kind) -> Result<Option<f64>> {
    let can = if way == DECODE {
        wire.can_decode() && Script::for_wire(wire, kind)?.is_some()
    } else {
        wire.can_encode()
    };
    if !can {
        return Ok(None);
    }
    let few = peak(way, wire, kind, "100000")?;
    let many = peak(way, wire, kind, "1000000")?;
    Ok(few.zip(many).map(|(few, many)| many - few))
}

/// The peak of a child process, in KiB.
fn peak(way: &str, wire: &Wire, kind: Kind, count: &str) -> Result<Option<f64>> {
    let kind = format!("{kind:?}");
    let output =
        Command::new(env::current_exe()?).args([CHILD, way, wire.name, &kind, count]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(str::from_utf8(&output.stdout)?.trim().parse::<f64>().ok())
}

pub fn child(way: &str, wire: &str, kind: &str, count: usize) -> Result<()> {
    let wire = Wire::named(wire).ok_or("no such wire")?;
    let kind = Kind::ALL.into_iter().find(|known| format!("{known:?}") == kind);
    let kind = kind.ok_or("no such kind")?;
    if way == DECODE {
        let script = Script::for_wire(wire, kind)?.ok_or("no such deltas")?;
        let mut decoder = wire.decoder(&DecoderOptions::default())?;
        let mut take = |frame: &str| {
            for piece in [frame, "\n"] {
                decoder.feed(piece.as_bytes(), &mut |decoded| drop(black_box(decoded)));
            }
        };
        script.begin.iter().for_each(|frame| take(frame));
        (0..count).for_each(|at| take(script.delta(at)));
    } else {
        let mut encoder = wire.encoder(&EncoderOptions::default())?;
        let mut frames = Frames::default();
        let mut take = |event: &Event<'_>| {
            encoder.encode(event, &mut frames);
            black_box(&frames);
            frames.clear();
        };
        reply_start("r").iter().for_each(&mut take);
        start("r", kind, "b").iter().for_each(&mut take);
        let deltas: Vec<_> = (0..WORDS.len()).map(|at| delta("r", kind, "b", word(at))).collect();
        deltas.iter().cycle().take(count).for_each(&mut take);
    }
    if let Some(kib) = read_peak_memory() {
        println!("{kib}");
    }
    Ok(())
}

/// The peak of this process, in KiB, from Linux's `/proc`.
fn read_peak_memory() -> Option<u64> {
    let status = BufReader::new(File::open("/proc/self/status").ok()?);
    let line = status
        .lines()
        .map_while(std::result::Result::ok)
        .find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
