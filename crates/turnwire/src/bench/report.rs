//! The report of a measurement: text, or one JSON object.

use super::latency::Latency;
use indicatif::HumanCount;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Figures, in order.
pub(super) struct Report {
    title: String,
    rows: Vec<(String, String)>,
    json: Map<String, Value>,
    /// Whether the server did something that it must never do.
    failed: bool,
}

impl Report {
    pub(super) fn new(name: &str, title: String) -> Self {
        let json = Map::from_iter([("bench".to_owned(), json!(name))]);
        Self { title, rows: Vec::new(), json, failed: false }
    }

    /// An option of the measurement; the text output has it in its title.
    pub(super) fn setting(&mut self, key: &str, value: impl Into<Value>) {
        self.json.insert(key.to_owned(), value.into());
    }

    pub(super) fn count(&mut self, key: &str, label: &str, value: u64) {
        self.rows.push((label.to_owned(), thousands(value)));
        self.setting(key, value);
    }

    /// A figure with decimals.
    pub(super) fn figure(&mut self, key: &str, label: &str, value: f64, decimals: usize) {
        self.rows.push((label.to_owned(), decimal(value, decimals)));
        self.setting(key, value);
    }

    pub(super) fn memory(&mut self, key: &str, label: &str, kib: u64) {
        self.figure(key, label, kib_to_f64(kib) / 1024.0, 1);
    }

    pub(super) fn latency(&mut self, key: &str, label: &str, latency: &Latency) {
        self.rows.push((label.to_owned(), latency.to_line()));
        self.setting(key, latency.to_json());
    }

    /// How often something happened that must never happen; shown only if it did.
    pub(super) fn must_be_zero(&mut self, key: &str, label: &str, value: u64) {
        self.setting(key, value);
        if value > 0 {
            self.rows.push((label.to_owned(), format!("{}  <- must be 0", thousands(value))));
            self.failed = true;
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn into_json(self) -> String {
        Value::Object(self.json).to_string()
    }

    pub(super) fn to_text(&self) -> String {
        let width = self.rows.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        let mut text = format!("{}\n\n", self.title);
        for (label, value) in &self.rows {
            let _ = writeln!(text, "  {label:<width$}   {value}");
        }
        text
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn thousands(value: u64) -> String {
    HumanCount(value).to_string()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure below 0 or beyond 2^64 is shown as the nearest one"
)]
fn decimal(value: f64, decimals: usize) -> String {
    if decimals == 0 { thousands(value.round() as u64) } else { format!("{value:.decimals$}") }
}

/// The rate per second.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with a few digits")]
pub(super) fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "memory is shown with a few digits")]
pub(super) fn kib_to_f64(kib: u64) -> f64 {
    kib as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(value), text);
        }
    }

    #[test]
    fn text_and_json_have_the_same_figures_and_only_a_violation_fails() {
        let mut report = Report::new("ingest", "ingest: 1 event per POST".to_owned());
        report.figure("events_per_second", "events/s", 51_234.4, 0);
        report.must_be_zero("lost", "lost", 0);
        assert!(!report.is_failed());
        assert_eq!(report.to_text(), "ingest: 1 event per POST\n\n  events/s   51,234\n");
        report.must_be_zero("lost", "lost", 2);
        assert!(report.is_failed());
        let json = r#"{"bench":"ingest","events_per_second":51234.4,"lost":2}"#;
        assert_eq!(report.into_json(), json);
    }
}
