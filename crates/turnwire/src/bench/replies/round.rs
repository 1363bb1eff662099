//! One round of `bench replies`: starts replies, follows them, stops them.

use crate::bench::connection::ResponseStream;
use crate::bench::delta_marks::{MarkScanner, OrderCheck};
use crate::bench::error::{BenchError, Result};
use crate::bench::latency::Latency;
use crate::bench::process::{allow_open_files, processor_time, resident_kib};
use crate::bench::progress::Progress;
use crate::bench::report::per_second;
use crate::bench::sessions::{Cleanup, Sessions, join_all, request_all};
use crate::bench::target::BenchTarget;
use crate::bench::watchers;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;
use turnwire_agent::model::clock::{ClockRequest, TimedToken};
/// The longest time from the end to the last subscriber.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest round.
const MAX_SECONDS: u32 = 600;

/// The settings of all rounds of a measurement.
pub(super) struct RoundSettings {
    pub(super) server: Arc<BenchTarget>,
    pub(super) after: Cleanup,
    pub(super) agent: String,
    pub(super) rate: u32,
    pub(super) seconds: u32,
    pub(super) warm_up: u32,
    pub(super) pid: Option<u32>,
}

/// The result of a round.
pub(super) struct RoundResult {
    pub(super) replies: u32,
    pub(super) latency: Latency,
    pub(super) lost: u64,
    pub(super) wrong: u64,
    pub(super) usage: Option<ServerUsage>,
    rate: u32,
    seconds: u32,
}

/// The server's memory and processor time.
pub(super) struct ServerUsage {
    pub(super) kib_before: u64,
    pub(super) kib_with: u64,
    processor: Duration,
}

impl RoundResult {
    pub(super) fn tokens_per_second(&self) -> f64 {
        per_second(self.latency.count(), f64::from(self.seconds))
    }

    /// Whether the tokens arrived at the requested rate.
    pub(super) fn keeps_rate(&self) -> bool {
        self.tokens_per_second() >= 0.98 * f64::from(self.replies) * f64::from(self.rate)
    }

    pub(super) fn micros_per_token(&self, used: &ServerUsage) -> f64 {
        1e6 / per_second(self.latency.count().max(1), used.processor.as_secs_f64())
    }
}

/// What the subscribers share.
struct Shared {
    begin: Instant,
    /// Tokens received between these are measured, in nanoseconds since the start.
    from: AtomicU64,
    to: AtomicU64,
    /// Tokens after this time are not waited for.
    end: OnceLock<SystemTime>,
    received: Arc<AtomicU64>,
    measured: Mutex<Measured>,
}

struct Measured {
    latency: Latency,
    wrong: u64,
    /// How many subscribers have seen all tokens up to the end.
    whole: u32,
}

impl RoundSettings {
    pub(super) async fn run_round(&self, replies: u32) -> Result<RoundResult> {
        // The model has one connection per reply.
        allow_open_files(u64::from(replies) * 2)?;
        let (server, rate) = (&self.server, self.rate);
        let sessions = Sessions::create_for_agent(server, replies as usize, &self.agent).await?;
        let kib_before = self.pid.map(resident_kib).transpose()?;
        let streams = watchers::open_streams(server, replies, |nth| {
            let name = sessions.names.get(nth as usize).map(String::as_str).unwrap_or_default();
            server.watch_request(name, "after=now")
        })
        .await?;

        let request =
            ClockRequest { tokens: (rate * MAX_SECONDS).min(ClockRequest::MAX_TOKENS), rate };
        let shared = Arc::new(Shared {
            begin: Instant::now(),
            from: AtomicU64::new(u64::MAX),
            to: AtomicU64::new(u64::MAX),
            end: OnceLock::new(),
            received: Arc::default(),
            measured: Mutex::new(Measured { latency: Latency::new()?, wrong: 0, whole: 0 }),
        });
        let bar = Progress::with_clock(
            "tokens",
            Duration::from_secs(u64::from(self.warm_up + self.seconds)),
            Arc::clone(&shared.received),
        );
        let mut watching = JoinSet::new();
        for stream in streams {
            watching.spawn(watch_replies(Arc::clone(&shared), stream));
        }
        let ids = start_replies(server, &sessions.names, request).await?;
        tokio::time::sleep(Duration::from_secs(u64::from(self.warm_up))).await;
        let used_before = self.pid.map(processor_time).transpose()?;
        shared.from.store(shared.now(), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(u64::from(self.seconds))).await;
        shared.to.store(shared.now(), Ordering::Relaxed);
        let _ = shared.end.set(SystemTime::now());
        let used = match (self.pid, used_before, kib_before) {
            (Some(pid), Some(before), Some(kib_before)) => Some(ServerUsage {
                kib_before,
                kib_with: resident_kib(pid)?,
                processor: processor_time(pid)?.saturating_sub(before),
            }),
            _ => None,
        };
        if shared.received.load(Ordering::Relaxed) == 0 {
            sessions.finish(self.after).await?;
            return Err(BenchError::new(format!(
                "received no token: the model of the agent {} must put the time into its tokens, such as \
                 \"clock\"",
                self.agent
            )));
        }
        // Subscribers that are not done by then count as lost.
        if let Ok(done) = tokio::time::timeout(DRAIN_TIMEOUT, join_all(watching)).await {
            done?;
        }
        stop_replies(server, &ids).await?;
        drop(bar);
        sessions.finish(self.after).await?;

        let mut measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let latency = std::mem::replace(&mut measured.latency, Latency::new()?);
        Ok(RoundResult {
            replies,
            latency,
            lost: u64::from(replies - measured.whole),
            wrong: measured.wrong,
            usage: used,
            rate,
            seconds: self.seconds,
        })
    }
}

