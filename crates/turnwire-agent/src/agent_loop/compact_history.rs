//! Replaces the oldest part of a conversation by a summary when the context window is full.

use super::AgentLoop;
use crate::compaction::{BYTES_PER_TOKEN, OldPart, estimate_bytes, select_oldest};
use crate::config::LoopConfig;
use crate::model::{ModelRequest, ModelSettings};
use crate::replier::{AgentError, ReplyRequest};
use futures_util::StreamExt;
use turnwire_core::event::{Hint, ModelCallEnd, ModelCallStart, TokenCounts};
use turnwire_core::{EventKind, Fields, Msg, Payload};
use turnwire_wires::ModelOptions;
use turnwire_wires::model_request::{ToolChoice, ToolDefinition};

const SUMMARY_INSTRUCTIONS: &str = "You sum up a conversation for the assistant that goes on with it. Keep \
what was asked for, what was decided, facts, names, numbers, and what is still to be done. Leave out \
greetings and detours. Write nothing but the summary.";

impl AgentLoop<'_> {
    /// Summarizes the oldest part of the conversation if it is too long for the model. The log keeps
    /// everything, and gets the summary too.
    pub(super) async fn compact(&mut self, tools: &[ToolDefinition]) -> Result<(), AgentError> {
        let Some(window) = self.config.context_window else { return Ok(()) };
        let window = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        let told: usize =
            self.model_messages().iter().map(|msg| estimate_bytes(msg.content())).sum();
        let tools = tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.text().len());
        if told + tools.sum::<usize>() <= window {
            return Ok(());
        }
        let Some(old) = select_oldest(&self.request.history, &self.reply, window / 2, window)
        else {
            return Ok(());
        };
        let OldPart { extent: reach, text } = old;
        let prefix = format!("{}summary-", self.block_prefix());
        // Without a summary the model gets the whole conversation: perhaps it fits.
        let Some((summary, usage, about)) =
            summarize(self.config, self.request, &prefix, text).await?
        else {
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
        end.metadata = about;
        let events = vec![self.event(start), end, self.event(hint)];
        self.commit(events).await
    }
}

/// Asks the model for a summary. Returns it with its token counts and the metadata of its end event.
async fn summarize(
    config: &LoopConfig,
    request: &ReplyRequest,
    prefix: &str,
    text: String,
) -> Result<Option<(String, TokenCounts, Fields)>, AgentError> {
    let messages = [Msg::system("system", SUMMARY_INSTRUCTIONS), Msg::user("", text)];
    let tuning = ModelSettings::default();
    let ask = ModelRequest {
        reply_id: &request.reply_id,
        block_prefix: prefix,
        messages: &messages,
        tools: &[],
        tool_choice: &ToolChoice::Auto,
        output: None,
        settings: &tuning,
        options: &ModelOptions::default(),
    };
    let work = async {
        let mut answer = config.model.stream(ask).await.ok()?;
        let (mut summary, mut usage) = (String::new(), TokenCounts::default());
        let mut about = Fields::default();
        while let Some(event) = answer.next().await {
            let event = event.ok()?;
            if let EventKind::TextBlockDelta(delta) = event.kind {
                summary.push_str(&delta.delta);
            } else if let EventKind::ModelCallEnd(end) = event.kind {
                (usage, about) = (end.usage, event.metadata);
            }
        }
        (!summary.trim().is_empty()).then_some((summary, usage, about))
    };
    tokio::select! {
        biased;
        () = request.stop.cancelled() => Err(AgentError::Stopped),
        done = work => Ok(done),
    }
}
