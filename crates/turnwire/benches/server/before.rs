//! The same figures of an earlier version, alternating with this one: `TURNWIRE_BEFORE` is the path of its program.

use crate::Result;
use crate::figures::{Figure, median, number};
use crate::running_server::{RunningServer, ServerKind, TempFolder};
use std::env;
use std::path::PathBuf;

/// One figure of both versions, a value for each round.
struct Compared {
    name: &'static str,
    unit: &'static str,
    now: Vec<f64>,
    before: Vec<f64>,
}

impl Compared {
    fn figure(&self) -> Figure {
        let ratio = median(self.now.iter().zip(&self.before).map(|(now, before)| now / before));
        let [now, before] = [&self.now, &self.before].map(|all| median(all.iter().copied()));
        let rounds = self.now.iter().zip(&self.before).map(|(now, before)| now / before);
        let rounds: Vec<String> = rounds.map(|ratio| format!("{ratio:.2}")).collect();
        let shown = format!(
            "{ratio:.2} times ({now:.1} {unit}, before {before:.1}; {})",
            rounds.join(" "),
            unit = self.unit
        );
        Figure::informational(format!("beside the earlier version: {}", self.name), shown)
    }
}

/// Measures one figure on a fresh server.
type Measure = fn(&RunningServer, &str) -> Result<f64>;

const FIGURES: [(&str, &str, Measure); 5] = [
    ("ingest, 1 event per POST", "events/s", |server, seconds| ingest(server, "1", seconds)),
    ("ingest, 64 events per POST", "events/s", |server, seconds| ingest(server, "64", seconds)),
    ("fan-out at 100 events/s: p99", "ms", |server, seconds| fanout(server, "100", seconds)),
    ("fan-out at 1,000 events/s: p99", "ms", |server, seconds| fanout(server, "1000", seconds)),
    ("10,000 idle watchers: each", "KiB", |server, _| {
        let pid = server.pid().to_string();
        let figures = server.bench(&["idle", "--watchers", "10000", "--pid", &pid])?;
        number(&figures, "/kib_per_watcher")
    }),
];

fn ingest(server: &RunningServer, batch: &str, seconds: &str) -> Result<f64> {
    let figures = server.bench(&["ingest", "--batch", batch, "--seconds", seconds])?;
    number(&figures, "/events_per_second")
}

fn fanout(server: &RunningServer, rate: &str, seconds: &str) -> Result<f64> {
    let args = ["fanout", "--watchers", "1000", "--rate", rate, "--seconds", seconds];
    number(&server.bench(&args)?, "/latency_ms/p99")
}

pub fn compare(rounds: usize, seconds: u32) -> Result<Vec<Figure>> {
    let path = env::var_os("TURNWIRE_BEFORE").map(PathBuf::from);
    let path = path.ok_or("set TURNWIRE_BEFORE to the program of the earlier version")?;
    let kinds = [ServerKind::Turnwire, ServerKind::Earlier(path)];
    let seconds = seconds.to_string();
    let mut table = Vec::new();
    for (name, unit, measure) in FIGURES {
        let fresh = |kind: &ServerKind| {
            let folder = TempFolder::new()?;
            measure(&RunningServer::start(kind, &folder)?, &seconds)
        };
        table.push(alternate(&kinds, rounds, name, unit, fresh)?);
    }
    // Each version starts again and again on a store that it has filled.
    let filled = kinds.clone().map(|kind| -> Result<TempFolder> {
        let folder = TempFolder::new()?;
        let running = RunningServer::start(&kind, &folder)?;
        running.bench(&["fill", "--sessions", "100000", "--events", "100"])?;
        running.stop()?;
        Ok(folder)
    });
    let [now, before] = filled;
    let (now, before) = (now?, before?);
    let start = |kind: &ServerKind| {
        let is_now = matches!(kind, ServerKind::Turnwire);
        let running = RunningServer::start(kind, if is_now { &now } else { &before })?;
        let milliseconds = running.ready_after.as_secs_f64() * 1000.0;
        running.stop()?;
        Ok(milliseconds)
    };
    table.push(alternate(&kinds, rounds.max(5), "start with 100,000 sessions", "ms", start)?);
    Ok(table)
}

fn alternate(
    kinds: &[ServerKind; 2],
    rounds: usize,
    name: &'static str,
    unit: &'static str,
    measure: impl Fn(&ServerKind) -> Result<f64>,
) -> Result<Figure> {
    let mut compared = Compared { name, unit, now: Vec::new(), before: Vec::new() };
    let [now, before] = kinds;
    for round in 0..rounds.max(1) {
        let (first, second) = if round % 2 == 0 { (now, before) } else { (before, now) };
        let (one, other) = (measure(first)?, measure(second)?);
        let (ours, theirs) = if round % 2 == 0 { (one, other) } else { (other, one) };
        eprintln!("  {name}: {ours:.1} {unit}, before {theirs:.1}");
        compared.now.push(ours);
        compared.before.push(theirs);
    }
    Ok(compared.figure())
}
