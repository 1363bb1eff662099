//! Decides the next step of a reply, from the log alone. The agent loop executes it.
//!
//! Input: the reply so far, the progress of its model calls, the tools and the rules. It has no effects,
//! reads no clock and keeps no state, so a reply that waited for a day, or whose process died inside a
//! tool, continues from here.

use crate::permission::{Permissions, check_input};
use crate::schema::AnswerError;
use crate::structured::{is_correction_hint, was_corrected};
use crate::tool::{Executor, InputKind, ToolSpec};
use turnwire_core::{
    Behavior, ContentBlock, Event, EventKind, FinishedReason, HintBlock, Json, ModelCalls, Msg,
    PermissionRule, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

/// Everything that the decision depends on.
pub struct ReplyState<'s> {
    /// The reply so far.
    pub reply: &'s Msg,
    /// The progress of its model calls.
    pub model_calls: &'s ModelCalls,
    /// Finds a tool by its name.
    pub find_tool: &'s dyn Fn(&str) -> Option<&'s ToolSpec>,
    /// The agent's permission rules.
    pub permissions: &'s Permissions,
    /// Rules that users accepted in this session.
    pub accepted_rules: &'s [PermissionRule],
    /// The answer that the reply waited for, if it is known.
    pub input: Option<&'s Event<'static>>,
    /// The limit of model calls in one reply.
    pub max_iterations: u32,
    /// The state of the answer, if it must match a JSON Schema.
    pub answer: AnswerCheck<'s>,
    /// Whether the last model call saw everything and produced nothing.
    pub is_model_silent: bool,
    /// Whether others added hints to the reply that no model call has seen, anywhere in it.
    pub has_unread_hints: bool,
}

/// The state of an answer.
#[derive(Debug, Clone, Copy)]
pub enum AnswerCheck<'s> {
    /// There is no schema.
    Unconstrained,
    /// Not checked yet.
    Unchecked,
    /// The result of the check.
    Checked(&'s Result<Json, AnswerError>),
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Discard the blocks of an interrupted model call.
    DiscardModelCall(Vec<String>),
    /// Handle tool calls.
    HandleCalls(Vec<(ToolCall, CallAction)>),
    /// Call the model: the last time without tools, because the limit is reached.
    CallModel(OfferedTools),
    /// Wait for a user or the client.
    Wait,
    /// Check the answer against its schema.
    CheckAnswer,
    /// Fail: checking the answer costs too much.
    AnswerTooExpensive(String),
    /// Tell the model why its answer does not match the schema, and call it again.
    CorrectAnswer(String),
    /// Fail: the answer does not match, even after the correction.
    InvalidAnswer(String),
    /// End the reply.
    EndReply(FinishedReason),
    /// Nothing: the reply has ended.
    Done,
}

/// Whether the model gets tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedTools {
    /// All tools.
    All,
    /// No tools: this is the last call.
    None,
}

/// How to handle a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAction {
    /// Run it.
    Run(ResultStarted),
    /// Send it to the client.
    SendToClient,
    /// Ask the user for approval, with rules that the user may accept.
    AskUser(Vec<PermissionRule>),
    /// Give it a result that says why it did not run.
    Refuse(ToolResultState, String),
    /// Interrupt it: it had started when the process died, and must not run again.
    Interrupt,
}

