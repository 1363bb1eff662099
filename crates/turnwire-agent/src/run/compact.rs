//! Sums up what no longer fits into the model's window.

use super::Run;
use crate::compact::{BYTES_PER_TOKEN, Old, oldest, size};
use crate::core::Core;
use crate::model::{Ask, Tuning};
use crate::replier::{Halt, Turn};
use futures_util::StreamExt;
use turnwire_core::event::{Hint, ModelCallEnd, ModelCallStart, TokenCounts};
use turnwire_core::{EventKind, Fields, Msg, Payload};
use turnwire_wires::request::{ToolDefinition, ToolChoice};

const INSTRUCTIONS: &str = "You sum up a conversation for the assistant that goes on with it. Keep \
what was asked for, what was decided, facts, names, numbers, and what is still to be done. Leave out \
greetings and detours. Write nothing but the summary.";

impl Run<'_> {
    /// Sums up the oldest part of the conversation where it is too long for the model. What the
    /// model would be sent then is smaller; the log has everything, and the summary as well.
    pub(super) async fn compact(&mut self, tools: &[ToolDefinition]) -> Result<(), Halt> {
        let Some(window) = self.core.window else { return Ok(()) };
        let window = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        let told: usize = self.messages().iter().map(|msg| size(msg.content())).sum();
        let tools = tools
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.text().len());
        if told + tools.sum::<usize>() <= window {
            return Ok(());
        }
        let Some(old) = oldest(&self.turn.history, &self.reply, window / 2, window) else {
            return Ok(());
        };
        let Old { reach, text } = old;
        let prefix = format!("{}summary-", self.prefix());
        // Where there is no summary, the model is asked with everything: perhaps it all fits.
        let Some((summary, usage, about)) = sum_up(self.core, self.turn, &prefix, text).await?
        else {
            return Ok(());
        };
        let start = ModelCallStart { model_name: self.core.model.name().to_owned() };
        // What it said is no part of the reply.
        let end =
            ModelCallEnd { usage, discard: vec![format!("{prefix}0")], ..ModelCallEnd::default() };
        let hint =
            Hint { block_id: prefix, source: Some(reach.source()), hint: Payload::Text(summary) };
        let mut end = self.event(end);
        end.metadata = about;
        let events = vec![self.event(start), end, self.event(hint)];
        self.commit(events).await
    }
}

/// Asks the model for a summary, which comes with its tokens and the metadata of its end.
async fn sum_up(
    core: &Core,
    turn: &Turn,
    prefix: &str,
    text: String,
) -> Result<Option<(String, TokenCounts, Fields)>, Halt> {
    let messages = [Msg::system("system", INSTRUCTIONS), Msg::user("", text)];
    let tuning = Tuning::default();
    let ask = Ask {
        reply_id: &turn.reply_id,
        block_prefix: prefix,
        messages: &messages,
        tools: &[],
        tool_choice: &ToolChoice::Auto,
        output: None,
        tuning: &tuning,
    };
    let work = async {
        let mut answer = core.model.ask(ask).await.ok()?;
        let (mut summary, mut usage) = (String::new(), TokenCounts::default());
        let mut about = Fields::default();
        while let Some(event) = answer.next().await {
            let event = event.ok()?;
            match event.kind {
                EventKind::TextBlockDelta(delta) => summary.push_str(&delta.delta),
                EventKind::ModelCallEnd(end) => (usage, about) = (end.usage, event.metadata),
                _ => {}
            }
        }
        (!summary.trim().is_empty()).then_some((summary, usage, about))
    };
    tokio::select! {
        biased;
        () = turn.stop.cancelled() => Err(Halt::Stopped),
        done = work => Ok(done),
    }
}
