//! `turnwire bench stalled`: the server's memory with a subscriber that stops reading.

use super::connection::{Connection, ReceiveBuffer};
use super::error::Result;
use super::event_script::{DeltaText, timestamp_now};
use super::process::resident_kib;
use super::progress::Progress;
use super::report::{Report, thousands};
use super::sessions::{Cleanup, Producer, Sessions};
use super::target::BenchTarget;
use clap::Args;
use std::sync::Arc;

/// Measure the server's memory while a subscriber does not read: it must stay flat
///
/// A tenth of the events are published first, without a subscriber, so that normal memory growth is
/// not counted. The server must run on this machine (Linux).
#[derive(Args)]
pub(super) struct Stalled {
    /// The server's process id
    #[arg(long)]
    pid: u32,

    /// Number of events
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,

    /// Events per POST
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    batch: u32,
}

const DELTAS_PER_REPLY: u64 = 200;

impl Stalled {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        let (sessions, mut producer) =
            Sessions::create_with_producer(server, DeltaText::Words, DELTAS_PER_REPLY).await?;
        let warm_up = self.events / 10;
        let progress = Progress::with_steps("events", u64::from(self.events + warm_up));
        self.publish_and_watch_memory(&mut producer, warm_up, &progress).await?;
        let before = resident_kib(self.pid)?;

        // Held open and never read.
        let conn = Connection::open(server, ReceiveBuffer::Small).await?;
        let request = server.watch_request(sessions.only_name(), "after=now");
        let watcher = conn.open_stream("watching a session", &request).await?;
        let most = self.publish_and_watch_memory(&mut producer, self.events, &progress).await?;
        let behind = resident_kib(self.pid)?;
        drop(watcher);
        drop(progress);
        sessions.finish(after).await?;

        let events = thousands(u64::from(self.events));
        let title = format!("stalled: a subscriber reads nothing while {events} events arrive");
        let mut report = Report::new("stalled", title);
        report.setting("events", self.events);
        report.memory("mib_before", "MiB of the server before", before);
        report.memory("mib_most", "MiB at most", most.max(before));
        report.memory("mib_after", "MiB after", behind);
        Ok(report)
    }

    /// Publishes events, and returns the server's peak memory.
    async fn publish_and_watch_memory(
        &self,
        producer: &mut Producer,
        events: u32,
        progress: &Progress,
    ) -> Result<u64> {
        let mut left = events;
        let mut most = 0;
        while left > 0 {
            let time = timestamp_now();
            let count = left.min(self.batch);
            for _ in 0..count {
                producer.script.write_event(&time, &mut producer.body);
            }
            producer.send().await?;
            left -= count;
            progress.add(u64::from(count));
            most = most.max(resident_kib(self.pid)?);
        }
        Ok(most)
    }
}
