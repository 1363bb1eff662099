//! `turnwire bench idle`: the memory of an idle subscriber.

use super::error::Result;
use super::process::{allow_open_files, resident_kib};
use super::report::{Report, kib_to_f64, thousands};
use super::sessions::{Cleanup, Sessions};
use super::target::BenchTarget;
use super::watchers;
use clap::Args;
use std::sync::Arc;
use std::time::Duration;

/// Measure the server's memory per idle subscriber
///
/// The server must run on this machine (Linux), and may need a higher limit of open files.
#[derive(Args)]
pub(super) struct Idle {
    /// The server's process id
    #[arg(long)]
    pid: u32,

    /// Number of subscribers
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,

    /// Number of sessions they follow
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,

    /// Seconds to wait before the memory is read
    #[arg(long, default_value_t = 5)]
    seconds: u32,

    /// URL of another node of the same cluster, at which the subscribers are, and whose process id --pid is
    /// [default: --url]
    #[arg(long, value_name = "URL")]
    watch_url: Option<String>,
}

impl Idle {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        allow_open_files(u64::from(self.watchers))?;
        let sessions = Sessions::create(server, self.sessions as usize).await?;
        let before = resident_kib(self.pid)?;
        let node = server.node_at(self.watch_url.as_deref())?;
        let streams = watchers::open_streams(&node, self.watchers, |nth| {
            let nth = nth as usize % sessions.names.len();
            let name = sessions.names.get(nth).map(String::as_str).unwrap_or_default();
            node.watch_request(name, "after=now")
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(u64::from(self.seconds))).await;
        let with = resident_kib(self.pid)?;
        drop(streams);
        sessions.finish(after).await?;

        let mut report = Report::new(
            "idle",
            format!(
                "idle: {} watchers over {} sessions",
                thousands(u64::from(self.watchers)),
                thousands(u64::from(self.sessions))
            ),
        );
        report.setting("watchers", self.watchers);
        report.setting("sessions", self.sessions);
        let each = kib_to_f64(with.saturating_sub(before)) / f64::from(self.watchers);
        report.figure("kib_per_watcher", "KiB for each watcher", each, 2);
        report.memory("mib_before", "MiB of the server before", before);
        report.memory("mib_with_watchers", "MiB with the watchers", with);
        Ok(report)
    }
}
