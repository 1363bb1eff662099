//! A long history is never in memory as a whole: every request reads it in pages.

use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_core::Event;
use turnwire_log::{Error, Session, Transaction};

/// How many messages the session has, and how many bytes each of them has.
const COUNT: usize = 40;
const BYTES: usize = 200 << 10;

/// The most that may be read at once: a page, and the message that exceeds it.
const PAGE: usize = (1 << 20) + 2 * BYTES;

/// Appends a whole message.
async fn append(session: &Arc<Session>, id: usize) {
    let role = if id.is_multiple_of(2) { "user" } else { "assistant" };
    let content = json!([{"type": "text", "text": "x".repeat(BYTES), "id": format!("b{id}")}]);
    let message = json!({
        "id": format!("m{id}"), "name": role, "role": role, "content": content,
        "finished_at": "2026-01-01T00:00:00Z",
    });
    let line = json!({"id": format!("e{id}"), "type": "MESSAGE", "message": message}).to_string();
    let change = |tx: &mut Transaction<'_>| {
        tx.push(&mut Event::from_json(&line).unwrap(), Some(&line)).unwrap();
        Ok::<_, Error>(())
    };
    session.transact(&[], change).await.unwrap();
}

/// A server with a long session.
async fn long_session() -> Harness {
    let server = Harness::new();
    let session = server.session("external").await;
    for id in 0..COUNT {
        append(&session, id).await;
    }
    assert_eq!(server.gate.state().largest_page, 0);
    server
}

fn names(from: usize) -> Vec<String> {
    (from..COUNT).map(|id| format!("m{id}")).collect()
}

#[tokio::test]
async fn a_history_of_blocks_is_written_page_by_page() {
    let server = long_session().await;
    let answer = server.get("/v2/sessions/s/history").await;
    assert_eq!(answer.status, 200);
    let history: Value = serde_json::from_str(&answer.text()).unwrap();
    let messages = history["messages"].as_array().unwrap();
    let ids: Vec<_> =
        messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, names(0));
    assert_eq!(history["message_count"], COUNT);
    assert_eq!(history["session_id"], "s");
    assert_eq!(history["status"], "completed");
    assert!((1..=PAGE).contains(&server.gate.state().largest_page));
    server.stop().await;
}

#[tokio::test]
async fn an_ag_ui_client_that_comes_back_has_the_history_read_page_by_page() {
    let server = long_session().await;
    let input = json!({"threadId": "s", "runId": "r", "messages": []}).to_string();
    let answer = server.send("POST", "/ag-ui/external", &[], &input).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let snapshot = text.lines().find_map(|line| {
        let frame: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        (frame["type"] == "MESSAGES_SNAPSHOT").then(|| frame["messages"].clone())
    });
    assert_eq!(snapshot.unwrap().as_array().unwrap().len(), COUNT);
    assert!((1..=PAGE).contains(&server.gate.state().largest_page));
    server.stop().await;
}

#[tokio::test]
async fn a_retry_reads_the_history_page_by_page() {
    let server = long_session().await;
    let answer = server.send("POST", "/v1/sessions/s/messages/m2/retry", &[], "").await;
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    assert!((1..=PAGE).contains(&server.gate.state().largest_page));
    let log = server.log().await;
    assert_eq!(log.last().unwrap()["message_ids"], json!(names(3)));
    server.stop().await;
}

#[tokio::test]
async fn messages_whose_events_are_gone_come_to_a_watcher_page_by_page() {
    let server = long_session().await;
    server.trim().await;
    let mut watching = server.watch("").await;
    let mut seen = Vec::new();
    while seen.len() < COUNT {
        let (event, _) = watching.next().await.unwrap();
        if event["type"] == "MESSAGE" {
            seen.push(event["message"]["id"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(seen, names(0));
    assert!((1..=PAGE).contains(&server.gate.state().largest_page));
    server.stop().await;
}

#[tokio::test]
async fn a_page_of_messages_passes_over_what_was_superseded_in_small_reads() {
    let server = long_session().await;
    let answer = server.send("POST", "/v1/sessions/s/messages/m0/retry", &[], "").await;
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    let page = server.get("/v1/sessions/s/messages?limit=500").await;
    let page: Value = serde_json::from_str(&page.text()).unwrap();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
    assert_eq!((&page["has_more"], &page["next_before"]), (&json!(false), &Value::Null));
    assert!((1..=PAGE).contains(&server.gate.state().largest_page));
    server.stop().await;
}

#[tokio::test]
async fn the_usage_of_agents_goes_through_no_list_of_sessions() {
    let server = Harness::new();
    server.session("external").await;
    let answer = server.get("/v1/agents?usage=true").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(server.gate.state().lists, 0);
    server.stop().await;
}
