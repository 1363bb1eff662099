//! A histogram of latencies and its percentiles.

use super::error::{BenchError, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Latencies up to an hour, with three significant digits.
pub(super) struct Latency {
    micros: Histogram<u64>,
}

/// The reported percentiles, by their names in both outputs.
const PERCENTILES: [(&str, f64); 4] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];
const HOUR: u64 = 3_600_000_000;

impl Latency {
    pub(super) fn new() -> Result<Self> {
        let micros = Histogram::new_with_bounds(1, HOUR, 3);
        Ok(Self { micros: micros.map_err(|error| BenchError::new(error.to_string()))? })
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(HOUR);
        self.micros.saturating_record(micros.max(1));
    }

    pub(super) fn count(&self) -> u64 {
        self.micros.len()
    }

    /// In milliseconds.
    pub(super) fn percentile(&self, percentile: f64) -> f64 {
        to_millis(self.micros.value_at_percentile(percentile))
    }

    pub(super) fn max(&self) -> f64 {
        to_millis(self.micros.max())
    }

    pub(super) fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        for (name, percentile) in PERCENTILES {
            object.insert(name.to_owned(), json!(self.percentile(percentile)));
        }
        object.insert("max".to_owned(), json!(self.max()));
        Value::Object(object)
    }

    pub(super) fn to_line(&self) -> String {
        let mut line = String::new();
        for (name, percentile) in PERCENTILES {
            let _ = write!(line, "{name} {:<8} ", format_millis(self.percentile(percentile)));
        }
        let _ = write!(line, "max {}", format_millis(self.max()));
        line
    }
}

/// Formats three significant digits: the histogram has no more.
fn format_millis(millis: f64) -> String {
    match millis {
        ..10.0 => format!("{millis:.2}"),
        10.0..100.0 => format!("{millis:.1}"),
        _ => format!("{millis:.0}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^52")]
fn to_millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected * 0.002, "{found} is not about {expected}");
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latency = Latency::new().unwrap();
        for micros in 1..=10_000 {
            latency.record(Duration::from_micros(micros));
        }
        assert_near(latency.percentile(50.0), 5.0);
        assert_near(latency.percentile(90.0), 9.0);
        assert_near(latency.percentile(99.0), 9.9);
        assert_near(latency.percentile(99.9), 9.99);
        assert_near(latency.max(), 10.0);
        assert_eq!(latency.count(), 10_000);
    }

    #[test]
    fn one_slow_answer_in_a_thousand_shows_in_the_tail_only() {
        let mut latency = Latency::new().unwrap();
        for _ in 0..998 {
            latency.record(Duration::from_millis(1));
        }
        latency.record(Duration::from_secs(1));
        latency.record(Duration::from_secs(1));
        assert_near(latency.percentile(99.0), 1.0);
        assert_near(latency.percentile(99.9), 1000.0);
        assert!(latency.to_line().contains("p99.9 1000"), "{}", latency.to_line());
    }

    #[test]
    fn nothing_measured_and_more_than_an_hour_do_not_fail() {
        let mut latency = Latency::new().unwrap();
        assert_near(latency.percentile(99.0) + 1.0, 1.0);
        latency.record(Duration::from_secs(100_000));
        latency.record(Duration::ZERO);
        assert_eq!(latency.count(), 2);
    }
}
