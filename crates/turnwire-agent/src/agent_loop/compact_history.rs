//! Replaces the oldest part of a conversation by a summary when the context window is full.

use super::AgentLoop;
use crate::compaction::{
    BYTES_PER_TOKEN, OldPart, describe_conversation, estimate_bytes, select_oldest,
};
use crate::config::LoopConfig;
use crate::model::{ModelError, ModelRequest, ModelSettings};
use crate::replier::{AgentError, Summary};
use futures_util::StreamExt;
use turnwire_core::event::{Hint, ModelCallEnd, ModelCallStart, TokenCounts};
use turnwire_core::{EventKind, Fields, Msg, Payload};
use turnwire_wires::ModelOptions;
use turnwire_wires::model_request::{ToolChoice, ToolDefinition};

const SUMMARY_INSTRUCTIONS: &str = "You sum up a conversation for the assistant that goes on with it. Keep \
what was asked for, what was decided, facts, names, numbers, and what is still to be done. Leave out \
greetings and detours. Write nothing but the summary.";

impl AgentLoop<'_> {
    /// The most tokens that the model gets: the setting, or less if the client requests it.
    fn context_window(&self) -> Option<u32> {
        let threshold = self.config.compact_threshold(&self.client);
        self.config.context_window.into_iter().chain(threshold).min()
    }

    /// Summarizes the oldest part of the conversation if it is too long for the model. The log keeps
    /// everything, and gets the summary too.
    pub(super) async fn compact(&mut self, tools: &[ToolDefinition]) -> Result<(), AgentError> {
        let window = window_bytes(self.context_window());
        let messages: usize =
            self.model_messages().iter().map(|msg| estimate_bytes(msg.content())).sum();
        let tools = tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.text().len());
        if messages + tools.sum::<usize>() <= window {
            return Ok(());
        }
        let Some(old) = select_oldest(&self.request.history, &self.reply, window / 2, window)
        else {
            return Ok(());
        };
        let OldPart { extent: reach, text } = old;
        let prefix = format!("{}summary-", self.block_prefix());
        let summary = tokio::select! {
            biased;
            () = self.request.stop.cancelled() => return Err(AgentError::Stopped),
            summary = summarize(self.config, &self.request.reply_id, &prefix, text) => summary,
        };
        // Without a summary the model gets the whole conversation: perhaps it fits.
        let Ok(Some(ModelSummary { text: summary, usage, metadata })) = summary else {
            return Ok(());
        };
        let start = ModelCallStart { model_name: self.config.model.name().to_owned() };
        // The summary is not content of the reply.
        let end =
            ModelCallEnd { usage, discard: vec![format!("{prefix}0")], ..ModelCallEnd::default() };
        let hint = Hint {
            block_id: prefix,
            source: Some(reach.to_source()),
            hint: Payload::Text(summary),
        };
        let mut end = self.event(end);
        end.metadata = metadata;
        let events = vec![self.event(start), end, self.event(hint)];
        self.commit(events).await
    }
}

/// A summary that the model has written.
struct ModelSummary {
    text: String,
    usage: TokenCounts,
    /// The metadata of the end event.
    metadata: Fields,
}

/// Asks the model for a summary. `None`: it has written nothing.
async fn summarize(
    config: &LoopConfig,
    reply_id: &str,
    prefix: &str,
    text: String,
) -> Result<Option<ModelSummary>, ModelError> {
    let messages = [Msg::system("system", SUMMARY_INSTRUCTIONS), Msg::user("", text)];
    let tuning = ModelSettings::default();
    let ask = ModelRequest {
        reply_id,
        block_prefix: prefix,
        messages: &messages,
        tools: &[],
        tool_choice: &ToolChoice::Auto,
        output: None,
        settings: &tuning,
        options: &ModelOptions::default(),
    };
    let mut answer = config.model.stream(ask).await?;
    let (mut text, mut usage) = (String::new(), TokenCounts::default());
    let mut metadata = Fields::default();
    while let Some(event) = answer.next().await {
        let event = event?;
        if let EventKind::TextBlockDelta(delta) = event.kind {
            text.push_str(&delta.delta);
        } else if let EventKind::ModelCallEnd(end) = event.kind {
            (usage, metadata) = (end.usage, event.metadata);
        }
    }
    Ok((!text.trim().is_empty()).then_some(ModelSummary { text, usage, metadata }))
}

/// Summarizes a conversation that is not a reply of this agent.
pub(crate) async fn summarize_conversation(
    config: &LoopConfig,
    messages: &[Msg],
) -> Result<Option<Summary>, AgentError> {
    let text = describe_conversation(messages, window_bytes(config.context_window));
    let summary = summarize(config, "summary", "summary-", text).await;
    let summary = summary.map_err(|error| AgentError::Failed(error.to_string()))?;
    Ok(summary.map(|ModelSummary { text, usage, .. }| Summary { text, usage }))
}

/// The context window in bytes of text.
fn window_bytes(tokens: Option<u32>) -> usize {
    let tokens = tokens.map_or(usize::MAX, |tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    tokens.saturating_mul(BYTES_PER_TOKEN)
}
