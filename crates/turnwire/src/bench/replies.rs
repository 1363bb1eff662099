//! `turnwire bench replies`: concurrent replies of agents, and the latency of their tokens.

mod round;

use super::error::{BenchError, Result};
use super::fake_provider::FakeProvider;
use super::report::{Report, kib_to_f64, thousands};
use super::sessions::Cleanup;
use super::target::BenchTarget;
use clap::Args;
use round::{RoundResult, RoundSettings};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Run concurrent replies of the server's agents, each with a subscriber
///
/// The agent's model must put the time into its tokens: `model = "clock"` in the server's settings,
/// or a provider over HTTP, which is this program: with --provider ADDRESS it listens there, and
/// the agent has `model = "openai:clock"` and `base_url = "http://ADDRESS"`. The latency is from
/// the time at which the model sends a token (`clock`: at which it was due) to its bytes at the
/// subscriber. Every subscriber must receive every token once, in order.
///
/// Without --replies it searches for the largest number of concurrent replies: doubles the number,
/// then bisects.
#[derive(Args)]
#[expect(clippy::struct_field_names, reason = "the option is called so")]
pub(super) struct Replies {
    /// The agent
    #[arg(long, default_value = "clock")]
    agent: String,

    /// Concurrent replies [default: search for the maximum]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    replies: Option<u32>,

    /// Tokens per second and reply
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// Seconds to measure, each time
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,

    /// Seconds to run before, unmeasured
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=60))]
    warm_up: u32,

    /// The search accepts a 99th percentile below this, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    below_ms: u32,

    /// Replies with which the search starts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    begin_with: u32,

    /// Listen here as the model provider
    #[arg(long)]
    provider: Option<SocketAddr>,

    /// The server's process id, on this machine (Linux): reports its memory and processor time
    #[arg(long)]
    pid: Option<u32>,
}

/// The longest search.
const MAX_SEARCH_TIME: Duration = Duration::from_mins(10);
/// The largest number of replies a search tries.
const MAX_REPLIES: u32 = 100_000;

impl Replies {
    pub(super) async fn run(&self, server: &Arc<BenchTarget>, after: Cleanup) -> Result<Report> {
        let _provider = match self.provider {
            Some(address) => Some(FakeProvider::start(address).await?),
            None => None,
        };
        let rounds = RoundSettings {
            server: Arc::clone(server),
            after,
            agent: self.agent.clone(),
            rate: self.rate,
            seconds: self.seconds,
            warm_up: self.warm_up,
            pid: self.pid,
        };
        match self.replies {
            Some(replies) => Ok(self.report(&rounds.run_round(replies).await?)),
            None => self.find_most_replies(&rounds).await,
        }
    }

    /// Searches for the largest number of concurrent replies.
    async fn find_most_replies(&self, rounds: &RoundSettings) -> Result<Report> {
        let begin = Instant::now();
        let (mut best, mut last) = (None, None);
        let mut tries: Vec<Value> = Vec::new();
        let mut search = CapacitySearch::new(self.begin_with);
        while let Some(replies) = search.next.filter(|_| begin.elapsed() < MAX_SEARCH_TIME) {
            let mut round = rounds.run_round(replies).await?;
            tries.push(self.round_json(&round));
            if !self.is_within_limits(&round) {
                // Other work on the machine may be the reason: try again.
                round = rounds.run_round(replies).await?;
                tries.push(self.round_json(&round));
            }
            let is_good = self.is_within_limits(&round);
            search.record_result(is_good);
            *(if is_good { &mut best } else { &mut last }) = Some(round);
        }
        let shown = best.or(last).ok_or_else(|| BenchError::new("nothing was measured"))?;
        let mut report = self.report(&shown);
        report.count("most_replies", "most replies at once", u64::from(search.good));
        report.setting("tries", tries);
        Ok(report)
    }

    /// Whether the server kept up.
    fn is_within_limits(&self, round: &RoundResult) -> bool {
        round.latency.percentile(99.0) < f64::from(self.below_ms)
            && round.keeps_rate()
            && round.lost == 0
    }

    fn round_json(&self, round: &RoundResult) -> Value {
        json!({
            "replies": round.replies,
            "p99_ms": round.latency.percentile(99.0),
            "tokens_per_second": round.tokens_per_second(),
            "is_good": self.is_within_limits(round),
        })
    }

    fn report(&self, round: &RoundResult) -> Report {
        let Self { rate, seconds, .. } = self;
        let title = format!(
            "replies: {} at once, {rate} tokens/s each, all watched, {seconds} s",
            thousands(u64::from(round.replies)),
        );
        let mut report = Report::new("replies", title);
        report.setting("agent", self.agent.as_str());
        report.setting("replies", round.replies);
        report.setting("rate", *rate);
        report.setting("seconds", *seconds);
        report.figure("tokens_per_second", "tokens/s", round.tokens_per_second(), 0);
        report.latency("latency_ms", "ms to the watcher", &round.latency);
        if let Some(used) = &round.usage {
            let each = kib_to_f64(used.kib_with.saturating_sub(used.kib_before))
                / f64::from(round.replies);
            report.figure("kib_per_reply", "KiB for each reply", each, 1);
            report.memory("mib_before", "MiB of the server before", used.kib_before);
            report.memory("mib_with_replies", "MiB with the replies", used.kib_with);
            report.figure(
                "processor_us_per_token",
                "µs of the server's processors for a token",
                round.micros_per_token(used),
                1,
            );
        }
        report.must_be_zero("lost", "replies not seen whole", round.lost);
        report.must_be_zero("out_of_order", "doubled or out of order", round.wrong);
        report
    }
}

/// Doubles the number until the server does not keep up, then bisects.
struct CapacitySearch {
    /// The largest number that worked.
    good: u32,
    /// The smallest number that failed.
    bad: Option<u32>,
    /// The next number to try; `None` when the search is done.
    next: Option<u32>,
}

impl CapacitySearch {
    fn new(begin: u32) -> Self {
        Self { good: 0, bad: None, next: Some(begin) }
    }

    /// Records the result of the last try.
    fn record_result(&mut self, is_good: bool) {
        let Some(tried) = self.next.take() else { return };
        if is_good {
            self.good = tried;
        } else {
            self.bad = Some(tried);
        }
        self.next = match self.bad {
            None if self.good >= MAX_REPLIES => None,
            None => Some(self.good.saturating_mul(2).min(MAX_REPLIES)),
            // A few percent are within the noise.
            Some(bad) if bad - self.good <= (self.good / 16).max(1) => None,
            Some(bad) => Some(self.good.midpoint(bad)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result and the tries of a search, if `limit` is the real maximum.
    fn search(begin: u32, limit: u32) -> (u32, Vec<u32>) {
        let mut search = CapacitySearch::new(begin);
        let mut tried = Vec::new();
        while let Some(next) = search.next {
            tried.push(next);
            search.record_result(next <= limit);
        }
        (search.good, tried)
    }

    #[test]
    fn the_capacity_search_finds_the_limit_in_a_few_steps() {
        for begin in [1, 100, 500] {
            for limit in [1, 2, 99, 100, 1234, 30_000] {
                let (found, tried) = search(begin, limit);
                assert!(
                    found <= limit && limit - found <= (limit / 8).max(1),
                    "{found} of {limit}"
                );
                assert!(tried.len() <= 24, "{tried:?}");
            }
        }
        assert_eq!(search(500, 1100).1, [500, 1000, 2000, 1500, 1250, 1125, 1062]);
        assert_eq!(search(64, 0).0, 0);
        assert_eq!(search(64, u32::MAX).0, MAX_REPLIES);
    }
}
