//! The figures, their goals, and whether they are met.

use crate::Result;
use crate::running_server::{RunningServer, ServerKind, TempFolder};
use serde_json::Value;

/// A row of the table.
pub struct Figure {
    pub name: String,
    pub measured: String,
    pub goal: String,
    pub verdict: &'static str,
}

impl Figure {
    /// For comparison only.
    pub fn informational(name: String, measured: String) -> Self {
        Self { name, measured, goal: String::new(), verdict: "" }
    }

    pub fn at_most(name: String, measured: String, value: f64, most: f64, goal: &str) -> Self {
        let goal = format!("at most {goal}");
        Self { name, measured, goal, verdict: verdict(value <= most) }
    }

    pub fn at_least(name: String, measured: String, value: f64, least: f64, goal: &str) -> Self {
        let goal = format!("at least {goal}");
        Self { name, measured, goal, verdict: verdict(value >= least) }
    }
}

fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "FALLS SHORT" }
}

pub fn fanout(seconds: u32) -> Result<Vec<Figure>> {
    let seconds = seconds.to_string();
    [("100", 15.0), ("1000", 30.0)]
        .into_iter()
        .map(|(rate, most)| {
            let folder = TempFolder::new()?;
            let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
            let args = ["fanout", "--watchers", "1000", "--rate", rate, "--seconds", &seconds];
            let figures = running.bench(&args)?;
            let p99 = number(&figures, "/latency_ms/p99")?;
            let name = format!("fan-out to 1,000 watchers at {rate} events/s: p99");
            let goal = format!("{most} ms");
            Ok(Figure::at_most(name, format!("{p99:.1} ms"), p99, most, &goal))
        })
        .collect()
}

pub fn idle() -> Result<Vec<Figure>> {
    let folder = TempFolder::new()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    let pid = running.pid().to_string();
    let figures = running.bench(&["idle", "--watchers", "10000", "--pid", &pid])?;
    let each = number(&figures, "/kib_per_watcher")?;
    let whole = number(&figures, "/mib_with_watchers")?;
    let name = |what: &str| format!("10,000 idle watchers: {what}");
    Ok(vec![
        Figure::at_most(name("each"), format!("{each:.1} KiB"), each, 24.0, "24 KiB"),
        Figure::at_most(name("whole process"), format!("{whole:.0} MiB"), whole, 300.0, "300 MiB"),
    ])
}

pub fn stalled() -> Result<Vec<Figure>> {
    // The noise of the allocator.
    const FLAT: f64 = 16.0;
    let folder = TempFolder::new()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    let pid = running.pid().to_string();
    let figures = running.bench(&["stalled", "--pid", &pid])?;
    let grown = number(&figures, "/mib_most")? - number(&figures, "/mib_before")?;
    let name = "a stalled watcher, 1 million events: memory grown".to_owned();
    Ok(vec![Figure::at_most(name, format!("{grown:.1} MiB"), grown, FLAT, "16 MiB (flat)")])
}

pub fn late_join() -> Result<Vec<Figure>> {
    let folder = TempFolder::new()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    let figures = running.bench(&["late-join"])?;
    let median = number(&figures, "/latency_ms/p50")?;
    let ratio = number(&figures, "/ratio")?;
    let name = |what: &str| format!("late join, 100,000 deltas of 8 bytes: {what}");
    Ok(vec![
        Figure::at_most(name("median"), format!("{median:.1} ms"), median, 50.0, "50 ms"),
        Figure::at_most(name("bytes, times the message"), format!("{ratio:.3}"), ratio, 1.2, "1.2"),
    ])
}

pub fn resume_storm() -> Result<Vec<Figure>> {
    let folder = TempFolder::new()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    let figures = running.bench(&["resume-storm"])?;
    let all = number(&figures, "/all_ms")?;
    let p99 = number(&figures, "/latency_ms/p99")?;
    let name = |what: &str| format!("1,000 watchers resume at once: {what}");
    Ok(vec![
        Figure::informational(name("all caught up"), format!("{all:.0} ms")),
        Figure::informational(name("p99"), format!("{p99:.0} ms")),
    ])
}

/// The cost of each wire relative to the canonical one, and the time to resume.
pub fn wires() -> Result<Vec<Figure>> {
    let folder = TempFolder::new()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    let pid = running.pid().to_string();
    let figures = running.bench(&["wires", "--pid", &pid])?;
    let entries = figures.as_object().ok_or("the figures are no object")?;
    let mut table = Vec::new();
    for (key, value) in entries {
        if let (Some(wire), Some(times)) = (key.strip_prefix("replay_times_"), value.as_f64()) {
            let name = format!("{wire}: processor time of an event, times the canonical stream's");
            table.push(Figure::at_most(name, format!("{times:.2}"), times, 3.0, "3"));
        }
        if let Some(wire) = key.strip_prefix("return_ms_") {
            let most = number(value, "/max")?;
            let name = format!("{wire}: back in the middle of 10,000 deltas, the slowest of 20");
            table.push(Figure::at_most(name, format!("{most:.1} ms"), most, 20.0, "20 ms"));
        }
    }
    Ok(table)
}

pub fn start() -> Result<Vec<Figure>> {
    let folder = TempFolder::new()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    running.bench(&["fill", "--sessions", "100000", "--events", "100"])?;
    running.stop()?;
    let running = RunningServer::start(&ServerKind::Turnwire, &folder)?;
    let seconds = running.ready_after.as_secs_f64();
    let whole = running.resident_mib()?;
    let name = |what: &str| format!("start with 100,000 sessions of 100 events: {what}");
    Ok(vec![
        Figure::at_most(name("ready"), format!("{seconds:.2} s"), seconds, 1.0, "1 s"),
        Figure::at_most(name("memory"), format!("{whole:.0} MiB"), whole, 100.0, "100 MiB"),
    ])
}

pub fn number(figures: &Value, pointer: &str) -> Result<f64> {
    let found = figures.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| format!("no {pointer} in {figures}").into())
}

/// `51234.4` as `51,234`.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The median; of an even number, the upper one.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
