//! What to do next, from the log alone.
//!
//! Given the reply as far as it goes, how far its model calls have come, the tools and the rules, this
//! says what happens next. It does nothing itself, reads no clock, and remembers nothing: so a reply that
//! waited for a person for a day, or whose process died in the middle of a tool, goes on from here.

use crate::permission::{Permissions, check_input};
use crate::schema::AnswerError;
use crate::structured::{is_correction_hint, was_corrected};
use crate::tool::{Executor, ToolSpec};
use turnwire_core::{
    Behavior, ContentBlock, FinishedReason, HintBlock, Json, ModelCalls, Msg, Payload,
    PermissionRule, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

/// What there is to go by.
pub struct ReplyState<'s> {
    /// The reply as far as it goes.
    pub reply: &'s Msg,
    /// How far its model calls have come.
    pub model_calls: &'s ModelCalls,
    /// Finds a tool by its name.
    pub find_tool: &'s dyn Fn(&str) -> Option<&'s ToolSpec>,
    /// The agent's rules.
    pub permissions: &'s Permissions,
    /// Rules that people accepted in this session.
    pub accepted_rules: &'s [PermissionRule],
    /// How many model calls one reply may take.
    pub max_iterations: u32,
    /// What is known of the answer, where it must match a JSON Schema.
    pub answer: AnswerCheck<'s>,
    /// Whether the model was asked with everything that is there, and had nothing to say.
    pub is_model_silent: bool,
    /// Whether others have put hints into the reply that the model was not asked with. Wherever they
    /// stand, it has not read them.
    pub has_unread_hints: bool,
}

/// What is known of an answer.
#[derive(Debug, Clone, Copy)]
pub enum AnswerCheck<'s> {
    /// It may be anything.
    Unconstrained,
    /// Whether it matches its schema is not known yet.
    Unchecked,
    /// It was checked.
    Checked(&'s Result<Json, AnswerError>),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A model call was broken off: its blocks are taken back.
    DiscardModelCall(Vec<String>),
    /// Something is to be done about calls.
    HandleCalls(Vec<(ToolCall, CallAction)>),
    /// The model is asked; the last time without tools, because it was asked as often as it may be.
    CallModel(OfferedTools),
    /// Somebody is to answer.
    Wait,
    /// The answer is to be checked against its schema.
    CheckAnswer,
    /// To check it costs too much: the reply fails.
    AnswerTooExpensive(String),
    /// The answer does not have its form: the model is told why, and asked again.
    CorrectAnswer(String),
    /// It does not have it although the model was told so: the reply fails.
    InvalidAnswer(String),
    /// The reply ends.
    EndReply(FinishedReason),
    /// It has ended.
    Done,
}

/// Whether a model gets tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedTools {
    /// It does.
    All,
    /// It does not: this is its last word.
    None,
}

/// What is to be done about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAction {
    /// It runs.
    Run(ResultStarted),
    /// The client executes it.
    SendToClient,
    /// A person is asked, who may accept these rules.
    AskUser(Vec<PermissionRule>),
    /// It gets a result that says why it did not run.
    Refuse(ToolResultState, String),
    /// It had begun when the process died, and may not run again.
    Interrupt,
}

/// Whether the start of a call's result is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultStarted {
    /// It is.
    Yes,
    /// Not yet.
    No,
}

/// What to do next.
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
            // What a model asked for that then failed may not be what it wanted.
            None if has_failed => Some(CallAction::Refuse(
                ToolResultState::Interrupted,
                "The model broke off before this call was made.".to_owned(),
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
            // The one round in which an answer is put right is not counted.
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
        // It said that it wanted tools, and called none.
        None | Some(FinishedReason::ToolCalls) => FinishedReason::Completed,
        Some(reason) => reason.clone(),
    })
}

/// The hint at the end of a reply, which the model has not answered yet.
fn unread_hint(reply: &Msg) -> Option<&HintBlock> {
    match reply.content().last() {
        Some(ContentBlock::Hint(hint)) => Some(hint),
        _ => None,
    }
}

/// Whether a model call that ended like this is no basis to go on from.
fn is_failure(reason: &FinishedReason) -> bool {
    matches!(
        reason,
        FinishedReason::Error
            | FinishedReason::Truncated
            | FinishedReason::Refusal
            | FinishedReason::ContentFilter
    )
}

