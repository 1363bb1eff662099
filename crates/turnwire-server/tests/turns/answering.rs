use crate::faulty_store::FaultyStore;
use crate::harness::*;
use crate::test_store::test_store;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use turnwire_core::event::{Custom, CustomValue};
use turnwire_core::{Event, EventKind, FinishedReason, ToolCall, ToolCallState};
use turnwire_log::Session;
use turnwire_log::store::Producer;
use turnwire_server::Scope;
use turnwire_server::auth::{Caller, Identity, Scopes};
use turnwire_server::turns::client_events;

/// A session that waits for an answer, and the id of its reply.
async fn waiting(server: &Harness, wish: &str) -> (Arc<Session>, String) {
    let session = server.session("s", "actor").await;
    let answer = server.send_text(wish).await;
    until_waiting(&session).await;
    (session, answer.body["reply_id"].as_str().unwrap().to_owned())
}

fn confirm(id: &str, reply: &str, call: &str, confirmed: bool) -> Value {
    json!({"type": "USER_CONFIRM_RESULT", "id": id, "reply_id": reply, "confirm_results": [
        {"confirmed": confirmed, "tool_call": {"id": call, "name": "trade", "input": ""}}]})
}

#[tokio::test]
async fn an_approval_continues_the_same_reply() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask").await;
    let answer = server.post_event(confirm("a1", &reply, "c1", true)).await;
    assert_eq!((answer.status.as_u16(), &answer.body["stored"]), (200, &json!(1)));
    until_idle(&session).await;
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("yes "));
    let calls = server.actor.calls.lock().clone();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[1].input.as_deref(), Some("USER_CONFIRM_RESULT"));
    // The same answer again is accepted, even after the reply has ended.
    let again = server.post_event(confirm("a1", &reply, "c1", true)).await;
    assert_eq!((again.status.as_u16(), &again.body["repeated"]), (200, &json!(1)));
    let other = server.post_event(confirm("a2", &reply, "c1", false)).await;
    assert_eq!((other.status.as_u16(), other.kind()), (409, "already_answered"));
    check_projection(&session).await;
}

#[tokio::test]
async fn a_no_is_told_to_the_agent() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask").await;
    server.post_event(confirm("a1", &reply, "c1", false)).await;
    until_idle(&session).await;
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("done "));
}

#[tokio::test]
async fn an_answer_is_not_trusted_further_than_it_was_asked() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask").await;
    let rule = |content: &str| json!({"tool_name": "trade", "rule_content": content, "behavior": "allow", "source": "demo"});
    let answer = json!({"type": "USER_CONFIRM_RESULT", "id": "a1", "reply_id": reply,
        "created_at": "1999-01-01T00:00:00Z", "metadata": {"admin": true}, "agent_path": "x/y", "extra": 1,
        "confirm_results": [{"confirmed": true, "sudo": true,
            "tool_call": {"id": "c1", "name": "rm", "input": "{\"amount\":2}", "state": "finished", "more": 1,
                "suggested_rules": [rule("*")]},
            "rules": [rule("amount<5"), rule("*")]}]});
    assert_eq!(server.post_event(answer).await.status, 200);
    until_idle(&session).await;
    let log = events(&session).await;
    let stored = log.iter().find(|event| event.kind.type_name() == "USER_CONFIRM_RESULT").unwrap();
    assert!(stored.metadata.is_empty() && stored.rest.is_empty() && stored.agent.is_none());
    assert!(stored.created_at.as_ref() > "2020");
    let EventKind::UserConfirmResult(result) = &stored.kind else { panic!() };
    let [result] = &result.confirm_results[..] else { panic!() };
    assert_eq!(result.tool_call.name, "trade");
    assert!(result.rest.is_empty() && result.tool_call.rest.is_empty());
    let rules = result.rules.as_ref().unwrap();
    assert_eq!((rules.len(), rules[0].rule_content.as_deref()), (1, Some("amount<5")));
    let msg = message(&session, &reply).await;
    assert_eq!(msg.first::<ToolCall>().unwrap().input, r#"{"amount":2}"#);
}

