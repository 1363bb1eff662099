//! `turnwire bench resume-storm`: all subscribers reconnect at once, in the middle of a reply.

use super::connection::StreamEnd;
use super::delta_marks::{MarkScanner, OrderCheck};
use super::error::{BenchError, Result};
use super::event_script::DeltaText;
use super::latency::Latency;
use super::progress::Progress;
use super::report::{Report, thousands};
use super::sessions::{Cleanup, Sessions, join_all};
use super::target::BenchTarget;
use super::watchers;
use clap::Args;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Reconnect many subscribers at once, in the middle of a long running reply
///
/// The time is from connecting until a subscriber has caught up, and until all have. Each must get
/// every event after its cursor once, in order.
#[derive(Args)]
pub(super) struct ResumeStorm {
    /// Number of subscribers
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,

    /// Deltas in the reply; the subscribers have seen one half
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..10_000_000))]
    deltas: u32,
}

const CATCH_UP_TIMEOUT: Duration = Duration::from_mins(2);

struct Shared {
    last: u64,
    caught_up: Arc<AtomicU64>,
    measured: Mutex<Measured>,
}

struct Measured {
    latency: Latency,
    bytes: u64,
    wrong: u64,
}

impl ResumeStorm {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        super::process::allow_open_files(u64::from(self.watchers))?;
        let deltas = u64::from(self.deltas);
        // One more than is written: the reply is still running.
        let (sessions, mut producer) =
            Sessions::create_with_producer(server, DeltaText::Marks, deltas + 1).await?;
        producer.publish(deltas).await?;
        let name = sessions.only_name();
        let session = server.get_request(&format!("/v1/sessions/{name}"));
        let cursor = middle_cursor(producer.send_request("reading the session", &session).await?)?;

        let shared = Arc::new(Shared {
            last: deltas - 1,
            caught_up: Arc::default(),
            measured: Mutex::new(Measured { latency: Latency::new()?, bytes: 0, wrong: 0 }),
        });
        let bar =
            Progress::with_clock("caught up", CATCH_UP_TIMEOUT, Arc::clone(&shared.caught_up));
        let mut storm = JoinSet::new();
        let begin = Instant::now();
        for _ in 0..self.watchers {
            let request = server.watch_request(name, &format!("after={cursor}"));
            storm.spawn(resume_stream(Arc::clone(server), Arc::clone(&shared), request));
        }
        tokio::time::timeout(CATCH_UP_TIMEOUT, join_all(storm)).await.map_err(|_| {
            BenchError::new(format!(
                "after {} s some subscribers have not caught up",
                CATCH_UP_TIMEOUT.as_secs()
            ))
        })??;
        let lasted = begin.elapsed();
        drop(bar);
        producer.end().await?;
        sessions.finish(after).await?;

        let measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let title = format!(
            "resume-storm: {} watchers from the middle of a reply of {} deltas",
            thousands(u64::from(self.watchers)),
            thousands(deltas)
        );
        let mut report = Report::new("resume-storm", title);
        report.setting("watchers", self.watchers);
        report.setting("deltas", self.deltas);
        report.figure("all_ms", "ms until all", lasted.as_secs_f64() * 1000.0, 0);
        report.latency("latency_ms", "ms until one", &measured.latency);
        report.count("bytes", "bytes received in all", measured.bytes);
        report.must_be_zero("out_of_order", "lost, doubled or out of order", measured.wrong);
        Ok(report)
    }
}

async fn resume_stream(
    server: Arc<BenchTarget>,
    shared: Arc<Shared>,
    request: Vec<u8>,
) -> Result<()> {
    let begin = Instant::now();
    let mut stream = watchers::open_stream(server, request).await?;
    let mut marks = MarkScanner::default();
    let mut order = OrderCheck::default();
    let ended = stream
        .read(|bytes| {
            marks.feed(bytes, &mut |mark| order.record(mark));
            if order.next > shared.last {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .await?;
    if ended == StreamEnd::ByServer {
        return Err(BenchError::new(
            "the server ended a subscriber's stream during a running reply",
        ));
    }
    if order.first == Some(0) {
        return Err(BenchError::new("the server ignored the cursor: it sent everything again"));
    }
    shared.caught_up.fetch_add(1, Ordering::Relaxed);
    let mut measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
    measured.latency.record(begin.elapsed());
    measured.bytes += stream.bytes;
    measured.wrong += order.wrong;
    Ok(())
}

/// The resume token in the middle of a session's log.
fn middle_cursor(session: &[u8]) -> Result<String> {
    let session: Option<serde_json::Value> = serde_json::from_slice(session).ok();
    let last = session.as_ref().and_then(|session| session.get("last_event_id")?.as_str());
    last.and_then(|last| {
        let (epoch, seq) = last.rsplit_once('.')?;
        Some(format!("{epoch}.{}", seq.parse::<u64>().ok()? / 2))
    })
    .ok_or_else(|| BenchError::new("the session has no last_event_id of the form EPOCH.SEQ"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_keeps_the_epoch() {
        let session = br#"{"id":"s","last_event_id":"k3.20002"}"#;
        assert_eq!(middle_cursor(session).unwrap(), "k3.10001");
        assert!(middle_cursor(br#"{"id":"s"}"#).is_err());
    }
}
