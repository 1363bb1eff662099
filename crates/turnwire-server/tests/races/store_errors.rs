//! A store that is full or fails for a while: clear errors, no acknowledged event is lost, and the
//! server recovers by itself.

use crate::gated_store::GatedStore;
use crate::harness::*;
use crate::running::within;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use turnwire_agent::DemoAgent;
use turnwire_core::Msg;
use turnwire_log::Error;
use turnwire_log::store::SessionStatus;

fn full() -> Error {
    Error::Full("/somewhere/store.db: no room".to_owned())
}

fn broken() -> Error {
    Error::Store("/somewhere/store.db: input/output error".to_owned())
}

#[tokio::test]
async fn whatever_writes_is_told_clearly_and_nothing_acknowledged_is_lost() {
    for (error, status, kind) in
        [(full(), 507, "storage_full"), (broken(), 503, "store_unavailable")]
    {
        let server = Harness::new();
        server.session("external").await;
        server.publish(&[start("r"), deltas("r", 0..3)].concat()).await;
        let before = (server.log().await, server.get(MESSAGES).await.text());
        let mut watching = server.watch("after=5").await;
        server.gate.fail_writes(Some(error));
        let more = [delta("r", 3, "more")];
        for answer in [
            server.publish(&more).await,
            server.send("POST", MESSAGES, &[], r#"{"content":"hello"}"#).await,
            server.send("POST", "/v1/sessions", &[], r#"{"id":"t"}"#).await,
            server.send("PATCH", "/v1/sessions/s", &[], r#"{"title":"t"}"#).await,
            server.send("DELETE", "/v1/sessions/s", &[], "").await,
            server.send("POST", "/v1/blobs", &[], "bytes").await,
        ] {
            assert_eq!((answer.status, answer.error_type().as_str()), (status, kind), "{answer:?}");
            assert!(!answer.text().contains("somewhere"), "{}", answer.text());
            assert!(answer.json()["error"]["hint"].as_str().is_some(), "{}", answer.text());
        }
        // Reads still work, and the operator sees the problem.
        assert_eq!((server.log().await, server.get(MESSAGES).await.text()), before);
        assert_eq!(server.get("/healthz").await.status, 200);
        assert_eq!(server.get("/readyz").await.status, status);
        server.gate.fail_writes(None);
        assert_eq!(server.get("/readyz").await.status, 200);
        assert_eq!(server.publish(&more).await.json()["stored"], 1);
        assert_eq!(watching.next().await.unwrap().0["delta"], "more");
        server.publish(&end("r")).await;
        assert_eq!(server.log().await.len(), before.0.len() + 3);
        let message = server.get("/v1/sessions/s/messages/r").await.json();
        assert_eq!(message["content"][0]["text"], "0 1 2 more");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_under_way_survives_it() {
    for error in [full(), broken(), Error::Locked("another process".to_owned())] {
        let agent = Arc::new(DemoAgent::with_rate(400.0));
        let server = Harness::with_agent(GatedStore::new(), "", "demo", agent);
        let session = server.session("demo").await;
        let mut watching = server.watch("raw=true").await;
        let accepted = server.send("POST", MESSAGES, &[], r#"{"content":"long 60"}"#).await.json();
        let mut head = session.watch_head();
        within(head.wait_for(|head| head.head.get() >= 20)).await.unwrap();
        server.gate.fail_writes(Some(error));
        // It has retried more than once.
        server.gate.until(|state| state.refused >= 2).await;
        let answer = server.send("POST", MESSAGES, &[], r#"{"content":"hello"}"#).await;
        assert!(matches!(answer.status, 409 | 503 | 507), "{}", answer.text());
        server.gate.fail_writes(None);
        within(head.wait_for(|head| head.status == SessionStatus::Idle)).await.unwrap();
        let reply = accepted["reply_id"].as_str().unwrap();
        let message = server.get(&format!("{MESSAGES}/{reply}")).await.text();
        let message = Msg::from_json(&message).unwrap();
        let text = message.text("").unwrap();
        assert_eq!(
            message.finished_reason().map(ToString::to_string).as_deref(),
            Some("completed")
        );
        // Each delta once, and none lost: the log folds to the message.
        let log = server.log().await;
        let deltas: String = log.iter().filter_map(|e| e["delta"].as_str()).collect();
        assert!(deltas.ends_with(&text), "{deltas} / {text}");
        let last = log.len() as u64;
        assert_eq!(watching.seqs(last).await, up_to(last));
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_store_cannot_be_read_ends_and_the_client_comes_back() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&reply("r", 40)).await;
    server.gate.fail_reads(Some(broken()));
    let before = server.gate.state().reads;
    for raw in ["raw=true", "raw=false", "wire=agentscope", "wire=ag-ui"] {
        let path = format!("{EVENTS}?{raw}");
        let request = turnwire_testkit::net::http::request(server.address, "GET", &path, &[], b"");
        let incoming = turnwire_testkit::net::StreamingResponse::send(server.address, &request);
        // It breaks off, before or after the response head, so a browser's EventSource reconnects.
        let Ok(incoming) = within(incoming).await else { continue };
        if incoming.status == 200 {
            let mut watching = EventStream::from_incoming(incoming);
            while let Some(frame) = watching.frame().await {
                assert_eq!(frame.data, None, "{raw}");
            }
        } else {
            assert_eq!(incoming.status, 503, "{raw}");
        }
    }
    let reads = server.gate.state().reads - before;
    assert!(reads < 30, "{reads} reads: nobody tries again and again without a pause");
    server.gate.fail_reads(None);
    let mut watching = server.watch("raw=true").await;
    assert_eq!(watching.seqs(44).await, up_to(44));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_messages_and_answers_survive_it() {
    let agent = Arc::new(DemoAgent::with_rate(400.0));
    let server = Harness::with_agent(GatedStore::new(), "", "demo", agent);
    let session = server.session("demo").await;
    let mut head = session.watch_head();
    server.send("POST", MESSAGES, &[], r#"{"content":"approve this"}"#).await;
    within(head.wait_for(|head| head.status == SessionStatus::Waiting)).await.unwrap();
    let queued = format!("{MESSAGES}?queue=true");
    let waiting = server.send("POST", &queued, &[], r#"{"content":"hello"}"#).await;
    assert_eq!(waiting.status, 202, "{}", waiting.text());
    let pending = server.get("/v1/sessions/s").await.json()["pending"].clone();
    let call = &pending[0]["confirm"][0];
    let answer = json!({
        "type": "USER_CONFIRM_RESULT", "id": "yes", "reply_id": pending[0]["reply_id"],
        "confirm_results": [{"confirmed": true, "tool_call": call}],
    });
    server.gate.fail_writes(Some(full()));
    let refused = server.send("POST", EVENTS, &[], &answer.to_string()).await;
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert_eq!(server.get("/v1/sessions/s").await.json()["pending"], pending);
    server.gate.fail_writes(None);
    let taken = server.send("POST", EVENTS, &[], &answer.to_string()).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    within(head.wait_for(|head| head.status == SessionStatus::Idle)).await.unwrap();
    let all = async {
        loop {
            let page = server.get(MESSAGES).await.json();
            let ended = |m: &Value| m["role"] == "user" || m["finished_at"].is_string();
            let messages = page["messages"].as_array().unwrap().clone();
            if messages.len() == 4 && messages.iter().all(ended) {
                return messages;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let messages = within(all).await;
    let reasons: Vec<&Value> = messages.iter().map(|message| &message["finished_reason"]).collect();
    assert_eq!((reasons[1], reasons[3]), (&json!("completed"), &json!("completed")));
    server.stop().await;
}
