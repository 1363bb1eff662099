use crate::faulty_store::FaultyStore;
use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use turnwire_core::EventKind;

async fn ask(server: &Harness, id: &str) -> Answer {
    server
        .request_json("POST", &format!("/v1/sessions/s/messages/{id}/retry"), None, &Value::Null)
        .await
}

#[tokio::test]
async fn a_retry_takes_the_old_reply_out_of_the_history() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let first = server.send_text("one").await.body;
    until_idle(&session).await;
    let (question, old) =
        (first["message_id"].as_str().unwrap(), first["reply_id"].as_str().unwrap());
    let before = session.head_state().head;
    let answer = ask(&server, old).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body["message_id"], question);
    assert_eq!(answer.body["last_event_id"], json!(session.resume_token(before)));
    until_idle(&session).await;
    assert!(session.find_message(old).await.unwrap().unwrap().superseded);
    let log = events(&session).await;
    let at = usize::try_from(before.get()).unwrap();
    assert!(matches!(&log[at].kind, EventKind::Supersede(s) if s.message_ids == [old]));
    assert!(matches!(&log[at + 1].kind, EventKind::ReplyStart(_)));
    assert_eq!(server.actor.calls.lock()[1].history, ["one"]);
    // A superseded message cannot be retried.
    let stale = ask(&server, old).await;
    assert_eq!((stale.status.as_u16(), stale.kind()), (409, "superseded"));
    // The question can.
    assert_eq!(ask(&server, question).await.status, 202);
    until_idle(&session).await;
    check_projection(&session).await;
}

#[tokio::test]
async fn a_retry_of_an_earlier_message_takes_all_behind_it_out() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let mut accepted = Vec::new();
    for text in ["one", "two", "three"] {
        accepted.push(server.send_text(text).await.body);
        until_idle(&session).await;
    }
    assert_eq!(ask(&server, accepted[1]["message_id"].as_str().unwrap()).await.status, 202);
    until_idle(&session).await;
    assert_eq!(server.actor.calls.lock()[3].history, ["one", "re: one", "two"]);
    server.send_text("four").await;
    until_idle(&session).await;
    assert_eq!(server.actor.calls.lock()[4].history, ["one", "re: one", "two", "re: two", "four"]);
}

#[tokio::test]
async fn nothing_is_retried_while_a_reply_is_open() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let first = server.send_text("one").await.body;
    until_idle(&session).await;
    let held = server.send_text("hold").await.body;
    let busy = ask(&server, first["message_id"].as_str().unwrap()).await;
    assert_eq!((busy.status.as_u16(), busy.kind()), (409, "busy"));
    assert_eq!(ask(&server, held["message_id"].as_str().unwrap()).await.status, 409);
    assert_eq!(ask(&server, held["reply_id"].as_str().unwrap()).await.status, 409);
    server.actor.gate.add_permits(1);
    until_idle(&session).await;
    let unknown = ask(&server, "nowhere").await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_retry_that_is_sent_twice_is_done_once() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let first = server.send_text("one").await.body;
    until_idle(&session).await;
    let path = format!("/v1/sessions/s/messages/{}/retry", first["message_id"].as_str().unwrap());
    let done = server.request_json("POST", &path, Some("k"), &Value::Null).await;
    until_idle(&session).await;
    let again = server.request_json("POST", &path, Some("k"), &Value::Null).await;
    assert_eq!((again.status.as_u16(), &again.body), (202, &done.body));
    assert_eq!(count(&session, "SUPERSEDE").await, 1);
}

#[tokio::test]
async fn for_an_agent_elsewhere_a_retry_is_only_logged() {
    let server = Harness::new();
    let session = server.session("s", "external").await;
    let one = server.send_text("one").await.body;
    server.send_text("two").await;
    let answer = ask(&server, one["message_id"].as_str().unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.body.get("reply_id")), (202, None));
    assert_eq!(types(&session).await, ["MESSAGE", "MESSAGE", "SUPERSEDE"]);
}

#[tokio::test]
async fn what_comes_in_while_a_retry_is_planned_is_taken_out_too() {
    let store = Arc::new(FaultyStore::default());
    let server = Arc::new(Harness::with_store(store.clone(), ""));
    let session = server.session("s", "external").await;
    let one = server.send_text("one").await.body["message_id"].as_str().unwrap().to_owned();
    server.send_text("two").await;
    store.is_slow_to_read.store(true, Ordering::SeqCst);
    let retry = tokio::spawn({
        let server = server.clone();
        async move { ask(&server, &one).await }
    });
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    server.send_text("three").await;
    store.hand_out.add_permits(100);
    assert_eq!(retry.await.unwrap().status, 202);
    let log = events(&session).await;
    let EventKind::Supersede(supersede) = &log.last().unwrap().kind else { panic!() };
    assert_eq!(supersede.message_ids.len(), 2);
}
