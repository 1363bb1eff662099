//! Reading chat requests.

use serde_json::{Value, json};
use turnwire_core::{Event, EventKind, ToolCall, ToolResultState};
use turnwire_wires::ai_sdk::{ChatRequest, PendingReply, Trigger};

fn user(id: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": id}]})
}

fn request(messages: &Value) -> ChatRequest {
    ChatRequest::parse(&json!({"id": "chat", "messages": messages}).to_string()).unwrap()
}

fn tool(id: &str, more: &Value) -> Value {
    let mut part = json!({"type": "dynamic-tool", "toolName": "f", "toolCallId": id});
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": "r", "role": "assistant", "parts": [{"type": "step-start"}, part]})
}

/// The answers to a call that waits for an approval, or that the client executes.
fn answers(part: &Value, input: &str, external: bool) -> Vec<Event<'static>> {
    let calls = [ToolCall::new("c", "f", input)];
    let (confirm, external): (&[ToolCall], &[ToolCall]) =
        if external { (&[], &calls) } else { (&calls, &[]) };
    let pending = [PendingReply { reply_id: "r", confirm, external }];
    request(&json!([user("m"), tool("c", part)])).answers(&pending).unwrap()
}

#[test]
fn only_user_messages_after_the_last_reply_are_new() {
    let reply = json!({"id": "r", "role": "assistant", "parts": []});
    let request = request(&json!([user("m1"), reply, user("m2"), user("m3")]));
    let ids = |known: &[&str]| -> Vec<String> {
        let new = request.new_messages(|id| known.contains(&id)).unwrap();
        new.iter().map(|msg| msg.id().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["m2", "m3"]);
    assert_eq!(ids(&["m1", "m2"]), ["m3"]);
    assert!(ids(&["m3"]).is_empty());
}

#[test]
fn the_trigger_and_the_applications_fields_are_kept() {
    let text = json!({"id": "chat", "messages": [], "trigger": "regenerate-message",
        "messageId": "r", "mood": "good"});
    let request = ChatRequest::parse(&text.to_string()).unwrap();
    assert_eq!((request.trigger, request.message_id.as_deref()), (Trigger::Regenerate, Some("r")));
    assert_eq!(request.rest.get::<String>("mood").unwrap().as_deref(), Some("good"));
}

#[test]
fn an_edited_message_is_distinguished_from_a_new_one() {
    let text = json!({"id": "chat", "messages": [user("m1")], "messageId": "m1"});
    let request = ChatRequest::parse(&text.to_string()).unwrap();
    assert_eq!(request.edited_message(|id| id == "m1").unwrap().unwrap().id(), "m1");
    assert_eq!(request.edited_message(|_| false).unwrap(), None);
}

#[test]
fn an_approval_takes_only_an_edited_input() {
    let approved = |input: Value| {
        let part = json!({"state": "approval-responded", "input": input,
            "approval": {"id": "c", "approved": true}});
        let events = answers(&part, r#"{"a": 1.0, "b": [12345678901234567890]}"#, false);
        let EventKind::UserConfirmResult(answer) = &events[0].kind else { panic!("{events:?}") };
        assert!(answer.confirm_results[0].confirmed);
        answer.confirm_results[0].tool_call.clone()
    };
    // Numbers that JavaScript rounds are not an edit.
    let same = approved(json!({"b": [12_345_678_901_234_567_000_u64], "a": 1}));
    assert_eq!(same.input, r#"{"a": 1.0, "b": [12345678901234567890]}"#);
    assert_eq!(approved(json!({"a": 2})).input, r#"{"a":2}"#);
}

#[test]
fn a_denial_keeps_its_reason_and_no_edit() {
    let part = json!({"state": "approval-responded", "input": {"a": 2},
        "approval": {"id": "c", "approved": false, "reason": "no"}});
    let events = answers(&part, r#"{"a":1}"#, false);
    let EventKind::UserConfirmResult(answer) = &events[0].kind else { panic!("{events:?}") };
    let answer = &answer.confirm_results[0];
    assert_eq!((answer.confirmed, &*answer.tool_call.input), (false, r#"{"a":1}"#));
    assert_eq!(answer.rest.get::<String>("reason").unwrap().as_deref(), Some("no"));
}

#[test]
fn a_client_executed_call_becomes_a_result() {
    let result = |part: Value| {
        let events = answers(&part, "{}", true);
        let EventKind::ExternalExecutionResult(answer) = &events[0].kind else { panic!() };
        let result = &answer.execution_results[0];
        (result.state.clone(), result.output.text(""))
    };
    let success = |text: &str| (ToolResultState::Success, text.to_owned());
    assert_eq!(result(json!({"state": "output-available", "output": "x"})), success("x"));
    assert_eq!(
        result(json!({"state": "output-available", "output": {"t": 1}})),
        success(r#"{"t":1}"#)
    );
    let failed = result(json!({"state": "output-error", "errorText": "no"}));
    assert_eq!(failed, (ToolResultState::Error, "no".to_owned()));
}

#[test]
fn unanswered_and_unknown_calls_give_no_events() {
    let approved =
        json!({"state": "approval-responded", "approval": {"id": "c", "approved": true}});
    for (part, external) in [
        (json!({"state": "approval-requested", "approval": {"id": "c"}}), false),
        (json!({"state": "output-available", "output": 1}), false),
        (json!({"state": "output-available", "output": 1, "preliminary": true}), true),
        (approved.clone(), true),
    ] {
        assert_eq!(answers(&part, "{}", external), []);
    }
    let nothing = request(&json!([tool("c", &approved)])).answers(&[]).unwrap();
    assert_eq!(nothing, []);
}

#[test]
fn an_invalid_request_is_reported() {
    for (text, error) in [
        ("[]", "NotARequest: expected a chat request object"),
        (r#"{"messages":[]}"#, "NotARequest: `id` (the chat) is missing"),
        (r#"{"id":"c"}"#, "NotARequest: `messages` is missing"),
        (r#"{"id":"c","messages":7}"#, "NotARequest: `messages` is not a list"),
        (
            r#"{"id":"c","messages":[],"trigger":"x"}"#,
            "NotARequest: `trigger` is `x`; expected submit-message or regenerate-message",
        ),
    ] {
        assert_eq!(ChatRequest::parse(text).unwrap_err().to_string(), error);
    }
    let bad = request(&json!([{"role": 7}]));
    assert_eq!(
        bad.new_messages(|_| false).unwrap_err().to_string(),
        "NotARequest: messages[0]: expected a message with `id`, `role` and `parts`"
    );
    let bad = request(&json!([{"id": "m", "role": "user", "parts": [{"type": "text"}]}]));
    assert_eq!(
        bad.new_messages(|_| false).unwrap_err().to_string(),
        "NotARequest: messages[0]: WrongShape: parts[0]: `text` is missing"
    );
    let part = json!({"state": "approval-responded", "approval": {"id": "c"}});
    let calls = [ToolCall::new("c", "f", "{}")];
    let pending = [PendingReply { reply_id: "r", confirm: &calls, external: &[] }];
    assert_eq!(
        request(&json!([tool("c", &part)])).answers(&pending).unwrap_err().to_string(),
        "NotARequest: the approval of the call c has no `approved`"
    );
}

fn named(messages: &Value, message_id: &str) -> ChatRequest {
    let text = json!({"id": "chat", "messages": messages, "messageId": message_id});
    ChatRequest::parse(&text.to_string()).unwrap()
}

#[test]
fn a_client_continues_the_named_message_or_the_last() {
    let waiting = tool("c", &json!({"state": "approval-responded"}));
    let continued = |request: ChatRequest| request.continued_message().unwrap().map(|it| it.id);
    assert_eq!(continued(request(&json!([user("m"), waiting]))).as_deref(), Some("r"));
    assert_eq!(continued(request(&json!([waiting, user("m")]))), None);
    assert_eq!(continued(named(&json!([waiting, user("m")]), "r")).as_deref(), Some("r"));
    assert_eq!(continued(named(&json!([waiting, user("m")]), "m")), None);
    let text = json!({"id": "chat", "messages": [waiting], "trigger": "regenerate-message"});
    assert_eq!(continued(ChatRequest::parse(&text.to_string()).unwrap()), None);
}

#[test]
fn only_calls_of_the_last_step_continue() {
    let tool = |id: &str, state: &str, is_here: bool| {
        json!({"type": "dynamic-tool", "toolName": "f", "toolCallId": id, "state": state,
            "providerExecuted": is_here})
    };
    let step = json!({"type": "step-start"});
    let parts = json!([
        step, tool("before", "approval-responded", true), step,
        tool("ended", "output-available", true), tool("answered", "approval-responded", true),
        tool("asked", "approval-requested", true), tool("given", "output-available", false),
        {"type": "text", "text": "x"},
    ]);
    let message = json!({"id": "r", "role": "assistant", "parts": parts});
    let continued = request(&json!([message])).continued_message().unwrap().unwrap();
    assert_eq!(continued.calls, ["answered", "asked", "given"]);
}

#[test]
fn trailing_user_messages_are_listed_from_the_end() {
    let reply = json!({"id": "r", "role": "assistant", "parts": []});
    let request = request(&json!([user("m1"), reply, user("m2"), user("m3")]));
    assert_eq!(request.trailing_user_ids().unwrap(), ["m3", "m2"]);
}
