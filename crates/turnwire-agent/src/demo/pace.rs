//! Commits the demo's events at the chosen rate.

use crate::replier::{AgentError, Journal};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use turnwire_core::Event;

/// The most events in one commit.
const MAX_BATCH: usize = 64;

/// A longer delay is not caught up.
const MAX_CATCH_UP: Duration = Duration::from_secs(1);

/// Commits events to the journal at a rate.
///
/// Each delta is a commit of its own, if the clock can keep the rate. Late deltas, and all deltas without a
/// rate, are committed together.
pub(super) struct PacedJournal<'j> {
    journal: &'j mut dyn Journal,
    stop: CancellationToken,
    period: Option<Duration>,
    /// When the next delta is due.
    due: Instant,
    waiting: Vec<Event<'static>>,
}

impl<'j> PacedJournal<'j> {
    pub(super) fn new(
        journal: &'j mut dyn Journal,
        stop: CancellationToken,
        period: Option<Duration>,
    ) -> Self {
        let due = Instant::now() + period.unwrap_or_default();
        Self { journal, stop, period, due, waiting: Vec::new() }
    }

    /// Sends an event without a delay.
    pub(super) async fn push(&mut self, event: Event<'static>) -> Result<(), AgentError> {
        self.waiting.push(event);
        if self.waiting.len() < MAX_BATCH { Ok(()) } else { self.flush().await }
    }

    /// Sends a delta when it is due.
    pub(super) async fn push_delta(&mut self, event: Event<'static>) -> Result<(), AgentError> {
        self.wait_until_due().await?;
        self.push(event).await
    }

    /// Commits events together, when the next delta is due.
    pub(super) async fn commit_together(
        &mut self,
        events: Vec<Event<'static>>,
    ) -> Result<(), AgentError> {
        self.wait_until_due().await?;
        if self.waiting.len() + events.len() > MAX_BATCH {
            self.flush().await?;
        }
        self.waiting.extend(events);
        self.flush().await
    }

    /// Commits the waiting events.
    pub(super) async fn flush(&mut self) -> Result<(), AgentError> {
        if self.stop.is_cancelled() {
            return Err(AgentError::Stopped);
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.journal.commit(std::mem::take(&mut self.waiting)).await
    }

    async fn wait_until_due(&mut self) -> Result<(), AgentError> {
        let Some(period) = self.period else { return Ok(()) };
        if self.due > Instant::now() {
            self.flush().await?;
            let sleep = sleep_until(self.due);
            self.stop.run_until_cancelled(sleep).await.ok_or(AgentError::Stopped)?;
        }
        let now = Instant::now();
        if now.duration_since(self.due) > MAX_CATCH_UP {
            self.due = now;
        }
        self.due += period;
        Ok(())
    }
}
