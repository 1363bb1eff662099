//! Encodes a reply's tool calls, results, approvals and external executions.

use super::super::EXTERNAL_EXECUTION;
use super::super::approval::{ActionRequest, ApprovalDetails, ApprovalKey, Decision, Verdict};
use super::super::conversions::{
    APPROVAL_SECONDS, RESULT_CHARACTERS, fingerprint, input_object, result_status,
};
use super::super::turn_writer::{BlockOwner, Finality, TurnWriter};
use super::ReplyEncoder;
use crate::stream::Frames;
use serde::Serialize;
use turnwire_core::event::{ConfirmResult, RequireUserConfirm, UserConfirmResult, UserInterrupt};
use turnwire_core::{
    Event, Fields, Json, PermissionRule, Seq, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

/// A tool call; its input only while it streams.
pub(super) struct Call {
    pub(super) order: u64,
    name: String,
    title: Option<String>,
    pub(super) input: Option<String>,
    input_fingerprint: u64,
    state: CallState,
    progress: CallProgress,
}

/// How far a call was that came as a whole block. Other calls have frames for it.
#[derive(Default, Serialize)]
struct CallProgress {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<ToolCallState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suggested_rules: Vec<PermissionRule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    Running,
    /// Waits for an approval; the number of the request.
    Asking(u64),
    Finished,
}

/// A streaming result, up to the length that is written.
pub(super) struct OpenResult {
    pub(super) order: u64,
    name: String,
    text: String,
    /// How many more characters are written.
    characters_left: usize,
}

#[derive(Serialize)]
struct ToolUseStart<'a> {
    r#type: &'static str,
    id: &'a str,
    name: &'a str,
    tool_use_id: &'a str,
    tool_content_message: &'a str,
    input: &'a Json,
    #[serde(flatten)]
    progress: &'a CallProgress,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

#[derive(Serialize)]
struct ResultStart<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    name: &'a str,
    status: &'static str,
    content: &'a str,
    artifact: Option<&'a Json>,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

#[derive(Serialize)]
struct ApprovalStart<'a> {
    r#type: &'static str,
    approval_key: ApprovalKey,
    reply_id: &'a str,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

#[derive(Serialize)]
struct ApprovalResult<'a> {
    r#type: &'static str,
    approval_key: ApprovalKey,
    decisions: Vec<Decision>,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

#[derive(Serialize)]
struct ExternalCalls<'a> {
    r#type: &'static str,
    tool_calls: Vec<ActionRequest>,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

impl ReplyEncoder {
    pub(super) fn call_start(
        &mut self,
        turn: &mut TurnWriter,
        id: &str,
        name: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        self.decide_final(turn, false, out);
        if !self.who.is_subagent {
            turn.calls_made = true;
        }
        if self.calls.contains_key(id) {
            return;
        }
        let call = Call {
            order: self.next_order(),
            name: name.to_owned(),
            title: find_title(&event.metadata),
            input: Some(String::new()),
            input_fingerprint: 0,
            state: CallState::Running,
            progress: CallProgress::default(),
        };
        self.calls.insert(id.to_owned(), call);
    }

    /// A call that comes as a whole block.
    pub(super) fn whole_call(&mut self, turn: &mut TurnWriter, call: &ToolCall, out: &mut Frames) {
        let event = Event::new("", UserInterrupt {});
        self.call_start(turn, &call.id, &call.name, &event, out);
        if let Some(made) = self.calls.get_mut(&call.id)
            && let Some(input) = &mut made.input
        {
            input.push_str(&call.input);
            made.progress = CallProgress {
                state: (call.state != ToolCallState::Pending).then(|| call.state.clone()),
                suggested_rules: call.suggested_rules.clone(),
            };
            if call.state == ToolCallState::Finished {
                made.state = CallState::Finished;
            }
        }
        self.call_end(turn, &call.id, find_title(&call.rest), out);
    }

    /// Writes the call: its input is complete, or counts as complete.
    pub(super) fn call_end(
        &mut self,
        turn: &mut TurnWriter,
        id: &str,
        title: Option<String>,
        out: &mut Frames,
    ) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let Some(input) = call.input.take() else { return };
        let input = input_object(&input);
        call.input_fingerprint = fingerprint(&input);
        let title = title.or_else(|| call.title.take());
        let block = ToolUseStart {
            r#type: "tool_use",
            id,
            name: &call.name,
            tool_use_id: id,
            tool_content_message: title.as_deref().unwrap_or(&call.name),
            input: &input,
            progress: &call.progress,
            who: &self.who,
        };
        let index = turn.whole_block(&block, out);
        self.record_block(id, index);
    }

    pub(super) fn result_start(
        &mut self,
        turn: &mut TurnWriter,
        id: &str,
        name: &str,
        out: &mut Frames,
    ) {
        self.decide_final(turn, false, out);
        if !self.who.is_subagent {
            turn.calls_made = false;
        }
        self.call_end(turn, id, None, out);
        if self.results.contains_key(id) {
            return;
        }
        let output = OpenResult {
            order: self.next_order(),
            name: name.to_owned(),
            text: String::new(),
            characters_left: RESULT_CHARACTERS,
        };
        self.results.insert(id.to_owned(), Some(output));
    }

    pub(super) fn result_end(
        &mut self,
        turn: &mut TurnWriter,
        id: &str,
        state: &ToolResultState,
        artifact: Option<&Json>,
        out: &mut Frames,
    ) {
        let Some(output) = self.results.get_mut(id).and_then(Option::take) else { return };
        if let Some(call) = self.calls.get_mut(id) {
            call.state = CallState::Finished;
        }
        let block = ResultStart {
            r#type: "tool_result",
            tool_use_id: id,
            name: &output.name,
            status: result_status(state),
            content: &output.text,
            artifact,
            who: &self.who,
        };
        let index = turn.whole_block(&block, out);
        self.record_block(id, index);
    }

    pub(super) fn request_approval(
        &mut self,
        turn: &mut TurnWriter,
        event: &Event<'_>,
        ask: &RequireUserConfirm,
        out: &mut Frames,
    ) {
        self.decide_final(turn, false, out);
        let open: Vec<&ToolCall> =
            ask.tool_calls.iter().filter(|call| self.is_open(&call.id)).collect();
        if open.is_empty() {
            return;
        }
        turn.approvals += 1;
        let count =
            event.seq.map_or_else(|| question_count(event).unwrap_or(turn.approvals), Seq::get);
        for requested in &open {
            self.call_end(turn, &requested.id, None, out);
            if let Some(call) = self.calls.get_mut(&requested.id) {
                call.state = CallState::Asking(count);
            }
        }
        let seconds = event.metadata.get::<u64>("timeout_seconds").ok().flatten();
        let requested = ApprovalDetails::new(open, seconds.unwrap_or(APPROVAL_SECONDS));
        let approval_key = turn.approval_key(count);
        let who = &self.who;
        let block = ApprovalStart {
            r#type: "approval_request",
            approval_key,
            reply_id: &event.reply_id,
            who,
        };
        let index = turn.block_start(&block, out);
        turn.block_delta(index, &requested, out);
        turn.block_stop(index, Finality::NotText, out);
    }

    fn is_open(&self, id: &str) -> bool {
        self.calls.get(id).is_some_and(|call| call.state != CallState::Finished)
    }

    pub(super) fn confirm_results(
        &mut self,
        turn: &mut TurnWriter,
        answer: &UserConfirmResult,
        out: &mut Frames,
    ) {
        let mut key = None;
        let mut decisions = Vec::new();
        for result in &answer.confirm_results {
            let Some(call) = self.calls.get_mut(&result.tool_call.id) else { continue };
            let CallState::Asking(count) = call.state else { continue };
            key.get_or_insert(count);
            call.state = if result.confirmed { CallState::Running } else { CallState::Finished };
            decisions.push(to_decision(result, call.input_fingerprint));
        }
        if let Some(count) = key {
            let approval_key = turn.approval_key(count);
            let who = &self.who;
            turn.whole_block(
                &ApprovalResult { r#type: "approval_result", approval_key, decisions, who },
                out,
            );
        }
    }

    pub(super) fn request_execution(
        &mut self,
        turn: &mut TurnWriter,
        requested: &[ToolCall],
        out: &mut Frames,
    ) {
        self.decide_final(turn, false, out);
        let open: Vec<&ToolCall> = requested.iter().filter(|call| self.is_open(&call.id)).collect();
        for call in &open {
            self.call_end(turn, &call.id, None, out);
        }
        if !open.is_empty() {
            let tool_calls = open.into_iter().map(Into::into).collect();
            turn.whole_block(
                &ExternalCalls { r#type: EXTERNAL_EXECUTION, tool_calls, who: &self.who },
                out,
            );
        }
    }

    /// A whole result. A running one is written by its own events.
    pub(super) fn execution_result(
        &mut self,
        turn: &mut TurnWriter,
        result: &ToolResult,
        out: &mut Frames,
    ) {
        match self.results.get(&result.id) {
            Some(Some(_)) => {
                if let Some(call) = self.calls.get_mut(&result.id) {
                    call.state = CallState::Finished;
                }
            }
            Some(None) => {}
            None => {
                self.result_start(turn, &result.id, &result.name, out);
                if let Some(Some(output)) = self.results.get_mut(&result.id) {
                    output.push_text(&result.output.text(""));
                }
                let artifact = result.metadata.raw("artifact");
                self.result_end(turn, &result.id, &result.state, artifact, out);
            }
        }
    }
}

impl OpenResult {
    pub(super) fn push_text(&mut self, text: &str) {
        if self.characters_left == 0 {
            return;
        }
        for character in text.chars().take(self.characters_left) {
            self.text.push(character);
            self.characters_left -= 1;
        }
    }
}

fn to_decision(result: &ConfirmResult, print: u64) -> Decision {
    let input = &result.tool_call.input;
    let args = (!input.is_empty()).then(|| input_object(input));
    let verdict = match args.filter(|args| fingerprint(args) != print) {
        _ if !result.confirmed => Verdict::Reject,
        Some(args) => Verdict::Edit { args },
        None => Verdict::Approve,
    };
    let tool_use_id = Some(result.tool_call.id.clone());
    Decision { tool_use_id, verdict, message: result.rest.get("message").ok().flatten() }
}

/// The count in the key that the request had in the stream it was decoded from.
fn question_count(event: &Event<'_>) -> Option<u64> {
    let key = event.metadata.get::<String>("approval_key").ok().flatten()?;
    Some(ApprovalKey::parse(&key)?.count)
}

/// A tool's title, which the protocol shows instead of its name.
pub(super) fn find_title(fields: &Fields) -> Option<String> {
    fields.get::<String>("title").ok().flatten().filter(|title| !title.is_empty())
}