/// Whether the start of a call's result is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultStarted {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// Decides the next step.
pub fn next_step(state: &ReplyState<'_>) -> Step {
    if state.reply.finished_at().is_some() {
        return Step::Done;
    }
    if let Some(blocks) = &state.model_calls.open_blocks {
        return Step::DiscardModelCall(blocks.clone());
    }
    let mut todos = Vec::new();
    let mut waits = false;
    let has_failed = state.model_calls.last_reason.as_ref().is_some_and(is_failure);
    for (call, result) in state.reply.tool_calls() {
        let is_done = |result: &ToolResult| {
            result.finished_at.is_some() || call.state == ToolCallState::Finished
        };
        if result.is_some_and(is_done) {
            continue;
        }
        let todo = match result {
            // A call of a failed model call may be incomplete.
            None if has_failed => Some(CallAction::Refuse(
                ToolResultState::Interrupted,
                "The model call failed before this call ran.".to_owned(),
            )),
            result => call_action(state, call, result),
        };
        match todo {
            Some(todo) => todos.push((call.clone(), todo)),
            None => waits = true,
        }
    }
    if !todos.is_empty() {
        return Step::HandleCalls(todos);
    }
    if waits {
        return Step::Wait;
    }
    let ModelCalls { ended, last_reason: reason, tool_calls: made, .. } = state.model_calls;
    let unread = unread_hint(state.reply).filter(|_| !state.is_model_silent);
    let is_asked = !made.is_empty() || unread.is_some() || state.has_unread_hints;
    if *ended == 0 || (is_asked && !has_failed) {
        return match *ended {
            ended if ended < state.max_iterations => Step::CallModel(OfferedTools::All),
            ended if ended == state.max_iterations => Step::CallModel(OfferedTools::None),
            // The round of the correction does not count.
            _ if unread.is_some_and(is_correction_hint) => Step::CallModel(OfferedTools::None),
            _ => Step::EndReply(FinishedReason::ExceedMaxIters),
        };
    }
    if matches!(reason, None | Some(FinishedReason::Completed | FinishedReason::ToolCalls)) {
        match state.answer {
            AnswerCheck::Unconstrained | AnswerCheck::Checked(Ok(_)) => {}
            AnswerCheck::Unchecked => return Step::CheckAnswer,
            AnswerCheck::Checked(Err(AnswerError::TooExpensive(why))) => {
                return Step::AnswerTooExpensive(why.clone());
            }
            AnswerCheck::Checked(Err(AnswerError::Mismatch(why))) if was_corrected(state.reply) => {
                return Step::InvalidAnswer(why.clone());
            }
            AnswerCheck::Checked(Err(AnswerError::Mismatch(why))) => {
                return Step::CorrectAnswer(why.clone());
            }
        }
    }
    Step::EndReply(match reason {
        _ if *ended > state.max_iterations => FinishedReason::ExceedMaxIters,
        // The model announced tool calls, but made none.
        None | Some(FinishedReason::ToolCalls) => FinishedReason::Completed,
        Some(reason) => reason.clone(),
    })
}

/// The hint at the end of a reply, which the model has not read.
fn unread_hint(reply: &Msg) -> Option<&HintBlock> {
    let Some(ContentBlock::Hint(hint)) = reply.content().last() else { return None };
    Some(hint)
}

/// Whether a model call that ended like this cannot be continued.
fn is_failure(reason: &FinishedReason) -> bool {
    matches!(
        reason,
        FinishedReason::Error
            | FinishedReason::Truncated
            | FinishedReason::Refusal
            | FinishedReason::ContentFilter
    )
}

/// How to handle a call without a finished result; `None` while it waits.
fn call_action(
    state: &ReplyState<'_>,
    call: &ToolCall,
    result: Option<&ToolResult>,
) -> Option<CallAction> {
    let spec = (state.find_tool)(&call.name);
    match &call.state {
        ToolCallState::Asking | ToolCallState::Submitted => None,
        ToolCallState::Finished if result.is_none() => {
            Some(CallAction::Refuse(ToolResultState::Denied, denial_text(state.input, &call.id)))
        }
        ToolCallState::Pending
        | ToolCallState::Allowed
        | ToolCallState::Finished
        | ToolCallState::Other(_) => Some(match (spec, result) {
            (Some(spec), Some(_)) if spec.resumes => CallAction::Run(ResultStarted::Yes),
            (Some(spec), Some(result)) if spec.idempotent && result.output.is_empty() => {
                CallAction::Run(ResultStarted::Yes)
            }
            (_, Some(_)) => CallAction::Interrupt,
            (None, None) => {
                let why = format!("There is no tool \"{}\".", call.name);
                CallAction::Refuse(ToolResultState::Error, why)
            }
            (Some(spec), None) => apply_rules(state, call, spec),
        }),
    }
}

