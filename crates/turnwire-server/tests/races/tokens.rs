use crate::gated_store::Operation;
use crate::harness::*;
use serde_json::{Value, json};
use turnwire_core::Head;

#[tokio::test]
async fn row_04_every_event_has_an_id_and_after_does_what_the_header_does() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&reply("r", 4)).await;
    let mut all = Vec::new();
    let mut watching = server.watch("raw=true").await;
    for _ in 0..8 {
        let (event, id) = watching.next().await.unwrap();
        all.push((event, id.expect("an id on every event")));
    }
    for (at, (_, id)) in all.iter().enumerate().take(7) {
        let by_query = server.watch(&format!("raw=true&after={id}")).await;
        let path = format!("{EVENTS}?raw=true&after=0");
        let headers = [("last-event-id", id.as_str())];
        // The header wins, because a browser sends it with the URL that it began with.
        let by_header = EventStream::open(server.address, &path, &headers).await;
        let bare = id.rsplit_once('.').unwrap().1;
        let by_seq = server.watch(&format!("raw=true&after={bare}")).await;
        for mut watching in [by_query, by_header, by_seq] {
            for (event, id) in &all[at + 1..] {
                assert_eq!(watching.next().await.unwrap(), (event.clone(), Some(id.clone())));
            }
        }
    }
    // A merged event has the id of its last part.
    let mut merged = server.watch("").await;
    let mut events = Vec::new();
    for _ in 0..5 {
        events.push(merged.next().await.unwrap());
    }
    assert_eq!(events[2].0["seq_from"], 3);
    assert_eq!(events[2].1.as_ref(), Some(&all[5].1));
    server.stop().await;
}

/// Checks that a client starts over.
async fn is_reset(watching: &mut EventStream, epoch: &str, then: &[&str]) -> Value {
    let (event, id) = watching.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["epoch"].as_str()), (Some("RESET"), Some(epoch)));
    assert_eq!(id, None, "nobody is to come back with the token of a reset");
    assert_eq!(watching.types(then.len()).await, then);
    event["reason"].clone()
}

