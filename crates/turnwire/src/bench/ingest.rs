//! `turnwire bench ingest`: how many events per second a server stores, and the latency of each
//! POST.

use super::connection::{Connection, ReceiveBuffer};
use super::error::{BenchError, Result};
use super::event_script::{DeltaText, EventScript, timestamp_now};
use super::latency::Latency;
use super::progress::Progress;
use super::report::{Report, per_second, thousands};
use super::sessions::{Cleanup, Sessions, join_all};
use super::target::{BenchTarget, Protocol, finish_request};
use clap::Args;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Publish events from many producers; each POST is answered once it is durable
///
/// Every session streams replies of 200 text deltas, about 200 bytes each. A connection has its own
/// sessions and writes to them in turn, so the events of a session arrive in order.
#[derive(Args)]
pub(super) struct Ingest {
    /// Concurrent connections
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// Number of sessions; at least one per connection
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,

    /// Events per POST
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    batch: u32,

    /// Seconds to measure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,

    /// Seconds to run before, unmeasured
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=3600))]
    warm_up: u32,

    /// The protocol of the server
    #[arg(long, value_enum, default_value_t = Protocol::Turnwire)]
    pub(super) target: Protocol,
}

const DELTAS_PER_REPLY: u64 = 200;

/// What the producers share.
struct Shared {
    begin: Instant,
    end: Instant,
    /// Including the warm-up, for the progress bar.
    events: Arc<AtomicU64>,
    measured: Mutex<Measured>,
}

struct Measured {
    latency: Latency,
    bytes: u64,
}

/// One session: its request head and its events.
struct SessionWriter {
    head: Vec<u8>,
    script: EventScript,
}

impl Ingest {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        if self.sessions < self.connections {
            return Err(BenchError::new(format!(
                "{} connections need at least as many sessions, and --sessions is {}",
                self.connections, self.sessions
            )));
        }
        super::process::allow_open_files(u64::from(self.connections))?;
        let sessions = Sessions::create(server, self.sessions as usize).await?;
        let mut conns = Vec::new();
        for _ in 0..self.connections {
            conns.push(Connection::open(server, ReceiveBuffer::Default).await?);
        }

        let warm_up = Duration::from_secs(u64::from(self.warm_up));
        let lasts = Duration::from_secs(u64::from(self.seconds));
        let begin = Instant::now() + warm_up;
        let shared = Arc::new(Shared {
            begin,
            end: begin + lasts,
            events: Arc::default(),
            measured: Mutex::new(Measured { latency: Latency::new()?, bytes: 0 }),
        });
        let bar = Progress::with_clock("ingest", warm_up + lasts, Arc::clone(&shared.events));
        let mut producers = JoinSet::new();
        for (nth, conn) in conns.into_iter().enumerate() {
            let lanes = (nth..sessions.names.len())
                .step_by(self.connections as usize)
                .map(|session| Self::session_writer(server, &sessions, nth, session))
                .collect();
            producers.spawn(produce(
                Arc::clone(server),
                Arc::clone(&shared),
                conn,
                lanes,
                self.batch,
            ));
        }
        join_all(producers).await?;
        drop(bar);
        sessions.finish(after).await?;
        Ok(self.report(&shared))
    }

    fn session_writer(
        server: &BenchTarget,
        sessions: &Sessions,
        nth: usize,
        session: usize,
    ) -> SessionWriter {
        let name = sessions.names.get(session).map(String::as_str).unwrap_or_default();
        SessionWriter {
            head: server.append_request_head(name, &format!("bench-{nth}")),
            script: sessions.script(session, DeltaText::Words, DELTAS_PER_REPLY),
        }
    }

    fn report(&self, shared: &Shared) -> Report {
        let measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let Self { connections, sessions, batch, seconds, .. } = self;
        let seconds_f = f64::from(*seconds);
        let posts = measured.latency.count();
        let mut report = Report::new(
            "ingest",
            format!(
                "ingest: {} per POST, {} connections, {} sessions, {seconds} s",
                if *batch == 1 {
                    "1 event".to_owned()
                } else {
                    thousands(u64::from(*batch)) + " events"
                },
                thousands(u64::from(*connections)),
                thousands(u64::from(*sessions)),
            ),
        );
        for (key, value) in [
            ("connections", connections),
            ("sessions", sessions),
            ("batch", batch),
            ("seconds", seconds),
        ] {
            report.setting(key, *value);
        }
        let rate = per_second(posts, seconds_f);
        report.figure("events_per_second", "events/s", rate * f64::from(*batch), 0);
        report.figure("posts_per_second", "POSTs/s", rate, 0);
        let megabytes = per_second(measured.bytes, seconds_f) / 1e6;
        report.figure("megabytes_per_second", "MB/s of events", megabytes, 1);
        report.latency("latency_ms", "latency in ms", &measured.latency);
        report
    }
}

async fn produce(
    server: Arc<BenchTarget>,
    shared: Arc<Shared>,
    mut conn: Connection,
    mut lanes: Vec<SessionWriter>,
    batch: u32,
) -> Result<()> {
    let mut body = Vec::new();
    let mut request = Vec::new();
    loop {
        for lane in &mut lanes {
            body.clear();
            let time = timestamp_now();
            for _ in 0..batch {
                lane.script.write_event(&time, &mut body);
            }
            request.clear();
            request.extend_from_slice(&lane.head);
            finish_request(&mut request, &body);
            let sent = Instant::now();
            if sent >= shared.end {
                return Ok(());
            }
            let (status, answer) = conn.send_request(&request).await?;
            if !server.is_stored(status) {
                return Err(BenchError::unexpected_status("a POST of events", status, answer));
            }
            shared.record_post(sent, batch, body.len());
        }
    }
}

impl Shared {
    fn record_post(&self, sent: Instant, events: u32, bytes: usize) {
        let now = Instant::now();
        self.events.fetch_add(u64::from(events), Ordering::Relaxed);
        if now >= self.begin && now < self.end {
            let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
            measured.latency.record(now - sent);
            measured.bytes += bytes as u64;
        }
    }
}
