//! `turnwire bench fill`: a store of a known size, to see how a server starts with it.

use super::conn::{Conn, Window};
use super::failed::Result;
use super::progress::Progress;
use super::report::{Report, per_second, thousands};
use super::script::{Text, now};
use super::server::{Server, with_length};
use super::sessions::{Sessions, all};
use clap::Args;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Makes many sessions with one finished reply each, and leaves them there
///
/// To see how a server starts, and what it does, with a store of that size.
#[derive(Args)]
pub(super) struct Fill {
    /// How many sessions
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,

    /// How many events each has
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..=50_000))]
    events: u32,
}

const HANDS: usize = 64;
/// The start and end of a reply and of its text.
const FRAME: u32 = 4;

impl Fill {
    pub(super) async fn run(&self, server: &Arc<Server>) -> Result<Report> {
        let begin = Instant::now();
        let sessions = Arc::new(Sessions::create(server, self.sessions as usize).await?);
        let progress = Arc::new(Progress::steps("events", u64::from(self.sessions)));
        let mut hands = JoinSet::new();
        for hand in 0..HANDS {
            let server = Arc::clone(server);
            let sessions = Arc::clone(&sessions);
            let progress = Arc::clone(&progress);
            let events = self.events;
            hands.spawn(async move {
                let mut conn = Conn::open(&server, Window::Usual).await?;
                let mut body = Vec::new();
                for (nth, name) in sessions.names.iter().enumerate().skip(hand).step_by(HANDS) {
                    let mut script = sessions.script(nth, Text::Words, u64::from(events - FRAME));
                    let time = now();
                    body.clear();
                    for _ in 0..events {
                        script.event(&time, &mut body);
                    }
                    let mut request = server.append(name, &format!("bench-{hand}"));
                    with_length(&mut request, &body);
                    conn.expect("a POST of events", &request).await?;
                    progress.add(1);
                }
                Ok(())
            });
        }
        all(hands).await?;
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
