use crate::gated_store::Operation;
use crate::harness::*;
use serde_json::Value;
use turnwire_core::{Head, Seq};

/// More than the live feed keeps.
const MANY: usize = 1500;

#[tokio::test]
async fn row_01_an_event_lands_between_replay_and_live() {
    let server = Harness::new();
    server.session("external").await;
    let before = [start("r"), deltas("r", 0..MANY - 2)].concat();
    assert_eq!(server.publish(&before).await.status, 200);
    server.gate.close(Operation::Reads);
    // The subscriber is in the middle of the backlog when more events come.
    let mut watching = server.watch("raw=true").await;
    server.gate.wait_for_waiting(Operation::Reads, 1).await;
    let last = (MANY + 5) as u64;
    assert_eq!(server.publish(&deltas("r", MANY..MANY + 5)).await.status, 200);
    server.gate.open(Operation::Reads);
    assert_eq!(watching.seqs(last).await, up_to(last));
    // Then it is live.
    server.publish(&end("r")).await;
    assert_eq!(watching.seqs(last + 2).await, [last + 1, last + 2]);
    server.stop().await;
}

#[tokio::test]
async fn row_01_an_event_lands_between_the_messages_and_the_watching() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&[start("r"), deltas("r", 0..3)].concat()).await;
    let page = server.get(MESSAGES).await.json();
    server.publish(&deltas("r", 3..6)).await;
    let token = page["last_event_id"].as_str().unwrap();
    let mut watching = server.watch(&format!("after={token}")).await;
    server.publish(&end("r")).await;
    assert_eq!(watching.seqs(10).await, (6..=10).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn a_reply_that_ends_while_open_messages_are_listed_is_listed() {
    let server = Harness::new();
    let session = server.session("external").await;
    server.publish(&[start("r"), deltas("r", 0..3)].concat()).await;
    server.gate.close(Operation::Messages);
    let at = Seq::new(4).unwrap();
    let listing = session.clone();
    let listing = tokio::spawn(async move { listing.unfinished_messages_at(at).await });
    server.gate.wait_for_waiting(Operation::Messages, 1).await;
    assert_eq!(server.publish(&end("r")).await.status, 200);
    server.gate.open(Operation::Messages);
    assert_eq!(listing.await.unwrap().unwrap(), ["r"]);
    server.stop().await;
}

#[tokio::test]
async fn row_02_a_watcher_that_comes_late_skips_nothing() {
    let server = Harness::new();
    server.session("external").await;
    let mut early = server.watch("raw=true").await;
    server.publish(&start("r")).await;
    assert_eq!(early.seqs(2).await, [1, 2]);
    // One is at the head already when the others begin, and one never reads.
    let (mut late, _idle) = (server.watch("raw=true").await, server.watch("raw=true").await);
    server.publish(&deltas("r", 0..20)).await;
    assert_eq!(late.seqs(22).await, up_to(22));
    let mut later = server.watch("raw=true&after=20").await;
    server.publish(&end("r")).await;
    assert_eq!(later.seqs(24).await, [21, 22, 23, 24]);
    assert_eq!(late.seqs(24).await, [23, 24]);
    assert_eq!(early.seqs(24).await, (3..=24).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn row_03_nobody_sees_an_event_that_a_crash_erases() {
    let server = Harness::new();
    let session = server.session("external").await;
    server.publish(&start("r")).await;
    let mut watching = server.watch("after=2").await;
    server.gate.close(Operation::Appends);
    let posted = server.begin_publish(&[delta("r", 0, "erased")]);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    // They subscribe while it is written, and see it only when it is durable.
    let looking = [
        server.begin("GET", MESSAGES, &[], ""),
        server.begin("GET", "/v1/sessions/s/messages/r", &[], ""),
        server.begin("GET", "/v1/sessions/s/messages/r?at=3", &[], ""),
        server.begin("GET", "/v1/sessions/s", &[], ""),
        server.begin("GET", EVENTS, LINES, ""),
    ];
    let snapshot = tokio::spawn({
        let session = session.clone();
        async move { session.snapshot().await.unwrap() }
    });
    assert_eq!(session.head_state().head.get(), 2);
    let found = server.get("/v1/sessions?q=erased").await;
    assert_eq!(found.json()["sessions"], Value::Array(Vec::new()));
    server.gate.drop_held();
    let refused = posted.await.unwrap();
    assert_eq!((refused.status, refused.error_type().as_str()), (503, "store_unavailable"));
    for looked in looking {
        let looked = looked.await.unwrap();
        assert_eq!(looked.status, 200, "{looked:?}");
        assert!(!looked.text().contains("erased"), "{}", looked.text());
        assert!(!looked.text().contains(".3\""), "a token of it: {}", looked.text());
    }
    let snapshot = snapshot.await.unwrap();
    assert_eq!(snapshot.head.get(), 2);
    assert!(!snapshot.open[0].msg().to_json().contains("erased"));
    // Its seq is used again, and subscribers see the new event there.
    server.publish(&[delta("r", 1, "kept")]).await;
    let (event, token) = watching.next().await.unwrap();
    assert_eq!((event["delta"].as_str(), event["seq"].as_u64()), (Some("kept"), Some(3)));
    assert_eq!(token, Some(session.resume_token(Head::new(3))));
    server.stop().await;
}

#[tokio::test]
async fn row_03_what_becomes_durable_is_seen_by_all() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&start("r")).await;
    let mut watching = server.watch("after=2").await;
    server.gate.close(Operation::Appends);
    let posted = server.begin_publish(&[delta("r", 0, "kept")]);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    let looking = server.begin("GET", MESSAGES, &[], "");
    // A response that depends on it waits, too: the repeated request.
    let again = server.begin_publish(&[delta("r", 0, "kept")]);
    server.gate.open(Operation::Appends);
    assert_eq!(posted.await.unwrap().json()["stored"], 1);
    assert_eq!(again.await.unwrap().json()["repeated"], 1);
    looking.await.unwrap();
    assert_eq!(watching.next().await.unwrap().0["delta"], "kept");
    assert!(server.get(MESSAGES).await.text().contains("kept"));
    server.stop().await;
}

#[tokio::test]
async fn row_03_a_repeat_of_what_is_lost_is_not_acknowledged() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&start("r")).await;
    server.gate.close(Operation::Appends);
    let posted = server.begin_publish(&[delta("r", 0, "x")]);
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    let again = server.begin_publish(&[delta("r", 0, "x")]);
    // Whether it comes before or after the loss, it must not succeed.
    server.gate.drop_held();
    assert_eq!(posted.await.unwrap().status, 503);
    let again = again.await.unwrap();
    assert!(again.status == 503 || again.json()["stored"] == 1, "{}", again.text());
    let stored = server.publish(&[delta("r", 0, "x")]).await.json();
    assert_eq!(stored["stored"].as_u64().unwrap() + stored["repeated"].as_u64().unwrap(), 1);
    assert_eq!(server.log().await.len(), 3);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_07_seqs_have_no_holes() {
    let server = Harness::new();
    server.session("external").await;
    let mut watching = server.watch("raw=true").await;
    server.publish(&start("r")).await;
    let (mut at, mut stored) = (0, 2);
    for round in 0..8 {
        // Of the appends in flight some are lost, with all later ones.
        let closed = round % 2 == 0;
        if closed {
            server.gate.close(Operation::Appends);
        }
        let posted: Vec<_> = (0..10)
            .map(|_| {
                at += 1;
                server.begin_publish(&deltas("r", at * 10..at * 10 + 3))
            })
            .collect();
        if closed {
            server.gate.wait_for_waiting(Operation::Appends, 1).await;
            server.gate.drop_held();
        }
        for posted in posted {
            let answer = posted.await.unwrap();
            match answer.status {
                200 => stored += answer.json()["stored"].as_u64().unwrap(),
                _ => assert!(matches!(answer.status, 409 | 503), "{}", answer.text()),
            }
        }
    }
    server.publish(&end("r")).await;
    stored += 2;
    let seqs: Vec<u64> = server.log().await.iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, up_to(stored));
    assert_eq!(watching.seqs(stored).await, seqs);
    server.stop().await;
}

#[tokio::test]
async fn row_18_order_is_the_seq_whatever_the_clocks_say() {
    let server = Harness::new();
    server.session("external").await;
    let mut hour = 12;
    let mut backwards = |lines: Vec<String>| -> Vec<String> {
        let timed = lines.iter().map(|line| {
            hour -= 1;
            format!(r#"{{"created_at":"2026-01-01T{hour:02}:00:00.000Z",{}"#, &line[1..])
        });
        timed.collect()
    };
    server.publish(&backwards(reply("a", 2))).await;
    server.publish(&backwards(reply("b", 1))).await;
    let log = server.log().await;
    let times: Vec<&str> = log.iter().map(|event| event["created_at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a > b), "{times:?}");
    let mut watching = server.watch("raw=true").await;
    assert_eq!(watching.seqs(11).await, up_to(11));
    let page = server.get(MESSAGES).await.json();
    let ids: Vec<&Value> = page["messages"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(page["messages"][0]["content"][0]["text"], "0 1 ");
    server.stop().await;
}
