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
    let house = Harness::new();
    house.session("external").await;
    house.publish(&start("r")).await;
    house.gate.close(Operation::Appends);
    // A later run takes over while the events of the earlier one are being written.
    let earlier = house.begin_publish(&[delta("r", 0, "earlier")]);
    house.gate.wait_for_waiting(Operation::Appends, 1).await;
    let later: &[_] = &[("turnwire-producer", "p.2")];
    let later = house.begin("POST", EVENTS, later, &delta("r", 1, "later"));
    house.gate.wait_for_waiting(Operation::Appends, 2).await;
    // From here on the earlier one is fenced out, though nothing is durable yet.
    let zombie = house.publish(&[delta("r", 2, "zombie")]).await;
    assert_eq!((zombie.status, zombie.error_type().as_str()), (409, "fenced"), "{}", zombie.text());
    house.gate.open(Operation::Appends);
    assert_eq!((earlier.await.unwrap().status, later.await.unwrap().status), (200, 200));
    assert_eq!(house.publish(&end("r")).await.status, 409);
    let log = house.log().await;
    let said: Vec<&str> = log.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(said, ["earlier", "later"]);
    house.stop().await;
}

#[tokio::test]
async fn row_12_an_owner_that_wakes_up_late_writes_nothing() {
    let house = Harness::new();
    house.session("external").await;
    house.publish(&start("r")).await;
    // Another process takes the lease.
    let other = Log::new(house.gate.durable(), "other");
    let key = SessionKey::new("default", "s");
    let session = other.open_session(&key).await.unwrap().unwrap();
    let line = delta("r", 0, "theirs");
    let push = |tx: &mut turnwire_log::Transaction<'_>| {
        tx.push(&mut Event::from_json(&line).unwrap(), Some(&line)).unwrap();
        Ok::<_, Error>(())
    };
    session.transact(&["r"], push).await.unwrap();
    let late = house.publish(&[delta("r", 1, "ours")]).await;
    assert_eq!(late.status, 409, "{}", late.text());
    let rows = house
        .gate
        .durable()
        .read_events(session.number(), turnwire_core::Seq::FIRST, 1 << 20)
        .await;
    let rows = rows.unwrap();
    assert_eq!(rows.iter().map(|rows| rows.count).sum::<u32>(), 3);
    house.stop().await;
}

const KEYED: &[(&str, &str)] = &[("idempotency-key", "k1")];
const HELLO: &str = r#"{"content":"hello"}"#;

#[tokio::test]
async fn row_13_a_post_that_is_sent_again_while_the_first_is_written_is_done_once() {
    let house = Harness::new();
    let session = house.session("demo").await;
    house.gate.close(Operation::Appends);
    let first = house.begin("POST", MESSAGES, KEYED, HELLO);
    house.gate.wait_for_waiting(Operation::Appends, 1).await;
    let second = house.begin("POST", MESSAGES, KEYED, HELLO);
    let other = house.begin("POST", MESSAGES, KEYED, r#"{"content":"another"}"#);
    let other = other.await.unwrap();
    assert_eq!(other.error_type(), "idempotency_key_reused", "{}", other.text());
    assert!(!second.is_finished(), "its answer is not durable yet");
    house.gate.open(Operation::Appends);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.status, second.status), (202, 202), "{}", second.text());
    assert_eq!(first.json(), second.json());
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    let third = house.send("POST", MESSAGES, KEYED, HELLO).await;
    assert_eq!(third.json(), first.json());
    let other = house.send("POST", MESSAGES, KEYED, r#"{"content":"another"}"#).await;
    assert_eq!((other.status, other.error_type().as_str()), (422, "idempotency_key_reused"));
    let mut head = session.watch_head();
    let idle = head.wait_for(|head| head.status == turnwire_log::store::SessionStatus::Idle);
    within(idle).await.unwrap();
    let said = house.log().await.iter().filter(|event| event["type"] == "MESSAGE").count();
    assert_eq!(said, 1);
    house.stop().await;
}

#[tokio::test]
async fn row_13_a_post_whose_first_try_was_lost_is_done_by_the_second() {
    let house = Harness::new();
    house.session("external").await;
    house.gate.close(Operation::Appends);
    let first = house.begin("POST", MESSAGES, KEYED, HELLO);
    house.gate.wait_for_waiting(Operation::Appends, 1).await;
    house.gate.drop_held();
    assert_eq!(first.await.unwrap().status, 503);
    let second = house.send("POST", MESSAGES, KEYED, HELLO).await;
    assert_eq!(second.status, 202, "{}", second.text());
    assert_eq!(second.header("idempotency-replayed"), None);
    assert_eq!(house.log().await.len(), 1);
    house.stop().await;
}

#[tokio::test]
async fn row_13_a_post_whose_answer_nobody_heard_is_answered_the_same_after_a_restart() {
    let gate = GatedStore::new();
    let house = Harness::with_store(gate.clone(), "");
    house.session("external").await;
    let mut stream = TcpStream::connect(house.address).await.unwrap();
    let request = http::request(house.address, "POST", MESSAGES, KEYED, HELLO.as_bytes());
    house.gate.close(Operation::Appends);
    stream.write_all(&request).await.unwrap();
    house.gate.wait_for_waiting(Operation::Appends, 1).await;
    drop(stream);
    house.gate.open(Operation::Appends);
    house.stop().await;
    let house = Harness::with_store(GatedStore::with_store(gate.durable()), "");
    let again = house.send("POST", MESSAGES, KEYED, HELLO).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{}", again.text());
    let log = house.log().await;
    assert_eq!(log.len(), 1);
    assert_eq!(log[0]["message"]["id"], again.json()["message_id"]);
    house.stop().await;
}