/// What is to be done about a call that has no end yet; nothing while it waits for somebody.
fn call_action(
    state: &ReplyState<'_>,
    call: &ToolCall,
    result: Option<&ToolResult>,
) -> Option<CallAction> {
    let spec = (state.find_tool)(&call.name);
    match &call.state {
        ToolCallState::Asking | ToolCallState::Submitted => None,
        // A person said no.
        ToolCallState::Finished if result.is_none() => Some(CallAction::Refuse(
            ToolResultState::Denied,
            "The user did not allow this call.".to_owned(),
        )),
        _ => Some(match (spec, result) {
            (Some(spec), Some(_)) if spec.resumes => CallAction::Run(ResultStarted::Yes),
            (Some(spec), Some(result)) if spec.idempotent && is_empty(&result.output) => {
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

/// What the rules say of a call that has not begun.
fn apply_rules(state: &ReplyState<'_>, call: &ToolCall, spec: &ToolSpec) -> CallAction {
    if let Some(why) = invalid_input_reason(&call.input) {
        return CallAction::Refuse(ToolResultState::Error, why);
    }
    let is_allowed = call.state == ToolCallState::Allowed;
    match state.permissions.decide(state.accepted_rules, spec, &call.input) {
        Behavior::Deny => {
            let why = format!("The rules do not allow this call of {}.", call.name);
            CallAction::Refuse(ToolResultState::Denied, why)
        }
        // A rule that cannot be read is no permission.
        Behavior::Ask | Behavior::Other(_) if !is_allowed => {
            CallAction::AskUser(Permissions::suggest(spec, &call.input))
        }
        _ if spec.executor == Executor::Client => CallAction::SendToClient,
        _ => CallAction::Run(ResultStarted::No),
    }
}

/// Why a text is no input of a tool.
fn invalid_input_reason(input: &str) -> Option<String> {
    let why = check_input(input).err()?;
    Some(format!("The input of this call cannot be used. It is {why}."))
}

fn is_empty(output: &Payload) -> bool {
    match output {
        Payload::Text(text) => text.is_empty(),
        Payload::Parts(parts) => parts.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structured::AnswerSchema;
    use turnwire_core::Event;

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

    /// What follows from these events.
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
    fn a_hint_that_nobody_has_answered_is_read() {
        let start = [START.to_owned()];
        let end = [END.to_owned()];
        let told = events(&[&start, &says("a", "Hi."), &end, &[hint("h", "team")]]);
        assert_eq!(after(&told, None, 3, false), Step::CallModel(OfferedTools::All));
        assert_eq!(after(&told, None, 1, false), Step::CallModel(OfferedTools::None));
        assert_eq!(after(&told, None, 0, false), Step::EndReply(FinishedReason::ExceedMaxIters));
        assert_eq!(after(&told, None, 3, true), Step::EndReply(FinishedReason::Completed));
        let answered = events(&[&told, &start, &says("b", "I see."), &end]);
        assert_eq!(after(&answered, None, 3, false), Step::EndReply(FinishedReason::Completed));
    }

    #[test]
    fn an_answer_is_put_right_once_even_at_the_limit() {
        let shape = AnswerSchema::new(&Json::parse(r#"{"type":"integer"}"#).unwrap()).unwrap();
        let shape = Some(&shape);
        let start = [START.to_owned()];
        let end = [END.to_owned()];
        let good = events(&[&start, &says("a", "3"), &end]);
        assert_eq!(after(&good, shape, 3, false), Step::EndReply(FinishedReason::Completed));
        let bad = events(&[&start, &says("a", "three"), &end]);
        assert!(matches!(after(&bad, shape, 3, false), Step::CorrectAnswer(_)));
        let told = events(&[&bad, &[hint("h", "structured_output")]]);
        assert_eq!(after(&told, shape, 3, false), Step::CallModel(OfferedTools::All));
        assert_eq!(after(&told, shape, 0, false), Step::CallModel(OfferedTools::None));
        assert!(matches!(after(&told, shape, 0, true), Step::InvalidAnswer(_)));
        let worse = events(&[&told, &start, &says("b", "drei"), &end]);
        assert!(matches!(after(&worse, shape, 3, false), Step::InvalidAnswer(_)));
        let better = events(&[&told, &start, &says("b", "3"), &end]);
        assert_eq!(after(&better, shape, 3, false), Step::EndReply(FinishedReason::Completed));
    }

    #[test]
    fn who_refuses_is_not_asked_for_a_form() {
        let shape = AnswerSchema::new(&Json::parse(r#"{"type":"integer"}"#).unwrap()).unwrap();
        for reason in ["refusal", "length", "error", "content_filter", "truncated"] {
            let end = format!(r#"{END},"finished_reason":"{reason}""#);
            let refused = events(&[&[START.to_owned()], &says("a", "No."), &[end]]);
            let expected = Step::EndReply(FinishedReason::from(reason));
            assert_eq!(after(&refused, Some(&shape), 3, false), expected);
        }
    }
}