const WHOLE: [&str; 5] =
    ["REPLY_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "REPLY_END"];

#[tokio::test]
async fn row_05_the_log_was_trimmed() {
    let server = Harness::new();
    let session = server.session("external").await;
    server.publish(&reply("a", 1)).await;
    server.trim().await;
    server.publish(&reply("b", 1)).await;
    let mut all = Vec::new();
    for after in ["0", "3", "4"] {
        let path = format!("{EVENTS}?after={after}");
        let lines = server.send("GET", &path, LINES, "").await;
        assert_eq!(
            (lines.status, lines.error_type().as_str()),
            (410, "trimmed"),
            "{}",
            lines.text()
        );
        assert!(lines.text().contains("earliest event is 6"), "{}", lines.text());
        let mut watching = server.watch(&format!("after={after}")).await;
        let rest = [&["MESSAGE"], &WHOLE[..]].concat();
        is_reset(&mut watching, session.epoch(), &rest).await;
        all.push(watching);
    }
    let whole = server.send("GET", EVENTS, LINES, "").await;
    assert_eq!(whole.status, 410, "what is not all of it does not pass for all of it");
    // The cursor just before the first kept event is valid.
    let mut fits = server.watch("after=5").await;
    assert_eq!(fits.types(5).await, WHOLE);
    assert_eq!(server.send("GET", &format!("{EVENTS}?after=5"), LINES, "").await.status, 200);
    assert_eq!(server.get("/v1/sessions/s/messages/a?at=2").await.status, 410);
    // Then all of them are live.
    server.publish(&start("c")).await;
    for mut watching in all {
        assert_eq!(watching.next().await.unwrap().0["reply_id"], "c");
    }
    assert_eq!(server.get("/v1/sessions/s/messages/a").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn row_05_the_log_is_trimmed_under_a_watcher() {
    let server = Harness::new();
    let session = server.session("external").await;
    server.publish(&reply("a", 1500)).await;
    server.gate.close(Operation::Reads);
    let mut watching = server.watch("raw=true").await;
    server.gate.wait_for_waiting(Operation::Reads, 1).await;
    server.trim().await;
    server.gate.open(Operation::Reads);
    let reason = is_reset(&mut watching, session.epoch(), &["MESSAGE"]).await;
    assert!(reason.as_str().unwrap().contains("deleted by retention"), "{reason}");
    server.publish(&reply("b", 1)).await;
    assert_eq!(watching.types(5).await, WHOLE);
    server.stop().await;
}

#[tokio::test]
async fn row_06_a_token_of_another_incarnation_or_of_the_future() {
    let server = Harness::new();
    let old = server.session("external").await;
    server.publish(&reply("a", 1)).await;
    let token = old.resume_token(Head::new(3));
    assert_eq!(server.send("DELETE", "/v1/sessions/s", &[], "").await.status, 204);
    let new = server.session("external").await;
    server.publish(&reply("b", 1)).await;
    let (future, far) = (new.resume_token(Head::new(6)), format!("{}.{}", new.epoch(), u64::MAX));
    for token in [&token, &future, &far, "6", "x", "x.y", ".1", "1.", "-1", "99999999999999999999"]
    {
        let mut watching = server.watch(&format!("after={token}")).await;
        is_reset(&mut watching, new.epoch(), &WHOLE).await;
        let headers = [("last-event-id", token)];
        let mut watching = EventStream::open(server.address, EVENTS, &headers).await;
        is_reset(&mut watching, new.epoch(), &WHOLE).await;
        let lines = server.send("GET", &format!("{EVENTS}?after={token}"), LINES, "").await;
        assert_eq!(lines.status, 410, "{token}: {}", lines.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn row_06_a_token_from_before_a_wiped_store_does_not_come_in_again() {
    // The same name in another store, as after a restore.
    let (before, after) = (Harness::new(), Harness::new());
    let old = before.session("external").await;
    before.publish(&reply("a", 9)).await;
    let token = old.resume_token(Head::new(5));
    before.stop().await;
    let new = after.session("external").await;
    after.publish(&reply("b", 9)).await;
    let mut watching = after.watch(&format!("after={token}")).await;
    is_reset(&mut watching, new.epoch(), &WHOLE).await;
    after.stop().await;
}

#[tokio::test]
async fn row_11_who_asked_for_an_end_gets_one_and_then_204() {
    let server = Harness::new();
    let session = server.session("external").await;
    assert_eq!(server.get(&format!("{EVENTS}?until=idle")).await.status, 204);
    server.publish(&start("r")).await;
    let mut watching = server.watch("until=idle").await;
    let mut other = server.watch("").await;
    assert_eq!(watching.types(2).await, ["REPLY_START", "TEXT_BLOCK_START"]);
    server.publish(&end("r")).await;
    assert_eq!(watching.types(2).await, ["TEXT_BLOCK_END", "REPLY_END"]);
    assert!(watching.incoming.next_bytes().await.unwrap().is_none(), "a clean end");
    // The browser reconnects with its last token, and is told to stop.
    let token = session.resume_token(Head::new(4));
    let path = format!("{EVENTS}?until=idle");
    let headers = [("last-event-id", token.as_str())];
    assert_eq!(server.send("GET", &path, &headers, "").await.status, 204);
    // A client that missed events gets them first, then the end.
    let mut late =
        server.watch(&format!("until=idle&after={}", session.resume_token(Head::new(2)))).await;
    assert_eq!(late.types(2).await, ["TEXT_BLOCK_END", "REPLY_END"]);
    assert!(late.next().await.is_none());
    // A stream without `until` stays open.
    assert_eq!(other.types(4).await.len(), 4);
    server.publish(&reply("q", 0)).await;
    assert_eq!(other.next().await.unwrap().0["reply_id"], "q");
    server.stop().await;
}

#[tokio::test]
async fn row_11_the_end_comes_while_the_last_event_is_on_its_way() {
    let server = Harness::new();
    server.session("external").await;
    server.publish(&start("r")).await;
    server.gate.close(Operation::Appends);
    let ending = server.begin_publish(&end("r"));
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    // It is not idle before the end is durable.
    let mut watching = server.watch("until=idle&after=2").await;
    server.gate.open(Operation::Appends);
    assert_eq!(ending.await.unwrap().status, 200);
    assert_eq!(watching.types(2).await, ["TEXT_BLOCK_END", "REPLY_END"]);
    assert!(watching.next().await.is_none());
    assert_eq!(server.get("/v1/sessions/s").await.json()["status"], json!("idle"));
    server.stop().await;
}
