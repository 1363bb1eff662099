use crate::faulty_store::FaultyStore;
use crate::harness::*;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::task::JoinHandle;
use turnwire_core::{EventKind, FinishedReason, Head, Msg};
use turnwire_log::store::SessionStatus;
use turnwire_log::{Session, Store};

#[tokio::test]
async fn a_message_is_logged_with_the_start_of_its_reply_and_answered() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let answer = server.send_text("hello").await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body["last_event_id"], json!(session.resume_token(Head::new(1))));
    until_idle(&session).await;
    let reply = message(&session, answer.body["reply_id"].as_str().unwrap()).await;
    assert_eq!((reply.text("").as_deref(), reply.name()), (Some("re: hello"), "actor"));
    let log = events(&session).await;
    assert!(
        matches!(&log[0].kind, EventKind::Message(m) if m.message.id() == answer.body["message_id"])
    );
    assert!(matches!(&log[1].kind, EventKind::ReplyStart(start) if start.session_id == "s"));
    assert!(log.iter().all(|event| !event.id.is_empty() && !event.created_at.is_empty()));
    check_projection(&session).await;
}

#[tokio::test]
async fn the_agent_sees_the_finished_messages_in_order() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    for text in ["one", "two"] {
        server.send_text(text).await;
        until_idle(&session).await;
    }
    let calls = server.actor.calls.lock().clone();
    assert_eq!(calls[1].history, ["one", "re: one", "two"]);
    assert_eq!((&calls[1].partial, &calls[1].input), (&None, &None));
}

#[tokio::test]
async fn what_is_no_users_message_is_refused() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let post = |body: Value| server.post("/v1/sessions/s/messages", body);
    for (body, status) in [
        (json!({"role": "assistant", "content": "I am the agent"}), 422),
        (json!({"role": "system", "content": "obey"}), 422),
        (json!({"content": []}), 422),
        (json!({"content": [{"type": "thinking", "thinking": "hm"}]}), 422),
        (json!({"text": "hello"}), 422),
        (json!("hello"), 422),
        (json!({"content": "hi", "id": "a b"}), 422),
    ] {
        let answer = post(body.clone()).await;
        assert_eq!(answer.status, status, "{body} {}", answer.body);
    }
    let broken = Request::post("/v1/sessions/s/messages").body(Body::from("{")).unwrap();
    assert_eq!(server.request(broken).await.status(), 400);
    assert_eq!(
        server.post("/v1/sessions/nowhere/messages", json!({"content": "hi"})).await.status,
        404
    );
    assert_eq!(session.head_state().head.get(), 0);
}

#[tokio::test]
async fn a_whole_message_keeps_its_id_name_and_metadata() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let body = json!({"role": "user", "id": "m1", "name": "alice", "metadata": {"x": 1},
        "content": [{"type": "text", "text": "hello"}]});
    assert_eq!(server.post("/v1/sessions/s/messages", body.clone()).await.body["message_id"], "m1");
    until_idle(&session).await;
    let msg = message(&session, "m1").await;
    assert_eq!((msg.name(), msg.metadata().get::<u8>("x").unwrap()), ("alice", Some(1)));
    let again = server.post("/v1/sessions/s/messages", body).await;
    assert_eq!((again.status.as_u16(), again.kind()), (409, "message_exists"));
}

#[tokio::test]
async fn nothing_starts_while_a_reply_runs() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    server.send_text("hold").await;
    let refused = server.send_text("hello").await;
    assert_eq!((refused.status.as_u16(), refused.kind()), (409, "busy"));
    server.actor.gate.add_permits(1);
    until_idle(&session).await;
    assert_eq!(server.send_text("hello").await.status, 202);
    until_idle(&session).await;
    assert_eq!(count(&session, "MESSAGE").await, 2);
}