/// Tells the model why a call was not allowed: an expired question is not a decision.
fn denial_text(input: Option<&Event<'_>>, call: &str) -> String {
    let answer = input.and_then(|event| {
        let EventKind::UserConfirmResult(answer) = &event.kind else { return None };
        let result = answer.confirm_results.iter().find(|one| one.tool_call.id == call)?;
        Some((result, is_timeout(event)))
    });
    let Some((result, is_expired)) = answer else { return "This call was not allowed.".to_owned() };
    if is_expired {
        return "Nobody answered in time: the question expired. The call has not run.".to_owned();
    }
    let reason: Option<String> = result.rest.get("message").ok().flatten();
    let reason = reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    let text = "The user did not allow this call.";
    reason.map_or_else(|| text.to_owned(), |reason| format!("{text} Reason: {reason}"))
}

/// Whether the server gave this answer because nobody else did in time.
pub(crate) fn is_timeout(answer: &Event<'_>) -> bool {
    answer.metadata.get::<String>("reason").ok().flatten().as_deref() == Some("timeout")
}

/// Applies the permission rules to a call that has not started.
fn apply_rules(state: &ReplyState<'_>, call: &ToolCall, spec: &ToolSpec) -> CallAction {
    if spec.input_kind == InputKind::Json
        && let Some(why) = invalid_input_reason(&call.input)
    {
        return CallAction::Refuse(ToolResultState::Error, why);
    }
    let is_allowed = call.state == ToolCallState::Allowed;
    match state.permissions.decide(state.accepted_rules, spec, &call.input) {
        Behavior::Deny => {
            let why = format!("The rules do not allow this call of {}.", call.name);
            CallAction::Refuse(ToolResultState::Denied, why)
        }
        // An unreadable rule allows nothing.
        Behavior::Ask | Behavior::Other(_) if !is_allowed => {
            CallAction::AskUser(Permissions::suggest(spec, &call.input))
        }
        Behavior::Allow | Behavior::Ask | Behavior::Passthrough | Behavior::Other(_) => {
            match spec.executor {
                Executor::Client => CallAction::SendToClient,
                Executor::Agent => CallAction::Run(ResultStarted::No),
            }
        }
    }
}

