//! The tools of the demo: their results, and how they continue after a crash.

use super::chunks::Chunks;
use super::quote;
use super::writer::ReplyWriter;
use crate::permission::Permissions;
use crate::replier::AgentError;
use crate::tool::ToolSpec;
use serde::Deserialize;
use turnwire_core::event::{
    RequireExternalExecution, RequireUserConfirm, ToolResultEnd, ToolResultStart,
    ToolResultTextDelta,
};
use turnwire_core::{
    Behavior, Fields, PermissionRule, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoTool {
    /// Idempotent.
    GetWeather,
    /// Requires approval, and never runs twice.
    ExecuteTrade,
    /// Executed by the client.
    OpenPage,
    /// A sub-agent.
    AskResearcher,
}

impl DemoTool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GetWeather => "get_weather",
            Self::ExecuteTrade => "execute_trade",
            Self::OpenPage => "open_page",
            Self::AskResearcher => "ask_researcher",
        }
    }

    /// Its title for people, as a field of the call.
    pub(super) fn title(self) -> Fields {
        let title = match self {
            Self::GetWeather => "Look up the weather",
            Self::ExecuteTrade => "Buy shares",
            Self::OpenPage => "Open a page",
            Self::AskResearcher => "Ask the researcher",
        };
        [("title", title)].into_iter().collect()
    }
}

/// A tool call.
#[derive(Debug)]
pub(super) struct DemoCall {
    pub(super) id: String,
    pub(super) tool: DemoTool,
    pub(super) input: String,
}

impl DemoCall {
    /// The call as a block of an approval request.
    fn to_tool_call(&self, state: ToolCallState, suggested_rules: Vec<PermissionRule>) -> ToolCall {
        let call = ToolCall::new(self.id.clone(), self.tool.name(), self.input.clone());
        ToolCall { state, suggested_rules, rest: self.tool.title(), ..call }
    }

    /// The tool as the permission rules see it.
    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new(self.tool.name(), "", serde_json::Map::new().into());
        ToolSpec { behavior: Behavior::Ask, ..spec }
    }
}

/// The outcome of a call.
pub(super) enum ToolOutcome {
    /// It waits for a user or the client.
    Waits,
    Done(String),
    Failed(String),
    Denied,
    /// Nobody answered in time.
    Expired,
    Interrupted,
}

impl From<&ToolResult> for ToolOutcome {
    fn from(result: &ToolResult) -> Self {
        let text = || result.output.text("\n");
        match &result.state {
            ToolResultState::Success | ToolResultState::Running => Self::Done(text()),
            ToolResultState::Error | ToolResultState::Other(_) => Self::Failed(text()),
            ToolResultState::Interrupted => Self::Interrupted,
            ToolResultState::Denied if text() == EXPIRED => Self::Expired,
            ToolResultState::Denied => Self::Denied,
        }
    }
}

pub(super) const WEATHER: &str =
    "Paris, now: 18 °C, light rain.\nTonight: 13 °C, clear.\nTomorrow: 22 °C, sunny.";

const DENIED: &str = "The user did not allow this call. It has not run.";

const EXPIRED: &str = "Nobody answered in time: the question expired. It has not run.";

const INTERRUPTED: &str = "Interrupted: nobody knows whether this has run. It is not run again.";

/// The price of a share, in cents.
const PRICE: u64 = 12_50;

#[derive(Deserialize)]
struct Trade {
    symbol: String,
    quantity: u32,
}

impl ReplyWriter<'_, '_> {
    /// Idempotent: continues after a crash.
    pub(super) async fn get_weather(&mut self, call: &DemoCall) -> Result<(), AgentError> {
        self.result(call, WEATHER, ToolResultState::Success).await
    }

    /// Requires approval. Once started it never starts again, because its progress is unknown after a
    /// crash.
    pub(super) async fn execute_trade(
        &mut self,
        call: &DemoCall,
    ) -> Result<ToolOutcome, AgentError> {
        let result = self.known_result(call);
        if let Some(over) = result.filter(|result| result.finished_at.is_some()) {
            return Ok(over.into());
        }
        let known = self.known_call(call);
        match (known.map_or(&ToolCallState::Pending, |known| &known.state), result) {
            (ToolCallState::Asking, _) => Ok(ToolOutcome::Waits),
            // Only a denial finishes a call whose result has not ended.
            (ToolCallState::Finished, _) => {
                // A text that a crash interrupted is continued.
                let begun = result.map(|begun| begun.output.text("")).unwrap_or_default();
                let is_expired =
                    if begun.is_empty() { self.is_expired } else { EXPIRED.starts_with(&begun) };
                let text = if is_expired { EXPIRED } else { DENIED };
                self.result(call, text, ToolResultState::Denied).await?;
                Ok(if is_expired { ToolOutcome::Expired } else { ToolOutcome::Denied })
            }
            (_, Some(begun)) => self.interrupt(call, begun).await,
            (ToolCallState::Allowed, None) => {
                self.trade(call, known.map_or(&*call.input, |known| &known.input)).await
            }
            (ToolCallState::Pending | ToolCallState::Submitted | ToolCallState::Other(_), None) => {
                if self.is_accepted(call) {
                    self.trade(call, &call.input).await
                } else {
                    self.ask_user(call).await
                }
            }
        }
    }

