//! `turnwire bench wires`: the cost of each wire relative to the canonical one, and the time to
//! resume a long reply.

use super::connection::StreamEnd;
use super::error::{BenchError, Result};
use super::event_script::DeltaText;
use super::latency::Latency;
use super::process::processor_time;
use super::progress::Progress;
use super::report::{Report, thousands};
use super::sessions::{Cleanup, Sessions};
use super::target::BenchTarget;
use super::watchers;
use clap::Args;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_wires::Wire;

/// Measure the cost of each wire, and the time to resume on it
///
/// Three figures per wire: the server's processor time for an event of a long reply read from the
/// log (each event by itself, without a cache), the same for an event followed live, both relative
/// to the canonical wire; and the time from the request to the first event when a client resumes an
/// open reply. Where a protocol has its own way to resume, that is used. The server must run on
/// this machine (Linux).
#[derive(Args)]
pub(super) struct Wires {
    /// The server's process id
    #[arg(long)]
    pid: u32,

    /// Deltas in the reply that clients resume
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..1_000_000))]
    deltas: u32,

    /// Number of resumed streams
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    returns: u32,

    /// Events to read and to follow for the cost
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u32).range(1000..10_000_000))]
    events: u32,
}

/// How often each wire is measured live.
const ROUNDS: u32 = 3;

/// What is measured.
struct Target<'a> {
    server: &'a Arc<BenchTarget>,
    cleanup: Cleanup,
    names: Vec<&'static str>,
}

/// The wire that the others are compared with.
const CANONICAL: &str = "turnwire";

/// Deltas per request while streams are watched: a few, as an external agent publishes them.
const AT_ONCE: u64 = 64;

impl Wires {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        let title = format!(
            "wires: {} events read and watched; {} returns in the middle of {} deltas",
            thousands(u64::from(self.events)),
            self.returns,
            thousands(u64::from(self.deltas))
        );
        let mut report = Report::new("wires", title);
        report.setting("deltas", self.deltas);
        report.setting("returns", self.returns);
        report.setting("events", self.events);
        let names: Vec<&'static str> =
            Wire::all().filter(|wire| wire.can_encode()).map(|wire| wire.name).collect();
        let target = Target { server, cleanup: after, names };
        self.measure_replays(&target).await?.add_to_report("replay", "read", &mut report);
        self.measure_live(&target).await?.add_to_report("live", "followed", &mut report);
        for (name, latency) in self.measure_returns(&target).await? {
            let label = format!("{name}: ms to resume");
            report.latency(&format!("return_ms_{}", name.replace('-', "_")), &label, &latency);
        }
        Ok(report)
    }

    /// The cost of an event read from the log.
    async fn measure_replays(&self, target: &Target<'_>) -> Result<EventCosts> {
        let Target { server, cleanup, names } = target;
        let deltas = u64::from(self.events);
        let (sessions, mut producer) =
            Sessions::create_with_producer(server, DeltaText::Words, deltas).await?;
        producer.publish(deltas).await?;
        producer.end().await?;
        let progress = Progress::with_steps("replays", names.len() as u64);
        let mut costs = EventCosts::default();
        for &name in names {
            let query = format!("wire={name}&raw=true&until=idle");
            let request = server.watch_request(sessions.only_name(), &query);
            let before = processor_time(self.pid)?;
            let mut stream = watchers::open_stream(Arc::clone(server), request).await?;
            stream.read(|_| ControlFlow::Continue(())).await?;
            costs.add(name, processor_time(self.pid)?.saturating_sub(before), deltas);
            progress.add(1);
        }
        sessions.finish(*cleanup).await?;
        Ok(costs)
    }

    /// The cost of an event followed live, without the cost of storing it.
    async fn measure_live(&self, target: &Target<'_>) -> Result<EventCosts> {
        let names = &target.names;
        let deltas = u64::from(self.events);
        let progress = Progress::with_steps("live", u64::from(ROUNDS) * (names.len() as u64 + 1));
        let mut unwatched = Duration::MAX;
        let mut watched = vec![Duration::MAX; names.len()];
        // Other work on the machine only adds time: the minimum is the best estimate.
        for _ in 0..ROUNDS {
            unwatched = unwatched.min(self.measure_live_wire(target, None).await?);
            progress.add(1);
            for (&name, least) in names.iter().zip(&mut watched) {
                *least = (*least).min(self.measure_live_wire(target, Some(name)).await?);
                progress.add(1);
            }
        }
        let mut costs = EventCosts::default();
        for (&name, least) in names.iter().zip(watched) {
            costs.add(name, least.saturating_sub(unwatched), deltas);
        }
        Ok(costs)
    }

    async fn measure_live_wire(&self, target: &Target<'_>, wire: Option<&str>) -> Result<Duration> {
        let server = target.server;
        let deltas = u64::from(self.events);
        let (sessions, mut producer) =
            Sessions::create_with_producer(server, DeltaText::Words, deltas).await?;
        producer.publish(1).await?;
        let watcher = match wire {
            None => None,
            Some(wire) => {
                let request =
                    server.watch_request(sessions.only_name(), &format!("wire={wire}&until=idle"));
                let mut stream = watchers::open_stream(Arc::clone(server), request).await?;
                Some(tokio::spawn(async move {
                    stream.read(|_| ControlFlow::Continue(())).await.map(drop)
                }))
            }
        };
        let before = processor_time(self.pid)?;
        producer.publish_in_batches(deltas - 1, AT_ONCE, drop).await?;
        producer.end().await?;
        if let Some(watcher) = watcher {
            watcher.await.map_err(|error| BenchError::new(error.to_string()))??;
        }
        let took = processor_time(self.pid)?.saturating_sub(before);
        sessions.finish(target.cleanup).await?;
        Ok(took)
    }

    /// The time to resume.
    async fn measure_returns(&self, target: &Target<'_>) -> Result<Vec<(&'static str, Latency)>> {
        let Target { server, cleanup, names } = target;
        let mut latencies = Vec::new();
        let deltas = u64::from(self.deltas);
        let (sessions, mut producer) =
            Sessions::create_with_producer(server, DeltaText::Words, deltas).await?;
        let reply = producer.script.reply_id();
        producer.publish(deltas).await?;
        let progress = Progress::with_steps("returns", names.len() as u64);
        for &name in names {
            let request = resume_request(server, name, sessions.only_name(), &reply, deltas / 2);
            let mut latency = Latency::new()?;
            for _ in 0..self.returns {
                let begin = Instant::now();
                let mut stream = watchers::open_stream(Arc::clone(server), request.clone()).await?;
                read_first_event(&mut stream).await?;
                latency.record(begin.elapsed());
            }
            latencies.push((name, latency));
            progress.add(1);
        }
        drop(progress);
        producer.end().await?;
        sessions.finish(*cleanup).await?;
        Ok(latencies)
    }
}

