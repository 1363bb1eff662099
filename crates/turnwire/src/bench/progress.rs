//! The progress bar of a measurement, on standard error if that is a terminal.

use super::report::thousands;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A bar that is cleared on drop.
pub(super) struct Progress {
    bar: ProgressBar,
    ticker: Option<JoinHandle<()>>,
}

impl Progress {
    /// For work of known size.
    pub(super) fn with_steps(label: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{prefix:<12} {wide_bar} {human_pos}/{human_len}"));
        bar.set_prefix(label.to_owned());
        Self { bar, ticker: None }
    }

    /// For work of known duration; `count` is the work done. The bar reads it a few times per
    /// second, so that the measured code never touches the bar.
    pub(super) fn with_clock(label: &str, lasts: Duration, count: Arc<AtomicU64>) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::new(millis(lasts));
        bar.set_style(style("{prefix:<12} {wide_bar} {elapsed_precise} {msg}"));
        bar.set_prefix(label.to_owned());
        let ticking = bar.clone();
        let ticker = tokio::spawn(async move {
            let begin = Instant::now();
            let mut before = (begin, count.load(Ordering::Relaxed));
            while !ticking.is_hidden() {
                tokio::time::sleep(Duration::from_millis(250)).await;
                let now = (Instant::now(), count.load(Ordering::Relaxed));
                let span = millis(now.0 - before.0).max(1);
                let rate = now.1.saturating_sub(before.1).saturating_mul(1000) / span;
                before = now;
                ticking.set_position(millis(now.0 - begin));
                ticking.set_message(format!("{}/s", thousands(rate)));
            }
        });
        Self { bar, ticker: Some(ticker) }
    }

    pub(super) fn add(&self, done: u64) {
        self.bar.inc(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(ticker) = &self.ticker {
            ticker.abort();
        }
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