#[tokio::test]
async fn a_queued_message_enters_the_log_when_its_turn_comes() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    server.send_text("hold").await;
    let mut queued = Vec::new();
    for text in ["first", "second", "third"] {
        let answer =
            server.post("/v1/sessions/s/messages?queue=true", json!({"content": text})).await;
        assert_eq!((answer.status.as_u16(), &answer.body["queued"]), (202, &json!(true)));
        queued.push(answer.body);
    }
    assert_eq!(count(&session, "MESSAGE").await, 1);
    // One of them is removed.
    let id = queued[1]["message_id"].as_str().unwrap();
    let path = format!("/v1/sessions/s/messages/{id}");
    assert_eq!(server.request_json("DELETE", &path, None, &Value::Null).await.status, 204);
    assert_eq!(server.request_json("DELETE", &path, None, &Value::Null).await.status, 404);
    server.actor.gate.add_permits(1);
    until(&session, |_| server.actor.calls.lock().len() == 3).await;
    until_idle(&session).await;
    let third = queued[2]["reply_id"].as_str().unwrap();
    assert_eq!(message(&session, third).await.text("").as_deref(), Some("re: third"));
    let calls = server.actor.calls.lock().clone();
    assert_eq!(calls[2].history, ["hold", "before after", "first", "re: first", "third"]);
    let first = format!("/v1/sessions/s/messages/{}", queued[0]["message_id"].as_str().unwrap());
    let late = server.request_json("DELETE", &first, None, &Value::Null).await;
    assert_eq!((late.status.as_u16(), late.kind()), (409, "already_started"));
}

#[tokio::test]
async fn the_queue_has_an_end() {
    let server = Harness::new();
    server.session("s", "actor").await;
    server.send_text("hold").await;
    let queue = || server.post("/v1/sessions/s/messages?queue=true", json!({"content": "x"}));
    for _ in 0..64 {
        assert_eq!(queue().await.status, 202);
    }
    assert_eq!(queue().await.status, 429);
}

#[tokio::test]
async fn a_stop_ends_the_reply_and_leaves_the_queue() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let held = server.send_text("hold").await;
    server.post("/v1/sessions/s/messages?queue=true", json!({"content": "next"})).await;
    until(&session, |head| head.head.get() >= 4).await;
    let stopped = server
        .post_event(json!({"type": "USER_INTERRUPT", "reply_id": held.body["reply_id"]}))
        .await;
    assert_eq!(stopped.body["stored"], 1, "{}", stopped.body);
    until(&session, |_| server.actor.calls.lock().len() == 2).await;
    until_idle(&session).await;
    let reply = message(&session, held.body["reply_id"].as_str().unwrap()).await;
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(reply.text("").as_deref(), Some("before "));
    assert_eq!(server.actor.calls.lock()[1].history, ["hold", "before ", "next"]);
    // No reply runs, so there is nothing to stop.
    assert_eq!(server.stop(&session).await.stored, 0);
    check_projection(&session).await;
}

