//! The offline demo agent: no key, no network; the same message gives the same events.
//!
//! Words in the user's last message choose the scene:
//!
//! | word | what it shows |
//! |---|---|
//! | `weather` | calls `get_weather`, which streams its result, then answers |
//! | `approve` | calls `execute_trade`, which requires approval; continues after approval, an edit or a
//! denial |
//! | `parallel` | two tools at once, one of which requires approval |
//! | `browser` | calls `open_page`, a tool that the client executes |
//! | `image` | answers with text and a PNG in several deltas |
//! | `team` | gives part of the work to a sub-agent |
//! | `json` | answers with structured output |
//! | `fail` | the model fails in the middle; the reply ends with a typed error |
//! | `long N` | a text of N deltas of 8 bytes, at most a million |
//! | anything else | a little thinking, then a markdown answer that quotes the message |
//!
//! Only whole words count, in any case. If there are several, the first in the table wins.
//!
//! It keeps no state between calls and continues from the log. The ids of its blocks and calls derive from
//! the reply id, so it finds its earlier output in the partial message. Events that leave no trace there
//! (the start of a model call, everything of a sub-agent) get derived ids too, so they are recognised as
//! repeats.

mod block;
mod chunks;
mod pace;
mod picture;
mod quote;
mod scene_choice;
mod scenes;
mod tools;
mod writer;

use crate::compaction::describe_conversation;
use crate::replier::{AgentError, Journal, Replier, ReplyRequest, Summary};
use async_trait::async_trait;
use pace::PacedJournal;
use scene_choice::Scene;
use std::time::Duration;
use turnwire_core::event::TokenCounts;
use turnwire_core::{Msg, Role};
use writer::ReplyWriter;

/// The length of a summary.
const SUMMARY_BYTES: usize = 1000;

/// The offline demo agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoAgent {
    /// The time per delta. `None`: no delay.
    period: Option<Duration>,
}

impl DemoAgent {
    /// The default deltas per second.
    pub const DEFAULT_RATE: f64 = 40.0;

    /// The environment variable with the deltas per second.
    pub const RATE_VARIABLE: &'static str = "TURNWIRE_DEMO_RATE";

    /// Sends this many deltas per second; 0 or less: as fast as possible.
    pub fn with_rate(rate: f64) -> Self {
        // The slowest rate is one delta per hour.
        const LONGEST: Duration = Duration::from_hours(1);
        let period = (rate > 0.0).then(|| {
            Duration::try_from_secs_f64(rate.recip()).map_or(LONGEST, |period| period.min(LONGEST))
        });
        Self { period: period.filter(|period| !period.is_zero()) }
    }

    /// Uses the rate of `TURNWIRE_DEMO_RATE`.
    pub fn from_env() -> Result<Self, InvalidRate> {
        let rate = std::env::var_os(Self::RATE_VARIABLE);
        rate.map_or(Ok(Self::default()), |rate| Self::parse_rate(&rate.to_string_lossy()))
    }

    fn parse_rate(rate: &str) -> Result<Self, InvalidRate> {
        match rate.trim().parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(Self::with_rate(rate)),
            _ => Err(InvalidRate(rate.to_owned())),
        }
    }
}

impl Default for DemoAgent {
    fn default() -> Self {
        Self::with_rate(Self::DEFAULT_RATE)
    }
}

/// `TURNWIRE_DEMO_RATE` is not a valid rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} is `{0}`, which is not a valid rate; set the deltas per second, such as 40, or 0 for no \
     limit",
    variable = DemoAgent::RATE_VARIABLE
)]
pub struct InvalidRate(String);

#[async_trait]
impl Replier for DemoAgent {
    fn description(&self) -> &'static str {
        "Works offline; the same message always gets the same answer. Try: weather, approve, \
         parallel, browser, image, team, json, fail, long 100"
    }

    fn model_name(&self) -> &'static str {
        scenes::MODEL_NAME
    }

    /// The beginnings of all messages.
    async fn summarize(&self, conversation: &[Msg]) -> Result<Option<Summary>, AgentError> {
        let text = describe_conversation(conversation, SUMMARY_BYTES);
        Ok(Some(Summary { text, usage: TokenCounts::default() }))
    }

    async fn run(
        &self,
        request: ReplyRequest,
        journal: &mut dyn Journal,
    ) -> Result<(), AgentError> {
        if request.partial.as_ref().is_some_and(|partial| partial.finished_at().is_some()) {
            return Ok(());
        }
        let question = last_user_text(&request.history);
        let mut pace = PacedJournal::new(journal, request.stop.clone(), self.period);
        let mut writer = ReplyWriter::new(&request, &question, &mut pace);
        writer.start().await?;
        match Scene::from_message(&question) {
            Scene::Weather => scenes::weather(&mut writer).await?,
            Scene::Approve => scenes::approve(&mut writer).await?,
            Scene::Parallel => scenes::parallel(&mut writer).await?,
            Scene::Browser => scenes::browser(&mut writer).await?,
            Scene::Image => scenes::image(&mut writer).await?,
            Scene::Team => scenes::team(&mut writer, &question).await?,
            Scene::Json => scenes::json(&mut writer, &question).await?,
            Scene::Fail => scenes::fail(&mut writer).await?,
            Scene::Long { deltas, limit } => scenes::long(&mut writer, deltas, limit).await?,
            Scene::Introduction => scenes::introduction(&mut writer, &question).await?,
        }
        pace.flush().await
    }
}

/// The text of the user's last message.
fn last_user_text(history: &[Msg]) -> String {
    let last = history.iter().rev().find(|msg| msg.role() == Role::User);
    last.and_then(|msg| msg.text("\n")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_deltas_in_a_second() {
        assert_eq!(DemoAgent::parse_rate(" 40 "), Ok(DemoAgent::default()));
        assert_eq!(
            DemoAgent::parse_rate("0.5"),
            Ok(DemoAgent { period: Some(Duration::from_secs(2)) })
        );
        assert_eq!(DemoAgent::parse_rate("0"), Ok(DemoAgent { period: None }));
        for rate in ["", "fast", "-1", "NaN", "inf"] {
            let error = DemoAgent::parse_rate(rate).unwrap_err().to_string();
            assert!(error.contains("TURNWIRE_DEMO_RATE is `"), "{error}");
        }
    }
}
