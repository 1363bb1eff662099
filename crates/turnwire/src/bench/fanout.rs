//! `turnwire bench fanout`: the latency from publishing an event to every subscriber of its
//! session.

use super::connection::{ResponseStream, StreamEnd};
use super::delta_marks::{MarkScanner, OrderCheck};
use super::error::{BenchError, Result};
use super::event_script::{DeltaText, timestamp_now};
use super::latency::Latency;
use super::progress::Progress;
use super::report::{Report, per_second, thousands};
use super::sessions::{Cleanup, Producer, Sessions, join_all};
use super::target::BenchTarget;
use super::watchers;
use clap::Args;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Publish to one session with many subscribers
///
/// The latency is from sending the POST to receiving the event, for each event and subscriber. The
/// producer keeps its rate: events that become due during a POST go into the next one; the time
/// since an event was due is reported as well. Every subscriber must receive every event once, in
/// order.
#[derive(Args)]
pub(super) struct Fanout {
    /// Number of subscribers
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,

    /// Events published per second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,

    /// Seconds to measure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=90))]
    seconds: u32,

    /// Seconds to run before, unmeasured
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=9))]
    warm_up: u32,

    /// URL of another node of the same cluster, at which the subscribers are [default: --url]
    #[arg(long, value_name = "URL")]
    watch_url: Option<String>,
}

const DELTAS_PER_REPLY: u64 = 1000;
/// The longest time from the last stored event to the last subscriber.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

struct Shared {
    begin: Instant,
    rate: u64,
    /// The first measured event, and the number of all events.
    first: u64,
    total: u64,
    /// When each event was sent, in nanoseconds since the start.
    sent: Vec<AtomicU64>,
    received: Arc<AtomicU64>,
    measured: Mutex<Measured>,
}

struct Measured {
    from_sent: Latency,
    from_due: Latency,
    wrong: u64,
}

impl Fanout {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        super::process::allow_open_files(u64::from(self.watchers))?;
        let (sessions, producer) =
            Sessions::create_with_producer(server, DeltaText::Marks, DELTAS_PER_REPLY).await?;
        let node = server.node_at(self.watch_url.as_deref())?;
        let streams = watchers::open_streams(&node, self.watchers, |_| {
            node.watch_request(sessions.only_name(), "after=now")
        })
        .await?;

        let rate = u64::from(self.rate);
        let first = rate * u64::from(self.warm_up);
        let total = first + rate * u64::from(self.seconds);
        let shared = Arc::new(Shared {
            begin: Instant::now() + Duration::from_millis(100),
            rate,
            first,
            total,
            sent: (0..total).map(|_| AtomicU64::new(0)).collect(),
            received: Arc::default(),
            measured: Mutex::new(Measured {
                from_sent: Latency::new()?,
                from_due: Latency::new()?,
                wrong: 0,
            }),
        });
        let lasts = Duration::from_secs(u64::from(self.warm_up + self.seconds));
        let bar = Progress::with_clock("deliveries", lasts, Arc::clone(&shared.received));
        let mut watching = JoinSet::new();
        for stream in streams {
            watching.spawn(watch_session(Arc::clone(&shared), stream));
        }
        let posts = publish_when_due(Arc::clone(&shared), producer).await?;
        tokio::time::timeout(DRAIN_TIMEOUT, join_all(watching)).await.map_err(|_| {
            BenchError::new(format!(
                "{} s after the last event was stored, not every watcher has it",
                DRAIN_TIMEOUT.as_secs()
            ))
        })??;
        drop(bar);
        sessions.finish(after).await?;
        Ok(self.report(&shared, posts))
    }

    fn report(&self, shared: &Shared, posts: u64) -> Report {
        let measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let Self { watchers, rate, seconds, .. } = self;
        let mut report = Report::new(
            "fanout",
            format!(
                "fanout: {} watchers of one session, {} events/s, {seconds} s",
                thousands(u64::from(*watchers)),
                thousands(u64::from(*rate)),
            ),
        );
        for (key, value) in [("watchers", watchers), ("rate", rate), ("seconds", seconds)] {
            report.setting(key, *value);
        }
        let deliveries = measured.from_sent.count();
        let deliveries = per_second(deliveries, f64::from(*seconds));
        report.figure("deliveries_per_second", "deliveries/s", deliveries, 0);
        report.count("posts", "POSTs in all", posts);
        report.latency("latency_ms", "ms from the POST", &measured.from_sent);
        report.latency("latency_from_due_ms", "ms from when due", &measured.from_due);
        let expected = u64::from(*watchers) * (shared.total - shared.first);
        let lost = expected.saturating_sub(measured.from_sent.count());
        report.must_be_zero("lost", "lost", lost);
        report.must_be_zero("out_of_order", "doubled or out of order", measured.wrong);
        report
    }
}

/// Sends each event when it is due; events that became due during a POST go into the next one.
async fn publish_when_due(shared: Arc<Shared>, mut producer: Producer) -> Result<u64> {
    let mut next = 0;
    let mut posts = 0;
    while next < shared.total {
        tokio::time::sleep_until((shared.begin + shared.due(next)).into()).await;
        let time = timestamp_now();
        let from = next;
        while next < shared.total && shared.due(next) <= shared.begin.elapsed() {
            producer.script.write_delta(&time, &mut producer.body);
            next += 1;
        }
        if next == shared.total {
            producer.script.write_end(&time, &mut producer.body);
        }
        let sent = nanos(shared.begin.elapsed());
        for slot in shared.sent.iter().take(event_index(next)).skip(event_index(from)) {
            slot.store(sent, Ordering::Relaxed);
        }
        producer.send().await?;
        posts += 1;
    }
    Ok(posts)
}

async fn watch_session(shared: Arc<Shared>, mut stream: ResponseStream) -> Result<()> {
    let mut marks = MarkScanner::default();
    let mut order = OrderCheck::default();
    let mut seen = Vec::new();
    let ended = stream
        .read(|bytes| {
            if bytes.is_empty() {
                shared.record_received(&mut seen);
            } else {
                marks.feed(bytes, &mut |mark| {
                    order.record(mark);
                    seen.push(mark);
                });
            }
            if order.next >= shared.total && seen.is_empty() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .await?;
    let mut measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
    measured.wrong += order.wrong;
    drop(measured);
    match ended {
        StreamEnd::Enough => Ok(()),
        StreamEnd::ByServer => {
            Err(BenchError::new("the server ended a subscriber's stream during the measurement"))
        }
    }
}

impl Shared {
    /// When an event is due, since the start.
    fn due(&self, event: u64) -> Duration {
        Duration::from_nanos(event * 1_000_000_000 / self.rate)
    }

    /// Records events that a subscriber has just received.
    fn record_received(&self, seen: &mut Vec<u64>) {
        let now = self.begin.elapsed();
        self.received.fetch_add(seen.len() as u64, Ordering::Relaxed);
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        for event in seen.drain(..).filter(|event| *event >= self.first) {
            let Some(sent) = self.sent.get(event_index(event)) else { continue };
            let sent = Duration::from_nanos(sent.load(Ordering::Relaxed));
            measured.from_sent.record(now.saturating_sub(sent));
            measured.from_due.record(now.saturating_sub(self.due(event)));
        }
    }
}

fn event_index(event: u64) -> usize {
    usize::try_from(event).unwrap_or(usize::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