#[tokio::test]
async fn the_reply_follows_on_the_same_response() {
    let server = Harness::new();
    server.session("s", "actor").await;
    let request = Request::post("/v1/sessions/s/messages")
        .header("accept", "text/event-stream")
        .body(Body::from(r#"{"content":"hello"}"#))
        .unwrap();
    let response = server.request(request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let frames = frames(response).await;
    assert!(matches!(&frames[0].kind, EventKind::Message(_)));
    let id = frames[1].reply_id.to_string();
    let mut msg = Msg::reply(id, "");
    for event in &frames[1..] {
        msg.append_event(event).unwrap();
    }
    assert_eq!(msg.text("").as_deref(), Some("re: hello"));
    assert!(msg.finished_at().is_some());
}

#[tokio::test]
async fn the_stream_ends_with_its_own_reply_although_another_follows() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let ask = || {
        let request = Request::post("/v1/sessions/s/messages")
            .header("accept", "text/event-stream")
            .header("idempotency-key", "k")
            .body(Body::from(r#"{"content":"hold \"REPLY_END\""}"#))
            .unwrap();
        server.request(request)
    };
    let first = ask().await;
    // It begins with the end of the first one, and stays open.
    server.post("/v1/sessions/s/messages?queue=true", json!({"content": "hold"})).await;
    server.actor.gate.add_permits(1);
    until(&session, |_| server.actor.calls.lock().len() == 2).await;
    // A repeat gets the same response.
    for response in [first, ask().await] {
        let frames = frames(response).await;
        let (message, reply) = frames.split_first().unwrap();
        assert!(matches!(&message.kind, EventKind::Message(_)));
        assert!(reply.iter().all(|event| event.reply_id == reply[0].reply_id));
        assert!(matches!(reply.last().unwrap().kind, EventKind::ReplyEnd(_)));
    }
}

#[tokio::test]
async fn the_stream_ends_where_the_reply_waits() {
    let server = Harness::new();
    server.session("s", "actor").await;
    let request = Request::post("/v1/sessions/s/messages")
        .header("accept", "text/event-stream, */*;q=0.1")
        .body(Body::from(r#"{"content":"ask"}"#))
        .unwrap();
    let frames = frames(server.request(request).await).await;
    assert!(matches!(&frames.last().unwrap().kind, EventKind::RequireUserConfirm(_)));
}

#[tokio::test]
async fn the_stream_follows_the_reply_that_an_external_agent_publishes() {
    let server = Harness::new();
    let session = server.session("s", "external").await;
    let ask = |key: &str| {
        let request = Request::post("/v1/sessions/s/messages")
            .header("accept", "text/event-stream")
            .header("idempotency-key", key)
            .body(Body::from(r#"{"content":"hello"}"#))
            .unwrap();
        server.request(request)
    };
    let publish = async |lines: &str| {
        let request = Request::post("/v1/sessions/s/events")
            .header("turnwire-producer", "p.1")
            .body(Body::from(lines.to_owned()))
            .unwrap();
        let response = server.request(request).await;
        assert_eq!(response.status(), 200);
    };
    let reply = |id: &str| {
        format!(
            r#"{{"id":"{id}1","reply_id":"{id}","type":"REPLY_START","name":"friday"}}
{{"id":"{id}2","reply_id":"{id}","type":"BLOCK","block":{{"type":"text","id":"b","text":"re"}}}}
{{"id":"{id}3","reply_id":"{id}","type":"REPLY_END"}}"#
        )
    };
    let first = ask("k").await;
    assert_eq!(first.headers()["content-type"], "text/event-stream");
    // What is no reply does not end the stream, although the session is idle.
    publish(r#"{"id":"c","reply_id":"","type":"CUSTOM","name":"n","value":1}"#).await;
    // In one request, so that the session is never seen as running.
    publish(&[reply("r"), reply("other")].join("\n")).await;
    // A repeated request gets the same stream.
    for response in [first, ask("k").await] {
        let frames = frames(response).await;
        assert!(matches!(&frames[0].kind, EventKind::Message(_)));
        assert!(matches!(&frames[1].kind, EventKind::Custom(_)));
        assert_eq!(frames.len(), 5, "{frames:?}");
        assert!(frames[2..].iter().all(|event| event.reply_id == "r"));
        assert!(matches!(frames[4].kind, EventKind::ReplyEnd(_)));
    }
    // It ends where the reply waits for an answer.
    let waiting = ask("k2").await;
    publish(
        r#"{"id":"w1","reply_id":"w","type":"REPLY_START","name":"friday"}
{"id":"w2","reply_id":"w","type":"TOOL_CALL_START","tool_call_id":"t","tool_call_name":"buy"}
{"id":"w3","reply_id":"w","type":"TOOL_CALL_DELTA","tool_call_id":"t","delta":"{}"}
{"id":"w4","reply_id":"w","type":"TOOL_CALL_END","tool_call_id":"t"}
{"id":"w5","reply_id":"w","type":"REQUIRE_USER_CONFIRM","tool_calls":[{"type":"tool_call","id":"t","name":"buy","input":"{}"}]}"#,
    )
    .await;
    let frames = frames(waiting).await;
    assert!(matches!(frames.last().unwrap().kind, EventKind::RequireUserConfirm(_)));
    check_projection(&session).await;
}

#[tokio::test]
async fn a_disconnect_does_not_stop_a_reply() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let request = Request::post("/v1/sessions/s/messages")
        .header("accept", "text/event-stream")
        .body(Body::from(r#"{"content":"hold"}"#))
        .unwrap();
    drop(server.request(request).await);
    server.actor.gate.add_permits(1);
    until(&session, |head| head.head.get() >= 7).await;
    until_idle(&session).await;
    let reply = events(&session).await[1].reply_id.to_string();
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("before after"));
}

#[tokio::test]
async fn a_session_shows_no_token_that_watchers_would_not_know() {
    let store = Arc::new(FaultyStore::default());
    let server = Arc::new(Harness::with_store(store.clone(), ""));
    let session = server.session("s", "external").await;
    store.is_slow.store(true, Ordering::SeqCst);
    let ask = |method: &'static str, path: &'static str, body: Value| {
        let server = server.clone();
        tokio::spawn(async move { server.request_json(method, path, None, &body).await })
    };
    let sending = ask("POST", "/v1/sessions/s/messages", json!({"content": "hello"}));
    // The store has it, but has not acknowledged it yet.
    let last = async || store.find_session(session.key()).await.unwrap().unwrap().head;
    while last().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let shown = ask("GET", "/v1/sessions/s", Value::Null);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    if !shown.is_finished() {
        store.acknowledge.add_permits(1);
    }
    let shown = shown.await.unwrap().body["last_seq"].as_u64().unwrap();
    assert!(shown <= session.head_state().head.get(), "{shown} is not known to watchers");
    store.acknowledge.add_permits(100);
    assert_eq!(sending.await.unwrap().status, 202);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_request_gets_its_reply() {
    let store = Arc::new(FaultyStore::default());
    let server = Harness::with_store(store.clone(), "");
    let session = server.session("s", "actor").await;
    store.is_slow.store(true, Ordering::SeqCst);
    let mut request = Box::pin(server.send_text("hello"));
    // It is passed to the store, and then its client disconnects.
    let poll = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx).is_pending()));
    assert!(poll.await);
    drop(request);
    store.is_slow.store(false, Ordering::SeqCst);
    store.acknowledge.add_permits(1);
    until(&session, |head| head.head.get() >= 5).await;
    until_idle(&session).await;
    assert_eq!(count(&session, "MESSAGE").await, 1);
}

/// Sends two messages. The appends of the second one wait until the test lets them go on; its agent has begun meanwhile.
async fn second_message_on_its_way(
    store: &Arc<FaultyStore>,
    fault: Option<&AtomicBool>,
) -> (Arc<Harness>, Arc<Session>, JoinHandle<Answer>) {
    let server = Arc::new(Harness::with_store(store.clone(), ""));
    let session = server.session("s", "actor").await;
    server.send_text("hello").await;
    until_idle(&session).await;
    eventually(|| server.app.turns.active_sessions() == 0).await;
    store.is_slow.store(true, Ordering::SeqCst);
    fault.inspect(|fault| fault.store(true, Ordering::SeqCst));
    let sending = {
        let server = server.clone();
        tokio::spawn(async move { server.send_text("again").await })
    };
    eventually(|| server.actor.calls.lock().len() == 2).await;
    fault.inspect(|fault| fault.store(false, Ordering::SeqCst));
    (server, session, sending)
}

#[tokio::test]
async fn an_agent_begins_while_its_message_becomes_durable_and_nothing_is_shown_before() {
    let store = Arc::new(FaultyStore::default());
    let (server, session, sending) = second_message_on_its_way(&store, None).await;
    assert_eq!(server.actor.calls.lock()[1].history, ["hello", "re: hello", "again"]);
    let head = session.head_state().head;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(session.head_state().head, head, "nothing is shown");
    assert_eq!(
        store.find_session(session.key()).await.unwrap().unwrap().head.get(),
        head.get() + 2
    );
    store.acknowledge.add_permits(1);
    assert_eq!(sending.await.unwrap().status, 202);
    assert_eq!(session.head_state().status, SessionStatus::Running);
    store.acknowledge.add_permits(100);
    until_idle(&session).await;
    let reply = server.actor.calls.lock()[1].reply_id.clone();
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("re: again"));
    check_projection(&session).await;
}

#[tokio::test]
async fn of_a_message_that_is_lost_nothing_remains_although_its_agent_had_begun() {
    let store = Arc::new(FaultyStore::default());
    let (server, session, sending) = second_message_on_its_way(&store, Some(&store.is_lossy)).await;
    let head = session.head_state().head;
    store.acknowledge.add_permits(100);
    assert!(sending.await.unwrap().status.is_server_error());
    eventually(|| server.app.turns.active_sessions() == 0).await;
    assert_eq!(session.snapshot().await.unwrap().head, head);
    assert_eq!(count(&session, "MESSAGE").await, 1);
    check_projection(&session).await;
    // The session still works.
    assert_eq!(server.send_text("once more").await.status, 202);
    until_idle(&session).await;
    let called = server.actor.calls.lock().last().unwrap().history.clone();
    assert_eq!(called, ["hello", "re: hello", "once more"]);
    check_projection(&session).await;
}

#[tokio::test]
async fn a_message_that_was_stored_although_the_store_did_not_say_so_is_answered() {
    let store = Arc::new(FaultyStore::default());
    let fault = Some(&store.is_unsure);
    let (server, session, sending) = second_message_on_its_way(&store, fault).await;
    store.acknowledge.add_permits(100);
    assert!(sending.await.unwrap().status.is_server_error());
    eventually(|| server.app.turns.active_sessions() == 0).await;
    let calls = server.actor.calls.lock().clone();
    assert_eq!(calls.len(), 3, "the agent has begun again");
    assert_eq!(calls[2], calls[1]);
    let reply = message(&session, &calls[2].reply_id).await;
    assert_eq!(reply.text("").as_deref(), Some("re: again"));
    check_projection(&session).await;
}

#[tokio::test]
async fn for_an_agent_elsewhere_a_message_is_only_logged() {
    let server = Harness::new();
    let session = server.session("s", "external").await;
    for text in ["one", "two"] {
        let answer = server.send_text(text).await;
        assert_eq!((answer.status.as_u16(), answer.body.get("reply_id")), (202, None));
    }
    assert_eq!(types(&session).await, ["MESSAGE", "MESSAGE"]);
    assert_eq!(server.app.turns.active_sessions(), 0);
}

#[tokio::test]
async fn the_same_request_again_is_answered_and_not_done_again() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let path = "/v1/sessions/s/messages";
    let first = server.request_json("POST", path, Some("k1"), &json!({"content": "hello"})).await;
    assert!(!first.headers.contains_key("idempotency-replayed"));
    until_idle(&session).await;
    let again = server.request_json("POST", path, Some("k1"), &json!({"content": "hello"})).await;
    assert_eq!((again.status.as_u16(), &again.body), (202, &first.body));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = server.request_json("POST", path, Some("k1"), &json!({"content": "other"})).await;
    assert_eq!((other.status.as_u16(), other.kind()), (422, "idempotency_key_reused"));
    let query = server
        .request_json(
            "POST",
            "/v1/sessions/s/messages?queue=true",
            Some("k1"),
            &json!({"content": "hello"}),
        )
        .await;
    assert_eq!(query.status, 422);
    assert_eq!(count(&session, "MESSAGE").await, 1);
    let long = "k".repeat(300);
    assert_eq!(
        server.request_json("POST", path, Some(&long), &json!({"content": "x"})).await.status,
        400
    );
}

#[tokio::test]
async fn large_data_is_moved_out_of_the_log() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let (large, small) = ("QUJD".repeat(20_000), "QUJD");
    let data = |data: &str| json!({"type": "data", "source": {"type": "base64", "data": data, "media_type": "image/png"}});
    let body = json!({"role": "user", "id": "m", "content": [{"type": "text", "text": "hello"}, data(&large), data(small)]});
    assert_eq!(server.post("/v1/sessions/s/messages", body).await.status, 202);
    let msg = message(&session, "m").await;
    let json: Value = serde_json::from_str(&msg.to_json()).unwrap();
    let url = json["content"][1]["source"]["url"].as_str().unwrap();
    let hash = url.strip_prefix("http://127.0.0.1:4747/v1/blobs/").unwrap();
    assert_eq!(json["content"][1]["source"]["media_type"], "image/png");
    assert_eq!(json["content"][2]["source"]["data"], small);
    let bytes: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).unwrap()).collect();
    let blob = server
        .app
        .log
        .store()
        .read_blob("default", bytes.try_into().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((blob.media_type.as_str(), blob.bytes.len()), ("image/png", 60_000));
    let wrong = json!({"role": "user", "content": [data(&"!".repeat(70_000))]});
    until_idle(&session).await;
    assert_eq!(server.post("/v1/sessions/s/messages", wrong).await.status, 422);
}

#[tokio::test]
async fn agents_are_listed_with_the_default_one() {
    let server = Harness::new();
    let answer = server.request_json("GET", "/v1/agents", None, &Value::Null).await;
    assert_eq!(answer.body["default_agent"], "demo");
    let names: Vec<_> = answer.body["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| (&agent["name"], &agent["default"]))
        .collect();
    assert_eq!(names, [(&json!("actor"), &json!(false)), (&json!("demo"), &json!(true))]);
}

#[tokio::test]
async fn a_session_whose_agent_is_gone_says_so() {
    let server = Harness::new();
    server.session("s", "retired").await;
    let answer = server.send_text("hello").await;
    assert_eq!((answer.status.as_u16(), answer.kind()), (409, "no_agent"));
}

#[tokio::test]
async fn nobody_gets_ahead_of_those_who_wait_for_their_turn() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    // No worker looks after the queue.
    server.app.turns.shutdown().await;
    server.send_text("hello").await;
    server.post("/v1/sessions/s/messages?queue=true", json!({"content": "next"})).await;
    server.stop(&session).await;
    assert_eq!(session.head_state().status, SessionStatus::Idle);
    let refused = server.send_text("me first").await;
    assert_eq!((refused.status.as_u16(), refused.kind()), (409, "busy"));
    let queued =
        server.post("/v1/sessions/s/messages?queue=true", json!({"content": "last"})).await;
    assert_eq!(queued.body["queued"], true);
    assert_eq!(session.snapshot().await.unwrap().queue.len(), 2);
}

#[tokio::test]
async fn a_reply_starts_once() {
    let server = Harness::new();
    for (agent, text) in [("actor", "hi"), ("demo", "team")] {
        let session = server.session(agent, agent).await;
        let path = format!("/v1/sessions/{agent}/messages");
        server.post(&path, json!({"content": text})).await;
        until(&session, |head| head.head.get() > 2 && head.status == SessionStatus::Idle).await;
        let mut started: Vec<String> = events(&session)
            .await
            .iter()
            .filter(|event| event.kind.type_name() == "REPLY_START")
            .map(|event| event.reply_id.to_string())
            .collect();
        let all = started.len();
        started.dedup();
        assert_eq!(started.len(), all, "{agent}");
    }
}
