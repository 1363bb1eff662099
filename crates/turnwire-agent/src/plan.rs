//! What to do next, from the log alone.
//!
//! Given the reply as far as it goes, how far its model calls have come, the tools and the rules, this
//! says what happens next. It does nothing itself, reads no clock, and remembers nothing: so a reply that
//! waited for a person for a day, or whose process died in the middle of a tool, goes on from here.

use crate::permission::{Permissions, check_input};
use crate::schema::Problem;
use crate::structured::{is_mended, is_mending};
use crate::tool::{Place, ToolSpec};
use turnwire_core::{
    Behavior, ContentBlock, FinishedReason, HintBlock, Json, ModelCalls, Msg, Payload,
    PermissionRule, ToolCall, ToolCallState, ToolResult, ToolResultState,
};

/// What there is to go by.
pub struct State<'s> {
    /// The reply as far as it goes.
    pub reply: &'s Msg,
    /// How far its model calls have come.
    pub calls: &'s ModelCalls,
    /// Finds a tool by its name.
    pub tool: &'s dyn Fn(&str) -> Option<&'s ToolSpec>,
    /// The agent's rules.
    pub permissions: &'s Permissions,
    /// Rules that people accepted in this session.
    pub accepted: &'s [PermissionRule],
    /// How many model calls one reply may take.
    pub limit: u32,
    /// What is known of the answer, where it must match a JSON Schema.
    pub answer: Answer<'s>,
    /// Whether the model was asked with everything that is there, and had nothing to say.
    pub is_silent: bool,
    /// Whether others have put hints into the reply that the model was not asked with. Wherever they
    /// stand, it has not read them.
    pub has_news: bool,
}

/// What is known of an answer.
#[derive(Debug, Clone, Copy)]
pub enum Answer<'s> {
    /// It may be anything.
    Free,
    /// Whether it matches its schema is not known yet.
    Unchecked,
    /// It was checked.
    Checked(&'s Result<Json, Problem>),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// A model call was broken off: its blocks are taken back.
    TakeBack(Vec<String>),
    /// Something is to be done about calls.
    Calls(Vec<(ToolCall, Todo)>),
    /// The model is asked; the last time without tools, because it was asked as often as it may be.
    Ask(Tools),
    /// Somebody is to answer.
    Wait,
    /// The answer is to be checked against its schema.
    Check,
    /// To check it costs too much: the reply fails.
    Uncheckable(String),
    /// The answer does not have its form: the model is told why, and asked again.
    Mend(String),
    /// It does not have it although the model was told so: the reply fails.
    Misshapen(String),
    /// The reply ends.
    End(FinishedReason),
    /// It has ended.
    Done,
}

/// Whether a model gets tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// It does.
    All,
    /// It does not: this is its last word.
    None,
}

/// What is to be done about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Todo {
    /// It runs.
    Run(Began),
    /// The client executes it.
    HandOver,
    /// A person is asked, who may accept these rules.
    AskFor(Vec<PermissionRule>),
    /// It gets a result that says why it did not run.
    Refuse(ToolResultState, String),
    /// It had begun when the process died, and may not run again.
    Interrupt,
}

/// Whether the start of a call's result is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Began {
    /// It is.
    Yes,
    /// Not yet.
    No,
}

/// What to do next.
pub fn plan(state: &State<'_>) -> Plan {
    if state.reply.finished_at().is_some() {
        return Plan::Done;
    }
    if let Some(blocks) = &state.calls.open_blocks {
        return Plan::TakeBack(blocks.clone());
    }
    let mut todos = Vec::new();
    let mut waits = false;
    let has_failed = state.calls.last_reason.as_ref().is_some_and(is_failure);
    for (call, result) in state.reply.tool_calls() {
        let is_done = |result: &ToolResult| {
            result.finished_at.is_some() || call.state == ToolCallState::Finished
        };
        if result.is_some_and(is_done) {
            continue;
        }
        let todo = match result {
            // What a model asked for that then failed may not be what it wanted.
            None if has_failed => Some(Todo::Refuse(
                ToolResultState::Interrupted,
                "The model broke off before this call was made.".to_owned(),
            )),
            result => todo(state, call, result),
        };
        match todo {
            Some(todo) => todos.push((call.clone(), todo)),
            None => waits = true,
        }
    }
    if !todos.is_empty() {
        return Plan::Calls(todos);
    }
    if waits {
        return Plan::Wait;
    }
    let ModelCalls { ended, last_reason: reason, tool_calls: made, .. } = state.calls;
    let unread = unread(state.reply).filter(|_| !state.is_silent);
    let is_asked = !made.is_empty() || unread.is_some() || state.has_news;
    if *ended == 0 || (is_asked && !has_failed) {
        return match *ended {
            ended if ended < state.limit => Plan::Ask(Tools::All),
            ended if ended == state.limit => Plan::Ask(Tools::None),
            // The one round in which an answer is put right is not counted.
            _ if unread.is_some_and(is_mending) => Plan::Ask(Tools::None),
            _ => Plan::End(FinishedReason::ExceedMaxIters),
        };
    }
    if matches!(reason, None | Some(FinishedReason::Completed | FinishedReason::ToolCalls)) {
        match state.answer {
            Answer::Free | Answer::Checked(Ok(_)) => {}
            Answer::Unchecked => return Plan::Check,
            Answer::Checked(Err(Problem::TooExpensive(why))) => {
                return Plan::Uncheckable(why.clone());
            }
            Answer::Checked(Err(Problem::Mismatch(why))) if is_mended(state.reply) => {
                return Plan::Misshapen(why.clone());
            }
            Answer::Checked(Err(Problem::Mismatch(why))) => return Plan::Mend(why.clone()),
        }
    }
    Plan::End(match reason {
        _ if *ended > state.limit => FinishedReason::ExceedMaxIters,
        // It said that it wanted tools, and called none.
        None | Some(FinishedReason::ToolCalls) => FinishedReason::Completed,
        Some(reason) => reason.clone(),
    })
}

