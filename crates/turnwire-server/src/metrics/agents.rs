//! Metrics of agents: replies, tokens, cost, and the latency of models.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use turnwire_core::FinishedReason;
use turnwire_core::event::TokenCounts;

/// Metrics by agent name. Clones share their counts.
#[derive(Clone)]
pub struct AgentMetrics {
    replies: Family<ReplyLabels, Counter>,
    running: Family<AgentLabels, Gauge>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<AgentLabels, Counter<f64, AtomicU64>>,
    first_token: Family<AgentLabels, Histogram, fn() -> Histogram>,
    duration: Family<AgentLabels, Histogram, fn() -> Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplyLabels {
    agent: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    agent: String,
    kind: &'static str,
}

const BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0];

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl AgentMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let own = Self {
            replies: Family::default(),
            running: Family::default(),
            tokens: Family::default(),
            cost: Family::default(),
            first_token: Family::new_with_constructor(histogram),
            duration: Family::new_with_constructor(histogram),
        };
        registry.register(
            "replies",
            "Finished replies of agents on this server",
            own.replies.clone(),
        );
        let help = "Replies in progress, without those that wait for a client";
        registry.register("replies_running", help, own.running.clone());
        registry.register("tokens", "Tokens reported by models", own.tokens.clone());
        let help = "Cost of the tokens, at the prices in the settings";
        registry.register("cost", help, own.cost.clone());
        registry.register_with_unit(
            "model_first_token",
            "Time from the request to a model to its first token",
            Unit::Seconds,
            own.first_token.clone(),
        );
        registry.register_with_unit(
            "model_call_duration",
            "Time from the request to a model to the end of its response",
            Unit::Seconds,
            own.duration.clone(),
        );
        own
    }

    /// Counts a reply that has ended.
    pub fn reply_ended(&self, agent: &str, reason: &FinishedReason) {
        let labels = ReplyLabels { agent: agent.to_owned(), reason: reason.as_str().to_owned() };
        self.replies.get_or_create(&labels).inc();
    }

    /// Counts a reply as running while the result lives.
    pub fn reply_running(&self, agent: &str) -> RunningReply {
        let gauge = self.running.get_or_create(&labels(agent)).clone();
        gauge.inc();
        RunningReply(gauge)
    }

    /// Counts the tokens of a model call, and their cost.
    pub fn count_tokens(&self, agent: &str, tokens: TokenCounts, cost: Option<f64>) {
        for (kind, count) in [
            ("input", tokens.input_tokens),
            ("output", tokens.output_tokens),
            ("cache_input", tokens.cache_input_tokens),
            ("cache_creation_input", tokens.cache_creation_input_tokens),
        ] {
            // Negative counts of a provider are ignored.
            if let Some(count) = u64::try_from(count).ok().filter(|count| *count > 0) {
                let labels = TokenLabels { agent: agent.to_owned(), kind };
                self.tokens.get_or_create(&labels).inc_by(count);
            }
        }
        if let Some(cost) = cost.filter(|cost| cost.is_finite() && *cost > 0.0) {
            self.cost.get_or_create(&labels(agent)).inc_by(cost);
        }
    }

    /// Records the time to the first token.
    pub fn observe_first_token(&self, agent: &str, after: Duration) {
        self.first_token.get_or_create(&labels(agent)).observe(after.as_secs_f64());
    }

    /// Records the duration of a model call.
    pub fn observe_model_call(&self, agent: &str, took: Duration) {
        self.duration.get_or_create(&labels(agent)).observe(took.as_secs_f64());
    }
}

fn labels(agent: &str) -> AgentLabels {
    AgentLabels { agent: agent.to_owned() }
}

/// A running reply.
#[derive(Debug)]
pub struct RunningReply(Gauge);

impl Drop for RunningReply {
    fn drop(&mut self) {
        self.0.dec();
    }
}