    /// The client executes it. Its whole result is in the message.
    pub(super) async fn open_page(&mut self, call: &DemoCall) -> Result<ToolOutcome, AgentError> {
        if let Some(result) = self.known_result(call) {
            return Ok(result.into());
        }
        let is_submitted = |known: &ToolCall| known.state == ToolCallState::Submitted;
        if !self.known_call(call).is_some_and(is_submitted) {
            let tool_calls = vec![call.to_tool_call(ToolCallState::Submitted, Vec::new())];
            self.emit(RequireExternalExecution { tool_calls }).await?;
        }
        Ok(ToolOutcome::Waits)
    }

    /// Whether a rule that the user accepted covers the call.
    fn is_accepted(&self, call: &DemoCall) -> bool {
        let rules = Permissions::default();
        rules.decide(self.accepted_rules, &call.spec(), &call.input) == Behavior::Allow
    }

    async fn ask_user(&mut self, call: &DemoCall) -> Result<ToolOutcome, AgentError> {
        let rules = Permissions::suggest(&call.spec(), &call.input);
        let tool_calls = vec![call.to_tool_call(ToolCallState::Asking, rules)];
        self.emit(RequireUserConfirm { tool_calls }).await?;
        Ok(ToolOutcome::Waits)
    }

    /// Executes the trade with the approved input.
    async fn trade(&mut self, call: &DemoCall, input: &str) -> Result<ToolOutcome, AgentError> {
        match serde_json::from_str::<Trade>(input) {
            Ok(Trade { symbol, quantity }) => {
                let (symbol, cents) = (quote::on_one_line(&symbol), PRICE * u64::from(quantity));
                let (price, total) = (money(PRICE), money(cents));
                let done = format!("Bought {quantity} {symbol} at {price} each, {total} in all.");
                self.result(call, &done, ToolResultState::Success).await?;
                Ok(ToolOutcome::Done(done))
            }
            Err(error) => {
                let failed = format!("The input does not fit: {error}.");
                self.result(call, &failed, ToolResultState::Error).await?;
                Ok(ToolOutcome::Failed(failed))
            }
        }
    }

    async fn interrupt(
        &mut self,
        call: &DemoCall,
        begun: &ToolResult,
    ) -> Result<ToolOutcome, AgentError> {
        let tool_call_id = || call.id.clone().into();
        let mut events = Vec::new();
        if !begun.output.text("").ends_with(INTERRUPTED) {
            let delta = INTERRUPTED.into();
            events.push(self.event(ToolResultTextDelta { tool_call_id: tool_call_id(), delta }));
        }
        let state = ToolResultState::Interrupted;
        events.push(self.event(ToolResultEnd { tool_call_id: tool_call_id(), state }));
        self.pace.commit_together(events).await?;
        Ok(ToolOutcome::Interrupted)
    }

    /// Writes a result, or the rest of it.
    pub(super) async fn result(
        &mut self,
        call: &DemoCall,
        text: &str,
        state: ToolResultState,
    ) -> Result<(), AgentError> {
        let known = match self.known_result(call) {
            Some(known) if known.finished_at.is_some() => return Ok(()),
            Some(known) => known.output.text("").len(),
            None => {
                self.start_result(call).await?;
                0
            }
        };
        for delta in Chunks::Words(text.to_owned()).remaining_after(known) {
            let (tool_call_id, delta) = (call.id.clone().into(), delta.into());
            self.emit_delta(ToolResultTextDelta { tool_call_id, delta }).await?;
        }
        self.end_result(call, state).await
    }

    pub(super) async fn end_result(
        &mut self,
        call: &DemoCall,
        state: ToolResultState,
    ) -> Result<(), AgentError> {
        self.emit(ToolResultEnd { tool_call_id: call.id.clone().into(), state }).await
    }

    /// Commits the start of a result before the tool runs.
    pub(super) async fn start_result(&mut self, call: &DemoCall) -> Result<(), AgentError> {
        let (tool_call_id, tool_call_name) = (call.id.clone().into(), call.tool.name().into());
        self.emit(ToolResultStart { tool_call_id, tool_call_name }).await?;
        self.pace.flush().await
    }
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