/// Why a text is not a valid tool input.
fn invalid_input_reason(input: &str) -> Option<String> {
    let why = check_input(input).err()?;
    Some(format!("Invalid tool input: it is {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structured::AnswerSchema;

    const START: &str = r#""type":"MODEL_CALL_START""#;
    const END: &str = r#""type":"MODEL_CALL_END""#;

    fn hint(id: &str, source: &str) -> String {
        format!(r#""type":"HINT_BLOCK","block_id":"{id}","source":"{source}","hint":"x""#)
    }

    fn says(id: &str, text: &str) -> [String; 2] {
        let block = format!(r#""block_id":"{id}""#);
        let delta = serde_json::to_string(text).unwrap();
        [
            format!(r#""type":"TEXT_BLOCK_START",{block}"#),
            format!(r#""type":"TEXT_BLOCK_DELTA",{block},"delta":{delta}"#),
        ]
    }

    /// The next step after these events.
    fn after(events: &[String], shape: Option<&AnswerSchema>, limit: u32, is_silent: bool) -> Step {
        let (mut reply, mut calls) = (Msg::reply("r", "a"), ModelCalls::default());
        for line in events {
            let event = format!(r#"{{"reply_id":"r",{line}}}"#);
            let event = Event::from_json(&event).unwrap();
            reply.append_event(&event).unwrap();
            calls.observe(&event);
        }
        let read = shape.map(|shape| shape.parse_reply(&reply));
        next_step(&ReplyState {
            reply: &reply,
            model_calls: &calls,
            find_tool: &|_| None,
            permissions: &Permissions::default(),
            accepted_rules: &[],
            input: None,
            max_iterations: limit,
            answer: read.as_ref().map_or(AnswerCheck::Unconstrained, AnswerCheck::Checked),
            is_model_silent: is_silent,
            has_unread_hints: false,
        })
    }

    fn events(parts: &[&[String]]) -> Vec<String> {
        parts.concat()
    }

    #[test]
    fn the_model_is_told_why_a_call_was_not_allowed_and_an_expired_question_is_no_decision() {
        let text_of_answer = |metadata: &str, message: &str| {
            let event = format!(
                r#"{{"type":"USER_CONFIRM_RESULT","reply_id":"r","metadata":{metadata},"confirm_results":
                [{{"confirmed":false,"tool_call":{{"type":"tool_call","id":"c","name":"t","input":""}}{message}}}]}}"#
            );
            let event = Event::from_json(&event).unwrap().into_owned();
            (denial_text(Some(&event), "c"), denial_text(Some(&event), "another"))
        };
        let unknown = "This call was not allowed.";
        assert_eq!(denial_text(None, "c"), unknown);
        let denied = ("The user did not allow this call.".to_owned(), unknown.to_owned());
        assert_eq!(text_of_answer("{}", ""), denied);
        let reason = r#","message":" too expensive ""#;
        assert_eq!(
            text_of_answer("{}", reason).0,
            "The user did not allow this call. Reason: too expensive"
        );
        let expired = text_of_answer(r#"{"reason":"timeout"}"#, "").0;
        assert_eq!(expired, "Nobody answered in time: the question expired. The call has not run.");
    }

    #[test]
    fn a_hint_that_nobody_has_answered_is_read() {
        let start = [START.to_owned()];
        let end = [END.to_owned()];
        let after_hint = events(&[&start, &says("a", "Hi."), &end, &[hint("h", "team")]]);
        assert_eq!(after(&after_hint, None, 3, false), Step::CallModel(OfferedTools::All));
        assert_eq!(after(&after_hint, None, 1, false), Step::CallModel(OfferedTools::None));
        assert_eq!(
            after(&after_hint, None, 0, false),
            Step::EndReply(FinishedReason::ExceedMaxIters)
        );
        assert_eq!(after(&after_hint, None, 3, true), Step::EndReply(FinishedReason::Completed));
        let answered = events(&[&after_hint, &start, &says("b", "I see."), &end]);
        assert_eq!(after(&answered, None, 3, false), Step::EndReply(FinishedReason::Completed));
    }

    #[test]
    fn an_invalid_answer_is_corrected_once_even_at_the_limit() {
        let shape = AnswerSchema::new(&Json::parse(r#"{"type":"integer"}"#).unwrap()).unwrap();
        let shape = Some(&shape);
        let start = [START.to_owned()];
        let end = [END.to_owned()];
        let good = events(&[&start, &says("a", "3"), &end]);
        assert_eq!(after(&good, shape, 3, false), Step::EndReply(FinishedReason::Completed));
        let bad = events(&[&start, &says("a", "three"), &end]);
        assert!(matches!(after(&bad, shape, 3, false), Step::CorrectAnswer(_)));
        let after_hint = events(&[&bad, &[hint("h", "structured_output")]]);
        assert_eq!(after(&after_hint, shape, 3, false), Step::CallModel(OfferedTools::All));
        assert_eq!(after(&after_hint, shape, 0, false), Step::CallModel(OfferedTools::None));
        assert!(matches!(after(&after_hint, shape, 0, true), Step::InvalidAnswer(_)));
        let worse = events(&[&after_hint, &start, &says("b", "drei"), &end]);
        assert!(matches!(after(&worse, shape, 3, false), Step::InvalidAnswer(_)));
        let better = events(&[&after_hint, &start, &says("b", "3"), &end]);
        assert_eq!(after(&better, shape, 3, false), Step::EndReply(FinishedReason::Completed));
    }

    #[test]
    fn a_refusal_is_not_checked_against_the_schema() {
        let shape = AnswerSchema::new(&Json::parse(r#"{"type":"integer"}"#).unwrap()).unwrap();
        for reason in ["refusal", "length", "error", "content_filter", "truncated"] {
            let end = format!(r#"{END},"finished_reason":"{reason}""#);
            let refused = events(&[&[START.to_owned()], &says("a", "No."), &[end]]);
            let expected = Step::EndReply(FinishedReason::from(reason));
            assert_eq!(after(&refused, Some(&shape), 3, false), expected);
        }
    }
}