#[tokio::test]
async fn answers_that_do_not_fit_are_refused_whole() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask two").await;
    let before = session.head_state().head;
    let edited = |input: &str| {
        json!({"type": "USER_CONFIRM_RESULT", "id": "e", "reply_id": reply,
        "confirm_results": [{"confirmed": true, "tool_call": {"id": "c1", "name": "trade", "input": input}}]})
    };
    let twice = json!({"type": "USER_CONFIRM_RESULT", "id": "t", "reply_id": reply, "confirm_results": [
        {"confirmed": true, "tool_call": {"id": "c1"}}, {"confirmed": false, "tool_call": {"id": "c1"}}]});
    let mixed = json!({"type": "USER_CONFIRM_RESULT", "id": "t", "reply_id": reply, "confirm_results": [
        {"confirmed": true, "tool_call": {"id": "c1"}}, {"confirmed": true, "tool_call": {"id": "c9"}}]});
    for (event, status, kind) in [
        (confirm("x", &reply, "c9", true), 422, "unknown_call"),
        (confirm("x", "nobody", "c1", true), 422, "unknown_reply"),
        (edited("[1]"), 422, "wrong_input"),
        (edited("{amount"), 422, "wrong_input"),
        (twice, 422, "unprocessable"),
        (mixed, 422, "unknown_call"),
        (
            json!({"type": "USER_CONFIRM_RESULT", "id": "n", "reply_id": reply, "confirm_results": []}),
            422,
            "unprocessable",
        ),
        (
            json!({"type": "EXTERNAL_EXECUTION_RESULT", "id": "n", "reply_id": reply,
            "execution_results": [{"type": "tool_result", "id": "c1", "output": "x", "state": "success"}]}),
            409,
            "already_answered",
        ),
        (json!({"type": "REPLY_END", "reply_id": reply}), 422, "no_producer"),
        (
            json!({"type": "MESSAGE", "message": {"role": "user", "content": "x"}}),
            422,
            "no_producer",
        ),
        (
            json!({"type": "HINT_BLOCK", "reply_id": "new", "block_id": "h", "hint": "x"}),
            422,
            "unknown_reply",
        ),
        (json!({"type": "USER_INTERRUPT", "reply_id": "new"}), 422, "unknown_reply"),
    ] {
        let answer = server.post_event(event.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.kind()), (status, kind), "{event}");
    }
    assert_eq!(session.head_state().head, before);
}

#[tokio::test]
async fn several_questions_wait_until_all_are_answered() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask two").await;
    server.post_event(confirm("a1", &reply, "c1", true)).await;
    eventually(|| server.app.turns.active_sessions() == 0).await;
    assert_eq!(session.snapshot().await.unwrap().pending_calls()[0].confirm.len(), 1);
    assert_eq!(server.actor.calls.lock().len(), 1);
    server.post_event(confirm("a2", &reply, "c2", false)).await;
    until_idle(&session).await;
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("yes done "));
}

#[tokio::test]
async fn an_answer_that_comes_while_the_agent_still_runs_is_not_lost() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask slowly").await;
    server.post_event(confirm("a1", &reply, "c1", true)).await;
    assert_eq!(server.actor.calls.lock().len(), 1);
    server.actor.gate.add_permits(1);
    until_idle(&session).await;
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("yes "));
    assert_eq!(server.actor.calls.lock().len(), 2);
}

#[tokio::test]
async fn a_result_from_outside_continues_the_reply() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "run").await;
    let result = |id: &str, state: &str| {
        json!({"type": "EXTERNAL_EXECUTION_RESULT", "id": id, "reply_id": reply,
        "execution_results": [{"type": "tool_result", "id": "c1", "name": "rm", "output": "42", "state": state}]})
    };
    assert_eq!(server.post_event(result("r0", "running")).await.status, 422);
    assert_eq!(server.post_event(result("r1", "success")).await.status, 200);
    until_idle(&session).await;
    let msg = message(&session, &reply).await;
    let (_, result) = msg.tool_calls().next().unwrap();
    assert_eq!(result.unwrap().name, "trade");
}

