//! `turnwire bench stalled`: a watcher that does not read must not cost the server memory.

use super::conn::{Conn, Window};
use super::failed::Result;
use super::idle::kib;
use super::process::resident_kib;
use super::progress::Progress;
use super::report::{Report, thousands};
use super::script::{Text, now};
use super::server::Server;
use super::sessions::{After, Producer, Sessions};
use clap::Args;
use std::sync::Arc;

/// A watcher that stops reading while events arrive: the server's memory must stay flat
///
/// A tenth of the events are published first, with nobody watching, so that what the server keeps
/// anyway is not counted. The server has to run on this machine (Linux).
#[derive(Args)]
pub(super) struct Stalled {
    /// The process of the server
    #[arg(long)]
    pid: u32,

    /// How many events arrive
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,

    /// How many events one POST carries
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    batch: u32,
}

const DELTAS_PER_REPLY: u64 = 200;

impl Stalled {
    pub(super) async fn run(&self, server: &Arc<Server>, after: After) -> Result<Report> {
        let (sessions, mut producer) =
            Sessions::create_one(server, Text::Words, DELTAS_PER_REPLY).await?;
        let warm_up = self.events / 10;
        let progress = Progress::steps("events", u64::from(self.events + warm_up));
        self.publish(&mut producer, warm_up, &progress).await?;
        let before = resident_kib(self.pid)?;

        // Held to the end and never read.
        let conn = Conn::open(server, Window::Small).await?;
        let request = server.watch(sessions.name(), "after=now");
        let watcher = conn.stream("watching a session", &request).await?;
        let most = self.publish(&mut producer, self.events, &progress).await?;
        let behind = resident_kib(self.pid)?;
        drop(watcher);
        drop(progress);
        sessions.finish(after).await?;

        let events = thousands(u64::from(self.events));
        let title = format!("stalled: a watcher reads nothing while {events} events arrive");
        let mut report = Report::new("stalled", title);
        report.setting("events", self.events);
        report.figure("mib_before", "MiB of the server before", kib(before) / 1024.0, 1);
        report.figure("mib_most", "MiB at most", kib(most.max(before)) / 1024.0, 1);
        report.figure("mib_after", "MiB after", kib(behind) / 1024.0, 1);
        Ok(report)
    }

    /// Publishes events, and gives the most memory that the server was seen with.
    async fn publish(
        &self,
        producer: &mut Producer,
        events: u32,
        progress: &Progress,
    ) -> Result<u64> {
        let mut left = events;
        let mut most = 0;
        while left > 0 {
            let time = now();
            let count = left.min(self.batch);
            for _ in 0..count {
                producer.script.event(&time, &mut producer.body);
            }
            producer.send().await?;
            left -= count;
            progress.add(u64::from(count));
            most = most.max(resident_kib(self.pid)?);
        }
        Ok(most)
    }
}
