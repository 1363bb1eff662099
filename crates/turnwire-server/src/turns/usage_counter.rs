//! Counts committed events of an agent for the metrics: tokens, cost, ended replies, and the
//! latency of the model.

use crate::config::Config;
use crate::metrics::AgentMetrics;
use std::sync::Arc;
use std::time::Instant;
use turnwire_agent::model::MODEL_METADATA_KEY;
use turnwire_core::event::{ModelCallEnd, SubAgent, TokenCounts};
use turnwire_core::{Event, EventKind, event_kinds};
use turnwire_log::Cost;

/// The counts of one agent run.
pub(super) struct UsageCounter {
    metrics: AgentMetrics,
    config: Arc<Config>,
    agent: String,
    reply_id: String,
    /// Since when the agent has been waiting for its model.
    waiting_since: Instant,
    model: ModelPhase,
}

/// The phase of the reply's own model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelPhase {
    NotCalled,
    Started,
    Streaming,
}

impl UsageCounter {
    pub(super) fn new(
        metrics: &AgentMetrics,
        config: &Arc<Config>,
        agent: &str,
        reply_id: &str,
    ) -> Self {
        Self {
            metrics: metrics.clone(),
            config: config.clone(),
            agent: agent.to_owned(),
            reply_id: reply_id.to_owned(),
            waiting_since: Instant::now(),
            model: ModelPhase::NotCalled,
        }
    }

    /// The cost of a model call at the current prices, if they are known.
    pub(super) fn cost(&self, event: &Event<'_>, end: &ModelCallEnd) -> Option<Cost> {
        let config = self.config.agents.get(self.agent_name_of(event.agent.as_deref()))?;
        let model: Option<String> = event.metadata.get(MODEL_METADATA_KEY).ok().flatten();
        let cost = config.cost(model.as_deref(), end.usage).and_then(Cost::new);
        cost.filter(|_| end.usage != TokenCounts::default())
    }

    /// Counts events that are durable.
    pub(super) fn count_events(&mut self, events: &[Event<'_>]) {
        for event in events {
            self.count_event(event);
            if event.reply_id == self.reply_id {
                self.time_model(event);
            }
        }
    }

    fn count_event(&self, event: &Event<'_>) {
        let agent = || self.agent_name_of(event.agent.as_deref());
        if let EventKind::ModelCallEnd(end) = &event.kind {
            let cost = Cost::from_event(event).map(Cost::amount);
            self.metrics.count_tokens(agent(), end.usage, cost);
        } else if let EventKind::ReplyEnd(end) = &event.kind {
            self.metrics.reply_ended(agent(), &end.finished_reason);
        }
    }

    /// The name of the agent that emitted an event. A sub-agent that is not in the settings counts
    /// as its parent: names that anybody can invent must not become labels.
    fn agent_name_of<'s>(&'s self, sub: Option<&'s SubAgent>) -> &'s str {
        let path = sub.and_then(|sub| sub.agent_path.as_deref());
        let name = path.and_then(|path| path.rsplit('/').next());
        name.filter(|name| self.config.agents.contains_key(*name)).unwrap_or(&self.agent)
    }

    /// A model call starts as soon as everything before it is durable.
    fn time_model(&mut self, event: &Event<'_>) {
        self.model = match &event.kind {
            EventKind::ModelCallStart(_) => ModelPhase::Started,
            EventKind::ModelCallEnd(_) => {
                if self.model != ModelPhase::NotCalled {
                    self.metrics.observe_model_call(&self.agent, self.waiting_since.elapsed());
                }
                self.waiting_since = Instant::now();
                ModelPhase::NotCalled
            }
            event_kinds!(reply content tool pending_call notice session) => match self.model {
                ModelPhase::Started => {
                    self.metrics.observe_first_token(&self.agent, self.waiting_since.elapsed());
                    ModelPhase::Streaming
                }
                ModelPhase::Streaming => ModelPhase::Streaming,
                ModelPhase::NotCalled => {
                    self.waiting_since = Instant::now();
                    ModelPhase::NotCalled
                }
            },
        };
    }
}
