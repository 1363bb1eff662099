//! `turnwire bench fill`: fills a store to a known size.

use super::connection::{Connection, ReceiveBuffer};
use super::error::Result;
use super::event_script::{DeltaText, timestamp_now};
use super::progress::Progress;
use super::report::{Report, per_second, thousands};
use super::sessions::{Sessions, join_all};
use super::target::{BenchTarget, finish_request};
use clap::Args;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Create many sessions with one finished reply each, and keep them
///
/// Use it to see how a server starts and works with a store of that size.
#[derive(Args)]
pub(super) struct Fill {
    /// Number of sessions
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,

    /// Events per session
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..=50_000))]
    events: u32,
}

const CONNECTIONS: usize = 64;
/// Start and end of the reply and of its text block.
const EVENTS_AROUND_DELTAS: u32 = 4;

impl Fill {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>) -> Result<Report> {
        let begin = Instant::now();
        let sessions = Arc::new(Sessions::create(server, self.sessions as usize).await?);
        let progress = Arc::new(Progress::with_steps("events", u64::from(self.sessions)));
        let mut hands = JoinSet::new();
        for hand in 0..CONNECTIONS {
            let server = Arc::clone(server);
            let sessions = Arc::clone(&sessions);
            let progress = Arc::clone(&progress);
            let events = self.events;
            hands.spawn(async move {
                let mut conn = Connection::open(&server, ReceiveBuffer::Default).await?;
                let mut body = Vec::new();
                for (nth, name) in sessions.names.iter().enumerate().skip(hand).step_by(CONNECTIONS)
                {
                    let mut script = sessions.script(
                        nth,
                        DeltaText::Words,
                        u64::from(events - EVENTS_AROUND_DELTAS),
                    );
                    let time = timestamp_now();
                    body.clear();
                    for _ in 0..events {
                        script.write_event(&time, &mut body);
                    }
                    let mut request = server.append_request_head(name, &format!("bench-{hand}"));
                    finish_request(&mut request, &body);
                    conn.send_ok_request("a POST of events", &request).await?;
                    progress.add(1);
                }
                Ok(())
            });
        }
        join_all(hands).await?;
        drop(progress);

        let (count, events) = (u64::from(self.sessions), u64::from(self.events));
        let title = format!("fill: {} sessions of {} events", thousands(count), thousands(events));
        let mut report = Report::new("fill", title);
        let seconds = begin.elapsed().as_secs_f64();
        report.count("events", "events", count * events);
        report.figure("seconds", "seconds", seconds, 1);
        let rate = per_second(count * events, seconds);
        report.figure("events_per_second", "events/s", rate, 0);
        Ok(report)
    }
}