/// Starts a reply in each session, and returns the sessions with their reply ids.
async fn start_replies(
    server: &Arc<BenchTarget>,
    sessions: &[String],
    request: ClockRequest,
) -> Result<Vec<(String, String)>> {
    let body = format!(r#"{{"content":"{request}"}}"#);
    let requests = sessions.iter().map(|name| {
        let path = format!("/v1/sessions/{name}/messages");
        (name.clone(), server.post_request(&path, &body))
    });
    request_all(server, ("messages", "a message"), requests.collect(), |name, answer| {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let id = answer.get("reply_id").and_then(Value::as_str);
        let id = id.ok_or_else(|| BenchError::new("a message was answered without a reply_id"))?;
        Ok((name, id.to_owned()))
    })
    .await
}

/// Stops the replies.
async fn stop_replies(server: &Arc<BenchTarget>, replies: &[(String, String)]) -> Result<()> {
    let requests = replies.iter().map(|(name, id)| {
        let body = json!([{"type": "USER_INTERRUPT", "id": format!("stop-{id}"), "reply_id": id}]);
        let path = format!("/v1/sessions/{name}/events");
        (name.clone(), server.post_request(&path, &body.to_string()))
    });
    let labels = ("stopping", "stopping a reply");
    request_all(server, labels, requests.collect(), |_, _| Ok(())).await.map(drop)
}

async fn watch_replies(shared: Arc<Shared>, mut stream: ResponseStream) -> Result<()> {
    let mut marks = MarkScanner::with_digits(TimedToken::DIGITS);
    let mut order = OrderCheck::default();
    let mut seen: Vec<TimedToken> = Vec::new();
    let mut is_whole = false;
    stream
        .read(|bytes| {
            if bytes.is_empty() {
                is_whole = seen.last().is_some_and(|token| shared.is_after_end(*token));
                shared.record_tokens(&mut seen);
            } else {
                marks.feed(bytes, &mut |digits| {
                    let token = TimedToken::from_digits(digits);
                    order.record(token.position(order.next));
                    seen.push(token);
                });
            }
            if is_whole { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
    let mut measured = shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
    measured.wrong += order.wrong;
    measured.whole += u32::from(is_whole && order.first == Some(0));
    Ok(())
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether a token was sent after the end: then all earlier ones have arrived.
    fn is_after_end(&self, token: TimedToken) -> bool {
        self.end.get().is_some_and(|end| token.age(*end).is_zero())
    }

    /// Records tokens that a subscriber has just received.
    fn record_tokens(&self, seen: &mut Vec<TimedToken>) {
        self.received.fetch_add(seen.len() as u64, Ordering::Relaxed);
        let (now, clock) = (self.now(), SystemTime::now());
        let window = self.from.load(Ordering::Relaxed)..self.to.load(Ordering::Relaxed);
        if !window.contains(&now) {
            seen.clear();
            return;
        }
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        for token in seen.drain(..) {
            measured.latency.record(token.age(clock));
        }
    }
}
