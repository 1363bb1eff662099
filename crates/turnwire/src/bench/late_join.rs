//! `turnwire bench late-join`: the time until a late subscriber has a long reply.

use super::connection::ResponseStream;
use super::delta_marks::{MarkScanner, OrderCheck};
use super::error::{BenchError, Result};
use super::event_script::DeltaText;
use super::latency::Latency;
use super::progress::Progress;
use super::report::{Report, thousands};
use super::sessions::{Cleanup, Sessions};
use super::target::BenchTarget;
use super::watchers;
use clap::Args;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// Subscribe to a finished reply of many small deltas, from its start
///
/// The time is from connecting to the end of the replay. The bytes are those received, beside those
/// of the resulting message.
#[derive(Args)]
pub(super) struct LateJoin {
    /// Deltas of 8 bytes in the reply
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..10_000_000))]
    deltas: u32,

    /// Number of subscriptions
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    joins: u32,
}

impl LateJoin {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        let deltas = u64::from(self.deltas);
        let (sessions, mut producer) =
            Sessions::create_with_producer(server, DeltaText::Marks, deltas).await?;
        let reply = producer.script.reply_id();
        producer.publish(deltas).await?;
        producer.end().await?;
        let name = sessions.only_name();
        let message = server.get_request(&format!("/v1/sessions/{name}/messages/{reply}"));
        let message = producer.send_request("reading the message", &message).await?.len() as u64;

        let progress = Progress::with_steps("joins", u64::from(self.joins));
        let mut latency = Latency::new()?;
        let mut bytes = 0;
        let mut wrong = 0;
        for _ in 0..self.joins {
            let request = server.watch_request(name, "until=idle");
            let begin = Instant::now();
            let mut stream = watchers::open_stream(Arc::clone(server), request).await?;
            let order = read_replay(&mut stream).await?;
            latency.record(begin.elapsed());
            bytes = bytes.max(stream.bytes);
            if order.first != Some(0) || order.next != deltas {
                return Err(BenchError::new(format!(
                    "the replay has deltas {} to {} of {deltas}",
                    order.first.unwrap_or_default(),
                    order.next
                )));
            }
            wrong += order.wrong;
            progress.add(1);
        }
        drop(progress);
        sessions.finish(after).await?;

        let title = format!(
            "late-join: {} joins to a reply of {} deltas",
            thousands(u64::from(self.joins)),
            thousands(deltas)
        );
        let mut report = Report::new("late-join", title);
        report.setting("deltas", self.deltas);
        report.setting("joins", self.joins);
        report.latency("latency_ms", "ms to the end", &latency);
        report.count("bytes", "bytes received", bytes);
        report.count("message_bytes", "bytes of the message", message);
        report.figure("ratio", "times the message", ratio(bytes, message), 3);
        report.must_be_zero("out_of_order", "lost, doubled or out of order", wrong);
        Ok(report)
    }
}

/// Reads a stream to its end.
async fn read_replay(stream: &mut ResponseStream) -> Result<OrderCheck> {
    let mut marks = MarkScanner::default();
    let mut order = OrderCheck::default();
    stream
        .read(|bytes| {
            marks.feed(bytes, &mut |mark| order.record(mark));
            ControlFlow::Continue(())
        })
        .await?;
    Ok(order)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is shown with a few digits")]
fn ratio(bytes: u64, message: u64) -> f64 {
    bytes as f64 / message.max(1) as f64
}