/// The request with which a client of a protocol resumes a reply after an event.
fn resume_request(
    server: &BenchTarget,
    wire: &str,
    session: &str,
    reply: &str,
    seq: u64,
) -> Vec<u8> {
    match wire {
        "ag-ui" => {
            let body = format!(
                r#"{{"threadId":"{session}","runId":"back","messages":[],"tools":[],"context":[],"state":{{}}}}"#
            );
            server.post_request("/ag-ui/external", &body)
        }
        "ai-sdk" => server.get_request(&format!("/ai-sdk/external/{session}/stream")),
        "openai-responses" => server.get_request(&format!(
            "/v1/responses/resp_{session}~{reply}?stream=true&starting_after={seq}"
        )),
        _ => server.watch_request(session, &format!("wire={wire}&after={seq}")),
    }
}

/// Waits for the first event, past comments and other fields.
async fn read_first_event(stream: &mut super::connection::ResponseStream) -> Result<()> {
    let mut text = Vec::new();
    let ended = stream
        .read(|bytes| {
            text.extend_from_slice(bytes);
            let is_there =
                text.starts_with(b"data:") || memchr::memmem::find(&text, b"\ndata:").is_some();
            if is_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
    match ended {
        StreamEnd::Enough => Ok(()),
        StreamEnd::ByServer => Err(BenchError::new("a stream ended before its first event")),
    }
}

/// The cost of an event on each wire.
#[derive(Default)]
struct EventCosts(Vec<(&'static str, f64)>);

impl EventCosts {
    #[expect(clippy::cast_precision_loss, reason = "a cost is shown with a few digits")]
    fn add(&mut self, name: &'static str, took: Duration, events: u64) {
        self.0.push((name, took.as_secs_f64() * 1e6 / events.max(1) as f64));
    }

    fn add_to_report(&self, key: &str, what: &str, report: &mut Report) {
        let ours =
            self.0.iter().find(|(name, _)| *name == CANONICAL).map_or(0.0, |(_, cost)| *cost);
        for (name, cost) in &self.0 {
            let word = name.replace('-', "_");
            report.figure(
                &format!("{key}_us_{word}"),
                &format!("{name}: µs an event {what}"),
                *cost,
                3,
            );
            if *name != CANONICAL && ours > 0.0 {
                let label = format!("{name}: times the canonical stream, {what}");
                report.figure(&format!("{key}_times_{word}"), &label, cost / ours, 2);
            }
        }
    }
}
