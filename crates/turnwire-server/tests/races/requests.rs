use crate::gated_store::{GatedStore, Operation};
use crate::harness::*;
use crate::running::within;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use turnwire_core::Event;
use turnwire_log::store::{SessionKey, Store};
use turnwire_log::{Error, Log};
use turnwire_testkit::net::http;

#[tokio::test]
async fn row_12_a_producer_that_was_overtaken_writes_nothing() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&start("r")).await;
    server.gate.close(Operation::Appends);
    // A later run takes over while the events of the earlier one are being written.
    let earlier = server.begin_publish(&[delta("r", 0, "earlier")]);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    let later: &[_] = &[("turnwire-producer", "p.2")];
    let later = server.begin("POST", EVENTS, later, &delta("r", 1, "later"));
    server.gate.wait_for_waiting(Operation::Appends, 2).await;
    // From here on the earlier one is fenced out, though nothing is durable yet.
    let zombie = server.publish(&[delta("r", 2, "zombie")]).await;
    assert_eq!((zombie.status, zombie.error_type().as_str()), (409, "fenced"), "{}", zombie.text());
    server.gate.open(Operation::Appends);
    assert_eq!((earlier.await.unwrap().status, later.await.unwrap().status), (200, 200));
    assert_eq!(server.publish(&end("r")).await.status, 409);
    let log = server.log().await;
    let deltas: Vec<&str> = log.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, ["earlier", "later"]);
    server.stop().await;
}

#[tokio::test]
async fn row_12_an_owner_that_wakes_up_late_writes_nothing() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&start("r")).await;
    // Another process takes the lease.
    let other = Log::new(server.gate.durable(), "other");
    let key = SessionKey::new("default", "s");
    let session = other.open_session(&key).await.unwrap().unwrap();
    let line = delta("r", 0, "theirs");
    let push = |tx: &mut turnwire_log::Transaction<'_>| {
        tx.push(&mut Event::from_json(&line).unwrap(), Some(&line)).unwrap();
        Ok::<_, Error>(())
    };
    session.transact(&["r"], push).await.unwrap();
    let late = server.publish(&[delta("r", 1, "ours")]).await;
    assert_eq!(late.status, 409, "{}", late.text());
    let rows = server
        .gate
        .durable()
        .read_events(session.number(), turnwire_core::Seq::FIRST, 1 << 20)
        .await;
    let rows = rows.unwrap();
    assert_eq!(rows.iter().map(|rows| rows.count).sum::<u32>(), 3);
    server.stop().await;
}

const KEYED: &[(&str, &str)] = &[("idempotency-key", "k1")];
const HELLO: &str = r#"{"content":"hello"}"#;

#[tokio::test]
async fn row_13_a_post_that_is_sent_again_while_the_first_is_written_is_done_once() {
    let server = Harness::new();
    let session = server.session("demo").await;
    server.gate.close(Operation::Appends);
    let first = server.begin("POST", MESSAGES, KEYED, HELLO);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    let second = server.begin("POST", MESSAGES, KEYED, HELLO);
    let other = server.begin("POST", MESSAGES, KEYED, r#"{"content":"another"}"#);
    let other = other.await.unwrap();
    assert_eq!(other.error_type(), "idempotency_key_reused", "{}", other.text());
    assert!(!second.is_finished(), "its answer is not durable yet");
    server.gate.open(Operation::Appends);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.status, second.status), (202, 202), "{}", second.text());
    assert_eq!(first.json(), second.json());
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    let third = server.send("POST", MESSAGES, KEYED, HELLO).await;
    assert_eq!(third.json(), first.json());
    let other = server.send("POST", MESSAGES, KEYED, r#"{"content":"another"}"#).await;
    assert_eq!((other.status, other.error_type().as_str()), (422, "idempotency_key_reused"));
    let mut head = session.watch_head();
    let idle = head.wait_for(|head| head.status == turnwire_log::store::SessionStatus::Idle);
    within(idle).await.unwrap();
    let stored = server.log().await.iter().filter(|event| event["type"] == "MESSAGE").count();
    assert_eq!(stored, 1);
    server.stop().await;
}