async fn is_gone(house: &Harness) {
    for (method, path) in [("GET", "/v1/sessions/s"), ("GET", MESSAGES), ("GET", EVENTS)] {
        assert_eq!(house.send(method, path, &[], "").await.status, 404);
    }
    let key = SessionKey::new("default", "s");
    assert_eq!(house.gate.durable().find_session(&key).await.unwrap(), None);
    // Also after a restart.
    let after = Harness::with_store(GatedStore::with_store(house.gate.durable()), "");
    assert_eq!(after.get("/v1/sessions/s").await.status, 404);
    assert_eq!(after.get("/v1/sessions").await.json()["sessions"], json!([]));
    after.stop().await;
}

#[tokio::test]
async fn row_15_a_deletion_is_durable_before_it_is_answered() {
    let house = Harness::new();
    let session = house.session("external").await;
    house.publish(&start("r")).await;
    let mut watching = house.watch("after=2").await;
    house.gate.close(Operation::Deletes);
    let deleting = house.begin("DELETE", "/v1/sessions/s", &[], "");
    house.gate.wait_for_waiting(Operation::Deletes, 1).await;
    assert!(!deleting.is_finished());
    // A crash now would bring it back, so there is no response yet.
    assert_eq!(house.publish(&[delta("r", 0, "x")]).await.status, 200);
    assert_eq!(watching.next().await.unwrap().0["delta"], "x");
    house.gate.open(Operation::Deletes);
    assert_eq!(deleting.await.unwrap().status, 204);
    assert!(watching.next().await.is_none(), "whoever watches is sent away");
    is_gone(&house).await;
    assert_eq!(house.publish(&[delta("r", 1, "x")]).await.status, 404);
    assert!(matches!(session.snapshot().await, Err(Error::NoSession)));
    house.stop().await;
}

#[tokio::test]
async fn row_15_what_is_written_while_a_session_is_deleted_does_not_bring_it_back() {
    let house = Harness::new();
    let old = house.session("external").await;
    house.publish(&start("r")).await;
    house.gate.close(Operation::Appends);
    let writing = house.begin_publish(&[delta("r", 0, "x")]);
    let looking = house.begin("GET", MESSAGES, &[], "");
    house.gate.wait_for_waiting(Operation::Appends, 1).await;
    assert_eq!(house.send("DELETE", "/v1/sessions/s", &[], "").await.status, 204);
    house.gate.open(Operation::Appends);
    let late = writing.await.unwrap();
    assert_eq!(late.status, 404, "{}", late.text());
    assert!(matches!(looking.await.unwrap().status, 200 | 404));
    is_gone(&house).await;
    // A new session of the same name is another session.
    let new = house.session("external").await;
    assert_ne!(new.epoch(), old.epoch());
    assert_eq!(house.log().await, Vec::<Value>::new());
    house.stop().await;
}

#[tokio::test]
async fn row_15_a_session_that_is_deleted_while_its_agent_writes_stays_away() {
    let house = Harness::new();
    house.session("demo").await;
    house.gate.close(Operation::Appends);
    let said = house.begin("POST", MESSAGES, &[], r#"{"content":"long 100"}"#);
    house.gate.wait_for_waiting(Operation::Appends, 1).await;
    house.gate.open(Operation::Appends);
    assert_eq!(said.await.unwrap().status, 202);
    assert_eq!(house.send("DELETE", "/v1/sessions/s", &[], "").await.status, 204);
    eventually(|| house.app.turns.active_sessions() == 0).await;
    is_gone(&house).await;
    house.stop().await;
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
    let house = Harness::with_store(GatedStore::with_store(durable), TENANTS);
    house.gate.close(Operation::Reads);
    let begin = |id: usize| {
        let path = String::leak(format!("/v1/sessions/s{id}/events"));
        house.begin("GET", path, &[("x-api-key", "slow"), ("accept", "application/x-ndjson")], "")
    };
    let reads: Vec<_> = (0..40).map(begin).collect();
    house.gate.wait_for_waiting(Operation::Reads, 16).await;
    for id in 0..20 {
        assert_eq!(house.send("POST", "/v1/sessions", QUICK, &body(id)).await.status, 201);
        assert_eq!(house.send("GET", "/v1/sessions", QUICK, "").await.status, 200);
    }
    assert_eq!(house.gate.waiting(Operation::Reads), 16, "the others wait for their turn");
    house.gate.open(Operation::Reads);
    for read in reads {
        assert_eq!(read.await.unwrap().status, 200);
    }
    house.stop().await;
}

#[tokio::test]
async fn searches_of_one_tenant_keep_nobody_else_waiting() {
    let house = Harness::with_store(GatedStore::new(), TENANTS);
    house.gate.close(Operation::Searches);
    let searches: Vec<_> =
        (0..40).map(|_| house.begin("GET", "/v1/sessions?q=word", SLOW, "")).collect();
    house.gate.wait_for_waiting(Operation::Searches, 2).await;
    for _ in 0..3 {
        assert_eq!(house.send("GET", "/v1/sessions?q=word", QUICK, "").await.status, 200);
    }
    for (token, id) in [(QUICK, "one"), (SLOW, "two")] {
        let body = json!({"id": id, "agent": "external"}).to_string();
        assert_eq!(house.send("POST", "/v1/sessions", token, &body).await.status, 201);
        assert_eq!(house.send("GET", "/v1/sessions", token, "").await.status, 200);
    }
    assert_eq!(house.gate.waiting(Operation::Searches), 2, "the others wait for their turn");
    house.gate.open(Operation::Searches);
    for search in searches {
        assert_eq!(search.await.unwrap().status, 200);
    }
    house.stop().await;
}