#[tokio::test]
async fn a_waiting_reply_can_be_stopped() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask").await;
    assert_eq!(
        server.post_event(json!({"type": "USER_INTERRUPT", "reply_id": reply})).await.body["stored"],
        1
    );
    until_idle(&session).await;
    let msg = message(&session, &reply).await;
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(msg.first::<ToolCall>().unwrap().state, ToolCallState::Finished);
    assert_eq!(server.post_event(confirm("late", &reply, "c1", true)).await.status, 409);
}

#[tokio::test]
async fn each_kind_of_answer_needs_its_scope() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask").await;
    let all = turnwire_server::auth::Auth::without_credentials(&server.app.config.limits)
        .authenticate_token("x")
        .unwrap();
    let with = |scope: Scope| {
        let tenant = all.0.tenant.clone();
        let scopes = Scopes::from_iter([scope]);
        Caller(Arc::new(Identity::new(tenant, scopes)))
    };
    let yes = confirm("a", &reply, "c1", true).to_string();
    let yes = Event::from_json(&yes).unwrap();
    let stop = Event::new(reply.as_str(), turnwire_core::event::UserInterrupt {});
    let note = Event::new("", Custom { name: "n".to_owned(), value: CustomValue::default() });
    for (event, scope) in [(yes, Scope::Approve), (stop, Scope::Chat), (note, Scope::Publish)] {
        for other in [Scope::Read, Scope::Chat, Scope::Publish, Scope::Approve] {
            if other != scope {
                let refused = client_events::accept_events(
                    &server.app,
                    &session,
                    &with(other),
                    std::slice::from_ref(&event),
                )
                .await;
                assert_eq!(refused.unwrap_err().status(), 403);
            }
        }
        if scope == Scope::Publish {
            client_events::accept_events(&server.app, &session, &with(scope), &[event])
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn what_waits_is_listed_over_all_sessions() {
    let server = Harness::new();
    let (_, reply) = waiting(&server, "ask two").await;
    let other = server.session("other", "actor").await;
    server.post("/v1/sessions/other/messages", json!({"content": "run"})).await;
    until_waiting(&other).await;
    let list = server.request_json("GET", "/v1/approvals", None, &Value::Null).await.body;
    let list = list["approvals"].as_array().unwrap();
    assert_eq!(list.len(), 2);
    let asked = list.iter().find(|item| item["session_id"] == "s").unwrap();
    assert_eq!(
        (asked["reply_id"].as_str().unwrap(), asked["confirm"].as_array().unwrap().len()),
        (reply.as_str(), 2)
    );
    assert!(asked["expires_at"].as_str().unwrap() > asked["since"].as_str().unwrap());
    let run = list.iter().find(|item| item["session_id"] == "other").unwrap();
    assert_eq!(run["external"].as_array().unwrap().len(), 1);
    // The limit for results is longer than that for approvals.
    assert!(run["expires_at"].as_str().unwrap() > asked["expires_at"].as_str().unwrap());
    assert_eq!(
        server.request_json("GET", "/v1/approvals?limit=1", None, &Value::Null).await.body["approvals"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_question_that_nobody_answers_counts_as_denied() {
    let settings = "[agents.actor]\nmodel = \"demo\"\napproval_timeout = \"50ms\"";
    let server = Harness::with_store(test_store(), settings);
    server.app.turns.recover().await.unwrap();
    let session = server.session("s", "actor").await;
    let answer = server.send_text("ask two").await;
    until(&session, |head| head.head.get() > 5).await;
    until_idle(&session).await;
    let reply = answer.body["reply_id"].as_str().unwrap();
    assert_eq!(message(&session, reply).await.text("").as_deref(), Some("done done "));
    let log = events(&session).await;
    let denied: Vec<_> =
        log.iter().filter(|event| event.kind.type_name() == "USER_CONFIRM_RESULT").collect();
    assert_eq!(denied.len(), 1);
    assert_eq!(denied[0].metadata.get::<String>("reason").unwrap().as_deref(), Some("timeout"));
}

/// Opens a reply of a producer.
async fn produce(session: &Arc<Session>, lines: &[&str]) {
    session
        .transact(&["r"], |tx| {
            for rest in lines {
                tx.push(
                    &mut crate::fake_agent::event("r", rest)
                        .stamped(&turnwire_core::stamp::SystemStamp),
                    None,
                )
                .unwrap();
            }
            tx.set_producer(Producer { id: "p".to_owned(), fence: 1, holder: String::new() });
            Ok::<_, turnwire_log::Error>(())
        })
        .await
        .unwrap();
}

const CALL: [&str; 3] = [
    r#""type":"REPLY_START","name":"x""#,
    r#""type":"TOOL_CALL_START","tool_call_id":"c1","tool_call_name":"trade""#,
    r#""type":"REQUIRE_USER_CONFIRM","tool_calls":[{"type":"tool_call","id":"c1","name":"trade","input":"{}"}]"#,
];

#[tokio::test]
async fn answers_and_stops_of_a_producers_reply_are_only_logged() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    produce(&session, &CALL).await;
    assert_eq!(server.send_text("hello").await.status, 409);
    assert_eq!(server.post_event(confirm("a", "r", "c1", true)).await.status, 200);
    assert_eq!(server.stop(&session).await.stored, 1);
    eventually(|| server.app.turns.active_sessions() == 0).await;
    assert!(server.actor.calls.lock().is_empty());
    assert_eq!(session.snapshot().await.unwrap().open.len(), 1);
    // A queued message is answered after the producer's reply.
    let queued =
        server.post("/v1/sessions/s/messages?queue=true", json!({"content": "hello"})).await;
    produce(&session, &[r#""type":"REPLY_END""#]).await;
    until(&session, |_| server.actor.calls.lock().len() == 1).await;
    until_idle(&session).await;
    let reply = message(&session, queued.body["reply_id"].as_str().unwrap()).await;
    assert_eq!(reply.text("").as_deref(), Some("re: hello"));
}

#[tokio::test]
async fn a_silent_producers_reply_is_closed_and_one_that_waits_is_not() {
    let server = Harness::with_store(test_store(), "[producers]\nsilence = \"100ms\"");
    server.app.turns.recover().await.unwrap();
    let (silent, asking) =
        (server.session("s", "external").await, server.session("w", "external").await);
    produce(&asking, &CALL).await;
    produce(&silent, &CALL[..1]).await;
    until_idle(&silent).await;
    assert_eq!(message(&silent, "r").await.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(asking.snapshot().await.unwrap().pending_calls().len(), 1);
}

#[tokio::test]
async fn an_answer_to_a_reply_that_was_stopped_is_not_for_the_next() {
    let server = Harness::new();
    let (session, reply) = waiting(&server, "ask two").await;
    server.post_event(confirm("a1", &reply, "c1", true)).await;
    server.stop(&session).await;
    server.send_text("hello").await;
    until_idle(&session).await;
    let calls = server.actor.calls.lock().clone();
    assert_eq!((calls.len(), &calls[1].input), (2, &None));
}

#[tokio::test]
async fn an_answer_that_comes_while_somebody_looks_is_looked_at_too() {
    let store = Arc::new(FaultyStore::default());
    let server = Arc::new(Harness::with_store(store.clone(), ""));
    let (session, reply) = waiting(&server, "ask").await;
    eventually(|| server.app.turns.active_sessions() == 0).await;
    let post = |event: Value| {
        let server = server.clone();
        tokio::spawn(async move { server.post_event(event).await })
    };
    store.is_slow.store(true, Ordering::SeqCst);
    // This must become durable before the worker decides.
    let first = post(json!({"type": "CUSTOM", "id": "x", "name": "x"}));
    eventually(|| server.app.turns.active_sessions() == 1).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let second = post(confirm("a1", &reply, "c1", true));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    store.acknowledge.add_permits(1);
    assert_eq!(first.await.unwrap().status, 200);
    store.acknowledge.add_permits(100);
    assert_eq!(second.await.unwrap().status, 200);
    until_idle(&session).await;
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("yes "));
}