/// The hint at the end of a reply, which the model has not answered yet.
fn unread(reply: &Msg) -> Option<&HintBlock> {
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
fn todo(state: &State<'_>, call: &ToolCall, result: Option<&ToolResult>) -> Option<Todo> {
    let spec = (state.tool)(&call.name);
    match &call.state {
        ToolCallState::Asking | ToolCallState::Submitted => None,
        // A person said no.
        ToolCallState::Finished if result.is_none() => Some(Todo::Refuse(
            ToolResultState::Denied,
            "The user did not allow this call.".to_owned(),
        )),
        _ => Some(match (spec, result) {
            (Some(spec), Some(_)) if spec.resumes => Todo::Run(Began::Yes),
            (Some(spec), Some(result)) if spec.idempotent && is_empty(&result.output) => {
                Todo::Run(Began::Yes)
            }
            (_, Some(_)) => Todo::Interrupt,
            (None, None) => {
                let why = format!("There is no tool \"{}\".", call.name);
                Todo::Refuse(ToolResultState::Error, why)
            }
            (Some(spec), None) => decided(state, call, spec),
        }),
    }
}

/// What the rules say of a call that has not begun.
fn decided(state: &State<'_>, call: &ToolCall, spec: &ToolSpec) -> Todo {
    if let Some(why) = is_no_input(&call.input) {
        return Todo::Refuse(ToolResultState::Error, why);
    }
    let is_allowed = call.state == ToolCallState::Allowed;
    match state.permissions.decide(state.accepted, spec, &call.input) {
        Behavior::Deny => {
            let why = format!("The rules do not allow this call of {}.", call.name);
            Todo::Refuse(ToolResultState::Denied, why)
        }
        // A rule that cannot be read is no permission.
        Behavior::Ask | Behavior::Other(_) if !is_allowed => {
            Todo::AskFor(Permissions::suggest(spec, &call.input))
        }
        _ if spec.place == Place::Client => Todo::HandOver,
        _ => Todo::Run(Began::No),
    }
}

/// Why a text is no input of a tool.
fn is_no_input(input: &str) -> Option<String> {
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
    use crate::structured::Shape;
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
    fn after(events: &[String], shape: Option<&Shape>, limit: u32, is_silent: bool) -> Plan {
        let (mut reply, mut calls) = (Msg::reply("r", "a"), ModelCalls::default());
        for line in events {
            let event = format!(r#"{{"reply_id":"r",{line}}}"#);
            let event = Event::from_json(&event).unwrap();
            reply.append_event(&event).unwrap();
            calls.observe(&event);
        }
        let read = shape.map(|shape| shape.read(&reply));
        plan(&State {
            reply: &reply,
            calls: &calls,
            tool: &|_| None,
            permissions: &Permissions::default(),
            accepted: &[],
            limit,
            answer: read.as_ref().map_or(Answer::Free, Answer::Checked),
            is_silent,
            has_news: false,
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
        assert_eq!(after(&told, None, 3, false), Plan::Ask(Tools::All));
        assert_eq!(after(&told, None, 1, false), Plan::Ask(Tools::None));
        assert_eq!(after(&told, None, 0, false), Plan::End(FinishedReason::ExceedMaxIters));
        assert_eq!(after(&told, None, 3, true), Plan::End(FinishedReason::Completed));
        let answered = events(&[&told, &start, &says("b", "I see."), &end]);
        assert_eq!(after(&answered, None, 3, false), Plan::End(FinishedReason::Completed));
    }

    #[test]
    fn an_answer_is_put_right_once_even_at_the_limit() {
        let shape = Shape::new(&Json::parse(r#"{"type":"integer"}"#).unwrap()).unwrap();
        let shape = Some(&shape);
        let start = [START.to_owned()];
        let end = [END.to_owned()];
        let good = events(&[&start, &says("a", "3"), &end]);
        assert_eq!(after(&good, shape, 3, false), Plan::End(FinishedReason::Completed));
        let bad = events(&[&start, &says("a", "three"), &end]);
        assert!(matches!(after(&bad, shape, 3, false), Plan::Mend(_)));
        let told = events(&[&bad, &[hint("h", "structured_output")]]);
        assert_eq!(after(&told, shape, 3, false), Plan::Ask(Tools::All));
        assert_eq!(after(&told, shape, 0, false), Plan::Ask(Tools::None));
        assert!(matches!(after(&told, shape, 0, true), Plan::Misshapen(_)));
        let worse = events(&[&told, &start, &says("b", "drei"), &end]);
        assert!(matches!(after(&worse, shape, 3, false), Plan::Misshapen(_)));
        let better = events(&[&told, &start, &says("b", "3"), &end]);
        assert_eq!(after(&better, shape, 3, false), Plan::End(FinishedReason::Completed));
    }

    #[test]
    fn who_refuses_is_not_asked_for_a_form() {
        let shape = Shape::new(&Json::parse(r#"{"type":"integer"}"#).unwrap()).unwrap();
        for reason in ["refusal", "length", "error", "content_filter", "truncated"] {
            let end = format!(r#"{END},"finished_reason":"{reason}""#);
            let refused = events(&[&[START.to_owned()], &says("a", "No."), &[end]]);
            let expected = Plan::End(FinishedReason::from(reason));
            assert_eq!(after(&refused, Some(&shape), 3, false), expected);
        }
    }
}