#[tokio::test]
async fn row_13_a_post_whose_first_try_was_lost_is_done_by_the_second() {
    let server = Harness::new();
    server.session("external").await;
    server.gate.close(Operation::Appends);
    let first = server.begin("POST", MESSAGES, KEYED, HELLO);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    server.gate.drop_held();
    assert_eq!(first.await.unwrap().status, 503);
    let second = server.send("POST", MESSAGES, KEYED, HELLO).await;
    assert_eq!(second.status, 202, "{}", second.text());
    assert_eq!(second.header("idempotency-replayed"), None);
    assert_eq!(server.log().await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn row_13_a_post_whose_answer_nobody_heard_is_answered_the_same_after_a_restart() {
    let gate = GatedStore::new();
    let server = Harness::with_store(gate.clone(), "");
    server.session("external").await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = http::request(server.address, "POST", MESSAGES, KEYED, HELLO.as_bytes());
    server.gate.close(Operation::Appends);
    stream.write_all(&request).await.unwrap();
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    drop(stream);
    server.gate.open(Operation::Appends);
    server.stop().await;
    let server = Harness::with_store(GatedStore::with_store(gate.durable()), "");
    let again = server.send("POST", MESSAGES, KEYED, HELLO).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{}", again.text());
    let log = server.log().await;
    assert_eq!(log.len(), 1);
    assert_eq!(log[0]["message"]["id"], again.json()["message_id"]);
    server.stop().await;
}

async fn is_gone(server: &Harness) {
    for (method, path) in [("GET", "/v1/sessions/s"), ("GET", MESSAGES), ("GET", EVENTS)] {
        assert_eq!(server.send(method, path, &[], "").await.status, 404);
    }
    let key = SessionKey::new("default", "s");
    assert_eq!(server.gate.durable().find_session(&key).await.unwrap(), None);
    // Also after a restart.
    let after = Harness::with_store(GatedStore::with_store(server.gate.durable()), "");
    assert_eq!(after.get("/v1/sessions/s").await.status, 404);
    assert_eq!(after.get("/v1/sessions").await.json()["sessions"], json!([]));
    after.stop().await;
}

#[tokio::test]
async fn row_15_a_deletion_is_durable_before_it_is_answered() {
    let server = Harness::new();
    let session = server.session("external").await;
    server.publish(&start("r")).await;
    let mut watching = server.watch("after=2").await;
    server.gate.close(Operation::Deletes);
    let deleting = server.begin("DELETE", "/v1/sessions/s", &[], "");
    server.gate.wait_for_waiting(Operation::Deletes, 1).await;
    assert!(!deleting.is_finished());
    // A crash now would bring it back, so there is no response yet.
    assert_eq!(server.publish(&[delta("r", 0, "x")]).await.status, 200);
    assert_eq!(watching.next().await.unwrap().0["delta"], "x");
    server.gate.open(Operation::Deletes);
    assert_eq!(deleting.await.unwrap().status, 204);
    assert!(watching.next().await.is_none(), "whoever watches is sent away");
    is_gone(&server).await;
    assert_eq!(server.publish(&[delta("r", 1, "x")]).await.status, 404);
    assert!(matches!(session.snapshot().await, Err(Error::NoSession)));
    server.stop().await;
}

#[tokio::test]
async fn row_15_what_is_written_while_a_session_is_deleted_does_not_bring_it_back() {
    let server = Harness::new();
    let old = server.session("external").await;
    server.publish(&start("r")).await;
    server.gate.close(Operation::Appends);
    let writing = server.begin_publish(&[delta("r", 0, "x")]);
    let looking = server.begin("GET", MESSAGES, &[], "");
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    assert_eq!(server.send("DELETE", "/v1/sessions/s", &[], "").await.status, 204);
    server.gate.open(Operation::Appends);
    let late = writing.await.unwrap();
    assert_eq!(late.status, 404, "{}", late.text());
    assert!(matches!(looking.await.unwrap().status, 200 | 404));
    is_gone(&server).await;
    // A new session of the same name is another session.
    let new = server.session("external").await;
    assert_ne!(new.epoch(), old.epoch());
    assert_eq!(server.log().await, Vec::<Value>::new());
    server.stop().await;
}

#[tokio::test]
async fn row_15_a_session_that_is_deleted_while_its_agent_writes_stays_away() {
    let server = Harness::new();
    server.session("demo").await;
    server.gate.close(Operation::Appends);
    let sending = server.begin("POST", MESSAGES, &[], r#"{"content":"long 100"}"#);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    server.gate.open(Operation::Appends);
    assert_eq!(sending.await.unwrap().status, 202);
    assert_eq!(server.send("DELETE", "/v1/sessions/s", &[], "").await.status, 204);
    eventually(|| server.app.turns.active_sessions() == 0).await;
    is_gone(&server).await;
    server.stop().await;
}

/// A tenant with many slow searches.
const SLOW: &[(&str, &str)] = &[("x-api-key", "slow")];
const QUICK: &[(&str, &str)] = &[("x-api-key", "quick")];

/// The tenants `slow` and `quick`, with the SHA-256 of their names as tokens.
const TENANTS: &str = r#"
    [[auth.tokens]]
    tenant = "slow"
    sha256 = "5e0cf7bd1dfa3831788b0cf6dedcdd228fba6f34dc238d371e746567e80bc7b6"
    scopes = ["read", "chat"]
    [[auth.tokens]]
    tenant = "quick"
    sha256 = "22c72aa82ce77c82e2ca65a711c79eaa4b51c57f85f91489ceeacc7b385943ba"
    scopes = ["read", "chat"]
"#;

#[tokio::test]
async fn reads_of_one_tenant_leave_the_store_to_others() {
    let before = Harness::with_store(GatedStore::new(), TENANTS);
    let body = |id: usize| json!({"id": format!("s{id}"), "agent": "external"}).to_string();
    for id in 0..40 {
        assert_eq!(before.send("POST", "/v1/sessions", SLOW, &body(id)).await.status, 201);
        let path = format!("/v1/sessions/s{id}/messages");
        assert_eq!(before.send("POST", &path, SLOW, r#"{"content":"hello"}"#).await.status, 202);
    }
    let durable = before.gate.durable();
    before.stop().await;
    // After a restart nothing is in memory.
    let server = Harness::with_store(GatedStore::with_store(durable), TENANTS);
    server.gate.close(Operation::Reads);
    let begin = |id: usize| {
        let path = String::leak(format!("/v1/sessions/s{id}/events"));
        server.begin("GET", path, &[("x-api-key", "slow"), ("accept", "application/x-ndjson")], "")
    };
    let reads: Vec<_> = (0..40).map(begin).collect();
    server.gate.wait_for_waiting(Operation::Reads, 16).await;
    for id in 0..20 {
        assert_eq!(server.send("POST", "/v1/sessions", QUICK, &body(id)).await.status, 201);
        assert_eq!(server.send("GET", "/v1/sessions", QUICK, "").await.status, 200);
    }
    assert_eq!(server.gate.waiting(Operation::Reads), 16, "the others wait for their turn");
    server.gate.open(Operation::Reads);
    for read in reads {
        assert_eq!(read.await.unwrap().status, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn searches_of_one_tenant_keep_nobody_else_waiting() {
    let server = Harness::with_store(GatedStore::new(), TENANTS);
    server.gate.close(Operation::Searches);
    let searches: Vec<_> =
        (0..40).map(|_| server.begin("GET", "/v1/sessions?q=word", SLOW, "")).collect();
    server.gate.wait_for_waiting(Operation::Searches, 2).await;
    for _ in 0..3 {
        assert_eq!(server.send("GET", "/v1/sessions?q=word", QUICK, "").await.status, 200);
    }
    for (token, id) in [(QUICK, "one"), (SLOW, "two")] {
        let body = json!({"id": id, "agent": "external"}).to_string();
        assert_eq!(server.send("POST", "/v1/sessions", token, &body).await.status, 201);
        assert_eq!(server.send("GET", "/v1/sessions", token, "").await.status, 200);
    }
    assert_eq!(server.gate.waiting(Operation::Searches), 2, "the others wait for their turn");
    server.gate.open(Operation::Searches);
    for search in searches {
        assert_eq!(search.await.unwrap().status, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn equal_requests_at_the_same_time_get_answers_of_their_own() {
    let server = Harness::new();
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "hello"}]})),
        ("/v1/responses", json!({"input": "hello"})),
    ] {
        let mut body = body;
        body["model"] = json!("demo");
        let ask = || server.begin("POST", path, &[], &body.to_string());
        // The log has the first one, which is about to be answered, when the second one arrives.
        server.gate.close(Operation::Acknowledgements);
        let first = ask();
        server.gate.wait_for_waiting(Operation::Acknowledgements, 1).await;
        let second = ask();
        server.gate.wait_for_waiting(Operation::Acknowledgements, 2).await;
        server.gate.open(Operation::Acknowledgements);
        let sessions = [first.await.unwrap(), second.await.unwrap()].map(|answer| {
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.header("turnwire-session").unwrap().to_owned()
        });
        assert_ne!(sessions[0], sessions[1]);
    }
    server.stop().await;
}
