//! Ingest, alternating with the other server.

use crate::Result;
use crate::figures::{Figure, median, number, thousands};
use crate::running_server::{RunningServer, ServerKind, TempFolder};

struct IngestSample {
    events: f64,
    p99: f64,
}

/// Measures the servers alternately, each of them first in turn.
pub fn compare(
    kinds: &[ServerKind],
    batch: u32,
    rounds: usize,
    seconds: u32,
) -> Result<Vec<Figure>> {
    let mut turns: Vec<Vec<IngestSample>> = kinds.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds.max(1) {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for nth in order {
            let (Some(kind), Some(turns)) = (kinds.get(nth), turns.get_mut(nth)) else { continue };
            let turn = measure_once(kind, batch, seconds)?;
            let (events, p99) = (thousands(turn.events), turn.p99);
            eprintln!("  {:<16} {events:>10} events/s  p99 {p99:.1} ms", kind.name());
            turns.push(turn);
        }
    }
    Ok(table(batch, &turns))
}

fn measure_once(kind: &ServerKind, batch: u32, seconds: u32) -> Result<IngestSample> {
    let folder = TempFolder::new()?;
    let running = RunningServer::start(kind, &folder)?;
    let (batch, seconds) = (batch.to_string(), seconds.to_string());
    let figures = running.bench(&[
        "ingest",
        "--target",
        kind.name(),
        "--batch",
        &batch,
        "--seconds",
        &seconds,
    ])?;
    Ok(IngestSample {
        events: number(&figures, "/events_per_second")?,
        p99: number(&figures, "/latency_ms/p99")?,
    })
}

fn table(batch: u32, turns: &[Vec<IngestSample>]) -> Vec<Figure> {
    let name = |what: &str| format!("ingest, {batch} per POST: {what}");
    let Some(our_turns) = turns.first() else { return Vec::new() };
    let ours = median_sample(our_turns);
    let rate = thousands(ours.events);
    let p99 = format!("{:.1} ms", ours.p99);
    let mut table = if batch == 1 {
        vec![Figure::informational(name("events/s"), rate), Figure::informational(name("p99"), p99)]
    } else {
        vec![
            Figure::at_least(name("events/s"), rate, ours.events, 500_000.0, "500,000"),
            Figure::at_most(name("p99"), p99, ours.p99, 200.0, "200 ms"),
        ]
    };
    if let Some(their_turns) = turns.get(1) {
        let theirs = median_sample(their_turns);
        // Per round: the noise of the machine changes between rounds.
        let rounds = || our_turns.iter().zip(their_turns);
        let ratio = median(rounds().map(|(ours, theirs)| ours.events / theirs.events));
        let shown = format!("{ratio:.2}");
        table.push(Figure::informational(name("durable-streams"), thousands(theirs.events)));
        table.push(Figure::informational(
            name("durable-streams p99"),
            format!("{:.1} ms", theirs.p99),
        ));
        let ratio_name = name("times durable-streams");
        table.push(if batch == 1 {
            Figure::at_least(ratio_name, shown, ratio, 1.0, "1.0")
        } else {
            Figure::informational(ratio_name, shown)
        });
        if batch == 1 {
            let slower = median(rounds().map(|(ours, theirs)| ours.p99 / theirs.p99));
            let shown = format!("{slower:.2}");
            table.push(Figure::at_most(name("p99 beside theirs"), shown, slower, 1.0, "1.0"));
        }
    }
    table
}

fn median_sample(turns: &[IngestSample]) -> IngestSample {
    IngestSample {
        events: median(turns.iter().map(|turn| turn.events)),
        p99: median(turns.iter().map(|turn| turn.p99)),
    }
}
