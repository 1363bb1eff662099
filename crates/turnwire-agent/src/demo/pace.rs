//! When an event goes out: deltas in their time, everything else at once.

use crate::replier::{AgentError, Journal};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use turnwire_core::Event;

/// How many events are committed together at the most.
const MAX_BATCH: usize = 64;

/// How far behind is caught up with. What stood still for longer goes on from now.
const MAX_CATCH_UP: Duration = Duration::from_secs(1);

/// The way to the journal.
///
/// At a rate that a clock can keep, each delta is a commit of its own. Deltas that are late, and all
/// of them where there is no rate, go out together.
pub(super) struct PacedJournal<'j> {
    journal: &'j mut dyn Journal,
    stop: CancellationToken,
    period: Option<Duration>,
    /// When the next delta may go.
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

    /// An event that takes no time.
    pub(super) async fn push(&mut self, event: Event<'static>) -> Result<(), AgentError> {
        self.waiting.push(event);
        if self.waiting.len() < MAX_BATCH { Ok(()) } else { self.flush().await }
    }

    /// An event that takes the time of a delta.
    pub(super) async fn push_delta(&mut self, event: Event<'static>) -> Result<(), AgentError> {
        self.wait_until_due().await?;
        self.push(event).await
    }

    /// Events of which a crash leaves all or none. Together they take the time of a delta.
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

    /// Makes durable what has gone out so far.
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
